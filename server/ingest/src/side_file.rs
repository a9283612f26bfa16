//! The side file of a process that was killed: the records that it had completed and the writer had not written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tracehound_format::columns::RecordColumns;
use tracehound_format::live::{self, ChunkState, LiveHeader, chunk_offset};
use tracehound_format::nodes::Node;
use tracehound_format::record::{Kind, RECORD_BYTES, Record};

use super::liveness;

/// An open side file.
#[derive(Debug)]
pub struct SideFile {
    file: File,
    /// Its fixed part.
    pub header: LiveHeader,
}

/// What a chunk holds that the recording may lack.
#[derive(Debug)]
pub struct Rest {
    /// Recording-wide thread id.
    pub thread: u32,
    /// Number of the first record among its thread's.
    pub first_record: u64,
    /// The records.
    pub columns: RecordColumns,
}

/// Where the side file of a recording lies.
#[must_use]
pub fn path_of(recording: &Path) -> PathBuf {
    let mut name = recording.as_os_str().to_owned();
    name.push(".live");
    name.into()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl SideFile {
    /// Opens the side file of `recording`; `None` when there is none that belongs to it.
    #[must_use]
    pub fn open(recording: &Path, recording_id: [u8; 16]) -> Option<Self> {
        let file = File::open(path_of(recording)).ok()?;
        let len = file.metadata().ok()?.len();
        let mut page = vec![0; live::HEADER_BYTES];
        file.read_exact_at(&mut page, 0).ok()?;
        let header = LiveHeader::decode(&page, len).ok()?;
        (header.recording_id == recording_id).then_some(Self { file, header })
    }

    /// Whether the process that writes it and `recording` lives.
    #[must_use]
    pub fn is_process_alive(&self, recording: &File) -> bool {
        liveness::is_alive(&self.header, recording)
    }

    /// Whether that process lives and still records: for want of room recording may have stopped before.
    #[must_use]
    pub fn is_recording(&self, recording: &File) -> bool {
        self.header.ending.0 != live::Ending::NoRoom && self.is_process_alive(recording)
    }

    /// The records in the chunks that the recording may lack, by thread and number.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn rest(&self) -> io::Result<Vec<Rest>> {
        let mut rests = Vec::new();
        let mut slot = vec![0; self.header.chunk_bytes as usize];
        for index in 0..u64::from(self.header.chunk_count) {
            let at = self.header.chunks_offset + index * u64::from(self.header.chunk_bytes);
            if self.read_slot(at, &mut slot)? {
                let bytes = self.header.chunk_bytes_in(&slot);
                rests.extend(slot.chunks_exact(bytes).filter_map(rest_of));
            }
        }
        rests.sort_by_key(|r| (r.thread, r.first_record));
        Ok(rests)
    }

    /// Reads a slot whole, if one of its chunks is in use.
    fn read_slot(&self, at: u64, slot: &mut [u8]) -> io::Result<bool> {
        let mut head = [0; live::CHUNK_HEADER_BYTES];
        self.file.read_exact_at(&mut head, at)?;
        let bytes = self.header.chunk_bytes_in(&head);
        let mut from = 0;
        while !is_used(&head) {
            from += bytes;
            if from >= slot.len() {
                return Ok(false);
            }
            self.file.read_exact_at(&mut head, at + from as u64)?;
        }
        self.file.read_exact_at(slot, at)?;
        Ok(true)
    }

    /// Nodes that were published, from id `from` on, up to the first slot that never was followed by any.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn nodes(&self, from: u32, mut each: impl FnMut(u32, Node)) -> io::Result<()> {
        const SLOTS: u64 = 1 << 16;
        let mut buffer = Vec::new();
        let mut id = u64::from(from.max(1));
        while id < self.header.nodes_capacity {
            let take = SLOTS.min(self.header.nodes_capacity - id);
            buffer.resize(take as usize * live::NODE_SLOT_BYTES, 0);
            let at = self.header.nodes_offset + id * live::NODE_SLOT_BYTES as u64;
            self.file.read_exact_at(&mut buffer, at)?;
            let mut any = false;
            for (i, slot) in buffer.chunks_exact(live::NODE_SLOT_BYTES).enumerate() {
                if let (Some(node), Ok(id)) =
                    (live::node_from_slot([u64_at(slot, 0), u64_at(slot, 8)]), u32::try_from(id + i as u64))
                {
                    any = true;
                    each(id, node);
                }
            }
            if !any {
                break;
            }
            id += take;
        }
        Ok(())
    }
}

fn is_used(chunk: &[u8]) -> bool {
    u32_at(chunk, chunk_offset::STATE) != ChunkState::Free as u32
}

/// The records of a chunk that are not written.
fn rest_of(chunk: &[u8]) -> Option<Rest> {
    if !is_used(chunk) {
        return None;
    }
    let record = |words: &[u8]| Record::from_words([u64_at(words, 0), u64_at(words, 8), u64_at(words, 16)]);
    let slots = chunk.get(live::CHUNK_HEADER_BYTES..).unwrap_or_default().chunks_exact(RECORD_BYTES);
    let slots: Vec<Option<Record>> = slots.map(record).collect();
    let written = u32_at(chunk, chunk_offset::WRITTEN);
    unwritten(&slots, written as usize).map(|columns| Rest {
        thread: u32_at(chunk, chunk_offset::THREAD),
        first_record: u64_at(chunk, chunk_offset::FIRST_RECORD).saturating_add(u64::from(written)),
        columns,
    })
}

/// The records of a chunk from the slot `written` on, up to the last one that is published. A slot before that one which
/// holds none was reserved by an event that did not complete while others interrupted it: it counts as a lost record, so
/// that the numbering holds. `None` when there are no records.
fn unwritten(slots: &[Option<Record>], written: usize) -> Option<RecordColumns> {
    let slots = slots.get(written..)?;
    let used = slots.iter().rposition(Option::is_some)? + 1;
    let mut columns = RecordColumns::default();
    let mut tick = slots.iter().flatten().next()?.tick;
    for slot in slots.iter().take(used) {
        let record = slot.unwrap_or_else(|| Record::new(Kind::Lost, tick, 1, 0, 0));
        tick = record.tick;
        columns.push(record);
    }
    Some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_an_abandoned_slot_is_there_and_the_slot_is_counted() {
        let record = |tick| Some(Record::new(Kind::Malloc, tick, tick * 16, 1, 8));
        let slots = [record(1), record(2), None, None, record(5), record(6), None];
        let read = |written| {
            let columns = unwritten(&slots, written)?;
            Some((0..columns.len()).filter_map(|i| columns.get(i)).collect::<Vec<_>>())
        };
        let lost = Record::new(Kind::Lost, 2, 1, 0, 0);
        assert_eq!(read(1).unwrap(), [record(2).unwrap(), lost, lost, record(5).unwrap(), record(6).unwrap()]);
        assert_eq!(read(5).unwrap(), [record(6).unwrap()]);
        assert_eq!(read(6), None);
        assert_eq!(read(99), None);
    }
}
