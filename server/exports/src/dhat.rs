//! DHAT's JSON, version 2: valgrind's `dh_view.html` opens it. Times are in microseconds.
//!
//! ```text
//! tb tbk tl   bytes, blocks and summed lifetimes of all blocks of a backtrace     mb mbk   at its own maximum
//! gb gbk      at the peak of all of them                                          eb ebk   at the end
//! fs          frames, leaf first, as positions in ftbl
//! ```
//! Accesses are not recorded, which the file says (`bkacc`).

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::json;
use tracehound_index::symbols::SymbolFrame;

use super::events::{each, select};
use super::samples::{display_name, frames, resolve_all};
use super::{ExportInput, ExportScope, Result};

/// Blocks that live no longer on average are called short-lived by the viewer, as dhat-rs has it.
const SHORT_US: u64 = 500;

/// One backtrace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Point {
    /// Bytes and blocks.
    total: (u64, u64),
    /// Of freed blocks.
    lifetimes_ns: u128,
    /// Times of allocation of those that live, added up.
    allocs_ns: u128,
    live: (u64, u64),
    largest: (u64, u64),
    at_peak: (u64, u64),
    /// It has changed since the last peak.
    changed: bool,
}

/// State of the pass over the events. A new peak touches only what has changed since the one before.
#[derive(Default)]
struct Points {
    of_site: Vec<Point>,
    changed: Vec<u32>,
    live: u64,
    peak: u64,
    peak_ns: u64,
}

impl Points {
    fn point(&mut self, site: u32) -> &mut Point {
        // Every block has a site; what had none would be added up behind them.
        let last = self.of_site.len() - 1;
        let point = &mut self.of_site[(site as usize).min(last)];
        if !std::mem::replace(&mut point.changed, true) {
            self.changed.push(site.min(last as u32));
        }
        point
    }

    fn free(&mut self, site: u32, size: u64, born_ns: u64, t_ns: u64) {
        self.live = self.live.saturating_sub(size);
        let point = self.point(site);
        point.live = (point.live.0.saturating_sub(size), point.live.1.saturating_sub(1));
        point.lifetimes_ns += u128::from(t_ns.saturating_sub(born_ns));
        point.allocs_ns = point.allocs_ns.saturating_sub(u128::from(born_ns));
    }

    fn allocate(&mut self, site: u32, size: u64, t_ns: u64) {
        self.live += size;
        let point = self.point(site);
        point.total = (point.total.0 + size, point.total.1 + 1);
        point.live = (point.live.0 + size, point.live.1 + 1);
        // The larger in bytes, as DHAT has it.
        if point.live.0 > point.largest.0 || point.largest.1 == 0 {
            point.largest = point.live;
        }
        point.allocs_ns += u128::from(t_ns);
        if self.live > self.peak {
            (self.peak, self.peak_ns) = (self.live, t_ns);
            for site in self.changed.drain(..) {
                if let Some(point) = self.of_site.get_mut(site as usize) {
                    point.at_peak = point.live;
                    point.changed = false;
                }
            }
        }
    }
}

/// Writes the blocks that were allocated in the scope's window; what is live is what of them is.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(source: ExportInput<'_>, scope: &ExportScope, out: &mut dyn Write) -> Result<()> {
    resolve_all(source)?;
    let trace = source.trace;
    let selection = select(source, scope, source.cancel)?;
    let window = scope.window.resolve(trace, &selection, source.cancel)?;
    let of_site = vec![Point::default(); trace.site_count() as usize + 1];
    let mut points = Points { of_site, peak_ns: window.from_ns, ..Points::default() };
    each(source, scope, |step| {
        if step.allocated {
            points.allocate(step.site, step.size, step.t_ns);
        } else {
            points.free(step.site, step.size, trace.born_ns(step.row), step.t_ns);
        }
        Ok(())
    })?;

    let process = trace.facts().process.as_ref();
    let command = process.map_or_else(Vec::new, |process| process.arguments.join(&b' '));
    let us = |ns: u64| ns.saturating_sub(window.from_ns) / 1000;
    write!(out, r#"{{"dhatFileVersion":2,"mode":"heap","verb":"Allocated","bklt":true,"bkacc":false,"#)?;
    write!(out, r#""tu":"µs","Mtu":"s","tuth":{SHORT_US},"cmd":{},"#, json!(String::from_utf8_lossy(&command)))?;
    let pid = process.map_or(0, |process| process.pid);
    write!(out, r#""pid":{pid},"te":{},"tg":{},"pps":["#, us(window.to_ns), us(points.peak_ns))?;

    // The viewer wants a first entry of this name.
    let mut table: Vec<String> = vec!["[root]".into()];
    let mut ids: HashMap<SymbolFrame, usize> = HashMap::new();
    let mut stack: Vec<SymbolFrame> = Vec::new();
    let seen = (0_u32..).zip(&points.of_site).filter(|(_, point)| point.total.1 > 0);
    for (i, (site, point)) in seen.enumerate() {
        source.cancel.check()?;
        frames(source, trace.site_node(site).unwrap_or(0), &mut stack);
        let mut indices: Vec<usize> = Vec::with_capacity(stack.len());
        for frame in &stack {
            let id = *ids.entry(*frame).or_insert_with(|| {
                table.push(text(source, frame));
                table.len() - 1
            });
            indices.push(id);
        }
        if indices.is_empty() {
            indices.push(0);
        }
        // What lives at the end has lived until then.
        let living = (u128::from(point.live.1) * u128::from(window.to_ns)).saturating_sub(point.allocs_ns);
        write!(out, "{}", if i > 0 { ",\n" } else { "\n" })?;
        let document = json!({
            "tb": point.total.0, "tbk": point.total.1, "tl": ((point.lifetimes_ns + living) / 1000) as u64,
            "mb": point.largest.0, "mbk": point.largest.1,
            "gb": point.at_peak.0, "gbk": point.at_peak.1,
            "eb": point.live.0, "ebk": point.live.1,
            "fs": indices,
        });
        serde_json::to_writer(&mut *out, &document).map_err(io::Error::from)?;
    }
    out.write_all(b"\n],\"ftbl\":")?;
    serde_json::to_writer(&mut *out, &table).map_err(io::Error::from)?;
    out.write_all(b"}\n")?;
    Ok(())
}

/// A frame as DHAT writes it: `0xADDRESS: function (file:line)`, the address aside, which the viewer leaves out, too.
fn text(source: ExportInput<'_>, frame: &SymbolFrame) -> String {
    let name = display_name(source, frame.function);
    let file = frame.file.map(|file| source.symbols.file(file));
    match (file, frame.line) {
        (Some(file), Some(line)) => format!("{name} ({file}:{line})"),
        (Some(file), None) => format!("{name} ({file})"),
        (None, _) => name,
    }
}
