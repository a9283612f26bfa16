//! Where in the code: stacks, frames and modules.

use std::io::Write;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, StringBuilder, UInt32Builder, UInt64Builder};
use arrow_schema::DataType;

use super::super::{ExportInput, Result};
use super::names::{FrameNames, place};
use super::table::{BATCH, ParquetTable, hex, name_type, names_builder};

pub(super) fn stacks(source: ExportInput<'_>, names: &FrameNames, out: &mut dyn Write) -> Result<()> {
    let trace = source.trace;
    let columns = [("stack", name_type(), false), ("depth", DataType::UInt32, false), ("frame", name_type(), false)];
    let mut table = ParquetTable::new(source, &columns, out)?;
    let builders = || (names_builder(BATCH), UInt32Builder::with_capacity(BATCH), names_builder(BATCH));
    let (mut stack, mut depth, mut frame) = builders();
    let mut rows = 0;
    // What a block refers to: allocating and freeing stacks. Two nodes may be the same stack.
    let mut seen = std::collections::HashSet::new();
    for origin in 0..trace.origin_count() {
        source.cancel.check()?;
        let node = trace.origin(origin).node;
        let name = names.stack(node);
        if node == 0 || !seen.insert(name) {
            continue;
        }
        for (level, location) in (0_u32..).zip(trace.stack(node).filter_map(|node| trace.node_location(node))) {
            stack.append_value(name)?;
            depth.append_value(level);
            frame.append_value(names.frames[location as usize])?;
            rows += 1;
            if rows == BATCH {
                rows = 0;
                table.batch(vec![Arc::new(stack.finish()), Arc::new(depth.finish()), Arc::new(frame.finish())])?;
                (stack, depth, frame) = builders();
            }
        }
    }
    table.batch(vec![Arc::new(stack.finish()), Arc::new(depth.finish()), Arc::new(frame.finish())])?;
    table.finish()
}

pub(super) fn frames(source: ExportInput<'_>, names: &FrameNames, out: &mut dyn Write) -> Result<()> {
    use DataType::{Boolean, UInt32, UInt64, Utf8};
    let trace = source.trace;
    let mut table = ParquetTable::new(
        source,
        &[
            ("frame", name_type(), false),
            ("level", UInt32, false),
            ("build_id", Utf8, true),
            ("module", Utf8, true),
            ("offset", UInt64, false),
            ("function", Utf8, true),
            ("file", Utf8, true),
            ("line", UInt32, true),
            ("inlined", Boolean, false),
        ],
        out,
    )?;
    let locations: Vec<u32> = (0..trace.location_count()).collect();
    let mut seen = std::collections::HashSet::new();
    let mut levels = Vec::new();
    for part in locations.chunks(BATCH) {
        source.cancel.check()?;
        let (mut frame, mut level) = (names_builder(BATCH), UInt32Builder::new());
        let (mut build_id, mut module, mut offset) = (StringBuilder::new(), StringBuilder::new(), UInt64Builder::new());
        let (mut function, mut file, mut line, mut inlined) =
            (StringBuilder::new(), StringBuilder::new(), UInt32Builder::new(), BooleanBuilder::new());
        for &location in part {
            let name = names.frames[location as usize];
            if !seen.insert(name) {
                continue;
            }
            let (position, address) = place(trace, location);
            let found = position.and_then(|position| trace.modules().get(position as usize));
            levels.clear();
            source.symbols.frames(trace, location, &mut levels);
            for (number, symbol) in (0_u32..).zip(&levels) {
                let known = source.symbols.function(symbol.function);
                frame.append_value(name)?;
                level.append_value(number);
                let has_id = found.filter(|module| !module.build_id.is_empty());
                build_id.append_option(has_id.map(|module| hex(&module.build_id)));
                module.append_option(found.map(|module| String::from_utf8_lossy(&module.path)));
                offset.append_value(address);
                function.append_option(known.name.as_deref());
                file.append_option(symbol.file.map(|file| source.symbols.file(file)));
                line.append_option(symbol.line);
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
    use DataType::{UInt64, Utf8};
    let columns = [
        ("path", Utf8, false),
        ("build_id", Utf8, true),
        ("bias", UInt64, false),
        ("loaded_ns", UInt64, false),
        ("unloaded_ns", UInt64, true),
    ];
    let mut table = ParquetTable::new(source, &columns, out)?;
    let (mut path, mut build_id, mut bias) = (StringBuilder::new(), StringBuilder::new(), UInt64Builder::new());
    let (mut loaded, mut unloaded) = (UInt64Builder::new(), UInt64Builder::new());
    for module in source.trace.modules() {
        path.append_value(String::from_utf8_lossy(&module.path));
        build_id.append_option((!module.build_id.is_empty()).then(|| hex(&module.build_id)));
        bias.append_value(module.bias);
        loaded.append_value(module.loaded_ns);
        unloaded.append_option(module.unloaded_ns);
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
