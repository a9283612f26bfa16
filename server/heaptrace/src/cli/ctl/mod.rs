//! `heaptrace ctl`: requests to the recorder in a running process: status, start, stop, marks, looks.

mod connection;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;

use anyhow::{Result, bail};
use clap::Subcommand;
use serde::Serialize;
use tracehound_format::control::{CaptureState, Reply, Request, Status};
use tracehound_query::info::rfc3339;

use super::terminal::{self, ColorChoice, Style, TextRole, clean};
use super::units::{bytes, count, duration};

/// Control the recorder in a running process: status, start, stop, mark, look, flush, end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace ctl 4711 status
  heaptrace ctl 4711 stop
  heaptrace ctl 4711 mark 'warmed up'
  heaptrace ctl 4711 look

Every period between a start and a stop is a capture: `heaptrace info` lists them, `--capture 2` selects the second.
Only the user who runs the process, and root, are answered.")]
pub struct CtlArgs {
    /// Process id
    #[arg(value_name = "PID")]
    pid: u32,
    #[command(subcommand)]
    request: CtlRequest,
    /// Print one JSON document, with a stable schema
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Clone, Subcommand)]
enum CtlRequest {
    /// Show whether it records, where to, and how much so far
    Status,
    /// Record from now on
    Start,
    /// Record nothing from now on
    Stop,
    /// Set a mark on the timeline
    Mark {
        /// Its label
        label: OsString,
    },
    /// Look at which pages of the process are in memory, for `heaptrace memory`
    Look {
        /// Label of the look
        label: Option<OsString>,
    },
    /// Write everything recorded so far to the file
    Flush,
    /// Finish the recording for good; the program goes on
    End {
        /// The reason, for the recording
        reason: Option<OsString>,
    },
}

/// Asks, and prints the answer.
pub fn run(args: &CtlArgs, color: ColorChoice) -> Result<()> {
    let request = match &args.request {
        CtlRequest::Status => Request::Status,
        CtlRequest::Start => Request::Start,
        CtlRequest::Stop => Request::Stop,
        CtlRequest::Mark { label } => Request::Mark(label.clone().into_vec()),
        CtlRequest::Look { label } => Request::Look(label.clone().unwrap_or_default().into_vec()),
        CtlRequest::Flush => Request::Flush,
        CtlRequest::End { reason } => Request::End(reason.clone().unwrap_or_default().into_vec()),
    };
    if tracehound_attach::is_dormant(args.pid) {
        match request {
            Request::Start => tracehound_attach::wake(args.pid)?,
            Request::Status => return asleep(args),
            _ => bail!(
                "process {pid}: the recorder is dormant (TRACEHOUND_START=off): `heaptrace ctl {pid} start` starts it",
                pid = args.pid
            ),
        }
    }
    let status = match connection::ask(args.pid, &request)? {
        Reply::Done(status) => status,
        Reply::Refused(why) => bail!("process {}: {}", args.pid, clean(&why)),
    };
    let mut out = terminal::stdout();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &Document::new(args.pid, &status)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(args, &status, Style::of_stdout(color), &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// The status of a dormant recorder.
fn asleep(args: &CtlArgs) -> Result<()> {
    let mut out = terminal::stdout();
    if args.json {
        let document = serde_json::json!({"schema": "heaptrace.ctl/1", "pid": args.pid, "state": "dormant"});
        serde_json::to_writer_pretty(&mut out, &document).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        writeln!(out, "process {pid}: dormant; `heaptrace ctl {pid} start` starts it", pid = args.pid)?;
    }
    out.flush()?;
    Ok(())
}

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    pid: u32,
    state: &'static str,
    recording: String,
    recorder: String,
    started_at: String,
    elapsed_ns: u64,
    records: u64,
    file_bytes: u64,
    lost: u64,
    wait_ns: u64,
    marks: u64,
    chunk_memory_bytes: u64,
}

impl Document {
    fn new(pid: u32, status: &Status) -> Self {
        Self {
            schema: "heaptrace.ctl/1",
            pid,
            state: word(status.state),
            recording: String::from_utf8_lossy(&status.recording).into_owned(),
            recorder: status.recorder.clone(),
            started_at: rfc3339(status.started_unix_ns),
            elapsed_ns: status.elapsed_ns,
            records: status.records,
            file_bytes: status.file_bytes,
            lost: status.lost,
            wait_ns: status.wait_ns,
            marks: status.marks,
            chunk_memory_bytes: status.chunk_bytes,
        }
    }
}

fn word(state: CaptureState) -> &'static str {
    match state {
        CaptureState::Recording => "recording",
        CaptureState::Paused => "stopped",
        CaptureState::Ended => "ended",
    }
}

fn print(args: &CtlArgs, status: &Status, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let state = match status.state {
        CaptureState::Recording => style.paint(TextRole::Good, word(status.state)),
        CaptureState::Paused | CaptureState::Ended => style.paint(TextRole::Hot, word(status.state)),
    };
    let recording = String::from_utf8_lossy(&status.recording);
    let so_far = format!("{} records, {}", count(status.records), bytes(status.file_bytes));
    match &args.request {
        CtlRequest::Status => {}
        CtlRequest::Mark { label } => {
            return writeln!(out, "process {}: mark {} set", args.pid, clean(&label.to_string_lossy()));
        }
        CtlRequest::Look { .. } => return writeln!(out, "process {}: looked at its pages; {so_far}", args.pid),
        CtlRequest::Flush => return writeln!(out, "process {}: {so_far} in {}", args.pid, clean(&recording)),
        CtlRequest::Start | CtlRequest::Stop | CtlRequest::End { .. } => {
            return writeln!(out, "process {}: {state}, {so_far}", args.pid);
        }
    }
    let mut line =
        |label: &str, text: String| writeln!(out, "  {}{text}", style.paint(TextRole::Faint, format!("{label:<13}")));
    line("state", state.to_string())?;
    line("recording", clean(&recording).into_owned())?;
    line("so far", so_far)?;
    line("for", duration(status.elapsed_ns))?;
    line("marks", count(status.marks))?;
    line("lost", count(status.lost))?;
    line("waited", duration(status.wait_ns))?;
    line("recorder", format!("version {}, {} for events", clean(&status.recorder), bytes(status.chunk_bytes)))
}
