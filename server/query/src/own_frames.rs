//! The program's function of very many backtraces (see [`tracehound_index::program`]).
//!
//! The kinds of code at a location are looked up once for all backtraces that pass through it; so a backtrace of code
//! without names, which is followed to its outermost frame, costs one byte a frame. What is found for a site is kept for
//! the queries that follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

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

    /// Whether the function has no name but its address.
    #[must_use]
    pub fn is_nameless(&self, symbols: &dyn RecordingSymbols) -> bool {
        symbols.kind(self.level.function) == CodeKind::Nameless
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
    known: Arc<KnownFrames>,
}

/// What queries have found so far, with the names of one source.
struct KnownFrames {
    identity: u64,
    /// By location: the best kind of code there as in [`CODES`], plus one; 0: not looked up.
    kinds: Vec<AtomicU8>,
    /// By site: its frame as in [`FoundFrame::to_word`]; 0: not looked up.
    sites: Vec<AtomicU64>,
}

/// Where the frame of a backtrace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FoundFrame {
    location: LocationId,
    /// Position among the location's frames.
    level: u16,
    is_stand_in: bool,
}

/// A site without a frame.
const NO_FRAME: u64 = u64::MAX;

impl FoundFrame {
    /// Never 0 and never [`NO_FRAME`].
    fn to_word(self) -> u64 {
        u64::from(self.location) | u64::from(self.level) << 32 | u64::from(self.is_stand_in) << 48 | 1 << 49
    }

    const fn from_word(word: u64) -> Self {
        Self { location: word as u32, level: (word >> 32) as u16, is_stand_in: word >> 48 & 1 == 1 }
    }

    /// With its names.
    fn named(self, trace: &Trace, symbols: &dyn RecordingSymbols) -> Option<OwnFrame> {
        let mut levels = Vec::new();
        symbols.frames(trace, self.location, &mut levels);
        let level = *levels.get(usize::from(self.level))?;
        Some(OwnFrame { level, pc: trace.location(self.location).pc, is_stand_in: self.is_stand_in })
    }
}

/// Best first.
const CODES: [CodeKind; 6] =
    [CodeKind::Program, CodeKind::Package, CodeKind::Runtime, CodeKind::Nameless, CodeKind::Wrapper, CodeKind::Library];

impl<'a> OwnFrames<'a> {
    /// For a recording, with these names.
    #[must_use]
    pub fn new(trace: &'a Trace, symbols: &'a dyn RecordingSymbols) -> Self {
        let identity = symbols.identity();
        let known = trace.remembered(
            if symbols.folds_interpreters() { "own-frames" } else { "own-frames-of-all" },
            |known: &KnownFrames| known.identity == identity,
            || KnownFrames {
                identity,
                kinds: (0..trace.location_count()).map(|_| AtomicU8::new(0)).collect(),
                sites: (0..trace.site_count()).map(|_| AtomicU64::new(0)).collect(),
            },
        );
        Self { trace, symbols, known }
    }

    /// Of a site; `None` if it has no backtrace.
    #[must_use]
    pub fn of_site(&self, site: u32) -> Option<OwnFrame> {
        let look = || self.find(self.trace.site_node(site).unwrap_or(0));
        let found = match self.known.sites.get(site as usize) {
            None => look(),
            Some(cell) => match cell.load(Ordering::Relaxed) {
                0 => {
                    let found = look();
                    cell.store(found.map_or(NO_FRAME, FoundFrame::to_word), Ordering::Relaxed);
                    found
                }
                NO_FRAME => None,
                word => Some(FoundFrame::from_word(word)),
            },
        };
        found?.named(self.trace, self.symbols)
    }

    /// Of a backtrace; `None` for node 0 and unknown nodes.
    #[must_use]
    pub fn of_node(&self, node: u32) -> Option<OwnFrame> {
        self.find(node)?.named(self.trace, self.symbols)
    }

    fn find(&self, node: u32) -> Option<FoundFrame> {
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
        let Some(kind) = self.known.kinds.get(location as usize) else {
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
    find(trace, symbols, node, |location| code_at(trace, symbols, location))?.named(trace, symbols)
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
) -> Option<FoundFrame> {
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
    let level = levels.iter().position(|level| is_best(&level))?;
    Some(FoundFrame { location, level: u16::try_from(level).ok()?, is_stand_in: best.is_none() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_frames_are_no_marks_and_can_be_read_back() {
        for location in [0, 1, u32::MAX] {
            for level in [0, u16::MAX] {
                for is_stand_in in [false, true] {
                    let found = FoundFrame { location, level, is_stand_in };
                    assert!(![0, NO_FRAME].contains(&found.to_word()));
                    assert_eq!(FoundFrame::from_word(found.to_word()), found);
                }
            }
        }
    }
}
