//! The program's function of very many backtraces (see [`tracehound_index::program`]).
//!
//! The kinds of code at a location are looked up once for all backtraces that pass through it; so a backtrace of code
//! without names, which is followed to its outermost frame, costs one byte a frame.

use std::sync::atomic::{AtomicU8, Ordering};

use regex::Regex;
use rustc_hash::FxHashMap;

use super::stacks;
use tracehound_api::Frame;
use tracehound_index::Trace;
use tracehound_index::program::CodeKind;
use tracehound_index::symbols::{FileId, FunctionId, LocationId, RecordingSymbols, SymbolFrame};

/// The frame of a backtrace that is the program's function, else its innermost one, before it has texts.
#[derive(Debug, Clone, Copy)]
pub struct OwnFrame {
    /// Function, file and line.
    pub level: SymbolFrame,
    pc: u64,
    /// It is the innermost frame, for want of a function of the program.
    is_stand_in: bool,
}

impl OwnFrame {
    /// What documents show.
    #[must_use]
    pub fn texts(&self, trace: &Trace, symbols: &dyn RecordingSymbols) -> Frame {
        let shown = stacks::frame(trace, symbols, &self.level, self.pc);
        Frame { library: shown.library && self.is_stand_in, ..shown }
    }

    /// Frames with the same have the same function, module, language and file; line and address may differ.
    #[must_use]
    pub const fn place(&self) -> (FunctionId, Option<FileId>) {
        (self.level.function, self.level.file)
    }
}

/// See the module's description. Any number of threads may query one at the same time.
pub struct OwnFrames<'a> {
    trace: &'a Trace,
    symbols: &'a dyn RecordingSymbols,
    /// By location: the best kind of code there as in [`CODES`], plus one; 0: not looked up.
    kinds: Vec<AtomicU8>,
}

/// Best first.
const CODES: [CodeKind; 5] =
    [CodeKind::Program, CodeKind::Package, CodeKind::Nameless, CodeKind::Wrapper, CodeKind::Library];

impl<'a> OwnFrames<'a> {
    /// For a recording, with these names.
    #[must_use]
    pub fn new(trace: &'a Trace, symbols: &'a dyn RecordingSymbols) -> Self {
        Self { trace, symbols, kinds: (0..trace.location_count()).map(|_| AtomicU8::new(0)).collect() }
    }

    /// Of a site; `None` if it has no backtrace.
    #[must_use]
    pub fn of_site(&self, site: u32) -> Option<OwnFrame> {
        self.of_node(self.trace.site_node(site).unwrap_or(0))
    }

    /// Of a backtrace; `None` for node 0 and unknown nodes.
    #[must_use]
    pub fn of_node(&self, node: u32) -> Option<OwnFrame> {
        find(self.trace, self.symbols, node, |location| self.code_at(location))
    }

    /// A test of sites: the function, file or module of this frame matches.
    pub fn matcher<'b>(&'b self, wanted: &'b Regex) -> impl FnMut(u32) -> bool + 'b {
        let mut known: FxHashMap<(FunctionId, Option<FileId>), bool> = FxHashMap::default();
        move |site| {
            self.of_site(site).is_some_and(|own| {
                *known.entry(own.place()).or_insert_with(|| {
                    let frame = own.texts(self.trace, self.symbols);
                    let names = [frame.function, frame.file, frame.module];
                    names.into_iter().flatten().any(|name| wanted.is_match(&name))
                })
            })
        }
    }

    fn code_at(&self, location: LocationId) -> usize {
        let Some(kind) = self.kinds.get(location as usize) else {
            return code_at(self.trace, self.symbols, location);
        };
        match kind.load(Ordering::Relaxed) {
            0 => {
                let code = code_at(self.trace, self.symbols, location);
                kind.store(code as u8 + 1, Ordering::Relaxed);
                code
            }
            known => usize::from(known) - 1,
        }
    }
}

/// Of one backtrace; `None` for node 0 and unknown nodes.
pub fn of_one(trace: &Trace, symbols: &dyn RecordingSymbols, node: u32) -> Option<OwnFrame> {
    find(trace, symbols, node, |location| code_at(trace, symbols, location))
}

/// The best kind of code at a location, by its position in [`CODES`].
fn code_at(trace: &Trace, symbols: &dyn RecordingSymbols, location: LocationId) -> usize {
    let mut levels = Vec::new();
    symbols.frames(trace, location, &mut levels);
    levels.iter().map(|level| code(symbols.kind(level.function))).min().unwrap_or(CODES.len() - 1)
}

fn code(kind: CodeKind) -> usize {
    CODES.iter().position(|&other| other == kind).unwrap_or(CODES.len() - 1)
}

/// The innermost frame of the best kind; standard libraries alone have none.
fn find(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    node: u32,
    code_at: impl Fn(LocationId) -> usize,
) -> Option<OwnFrame> {
    let (mut innermost, mut best, mut best_code) = (None, None, code(CodeKind::Library));
    for location in trace.shown_stack(symbols, node).filter_map(|node| trace.node_location(node)) {
        innermost = innermost.or(Some(location));
        let code = code_at(location);
        if code < best_code {
            (best, best_code) = (Some(location), code);
        }
        if code == 0 {
            break;
        }
    }
    let location = best.or(innermost)?;
    let mut levels = Vec::new();
    symbols.frames(trace, location, &mut levels);
    let is_best = |level: &&SymbolFrame| best.is_none() || code(symbols.kind(level.function)) == best_code;
    let level = *levels.iter().find(is_best)?;
    Some(OwnFrame { level, pc: trace.location(location).pc, is_stand_in: best.is_none() })
}
