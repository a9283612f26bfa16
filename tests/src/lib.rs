//! The harness of the end-to-end tests: compile a small program, run it plain and traced, ask `heaptrace` about it.
//!
//! The programs lie in `tests/programs` and print their own ground truth. The recorder and `heaptrace` are the release
//! builds that `make build` makes; a test that cannot find them fails and says so.

pub mod aarch64;
pub mod attached;
pub mod exporting;
pub mod fault_proxy;
pub mod fleet;
pub mod ground_truth;
pub mod http_client;
pub mod ledger;
pub mod musl;
pub mod pprof_rules;
pub mod process;
mod pythons;
pub mod redis;
pub mod shipped;
pub mod stated_stacks;
mod truth;
pub mod valgrind;

pub use pythons::pythons;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The workspace's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A product of the profile that this test was built with.
fn artifact(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let path = test.ancestors().nth(2).expect("it lies in target/PROFILE/deps").join(name);
    assert!(path.exists(), "{} is missing: `make build` or `make test-build` makes it", path.display());
    path
}

/// The profile of cargo that this test was built with, which those that build programs use, too.
#[must_use]
pub fn profile() -> String {
    let folder = artifact("libtracehound.so");
    folder.parent().and_then(Path::file_name).expect("a folder").to_string_lossy().into_owned()
}

/// `libtracehound.so`.
#[must_use]
pub fn library() -> PathBuf {
    artifact("libtracehound.so")
}

/// Flags by which a compiler links the recorder into a program of C or C++.
#[must_use]
pub fn link_flags() -> [String; 2] {
    [format!("@{}", artifact("tracehound-wrap.opts").display()), artifact("libtracehound.a").display().to_string()]
}

/// The `heaptrace` binary.
#[must_use]
pub fn heaptrace() -> PathBuf {
    artifact("heaptrace")
}

/// Where `tests/clients.sh` installs programs that open our exports, and what else tests need from npm and PyPI; it is
/// run if need be.
#[must_use]
pub fn clients() -> &'static Path {
    static CLIENTS: OnceLock<PathBuf> = OnceLock::new();
    CLIENTS.get_or_init(|| {
        let output = Command::new(root().join("tests/clients.sh")).output().expect("tests/clients.sh can be started");
        assert!(output.status.success(), "tests/clients.sh: {}", String::from_utf8_lossy(&output.stderr));
        target().join("clients")
    })
}

/// Compiles `tests/programs/<source>` with `flags`; the result is shared by all tests that ask for the same.
#[must_use]
pub fn compile(source: &str, flags: &[&str]) -> PathBuf {
    static LOCK: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let from = root().join("tests/programs").join(source);
    let (stem, extension) = source.trim_start_matches("../").rsplit_once('.').expect("a source file has an extension");
    let tag: String = flags.concat().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let folder = target().join("test-programs");
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    let to = folder.join(format!("{}-{extension}-{tag}", stem.replace('/', "-")));
    let age = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    // What the sources include.
    let shared = ["truth.h", "stacks.h", "counted.rs"].map(|name| root().join("tests/programs").join(name));
    // What is linked in.
    let linked = flags.iter().filter_map(|flag| flag.rsplit(['@', '=']).next()).map(PathBuf::from);
    let linked: Vec<PathBuf> = linked.filter(|path| path.is_file()).collect();
    if shared.iter().chain(&linked).chain([&from]).all(|source| age(&to) > age(source)) {
        return to;
    }
    let unfinished = to.with_extension(format!("{}", std::process::id()));
    let mut command = match extension {
        "c" => Command::new("cc"),
        "cpp" => Command::new("c++"),
        "rs" => Command::new("rustc"),
        other => panic!("no compiler is known for .{other}"),
    };
    if extension == "rs" {
        command.args(["--edition", "2024", "-g"]).args(flags).arg("-o").arg(&unfinished).arg(&from);
    } else {
        // The source comes before the flags so that -l options find their users.
        command.args(["-g", "-Wall", "-o"]).arg(&unfinished).arg(&from).args(flags).arg("-pthread");
    }
    let output = command.output().expect("a compiler is installed");
    assert!(output.status.success(), "{source} does not compile:\n{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&unfinished, &to).expect("the target folder can be written");
    to
}

/// Copies a program that is to be started. `cp` does it: a program that this process has open for writing cannot be started
/// while another test's child, which has inherited that, is not yet another program.
///
/// # Panics
/// When it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("--").args([from, to]).status().expect("cp can be started");
    assert!(status.success(), "{} cannot be copied", from.display());
}

/// One traced run and where its recordings lie.
#[derive(Debug)]
pub struct Traced {
    /// Working folder of the run; removed with this value.
    pub folder: TempDir,
    /// What the program printed and how it ended.
    pub output: Output,
}

/// A command in a new folder of its own, with the recorder preloaded.
#[must_use]
pub fn traced_command(program: impl AsRef<OsStr>, args: &[&str]) -> (Command, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut command = Command::new(program);
    command.args(args).current_dir(folder.path()).env("LD_PRELOAD", library());
    (command, folder)
}

/// Runs a program with the recorder preloaded and the given `TRACEHOUND_*` variables.
#[must_use]
pub fn trace(program: impl AsRef<OsStr>, args: &[&str], variables: &[(&str, &str)]) -> Traced {
    let (mut command, folder) = traced_command(program, args);
    let output = unless_busy(|| command.envs(variables.iter().copied()).output()).expect("the program can be started");
    Traced { folder, output }
}

/// Starts a program. One that this process has just written may still be open for writing in a child that another test
/// is about to start: then it is tried again.
///
/// # Errors
/// Those of `start`.
pub fn unless_busy<T>(mut start: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    for _ in 0..500 {
        match start() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            other => return other,
        }
    }
    start()
}

/// Runs a program without the recorder, in a new folder.
#[must_use]
pub fn plain(program: impl AsRef<OsStr>, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut command = Command::new(program);
    command.args(args).current_dir(folder.path()).envs(variables.iter().copied());
    unless_busy(|| command.output()).expect("the program can be started")
}

impl Traced {
    /// All recordings in the run's folder, sorted by name.
    #[must_use]
    pub fn recordings(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = std::fs::read_dir(self.folder.path())
            .expect("the run's folder can be read")
            .map(|entry| entry.expect("the run's folder can be read").path())
            .filter(|path| path.extension() == Some(OsStr::new("dat")))
            .collect();
        found.sort();
        found
    }

    /// The only recording of the run.
    #[must_use]
    pub fn recording(&self) -> PathBuf {
        let found = self.recordings();
        assert_eq!(found.len(), 1, "one recording expected, found {found:?}; stderr: {}", self.stderr());
        found.into_iter().next().expect("its length was checked")
    }

    /// What the program wrote to standard output.
    #[must_use]
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// What the program wrote to standard error.
    #[must_use]
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// `heaptrace info --json`.
    #[must_use]
    pub fn info(&self) -> Value {
        json(&["info"], &self.recording())
    }

    /// `heaptrace leaks --json`.
    #[must_use]
    pub fn leaks(&self) -> Value {
        json(&["leaks"], &self.recording())
    }

    /// `heaptrace dump`, line by line.
    #[must_use]
    pub fn dump(&self) -> Vec<Value> {
        dump(&self.recording())
    }
}

/// Runs `heaptrace ARGS… FILE` and returns how it ended.
#[must_use]
pub fn ask(args: &[&str], file: &Path) -> Output {
    Command::new(heaptrace()).args(args).arg(file).output().expect("heaptrace can be started")
}

/// Runs `heaptrace ARGS… FILE --json`, which must succeed, and parses the document.
#[must_use]
pub fn json(args: &[&str], file: &Path) -> Value {
    let mut args = args.to_vec();
    args.push("--json");
    let output = ask(&args, file);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "heaptrace {args:?} {} failed: {stderr}", file.display());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("heaptrace {args:?}: no JSON ({e})"))
}

/// `heaptrace dump FILE`, line by line.
#[must_use]
pub fn dump(file: &Path) -> Vec<Value> {
    dump_with(&[], file)
}

/// The lines of `heaptrace dump OPTIONS FILE`, which may be more than memory holds.
#[derive(Debug)]
struct DumpLines {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl DumpLines {
    fn of(options: &[&str], file: &Path) -> Self {
        let mut command = Command::new(heaptrace());
        command.arg("dump").args(options).arg(file).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, lines }
    }
}

impl Iterator for DumpLines {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let line = self.lines.next();
        if line.is_none() {
            assert!(self.child.wait().expect("it ends").success(), "heaptrace dump failed");
        }
        line.map(|line| line.expect("text"))
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("no JSON ({e}): {text}"))
}

/// The events that `wanted` wants, of a dump that may be larger than memory.
#[must_use]
pub fn dump_where(file: &Path, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    DumpLines::of(&[], file).map(|line| parsed(&line)).filter(wanted).collect()
}

/// As [`dump_where`], by what comes before an event's stack: kind, function, size. The stacks of the others are not read,
/// which is nearly all of the time.
#[must_use]
pub fn dump_by_head(options: &[&str], file: &Path, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let head = |line: &str| match line.split_once(STACK) {
        Some((head, _)) => parsed(&format!("{head}}}")),
        None => parsed(line),
    };
    DumpLines::of(options, file).filter(|line| wanted(&head(line))).map(|line| parsed(&line)).collect()
}

/// What comes before an event's stack.
const STACK: &str = ",\"stack\":";

/// One event of each function with each stack, and how many there are. A dump's other events are not parsed, which is nearly
/// all of the time.
#[must_use]
pub fn dump_of_each_stack(file: &Path) -> Vec<(Value, usize)> {
    let (mut seen, mut events) = (HashMap::new(), Vec::new());
    for line in DumpLines::of(&[], file) {
        let Some((head, stack)) = line.split_once(STACK) else { continue };
        let function = head.split_once("\"function\":").map_or("", |(_, rest)| rest.split(',').next().unwrap_or(""));
        match seen.entry((function.to_owned(), stack.to_owned())) {
            Entry::Occupied(place) => {
                let (_, count): &mut (Value, usize) = &mut events[*place.get()];
                *count += 1;
            }
            Entry::Vacant(place) => {
                place.insert(events.len());
                events.push((parsed(&line), 1));
            }
        }
    }
    events
}

/// Each pair of stacks of one allocation: with the frames that a user sees, and with all.
#[must_use]
pub fn dump_of_stacks_with_all_frames(file: &Path) -> Vec<(Value, Value)> {
    let all = DumpLines::of(&["--frames", "all"], file);
    let alloc = |line: &str| line.contains("\"kind\":\"alloc\"");
    let stack = |line: &str| line.split_once(STACK).map(|(_, stack)| stack.to_owned());
    let pairs = DumpLines::of(&[], file).zip(all).filter(|(user, all)| {
        assert_eq!(alloc(user), alloc(all), "two dumps of {} have the same events", file.display());
        alloc(user)
    });
    let pairs: HashSet<_> = pairs.filter_map(|(user, all)| Some((stack(&user)?, stack(&all)?))).collect();
    let whole = |stack: &str| parsed(&format!("{{\"stack\":{stack}"))["stack"].take();
    pairs.iter().map(|(user, all)| (whole(user), whole(all))).collect()
}

/// As [`dump`], with options.
#[must_use]
pub fn dump_with(options: &[&str], file: &Path) -> Vec<Value> {
    let output = ask(&[&["dump"], options].concat(), file);
    assert!(output.status.success(), "heaptrace dump failed: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(parsed).collect()
}

/// A number in a JSON document by path, e.g. `number(&info, "/allocations/bytes")`.
#[must_use]
pub fn number(document: &Value, path: &str) -> u64 {
    document.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} is no number in {document}"))
}

/// What a program of known memory says of itself: lines of `name bytes`.
#[must_use]
pub fn stated_bytes(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| line.split_once(' ').and_then(|(name, bytes)| Some((name.to_owned(), bytes.parse().ok()?)));
    text.lines().filter_map(line).collect()
}

/// Function names of a stack in a JSON document, leaf first, unknown ones as `?`.
#[must_use]
pub fn functions(stack: &Value) -> Vec<String> {
    let frames = stack.as_array().unwrap_or_else(|| panic!("no stack: {stack}"));
    frames.iter().map(|frame| frame["function"].as_str().unwrap_or("?").to_owned()).collect()
}

/// Waits until `done` says so; fails after `limit`.
pub fn wait_for(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < limit, "{what} did not happen within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Seed of a test of chance: that of `TRACEHOUND_TEST_SEED`, else another one in every run. It is printed, and a
/// failing test shows what it printed: the same seed makes the same run again.
pub fn random_seed() -> u32 {
    let given = std::env::var("TRACEHOUND_TEST_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
    // The clock's low bits are random enough and differ from run to run.
    let seed = given.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().expect("the clock is set").subsec_nanos());
    println!("TRACEHOUND_TEST_SEED={seed}");
    seed
}
