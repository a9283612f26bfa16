//! `tests/programs/attached.c` and others while they run, and `heaptrace attach` on them.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::Running;
use crate::{compile, heaptrace, library, number, wait_for};

/// `tests/programs/attached.c`, running.
#[derive(Debug)]
pub struct Program {
    /// The process.
    pub child: Running,
    /// Its standard input.
    pub input: ChildStdin,
    /// Its standard output.
    pub output: BufReader<ChildStdout>,
    /// A folder of its own.
    pub folder: TempDir,
}

/// What its threads have done: allocations, frees, reallocs, bytes.
pub type Books = [u64; 4];

impl Program {
    /// Starts it with so many threads.
    #[must_use]
    pub fn start(threads: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(compile("attached.c", &["-O1"]));
        command.arg(threads.to_string());
        let program = Self::from(command, folder);
        program.has_begun(threads);
        program
    }

    /// Waits until `attached.c` has made its threads; while it makes one, all signals are blocked.
    fn has_begun(&self, threads: u32) {
        let signs = [format!("Threads:\t{}", threads + 1), "SigBlk:\t0000000000000000".to_owned()];
        wait_for("the start of the program's threads", Duration::from_secs(60), || {
            let found = self.belongings();
            signs.iter().all(|sign| found.contains(sign))
        });
    }

    /// The same, with a recorder that was loaded at the start and is dormant; a recording would lie in the program's folder.
    #[must_use]
    pub fn start_dormant(threads: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(compile("attached.c", &["-O1"]));
        command.arg(threads.to_string()).current_dir(folder.path());
        command.env("LD_PRELOAD", library()).env("TRACEHOUND_START", "off");
        let program = Self::from(command, folder);
        program.has_begun(threads);
        program
    }

    /// Starts another program.
    #[must_use]
    pub fn from(mut command: Command, folder: TempDir) -> Self {
        let mut child = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        std::thread::sleep(Duration::from_millis(200));
        Self { child, input, output, folder }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// A path in its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Counts while all threads stand still, and does `meanwhile`.
    pub fn count(&mut self, meanwhile: impl FnOnce()) -> Books {
        self.input.write_all(b"count\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert_eq!(numbers[4], 0, "the program has found what it wrote");
        meanwhile();
        self.input.write_all(b"go\n").unwrap();
        numbers[..4].try_into().unwrap()
    }

    /// Waits until each of its threads has had its turn on a processor, whatever else this machine does.
    pub fn works(&mut self) {
        let first: u64 = self.count(|| ()).iter().take(3).sum();
        while self.count(|| ()).iter().take(3).sum::<u64>() < first + 10_000 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it, and checks that nothing of its own was disturbed.
    pub fn quit(mut self) {
        self.input.write_all(b"quit\n").unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "errors 0\n");
        assert!(self.child.wait().unwrap().success());
    }

    /// Ends its input, and waits for its end with this status.
    pub fn quit_code(self, code: i32) {
        let Self { mut child, input, output, folder } = self;
        drop(input);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        drop((output, folder));
    }

    /// Ends it, and gives what it printed.
    #[must_use]
    pub fn rest(mut self) -> String {
        let _ = self.input.write_all(b"quit\n");
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap();
        rest
    }

    /// What must be as it was: descriptors, threads, signal masks.
    #[must_use]
    pub fn belongings(&self) -> Vec<String> {
        let folder = PathBuf::from(format!("/proc/{}", self.pid()));
        let names = |below: &str| {
            let entries = std::fs::read_dir(folder.join(below)).unwrap().flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            names.join(" ")
        };
        let status = std::fs::read_to_string(folder.join("status")).unwrap();
        let wanted = ["SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "Threads", "Seccomp"];
        let mut found: Vec<String> =
            status.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name))).map(str::to_owned).collect();
        found.push(names("fd"));
        found.push(names("task"));
        found
    }

    /// Its mappings, and their KiB.
    #[must_use]
    pub fn mapped(&self) -> (usize, u64) {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        (maps.lines().count(), size.trim().trim_end_matches(" kB").parse().unwrap())
    }

    /// Bytes of libc's code in memory that are not those of its file.
    #[must_use]
    pub fn changed_code(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        let line = maps.lines().find(|line| line.contains(" r-xp ") && line.contains("libc.so")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let hex = |text| u64::from_str_radix(text, 16).unwrap();
        let mut code = vec![0; (hex(end) - hex(start)) as usize];
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.pid())).unwrap();
        memory.read_exact_at(&mut code, hex(start)).unwrap();
        let mut file = vec![0; code.len()];
        std::fs::File::open(words[5]).unwrap().read_exact_at(&mut file, hex(words[2])).unwrap();
        code.iter().zip(&file).filter(|(now, then)| now != then).count()
    }
}

/// `heaptrace attach`, running and recording.
#[derive(Debug)]
pub struct Attach {
    command: Running,
    output: BufReader<ChildStdout>,
}

/// `heaptrace attach PID -o PATH`.
#[must_use]
pub fn attach_command(pid: &str, path: &Path) -> Command {
    let mut command = Command::new(heaptrace());
    command.args(["attach", pid, "-o"]).arg(path);
    command
}

impl Attach {
    /// Starts it and waits until it records.
    #[must_use]
    pub fn start(pid: &str, path: &Path) -> Self {
        Self::start_with(pid, path, &[])
    }

    /// The same, with options.
    #[must_use]
    pub fn start_with(pid: &str, path: &Path, options: &[&str]) -> Self {
        let mut command = attach_command(pid, path);
        command.args(options);
        let mut child = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = [String::new(), String::new()];
        for line in &mut lines {
            output.read_line(line).unwrap();
        }
        if lines[0].is_empty() {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("no attach: {why}");
        }
        assert_eq!(lines, [format!("{}\n", path.display()), "recording\n".into()]);
        Self { command: child, output }
    }

    /// Waits for its end, which must be a good one.
    pub fn ends(mut self) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        let mut said = String::new();
        self.command.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.command.wait().unwrap().success(), "{said}");
    }

    /// Waits for its end, which may be a bad one.
    pub fn ends_somehow(&mut self) {
        self.command.wait().unwrap();
    }

    /// Ctrl-C.
    pub fn interrupt(self) {
        assert!(run("kill", &["-INT", &self.command.id().to_string()]).status.success());
        self.ends();
    }
}

/// How often the tests of attach repeat what they do in their long form; `None` in the short one.
#[must_use]
pub fn long_form() -> Option<u32> {
    let text = std::env::var("ATTACH_CYCLES").ok()?;
    Some(text.parse().expect("ATTACH_CYCLES is a number"))
}

/// One attach with these options that records for so long and detaches; the recording is removed.
///
/// # Errors
/// What heaptrace said when it failed.
pub fn attach_cycle(pid: &str, path: &Path, duration: &str, options: &[&str]) -> Result<(), String> {
    let output = attach_command(pid, path).args(["--for", duration]).args(options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let _ = std::fs::remove_file(path);
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// Runs a program to its end.
pub fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

/// `heaptrace detach PID`, which must succeed.
pub fn detach(pid: &str) {
    let output = run(heaptrace(), &["detach", pid]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The recording of an attach that came to its end, and nothing was lost.
pub fn is_detached(info: &Value) {
    assert_eq!((&info["complete"], &info["end"], &info["attached"]), (&true.into(), &"detached".into(), &true.into()));
    assert_eq!(number(info, "/events/lost"), 0);
}

impl Program {
    /// Ends the program and keeps its folder.
    #[must_use]
    pub fn ended(mut self) -> TempDir {
        self.input.write_all(b"quit\n").unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        self.folder
    }
}
