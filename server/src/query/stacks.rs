//! Backtraces as documents show them.

use crate::api::Frame;
use crate::trace::Trace;
use crate::trace::symbols::{SymbolFrame, Symbols};

/// The frames of a backtrace, leaf first, beginning with the caller of the allocating function; inlined functions are
/// frames of their own. Empty for node 0.
#[must_use]
pub fn frames(trace: &Trace, symbols: &dyn Symbols, node: u32) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut levels = Vec::new();
    for node in trace.stack(node) {
        let Some(location) = trace.node_location(node) else { continue };
        levels.clear();
        symbols.frames(trace, location, &mut levels);
        let pc = trace.location(location).pc;
        frames.extend(levels.iter().map(|level| frame(trace, symbols, level, pc)));
    }
    frames
}

/// One frame.
#[must_use]
pub fn frame(trace: &Trace, symbols: &dyn Symbols, level: &SymbolFrame, pc: u64) -> Frame {
    let function = symbols.function(level.function);
    Frame {
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
pub fn innermost(trace: &Trace, symbols: &dyn Symbols, node: u32) -> Option<Frame> {
    let location = trace.stack(node).find_map(|n| trace.node_location(n))?;
    let mut levels = Vec::new();
    symbols.frames(trace, location, &mut levels);
    let pc = trace.location(location).pc;
    levels.first().map(|level| frame(trace, symbols, level, pc))
}

/// The innermost frame of a backtrace that is the program's own (see [`crate::api::library`]), else the innermost;
/// `None` for node 0 and unknown nodes.
#[must_use]
pub fn allocated_by(trace: &Trace, symbols: &dyn Symbols, node: u32) -> Option<Frame> {
    allocator_and_caller(trace, symbols, node).0
}

/// What [`allocated_by`] gives, and the frame that called it.
#[must_use]
pub fn allocator_and_caller(trace: &Trace, symbols: &dyn Symbols, node: u32) -> (Option<Frame>, Option<Frame>) {
    // The innermost frame and its caller, in case that all are of libraries.
    let mut innermost = [None, None];
    let mut own: Option<Frame> = None;
    let mut levels = Vec::new();
    for location in trace.stack(node).filter_map(|node| trace.node_location(node)) {
        levels.clear();
        symbols.frames(trace, location, &mut levels);
        let pc = trace.location(location).pc;
        for level in &levels {
            let frame = frame(trace, symbols, level, pc);
            if let Some(by) = &own {
                // A function that calls itself, or whose part was split off, says nothing new.
                if by.function.is_none() || by.function != frame.function {
                    return (own, Some(frame));
                }
                continue;
            }
            if !frame.is_library() {
                own = Some(frame);
            } else if let Some(slot) = innermost.iter_mut().find(|slot| slot.is_none()) {
                *slot = Some(frame);
            }
        }
    }
    if own.is_some() {
        return (own, None);
    }
    let [first, second] = innermost;
    (first, second)
}
