//! Interface of the queries to symbolisation. They see functions as dense ids; texts are fetched only for what is
//! shown.

use std::sync::Arc;

use super::Trace;
use super::cancel::{Cancel, Cancelled};
use super::language::SourceLanguage;
use super::program::CodeKind;

/// Dense id of a distinct (pc, generation) of the call tree, see [`Trace::location`]. Many nodes share one.
pub type LocationId = u32;
/// Dense id of a function, given out by the [`RecordingSymbols`]; two locations in the same function share it. Functions are the
/// same if they are of the same module, have the same name and are declared at the same line of the same file.
pub type FunctionId = u32;
/// Dense id of a source file, given out by the [`RecordingSymbols`].
pub type FileId = u32;

/// One level of a location: the function that the pc lies in, or one that was inlined there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SymbolFrame {
    /// The function; for a pc without a symbol one that means "unknown code at this address of this module".
    pub function: FunctionId,
    /// Source file of the call, if known.
    pub file: Option<FileId>,
    /// Line of the call, if known.
    pub line: Option<u32>,
    /// The function was inlined into the next frame.
    pub inlined: bool,
}

/// What is known about a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionFacts {
    /// Demangled name; `None` if there is no symbol.
    pub name: Option<Arc<str>>,
    /// What to show in place of a missing name: `0x…`, the address as the module's file has it.
    pub fallback: Arc<str>,
    /// Id of the module in [`Trace::modules`], if the pc lies in one.
    pub module: Option<u32>,
    /// Source file that the function is declared in, if known.
    pub file: Option<FileId>,
    /// Line of the declaration, if known.
    pub line: Option<u32>,
    /// Not the program's own code, or none that says anything: what its name, file and module make of it.
    pub kind: CodeKind,
    /// The language that it is written in, as far as that is known.
    pub language: Option<SourceLanguage>,
}

impl FunctionFacts {
    /// The name, or else the fallback.
    #[must_use]
    pub fn display(&self) -> &Arc<str> {
        self.name.as_ref().unwrap_or(&self.fallback)
    }

    /// A file and a line that stand for the function: of its declaration, else those of a call in it.
    #[must_use]
    pub fn place(&self, call: &SymbolFrame) -> (Option<FileId>, Option<u32>) {
        match self.file {
            Some(file) => (Some(file), self.line),
            None => (call.file, call.line),
        }
    }
}

/// Names for locations. Implementations cache: the same question is asked many times, from many threads.
pub trait RecordingSymbols: Send + Sync {
    /// Tells apart sources whose ids differ, so that trees built over them are not mixed up.
    fn identity(&self) -> u64;

    /// Makes names for `locations` ready, in parallel where that pays; later calls of [`Self::frames`] are then cheap.
    ///
    /// # Errors
    /// When `cancel` was set meanwhile.
    fn resolve(&self, trace: &Trace, locations: &[LocationId], cancel: &Cancel) -> Result<(), Cancelled>;

    /// Appends the frames of `location` to `out`, innermost inlined function first; at least one.
    fn frames(&self, trace: &Trace, location: LocationId, out: &mut Vec<SymbolFrame>);

    /// The function behind an id that [`Self::frames`] gave out.
    fn function(&self, id: FunctionId) -> FunctionFacts;

    /// The kind of that function alone, which is asked of all functions of a recording.
    fn kind(&self, id: FunctionId) -> CodeKind {
        self.function(id).kind
    }

    /// The path behind an id that [`Self::frames`] or [`Self::function`] gave out.
    fn file(&self, id: FileId) -> Arc<str>;

    /// Whether the compiler of the code at `location` leaves no trace of the functions that it inlined: frames may be
    /// missing there.
    fn inlines_silently(&self, _location: LocationId) -> bool {
        false
    }

    /// Whether an interpreter's own frames around the program's functions are left out of backtraces.
    fn folds_interpreters(&self) -> bool {
        false
    }
}

/// The same names, for backtraces with all frames.
pub struct AllFrames<'a>(pub &'a dyn RecordingSymbols);

impl RecordingSymbols for AllFrames<'_> {
    fn identity(&self) -> u64 {
        // Sources of names have even ones.
        self.0.identity() | 1
    }

    fn resolve(&self, trace: &Trace, locations: &[LocationId], cancel: &Cancel) -> Result<(), Cancelled> {
        self.0.resolve(trace, locations, cancel)
    }

    fn frames(&self, trace: &Trace, location: LocationId, out: &mut Vec<SymbolFrame>) {
        self.0.frames(trace, location, out);
    }

    fn function(&self, id: FunctionId) -> FunctionFacts {
        self.0.function(id)
    }

    fn kind(&self, id: FunctionId) -> CodeKind {
        self.0.kind(id)
    }

    fn file(&self, id: FileId) -> Arc<str> {
        self.0.file(id)
    }

    fn inlines_silently(&self, location: LocationId) -> bool {
        self.0.inlines_silently(location)
    }
}

/// Addresses in place of names: every location is a function of its own.
#[derive(Debug, Default, Clone)]
pub struct Addresses {
    /// By location: the address as the module's file has it, and the module.
    locations: Vec<(u64, Option<u32>)>,
}

impl Addresses {
    /// The locations of a recording.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        let address = |id: LocationId| {
            let location = trace.location(id);
            let bias = location.module.and_then(|m| trace.modules().get(m as usize)).map_or(0, |m| m.bias);
            (location.pc.wrapping_sub(bias), location.module)
        };
        Self { locations: (0..trace.location_count()).map(address).collect() }
    }
}

impl RecordingSymbols for Addresses {
    fn identity(&self) -> u64 {
        0
    }

    fn resolve(&self, _: &Trace, _: &[LocationId], _: &Cancel) -> Result<(), Cancelled> {
        Ok(())
    }

    fn frames(&self, _: &Trace, location: LocationId, out: &mut Vec<SymbolFrame>) {
        out.push(SymbolFrame { function: location, file: None, line: None, inlined: false });
    }

    fn function(&self, id: FunctionId) -> FunctionFacts {
        let (address, module) = self.locations.get(id as usize).copied().unwrap_or_default();
        let fallback = format!("{address:#x}").into();
        FunctionFacts { name: None, fallback, module, file: None, line: None, kind: CodeKind::Nameless, language: None }
    }

    fn file(&self, _: FileId) -> Arc<str> {
        Arc::from("")
    }
}
