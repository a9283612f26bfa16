//! Takes away one check of the unwinder after the other and demands that some test fails each time. See mutants.txt
//! for the list; `mutate.sh` runs this.

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// One changed place.
struct Mutant {
    name: String,
    file: String,
    before: String,
    after: String,
}

/// What a program must say: its arguments, and whether mismatches count beside the exit code.
struct Step {
    program: &'static str,
    arguments: &'static [&'static str],
}

const fn step(program: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { program, arguments }
}

/// Quick ones first: most mutants fail one of these.
const STEPS: &[Step] = &[
    step("directed", &["rbp-at-the-top"]),
    step("directed", &["rbp-at-the-top-far"]),
    step("directed", &["rbp-without-join-far"]),
    step("directed", &["many-callers-far"]),
    step("directed", &["rbp-kept-inside"]),
    step("directed", &["rbp-saved-inside"]),
    step("directed", &["rbp-without-join"]),
    step("directed", &["rbp-through-a-realigned-frame"]),
    step("directed", &["realigned-rbp"]),
    step("directed", &["many-callers"]),
    step("directed", &["outermost-frames"]),
    step("directed", &["lying-frames"]),
    step("directed", &["bad-rbp"]),
    step("directed", &["cut-frames"]),
    step("directed", &["no-information"]),
    step("directed", &["general"]),
    step("directed", &["lying-general"]),
    step("directed", &["passing-stacks"]),
    step("directed", &["signal-checks"]),
    step("directed", &["restorer-without-information"]),
    step("directed", &["small-signal-stack"]),
    step("directed", &["overflowed-stack"]),
    step("directed", &["deep"]),
    step("directed", &["forgetting"]),
    step("directed", &["forgotten-far"]),
    step("loading", &["same-library-again", "."]),
    step("loading", &["other-library-in-its-place", "."]),
    step("loading", &["library-known-by-paths-alone", "."]),
    step("loading", &["twin-library-in-its-place", "."]),
    step("loading", &["unnamed-library-in-its-place", "."]),
    step("loading", &["compiled-at-run-time", "."]),
    step("loading", &["information-on-disk", "."]),
    step("loading", &["damaged-registration", "."]),
    step("differential", &["repeating"]),
    step("differential", &["odd-fast"]),
    step("differential", &["odd"]),
    step("differential", &["without-information"]),
    step("differential", &["trees"]),
    step("differential", &["exceptions"]),
    step("differential", &["signals"]),
    step("differential", &["coroutines"]),
    step("differential", &["interrupts"]),
    step("differential", &["interrupts-alternate"]),
];

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
#[ignore = "takes minutes: run mutate.sh"]
fn every_check_is_needed() {
    let chosen = std::env::var("MUTANTS").unwrap_or_default();
    let is_chosen = |mutant: &Mutant| chosen.split(',').any(|part| mutant.name.contains(part));
    let mutants: Vec<Mutant> = parse(include_str!("../mutants.txt")).into_iter().filter(is_chosen).collect();
    assert!(!mutants.is_empty(), "no mutant is called {chosen}");
    let copy = Copy::new();
    copy.build().expect("the copy compiles");
    if let Some(failure) = copy.first_failure() {
        panic!("without any change: {failure}");
    }
    let mut report = String::new();
    let mut survivors = 0;
    for mutant in &mutants {
        let begun = Instant::now();
        let verdict = copy.with(mutant, || match copy.build() {
            Err(error) => format!("DOES NOT COMPILE\n{error}"),
            Ok(()) => copy.first_failure().unwrap_or_else(|| "SURVIVED".into()),
        });
        survivors += usize::from(verdict.starts_with("SURVIVED") || verdict.starts_with("DOES NOT"));
        let line = format!("{:55} {:5.1} s  {verdict}", mutant.name, begun.elapsed().as_secs_f64());
        println!("{line}");
        writeln!(report, "{line}").expect("a string takes everything");
    }
    fs::write(copy.folder.join("report.txt"), &report).expect("the report is written");
    assert_eq!(survivors, 0, "of {} mutants, {survivors} were not caught", mutants.len());
}

fn parse(text: &str) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for part in text.split("\n=== ").skip(1) {
        let (name, rest) = part.split_once('\n').expect("a name");
        let (file, rest) = rest.split_once('\n').expect("a file");
        let (before, after) = rest.split_once("\n+++").expect("what to put there");
        let before = before.strip_prefix("---").expect("a text to replace").split_once('\n').expect("a text").1;
        let after = after.strip_prefix('\n').unwrap_or(after).trim_end();
        mutants.push(Mutant {
            name: name.trim().into(),
            file: file.trim().into(),
            before: before.into(),
            after: after.into(),
        });
    }
    mutants
}

/// A copy of the unwinder, small enough to be built again and again.
struct Copy {
    folder: PathBuf,
}

/// What the unwinder consists of.
const PARTS: &[&str] = &[
    "hot/unwind",
    "hot/clock.rs",
    "shared/call_tree.rs",
    "shared/code.rs",
    "shared/code",
    "shared/elf_file.rs",
    "shared/sys",
];

impl Copy {
    fn new() -> Copy {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = tests.join("../..");
        let source = folder.join("collector/src");
        let _ = fs::remove_dir_all(folder.join("collector"));
        for part in PARTS {
            copy_all(&root.join("collector/src").join(part), &source.join(part));
        }
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
            fs::write(path, text).expect("a file can be written");
        };
        write("collector/src/lib.rs", "#![allow(missing_docs)]\npub mod hot;\npub mod shared;\n");
        write("collector/src/hot/mod.rs", "pub mod clock;\npub mod unwind;\n");
        write("collector/src/shared/mod.rs", "pub mod call_tree;\npub mod code;\npub mod elf_file;\npub mod sys;\n");
        write("Cargo.toml", WORKSPACE);
        write("collector/Cargo.toml", COLLECTOR);
        write("probe/Cargo.toml", &PROBE.replace("{tests}", &tests.display().to_string()));
        fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the lock file");
        Copy { folder }
    }

    fn cargo(&self, arguments: &[&str]) -> Result<(), String> {
        let output = Command::new(env!("CARGO"))
            .args(arguments)
            .args(["--offline", "--quiet", "--profile", "mutant"])
            .env("CARGO_TARGET_DIR", self.folder.join("target"))
            .env_remove("RUSTFLAGS")
            .current_dir(&self.folder)
            .output()
            .expect("cargo starts");
        let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        if output.status.success() { Ok(()) } else { Err(text.into_owned()) }
    }

    fn build(&self) -> Result<(), String> {
        self.cargo(&["build", "-p", "tracehound-unwind-tests"])
    }

    /// Runs all tests until one fails, and says which.
    fn first_failure(&self) -> Option<String> {
        let probe = self.folder.join("target/mutant");
        for step in STEPS {
            let output = support::run_for(PATIENCE, &probe, step.program, step.arguments, &[]);
            let text = String::from_utf8_lossy(&output.stdout);
            let agreed = step.program != "differential" || text.contains(" mismatches 0 ");
            if !output.status.success() || !agreed {
                return Some(format!("{} {}: {}", step.program, step.arguments.join(" "), output.status));
            }
        }
        if self.cargo(&["test", "-p", "tracehound-collector", "--lib"]).is_err() {
            return Some("unit tests".into());
        }
        self.cargo(&["test", "-p", "tracehound-unwind-tests", "--test", "cfi"]).err().map(|_| "cfi".into())
    }

    fn with(&self, mutant: &Mutant, work: impl FnOnce() -> String) -> String {
        let path = self.folder.join("collector/src").join(&mutant.file);
        let original = fs::read_to_string(&path).expect("a file of the unwinder");
        let places = original.matches(&mutant.before).count();
        if places == 0 {
            return "DOES NOT APPLY".replace("APPLY", "COMPILE: its text is not in the file");
        }
        fs::write(&path, original.replacen(&mutant.before, &mutant.after, 1)).expect("the mutant is written");
        let verdict = work();
        fs::write(&path, original).expect("the original comes back");
        verdict
    }
}

fn copy_all(from: &Path, to: &Path) {
    if from.is_dir() {
        for entry in fs::read_dir(from).expect("a folder") {
            let entry = entry.expect("an entry");
            copy_all(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder can be made");
        // Written anew rather than copied, so that cargo sees new times.
        fs::write(to, fs::read(from).expect("a source")).expect("a copy");
    }
}

const WORKSPACE: &str = r#"
[workspace]
resolver = "3"
members = ["collector", "probe"]

[profile.mutant]
inherits = "release"
opt-level = 2
debug = false
incremental = true
codegen-units = 16
"#;

const COLLECTOR: &str = r#"
[package]
name = "tracehound-collector"
version = "0.1.0"
edition = "2024"

[dependencies]
gimli = { version = "0.34", default-features = false, features = ["read"] }
libc = "0.2"
rustix = { version = "1.1", default-features = false, features = ["std", "fs", "mm", "process", "thread", "time"] }
"#;

const PROBE: &str = r#"
[package]
name = "tracehound-unwind-tests"
version = "0.1.0"
edition = "2024"
autobins = false

[lib]
name = "tracehound_unwind_probe"
path = "{tests}/src/lib.rs"
crate-type = ["cdylib", "rlib"]
test = false

[[test]]
name = "cfi"
path = "{tests}/tests/cfi.rs"

[dependencies]
tracehound-collector = { path = "../collector" }
framehop = { version = "0.16", default-features = false, features = ["std"] }
libc = "0.2"
object = { version = "0.40", default-features = false, features = ["read", "std"] }

[dev-dependencies]
gimli = { version = "0.34", default-features = false, features = ["read"] }
"#;
