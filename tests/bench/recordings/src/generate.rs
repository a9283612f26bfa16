//! A recording of any size and shape, as a program with many threads, call sites and lifetimes would make it.
//!
//! A free-list allocator gives out addresses, so that they recur as real ones do. Most blocks are freed young, on the
//! thread that allocated them; the rest live until the live set is full and then are freed at random, now and then on
//! another thread.

use std::io::{self, Write};

use tracehound_format::columns::RecordColumns;
use tracehound_format::meta::{
    ClockSample, EndReason, MemorySample, Meta, ModuleLoad, Segment, ThreadStart, Watermark,
};
use tracehound_format::nodes::Node;
use tracehound_format::record::{Kind, Record};

use super::Writer;

/// What the recording is to be like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Events: allocations and frees. A realloc is one event.
    pub events: u64,
    /// Threads.
    pub threads: u32,
    /// Nodes of the call tree.
    pub nodes: u32,
    /// Distinct return addresses, a few of them in most backtraces, as with the functions of a program; 0: about as
    /// many as nodes, used evenly.
    pub functions: u32,
    /// Distinct allocating backtraces, at most `nodes`.
    pub sites: u32,
    /// Frames of a backtrace.
    pub depth: u32,
    /// Blocks that live at once, once the program is warm.
    pub live: u32,
    /// Part of the allocations that are freed within a few events, 0 to 1.
    pub short_lived: f64,
    /// Part of the events that are reallocs, 0 to 1.
    pub reallocs: f64,
    /// Part of the long-lived blocks that another thread frees, 0 to 1.
    pub foreign: f64,
    /// Mean ticks (nanoseconds) between events.
    pub pause: u64,
    /// Records of a block.
    pub chunk: usize,
    /// Picks another recording of the same shape.
    pub seed: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            events: 1_000_000,
            threads: 4,
            nodes: 20_000,
            functions: 0,
            sites: 5_000,
            depth: 24,
            live: 100_000,
            short_lived: 0.7,
            reallocs: 0.02,
            foreign: 0.1,
            pause: 50,
            chunk: 2_700,
            seed: 1,
        }
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Generated {
    /// Allocations.
    pub allocs: u64,
    /// Frees.
    pub frees: u64,
    /// Bytes of all allocations.
    pub allocated: u64,
    /// Bytes that are live at the end.
    pub live: u64,
    /// Largest live bytes.
    pub peak: u64,
    /// Bytes of the recording.
    pub file: u64,
}

/// Pseudo-random numbers (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    fn chance(&mut self, part: f64) -> bool {
        (self.next() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64) < part
    }

    /// Zipf's law: number `n` is about as likely as 1 / (n + 1).
    fn by_rank(&mut self, limit: u32) -> u64 {
        let part = (self.next() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64);
        (f64::from(limit).powf(part) as u64 - 1).min(u64::from(limit) - 1)
    }

    /// Small numbers are more likely, as call sites are used unevenly.
    fn uneven(&mut self, limit: u64) -> u64 {
        let low = self.below(limit);
        if self.next() & 1 == 0 { self.below(low + 1) } else { low }
    }
}

#[derive(Clone, Copy)]
struct Block {
    address: u64,
    size: u32,
}

/// Addresses: one stack of free blocks for each size class.
struct Heap {
    free: Vec<Vec<u64>>,
    top: u64,
}

impl Heap {
    fn take(&mut self, size: u32) -> u64 {
        let class = (size / 16) as usize + 1;
        if class < self.free.len()
            && let Some(address) = self.free[class].pop()
        {
            return address;
        }
        let address = self.top;
        self.top += class as u64 * 16 + 16;
        address
    }

    fn give(&mut self, block: Block) {
        let class = (block.size / 16) as usize + 1;
        if let Some(free) = self.free.get_mut(class) {
            free.push(block.address);
        }
    }
}

struct State<W: Write> {
    writer: Writer<W>,
    shape: Shape,
    random: Random,
    heap: Heap,
    buffers: Vec<RecordColumns>,
    /// Ticks of the last record of each thread's buffer go up; this is the present.
    tick: u64,
    sites: Vec<(u32, u32)>,
    free_sites: Vec<u32>,
    /// Young blocks of each thread, youngest last.
    young: Vec<Vec<Block>>,
    old: Vec<Block>,
    sums: Generated,
}

const START: u64 = 1_000;

/// Writes a recording of `shape` to `out`.
///
/// # Errors
/// When `out` refuses.
pub fn generate<W: Write>(out: W, shape: &Shape) -> io::Result<Generated> {
    let mut id = [0x5a; 16];
    id[..8].copy_from_slice(&shape.seed.to_le_bytes());
    id[8..].copy_from_slice(&shape.events.to_le_bytes());
    let mut writer = Writer::new(out, id)?;
    writer.start(START)?;
    let mut random = Random(shape.seed);
    let nodes = call_tree(shape, &mut random);
    let text = Segment { start: 0x40_0000, len: 1 << 32, vaddr: 0, file_offset: 0, flags: 5 };
    let module = ModuleLoad {
        id: 0,
        tick: START,
        path: b"/usr/bin/program".to_vec(),
        build_id: vec![0xab; 20],
        bias: 0x40_0000,
        segments: vec![text],
        generation: 0,
    };
    let mut meta = vec![Meta::ModuleLoad(module)];
    meta.extend((1..=shape.threads).map(|thread| {
        Meta::ThreadStart(ThreadStart {
            thread,
            os_thread: 4241 + thread,
            tick: START,
            name: format!("worker-{thread}").into_bytes(),
        })
    }));
    writer.meta(&meta)?;
    nodes.chunks(4096).try_for_each(|chunk| writer.nodes(chunk))?;
    let node_count = nodes.len() as u64;
    // Sites allocate, other nodes free.
    let sites =
        (0..shape.sites.max(1)).map(|_| (1 + random.below(node_count) as u32, 16 << random.below(6) as u32)).collect();
    let free_sites = (0..shape.sites.max(8) / 4).map(|_| 1 + random.below(node_count) as u32).collect();
    let threads = shape.threads.max(1) as usize;
    let mut state = State {
        writer,
        shape: *shape,
        random,
        heap: Heap { free: vec![Vec::new(); 1 << 12], top: 0x7f00_0000_0000 },
        buffers: vec![RecordColumns::default(); threads],
        tick: START,
        sites,
        free_sites,
        young: vec![Vec::new(); threads],
        old: Vec::new(),
        sums: Generated::default(),
    };
    state.run()?;
    state.flush_all()?;
    state.writer.end(EndReason::Exit, state.tick + 1)?;
    state.sums.file = state.writer.bytes();
    let sums = state.sums;
    state.writer.into_inner()?;
    Ok(sums)
}

/// A call tree in which every node hangs below an earlier one, about as deep as asked.
fn call_tree(shape: &Shape, random: &mut Random) -> Vec<Node> {
    let mut depth = vec![0_u32; 1];
    let mut nodes = Vec::new();
    for id in 1..=shape.nodes.max(1) {
        // Long chains with branches: mostly the node before, else any.
        let mut parent = if random.chance(0.8) { id - 1 } else { random.below(u64::from(id)) as u32 };
        if depth[parent as usize] >= shape.depth {
            parent = random.below(u64::from(parent) + 1) as u32 / 2;
        }
        depth.push(depth[parent as usize] + 1);
        let function = match shape.functions {
            0 => random.below(u64::from(shape.nodes)),
            functions => random.by_rank(functions),
        };
        let pc = 0x40_1000 + function * 24 + 5;
        nodes.push(Node { parent, pc, generation: 0 });
    }
    nodes
}

impl<W: Write> State<W> {
    fn run(&mut self) -> io::Result<()> {
        let threads = self.buffers.len() as u64;
        let mut thread = 0;
        let mut next_report = START;
        for event in 0..self.shape.events {
            // A thread runs for a while.
            if event % 8 == 0 && self.random.chance(0.3) {
                thread = self.random.below(threads) as usize;
            }
            self.tick += 1 + self.random.below(2 * self.shape.pause.max(1) - 1);
            self.event(thread)?;
            if self.tick >= next_report {
                next_report = self.tick + 10_000_000;
                self.report()?;
            }
        }
        Ok(())
    }

    fn event(&mut self, thread: usize) -> io::Result<()> {
        if self.random.chance(self.shape.reallocs)
            && let Some(block) = self.young[thread].pop()
        {
            return self.realloc(thread, block);
        }
        let young = self.young[thread].len();
        if young > 0 && self.random.chance(0.5) {
            let Some(block) = self.young[thread].pop() else { return Ok(()) };
            return self.free(thread, block);
        }
        if self.old.len() > self.shape.live as usize && self.random.chance(0.5) {
            let index = self.random.below(self.old.len() as u64) as usize;
            let block = self.old.swap_remove(index);
            let foreign = self.random.chance(self.shape.foreign);
            let thread = if foreign { self.random.below(self.buffers.len() as u64) as usize } else { thread };
            return self.free(thread, block);
        }
        self.alloc(thread)
    }

    fn alloc(&mut self, thread: usize) -> io::Result<()> {
        let site = self.random.uneven(self.sites.len() as u64) as usize;
        let (node, base) = self.sites[site];
        let size = base + if self.random.chance(0.2) { self.random.below(u64::from(base)) as u32 } else { 0 };
        let address = self.heap.take(size);
        let block = Block { address, size };
        if self.random.chance(self.shape.short_lived) {
            self.young[thread].push(block);
            if self.young[thread].len() > 64 {
                let grown = self.young[thread].remove(0);
                self.old.push(grown);
            }
        } else {
            self.old.push(block);
        }
        self.allocated(size);
        self.push(thread, Record::new(Kind::Malloc, self.tick, address, node, size))
    }

    fn free(&mut self, thread: usize, block: Block) -> io::Result<()> {
        self.heap.give(block);
        let site = self.random.uneven(self.free_sites.len() as u64) as usize;
        self.sums.frees += 1;
        self.sums.live -= u64::from(block.size);
        self.push(thread, Record::new(Kind::Free, self.tick, block.address, self.free_sites[site], 0))
    }

    fn realloc(&mut self, thread: usize, old: Block) -> io::Result<()> {
        let site = self.random.uneven(self.sites.len() as u64) as usize;
        let node = self.sites[site].0;
        let size = old.size * 2 % 60_000;
        self.heap.give(old);
        let block = Block { address: self.heap.take(size), size };
        self.sums.frees += 1;
        self.sums.live -= u64::from(old.size);
        self.push(thread, Record::new(Kind::ReallocFrom, self.tick, old.address, node, 0))?;
        self.tick += 1;
        self.allocated(size);
        self.young[thread].push(block);
        self.push(thread, Record::new(Kind::ReallocTo, self.tick, block.address, node, size))
    }

    fn allocated(&mut self, size: u32) {
        self.sums.allocs += 1;
        self.sums.allocated += u64::from(size);
        self.sums.live += u64::from(size);
        self.sums.peak = self.sums.peak.max(self.sums.live);
    }

    fn push(&mut self, thread: usize, record: Record) -> io::Result<()> {
        let buffer = &mut self.buffers[thread];
        buffer.push(record);
        if buffer.len() >= self.shape.chunk {
            self.writer.events(thread as u32 + 1, buffer)?;
            buffer.clear();
        }
        Ok(())
    }

    fn flush_all(&mut self) -> io::Result<()> {
        for (thread, buffer) in self.buffers.iter_mut().enumerate() {
            self.writer.events(thread as u32 + 1, buffer)?;
            buffer.clear();
        }
        Ok(())
    }

    /// What a recorder adds every few milliseconds; all threads' buffers are written now and then.
    fn report(&mut self) -> io::Result<()> {
        let tick = self.tick;
        let rss = self.sums.live + (8 << 20);
        let sample = ClockSample { tick, monotonic_ns: tick, realtime_ns: 1_700_000_000_000_000_000 + tick };
        let memory = MemorySample {
            tick,
            rss,
            rss_anonymous: rss - (2 << 20),
            rss_shared: 2 << 20,
            virtual_size: rss * 3,
            recorder: 1 << 20,
        };
        let mut meta = vec![Meta::ClockSample(sample), Meta::MemorySample(memory)];
        if self.random.chance(0.05) {
            self.flush_all()?;
            meta.push(Meta::Watermark(Watermark { tick }));
        }
        self.writer.meta(&meta)
    }
}
