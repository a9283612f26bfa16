//! Blocks, one by one and summed by the stack that allocated them.

use std::io::Write;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{BooleanBuilder, Int64Builder, StringBuilder};
use arrow_schema::DataType;
use tracehound_api::Metric;
use tracehound_format::record::Kind;
use tracehound_query::amounts::{Signed, SumKey, SumQuery};

use super::super::events::select;
use super::super::{ExportInput, ExportScope, Result};
use super::names::FrameNames;
use super::table::{BATCH, ParquetTable, int, name_type, names_builder};

pub(super) fn allocations(
    source: ExportInput<'_>,
    scope: &ExportScope,
    names: &FrameNames,
    out: &mut dyn Write,
) -> Result<()> {
    use DataType::{Boolean, Int64, Utf8};
    let trace = source.trace;
    let selection = select(source, scope, source.cancel)?;
    let window = scope.window.resolve(trace, &selection, source.cancel)?;
    let test = selection.rows(trace);
    let mut table = ParquetTable::new(
        source,
        &[
            ("row", Int64, false),
            ("address", Int64, false),
            ("size", Int64, false),
            ("born_ns", Int64, false),
            ("died_ns", Int64, true),
            ("thread", Int64, false),
            ("free_thread", Int64, true),
            ("stack", name_type(), false),
            ("free_stack", name_type(), true),
            ("function", Utf8, false),
            ("previous", Int64, true),
            ("temporary", Boolean, false),
        ],
        out,
    )?;
    let all = test.passes_all();
    let mut blocks = trace.blocks(window.span);
    let mut left = window.span.to.allocs - window.span.from.allocs;
    while left > 0 {
        source.cancel.check()?;
        let part = left.min(BATCH as u64) as usize;
        left -= part as u64;
        let number = || Int64Builder::with_capacity(part);
        let (mut rows, mut addresses, mut sizes, mut allocated, mut freed) =
            (number(), number(), number(), number(), number());
        let (mut bearer, mut freer) = (number(), number());
        let (mut stack, mut free_stack) = (names_builder(part), names_builder(part));
        let (mut function, mut previous, mut temporary) = (StringBuilder::new(), number(), BooleanBuilder::new());
        for block in blocks.by_ref().take(part).filter(|block| all || test.passes(block.row)) {
            let origin = trace.origin(block.origin);
            let free = block.free.map(|(died_ns, origin)| (died_ns, trace.origin(origin)));
            rows.append_value(int(block.row));
            addresses.append_value(int(block.address));
            sizes.append_value(int(block.size));
            allocated.append_value(int(block.born_ns));
            bearer.append_value(i64::from(trace.thread_id(origin.thread)));
            stack.append_value(names.stack(origin.node))?;
            freed.append_option(free.map(|(died_ns, _)| int(died_ns)));
            freer.append_option(free.map(|(_, origin)| trace.thread_id(origin.thread).into()));
            match free {
                Some((_, origin)) => free_stack.append_value(names.stack(origin.node))?,
                None => free_stack.append_null(),
            }
            function.append_value(Kind::from_u8(origin.kind).map_or("unknown", Kind::function));
            previous.append_option(block.previous.map(int));
            temporary.append_value(trace.is_temporary(block.row));
        }
        table.batch(vec![
            Arc::new(rows.finish()),
            Arc::new(addresses.finish()),
            Arc::new(sizes.finish()),
            Arc::new(allocated.finish()),
            Arc::new(freed.finish()),
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

pub(super) fn sites(
    source: ExportInput<'_>,
    scope: &ExportScope,
    names: &FrameNames,
    out: &mut dyn Write,
) -> Result<()> {
    const METRICS: [(&str, Metric); 5] = [
        ("allocated", Metric::Allocated),
        ("freed", Metric::Freed),
        ("peak", Metric::Peak),
        ("leaked", Metric::Leaked),
        ("temporary", Metric::Temporary),
    ];
    let trace = source.trace;
    let selection = select(source, scope, source.cancel)?;
    let window = scope.window.resolve(trace, &selection, source.cancel)?;
    let question = SumQuery { trace, selection: &selection, key: SumKey::Site, cancel: source.cancel };
    let sums = METRICS.iter().map(|(_, metric)| Ok(question.metric(*metric, &window)?)).collect::<Result<Vec<_>>>()?;
    let titles: Vec<[String; 2]> =
        METRICS.iter().map(|(name, _)| [format!("{name}_count"), format!("{name}_bytes")]).collect();
    let mut columns = vec![("site", DataType::Int64, false), ("stack", name_type(), false)];
    columns.extend(titles.iter().flatten().map(|title| (title.as_str(), DataType::Int64, false)));
    let mut table = ParquetTable::new(source, &columns, out)?;
    let all: Vec<u32> = (0..trace.site_count())
        .filter(|&site| sums.iter().any(|sums| sums.get(site as usize).is_some_and(|sum| !sum.is_zero())))
        .collect();
    for part in all.chunks(BATCH) {
        source.cancel.check()?;
        let mut ids = Int64Builder::with_capacity(part.len());
        let mut stack = names_builder(part.len());
        for &site in part {
            ids.append_value(site.into());
            stack.append_value(names.stack(trace.site_node(site).unwrap_or(0)))?;
        }
        let mut columns: Vec<ArrayRef> = vec![Arc::new(ids.finish()), Arc::new(stack.finish())];
        for sums in &sums {
            let picks: [fn(&Signed) -> i64; 2] = [|sum| sum.count, |sum| sum.bytes];
            for pick in picks {
                let mut builder = Int64Builder::with_capacity(part.len());
                let of = |site: &u32| sums.get(*site as usize).map_or(0, pick).max(0);
                part.iter().for_each(|site| builder.append_value(of(site)));
                columns.push(Arc::new(builder.finish()));
            }
        }
        table.batch(columns)?;
    }
    table.finish()
}
