//! From a recording to the file that `heaptrace-replay` plays: every allocation and free in their order, with the thread that
//! made it.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use tracehound_format::record::Kind;
use tracehound_index::{Cancel, Trace};
use tracehound_query::replay_basis::ReplayBasis;

use super::other_memory::OtherMemory;

/// Places of blocks are used again after so many events: none of a chunk sees another block in its place.
const REUSED_AFTER: u64 = 1 << 16;
/// From this size on the program may have left most of a `calloc`ed block alone.
const ZEROED_BYTES: u64 = 64 << 10;

const MALLOC: u32 = 1;
const CALLOC: u32 = 2;
const ALIGNED: u32 = 3;
const REALLOC: u32 = 4;
const FREE: u32 = 5;
const THREAD_END: u32 = 6;
const OTHER_MEMORY: u32 = 7;
const CXX_RESERVE: u32 = 8;

/// What a call does; the layout is that of `replay/src/event.rs`.
#[derive(Debug, Clone, Copy, Default)]
struct StreamedCall {
    t_ns: u64,
    size: u64,
    slot: u32,
    old: u32,
    thread: u32,
    touched: u32,
    op: u32,
    alignment: u32,
}

/// Bytes of an entry.
const ENTRY: u64 = 40;

impl StreamedCall {
    fn of(other: OtherMemory) -> Self {
        Self { t_ns: other.t_ns, size: other.bytes, op: OTHER_MEMORY, ..Self::default() }
    }

    fn put(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut bytes = [0_u8; ENTRY as usize];
        bytes[..8].copy_from_slice(&self.t_ns.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.size.to_ne_bytes());
        let words = [self.slot, self.old, self.thread, self.touched, self.op, self.alignment];
        for (place, word) in bytes[16..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        out.write_all(&bytes)
    }
}

/// Places for live blocks.
#[derive(Default)]
struct Slots {
    of_row: HashMap<u64, u32>,
    /// Free again, since when.
    free: VecDeque<(u64, u32)>,
    count: u32,
}

impl Slots {
    fn take(&mut self, row: u64, event: u64) -> u32 {
        let reused = match self.free.front() {
            Some(&(since, slot)) if event >= since + REUSED_AFTER => {
                self.free.pop_front();
                Some(slot)
            }
            _ => None,
        };
        let slot = reused.unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        });
        self.of_row.insert(row, slot);
        slot
    }

    fn give(&mut self, row: u64, event: u64) -> Option<u32> {
        let slot = self.of_row.remove(&row)?;
        self.free.push_back((event, slot));
        Some(slot)
    }
}

/// What was written.
#[derive(Debug, Default)]
pub struct WrittenStream {
    /// Calls.
    pub calls: u64,
    /// Entries up to the highest memory.
    pub mark: u64,
    /// Positions of the entries of memory that is not the allocator's.
    pub others: Vec<u64>,
}

/// Writes the calls, and how much memory was not the allocator's.
///
/// # Errors
/// When the file cannot be written, or cancelled.
pub fn write(
    trace: &Trace,
    basis: &ReplayBasis,
    others: &[OtherMemory],
    cancel: &Cancel,
    out: &mut dyn Write,
) -> anyhow::Result<WrittenStream> {
    let (touched, moment_ns) = (&basis.touched, basis.peak_ns);
    let mut others = others.iter().copied().peekable();
    let mut places = Vec::new();
    let mut slots = Slots::default();
    // A realloc is a free and an allocation: the old block of each thread that is between them.
    let mut halves: HashMap<u32, u64> = HashMap::new();
    let mut ends: Vec<(u64, u32)> =
        trace.threads().iter().zip(0..).filter_map(|(thread, at)| Some((thread.ended_ns?, at))).collect();
    ends.sort_unstable_by(|a, b| b.cmp(a));
    // The main thread is the player's own.
    let main = trace.threads().iter().position(|thread| thread.id == 1).unwrap_or(0) as u32;
    let number = |thread: u32| match thread {
        t if t == main => 0,
        t if t < main => t + 1,
        t => t,
    };
    let columns = trace.columns();
    let (mut written, mut frees, mut before) = (0_u64, 0_u64, 0_u64);
    for (at, step) in trace.steps(trace.everything()).enumerate() {
        if at.is_multiple_of(1 << 14) {
            cancel.check()?;
        }
        while let Some(other) = others.next_if(|other| other.t_ns <= step.t_ns) {
            StreamedCall::of(other).put(out)?;
            places.push(written);
            written += 1;
            if other.t_ns <= moment_ns {
                before = written;
            }
        }
        if step.t_ns <= moment_ns {
            before = written + 1;
        }
        while let Some((_, thread)) = ends.pop_if(|end| end.0 < step.t_ns) {
            if number(thread) != 0 {
                let end =
                    StreamedCall { t_ns: step.t_ns, thread: number(thread), op: THREAD_END, ..StreamedCall::default() };
                end.put(out)?;
                written += 1;
            }
        }
        if step.allocated {
            let origin = trace.origin_of_alloc(step.row);
            let kind = Kind::from_u8(origin.kind);
            if kind == Some(Kind::PoolAlloc) {
                continue;
            }
            let half = halves.remove(&origin.thread);
            let is_realloc = kind.is_some_and(Kind::is_realloc_to);
            let old = half.filter(|_| is_realloc).and_then(|row| slots.give(row, written));
            if let (Some(row), false) = (half, is_realloc)
                && let Some(slot) = slots.give(row, written)
            {
                let free = StreamedCall {
                    t_ns: step.t_ns,
                    slot,
                    thread: number(origin.thread),
                    op: FREE,
                    ..StreamedCall::default()
                };
                free.put(out)?;
                written += 1;
            }
            let (size, address) = (trace.size_of(step.row), trace.address_of(step.row));
            let op = match kind {
                _ if old.is_some() => REALLOC,
                _ if origin.alignment != 0 => ALIGNED,
                Some(Kind::Calloc) => CALLOC,
                Some(Kind::PosixMemalign | Kind::AlignedAlloc | Kind::Memalign | Kind::Valloc | Kind::Pvalloc) => {
                    ALIGNED
                }
                _ if basis.library_starts.contains(&origin.site) => CXX_RESERVE,
                _ => MALLOC,
            };
            let call = StreamedCall {
                t_ns: step.t_ns,
                size,
                slot: slots.take(step.row, written),
                old: old.unwrap_or(0),
                thread: number(origin.thread),
                touched: pages_touched(op, size, touched.get(&origin.site).copied()),
                op,
                // Older recordings do not say what was asked for: the address tells what was given.
                alignment: match origin.alignment {
                    0 => address.trailing_zeros().clamp(4, 12),
                    power => u32::from(power),
                },
            };
            call.put(out)?;
            written += 1;
        } else {
            let origin = columns.free_origin.get(frees as usize).map(|&id| trace.origin(id));
            frees += 1;
            let Some(origin) = origin else { continue };
            if !slots.of_row.contains_key(&step.row) {
                continue;
            }
            let kind = Kind::from_u8(origin.kind);
            if matches!(kind, Some(Kind::ReallocFrom | Kind::ReallocarrayFrom)) {
                halves.insert(origin.thread, step.row);
                continue;
            }
            if let Some(slot) = slots.give(step.row, written) {
                let free = StreamedCall {
                    t_ns: step.t_ns,
                    slot,
                    thread: number(origin.thread),
                    op: FREE,
                    ..StreamedCall::default()
                };
                free.put(out)?;
                written += 1;
            }
        }
    }
    for other in others {
        StreamedCall::of(other).put(out)?;
        places.push(written);
        written += 1;
        if other.t_ns <= moment_ns {
            before = written;
        }
    }
    out.flush()?;
    Ok(WrittenStream { calls: written - places.len() as u64, mark: before.min(written), others: places })
}

/// Writes the memory that is not the allocator's anew, in its places.
///
/// # Errors
/// When the file cannot be written.
pub fn rewrite(file: &File, stream: &WrittenStream, others: &[OtherMemory]) -> io::Result<()> {
    for (place, other) in stream.others.iter().zip(others) {
        let mut entry = Vec::new();
        StreamedCall::of(*other).put(&mut entry)?;
        file.write_all_at(&entry, place * ENTRY)?;
    }
    Ok(())
}

/// Pages of a block that the program wrote to, as far as looks tell; else all of them, but for large zeroed blocks.
fn pages_touched(op: u32, size: u64, share: Option<f64>) -> u32 {
    let pages = size.div_ceil(4096);
    let touched = match share {
        Some(share) if pages >= 2 => (pages as f64 * share).ceil() as u64,
        None if op == CALLOC && size > ZEROED_BYTES => 1,
        _ => pages,
    };
    u32::try_from(touched).unwrap_or(u32::MAX)
}
