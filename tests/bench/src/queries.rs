//! Latencies of questions about random windows.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use tracehound_api::Metric;
use tracehound_api::timeline::SeriesName;
use tracehound_index::program::CodeKind;
use tracehound_index::symbols::{FileId, FunctionFacts, FunctionId, LocationId, RecordingSymbols, SymbolFrame};
use tracehound_index::{Cancel, Cancelled, Trace};
use tracehound_ingest::{OpenOptions, Recording};
use tracehound_query::{
    Filter, TimeExpr, Window, diff, flamegraph, functions, leaks, lifetimes, memory, sites, timeline,
};

/// Names that cost nothing, about eight addresses a function: what is measured is the index, not symbolisation.
struct Names;

impl RecordingSymbols for Names {
    fn identity(&self) -> u64 {
        1
    }

    fn resolve(&self, _: &Trace, _: &[LocationId], _: &Cancel) -> Result<(), Cancelled> {
        Ok(())
    }

    fn frames(&self, trace: &Trace, location: LocationId, out: &mut Vec<SymbolFrame>) {
        let function = (trace.location(location).pc / 192) as u32;
        out.push(SymbolFrame { function, file: None, line: None, inlined: false });
    }

    fn function(&self, id: FunctionId) -> FunctionFacts {
        let (name, fallback) = (Some(format!("function_{id}").into()), "".into());
        FunctionFacts {
            name,
            fallback,
            module: Some(0),
            file: None,
            line: None,
            kind: CodeKind::Program,
            language: None,
        }
    }

    fn file(&self, _: FileId) -> Arc<str> {
        "".into()
    }
}

/// Random windows: short and long ones alike.
fn windows(trace: &Trace, count: usize) -> Vec<Window> {
    let duration = trace.duration_ns() as f64;
    let mut state = 0x1234_5678_9abc_def0_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..count)
        .map(|_| {
            // Lengths from a ten-thousandth of the recording to all of it, evenly on a logarithmic scale.
            let length = duration * 10_f64.powf(-4.0 * random());
            let from = random() * (duration - length);
            let time = |t: f64| Some(TimeExpr::Ns(t as u64));
            Window { from: time(from), to: time(from + length), at: None }
        })
        .collect()
}

/// Seconds of processor time that this process has taken.
pub fn cpu_seconds() -> Result<f64> {
    // Fields 14 and 15 of `stat`, in ticks of a hundredth of a second, are too coarse; this is in nanoseconds.
    let mut nanoseconds = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        // A thread may have ended in between.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        nanoseconds += text.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(nanoseconds / 1e9)
}

fn quantiles(mut values: Vec<f64>) -> impl Fn(f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    move |part| values.get(((values.len() as f64 * part).ceil() as usize).max(1) - 1).copied()
}

/// Takes a file out of the page cache, as a restart of the machine does.
fn forget(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path)?;
    // What is not on the disk yet stays in memory.
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

/// Asks the first questions about a recording whose index is on the disk alone: each but the first finds what those
/// before it have brought into memory.
pub fn cold(file: &Path) -> Result<()> {
    forget(file)?;
    for entry in std::fs::read_dir(crate::measure::index_of(file))? {
        forget(&entry?.path())?;
    }
    let cancel = Cancel::new();
    let start = Instant::now();
    let milliseconds = || start.elapsed().as_secs_f64() * 1e3;
    let trace = Recording::open(file, OpenOptions::default())?.trace();
    let flame = |metric| flamegraph::FlamegraphParams { metric, ..flamegraph::FlamegraphParams::default() };
    flamegraph::run(&trace, &Names, &flame(Metric::Live), &cancel)?;
    let first = milliseconds();
    timeline::run(&trace, &Names, &timeline::TimelineParams::default(), &cancel)?;
    let curves = milliseconds();
    flamegraph::run(&trace, &Names, &flame(Metric::Leaked), &cancel)?;
    let leaked = milliseconds();
    let filter = Filter { min_size: Some(100), max_size: Some(4000), ..Filter::default() };
    let params = flamegraph::FlamegraphParams { filter, ..flame(Metric::Live) };
    flamegraph::run(&trace, &Names, &params, &cancel)?;
    println!(
        "{}",
        json!({
            "first_ms": first,
            "timeline_ms": curves - first,
            "leaked_ms": leaked - curves,
            "filtered_ms": milliseconds() - leaked,
        })
    );
    Ok(())
}

/// Asks about a recording that has an index, and prints latencies.
pub fn ask(file: &Path, count: usize) -> Result<()> {
    let cancel = Cancel::new();
    let start = Instant::now();
    let trace = Recording::open(file, OpenOptions::default())?.trace();
    let first = flamegraph::FlamegraphParams::default();
    flamegraph::run(&trace, &Names, &first, &cancel)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let windows = windows(&trace, count);
    let mut questions = Vec::new();
    let mut measure = |name: &str, ask: &dyn Fn(&Window) -> Result<()>| -> Result<()> {
        let (mut times, mut works) = (Vec::new(), Vec::new());
        for window in &windows {
            let (start, work) = (Instant::now(), cpu_seconds()?);
            ask(window)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            works.push((cpu_seconds()? - work) * 1e3);
        }
        let (at, work) = (quantiles(times), quantiles(works));
        questions.push(json!({
            "name": name, "p50_ms": at(0.5), "p95_ms": at(0.95), "max_ms": at(1.0), "cpu_p95_ms": work(0.95)
        }));
        Ok(())
    };
    let flame = |metric: Metric, filter: &Filter, inverted: bool, window: &Window| -> Result<()> {
        let filter = filter.clone();
        let params =
            flamegraph::FlamegraphParams { metric, filter, inverted, window: window.clone(), ..Default::default() };
        flamegraph::run(&trace, &Names, &params, &cancel)?;
        Ok(())
    };
    let all = Filter::default();
    let curves = |filter: &Filter, window: &Window| -> Result<()> {
        let series = vec![SeriesName::LiveBytes, SeriesName::AllocRate, SeriesName::Rss];
        let params =
            timeline::TimelineParams { series, window: window.clone(), filter: filter.clone(), ..Default::default() };
        timeline::run(&trace, &Names, &params, &cancel)?;
        Ok(())
    };
    let table = |filter: &Filter, window: &Window| -> Result<()> {
        let (window, filter) = (window.clone(), filter.clone());
        let params = functions::FunctionsParams { window, filter, limit: Some(200), ..Default::default() };
        functions::run(&trace, &Names, &params, &cancel)?;
        Ok(())
    };
    // Adding up what is left at the end happens once for each snapshot.
    flame(Metric::Leaked, &all, false, &Window::default())?;
    measure("timeline, 1000 columns", &|w| curves(&all, w))?;
    measure("flame graph, live", &|w| flame(Metric::Live, &all, false, w))?;
    measure("flame graph, peak of the window", &|w| flame(Metric::Peak, &all, false, w))?;
    measure("flame graph, allocated", &|w| flame(Metric::Allocated, &all, false, w))?;
    measure("flame graph, leaked", &|w| flame(Metric::Leaked, &all, false, w))?;
    measure("flame graph, temporary", &|w| flame(Metric::Temporary, &all, false, w))?;
    measure("flame graph, allocated, inverted", &|w| flame(Metric::Allocated, &all, true, w))?;
    measure("functions, live", &|w| table(&all, w))?;
    let thread = Filter { thread: Some("2".parse()?), ..Filter::default() };
    let size = Filter { min_size: Some(100), max_size: Some(4000), ..Filter::default() };
    let life = Filter { min_lifetime: Some(10_000), max_lifetime: Some(50_000_000), ..Filter::default() };
    let focus = Filter { focus: vec![Filter::regex("focus", "_1[0-9]*7$")?], ..Filter::default() };
    let filters = [("thread", &thread), ("size", &size), ("lifetime", &life), ("regular expression", &focus)];
    for (by, filter) in filters {
        measure(&format!("by {by}: timeline"), &|w| curves(filter, w))?;
        measure(&format!("by {by}: flame graph, live"), &|w| flame(Metric::Live, filter, false, w))?;
        measure(&format!("by {by}: flame graph, allocated"), &|w| flame(Metric::Allocated, filter, false, w))?;
        measure(&format!("by {by}: functions, live"), &|w| table(filter, w))?;
    }
    measure("sites with trends", &|window| {
        let params = sites::SitesParams { window: window.clone(), limit: Some(100), ..Default::default() };
        sites::run(&trace, &Names, &params, &cancel)?;
        Ok(())
    })?;
    measure("leaks with verdicts, all sites", &|window| {
        let params = leaks::LeaksParams { window: window.clone(), limit: None, ..Default::default() };
        leaks::run(&trace, &Names, &params, &cancel)?;
        Ok(())
    })?;
    measure("lifetimes", &|window| {
        let params = lifetimes::LifetimesParams { window: window.clone(), ..Default::default() };
        lifetimes::run(&trace, &Names, &params, &cancel)?;
        Ok(())
    })?;
    measure("one site", &|window| {
        let params = sites::OneParams { site: 7, window: window.clone(), filter: Filter::default(), points: 600 };
        sites::one(&trace, &Names, &params, &cancel)?;
        Ok(())
    })?;
    measure("memory: pages and mappings", &|window| {
        let params = memory::MemoryParams { at: window.to.clone(), before: false, limit: Some(100) };
        memory::run(&trace, &Names, &params, &cancel)?;
        Ok(())
    })?;
    measure("what changed and what stayed", &|window| {
        let (a, b) = (window.from.clone(), window.to.clone());
        let (a, b) = (Window { at: a, ..Window::default() }, Window { at: b, ..Window::default() });
        let side = |window| diff::Side { trace: &trace, symbols: &Names, window, label: "" };
        diff::run(side(&a), side(&b), &diff::DiffParams { limit: Some(200), ..Default::default() }, &cancel)?;
        Ok(())
    })?;
    println!("{}", json!({"open_ms": open_ms, "questions": questions}));
    Ok(())
}
