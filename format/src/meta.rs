//! Metadata records: process, clock, modules, threads, and the recorder's statistics.
//!
//! A meta block's payload is a sequence of frames: `tag u16, length u32, body`; bodies are the fields of a record in
//! order ([`crate::wire`], docs/FORMAT.md). Unknown tags are skipped and counted, so a minor version may add records; a
//! record's fields never change once released. Strings from the operating system are kept as bytes: paths need not be
//! UTF-8.

use serde::{Deserialize, Serialize};

pub use crate::look::PageLook;
pub use crate::meta_codec::{Frames, decode_body, encode, records};
use crate::wire::{wire_enum, wire_struct};

wire_struct! {
    /// The traced process; the first record of every recording.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Process {
        /// Process id.
        pub pid: u32,
        /// Parent's process id at the start.
        pub parent_pid: u32,
        /// `/proc/self/exe`.
        pub executable: Vec<u8>,
        /// `/proc/self/cmdline`, split. The environment is not recorded.
        pub arguments: Vec<Vec<u8>>,
        /// Working directory at the start.
        pub directory: Vec<u8>,
        /// Start of recording, nanoseconds since 1970 (CLOCK_REALTIME).
        pub started_unix_ns: u64,
        /// Start of recording in ticks; time 0 of the recording.
        pub started_tick: u64,
        /// Bytes of a page.
        pub page_bytes: u32,
        /// Version of the recorder, as printed.
        pub recorder: String,
        /// Launch options in effect, as `NAME=value`, those that differ from the default.
        pub options: Vec<String>,
        /// This process was forked by a recorded one: the parent's recording id.
        pub forked_from: Option<[u8; 16]>,
    }
}

wire_enum! {
    /// What a tick is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum ClockSource {
        /// Invariant time stamp counter, shifted right by [`Clock::shift`].
        Tsc = 0,
        /// aarch64 virtual counter.
        Cntvct = 1,
        /// CLOCK_MONOTONIC in nanoseconds.
        Monotonic = 2,
    }
}

wire_struct! {
    /// The clock, at the start; a [`ClockSample`] follows now and then.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Clock {
        /// Source of the ticks.
        pub source: ClockSource,
        /// Bits that were shifted out of the hardware counter.
        pub shift: u8,
        /// First estimate of ticks a second (after the shift), times 1000. The samples are better.
        pub millihertz: u64,
        /// Where the estimate comes from or why a slower source was chosen.
        pub note: String,
    }
}

wire_struct! {
    /// The same instant on three clocks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ClockSample {
        /// Ticks.
        pub tick: u64,
        /// CLOCK_MONOTONIC, nanoseconds.
        pub monotonic_ns: u64,
        /// CLOCK_REALTIME, nanoseconds since 1970.
        pub realtime_ns: u64,
    }
}

wire_struct! {
    /// A mapped segment of a module.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Segment {
        /// First address in the process.
        pub start: u64,
        /// Bytes.
        pub len: u64,
        /// Virtual address in the file (`p_vaddr`).
        pub vaddr: u64,
        /// Offset in the file (`p_offset`).
        pub file_offset: u64,
        /// `p_flags` (1 = execute, 2 = write, 4 = read).
        pub flags: u32,
    }
}

wire_struct! {
    /// An ELF object came into the process.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ModuleLoad {
        /// Recording-wide id, from 0.
        pub id: u32,
        /// When it was seen first, ticks.
        pub tick: u64,
        /// Path as the loader knows it; the executable's is `/proc/self/exe` resolved; `[vdso]` for the vdso.
        pub path: Vec<u8>,
        /// GNU build id, empty if it has none.
        pub build_id: Vec<u8>,
        /// Load bias (`dlpi_addr`).
        pub bias: u64,
        /// Loaded segments.
        pub segments: Vec<Segment>,
        /// Generation of call-tree nodes in its ranges (see [`crate::nodes::Node`]).
        pub generation: u32,
    }
}

wire_struct! {
    /// An ELF object left the process.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ModuleUnload {
        /// Id of its [`ModuleLoad`].
        pub id: u32,
        /// When it was missed first, ticks.
        pub tick: u64,
    }
}

wire_struct! {
    /// A thread made its first event.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ThreadStart {
        /// Recording-wide id, from 1, never reused.
        pub thread: u32,
        /// Kernel thread id.
        pub os_thread: u32,
        /// First event, ticks.
        pub tick: u64,
        /// Name at that time (`comm`).
        pub name: Vec<u8>,
    }
}

wire_struct! {
    /// A thread's name changed.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ThreadName {
        /// Recording-wide id.
        pub thread: u32,
        /// When, ticks.
        pub tick: u64,
        /// The new name.
        pub name: Vec<u8>,
    }
}

wire_struct! {
    /// A thread ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ThreadEnd {
        /// Recording-wide id.
        pub thread: u32,
        /// When, ticks.
        pub tick: u64,
    }
}

wire_struct! {
    /// Memory of the whole process as the kernel counts it. Bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct MemorySample {
        /// When, ticks.
        pub tick: u64,
        /// Resident set, ours included.
        pub rss: u64,
        /// Of it anonymous.
        pub rss_anonymous: u64,
        /// Of it file-backed and shared.
        pub rss_shared: u64,
        /// Address space.
        pub virtual_size: u64,
        /// Resident memory that is the recorder's own (chunks, call tree, caches, our allocator), an estimate from
        /// above.
        pub recorder: u64,
    }
}

wire_struct! {
    /// `tracehound_mark(label)`; the event stream has a [`crate::record::Kind::Mark`] with the same ordinal.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Mark {
        /// Ordinal among the marks, from 0.
        pub ordinal: u64,
        /// Thread that set it; 0 = from outside (control socket, signal).
        pub thread: u32,
        /// When, ticks.
        pub tick: u64,
        /// Label.
        pub label: Vec<u8>,
    }
}

wire_struct! {
    /// Everything of every thread up to this tick is in the file before this record.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Watermark {
        /// Ticks.
        pub tick: u64,
    }
}

wire_struct! {
    /// The recorder about itself; the latest one counts, figures are totals since the start.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct Statistics {
        /// When, ticks.
        pub tick: u64,
        /// Records that threads published.
        pub records: u64,
        /// Events dropped (`TRACEHOUND_ON_FULL=drop`, or after a write error).
        pub lost: u64,
        /// Nanoseconds that threads waited for a free chunk, summed over threads.
        pub wait_ns: u64,
        /// How often a thread waited.
        pub waits: u64,
        /// Bytes of chunk memory.
        pub chunk_bytes: u64,
        /// Call-tree nodes.
        pub nodes: u64,
        /// Stacks cut short: no unwind information, or memory that cannot be read.
        pub truncated_stacks: u64,
        /// Stacks that a frame pointer heuristic completed.
        pub guessed_stacks: u64,
        /// Stacks taken by the slow, general unwinder.
        pub slow_stacks: u64,
        /// CPU time of our own threads, nanoseconds.
        pub background_cpu_ns: u64,
        /// Largest sum of our own memory seen, bytes.
        pub memory_bytes: u64,
    }
}

wire_struct! {
    /// A plain-language remark for the self-audit: something that the recording could not see, with the reason.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Remark {
        /// When, ticks.
        pub tick: u64,
        /// Short stable name, e.g. `static-allocator`, `deepbind`, `disk-full`.
        pub topic: String,
        /// One sentence.
        pub text: String,
    }
}

wire_enum! {
    /// Why a recording ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub enum EndReason {
        /// The process ended by `exit`, `_exit` or `quick_exit`, or by a signal that we could see.
        Exit = 0,
        /// The process called exec.
        Exec = 1,
        /// Recording was stopped for good.
        Stopped = 2,
        /// The disk was full or a write failed.
        DiskFull = 3,
        /// `heaptrace attach` has ended, and left the process as it was.
        Detached = 4,
        /// The process was killed; `heaptrace collect` put what its side file had behind the rest.
        Killed = 5,
    }
}

wire_struct! {
    /// First record of the end block.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct End {
        /// Why.
        pub reason: EndReason,
        /// When, ticks.
        pub tick: u64,
        /// Final figures.
        pub statistics: Statistics,
        /// Error number and message of the write that failed.
        pub error: Option<(i32, String)>,
    }
}

wire_struct! {
    /// Second record of the end block: where every block starts, so that a complete file need not be scanned.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct Directory {
        /// File offset of each block in file order, as differences: the first is absolute.
        pub offsets: Vec<u64>,
    }
}

wire_struct! {
    /// Memory of the whole process by the kernel's kinds (`/proc/self/smaps_rollup`), taken now and then. Bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct MemoryDetail {
        /// When, ticks.
        pub tick: u64,
        /// Resident set.
        pub rss: u64,
        /// The process's share of it: pages that others use, too, count in parts.
        pub pss: u64,
        /// Resident, unchanged since it was read from a file, and mapped by others, too.
        pub shared_clean: u64,
        /// Resident, changed, and mapped by others, too.
        pub shared_dirty: u64,
        /// Resident, unchanged, and this process's alone.
        pub private_clean: u64,
        /// Resident, changed, and this process's alone.
        pub private_dirty: u64,
        /// Resident and of no file: heap, stacks.
        pub anonymous: u64,
        /// Given back with `MADV_FREE`, and still resident.
        pub lazy_free: u64,
        /// Of the anonymous part in huge pages.
        pub anonymous_huge: u64,
        /// Swapped out.
        pub swap: u64,
        /// Locked.
        pub locked: u64,
    }
}

wire_struct! {
    /// The recorder's own memory by its parts; the latest one counts.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct RecorderMemory {
        /// When, ticks.
        pub tick: u64,
        /// The parts.
        pub parts: Vec<MemoryPart>,
    }
}

wire_struct! {
    /// One part of the recorder's memory.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct MemoryPart {
        /// Short stable name: `events`, `call_tree`, `stacks`, `threads`, `writer`, `directory`, `other`.
        pub name: String,
        /// Bytes in use.
        pub bytes: u64,
        /// Bytes that it never exceeds, given the threads and call-tree nodes that there are.
        pub limit: u64,
    }
}

wire_struct! {
    /// How the backtraces of events were found; the latest one counts, figures are totals since the start.
    ///
    /// Each backtrace is counted once among `paths`, `chains`, `cfi`, `general`, `frame_chain`, `libunwind`, `nested`
    /// and `missing`: what answered it. The other figures say what it rests on, and may overlap.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct StackCounts {
        /// When, ticks.
        pub tick: u64,
        /// Found in the trie of known stacks.
        pub paths: u64,
        /// New, or not to be written as words, and joined to a verified chain.
        pub chains: u64,
        /// Walked to its end by rules: those of unwind information, and those of HotSpot's code.
        pub cfi: u64,
        /// Walked by the general unwinder, for frames that need more than the stack and frame pointers.
        pub general: u64,
        /// Walked to its end by frame pointers alone, as `TRACEHOUND_UNWINDER=frame-pointer` asks for.
        pub frame_chain: u64,
        /// Found by libunwind.
        pub libunwind: u64,
        /// Walked for a signal handler that interrupted another event.
        pub nested: u64,
        /// Not to be had: no memory for the thread's unwinder. They are among `truncated`, too.
        pub missing: u64,
        /// With frames of code whose unwind information the program registered (`__register_frame`).
        pub registered: u64,
        /// With frames of code that keeps frame pointers by convention: JIT compilers, or by the option.
        pub frame_pointers: u64,
        /// With frames found by heuristics: code of an object without unwind information.
        pub heuristic: u64,
        /// That end before the outermost frame.
        pub truncated: u64,
    }
}

wire_struct! {
    /// The recorder ended a wait without what it waited for; it never does so without this record.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct GaveUp {
        /// When, ticks.
        pub tick: u64,
        /// Short stable name of the wait, e.g. `exit-writer`, `exec-threads`, `stop-threads`.
        pub what: String,
        /// Nanoseconds waited.
        pub waited_ns: u64,
        /// Threads that it concerns: those waited for.
        pub threads: u32,
        /// Events that are missing because of it. They are among the records of kind `Lost`, too.
        pub missing: u64,
        /// Events may be missing that nothing counts: the recording is not complete.
        pub uncertain: bool,
    }
}

wire_struct! {
    /// The process forked a child that is followed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct Forked {
        /// Right before the fork, ticks: what this process had completed by then the child has inherited.
        pub tick: u64,
        /// Right after it, ticks. What other threads completed in between, the child may have inherited.
        pub after: u64,
        /// Process id of the child.
        pub child: u32,
    }
}

wire_struct! {
    /// This process was forked by a recorded one: what it has inherited is in the parent's recording.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct ForkedFrom {
        /// The parent's recording.
        pub recording_id: [u8; 16],
        /// Where that was being written, absolute.
        pub path: Vec<u8>,
        /// The fork, ticks of the parent's clock, which is this recording's, too: the blocks that were alive then are
        /// inherited.
        pub tick: u64,
        /// Call-tree nodes at the fork: those with smaller ids are the same in both recordings.
        pub nodes: u32,
        /// The parent was recording; otherwise it had been switched off, and what happened meanwhile is not known.
        pub recording: bool,
    }
}

wire_struct! {
    /// `tracehound_context_name(id, name)`; the latest name of an id counts.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct ContextName {
        /// Id of the request context, see [`crate::record::Kind::Context`].
        pub id: u64,
        /// When, ticks.
        pub tick: u64,
        /// The name.
        pub name: Vec<u8>,
    }
}

wire_struct! {
    /// A function of an interpreted language, or an interpreted one. Its instructions have addresses of no module, and
    /// call-tree nodes as machine code has them, return addresses in `pc` included.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct Code {
        /// First address.
        pub address: u64,
        /// Addresses.
        pub len: u32,
        /// The language: `python`, with addresses from 2^60 on; `java`, with addresses from 2^61 on.
        pub language: String,
        /// Qualified name.
        pub function: Vec<u8>,
        /// Source file.
        pub file: Vec<u8>,
        /// Line of the definition, or the first that is known, and of the first address. 0: none.
        pub first_line: u32,
        /// Pairs of varints: addresses since the pair before, and the zig-zag difference of the line from there on.
        pub lines: Vec<u8>,
    }
}

wire_struct! {
    /// A piece of generated code, as the runtime's log describes it. A recording has only the pieces whose addresses
    /// were used by other pieces too; blocks of these records are behind the recorder's own.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct GeneratedCode {
        /// When it was put there, CLOCK_MONOTONIC; it is there until a later piece uses one of its addresses.
        pub from_ns: u64,
        /// How much earlier or later that may have been.
        pub within_ns: u64,
        /// First address.
        pub start: u64,
        /// Bytes.
        pub len: u64,
        /// The runtime's name for it.
        pub name: Vec<u8>,
    }
}

wire_struct! {
    /// The process was running already: `heaptrace attach` began the recording, and blocks from before are not known.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct Attached {
        /// When, ticks.
        pub tick: u64,
    }
}

/// Any metadata record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meta {
    /// Tag 1.
    Process(Process),
    /// Tag 2.
    Clock(Clock),
    /// Tag 3.
    ClockSample(ClockSample),
    /// Tag 4.
    ModuleLoad(ModuleLoad),
    /// Tag 5.
    ModuleUnload(ModuleUnload),
    /// Tag 6.
    ThreadStart(ThreadStart),
    /// Tag 7.
    ThreadName(ThreadName),
    /// Tag 8.
    ThreadEnd(ThreadEnd),
    /// Tag 9.
    MemorySample(MemorySample),
    /// Tag 10.
    Mark(Mark),
    /// Tag 11.
    Watermark(Watermark),
    /// Tag 12.
    Statistics(Statistics),
    /// Tag 13.
    Remark(Remark),
    /// Tag 14.
    End(End),
    /// Tag 15.
    Directory(Directory),
    /// Tag 16.
    MemoryDetail(MemoryDetail),
    /// Tag 17.
    RecorderMemory(RecorderMemory),
    /// Tag 18.
    StackCounts(StackCounts),
    /// Tag 19.
    GaveUp(GaveUp),
    /// Tag 20.
    Forked(Forked),
    /// Tag 21.
    ForkedFrom(ForkedFrom),
    /// Tag 30.
    ContextName(ContextName),
    /// Tag 31.
    Code(Code),
    /// Tag 32.
    Attached(Attached),
    /// Tag 33.
    GeneratedCode(GeneratedCode),
    /// Tag 22.
    PageLook(Box<PageLook>),
}
