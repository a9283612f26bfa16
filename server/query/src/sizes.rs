//! Sizes of the blocks allocated in a window.

use std::collections::HashMap;

use rayon::prelude::*;

use super::Result;
use super::amounts::ranges;
use super::filter::{Filter, Selection};
use super::histogram::{ClassCount, Scale, document};
use super::scan::{Also, BLOCK, Picker};
use super::window::Window;
use tracehound_api::histograms::{ExactSize, Histogram, Sizes};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Span, Trace};

/// Parameters of the query.
#[derive(Debug, Clone, Default)]
pub struct SizesParams {
    /// Blocks allocated in this window.
    pub window: Window,
    /// Which blocks count.
    pub filter: Filter,
}

/// Classes of sizes.
pub const SCALE: Scale = Scale { split: 4 };
/// Exact sizes that are listed.
const COMMONEST: usize = 32;
/// Sizes below are counted in a table, others in a map.
const TABLE: usize = 1 << 14;

/// Counts sizes.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(trace: &Trace, symbols: &dyn RecordingSymbols, params: &SizesParams, cancel: &Cancel) -> Result<Sizes> {
    let selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    let counted = count(trace, &selection, window.span, cancel)?;
    let mut exact: Vec<(u64, u64)> = counted.table.iter().enumerate().map(|(s, &c)| (s as u64, c)).collect();
    exact.extend(counted.map);
    exact.retain(|e| e.1 > 0);
    exact.sort_by_key(|&(size, count)| (std::cmp::Reverse(count), size));
    exact.truncate(COMMONEST);
    Ok(Sizes {
        schema: "heaptrace.sizes/1".into(),
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        histogram: document(SCALE, &counted.cells),
        commonest: exact.into_iter().map(|(size, count)| ExactSize { size, count }).collect(),
        exactness: trace.exactness(),
    })
}

struct Counted {
    cells: Vec<ClassCount>,
    table: Vec<u64>,
    map: HashMap<u64, u64>,
}

fn count(trace: &Trace, selection: &Selection, span: Span, cancel: &Cancel) -> Result<Counted> {
    let test = selection.rows(trace);
    let empty =
        || Counted { cells: vec![ClassCount::default(); SCALE.classes()], table: vec![0; TABLE], map: HashMap::new() };
    ranges(span.from.allocs, span.to.allocs)
        .into_par_iter()
        .map(|range| {
            let mut counted = empty();
            let mut picker = Picker::new(&test, Also::Nothing);
            for (at, start) in range.clone().step_by(BLOCK).enumerate() {
                if at.is_multiple_of(256) {
                    cancel.check()?;
                }
                for &offset in picker.pick(start, (start + BLOCK as u64).min(range.end)) {
                    let row = start + u64::from(offset);
                    let size = trace.size_of(row);
                    counted.cells[SCALE.class(size)].add(size, trace.free_of(row).is_none());
                    match counted.table.get_mut(size as usize) {
                        Some(count) => *count += 1,
                        None => *counted.map.entry(size).or_default() += 1,
                    }
                }
            }
            Ok(counted)
        })
        .try_reduce(empty, |mut a, b| {
            a.cells.iter_mut().zip(&b.cells).for_each(|(a, b)| a.merge(b));
            a.table.iter_mut().zip(&b.table).for_each(|(a, b)| *a += b);
            b.map.into_iter().for_each(|(size, count)| *a.map.entry(size).or_default() += count);
            Ok(a)
        })
}

/// The histogram alone.
///
/// # Errors
/// When cancelled.
pub fn histogram(trace: &Trace, selection: &Selection, span: Span, cancel: &Cancel) -> Result<Histogram> {
    Ok(document(SCALE, &count(trace, selection, span, cancel)?.cells))
}
