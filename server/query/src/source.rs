//! Sums per line of a source file.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Result;
use super::filter::Filter;
use super::node_sums;
use super::stack_view::StackView;
use super::window::Window;
use tracehound_api::source::SourceLine;
use tracehound_api::{Metric, Unit};
use tracehound_index::frame_tree::FrameTree;
use tracehound_index::program::{CodeKind, program_frame};
use tracehound_index::symbols::{FunctionId, RecordingSymbols};
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
    /// Which blocks count, and which frames of their stacks are left.
    pub filter: Filter,
    /// Path as the debug information has it.
    pub file: String,
    /// Position of the module, if only its lines are meant.
    pub module: Option<u32>,
}

/// Lines of a file with sums, in order: those of the frames that the filter leaves in the stacks. Of frames that became
/// one the outermost's line stays.
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
    let left = if params.filter.changes_stacks() {
        let tree = trace.frame_tree(symbols, cancel)?;
        params.filter.view(trace, &tree, symbols).map(|view| LeftFrames { tree, view })
    } else {
        None
    };
    let levels = Levels::new(trace, symbols, params);
    let mut kinds = KnownKinds { symbols, by_function: Vec::new() };
    let mut lines: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    let (mut stack, mut seen) = (Vec::new(), Vec::new());
    for (at, node) in sums.nodes.iter().enumerate() {
        if at % 65536 == 0 {
            cancel.check()?;
        }
        stack.clear();
        for location in trace.shown_stack(symbols, node.node).filter_map(|node| trace.node_location(node)) {
            stack.extend_from_slice(levels.of(location));
        }
        if let Some(left) = &left {
            left.keep_of(node.node, &mut stack);
        }
        let value = node.sum.of(params.unit);
        seen.clear();
        seen.extend(stack.iter().filter_map(|level| level.line));
        seen.sort_unstable();
        seen.dedup();
        for &line in &seen {
            lines.entry(line).or_default().1 += value;
        }
        // Standard libraries allocate for the line of the program that calls them.
        if seen.is_empty() {
            continue;
        }
        let own = program_frame(stack.iter().map(|level| kinds.of(level.function))).unwrap_or(0);
        if let Some(line) = stack.get(own).and_then(|level| level.line) {
            lines.entry(line).or_default().0 += value;
        }
    }
    Ok(lines.into_iter().map(|(line, (flat, cum))| SourceLine { line, flat, cum }).collect())
}

/// A function at a location.
#[derive(Debug, Clone, Copy)]
struct Level {
    function: FunctionId,
    /// In the file that is asked for.
    line: Option<u32>,
}

/// The functions at every location, innermost first.
struct Levels {
    starts: Vec<usize>,
    levels: Vec<Level>,
}

impl Levels {
    fn new(trace: &Trace, symbols: &dyn RecordingSymbols, params: &SourceParams) -> Self {
        let (mut starts, mut levels, mut frames) = (vec![0], Vec::new(), Vec::new());
        for location in 0..trace.location_count() {
            frames.clear();
            symbols.frames(trace, location, &mut frames);
            let in_module = params.module.is_none_or(|module| trace.location(location).module == Some(module));
            levels.extend(frames.iter().map(|frame| {
                let is_in_file = in_module && frame.file.is_some_and(|file| symbols.file(file).as_ref() == params.file);
                Level { function: frame.function, line: frame.line.filter(|_| is_in_file) }
            }));
            starts.push(levels.len());
        }
        Self { starts, levels }
    }

    fn of(&self, location: u32) -> &[Level] {
        let at = location as usize;
        match (self.starts.get(at), self.starts.get(at + 1)) {
            (Some(&start), Some(&end)) => &self.levels[start..end],
            _ => &[],
        }
    }
}

/// Which frames a filter leaves in the stacks.
struct LeftFrames {
    tree: Arc<FrameTree>,
    view: Arc<StackView>,
}

impl LeftFrames {
    /// Takes the others out of a stack, innermost first, that ends at a node.
    fn keep_of<T>(&self, node: u32, stack: &mut Vec<T>) {
        let ends = self.view.ends_as.get(self.tree.of_node(node) as usize).copied().flatten();
        let mut shown: Vec<u32> = ends.map_or_else(Vec::new, |row| self.view.shape.path(row).collect());
        // From the outermost on: a row is that of the first frame which is shown as it.
        let rows: Vec<u32> = self.tree.shape().path(self.tree.of_node(node)).collect();
        let mut is_left = vec![false; rows.len()];
        for (is_left, &row) in is_left.iter_mut().zip(&rows).rev() {
            let as_row = self.view.shown_as.get(row as usize).copied().flatten();
            // Callers have smaller numbers, and stand behind what they call.
            let found = as_row.and_then(|row| shown.binary_search_by(|known| row.cmp(known)).ok());
            if let Some(at) = found {
                *is_left = true;
                shown.truncate(at);
            }
        }
        let mut is_left = is_left.into_iter();
        stack.retain(|_| is_left.next().unwrap_or(false));
    }
}

/// Kinds of functions, looked up once each.
struct KnownKinds<'a> {
    symbols: &'a dyn RecordingSymbols,
    by_function: Vec<Option<CodeKind>>,
}

impl KnownKinds<'_> {
    fn of(&mut self, function: FunctionId) -> CodeKind {
        let at = function as usize;
        if self.by_function.len() <= at {
            self.by_function.resize((at + 1).next_power_of_two(), None);
        }
        *self.by_function[at].get_or_insert_with(|| self.symbols.kind(function))
    }
}
