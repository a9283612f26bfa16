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
    let mut pack = Command::new(script);
    pack.args(["--level", "1", "--from"]).arg(build).arg("--out").arg(out).env("SOURCE_DATE_EPOCH", "1700000000");
    succeeds(&mut pack);
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
    links(binary);
    let said = succeeds(Command::new(binary).arg("libraries").arg(folder.path().join("new/folder")));
    let named = String::from_utf8_lossy(&said.stdout).lines().map(|path| Path::new(path).is_file()).collect::<Vec<_>>();
    assert_eq!(named, [true; 4], "the library, the archive, its options, the header: {said:?}");
    assert!(binary.with_file_name("heaptrace-replay").is_file(), "what replays lies beside");
    assert!(binary.with_file_name("heaptrace-fleet").is_file(), "what collects lies beside");
}

/// Links a program with what was installed, as `heaptrace run` says it is done, and records it.
fn links(binary: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let compiler = |more: &[&str]| {
        let mut command = Command::new("gcc");
        command.args(["-O1", "-static", "-o", "five"]).arg(root().join("tests/programs/five.c")).args(more);
        succeeds(command.current_dir(folder.path()));
    };
    let run = || {
        let mut command = Command::new(binary);
        command.args(["run", "-o", "five.dat", "--", "./five"]).current_dir(folder.path());
        command.env_clear().env("PATH", "/usr/bin:/bin").output().unwrap()
    };
    compiler(&[]);
    let refused = String::from_utf8(run().stderr).unwrap();
    let recipe = refused.split("gcc -static … ").nth(1).unwrap_or_else(|| panic!("{refused}"));
    compiler(&recipe.split(' ').take(2).collect::<Vec<_>>());
    assert!(run().status.success());
    assert_eq!(number(&json(&["info"], &folder.path().join("five.dat")), "/allocations/count"), 5);
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

    // A folder is named from where one is; what is no option is none, and makes nothing.
    let install = |arguments: &[&str]| {
        Command::new(unpacked.join("install.sh")).args(arguments).current_dir(folder.path()).output().unwrap()
    };
    assert!(install(&["--prefix", "here"]).status.success());
    assert!(folder.path().join("here/bin/heaptrace").is_file());
    let refused = install(&["--prefx", "there"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("usage: install.sh"));
    assert!(!folder.path().join("there").exists() && !unpacked.join("there").exists());
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
fn the_rpm_package_unpacks_to_what_works() {
    let folder = tempfile::tempdir().unwrap();
    // The payload, as an archive that tar reads.
    let archive = folder.path().join("payload.tgz");
    let package = package(".rpm");
    std::fs::copy(&package, folder.path().join("it.rpm")).unwrap();
    succeeds(Command::new("rpm2archive").arg("it.rpm").current_dir(folder.path()));
    std::fs::rename(folder.path().join("it.rpm.tgz"), &archive).unwrap();
    succeeds(Command::new("tar").arg("xzf").arg(&archive).arg("-C").arg(folder.path()));
    records(&folder.path().join("usr/bin/heaptrace"));
    let said = succeeds(Command::new("rpm").args(["-qp", "--nosignature", "--requires"]).arg(&package));
    assert!(String::from_utf8_lossy(&said.stdout).contains("libc.so.6(GLIBC_2."), "{said:?}");
    let said = succeeds(
        Command::new("rpm").args(["-qp", "--nosignature", "--qf", "%{NAME} %{ARCH} %{LICENSE}"]).arg(&package),
    );
    assert_eq!(String::from_utf8_lossy(&said.stdout), "tracehound x86_64 MIT OR Apache-2.0");
}

#[test]
fn the_list_of_parts_names_what_is_linked_in_and_nothing_else() {
    let text = std::fs::read(package(".cdx.json")).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&document["bomFormat"], &document["specVersion"]), (&"CycloneDX".into(), &"1.6".into()));
    let components = document["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    for name in ["tracehound-preload", "tracehound-linked", "heaptrace", "libc", "axum", "tikv-jemalloc-sys", "react"] {
        assert!(named(name).is_some(), "{name}");
    }
    // What tests need, and what runs in the compiler.
    for name in ["insta", "proptest", "serde_derive", "tracehound-tests", "vitest", "typescript"] {
        assert!(named(name).is_none(), "{name}");
    }
    let crates = components.iter().filter(|component| component["purl"].as_str().unwrap().starts_with("pkg:cargo/"));
    for component in crates.filter(|component| !component["name"].as_str().unwrap().contains("tracehound")) {
        let own = component["name"].as_str().unwrap().starts_with("heaptrace");
        assert!(own || component["hashes"][0]["content"].as_str().unwrap().len() == 64, "{component}");
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
    }
    let known: Vec<&serde_json::Value> = components.iter().map(|component| &component["bom-ref"]).collect();
    for entry in document["dependencies"].as_array().unwrap() {
        for needed in entry["dependsOn"].as_array().unwrap() {
            assert!(known.contains(&needed), "{needed}");
        }
    }
}

#[test]
fn the_image_and_the_release_take_what_is_packed() {
    let text = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let docker = text("packaging/Dockerfile");
    let added = docker.lines().find_map(|line| line.strip_prefix("ADD ")).unwrap().split(' ').next().unwrap();
    assert!(packages().join(added.replace("${VERSION}", env!("CARGO_PKG_VERSION"))).is_file(), "{added}");
    assert!(docker.lines().any(|line| line == "FROM scratch"));
    let release = text(".github/workflows/release.yml");
    assert!(release.contains("run: make dist\n") && release.contains("target/packages/*\n"), "{release}");
    let packed = std::fs::read_to_string(packages().join("SHA256SUMS")).unwrap();
    let all = std::fs::read_dir(packages()).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<String> = all.filter(|name| name != "SHA256SUMS").collect();
    names.sort();
    let mut summed: Vec<&str> = packed.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    summed.sort_unstable();
    assert_eq!(summed, names, "each has its sum");
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
