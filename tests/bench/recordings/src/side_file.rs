//! Side files as a killed process leaves them.

use tracehound_format::live::{
    CHUNK_HEADER_BYTES, ChunkState, HEADER_BYTES, MAGIC, NODE_SLOT_BYTES, VERSION, chunk_offset, node_slot, offset,
};
use tracehound_format::nodes::Node;
use tracehound_format::record::{RECORD_BYTES, Record};

/// A chunk of a side file.
#[derive(Debug, Clone)]
pub struct LiveChunk {
    /// Recording-wide thread id.
    pub thread: u32,
    /// Number of its first record among the thread's.
    pub first_record: u64,
    /// Records at the front that are in the recording already.
    pub written: u32,
    /// All records.
    pub records: Vec<Record>,
}

/// The bytes of a side file for the process `pid` that started at `process_start`.
#[must_use]
pub fn side_file(
    recording_id: [u8; 16],
    pid: u32,
    process_start: u64,
    chunks: &[LiveChunk],
    nodes: &[(u32, Node)],
) -> Vec<u8> {
    let longest = chunks.iter().map(|c| c.records.len()).max().unwrap_or(0);
    let chunk_bytes = CHUNK_HEADER_BYTES + (longest + 1) * RECORD_BYTES;
    let nodes_at = HEADER_BYTES + chunks.len() * chunk_bytes;
    let capacity = nodes.iter().map(|n| n.0 as usize + 1).max().unwrap_or(0);
    let mut bytes = vec![0; nodes_at + capacity * NODE_SLOT_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(offset::MAGIC, &MAGIC);
    put(offset::VERSION, &VERSION.to_le_bytes());
    put(offset::PID, &pid.to_le_bytes());
    put(offset::RECORDING_ID, &recording_id);
    put(offset::PROCESS_START, &process_start.to_le_bytes());
    put(offset::CHUNK_BYTES, &(chunk_bytes as u32).to_le_bytes());
    put(offset::CHUNK_COUNT, &(chunks.len() as u32).to_le_bytes());
    put(offset::CHUNKS, &(HEADER_BYTES as u64).to_le_bytes());
    put(offset::NODES, &(nodes_at as u64).to_le_bytes());
    put(offset::NODES_CAPACITY, &(capacity as u64).to_le_bytes());
    for (index, chunk) in chunks.iter().enumerate() {
        let at = HEADER_BYTES + index * chunk_bytes;
        put(at + chunk_offset::STATE, &(ChunkState::Active as u32).to_le_bytes());
        put(at + chunk_offset::THREAD, &chunk.thread.to_le_bytes());
        put(at + chunk_offset::FIRST_RECORD, &chunk.first_record.to_le_bytes());
        put(at + chunk_offset::WRITTEN, &chunk.written.to_le_bytes());
        for (i, record) in chunk.records.iter().enumerate() {
            for (w, word) in record.to_words().iter().enumerate() {
                put(at + CHUNK_HEADER_BYTES + i * RECORD_BYTES + w * 8, &word.to_le_bytes());
            }
        }
    }
    for &(id, node) in nodes {
        for (w, word) in node_slot(node).iter().enumerate() {
            put(nodes_at + id as usize * NODE_SLOT_BYTES + w * 8, &word.to_le_bytes());
        }
    }
    bytes
}
