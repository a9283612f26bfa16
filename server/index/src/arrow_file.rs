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

use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::{
    Block, Buffer, FieldNode, FooterBuilder, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder,
};
use arrow_schema::{DataType, Field, Schema};
use flatbuffers::FlatBufferBuilder;

/// File offset of the first value: a page, so that a mapping of the file is aligned for every type.
pub const BODY: usize = 4096;

const MAGIC: &[u8; 8] = b"ARROW1\0\0";
const CONTINUATION: [u8; 4] = [0xff; 4];

/// The first [`BODY`] bytes and everything after the values.
pub struct FileFrame {
    /// Goes to offset 0.
    pub front: Vec<u8>,
    /// Goes directly after the values.
    pub back: Vec<u8>,
}

/// Frames a column of `rows` values of `width` bytes.
#[must_use]
pub fn frame(name: &str, data_type: &DataType, rows: u64, width: usize) -> FileFrame {
    let values = rows * width as u64;
    let padding = (8 - values % 8) % 8;
    let body = values + padding;
    let schema = Schema::new(vec![Field::new(name, data_type.clone(), false)]);

    let mut front = MAGIC.to_vec();
    let message = schema_message(&schema);
    put_message(&mut front, &message, message.len().next_multiple_of(8));
    let batch_at = front.len();
    let batch = batch_message(rows, values, body);
    let room = BODY.saturating_sub(batch_at + 8);
    put_message(&mut front, &batch, room);
    debug_assert_eq!(front.len(), BODY);

    let mut back = vec![0; padding as usize];
    back.extend_from_slice(&CONTINUATION);
    back.extend_from_slice(&[0; 4]);
    let block = Block::new(batch_at as i64, (BODY - batch_at) as i32, body as i64);
    let footer = footer(&schema, block);
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

fn schema_message(schema: &Schema) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let header = IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, schema).as_union_value();
    let mut message = MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(MessageHeader::Schema);
    message.add_bodyLength(0);
    message.add_header(header);
    let root = message.finish();
    builder.finish(root, None);
    builder.finished_data().to_vec()
}

fn batch_message(rows: u64, values: u64, body: u64) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let nodes = builder.create_vector(&[FieldNode::new(rows as i64, 0)]);
    let buffers = builder.create_vector(&[Buffer::new(0, 0), Buffer::new(0, values as i64)]);
    let mut batch = RecordBatchBuilder::new(&mut builder);
    batch.add_length(rows as i64);
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    let header = batch.finish().as_union_value();
    let mut message = MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(MessageHeader::RecordBatch);
    message.add_bodyLength(body as i64);
    message.add_header(header);
    let root = message.finish();
    builder.finish(root, None);
    builder.finished_data().to_vec()
}

fn footer(schema: &Schema, block: Block) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let none: &[Block] = &[];
    let dictionaries = builder.create_vector(none);
    let batches = builder.create_vector(&[block]);
    let schema = IpcSchemaEncoder::new().schema_to_fb_offset(&mut builder, schema);
    let mut footer = FooterBuilder::new(&mut builder);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_dictionaries(dictionaries);
    footer.add_recordBatches(batches);
    let root = footer.finish();
    builder.finish(root, None);
    builder.finished_data().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Array, UInt32Array};

    #[test]
    fn arrow_reads_it_back() {
        for rows in [0_u32, 1, 3, 1000] {
            let values: Vec<u32> = (0..rows).map(|i| i * 7).collect();
            let frame = frame("size", &DataType::UInt32, u64::from(rows), 4);
            assert_eq!(frame.front.len(), BODY);
            let mut file = frame.front;
            values.iter().for_each(|v| file.extend_from_slice(&v.to_le_bytes()));
            file.extend_from_slice(&frame.back);
            let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(file), None).unwrap();
            assert_eq!(reader.schema().field(0).name(), "size");
            let batches: Vec<_> = reader.map(Result::unwrap).collect();
            assert_eq!(batches.len(), 1);
            let column = batches[0].column(0).as_any().downcast_ref::<UInt32Array>().unwrap();
            assert_eq!(column.null_count(), 0);
            assert_eq!(column.values().to_vec(), values);
        }
    }
}
