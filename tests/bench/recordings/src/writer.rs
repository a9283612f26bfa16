//! Writes a recording block by block.

use std::collections::HashMap;
use std::io::{self, Write};

use tracehound_format::FormatError;
use tracehound_format::block_sequence::BlockSequence;
use tracehound_format::columns::RecordColumns;
use tracehound_format::meta::{Clock, ClockSource, EndReason, Meta, Process, Statistics};
use tracehound_format::nodes::Node;

/// Puts blocks into a file. What it is given is written as it is: it also makes recordings that no recorder would.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    blocks: BlockSequence,
    next_record: HashMap<u32, u64>,
    records: u64,
}

fn malformed(error: FormatError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl<W: Write> Writer<W> {
    /// Starts a recording with its header.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn new(mut out: W, recording_id: [u8; 16]) -> io::Result<Self> {
        let blocks = BlockSequence::new(recording_id);
        out.write_all(blocks.bytes())?;
        Ok(Self { out, blocks, next_record: HashMap::new(), records: 0 })
    }

    /// The usual first block: a process that starts at `started_tick`, and a clock whose ticks are nanoseconds.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn start(&mut self, started_tick: u64) -> io::Result<()> {
        let process = Process {
            pid: 4242,
            parent_pid: 1,
            executable: b"/usr/bin/program".to_vec(),
            arguments: vec![b"program".to_vec()],
            directory: b"/".to_vec(),
            started_unix_ns: 1_700_000_000_000_000_000,
            started_tick,
            page_bytes: 4096,
            recorder: "0.1.0".into(),
            options: Vec::new(),
            forked_from: None,
        };
        let clock =
            Clock { source: ClockSource::Monotonic, shift: 0, millihertz: 1_000_000_000_000, note: "written".into() };
        self.meta(&[Meta::Process(process), Meta::Clock(clock)])
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.blocks.length()
    }

    /// Number that the next record of a thread will have.
    pub fn next_record(&self, thread: u32) -> u64 {
        self.next_record.get(&thread).copied().unwrap_or(0)
    }

    /// Pretends that records of a thread were written, as if their block were lost.
    pub fn skip_records(&mut self, thread: u32, count: u64) {
        *self.next_record.entry(thread).or_default() += count;
        self.records += count;
    }

    /// A block of metadata.
    ///
    /// # Errors
    /// When `out` refuses or a record is too large.
    pub fn meta(&mut self, records: &[Meta]) -> io::Result<()> {
        self.blocks.meta(records).map_err(malformed)?;
        self.out.write_all(self.blocks.bytes())
    }

    /// A block of nodes; the first of all has id 1.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn nodes(&mut self, list: &[Node]) -> io::Result<()> {
        self.blocks.nodes(list);
        self.out.write_all(self.blocks.bytes())
    }

    /// A block of one thread's events; an empty one is left out.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn events(&mut self, thread: u32, columns: &RecordColumns) -> io::Result<()> {
        if !self.blocks.events(thread, self.next_record(thread), columns) {
            return Ok(());
        }
        self.skip_records(thread, columns.len() as u64);
        self.out.write_all(self.blocks.bytes())
    }

    /// The end block, with totals and directory.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn end(&mut self, reason: EndReason, tick: u64) -> io::Result<()> {
        let statistics = Statistics { tick, records: self.records, ..Statistics::default() };
        self.blocks.end(reason, statistics).map_err(malformed)?;
        self.out.write_all(self.blocks.bytes())
    }

    /// What has been written to.
    ///
    /// # Errors
    /// When the last bytes cannot be written.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}
