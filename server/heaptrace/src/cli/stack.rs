//! Stacks as people read them: a frame a line, or the innermost functions on one.

use std::io::{self, Write};

use tracehound_api::Frame;

use super::terminal::{Style, TextRole, clean, truncate, truncate_front, width};
use super::units::plural;

/// Names are aligned up to this width.
const NAME_COLUMN: usize = 48;

/// Writes a stack, a frame a line: the name, and where the call is. Without `all_frames` the inside of libraries is left
/// out, and the middle of what is still long.
pub fn print(stack: &[Frame], all_frames: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let lines = if all_frames { (0..stack.len()).map(StackLine::Frame).collect() } else { shorten(fold(stack)) };
    // Names are aligned as far as they are of reasonable length; places follow.
    let names: Vec<String> = stack.iter().map(short_name).collect();
    let shown = |line: &StackLine| match line {
        StackLine::Frame(i) => Some(width(&names[*i])),
        StackLine::Folded(_) | StackLine::Skipped(_) => None,
    };
    let column = lines.iter().filter_map(shown).filter(|&width| width <= NAME_COLUMN).max().unwrap_or(0);
    let room = style.width.map_or(usize::MAX, |columns| columns.saturating_sub(6));
    for line in lines {
        let i = match line {
            StackLine::Frame(i) => i,
            StackLine::Folded(_) | StackLine::Skipped(_) => {
                let text = match line {
                    StackLine::Folded(count) => {
                        format!("… {} of libraries (--full shows them)", plural(count as u64, "frame"))
                    }
                    StackLine::Skipped(count) => {
                        format!("… {} (--full shows them)", plural(count as u64, "more frame"))
                    }
                    StackLine::Frame(_) => String::new(),
                };
                writeln!(out, "    {}", style.paint(TextRole::Faint, text))?;
                continue;
            }
        };
        let (frame, name) = (&stack[i], &names[i]);
        let name = truncate(name, room.max(20));
        let pad = " ".repeat(column.saturating_sub(width(&name)));
        let place = place(frame);
        let place = truncate_front(&place, room.saturating_sub(width(&name) + pad.len()).max(12));
        let role = if frame.library { TextRole::Faint } else { TextRole::Name };
        if place.is_empty() {
            writeln!(out, "    {}", style.paint(role, name))?;
        } else {
            writeln!(out, "    {}{pad}  {}", style.paint(role, name), style.paint(TextRole::Faint, place))?;
        }
    }
    Ok(())
}

/// A line of a stack as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StackLine {
    /// The frame at this position.
    Frame(usize),
    /// So many frames that say nothing about the program.
    Folded(usize),
    /// So many frames in the middle of a long stack.
    Skipped(usize),
}

/// Leaves out the inside of libraries: of the frames below the program's code the one that it called, of the frames
/// above the one that called it, between two of its frames both. All frames if none is the program's.
fn fold(stack: &[Frame]) -> Vec<StackLine> {
    let mut lines = Vec::new();
    let own = |frame: &Frame| !frame.library;
    let Some(last_own) = stack.iter().rposition(own) else {
        return (0..stack.len()).map(StackLine::Frame).collect();
    };
    let mut i = 0;
    while i < stack.len() {
        let run = stack[i..].iter().take_while(|frame| frame.library).count();
        if run == 0 {
            lines.push(StackLine::Frame(i));
            i += 1;
            continue;
        }
        let (head, tail) = match i {
            0 => (0, 1),
            _ if i > last_own => (1, 0),
            _ => (1, 1),
        };
        if run <= head + tail + 1 {
            lines.extend((i..i + run).map(StackLine::Frame));
        } else {
            lines.extend((i..i + head).map(StackLine::Frame));
            lines.push(StackLine::Folded(run - head - tail));
            lines.extend((i + run - tail..i + run).map(StackLine::Frame));
        }
        i += run;
    }
    lines
}

/// Leaves out the middle of what is too long to be read: who allocated is at the front, where it began at the end.
fn shorten(mut lines: Vec<StackLine>) -> Vec<StackLine> {
    const LONGEST: usize = 24;
    const FRONT: usize = 16;
    const BACK: usize = 5;
    if lines.len() <= LONGEST {
        return lines;
    }
    let frames = |line: StackLine| match line {
        StackLine::Frame(_) => 1,
        StackLine::Folded(count) | StackLine::Skipped(count) => count,
    };
    let back = lines.len() - BACK;
    let skipped = lines[FRONT..back].iter().map(|&line| frames(line)).sum();
    lines.splice(FRONT..back, [StackLine::Skipped(skipped)]);
    lines
}

/// The innermost functions of the program on one line, their callers behind them.
pub fn one_line(stack: &[Frame], most: usize) -> String {
    let own: Vec<&Frame> = stack.iter().filter(|frame| !frame.library).collect();
    let frames = if own.is_empty() { stack.iter().collect() } else { own };
    let names: Vec<String> = frames.iter().take(most).map(|frame| name(frame)).collect();
    let more = if frames.len() > names.len() { " ← …" } else { "" };
    if names.is_empty() { "(no backtrace)".into() } else { format!("{}{more}", names.join(" ← ")) }
}

/// Function, or where the code is that has no name.
pub fn name(frame: &Frame) -> String {
    match (&frame.function, &frame.module) {
        (Some(function), _) => clean(function).into_owned(),
        (None, Some(module)) => format!("{} in {}", nameless(frame), clean(module)),
        (None, None) => nameless(frame).into(),
    }
}

/// What stands for a missing name: the same in every run, as tables and flame graphs have it.
fn nameless(frame: &Frame) -> &str {
    frame.offset.as_deref().unwrap_or(&frame.address)
}

/// As [`name`], for where the module is beside it.
fn short_name(frame: &Frame) -> String {
    frame.function.as_deref().map_or_else(|| nameless(frame).into(), |function| clean(function).into_owned())
}

/// Source file and line of a frame; the module where there is none.
fn place(frame: &Frame) -> String {
    let mut place = match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", clean(short(file))),
        (Some(file), None) => clean(short(file)).into_owned(),
        _ => frame.module.as_deref().map(|module| clean(module).into_owned()).unwrap_or_default(),
    };
    if frame.inlined {
        place.push_str(" (inlined)");
    }
    place
}

/// Without the hash of the compiler in front of the standard library's sources.
fn short(file: &str) -> &str {
    let rest = file.strip_prefix("/rustc/").and_then(|rest| rest.split_once('/'));
    rest.map_or(file, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_without_a_name_is_called_by_its_place_in_the_file() {
        let frame = |offset: Option<&str>, module: Option<&str>| Frame {
            function: None,
            file: None,
            line: None,
            module: module.map(Into::into),
            inlined: false,
            language: None,
            address: "0x556a61c1a7a1".into(),
            offset: offset.map(Into::into),
            library: false,
        };
        let names = |frame: &Frame| (name(frame), short_name(frame));
        assert_eq!(names(&frame(Some("0xa7a1"), Some("sqlite3"))), ("0xa7a1 in sqlite3".into(), "0xa7a1".into()));
        assert_eq!(names(&frame(None, None)), ("0x556a61c1a7a1".into(), "0x556a61c1a7a1".into()));
    }

    #[test]
    fn long_stacks_lose_their_middle() {
        let lines: Vec<StackLine> = (0..24).map(StackLine::Frame).collect();
        assert_eq!(shorten(lines.clone()), lines);
        let mut lines: Vec<StackLine> = (0..60).map(StackLine::Frame).collect();
        lines[30] = StackLine::Folded(9);
        let short = shorten(lines);
        assert_eq!(short.len(), 22);
        assert_eq!(
            (short[15], short[16], short[17]),
            (StackLine::Frame(15), StackLine::Skipped(38 + 9), StackLine::Frame(55))
        );
    }
}
