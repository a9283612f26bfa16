//! Events blocks to runs of records, on several threads ahead of the merge.
//!
//! A run keeps its thread's order. Its (node, kind) pairs are numbered, so that the merge looks each of them up once a
//! block instead of once a record.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tracehound_format::FormatError;
use tracehound_format::columns::{Decoder, RecordColumns};
use tracehound_format::record::{Kind, Record};

use super::scan::BlockRef;
use tracehound_index::payload::unzstd;

/// One record of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodedRecord {
    /// Clock ticks.
    pub tick: u64,
    /// Address word.
    pub address: u64,
    /// Size modulo 2^32.
    pub size: u32,
    /// Index into [`Run::origins`] `<< 6 |` kind number.
    pub origin_kind: u32,
}

impl DecodedRecord {
    /// Kind number.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> u8 {
        (self.origin_kind & 63) as u8
    }

    /// Index into [`Run::origins`].
    #[inline]
    #[must_use]
    pub const fn origin(&self) -> usize {
        (self.origin_kind >> 6) as usize
    }
}

/// Records of one thread, in its order.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// The records.
    pub items: Vec<DecodedRecord>,
    /// Distinct (node, kind number) pairs; a pair may appear twice.
    pub origins: Vec<(u32, u8)>,
}

/// Slots of the table that finds pairs again.
const RECENT: usize = 1 << 12;

/// Turns blocks into runs; reuse one for many blocks.
#[derive(Debug, Default)]
pub struct BlockDecoder {
    stored: Vec<u8>,
    raw: Vec<u8>,
    decoder: Decoder,
    numbering: Numbering,
}

#[derive(Debug, Default)]
struct Numbering {
    /// (node, kind, number + 1) by hash.
    recent: Vec<(u32, u8, u32)>,
    /// The highest tick so far.
    newest: u64,
    /// A record has a lower tick than one before it.
    goes_back: bool,
}

impl Numbering {
    fn start(&mut self, run: &mut Run) {
        run.items.clear();
        run.origins.clear();
        self.recent.clear();
        self.recent.resize(RECENT, (0, 0, 0));
        (self.newest, self.goes_back) = (0, false);
    }

    #[inline]
    fn take(&mut self, record: Record, run: &mut Run) {
        let Record { tick, address, size, node, .. } = record;
        let kind = record.kind & 63;
        self.goes_back |= tick < self.newest;
        self.newest = self.newest.max(tick);
        let origin = self.number(node, kind, &mut run.origins);
        run.items.push(DecodedRecord { tick, address, size, origin_kind: origin << 6 | u32::from(kind) });
    }

    #[inline]
    fn number(&mut self, node: u32, kind: u8, origins: &mut Vec<(u32, u8)>) -> u32 {
        let slot = (node ^ u32::from(kind) << 24).wrapping_mul(0x9E37_79B1) as usize >> 20;
        let recent = &mut self.recent[slot & (RECENT - 1)];
        if recent.2 == 0 || recent.0 != node || recent.1 != kind {
            origins.push((node, kind));
            *recent = (node, kind, origins.len() as u32);
        }
        recent.2 - 1
    }
}

/// Puts what was stamped before a call and published after it before the events of a signal handler that interrupted the
/// call: the handler's records come first in the run, and another thread, or the handler, may have got the address meanwhile.
/// The second half of a realloc that moved its block stays where its record is. Where the handler got the old address, it
/// becomes a free and an allocation; else the first half has the number of records between both as its size.
fn put_back_interrupted(run: &mut Run, numbering: &mut Numbering) {
    // Records that may be passed in all: no recorder needs as many, and a file may be made to need their square.
    let mut left = run.items.len().saturating_mul(16).max(1 << 20);
    for at in 1..run.items.len() {
        let item = run.items[at];
        if item.tick >= run.items[at - 1].tick {
            continue;
        }
        let Some(end) = stamped_before(run, at) else { continue };
        // Records that come before it in the run and were stamped after it: a handler's, or one of a loss.
        let first = run.items[..at].iter().rposition(|before| before.tick <= item.tick).map_or(0, |before| before + 1);
        let Some(rest) = left.checked_sub(at - first) else { return };
        left = rest;
        if !run.items[first..at].iter().any(|item| Kind::from_u8(item.kind()).is_some_and(Kind::has_address)) {
            continue;
        }
        let len = match end {
            StampedBefore::Records(len) => len,
            StampedBefore::ReallocTo(to) if run.items[first..at].iter().any(|other| takes(other, item.address)) => {
                split_realloc(run, at, to, numbering);
                1
            }
            StampedBefore::ReallocTo(to) => {
                run.items[at].size = u32::try_from(to - first - 1).unwrap_or(u32::MAX);
                1
            }
        };
        run.items[first..at + len].rotate_right(len);
    }
}

/// Whether a record gives out this address.
fn takes(item: &DecodedRecord, address: u64) -> bool {
    let kind = Kind::from_u8(item.kind());
    item.address == address && kind.is_some_and(|kind| kind.is_alloc() || kind.is_realloc_to())
}

/// Makes a free and an allocation of the halves of a realloc.
fn split_realloc(run: &mut Run, from: usize, to: usize, numbering: &mut Numbering) {
    let is_array = Kind::from_u8(run.items[from].kind()) == Some(Kind::ReallocarrayFrom);
    let (node, _) = run.origins[run.items[from].origin()];
    let freed = numbering.number(node, Kind::ReallocFree as u8, &mut run.origins);
    let kind = if is_array { Kind::ReallocarrayNew } else { Kind::ReallocNew };
    let (node, _) = run.origins[run.items[to].origin()];
    let allocated = numbering.number(node, kind as u8, &mut run.origins);
    run.items[to].origin_kind = allocated << 6 | kind as u32;
    run.items[from].origin_kind = freed << 6 | Kind::ReallocFree as u32;
}

/// What was stamped before the call that ended it.
enum StampedBefore {
    /// So many records.
    Records(usize),
    /// The block that a realloc moved; where the second half is.
    ReallocTo(usize),
}

/// What ends something from the record at `at` on; `None`: nothing does, or both its halves belong together.
fn stamped_before(run: &Run, at: usize) -> Option<StampedBefore> {
    let kind = |at: usize| run.items.get(at).and_then(|item| Kind::from_u8(item.kind()));
    match kind(at)? {
        Kind::ReallocFree | Kind::Munmap | Kind::Brk => Some(StampedBefore::Records(1)),
        // The upper half of its size.
        Kind::SizeHigh if matches!(kind(at + 1), Some(Kind::Munmap | Kind::Brk)) => Some(StampedBefore::Records(2)),
        from if from.is_realloc_from() => {
            // Between both halves there may be the record with the upper half of a large size.
            let to = (at + 1..at + 3).find(|&to| kind(to).is_some_and(Kind::is_realloc_to))?;
            (run.items[to].address != run.items[at].address).then_some(StampedBefore::ReallocTo(to))
        }
        _ => None,
    }
}

impl BlockDecoder {
    /// Reads blocks of `file`, which are one thread's in turn, into `run` (cleared first).
    ///
    /// # Errors
    /// When a block is cut off or damaged.
    pub fn decode(&mut self, file: &File, blocks: &[BlockRef], run: &mut Run) -> Result<(), FormatError> {
        self.numbering.start(run);
        for block in blocks {
            self.read(file, block, run)?;
        }
        if self.numbering.goes_back {
            put_back_interrupted(run, &mut self.numbering);
        }
        Ok(())
    }

    fn read(&mut self, file: &File, block: &BlockRef, run: &mut Run) -> Result<(), FormatError> {
        let header = &block.header;
        self.stored.resize(header.stored_len as usize, 0);
        file.read_exact_at(&mut self.stored, block.payload_at).map_err(|_| FormatError::Truncated {
            what: "a block",
            needed: header.stored_len as usize,
            have: 0,
        })?;
        header.open_payload(&self.stored, &mut self.raw, unzstd)?;
        let Self { raw, decoder, numbering, .. } = self;
        run.items.reserve((header.count as usize).min(raw.len()));
        decoder.decode_each(raw, header.count, header.first_tick, |record| numbering.take(record, run))
    }

    /// Numbers records that are columns already.
    pub fn from_columns(&mut self, columns: &RecordColumns, run: &mut Run) {
        self.numbering.start(run);
        (0..columns.len()).filter_map(|at| columns.get(at)).for_each(|record| self.numbering.take(record, run));
        if self.numbering.goes_back {
            put_back_interrupted(run, &mut self.numbering);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run has of these records: kind, tick and address.
    fn run(records: &[(Kind, u64, u64)]) -> Vec<(Kind, u64, u64)> {
        let mut columns = RecordColumns::default();
        for &(kind, tick, address) in records {
            columns.push(Record::new(kind, tick, address, 7, 8));
        }
        let mut run = Run::default();
        BlockDecoder::default().from_columns(&columns, &mut run);
        let seen = |item: &DecodedRecord| {
            assert_eq!(run.origins[item.origin()], (7, item.kind()));
            (Kind::from_u8(item.kind()).unwrap(), item.tick, item.address)
        };
        run.items.iter().map(seen).collect()
    }

    #[test]
    fn a_moved_block_ends_before_the_events_of_a_handler() {
        use Kind::{Free, Malloc, ReallocFree, ReallocFrom, ReallocNew, ReallocTo};
        let interrupted = |address| {
            [
                (Malloc, 1, 0x100),
                (Malloc, 5, address),
                (Free, 6, address),
                (Malloc, 7, 0x200),
                (ReallocFrom, 3, 0x100),
                (ReallocTo, 9, 0x300),
                (Free, 10, 0x300),
            ]
        };
        // The handler got the old address.
        let [first, inner, freed, other, .., last] = interrupted(0x100);
        let (end, new) = ((ReallocFree, 3, 0x100), (ReallocNew, 9, 0x300));
        assert_eq!(run(&interrupted(0x100)), [first, end, inner, freed, other, new, last]);
        // Another thread may have got it.
        let [first, inner, freed, other, from, to, last] = interrupted(0x400);
        assert_eq!(run(&interrupted(0x400)), [first, from, inner, freed, other, to, last]);
        let mut columns = RecordColumns::default();
        for (kind, tick, address) in [(Malloc, 5, 0x400), (ReallocFrom, 3, 0x100), (ReallocTo, 9, 0x300)] {
            columns.push(Record::new(kind, tick, address, 7, 0));
        }
        let mut run_of_columns = Run::default();
        BlockDecoder::default().from_columns(&columns, &mut run_of_columns);
        assert_eq!(run_of_columns.items.iter().map(|item| item.size).collect::<Vec<_>>(), [1, 0, 0]);
        let in_place = [(Malloc, 1, 0x100), (Malloc, 5, 0x400), (ReallocFrom, 3, 0x100), (ReallocTo, 9, 0x100)];
        assert_eq!(run(&in_place), in_place, "the realloc stays one");
        let cut = [(Malloc, 1, 0x100), (Malloc, 5, 0x100), (ReallocFrom, 3, 0x100)];
        assert_eq!(run(&cut), cut, "a half alone stays where it is");
    }

    #[test]
    fn records_that_go_back_for_ever_take_no_square_of_time() {
        let mut columns = RecordColumns::default();
        for tick in (0..1 << 20).rev() {
            columns.push(Record::new(Kind::Munmap, tick, 0x1000, 7, 8));
        }
        let mut run = Run::default();
        BlockDecoder::default().from_columns(&columns, &mut run);
        assert_eq!(run.items.len(), 1 << 20);
    }

    #[test]
    fn what_ends_before_a_handler_runs_comes_before_its_events() {
        use Kind::{Free, Malloc, Mmap, Munmap, ReallocFree, SizeHigh};
        for end in [ReallocFree, Munmap, Kind::Brk] {
            let records = [(Mmap, 4, 0x8000), (Munmap, 6, 0x8000), (end, 2, 0x100), (Malloc, 9, 0x300)];
            let [first, second, third, last] = records;
            assert_eq!(run(&records), [third, first, second, last]);
        }
        // With the upper half of its size before it.
        let large = [(Malloc, 4, 0x300), (SizeHigh, 2, 1), (Munmap, 2, 0x100), (Free, 5, 0x300)];
        let [first, second, third, last] = large;
        assert_eq!(run(&large), [second, third, first, last]);
        let lost = [(Malloc, 1, 0x100), (Kind::Lost, 6, 3), (Kind::ReallocFrom, 4, 0x100), (Kind::ReallocTo, 9, 0x300)];
        assert_eq!(run(&lost), lost, "no event came between");
        // What is published before its call, or stamped after it, has nobody else's event in between.
        let others = [(Malloc, 4, 0x300), (Free, 2, 0x100), (Malloc, 6, 0x500), (Malloc, 5, 0x700)];
        assert_eq!(run(&others), others);
    }
}
