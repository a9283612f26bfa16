//! Sums per allocating backtrace: what flame graphs, tables and exporters are made from.

use rayon::prelude::*;

use super::Result;
use super::amounts::{MetricMoment, Signed, SumKey, SumQuery, parts};
use super::filter::Filter;
use super::window::{Resolved, Window};
use tracehound_api::{Metric, Unit};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

/// One backtrace with its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSum {
    /// Site.
    pub site: u32,
    /// Call-tree node of the backtrace.
    pub node: u32,
    /// Blocks and bytes.
    pub sum: Signed,
}

/// The sums of a metric over a window.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSums {
    /// The window.
    pub window: Resolved,
    /// The moment, for `live` and `peak`.
    pub moment: Option<MetricMoment>,
    /// Backtraces with a sum, by site.
    pub nodes: Vec<NodeSum>,
    /// Sum over all of them.
    pub total: Signed,
}

/// Parameters of the query.
#[derive(Debug, Clone, Default)]
pub struct NodeSumsParams {
    /// What is measured.
    pub metric: Metric,
    /// Window of time.
    pub window: Window,
    /// Which blocks count.
    pub filter: Filter,
}

/// The sums of a metric over a window, of every site.
#[derive(Debug, Clone, PartialEq)]
pub struct SiteSums {
    /// The window.
    pub window: Resolved,
    /// The moment, for `live` and `peak`.
    pub moment: Option<MetricMoment>,
    /// By site.
    pub sums: Vec<Signed>,
}

/// Sums of every site.
///
/// # Errors
/// When the window or the filter does not fit the recording, or cancelled.
pub fn by_site(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &NodeSumsParams,
    cancel: &Cancel,
) -> Result<SiteSums> {
    let selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    let question = SumQuery { trace, selection: &selection, key: SumKey::Site, cancel };
    let (sums, moment) = question.metric_at(params.metric, &window)?;
    Ok(SiteSums { window, moment, sums })
}

/// Sums per allocating backtrace.
///
/// # Errors
/// When the window or the filter does not fit the recording, or cancelled.
pub fn run(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &NodeSumsParams,
    cancel: &Cancel,
) -> Result<NodeSums> {
    Ok(by_site(trace, symbols, params, cancel)?.listed(trace))
}

impl SiteSums {
    /// Sum over all of them.
    #[must_use]
    pub fn total(&self) -> Signed {
        let added = |a: Signed, b: Signed| Signed { count: a.count + b.count, bytes: a.bytes + b.bytes };
        self.sums.par_iter().copied().reduce(Signed::default, added)
    }

    /// The sites that have a sum, with their backtraces.
    #[must_use]
    pub fn listed(self, trace: &Trace) -> NodeSums {
        let Self { window, moment, sums } = self;
        let len = sums.len().div_ceil(parts(sums.len())).max(1);
        let lists: Vec<(Signed, Vec<NodeSum>)> =
            sums.par_chunks(len).enumerate().map(|(part, sums)| with_sums(trace, (part * len) as u32, sums)).collect();
        let mut total = Signed::default();
        let mut nodes = Vec::with_capacity(lists.iter().map(|(_, nodes)| nodes.len()).sum());
        for (sum, mut some) in lists {
            total.count += sum.count;
            total.bytes += sum.bytes;
            nodes.append(&mut some);
        }
        NodeSums { window, moment, nodes, total }
    }
}

/// The sites among some that have a sum, and the sum over them.
fn with_sums(trace: &Trace, first: u32, sums: &[Signed]) -> (Signed, Vec<NodeSum>) {
    let (mut total, mut nodes) = (Signed::default(), Vec::new());
    for (site, &sum) in (first..).zip(sums).filter(|(_, sum)| !sum.is_zero()) {
        total.count += sum.count;
        total.bytes += sum.bytes;
        nodes.push(NodeSum { site, node: trace.site_node(site).unwrap_or(0), sum });
    }
    (total, nodes)
}

impl Signed {
    /// The number that a unit asks for.
    #[inline]
    #[must_use]
    pub const fn of(&self, unit: Unit) -> i64 {
        match unit {
            Unit::Bytes => self.bytes,
            Unit::Count => self.count,
        }
    }

    /// The number of the other unit.
    #[inline]
    #[must_use]
    pub const fn other(&self, unit: Unit) -> i64 {
        match unit {
            Unit::Bytes => self.count,
            Unit::Count => self.bytes,
        }
    }

    /// As an amount that cannot be negative.
    #[must_use]
    pub fn amount(&self) -> tracehound_api::Amount {
        tracehound_api::Amount { bytes: self.bytes.max(0) as u64, count: self.count.max(0) as u64 }
    }
}
