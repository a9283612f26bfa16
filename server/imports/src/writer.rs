//! Writes a recording of one thread, block by block: metadata and call-tree nodes go before the events that need them.

use std::io::{self, Write};

use tracehound_format::block::{BlockHeader, BlockKind, compress_lz4};
use tracehound_format::columns::{Encoder, RecordColumns};
use tracehound_format::header::FileHeader;
use tracehound_format::meta::{
    self, Clock, ClockSource, Directory, End, EndReason, Meta, Process, Statistics, ThreadStart,
};
use tracehound_format::nodes::{self, Node};
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
    at: u64,
    offsets: Vec<u64>,
    metas: Vec<Meta>,
    nodes: Vec<Node>,
    next_node: u32,
    events: RecordColumns,
    records: u64,
    last_tick: u64,
    encoder: Encoder,
    raw: Vec<u8>,
    stored: Vec<u8>,
}

impl<W: Write> ImportWriter<W> {
    /// Starts a recording.
    pub fn new(mut out: W, recording_id: [u8; 16]) -> io::Result<Self> {
        out.write_all(&FileHeader::new(recording_id).encode())?;
        Ok(Self {
            out,
            at: FileHeader::LEN as u64,
            offsets: Vec::new(),
            metas: Vec::new(),
            nodes: Vec::new(),
            next_node: 1,
            events: RecordColumns::default(),
            records: 0,
            last_tick: START,
            encoder: Encoder::new(),
            raw: Vec::new(),
            stored: Vec::new(),
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
        self.next_node + self.nodes.len() as u32 - 1
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

    /// Ends the recording; its length in bytes.
    pub fn finish(mut self, t_ns: u64) -> io::Result<u64> {
        self.flush()?;
        let tick = self.tick(t_ns) + 1;
        let nodes = u64::from(self.next_node) - 1;
        let statistics = Statistics { tick, records: self.records, nodes, ..Statistics::default() };
        let end = End { reason: EndReason::Exit, tick, statistics, error: None };
        let mut offsets = self.offsets.clone();
        offsets.push(self.at);
        let mut last = 0;
        let offsets = offsets.iter().map(|&offset| offset - std::mem::replace(&mut last, offset)).collect();
        let metas = [Meta::End(end), Meta::Directory(Directory { offsets })];
        self.encode(&metas)?;
        self.block(BlockKind::End, 0, 0, (tick, tick), 2)?;
        self.out.flush()?;
        Ok(self.at)
    }

    fn encode(&mut self, metas: &[Meta]) -> io::Result<()> {
        self.raw.clear();
        for meta in metas {
            meta::encode(meta, &mut self.raw).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let metas = std::mem::take(&mut self.metas);
        for part in metas.chunks(256) {
            self.encode(part)?;
            self.block(BlockKind::Meta, 0, 0, (0, 0), part.len() as u32)?;
        }
        let list = std::mem::take(&mut self.nodes);
        for part in list.chunks(4096) {
            self.raw.clear();
            nodes::encode(self.next_node, part, &mut self.raw);
            let first = self.next_node;
            self.next_node += part.len() as u32;
            self.block(BlockKind::Nodes, 0, u64::from(first), (0, 0), part.len() as u32)?;
        }
        let events = std::mem::take(&mut self.events);
        let (Some(&first), Some(&last)) = (events.ticks.first(), events.ticks.last()) else { return Ok(()) };
        self.raw.clear();
        self.encoder.encode(&events, first, &mut self.raw);
        let first_record = self.records;
        self.records += events.kinds.len() as u64;
        self.block(BlockKind::Events, THREAD, first_record, (first, last), events.kinds.len() as u32)
    }

    fn block(
        &mut self,
        kind: BlockKind,
        thread: u32,
        first_record: u64,
        ticks: (u64, u64),
        count: u32,
    ) -> io::Result<()> {
        let codec = compress_lz4(&self.raw, &mut self.stored);
        let header = BlockHeader {
            kind,
            codec,
            thread,
            block_number: self.offsets.len() as u32,
            first_record,
            first_tick: ticks.0,
            last_tick: ticks.1,
            count,
            raw_len: self.raw.len() as u32,
            stored_len: self.stored.len() as u32,
            payload_crc: crc32fast::hash(&self.stored),
        };
        self.offsets.push(self.at);
        self.out.write_all(&header.encode())?;
        self.out.write_all(&self.stored)?;
        self.at += (BlockHeader::LEN + self.stored.len()) as u64;
        Ok(())
    }
}
