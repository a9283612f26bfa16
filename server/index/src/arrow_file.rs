//! One column as an Arrow IPC file that can grow before it is finished.
//!
//! ```text
//!    0  "ARROW1\0\0"
//!    8  schema message
//!    …  record batch message, padded so that it ends at BODY
//! 4096  the values, little-endian, without nulls            ← appended while the index is built
//!    …  padding to 8, end-of-stream mark, footer, "ARROW1"
//! ```
//! The front has a fixed length, so it can be written after the values; until then it is zeros and no Arrow tool takes
//! the file for a finished one.
//!
//! The messages are Flatbuffers of Arrow's `Message.fbs`, `Schema.fbs` and `File.fbs`. They are built field by field: the
//! crate `arrow-ipc` has their types, and compiles Arrow's kernels with them, a tenth of the time of a whole build.

use flatbuffers::{FlatBufferBuilder, Push, PushAlignment, TableFinishedWIPOffset, VOffsetT, WIPOffset};

/// File offset of the first value: a page, so that a mapping of the file is aligned for every type.
pub const BODY: usize = 4096;

const MAGIC: &[u8; 8] = b"ARROW1\0\0";
const CONTINUATION: [u8; 4] = [0xff; 4];

/// `MetadataVersion.V5`.
const VERSION: i16 = 4;
/// `Type.Int`, of the union of all types.
const TYPE_INT: u8 = 2;
/// Members of the union `MessageHeader`.
const SCHEMA: u8 = 1;
const RECORD_BATCH: u8 = 3;

/// The first [`BODY`] bytes and everything after the values.
pub struct FileFrame {
    /// Goes to offset 0.
    pub front: Vec<u8>,
    /// Goes directly after the values.
    pub back: Vec<u8>,
}

/// Frames a column of `rows` unsigned integers of `width` bytes.
#[must_use]
pub fn frame(name: &str, rows: u64, width: usize) -> FileFrame {
    let values = rows * width as u64;
    let padding = (8 - values % 8) % 8;
    let body = values + padding;

    let mut front = MAGIC.to_vec();
    let schema = message(SCHEMA, 0, |builder| schema(builder, name, width));
    put_message(&mut front, &schema, schema.len().next_multiple_of(8));
    let batch_at = front.len();
    let batch = message(RECORD_BATCH, body, |builder| record_batch(builder, rows, values));
    let room = BODY.saturating_sub(batch_at + 8);
    put_message(&mut front, &batch, room);
    debug_assert_eq!(front.len(), BODY);

    let mut back = vec![0; padding as usize];
    back.extend_from_slice(&CONTINUATION);
    back.extend_from_slice(&[0; 4]);
    // A `Block`: where the message begins, its length in 32 bits and 32 bits of padding, the length of its body.
    let footer = footer(name, width, WordStruct([batch_at as u64, (BODY - batch_at) as u64, body]));
    back.extend_from_slice(&footer);
    back.extend_from_slice(&(footer.len() as u32).to_le_bytes());
    back.extend_from_slice(&MAGIC[..6]);
    FileFrame { front, back }
}

fn put_message(out: &mut Vec<u8>, message: &[u8], padded: usize) {
    out.extend_from_slice(&CONTINUATION);
    out.extend_from_slice(&(padded as u32).to_le_bytes());
    out.extend_from_slice(message);
    out.resize(out.len() + padded.saturating_sub(message.len()), 0);
}

type Builder = FlatBufferBuilder<'static>;
type Table = WIPOffset<TableFinishedWIPOffset>;

/// The place of a field in the table's list of fields: `index` counts them in the order of their declaration; a union
/// is two, its type and its value.
const fn field(index: VOffsetT) -> VOffsetT {
    4 + 2 * index
}

/// A struct of `N` words of 64 bits.
#[derive(Clone, Copy)]
struct WordStruct<const N: usize>([u64; N]);

impl<const N: usize> Push for WordStruct<N> {
    type Output = Self;

    unsafe fn push(&self, to: &mut [u8], _written: usize) {
        for (place, word) in to.chunks_exact_mut(size_of::<u64>()).zip(self.0) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn alignment() -> PushAlignment {
        PushAlignment::new(size_of::<u64>())
    }
}

/// A `Message`, whose header is the table that `header` makes, a member `kind` of the union.
fn message(kind: u8, body: u64, header: impl FnOnce(&mut Builder) -> Table) -> Vec<u8> {
    let mut builder = Builder::new();
    let header = header(&mut builder);
    let table = builder.start_table();
    builder.push_slot_always(field(0), VERSION);
    builder.push_slot_always(field(1), kind);
    builder.push_slot_always(field(2), header);
    builder.push_slot_always(field(3), body);
    let root = builder.end_table(table);
    builder.finish(root, None);
    builder.finished_data().to_vec()
}

/// A `Schema` of one field that is never null.
fn schema(builder: &mut Builder, name: &str, width: usize) -> Table {
    let table = builder.start_table();
    builder.push_slot_always(field(0), 8 * width as i32);
    builder.push_slot_always(field(1), false);
    let int = builder.end_table(table);

    let name = builder.create_string(name);
    let children = builder.create_vector::<Table>(&[]);
    let table = builder.start_table();
    builder.push_slot_always(field(0), name);
    builder.push_slot_always(field(1), false);
    builder.push_slot_always(field(2), TYPE_INT);
    builder.push_slot_always(field(3), int);
    builder.push_slot_always(field(5), children);
    let column = builder.end_table(table);

    let fields = builder.create_vector(&[column]);
    let table = builder.start_table();
    builder.push_slot_always(field(1), fields);
    builder.end_table(table)
}

/// A `RecordBatch`: one `FieldNode`, no validity bits, and the buffer of the values.
fn record_batch(builder: &mut Builder, rows: u64, values: u64) -> Table {
    let nodes = builder.create_vector(&[WordStruct([rows, 0])]);
    let buffers = builder.create_vector(&[WordStruct([0, 0]), WordStruct([0, values])]);
    let table = builder.start_table();
    builder.push_slot_always(field(0), rows);
    builder.push_slot_always(field(1), nodes);
    builder.push_slot_always(field(2), buffers);
    builder.end_table(table)
}

/// A `Footer`: no dictionaries, one batch.
fn footer(name: &str, width: usize, block: WordStruct<3>) -> Vec<u8> {
    let mut builder = Builder::new();
    let dictionaries = builder.create_vector::<WordStruct<3>>(&[]);
    let batches = builder.create_vector(&[block]);
    let schema = schema(&mut builder, name, width);
    let table = builder.start_table();
    builder.push_slot_always(field(0), VERSION);
    builder.push_slot_always(field(1), schema);
    builder.push_slot_always(field(2), dictionaries);
    builder.push_slot_always(field(3), batches);
    let root = builder.end_table(table);
    builder.finish(root, None);
    builder.finished_data().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
    use arrow_array::{Array, ArrowPrimitiveType};

    fn assert_read_back<T: ArrowPrimitiveType>(values: &[T::Native], bytes: impl Fn(T::Native) -> Vec<u8>) {
        let frame = frame("size", values.len() as u64, size_of::<T::Native>());
        assert_eq!(frame.front.len(), BODY);
        let file = [frame.front, values.iter().flat_map(|&value| bytes(value)).collect(), frame.back].concat();
        let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(file), None).unwrap();
        let schema = reader.schema();
        assert_eq!((schema.field(0).name().as_str(), schema.field(0).is_nullable()), ("size", false));
        let batches: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(batches.len(), 1);
        let column = batches[0].column(0).as_primitive::<T>();
        assert_eq!(column.null_count(), 0);
        assert!(column.values().iter().eq(values));
    }

    #[test]
    fn arrow_reads_it_back() {
        for rows in [0_u64, 1, 3, 1000] {
            let values: Vec<u64> = (0..rows).map(|i| i * 7).collect();
            let bytes: Vec<u8> = values.iter().map(|&value| value as u8).collect();
            assert_read_back::<UInt8Type>(&bytes, |value| vec![value]);
            let words: Vec<u16> = values.iter().map(|&value| value as u16).collect();
            assert_read_back::<UInt16Type>(&words, |value| value.to_le_bytes().to_vec());
            let words: Vec<u32> = values.iter().map(|&value| value as u32).collect();
            assert_read_back::<UInt32Type>(&words, |value| value.to_le_bytes().to_vec());
            assert_read_back::<UInt64Type>(&values, |value| value.to_le_bytes().to_vec());
        }
    }
}
