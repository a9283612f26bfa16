//! Compiles a program, and runs it with and without the recorder.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::recording::Recording;

/// The preload library of the profile that this test was built with.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let library = test.ancestors().nth(2).expect("it lies in target/PROFILE/deps").join("libtracehound.so");
    assert!(library.exists(), "{} is missing: `make build` or `make test-build` makes it", library.display());
    library
}

/// Compiles `programs/<name>.c`.
pub fn compile(name: &str) -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary folder"));
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let to = folder.path().join(format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traced/programs").join(name).with_extension("c");
    let status = Command::new("cc").args(["-g", "-O1", "-Wall", "-o"]).arg(&to).arg(source).arg("-pthread").status();
    assert!(status.expect("cc can be started").success(), "{name} does not compile");
    to
}

/// A traced run.
pub struct Run {
    /// Where it ran; its recordings lie here.
    pub folder: TempDir,
    /// How it ended, what it printed.
    pub output: Output,
}

/// A command that runs `program` under the recorder in `folder`.
pub fn traced(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("LD_PRELOAD", library());
    command
}

/// Runs a program without and with the recorder: exit and output must be the same.
pub fn unharmed(name: &str, args: &[&str], options: &[(&str, &str)]) -> Run {
    let program = compile(name);
    let empty = tempfile::tempdir().expect("a temporary folder");
    let plain = Command::new(&program).args(args).current_dir(empty.path()).output().expect("it can be started");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = traced(&program, folder.path());
    let output = command.args(args).envs(options.iter().copied()).output().expect("it can be started");
    assert_eq!(output.status, plain.status, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&plain.stdout));
    assert_eq!(String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&plain.stderr));
    Run { folder, output }
}

impl Run {
    /// Paths of all recordings.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(self.folder.path())
            .expect("the folder can be read")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "dat"))
            .collect();
        paths.sort();
        paths
    }

    /// The only recording.
    pub fn recording(&self) -> Recording {
        let paths = self.paths();
        assert_eq!(paths.len(), 1, "{paths:?}; {}", String::from_utf8_lossy(&self.output.stderr));
        Recording::read(&paths[0])
    }

    /// Numbers that the program printed, by name: lines of `name value`.
    pub fn printed(&self, name: &str) -> u64 {
        let text = String::from_utf8_lossy(&self.output.stdout).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.unwrap_or_else(|| panic!("no {name} in {text:?}"))
    }
}
