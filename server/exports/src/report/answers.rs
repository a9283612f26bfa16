//! The answers inside a report: what the page asks for in each of its views, for the report's window and filter.
//!
//! An answer is found by its document and the parameters that change its meaning; order of rows, searching and zooming
//! are the page's own work there.

use serde::Serialize;
use serde_json::{Value, json};
use tracehound_api::breakdown::BreakdownGroup;
use tracehound_api::functions::GroupBy;
use tracehound_api::ledger::Basis;
use tracehound_api::pins::{PinGroup, PinUnit};
use tracehound_api::timeline::SeriesName;
use tracehound_api::{Metric, Unit};
use tracehound_query::{
    QueryError, TimeExpr, breakdown, flamegraph, functions, leaks, lifetimes, memory, parse_site, pins, replays, sites,
    sizes, suppress, threads, timeline,
};

use super::{ReportError, ReportScope};
use tracehound_audit::suppressions;

/// How much of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detail {
    /// Rows of a flame graph.
    frames: usize,
    /// Rows of a table of functions.
    functions: usize,
    /// Sites in the tables.
    sites: usize,
    /// Sites with a page of their own.
    site_pages: usize,
}

impl Detail {
    /// From the finest to the coarsest.
    pub const STEPS: [Self; 4] = [
        Self { frames: 4000, functions: 1000, sites: 500, site_pages: 200 },
        Self { frames: 1500, functions: 400, sites: 200, site_pages: 60 },
        Self { frames: 500, functions: 150, sites: 80, site_pages: 20 },
        Self { frames: 150, functions: 50, sites: 30, site_pages: 0 },
    ];

    /// What is missing against the finest, in words.
    pub fn left_out(&self) -> Vec<String> {
        if *self == Self::STEPS[0] {
            return Vec::new();
        }
        vec![
            format!("flame graphs have {} functions at most, the rest is folded", self.frames),
            format!("tables of functions end after {} rows", self.functions),
            format!("tables of sites end after {} rows, {} sites have a page", self.sites, self.site_pages),
        ]
    }
}

/// What the page offers to measure in a report.
const METRICS: [Metric; 5] = [Metric::Live, Metric::Peak, Metric::Leaked, Metric::Allocated, Metric::Temporary];
const UNITS: [Unit; 2] = [Unit::Bytes, Unit::Count];
const GROUPS: [GroupBy; 7] = [
    GroupBy::Function,
    GroupBy::Program,
    GroupBy::File,
    GroupBy::Module,
    GroupBy::Thread,
    GroupBy::Site,
    GroupBy::SizeClass,
];
/// Backtraces that mapped memory.
const MAPPERS: usize = 300;
/// Columns of the timeline.
const POINTS: usize = 1600;
/// Looks of the history of resident memory.
const LOOKS: usize = 40;
/// Moments of the layers of live bytes.
const LAYER_POINTS: usize = 300;
/// Columns of a site's timeline.
const SITE_POINTS: usize = 200;
/// As wide as a large screen: narrower frames could not be seen there.
const WIDTH: u32 = 2400;

struct Answers(Vec<Value>);

impl Answers {
    fn put(&mut self, document: &str, parameters: Value, body: impl Serialize) -> Result<(), ReportError> {
        let body = serde_json::to_value(body).map_err(|error| super::ExportError::Output(error.into()))?;
        self.0.push(json!({"document": document, "parameters": parameters, "body": body}));
        Ok(())
    }
}

/// Asks everything.
pub fn all(asked: &ReportScope<'_>, detail: &Detail) -> Result<Vec<Value>, ReportError> {
    let &ReportScope { trace, symbols, cancel, ref window, ref filter, .. } = asked;
    let mut out = Answers(Vec::new());
    let info = tracehound_audit::info(trace, symbols);
    let peak_rss = info.peak_rss.as_ref().map(|peak| peak.at_ns);
    out.put("", json!({}), info)?;
    // Where the overview looks: when the process was largest; of a part of the recording at the part's end.
    let selection = filter.select(trace, symbols, cancel)?;
    let resolved = window.resolve(trace, &selection, cancel)?;
    let whole = resolved.from_ns == 0 && resolved.to_ns >= trace.duration_ns();
    let moment = if whole { peak_rss.unwrap_or(resolved.to_ns) } else { resolved.to_ns };
    let params = memory::MemoryParams { at: Some(TimeExpr::Ns(moment)), limit: Some(MAPPERS), ..Default::default() };
    out.put("memory", json!({}), memory::run(trace, symbols, &params, cancel)?)?;
    out.put("memory_history", json!({}), memory::history(trace, symbols, window, LOOKS, cancel)?)?;
    let mut kept = replays::kept(trace);
    if asked.strip_paths {
        replays::strip_arguments(trace, &mut kept);
    }
    out.put("replay", json!({}), kept)?;
    for by in [PinGroup::Function, PinGroup::Site, PinGroup::Age, PinGroup::Thread] {
        let params =
            pins::PinsParams { at: Some(TimeExpr::Ns(moment)), by, limit: Some(detail.sites), ..Default::default() };
        out.put("pins", json!({"by": by, "unit": PinUnit::Page}), pins::run(trace, symbols, &params, cancel)?)?;
        // Other units where they say something else: huge pages if there can be any, slabs if they are known.
        for unit in [PinUnit::Huge, PinUnit::Slab] {
            match pins::run(trace, symbols, &pins::PinsParams { unit, ..params.clone() }, cancel) {
                Ok(found) if found.pages.count > 0 && found.unit_basis == Basis::Modelled => {
                    out.put("pins", json!({"by": by, "unit": unit}), found)?;
                }
                Ok(_) | Err(QueryError::BadParameter { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    for by in [
        BreakdownGroup::Function,
        BreakdownGroup::Module,
        BreakdownGroup::Thread,
        BreakdownGroup::Site,
        BreakdownGroup::Language,
    ] {
        let (window, filter) = (window.clone(), filter.clone());
        let (points, max_amounts) = (LAYER_POINTS, breakdown::MAX_AMOUNTS);
        let params = breakdown::BreakdownParams { window, filter, by, points, top: 10, max_amounts };
        out.put("breakdown", json!({"by": by}), breakdown::run(trace, symbols, &params, cancel)?)?;
    }
    let series = [
        SeriesName::LiveBytes,
        SeriesName::LiveCount,
        SeriesName::OccupiedBytes,
        SeriesName::Rss,
        SeriesName::RssProgram,
        SeriesName::RssAnonymous,
        SeriesName::AllocRate,
        SeriesName::FreeRate,
        SeriesName::ThreadRate,
    ];
    let params = timeline::TimelineParams {
        series: series.to_vec(),
        window: window.clone(),
        filter: filter.clone(),
        points: POINTS,
    };
    out.put("timeline", json!({}), timeline::run(trace, symbols, &params, cancel)?)?;
    for metric in METRICS {
        for unit in UNITS {
            for inverted in [false, true] {
                let params = flamegraph::FlamegraphParams {
                    metric,
                    unit,
                    window: window.clone(),
                    filter: filter.clone(),
                    root: None,
                    width: WIDTH,
                    min_px: 0.5,
                    max_nodes: detail.frames,
                    inverted,
                    freeing: false,
                    pinned: None,
                };
                let graph = flamegraph::run(trace, symbols, &params, cancel)?;
                out.put("flamegraph", json!({"metric": metric, "unit": unit, "inverted": inverted}), graph)?;
            }
            for by in GROUPS {
                let params = functions::FunctionsParams {
                    metric,
                    unit,
                    window: window.clone(),
                    filter: filter.clone(),
                    by,
                    limit: Some(detail.functions),
                    ..functions::FunctionsParams::default()
                };
                let mut table = functions::run(trace, symbols, &params, cancel)?;
                if by == GroupBy::File {
                    // Two files of one name stay two rows when folders are taken away.
                    table.rows.iter_mut().enumerate().for_each(|(i, row)| row.id = format!("file {i}"));
                }
                out.put("functions", json!({"metric": metric, "unit": unit, "by": by}), table)?;
            }
        }
    }
    let params = leaks::LeaksParams {
        window: window.clone(),
        filter: filter.clone(),
        suppress: [suppress::built_in(), suppressions::of_program(trace).0].concat(),
        show_suppressed: true,
        limit: Some(detail.sites),
        functions: detail.sites,
    };
    let leaking = leaks::run(trace, symbols, &params, cancel)?;
    let mut pages: Vec<String> = leaking.sites.iter().take(detail.site_pages / 2).map(|site| site.id.clone()).collect();
    out.put("leaks", json!({}), leaking)?;
    site_tables(asked, detail, &mut pages, &mut out)?;
    for site in pages.iter().take(detail.site_pages) {
        let params = sites::OneParams {
            site: parse_site("site", site)?,
            window: window.clone(),
            filter: filter.clone(),
            points: SITE_POINTS,
        };
        out.put("site", json!({"site": site}), sites::one(trace, symbols, &params, cancel)?)?;
    }
    let params = lifetimes::LifetimesParams { window: window.clone(), filter: filter.clone() };
    out.put("lifetimes", json!({}), lifetimes::run(trace, symbols, &params, cancel)?)?;
    let params = sizes::SizesParams { window: window.clone(), filter: filter.clone() };
    out.put("sizes", json!({}), sizes::run(trace, symbols, &params, cancel)?)?;
    let params = threads::ThreadsParams { window: window.clone(), filter: filter.clone() };
    out.put("threads", json!({}), threads::run(trace, symbols, &params, cancel)?)?;
    let modules = symbols.modules(trace, cancel).map_err(tracehound_query::QueryError::from)?;
    out.put("modules", json!({}), modules)?;
    Ok(out.0)
}

/// The largest sites in each of the orders that matter, as one table.
fn site_tables(
    asked: &ReportScope<'_>,
    detail: &Detail,
    pages: &mut Vec<String>,
    out: &mut Answers,
) -> Result<(), ReportError> {
    let mut table: Option<tracehound_api::sites::Sites> = None;
    for sort in [sites::SiteSort::Live, sites::SiteSort::Allocated, sites::SiteSort::AtPeak, sites::SiteSort::Leaked] {
        let params = sites::SitesParams {
            window: asked.window.clone(),
            filter: asked.filter.clone(),
            sort: sort.into(),
            limit: Some(detail.sites),
            ..sites::SitesParams::default()
        };
        let found = sites::run(asked.trace, asked.symbols, &params, asked.cancel)?;
        for site in found.sites.iter().take(detail.site_pages / 4) {
            if !pages.contains(&site.id) {
                pages.push(site.id.clone());
            }
        }
        match &mut table {
            None => table = Some(found),
            Some(table) => {
                let known: std::collections::HashSet<String> = table.sites.iter().map(|s| s.id.clone()).collect();
                table.sites.extend(found.sites.into_iter().filter(|site| !known.contains(&site.id)));
            }
        }
    }
    out.put("sites", json!({}), table)
}
