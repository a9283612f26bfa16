//! Tables of code: stacks, frames and modules.

use std::io::Write;
use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, BooleanBuilder, Int64Builder, ListBuilder, StringBuilder};
use arrow_schema::{DataType, Field};

use super::super::{ExportInput, Result};
use super::names::{FrameNames, Name, name_of, place};
use super::table::{BATCH, ParquetTable, hex, int, name_type, names_builder};

pub(super) fn stacks(source: ExportInput<'_>, names: &FrameNames, out: &mut dyn Write) -> Result<()> {
    let trace = source.trace;
    let item = Arc::new(Field::new("element", name_type(), false));
    let columns = [
        ("stack", name_type(), false),
        ("names", name_type(), false),
        ("frames", DataType::List(Arc::clone(&item)), false),
    ];
    let by_names = names_of_locations(source);
    let mut table = ParquetTable::new(source, &columns, out)?;
    // What a block refers to: allocating and freeing stacks. Two nodes may be the same stack.
    let mut seen = std::collections::HashSet::new();
    let mut origins = (0..trace.origin_count()).peekable();
    while origins.peek().is_some() {
        source.cancel.check()?;
        let (mut stack, mut same) = (names_builder(0), names_builder(0));
        let mut of_stack: Vec<&[u8]> = Vec::new();
        let mut frames = ListBuilder::new(names_builder(0)).with_field(Arc::clone(&item));
        for origin in origins.by_ref() {
            let node = trace.origin(origin).node;
            let name = names.stack(node);
            if node == 0 || !seen.insert(name) {
                continue;
            }
            stack.append_value(name)?;
            of_stack.clear();
            for location in trace.stack(node).filter_map(|node| trace.node_location(node)) {
                frames.values().append_value(names.frames[location as usize])?;
                of_stack.push(&by_names[location as usize]);
            }
            same.append_value(name_of(&of_stack, 0))?;
            frames.append(true);
            if frames.values().len() >= BATCH {
                break;
            }
        }
        table.batch(vec![Arc::new(stack.finish()), Arc::new(same.finish()), Arc::new(frames.finish())])?;
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
    use DataType::{Boolean, Int64, Utf8};
    let trace = source.trace;
    let mut table = ParquetTable::new(
        source,
        &[
            ("frame", name_type(), false),
            ("level", Int64, false),
            ("build_id", Utf8, true),
            ("module", Utf8, true),
            ("offset", Int64, false),
            ("function", Utf8, true),
            ("file", Utf8, true),
            ("line", Int64, true),
            ("inlined", Boolean, false),
        ],
        out,
    )?;
    let locations: Vec<u32> = (0..trace.location_count()).collect();
    let mut seen = std::collections::HashSet::new();
    let mut levels = Vec::new();
    for part in locations.chunks(BATCH) {
        source.cancel.check()?;
        let (mut frame, mut level) = (names_builder(BATCH), Int64Builder::new());
        let (mut build_id, mut module, mut offset) = (StringBuilder::new(), StringBuilder::new(), Int64Builder::new());
        let (mut function, mut file, mut line, mut inlined) =
            (StringBuilder::new(), StringBuilder::new(), Int64Builder::new(), BooleanBuilder::new());
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
                frame.append_value(name)?;
                level.append_value(number);
                let has_id = found.filter(|module| !module.build_id.is_empty());
                build_id.append_option(has_id.map(|module| hex(&module.build_id)));
                module.append_option(found.map(|module| String::from_utf8_lossy(&module.path)));
                offset.append_value(int(address));
                function.append_option(known.name.as_deref());
                file.append_option(symbol.file.map(|file| source.symbols.file(file)));
                line.append_option(symbol.line.map(i64::from));
                inlined.append_value(symbol.inlined);
            }
        }
        table.batch(vec![
            Arc::new(frame.finish()),
            Arc::new(level.finish()),
            Arc::new(build_id.finish()),
            Arc::new(module.finish()),
            Arc::new(offset.finish()),
            Arc::new(function.finish()),
            Arc::new(file.finish()),
            Arc::new(line.finish()),
            Arc::new(inlined.finish()),
        ])?;
    }
    table.finish()
}

pub(super) fn modules(source: ExportInput<'_>, out: &mut dyn Write) -> Result<()> {
    use DataType::{Int64, Utf8};
    let columns = [
        ("path", Utf8, false),
        ("build_id", Utf8, true),
        ("bias", Int64, false),
        ("loaded_ns", Int64, false),
        ("unloaded_ns", Int64, true),
    ];
    let mut table = ParquetTable::new(source, &columns, out)?;
    let (mut path, mut build_id, mut bias) = (StringBuilder::new(), StringBuilder::new(), Int64Builder::new());
    let (mut loaded, mut unloaded) = (Int64Builder::new(), Int64Builder::new());
    for module in source.trace.modules() {
        path.append_value(String::from_utf8_lossy(&module.path));
        build_id.append_option((!module.build_id.is_empty()).then(|| hex(&module.build_id)));
        bias.append_value(int(module.bias));
        loaded.append_value(int(module.loaded_ns));
        unloaded.append_option(module.unloaded_ns.map(int));
    }
    table.batch(vec![
        Arc::new(path.finish()),
        Arc::new(build_id.finish()),
        Arc::new(bias.finish()),
        Arc::new(loaded.finish()),
        Arc::new(unloaded.finish()),
    ])?;
    table.finish()
}
