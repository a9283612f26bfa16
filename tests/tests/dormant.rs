//! `TRACEHOUND_START=off`: a preloaded recorder that does nothing until somebody asks for it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tracehound_tests::process::Running;
use tracehound_tests::{compile, heaptrace, json, library, number, wait_for};

/// As without a recorder, a program limits and locks its own memory.
#[test]
fn a_limit_on_memory_is_the_programs_own() {
    let program = compile("memory_limits.c", &["-O1", "-pthread"]);
    for way in ["addresses", "data", "process", "locked", "small"] {
        let said = |preload: Option<PathBuf>| {
            let folder = tempfile::tempdir().unwrap();
            let mut command = Command::new(&program);
            command.arg(way).current_dir(folder.path());
            if let Some(library) = preload {
                command.env("LD_PRELOAD", library).env("TRACEHOUND_START", "off");
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "{way}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        assert_eq!(said(None), said(Some(library())), "{way}");
    }
}

/// Where a filter kills for the socket of `heaptrace ctl`, a start by it is refused in words, and an attach records.
#[test]
fn a_filter_that_kills_is_not_provoked_by_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(compile("kills_for_call.c", &["-O1"]));
    command.arg(libc::SYS_socket.to_string()).env("LD_PRELOAD", library()).env("TRACEHOUND_START", "off");
    let mut child = Running(command.current_dir(folder.path()).spawn().unwrap());
    std::thread::sleep(std::time::Duration::from_millis(200));
    let pid = child.id().to_string();
    let (output, _) = ctl(&pid, &["start"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("heaptrace attach"), "{said}");
    let path = folder.path().join("attached.dat");
    let attach =
        Command::new(heaptrace()).args(["attach", "--for", "200ms", "-o"]).arg(&path).arg(&pid).output().unwrap();
    assert!(attach.status.success(), "{attach:?}");
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(json(&["info"], &path)["end"], "detached");
}

/// `tests/programs/attached.c`, with a recorder that sleeps.
struct Sleeper {
    child: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: TempDir,
}

impl Sleeper {
    fn start(threads: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(compile("attached.c", &["-O1"]));
        command.arg(threads.to_string()).current_dir(folder.path());
        command.env("LD_PRELOAD", library()).env("TRACEHOUND_START", "off").stdin(Stdio::piped());
        let mut child: Child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let sleeper = Self { child: Running(child), input, output, folder };
        let all = threads as usize + 1;
        wait_for("the start of its threads", Duration::from_secs(20), || sleeper.belongings().0 >= all);
        // Threads of ours would come late.
        std::thread::sleep(Duration::from_millis(200));
        sleeper
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.folder.path()).unwrap().flatten().map(|entry| entry.path());
        files.filter(|path| path.is_file()).collect()
    }

    /// Threads, and descriptors of the recorder's.
    fn belongings(&self) -> (usize, usize) {
        let count = |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", self.pid())).unwrap().count();
        (count("task"), self.recorders())
    }

    /// Descriptors of files in the folder that a recording would lie in, and of files without a name.
    fn recorders(&self) -> usize {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().flatten();
        let links = entries.filter_map(|entry| entry.path().read_link().ok());
        links.filter(|link| link.starts_with(self.folder.path()) || link.to_string_lossy().contains("memfd:")).count()
    }

    /// How many blocks its threads have allocated so far; they stand still for the question.
    fn allocated(&mut self) -> u64 {
        self.input.write_all(b"count\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        self.input.write_all(b"go on\n").unwrap();
        line.split(' ').next().unwrap().parse().unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn ends(mut self) -> TempDir {
        self.input.write_all(b"quit\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "errors 0\n");
        assert!(self.child.wait().unwrap().success());
        self.folder
    }
}

fn ctl(pid: &str, request: &[&str]) -> (Output, Value) {
    let output = Command::new(heaptrace()).args(["ctl", "--json", pid]).args(request).output().unwrap();
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output, document)
}

#[test]
fn who_is_never_asked_for_leaves_nothing() {
    let sleeper = Sleeper::start(4);
    assert_eq!(sleeper.files(), Vec::<PathBuf>::new());
    // The program's threads alone, and no descriptor of ours.
    assert_eq!(sleeper.belongings(), (5, 0));
    let (_, status) = ctl(&sleeper.pid(), &["status"]);
    assert_eq!((&status["schema"], &status["state"]), (&"heaptrace.ctl/1".into(), &"dormant".into()));
    let (refused, _) = ctl(&sleeper.pid(), &["mark", "x"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("dormant"), "{said}");
    assert_eq!(sleeper.belongings(), (5, 0), "a look wakes nobody");
    let plan = Command::new(heaptrace()).args(["attach", "--dry-run", &sleeper.pid()]).output().unwrap();
    assert!(String::from_utf8_lossy(&plan.stdout).contains("dormant recorder"), "{plan:?}");
    assert_eq!(sleeper.belongings(), (5, 0), "neither does a plan");
    let folder = sleeper.ends();
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}

#[test]
fn a_start_from_outside_makes_a_recording_as_any_other() {
    let sleeper = Sleeper::start(1);
    let pid = sleeper.pid();
    let (output, status) = ctl(&pid, &["start"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(status["state"], "recording");
    let recording = PathBuf::from(status["recording"].as_str().unwrap());
    assert_eq!(recording.parent().unwrap(), sleeper.folder.path().canonicalize().unwrap());
    assert!(ctl(&pid, &["mark", "awake"]).0.status.success());
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(ctl(&pid, &["stop"]).1["state"], "stopped");
    let _folder = sleeper.ends();
    let info = json(&["info"], &recording);
    assert_eq!((&info["complete"], &info["end"], &info["attached"]), (&true.into(), &"exit".into(), &false.into()));
    assert_eq!(info["captures"].as_array().unwrap().len(), 1);
    assert_eq!(info["marks"][0]["label"], "awake");
    assert!(number(&info, "/allocations/count") > 0);
    let top = Command::new(heaptrace()).args(["top", "--metric", "allocated"]).arg(&recording).output().unwrap();
    let top = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(top.contains("take"), "backtraces have the program's functions: {top}");
}

/// `heaptrace attach --for 300ms` with these options, while the program works.
fn attach(sleeper: &Sleeper, name: &str, options: &[&str]) -> PathBuf {
    let path = sleeper.folder.path().join(name);
    let mut command = Command::new(heaptrace());
    command.args(["attach", &sleeper.pid(), "--for", "300ms", "-o"]).arg(&path).args(options);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("detached; look at it"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}\nrecording\n", path.display()));
    path
}

/// A recording of an attach that came to its end, with the program's own functions in its backtraces.
fn is_detached(path: &Path) -> Value {
    let info = json(&["info"], path);
    assert_eq!((&info["complete"], &info["end"], &info["attached"]), (&true.into(), &"detached".into(), &true.into()));
    assert_eq!(number(&info, "/events/lost"), 0);
    assert!(number(&info, "/allocations/count") > 100, "{info:#}");
    let top = Command::new(heaptrace()).args(["top", "--metric", "allocated"]).arg(path).output().unwrap();
    assert!(String::from_utf8_lossy(&top.stdout).contains("take"), "{top:?}");
    info
}

#[test]
fn an_attach_uses_the_recorder_that_is_there() {
    let sleeper = Sleeper::start(3);
    let before = sleeper.belongings();
    let maps = |sleeper: &Sleeper| std::fs::read_to_string(format!("/proc/{}/maps", sleeper.pid())).unwrap();
    let libraries = |text: &str| text.lines().filter(|line| line.contains("tracehound")).count();
    let loaded = libraries(&maps(&sleeper));
    let mut lines = Vec::new();
    for round in 0..4 {
        let path = attach(&sleeper, &format!("{round}.dat"), &[]);
        let info = is_detached(&path);
        assert!((1..=3).contains(&number(&info, "/threads")), "{info:#}");
        assert!(number(&info, "/recorder/unmatched_frees") > 0, "blocks from before were freed");
        assert!(!path.with_extension("dat.live").exists());
        assert_eq!(sleeper.belongings(), before, "asleep again");
        let now = maps(&sleeper);
        assert_eq!(libraries(&now), loaded, "no second recorder");
        lines.push(now.lines().count());
    }
    assert!(lines[3] <= lines[1] + 2, "mappings after each round: {lines:?}");
    assert_eq!(ctl(&sleeper.pid(), &["status"]).1["state"], "dormant");
    // It still can make a recording of its own.
    assert_eq!(ctl(&sleeper.pid(), &["start"]).1["state"], "recording");
    let again =
        Command::new(heaptrace()).args(["attach", &sleeper.pid()]).current_dir(&sleeper.folder).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("heaptrace ctl"), "{again:?}");
    let folder = sleeper.ends();
    let own = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path());
    let own = own.into_iter().find(|path| path.to_string_lossy().contains("memory-attached")).unwrap();
    let info = json(&["info"], &own);
    assert_eq!((&info["complete"], &info["end"], &info["attached"]), (&true.into(), &"exit".into(), &false.into()));
}

#[test]
fn an_attach_lists_blocks_from_before() {
    let sleeper = Sleeper::start(4);
    let info = is_detached(&attach(&sleeper, "existing.dat", &["--existing"]));
    // Every free is of a block that is listed or recorded: the list and the recording meet at one instant.
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 0);
    assert!(number(&info, "/existing/count") > 500 && number(&info, "/existing/freed/count") > 500, "{info}");
    sleeper.ends();
}

#[test]
fn somebody_else_may_detach() {
    let mut sleeper = Sleeper::start(2);
    let path = sleeper.folder.path().join("other.dat");
    let mut command = Command::new(heaptrace());
    command.args(["attach", &sleeper.pid(), "-o"]).arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut attach = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(attach.stdout.take().unwrap()).lines();
    assert_eq!(lines.nth(1).unwrap().unwrap(), "recording");
    let first = sleeper.allocated();
    let mut last = first;
    wait_for("2,000 allocations", Duration::from_secs(60), || {
        last = sleeper.allocated();
        last >= first + 2000
    });
    let detach = Command::new(heaptrace()).args(["detach", &sleeper.pid()]).output().unwrap();
    assert!(detach.status.success(), "{detach:?}");
    assert!(attach.wait().unwrap().success());
    let info = is_detached(&path);
    assert!(number(&info, "/allocations/count") >= last - first, "{} of {}: {info:#}", first, last);
    assert_eq!(sleeper.belongings(), (3, 0));
    sleeper.ends();
}
