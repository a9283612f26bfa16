//! The side file's memory: header page, chunks and the mirror of the call tree, in the layout of
//! [`tracehound_format::live`]. Where no file can be had, the same layout in private memory.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tracehound_format::live::{self, Ending, HEADER_BYTES, NODE_SLOT_BYTES, node_slot, offset};
use tracehound_format::nodes::Node;

use super::chunk::SLOT_BYTES;
use super::pool::FIRST_SLOTS;
use super::sys::{self, Errno, FileIdentity};

/// Node slots that are backed from the start.
const FIRST_NODES: u64 = 16 << 10;
/// Node slots that are added at a time.
const MORE_NODES: u64 = 64 << 10;

/// See the module's description. Never unmapped while a thread may use it.
pub struct SideMemory {
    base: *mut u8,
    bytes: usize,
    shared: bool,
    chunks: u32,
    nodes: u64,
    backed_nodes: AtomicU64,
}

// SAFETY: all access goes through atomics.
unsafe impl Send for SideMemory {}
// SAFETY: all access goes through atomics.
unsafe impl Sync for SideMemory {}

/// Facts about the process, for the header.
pub struct Owner {
    /// Process id.
    pub pid: u32,
    /// The recording's id.
    pub recording_id: [u8; 16],
    /// Start time of the process in clock ticks since boot.
    pub process_start: u64,
    /// Inode of its pid namespace; 0 = unknown.
    pub pid_namespace: u64,
    /// The kernel's boot id; zeros = unknown.
    pub boot_id: [u8; 16],
    /// The recording's file, as the process sees it.
    pub recording: Option<FileIdentity>,
}

impl SideMemory {
    /// Sizes the open, empty file `fd` for `chunks` slots of chunks and `nodes` nodes, reserves its first part on disk, maps it
    /// and fills the header in.
    ///
    /// # Errors
    /// When the file system, a limit or the address space refuses.
    pub fn in_file(fd: i32, chunks: u32, nodes: u64, owner: &Owner) -> sys::Result<Self> {
        let (nodes_at, bytes) = layout(chunks, nodes);
        if bytes as u64 > sys::resource_limit(sys::Resource::Fsize) {
            return Err(Errno(libc::EFBIG));
        }
        sys::truncate(fd, bytes as u64)?;
        let first_chunks = HEADER_BYTES as u64 + u64::from(FIRST_SLOTS.min(chunks)) * SLOT_BYTES as u64;
        let first_nodes = FIRST_NODES.min(nodes);
        back(fd, 0, first_chunks)?;
        back(fd, nodes_at as u64, first_nodes * NODE_SLOT_BYTES as u64)?;
        let base = sys::map_shared(fd, bytes)?;
        let memory = Self { base, bytes, shared: true, chunks, nodes, backed_nodes: AtomicU64::new(first_nodes) };
        memory.protect();
        memory.fill_header(owner);
        Ok(memory)
    }

    /// The same layout in private memory: recording works, a kill loses what is not in the file yet.
    ///
    /// # Errors
    /// When there is no address space.
    pub fn in_private_memory(chunks: u32) -> sys::Result<Self> {
        let (_, bytes) = layout(chunks, 0);
        let base = sys::map_memory(bytes)?;
        Ok(Self { base, bytes, shared: false, chunks, nodes: 0, backed_nodes: AtomicU64::new(0) })
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// Nobody may use it any more.
    pub unsafe fn unmap(&self) {
        // SAFETY: a mapping of ours; the caller vouches for the rest.
        unsafe { sys::unmap(self.base, self.bytes) };
    }

    fn fill_header(&self, owner: &Owner) {
        let (nodes_at, _) = layout(self.chunks, self.nodes);
        self.word(offset::VERSION).store(live::VERSION, Ordering::Relaxed);
        self.word(offset::PID).store(owner.pid, Ordering::Relaxed);
        for (at, id) in [(offset::RECORDING_ID, &owner.recording_id), (offset::BOOT_ID, &owner.boot_id)] {
            for (i, piece) in id.chunks_exact(8).enumerate() {
                let mut value = [0; 8];
                value.copy_from_slice(piece);
                self.long(at + i * 8).store(u64::from_le_bytes(value), Ordering::Relaxed);
            }
        }
        self.long(offset::PID_NAMESPACE).store(owner.pid_namespace, Ordering::Relaxed);
        if let Some(FileIdentity { device, inode }) = owner.recording {
            self.long(offset::DEVICE).store(device, Ordering::Relaxed);
            self.long(offset::INODE).store(inode, Ordering::Relaxed);
        }
        self.long(offset::PROCESS_START).store(owner.process_start, Ordering::Relaxed);
        self.word(offset::CHUNK_BYTES).store(SLOT_BYTES as u32, Ordering::Relaxed);
        self.long(offset::CHUNKS).store(HEADER_BYTES as u64, Ordering::Relaxed);
        self.long(offset::NODES).store(nodes_at as u64, Ordering::Relaxed);
        self.long(offset::NODES_CAPACITY).store(self.backed_nodes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.long(offset::MAGIC).store(u64::from_le_bytes(live::MAGIC), Ordering::Release);
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: inside the header page, aligned, mapped for ever.
        unsafe { &*self.base.add(at).cast() }
    }

    fn long(&self, at: usize) -> &AtomicU64 {
        // SAFETY: inside the header page, aligned, mapped for ever.
        unsafe { &*self.base.add(at).cast() }
    }

    /// The header page, where there is a file.
    pub fn header(&self) -> *mut u8 {
        if self.shared { self.base } else { core::ptr::null_mut() }
    }

    /// The first slot of chunks.
    pub fn first_chunk(&self) -> *mut u8 {
        // SAFETY: the chunks begin after the header page, inside the mapping.
        unsafe { self.base.add(HEADER_BYTES) }
    }

    /// Number of slots that the layout has room for.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Whether the memory is a file's.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Bytes of address space.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stores a node, so that a reader finds it after a kill. Nodes beyond what the disk has room for are left out.
    pub fn mirror(&self, id: u32, node: Node) {
        let id = u64::from(id);
        if !self.shared {
            return;
        }
        if id >= self.backed_nodes.load(Ordering::Acquire) && !self.back_nodes(id) {
            return;
        }
        let (nodes_at, _) = layout(self.chunks, self.nodes);
        let at = nodes_at + id as usize * NODE_SLOT_BYTES;
        let [first, second] = node_slot(node);
        self.long(at).store(first, Ordering::Relaxed);
        self.long(at + 8).store(second, Ordering::Release);
    }

    #[cold]
    fn back_nodes(&self, id: u64) -> bool {
        let (nodes_at, _) = layout(self.chunks, self.nodes);
        loop {
            let backed = self.backed_nodes.load(Ordering::Acquire);
            if id < backed {
                return true;
            }
            let more = MORE_NODES.min(self.nodes.saturating_sub(backed));
            if more == 0 {
                return false;
            }
            // SAFETY: the range is part of the mapping and holds zeros or slots; populating changes nothing in it.
            let result = unsafe {
                let from = self.base.add(nodes_at + backed as usize * NODE_SLOT_BYTES);
                sys::populate(from, more as usize * NODE_SLOT_BYTES)
            };
            if result.is_err() {
                return false;
            }
            self.backed_nodes.fetch_max(backed + more, Ordering::AcqRel);
            self.long(offset::NODES_CAPACITY).fetch_max(backed + more, Ordering::AcqRel);
        }
    }

    /// Copies everything to the empty file `fd`, which is to take the old one's place.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn copy_to(&self, fd: i32) -> sys::Result<()> {
        if !self.shared {
            return Ok(());
        }
        let (nodes_at, _) = layout(self.chunks, self.nodes);
        let chunks = self.word(offset::CHUNK_COUNT).load(Ordering::Acquire) as usize;
        let nodes = self.backed_nodes.load(Ordering::Acquire) as usize;
        sys::truncate(fd, self.bytes as u64)?;
        for (from, bytes) in [(0, HEADER_BYTES + chunks * SLOT_BYTES), (nodes_at, nodes * NODE_SLOT_BYTES)] {
            back(fd, from as u64, bytes as u64)?;
            // SAFETY: backed parts of the mapping; all other threads wait at the gate.
            let bytes = unsafe { core::slice::from_raw_parts(self.base.add(from), bytes) };
            sys::write_all_at(fd, bytes, from as u64)?;
        }
        Ok(())
    }

    /// Maps the copy that [`copy_to`](Self::copy_to) has made in place of the old file. Nobody may have written since.
    ///
    /// # Errors
    /// When the kernel refuses; the old memory stays then.
    pub fn move_to(&self, fd: i32) -> sys::Result<()> {
        if !self.shared {
            return Ok(());
        }
        // SAFETY: replaces the old mapping by one of the same length with the same content.
        unsafe { sys::map_shared_over(self.base, fd, self.bytes) }?;
        self.protect();
        Ok(())
    }

    /// Notes in the header that the process goes on to its end, or to another program, without an orderly end of the
    /// recording; or that it does not after all.
    pub fn set_ending(&self, ending: Ending, tick: u64, waited_ns: u64) {
        if self.shared {
            self.long(offset::ENDING_TICK).store(tick, Ordering::Relaxed);
            self.long(offset::ENDING_WAITED).store(waited_ns, Ordering::Relaxed);
            self.word(offset::ENDING).store(ending as u32, Ordering::Release);
        }
    }

    /// Excludes the memory from forked children, which must not write into their parent's chunks, and from core dumps.
    fn protect(&self) {
        // Most of the file is never touched: without the last advice the first access makes the kernel read as much around
        // it as the device's readahead is, which takes longer than all the rest of a start.
        // SAFETY: the mapping is ours.
        unsafe { sys::keep_apart(self.base, self.bytes) };
    }

    /// In a forked child, which does not have this memory: maps private memory in its place. An event that was
    /// interrupted by the handler that forked may still write there. Nothing is mapped where there is no address space.
    pub fn stand_in(&self) {
        if self.shared {
            // SAFETY: nothing is mapped here in a child.
            let _ = unsafe { sys::map_at_free(self.base, self.bytes) };
        }
    }

    /// Notes in the header up to which tick the recording is complete.
    pub fn set_watermark(&self, tick: u64) {
        if self.shared {
            self.long(offset::WATERMARK).store(tick, Ordering::Release);
        }
    }

    /// Notes in the header whether the recording's lock is held as long as the process lives.
    pub fn set_locked(&self, locked: bool) {
        if self.shared {
            self.word(offset::LOCKED).store(u32::from(locked), Ordering::Release);
        }
    }

    /// Notes in the header that the recording was finished in an orderly way; or that it goes on after all.
    pub fn set_finished(&self, finished: bool) {
        if self.shared {
            self.word(offset::FINISHED).store(u32::from(finished), Ordering::Release);
        }
    }
}

/// Where the nodes begin, and the length of all, in bytes.
fn layout(chunks: u32, nodes: u64) -> (usize, usize) {
    let nodes_at = HEADER_BYTES + chunks as usize * SLOT_BYTES;
    (nodes_at, (nodes_at + nodes as usize * NODE_SLOT_BYTES).next_multiple_of(HEADER_BYTES))
}

/// Reserves a range on disk; where the file system cannot, writes zeros there.
pub fn back(fd: i32, from: u64, bytes: u64) -> sys::Result<()> {
    match sys::allocate(fd, false, from, bytes) {
        Err(Errno(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)) => {
            let zeros = vec![0_u8; 1 << 16];
            let mut at = from;
            while at < from + bytes {
                let len = (from + bytes - at).min(zeros.len() as u64);
                sys::write_all_at(fd, zeros.get(..len as usize).unwrap_or_default(), at)?;
                at += len;
            }
            Ok(())
        }
        other => other,
    }
}
