//! The end of a recording whose process was killed: what its side file has beyond the file, as ordinary blocks, and an
//! end block. With these the recording is one file, and later stages need not read side files.

use std::path::Path;

use anyhow::{Context, Result};
use tracehound_format::block::{BlockHeader, BlockKind, compress_lz4};
use tracehound_format::columns::{Encoder, RecordColumns};
use tracehound_format::live::Ending;
use tracehound_format::meta::{self, Directory, End, EndReason, GaveUp, Meta, Statistics};
use tracehound_format::nodes::{self, Node};
use tracehound_ingest::intake::no_room;
use tracehound_ingest::side_file::SideFile;

use crate::blocks::Placed;

/// Nodes of a block.
const NODES: usize = 1 << 15;

/// Blocks to be put behind the last whole block of the recording at `path`; none without a side file of it. The same
/// bytes for the same files, so that a collector that was stopped may do it again.
///
/// # Errors
/// When the side file cannot be read.
pub fn of_killed(path: &Path, id: [u8; 16], last: Option<Placed>) -> Result<Vec<u8>> {
    let Some(side) = SideFile::open(path, id) else { return Ok(Vec::new()) };
    let mut out = TailBlocks { bytes: Vec::new(), number: last.map_or(0, |last| last.number + 1) };
    let mut batch: (u32, Vec<Node>) = (0, Vec::new());
    // Those that the file has are the same; readers take a node twice.
    side.nodes(1, |id, node| {
        if !batch.1.is_empty() && (batch.0 + batch.1.len() as u32 != id || batch.1.len() == NODES) {
            out.nodes(batch.0, &batch.1);
            batch.1.clear();
        }
        if batch.1.is_empty() {
            batch.0 = id;
        }
        batch.1.push(node);
    })
    .context("cannot read the side file")?;
    out.nodes(batch.0, &batch.1);
    let mut last_tick = last.map_or(0, |last| last.last_tick);
    let mut encoder = Encoder::new();
    for rest in side.rest().context("cannot read the side file")? {
        last_tick = last_tick.max(rest.columns.ticks.iter().copied().max().unwrap_or(0));
        out.events(rest.thread, rest.first_record, &rest.columns, &mut encoder);
    }
    let (ending, tick, waited_ns) = side.header.ending;
    let (reason, what) = match ending {
        Ending::None => (EndReason::Killed, ""),
        Ending::Exit => (EndReason::Exit, "exit-writer"),
        Ending::Exec => (EndReason::Exec, "exec-writer"),
        Ending::Stopped => (EndReason::Stopped, "stopped-writer"),
        Ending::NoRoom => (EndReason::DiskFull, ""),
    };
    let mut metas = Vec::new();
    if ending == Ending::NoRoom {
        metas.push(Meta::Remark(no_room(tick)));
    } else if !what.is_empty() {
        metas.push(Meta::GaveUp(GaveUp { tick, what: what.into(), waited_ns, ..GaveUp::default() }));
    }
    if !metas.is_empty() {
        last_tick = last_tick.max(tick);
        out.metas(BlockKind::Meta, last_tick, &metas)?;
        metas.clear();
    }
    // Records after a stop for want of room are left out: other threads' are in no record.
    let end_tick = if ending == Ending::NoRoom { tick } else { last_tick };
    metas.push(Meta::End(End { reason, tick: end_tick, statistics: Statistics::default(), error: None }));
    metas.push(Meta::Directory(Directory { offsets: Vec::new() }));
    out.metas(BlockKind::End, last_tick, &metas)?;
    Ok(out.bytes)
}

struct TailBlocks {
    bytes: Vec<u8>,
    number: u32,
}

impl TailBlocks {
    fn put(&mut self, kind: BlockKind, thread: u32, first_record: u64, ticks: (u64, u64), count: usize, raw: &[u8]) {
        let mut stored = Vec::new();
        let codec = compress_lz4(raw, &mut stored);
        let header = BlockHeader {
            kind,
            codec,
            thread,
            block_number: self.number,
            first_record,
            first_tick: ticks.0,
            last_tick: ticks.1,
            count: count as u32,
            raw_len: raw.len() as u32,
            stored_len: stored.len() as u32,
            payload_crc: crc32fast::hash(&stored),
        };
        self.number += 1;
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(&stored);
    }

    fn nodes(&mut self, first: u32, list: &[Node]) {
        if list.is_empty() {
            return;
        }
        let mut raw = Vec::new();
        nodes::encode(first, list, &mut raw);
        self.put(BlockKind::Nodes, 0, first.into(), (0, 0), list.len(), &raw);
    }

    fn events(&mut self, thread: u32, first_record: u64, columns: &RecordColumns, encoder: &mut Encoder) {
        if columns.is_empty() {
            return;
        }
        let ticks =
            (columns.ticks.iter().copied().min().unwrap_or(0), columns.ticks.iter().copied().max().unwrap_or(0));
        let mut raw = Vec::new();
        encoder.encode(columns, ticks.0, &mut raw);
        self.put(BlockKind::Events, thread, first_record, ticks, columns.len(), &raw);
    }

    fn metas(&mut self, kind: BlockKind, tick: u64, metas: &[Meta]) -> Result<()> {
        let mut raw = Vec::new();
        for meta in metas {
            meta::encode(meta, &mut raw)?;
        }
        self.put(kind, 0, 0, (tick, tick), metas.len(), &raw);
        Ok(())
    }
}
