//! Finds the suppression that matches a backtrace, for very many backtraces: patterns are tried once for each function,
//! and the result for a node's callers is used again.

use rustc_hash::FxHashMap;

use super::{Suppression, SuppressionRule, is_loader, is_start, is_stdcxx};
use tracehound_index::Trace;
use tracehound_index::folded::{FoldedFrames, RuntimeRole};
use tracehound_index::symbols::{FileId, FunctionId, RecordingSymbols, SymbolFrame};

/// Nothing was hit.
const NONE: u32 = u32::MAX;

/// Matcher of backtraces against suppressions.
pub struct SuppressedStacks<'a> {
    trace: &'a Trace,
    symbols: &'a dyn RecordingSymbols,
    suppressions: &'a [Suppression],
    /// Position of the first that is about the start of a library.
    start: Option<u32>,
    folded: Option<&'a FoldedFrames>,
    levels: FxHashMap<(FunctionId, Option<FileId>), LevelMatch>,
    paths: Vec<Option<NodePaths>>,
}

/// Cached matches of a node and its callers.
#[derive(Debug, Clone, Copy)]
struct NodePaths {
    /// In a stack that ends there.
    ending: PathMatch,
    /// In one that goes on to a function in the program's language: without its runtime's own frames.
    around: PathMatch,
}

/// Match of a frame.
#[derive(Debug, Clone, Copy)]
struct LevelMatch {
    /// The first suppression with a pattern that matches.
    first: u32,
    is_stdcxx: bool,
    is_loader: bool,
    is_start: bool,
}

/// Match of a stack, or of its outer part.
#[derive(Debug, Clone, Copy)]
struct PathMatch {
    /// The first suppression with a pattern that matches a frame.
    first: u32,
    is_empty: bool,
    /// The innermost frame is libstdc++'s.
    begins_in_stdcxx: bool,
    /// The outermost frame is the loader's.
    ends_in_loader: bool,
    /// All frames are of what is there before the program runs.
    is_start: bool,
}

impl PathMatch {
    const EMPTY: Self =
        Self { first: NONE, is_empty: true, begins_in_stdcxx: false, ends_in_loader: false, is_start: true };

    fn is_library_start(&self) -> bool {
        self.begins_in_stdcxx && self.ends_in_loader && self.is_start
    }

    /// A frame that was called from here.
    fn called(self, level: LevelMatch) -> Self {
        Self {
            first: self.first.min(level.first),
            is_empty: false,
            begins_in_stdcxx: level.is_stdcxx,
            ends_in_loader: if self.is_empty { level.is_loader } else { self.ends_in_loader },
            is_start: self.is_start && level.is_start,
        }
    }
}

impl<'a> SuppressedStacks<'a> {
    /// For these suppressions.
    #[must_use]
    pub fn new(trace: &'a Trace, symbols: &'a dyn RecordingSymbols, suppressions: &'a [Suppression]) -> Self {
        let start = suppressions.iter().position(|known| matches!(known.rule, SuppressionRule::LibraryStart));
        Self {
            trace,
            symbols,
            suppressions,
            start: start.map(|at| at as u32),
            folded: trace.folded_frames(symbols),
            levels: FxHashMap::default(),
            paths: vec![None; trace.node_count() as usize],
        }
    }

    /// Position of the first suppression that the backtrace of a node falls under: as [`Suppression::matches`] says for its
    /// frames.
    pub fn hit(&mut self, node: u32) -> Option<usize> {
        let path = self.path(node);
        let first = self.start.filter(|_| path.is_library_start()).map_or(path.first, |start| path.first.min(start));
        (first != NONE).then_some(first as usize)
    }

    fn path(&mut self, node: u32) -> PathMatch {
        let mut above = NodePaths { ending: PathMatch::EMPTY, around: PathMatch::EMPTY };
        let mut unknown = Vec::new();
        for node in self.trace.stack(node) {
            match self.paths.get(node as usize).copied().flatten() {
                Some(known) => {
                    above = known;
                    break;
                }
                None => unknown.push(node),
            }
        }
        let mut frames = Vec::new();
        while let Some(node) = unknown.pop() {
            if let Some(location) = self.trace.node_location(node) {
                frames.clear();
                self.symbols.frames(self.trace, location, &mut frames);
                let role = self.folded.map_or(RuntimeRole::Other, |folded| folded.role(node));
                if role == RuntimeRole::Function {
                    above.ending = above.around;
                }
                // Inlined functions stand before those that they were inlined into.
                for frame in frames.iter().rev() {
                    let level = self.level(frame);
                    above.ending = above.ending.called(level);
                    if role != RuntimeRole::Own {
                        above.around = above.around.called(level);
                    }
                }
            }
            if let Some(known) = self.paths.get_mut(node as usize) {
                *known = Some(above);
            }
        }
        above.ending
    }

    fn level(&mut self, frame: &SymbolFrame) -> LevelMatch {
        let (trace, symbols, suppressions) = (self.trace, self.symbols, self.suppressions);
        let look = || {
            let function = symbols.function(frame.function);
            let file = frame.file.map(|file| symbols.file(file));
            let module = function.module.and_then(|m| trace.modules().get(m as usize)).map(|m| m.name());
            let texts = [function.name.as_deref(), file.as_deref(), module.as_deref()];
            let is_hit = |known: &Suppression| match &known.rule {
                SuppressionRule::Frame(regex) => texts.into_iter().flatten().any(|text| regex.is_match(text)),
                SuppressionRule::LibraryStart => false,
            };
            let module = module.as_deref();
            LevelMatch {
                first: suppressions.iter().position(is_hit).map_or(NONE, |at| at as u32),
                is_stdcxx: is_stdcxx(module),
                is_loader: is_loader(module),
                is_start: is_start(module),
            }
        };
        *self.levels.entry((frame.function, frame.file)).or_insert_with(look)
    }
}

#[cfg(test)]
mod tests {
    use super::super::is_library_start;
    use super::*;

    #[test]
    fn starts_of_libraries_are_recognised_by_the_modules_of_all_frames() {
        const MODULES: [Option<&str>; 5] =
            [None, Some("libstdc++.so.6"), Some("ld-linux-x86-64.so.2"), Some("libc.so.6"), Some("app")];
        let level = |module| LevelMatch {
            first: NONE,
            is_stdcxx: is_stdcxx(module),
            is_loader: is_loader(module),
            is_start: is_start(module),
        };
        let mut starts = 0;
        for depth in 0..5_u32 {
            for number in 0..5_usize.pow(depth) {
                let modules: Vec<_> = (0..depth).map(|at| MODULES[number / 5_usize.pow(at) % 5]).collect();
                let path = modules.iter().rev().fold(PathMatch::EMPTY, |path, &module| path.called(level(module)));
                assert_eq!(path.is_library_start(), is_library_start(modules.iter().copied()), "{modules:?}");
                starts += usize::from(path.is_library_start());
            }
        }
        assert!(starts > 0);
    }
}
