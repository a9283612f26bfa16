//! Tables of code: backtraces and the places that they consist of.

use std::sync::Arc;

use rusqlite::types::Value;
use tracehound_index::Trace;
use tracehound_index::symbols::{LocationId, RecordingSymbols};
use tracehound_query::{QueryError, stacks as backtraces};

use super::allocations::signed;
use super::process::{hex, row};
use super::rows::{Question, SqlRow, SqlRows};

/// Looks up names for all places at once, in parallel.
fn resolve_all(question: &Question<'_>) -> Result<(), QueryError> {
    let recording = question.recording;
    let all: Vec<LocationId> = (0..recording.trace.location_count()).collect();
    Ok(recording.symbols.resolve(&recording.trace, &all, question.cancel)?)
}

/// See [`super::schema::STACKS`].
pub fn stacks(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let recording = question.recording;
    let (trace, symbols) = (Arc::clone(&recording.trace), Arc::clone(&recording.symbols));
    if let Some(key) = question.key {
        let Ok(node) = u32::try_from(key) else { return Ok(Box::new(std::iter::empty())) };
        return Ok(Box::new(frames_of(&trace, symbols.as_ref(), node).into_iter()));
    }
    resolve_all(question)?;
    // Backtraces that an event refers to, each once.
    let mut seen = vec![false; trace.node_count() as usize];
    let others = trace.other_events().map(|event| event.node);
    for node in (0..trace.origin_count()).map(|origin| trace.origin(origin).node).chain(others) {
        if let Some(seen) = seen.get_mut(node as usize) {
            *seen = node != 0;
        }
    }
    let nodes = (0_u32..).zip(seen).filter(|(_, seen)| *seen).map(|(node, _)| node);
    Ok(Box::new(nodes.flat_map(move |node| frames_of(&trace, symbols.as_ref(), node))))
}

fn frames_of(trace: &Trace, symbols: &dyn RecordingSymbols, node: u32) -> Vec<SqlRow> {
    // Each place stands for as many frames as functions are inlined there.
    let mut places = Vec::new();
    let mut levels = Vec::new();
    for location in trace.stack(node).filter_map(|node| trace.node_location(node)) {
        levels.clear();
        symbols.frames(trace, location, &mut levels);
        places.extend(levels.iter().map(|_| (location, trace.location(location).pc)));
    }
    let frames = backtraces::frames(trace, symbols, node);
    let row = |(depth, (frame, (location, pc)))| {
        let frame: tracehound_api::Frame = frame;
        let depth: u32 = depth;
        row![
            node,
            depth,
            location,
            frame.function,
            frame.file,
            frame.line,
            frame.module,
            frame.inlined,
            frame.library,
            signed(pc),
        ]
    };
    (0_u32..).zip(frames.into_iter().zip(places)).map(row).collect()
}

/// See [`super::schema::FRAMES`].
pub fn frames(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let recording = question.recording;
    let (trace, symbols) = (Arc::clone(&recording.trace), Arc::clone(&recording.symbols));
    let locations = match question.key {
        Some(key) => match u32::try_from(key).ok().filter(|&key| key < trace.location_count()) {
            Some(key) => key..key + 1,
            None => 0..0,
        },
        None => {
            resolve_all(question)?;
            0..trace.location_count()
        }
    };
    Ok(Box::new(locations.flat_map(move |location| levels_of(&trace, symbols.as_ref(), location))))
}

fn levels_of(trace: &Trace, symbols: &dyn RecordingSymbols, location: LocationId) -> Vec<SqlRow> {
    let place = trace.location(location);
    let module = place.module.and_then(|module| trace.modules().get(module as usize));
    let offset = place.pc.wrapping_sub(module.map_or(0, |module| module.bias));
    let mut levels = Vec::new();
    symbols.frames(trace, location, &mut levels);
    let row = |(number, level): (u32, &tracehound_index::symbols::SymbolFrame)| {
        let function = symbols.function(level.function);
        row![
            location,
            number,
            function.name.map(|name| name.to_string()),
            level.file.map(|file| symbols.file(file).to_string()),
            level.line,
            module.map(tracehound_index::facts::ModuleFacts::name),
            module.filter(|module| !module.build_id.is_empty()).map(|module| hex(&module.build_id)),
            signed(offset),
            level.inlined,
        ]
    };
    (0..).zip(&levels).map(row).collect()
}
