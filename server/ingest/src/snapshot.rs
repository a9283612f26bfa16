//! Makes an immutable snapshot from the state of ingest.

use std::collections::{HashMap, HashSet};
use std::io;

use super::clock::ClockMap;
use super::engine::PairingEngine;
use super::intake::Intake;
use super::merge::Merger;
use super::scan::Scan;
use super::seal::Sealer;
use tracehound_api::info::{Capture, PeakRss, Remark};
use tracehound_format::meta::{self, EndReason, Meta};
use tracehound_index::facts::{Inherited, ModuleFacts, RecordingFacts, ThreadFacts, is_interpreted};
use tracehound_index::nodes::NO_LOCATION;
use tracehound_index::schema::{MemoryReading, StoredLocation, StoredNode, TableRow};

/// How far a recording has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexEnding {
    /// The process is running; more will come.
    pub running: bool,
    /// It was killed, and the side file was merged.
    pub killed: bool,
    /// Everything before this tick was merged; `None`: everything.
    pub limit: Option<u64>,
}

/// Stores nodes of the call tree as they become known.
#[derive(Debug, Default)]
pub struct NodeStore {
    locations: HashMap<(u64, u32), u32>,
    /// First addresses of the functions of interpreted languages that are stored.
    codes: HashSet<u64>,
}

impl NodeStore {
    /// Appends functions of interpreted languages that came in.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn store_codes(&mut self, intake: &mut Intake, sealer: &mut Sealer) -> io::Result<()> {
        let mut bytes = Vec::new();
        for code in intake.codes.drain(..) {
            if self.codes.insert(code.address) {
                meta::encode(&Meta::Code(code), &mut bytes).map_err(io::Error::other)?;
            }
        }
        sealer.writers.codes.append(&bytes)
    }

    /// Whether some of them, or of those that came in, are in the pseudo-module of an interpreter.
    fn has_interpreted(&self, intake: &Intake) -> bool {
        self.codes.iter().copied().chain(intake.codes.iter().map(|code| code.address)).any(is_interpreted)
    }

    /// Appends nodes that are not stored yet, up to the first unknown one; with `last`, unknown ones, too.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn store(&mut self, intake: &Intake, sealer: &mut Sealer, last: bool) -> io::Result<()> {
        let w = &mut sealer.writers;
        const UNKNOWN: StoredNode = StoredNode { parent: 0, location: NO_LOCATION };
        let (mut nodes, mut locations) = (Vec::new(), Vec::new());
        if w.node_parent.is_empty() {
            nodes.push(UNKNOWN);
        }
        let first = w.node_parent.len() as usize + nodes.len();
        for node in intake.nodes.get(first..).unwrap_or_default() {
            match node {
                Some(node) => {
                    let next = self.locations.len() as u32;
                    let location = *self.locations.entry((node.pc, node.generation)).or_insert(next);
                    if location == next {
                        locations.push(StoredLocation { pc: node.pc, generation: node.generation });
                    }
                    nodes.push(StoredNode { parent: node.parent, location });
                }
                None if last => nodes.push(UNKNOWN),
                None => break,
            }
        }
        StoredNode::append(&nodes, w)?;
        StoredLocation::append(&locations, w)
    }
}

/// Stores memory samples that came in.
///
/// # Errors
/// When the disk refuses.
pub fn store_samples(
    intake: &mut Intake,
    engine: &PairingEngine,
    sealer: &mut Sealer,
    peak_rss: &mut Option<PeakRss>,
    skip: &mut u64,
) -> io::Result<()> {
    // After a run that was taken up, the first ones are in the columns already.
    let known = (*skip).min(intake.memory.len() as u64);
    *skip -= known;
    let mut samples: Vec<_> = intake.memory.drain(..).skip(known as usize).collect();
    samples.sort_by_key(|s| s.tick);
    let readings = samples.iter().map(|s| MemoryReading {
        t_ns: engine.clock.look_up(s.tick),
        rss: s.rss,
        rss_anonymous: s.rss_anonymous,
        virtual_size: s.virtual_size,
        recorder: s.recorder,
    });
    let readings: Vec<MemoryReading> = readings.collect();
    for reading in &readings {
        if peak_rss.is_none_or(|peak| reading.rss > peak.bytes) {
            let &MemoryReading { t_ns: at_ns, rss: bytes, recorder: recorder_bytes, .. } = reading;
            *peak_rss = Some(PeakRss { bytes, recorder_bytes, at_ns });
        }
    }
    MemoryReading::append(&readings, &mut sealer.writers)
}

/// Everything about the recording but its columns.
#[must_use]
#[allow(clippy::too_many_arguments)] // They are the parts of ingest; this is where they come together.
pub fn facts(
    recording_id: [u8; 16],
    file_bytes: u64,
    scan: &Scan,
    intake: &Intake,
    engine: &PairingEngine,
    merger: &Merger,
    sealer: &Sealer,
    peak_rss: Option<PeakRss>,
    inherited: Option<&Inherited>,
    nodes: &NodeStore,
    ending: IndexEnding,
) -> RecordingFacts {
    let t = &engine.totals;
    let clock = &engine.clock;
    let until = ending.limit.map_or(intake.last_tick, |limit| limit.min(intake.last_tick));
    let duration_ns = clock.look_up(until).max(if t.counts.total > 0 { t.last_ns + 1 } else { 0 });
    let unread: u64 = engine.threads.iter().map(|s| s.known_records.saturating_sub(s.next_record)).sum();
    let damaged_blocks = scan.damaged_blocks + merger.damaged.len() as u64;
    let mut lost = t.lost + if ending.running { 0 } else { unread };
    if let (Some(end), true) = (&intake.end, damaged_blocks > 0) {
        // Records in a damaged block at the end of a thread show only in the recorder's own total.
        let known: u64 = engine.threads.iter().map(|s| s.known_records).sum();
        lost += end.statistics.records.saturating_sub(known);
    }
    RecordingFacts {
        recording_id,
        process: intake.process.clone(),
        clock: intake.clock_name(),
        duration_ns,
        watermark_ns: ending.limit.map_or(duration_ns, |limit| clock.look_up(limit)),
        end: intake.end.as_ref().map(|e| e.reason),
        running: ending.running,
        attached: intake.attached,
        killed: ending.killed,
        modules: modules(intake, clock, inherited, nodes.has_interpreted(intake)),
        threads: threads(intake, engine),
        marks: intake.marks(clock),
        context_names: context_names(intake),
        captures: captures(intake, engine, duration_ns),
        remarks: remarks(scan, intake, engine, inherited),
        statistics: intake.statistics.clone(),
        stack_counts: intake.stack_counts,
        events: t.counts,
        allocated_bytes: t.allocated,
        live_bytes: t.live,
        temporary: t.temporary,
        peak: t.peak,
        lost,
        damaged_blocks,
        uncertain: intake.uncertain,
        cut: scan.cut,
        file_bytes,
        peak_rss,
        clock_quality: intake.calibration.quality(intake.clock.as_ref(), t.counts.overwritten),
        recorder_parts: intake.parts.1.clone(),
        memory_details: intake.memory_details(clock),
        looks: intake.looks(clock),
        clock_points: clock.points().to_vec(),
        inherited: inherited.cloned(),
        lengths: sealer.writers.lengths(),
        zone_rows: engine.zone_rows(),
        buckets: sealer.buckets.clone(),
        open_bucket: t.bucket_start.into(),
        site_sums: sealer.sites.directory.clone(),
        thread_sums: sealer.threads.directory.clone(),
        pair_sums: sealer.pairs.directory.clone(),
    }
}

fn threads(intake: &Intake, engine: &PairingEngine) -> Vec<ThreadFacts> {
    let clock = &engine.clock;
    let thread = |state: &super::engine::PairingThread| {
        let mut meta = intake.threads.get(&state.id).cloned().unwrap_or_default();
        if state.id == 1 && meta.os_thread == 0 && intake.forked_from.is_some() {
            // It has made no event itself; blocks that were inherited are its own.
            meta.os_thread = intake.process.as_ref().map_or(0, |process| process.pid);
        }
        ThreadFacts {
            id: state.id,
            os_thread: meta.os_thread,
            name: String::from_utf8_lossy(&meta.name).into_owned(),
            started_ns: clock.look_up(meta.start_tick.unwrap_or(0)),
            ended_ns: meta.end_tick.map(|t| clock.look_up(t)),
            active: state.active,
        }
    };
    engine.threads.iter().map(thread).collect()
}

fn context_names(intake: &Intake) -> Vec<(u64, String)> {
    intake.context_names.iter().map(|(&id, (_, name))| (id, String::from_utf8_lossy(name).into_owned())).collect()
}

fn captures(intake: &Intake, engine: &PairingEngine, duration_ns: u64) -> Vec<Capture> {
    let switches = &engine.totals.switches;
    let starts_off =
        intake.process.as_ref().is_some_and(|p| p.options.iter().any(|option| option.starts_with("TRACEHOUND_START=")));
    let on_first = switches.first().map_or(!starts_off, |&(_, on)| !on);
    let mut captures = Vec::new();
    let mut since = on_first.then_some(0);
    for &(t_ns, on) in switches {
        match (since, on) {
            (None, true) => since = Some(t_ns),
            (Some(from_ns), false) => {
                captures.push(Capture { from_ns, to_ns: t_ns });
                since = None;
            }
            _ => {}
        }
    }
    captures.extend(since.map(|from_ns| Capture { from_ns, to_ns: duration_ns }));
    captures
}

/// The inherited blocks of a forked process, in words.
fn about(inherited: &Inherited) -> String {
    let mut text = String::new();
    if let Some(from) = &inherited.from
        && (inherited.blocks > 0 || inherited.shortfall.is_none())
    {
        let (blocks, bytes) = (inherited.blocks, inherited.bytes);
        let path = String::from_utf8_lossy(&from.path);
        text = format!("The process was forked: {blocks} blocks of {bytes} bytes were alive then, by {path}.");
    }
    if inherited.had_pauses {
        text.push_str(
            " That recording had been stopped before the fork: blocks that were freed meanwhile count as inherited.",
        );
    }
    if let Some(shortfall) = &inherited.shortfall {
        text.push_str(&format!(" Not complete: {shortfall}."));
    }
    text.trim_start().into()
}

fn modules(intake: &Intake, clock: &ClockMap, inherited: Option<&Inherited>, is_interpreted: bool) -> Vec<ModuleFacts> {
    let mut modules = intake.modules(clock);
    modules.extend(inherited.into_iter().flat_map(|inherited| inherited.modules.iter().cloned()));
    if is_interpreted {
        modules.push(ModuleFacts::of_python());
    }
    modules
}

fn remarks(scan: &Scan, intake: &Intake, engine: &PairingEngine, inherited: Option<&Inherited>) -> Vec<Remark> {
    let mut remarks: Vec<Remark> = intake
        .remarks
        .iter()
        .map(|r| Remark { t_ns: engine.clock.look_up(r.tick), topic: r.topic.clone(), text: r.text.clone() })
        .collect();
    let t_ns = engine.totals.last_ns;
    let mut add = |topic: &str, text: String| remarks.push(Remark { t_ns, topic: topic.into(), text });
    if intake.process.is_none() {
        add("no-process", "The record about the process is missing.".into());
    }
    if let Some(inherited) = inherited {
        add("inherited", about(inherited));
    }
    if scan.unknown > 0 || engine.totals.counts.unknown > 0 {
        let count = scan.unknown + engine.totals.counts.unknown;
        add("newer-version", format!("{count} records of kinds that this version does not know were skipped."));
    }
    if scan.skipped_bytes > 0 {
        add("damage", format!("{} bytes belong to no readable block.", scan.skipped_bytes));
    }
    if engine.totals.counts.overwritten > 0 {
        let count = engine.totals.counts.overwritten;
        add("overwritten", format!("{count} blocks were replaced at their address without a free that was seen."));
    }
    let detached = intake.end.as_ref().is_some_and(|end| end.reason == EndReason::Detached);
    // That of the detach is the end: nothing comes after it.
    let stops = engine.totals.switches.iter().filter(|(_, on)| !on).count().saturating_sub(usize::from(detached));
    if stops > 0 {
        let times = if stops == 1 { "once".into() } else { format!("{stops} times") };
        add(
            "stopped",
            format!(
                "Recording was stopped {times}: blocks that were freed meanwhile count as live, and frees of blocks that were allocated meanwhile as unmatched."
            ),
        );
    }
    if let Some((code, message)) = intake.end.as_ref().and_then(|e| e.error.clone()) {
        add("write-error", format!("Writing the recording failed: {message} (error {code})."));
    }
    remarks
}
