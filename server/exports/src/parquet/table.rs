//! One table being written: rows go in by batches, encoded bytes come out.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::super::{ExportInput, Result};
use super::columns::{ColumnCells, ColumnType};

/// Rows that are put together at once.
pub(super) const BATCH: usize = 1 << 16;
/// Rows of a row group, which is encoded and written as a whole: about 100 bytes of memory each.
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
    writer: SerializedFileWriter<Vec<u8>>,
    nullable: Vec<bool>,
    /// Batches of the next row group.
    waiting: Vec<Vec<ColumnCells>>,
    rows: usize,
    out: &'a mut dyn Write,
}

impl<'a> ParquetTable<'a> {
    /// A table of columns with these names and types; `true`: a row may have no value.
    pub(super) fn new(
        source: ExportInput<'_>,
        columns: &[(&str, ColumnType, bool)],
        out: &'a mut dyn Write,
    ) -> Result<Self> {
        let fields: String = columns.iter().map(|(name, kind, nullable)| kind.declare(name, *nullable)).collect();
        let schema = parse_message_type(&format!("message schema {{ {fields} }}"))?;
        let info = serde_json::to_string(&tracehound_audit::info(source.trace, source.symbols))
            .map_err(std::io::Error::from)?;
        let mut properties = WriterProperties::builder();
        for (name, kind, _) in columns {
            let encoding = match *name {
                _ if *kind != ColumnType::Int || REPEATED.contains(name) => continue,
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
            .set_key_value_metadata(Some(vec![KeyValue::new("heaptrace.info".into(), info)]))
            .build();
        let writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
        let nullable = columns.iter().map(|(_, _, nullable)| *nullable).collect();
        Ok(Self { writer, nullable, waiting: Vec::new(), rows: 0, out })
    }

    /// Adds rows: cells of each column, in the order in which they were declared.
    pub(super) fn batch(&mut self, columns: Vec<ColumnCells>) -> Result<()> {
        let rows = columns.first().map_or(0, ColumnCells::rows);
        debug_assert!(columns.iter().all(|column| column.rows() == rows) && columns.len() == self.nullable.len());
        if rows != 0 {
            self.waiting.push(columns);
            self.rows += rows;
        }
        if self.rows >= GROUP { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        let mut nullable = self.nullable.iter().enumerate();
        while let (Some((index, nullable)), Some(mut writer)) = (nullable.next(), group.next_column()?) {
            for column in self.waiting.iter().filter_map(|batch| batch.get(index)) {
                column.write(*nullable, &mut writer)?;
            }
            writer.close()?;
        }
        group.close()?;
        self.waiting.clear();
        self.rows = 0;
        self.drain()
    }

    /// Hands on what was encoded: the writer counts bytes for itself, so what it wrote to may be emptied.
    fn drain(&mut self) -> Result<()> {
        let encoded = self.writer.inner_mut();
        self.out.write_all(encoded)?;
        encoded.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        if self.rows != 0 {
            self.write_group()?;
        }
        self.writer.finish()?;
        self.drain()
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
