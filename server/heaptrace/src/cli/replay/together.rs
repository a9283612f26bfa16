//! Several recordings of one program as one answer: what a program calls may differ from run to run.

use anyhow::Result;
use tracehound_api::replay::{Replay, ReplayRow};
use tracehound_index::Trace;
use tracehound_query::replay_basis;

use super::ReplayAnswer;
use crate::cli::Misuse;
use crate::cli::terminal::clean;

/// Whether recordings are of one program with one allocator.
///
/// # Errors
/// When they are not.
pub fn check(traces: &[&Trace]) -> Result<()> {
    let Some((first, rest)) = traces.split_first() else { return Ok(()) };
    if let Some(other) = rest.iter().find(|other| executable(other) != executable(first)) {
        let [one, other] = [first, other].map(|trace| String::from_utf8_lossy(executable(trace)));
        let text = format!("--together: these are of different programs: {} and {}", clean(&one), clean(&other));
        return Err(Misuse(text).into());
    }
    let of = |trace: &Trace| replay_basis::allocator_of(trace);
    if let Some(other) = rest.iter().find(|other| of(other) != of(first)) {
        let text = format!(
            "--together: one program was recorded with {} and with {}: replay them by themselves",
            of(first),
            of(other)
        );
        return Err(Misuse(text).into());
    }
    Ok(())
}

fn executable(trace: &Trace) -> &[u8] {
    trace.facts().process.as_ref().map_or(&[], |process| &process.executable)
}

/// One answer for all: each row's range holds those of all recordings, the self-check is the worst one, and the recorded
/// memory that of the recording with most. Rows of all answers are of the same allocators, in the same order. None of none.
pub fn combine(answers: Vec<ReplayAnswer>) -> Option<ReplayAnswer> {
    let count = answers.len() as u64;
    let mut answers = answers.into_iter();
    let mut all = answers.next()?;
    for answer in answers {
        add(&mut all.replay, answer.replay);
        all.own_end_bytes = all.own_end_bytes.zip(answer.own_end_bytes).map(|(a, b)| a.max(b));
    }
    all.replay.recordings = count;
    Some(all)
}

fn add(all: &mut Replay, other: Replay) {
    if other.recorded.peak_bytes > all.recorded.peak_bytes {
        all.recorded = other.recorded;
    }
    all.self_check = match (all.self_check.take(), other.self_check) {
        (Some(a), Some(b)) => Some(if b.error.abs() > a.error.abs() { b } else { a }),
        _ => None,
    };
    for (row, more) in all.rows.iter_mut().zip(other.rows) {
        widen(row, more);
    }
}

/// A row that has no figures of one recording has none at all.
fn widen(row: &mut ReplayRow, more: ReplayRow) {
    let has_figures = |row: &ReplayRow| row.peak_bytes[1] > 0;
    if !has_figures(row) {
        return;
    }
    if !has_figures(&more) {
        *row = more;
        return;
    }
    let both = |a: [u64; 2], b: [u64; 2]| [a[0].min(b[0]), a[1].max(b[1])];
    row.peak_bytes = both(row.peak_bytes, more.peak_bytes);
    row.end_bytes = both(row.end_bytes, more.end_bytes);
    row.cpu_ns = row.cpu_ns.min(more.cpu_ns);
    row.failed = row.failed.take().or(more.failed);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tracehound_api::replay::{RecordedMemory, SelfCheck};

    use super::*;

    fn row(peak: [u64; 2], end: [u64; 2], failed: Option<&str>) -> ReplayRow {
        ReplayRow {
            allocator: "jemalloc 5.3.0".into(),
            settings: BTreeMap::new(),
            peak_bytes: peak,
            end_bytes: end,
            cpu_ns: peak[1],
            command: "./app".into(),
            failed: failed.map(str::to_owned),
        }
    }

    fn answer(allocator: &str, peak_bytes: u64, error: Option<f64>, rows: Vec<ReplayRow>) -> ReplayAnswer {
        let recorded = RecordedMemory { allocator: allocator.into(), peak_bytes, other_bytes: 1 };
        let self_check = error.map(|error| SelfCheck { peak_bytes, then_bytes: peak_bytes, error });
        let schema = "heaptrace.replay/1".into();
        let replay = Replay { schema, recordings: 1, recorded, self_check, rows };
        ReplayAnswer { replay, own_end_bytes: Some(peak_bytes / 2) }
    }

    #[test]
    fn ranges_hold_all_recordings_and_the_worst_check_counts() {
        let one = answer("glibc 2.36", 100, Some(0.01), vec![row([80, 90], [10, 20], None)]);
        let two = answer("glibc 2.36", 120, Some(-0.05), vec![row([85, 99], [5, 15], Some("2 allocations failed"))]);
        let three = answer("glibc 2.36", 110, Some(0.02), vec![row([70, 75], [12, 13], None)]);
        let all = combine(vec![one, two, three]).expect("one program");
        let row = &all.replay.rows[0];
        assert_eq!((row.peak_bytes, row.end_bytes, row.cpu_ns), ([70, 99], [5, 20], 75));
        assert_eq!(row.failed.as_deref(), Some("2 allocations failed"));
        assert_eq!((all.replay.recordings, all.replay.recorded.peak_bytes, all.own_end_bytes), (3, 120, Some(60)));
        assert_eq!(all.replay.self_check.map(|check| check.error), Some(-0.05));
    }

    #[test]
    fn what_has_no_figures_once_has_none() {
        let none = || row([0, 0], [0, 0], Some("it ended"));
        for rows in [[none(), row([8, 9], [1, 2], None)], [row([8, 9], [1, 2], None), none()]] {
            let answers = rows.map(|row| answer("glibc 2.36", 10, None, vec![row]));
            let all = combine(answers.into()).expect("one program");
            assert_eq!(
                (all.replay.rows[0].peak_bytes, all.replay.rows[0].failed.as_deref()),
                ([0, 0], Some("it ended"))
            );
            assert!(all.replay.self_check.is_none());
        }
        assert!(combine(Vec::new()).is_none());
    }
}
