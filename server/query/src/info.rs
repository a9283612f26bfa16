//! A recording in one document.

use tracehound_format::meta::StackCounts;

use super::ledger;
use tracehound_api::Amount;
use tracehound_api::info::{
    Events, Existing, Info, Mapped, Mark, MemoryPart, Peak, PeakRss, ProcessInfo, Recorder, Stacks, Temporary,
};
use tracehound_index::Trace;
use tracehound_index::facts::TEMPORARY_WITHIN;

/// The rule that makes a block temporary, in words.
#[must_use]
pub fn temporary_rule() -> String {
    format!("freed within {TEMPORARY_WITHIN} later allocation of the same thread")
}

/// Describes a recording.
#[must_use]
pub fn run(trace: &Trace) -> Info {
    let f = trace.facts();
    let e = &f.events;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let process = f.process.as_ref();
    let max_depth = (0..trace.site_count())
        .filter_map(|site| trace.site_node(site))
        .map(|node| u64::from(trace.nodes().depth(node)))
        .max()
        .unwrap_or(0);
    let statistics = &f.statistics;
    Info {
        schema: "heaptrace.info/1".into(),
        process: ProcessInfo {
            pid: process.map_or(0, |p| p.pid),
            parent_pid: process.map_or(0, |p| p.parent_pid),
            executable: process.map_or_else(String::new, |p| text(&p.executable)),
            arguments: process.map_or_else(Vec::new, |p| p.arguments.iter().map(|a| text(a)).collect()),
            started_at: started_at(process.map_or(0, |p| p.started_unix_ns)),
            duration_ns: f.duration_ns,
        },
        complete: trace.is_complete(),
        end: trace.end(),
        attached: f.attached,
        events: Events {
            alloc: e.alloc,
            free: e.free,
            realloc: e.realloc,
            map: e.map,
            unmap: e.unmap,
            remap: e.remap,
            brk: e.brk,
            lost: f.lost,
        },
        allocations: Amount { bytes: f.allocated_bytes, count: trace.alloc_count() },
        peak: Peak { bytes: f.peak.bytes, count: f.peak.count, at_ns: f.peak.at_ns },
        peak_rss: peak_rss(trace),
        mapped: mapped(trace),
        leaked: Amount { bytes: f.live_bytes, count: trace.alloc_count() - trace.free_count() },
        inherited: f
            .inherited
            .as_ref()
            .filter(|inherited| inherited.blocks > 0)
            .map(|inherited| Amount { bytes: inherited.bytes, count: inherited.blocks }),
        existing: (e.existing.count > 0).then_some(Existing {
            count: e.existing.count,
            bytes: e.existing.bytes,
            freed: Amount { bytes: e.existing.freed_bytes, count: e.existing.freed_count },
        }),
        temporary: Temporary { count: f.temporary.0, bytes: f.temporary.1, rule: temporary_rule() },
        threads: f.threads.iter().filter(|t| t.active).count() as u64,
        sites: u64::from(trace.site_count()),
        max_depth,
        recorder: Recorder {
            version: process.map_or_else(String::new, |p| p.recorder.clone()),
            wait_ns: statistics.wait_ns,
            chunk_memory_bytes: statistics.chunk_bytes,
            memory_bytes: statistics.memory_bytes,
            clock: f.clock.clone(),
            unmatched_frees: e.unmatched,
            order_repairs: e.reordered,
            truncated_stacks: statistics.truncated_stacks,
            guessed_stacks: statistics.guessed_stacks,
            slow_stacks: statistics.slow_stacks,
            stacks: f.stack_counts.as_ref().map(stacks),
            nodes: u64::from(trace.node_count().max(1) - 1),
            background_cpu_ns: statistics.background_cpu_ns,
            options: process.map_or_else(Vec::new, |p| p.options.clone()),
            file_bytes: f.file_bytes,
            clock_quality: f.clock_quality.clone(),
            memory: f
                .recorder_parts
                .iter()
                .map(|p| MemoryPart { part: p.name.clone(), bytes: p.bytes, limit_bytes: p.limit })
                .collect(),
        },
        marks: f.marks.iter().map(|m| Mark { t_ns: m.t_ns, label: m.label.clone(), thread: m.thread }).collect(),
        captures: f.captures.clone(),
        remarks: f.remarks.clone(),
        exactness: trace.exactness(),
    }
}

/// Looks that may be the highest one: the kernel's counters behind a look are not quite those of the look.
const HIGHEST_LOOKS: usize = 4;

/// The largest resident set: that of the highest look, with the figures of its ledger; of the samples where these know of
/// one that is more than 2 % higher, which was between two looks, or where nobody looked.
#[must_use]
pub fn peak_rss(trace: &Trace) -> Option<PeakRss> {
    let sampled = trace.facts().peak_rss;
    let mut looks: Vec<_> = trace.looks().iter().collect();
    looks.sort_by_key(|look| (std::cmp::Reverse(look.counters.rss()), look.t_ns));
    let looked = looks.into_iter().take(HIGHEST_LOOKS).filter_map(|look| {
        let (bytes, recorder_bytes) = ledger::resident_and_recorder(trace, look)?;
        Some(PeakRss { bytes, recorder_bytes, at_ns: look.t_ns })
    });
    let looked = looked.max_by_key(|peak| peak.bytes);
    match (looked, sampled) {
        (Some(looked), Some(sampled)) if sampled.bytes > looked.bytes + looked.bytes / 50 => {
            let near = ledger::look_for(trace, None, sampled.at_ns, false)
                .and_then(|look| ledger::resident_and_recorder(trace, look));
            Some(PeakRss { recorder_bytes: near.map_or(sampled.recorder_bytes, |near| near.1), ..sampled })
        }
        (looked, sampled) => looked.or(sampled),
    }
}

fn stacks(counts: &StackCounts) -> Stacks {
    let &StackCounts { paths, chains, cfi, general, frame_chain, libunwind, nested, missing, .. } = counts;
    let answers = [paths, chains, cfi, general, frame_chain, libunwind, nested, missing];
    Stacks {
        total: answers.iter().fold(0, |sum, n| sum.saturating_add(*n)),
        paths,
        chains,
        cfi,
        general,
        frame_chain,
        libunwind,
        nested,
        missing,
        registered: counts.registered,
        frame_pointers: counts.frame_pointers,
        heuristic: counts.heuristic,
        truncated: counts.truncated,
    }
}

fn mapped(trace: &Trace) -> Mapped {
    let curve = trace.mapped_curve();
    // The first of several equal maxima.
    let peak = curve.iter().copied().reduce(|most, next| if next.1 > most.1 { next } else { most });
    let (peak_at_ns, peak_bytes) = peak.unwrap_or_default();
    Mapped { peak_bytes, peak_at_ns, end_bytes: curve.last().map_or(0, |last| last.1) }
}

/// When a process started, as [`rfc3339`]; empty where that is not known.
#[must_use]
pub fn started_at(unix_ns: u64) -> String {
    if unix_ns == 0 { String::new() } else { rfc3339(unix_ns) }
}

/// A moment, nanoseconds since 1970, as RFC 3339 has it, in UTC.
#[must_use]
pub fn rfc3339(unix_ns: u64) -> String {
    let (seconds, nanoseconds) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Civil date from days since 1970, with years that start in March (H. Hinnant, "chrono-Compatible Low-Level Date
    // Algorithms").
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn dates_are_right() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(rfc3339(951_782_400_000_000_001), "2000-02-29T00:00:00.000000001Z");
        assert_eq!(rfc3339(1_700_000_000_123_000_000), "2023-11-14T22:13:20.123000000Z");
        assert_eq!(rfc3339(4_102_444_799_000_000_000), "2099-12-31T23:59:59.000000000Z");
    }
}
