//! Parquet: a folder of tables that DuckDB, pyarrow, pandas, polars and Spark read; or, as one file, the first of them.
//!
//! ```text
//! allocations   one row a block, by birth      → stack, free_stack, thread, free_thread
//! sites         one row an allocating stack with its sums
//! stacks        (stack, depth) → frame; depth 0 called the allocating function
//! frames        (frame, level) → build id, offset, function, file, line; level 0 is innermost, the others inlined it
//! threads, modules, marks, timeline
//! ```
//! Stacks and frames are named by what they are, not by where this recording has them: a frame is the SHA-256 of build
//! id and offset in the file (path and offset, without a build id), a stack that of its caller's stack and its frame,
//! the first 16 bytes of each. So recordings of many processes and machines can be joined.
//! Every file's metadata has the recording's `info` document under `heaptrace.info`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, FixedSizeBinaryBuilder, StringBuilder, UInt32Builder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use sha2::{Digest, Sha256};
use tracehound_format::record::Kind;
use tracehound_server::api::Metric;
use tracehound_server::api::timeline::SeriesName;
use tracehound_server::query::amounts::{Key, Question, Signed};
use tracehound_server::query::timeline;
use tracehound_server::trace::Trace;

use super::events::select;
use super::samples::resolve_all;
use super::{ExportError, Result, Scope, Source};
use crate::audit;

/// Rows that are in memory at once.
const BATCH: usize = 1 << 16;
/// Rows of a row group, which is compressed in memory before it is written.
const GROUP: usize = 1 << 18;
/// Points of the timeline.
const POINTS: usize = 2000;

/// The first bytes of a SHA-256.
type Name = [u8; 16];

impl From<ParquetError> for ExportError {
    fn from(error: ParquetError) -> Self {
        Self::Output(std::io::Error::other(error))
    }
}

impl From<ArrowError> for ExportError {
    fn from(error: ArrowError) -> Self {
        Self::Output(std::io::Error::other(error))
    }
}

/// Writes all tables into `folder`, which is made if it is not there.
///
/// # Errors
/// When the scope does not fit the recording, the folder cannot be written, or cancelled.
pub fn write_folder(source: Source<'_>, scope: &Scope, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    resolve_all(source)?;
    let names = Names::new(source)?;
    let table = |name: &str, write: &dyn Fn(&mut dyn Write) -> Result<()>| -> Result<()> {
        // A file appears under its name when it is complete.
        let path = folder.join(format!("{name}.parquet"));
        let part = folder.join(format!(".{name}.parquet.part"));
        let mut file = BufWriter::with_capacity(1 << 16, File::create(&part)?);
        let done = write(&mut file).and_then(|()| Ok(file.flush()?));
        if done.is_err() {
            let _ = std::fs::remove_file(&part);
            return done;
        }
        Ok(std::fs::rename(&part, &path)?)
    };
    table("allocations", &|out| allocations(source, scope, &names, out))?;
    table("sites", &|out| sites(source, scope, &names, out))?;
    table("stacks", &|out| stacks(source, &names, out))?;
    table("frames", &|out| frames(source, &names, out))?;
    table("threads", &|out| threads(source, out))?;
    table("modules", &|out| modules(source, out))?;
    table("marks", &|out| marks(source, out))?;
    table("timeline", &|out| timeline_table(source, scope, out))
}

/// Writes the table of allocations as one file.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(source: Source<'_>, scope: &Scope, out: &mut dyn Write) -> Result<()> {
    let names = Names::new(source)?;
    allocations(source, scope, &names, out)
}

/// What frames and stacks are called everywhere.
struct Names {
    /// By location.
    frames: Vec<Name>,
    /// By node; the root's is all zeros.
    stacks: Vec<Name>,
}

impl Names {
    fn new(source: Source<'_>) -> Result<Self> {
        let trace = source.trace;
        let frames: Vec<Name> = (0..trace.location_count())
            .map(|location| {
                let (module, offset) = place(trace, location);
                let module = module.and_then(|module| trace.modules().get(module as usize));
                match module {
                    Some(module) if !module.build_id.is_empty() => name(&[b"b", &module.build_id], offset),
                    Some(module) => name(&[b"p", &module.path], offset),
                    None => name(&[b"-"], offset),
                }
            })
            .collect();
        let mut stacks: Vec<Name> = vec![[0; 16]; trace.node_count().max(1) as usize];
        let mut known = vec![false; stacks.len()];
        known[0] = true;
        let mut path = Vec::new();
        for node in 1..trace.node_count() {
            if node.is_multiple_of(1 << 16) {
                source.cancel.check()?;
            }
            path.extend(trace.stack(node).take_while(|&node| !known[node as usize]));
            while let Some(node) = path.pop() {
                let caller = stacks[trace.nodes().parent(node) as usize];
                stacks[node as usize] = match trace.node_location(node) {
                    Some(location) => name(&[&caller, &frames[location as usize]], 0),
                    None => caller,
                };
                known[node as usize] = true;
            }
        }
        Ok(Self { frames, stacks })
    }

    fn stack(&self, node: u32) -> Name {
        self.stacks.get(node as usize).copied().unwrap_or_default()
    }
}

fn name(parts: &[&[u8]], number: u64) -> Name {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.update(number.to_le_bytes());
    let mut name = Name::default();
    name.copy_from_slice(&hash.finalize()[..16]);
    name
}

/// Module of a location, and the address of the call in its file; without a module the address as it was.
fn place(trace: &Trace, location: u32) -> (Option<u32>, u64) {
    let found = trace.location(location);
    let call = found.pc.wrapping_sub(1);
    let module = found.module.and_then(|module| trace.modules().get(module as usize));
    let Some(module) = module else { return (None, call) };
    let segment = module.segments.iter().find(|segment| call.wrapping_sub(segment.start) < segment.len);
    (found.module, segment.map_or(call.wrapping_sub(module.bias), |s| call - s.start + s.file_offset))
}

/// A file being written.
struct Table<'a> {
    writer: ArrowWriter<Vec<u8>>,
    schema: Arc<Schema>,
    out: &'a mut dyn Write,
}

impl<'a> Table<'a> {
    fn new(source: Source<'_>, columns: &[(&str, DataType, bool)], out: &'a mut dyn Write) -> Result<Self> {
        let fields: Vec<Field> =
            columns.iter().map(|(name, kind, nullable)| Field::new(*name, kind.clone(), *nullable)).collect();
        let schema = Arc::new(Schema::new(fields));
        let info = serde_json::to_string(&audit::info(source.trace)).map_err(std::io::Error::from)?;
        let properties = WriterProperties::builder()
            .set_created_by(format!("heaptrace {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_max_row_group_row_count(Some(GROUP))
            .set_key_value_metadata(Some(vec![KeyValue::new("heaptrace.info".into(), info)]))
            .build();
        let writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties))?;
        Ok(Self { writer, schema, out })
    }

    fn batch(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        self.writer.write(&RecordBatch::try_new(Arc::clone(&self.schema), columns)?)?;
        self.drain()
    }

    /// Hands on what was encoded: the encoder counts bytes for itself, so what it wrote to may be emptied.
    fn drain(&mut self) -> Result<()> {
        let encoded = self.writer.inner_mut();
        self.out.write_all(encoded)?;
        encoded.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.writer.finish()?;
        self.drain()
    }
}

fn name_type() -> DataType {
    DataType::FixedSizeBinary(16)
}

fn names_builder(len: usize) -> FixedSizeBinaryBuilder {
    FixedSizeBinaryBuilder::with_capacity(len, 16)
}

fn allocations(source: Source<'_>, scope: &Scope, names: &Names, out: &mut dyn Write) -> Result<()> {
    use DataType::{Boolean, UInt32, UInt64, Utf8};
    let trace = source.trace;
    let window = scope.window.resolve(trace)?;
    let selection = select(source, scope, source.cancel)?;
    let test = selection.rows(trace);
    let mut table = Table::new(
        source,
        &[
            ("row", UInt64, false),
            ("address", UInt64, false),
            ("size", UInt64, false),
            ("born_ns", UInt64, false),
            ("died_ns", UInt64, true),
            ("thread", UInt32, false),
            ("free_thread", UInt32, true),
            ("stack", name_type(), false),
            ("free_stack", name_type(), true),
            ("function", Utf8, false),
            ("previous", UInt64, true),
            ("temporary", Boolean, false),
        ],
        out,
    )?;
    let all = test.passes_all();
    let mut blocks = trace.blocks(window.span);
    let mut left = window.span.to.births - window.span.from.births;
    while left > 0 {
        source.cancel.check()?;
        let part = left.min(BATCH as u64) as usize;
        left -= part as u64;
        let number = || UInt64Builder::with_capacity(part);
        let (mut rows, mut addresses, mut sizes, mut born, mut died) =
            (number(), number(), number(), number(), number());
        let (mut bearer, mut freer) = (UInt32Builder::with_capacity(part), UInt32Builder::with_capacity(part));
        let (mut stack, mut free_stack) = (names_builder(part), names_builder(part));
        let (mut function, mut previous, mut temporary) = (StringBuilder::new(), number(), BooleanBuilder::new());
        for block in blocks.by_ref().take(part).filter(|block| all || test.passes(block.row)) {
            let origin = trace.origin(block.origin);
            let death = block.death.map(|(died_ns, origin)| (died_ns, trace.origin(origin)));
            rows.append_value(block.row);
            addresses.append_value(block.address);
            sizes.append_value(block.size);
            born.append_value(block.born_ns);
            bearer.append_value(trace.thread_id(origin.thread));
            stack.append_value(names.stack(origin.node))?;
            died.append_option(death.map(|(died_ns, _)| died_ns));
            freer.append_option(death.map(|(_, origin)| trace.thread_id(origin.thread)));
            match death {
                Some((_, origin)) => free_stack.append_value(names.stack(origin.node))?,
                None => free_stack.append_null(),
            }
            function.append_value(Kind::from_u8(origin.kind).map_or("unknown", Kind::function));
            previous.append_option(block.previous);
            temporary.append_value(trace.is_temporary(block.row));
        }
        table.batch(vec![
            Arc::new(rows.finish()),
            Arc::new(addresses.finish()),
            Arc::new(sizes.finish()),
            Arc::new(born.finish()),
            Arc::new(died.finish()),
            Arc::new(bearer.finish()),
            Arc::new(freer.finish()),
            Arc::new(stack.finish()),
            Arc::new(free_stack.finish()),
            Arc::new(function.finish()),
            Arc::new(previous.finish()),
            Arc::new(temporary.finish()),
        ])?;
    }
    table.finish()
}

fn sites(source: Source<'_>, scope: &Scope, names: &Names, out: &mut dyn Write) -> Result<()> {
    const METRICS: [(&str, Metric); 5] = [
        ("allocated", Metric::Allocated),
        ("freed", Metric::Freed),
        ("peak", Metric::Peak),
        ("leaked", Metric::Leaked),
        ("temporary", Metric::Temporary),
    ];
    let trace = source.trace;
    let window = scope.window.resolve(trace)?;
    let selection = select(source, scope, source.cancel)?;
    let question = Question { trace, selection: &selection, key: Key::Site, cancel: source.cancel };
    let sums = METRICS.iter().map(|(_, metric)| Ok(question.metric(*metric, &window)?)).collect::<Result<Vec<_>>>()?;
    let titles: Vec<[String; 2]> =
        METRICS.iter().map(|(name, _)| [format!("{name}_count"), format!("{name}_bytes")]).collect();
    let mut columns = vec![("site", DataType::UInt32, false), ("stack", name_type(), false)];
    columns.extend(titles.iter().flatten().map(|title| (title.as_str(), DataType::UInt64, false)));
    let mut table = Table::new(source, &columns, out)?;
    let all: Vec<u32> = (0..trace.site_count())
        .filter(|&site| sums.iter().any(|sums| sums.get(site as usize).is_some_and(|sum| !sum.is_zero())))
        .collect();
    for part in all.chunks(BATCH) {
        source.cancel.check()?;
        let mut ids = UInt32Builder::with_capacity(part.len());
        let mut stack = names_builder(part.len());
        for &site in part {
            ids.append_value(site);
            stack.append_value(names.stack(trace.site_node(site).unwrap_or(0)))?;
        }
        let mut columns: Vec<ArrayRef> = vec![Arc::new(ids.finish()), Arc::new(stack.finish())];
        for sums in &sums {
            let picks: [fn(&Signed) -> i64; 2] = [|sum| sum.count, |sum| sum.bytes];
            for pick in picks {
                let mut builder = UInt64Builder::with_capacity(part.len());
                let of = |site: &u32| sums.get(*site as usize).map_or(0, pick).max(0).cast_unsigned();
                part.iter().for_each(|site| builder.append_value(of(site)));
                columns.push(Arc::new(builder.finish()));
            }
        }
        table.batch(columns)?;
    }
    table.finish()
}

fn stacks(source: Source<'_>, names: &Names, out: &mut dyn Write) -> Result<()> {
    let trace = source.trace;
    let columns = [("stack", name_type(), false), ("depth", DataType::UInt32, false), ("frame", name_type(), false)];
    let mut table = Table::new(source, &columns, out)?;
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

fn frames(source: Source<'_>, names: &Names, out: &mut dyn Write) -> Result<()> {
    use DataType::{Boolean, UInt32, UInt64, Utf8};
    let trace = source.trace;
    let mut table = Table::new(
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn threads(source: Source<'_>, out: &mut dyn Write) -> Result<()> {
    use DataType::{UInt32, UInt64, Utf8};
    let columns = [
        ("thread", UInt32, false),
        ("os_thread", UInt32, false),
        ("name", Utf8, false),
        ("started_ns", UInt64, false),
        ("ended_ns", UInt64, true),
    ];
    let mut table = Table::new(source, &columns, out)?;
    let (mut id, mut os, mut name) = (UInt32Builder::new(), UInt32Builder::new(), StringBuilder::new());
    let (mut started, mut ended) = (UInt64Builder::new(), UInt64Builder::new());
    for thread in source.trace.threads().iter().filter(|thread| thread.active) {
        id.append_value(thread.id);
        os.append_value(thread.os_thread);
        name.append_value(&thread.name);
        started.append_value(thread.started_ns);
        ended.append_option(thread.ended_ns);
    }
    table.batch(vec![
        Arc::new(id.finish()),
        Arc::new(os.finish()),
        Arc::new(name.finish()),
        Arc::new(started.finish()),
        Arc::new(ended.finish()),
    ])?;
    table.finish()
}

fn modules(source: Source<'_>, out: &mut dyn Write) -> Result<()> {
    use DataType::{UInt64, Utf8};
    let columns = [
        ("path", Utf8, false),
        ("build_id", Utf8, true),
        ("bias", UInt64, false),
        ("loaded_ns", UInt64, false),
        ("unloaded_ns", UInt64, true),
    ];
    let mut table = Table::new(source, &columns, out)?;
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

fn marks(source: Source<'_>, out: &mut dyn Write) -> Result<()> {
    use DataType::{UInt32, UInt64, Utf8};
    let columns = [("t_ns", UInt64, false), ("label", Utf8, false), ("thread", UInt32, false)];
    let mut table = Table::new(source, &columns, out)?;
    let (mut t_ns, mut label, mut thread) = (UInt64Builder::new(), StringBuilder::new(), UInt32Builder::new());
    for mark in source.trace.marks() {
        t_ns.append_value(mark.t_ns);
        label.append_value(&mark.label);
        thread.append_value(mark.thread);
    }
    table.batch(vec![Arc::new(t_ns.finish()), Arc::new(label.finish()), Arc::new(thread.finish())])?;
    table.finish()
}

fn timeline_table(source: Source<'_>, scope: &Scope, out: &mut dyn Write) -> Result<()> {
    let params = timeline::Params {
        series: vec![SeriesName::LiveBytes, SeriesName::LiveCount, SeriesName::Rss],
        window: scope.window.clone(),
        filter: scope.filter.clone(),
        points: POINTS,
    };
    let curve = timeline::run(source.trace, source.symbols, &params, source.cancel)?;
    let names = ["live_bytes", "live_count", "rss_bytes"];
    let titles: Vec<[String; 3]> = names.map(|n| [format!("{n}_min"), format!("{n}_max"), n.to_owned()]).to_vec();
    let mut columns = vec![("t_ns", DataType::UInt64, false)];
    columns.extend(titles.iter().flatten().map(|title| (title.as_str(), DataType::UInt64, true)));
    let mut table = Table::new(source, &columns, out)?;
    let mut t_ns = UInt64Builder::new();
    curve.t_ns.iter().for_each(|&t| t_ns.append_value(t));
    let mut batch: Vec<ArrayRef> = vec![Arc::new(t_ns.finish())];
    for series in &curve.series {
        for values in [&series.min, &series.max, &series.last] {
            let mut builder = UInt64Builder::new();
            values.iter().for_each(|value| builder.append_option(value.map(|value| value.max(0.0) as u64)));
            batch.push(Arc::new(builder.finish()));
        }
    }
    table.batch(batch)?;
    table.finish()
}
