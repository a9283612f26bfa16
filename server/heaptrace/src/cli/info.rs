//! `heaptrace info`: a recording on one screen.

use std::io::{self, Write};

use anyhow::Result;
use tracehound_api::info::{Capture, End, Info, Recorder, Stacks};

use super::args::Files;
use super::terminal::{ColorChoice, Style, TextRole, clean};
use super::units::{bytes, count, duration};
use super::{FileName, Shortfall, for_each, terminal};

/// Show what was recorded: program, counts, peak, leaks, and how far the recording can be trusted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace info memory-app-1.dat
  heaptrace info --json memory-app-1.dat | jq .peak.bytes")]
pub struct InfoArgs {
    #[command(flatten)]
    files: Files,
}

/// Prints the summaries.
pub fn run(args: &InfoArgs, color: ColorChoice) -> Result<()> {
    let style = Style::of_stdout(color);
    for_each(
        &args.files,
        FileName::InAnswer,
        Shortfall::InAnswer,
        &mut terminal::stdout(),
        |opened| Ok(tracehound_audit::info(&opened.trace, &opened.symbols)),
        |info, opened, out| print(info, &opened.path, style, out),
    )
}

/// Writes the summary of the recording at `path`.
pub fn print(info: &Info, path: &str, style: Style, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", style.paint(TextRole::Strong, clean(path)))?;
    let mut line =
        |label: &str, text: String| writeln!(out, "  {}{text}", style.paint(TextRole::Faint, format!("{label:<13}")));

    let process = &info.process;
    let arguments: Vec<_> = process.arguments.iter().map(|argument| clean(argument)).collect();
    let command = if arguments.is_empty() { clean(&process.executable).into_owned() } else { arguments.join(" ") };
    if process.pid == 0 && command.is_empty() {
        line("program", "unknown: the beginning of the recording is missing".into())?;
    } else {
        let mut program = style.paint(TextRole::Name, command).to_string();
        if process.pid != 0 {
            program.push_str(&format!(" {}", style.paint(TextRole::Faint, format!("(pid {})", process.pid))));
        }
        line("program", program)?;
        line("executable", clean(&process.executable).into_owned())?;
        line(
            "recorded",
            format!("{} for {}", process.started_at, duration(process.duration_ns)).trim_start().to_owned(),
        )?;
    }
    let end = end(info);
    line("state", style.paint(end.1, end.0).to_string())?;

    let blocks = |what: u64| format!("{} block{}", count(what), if what == 1 { "" } else { "s" });
    let strong = |value: u64| style.paint(TextRole::Strong, bytes(value)).to_string();
    line("allocated", format!("{} in {}", strong(info.allocations.bytes), blocks(info.allocations.count)))?;
    if let Some(inherited) = &info.inherited {
        let own = blocks(info.allocations.count.saturating_sub(inherited.count));
        line(
            "inherited",
            format!(
                "of these {} in {}, when it was forked; {own} are its own",
                bytes(inherited.bytes),
                blocks(inherited.count)
            ),
        )?;
    }
    let peak = &info.peak;
    line("peak", format!("{} in {} at {}", strong(peak.bytes), blocks(peak.count), duration(peak.at_ns)))?;
    let leaked = match info.end {
        End::Running => "live now",
        _ => "leaked",
    };
    line(leaked, format!("{} in {}", strong(info.leaked.bytes), blocks(info.leaked.count)))?;
    if let Some(existing) = &info.existing {
        let freed = format!("{} of them freed since", count(existing.freed.count));
        line("before", format!("{} in {}, {freed}", bytes(existing.bytes), blocks(existing.count)))?;
    }
    let temporary = &info.temporary;
    line(
        "temporary",
        format!(
            "{} in {}, {}",
            bytes(temporary.bytes),
            blocks(temporary.count),
            style.paint(TextRole::Faint, &temporary.rule)
        ),
    )?;
    if let Some(rss) = &info.peak_rss {
        line(
            "resident",
            format!(
                "{} at {}, of it the recorder {}",
                bytes(rss.bytes),
                duration(rss.at_ns),
                bytes(rss.recorder_bytes)
            ),
        )?;
    }
    let mapped = &info.mapped;
    if mapped.peak_bytes > 0 {
        let (peak, end) = (bytes(mapped.peak_bytes), bytes(mapped.end_bytes));
        line("mapped", format!("{peak} at most, at {}; {end} at the end", duration(mapped.peak_at_ns)))?;
    }
    line("stacks", format!("{} allocation sites, {} frames at most", count(info.sites), count(info.max_depth)))?;
    line("threads", count(info.threads))?;

    let events = &info.events;
    let kinds = [
        ("alloc", events.alloc),
        ("free", events.free),
        ("realloc", events.realloc),
        ("map", events.map),
        ("unmap", events.unmap),
        ("remap", events.remap),
        ("brk", events.brk),
    ];
    let kinds: Vec<_> = kinds.iter().filter(|(_, n)| *n > 0).map(|(kind, n)| format!("{} {kind}", count(*n))).collect();
    line("events", if kinds.is_empty() { "none".into() } else { kinds.join(", ") })?;
    if events.lost > 0 || info.exactness.damaged_blocks > 0 {
        // A damaged block does not say how many it had.
        let lost = match (events.lost, info.exactness.damaged_blocks) {
            (0, 1..) => "an unknown number of events".into(),
            (lost, 1..) => format!("{} events or more", count(lost)),
            (lost, 0) => format!("{} events", count(lost)),
        };
        let text = format!("{}; damaged blocks of the file: {}", lost, count(info.exactness.damaged_blocks));
        line("missing", style.paint(TextRole::Bad, text).to_string())?;
    }

    let recorder = &info.recorder;
    let mut parts = vec![
        format!("version {}", clean(&recorder.version)),
        format!("file {}", bytes(recorder.file_bytes)),
        format!("memory {}", bytes(recorder.memory_bytes)),
    ];
    let figures = [
        ("unmatched frees", recorder.unmatched_frees),
        ("repairs of the order", recorder.order_repairs),
        ("truncated stacks", recorder.truncated_stacks),
        ("heuristic stacks", recorder.guessed_stacks),
    ];
    parts.extend(figures.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{} {what}", count(*n))));
    if recorder.wait_ns > 0 {
        parts.push(format!("the program waited {}", duration(recorder.wait_ns)));
    }
    line("recorder", parts.join(", "))?;
    if let Some(stacks) = &recorder.stacks {
        let mut text = unwinding(stacks);
        // Of a killed program, events are found that were counted nowhere; not all events have a stack.
        let inherited = info.inherited.map_or(0, |inherited| inherited.count);
        let least = (info.events.alloc + info.events.realloc).saturating_sub(inherited);
        if stacks.total < least {
            text.push_str(&format!(
                "; not counted are {} stacks or more, of the last events",
                count(least - stacks.total)
            ));
        }
        line("unwinding", text)?;
    }
    line("clock", clock(recorder))?;
    if !recorder.options.is_empty() {
        line("options", clean(&recorder.options.join(" ")).into_owned())?;
    }
    // One that spans everything needs no line.
    let whole = |c: &Capture| c.from_ns == 0 && c.to_ns >= process.duration_ns;
    if !matches!(info.captures.as_slice(), [one] if whole(one)) {
        for (i, capture) in info.captures.iter().enumerate() {
            line("capture", format!("{}: {} to {}", i + 1, duration(capture.from_ns), duration(capture.to_ns)))?;
        }
        if info.captures.is_empty() {
            line("capture", style.paint(TextRole::Hot, "none: recording was never switched on").to_string())?;
        }
    }
    for mark in &info.marks {
        line("mark", format!("{} {}", duration(mark.t_ns), clean(&mark.label)))?;
    }
    for remark in &info.remarks {
        line("remark", style.paint(TextRole::Hot, clean(&remark.text)).to_string())?;
    }
    Ok(())
}

/// By what means backtraces were found.
fn unwinding(stacks: &Stacks) -> String {
    let answers = [
        ("by known paths", stacks.paths),
        ("by verified chains", stacks.chains),
        ("by unwind information", stacks.cfi),
        ("by the general unwinder", stacks.general),
        ("by frame pointers alone", stacks.frame_chain),
        ("by libunwind", stacks.libunwind),
        ("nested", stacks.nested),
        ("without an unwinder", stacks.missing),
    ];
    let kinds = [
        ("with registered frames", stacks.registered),
        ("with frame pointers by convention", stacks.frame_pointers),
        ("heuristic", stacks.heuristic),
        ("truncated", stacks.truncated),
    ];
    let listed = |list: &[(&str, u64)]| {
        let list: Vec<_> =
            list.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{} {what}", count(*n))).collect();
        list.join(", ")
    };
    let kinds = listed(&kinds);
    if kinds.is_empty() { listed(&answers) } else { format!("{}; of them {kinds}", listed(&answers)) }
}

/// The clock and how good it was.
fn clock(recorder: &Recorder) -> String {
    let Some(quality) = &recorder.clock_quality else { return recorder.clock.clone() };
    let mut parts = vec![
        recorder.clock.clone(),
        format!("{:.3} ns a tick", quality.resolution_ns),
        format!("steady within {:.1} ppm", quality.drift_ppm),
        format!("times within {}", duration(quality.error_ns)),
        format!("{} samples", count(quality.samples)),
    ];
    let oddities = [
        (quality.steps_back, "steps back"),
        (quality.wall_steps, "steps of the wall clock"),
        (quality.order_violations, "allocations over living blocks"),
    ];
    parts.extend(oddities.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count(*n))));
    parts.join(", ")
}

fn end(info: &Info) -> (&'static str, TextRole) {
    match info.end {
        End::Running => ("running", TextRole::Good),
        End::Exit if info.complete => ("complete: the program ended", TextRole::Good),
        End::Exec if info.complete => ("complete: the program called exec", TextRole::Good),
        End::Exit => ("the program ended, but events are missing", TextRole::Bad),
        End::Exec => ("the program called exec; events are missing", TextRole::Bad),
        End::Detached if info.complete => ("complete: heaptrace detached from the program", TextRole::Good),
        End::Detached => ("heaptrace detached from the program; events are missing", TextRole::Bad),
        End::Stopped => ("recording was stopped before the program ended", TextRole::Hot),
        End::Killed if info.recorder.version.starts_with("heaptrack") => {
            ("the program was killed; what heaptrack had not written by then is missing", TextRole::Bad)
        }
        End::Killed => (
            "the program was killed, or ended without its C library (as Go does); all completed events were recovered",
            TextRole::Hot,
        ),
        End::DiskFull => ("cut short: the disk was full", TextRole::Bad),
        End::Unknown => ("cut short: the file has no end, and no side file completes it", TextRole::Bad),
    }
}
