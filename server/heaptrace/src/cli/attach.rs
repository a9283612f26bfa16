//! `heaptrace attach` and `heaptrace detach`: recording of a process that runs already.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tracehound_attach::{AttachOptions, Detached, Refusal};
use tracehound_format::options::{LaunchOptions, NAMES};
use tracehound_query::parse_duration;

use super::run::{self, library};
use super::{Misuse, interrupt, terminal, units};

/// Time between two looks at the process.
const LOOK: Duration = Duration::from_millis(50);

/// Record a running process from now on.
///
/// The process is not restarted: one of its threads is borrowed for a moment, and at the end the process is as it was.
/// Options are taken from the TRACEHOUND_* variables of the environment, as by `heaptrace run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace attach 4711
  heaptrace attach 4711 -o server.dat --for 30s
  heaptrace attach 4711 --existing
  heaptrace attach 4711 --dry-run

It prints the recording's path, then `recording` when the first event can be seen. Ctrl-C, --for, or `heaptrace detach`
end it. A process that cannot be attached to is left untouched; docs/guide/attach.md says what each reason means.")]
pub struct AttachArgs {
    /// Process id
    #[arg(value_name = "PID")]
    pid: u32,
    /// Where the recording goes: %e is the program's name, %p its pid, %t the time in seconds, %n a counter, %h the host's name, %i the recording's id
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Detach after this time: 30s, 5m
    #[arg(long = "for", value_name = "TIME")]
    duration: Option<String>,
    /// List the blocks that the heap holds at the start (glibc's): later frees of them are known
    #[arg(long)]
    existing: bool,
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Attach in spite of a seccomp filter that cannot be read
    #[arg(long)]
    force: bool,
}

/// End the recording of a process that was attached to, and leave the process as it was.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  heaptrace detach 4711")]
pub struct DetachArgs {
    /// Process id
    #[arg(value_name = "PID")]
    pid: u32,
}

/// Attaches, waits, detaches.
pub fn run(args: &AttachArgs) -> Result<()> {
    let duration = match &args.duration {
        Some(text) => Some(Duration::from_nanos(parse_duration(text).map_err(|why| Misuse(format!("--for: {why}")))?)),
        None => None,
    };
    let options = options(args)?;
    if args.dry_run {
        let mut out = terminal::stdout();
        for line in tracehound_attach::plan(args.pid, &options)? {
            writeln!(out, "{}", terminal::clean(&line))?;
        }
        out.flush()?;
        return Ok(());
    }
    // From here on Ctrl-C is a way to end well.
    let flag = interrupt::flag_of_all_ends();
    let attached = tracehound_attach::attach(args.pid, &options, |path| say(&path.display().to_string()))?;
    say("recording");
    if let Some((count, bytes)) = attached.figures.existing {
        let stopped = units::duration(attached.figures.stopped.as_nanos() as u64);
        let (count, bytes) = (units::count(count), units::bytes(bytes));
        crate::tell!(
            "heaptrace: {count} blocks of {bytes} were allocated before; the process was stopped for {stopped}"
        );
    }
    let started = Instant::now();
    while attached.is_recording() && !flag.is_cancelled() && duration.is_none_or(|limit| started.elapsed() < limit) {
        let left = duration.map_or(LOOK, |limit| limit.saturating_sub(started.elapsed()).min(LOOK));
        std::thread::sleep(left);
    }
    let path = attached.path.clone();
    let line = match attached.detach()? {
        Detached::Clean => "detached".to_owned(),
        Detached::Gone => format!("process {} has ended, or has become another program", args.pid),
        Detached::MemoryStays => {
            "detached; a thread was in the recorder, so its memory stays until the next attach".into()
        }
    };
    crate::tell!(
        "heaptrace: {line}; look at it with `heaptrace leaks {}`",
        terminal::clean(&path.display().to_string())
    );
    Ok(())
}

/// Ends what `heaptrace attach` began.
pub fn detach(args: &DetachArgs) -> Result<()> {
    match tracehound_attach::detach(args.pid)? {
        Detached::Clean => Ok(()),
        Detached::Gone => bail!("process {} has ended", args.pid),
        Detached::MemoryStays => {
            crate::tell!("heaptrace: a thread was in the recorder, so its memory stays until the next attach");
            Ok(())
        }
    }
}

/// Prints a line on standard output at once; a closed pipe is ignored.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", terminal::clean(line)).and_then(|()| out.flush());
}

/// Options of the attach, from the command line and the environment.
fn options(args: &AttachArgs) -> Result<AttachOptions> {
    let mut variables: Vec<(String, OsString)> = Vec::new();
    for name in NAMES.into_iter().filter(|name| !matches!(*name, "TRACEHOUND_OUTPUT" | "TRACEHOUND_START")) {
        variables.extend(std::env::var_os(name).map(|value| (name.to_owned(), value)));
    }
    let value = |name: &str| variables.iter().find(|(given, _)| given == name).map(|(_, value)| value);
    let parsed = LaunchOptions::parse(|name| value(name).map(|value| value.as_encoded_bytes()))
        .map_err(|bad| Misuse(bad.to_string()))?;
    if parsed.children {
        return Err(Misuse(
            "TRACEHOUND_CHILDREN: the children of a process that was attached to are not followed".into(),
        )
        .into());
    }
    if parsed.python_objects {
        return Err(Misuse(
            "TRACEHOUND_PYTHON_OBJECTS: it needs the start of the program; `heaptrace run` does that".into(),
        )
        .into());
    }
    if parsed.toggle_signal.is_some() {
        return Err(Misuse(
            "TRACEHOUND_TOGGLE_SIGNAL: a process that was attached to gets no handler, and the signal would end it; \
             `heaptrace ctl PID start` and `stop` switch recording"
                .into(),
        )
        .into());
    }
    let output = args.output.clone().map(PathBuf::into_os_string).or_else(|| std::env::var_os("TRACEHOUND_OUTPUT"));
    if let Some(output) = &output {
        run::refuse_what_is_no_file(Path::new(output))?;
    }
    Ok(AttachOptions {
        library: library::find().map_err(|error| Refusal(format!("{error:#}")))?,
        output: output.map_or_else(|| LaunchOptions::default().output, OsString::into_encoded_bytes),
        variables: variables.into_iter().map(|(name, value)| (name, value.into_encoded_bytes())).collect(),
        force: args.force,
        existing: args.existing,
    })
}
