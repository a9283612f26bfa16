//! Side file `memory-*.dat.live`: memory that the traced process shares with every reader of its recording.
//!
//! It exists while the process runs and after a kill; a clean exit removes it. Everything is at fixed offsets, is
//! allocated up front, and is written by plain stores. Header fields that an older recorder did not know read as zero.
//!
//! ```text
//! 0                         LiveHeader (one page)
//! chunks_offset             chunk_count slots of chunk_bytes each, divided into chunks of one size
//! chunk                     ChunkHeader (64 bytes), then records
//! nodes_offset              nodes_capacity node slots of 16 bytes (slot 0 is the root's and stays zero)
//! ```
//! A reader appends, for every chunk that is not free, the records that the recording does not hold yet: a thread's
//! records are numbered from 0 without gaps, an events block and a chunk both name the number of their first record.

use crate::{FormatError, Result};

/// First eight bytes of a side file.
pub const MAGIC: [u8; 8] = *b"\x89THLIVE\n";
/// Layout version. In version 1 every slot is one chunk.
pub const VERSION: u32 = 2;
/// The smallest chunk; larger ones are a power of two times as large.
pub const CHUNK_STEP_BYTES: usize = 4096;
/// The largest slot that readers take, in bytes; recorders make smaller ones.
pub const MAX_SLOT_BYTES: usize = 64 << 20;
/// Bytes of the header page.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of a chunk's own header.
pub const CHUNK_HEADER_BYTES: usize = 64;
/// Bytes of a node slot.
pub const NODE_SLOT_BYTES: usize = 16;

/// Offsets of the header's fields. The header is written field by field by the traced process.
pub mod offset {
    /// `[u8; 8]` [`super::MAGIC`], written last: a side file without it holds nothing yet.
    pub const MAGIC: usize = 0;
    /// `u32` [`super::VERSION`].
    pub const VERSION: usize = 8;
    /// `u32` pid of the traced process.
    pub const PID: usize = 12;
    /// `[u8; 16]` the recording's id.
    pub const RECORDING_ID: usize = 16;
    /// `u64` start time of the process in clock ticks since boot (field 22 of `/proc/PID/stat`), to tell a reused pid.
    pub const PROCESS_START: usize = 32;
    /// `u32` bytes of a slot, and of the largest chunk, header included.
    pub const CHUNK_BYTES: usize = 40;
    /// `u32` number of slots; grows.
    pub const CHUNK_COUNT: usize = 44;
    /// `u64` file offset of the first slot.
    pub const CHUNKS: usize = 48;
    /// `u64` file offset of node slot 0.
    pub const NODES: usize = 56;
    /// `u64` node slots that the file has room for; grows.
    pub const NODES_CAPACITY: usize = 64;
    /// `u32` 1 once the recording was finished in an orderly way (the file is about to be removed).
    pub const FINISHED: usize = 72;
    /// `u64` ticks up to which the `.dat` file is known to be complete.
    pub const WATERMARK: usize = 80;
    /// `u32` 1 while the process holds an exclusive `flock` on the recording, and will as long as it writes: when nobody
    /// holds that lock, the process is gone. 0: locks do not work there, or cannot be relied on now.
    pub const LOCKED: usize = 128;
    /// `u64` inode of the pid namespace in which [`PID`] counts (`/proc/self/ns/pid`); 0 = unknown.
    pub const PID_NAMESPACE: usize = 136;
    /// `u64` device of the recording as the process sees it.
    pub const DEVICE: usize = 144;
    /// `u64` inode of the recording as the process sees it; 0 = unknown.
    pub const INODE: usize = 152;
    /// `[u8; 16]` the kernel's boot id (`/proc/sys/kernel/random/boot_id`); zeros = unknown.
    pub const BOOT_ID: usize = 160;
    /// `u32` [`super::Ending`]: the process ended, and did not wait longer for the disk to take the recording's end.
    pub const ENDING: usize = 256;
    /// `u64` when that was, ticks.
    pub const ENDING_TICK: usize = 264;
    /// `u64` nanoseconds that it had waited.
    pub const ENDING_WAITED: usize = 272;
}

/// Offsets of a chunk header's fields, relative to the chunk.
pub mod chunk_offset {
    /// `u32` see [`super::ChunkState`].
    pub const STATE: usize = 0;
    /// `u32` recording-wide thread id.
    pub const THREAD: usize = 4;
    /// `u64` number of the chunk's first record among its thread's records.
    pub const FIRST_RECORD: usize = 8;
    /// `u32` records at the front that are in the recording already.
    pub const WRITTEN: usize = 16;
    /// `u32` the kernel's thread id.
    pub const OS_THREAD: usize = 20;
    /// `u32` records that the chunk holds, known once it is full. From version 2 on.
    pub const USED: usize = 24;
    /// `u32` bytes of each chunk of the slot, in the slot's first chunk; 0: the slot is one chunk. It changes only while all
    /// chunks of the slot are free. From version 2 on.
    pub const BYTES: usize = 28;
}

/// How a process ended without waiting for the end of its recording: what the recording lacks is in the side file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum Ending {
    /// It has not ended so far.
    #[default]
    None = 0,
    /// By exit.
    Exit = 1,
    /// By exec: the process lives on as another program.
    Exec = 2,
    /// It goes on and is not recorded any more.
    Stopped = 3,
    /// Its recording can take nothing more, not even its end: the disk is full, or the process has limited the size of its
    /// files. It is not recorded any more.
    NoRoom = 4,
}

/// Who owns a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ChunkState {
    /// Nobody: it waits in the pool and holds zeros.
    Free = 0,
    /// A thread is filling it.
    Active = 1,
    /// On its way to the writer, or being written.
    Full = 2,
}

/// The fixed part of a side file, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveHeader {
    /// Pid of the traced process.
    pub pid: u32,
    /// Must equal the recording's.
    pub recording_id: [u8; 16],
    /// Start time of the process, clock ticks since boot.
    pub process_start: u64,
    /// Layout version.
    pub version: u32,
    /// Bytes of a slot.
    pub chunk_bytes: u32,
    /// Number of slots.
    pub chunk_count: u32,
    /// File offset of the first slot.
    pub chunks_offset: u64,
    /// File offset of node slot 0.
    pub nodes_offset: u64,
    /// Node slots that the file has room for.
    pub nodes_capacity: u64,
    /// The recording was finished in an orderly way.
    pub finished: bool,
    /// The process holds the recording's lock as long as it writes.
    pub locked: bool,
    /// Inode of the namespace of [`Self::pid`]; 0 = unknown.
    pub pid_namespace: u64,
    /// Device and inode of the recording as the process sees them; inode 0 = unknown.
    pub recording_file: (u64, u64),
    /// The kernel's boot id; zeros = unknown.
    pub boot_id: [u8; 16],
    /// The process ended without waiting for the recording's end; when, in ticks; and after how many nanoseconds.
    pub ending: (Ending, u64, u64),
}

impl LiveHeader {
    /// Reads the first page of a side file of `file_len` bytes.
    ///
    /// # Errors
    /// When it is no side file, of another version, or its offsets do not fit into `file_len`.
    pub fn decode(page: &[u8], file_len: u64) -> Result<Self> {
        const WHAT: &str = "the side file";
        let Some(page) = page.first_chunk::<HEADER_BYTES>() else {
            return Err(FormatError::Truncated { what: WHAT, needed: HEADER_BYTES, have: page.len() });
        };
        let u32_at = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if page[..8] != MAGIC {
            return Err(FormatError::malformed(WHAT, "wrong magic number"));
        }
        let version = u32_at(offset::VERSION);
        if !(1..=VERSION).contains(&version) {
            return Err(FormatError::malformed(WHAT, format!("unknown version {version}")));
        }
        let mut recording_id = [0; 16];
        recording_id.copy_from_slice(&page[offset::RECORDING_ID..offset::RECORDING_ID + 16]);
        let mut boot_id = [0; 16];
        boot_id.copy_from_slice(&page[offset::BOOT_ID..offset::BOOT_ID + 16]);
        let header = Self {
            pid: u32_at(offset::PID),
            recording_id,
            process_start: u64_at(offset::PROCESS_START),
            version,
            chunk_bytes: u32_at(offset::CHUNK_BYTES),
            chunk_count: u32_at(offset::CHUNK_COUNT),
            chunks_offset: u64_at(offset::CHUNKS),
            nodes_offset: u64_at(offset::NODES),
            nodes_capacity: u64_at(offset::NODES_CAPACITY),
            finished: u32_at(offset::FINISHED) != 0,
            locked: u32_at(offset::LOCKED) == 1,
            pid_namespace: u64_at(offset::PID_NAMESPACE),
            recording_file: (u64_at(offset::DEVICE), u64_at(offset::INODE)),
            boot_id,
            ending: (
                match u32_at(offset::ENDING) {
                    1 => Ending::Exit,
                    2 => Ending::Exec,
                    3 => Ending::Stopped,
                    4 => Ending::NoRoom,
                    _ => Ending::None,
                },
                u64_at(offset::ENDING_TICK),
                u64_at(offset::ENDING_WAITED),
            ),
        };
        let chunks_end = u64::from(header.chunk_bytes)
            .checked_mul(u64::from(header.chunk_count))
            .and_then(|bytes| bytes.checked_add(header.chunks_offset));
        let nodes_end = header
            .nodes_capacity
            .checked_mul(NODE_SLOT_BYTES as u64)
            .and_then(|bytes| bytes.checked_add(header.nodes_offset));
        let fits = |end: Option<u64>| end.is_some_and(|end| end <= file_len);
        let is_slot = (CHUNK_HEADER_BYTES..=MAX_SLOT_BYTES).contains(&(header.chunk_bytes as usize));
        if !is_slot || !fits(chunks_end) || !fits(nodes_end) {
            return Err(FormatError::malformed(WHAT, "its parts do not fit into the file"));
        }
        Ok(header)
    }

    /// Bytes of each chunk of a slot, given the header of its first chunk.
    #[must_use]
    pub fn chunk_bytes_in(&self, head: &[u8]) -> usize {
        let slot = self.chunk_bytes as usize;
        let field = head.get(chunk_offset::BYTES..).and_then(|rest| rest.first_chunk::<4>());
        let bytes = field.map_or(0, |&field| u32::from_le_bytes(field) as usize);
        let divides = bytes.is_multiple_of(CHUNK_STEP_BYTES) && slot.checked_rem(bytes) == Some(0);
        if self.version >= 2 && divides { bytes } else { slot }
    }
}

/// A node slot: two words, the second stored last.
///
/// ```text
/// word 0   pc (48 bits) | generation (15 bits) << 48 | 1 << 63 for an instruction of an interpreted function
/// word 1   parent (32 bits) | 1 << 32          0 = not published
/// ```
///
/// Instructions of interpreted functions have addresses from `1 << 60` on, those of Java's from `1 << 61` on, of which the lower
/// 48 bits are here, and are of no generation: instead of it, Java's have a 1. Earlier recorders did not set the bit: such
/// addresses of theirs cannot be distinguished from others.
#[must_use]
pub const fn node_slot(node: crate::nodes::Node) -> [u64; 2] {
    let of_code = if node.pc >> 60 == INTERPRETED >> 60 {
        1 << 63
    } else if node.pc >> 60 == JAVA >> 60 {
        1 << 63 | 1 << 48
    } else if node.generation < MOST_GENERATIONS {
        (node.generation as u64) << 48
    } else {
        (MOST_GENERATIONS as u64) << 48
    };
    [node.pc & ((1 << 48) - 1) | of_code, node.parent as u64 | 1 << 32]
}

/// First address of the instructions of interpreted functions.
const INTERPRETED: u64 = 1 << 60;
/// First address of the bytecodes of Java's methods.
const JAVA: u64 = 1 << 61;
/// Largest generation of a node slot.
const MOST_GENERATIONS: u32 = (1 << 15) - 1;

/// Takes a node slot apart; `None` where nothing has been published.
#[must_use]
pub const fn node_from_slot(words: [u64; 2]) -> Option<crate::nodes::Node> {
    if words[1] >> 32 != 1 {
        return None;
    }
    if words[0] >> 63 == 1 {
        let first = if words[0] >> 48 & 1 == 0 { INTERPRETED } else { JAVA };
        let pc = first | words[0] & ((1 << 48) - 1);
        return Some(crate::nodes::Node { parent: words[1] as u32, pc, generation: 0 });
    }
    // A pc is sign-extended from 48 bits, as the processor does it.
    let pc = ((words[0] << 16) as i64 >> 16) as u64;
    Some(crate::nodes::Node { parent: words[1] as u32, pc, generation: (words[0] >> 48) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Node;

    #[test]
    fn slots_come_back() {
        for pc in [0x5555_5555_4321, 0xffff_ffff_ff60_0010] {
            let node = Node { parent: 77, pc, generation: 3 };
            assert_eq!(node_from_slot(node_slot(node)), Some(node));
        }
        for first in [1 << 60, 1 << 61] {
            let interpreted = Node { parent: 77, pc: first + 0x7ade, generation: 0 };
            assert_eq!(node_from_slot(node_slot(interpreted)), Some(interpreted));
        }
        let replaced = |generation| Node { parent: 77, pc: 0x5555_5555_4321, generation };
        assert_eq!(node_from_slot(node_slot(replaced(70_000))), Some(replaced(32_767)));
        assert_eq!(node_from_slot([5, 0]), None);
    }

    #[test]
    fn a_slot_is_divided_as_its_first_chunk_says() {
        let mut page = vec![0; HEADER_BYTES];
        page[..8].copy_from_slice(&MAGIC);
        page[offset::CHUNK_BYTES..][..4].copy_from_slice(&65536_u32.to_le_bytes());
        let bytes = |version: u32, said: u32| {
            let mut page = page.clone();
            page[offset::VERSION..][..4].copy_from_slice(&version.to_le_bytes());
            let mut head = [0; CHUNK_HEADER_BYTES];
            head[chunk_offset::BYTES..][..4].copy_from_slice(&said.to_le_bytes());
            LiveHeader::decode(&page, 1 << 20).expect("a header").chunk_bytes_in(&head)
        };
        assert_eq!([4096, 8192, 65536].map(|said| bytes(2, said)), [4096, 8192, 65536]);
        // Values that no recorder writes: the slot is read as one chunk.
        assert_eq!([0, 1, 64, 12288, 131_072, u32::MAX].map(|said| bytes(2, said)), [65536; 6]);
        assert_eq!(bytes(1, 4096), 65536, "the field is of version 2");
        page[offset::VERSION] = 3;
        assert!(LiveHeader::decode(&page, 1 << 20).is_err());
    }

    #[test]
    fn a_slot_larger_than_any_is_refused_even_where_there_is_none() {
        let mut page = vec![0; HEADER_BYTES];
        page[..8].copy_from_slice(&MAGIC);
        page[offset::VERSION] = 2;
        let mut decode = |bytes: usize| {
            page[offset::CHUNK_BYTES..][..4].copy_from_slice(&(bytes as u32).to_le_bytes());
            LiveHeader::decode(&page, 1 << 40)
        };
        assert!(decode(MAX_SLOT_BYTES).is_ok());
        assert!(decode(MAX_SLOT_BYTES + 1).is_err());
        assert!(decode(u32::MAX as usize).is_err());
        assert!(decode(CHUNK_HEADER_BYTES - 1).is_err());
    }

    #[test]
    fn offsets_that_leave_the_file_are_refused() {
        let mut page = vec![0; HEADER_BYTES];
        page[..8].copy_from_slice(&MAGIC);
        page[offset::VERSION] = 1;
        page[offset::CHUNK_BYTES..][..4].copy_from_slice(&65536_u32.to_le_bytes());
        page[offset::CHUNK_COUNT..][..4].copy_from_slice(&8_u32.to_le_bytes());
        page[offset::CHUNKS..][..8].copy_from_slice(&4096_u64.to_le_bytes());
        let needed = 4096 + 8 * 65536;
        assert!(LiveHeader::decode(&page, needed).is_ok());
        assert!(LiveHeader::decode(&page, needed - 1).is_err());
        page[offset::NODES_CAPACITY..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(LiveHeader::decode(&page, needed).is_err());
    }
}
