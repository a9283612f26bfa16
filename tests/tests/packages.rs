//! What `packaging/pack.py` makes of a build: each package is installed where nothing else is, and records a program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;
use tracehound_tests::{compile, heaptrace, json, number, root};

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The packages of the release build, made once.
fn packages() -> &'static Path {
    static PACKAGES: OnceLock<TempDir> = OnceLock::new();
    let folder = PACKAGES.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        pack(folder.path());
        folder
    });
    folder.path()
}

fn pack(out: &Path) {
    let build = heaptrace().parent().unwrap().to_path_buf();
    let script = root().join("packaging/pack.py");
    succeeds(
        Command::new(script).arg("--from").arg(build).arg("--out").arg(out).env("SOURCE_DATE_EPOCH", "1700000000"),
    );
}

fn package(ending: &str) -> PathBuf {
    let mut all = std::fs::read_dir(packages()).unwrap().map(|entry| entry.unwrap().path());
    all.find(|path| path.to_string_lossy().ends_with(ending)).unwrap()
}

/// Records a program of five allocations with what was installed, and nothing of the build around it.
fn records(binary: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary);
    command.args(["run", "-o", "five.dat", "--"]).arg(compile("five.c", &[])).current_dir(folder.path());
    succeeds(command.env_clear().env("PATH", "/usr/bin:/bin"));
    let info = json(&["info"], &folder.path().join("five.dat"));
    assert_eq!((number(&info, "/allocations/count"), &info["end"]), (5, &"exit".into()));
    assert!(binary.with_file_name("heaptrace-replay").is_file(), "what replays lies beside");
}

#[test]
fn the_tarball_installs_and_goes_again() {
    let folder = tempfile::tempdir().unwrap();
    succeeds(Command::new("tar").arg("xzf").arg(package(".tar.gz")).arg("-C").arg(folder.path()));
    let unpacked = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let prefix = folder.path().join("prefix");
    let said = succeeds(Command::new(unpacked.join("install.sh")).arg(&prefix));
    assert!(String::from_utf8_lossy(&said.stdout).starts_with("heaptrace "));
    records(&prefix.join("bin/heaptrace"));
    for file in ["include/tracehound.h", "share/man/man1/heaptrace.1", "share/bash-completion/completions/heaptrace"] {
        assert!(prefix.join(file).is_file(), "{file}");
    }
    succeeds(Command::new(unpacked.join("install.sh")).arg("--remove").arg(&prefix));
    let left = succeeds(Command::new("find").arg(&prefix).args(["-type", "f"]));
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}

#[test]
fn the_debian_package_unpacks_to_what_works() {
    let folder = tempfile::tempdir().unwrap();
    succeeds(Command::new("dpkg-deb").arg("-x").arg(package(".deb")).arg(folder.path()));
    records(&folder.path().join("usr/bin/heaptrace"));
    let control = succeeds(Command::new("dpkg-deb").arg("-f").arg(package(".deb")));
    assert!(String::from_utf8_lossy(&control.stdout).contains("Depends: libc6 (>= 2."));
}

#[test]
fn the_wheel_installs_without_the_network() {
    let folder = tempfile::tempdir().unwrap();
    let environment = folder.path().join("venv");
    succeeds(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let mut pip = Command::new(environment.join("bin/pip"));
    succeeds(pip.args(["install", "--no-index", "--disable-pip-version-check"]).arg(package(".whl")));
    records(&environment.join("bin/heaptrace"));
}

#[test]
fn sums_are_right_and_the_same_build_packs_to_the_same_bytes() {
    succeeds(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(packages()));
    let again = tempfile::tempdir().unwrap();
    pack(again.path());
    let sums = |folder: &Path| std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    assert_eq!(sums(packages()), sums(again.path()));
}
