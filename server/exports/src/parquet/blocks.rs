//! Blocks, one by one and summed by the stack that allocated them.

use std::io::Write;

use tracehound_api::Metric;
use tracehound_format::record::Kind;
use tracehound_query::amounts::{Signed, SumKey, SumQuery};

use super::super::events::select;
use super::super::{ExportInput, ExportScope, Result};
use super::columns::{Bools, ColumnCells, ColumnType, Ints, Names, Texts};
use super::names::FrameNames;
use super::table::{BATCH, ParquetTable, int};

pub(super) fn allocations(
    source: ExportInput<'_>,
    scope: &ExportScope,
    names: &FrameNames,
    out: &mut dyn Write,
) -> Result<()> {
    use ColumnType::{Bool, Int, Name, Text};
    let trace = source.trace;
    let selection = select(source, scope, source.cancel)?;
    let window = scope.window.resolve(trace, &selection, source.cancel)?;
    let test = selection.rows(trace);
    let mut table = ParquetTable::new(
        source,
        &[
            ("row", Int, false),
            ("address", Int, false),
            ("size", Int, false),
            ("born_ns", Int, false),
            ("died_ns", Int, true),
            ("thread", Int, false),
            ("free_thread", Int, true),
            ("stack", Name, false),
            ("free_stack", Name, true),
            ("function", Text, false),
            ("previous", Int, true),
            ("temporary", Bool, false),
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
        let (mut rows, mut addresses, mut sizes, mut allocated, mut freed) =
            (Ints::new(), Ints::new(), Ints::new(), Ints::new(), Ints::new());
        let (mut bearer, mut freer) = (Ints::new(), Ints::new());
        let (mut stack, mut free_stack) = (Names::new(), Names::new());
        let (mut function, mut previous, mut temporary) = (Texts::new(), Ints::new(), Bools::new());
        for block in blocks.by_ref().take(part).filter(|block| all || test.passes(block.row)) {
            let origin = trace.origin(block.origin);
            let free = block.free.map(|(died_ns, origin)| (died_ns, trace.origin(origin)));
            rows.push(int(block.row));
            addresses.push(int(block.address));
            sizes.push(int(block.size));
            allocated.push(int(block.born_ns));
            bearer.push(i64::from(trace.thread_id(origin.thread)));
            stack.push(names.stack(origin.node));
            freed.push_option(free.map(|(died_ns, _)| int(died_ns)));
            freer.push_option(free.map(|(_, origin)| trace.thread_id(origin.thread).into()));
            free_stack.push_option(free.map(|(_, origin)| names.stack(origin.node)));
            function.push(Kind::from_u8(origin.kind).map_or("unknown", Kind::function));
            previous.push_option(block.previous.map(int));
            temporary.push(trace.is_temporary(block.row));
        }
        table.batch(vec![
            rows.into(),
            addresses.into(),
            sizes.into(),
            allocated.into(),
            freed.into(),
            bearer.into(),
            freer.into(),
            stack.into(),
            free_stack.into(),
            function.into(),
            previous.into(),
            temporary.into(),
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
    let mut columns = vec![("site", ColumnType::Int, false), ("stack", ColumnType::Name, false)];
    columns.extend(titles.iter().flatten().map(|title| (title.as_str(), ColumnType::Int, false)));
    let mut table = ParquetTable::new(source, &columns, out)?;
    let all: Vec<u32> = (0..trace.site_count())
        .filter(|&site| sums.iter().any(|sums| sums.get(site as usize).is_some_and(|sum| !sum.is_zero())))
        .collect();
    for part in all.chunks(BATCH) {
        source.cancel.check()?;
        let mut ids = Ints::new();
        let mut stack = Names::new();
        for &site in part {
            ids.push(site.into());
            stack.push(names.stack(trace.site_node(site).unwrap_or(0)));
        }
        let mut columns: Vec<ColumnCells> = vec![ids.into(), stack.into()];
        for sums in &sums {
            let picks: [fn(&Signed) -> i64; 2] = [|sum| sum.count, |sum| sum.bytes];
            for pick in picks {
                let mut values = Ints::new();
                let of = |site: &u32| sums.get(*site as usize).map_or(0, pick).max(0);
                part.iter().for_each(|site| values.push(of(site)));
                columns.push(values.into());
            }
        }
        table.batch(columns)?;
    }
    table.finish()
}
