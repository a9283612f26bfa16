//! valgrind's massif format: `ms_print` and massif-visualizer open it.
//!
//! ```text
//! desc: … cmd: … time_unit: …                 then for every snapshot
//! snapshot=N time=T mem_heap_B=B …            live bytes at a moment, exact; T in ms or, of short ones, allocated bytes
//! heap_tree=empty | detailed | peak           who has them:
//! n2: 3000 (heap allocation functions)        children, bytes; allocating functions first, callers inside
//!  n0: 2000 0x401136: parse (a.c:12)
//!  n0: 1000 in 3 places, all below the threshold (1.00%)
//! ```
//! Snapshots are equally spaced; every tenth has a tree, and one more is at the peak.

use std::collections::HashMap;
use std::io::Write;

use tracehound_index::Position;
use tracehound_index::symbols::SymbolFrame;
use tracehound_query::amounts::{SumKey, SumQuery};
use tracehound_query::timeline;

use super::events::{one_line, select};
use super::samples::{display_name, resolve_all};
use super::{ExportInput, ExportScope, Result};

/// Equally spaced snapshots; the peak is one more.
const SNAPSHOTS: u64 = 60;
/// Every so many of them has a tree.
const DETAILED: u64 = 10;
/// Callers with less than this part of a snapshot are added up.
const THRESHOLD: f64 = 0.01;
/// Deepest callers shown; massif's own default.
const DEPTH: usize = 30;

/// Writes snapshots of what is live over the scope's window.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(source: ExportInput<'_>, scope: &ExportScope, out: &mut dyn Write) -> Result<()> {
    resolve_all(source)?;
    let trace = source.trace;
    let selection = select(source, scope, source.cancel)?;
    let window = scope.window.resolve(trace, &selection, source.cancel)?;
    let process = trace.facts().process.as_ref();
    let command = process.map_or_else(Vec::new, |process| process.arguments.join(&b' '));
    let command = String::from_utf8_lossy(&command).into_owned();
    let length = window.to_ns - window.from_ns;
    // `ms_print` knows milliseconds and allocated bytes: the finer one for short recordings.
    let in_ms = length >= 200_000_000;
    let unit = if in_ms { "ms" } else { "B" };
    let allocated_before = trace.state_at(window.span.from).allocated;
    writeln!(out, "desc: heaptrace {}, every allocation", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "cmd: {}\ntime_unit: {unit}", plain(&command))?;

    let moment = |i: u64| {
        let t_ns = window.from_ns + (u128::from(length) * u128::from(i) / u128::from(SNAPSHOTS)) as u64;
        let place = match i {
            0 => window.span.from,
            SNAPSHOTS => window.span.to,
            _ => trace.position_before(t_ns),
        };
        (t_ns, place, if i > 0 && i.is_multiple_of(DETAILED) { "detailed" } else { "empty" })
    };
    let mut snapshots: Vec<(u64, Position, &str)> = (0..=SNAPSHOTS).map(moment).collect();
    let peak = timeline::peak::find(trace, &selection, window.span, window.from_ns, source.cancel)?;
    if peak.bytes > 0 {
        let at = snapshots.partition_point(|&(_, place, _)| place.events() < peak.place.events());
        snapshots.insert(at, (peak.at_ns.clamp(window.from_ns, window.to_ns), peak.place, "peak"));
    }

    let question = SumQuery { trace, selection: &selection, key: SumKey::Site, cancel: source.cancel };
    for (number, (t_ns, place, detail)) in snapshots.into_iter().enumerate() {
        let sites = question.live_at(place)?;
        let total: i64 = sites.iter().map(|sum| sum.bytes).sum();
        writeln!(out, "#-----------\nsnapshot={number}\n#-----------")?;
        let time = if in_ms {
            (t_ns - window.from_ns) / 1_000_000
        } else {
            trace.state_at(place).allocated.saturating_sub(allocated_before)
        };
        writeln!(out, "time={time}\nmem_heap_B={}", total.max(0))?;
        writeln!(out, "mem_heap_extra_B=0\nmem_stacks_B=0\nheap_tree={detail}")?;
        if detail != "empty" {
            let sites = (0_u32..).zip(sites).filter(|(_, sum)| sum.bytes > 0);
            let of_node = sites.map(|(site, sum)| (trace.site_node(site).unwrap_or(0), sum.bytes.cast_unsigned()));
            tree(source, of_node.collect(), out)?;
        }
    }
    Ok(())
}

/// A frame, and one of the return addresses that it stands for.
type FrameAddress = (SymbolFrame, u64);

/// What backtraces that begin alike have in common.
struct Branch {
    /// Frames from the allocating function up to here.
    depth: usize,
    text: String,
    bytes: u64,
    /// Backtraces, and their bytes.
    stacks: Vec<(usize, u64)>,
}

/// Writes who has the bytes of `nodes`. Branches that are too small are one line at their parent's.
fn tree(source: ExportInput<'_>, nodes: Vec<(u32, u64)>, out: &mut dyn Write) -> Result<()> {
    let total: u64 = nodes.iter().map(|(_, bytes)| bytes).sum();
    let least = ((total as f64 * THRESHOLD) as u64).max(1);
    let mut stacks: Vec<Vec<FrameAddress>> = Vec::with_capacity(nodes.len());
    let mut all = Vec::with_capacity(nodes.len());
    for (node, bytes) in nodes {
        all.push((stacks.len(), bytes));
        stacks.push(places(source, node));
    }
    let text = "(heap allocation functions) malloc/new/new[], --alloc-fns, etc.".into();
    let mut waiting = vec![Branch { depth: 0, text, bytes: total, stacks: all }];
    while let Some(branch) = waiting.pop() {
        source.cancel.check()?;
        let indent = " ".repeat(branch.depth);
        if branch.stacks.is_empty() {
            writeln!(out, "{indent}n0: {} {}", branch.bytes, branch.text)?;
            continue;
        }
        let mut callers: HashMap<SymbolFrame, Branch> = HashMap::new();
        for (stack, bytes) in branch.stacks {
            // A backtrace that ends here has no caller.
            let Some(&(frame, pc)) = stacks[stack].get(branch.depth) else { continue };
            let caller = callers.entry(frame).or_insert_with(|| Branch {
                depth: branch.depth + 1,
                text: describe(source, &frame, pc),
                bytes: 0,
                stacks: Vec::new(),
            });
            caller.bytes += bytes;
            caller.stacks.push((stack, bytes));
        }
        let (mut shown, mut small): (Vec<_>, Vec<_>) =
            callers.into_iter().partition(|(_, caller)| caller.bytes >= least);
        if small.len() == 1 {
            // A line for it alone would be no shorter.
            shown.append(&mut small);
        }
        shown.sort_by_key(|(frame, caller)| (caller.bytes, std::cmp::Reverse((frame.function, frame.line))));
        let children = shown.len() + usize::from(!small.is_empty());
        writeln!(out, "{indent}n{children}: {} {}", branch.bytes, branch.text)?;
        if !small.is_empty() {
            let bytes = small.iter().map(|(_, caller)| caller.bytes).sum();
            let percent = THRESHOLD * 100.0;
            let text = format!("in {} places, all below the threshold ({percent:.2}%)", small.len());
            // Behind the others: what waits is taken from the end.
            waiting.push(Branch { depth: branch.depth + 1, text, bytes, stacks: Vec::new() });
        }
        for (_, mut caller) in shown {
            if stacks_end(&caller, &stacks) {
                caller.stacks.clear();
            }
            waiting.push(caller);
        }
    }
    Ok(())
}

/// Whether none of a branch's backtraces goes further up.
fn stacks_end(branch: &Branch, stacks: &[Vec<FrameAddress>]) -> bool {
    branch.stacks.iter().all(|&(stack, _)| stacks[stack].len() <= branch.depth)
}

/// The innermost frames of a backtrace, as far as they are shown.
fn places(source: ExportInput<'_>, node: u32) -> Vec<FrameAddress> {
    let trace = source.trace;
    let (mut places, mut levels) = (Vec::new(), Vec::new());
    for location in trace.shown_stack(source.symbols, node).filter_map(|node| trace.node_location(node)) {
        levels.clear();
        source.symbols.frames(trace, location, &mut levels);
        let pc = trace.location(location).pc;
        places.extend(levels.iter().map(|&level| (level, pc)));
        if places.len() >= DEPTH {
            break;
        }
    }
    places.truncate(DEPTH);
    places
}

fn describe(source: ExportInput<'_>, frame: &SymbolFrame, pc: u64) -> String {
    let name = display_name(source, frame.function);
    let file = frame.file.map(|file| source.symbols.file(file));
    let place = match (file, frame.line) {
        (Some(file), Some(line)) => format!(" ({file}:{line})"),
        (Some(file), None) => format!(" ({file})"),
        (None, _) => String::new(),
    };
    plain(&format!("{pc:#x}: {name}{place}"))
}

/// On one line, and without the sign at which `ms_print` begins a comment wherever it is.
fn plain(text: &str) -> String {
    one_line(text).replace('#', "\u{ff03}")
}
