//! Results of `heaptrace replay`, kept beside the index for later queries.

use tracehound_api::replay::{KeptReplay, Replay, ReplayRow};
use tracehound_index::Trace;
use tracehound_index::kept::KeptKind;

/// As JSON, since documents leave out what they have not.
const KEPT: KeptKind = KeptKind { name: "replay", version: 1 };
/// The self-check's error from which on there is no verdict, as a part of what was recorded.
const TOO_FAR_OFF: f64 = 0.15;

/// All that was replayed up to now, an allocator with its settings once.
#[must_use]
pub fn find(trace: &Trace) -> Option<Replay> {
    trace.reread_kept::<String>(KEPT).and_then(|text| serde_json::from_str(&text).ok())
}

/// What was replayed, what it says, and how to replay more.
#[must_use]
pub fn kept(trace: &Trace) -> KeptReplay {
    let replay = find(trace);
    let smaller = replay.as_ref().and_then(|replay| {
        let row = smaller(replay)?;
        replay.rows.iter().position(|one| std::ptr::eq(one, row))
    });
    KeptReplay {
        schema: "heaptrace.kept_replay/1".into(),
        checked: replay.as_ref().is_some_and(is_checked),
        smaller: smaller.map(|row| row as u64),
        replay,
        command: format!("heaptrace replay {}", file_word(&trace.path().to_string_lossy())),
    }
}

/// Adds what was replayed to what is there; of the same allocator and settings the new row counts.
pub fn keep(trace: &Trace, replay: &Replay) {
    let mut all = replay.clone();
    let is_new = |old: &ReplayRow| !replay.rows.iter().any(|row| is_same(row, old));
    all.rows.extend(find(trace).into_iter().flat_map(|before| before.rows).filter(is_new));
    if let Ok(text) = serde_json::to_string(&all) {
        trace.keep(KEPT, text);
    }
}

fn is_same(a: &ReplayRow, b: &ReplayRow) -> bool {
    (&a.allocator, &a.settings) == (&b.allocator, &b.settings)
}

/// Whether the self-check's error is small enough for a verdict.
#[must_use]
pub fn is_checked(replay: &Replay) -> bool {
    replay.self_check.as_ref().is_some_and(|check| check.error.abs() <= TOO_FAR_OFF)
}

/// Whether a row is that of the recording's own allocator with its usual settings. The version of an allocator inside the
/// program is not known.
#[must_use]
pub fn is_own(replay: &Replay, row: &ReplayRow) -> bool {
    let version = row.allocator.strip_prefix(replay.recorded.allocator.as_str());
    row.settings.is_empty() && version.is_some_and(|version| version.is_empty() || version.starts_with(' '))
}

/// The row that would hold least at its peak, if that is a tenth less than was recorded, and than the recording's own
/// allocator takes when it is replayed; none where the self-check allows no verdict.
#[must_use]
pub fn smaller(replay: &Replay) -> Option<&ReplayRow> {
    let check = replay.self_check.as_ref().filter(|_| is_checked(replay))?;
    let before = replay.recorded.peak_bytes.min(check.peak_bytes);
    let rows = replay.rows.iter().filter(|row| row.failed.is_none() && !is_own(replay, row));
    let best = rows.min_by_key(|row| row.peak_bytes[1])?;
    (u128::from(best.peak_bytes[1]) * 10 < u128::from(before) * 9).then_some(best)
}

/// The recorded command line, as a shell takes it; empty where it is not known.
#[must_use]
pub fn command_line(trace: &Trace) -> String {
    let arguments = trace.facts().process.as_ref().map(|process| process.arguments.as_slice()).unwrap_or_default();
    let words = arguments.iter().map(|argument| shell_word(&String::from_utf8_lossy(argument)));
    words.collect::<Vec<_>>().join(" ")
}

/// Leaves settings and program of the rows' commands, without the program's arguments.
pub fn strip_arguments(trace: &Trace, kept: &mut KeptReplay) {
    let line = command_line(trace);
    let program = trace.facts().process.as_ref().and_then(|process| process.arguments.first());
    let program = program.map(|name| shell_word(&String::from_utf8_lossy(name))).unwrap_or_default();
    for row in kept.replay.iter_mut().flat_map(|replay| &mut replay.rows) {
        row.command = without_arguments(&row.command, &line, &program);
    }
}

/// A command that does not end with the command line may hold arguments anywhere: it is removed as a whole.
fn without_arguments(command: &str, line: &str, program: &str) -> String {
    command.strip_suffix(line).map_or_else(String::new, |settings| format!("{settings}{program}"))
}

/// A word as a shell takes it.
#[must_use]
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// A file as a shell takes it, that no command takes for an option.
fn file_word(path: &str) -> String {
    let folder = if path.starts_with('-') { "./" } else { "" };
    shell_word(&format!("{folder}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tracehound_api::replay::{RecordedMemory, SelfCheck};

    fn row(allocator: &str, most: u64, failed: Option<&str>) -> ReplayRow {
        ReplayRow {
            allocator: allocator.into(),
            settings: BTreeMap::new(),
            peak_bytes: [most / 2, most],
            end_bytes: [0, 0],
            cpu_ns: 1,
            command: String::new(),
            failed: failed.map(str::to_owned),
        }
    }

    fn replay(error: Option<f64>, rows: Vec<ReplayRow>) -> Replay {
        let check = |error: f64| {
            let bytes = (1000.0 * (1.0 + error)) as u64;
            SelfCheck { peak_bytes: bytes, then_bytes: bytes, error }
        };
        Replay {
            schema: "heaptrace.replay/1".into(),
            recordings: 1,
            recorded: RecordedMemory { allocator: "glibc 2.36".into(), peak_bytes: 1000, other_bytes: 10 },
            self_check: error.map(check),
            rows,
        }
    }

    #[test]
    fn the_smaller_row_is_a_tenth_smaller_at_least() {
        let found = |replay: &Replay| smaller(replay).map(|row| row.allocator.clone());
        assert_eq!(found(&replay(Some(0.0), vec![row("a", 900, None)])), None);
        let rows = vec![row("a", 899, None), row("b", 700, None), row("c", 0, Some("it ended"))];
        assert_eq!(found(&replay(Some(0.0), rows.clone())).as_deref(), Some("b"));
        // What is off by as much proves nothing.
        assert_eq!(found(&replay(Some(-0.1), vec![row("a", 820, None)])), None);
        assert_eq!(found(&replay(Some(-0.1), rows.clone())).as_deref(), Some("b"));
        assert_eq!(found(&replay(Some(0.2), rows.clone())), None);
        assert_eq!(found(&replay(None, rows)), None);
        // The recording's own allocator is no other one, but with a setting it is.
        let mut own = row("glibc 2.36", 500, None);
        assert_eq!(found(&replay(Some(0.0), vec![own.clone()])), None);
        own.settings.insert("arena_max".into(), "1".into());
        assert_eq!(found(&replay(Some(0.0), vec![own])).as_deref(), Some("glibc 2.36"));
    }

    #[test]
    fn words_are_what_a_shell_takes() {
        for (text, word) in [
            ("--port=80", "--port=80"),
            ("", "''"),
            ("two words", "'two words'"),
            ("it's $HOME", "'it'\\''s $HOME'"),
            ("a;b", "'a;b'"),
        ] {
            assert_eq!(shell_word(text), word);
        }
        assert_eq!(file_word("memory-a.dat"), "memory-a.dat");
        assert_eq!(file_word("-x; rm.dat"), "'./-x; rm.dat'");
    }

    #[test]
    fn arguments_go_and_settings_stay() {
        let (line, program) = ("./app --key='a b' x", "./app");
        let command = format!("MALLOC_CONF=a:1,b:2 {line}");
        assert_eq!(without_arguments(&command, line, program), "MALLOC_CONF=a:1,b:2 ./app");
        assert_eq!(without_arguments(line, line, program), "./app");
        assert_eq!(without_arguments("A=1 ./other --key=z", line, program), "");
    }
}
