//! Intake of everything besides events: process, clock, modules, threads, nodes, samples.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tracehound_format::live::Ending;
use tracehound_format::look::{KernelCounters, LookReason};
use tracehound_format::meta::{
    Clock, ClockSample, ClockSource, Code, End, EndReason, ForkedFrom, GaveUp, GeneratedCode, MemoryDetail, MemoryPart,
    MemorySample, Meta, ModuleLoad, PageLook, Process, Remark, StackCounts, Statistics,
};
use tracehound_format::nodes::Node;

use super::calibration::Calibration;
use super::clock::ClockMap;
use super::merge::{Pending, RunSource};
use super::scan::{BlockRef, ScanSink};
use tracehound_index::facts::{self, ModuleFacts};

/// A thread as the metadata has it.
#[derive(Debug, Clone, Default)]
pub struct ThreadMeta {
    /// Kernel thread id.
    pub os_thread: u32,
    /// First event, ticks.
    pub start_tick: Option<u64>,
    /// Last known name.
    pub name: Vec<u8>,
    /// End, ticks.
    pub end_tick: Option<u64>,
}

/// Nodes that damage may leave unknown before a known one; more than any lost block can hold.
const MAX_HOLE: usize = 16 << 20;
/// Records in blocks that are read as one run, at most, and such runs that a block may be added to: a hostile file may
/// say of all blocks that they overlap.
const MAX_JOINED_RECORDS: u64 = 1 << 18;
const MAX_JOINED_RUNS: usize = 8;

/// See the module's description.
#[derive(Debug, Default)]
pub struct Intake {
    /// The traced process.
    pub process: Option<Process>,
    /// Its clock.
    pub clock: Option<Clock>,
    /// Calibration samples that were not used yet.
    pub clock_samples: Vec<ClockSample>,
    /// Quality of the clock by all of them.
    pub calibration: Calibration,
    /// Modules with the tick of their unloading.
    pub modules: Vec<(ModuleLoad, Option<u64>)>,
    module_at: HashMap<u32, usize>,
    /// Threads by id.
    pub threads: HashMap<u32, ThreadMeta>,
    /// Marks.
    pub marks: BTreeMap<u64, tracehound_format::meta::Mark>,
    /// Names of request contexts, the latest of each, with their ticks.
    pub context_names: BTreeMap<u64, (u64, Vec<u8>)>,
    /// Functions of interpreted languages that were not stored yet.
    pub codes: Vec<Code>,
    /// Pieces of generated code at whose addresses others were before or behind them.
    pub generated: Vec<GeneratedCode>,
    /// All calibration samples, in the order of the file.
    pub clock_points: Vec<ClockSample>,
    /// Memory samples that were not stored yet.
    pub memory: Vec<MemorySample>,
    /// Memory by kinds.
    pub memory_details: Vec<MemoryDetail>,
    /// Looks at the page tables: tick, offset of the block, reason, label, the kernel's counters.
    pub looks: Vec<(u64, u64, LookReason, Vec<u8>, KernelCounters)>,
    /// The recorder's memory by its parts, the latest figures, and their tick.
    pub parts: (u64, Vec<MemoryPart>),
    /// Everything before this tick is in the file.
    pub watermark: u64,
    /// Latest statistics.
    pub statistics: Statistics,
    /// Latest counts of backtraces.
    pub stack_counts: Option<StackCounts>,
    /// Remarks.
    pub remarks: Vec<Remark>,
    /// Waits that the recorder gave up and that may have cost events which nothing counts.
    pub uncertain: u64,
    /// The end.
    pub end: Option<End>,
    /// The fork that made the process, if it was recorded by reference.
    pub forked_from: Option<ForkedFrom>,
    /// The process was running already.
    pub attached: bool,
    /// Nodes by id; `None` where a block is lost. The root is 0.
    pub nodes: Vec<Option<Node>>,
    /// Events that were found and not passed on.
    pub blocks: Vec<Pending>,
    last_keys: HashMap<u32, u64>,
    /// Where in `blocks` a thread's last ones are, unless they have been passed on since.
    recent_blocks: HashMap<u32, VecDeque<usize>>,
    /// Smallest tick of any block, for recordings that lost their process record.
    pub first_tick: Option<u64>,
    /// Largest tick of any block or record.
    pub last_tick: u64,
}

/// The remark on a recording that could take nothing more, not even its end ([`Ending::NoRoom`]).
#[must_use]
pub fn no_room(tick: u64) -> Remark {
    let text = "recording stopped: the disk, or a limit on the size of files, had no room for more; what the program did \
                later is not recorded";
    Remark { tick, topic: "write-error".into(), text: text.into() }
}

impl Intake {
    /// Adds nodes of a side file.
    pub fn node(&mut self, id: u32, node: Node) {
        let at = id as usize;
        if at >= self.nodes.len() {
            if at - self.nodes.len() > MAX_HOLE {
                return;
            }
            self.nodes.resize(at + 1, None);
        }
        if id != 0 && self.nodes[at].is_none() {
            self.nodes[at] = Some(node);
        }
    }

    /// Adds records that wait for their merge.
    pub fn pend(&mut self, first_tick: u64, mut pending: Pending) {
        let last = self.last_keys.entry(pending.thread).or_insert(0);
        pending.key = first_tick.max(*last);
        *last = pending.key;
        let recent = self.recent_blocks.entry(pending.thread).or_default();
        if recent.len() >= MAX_JOINED_RUNS {
            recent.pop_front();
        }
        recent.push_back(self.blocks.len());
        self.first_tick = Some(self.first_tick.map_or(first_tick, |t| t.min(first_tick)));
        self.blocks.push(pending);
    }

    /// Adds a block to those before of its thread that have events newer than its first: a realloc that a signal handler
    /// interrupted comes behind the handler's events, and is only put right within a run (see [`super::decode`]).
    fn join(&mut self, block: BlockRef, bytes: u64) -> bool {
        let header = &block.header;
        let Some(recent) = self.recent_blocks.get(&header.thread) else { return false };
        let (mut first_record, mut records, mut chain) = (header.first_record, u64::from(header.count), Vec::new());
        for &at in recent.iter().rev() {
            // What has been passed on is not there any more: another's block, or one that does not lead to this.
            let Some(before) = self.blocks.get(at).filter(|before| before.thread == header.thread) else { break };
            let leads_here = before.first_record.checked_add(before.count) == Some(first_record);
            records = records.saturating_add(before.count);
            if before.newest <= header.first_tick || !leads_here || records > MAX_JOINED_RECORDS {
                break;
            }
            first_record = before.first_record;
            chain.push(at);
        }
        let Some(first) = chain.pop() else { return false };
        let (mut rest, mut newest) = (Vec::new(), header.last_tick);
        let mut more = (u64::from(header.count), bytes);
        for &at in chain.iter().rev() {
            if let Some(before) = self.blocks.get_mut(at)
                && let RunSource::Blocks(blocks) = &mut before.source
            {
                rest.append(blocks);
                newest = newest.max(before.newest);
                more = (more.0 + std::mem::take(&mut before.count), more.1 + std::mem::take(&mut before.bytes));
            }
        }
        rest.push(block);
        if let Some(first) = self.blocks.get_mut(first)
            && let RunSource::Blocks(blocks) = &mut first.source
        {
            blocks.append(&mut rest);
            (first.count, first.bytes) = (first.count + more.0, first.bytes + more.1);
            first.newest = newest.max(first.newest);
        }
        if let Some(recent) = self.recent_blocks.get_mut(&header.thread) {
            recent.retain(|at| !chain.contains(at));
        }
        true
    }

    /// A wait that the recorder gave up, as a remark.
    pub fn gave_up(&mut self, gave_up: &GaveUp) {
        self.uncertain += u64::from(gave_up.uncertain);
        let seconds = gave_up.waited_ns as f64 / 1e9;
        let threads = match gave_up.threads {
            0 => String::new(),
            1 => " One thread was still in the middle of an event.".into(),
            more => format!(" {more} threads were still in the middle of an event."),
        };
        let missing = match (gave_up.missing, gave_up.uncertain) {
            (0, false) => "Nothing is missing because of it.".into(),
            (0, true) => "Events may be missing because of it.".into(),
            (1, _) => "One event is missing because of it.".into(),
            (more, _) => format!("{more} events are missing because of it."),
        };
        let what = match gave_up.what.as_str() {
            "exit-writer" => "At the program's exit the writer did not answer",
            "exec-writer" => "Before an exec the writer did not answer",
            "stopped-writer" => "At the end of recording the writer did not answer",
            "exit-threads" => "The program's exit did not wait longer for other threads",
            "exec-threads" => "An exec did not wait longer for other threads",
            "stopped-threads" => "The end of recording did not wait longer for other threads",
            "stop-threads" => "A stop did not wait longer for other threads, whose events count to the time before it",
            "fork-child" => "A signal handler ran in the forked child before it was recorded",
            "fork-inside" => {
                "A signal handler forked in the middle of the recorder's work, and the child is not recorded"
            }
            "filter-libunwind" => "The installation of a seccomp filter did not wait longer for threads in libunwind",
            "notes" => "Waits that were given up could not be noted",
            "start-writer" => "At the program's start the writer did not answer",
            "resume-writer" => "After a failed exec the writer did not answer",
            "suspend-writer" => "Before a call that needs a single thread the writer did not answer",
            "look-writer" => "A look at pages was not waited for any longer",
            "flush-writer" => "A flush did not wait longer for the disk",
            "hold" => "A thread that was held while recording ended continued, and so did recording",
            other => other,
        };
        let text = format!("{what}: the recorder gave up after {seconds:.3} s.{threads} {missing}");
        self.remarks.push(Remark { tick: gave_up.tick, topic: "gave-up".into(), text });
    }

    /// When recording stopped for want of room, though threads were in the middle of events.
    #[must_use]
    pub fn stopped(&self) -> Option<u64> {
        self.end.as_ref().filter(|end| end.reason == EndReason::DiskFull).map(|end| end.tick)
    }

    /// Notes the end of a process that did not wait for the disk to take the end of its recording, by the side file; false
    /// when it did not end so.
    pub fn ended_without_disk(&mut self, (ending, tick, waited_ns): (Ending, u64, u64)) -> bool {
        let (reason, what) = match ending {
            Ending::None => return false,
            Ending::Exit => (EndReason::Exit, "exit-writer"),
            Ending::Exec => (EndReason::Exec, "exec-writer"),
            Ending::Stopped => (EndReason::Stopped, "stopped-writer"),
            Ending::NoRoom => {
                // There was room for the recorder's own remark perhaps, which has the reason.
                if !self.remarks.iter().any(|remark| remark.topic == "write-error") {
                    self.remarks.push(no_room(tick));
                }
                let (reason, statistics) = (EndReason::DiskFull, self.statistics.clone());
                self.end = Some(End { reason, tick, statistics, error: None });
                return true;
            }
        };
        let wait = GaveUp { tick, what: what.into(), waited_ns, ..GaveUp::default() };
        self.gave_up(&wait);
        self.end = Some(End { reason, tick, statistics: self.statistics.clone(), error: None });
        true
    }

    /// A clock that starts where the recording does.
    #[must_use]
    pub fn clock_map(&self) -> ClockMap {
        let start = self.process.as_ref().map(|p| p.started_tick).or(self.first_tick).unwrap_or(0);
        ClockMap::new(start, self.clock.as_ref().map_or(0, |c| c.millihertz))
    }

    /// Name of the clock's source.
    #[must_use]
    pub fn clock_name(&self) -> String {
        let name = match self.clock.as_ref().map(|c| c.source) {
            Some(ClockSource::Tsc) => "tsc",
            Some(ClockSource::Cntvct) => "cntvct",
            Some(ClockSource::Monotonic) => "monotonic",
            None => "unknown",
        };
        name.into()
    }

    /// Modules as the index has them.
    #[must_use]
    pub fn modules(&self, clock: &ClockMap) -> Vec<ModuleFacts> {
        let module = |(load, unload): &(ModuleLoad, Option<u64>)| ModuleFacts {
            id: load.id,
            path: load.path.clone(),
            build_id: load.build_id.clone(),
            bias: load.bias,
            segments: load.segments.clone(),
            generation: load.generation,
            loaded_ns: clock.look_up(load.tick),
            unloaded_ns: unload.map(|t| clock.look_up(t)),
        };
        self.modules.iter().map(module).collect()
    }

    /// Memory by kinds as the index has it, in the order of time.
    #[must_use]
    pub fn memory_details(&self, clock: &ClockMap) -> Vec<facts::MemoryDetailFacts> {
        let detail = |&kinds: &MemoryDetail| facts::MemoryDetailFacts { t_ns: clock.look_up(kinds.tick), kinds };
        let mut details: Vec<_> = self.memory_details.iter().map(detail).collect();
        details.sort_by_key(|d| d.t_ns);
        details
    }

    /// Looks at the page tables as the index has them, in the order of time.
    #[must_use]
    pub fn looks(&self, clock: &ClockMap) -> Vec<facts::LookFacts> {
        let look = |(tick, block_at, reason, label, counters): &(u64, u64, LookReason, Vec<u8>, KernelCounters)| {
            let (t_ns, label) = (clock.look_up(*tick), String::from_utf8_lossy(label).into_owned());
            facts::LookFacts { t_ns, tick: *tick, block_at: *block_at, reason: *reason, label, counters: *counters }
        };
        let mut looks: Vec<_> = self.looks.iter().map(look).collect();
        looks.sort_by_key(|look| look.tick);
        looks
    }

    /// Marks as the index has them, by ordinal.
    #[must_use]
    pub fn marks(&self, clock: &ClockMap) -> Vec<facts::MarkFacts> {
        let mark = |m: &tracehound_format::meta::Mark| facts::MarkFacts {
            ordinal: m.ordinal,
            t_ns: clock.look_up(m.tick),
            thread: m.thread,
            label: String::from_utf8_lossy(&m.label).into_owned(),
        };
        self.marks.values().map(mark).collect()
    }
}

impl ScanSink for Intake {
    fn meta(&mut self, meta: Meta) {
        let mut tick = 0;
        match meta {
            Meta::Process(process) => {
                tick = process.started_tick;
                self.process.get_or_insert(process);
            }
            Meta::Clock(clock) => {
                self.clock.get_or_insert(clock);
            }
            Meta::ClockSample(sample) => {
                tick = sample.tick;
                self.clock_samples.push(sample);
                self.clock_points.push(sample);
                self.calibration.see(sample);
            }
            Meta::ModuleLoad(load) => {
                let next = self.modules.len();
                if *self.module_at.entry(load.id).or_insert(next) == next {
                    self.modules.push((load, None));
                }
            }
            Meta::ModuleUnload(unload) => {
                let at = self.module_at.get(&unload.id).and_then(|&at| self.modules.get_mut(at));
                if let Some((_, at)) = at {
                    at.get_or_insert(unload.tick);
                }
            }
            Meta::ThreadStart(start) => {
                let thread = self.threads.entry(start.thread).or_default();
                thread.os_thread = start.os_thread;
                thread.start_tick.get_or_insert(start.tick);
                if thread.name.is_empty() {
                    thread.name = start.name;
                }
            }
            Meta::ThreadName(name) => self.threads.entry(name.thread).or_default().name = name.name,
            Meta::ThreadEnd(end) => {
                tick = end.tick;
                self.threads.entry(end.thread).or_default().end_tick = Some(end.tick);
            }
            Meta::MemorySample(sample) => {
                tick = sample.tick;
                self.memory.push(sample);
            }
            Meta::MemoryDetail(detail) => {
                tick = detail.tick;
                self.memory_details.push(detail);
            }
            Meta::RecorderMemory(memory) => {
                tick = memory.tick;
                if memory.tick >= self.parts.0 {
                    self.parts = (memory.tick, memory.parts);
                }
            }
            Meta::StackCounts(counts) => {
                tick = counts.tick;
                if self.stack_counts.is_none_or(|known| counts.tick >= known.tick) {
                    self.stack_counts = Some(counts);
                }
            }
            Meta::Mark(mark) => {
                tick = mark.tick;
                self.marks.entry(mark.ordinal).or_insert(mark);
            }
            Meta::Watermark(watermark) => {
                tick = watermark.tick;
                self.watermark = self.watermark.max(watermark.tick);
            }
            Meta::Statistics(statistics) => {
                if statistics.tick >= self.statistics.tick {
                    self.statistics = statistics;
                }
            }
            Meta::Remark(remark) => self.remarks.push(remark),
            Meta::GaveUp(gave_up) => self.gave_up(&gave_up),
            // A child's recording says when it was forked.
            Meta::Forked(forked) => tick = forked.tick,
            Meta::End(end) => {
                tick = end.tick;
                if end.statistics.tick >= self.statistics.tick {
                    self.statistics = end.statistics.clone();
                }
                self.end.get_or_insert(end);
            }
            Meta::Attached(_) => self.attached = true,
            Meta::ForkedFrom(from) => {
                self.forked_from.get_or_insert(from);
            }
            Meta::ContextName(name) => {
                let known = self.context_names.entry(name.id).or_default();
                if name.tick >= known.0 {
                    *known = (name.tick, name.name);
                }
            }
            Meta::Code(code) => self.codes.push(code),
            Meta::GeneratedCode(code) => self.generated.push(code),
            // Page looks are passed to `look`.
            Meta::Directory(_) | Meta::PageLook(_) => {}
        }
        self.last_tick = self.last_tick.max(tick);
    }

    fn look(&mut self, look: &PageLook, block_at: u64) {
        self.last_tick = self.last_tick.max(look.tick);
        // A part without a first one before it: that one is lost.
        if look.part == 0 {
            self.looks.push((look.tick, block_at, look.reason, look.label.clone(), look.after));
        }
    }

    fn nodes(&mut self, first: u32, nodes: &[Node]) {
        for (id, &node) in (first..=u32::MAX).zip(nodes) {
            self.node(id, node);
        }
    }

    fn events(&mut self, block: BlockRef) {
        let header = block.header;
        self.last_tick = self.last_tick.max(header.last_tick);
        let bytes = u64::from(header.stored_len) + tracehound_format::block::BlockHeader::LEN as u64;
        if self.join(block, bytes) {
            return;
        }
        self.pend(
            header.first_tick,
            Pending {
                key: 0,
                thread: header.thread,
                first_record: header.first_record,
                count: u64::from(header.count),
                bytes,
                newest: header.last_tick,
                source: RunSource::Blocks(vec![block]),
            },
        );
    }
}
