//! Tables of the process: threads, marks, and the time series of live bytes.

use std::io::Write;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_schema::DataType;
use tracehound_api::timeline::SeriesName;
use tracehound_query::timeline as curves;

use super::super::{ExportInput, ExportScope, Result};
use super::table::{ParquetTable, int};

/// Points of the timeline.
const POINTS: usize = 2000;

pub(super) fn threads(source: ExportInput<'_>, out: &mut dyn Write) -> Result<()> {
    use DataType::{Int64, Utf8};
    let columns = [
        ("thread", Int64, false),
        ("os_thread", Int64, false),
        ("name", Utf8, false),
        ("started_ns", Int64, false),
        ("ended_ns", Int64, true),
    ];
    let mut table = ParquetTable::new(source, &columns, out)?;
    let (mut id, mut os, mut name) = (Int64Builder::new(), Int64Builder::new(), StringBuilder::new());
    let (mut started, mut ended) = (Int64Builder::new(), Int64Builder::new());
    for thread in source.trace.threads().iter().filter(|thread| thread.active) {
        id.append_value(thread.id.into());
        os.append_value(thread.os_thread.into());
        name.append_value(&thread.name);
        started.append_value(int(thread.started_ns));
        ended.append_option(thread.ended_ns.map(int));
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

pub(super) fn marks(source: ExportInput<'_>, out: &mut dyn Write) -> Result<()> {
    use DataType::{Int64, Utf8};
    let columns = [("t_ns", Int64, false), ("label", Utf8, false), ("thread", Int64, false)];
    let mut table = ParquetTable::new(source, &columns, out)?;
    let (mut t_ns, mut label, mut thread) = (Int64Builder::new(), StringBuilder::new(), Int64Builder::new());
    for mark in source.trace.marks() {
        t_ns.append_value(int(mark.t_ns));
        label.append_value(&mark.label);
        thread.append_value(mark.thread.into());
    }
    table.batch(vec![Arc::new(t_ns.finish()), Arc::new(label.finish()), Arc::new(thread.finish())])?;
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
    let mut columns = vec![("t_ns", DataType::Int64, false)];
    columns.extend(titles.iter().flatten().map(|title| (title.as_str(), DataType::Int64, true)));
    let mut table = ParquetTable::new(source, &columns, out)?;
    let mut t_ns = Int64Builder::new();
    curve.t_ns.iter().for_each(|&t| t_ns.append_value(int(t)));
    let mut batch: Vec<ArrayRef> = vec![Arc::new(t_ns.finish())];
    for series in &curve.series {
        for values in [&series.min, &series.max, &series.last] {
            let mut builder = Int64Builder::new();
            values.iter().for_each(|value| builder.append_option(value.map(|value| value.max(0.0) as i64)));
            batch.push(Arc::new(builder.finish()));
        }
    }
    table.batch(batch)?;
    table.finish()
}
