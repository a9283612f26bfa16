//! Sums per line of a source file.

use std::collections::{BTreeMap, HashSet};

use super::Result;
use super::filter::Filter;
use super::node_sums;
use super::own_frames::OwnFrames;
use super::window::Window;
use tracehound_api::source::SourceLine;
use tracehound_api::{Metric, Unit};
use tracehound_index::symbols::{RecordingSymbols, SymbolFrame};
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
    // By location: its lines in this file, innermost first.
    let is_in_file = |level: &SymbolFrame| level.file.is_some_and(|f| symbols.file(f).as_ref() == params.file);
    let mut of_location = Vec::with_capacity(trace.location_count() as usize);
    let mut levels = Vec::new();
    for location in 0..trace.location_count() {
        levels.clear();
        symbols.frames(trace, location, &mut levels);
        let in_module = params.module.is_none_or(|m| trace.location(location).module == Some(m));
        let hits: Vec<u32> =
            levels.iter().filter(|level| in_module && is_in_file(level)).filter_map(|l| l.line).collect();
        of_location.push(hits);
    }
    let mut lines: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    let mut seen = HashSet::new();
    let own_frames = OwnFrames::new(trace, symbols);
    for node in &sums.nodes {
        seen.clear();
        let value = node.sum.of(params.unit);
        for at in trace.stack(node.node) {
            let Some(location) = trace.node_location(at) else { continue };
            for &line in of_location.get(location as usize).into_iter().flatten() {
                if seen.insert(line) {
                    lines.entry(line).or_default().1 += value;
                }
            }
        }
        // Standard libraries allocate for the line of the program that calls them.
        let Some(own) = own_frames.of_node(node.node).map(|own| own.level) else { continue };
        if let Some(line) = own.line.filter(|line| is_in_file(&own) && seen.contains(line)) {
            lines.entry(line).or_default().0 += value;
        }
    }
    Ok(lines.into_iter().map(|(line, (flat, cum))| SourceLine { line, flat, cum }).collect())
}
