//! What is shipped, and the systems that it must run on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{root, target};

/// Runs a script, which must succeed.
fn run(script: &str, options: &[&str], folder: &Path) {
    let mut command = Command::new(root().join(script));
    let output = command.args(options).arg(folder).output().unwrap_or_else(|error| panic!("{script}: {error}"));
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A library as `make dist` builds it, in the folder of all of them.
///
/// # Panics
/// If it cannot be built here, with the reason.
#[must_use]
pub fn shipped_library(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = target().join("shipped");
        run("packaging/build.sh", &["--libraries"], &folder);
        folder
    });
    let library = folder.join(name);
    assert!(library.is_file(), "{name} was not built: packaging/build.sh {} says why", folder.display());
    library
}

/// `heaptrace` as `make dist` builds it: one static program that carries the libraries.
///
/// # Panics
/// If it cannot be built here, with the reason.
#[must_use]
pub fn shipped_heaptrace() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = target().join("shipped");
        run("packaging/build.sh", &["--heaptrace"], &folder);
        folder
    });
    folder.join("heaptrace")
}

/// The C library of another system below `target/systems`: `bullseye` has glibc 2.31, `trixie` 2.41.
#[must_use]
pub fn other_system(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = target().join("systems");
        run("tests/systems.sh", &[], &folder);
        folder
    });
    folder.join(name)
}

/// The compiler's flag that makes a program for that system.
#[must_use]
pub fn flag_for(system: &str) -> String {
    format!("@{}", other_system(system).join("flags").display())
}
