//! `heaptrace.export/1`: a recording as one JSON document, for programs that want everything and no index.
//!
//! ```text
//! {"schema":"heaptrace.export/1",
//!  "info":{…}, "threads":[…], "modules":[…],
//!  "frames":[{"function":…,"file":…,"line":…,"module":…,"inlined":…,"address":…}],
//!  "stacks":[[frame, frame, …]],                                    leaf first; stack 0 is empty
//!  "allocation_fields":["address","size","born_ns","died_ns","thread","free_thread","stack","free_stack","function","previous"],
//!  "allocations":[[…], …]}                                           one list a block, in the order of birth
//! ```
//! Only stacks that a block refers to are listed. A block that lives has null in place of its death.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::json;
use tracehound_format::record::Kind;
use tracehound_server::query::stacks;
use tracehound_server::trace::symbols::LocationId;

use super::samples::resolve_all;
use super::{Result, Scope, Source};
use crate::audit;

/// Rows between two looks at the cancel flag.
const CHECK: u64 = 1 << 14;

/// Writes the document. Of the scope the window counts: blocks born in it.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(source: Source<'_>, scope: &Scope, out: &mut dyn Write) -> Result<()> {
    resolve_all(source)?;
    let trace = source.trace;
    let window = scope.window.resolve(trace)?;
    write!(out, r#"{{"schema":"heaptrace.export/1","info":"#)?;
    let info = audit::info(trace);
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

    // Two passes over the rows: the first finds the stacks that are used, the second writes the rows.
    let rows = window.span.from.births..window.span.to.births;
    let mut stack_ids: HashMap<u32, u32> = HashMap::from([(0, 0)]);
    let mut nodes = vec![0];
    for row in rows.clone() {
        if row.is_multiple_of(CHECK) {
            source.cancel.check()?;
        }
        let birth = trace.birth(row);
        for node in [birth.node, birth.death.map_or(0, |death| death.node)] {
            stack_ids.entry(node).or_insert_with(|| {
                nodes.push(node);
                nodes.len() as u32 - 1
            });
        }
    }
    let first_frames = frames(source, &nodes, out)?;
    out.write_all(br#","stacks":["#)?;
    for (i, &node) in nodes.iter().enumerate() {
        out.write_all(if i > 0 { b",[" } else { b"[" })?;
        let mut first = true;
        for location in trace.stack(node).filter_map(|node| trace.node_location(node)) {
            for frame in first_frames.get(&location).cloned().unwrap_or_default() {
                write!(out, "{}{frame}", if std::mem::take(&mut first) { "" } else { "," })?;
            }
        }
        out.write_all(b"]")?;
    }
    out.write_all(
        br#"],"allocation_fields":["address","size","born_ns","died_ns","thread","free_thread","stack","free_stack","function","previous"],"allocations":["#,
    )?;
    let first_row = rows.start;
    for row in rows {
        if row.is_multiple_of(CHECK) {
            source.cancel.check()?;
        }
        let birth = trace.birth(row);
        let comma = if row > first_row { ",\n" } else { "\n" };
        let function = Kind::from_u8(birth.kind).map_or("unknown", Kind::function);
        write!(out, r#"{comma}["{:#x}",{},{},"#, birth.address, birth.size, birth.born_ns)?;
        match birth.death {
            Some(death) => {
                write!(out, "{},{},{}", death.died_ns, trace.thread_id(birth.thread), trace.thread_id(death.thread))?
            }
            None => write!(out, "null,{},null", trace.thread_id(birth.thread))?,
        }
        write!(out, ",{},", stack_ids.get(&birth.node).copied().unwrap_or(0))?;
        match birth.death {
            Some(death) => write!(out, "{}", stack_ids.get(&death.node).copied().unwrap_or(0))?,
            None => out.write_all(b"null")?,
        }
        write!(out, r#","{function}","#)?;
        match birth.previous {
            Some(previous) => write!(out, "{previous}]")?,
            None => out.write_all(b"null]")?,
        }
    }
    out.write_all(b"\n]}\n")?;
    Ok(())
}

/// Writes the frames of all locations in the stacks; returns the range of frames of each location.
fn frames(source: Source<'_>, nodes: &[u32], out: &mut dyn Write) -> Result<HashMap<LocationId, std::ops::Range<u32>>> {
    let trace = source.trace;
    let mut ranges = HashMap::new();
    let mut levels = Vec::new();
    let mut count = 0;
    out.write_all(br#","frames":["#)?;
    for &node in nodes {
        for node in trace.stack(node) {
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
                serde_json::to_writer(&mut *out, &frame).map_err(io::Error::from)?;
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
