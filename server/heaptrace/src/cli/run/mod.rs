//! `heaptrace run`: starts a program with the recorder preloaded and leaves it alone.
//!
//! Exit code or signal are the program's own; one line on standard error says where the recording is.

mod check;
pub mod library;
mod musl;
mod names;
mod recordings;
mod signals;

pub use signals::die_by;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use tracehound_format::options::{LaunchOptions, NAMES};
use tracehound_ingest::side_file;

use super::manual::Proposed;
use super::{Misuse, fleet, terminal, units};

/// Start a program and record every allocation it makes.
///
/// Options not given here are taken from the TRACEHOUND_* variables of the environment, as without `heaptrace run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace run -- ./server --port 80
  heaptrace run -o server.dat -- ./server
  heaptrace run --children -- make -j4
  heaptrace run -o 'traces/%e-%p.dat' --no-free-stacks -- python3 app.py

It exits as the program exits: with its code, or by the signal that ended it.")]
pub struct RunArgs {
    /// Where the recording goes: %e is the program's name, %p its pid, %t the time in seconds, %n a counter, %h the host's name, %i the recording's id
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Record the processes that the program starts, too: one recording each
    #[arg(long)]
    children: bool,
    /// Load the recorder, but record nothing until told to
    #[arg(long)]
    paused: bool,
    /// Record Python's objects one by one, also small ones, which its own allocator serves
    #[arg(long)]
    python_objects: bool,
    /// Make node and Java write the names of the code that they generate, and store these names in the recording
    #[arg(long)]
    names: bool,
    /// Take no backtraces when blocks are freed
    #[arg(long)]
    no_free_stacks: bool,
    /// Do not record mmap, munmap, mremap and brk
    #[arg(long)]
    no_mappings: bool,
    /// Serve the program from this allocator: system, jemalloc
    #[arg(long, value_name = "NAME", value_parser = Proposed(&["system", "jemalloc"]), hide_possible_values = true)]
    allocator: Option<OsString>,
    /// Take backtraces by this method: auto, cached, libunwind, frame-pointer
    #[arg(long, value_name = "NAME", value_parser = Proposed(&["auto", "cached", "libunwind", "frame-pointer"]), hide_possible_values = true)]
    unwinder: Option<OsString>,
    /// Compress the recording by this method: lz4, zstd, none
    #[arg(long, value_name = "NAME", value_parser = Proposed(&["lz4", "zstd", "none"]), hide_possible_values = true)]
    compression: Option<OsString>,
    /// Upper bound of the memory that holds events until they are written
    #[arg(long, value_name = "SIZE")]
    buffer: Option<OsString>,
    /// When that memory is full: wait (nothing is lost unless the writer stops) or drop (every gap is recorded)
    #[arg(long, value_name = "ACTION", value_parser = Proposed(&["wait", "drop"]), hide_possible_values = true)]
    on_full: Option<OsString>,
    /// Read the process's memory counters every N milliseconds; 0 = never
    #[arg(long, value_name = "MS")]
    sample_memory_ms: Option<OsString>,
    /// Look at which pages are in memory: auto, off, or at least every N milliseconds
    #[arg(long, value_name = "WHEN")]
    pages: Option<OsString>,
    /// A signal that switches recording on and off, such as USR1
    #[arg(long, value_name = "SIGNAL")]
    toggle_signal: Option<OsString>,
    /// How much the recorder says on standard error: off, error, warn, info
    #[arg(long, value_name = "LEVEL", value_parser = Proposed(&["off", "error", "warn", "info"]), hide_possible_values = true)]
    log: Option<OsString>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

impl RunArgs {
    /// The variables that the options stand for.
    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let switch = |on: bool, value: &str| on.then(|| OsString::from(value));
        let given = [
            ("TRACEHOUND_OUTPUT", self.output.as_ref().map(|path| path.clone().into_os_string())),
            ("TRACEHOUND_START", switch(self.paused, "paused")),
            ("TRACEHOUND_CHILDREN", switch(self.children, "1")),
            ("TRACEHOUND_FREE_STACKS", switch(self.no_free_stacks, "0")),
            ("TRACEHOUND_MAPPINGS", switch(self.no_mappings, "0")),
            ("TRACEHOUND_ALLOCATOR", self.allocator.clone()),
            ("TRACEHOUND_UNWINDER", self.unwinder.clone()),
            ("TRACEHOUND_COMPRESSION", self.compression.clone()),
            ("TRACEHOUND_BUFFER", self.buffer.clone()),
            ("TRACEHOUND_ON_FULL", self.on_full.clone()),
            ("TRACEHOUND_SAMPLE_MEMORY_MS", self.sample_memory_ms.clone()),
            ("TRACEHOUND_PAGES", self.pages.clone()),
            ("TRACEHOUND_TOGGLE_SIGNAL", self.toggle_signal.clone()),
            ("TRACEHOUND_LOG", self.log.clone()),
            ("TRACEHOUND_PYTHON_OBJECTS", switch(self.python_objects, "1")),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Runs the program to its end.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let mut variables = args.variables();
    // What is in the environment counts unless an option overrides it; all of it is understood before we start.
    for name in NAMES {
        if variables.iter().all(|(given, _)| *given != name)
            && let Some(value) = std::env::var_os(name)
        {
            variables.push((name, value));
        }
    }
    let options = LaunchOptions::parse(|name| value_of(&variables, name).map(|value| value.as_encoded_bytes()))
        .map_err(|bad| Misuse(bad.to_string()))?;

    let library = library::find()?;
    let program = match check::check(&args.command[0]) {
        Err(error) if error.chain().any(|cause| cause.is::<check::LinkedStatically>()) => {
            say(&terminal::clean(&format!("{error:#} {}", library::link_recipe(&library))));
            return Ok(ExitCode::FAILURE);
        }
        checked => checked?,
    };
    let current = std::env::current_dir().context("cannot tell the current directory")?;
    let template = absolute_template(&current, &options.output);
    refuse_what_is_no_file(&template)?;
    variables.retain(|(name, _)| *name != "TRACEHOUND_OUTPUT");
    variables.push(("TRACEHOUND_OUTPUT", template.clone().into_os_string()));
    if program.shell_script && !options.children {
        say(&format!(
            "{} is a shell script: programs that it starts are recorded only with --children",
            args.command[0].display()
        ));
    }

    for sentence in &program.unseen {
        say(&terminal::clean(sentence));
    }

    // For logs of the runtimes.
    let logs = args.names.then(|| tempfile::Builder::new().prefix("heaptrace-names-").tempdir()).transpose()?;
    if let Some(logs) = &logs {
        let can_write = names::node_can_write();
        if !can_write {
            say("node gets no names: it would write its logs into this folder, which cannot be written");
        }
        let mut switches = names::switches(logs.path(), |name| std::env::var_os(name));
        switches.retain(|(name, _)| can_write || *name != "NODE_OPTIONS");
        for (name, value) in switches {
            say(&format!("--names sets {name}={}", terminal::clean(&value.to_string_lossy())));
            variables.push((name, value));
        }
    }

    let started = unix_ns();
    let (pid, status) = start_and_wait(&program.path, &args.command, &library, &variables)?;
    if let Some(logs) = &logs {
        for one in recordings::made(&template, started, pid) {
            // The program's end is what counts.
            match names::keep(&one.path, logs.path()) {
                Ok(0) => {}
                Ok(count) => {
                    say(&format!("names of {} pieces of generated code are in the recording", units::count(count)))
                }
                Err(error) => say(&terminal::clean(&format!("{error:#}"))),
            }
        }
    }
    report(&template, started, pid);
    if !options.children
        && let [one] = recordings::made(&template, started, pid).as_slice()
        && recordings::ends_by_exec(&one.path)
    {
        say("the program became another one by exec, as env and nohup do; --children records that, too");
    } else if !options.children
        && let [daemon, ..] = recordings::survivors(&template)[..]
    {
        say(&format!(
            "process {daemon}, which the program has started, runs on and is not recorded, as of daemons; --children records \
             such processes, too"
        ));
    }
    if let Some(collector) = value_of(&variables, "TRACEHOUND_COLLECTOR").filter(|address| !address.is_empty()) {
        // What still runs would be waited for.
        let running = recordings::survivors(&template);
        let made = recordings::made(&template, started, pid).into_iter();
        let ended = made.filter(|one| !running.iter().any(|&process| one.is_of(process)));
        let files: Vec<PathBuf> = ended.map(|one| one.path).collect();
        // The program's end is what counts.
        let sent = if files.is_empty() { Ok(()) } else { fleet::send(collector, &files) };
        match sent {
            Ok(()) => say(&format!("sent to {}", terminal::clean(&collector.to_string_lossy()))),
            Err(error) => say(&terminal::clean(&format!("{error:#}"))),
        }
    }
    Ok(end_like(status))
}

fn value_of<'a>(variables: &'a [(&str, OsString)], name: &str) -> Option<&'a OsString> {
    variables.iter().find(|(given, _)| *given == name).map(|(_, value)| value)
}

/// Absolute, so that a program that changes its directory makes no difference to where the recording is.
fn absolute_template(current: &Path, template: &[u8]) -> PathBuf {
    let template = PathBuf::from(OsString::from_vec(template.to_vec()));
    if template.is_absolute() {
        return template;
    }
    // Only what the user wrote has placeholders.
    let mut path = Vec::new();
    for &byte in current.as_os_str().as_encoded_bytes() {
        path.extend(if byte == b'%' { &b"%%"[..] } else { std::slice::from_ref(&byte) });
    }
    PathBuf::from(OsString::from_vec(path)).join(template)
}

fn start_and_wait(
    path: &Path,
    command: &[OsString],
    library: &Path,
    variables: &[(&str, OsString)],
) -> Result<(u32, ExitStatus)> {
    let mut preload = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    signals::step_back();
    let mut child = Command::new(path)
        .arg0(&command[0])
        .args(&command[1..])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .env("LD_PRELOAD", preload)
        .spawn()
        .with_context(|| format!("cannot start {}", path.display()))?;
    let pid = child.id().cast_signed();
    signals::adopt(pid);
    signals::wait_and_forget(pid).context("cannot wait for the program")?;
    let status = child.wait().context("cannot wait for the program")?;
    Ok((child.id(), status))
}

/// A recording is a file and has a name of its own: beside one that is taken the recorder would put another number.
pub(super) fn refuse_what_is_no_file(template: &Path) -> Result<()> {
    if template.is_dir() {
        let inside = template.join("memory-%e-%p.dat");
        let why = format!("{} is a folder; name a file, such as {}", template.display(), inside.display());
        return Err(Misuse(why).into());
    }
    if template.metadata().is_ok_and(|meta| !meta.is_file()) {
        return Err(Misuse(format!("{} is no file; name one, which may be new", template.display())).into());
    }
    Ok(())
}

/// One line: where the recording is and what to type next.
fn report(template: &Path, started: i128, pid: u32) {
    let made = recordings::made(template, started, pid);
    let shell = |path: &Path| shell_word(shorten(path).as_os_str());
    match made.as_slice() {
        [] => say(&format!("no recording was made at {}", terminal::clean(&template.to_string_lossy()))),
        [one] => {
            let path = shell(&one.path);
            let side_file = side_file::path_of(&one.path);
            // Of a program that was killed, or for which the disk got full.
            let beside =
                if side_file.exists() { format!(", which needs {}", shell(&side_file)) } else { String::new() };
            say(&format!("recorded {path} ({}){beside}; next: heaptrace server {path}", units::bytes(one.bytes)));
        }
        [first, .., last] => {
            let bytes = made.iter().map(|one| one.bytes).sum();
            say(&format!(
                "made {} recordings ({}), {} to {}; next: heaptrace info {}",
                made.len(),
                units::bytes(bytes),
                shell(&first.path),
                shell(&last.path),
                shell(made.iter().find(|one| one.is_of(pid)).map_or(&first.path, |one| &one.path)),
            ));
        }
    }
}

fn say(line: &str) {
    crate::tell!("heaptrace: {line}");
}

/// Relative to the current directory, if it is below.
fn shorten(path: &Path) -> PathBuf {
    let current = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(current).map_or_else(|_| path.to_owned(), Path::to_owned)
}

/// `text` as a shell would read it back.
fn shell_word(text: &OsStr) -> String {
    let text = terminal::clean(&text.to_string_lossy()).into_owned();
    let plain = |c: char| c.is_alphanumeric() || "-_./+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        signals::die_by(signal);
        return ExitCode::from(128_u8.saturating_add(u8::try_from(signal).unwrap_or(127)));
    }
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn unix_ns() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i128::try_from(since.as_nanos()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_users_part_of_a_template_has_placeholders() {
        let absolute = |template: &str| absolute_template(Path::new("/tmp/100%e"), template.as_bytes());
        assert_eq!(absolute("m-%p.dat"), Path::new("/tmp/100%%e/m-%p.dat"));
        assert_eq!(absolute("/x/m-%p.dat"), Path::new("/x/m-%p.dat"));
    }

    #[test]
    fn words_survive_the_shell() {
        for (text, word) in [("a/b-1.dat", "a/b-1.dat"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")] {
            assert_eq!(shell_word(OsStr::new(text)), word);
        }
    }
}
