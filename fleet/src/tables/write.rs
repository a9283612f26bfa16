//! The two tables that the set has and an export has not: `recordings`, and `verdicts` on sites.

use std::sync::Arc;

use anyhow::Result;
use arrow_array::builder::{BooleanBuilder, FixedSizeBinaryBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tracehound_api::info::Info;
use tracehound_api::leaks::Leaks;

use crate::labels::Collected;

/// A batch as a file.
///
/// # Errors
/// When the columns do not fit the schema.
pub fn file_of(batches: &[RecordBatch], schema: &Arc<Schema>) -> Result<Vec<u8>> {
    let properties = WriterProperties::builder()
        .set_created_by(format!("heaptrace {}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), Arc::clone(schema), Some(properties))?;
    for batch in batches {
        writer.write(batch)?;
    }
    Ok(writer.into_inner()?)
}

fn table(columns: Vec<(&str, DataType, ArrayRef)>) -> Result<Vec<u8>> {
    let fields: Vec<Field> = columns.iter().map(|(name, kind, _)| Field::new(*name, kind.clone(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.into_iter().map(|(_, _, column)| column).collect())?;
    file_of(&[batch], &schema)
}

fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// One row: what is known of a recording, and its sums.
///
/// # Errors
/// When the row cannot be encoded.
pub fn recordings(about: &Collected, info: &Info) -> Result<Vec<u8>> {
    let mut columns = Vec::new();
    let mut text = |name: &'static str, value: &str| {
        let mut builder = StringBuilder::new();
        builder.append_value(value);
        columns.push((name, DataType::Utf8, Arc::new(builder.finish()) as ArrayRef));
    };
    text("host", &about.host);
    text("cgroup", &about.cgroup);
    text("executable", &about.executable);
    text("labels", &serde_json::to_string(&about.labels)?);
    text("end", serde_json::to_value(info.end)?.as_str().unwrap_or_default());
    text("recorder", &info.recorder.version);
    text("raw", &format!("raw/{}.dat", about.recording));
    let mut number = |name: &'static str, value: u64| {
        let mut builder = Int64Builder::new();
        builder.append_value(int(value));
        columns.push((name, DataType::Int64, Arc::new(builder.finish()) as ArrayRef));
    };
    number("pid", about.pid.into());
    number("started_unix_ns", about.started_unix_ns);
    number("duration_ns", info.process.duration_ns);
    number("events", info.exactness.events);
    number("lost", info.exactness.lost_events);
    number("allocated_count", info.allocations.count);
    number("allocated_bytes", info.allocations.bytes);
    number("peak_count", info.peak.count);
    number("peak_bytes", info.peak.bytes);
    number("peak_at_ns", info.peak.at_ns);
    number("leaked_count", info.leaked.count);
    number("leaked_bytes", info.leaked.bytes);
    number("temporary_count", info.temporary.count);
    number("peak_rss_bytes", info.peak_rss.as_ref().map_or(0, |rss| rss.bytes));
    number("bytes", about.bytes);
    let mut complete = BooleanBuilder::new();
    complete.append_value(info.complete);
    columns.push(("complete", DataType::Boolean, Arc::new(complete.finish())));
    table(columns)
}

/// A row for each leaking site, and for each that grew until the end and was freed there; `stacks` names them.
///
/// # Errors
/// When the rows cannot be encoded.
pub fn verdicts(leaks: &Leaks, stacks: &dyn Fn(&str) -> Option<[u8; 16]>) -> Result<Vec<u8>> {
    let all: Vec<_> = leaks.sites.iter().chain(&leaks.freed_at_exit).collect();
    let mut stack = FixedSizeBinaryBuilder::with_capacity(all.len(), 16);
    let (mut kind, mut why, mut late) = (StringBuilder::new(), StringBuilder::new(), BooleanBuilder::new());
    let (mut count, mut bytes, mut rate) = (Int64Builder::new(), Int64Builder::new(), Float64Builder::new());
    for site in all {
        let Some(name) = stacks(&site.id) else { continue };
        stack.append_value(name)?;
        kind.append_value(serde_json::to_value(site.verdict.kind)?.as_str().unwrap_or_default());
        why.append_value(&site.verdict.why);
        late.append_value(site.verdict.freed_at_exit);
        count.append_value(int(site.count));
        bytes.append_value(int(site.bytes));
        rate.append_value(site.verdict.bytes_per_second);
    }
    table(vec![
        ("stack", DataType::FixedSizeBinary(16), Arc::new(stack.finish())),
        ("kind", DataType::Utf8, Arc::new(kind.finish())),
        ("freed_at_exit", DataType::Boolean, Arc::new(late.finish())),
        ("count", DataType::Int64, Arc::new(count.finish())),
        ("bytes", DataType::Int64, Arc::new(bytes.finish())),
        ("bytes_per_second", DataType::Float64, Arc::new(rate.finish())),
        ("why", DataType::Utf8, Arc::new(why.finish())),
    ])
}
