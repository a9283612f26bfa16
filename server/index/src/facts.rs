//! Facts beside the columns: process, modules, threads, marks, totals, and where things lie.
//! Stored as JSON in the index folder, in the types of the answers where an answer has the same data; everything that
//! grows with the number of events is in columns.

use serde::{Deserialize, Serialize};
use tracehound_api::info::{Capture, ClockQuality, PeakRss, Remark};
use tracehound_format::look::{KernelCounters, LookReason};
use tracehound_format::meta::{EndReason, MemoryPart, Process, Segment, StackCounts, Statistics};

use super::schema::Lengths;
use super::sums::SumDirectory;

/// An ELF object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleFacts {
    /// The recording's id.
    pub id: u32,
    /// Path as the loader knows it.
    pub path: Vec<u8>,
    /// GNU build id; empty if it has none.
    pub build_id: Vec<u8>,
    /// Load bias.
    pub bias: u64,
    /// Loaded segments.
    pub segments: Vec<Segment>,
    /// Generation of nodes in its ranges.
    pub generation: u32,
    /// Loaded.
    pub loaded_ns: u64,
    /// Unloaded, if it was.
    pub unloaded_ns: Option<u64>,
}

/// Addresses that represent instructions of interpreted languages.
const INTERPRETED: std::ops::Range<u64> = 1 << 60..(1 << 60) + (1 << 47);

/// Whether an address represents an instruction of an interpreted language.
#[must_use]
pub fn is_interpreted(address: u64) -> bool {
    INTERPRETED.contains(&address)
}

impl ModuleFacts {
    /// The pseudo-module of a recording's Python functions: no file, and addresses that no process has.
    #[must_use]
    pub fn of_python() -> Self {
        let len = INTERPRETED.end - INTERPRETED.start;
        let segment = Segment { start: INTERPRETED.start, len, vaddr: 0, file_offset: 0, flags: 0 };
        Self {
            id: u32::MAX,
            path: b"python".to_vec(),
            build_id: Vec::new(),
            bias: INTERPRETED.start,
            segments: vec![segment],
            generation: 0,
            loaded_ns: 0,
            unloaded_ns: None,
        }
    }

    /// Whether it is the pseudo-module of an interpreter's functions.
    #[must_use]
    pub fn is_interpreted(&self) -> bool {
        self.segments.first().is_some_and(|segment| is_interpreted(segment.start))
    }

    /// Whether it is a JVM.
    #[must_use]
    pub fn is_jvm(&self) -> bool {
        self.path.ends_with(b"/libjvm.so")
    }

    /// File name of the path, as it is shown.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.path.rsplit(|&b| b == b'/').next().unwrap_or(&self.path);
        String::from_utf8_lossy(name).into_owned()
    }

    /// Whether `address` lies in one of its segments.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        self.segments.iter().any(|s| address.wrapping_sub(s.start) < s.len)
    }
}

/// A thread that made an event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThreadFacts {
    /// Recording-wide id, from 1.
    pub id: u32,
    /// Kernel thread id.
    pub os_thread: u32,
    /// Last known name.
    pub name: String,
    /// First event.
    pub started_ns: u64,
    /// End, if it was seen.
    pub ended_ns: Option<u64>,
    /// It made at least one event.
    pub active: bool,
}

/// A label on the timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkFacts {
    /// Ordinal among the marks.
    pub ordinal: u64,
    /// When.
    pub t_ns: u64,
    /// Thread that set it; 0 = from outside.
    pub thread: u32,
    /// Label.
    pub label: String,
}

/// Memory of the process by the kernel's kinds at one moment. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryDetailFacts {
    /// When.
    pub t_ns: u64,
    /// As the recorder wrote it.
    pub kinds: tracehound_format::meta::MemoryDetail,
}

/// A look at the page tables: its offset in the recording, and its most used figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookFacts {
    /// When.
    pub t_ns: u64,
    /// The same in ticks.
    pub tick: u64,
    /// File offset of the block with its first record.
    pub block_at: u64,
    /// Why.
    pub reason: LookReason,
    /// Label that was given with the request.
    pub label: String,
    /// The kernel's counters behind it.
    pub counters: KernelCounters,
}

/// Numbers of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventCounts {
    /// Allocations without a predecessor.
    pub alloc: u64,
    /// Frees without a successor, unmatched ones included.
    pub free: u64,
    /// Successful reallocs of a block.
    pub realloc: u64,
    /// `mmap`.
    pub map: u64,
    /// `munmap`.
    pub unmap: u64,
    /// `mremap`.
    pub remap: u64,
    /// Moves of the program break.
    pub brk: u64,
    /// Frees and reallocs of blocks whose allocation was not seen.
    pub unmatched: u64,
    /// Allocations at an address whose block had not been freed.
    pub overwritten: u64,
    /// Hand-overs whose stamps were the wrong way round, and were put right.
    pub reordered: u64,
    /// Records of kinds that this version does not know.
    pub unknown: u64,
    /// All events that were taken in.
    pub total: u64,
    /// Blocks from before the recording.
    #[serde(default)]
    pub existing: ExistingCounts,
}

/// Blocks that were listed as existing when recording began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExistingCounts {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them were freed since.
    pub freed_count: u64,
    /// Bytes of these.
    pub freed_bytes: u64,
}

/// Position and height of the peak of live bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PeakPosition {
    /// Live bytes.
    pub bytes: u64,
    /// Live blocks at that moment.
    pub count: u64,
    /// When.
    pub at_ns: u64,
    /// Allocations and frees up to and including the event that made it.
    pub events: u64,
}

/// Start of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Bucket {
    /// Allocations before it.
    pub allocs: u64,
    /// Frees before it.
    pub frees: u64,
}

/// A place where the line from ticks to nanoseconds bends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPoint {
    /// Ticks.
    pub tick: u64,
    /// The same in nanoseconds since the start.
    pub ns: u64,
    /// Nanoseconds a tick from here on, times 2^32.
    pub rate: u64,
}

impl ClockPoint {
    /// Nanoseconds of a tick that lies behind this point and before the next.
    #[inline]
    #[must_use]
    pub fn ns_of(&self, tick: u64) -> u64 {
        self.ns + ((u128::from(tick.saturating_sub(self.tick)) * u128::from(self.rate)) >> 32) as u64
    }
}

/// Nanoseconds of a tick by these points, which are sorted; 0 without any.
#[must_use]
pub fn ns_of_tick(points: &[ClockPoint], tick: u64) -> u64 {
    let at = points.partition_point(|p| p.tick <= tick).saturating_sub(1);
    points.get(at).map_or(0, |p| p.ns_of(tick))
}

/// A recording that is needed and that was not found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingRecording {
    /// Its id.
    pub recording_id: [u8; 16],
    /// Where it was written.
    pub path: Vec<u8>,
}

/// The recording that inherited blocks were taken from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedFrom {
    /// Its id.
    pub recording_id: [u8; 16],
    /// Where it was found.
    pub path: Vec<u8>,
    /// Its length then.
    pub file_bytes: u64,
    /// Time of its last change then, nanoseconds since 1970.
    pub modified_ns: u64,
    /// Its process was running then.
    pub may_grow: bool,
}

/// What a forked process has inherited, and from which recording.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Inherited {
    /// The parent's recording, if it was found.
    pub from: Option<InheritedFrom>,
    /// Blocks that were alive at the fork.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Recordings of ancestors that are not there.
    pub missing: Vec<MissingRecording>,
    /// Modules that the parent had unloaded before the fork.
    pub modules: Vec<ModuleFacts>,
    /// What is missing, in one sentence without a full stop.
    pub shortfall: Option<String>,
    /// The parent's recording was switched off at the fork, or had been before.
    pub had_pauses: bool,
}

/// Everything about a recording but its columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordingFacts {
    /// The recording's identity.
    pub recording_id: [u8; 16],
    /// The traced process; `None` if its record is lost.
    pub process: Option<Process>,
    /// `tsc`, `cntvct` or `monotonic`.
    pub clock: String,
    /// Length of the recording: larger than the time of every event.
    pub duration_ns: u64,
    /// Every event before this time is in the index.
    pub watermark_ns: u64,
    /// Why it ended, if its end was seen.
    pub end: Option<EndReason>,
    /// The process was running already: blocks from before are not known.
    #[serde(default)]
    pub attached: bool,
    /// The process is running.
    pub running: bool,
    /// The process was killed and the side file was merged.
    pub killed: bool,
    /// Modules in the order of loading.
    pub modules: Vec<ModuleFacts>,
    /// Threads; columns refer to them by position.
    pub threads: Vec<ThreadFacts>,
    /// Marks in the order of their ordinals.
    pub marks: Vec<MarkFacts>,
    /// Names of request contexts, by id.
    pub context_names: Vec<(u64, String)>,
    /// Periods of recording.
    pub captures: Vec<Capture>,
    /// Remarks.
    pub remarks: Vec<Remark>,
    /// The recorder's own figures, the latest ones.
    pub statistics: Statistics,
    /// How backtraces were found, the latest figures; `None` in recordings without them.
    #[serde(default)]
    pub stack_counts: Option<StackCounts>,
    /// Numbers of events.
    pub events: EventCounts,
    /// Bytes of all allocations.
    pub allocated_bytes: u64,
    /// Live bytes at the end.
    pub live_bytes: u64,
    /// Temporary blocks: count and bytes.
    pub temporary: (u64, u64),
    /// The peak.
    pub peak: PeakPosition,
    /// Records known to be missing.
    pub lost: u64,
    /// Damaged or missing blocks.
    pub damaged_blocks: u64,
    /// Waits that the recorder gave up and that may have cost events which nothing counts.
    pub uncertain: u64,
    /// The file ends in the middle of a block.
    pub cut: bool,
    /// Bytes of the recording.
    pub file_bytes: u64,
    /// Largest resident set that was sampled.
    pub peak_rss: Option<PeakRss>,
    /// Quality of the clock by its samples; `None` without two of them.
    pub clock_quality: Option<ClockQuality>,
    /// The recorder's own memory by its parts, the latest figures.
    pub recorder_parts: Vec<MemoryPart>,
    /// Memory by the kernel's kinds, in the order of time.
    pub memory_details: Vec<MemoryDetailFacts>,
    /// Looks at the page tables, in the order of time.
    #[serde(default)]
    pub looks: Vec<LookFacts>,
    /// From ticks to nanoseconds.
    pub clock_points: Vec<ClockPoint>,
    /// What the process has inherited, if it was forked by a recorded one.
    pub inherited: Option<Inherited>,
    /// Lengths of the tables.
    pub lengths: Lengths,
    /// Allocations, or frees, of a run that has a zone of its own.
    pub zone_rows: u64,
    /// Starts of the buckets that have sums.
    pub buckets: Vec<Bucket>,
    /// Allocations and frees before the bucket that has no sums yet.
    pub open_bucket: [u64; 2],
    /// Sums by site: allocated, freed, temporary.
    pub site_sums: SumDirectory,
    /// Sums by thread: allocated, temporary.
    pub thread_sums: SumDirectory,
    /// Sums by pair of threads: freed.
    pub pair_sums: SumDirectory,
}

impl RecordingFacts {
    /// Nanoseconds of a tick, as events with that tick have it.
    #[must_use]
    pub fn ns_of_tick(&self, tick: u64) -> u64 {
        ns_of_tick(&self.clock_points, tick)
    }
}

/// Later allocations of the same thread within which a block must be freed to be temporary.
pub const TEMPORARY_WITHIN: usize = 1;
