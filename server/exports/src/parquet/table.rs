//! One table being written: rows go in by batches, encoded bytes come out.

use std::io::Write;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::super::{ExportInput, Result};

/// Rows that are in memory at once.
pub(super) const BATCH: usize = 1 << 16;
/// Rows of a row group, which is compressed in memory before it is written.
const GROUP: usize = 1 << 18;

/// Columns of integers with few values, which a dictionary makes smallest. In others neighbours are close to one another:
/// times, rows and counts go as differences.
const REPEATED: [&str; 6] = ["size", "thread", "free_thread", "depth", "level", "line"];
/// Columns whose values come again, but not beside one another: zstd finds them, and differences would hide them.
/// (BYTE_STREAM_SPLIT would make `died_ns` 0.14 bytes smaller; not every Spark reads it.)
const SCATTERED: [&str; 2] = ["address", "died_ns"];

/// An integer as readers of tables have them: Spark and Trino know signed ones only. Times, sizes and addresses of
/// programs are below 2^63; what is not (an address that a kernel has) keeps its bits.
pub(super) const fn int(value: u64) -> i64 {
    value.cast_signed()
}

/// A file being written.
pub(super) struct ParquetTable<'a> {
    writer: ArrowWriter<Vec<u8>>,
    schema: Arc<Schema>,
    out: &'a mut dyn Write,
}

impl<'a> ParquetTable<'a> {
    pub(super) fn new(
        source: ExportInput<'_>,
        columns: &[(&str, DataType, bool)],
        out: &'a mut dyn Write,
    ) -> Result<Self> {
        let fields: Vec<Field> =
            columns.iter().map(|(name, kind, nullable)| Field::new(*name, kind.clone(), *nullable)).collect();
        let schema = Arc::new(Schema::new(fields));
        let info = serde_json::to_string(&tracehound_audit::info(source.trace, source.symbols))
            .map_err(std::io::Error::from)?;
        let mut properties = WriterProperties::builder();
        for (name, kind, _) in columns {
            let encoding = match *name {
                _ if *kind != DataType::Int64 || REPEATED.contains(name) => continue,
                name if SCATTERED.contains(&name) => Encoding::PLAIN,
                _ => Encoding::DELTA_BINARY_PACKED,
            };
            properties = properties
                .set_column_dictionary_enabled((*name).into(), false)
                .set_column_encoding((*name).into(), encoding);
        }
        let properties = properties
            .set_created_by(format!("heaptrace {}", env!("CARGO_PKG_VERSION")))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_max_row_group_row_count(Some(GROUP))
            .set_key_value_metadata(Some(vec![KeyValue::new("heaptrace.info".into(), info)]))
            .build();
        let writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties))?;
        Ok(Self { writer, schema, out })
    }

    pub(super) fn batch(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
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

    pub(super) fn finish(mut self) -> Result<()> {
        self.writer.finish()?;
        self.drain()
    }
}

pub(super) fn name_type() -> DataType {
    DataType::FixedSizeBinary(16)
}

pub(super) fn names_builder(len: usize) -> FixedSizeBinaryBuilder {
    FixedSizeBinaryBuilder::with_capacity(len, 16)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
