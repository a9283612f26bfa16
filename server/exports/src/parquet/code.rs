//! Tables of code: stacks, frames and modules.

use std::io::Write;

use super::super::{ExportInput, Result};
use super::columns::{Bools, ColumnType, Ints, NameLists, Names, Texts};
use super::names::{FrameNames, Name, name_of, place};
use super::table::{BATCH, ParquetTable, hex, int};

pub(super) fn stacks(source: ExportInput<'_>, names: &FrameNames, out: &mut dyn Write) -> Result<()> {
    let trace = source.trace;
    let columns =
        [("stack", ColumnType::Name, false), ("names", ColumnType::Name, false), ("frames", ColumnType::Names, false)];
    let by_names = names_of_locations(source);
    let mut table = ParquetTable::new(source, &columns, out)?;
    // What a block refers to: allocating and freeing stacks. Two nodes may be the same stack.
    let mut seen = std::collections::HashSet::new();
    let mut origins = (0..trace.origin_count()).peekable();
    while origins.peek().is_some() {
        source.cancel.check()?;
        let (mut stack, mut same, mut frames) = (Names::new(), Names::new(), NameLists::new());
        let mut of_stack: Vec<u32> = Vec::new();
        for origin in origins.by_ref() {
            let node = trace.origin(origin).node;
            let name = names.stack(node);
            if node == 0 || !seen.insert(name) {
                continue;
            }
            of_stack.clear();
            of_stack.extend(trace.stack(node).filter_map(|node| trace.node_location(node)));
            let parts: Vec<&[u8]> = of_stack.iter().map(|&location| &by_names[location as usize][..]).collect();
            stack.push(name);
            same.push(name_of(&parts, 0));
            frames.push(of_stack.iter().map(|&location| names.frames[location as usize]));
            if frames.value_count() >= BATCH {
                break;
            }
        }
        table.batch(vec![stack.into(), same.into(), frames.into()])?;
    }
    table.finish()
}

/// For each location a hash of its functions' names and its module's, which another build has, too.
fn names_of_locations(source: ExportInput<'_>) -> Vec<Name> {
    let trace = source.trace;
    let mut levels = Vec::new();
    let of_location = |location| {
        let module = place(trace, location).0.and_then(|position| trace.modules().get(position as usize));
        let module =
            module.map_or(&b""[..], |module| module.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default());
        levels.clear();
        source.symbols.frames(trace, location, &mut levels);
        let functions: Vec<_> = levels.iter().map(|symbol| source.symbols.function(symbol.function).name).collect();
        let mut parts = vec![module];
        parts.extend(functions.iter().map(|name| name.as_deref().unwrap_or_default().as_bytes()));
        name_of(&parts, 0)
    };
    (0..trace.location_count()).map(of_location).collect()
}

pub(super) fn frames(source: ExportInput<'_>, names: &FrameNames, out: &mut dyn Write) -> Result<()> {
    use ColumnType::{Bool, Int, Text};
    let trace = source.trace;
    let mut table = ParquetTable::new(
        source,
        &[
            ("frame", ColumnType::Name, false),
            ("level", Int, false),
            ("build_id", Text, true),
            ("module", Text, true),
            ("offset", Int, false),
            ("function", Text, true),
            ("file", Text, true),
            ("line", Int, true),
            ("inlined", Bool, false),
        ],
        out,
    )?;
    let locations: Vec<u32> = (0..trace.location_count()).collect();
    let mut seen = std::collections::HashSet::new();
    let mut levels = Vec::new();
    for part in locations.chunks(BATCH) {
        source.cancel.check()?;
        let (mut frame, mut level) = (Names::new(), Ints::new());
        let (mut build_id, mut module, mut offset) = (Texts::new(), Texts::new(), Ints::new());
        let (mut function, mut file, mut line, mut inlined) = (Texts::new(), Texts::new(), Ints::new(), Bools::new());
        for &location in part {
            let name = names.frames[location as usize];
            if !seen.insert(name) {
                continue;
            }
            let (position, address) = place(trace, location);
            let found = position.and_then(|position| trace.modules().get(position as usize));
            levels.clear();
            source.symbols.frames(trace, location, &mut levels);
            for (number, symbol) in (0_i64..).zip(&levels) {
                let known = source.symbols.function(symbol.function);
                frame.push(name);
                level.push(number);
                let has_id = found.filter(|module| !module.build_id.is_empty());
                build_id.push_option(has_id.map(|module| hex(&module.build_id)).as_deref());
                module.push_option(found.map(|module| String::from_utf8_lossy(&module.path)).as_deref());
                // The address differs between recordings, and the frame does not.
                offset.push(if names.by_function[location as usize] { 0 } else { int(address) });
                function.push_option(known.name.as_deref());
                file.push_option(symbol.file.map(|file| source.symbols.file(file)).as_deref());
                line.push_option(symbol.line.map(i64::from));
                inlined.push(symbol.inlined);
            }
        }
        table.batch(vec![
            frame.into(),
            level.into(),
            build_id.into(),
            module.into(),
            offset.into(),
            function.into(),
            file.into(),
            line.into(),
            inlined.into(),
        ])?;
    }
    table.finish()
}

pub(super) fn modules(source: ExportInput<'_>, out: &mut dyn Write) -> Result<()> {
    use ColumnType::{Int, Text};
    let columns = [
        ("path", Text, false),
        ("build_id", Text, true),
        ("bias", Int, false),
        ("loaded_ns", Int, false),
        ("unloaded_ns", Int, true),
    ];
    let mut table = ParquetTable::new(source, &columns, out)?;
    let (mut path, mut build_id, mut bias) = (Texts::new(), Texts::new(), Ints::new());
    let (mut loaded, mut unloaded) = (Ints::new(), Ints::new());
    for module in source.trace.modules() {
        path.push(&String::from_utf8_lossy(&module.path));
        build_id.push_option((!module.build_id.is_empty()).then(|| hex(&module.build_id)).as_deref());
        bias.push(int(module.bias));
        loaded.push(int(module.loaded_ns));
        unloaded.push_option(module.unloaded_ns.map(int));
    }
    table.batch(vec![path.into(), build_id.into(), bias.into(), loaded.into(), unloaded.into()])?;
    table.finish()
}
