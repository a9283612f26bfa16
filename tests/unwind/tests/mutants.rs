//! Takes away one check of the unwinder after the other and demands that some test fails each time. See mutants.txt
//! for the list; `mutate.sh` runs this.
//!
//! What keeps it quick: one crate and one library are built anew, several copies at once; the test that caught a mutant
//! the last time, which the list names, comes first; no test may take much longer than it takes without any change.

mod support;

use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One changed place.
struct Mutant {
    name: String,
    file: String,
    /// The test that caught it, as it is [written](Step::name); empty where nobody has said so.
    caught_by: String,
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

/// Not a program of its own but a test that cargo builds and runs, with these words.
const BY_CARGO: &str = "cargo test";

impl Step {
    fn name(&self) -> String {
        let words = self.arguments.iter().filter(|word| !matches!(**word, "." | "-p" | "--lib" | "--test"));
        let words: Vec<&str> = [self.program].into_iter().chain(words.copied()).collect();
        words.join(" ")
    }
}

/// Quick ones first: most mutants fail one of these.
const STEPS: &[Step] = &[
    step("directed", &["rbp-at-the-top"]),
    step("directed", &["rbp-at-the-top-far"]),
    step("directed", &["rbp-without-join-far"]),
    step("directed", &["many-callers-far"]),
    step("directed", &["rbp-kept-inside"]),
    step("directed", &["rbp-saved-inside"]),
    step("directed", &["rooms-a-mebibyte-apart"]),
    step("directed", &["rbp-without-join"]),
    step("directed", &["rbp-through-a-realigned-frame"]),
    step("directed", &["realigned-rbp"]),
    step("directed", &["many-callers"]),
    step("directed", &["outermost-frames"]),
    step("directed", &["lying-frames"]),
    step("directed", &["bad-rbp"]),
    step("directed", &["cut-frames"]),
    step("directed", &["no-information"]),
    step("directed", &["epilogues"]),
    step("directed", &["general"]),
    step("directed", &["lying-general"]),
    step("directed", &["passing-stacks"]),
    step("directed", &["signal-checks"]),
    step("directed", &["restorer-without-information"]),
    step("directed", &["small-signal-stack"]),
    step("directed", &["overflowed-stack"]),
    step("directed", &["jumps-out-of-handlers", "."]),
    step("directed", &["destroy-gives-everything-back", "."]),
    step("directed", &["deeper-than-memory", "."]),
    step("directed", &["deep"]),
    step("directed", &["forgetting"]),
    step("directed", &["forgotten-far"]),
    step("directed", &["signatures-of-two-calls"]),
    step("directed", &["signatures-with-rbp"]),
    step("directed", &["signatures-of-a-shorter-stack"]),
    step("loading", &["same-library-again", "."]),
    step("loading", &["other-library-in-its-place", "."]),
    step("loading", &["library-known-by-paths-alone", "."]),
    step("loading", &["twin-library-in-its-place", "."]),
    step("loading", &["unnamed-library-in-its-place", "."]),
    step("loading", &["compiled-at-run-time", "."]),
    step("loading", &["information-on-disk", "."]),
    step("loading", &["damaged-registration", "."]),
    step("loading", &["code-in-place-of-a-library", "."]),
    step("differential", &["repeating"]),
    step("differential", &["bushes"]),
    step("differential", &["odd-fast"]),
    step("differential", &["odd"]),
    step("differential", &["without-information"]),
    step("differential", &["trees"]),
    step("differential", &["exceptions"]),
    step("differential", &["signals"]),
    step("differential", &["coroutines"]),
    step("differential", &["interrupts"]),
    step("differential", &["interrupts-alternate"]),
    step(BY_CARGO, &["-p", "tracehound-unwind", "--lib"]),
    step(BY_CARGO, &["-p", "tracehound-shared", "--lib"]),
    step(BY_CARGO, &["-p", "tracehound-unwind-tests", "--test", "cfi"]),
];

/// How much longer than without any change a test may take.
const SLOWER: u32 = 6;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "takes minutes: run mutate.sh"]
fn every_check_is_needed() {
    let chosen = std::env::var("MUTANTS").unwrap_or_default();
    let is_chosen = |mutant: &Mutant| chosen.split(',').any(|part| mutant.name.contains(part));
    let mutants: Vec<Mutant> = parse(include_str!("../mutants.txt")).into_iter().filter(is_chosen).collect();
    assert!(!mutants.is_empty(), "no mutant is called {chosen}");
    let workers = std::env::var("MUTANTS_AT_ONCE").ok().and_then(|number| number.parse().ok());
    let workers = workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from).min(4));
    let copies: Vec<Copy> = (0..workers.min(mutants.len())).map(Copy::new).collect();
    let Some(first) = copies.first() else { panic!("MUTANTS_AT_ONCE must be a number from 1 up") };
    let report = Mutex::new(fs::File::create(first.folder.join("report.txt")).expect("a report can be written"));
    let (next, survivors) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for copy in &copies {
            scope.spawn(|| {
                let limits = copy.time_limits();
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = Instant::now();
                    let verdict = copy.judge(mutant, &limits);
                    survivors.fetch_add(usize::from(!matches!(verdict, Verdict::Caught(..))), Ordering::Relaxed);
                    let seconds = begun.elapsed().as_secs_f64();
                    let line = format!("{:55} {seconds:5.1} s  {verdict}", mutant.name);
                    println!("{line}");
                    writeln!(report.lock().expect("no other worker failed"), "{line}").expect("a report takes lines");
                }
            });
        }
    });
    let survivors = survivors.into_inner();
    assert_eq!(survivors, 0, "of {} mutants, {survivors} were not caught", mutants.len());
}

/// What became of a mutant.
enum Verdict {
    /// The first test that failed, and how.
    Caught(String, String),
    Survived,
    NoMutant(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Caught(test, how) => write!(f, "{test}: {how}"),
            Verdict::Survived => write!(f, "SURVIVED"),
            Verdict::NoMutant(why) => write!(f, "NO MUTANT: {why}"),
        }
    }
}

fn parse(text: &str) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for part in text.split("\n=== ").skip(1) {
        let (name, rest) = part.split_once('\n').expect("a name");
        let (file, rest) = rest.split_once('\n').expect("a file");
        let (before, after) = rest.split_once("\n+++").expect("what to put there");
        let (caught_by, before) = before.split_once("---").expect("a text to replace");
        let before = before.split_once('\n').expect("a text").1;
        let after = after.strip_prefix('\n').unwrap_or(after).trim_end();
        mutants.push(Mutant {
            name: name.trim().into(),
            file: file.trim().into(),
            caught_by: caught_by.trim().trim_start_matches("caught by ").into(),
            before: before.into(),
            after: after.into(),
        });
    }
    mutants
}

/// A copy of the recorder, built by itself again and again.
struct Copy {
    folder: PathBuf,
}

/// What the unwinder's tests need of the workspace.
const PARTS: &[&str] = &["format/src", "format/Cargo.toml", "collector", "Cargo.lock"];

impl Copy {
    fn new(number: usize) -> Copy {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{number}"));
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = tests.join("../..");
        for part in PARTS {
            let _ = fs::remove_dir_all(folder.join(part));
            copy_all(&root.join(part), &folder.join(part));
        }
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
            fs::write(path, text).expect("a file can be written");
        };
        write("Cargo.toml", &workspace(&fs::read_to_string(root.join("Cargo.toml")).expect("the workspace")));
        write("probe/Cargo.toml", &PROBE.replace("{tests}", &tests.display().to_string()));
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

    /// How long each test takes without any change, and some more. All must pass.
    fn time_limits(&self) -> Vec<Duration> {
        self.build().expect("the copy compiles");
        let limit = |step| {
            let begun = Instant::now();
            if let Some(failure) = self.failure_of(step, PATIENCE) {
                panic!("without any change: {}: {failure}", step.name());
            }
            Duration::from_secs(2) + begun.elapsed() * SLOWER
        };
        STEPS.iter().map(limit).collect()
    }

    /// How this test fails, if it does.
    fn failure_of(&self, step: &Step, patience: Duration) -> Option<String> {
        if step.program == BY_CARGO {
            let arguments = [&["test"], step.arguments].concat();
            return self.cargo(&arguments).err().map(|_| "failed".into());
        }
        let output = support::run_for(patience, &self.folder.join("target/mutant"), step.program, step.arguments, &[]);
        let text = String::from_utf8_lossy(&output.stdout);
        let agreed = step.program != "differential" || text.contains(" mismatches 0 ");
        (!output.status.success() || !agreed).then(|| output.status.to_string())
    }

    /// Changes the copy, and runs all tests until one fails.
    fn judge(&self, mutant: &Mutant, limits: &[Duration]) -> Verdict {
        let path = self.folder.join("collector").join(&mutant.file);
        let original = fs::read_to_string(&path).expect("a file of the unwinder");
        if !original.contains(&mutant.before) {
            return Verdict::NoMutant("its text is not in the file".into());
        }
        fs::write(&path, original.replacen(&mutant.before, &mutant.after, 1)).expect("the mutant is written");
        let verdict = self.try_all(mutant, limits);
        fs::write(&path, original).expect("the original comes back");
        verdict
    }

    fn try_all(&self, mutant: &Mutant, limits: &[Duration]) -> Verdict {
        let mut steps: Vec<(&Step, Duration)> = STEPS.iter().zip(limits.iter().copied()).collect();
        steps.sort_by_key(|(step, _)| step.name() != mutant.caught_by);
        if let Err(error) = self.build() {
            return Verdict::NoMutant(format!("it does not compile\n{error}"));
        }
        for (step, patience) in steps {
            if let Some(how) = self.failure_of(step, patience) {
                return Verdict::Caught(step.name(), how);
            }
        }
        Verdict::Survived
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

/// The workspace's manifest with other members, and without its profiles.
fn workspace(manifest: &str) -> String {
    let (before, rest) = manifest.split_once("members = [").expect("members");
    let (_, rest) = rest.split_once(']').expect("the members end");
    let (dependencies, _) = rest.split_once("[profile.").expect("profiles stand last");
    format!("{before}members = [\"format\", \"collector/*\", \"probe\"]{dependencies}{PROFILE}")
}

const PROFILE: &str = r#"
[profile.mutant]
inherits = "release"
opt-level = 1
debug = false
incremental = true
codegen-units = 16
"#;

const PROBE: &str = r#"
[package]
name = "tracehound-unwind-tests"
version.workspace = true
edition.workspace = true
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
tracehound-lifecycle.workspace = true
tracehound-shared.workspace = true
tracehound-unwind.workspace = true
framehop.workspace = true
libc.workspace = true
object = { workspace = true, features = ["read", "std"] }
tikv-jemalloc-sys.workspace = true

[dev-dependencies]
gimli = { workspace = true, features = ["read"] }
"#;
