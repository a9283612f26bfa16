//! Writes a recording of one thread, block by block: metadata and call-tree nodes go before the events that need them.

use std::io::{self, Write};

use tracehound_format::FormatError;
use tracehound_format::block_sequence::BlockSequence;
use tracehound_format::columns::RecordColumns;
use tracehound_format::meta::{Clock, ClockSource, EndReason, Meta, Process, Statistics, ThreadStart};
use tracehound_format::nodes::Node;
use tracehound_format::record::{Kind, Record};

/// The first tick; ticks are nanoseconds.
const START: u64 = 1_000_000;
/// The only thread.
const THREAD: u32 = 1;
/// Records of a block.
const CHUNK: usize = 4096;

/// A recording being written.
pub struct ImportWriter<W: Write> {
    out: W,
    blocks: BlockSequence,
    metas: Vec<Meta>,
    nodes: Vec<Node>,
    events: RecordColumns,
    records: u64,
    last_tick: u64,
}

fn malformed(error: FormatError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl<W: Write> ImportWriter<W> {
    /// Starts a recording.
    pub fn new(mut out: W, recording_id: [u8; 16]) -> io::Result<Self> {
        let blocks = BlockSequence::new(recording_id);
        out.write_all(blocks.bytes())?;
        Ok(Self {
            out,
            blocks,
            metas: Vec::new(),
            nodes: Vec::new(),
            events: RecordColumns::default(),
            records: 0,
            last_tick: START,
        })
    }

    /// What was recorded; once, before anything else.
    pub fn start(&mut self, executable: &[u8], arguments: Vec<Vec<u8>>, page_bytes: u32, tool: &str) {
        let process = Process {
            pid: 0,
            parent_pid: 0,
            executable: executable.to_vec(),
            arguments,
            directory: Vec::new(),
            started_unix_ns: 0,
            started_tick: START,
            page_bytes,
            recorder: tool.to_owned(),
            options: Vec::new(),
            forked_from: None,
        };
        let note = format!("imported from {tool}");
        let clock = Clock { source: ClockSource::Monotonic, shift: 0, millihertz: 1_000_000_000_000, note };
        let name = executable.rsplit(|&byte| byte == b'/').next().unwrap_or(b"main").to_vec();
        let thread = ThreadStart { thread: THREAD, os_thread: 0, tick: START, name };
        self.metas.extend([Meta::Process(process), Meta::Clock(clock), Meta::ThreadStart(thread)]);
    }

    /// The tick of a time; later calls never get an earlier one.
    pub fn tick(&mut self, t_ns: u64) -> u64 {
        // 58 bits are what a record has.
        self.last_tick = self.last_tick.max(START.saturating_add(t_ns)).min((1 << 57) - 1);
        self.last_tick
    }

    /// Metadata.
    pub fn meta(&mut self, meta: Meta) {
        self.metas.push(meta);
    }

    /// A call-tree node; returns its id.
    pub fn node(&mut self, parent: u32, pc: u64) -> u32 {
        self.nodes.push(Node { parent, pc, generation: 0 });
        self.blocks.next_node() + self.nodes.len() as u32 - 1
    }

    /// An allocation or a free. Ticks go up by one for each, so that their order is kept.
    pub fn event(&mut self, kind: Kind, t_ns: u64, address: u64, node: u32, size: u64) -> io::Result<()> {
        let tick = self.tick(t_ns);
        if size >> 32 != 0 {
            self.events.push(Record::new(Kind::SizeHigh, tick, size >> 32, 0, 0));
        }
        self.events.push(Record::new(kind, tick, address, node, size as u32));
        self.last_tick += 1;
        if self.events.kinds.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    /// Ends the recording, without an end block where the end is not there to be read; its length in bytes.
    pub fn finish(mut self, t_ns: u64, end: Option<EndReason>) -> io::Result<u64> {
        self.flush()?;
        if let Some(reason) = end {
            let tick = self.tick(t_ns) + 1;
            let nodes = u64::from(self.blocks.next_node()) - 1;
            let statistics = Statistics { tick, records: self.records, nodes, ..Statistics::default() };
            self.blocks.end(reason, statistics).map_err(malformed)?;
            self.write()?;
        }
        self.out.flush()?;
        Ok(self.blocks.length())
    }

    fn flush(&mut self) -> io::Result<()> {
        let metas = std::mem::take(&mut self.metas);
        for part in metas.chunks(256) {
            self.blocks.meta(part).map_err(malformed)?;
            self.write()?;
        }
        let list = std::mem::take(&mut self.nodes);
        for part in list.chunks(4096) {
            self.blocks.nodes(part);
            self.write()?;
        }
        let events = std::mem::take(&mut self.events);
        if self.blocks.events(THREAD, self.records, &events) {
            self.records += events.len() as u64;
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(self.blocks.bytes())
    }
}
