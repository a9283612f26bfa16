//! `heaptrace info --json`, `GET recordings`, `GET recordings/{id}`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Amount, Exactness};

/// A recording in one document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Info {
    /// `heaptrace.info/1`.
    pub schema: String,
    /// The traced process.
    pub process: ProcessInfo,
    /// The recording has ended in an orderly way and nothing is known to be missing.
    pub complete: bool,
    /// Why it ended.
    pub end: End,
    /// The process was running already when recording began: blocks from before are not known.
    #[serde(default)]
    pub attached: bool,
    /// Events by kind.
    pub events: Events,
    /// Allocated blocks; a successful realloc counts as one more.
    pub allocations: Amount,
    /// Largest sum of live bytes, exact to the event.
    pub peak: Peak,
    /// Largest resident set that was sampled, if any.
    pub peak_rss: Option<PeakRss>,
    /// Address space that was mapped.
    #[serde(default)]
    pub mapped: Mapped,
    /// Live at the end.
    pub leaked: Amount,
    /// Blocks that the process inherited when it was forked by a recorded one; `allocations` and `events` count them, at 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Amount>,
    /// Blocks that were in the heap when recording began (`heaptrace attach --existing`); no other figure counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<Existing>,
    /// Short-lived blocks.
    pub temporary: Temporary,
    /// Threads that made an event.
    pub threads: u64,
    /// Distinct allocating backtraces.
    pub sites: u64,
    /// Frames of the deepest backtrace, before inlined functions are expanded.
    pub max_depth: u64,
    /// The recorder about itself.
    pub recorder: Recorder,
    /// Labels that the program or its operator set.
    pub marks: Vec<Mark>,
    /// Periods during which recording was switched on; one that spans everything if it never was switched off.
    pub captures: Vec<Capture>,
    /// What the recording could not see, and other remarks, in plain words.
    pub remarks: Vec<Remark>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// The traced process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessInfo {
    /// Process id; 0 where it is not known, as in what was imported.
    pub pid: u32,
    /// Parent's process id.
    pub parent_pid: u32,
    /// Path of the executable.
    pub executable: String,
    /// Command line.
    pub arguments: Vec<String>,
    /// Start of recording, RFC 3339 with nanoseconds, UTC; empty where it is not known.
    pub started_at: String,
    /// Length of the recording; of a running one, so far.
    pub duration_ns: u64,
}

/// Why a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It has not: the process runs.
    Running,
    /// The process ended.
    Exit,
    /// The process called exec.
    Exec,
    /// The process is gone and left no end; what it had completed was recovered from the side file.
    Killed,
    /// Recording was stopped.
    Stopped,
    /// `heaptrace attach` has ended; the process went on as it was.
    Detached,
    /// The disk was full.
    DiskFull,
    /// There is no end and no side file.
    Unknown,
}

/// Numbers of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// Allocations without a predecessor.
    pub alloc: u64,
    /// Frees without a successor.
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
    /// Known to be missing.
    pub lost: u64,
}

/// The peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Peak {
    /// Live bytes.
    pub bytes: u64,
    /// Live blocks at that moment.
    pub count: u64,
    /// When.
    pub at_ns: u64,
}

/// Blocks that were in the heap when recording began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Existing {
    /// How many.
    pub count: u64,
    /// What they hold, which is what was asked for or a little more.
    pub bytes: u64,
    /// Those that were freed since.
    pub freed: Amount,
}

/// The largest resident set, by samples and by looks at the page tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PeakRss {
    /// Resident bytes, the recorder's own included.
    pub bytes: u64,
    /// Of it the recorder's own: of the look most like that moment, as in the ledger there; without looks the recorder's
    /// estimate from above.
    pub recorder_bytes: u64,
    /// When.
    pub at_ns: u64,
}

/// Address space that `mmap`, `mremap` and the program break mapped, and what was mapped before, as far as it was
/// recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Mapped {
    /// Most bytes that were mapped at once.
    pub peak_bytes: u64,
    /// When.
    pub peak_at_ns: u64,
    /// Bytes that were mapped at the end.
    pub end_bytes: u64,
}

/// Short-lived blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Temporary {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The definition that was applied, e.g. `freed within 1 later allocation of the same thread`.
    pub rule: String,
}

/// The recorder about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Recorder {
    /// Version that wrote the recording.
    pub version: String,
    /// Nanoseconds that the program's threads waited for the writer.
    pub wait_ns: u64,
    /// Bytes of chunk memory.
    pub chunk_memory_bytes: u64,
    /// Bytes of all our memory in the process, at most.
    pub memory_bytes: u64,
    /// `tsc`, `cntvct` or `monotonic`.
    pub clock: String,
    /// Frees of blocks whose allocation was not seen.
    pub unmatched_frees: u64,
    /// Hand-overs of a block between threads whose stamps were the wrong way round, and were put right: a free stamped
    /// before the allocation of its block, or an allocation before the free that made room for it.
    #[serde(default)]
    pub order_repairs: u64,
    /// Backtraces cut short.
    pub truncated_stacks: u64,
    /// Backtraces that a frame pointer heuristic completed.
    pub guessed_stacks: u64,
    /// Backtraces taken by the general unwinder.
    pub slow_stacks: u64,
    /// By what means backtraces were found; nothing in recordings that do not say.
    #[serde(default)]
    pub stacks: Option<Stacks>,
    /// Call-tree nodes.
    pub nodes: u64,
    /// CPU time of the recorder's own threads.
    pub background_cpu_ns: u64,
    /// Launch options that differ from the default, `NAME=value`.
    pub options: Vec<String>,
    /// Bytes of the recording on disk.
    pub file_bytes: u64,
    /// How good the clock was; nothing where it was not compared with the kernel's.
    pub clock_quality: Option<ClockQuality>,
    /// The recorder's memory by its parts, the latest figures.
    pub memory: Vec<MemoryPart>,
}

/// By what means backtraces were found. Each one is counted once among `paths`, `chains`, `cfi`, `general`,
/// `frame_chain`, `libunwind`, `nested` and `missing`, whose sum is `total`; the other figures say what backtraces rest
/// on, and may overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Stacks {
    /// All of them.
    pub total: u64,
    /// Found in the trie of known stacks.
    pub paths: u64,
    /// New, or not to be written as words, and joined to a verified chain.
    pub chains: u64,
    /// Walked to its end by the rules of unwind information.
    pub cfi: u64,
    /// Walked by the general unwinder.
    pub general: u64,
    /// Walked to its end by frame pointers alone, as the option asks for.
    pub frame_chain: u64,
    /// Found by libunwind.
    pub libunwind: u64,
    /// Walked for a signal handler that interrupted another event.
    pub nested: u64,
    /// Not to be had: no memory for the thread's unwinder.
    pub missing: u64,
    /// With frames of code whose unwind information the program registered.
    pub registered: u64,
    /// With frames of code that keeps frame pointers by convention: JIT compilers, or by the option.
    pub frame_pointers: u64,
    /// With frames found by heuristics: code of an object without unwind information.
    pub heuristic: u64,
    /// That end before the outermost frame.
    pub truncated: u64,
}

/// How good the clock was: what its samples against the kernel's clocks say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClockQuality {
    /// The counter runs at one rate whatever the processor does: `tsc` and `cntvct` are used only where the kernel says
    /// so.
    pub invariant: bool,
    /// Why this clock was chosen, in the recorder's words.
    pub note: String,
    /// Nanoseconds of a tick: events that are closer may carry the same time.
    pub resolution_ns: f64,
    /// Ticks a second, over the whole recording.
    pub frequency_hz: f64,
    /// Samples that this is based on.
    pub samples: u64,
    /// Time between the first sample and the last one.
    pub span_ns: u64,
    /// How far the first estimate of the frequency was off, parts per million.
    pub estimate_error_ppm: f64,
    /// How far the frequency of any interval between samples was off that of the whole recording, at most.
    pub drift_ppm: f64,
    /// How far a sample was off the straight line between its neighbours, at most: what the time of an event between
    /// two samples may be wrong by.
    pub error_ns: u64,
    /// Samples in which a clock was behind the sample before.
    pub steps_back: u64,
    /// How often the wall clock was set while recording.
    pub wall_steps: u64,
    /// By how much at most.
    pub largest_wall_step_ns: u64,
    /// Blocks that were allocated where one still lived: either their free was not seen, or the order of threads is
    /// wrong.
    pub order_violations: u64,
}

/// One part of the recorder's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryPart {
    /// `events`, `call_tree`, `stacks`, `threads`, `writer`, `directory`, `other`.
    pub part: String,
    /// Bytes in use, an estimate from above.
    pub bytes: u64,
    /// Bytes that it never exceeds, given the threads and call-tree nodes that there are.
    pub limit_bytes: u64,
}

/// A label on the timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mark {
    /// When.
    pub t_ns: u64,
    /// Label.
    pub label: String,
    /// Thread that set it; 0 = from outside.
    pub thread: u32,
}

/// A period during which events were recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capture {
    /// First instant.
    pub from_ns: u64,
    /// Last instant.
    pub to_ns: u64,
}

/// Something worth knowing about the recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Remark {
    /// When.
    pub t_ns: u64,
    /// Short stable name.
    pub topic: String,
    /// One sentence.
    pub text: String,
}

/// `GET recordings`: what this server serves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Recordings {
    /// `heaptrace.recordings/1`.
    pub schema: String,
    /// In the order of the command line.
    pub recordings: Vec<RecordingSummary>,
}

/// One served recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecordingSummary {
    /// Short stable id for URLs, e.g. `r1`.
    pub id: String,
    /// File name.
    pub name: String,
    /// Executable and pid, once known.
    pub title: String,
    /// When the process was started, RFC 3339, once known.
    pub started_at: Option<String>,
    /// Length of the recording, once known.
    pub duration_ns: Option<u64>,
    /// What can be asked of it now.
    pub state: State,
    /// How far indexing is.
    pub progress: Progress,
    /// What went wrong, for `failed`.
    pub error: Option<String>,
    /// Whether its file is still the one that answers are of.
    pub file: FileState,
}

/// What has become of a recording's file since it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// It is there, or has grown.
    AsRead,
    /// Another recording has its place, or it was shortened. `start_indexing` reads it anew.
    Changed,
    /// It is gone; answers are of its index.
    Removed,
}

/// What can be asked of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The index is being built; queries wait for it.
    Indexing,
    /// Indexed to its end.
    Ready,
    /// The process runs; queries answer up to the watermark.
    Running,
    /// It cannot be opened.
    Failed,
    /// Indexing was cancelled; it can be started again.
    Cancelled,
}

/// Progress of indexing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Bytes of the recording that were read.
    pub done_bytes: u64,
    /// Bytes of the recording.
    pub total_bytes: u64,
    /// Events so far.
    pub events: u64,
    /// Events a second.
    pub events_per_second: f64,
}
