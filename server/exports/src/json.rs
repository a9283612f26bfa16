//! `heaptrace.export/1`: a recording as one JSON document, for programs that want everything and no index.
//!
//! ```text
//! {"schema":"heaptrace.export/1",
//!  "info":{…}, "threads":[…], "modules":[…],
//!  "frames":[{"function":…,"file":…,"line":…,"module":…,"inlined":…,"address":…}],
//!  "stacks":[[frame, frame, …]],                                    leaf first; stack 0 is empty
//!  "allocation_fields":["address","size","born_ns","died_ns","thread","free_thread","stack","free_stack","function","previous"],
//!  "allocations":[[…], …]}                                           one list a block, in the order of allocation
//! ```
//! Only stacks that a block refers to are listed. A block that lives has null in place of its free.

use std::io::{self, Write};

use rustc_hash::FxHashMap as HashMap;
use serde_json::json;
use tracehound_format::record::Kind;
use tracehound_index::symbols::LocationId;
use tracehound_index::{BlockRow, Span, Trace};
use tracehound_query::filter::Selection;
use tracehound_query::stacks;

use super::digits::{put_decimal, put_hex};
use super::samples::{PlainFrame, resolve_all};
use super::{ExportInput, ExportScope, Result};

/// Blocks between two looks at the cancel flag.
const CHECK: u64 = 1 << 14;
/// Bytes that are handed on at once.
const FULL: usize = 1 << 15;

/// Writes the document. Of the scope the window counts: blocks allocated in it.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(source: ExportInput<'_>, scope: &ExportScope, out: &mut dyn Write) -> Result<()> {
    resolve_all(source)?;
    let trace = source.trace;
    let window = scope.window.resolve(trace, &Selection::all(), source.cancel)?;
    write!(out, r#"{{"schema":"heaptrace.export/1","info":"#)?;
    let info = tracehound_audit::info(trace, source.symbols);
    serde_json::to_writer(&mut *out, &info).map_err(io::Error::from)?;
    out.write_all(br#","threads":"#)?;
    let threads = trace.threads().iter().map(|thread| {
        json!({"id": thread.id, "os_thread": thread.os_thread, "name": thread.name,
               "started_ns": thread.started_ns, "ended_ns": thread.ended_ns})
    });
    list(out, threads)?;
    out.write_all(br#","modules":"#)?;
    let modules = trace.modules().iter().map(|module| {
        let build_id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        json!({"path": String::from_utf8_lossy(&module.path), "build_id": build_id,
               "loaded_ns": module.loaded_ns, "unloaded_ns": module.unloaded_ns})
    });
    list(out, modules)?;

    // Two passes over the blocks: the first finds the stacks that are used, the second writes the blocks.
    let span: Span = window.span;
    let mut stacks = StackIds::new(trace);
    for (i, block) in (0_u64..).zip(trace.blocks(span)) {
        if i.is_multiple_of(CHECK) {
            source.cancel.check()?;
        }
        stacks.admit(block.origin);
        if let Some((_, origin)) = block.free {
            stacks.admit(origin);
        }
    }
    let nodes = std::mem::take(&mut stacks.nodes);
    let first_frames = frames(source, &nodes, out)?;
    out.write_all(br#","stacks":["#)?;
    for (i, &node) in nodes.iter().enumerate() {
        out.write_all(if i > 0 { b",[" } else { b"[" })?;
        let mut first = true;
        for location in trace.shown_stack(source.symbols, node).filter_map(|node| trace.node_location(node)) {
            for frame in first_frames.get(&location).cloned().unwrap_or_default() {
                write!(out, "{}{frame}", if std::mem::take(&mut first) { "" } else { "," })?;
            }
        }
        out.write_all(b"]")?;
    }
    out.write_all(
        br#"],"allocation_fields":["address","size","born_ns","died_ns","thread","free_thread","stack","free_stack","function","previous"],"allocations":["#,
    )?;
    let mut lines = Vec::with_capacity(2 * FULL);
    for (i, block) in (0_u64..).zip(trace.blocks(span)) {
        if i.is_multiple_of(CHECK) {
            source.cancel.check()?;
        }
        lines.extend_from_slice(if i > 0 { b",\n[\"0x" } else { b"\n[\"0x" });
        put_block(trace, &block, &stacks, &mut lines);
        if lines.len() > FULL {
            out.write_all(&lines)?;
            lines.clear();
        }
    }
    out.write_all(&lines)?;
    out.write_all(b"\n]}\n")?;
    Ok(())
}

/// Numbers of the stacks that blocks refer to, in the order in which they are met.
struct StackIds<'a> {
    trace: &'a Trace,
    /// By origin, from 1; 0 = not met.
    of_origin: Vec<u32>,
    of_node: HashMap<u32, u32>,
    /// By number.
    nodes: Vec<u32>,
}

impl<'a> StackIds<'a> {
    fn new(trace: &'a Trace) -> Self {
        let of_origin = vec![0; trace.origin_count() as usize];
        Self { trace, of_origin, of_node: HashMap::from_iter([(0, 0)]), nodes: vec![0] }
    }

    fn admit(&mut self, origin: u32) {
        let Some(id) = self.of_origin.get_mut(origin as usize) else { return };
        if *id == 0 {
            let node = self.trace.origin(origin).node;
            let next = self.nodes.len() as u32;
            let number = *self.of_node.entry(node).or_insert(next);
            if number == next {
                self.nodes.push(node);
            }
            *id = number + 1;
        }
    }

    fn of(&self, origin: u32) -> u32 {
        self.of_origin.get(origin as usize).map_or(0, |id| id.saturating_sub(1))
    }
}

/// What follows `["0x`: a block's fields, and the bracket.
fn put_block(trace: &Trace, block: &BlockRow, stacks: &StackIds<'_>, out: &mut Vec<u8>) {
    let origin = trace.origin(block.origin);
    put_hex(out, block.address);
    out.extend_from_slice(b"\",");
    put_decimal(out, block.size);
    out.push(b',');
    put_decimal(out, block.born_ns);
    out.push(b',');
    match block.free {
        Some((died_ns, _)) => put_decimal(out, died_ns),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b',');
    put_decimal(out, trace.thread_id(origin.thread).into());
    out.push(b',');
    match block.free {
        Some((_, free)) => put_decimal(out, trace.thread_id(trace.origin(free).thread).into()),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b',');
    put_decimal(out, stacks.of(block.origin).into());
    out.push(b',');
    match block.free {
        Some((_, free)) => put_decimal(out, stacks.of(free).into()),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"");
    out.extend_from_slice(Kind::from_u8(origin.kind).map_or("unknown", Kind::function).as_bytes());
    out.extend_from_slice(b"\",");
    match block.previous {
        Some(previous) => put_decimal(out, previous),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b']');
}

/// Writes the frames of all locations in the stacks; returns the range of frames of each location.
fn frames(
    source: ExportInput<'_>,
    nodes: &[u32],
    out: &mut dyn Write,
) -> Result<HashMap<LocationId, std::ops::Range<u32>>> {
    let trace = source.trace;
    let mut ranges = HashMap::default();
    let mut levels = Vec::new();
    let mut count = 0;
    out.write_all(br#","frames":["#)?;
    for &node in nodes {
        for node in trace.shown_stack(source.symbols, node) {
            let Some(location) = trace.node_location(node) else { continue };
            if ranges.contains_key(&location) {
                continue;
            }
            let start = count;
            levels.clear();
            source.symbols.frames(trace, location, &mut levels);
            for level in &levels {
                let frame = stacks::frame(trace, source.symbols, level, trace.location(location).pc);
                out.write_all(if count > 0 { b",\n" } else { b"\n" })?;
                serde_json::to_writer(&mut *out, &PlainFrame::from(&frame)).map_err(io::Error::from)?;
                count += 1;
            }
            ranges.insert(location, start..count);
        }
    }
    out.write_all(b"]")?;
    Ok(ranges)
}

fn list(out: &mut dyn Write, items: impl Iterator<Item = serde_json::Value>) -> io::Result<()> {
    out.write_all(b"[")?;
    for (i, item) in items.enumerate() {
        write!(out, "{}{item}", if i > 0 { "," } else { "" })?;
    }
    out.write_all(b"]")
}
