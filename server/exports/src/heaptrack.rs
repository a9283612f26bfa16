//! heaptrack's own text format, version 3, as `heaptrack_interpret` writes it: `heaptrack_print` and the heaptrack GUI
//! read it. Numbers are hexadecimal, all tables count from 1.
//!
//! ```text
//! v 10400 3                  versions             i IP MODULE [FUNCTION FILE LINE]…   a place in the code, inlined first
//! X COMMAND                  the program          t PLACE PARENT                      a backtrace
//! I PAGE-BYTES PAGES         the machine          a SIZE BACKTRACE                    a kind of allocation
//! s LENGTH TEXT              a string             + KIND      - KIND                  a block is allocated, freed
//! c MILLISECONDS             time                 R PAGES                             resident set
//! ```

use std::io::Write;

use rustc_hash::FxHashMap as HashMap;
use tracehound_api::timeline::SeriesName;
use tracehound_index::symbols::SymbolFrame;
use tracehound_query::timeline;

use super::digits::put_hex;
use super::events::{HeapEvent, each, one_line, select};
use super::samples::resolve_all;
use super::{ExportInput, ExportScope, Result};

/// Columns of the resident set's time series that is carried over.
const SAMPLES: usize = 2000;
/// Bytes that are handed on at once.
const FULL: usize = 1 << 15;
/// Kinds of allocations that are known at once, about 32 bytes each: there may be as many as blocks.
const MOST_KINDS: usize = 1 << 19;

/// Writes all blocks that were allocated in the scope's window. heaptrack has no frees by backtrace and no threads.
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
    writeln!(out, "v 10400 3\nX {}", one_line(&String::from_utf8_lossy(&command)))?;
    let page = u64::from(process.map_or(4096, |process| process.page_bytes)).max(1);
    writeln!(out, "I {page:x} 0")?;
    // Readers take index 0 for "none": a kind that nothing refers to is there.
    writeln!(out, "a 0 0")?;

    let mut resident = resident(source, scope)?.into_iter().peekable();
    let mut tables = WrittenTables::new(source);
    let mut now = u64::MAX;
    let start = window.from_ns;
    let mut lines: Vec<u8> = Vec::with_capacity(2 * FULL);
    each(source, scope, |step| {
        while let Some((_, bytes)) = resident.next_if(|&(t_ns, _)| t_ns <= step.t_ns) {
            writeln!(lines, "R {:x}", bytes / page)?;
        }
        let ms = step.t_ns.saturating_sub(start) / 1_000_000;
        if ms != now {
            now = ms;
            writeln!(lines, "c {ms:x}")?;
        }
        let kind = tables.kind(&step, &mut lines)?;
        lines.extend_from_slice(if step.allocated { b"+ " } else { b"- " });
        put_hex(&mut lines, kind);
        lines.push(b'\n');
        if lines.len() > FULL {
            out.write_all(&lines)?;
            lines.clear();
        }
        Ok(())
    })?;
    writeln!(lines, "c {:x}", window.to_ns.saturating_sub(start) / 1_000_000)?;
    // heaptrack's own last lines: what lacks them is taken for cut.
    if source.trace.is_complete() {
        writeln!(lines, "\n# strings: {}\n# ips: {}", tables.strings.len(), tables.places.len())?;
    }
    out.write_all(&lines)?;
    Ok(())
}

/// The resident set over the window, without the recorder's part where that is known: time and bytes.
fn resident(source: ExportInput<'_>, scope: &ExportScope) -> Result<Vec<(u64, u64)>> {
    let params = timeline::TimelineParams {
        series: vec![SeriesName::Rss],
        window: scope.window.clone(),
        points: SAMPLES,
        ..timeline::TimelineParams::default()
    };
    let curve = timeline::run(source.trace, source.symbols, &params, source.cancel)?;
    let values = curve.series.first().map(|series| series.max.as_slice()).unwrap_or_default();
    Ok(curve.t_ns.iter().zip(values).filter_map(|(&t_ns, value)| Some((t_ns, (*value)? as u64))).collect())
}

/// Indices of the entries that were written already.
struct WrittenTables<'a> {
    source: ExportInput<'a>,
    strings: HashMap<String, usize>,
    places: HashMap<u32, usize>,
    /// By node; a node without a place has its parent's.
    traces: HashMap<u32, usize>,
    written: usize,
    kinds: HashMap<(u64, u32), u64>,
    /// Kinds written so far.
    last_kind: u64,
    /// By site: the size and the kind that came last.
    recent: Vec<(u64, u64)>,
}

impl<'a> WrittenTables<'a> {
    fn new(source: ExportInput<'a>) -> Self {
        let (strings, places, traces, kinds) =
            (HashMap::default(), HashMap::default(), HashMap::default(), HashMap::default());
        let recent = vec![(0, 0); source.trace.site_count() as usize];
        Self { source, strings, places, traces, written: 0, kinds, last_kind: 0, recent }
    }

    fn kind(&mut self, block: &HeapEvent, out: &mut Vec<u8>) -> Result<u64> {
        let recent = self.recent.get(block.site as usize);
        if let Some(&(_, kind)) = recent.filter(|(size, kind)| *size == block.size && *kind > 0) {
            return Ok(kind);
        }
        let key = (block.size, block.site);
        let kind = match self.kinds.get(&key) {
            Some(&known) => known,
            None => {
                if self.kinds.len() >= MOST_KINDS {
                    // A kind may be written twice: readers add up by backtrace and size.
                    self.kinds.clear();
                    self.recent.fill((0, 0));
                }
                let node = self.source.trace.site_node(block.site).unwrap_or(0);
                let trace = self.backtrace(node, out)?;
                writeln!(out, "a {:x} {trace:x}", block.size)?;
                self.last_kind += 1;
                self.kinds.insert(key, self.last_kind);
                self.last_kind
            }
        };
        if let Some(recent) = self.recent.get_mut(block.site as usize) {
            *recent = (block.size, kind);
        }
        Ok(kind)
    }

    /// Parents are written before their children; 0 is no backtrace.
    fn backtrace(&mut self, node: u32, out: &mut Vec<u8>) -> Result<usize> {
        let trace = self.source.trace;
        let unknown: Vec<u32> = trace.stack(node).take_while(|node| !self.traces.contains_key(node)).collect();
        for &node in unknown.iter().rev() {
            let parent = self.traces.get(&trace.nodes().parent(node)).copied().unwrap_or(0);
            let number = match trace.node_location(node) {
                Some(location) => {
                    let place = self.place(location, out)?;
                    writeln!(out, "t {place:x} {parent:x}")?;
                    self.written += 1;
                    self.written
                }
                None => parent,
            };
            self.traces.insert(node, number);
        }
        Ok(self.traces.get(&node).copied().unwrap_or(0))
    }

    fn place(&mut self, location: u32, out: &mut Vec<u8>) -> Result<usize> {
        if let Some(&known) = self.places.get(&location) {
            return Ok(known);
        }
        let trace = self.source.trace;
        let found = trace.location(location);
        let module = found.module.and_then(|position| trace.modules().get(position as usize));
        let module = module.map(|module| String::from_utf8_lossy(&module.path).into_owned());
        let mut levels: Vec<SymbolFrame> = Vec::new();
        self.source.symbols.frames(trace, location, &mut levels);
        let mut line = format!("i {:x} {:x}", found.pc.wrapping_sub(1), self.string(module.as_deref(), out)?);
        for level in levels {
            let function = self.source.symbols.function(level.function);
            let file = level.file.map(|file| self.source.symbols.file(file));
            // Without a name nothing follows: readers show the address.
            if function.name.is_none() && file.is_none() {
                continue;
            }
            let (name, file) = (self.string(function.name.as_deref(), out)?, self.string(file.as_deref(), out)?);
            line.push_str(&format!(" {name:x} {file:x} {:x}", level.line.unwrap_or(0)));
        }
        writeln!(out, "{line}")?;
        let number = self.places.len() + 1;
        self.places.insert(location, number);
        Ok(number)
    }

    fn string(&mut self, text: Option<&str>, out: &mut Vec<u8>) -> Result<usize> {
        let Some(text) = text else { return Ok(0) };
        if let Some(&known) = self.strings.get(text) {
            return Ok(known);
        }
        // Lines are what the format is made of.
        let shown = one_line(text);
        writeln!(out, "s {:x} {shown}", shown.len())?;
        let number = self.strings.len() + 1;
        self.strings.insert(text.to_owned(), number);
        Ok(number)
    }
}
