//! The interpreters of Python that tests run with.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::root;

/// CPython 3.9 to 3.15 on this machine: the system's, those of pyenv, and what `tests/newer-pythons.sh` has fetched.
pub fn pythons() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/usr/bin/python3")];
    let versions = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv/versions"));
    let folders = versions.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    found.extend(folders.map(|folder| folder.path().join("bin/python3")));
    let newer = root().join("target/pythons/root/usr/bin");
    found.extend(["python3.14", "python3.15"].map(|name| newer.join(name)));
    // By version, so that the order does not depend on where the sources are.
    let mut found: Vec<_> = found.into_iter().map(|path| (minor(&path), path)).collect();
    found.retain(|(version, _)| (9..=15).contains(version));
    found.sort();
    assert!(!found.is_empty(), "no Python 3.9 to 3.15 here: install python3");
    found.into_iter().map(|(_, path)| path).collect()
}

fn minor(interpreter: &Path) -> u32 {
    let code = "import sys; print(sys.version_info[1] if sys.version_info[0] == 3 else 0)";
    let output = Command::new(interpreter).args(["-c", code]).output();
    output.ok().and_then(|output| String::from_utf8_lossy(&output.stdout).trim().parse().ok()).unwrap_or(0)
}
