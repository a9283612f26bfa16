//! Backtraces as documents show them.

use super::own_frames;
use tracehound_api::Frame;
use tracehound_index::Trace;
use tracehound_index::program::{CodeKind, program_frame};
use tracehound_index::symbols::{FunctionFacts, RecordingSymbols, SymbolFrame};

/// The frames of a backtrace, leaf first, beginning with the caller of the allocating function; inlined functions are
/// frames of their own. Empty for node 0.
#[must_use]
pub fn frames(trace: &Trace, symbols: &dyn RecordingSymbols, node: u32) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut kinds = Vec::new();
    let mut levels = Vec::new();
    for node in trace.shown_stack(symbols, node) {
        let Some(location) = trace.node_location(node) else { continue };
        levels.clear();
        symbols.frames(trace, location, &mut levels);
        let pc = trace.location(location).pc;
        for level in &levels {
            let function = symbols.function(level.function);
            kinds.push(function.kind);
            frames.push(frame_of(trace, symbols, level, pc, function));
        }
    }
    if let Some(program) = program_frame(kinds) {
        for (at, frame) in frames.iter_mut().enumerate() {
            frame.library = at < program || at > program && frame.library;
        }
        frames[program].library = false;
    }
    frames
}

/// One frame by itself: whether it is a library's does not depend on the frames around it.
#[must_use]
pub fn frame(trace: &Trace, symbols: &dyn RecordingSymbols, level: &SymbolFrame, pc: u64) -> Frame {
    frame_of(trace, symbols, level, pc, symbols.function(level.function))
}

fn frame_of(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    level: &SymbolFrame,
    pc: u64,
    function: FunctionFacts,
) -> Frame {
    Frame {
        library: function.kind.is_library(),
        language: function.language.map(|language| language.name().to_owned()),
        offset: function.name.is_none().then(|| function.display().as_ref().to_owned()),
        function: function.name.map(|name| name.as_ref().to_owned()),
        file: level.file.map(|file| symbols.file(file).as_ref().to_owned()),
        line: level.line,
        module: function.module.and_then(|m| trace.modules().get(m as usize)).map(|m| m.name()),
        inlined: level.inlined,
        address: format!("{pc:#x}"),
    }
}

/// The innermost frame of a backtrace; `None` for node 0 and unknown nodes.
#[must_use]
pub fn innermost(trace: &Trace, symbols: &dyn RecordingSymbols, node: u32) -> Option<Frame> {
    let location = trace.shown_stack(symbols, node).find_map(|n| trace.node_location(n))?;
    let mut levels = Vec::new();
    symbols.frames(trace, location, &mut levels);
    let pc = trace.location(location).pc;
    levels.first().map(|level| frame(trace, symbols, level, pc))
}

/// The frame of a backtrace that is the program's function (see [`tracehound_index::program`]), else the innermost; `None`
/// for node 0 and unknown nodes.
#[must_use]
pub fn allocated_by(trace: &Trace, symbols: &dyn RecordingSymbols, node: u32) -> Option<Frame> {
    own_frames::of_one(trace, symbols, node).map(|own| own.texts(trace, symbols))
}

/// What [`allocated_by`] gives, and the nearest function above it that is no library's: what calls the program's outermost
/// function is the library that started it, and says nothing.
#[must_use]
pub fn allocator_and_caller(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    node: u32,
) -> (Option<Frame>, Option<Frame>) {
    let mut levels: Vec<(SymbolFrame, u64)> = Vec::new();
    let mut kinds = Vec::new();
    let mut program = None;
    let mut some = Vec::new();
    for location in trace.shown_stack(symbols, node).filter_map(|node| trace.node_location(node)) {
        some.clear();
        symbols.frames(trace, location, &mut some);
        let pc = trace.location(location).pc;
        for level in &some {
            let function = symbols.function(level.function);
            if let Some(at) = program {
                // A function that calls itself, or whose part was split off, says nothing new.
                let by: &(SymbolFrame, u64) = &levels[at];
                let is_same = by.0.function == level.function && function.name.is_some();
                if !is_same && !function.kind.is_library() {
                    let own = Frame { library: false, ..frame(trace, symbols, &by.0, by.1) };
                    return (Some(own), Some(frame_of(trace, symbols, level, pc, function)));
                }
                continue;
            }
            levels.push((*level, pc));
            kinds.push(function.kind);
            program = (function.kind == CodeKind::Program).then(|| levels.len() - 1);
        }
    }
    let found = program_frame(kinds.iter().copied());
    let at = found.unwrap_or(0);
    let own = levels.get(at).map(|(level, pc)| frame(trace, symbols, level, *pc));
    let own = own.map(|own| Frame { library: own.library && found.is_none(), ..own });
    let is_same = |level: &SymbolFrame| levels.get(at).is_some_and(|by| by.0.function == level.function);
    let caller = levels.iter().zip(&kinds).skip(at + 1).find(|&((level, _), kind)| {
        // Where all of a stack is of libraries, the next of them is what there is to say.
        !is_same(level) && (found.is_none() || !kind.is_library())
    });
    (own, caller.map(|((level, pc), _)| frame(trace, symbols, level, *pc)))
}
