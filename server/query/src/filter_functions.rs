//! Which functions of a tree the patterns and the names of a filter mean. A recording may have as many functions as
//! addresses: each is tried once, on all threads of the pool, and what came of it is kept with the tree.

use std::sync::{Arc, OnceLock};

use rayon::prelude::*;
use regex::Regex;
use rustc_hash::FxHashMap;

use super::filter::is_called;
use tracehound_index::Trace;
use tracehound_index::facts::ModuleFacts;
use tracehound_index::frame_tree::{FrameTree, NO_FUNCTION};
use tracehound_index::symbols::{FileId, FunctionId, RecordingSymbols, SymbolFrame};

/// By row of the frame tree: its function matches a pattern.
#[derive(Debug)]
pub struct MatchingRows(pub Vec<bool>);

/// By row of the frame tree: its function or a caller matches a pattern.
#[derive(Debug)]
pub struct PathRows(pub Vec<bool>);

/// Patterns whose rows are kept: a byte a row each.
const KEPT_PATTERNS: usize = 8;

/// The functions of a tree.
pub struct FilterFunctions<'a> {
    trace: &'a Trace,
    tree: &'a FrameTree,
    symbols: &'a dyn RecordingSymbols,
    texts: OnceLock<Vec<FunctionTexts>>,
    other_files: OnceLock<FxHashMap<FunctionId, Vec<FileId>>>,
}

/// What a pattern may match of a function.
struct FunctionTexts {
    function: FunctionId,
    name: Arc<str>,
    /// Of its declaration, else of a call in it.
    file: Option<Arc<str>>,
    place: (Option<FileId>, Option<u32>),
    module: Option<u32>,
}

/// What tells a function from others of its name: `name@file:line@module`, with the file and line of its declaration
/// and the module's file name; what is not known is left out.
#[must_use]
pub fn identity_of(name: &str, file: Option<&str>, line: Option<u32>, module: Option<&str>) -> String {
    let line = line.filter(|_| file.is_some()).map_or_else(String::new, |line| format!(":{line}"));
    format!("{name}@{}{line}@{}", file.unwrap_or_default(), module.unwrap_or_default())
}

/// An identity without `:line`.
fn without_line(identity: &str) -> String {
    let Some((front, module)) = identity.rsplit_once('@') else { return identity.into() };
    match front.rsplit_once(':') {
        Some((place, line)) if !line.is_empty() && line.bytes().all(|c| c.is_ascii_digit()) => {
            format!("{place}@{module}")
        }
        _ => identity.into(),
    }
}

impl<'a> FilterFunctions<'a> {
    /// The functions of a tree; their texts are read when a pattern or a name is new.
    pub fn new(trace: &'a Trace, tree: &'a FrameTree, symbols: &'a dyn RecordingSymbols) -> Self {
        Self { trace, tree, symbols, texts: OnceLock::new(), other_files: OnceLock::new() }
    }

    /// By row: the function matches.
    pub fn matching(&self, regex: &Regex) -> Arc<MatchingRows> {
        self.tree.kept(regex.as_str(), KEPT_PATTERNS, || MatchingRows(self.rows_matching(regex)))
    }

    /// By row: it or a caller matches.
    pub fn on_path(&self, regex: &Regex) -> Arc<PathRows> {
        self.tree.kept(regex.as_str(), KEPT_PATTERNS, || {
            let mut hits = self.rows_matching(regex);
            for (row, &parent) in self.tree.shape().parent.iter().enumerate().skip(1) {
                hits[row] |= hits[parent as usize];
            }
            PathRows(hits)
        })
    }

    fn rows_matching(&self, regex: &Regex) -> Vec<bool> {
        // Whoever means one function among others of its name writes an `@`.
        let others = regex.as_str().contains('@').then(|| self.other_files());
        let hits = self.functions_with(regex, |regex, texts| {
            regex.is_match(&texts.name)
                || texts.file.as_ref().is_some_and(|file| regex.is_match(file))
                || others.is_some_and(|others| self.identities(texts, others).any(|it| regex.is_match(&it)))
        });
        self.tree.shape().frame.iter().map(|frame| hits.get(frame.function as usize) == Some(&true)).collect()
    }

    /// By function: it has this name or this identity, with or without the line of its declaration.
    pub fn called(&self, wanted: &str) -> Vec<bool> {
        let others = wanted.contains('@').then(|| self.other_files());
        let is_wanted = |identity: String| identity == wanted || without_line(&identity) == wanted;
        self.functions_with(&wanted, |_, texts| {
            *texts.name == *wanted
                || wanted.starts_with(&*texts.name)
                    && others.is_some_and(|others| self.identities(texts, others).any(is_wanted))
        })
    }

    /// By function: it is of the module with this file name, or path.
    pub fn of_module(&self, name: &str) -> Vec<bool> {
        let named: Vec<bool> = self.trace.modules().iter().map(|module| is_called(module, name)).collect();
        self.functions_with(&(), |(), texts| texts.module.is_some_and(|m| named.get(m as usize) == Some(&true)))
    }

    /// By function: it passes a test, which gets its own copy of `what` in each thread.
    fn functions_with<T: Clone + Send + Sync>(
        &self,
        what: &T,
        passes: impl Fn(&T, &FunctionTexts) -> bool + Sync,
    ) -> Vec<bool> {
        let texts = self.texts.get_or_init(|| self.read_texts());
        let tested = texts.par_iter().with_min_len(1024).map_init(|| what.clone(), |what, texts| passes(what, texts));
        let tested: Vec<bool> = tested.collect();
        let len = texts.iter().map(|texts| texts.function as usize + 1).max().unwrap_or(0);
        let mut hits = vec![false; len];
        for (texts, hit) in texts.iter().zip(tested) {
            hits[texts.function as usize] = hit;
        }
        hits
    }

    /// The texts of each function, in the order of the rows.
    fn read_texts(&self) -> Vec<FunctionTexts> {
        let mut seen: Vec<bool> = Vec::new();
        let mut first: Vec<SymbolFrame> = Vec::new();
        for frame in self.tree.shape().frame.iter().filter(|frame| frame.function != NO_FUNCTION) {
            let at = frame.function as usize;
            if seen.len() <= at {
                seen.resize((at + 1).next_power_of_two(), false);
            }
            if !std::mem::replace(&mut seen[at], true) {
                first.push(*frame);
            }
        }
        let texts = |frame: &SymbolFrame| {
            let function = self.symbols.function(frame.function);
            let place = function.place(frame);
            FunctionTexts {
                function: frame.function,
                name: Arc::clone(function.display()),
                file: place.0.map(|file| self.symbols.file(file)),
                place,
                module: function.module,
            }
        };
        first.par_iter().with_min_len(1024).map(texts).collect()
    }

    /// Files that parts of a function are in, beside that of its declaration.
    fn other_files(&self) -> &FxHashMap<FunctionId, Vec<FileId>> {
        self.other_files.get_or_init(|| {
            let texts = self.texts.get_or_init(|| self.read_texts());
            let own: FxHashMap<FunctionId, Option<FileId>> = texts.iter().map(|t| (t.function, t.place.0)).collect();
            let mut others: FxHashMap<FunctionId, Vec<FileId>> = FxHashMap::default();
            for frame in &self.tree.shape().frame {
                let Some(file) = frame.file.filter(|_| frame.function != NO_FUNCTION) else { continue };
                if own.get(&frame.function) == Some(&Some(file)) {
                    continue;
                }
                let files = others.entry(frame.function).or_default();
                if !files.contains(&file) {
                    files.push(file);
                }
            }
            others
        })
    }

    /// One identity for a function's declaration, and one for each other file that parts of it are in.
    fn identities<'t>(
        &'t self,
        texts: &'t FunctionTexts,
        others: &'t FxHashMap<FunctionId, Vec<FileId>>,
    ) -> impl Iterator<Item = String> + 't {
        let module = texts.module.and_then(|id| self.trace.modules().get(id as usize)).map(ModuleFacts::name);
        let declared = identity_of(&texts.name, texts.file.as_deref(), texts.place.1, module.as_deref());
        let others = others
            .get(&texts.function)
            .into_iter()
            .flatten()
            .map(move |&file| identity_of(&texts.name, Some(&self.symbols.file(file)), None, module.as_deref()));
        std::iter::once(declared).chain(others)
    }
}
