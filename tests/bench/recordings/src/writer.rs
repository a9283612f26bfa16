//! Writes a recording block by block.

use std::collections::HashMap;
use std::io::{self, Write};

use tracehound_format::block::{BlockHeader, BlockKind, Codec, compress_lz4};
use tracehound_format::columns::{Encoder, RecordColumns};
use tracehound_format::header::FileHeader;
use tracehound_format::meta::{self, Clock, ClockSource, Directory, End, EndReason, Meta, Process, Statistics};
use tracehound_format::nodes::{self, Node};

/// Puts blocks into a file. What it is given is written as it is: it also makes recordings that no recorder would.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    at: u64,
    block_number: u32,
    offsets: Vec<u64>,
    next_record: HashMap<u32, u64>,
    next_node: u32,
    records: u64,
    /// Compress payloads with LZ4.
    pub compress: bool,
    encoder: Encoder,
    raw: Vec<u8>,
    stored: Vec<u8>,
}

fn malformed(error: tracehound_format::FormatError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl<W: Write> Writer<W> {
    /// Starts a recording with its header.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn new(mut out: W, recording_id: [u8; 16]) -> io::Result<Self> {
        out.write_all(&FileHeader::new(recording_id).encode())?;
        Ok(Self {
            out,
            at: FileHeader::LEN as u64,
            block_number: 0,
            offsets: Vec::new(),
            next_record: HashMap::new(),
            next_node: 1,
            records: 0,
            compress: true,
            encoder: Encoder::new(),
            raw: Vec::new(),
            stored: Vec::new(),
        })
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
        self.at
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
        self.raw.clear();
        for record in records {
            meta::encode(record, &mut self.raw).map_err(malformed)?;
        }
        self.block(BlockKind::Meta, 0, 0, (0, 0), records.len() as u32)
    }

    /// A block of nodes; the first of all has id 1.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn nodes(&mut self, list: &[Node]) -> io::Result<()> {
        self.raw.clear();
        let first = self.next_node;
        nodes::encode(first, list, &mut self.raw);
        self.next_node += list.len() as u32;
        self.block(BlockKind::Nodes, 0, u64::from(first), (0, 0), list.len() as u32)
    }

    /// A block of one thread's events; an empty one is left out.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn events(&mut self, thread: u32, columns: &RecordColumns) -> io::Result<()> {
        let (Some(first), Some(last)) = (columns.ticks.iter().min(), columns.ticks.iter().max()) else {
            return Ok(());
        };
        let (first, last, count) = (*first, *last, columns.len() as u32);
        self.raw.clear();
        self.encoder.encode(columns, first, &mut self.raw);
        let first_record = self.next_record(thread);
        self.skip_records(thread, u64::from(count));
        self.block(BlockKind::Events, thread, first_record, (first, last), count)
    }

    /// The end block, with totals and directory.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn end(&mut self, reason: EndReason, tick: u64) -> io::Result<()> {
        let statistics = Statistics { tick, records: self.records, ..Statistics::default() };
        let end = End { reason, tick, statistics, error: None };
        let mut last = 0;
        let offsets = self.offsets.iter().map(|&o| o - std::mem::replace(&mut last, o)).collect();
        self.raw.clear();
        for record in [Meta::End(end), Meta::Directory(Directory { offsets })] {
            meta::encode(&record, &mut self.raw).map_err(malformed)?;
        }
        self.block(BlockKind::End, 0, 0, (0, 0), 2)
    }

    /// What has been written to.
    ///
    /// # Errors
    /// When the last bytes cannot be written.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn block(
        &mut self,
        kind: BlockKind,
        thread: u32,
        first_record: u64,
        ticks: (u64, u64),
        count: u32,
    ) -> io::Result<()> {
        let codec = if self.compress {
            compress_lz4(&self.raw, &mut self.stored)
        } else {
            self.stored.clone_from(&self.raw);
            Codec::None
        };
        let header = BlockHeader {
            kind,
            codec,
            thread,
            block_number: self.block_number,
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
        self.block_number += 1;
        Ok(())
    }
}
