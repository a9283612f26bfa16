//! Sums per line of a source file.

use std::collections::{BTreeMap, HashSet};

use super::Result;
use super::filter::Filter;
use super::node_sums;
use super::window::Window;
use tracehound_api::source::SourceLine;
use tracehound_api::{Metric, Unit};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

/// Parameters of the query.
#[derive(Debug, Clone, Default)]
pub struct SourceParams {
    /// What is measured.
    pub metric: Metric,
    /// What is added up.
    pub unit: Unit,
    /// Window of time.
    pub window: Window,
    /// Which blocks count.
    pub filter: Filter,
    /// Path as the debug information has it.
    pub file: String,
    /// Position of the module, if only its lines are meant.
    pub module: Option<u32>,
}

/// Lines of a file with sums, in order.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn lines(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &SourceParams,
    cancel: &Cancel,
) -> Result<Vec<SourceLine>> {
    let asked = node_sums::NodeSumsParams {
        metric: params.metric,
        window: params.window.clone(),
        filter: params.filter.clone(),
    };
    let sums = node_sums::run(trace, symbols, &asked, cancel)?;
    // By location: its lines in this file, innermost first, and whether the innermost frame is one of them.
    let mut of_location = Vec::with_capacity(trace.location_count() as usize);
    let mut levels = Vec::new();
    for location in 0..trace.location_count() {
        levels.clear();
        symbols.frames(trace, location, &mut levels);
        let in_module = params.module.is_none_or(|m| trace.location(location).module == Some(m));
        let hits: Vec<(bool, u32)> = levels
            .iter()
            .enumerate()
            .filter(|(_, level)| in_module && level.file.is_some_and(|f| symbols.file(f).as_ref() == params.file))
            .filter_map(|(depth, level)| Some((depth == 0, level.line?)))
            .collect();
        of_location.push(hits);
    }
    let mut lines: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    let mut seen = HashSet::new();
    for node in &sums.nodes {
        seen.clear();
        let value = node.sum.of(params.unit);
        for (depth, at) in trace.stack(node.node).enumerate() {
            let Some(location) = trace.node_location(at) else { continue };
            for &(innermost, line) in of_location.get(location as usize).into_iter().flatten() {
                let sum = lines.entry(line).or_default();
                if depth == 0 && innermost {
                    sum.0 += value;
                }
                if seen.insert(line) {
                    sum.1 += value;
                }
            }
        }
    }
    Ok(lines.into_iter().map(|(line, (flat, cum))| SourceLine { line, flat, cum }).collect())
}
