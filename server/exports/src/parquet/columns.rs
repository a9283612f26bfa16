//! Cells of a table's columns, from rows to what Parquet's column writers take.

use bytes::Bytes;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int64Type};
use parquet::file::writer::SerializedColumnWriter;

use super::names::Name;

/// Cells that are handed to a writer at once: as many small objects are in memory.
const PART: usize = 1 << 12;

/// What a column has in each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// A signed integer of 64 bits.
    Int,
    /// Truth.
    Bool,
    /// UTF-8.
    Text,
    /// Name of a stack or a frame: 16 bytes.
    Name,
    /// A list of names.
    Names,
}

impl ColumnType {
    /// The field in the language of Parquet's schemas.
    pub(super) fn declare(self, name: &str, nullable: bool) -> String {
        let repetition = if nullable { "OPTIONAL" } else { "REQUIRED" };
        match self {
            Self::Int => format!("{repetition} INT64 {name};"),
            Self::Bool => format!("{repetition} BOOLEAN {name};"),
            Self::Text => format!("{repetition} BYTE_ARRAY {name} (STRING);"),
            Self::Name => format!("{repetition} FIXED_LEN_BYTE_ARRAY (16) {name};"),
            Self::Names => format!(
                "{repetition} group {name} (LIST) {{ REPEATED group list {{ REQUIRED FIXED_LEN_BYTE_ARRAY (16) element; }} }}"
            ),
        }
    }
}

/// Where values of one type gather.
pub(super) trait CellStore: Default {
    /// One value.
    type Item<'a>;
    fn add(&mut self, item: Self::Item<'_>);
}

impl CellStore for Vec<i64> {
    type Item<'a> = i64;
    fn add(&mut self, item: i64) {
        self.push(item);
    }
}

impl CellStore for Vec<bool> {
    type Item<'a> = bool;
    fn add(&mut self, item: bool) {
        self.push(item);
    }
}

impl CellStore for Vec<Name> {
    type Item<'a> = Name;
    fn add(&mut self, item: Name) {
        self.push(item);
    }
}

/// Texts one behind the other, and where each ends.
#[derive(Default)]
pub(super) struct TextStore {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl CellStore for TextStore {
    type Item<'a> = &'a str;
    fn add(&mut self, item: &str) {
        self.bytes.extend_from_slice(item.as_bytes());
        self.ends.push(self.bytes.len());
    }
}

/// Cells of one column: values of the rows that have one, and a level for each row, 1 where it has one.
#[derive(Default)]
pub(super) struct Cells<S> {
    store: S,
    levels: Vec<i16>,
}

pub(super) type Ints = Cells<Vec<i64>>;
pub(super) type Bools = Cells<Vec<bool>>;
pub(super) type Texts = Cells<TextStore>;
pub(super) type Names = Cells<Vec<Name>>;

impl<S: CellStore> Cells<S> {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn push(&mut self, value: S::Item<'_>) {
        self.store.add(value);
        self.levels.push(1);
    }

    /// `None`: the row has no value.
    pub(super) fn push_option(&mut self, value: Option<S::Item<'_>>) {
        match value {
            Some(value) => self.push(value),
            None => self.levels.push(0),
        }
    }
}

/// Cells of a column of lists.
#[derive(Default)]
pub(super) struct NameLists {
    values: Vec<Name>,
    /// Per value, or empty list: 1 if there is a value.
    levels: Vec<i16>,
    /// Per value, or empty list: 0 where a list begins.
    repetitions: Vec<i16>,
    rows: usize,
}

impl NameLists {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn push(&mut self, list: impl Iterator<Item = Name>) {
        let before = self.values.len();
        for name in list {
            self.repetitions.push(i16::from(self.values.len() != before));
            self.values.push(name);
            self.levels.push(1);
        }
        if self.values.len() == before {
            self.levels.push(0);
            self.repetitions.push(0);
        }
        self.rows += 1;
    }

    /// Values of all lists.
    pub(super) fn value_count(&self) -> usize {
        self.values.len()
    }
}

/// Cells of any column.
pub(super) enum ColumnCells {
    Int(Ints),
    Bool(Bools),
    Text(Texts),
    Name(Names),
    Names(NameLists),
}

macro_rules! columns {
    ($($from:ty => $to:ident),*) => {$(
        impl From<$from> for ColumnCells {
            fn from(cells: $from) -> Self { Self::$to(cells) }
        }
    )*};
}
columns!(Ints => Int, Bools => Bool, Texts => Text, Names => Name, NameLists => Names);

impl ColumnCells {
    /// Rows that it has cells of.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Int(cells) => cells.levels.len(),
            Self::Bool(cells) => cells.levels.len(),
            Self::Text(cells) => cells.levels.len(),
            Self::Name(cells) => cells.levels.len(),
            Self::Names(lists) => lists.rows,
        }
    }

    /// Hands the cells to their writer. `nullable` is as the column was declared.
    pub(super) fn write(&self, nullable: bool, writer: &mut SerializedColumnWriter<'_>) -> parquet::errors::Result<()> {
        match self {
            Self::Int(Cells { store, levels }) => {
                writer.typed::<Int64Type>().write_batch(store, nullable.then_some(levels.as_slice()), None)?;
            }
            Self::Bool(Cells { store, levels }) => {
                writer.typed::<BoolType>().write_batch(store, nullable.then_some(levels.as_slice()), None)?;
            }
            Self::Text(Cells { store, levels }) => {
                let writer = writer.typed::<ByteArrayType>();
                let mut from = 0;
                in_parts(levels, nullable, store.ends.len(), |values, levels| {
                    let ends = &store.ends[values];
                    let end = ends.last().copied().unwrap_or(from);
                    let bytes = Bytes::copy_from_slice(&store.bytes[from..end]);
                    let (mut at, base) = (from, from);
                    from = end;
                    let texts: Vec<ByteArray> = ends
                        .iter()
                        .map(|&end| bytes.slice(std::mem::replace(&mut at, end) - base..end - base).into())
                        .collect();
                    writer.write_batch(&texts, levels, None)
                })?;
            }
            Self::Name(Cells { store, levels }) => {
                let writer = writer.typed::<FixedLenByteArrayType>();
                in_parts(levels, nullable, store.len(), |values, levels| {
                    writer.write_batch(&byte_arrays(&store[values]), levels, None)
                })?;
            }
            Self::Names(lists) => {
                let levels = Some(lists.levels.as_slice());
                let writer = writer.typed::<FixedLenByteArrayType>();
                writer.write_batch(&byte_arrays(&lists.values), levels, Some(&lists.repetitions))?;
            }
        }
        Ok(())
    }
}

/// Calls `write` for the cells of [`PART`] rows at a time: with the range of their values, and their levels.
fn in_parts(
    levels: &[i16],
    nullable: bool,
    values: usize,
    mut write: impl FnMut(std::ops::Range<usize>, Option<&[i16]>) -> parquet::errors::Result<usize>,
) -> parquet::errors::Result<()> {
    let mut from = 0;
    for levels in levels.chunks(PART) {
        let present = levels.iter().filter(|&&level| level == 1).count();
        write(from..from + present, nullable.then_some(levels))?;
        from += present;
    }
    debug_assert_eq!(from, values);
    Ok(())
}

fn byte_arrays(names: &[Name]) -> Vec<FixedLenByteArray> {
    let bytes = Bytes::copy_from_slice(names.as_flattened());
    let of = |index: usize| ByteArray::from(bytes.slice(index * size_of::<Name>()..(index + 1) * size_of::<Name>()));
    (0..names.len()).map(|index| of(index).into()).collect()
}
