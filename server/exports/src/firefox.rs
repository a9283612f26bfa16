//! Firefox Profiler's processed format: <https://profiler.firefox.com> opens it.
//!
//! ```text
//! threads   one for each way of adding up: what was allocated (over time), what lived at the peak, what lived at the end;
//!           a "sample" is a backtrace whose weight is bytes
//! counter   live bytes over time
//! markers   the recording's marks
//! ```
//! The format wants whole arrays, one after the other, so what is allocated over time is added up in columns; there are
//! as many as keep the arrays small whatever the recording's length. A column is added up again for each array: adding
//! up is quick, and one column in memory is all there ever is.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::json;
use tracehound_api::Metric;
use tracehound_api::timeline::SeriesName;
use tracehound_index::Span;
use tracehound_index::symbols::{FileId, FunctionId, SymbolFrame};
use tracehound_query::amounts::{SumKey, SumQuery};
use tracehound_query::filter::Selection;
use tracehound_query::window::Resolved;
use tracehound_query::{Window, timeline};

use super::events::select;
use super::samples::{display_name, frames, resolve_all};
use super::{ExportInput, ExportScope, Result};

/// Version of the format: the profiler brings older ones up to date.
const VERSION: u32 = 55;
/// Most pairs of column and backtrace.
const MOST_SAMPLES: usize = 1 << 21;
/// Points of the time series.
const POINTS: usize = 1000;

/// One way of adding up.
struct View<'a> {
    title: &'static str,
    question: SumQuery<'a>,
    metric: Metric,
    /// Moments, and the windows that end there.
    columns: Vec<(u64, Resolved)>,
}

impl View<'_> {
    /// Moment, site and bytes of each sample, column by column.
    fn each(&self, mut sample: impl FnMut(u64, u32, i64) -> io::Result<()>) -> Result<()> {
        for (t_ns, window) in &self.columns {
            let sums = self.question.metric(self.metric, window)?;
            for (site, sum) in (0_u32..).zip(sums).filter(|(_, sum)| sum.bytes > 0) {
                sample(*t_ns, site, sum.bytes)?;
            }
        }
        Ok(())
    }

    /// Writes one value of each sample as an array.
    fn array<T: std::fmt::Display>(&self, out: &mut dyn Write, value: impl Fn(u64, u32, i64) -> T) -> Result<()> {
        out.write_all(b"[")?;
        let mut is_first = true;
        self.each(|t_ns, site, bytes| {
            if !std::mem::take(&mut is_first) {
                out.write_all(b",")?;
            }
            write!(out, "{}", value(t_ns, site, bytes))
        })?;
        Ok(out.write_all(b"]")?)
    }
}

/// Writes the profile.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(source: ExportInput<'_>, scope: &ExportScope, out: &mut dyn Write) -> Result<()> {
    resolve_all(source)?;
    let trace = source.trace;
    let selection = select(source, scope, source.cancel)?;
    let window = scope.window.resolve(trace, &selection, source.cancel)?;
    let process = trace.facts().process.as_ref();
    let name = process.map_or_else(String::new, |process| String::from_utf8_lossy(&process.executable).into_owned());
    let pid = process.map_or(0, |process| process.pid);
    let started_ms = process.map_or(0.0, |process| process.started_unix_ns as f64 / 1e6);
    let length_ms = ms(window.to_ns);
    let meta = json!({
        "version": 24, "preprocessedProfileVersion": VERSION, "processType": 0, "product": name,
        "startTime": started_ms, "interval": (length_ms / POINTS as f64).max(0.001), "debug": false,
        "symbolicated": true, "sourceCodeIsNotOnSearchfox": true, "usesOnlyOneStackType": true, "pausedRanges": [],
        "importedFrom": concat!("heaptrace ", env!("CARGO_PKG_VERSION")),
        "extensions": {"baseURL": [], "id": [], "length": 0, "name": []},
        "categories": [{"name": "Other", "color": "grey", "subcategories": ["Other"]},
                       {"name": "Inlined", "color": "lightblue", "subcategories": ["Other"]}],
        "sampleUnits": {"eventDelay": "ms", "threadCPUDelta": "µs", "time": "ms"},
        "markerSchema": [{"name": "heaptrace-mark", "display": ["marker-chart", "marker-table", "timeline-overview"],
                          "chartLabel": "{marker.data.label}", "tableLabel": "{marker.data.label}",
                          "fields": [{"key": "label", "label": "Label", "format": "string"}]}],
    });
    write!(out, r#"{{"meta":{meta},"libs":[],"pages":[],"profilerOverhead":[],"threads":["#)?;
    for (i, view) in views(source, scope, &window, &selection)?.into_iter().enumerate() {
        if i > 0 {
            out.write_all(b",\n")?;
        }
        thread(source, &view, (i, pid, &name), out)?;
    }
    out.write_all(b"],\"counters\":[")?;
    let params = timeline::TimelineParams {
        series: vec![SeriesName::LiveBytes],
        window: scope.window.clone(),
        filter: scope.filter.clone(),
        points: POINTS,
    };
    let curve = timeline::run(trace, source.symbols, &params, source.cancel)?;
    let values = curve.series.first().map(|series| series.max.as_slice()).unwrap_or_default();
    // A counter is a list of changes.
    let mut last = 0;
    let mut changes = Vec::with_capacity(values.len());
    for value in values {
        let value = value.unwrap_or(0.0) as i64;
        changes.push(value - last);
        last = value;
    }
    let times: Vec<f64> = curve.t_ns.iter().map(|&t_ns| ms(t_ns)).collect();
    let counter = json!({
        "name": "malloc", "category": "Memory", "description": "Live bytes", "pid": pid.to_string(),
        "mainThreadIndex": 0,
        "samples": {"length": changes.len(), "time": times, "count": changes},
    });
    writeln!(out, "{counter}]}}")?;
    Ok(())
}

/// The ways of adding up.
fn views<'a>(
    source: ExportInput<'a>,
    scope: &ExportScope,
    window: &Resolved,
    selection: &'a Selection,
) -> Result<[View<'a>; 3]> {
    let trace = source.trace;
    let question = || SumQuery { trace, selection, key: SumKey::Site, cancel: source.cancel };
    // Conditions on single blocks are looked up block by block, for every column.
    let most = if selection.is_about_origins() { 256 } else { 32 };
    let columns = (MOST_SAMPLES / (trace.site_count() as usize).max(1)).clamp(1, most) as u64;
    let length = window.to_ns - window.from_ns;
    let mut allocated = Vec::new();
    let mut from = window.span.from;
    for i in 1..=columns {
        let t_ns = window.from_ns + (u128::from(length) * u128::from(i) / u128::from(columns)) as u64;
        let to = if i == columns { window.span.to } else { trace.position_before(t_ns) };
        allocated.push((t_ns, Resolved { span: Span { from, to }, ..*window }));
        from = to;
    }
    let peak = Window { at: None, ..scope.window.clone() }.resolve(trace, selection, source.cancel)?;
    let peak_ns = question().moment(Metric::Peak, &peak)?.map_or(window.to_ns, |moment| moment.ns);
    let view = |title, metric, columns| View { title, question: question(), metric, columns };
    Ok([
        view("allocated", Metric::Allocated, allocated),
        view("live at the peak", Metric::Peak, vec![(peak_ns, peak)]),
        view("live at the end", Metric::Live, vec![(window.to_ns, *window)]),
    ])
}

/// Tables of a thread being put together.
#[derive(Default)]
struct ThreadTables {
    strings: Vec<String>,
    string_ids: HashMap<String, usize>,
    /// Name, file, line of the declaration.
    functions: Vec<(usize, Option<usize>, Option<u32>)>,
    /// By the file of its calls, too: a line counts in the file of its function.
    function_ids: HashMap<(FunctionId, Option<FileId>), usize>,
    /// Function, line, inlined.
    frames: Vec<(usize, Option<u32>, bool)>,
    frame_ids: HashMap<SymbolFrame, usize>,
    /// Caller and frame.
    stacks: Vec<(Option<usize>, usize)>,
    stack_ids: HashMap<(Option<usize>, usize), usize>,
}

impl ThreadTables {
    fn string(&mut self, text: &str) -> usize {
        if let Some(&id) = self.string_ids.get(text) {
            return id;
        }
        self.strings.push(text.to_owned());
        self.string_ids.insert(text.to_owned(), self.strings.len() - 1);
        self.strings.len() - 1
    }

    fn frame(&mut self, source: ExportInput<'_>, frame: SymbolFrame) -> usize {
        if let Some(&id) = self.frame_ids.get(&frame) {
            return id;
        }
        let key = (frame.function, frame.file);
        let function = match self.function_ids.get(&key) {
            Some(&id) => id,
            None => {
                let name = self.string(&display_name(source, frame.function));
                let file = frame.file.map(|file| self.string(&source.symbols.file(file)));
                let declared = source.symbols.function(frame.function);
                let line = declared.line.filter(|_| declared.file == frame.file);
                self.functions.push((name, file, line));
                self.function_ids.insert(key, self.functions.len() - 1);
                self.functions.len() - 1
            }
        };
        self.frames.push((function, frame.line, frame.inlined));
        self.frame_ids.insert(frame, self.frames.len() - 1);
        self.frames.len() - 1
    }

    /// The entry of a backtrace, whose frames come leaf first; `None` for an empty one.
    fn stack(&mut self, source: ExportInput<'_>, frames: &[SymbolFrame]) -> Option<usize> {
        let mut above = None;
        for &frame in frames.iter().rev() {
            let key = (above, self.frame(source, frame));
            let next = self.stacks.len();
            let id = *self.stack_ids.entry(key).or_insert(next);
            if id == next {
                self.stacks.push(key);
            }
            above = Some(id);
        }
        above
    }
}

fn thread(
    source: ExportInput<'_>,
    view: &View<'_>,
    (number, pid, process): (usize, u32, &str),
    out: &mut dyn Write,
) -> Result<()> {
    let mut tables = ThreadTables::default();
    let mut samples = 0_u64;
    let mut has = vec![false; source.trace.site_count() as usize];
    view.each(|_, site, _| {
        samples += 1;
        has.get_mut(site as usize).into_iter().for_each(|has| *has = true);
        Ok(())
    })?;
    let mut of_site: Vec<Option<usize>> = vec![None; has.len()];
    let mut stack = Vec::new();
    for ((site, entry), _) in (0_u32..).zip(&mut of_site).zip(has).filter(|(_, has)| *has) {
        source.cancel.check()?;
        frames(source, source.trace.site_node(site).unwrap_or(0), &mut stack);
        if stack.is_empty() {
            // The profiler leaves samples without a backtrace out of its sums.
            let name = tables.string("(no backtrace)");
            tables.functions.push((name, None, None));
            tables.frames.push((tables.functions.len() - 1, None, false));
            tables.stacks.push((None, tables.frames.len() - 1));
            *entry = Some(tables.stacks.len() - 1);
        } else {
            *entry = tables.stack(source, &stack);
        }
    }
    let marks: Vec<_> = if number == 0 { source.trace.marks().iter().collect() } else { Vec::new() };
    let mark = tables.string("mark");
    let head = json!({
        "name": view.title, "isMainThread": number == 0, "pid": pid.to_string(), "tid": format!("{pid}.{number}"),
        "processName": process, "processType": "default", "processStartupTime": 0, "processShutdownTime": null,
        "registerTime": 0, "unregisterTime": null, "pausedRanges": [], "showMarkersInTimeline": true,
        "nativeSymbols": {"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []},
        "resourceTable": {"length": 0, "lib": [], "name": [], "host": [], "type": []},
        "markers": {
            "length": marks.len(), "name": vec![mark; marks.len()], "category": vec![0; marks.len()],
            "phase": vec![0; marks.len()], "endTime": vec![json!(null); marks.len()],
            "startTime": marks.iter().map(|mark| ms(mark.t_ns)).collect::<Vec<_>>(),
            "data": marks.iter().map(|mark| json!({"type": "heaptrace-mark", "label": mark.label}))
                .collect::<Vec<_>>(),
        },
    })
    .to_string();
    // One object, in parts.
    out.write_all(head.strip_suffix('}').unwrap_or(&head).as_bytes())?;
    let t = &tables;
    write!(out, r#","stringArray":"#)?;
    serde_json::to_writer(&mut *out, &t.strings).map_err(io::Error::from)?;
    let functions = t.functions.len();
    write!(out, r#","funcTable":{{"length":{functions},"name":"#)?;
    array(out, t.functions.iter().map(|function| function.0))?;
    out.write_all(br#","fileName":"#)?;
    array(out, t.functions.iter().map(|function| OrNull(function.1)))?;
    for (field, value) in [("isJS", "false"), ("relevantForJS", "false"), ("resource", "-1"), ("columnNumber", "null")]
    {
        write!(out, r#","{field}":"#)?;
        array(out, std::iter::repeat_n(value, functions))?;
    }
    out.write_all(br#","lineNumber":"#)?;
    array(out, t.functions.iter().map(|function| OrNull(function.2)))?;
    let frames = t.frames.len();
    write!(out, r#"}},"frameTable":{{"length":{frames},"func":"#)?;
    array(out, t.frames.iter().map(|frame| frame.0))?;
    out.write_all(br#","line":"#)?;
    array(out, t.frames.iter().map(|frame| OrNull(frame.1)))?;
    out.write_all(br#","category":"#)?;
    array(out, t.frames.iter().map(|frame| u8::from(frame.2)))?;
    for (field, value) in [
        ("address", "-1"),
        ("inlineDepth", "0"),
        ("subcategory", "0"),
        ("nativeSymbol", "null"),
        ("innerWindowID", "0"),
        ("column", "null"),
    ] {
        write!(out, r#","{field}":"#)?;
        array(out, std::iter::repeat_n(value, frames))?;
    }
    write!(out, r#"}},"stackTable":{{"length":{},"prefix":"#, t.stacks.len())?;
    array(out, t.stacks.iter().map(|stack| OrNull(stack.0)))?;
    out.write_all(br#","frame":"#)?;
    array(out, t.stacks.iter().map(|stack| stack.1))?;
    write!(out, r#"}},"samples":{{"length":{samples},"weightType":"bytes","stack":"#)?;
    view.array(out, |_, site, _| OrNull(of_site.get(site as usize).copied().flatten()))?;
    out.write_all(br#","time":"#)?;
    view.array(out, |t_ns, _, _| ms(t_ns))?;
    out.write_all(br#","weight":"#)?;
    view.array(out, |_, _, bytes| bytes)?;
    out.write_all(b"}}")?;
    Ok(())
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// `null` for nothing.
struct OrNull<T>(Option<T>);

impl<T: std::fmt::Display> std::fmt::Display for OrNull<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("null"),
        }
    }
}

fn array(out: &mut dyn Write, items: impl Iterator<Item = impl std::fmt::Display>) -> io::Result<()> {
    out.write_all(b"[")?;
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.write_all(b",")?;
        }
        write!(out, "{item}")?;
    }
    out.write_all(b"]")
}
