//! `heaptrace` as it is shipped: one static file that carries the libraries. It is brought alone into systems that have nothing
//! but a C library and a program, and records, reads and attaches there.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;
use tracehound_tests::attached::Program;
use tracehound_tests::musl::FLAG;
use tracehound_tests::shipped::{other_system, shipped_heaptrace};
use tracehound_tests::{compile, json, number, root};

/// The loader of musl's programs, and all of their C library.
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The program without debug information, as it is packed.
fn bring(folder: &Path) -> PathBuf {
    let there = folder.join("heaptrace");
    succeeds(Command::new("strip").args(["--strip-debug", "-o"]).arg(&there).arg(shipped_heaptrace()));
    there
}

/// A root folder with musl and a program, and nothing else.
fn musl_root(program: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for made in ["lib", "tmp"] {
        std::fs::create_dir(folder.path().join(made)).unwrap();
    }
    std::fs::set_permissions(folder.path().join("tmp"), Permissions::from_mode(0o1777)).unwrap();
    std::fs::copy(MUSL, folder.path().join(&MUSL[1..])).unwrap();
    std::fs::copy(program, folder.path().join("program")).unwrap();
    folder
}

/// A command with that folder as its root: by root at once, by others in a user namespace.
fn inside(folder: &Path, arguments: &[&str]) -> Command {
    // SAFETY: no arguments, no failure.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut command = Command::new(if is_root { "chroot" } else { "unshare" });
    if !is_root {
        command.args(["--map-root-user", "chroot"]);
    }
    command.arg(folder).args(arguments).env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    command
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[ignore = "builds heaptrace as it is shipped by zig, minutes: make systems"]
fn it_is_static() {
    let said = succeeds(Command::new("readelf").args(["-lW"]).arg(shipped_heaptrace()));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("LOAD") && !said.contains("INTERP") && !said.contains("DYNAMIC"), "{said}");
}

#[test]
#[ignore = "builds heaptrace as it is shipped by zig, minutes: make systems"]
fn it_records_and_reads_where_there_is_musl_alone() {
    let folder = musl_root(&compile("five.c", &["-O1", FLAG]));
    bring(folder.path());
    succeeds(&mut inside(folder.path(), &["/heaptrace", "run", "-o", "/five.dat", "--", "/program"]));
    let info = document(&succeeds(&mut inside(folder.path(), &["/heaptrace", "info", "--json", "/five.dat"])));
    assert_eq!((number(&info, "/allocations/count"), &info["end"]), (5, &"exit".into()));
    let leaks = document(&succeeds(&mut inside(folder.path(), &["/heaptrace", "leaks", "--json", "/five.dat"])));
    assert!(leaks["sites"].is_array(), "{leaks:#}");

    // What is carried is written once, for all programs.
    let kept = folder.path().join("var/cache/tracehound");
    let build = std::fs::read_dir(&kept).unwrap().next().unwrap().unwrap().path();
    let mut names: Vec<_> = std::fs::read_dir(&build).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["libtracehound.a", "libtracehound.so", "tracehound-wrap.opts", "tracehound.h"]);
    let said = succeeds(&mut inside(folder.path(), &["/heaptrace", "libraries", "/opt/tracehound"]));
    assert_eq!(String::from_utf8_lossy(&said.stdout).lines().count(), 4);
    let same = |name: &str| {
        std::fs::read(build.join(name)).unwrap()
            == std::fs::read(folder.path().join("opt/tracehound").join(name)).unwrap()
    };
    assert!(same("libtracehound.so") && same("libtracehound.a"));

    // Nothing is written where nothing can be.
    let mut refused = inside(folder.path(), &["/heaptrace", "run", "--", "/program"]);
    std::fs::remove_dir_all(folder.path().join("var")).unwrap();
    std::fs::write(folder.path().join("var"), "no folder").unwrap();
    std::fs::remove_dir(folder.path().join("tmp")).unwrap();
    std::fs::write(folder.path().join("tmp"), "no folder").unwrap();
    let refused = refused.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("by `heaptrace libraries FOLDER`"), "{said}");
}

/// The packages of what is shipped; what they hold beside it is of the release build, which takes less time.
fn packages() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let build = folder.path().join("build");
        std::fs::create_dir(&build).unwrap();
        let shipped = shipped_heaptrace();
        for name in ["heaptrace", "libtracehound.so", "libtracehound.a", "tracehound-wrap.opts"] {
            std::fs::copy(shipped.with_file_name(name), build.join(name)).unwrap();
        }
        for name in ["heaptrace-replay", "heaptrace-fleet"] {
            std::fs::copy(tracehound_tests::heaptrace().with_file_name(name), build.join(name)).unwrap();
        }
        let mut pack = Command::new(root().join("packaging/pack.py"));
        succeeds(pack.args(["--level", "1", "--from"]).arg(&build).arg("--out").arg(folder.path()));
        std::fs::remove_dir_all(build).unwrap();
        folder
    });
    folder.path()
}

fn package(ending: &str) -> PathBuf {
    let mut all = std::fs::read_dir(packages()).unwrap().map(|entry| entry.unwrap().path());
    all.find(|path| path.to_string_lossy().ends_with(ending)).unwrap()
}

/// Alone, as it is downloaded, and as the Debian package installs it.
#[test]
#[ignore = "builds heaptrace as it is shipped by zig, minutes: make systems"]
fn it_records_and_reads_on_an_old_distribution() {
    let folder = tempfile::tempdir().unwrap();
    let system = other_system("bullseye");
    succeeds(Command::new("cp").args(["-a", "--"]).arg(format!("{}/.", system.display())).arg(folder.path()));
    std::fs::copy(package("-x86_64-linux"), folder.path().join("heaptrace")).unwrap();
    succeeds(Command::new("dpkg-deb").arg("-x").arg(package(".deb")).arg(folder.path().join("unpacked")));
    succeeds(
        Command::new("cp").args(["-a", "--"]).arg(folder.path().join("unpacked/usr/.")).arg(folder.path().join("usr")),
    );
    for heaptrace in ["/heaptrace", "/usr/bin/heaptrace"] {
        let run = [heaptrace, "run", "-o", "/list.dat", "--", "/bin/busybox", "ls", "/"];
        let said = succeeds(&mut inside(folder.path(), &run));
        assert!(String::from_utf8_lossy(&said.stdout).contains("heaptrace"), "busybox lists the folder");
        let info = document(&succeeds(&mut inside(folder.path(), &[heaptrace, "info", "--json", "/list.dat"])));
        assert!(
            number(&info, "/allocations/count") > 0 && info["end"] == "exit" && info["complete"] == true,
            "{info:#}"
        );
    }
}

#[test]
#[ignore = "builds heaptrace as it is shipped by zig, minutes: make systems"]
fn it_attaches_with_nothing_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let binary = bring(folder.path());
    let mut command = Command::new(compile("attached.c", &["-O1"]));
    command.arg("2");
    let program = Program::from(command, tempfile::tempdir().unwrap());
    let mut attach = Command::new(&binary);
    attach.args(["attach", "-o", "late.dat", "--for", "300ms", &program.pid()]).current_dir(folder.path());
    succeeds(attach.env("XDG_CACHE_HOME", folder.path().join("cache")));
    assert_eq!(program.rest(), "errors 0\n");
    assert!(number(&json(&["info"], &folder.path().join("late.dat")), "/allocations/count") > 0);
}

/// pip on Alpine takes the wheel that pip on Debian takes.
#[test]
#[ignore = "builds heaptrace as it is shipped by zig, minutes: make systems"]
fn one_wheel_is_for_glibc_and_for_musl() {
    let folder = tempfile::tempdir().unwrap();
    succeeds(Command::new("python3").args(["-m", "venv"]).arg(folder.path().join("venv")));
    let wheel = package(".whl").file_name().unwrap().to_str().unwrap().to_owned();
    // What lies beside was built for this machine's glibc, which the tag says.
    let tags = wheel.strip_suffix(".whl").unwrap().rsplit('-').next().unwrap();
    let (glibc, musl) = tags.split_once('.').unwrap();
    assert!(glibc.starts_with("manylinux_2_") && musl == "musllinux_1_2_x86_64", "{tags}");
    for platform in [glibc, musl] {
        let target = folder.path().join(platform);
        let mut pip = Command::new(folder.path().join("venv/bin/pip"));
        pip.args(["install", "--no-index", "--no-deps", "--disable-pip-version-check", "--only-binary=:all:"]);
        pip.args(["--platform", platform, "tracehound", "--find-links"]).arg(packages()).arg("--target").arg(&target);
        let output = pip.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{platform}: {said}");
        let root = musl_root(&compile("five.c", &["-O1", FLAG]));
        succeeds(Command::new("cp").args(["-a", "--"]).arg(&target).arg(root.path().join("site")));
        succeeds(&mut inside(root.path(), &["/site/bin/heaptrace", "run", "-o", "/five.dat", "--", "/program"]));
        let info =
            document(&succeeds(&mut inside(root.path(), &["/site/bin/heaptrace", "info", "--json", "/five.dat"])));
        assert_eq!(number(&info, "/allocations/count"), 5);
    }
}
