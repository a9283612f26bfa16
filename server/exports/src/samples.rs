//! Backtraces with several values each: the input of profile formats.

use std::collections::HashMap;

use serde::Serialize;
use tracehound_api::{Frame, Metric, Unit};
use tracehound_index::symbols::{FunctionId, LocationId, SymbolFrame};
use tracehound_query::node_sums::{self, NodeSumsParams};

use super::{ExportInput, ExportScope, Result};

/// Values of one allocating backtrace, in the order that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteSample {
    /// Call-tree node.
    pub node: u32,
    /// One value for each column.
    pub values: Vec<i64>,
}

/// Sums every backtrace for several (metric, unit); backtraces with nothing but zeros are left out.
///
/// # Errors
/// When the scope does not fit the recording, or cancelled.
pub fn samples(source: ExportInput<'_>, scope: &ExportScope, columns: &[(Metric, Unit)]) -> Result<Vec<SiteSample>> {
    let mut by_node: HashMap<u32, Vec<i64>> = HashMap::new();
    let mut done: Vec<Metric> = Vec::new();
    for &(metric, _) in columns {
        if done.contains(&metric) {
            continue;
        }
        done.push(metric);
        let params = NodeSumsParams { metric, window: scope.window.clone(), filter: scope.filter.clone() };
        let sums = node_sums::run(source.trace, source.symbols, &params, source.cancel)?;
        for sum in sums.nodes {
            let values = by_node.entry(sum.node).or_insert_with(|| vec![0; columns.len()]);
            for (value, _) in values.iter_mut().zip(columns).filter(|(_, (of, _))| *of == metric) {
                *value = 0;
            }
            for (value, (of, unit)) in values.iter_mut().zip(columns) {
                if *of == metric {
                    *value += sum.sum.of(*unit);
                }
            }
        }
    }
    let mut samples: Vec<_> = by_node.into_iter().map(|(node, values)| SiteSample { node, values }).collect();
    samples.retain(|sample| sample.values.iter().any(|&value| value != 0));
    samples.sort_unstable_by_key(|sample| sample.node);
    Ok(samples)
}

/// A frame by itself, without what only its neighbours tell.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PlainFrame<'a> {
    /// Demangled function name.
    pub function: Option<&'a str>,
    /// Source file of the call.
    pub file: Option<&'a str>,
    /// Line of the call.
    pub line: Option<u32>,
    /// File name of the module.
    pub module: Option<&'a str>,
    /// The function was inlined into the next frame.
    pub inlined: bool,
    /// Its language.
    pub language: Option<&'a str>,
    /// Return address.
    pub address: &'a str,
    /// Of a frame without a function: where it is in the file of its module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<&'a str>,
}

impl<'a> From<&'a Frame> for PlainFrame<'a> {
    fn from(frame: &'a Frame) -> Self {
        Self {
            function: frame.function.as_deref(),
            file: frame.file.as_deref(),
            line: frame.line,
            module: frame.module.as_deref(),
            inlined: frame.inlined,
            language: frame.language.as_deref(),
            address: &frame.address,
            offset: frame.offset.as_deref(),
        }
    }
}

/// Makes all names ready at once, which is much faster than one by one.
///
/// # Errors
/// When cancelled.
pub fn resolve_all(source: ExportInput<'_>) -> Result<()> {
    let all: Vec<LocationId> = (0..source.trace.location_count()).collect();
    source.symbols.resolve(source.trace, &all, source.cancel)?;
    Ok(())
}

/// Frames of a backtrace, leaf first, with inlined ones.
pub fn frames(source: ExportInput<'_>, node: u32, out: &mut Vec<SymbolFrame>) {
    out.clear();
    for node in source.trace.shown_stack(source.symbols, node) {
        if let Some(location) = source.trace.node_location(node) {
            source.symbols.frames(source.trace, location, out);
        }
    }
}

/// Name of a function as formats without modules show it: unknown code says where it is.
pub fn display_name(source: ExportInput<'_>, function: FunctionId) -> String {
    let function = source.symbols.function(function);
    let module = || source.trace.modules().get(function.module? as usize).map(|module| module.name());
    match (&function.name, module()) {
        (Some(name), _) => name.to_string(),
        (None, Some(module)) => format!("{} in {module}", function.fallback),
        (None, None) => function.fallback.to_string(),
    }
}

/// Names of functions for formats that have nothing else to tell functions apart: those that share theirs with another
/// function of the recording have the place of their declaration behind it.
pub struct DistinctNames<'a> {
    source: ExportInput<'a>,
    known: HashMap<FunctionId, String>,
}

impl<'a> DistinctNames<'a> {
    /// The names of all functions.
    pub fn new(source: ExportInput<'a>) -> Self {
        let mut ids: Vec<FunctionId> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let mut levels = Vec::new();
        for location in 0..source.trace.location_count() {
            levels.clear();
            source.symbols.frames(source.trace, location, &mut levels);
            ids.extend(levels.iter().map(|level| level.function).filter(|&id| seen.insert(id)));
        }
        let mut by_name: HashMap<String, Vec<FunctionId>> = HashMap::new();
        for id in ids {
            by_name.entry(display_name(source, id)).or_default().push(id);
        }
        let mut known = HashMap::new();
        for (name, ids) in by_name {
            if let [id] = ids[..] {
                known.insert(id, name);
                continue;
            }
            for id in ids {
                let function = source.symbols.function(id);
                let path = function.file.map(|file| source.symbols.file(file));
                let file = path.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
                let shown = match (file, function.line) {
                    (Some(file), Some(line)) => format!("{name} ({file}:{line})"),
                    (Some(file), None) => format!("{name} ({file})"),
                    (None, _) => name.clone(),
                };
                known.insert(id, shown);
            }
        }
        Self { source, known }
    }

    /// The name of a function.
    pub fn get(&self, id: FunctionId) -> String {
        self.known.get(&id).cloned().unwrap_or_else(|| display_name(self.source, id))
    }
}
