//! A program that states its ground truth is run plain and traced: it must end alike and print alike, and the
//! recording must agree with what it said, to the byte.
//!
//! `truth.rs` says what the lines mean.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::ledger::Ledger;
use crate::process::Running;
use crate::{aarch64, compile, json, library, number, truth, unless_busy};

/// Longest time a run may take; a program that hangs is killed with its process group, and the test fails.
pub const LIMIT: Duration = Duration::from_secs(60);

/// How a run went.
#[derive(Debug)]
pub struct Outcome {
    /// Process id of the program.
    pub pid: u32,
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Working folder of the run.
    pub folder: TempDir,
}

impl Outcome {
    /// All recordings that lie in the run's folder, sorted by name.
    #[must_use]
    pub fn recordings(&self) -> Vec<PathBuf> {
        files(self.folder.path(), ".dat")
    }

    /// Recordings of one process.
    #[must_use]
    pub fn recordings_of(&self, pid: u32) -> Vec<PathBuf> {
        let suffix = format!("-{pid}.dat");
        self.recordings().into_iter().filter(|path| path.to_string_lossy().ends_with(&suffix)).collect()
    }

    /// What the program printed, its ground truth aside (which may depend on timing).
    #[must_use]
    pub fn printed(&self) -> String {
        self.stdout
            .lines()
            .filter(|line| !line.starts_with("truth "))
            .fold(String::new(), |all, line| all + line + "\n")
    }
}

fn files(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the run's folder can be read");
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the run's folder can be read").path())
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    found.sort();
    found
}

/// A program and the circumstances of its two runs.
#[derive(Debug, Clone)]
pub struct Case {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    limits: Option<String>,
    variables: Vec<(String, String)>,
    options: Vec<(String, String)>,
    recorder: Option<PathBuf>,
    preload: Vec<PathBuf>,
    preload_first: bool,
    ends: &'static str,
    warning: Option<String>,
    same_stderr: bool,
    whole_stacks: bool,
    all_allocs: bool,
    side_file_stays: bool,
    emulated: bool,
    limit: Duration,
}

/// What a case leaves for further questions.
#[derive(Debug)]
pub struct Agreement {
    /// The run without the recorder.
    pub plain: Outcome,
    /// The run with it.
    pub traced: Outcome,
    /// The program's own recording.
    pub recording: PathBuf,
    /// `heaptrace info --json`.
    pub info: Value,
    /// The books.
    pub ledger: Ledger,
}

/// The usual case: `tests/programs/SOURCE`, compiled with -O1, run with these arguments, ends by `exit`.
pub fn agrees(source: &str, args: &[&str]) -> Agreement {
    Case::new(source).args(args).agrees()
}

impl Case {
    /// A program of `tests/programs`, compiled with `-O1` (Rust: `-O`).
    #[must_use]
    pub fn new(source: &str) -> Self {
        Self::compiled(source, &[if source.ends_with(".rs") { "-O" } else { "-O1" }])
    }

    /// A program of `tests/programs`, compiled with these flags.
    #[must_use]
    pub fn compiled(source: &str, flags: &[&str]) -> Self {
        Self { name: source.to_owned(), ..Self::command(compile(source, flags)) }
    }

    /// Any program.
    #[must_use]
    pub fn command(program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        Self {
            name: program.display().to_string(),
            program,
            args: Vec::new(),
            limits: None,
            variables: Vec::new(),
            options: Vec::new(),
            recorder: None,
            preload: Vec::new(),
            preload_first: false,
            ends: "exit",
            warning: None,
            same_stderr: true,
            whole_stacks: true,
            all_allocs: true,
            side_file_stays: false,
            emulated: false,
            limit: LIMIT,
        }
    }

    /// A program of `tests/programs`, compiled with these flags for aarch64 and run by an emulator.
    #[must_use]
    pub fn emulated(source: &str, flags: &str) -> Self {
        let name = format!("{source}{flags}").replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let program = aarch64::compile(&name, &[(format!("programs/{source}"), flags.to_owned())], &[]);
        let name = format!("{source} {flags}");
        Self { name, emulated: true, limit: 3 * LIMIT, ..Self::command(program) }
    }

    /// Arguments of the program.
    #[must_use]
    pub fn args<S: Into<OsString> + Clone>(mut self, args: &[S]) -> Self {
        self.args.extend(args.iter().cloned().map(Into::into));
        self
    }

    /// Shell commands, such as `ulimit -n 32`, that both runs go through before the program is there.
    #[must_use]
    pub fn after(mut self, limits: &str) -> Self {
        self.limits = Some(limits.to_owned());
        self
    }

    /// A variable of both runs.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// `TRACEHOUND_<name>` of the traced run.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push((format!("TRACEHOUND_{name}"), value.to_owned()));
        self
    }

    /// Another build of the recorder than that of `make build`.
    #[must_use]
    pub fn recorder(mut self, library: impl Into<PathBuf>) -> Self {
        self.recorder = Some(library.into());
        self
    }

    /// Another library that both runs preload, after the recorder.
    #[must_use]
    pub fn preloads(mut self, library: impl Into<PathBuf>) -> Self {
        self.preload.push(library.into());
        self
    }

    /// Another library that both runs preload, before the recorder.
    #[must_use]
    pub fn preloads_first(mut self, library: impl Into<PathBuf>) -> Self {
        self.preload_first = true;
        self.preloads(library)
    }

    /// How the recording ends; `exit` if not said. After `killed` it is not complete.
    #[must_use]
    pub fn ends(mut self, how: &'static str) -> Self {
        self.ends = how;
        self
    }

    /// The recorder says something on standard error, in one line, with these words.
    #[must_use]
    pub fn warns(mut self, words: &str) -> Self {
        self.warning = Some(words.to_owned());
        self
    }

    /// Standard error is not compared: it holds times or process ids of its own.
    #[must_use]
    pub fn any_stderr(mut self) -> Self {
        self.same_stderr = false;
        self
    }

    /// Backtraces may be cut short, as long as that is counted.
    #[must_use]
    pub fn cut_stacks(mut self) -> Self {
        self.whole_stacks = false;
        self
    }

    /// Blocks may be freed whose allocation was not recorded: recording was stopped then.
    #[must_use]
    pub fn with_pauses(mut self) -> Self {
        self.all_allocs = false;
        self
    }

    /// The side file stays: the program has given up the right to remove it.
    #[must_use]
    pub fn side_file_stays(mut self) -> Self {
        self.side_file_stays = true;
        self
    }

    /// Longest time of a run.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    fn preload_list(&self, traced: bool) -> OsString {
        let own = || if self.emulated { aarch64::libraries().join("libtracehound.so") } else { library() };
        let ours = if traced { vec![self.recorder.clone().unwrap_or_else(own)] } else { Vec::new() };
        let (first, second) = if self.preload_first { (&self.preload, &ours) } else { (&ours, &self.preload) };
        let paths: Vec<OsString> = first.iter().chain(second).map(|path| path.clone().into_os_string()).collect();
        paths.join(OsString::from(":").as_os_str())
    }

    /// Starts the program in `folder`, its output going to files in `output`.
    fn start(&self, traced: bool, folder: &Path, output: &Path) -> std::process::Child {
        let preload = self.preload_list(traced);
        let mut command = match &self.limits {
            None if self.emulated => {
                let mut emulator = Command::new(aarch64::EMULATOR[0]);
                let mut preloaded = OsString::from("LD_PRELOAD=");
                preloaded.push(&preload);
                emulator.args(&aarch64::EMULATOR[1..]).arg("-E").arg(preloaded).arg(&self.program);
                emulator
            }
            None => Command::new(&self.program),
            Some(limits) => {
                let mut shell = Command::new("/bin/sh");
                // The shell itself is not recorded.
                let script = format!(r#"{limits}; p="$1"; shift; [ -z "$p" ] || export LD_PRELOAD="$p"; exec "$@""#);
                shell.args(["-c", &script, "sh"]).arg(&preload).arg(&self.program);
                shell
            }
        };
        command.args(&self.args).current_dir(folder).env_remove("LD_PRELOAD").stdin(Stdio::null());
        // The suite may itself be run by make, whose flags and job server are not meant for the programs under test.
        for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "GNUMAKEFLAGS"] {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if traced {
            command.envs(self.options.iter().map(|(name, value)| (name, value)));
        }
        if self.limits.is_none() && !self.emulated && !preload.is_empty() {
            command.env("LD_PRELOAD", preload);
        }
        let interrupts = || {
            for signal in [libc::SIGINT, libc::SIGQUIT] {
                // SAFETY: signal may be called between fork and exec, and SIG_DFL is a handler for every signal.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // SAFETY: the closure calls nothing but signal, which takes no lock and allocates nothing.
        // Shells start what runs in the background with these signals ignored, which the programs would inherit.
        unsafe { command.pre_exec(interrupts) };
        let file = |name: &str| File::create(output.join(name)).expect("a temporary file can be made");
        command.stdout(file("stdout")).stderr(file("stderr")).process_group(0);
        unless_busy(|| command.spawn()).unwrap_or_else(|e| panic!("{} cannot be started: {e}", self.program.display()))
    }

    /// Runs the program once, to its end.
    #[must_use]
    pub fn run(&self, traced: bool) -> Outcome {
        self.run_and(traced, |_, _| ())
    }

    /// Runs the program once; `meanwhile` gets its process id and folder as soon as it was started.
    #[must_use]
    pub fn run_and(&self, traced: bool, meanwhile: impl FnOnce(u32, &Path)) -> Outcome {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let output = tempfile::tempdir().expect("a temporary folder can be made");
        let mut child = Running(self.start(traced, folder.path(), output.path()));
        let pid = child.id();
        meanwhile(pid, folder.path());
        let read = |name: &str| {
            String::from_utf8_lossy(&std::fs::read(output.path().join(name)).unwrap_or_default()).into_owned()
        };
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("the program can be waited for") {
                break status;
            }
            if start.elapsed() > self.limit {
                kill_group(pid);
                let _ = child.wait();
                let (out, err) = (read("stdout"), read("stderr"));
                panic!("{} hangs (traced: {traced}); it printed:\n{out}{err}", self.name);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        Outcome { pid, status, stdout: read("stdout"), stderr: read("stderr"), folder }
    }

    /// Runs the program plain and traced: it must end and print alike. Nothing is asked of a recording.
    pub fn unharmed(&self) -> (Outcome, Outcome) {
        let plain = self.run(false);
        let traced = self.run(true);
        let name = &self.name;
        assert_eq!(traced.status, plain.status, "{name}: ends differently; {}{}", traced.stdout, traced.stderr);
        assert_eq!(traced.printed(), plain.printed(), "{name}: prints differently; {}", traced.stderr);
        if let Some(words) = &self.warning {
            let ours: Vec<&str> = traced.stderr.lines().filter(|line| line.contains("tracehound")).collect();
            assert!(ours.len() == 1 && ours[0].contains(words.as_str()), "{name}: warns of {words}? {}", traced.stderr);
        } else if self.same_stderr {
            assert_eq!(traced.stderr, plain.stderr, "{name}: standard error differs");
        }
        (plain, traced)
    }

    /// Runs the program plain and traced and checks its recording against what it said, and against itself.
    pub fn agrees(&self) -> Agreement {
        let (plain, traced) = self.unharmed();
        let recordings = traced.recordings_of(traced.pid);
        let [recording] = &recordings[..] else {
            panic!("{}: one recording expected, found {:?}; {}", self.name, traced.recordings(), traced.stderr)
        };
        let recording = recording.clone();
        let info = self.sound(&recording, self.ends);
        if self.ends != "killed" && !self.side_file_stays {
            assert_eq!(
                files(traced.folder.path(), ".live"),
                Vec::<PathBuf>::new(),
                "{}: a side file is left",
                self.name
            );
        }
        let program = if self.emulated { Path::new(aarch64::EMULATOR[0]) } else { &self.program };
        let ledger = if self.emulated {
            let root = aarch64::sysroot(&self.program, traced.folder.path());
            Ledger::with(&["--sysroot".as_ref(), root.as_os_str()], &recording)
        } else {
            Ledger::of(&recording)
        };
        let leaks = json(&["leaks"], &recording);
        ledger.assert_agrees(&info, &leaks, &self.name);
        let module = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        for line in traced.stdout.lines().filter_map(|line| line.strip_prefix("truth ")) {
            let words: Vec<&str> = line.split(' ').collect();
            truth::check(&ledger, &info, &module, &words)
                .unwrap_or_else(|why| panic!("{}: truth {line}: {why}", self.name));
        }
        Agreement { plain, traced, recording, info, ledger }
    }

    /// What holds for every lossless recording; returns its `info`.
    pub fn sound(&self, recording: &Path, ends: &str) -> Value {
        let info = json(&["info"], recording);
        let name = &self.name;
        assert_eq!(info["end"], ends, "{name}: {info:#}");
        assert_eq!(info["complete"], ends != "killed", "{name}: {info:#}");
        assert_eq!(number(&info, "/events/lost"), 0, "{name}: {info:#}");
        if self.all_allocs {
            assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{name}: {info:#}");
        }
        if self.whole_stacks {
            assert_eq!(number(&info, "/recorder/truncated_stacks"), 0, "{name}: {info:#}");
        }
        let mode = recording.metadata().expect("the recording is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}: others may read the recording");
        info
    }
}

fn kill_group(pid: u32) {
    if let Some(group) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}
