//! Programs for aarch64 under qemu-user, and the recorder for them. `heaptrace` reads their recordings as any others.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::{root, target};

/// The emulator and its arguments: a processor that has everything, signed return addresses among it, by a quick function
/// in place of the architecture's; and the libraries of the cross compiler.
pub const EMULATOR: [&str; 5] =
    ["/usr/bin/qemu-aarch64", "-cpu", "max,pauth-impdef=on", "-L", "/usr/aarch64-linux-gnu"];

/// Where `tests/aarch64.sh` has built the libraries for aarch64; it is run once.
#[must_use]
pub fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let output = Command::new(root().join("tests/aarch64.sh")).output().expect("tests/aarch64.sh can be started");
        assert!(output.status.success(), "tests/aarch64.sh: {}", String::from_utf8_lossy(&output.stderr));
        target().join("aarch64/aarch64-unknown-linux-gnu/release")
    })
}

/// Compiles sources below `tests/` into one program, each with its own flags. `name` names it and its flags.
#[must_use]
pub fn compile(name: &str, sources: &[(String, String)], link: &[&str]) -> PathBuf {
    static LOCK: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let libraries = libraries();
    let folder = target().join("aarch64/programs");
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    let mut objects = Vec::new();
    for (number, (source, flags)) in sources.iter().enumerate() {
        let object = folder.join(format!("{name}-{number}.o"));
        let mut command = compiler(source);
        command.args(["-g", "-Wall", "-c", "-o"]).arg(&object).arg(root().join("tests").join(source));
        run(command.args(flags.split_whitespace()));
        objects.push(object);
    }
    let program = folder.join(name);
    let mut command = compiler(&sources.first().expect("a source").0);
    command
        .arg("-o")
        .arg(&program)
        .args(&objects)
        .arg("-L")
        .arg(libraries)
        .args(link)
        .args(["-pthread", "-ldl", "-lm"]);
    run(&mut command);
    program
}

/// A folder below which the program lies where recordings say that it does: they take the emulator for it.
#[must_use]
pub fn sysroot(program: &Path, folder: &Path) -> PathBuf {
    let root = folder.join("sysroot");
    let place = root.join(EMULATOR[0].trim_start_matches('/'));
    std::fs::create_dir_all(place.parent().expect("a folder")).expect("it can be made");
    std::fs::copy(program, place).expect("the program can be copied");
    root
}

fn compiler(source: &str) -> Command {
    Command::new(if source.ends_with(".cpp") { "aarch64-linux-gnu-g++" } else { "aarch64-linux-gnu-gcc" })
}

fn run(command: &mut Command) {
    let output = command.output().expect("tests/aarch64.sh has installed a cross compiler");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}
