//! `heaptrace collect` and the processes whose recordings it collects.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

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
        Self::collector(&self.spool(), &self.store, options)
    }

    /// `heaptrace collect` of a spool into a store.
    #[must_use]
    pub fn collector(spool: &Path, store: &str, options: &[&str]) -> Command {
        let mut command = Command::new(artifact("heaptrace"));
        command.arg("collect").arg("--spool").arg(spool).args(["--store", store]).args(options);
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

/// An address that nobody listens at.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_address() -> String {
    // Not one that the kernel gives to those who connect: whoever asks for such a port again and again while nobody
    // listens there is connected to itself some day.
    // The clock is read once: two tests that read it themselves can come to the same number, which is free for both.
    static FIRST: LazyLock<u32> =
        LazyLock::new(|| std::time::UNIX_EPOCH.elapsed().expect("the clock is set").subsec_micros());
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let mut number = FIRST.wrapping_add(GIVEN.fetch_add(101, Ordering::Relaxed)) % 20_000;
    loop {
        let address = format!("127.0.0.1:{}", 10_000 + number);
        if std::net::TcpListener::bind(&address).is_ok() {
            return address;
        }
        number = (number + 7) % 20_000;
    }
}

/// Whether a collector answers at an address.
///
/// # Panics
/// When `heaptrace` cannot be started.
#[must_use]
pub fn answers(address: &str) -> bool {
    let mut command = Command::new(artifact("heaptrace"));
    let output = command.args(["collect", "status", address]).output().expect("heaptrace can be started");
    output.status.success()
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
