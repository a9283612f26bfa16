//! Allocating backtraces in a window, as a table and one by one.

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::amounts::{SumKey, SumQuery, Sums};
use super::filter::{Filter, Selection};
use super::own_frames::OwnFrames;
use super::sorting::{SortKeys, or_last};
use super::timeline::peak;
use super::window::{Resolved, Window};
use super::{
    QueryError, Result, freeing, leaks, lifetimes, median_lifetimes, site_handle, sizes, stacks, timeline, trend,
};
use tracehound_api::sites::{FreeSite, Quantiles, Site, SiteRow, Sites};
use tracehound_api::timeline::SeriesName;
use tracehound_api::{Amount, Frame, Metric};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Position, Trace};

/// Parameters of the table.
#[derive(Debug, Clone, Default)]
pub struct SitesParams {
    /// Window of time.
    pub window: Window,
    /// Which blocks count.
    pub filter: Filter,
    /// Order.
    pub sort: SortKeys<SiteSort>,
    /// Reverses the whole order.
    pub ascending: bool,
    /// Keep sites whose innermost frame has a function, file or module that matches this regular expression.
    pub search: Option<String>,
    /// Rows to skip.
    pub offset: usize,
    /// Most rows in the answer; `None`: all.
    pub limit: Option<usize>,
}

/// A column of the table: bytes, where nothing else is said; sums begin with the largest, names with A.
/// Ties go by site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// By mean size of the blocks allocated in the window.
    Mean,
    /// By median lifetime of the blocks allocated in the window.
    Lifetime,
    /// By live bytes at the end of the window less those at its start.
    Trend,
    /// By the allocating function.
    Name,
    /// By source file and line of the allocating function's frame, else by its module.
    Source,
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
    /// By site; only for an order that needs them.
    grown: Sums,
    medians: Vec<u64>,
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
            grown: Sums::new(),
            medians: Vec::new(),
        })
    }

    /// Adds figures that the order compares and no row shows.
    fn for_order(
        mut self,
        sort: &SortKeys<SiteSort>,
        trace: &Trace,
        selection: &Selection,
        window: &Resolved,
        cancel: &Cancel,
    ) -> Result<Self> {
        let has = |wanted| sort.keys().any(|(column, _)| column == wanted);
        if has(SiteSort::Trend) {
            let question = SumQuery { trace, selection, key: SumKey::Site, cancel };
            self.grown = question.metric(Metric::Grown, window)?;
        }
        if has(SiteSort::Lifetime) {
            self.medians = median_lifetimes::run(trace, selection, window.span, cancel)?;
        }
        Ok(self)
    }

    fn has_any(&self, site: usize) -> bool {
        let all = [&self.allocated, &self.freed, &self.live];
        all.iter().any(|sums| sums.get(site).is_some_and(|s| s.count != 0))
    }

    /// The figure that the order compares; 0 for texts.
    fn key(&self, sort: SiteSort, site: usize) -> f64 {
        let sums = match sort {
            SiteSort::Name | SiteSort::Source => return 0.0,
            // Nanoseconds below 2^53 are exact: a hundred days.
            SiteSort::Lifetime => return self.medians.get(site).map_or(0.0, |&ns| ns as f64),
            SiteSort::Trend => &self.grown,
            SiteSort::Allocated | SiteSort::Count | SiteSort::Mean => &self.allocated,
            SiteSort::Freed => &self.freed,
            SiteSort::Live => &self.live,
            SiteSort::Leaked => &self.leaked,
            SiteSort::AtPeak => &self.at_peak,
            SiteSort::Temporary => &self.temporary,
        };
        // Sums below 2^53 are exact as floating-point numbers.
        sums.get(site).map_or(0.0, |s| match sort {
            SiteSort::Count => s.count as f64,
            SiteSort::Mean => s.bytes as f64 / (s.count.max(1) as f64),
            _ => s.bytes as f64,
        })
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

/// Texts of a row that an order compares.
#[derive(Debug, Default)]
struct SiteTexts {
    /// The function that allocates, else its place in the module's file.
    name: String,
    /// Source file, else the module; and the line.
    source: (Option<String>, Option<u32>),
}

impl SiteTexts {
    fn new(site: u32, frame: Option<Frame>) -> Self {
        let Some(frame) = frame else {
            return Self { name: site_handle(site), source: (None, None) };
        };
        let line = frame.line.filter(|_| frame.file.is_some());
        Self {
            name: frame.function.or(frame.offset).unwrap_or_else(|| site_handle(site)),
            source: (frame.file.or(frame.module), line),
        }
    }

    fn place(&self) -> impl Ord {
        (or_last(self.source.0.as_ref()), self.source.1)
    }
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
    let columns = columns.for_order(&params.sort, trace, &selection, &window, cancel)?;
    let mut sites: Vec<u32> = (0..trace.site_count()).filter(|&site| columns.has_any(site as usize)).collect();
    if let Some(search) = &params.search {
        let wanted = Filter::regex("search", search)?;
        let own_frames = OwnFrames::new(trace, symbols);
        let mut is_about = own_frames.matcher(&wanted);
        sites.retain(|&site| is_about(site));
    }
    let total_sites = sites.len() as u64;
    // Texts are looked up only for an order that compares them.
    let compares_texts = params.sort.keys().any(|(column, _)| matches!(column, SiteSort::Name | SiteSort::Source));
    let texts: FxHashMap<u32, SiteTexts> = if compares_texts {
        let own_frames = OwnFrames::new(trace, symbols);
        let texts = |site| own_frames.of_site(site).map(|own| own.texts(trace, symbols));
        sites.iter().map(|&site| (site, SiteTexts::new(site, texts(site)))).collect()
    } else {
        FxHashMap::default()
    };
    sites.sort_by(|&a, &b| {
        let (a_texts, b_texts) = (texts.get(&a), texts.get(&b));
        let order = params.sort.compare(|column| match column {
            SiteSort::Name => a_texts.map(|texts| &texts.name).cmp(&b_texts.map(|texts| &texts.name)),
            SiteSort::Source => a_texts.map(SiteTexts::place).cmp(&b_texts.map(SiteTexts::place)),
            _ => columns.key(column, b as usize).total_cmp(&columns.key(column, a as usize)),
        });
        (if params.ascending { order.reverse() } else { order }).then(a.cmp(&b))
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

/// Parameters of the query about one site.
#[derive(Debug, Clone)]
pub struct OneParams {
    /// Which.
    pub site: u32,
    /// Window of time.
    pub window: Window,
    /// Which blocks count.
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
    let left = leaks::left_of(trace, &selection, &[site], trace.everything());
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
    let by_node = freeing::by_node(trace, selection, window, cancel)?;
    let mut sorted: Vec<_> = by_node.into_iter().collect();
    sorted.sort_by_key(|&(node, freed)| (std::cmp::Reverse((freed.amount.bytes, freed.amount.count)), node));
    let rest = sorted.split_off(sorted.len().min(FREED_BY));
    let mut sites: Vec<FreeSite> = sorted
        .into_iter()
        .map(|(node, freed)| FreeSite {
            amount: freed.amount,
            same_thread: freed.same_thread,
            stack: stacks::frames(trace, symbols, node),
        })
        .collect();
    if !rest.is_empty() {
        let mut others = freeing::FreedSum::default();
        for (_, freed) in rest {
            others.add(freed);
        }
        sites.push(FreeSite { amount: others.amount, same_thread: others.same_thread, stack: Vec::new() });
    }
    Ok(sites)
}
