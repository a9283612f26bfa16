//! Latencies of questions about random windows.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use tracehound_server::api::Metric;
use tracehound_server::api::timeline::SeriesName;
use tracehound_server::ingest::{OpenOptions, Recording};
use tracehound_server::query::{Filter, TimeExpr, Window, flamegraph, functions, sites, timeline};
use tracehound_server::trace::symbols::{FileId, Function, FunctionId, LocationId, SymbolFrame, Symbols};
use tracehound_server::trace::{Cancel, Cancelled, Trace};

/// Names that cost nothing, about eight addresses a function: what is measured is the index, not symbolisation.
struct Names;

impl Symbols for Names {
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

    fn function(&self, id: FunctionId) -> Function {
        Function { name: Some(format!("function_{id}").into()), fallback: "".into(), module: Some(0), file: None }
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

/// Asks about a recording that has an index, and prints latencies.
pub fn ask(file: &Path, count: usize) -> Result<()> {
    let cancel = Cancel::new();
    let start = Instant::now();
    let trace = Recording::open(file, OpenOptions::default())?.trace();
    let first = flamegraph::Params::default();
    flamegraph::run(&trace, &Names, &first, &cancel)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let windows = windows(&trace, count);
    let mut questions = Vec::new();
    let mut measure = |name: &str, ask: &dyn Fn(&Window) -> Result<()>| -> Result<()> {
        let mut times = Vec::new();
        for window in &windows {
            let start = Instant::now();
            ask(window)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times.get(((times.len() as f64 * part).ceil() as usize).max(1) - 1).copied();
        questions.push(json!({"name": name, "p50_ms": at(0.5), "p95_ms": at(0.95), "max_ms": at(1.0)}));
        Ok(())
    };
    let flame = |metric: Metric, filter: &Filter, inverted: bool, window: &Window| -> Result<()> {
        let filter = filter.clone();
        let params = flamegraph::Params { metric, filter, inverted, window: window.clone(), ..Default::default() };
        flamegraph::run(&trace, &Names, &params, &cancel)?;
        Ok(())
    };
    let all = Filter::default();
    measure("timeline, 1000 columns", &|window| {
        let series = vec![SeriesName::LiveBytes, SeriesName::AllocRate, SeriesName::Rss];
        let params = timeline::Params { series, window: window.clone(), ..Default::default() };
        timeline::run(&trace, &Names, &params, &cancel)?;
        Ok(())
    })?;
    measure("flame graph, live", &|w| flame(Metric::Live, &all, false, w))?;
    measure("flame graph, peak of the window", &|w| flame(Metric::Peak, &all, false, w))?;
    measure("flame graph, allocated", &|w| flame(Metric::Allocated, &all, false, w))?;
    measure("flame graph, leaked", &|w| flame(Metric::Leaked, &all, false, w))?;
    measure("flame graph, temporary", &|w| flame(Metric::Temporary, &all, false, w))?;
    measure("flame graph, allocated, inverted", &|w| flame(Metric::Allocated, &all, true, w))?;
    measure("functions, live", &|window| {
        let params = functions::Params { window: window.clone(), limit: Some(200), ..Default::default() };
        functions::run(&trace, &Names, &params, &cancel)?;
        Ok(())
    })?;
    measure("sites with trends", &|window| {
        let params = sites::Params { window: window.clone(), limit: Some(100), ..Default::default() };
        sites::run(&trace, &Names, &params, &cancel)?;
        Ok(())
    })?;
    let thread = Filter { thread: Some("2".parse()?), ..Filter::default() };
    let size = Filter { min_size: Some(100), max_size: Some(4000), ..Filter::default() };
    let life = Filter { min_lifetime: Some(10_000), max_lifetime: Some(50_000_000), ..Filter::default() };
    let focus = Filter { focus: Some(Filter::regex("focus", "_1[0-9]*7$")?), ..Filter::default() };
    measure("by thread, live", &|w| flame(Metric::Live, &thread, false, w))?;
    measure("by size, live", &|w| flame(Metric::Live, &size, false, w))?;
    measure("by lifetime, allocated", &|w| flame(Metric::Allocated, &life, false, w))?;
    measure("by lifetime, live", &|w| flame(Metric::Live, &life, false, w))?;
    measure("by regular expression, live", &|w| flame(Metric::Live, &focus, false, w))?;
    println!("{}", json!({"open_ms": open_ms, "questions": questions}));
    Ok(())
}
