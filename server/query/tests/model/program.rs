//! Runs a script: a recording and the truth about it come out.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use tracehound_format::columns::RecordColumns;
use tracehound_format::meta::{EndReason, Mark, MemorySample, Meta, ModuleLoad, Segment, ThreadStart, Watermark};
use tracehound_format::nodes::Node;
use tracehound_format::record::{Kind, Record};
use tracehound_ingest::WINDOW_NS;
use tracehound_recordings::Writer;

use crate::reference::{Alloc, Mapping, Reference, Truth};
use crate::script::{HandOver, ID, START, Script, Step};

/// Blocks of the recording as they are written: for tests that damage them.
pub struct Written {
    pub bytes: Vec<u8>,
    pub truth: Reference,
    /// File length and watermark (nanoseconds) each time one was written.
    pub watermarks: Vec<(usize, u64)>,
}

struct Held {
    thread: u32,
    steps: u8,
    old: Option<usize>,
    old_address: u64,
    slot: u8,
    size: u32,
    node: u32,
    from: Record,
}

struct Program {
    script_chunk: usize,
    truth: Reference,
    writer: Writer<Vec<u8>>,
    buffers: BTreeMap<u32, RecordColumns>,
    tick: u64,
    last_thread: u32,
    /// Tick of the last record by thread, and by address.
    last_of_thread: BTreeMap<u32, u64>,
    last_at: BTreeMap<u64, u64>,
    last_watermark: u64,
    live: BTreeMap<u64, usize>,
    pool: BTreeMap<u64, usize>,
    held: Vec<Held>,
    watermarks: Vec<(usize, u64)>,
    marks: u64,
    /// Pages below the program break.
    heap: usize,
}

/// Address of one of the 128 pages in which everything is mapped.
pub fn page_at(page: u8) -> u64 {
    0x7000_0000 + (u64::from(page) << 12)
}

fn address(slot: u8) -> u64 {
    // A few addresses do not fit 48 bits, or are not aligned.
    match slot % 16 {
        15 => 0xffff_8000_0000_1000,
        14 => 0x7fff_1234_5671,
        slot => 0x5555_0000_0000 + u64::from(slot) * 32,
    }
}

const KINDS: [Kind; 9] = [
    Kind::Malloc,
    Kind::Calloc,
    Kind::ReallocNew,
    Kind::PosixMemalign,
    Kind::AlignedAlloc,
    Kind::Memalign,
    Kind::OtherAlloc,
    Kind::Inherited,
    Kind::Malloc,
];

/// Runs a script.
pub fn run(script: &Script) -> Written {
    let mut writer = Writer::new(Vec::new(), ID).unwrap();
    writer.start(START).unwrap();
    let mut nodes = vec![Node { parent: 0, pc: 0, generation: 0 }];
    for (i, &(parent, pc)) in (1_u32..).zip(&script.nodes) {
        nodes.push(Node { parent: u32::from(parent) % i, pc: 0x1000 + u64::from(pc) * 16, generation: 0 });
    }
    writer.nodes(&nodes[1..]).unwrap();
    let segment = |start| Segment { start, len: 0x800, vaddr: 0, file_offset: 0, flags: 5 };
    let module = |id, start| {
        Meta::ModuleLoad(ModuleLoad {
            id,
            tick: START,
            path: format!("/lib/module{id}.so").into_bytes(),
            build_id: vec![],
            bias: start,
            segments: vec![segment(start)],
            generation: 0,
        })
    };
    writer.meta(&[module(0, 0x1000), module(1, 0x1800)]).unwrap();
    let truth = Reference { nodes, ..Reference::default() };
    let mut program = Program {
        script_chunk: script.chunk,
        truth,
        writer,
        buffers: BTreeMap::new(),
        tick: START,
        last_thread: 0,
        last_of_thread: BTreeMap::new(),
        last_at: BTreeMap::new(),
        last_watermark: START,
        live: BTreeMap::new(),
        pool: BTreeMap::new(),
        held: Vec::new(),
        watermarks: Vec::new(),
        marks: 0,
        heap: 0,
    };
    for (thread, pause, step) in &script.steps {
        program.step(u32::from(*thread) + 1, u64::from(*pause), step);
    }
    while !program.held.is_empty() {
        program.release(0);
    }
    program.finish()
}

impl Program {
    /// Time for the next record of a thread: at equal ticks, threads come in the order of their ids.
    fn now(&mut self, thread: u32, pause: u64) -> u64 {
        self.tick += pause;
        if thread < self.last_thread && pause == 0 {
            self.tick += 1;
        }
        self.last_thread = thread;
        self.tick
    }

    fn push(&mut self, thread: u32, record: Record) {
        if !self.buffers.contains_key(&thread) {
            let start = ThreadStart {
                thread,
                os_thread: 100 + thread,
                tick: record.tick,
                name: format!("t{thread}").into_bytes(),
            };
            self.writer.meta(&[Meta::ThreadStart(start)]).unwrap();
        }
        self.last_of_thread.insert(thread, record.tick);
        self.last_at.insert(record.address, record.tick);
        let buffer = self.buffers.entry(thread).or_default();
        buffer.push(record);
        if buffer.len() >= self.script_chunk {
            self.writer.events(thread, buffer).unwrap();
            buffer.clear();
        }
    }

    fn node(&self, node: u8) -> u32 {
        u32::from(node) % (self.truth.nodes.len() as u32 + 1) % self.truth.nodes.len() as u32
    }

    /// Large sizes take a second record in front.
    fn sized(&mut self, thread: u32, tick: u64, size: u32) -> (u64, u32) {
        if size % 97 == 13 {
            self.push(thread, Record::new(Kind::SizeHigh, tick, 3, 0, 0));
            return (3 << 32 | u64::from(size), size);
        }
        (u64::from(size), size)
    }

    fn step(&mut self, thread: u32, pause: u64, step: &Step) {
        if self.held.iter().any(|h| h.thread == thread) {
            // A thread inside realloc does nothing else.
            let at = self.held.iter().position(|h| h.thread == thread).unwrap();
            self.release(at);
        }
        for held in &mut self.held {
            held.steps = held.steps.saturating_sub(1);
        }
        while let Some(at) = self.held.iter().position(|h| h.steps == 0) {
            self.release(at);
        }
        match *step {
            Step::Alloc { slot, size, node, kind } => self.alloc(thread, pause, slot, size, node, kind),
            Step::Free { pick, node } => self.free(thread, pause, pick, node),
            Step::Realloc { pick, slot, size, node, held } => self.realloc(thread, pause, pick, slot, size, node, held),
            Step::HandOver { slot, size, node, kind, to, early, how } => {
                let to = (thread + u32::from(to)) % 4 + 1;
                // Three events of one address and tick could have happened in more than one order.
                self.tick += 1;
                if to != thread && !self.held.iter().any(|h| h.thread == to) {
                    match how {
                        HandOver::Reuse => self.reuse([thread, to], pause, [slot, node, kind], size, early),
                        _ => self.hand_over([thread, to], pause, [slot, node, kind], size, early, how),
                    }
                    self.tick += 1;
                }
            }
            Step::Unmatched { slot, node, realloc } => self.unmatched(thread, pause, slot, node, realloc),
            Step::Pool { slot, size, node } => {
                let (address, node) = (address(slot), self.node(node));
                if self.pool.contains_key(&address) {
                    return;
                }
                let tick = self.now(thread, pause);
                let (full, size) = self.sized(thread, tick, size);
                self.push(thread, Record::new(Kind::PoolAlloc, tick, address, node, size));
                let index = self.truth.alloc(Alloc::new(tick - START, address, full, node, thread, Kind::PoolAlloc));
                self.truth.order.push(Truth::Alloc(index));
                self.pool.insert(address, index);
            }
            Step::PoolFree { pick } => {
                let Some((&address, &index)) = self.pool.iter().nth(pick as usize % self.pool.len().max(1)) else {
                    return;
                };
                self.pool.remove(&address);
                let tick = self.now(thread, pause);
                self.push(thread, Record::new(Kind::PoolFree, tick, address, 0, 0));
                self.truth.free(index, tick - START, thread, 0, Kind::PoolFree);
                self.truth.order.push(Truth::Free(index));
            }
            Step::Map { page, pages, node } => {
                let (tick, node) = (self.now(thread, pause), self.node(node));
                self.push(thread, Record::new(Kind::MapDetail, tick, 3, 0, 9));
                self.push(thread, Record::new(Kind::Mmap, tick, page_at(page), node, u32::from(pages) << 12));
                self.mapping(thread, tick, Mapping::Map { page: page.into(), pages: pages.into(), node });
                self.truth.maps += 1;
            }
            Step::Unmap { page, pages } => {
                let tick = self.now(thread, pause);
                self.push(thread, Record::new(Kind::Munmap, tick, page_at(page), 0, u32::from(pages) << 12));
                self.mapping(thread, tick, Mapping::Unmap { page: page.into(), pages: pages.into() });
            }
            Step::Remap { page, pages, to, to_pages, node } => {
                let (tick, node) = (self.now(thread, pause), self.node(node));
                self.push(thread, Record::new(Kind::MremapFrom, tick, page_at(page), node, u32::from(pages) << 12));
                self.push(thread, Record::new(Kind::MremapTo, tick, page_at(to), node, u32::from(to_pages) << 12));
                let (from, pages, to, to_pages) = (page.into(), pages.into(), to.into(), to_pages.into());
                self.mapping(thread, tick, Mapping::Remap { from, pages, to, to_pages, node });
            }
            Step::Brk { pages, node } => {
                let (tick, node) = (self.now(thread, pause), self.node(node));
                let pages = i64::from(pages).max(-(self.heap as i64)).min(60 - self.heap as i64);
                self.heap = (self.heap as i64 + pages) as usize;
                let end = page_at(64) + ((self.heap as u64) << 12);
                self.push(thread, Record::new(Kind::Brk, tick, end, node, (pages << 12) as i32 as u32));
                let grown = self.heap.saturating_sub(pages.max(0) as usize);
                self.mapping(
                    thread,
                    tick,
                    match pages {
                        0.. => Mapping::Map { page: 64 + grown, pages: pages as usize, node },
                        _ => Mapping::Unmap { page: 64 + self.heap, pages: -pages as usize },
                    },
                );
                self.truth.breaks += 1;
            }
            Step::Mark => {
                let tick = self.now(thread, pause);
                let ordinal = self.marks;
                self.marks += 1;
                self.push(thread, Record::new(Kind::Mark, tick, ordinal, 0, 0));
                let label = format!("mark{ordinal}").into_bytes();
                self.writer.meta(&[Meta::Mark(Mark { ordinal, thread, tick, label })]).unwrap();
                self.truth.marks.push((tick - START, format!("mark{ordinal}")));
                self.truth.order.push(Truth::Other { t_ns: tick - START, thread });
            }
            Step::Sample { rss } => {
                let rss = u64::from(rss);
                let sample = MemorySample { tick: self.tick, rss, ..MemorySample::default() };
                self.writer.meta(&[Meta::MemorySample(sample)]).unwrap();
                self.truth.samples.push((self.tick - START, rss));
            }
            Step::Flush => self.flush(),
            Step::Watermark => {
                if !self.held.is_empty() {
                    return;
                }
                self.flush();
                // Everything before this tick is written; a later event of the same tick may follow.
                self.writer.meta(&[Meta::Watermark(Watermark { tick: self.tick })]).unwrap();
                self.watermarks.push((self.writer.bytes() as usize, self.tick - START));
                self.last_watermark = self.tick;
            }
        }
    }

    fn mapping(&mut self, thread: u32, tick: u64, mapping: Mapping) {
        self.truth.order.push(Truth::Other { t_ns: tick - START, thread });
        self.truth.mappings.push((tick - START, mapping));
    }

    /// Half-done reallocs must find a free address.
    fn is_crowded(&self) -> bool {
        self.live.len() + self.held.len() >= 13
    }

    fn flush(&mut self) {
        for (&thread, buffer) in &mut self.buffers {
            self.writer.events(thread, buffer).unwrap();
            buffer.clear();
        }
    }

    /// A block of another thread's half-done realloc is freed when its address is handed out.
    fn split(&mut self, address: u64, t_ns: u64) {
        let Some(held) = self.held.iter_mut().find(|h| h.old_address == address && h.old.is_some()) else { return };
        let old = held.old.take().unwrap();
        let (thread, node) = (held.thread, held.from.node);
        self.truth.free(old, t_ns, thread, node, Kind::ReallocFree);
        self.truth.order.push(Truth::Free(old));
        self.truth.frees += 1;
    }

    fn alloc(&mut self, thread: u32, pause: u64, slot: u8, size: u32, node: u8, kind: u8) {
        let (address, node) = (address(slot), self.node(node));
        if self.live.contains_key(&address) || self.is_crowded() {
            return;
        }
        let kind = KINDS[kind as usize];
        let tick = self.now(thread, pause);
        let (full, size) = self.sized(thread, tick, size);
        self.push(thread, Record::new(kind, tick, address, node, size));
        self.split(address, tick - START);
        let index = self.truth.alloc(Alloc::new(tick - START, address, full, node, thread, kind));
        self.truth.order.push(Truth::Alloc(index));
        self.live.insert(address, index);
    }

    fn free(&mut self, thread: u32, pause: u64, pick: u8, node: u8) {
        let Some((&address, &index)) = self.live.iter().nth(pick as usize % self.live.len().max(1)) else { return };
        let node = self.node(node);
        self.live.remove(&address);
        let tick = self.now(thread, pause);
        self.push(thread, Record::new(Kind::Free, tick, address, node, 0));
        self.truth.free(index, tick - START, thread, node, Kind::Free);
        self.truth.order.push(Truth::Free(index));
        self.truth.frees += 1;
    }

    fn unmatched(&mut self, thread: u32, pause: u64, slot: u8, node: u8, realloc: bool) {
        let (address, node) = (address(slot), self.node(node));
        let busy =
            self.is_crowded() || self.live.contains_key(&address) || self.held.iter().any(|h| h.old_address == address);
        if busy {
            return;
        }
        let tick = self.now(thread, pause);
        if realloc {
            let from = Record::new(Kind::ReallocFrom, tick, address, node, 0);
            self.push(thread, from);
            let (slot, size) = (slot.wrapping_add(3), 40);
            self.held.push(Held { thread, steps: 1, old: None, old_address: u64::MAX, slot, size, node, from });
            self.truth.unmatched += 1;
        } else {
            self.push(thread, Record::new(Kind::Free, tick, address, node, 0));
            self.truth.order.push(Truth::Other { t_ns: tick - START, thread });
            self.truth.frees += 1;
            self.truth.unmatched += 1;
        }
        // An alloc by another thread soon after would be taken for that of the block.
        self.tick += WINDOW_NS + 1;
    }

    /// A stamp of `thread` for its part of a hand-over at `address`, earlier than the other's if nothing forbids it.
    fn early(&mut self, thread: u32, address: u64, tick: u64, early: u16) -> u64 {
        let after = |last: &BTreeMap<u64, u64>, key: u64| last.get(&key).map_or(0, |tick| tick + 1);
        let own = self.last_of_thread.get(&thread).copied().unwrap_or(0);
        let least = own.max(after(&self.last_at, address)).max(self.last_watermark);
        (tick - u64::from(early)).max(least).min(tick)
    }

    /// Counts an event that was stamped `at` and happened at `tick`.
    fn stamped(&mut self, thread: u32, at: u64, tick: u64) {
        self.truth.inverted += u64::from(at < tick);
        self.last_of_thread.insert(thread, tick);
        if at == tick {
            self.last_thread = self.last_thread.max(thread);
        }
    }

    fn hand_over(
        &mut self,
        [thread, to]: [u32; 2],
        pause: u64,
        [slot, node, kind]: [u8; 3],
        size: u32,
        early: u16,
        how: HandOver,
    ) {
        let at = address(slot);
        let busy = self.is_crowded() || self.live.contains_key(&at) || self.held.iter().any(|h| h.old_address == at);
        if busy {
            return;
        }
        let next = self.tick + pause + 1;
        let stamp = self.early(to, at, next, early);
        self.alloc(thread, pause, slot, size, node, kind);
        let (tick, node) = (self.tick, self.node(node));
        let Some(index) = self.live.remove(&at) else { return };
        let stamp = stamp.min(tick);
        if how == HandOver::Realloc {
            let from = Record::new(Kind::ReallocFrom, stamp, at, node, 0);
            self.push(to, from);
            let (slot, old) = (slot.wrapping_add(5), Some(index));
            self.held.push(Held { thread: to, steps: 2, old, old_address: at, slot, size, node, from });
        } else {
            self.push(to, Record::new(Kind::Free, stamp, at, node, 0));
            self.truth.free(index, tick - START, to, node, Kind::Free);
            self.truth.order.push(Truth::Free(index));
            self.truth.frees += 1;
        }
        self.last_at.insert(at, tick);
        self.stamped(to, stamp, tick);
    }

    /// A free, and an alloc of another thread at the same address.
    fn reuse(&mut self, [thread, to]: [u32; 2], pause: u64, [pick, node, kind]: [u8; 3], size: u32, early: u16) {
        let Some((&at, &index)) = self.live.iter().nth(pick as usize % self.live.len().max(1)) else { return };
        let next = self.tick + pause + 1;
        let stamp = self.early(to, at, next, early);
        self.free(thread, pause, pick, node);
        let (tick, node, kind) = (self.tick, self.node(node), KINDS[kind as usize]);
        debug_assert!(!self.live.contains_key(&at), "{index} was freed");
        let stamp = stamp.min(tick);
        let (full, size) = self.sized(to, stamp, size);
        self.push(to, Record::new(kind, stamp, at, node, size));
        let index = self.truth.alloc(Alloc::new(tick - START, at, full, node, to, kind));
        self.truth.order.push(Truth::Alloc(index));
        self.live.insert(at, index);
        self.last_at.insert(at, tick);
        self.stamped(to, stamp, tick);
    }

    #[allow(clippy::too_many_arguments)] // The fields of a step.
    fn realloc(&mut self, thread: u32, pause: u64, pick: u8, slot: u8, size: u32, node: u8, held: u8) {
        let Some((&old_address, &old)) = self.live.iter().nth(pick as usize % self.live.len().max(1)) else { return };
        let node = self.node(node);
        self.live.remove(&old_address);
        let tick = self.now(thread, pause);
        let from = Record::new(Kind::ReallocFrom, tick, old_address, node, 0);
        self.push(thread, from);
        self.held.push(Held { thread, steps: held, old: Some(old), old_address, slot, size, node, from });
        if held == 0 {
            self.release(self.held.len() - 1);
        }
    }

    /// The second half of a realloc.
    fn release(&mut self, at: usize) {
        let held = self.held.remove(at);
        let mut slot = held.slot;
        while self.live.contains_key(&address(slot)) {
            slot = slot.wrapping_add(1);
        }
        let address = address(slot);
        let tick = self.now(held.thread, 1);
        let (full, size) = self.sized(held.thread, tick, held.size);
        self.push(held.thread, Record::new(Kind::ReallocTo, tick, address, held.node, size));
        let t_ns = tick - START;
        let was_seen = held.old_address != u64::MAX;
        let split = was_seen && held.old.is_none();
        let kind = if split { Kind::ReallocNew } else { Kind::ReallocTo };
        // What else must happen at this instant happens before.
        self.split(address, t_ns);
        if let Some(old) = held.old {
            self.truth.free(old, t_ns, held.thread, held.node, Kind::ReallocFrom);
        }
        let index = self.truth.alloc(Alloc::new(t_ns, address, full, held.node, held.thread, kind));
        if let Some(old) = held.old {
            self.truth.allocs[index].previous = Some(old);
            self.truth.allocs[old].next = Some(index);
        }
        self.truth.order.push(if split {
            Truth::Alloc(index)
        } else {
            self.truth.reallocs += 1;
            Truth::Realloc { old: held.old, new: index }
        });
        self.live.insert(address, index);
    }

    fn finish(mut self) -> Written {
        self.flush();
        let tick = self.tick + 1;
        self.writer.end(EndReason::Exit, tick).unwrap();
        self.truth.settle(tick - START);
        Written { bytes: self.writer.into_inner().unwrap(), truth: self.truth, watermarks: self.watermarks }
    }
}

/// Puts bytes into a file.
pub fn store(folder: &Path, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.join("memory-program-1.dat");
    std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
    path
}
