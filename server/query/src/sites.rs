//! Allocating backtraces in a window, as a table and one by one.

use rayon::prelude::*;

use super::amounts::{SumKey, SumQuery, Sums, ranges};
use super::filter::{Filter, Selection};
use super::scan::{Also, BLOCK, Picker};
use super::timeline::peak;
use super::window::{Resolved, Window};
use super::{QueryError, Result, leaks, lifetimes, site_handle, sizes, stacks, timeline, trend};
use tracehound_api::sites::{FreeSite, Quantiles, Site, SiteRow, Sites};
use tracehound_api::timeline::SeriesName;
use tracehound_api::{Amount, Metric};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Position, Trace};

/// What is asked of the table.
#[derive(Debug, Clone, Default)]
pub struct SitesParams {
    /// When.
    pub window: Window,
    /// Of what.
    pub filter: Filter,
    /// Order.
    pub sort: SiteSort,
    /// Smallest first.
    pub ascending: bool,
    /// Keep sites whose innermost frame has a function, file or module that matches this regular expression.
    pub search: Option<String>,
    /// Rows to skip.
    pub offset: usize,
    /// Most rows in the answer; `None`: all.
    pub limit: Option<usize>,
}

/// Order of the sites, by bytes; ties go by site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SiteSort {
    /// Allocated in the window.
    #[default]
    Allocated,
    /// Freed in the window.
    Freed,
    /// Live at its end.
    Live,
    /// Allocated in it and live at the end of the recording.
    Leaked,
    /// Live at its peak.
    AtPeak,
    /// Allocated in it and temporary.
    Temporary,
    /// By number of allocations.
    Count,
}

/// Moments of a trend.
const TREND: usize = 32;

struct SiteColumns {
    allocated: Sums,
    freed: Sums,
    live: Sums,
    leaked: Sums,
    at_peak: Sums,
    temporary: Sums,
}

impl SiteColumns {
    /// `peak`: the moment of the peak.
    fn new(trace: &Trace, selection: &Selection, window: &Resolved, peak: Position, cancel: &Cancel) -> Result<Self> {
        let question = SumQuery { trace, selection, key: SumKey::Site, cancel };
        let of = |metric| question.metric(metric, window);
        Ok(Self {
            allocated: of(Metric::Allocated)?,
            freed: of(Metric::Freed)?,
            live: of(Metric::Live)?,
            leaked: of(Metric::Leaked)?,
            at_peak: question.live_at(peak)?,
            temporary: of(Metric::Temporary)?,
        })
    }

    fn has_any(&self, site: usize) -> bool {
        let all = [&self.allocated, &self.freed, &self.live];
        all.iter().any(|sums| sums.get(site).is_some_and(|s| s.count != 0))
    }

    fn key(&self, sort: SiteSort, site: usize) -> i64 {
        let sums = match sort {
            SiteSort::Allocated | SiteSort::Count => &self.allocated,
            SiteSort::Freed => &self.freed,
            SiteSort::Live => &self.live,
            SiteSort::Leaked => &self.leaked,
            SiteSort::AtPeak => &self.at_peak,
            SiteSort::Temporary => &self.temporary,
        };
        sums.get(site).map_or(0, |s| if sort == SiteSort::Count { s.count } else { s.bytes })
    }

    fn row(
        &self,
        trace: &Trace,
        symbols: &dyn RecordingSymbols,
        site: u32,
        lifetimes: Quantiles,
        trend: Vec<u64>,
    ) -> SiteRow {
        let (frame, caller) = stacks::allocator_and_caller(trace, symbols, trace.site_node(site).unwrap_or(0));
        let amount = |sums: &Sums| sums.get(site as usize).map_or_else(Amount::default, |s| s.amount());
        SiteRow {
            id: site_handle(site),
            function: frame.as_ref().and_then(|f| f.function.clone()),
            file: frame.as_ref().and_then(|f| f.file.clone()),
            line: frame.as_ref().and_then(|f| f.line),
            offset: frame.as_ref().and_then(|f| f.offset.clone()),
            module: frame.and_then(|f| f.module),
            called_from: caller.and_then(|f| f.function.or(f.offset)),
            allocated: amount(&self.allocated),
            freed: amount(&self.freed),
            live: amount(&self.live),
            leaked: amount(&self.leaked),
            at_peak: amount(&self.at_peak),
            temporary: amount(&self.temporary),
            lifetimes,
            trend,
        }
    }
}

fn trends(
    trace: &Trace,
    selection: &Selection,
    window: &Resolved,
    sites: &[u32],
    cancel: &Cancel,
) -> Result<Vec<Vec<u64>>> {
    let places: Vec<_> = trend::moments(trace, window, TREND).into_iter().map(|m| m.1).collect();
    let curves = trend::live_at(trace, selection, sites, &places, cancel)?;
    Ok(curves.into_iter().map(|curve| curve.into_iter().map(|live| live.bytes.max(0) as u64).collect()).collect())
}

/// Lists sites with an event in the window, or something live at its end.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(trace: &Trace, symbols: &dyn RecordingSymbols, params: &SitesParams, cancel: &Cancel) -> Result<Sites> {
    let selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    let peak = peak::find(trace, &selection, window.span, window.from_ns, cancel)?;
    let columns = SiteColumns::new(trace, &selection, &window, peak.place, cancel)?;
    let mut sites: Vec<u32> = (0..trace.site_count()).filter(|&site| columns.has_any(site as usize)).collect();
    if let Some(search) = &params.search {
        let wanted = Filter::regex("search", search)?;
        sites.retain(|&site| {
            let frame = stacks::allocated_by(trace, symbols, trace.site_node(site).unwrap_or(0));
            frame.is_some_and(|f| {
                [f.function, f.file, f.module].into_iter().flatten().any(|name| wanted.is_match(&name))
            })
        });
    }
    let total_sites = sites.len() as u64;
    sites.sort_by_key(|&site| {
        let key = columns.key(params.sort, site as usize);
        (if params.ascending { key } else { -key }, site)
    });
    let sites: Vec<u32> = sites.into_iter().skip(params.offset).take(params.limit.unwrap_or(usize::MAX)).collect();
    let trends = trends(trace, &selection, &window, &sites, cancel)?;
    let lifetimes = lifetimes::by_site(trace, &selection, window.span, &sites, cancel)?;
    let columns = &columns;
    let rows = sites.iter().zip(lifetimes.into_iter().zip(trends));
    Ok(Sites {
        schema: "heaptrace.sites/1".into(),
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        total_sites,
        sites: rows.map(|(&site, (lives, trend))| columns.row(trace, symbols, site, lives, trend)).collect(),
        exactness: trace.exactness(),
    })
}

/// What is asked of one site.
#[derive(Debug, Clone)]
pub struct OneParams {
    /// Which.
    pub site: u32,
    /// When.
    pub window: Window,
    /// Of what.
    pub filter: Filter,
    /// Columns of its timeline.
    pub points: usize,
}

/// Backtraces that free a site's blocks, most in one answer; what is beyond is one entry without a stack.
const FREED_BY: usize = 50;

/// Everything about one site.
///
/// # Errors
/// When there is no such site, a parameter does not fit the recording, or cancelled.
pub fn one(trace: &Trace, symbols: &dyn RecordingSymbols, params: &OneParams, cancel: &Cancel) -> Result<Site> {
    let site = params.site;
    let Some(node) = trace.site_node(site) else {
        return Err(QueryError::NotFound { what: format!("site {}", site_handle(site)) });
    };
    let filtered = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &filtered, cancel)?;
    let selection = filtered.clone().and_site(trace, site).found(trace, trace.everything(), cancel)?;
    // The row is that of the table: the peak is not the site's own.
    let peak = peak::find(trace, &filtered, window.span, window.from_ns, cancel)?;
    let columns = SiteColumns::new(trace, &selection, &window, peak.place, cancel)?;
    let trend = trends(trace, &selection, &window, &[site], cancel)?.pop().unwrap_or_default();
    let series = [SeriesName::LiveBytes, SeriesName::LiveCount, SeriesName::AllocRate, SeriesName::FreeRate];
    let points = params.points.clamp(1, timeline::MAX_POINTS);
    let drawn = timeline::draw(trace, &selection, &window, &series, points, cancel)?;
    let (lifetimes, lifetime_quantiles) = lifetimes::summary(trace, &selection, window.span, cancel)?;
    let left = leaks::left_of(trace, &selection, site);
    let verdict = leaks::verdicts(trace, &selection, &[site], &left, cancel)?.pop();
    Ok(Site {
        schema: "heaptrace.site/1".into(),
        row: columns.row(trace, symbols, site, lifetime_quantiles, trend),
        stack: stacks::frames(trace, symbols, node),
        timeline: drawn,
        sizes: sizes::histogram(trace, &selection, window.span, cancel)?,
        lifetimes,
        lifetime_quantiles,
        freed_by: freed_by(trace, symbols, &selection, &window, cancel)?,
        verdict: verdict.ok_or_else(|| QueryError::NotFound { what: format!("site {}", site_handle(site)) })?,
        exactness: trace.exactness(),
    })
}

/// Who frees blocks that were freed in the window, most bytes first.
fn freed_by(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    selection: &Selection,
    window: &Resolved,
    cancel: &Cancel,
) -> Result<Vec<FreeSite>> {
    type Freed = std::collections::HashMap<u32, (Amount, Amount)>;
    let test = selection.rows(trace);
    let c = trace.columns();
    let add = |to: &mut Amount, more: Amount| {
        to.bytes += more.bytes;
        to.count += more.count;
    };
    let by_node: Freed = ranges(window.span.from.frees, window.span.to.frees)
        .into_par_iter()
        .map(|range| {
            let mut freed = Freed::new();
            let mut picker = Picker::new(&test, Also::Nothing);
            for (at, start) in range.clone().step_by(BLOCK).enumerate() {
                if at.is_multiple_of(256) {
                    cancel.check()?;
                }
                for &offset in picker.pick_frees(start, (start + BLOCK as u64).min(range.end)) {
                    let ordinal = start + u64::from(offset);
                    let row = trace.row_of_free(ordinal);
                    let origin =
                        |origins: &[u32], at: u64| trace.origin(origins.get(at as usize).copied().unwrap_or(u32::MAX));
                    let (alloc, free) = (origin(&c.alloc_origin, row), origin(&c.free_origin, ordinal));
                    let amount = Amount { count: 1, bytes: trace.size_of_free(ordinal) };
                    let entry = freed.entry(free.node).or_default();
                    add(&mut entry.0, amount);
                    if alloc.thread == free.thread {
                        add(&mut entry.1, amount);
                    }
                }
            }
            Ok(freed)
        })
        .try_reduce(Freed::new, |mut a, b| {
            for (node, (amount, same)) in b {
                let entry = a.entry(node).or_default();
                add(&mut entry.0, amount);
                add(&mut entry.1, same);
            }
            Ok::<_, QueryError>(a)
        })?;
    let mut sorted: Vec<_> = by_node.into_iter().collect();
    sorted.sort_by_key(|&(node, (amount, _))| (std::cmp::Reverse((amount.bytes, amount.count)), node));
    let rest = sorted.split_off(sorted.len().min(FREED_BY));
    let mut freed: Vec<FreeSite> = sorted
        .into_iter()
        .map(|(node, (amount, same_thread))| FreeSite {
            amount,
            same_thread,
            stack: stacks::frames(trace, symbols, node),
        })
        .collect();
    if !rest.is_empty() {
        let mut others = FreeSite { amount: Amount::default(), same_thread: Amount::default(), stack: Vec::new() };
        for (_, (amount, same)) in rest {
            add(&mut others.amount, amount);
            add(&mut others.same_thread, same);
        }
        freed.push(others);
    }
    Ok(freed)
}
