//! The records of a thread's next block, read in place from their chunks: nothing is copied before it is encoded.

use tracehound_format::record::{Kind, Record};

use tracehound_shared::chunk::Chunk;

/// Placeholder for a record that is missing; see [`Batch::add_full`].
const MISSING: Record = Record::new(Kind::Lost, 0, 1, 0, 0);

/// Records of one thread in order, in chunks that stay until they are settled.
#[derive(Default)]
pub struct Batch {
    spans: Vec<RecordRun>,
    /// Records behind the spans that lie in no chunk.
    loose: Vec<Record>,
    /// Number of records.
    pub count: u32,
    /// Ticks of the earliest and of the latest record.
    pub ticks: (u64, u64),
    /// Bits that occur in some address word.
    pub address_bits: u64,
    /// The highest id of a node.
    pub highest_node: u32,
}

/// Records next to each other in a chunk.
struct RecordRun {
    chunk: Chunk,
    from: u32,
    to: u32,
}

/// What is to be done with a chunk whose records are in a block.
pub enum Settlement {
    /// It was full: it can be wiped and given back, under its number.
    Emptied(u32, Chunk),
    /// So many of its records are written.
    Partly(Chunk, u32),
}

impl RecordRun {
    #[inline(always)]
    fn records(&self) -> impl Iterator<Item = Record> {
        (self.from..self.to).map(|index| self.chunk.record(index).unwrap_or(MISSING))
    }
}

/// Sums over all records of the batch, kept in registers during the pass.
struct Sum {
    first: u64,
    last: u64,
    bits: u64,
    highest: u32,
}

impl Sum {
    #[inline(always)]
    fn add(&mut self, record: Record) {
        self.first = self.first.min(record.tick);
        self.last = self.last.max(record.tick);
        self.bits |= record.address;
        // The highest id marks a backtrace that was not taken.
        self.highest = self.highest.max(if record.node == u32::MAX { 0 } else { record.node });
    }
}

impl Batch {
    /// Removes all records from the batch; the chunks keep them.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.loose.clear();
        (self.count, self.ticks, self.address_bits, self.highest_node) = (0, (0, 0), 0, 0);
    }

    /// Appends the rest of a full chunk. A slot that was reserved by an event that a jump cut short becomes a `Lost`
    /// record, with the tick of the record before it or else `tick`, so that the numbering holds.
    pub fn add_full(&mut self, chunk: Chunk, tick: u64) {
        self.add_to(chunk, chunk.used(), tick);
    }

    /// The same for a chunk that is not full and will not be filled any more, up to the last record that is published
    /// in it; returns that position.
    pub fn add_last(&mut self, chunk: Chunk, tick: u64) -> u32 {
        self.add_to(chunk, chunk.published(), tick)
    }

    fn add_to(&mut self, chunk: Chunk, to: u32, tick: u64) -> u32 {
        let mut tick = if self.count == 0 { tick } else { self.ticks.1 };
        self.add(chunk, to, |index, record| {
            let record = record.unwrap_or_else(|| {
                let lost = Record { tick, ..MISSING };
                chunk.put(index, lost);
                lost
            });
            tick = record.tick;
            Some(record)
        })
    }

    /// Appends what is published in a chunk that is not full yet; returns the position behind it.
    pub fn add_open(&mut self, chunk: Chunk) -> u32 {
        self.add(chunk, chunk.room(), |_, record| record)
    }

    /// Appends records that lie in no chunk.
    pub fn add_loose(&mut self, records: Vec<Record>) {
        let mut sum = self.sum();
        records.iter().for_each(|&record| sum.add(record));
        self.take_in(sum, records.len() as u32);
        self.loose.extend(records);
    }

    #[inline(always)]
    fn add(&mut self, chunk: Chunk, to: u32, mut take: impl FnMut(u32, Option<Record>) -> Option<Record>) -> u32 {
        let from = chunk.written();
        let mut sum = self.sum();
        let mut index = from;
        while index < to {
            let Some(record) = take(index, chunk.record(index)) else { break };
            sum.add(record);
            index += 1;
        }
        if index > from {
            self.take_in(sum, index - from);
            self.spans.push(RecordRun { chunk, from, to: index });
        }
        index
    }

    #[inline(always)]
    fn sum(&self) -> Sum {
        let (first, last) = if self.count == 0 { (u64::MAX, 0) } else { self.ticks };
        Sum { first, last, bits: self.address_bits, highest: self.highest_node }
    }

    #[inline(always)]
    fn take_in(&mut self, sum: Sum, count: u32) {
        self.ticks = (sum.first, sum.last);
        (self.address_bits, self.highest_node) = (sum.bits, sum.highest);
        self.count += count;
    }

    /// The records in order, span by span; the loose ones follow.
    pub fn spans(&self) -> impl Iterator<Item = impl Iterator<Item = Record>> {
        self.spans.iter().map(RecordRun::records)
    }

    /// The records that lie in no chunk.
    pub fn loose(&self) -> impl Iterator<Item = Record> {
        self.loose.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracehound_shared::chunk::SLOT_BYTES;

    #[repr(align(64))]
    struct Memory([u8; SLOT_BYTES]);

    fn chunk() -> (Box<Memory>, Chunk) {
        let mut memory = Box::new(Memory([0; SLOT_BYTES]));
        // SAFETY: aligned, and kept beside the chunk.
        let chunk = unsafe { Chunk::at(memory.0.as_mut_ptr(), SLOT_BYTES as u32) };
        chunk.open(1, 2, 100);
        (memory, chunk)
    }

    fn all(batch: &Batch) -> Vec<Record> {
        batch.spans().flatten().collect()
    }

    #[test]
    fn a_slot_that_was_never_filled_counts_as_a_lost_record() {
        let (_memory, chunk) = chunk();
        let alloc = Record::new(Kind::Malloc, 70, 0x1230, 5, 8);
        let free = Record::new(Kind::Free, 60, 0x1230, u32::MAX, 0);
        chunk.put(0, alloc);
        chunk.put(2, free);
        chunk.close(4);
        let mut batch = Batch::default();
        batch.add_full(chunk, 50);
        let lost = |tick| Record::new(Kind::Lost, tick, 1, 0, 0);
        assert_eq!(all(&batch), [alloc, lost(70), free, lost(60)]);
        assert_eq!((batch.count, batch.ticks, batch.highest_node), (4, (60, 70), 5));
        assert_eq!(batch.address_bits, 0x1231);
        let mut alone = Batch::default();
        chunk.set_written(3);
        alone.add_full(chunk, 50);
        assert_eq!(all(&alone), [lost(60)], "what is written is not read again");
        alone.clear();
        assert_eq!((alone.count, all(&alone).len()), (0, 0));
    }

    #[test]
    fn an_open_chunk_is_read_up_to_its_first_gap() {
        let (_memory, first) = chunk();
        let (_other, second) = chunk();
        let record = |tick| Record::new(Kind::Malloc, tick, tick * 16, tick as u32, 8);
        (0..3).for_each(|index| first.put(index, record(u64::from(index) + 1)));
        first.close(3);
        second.put(0, record(9));
        second.put(2, record(11));
        let mut batch = Batch::default();
        batch.add_full(first, 0);
        assert_eq!(batch.add_open(second), 1);
        assert_eq!(all(&batch), [record(1), record(2), record(3), record(9)]);
        assert_eq!((batch.ticks, batch.highest_node), ((1, 9), 9));
        second.set_written(1);
        batch.clear();
        second.put(1, record(10));
        assert_eq!(batch.add_open(second), 3);
        assert_eq!(all(&batch), [record(10), record(11)]);
    }
}
