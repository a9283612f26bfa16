//! `heaptrace collect` and the processes whose recordings it collects.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use crate::process::Running;
use crate::{artifact, library};

/// A spool, a store, and what runs for them.
pub struct Fleet {
    folder: TempDir,
    /// Where the store is, as a URL; a folder unless a test says otherwise.
    pub store: String,
}

impl Default for Fleet {
    /// An empty one.
    fn default() -> Self {
        let folder = tempfile::tempdir().expect("a folder for a spool and a store");
        std::fs::create_dir(folder.path().join("spool")).expect("a spool");
        let store = format!("file://{}", folder.path().join("store").display());
        Self { folder, store }
    }
}

impl Fleet {
    /// The spool.
    #[must_use]
    pub fn spool(&self) -> PathBuf {
        self.folder.path().join("spool")
    }

    /// The folder of the store.
    #[must_use]
    pub fn stored(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// A program that writes its recording into the spool.
    #[must_use]
    pub fn traced(&self, program: &Path, labels: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", library())
            .env("TRACEHOUND_OUTPUT", self.spool().join("%e-%p-%i.dat"))
            .env("TRACEHOUND_LABELS", labels)
            .stdout(Stdio::null());
        command
    }

    /// `heaptrace collect` of the spool into the store.
    #[must_use]
    pub fn collect(&self, options: &[&str]) -> Command {
        let mut command = Command::new(artifact("heaptrace"));
        command.arg("collect").arg("--spool").arg(self.spool()).args(["--store", &self.store]).args(options);
        command
    }

    /// Collects what is there and waits for it.
    ///
    /// # Panics
    /// When that fails.
    pub fn collect_all(&self, options: &[&str]) {
        let mut all = vec!["--once", "--interval", "20"];
        all.extend(options);
        let output = self.collect(&all).output().expect("heaptrace can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// `heaptrace fleet NAME STORE …`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn ask(&self, name: &str, options: &[&str]) -> Output {
        let mut command = Command::new(artifact("heaptrace"));
        command.args(["fleet", name, &self.store]).args(options);
        command.output().expect("heaptrace can be started")
    }

    /// Its JSON document.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn json(&self, name: &str, options: &[&str]) -> serde_json::Value {
        let output = self.ask(name, &[options, &["--json"]].concat());
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("fleet {name}: {error}: {out}{err}"))
    }

    /// The whole recordings of the store.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn recordings(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.stored().join("raw")).expect("the store has recordings");
        let mut all: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        all.retain(|path| path.extension().is_some_and(|end| end == "dat"));
        all.sort();
        all
    }
}

/// Ends a process at once, as a crash does.
///
/// # Panics
/// When it cannot be waited for.
pub fn kill(mut child: Child) {
    let _ = child.kill();
    child.wait().expect("it can be waited for");
}

/// Starts a collector that dies with the test.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn running(mut command: Command) -> Running {
    Running(command.stderr(Stdio::null()).spawn().expect("heaptrace can be started"))
}
