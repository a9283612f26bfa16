//! Tables of the process: threads, marks, and the time series of live bytes.

use std::io::Write;

use tracehound_api::timeline::SeriesName;
use tracehound_query::timeline as curves;

use super::super::{ExportInput, ExportScope, Result};
use super::columns::{ColumnCells, ColumnType, Ints, Texts};
use super::table::{ParquetTable, int};

/// Points of the timeline.
const POINTS: usize = 2000;

pub(super) fn threads(source: ExportInput<'_>, out: &mut dyn Write) -> Result<()> {
    use ColumnType::{Int, Text};
    let columns = [
        ("thread", Int, false),
        ("os_thread", Int, false),
        ("name", Text, false),
        ("started_ns", Int, false),
        ("ended_ns", Int, true),
    ];
    let mut table = ParquetTable::new(source, &columns, out)?;
    let (mut id, mut os, mut name) = (Ints::new(), Ints::new(), Texts::new());
    let (mut started, mut ended) = (Ints::new(), Ints::new());
    for thread in source.trace.threads().iter().filter(|thread| thread.active) {
        id.push(thread.id.into());
        os.push(thread.os_thread.into());
        name.push(&thread.name);
        started.push(int(thread.started_ns));
        ended.push_option(thread.ended_ns.map(int));
    }
    table.batch(vec![id.into(), os.into(), name.into(), started.into(), ended.into()])?;
    table.finish()
}

pub(super) fn marks(source: ExportInput<'_>, out: &mut dyn Write) -> Result<()> {
    use ColumnType::{Int, Text};
    let columns = [("t_ns", Int, false), ("label", Text, false), ("thread", Int, false)];
    let mut table = ParquetTable::new(source, &columns, out)?;
    let (mut t_ns, mut label, mut thread) = (Ints::new(), Texts::new(), Ints::new());
    for mark in source.trace.marks() {
        t_ns.push(int(mark.t_ns));
        label.push(&mark.label);
        thread.push(mark.thread.into());
    }
    table.batch(vec![t_ns.into(), label.into(), thread.into()])?;
    table.finish()
}

pub(super) fn timeline(source: ExportInput<'_>, scope: &ExportScope, out: &mut dyn Write) -> Result<()> {
    let params = curves::TimelineParams {
        series: vec![SeriesName::LiveBytes, SeriesName::LiveCount, SeriesName::Rss],
        window: scope.window.clone(),
        filter: scope.filter.clone(),
        points: POINTS,
    };
    let curve = curves::run(source.trace, source.symbols, &params, source.cancel)?;
    let names = ["live_bytes", "live_count", "rss_bytes"];
    let titles: Vec<[String; 3]> = names.map(|n| [format!("{n}_min"), format!("{n}_max"), n.to_owned()]).to_vec();
    let mut columns = vec![("t_ns", ColumnType::Int, false)];
    columns.extend(titles.iter().flatten().map(|title| (title.as_str(), ColumnType::Int, true)));
    let mut table = ParquetTable::new(source, &columns, out)?;
    let mut t_ns = Ints::new();
    curve.t_ns.iter().for_each(|&t| t_ns.push(int(t)));
    let mut batch: Vec<ColumnCells> = vec![t_ns.into()];
    for series in &curve.series {
        for values in [&series.min, &series.max, &series.last] {
            let mut cells = Ints::new();
            values.iter().for_each(|value| cells.push_option(value.map(|value| value.max(0.0) as i64)));
            batch.push(cells.into());
        }
    }
    table.batch(batch)?;
    table.finish()
}
