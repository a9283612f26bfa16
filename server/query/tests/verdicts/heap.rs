//! A heap in time that somebody makes up: what happens when is written down as a recording, and no machine is too slow.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use tracehound_format::columns::RecordColumns;
use tracehound_format::meta::{EndReason, Mark, Meta, ThreadStart};
use tracehound_format::nodes::Node;
use tracehound_format::record::{Kind, Record};
use tracehound_recordings::Writer;

/// Where the calls in question come from.
pub const SUBJECT: u64 = 0x2000;
/// And all others.
const OTHER: u64 = 0x3000;
/// The first tick; ticks are nanoseconds.
const START: u64 = 1_000_000;
const MS: u64 = 1_000_000;

/// A block: its address, and the class that its address goes back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    address: u64,
    size: u32,
}

/// What has happened so far.
pub struct Heap {
    now: u64,
    next_address: u64,
    events: RecordColumns,
    marks: Vec<Meta>,
    random: u64,
    /// When nothing happens for a while, and how long.
    stall: (u64, u64),
}

/// Turns of a run, and their mean length: ten minutes.
pub const TURNS: u64 = 1200;
const TURN: u64 = 500 * MS;

impl Heap {
    /// An empty heap. Every third seed has a machine that makes no progress for a tenth of the run.
    pub fn new(seed: u64) -> Self {
        let mut heap = Self {
            now: START,
            next_address: 0x10_0000,
            events: RecordColumns::default(),
            marks: Vec::new(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            stall: (u64::MAX, 0),
        };
        if seed.is_multiple_of(3) {
            heap.stall = (heap.below(TURNS * 3 / 4), TURNS * TURN / 10);
        }
        heap
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % limit
    }

    fn event(&mut self, kind: Kind, address: u64, node: u32, size: u32) {
        self.now += 1000;
        self.events.push(Record::new(kind, self.now, address, node, size));
    }

    fn allocate(&mut self, node: u32, size: u32) -> Block {
        self.next_address += 0x100;
        let block = Block { address: self.next_address, size };
        self.event(Kind::Malloc, block.address, node, size);
        block
    }

    /// An allocation in question.
    pub fn subject(&mut self, size: u64) -> Block {
        self.allocate(2, size as u32)
    }

    /// A free.
    pub fn free(&mut self, block: Block) {
        self.event(Kind::Free, block.address, 1, 0);
    }

    /// A realloc in question.
    pub fn grow(&mut self, block: Block, size: u64) -> Block {
        self.event(Kind::ReallocFrom, block.address, 2, 0);
        self.next_address += 0x100;
        self.event(Kind::ReallocTo, self.next_address, 2, size as u32);
        Block { address: self.next_address, size: size as u32 }
    }

    /// A label.
    pub fn mark(&mut self, label: &str) {
        let ordinal = self.marks.len() as u64;
        self.marks.push(Meta::Mark(Mark { ordinal, thread: 0, tick: self.now, label: label.into() }));
    }

    /// Lets as much time pass as so many turns take.
    pub fn pause(&mut self, turns: u64) {
        self.now += turns * TURN;
    }

    /// Does `turn` again and again, and other work between, at uneven distances.
    pub fn turns(&mut self, mut turn: impl FnMut(&mut Self, u64)) {
        for i in 0..TURNS {
            turn(self, i);
            for _ in 0..3 {
                let size = 64 + self.below(512);
                let block = self.allocate(3, size as u32);
                self.free(block);
            }
            self.now += TURN / 2 + self.below(TURN);
            if i == self.stall.0 {
                self.now += self.stall.1;
            }
        }
    }

    /// Writes the recording.
    pub fn write(self, path: &Path) {
        let mut writer = Writer::new(BufWriter::new(File::create(path).unwrap()), [5; 16]).unwrap();
        writer.start(START).unwrap();
        let thread = ThreadStart { thread: 1, os_thread: 1, tick: START, name: b"app".to_vec() };
        writer.meta(&[Meta::ThreadStart(thread)]).unwrap();
        let node = |parent, pc| Node { parent, pc, generation: 0 };
        writer.nodes(&[node(0, 0x1000), node(1, SUBJECT), node(1, OTHER)]).unwrap();
        writer.meta(&self.marks).unwrap();
        writer.events(1, &self.events).unwrap();
        writer.end(EndReason::Exit, self.now + MS).unwrap();
        writer.into_inner().unwrap();
    }
}
