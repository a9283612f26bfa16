//! HotSpot's code cache: which code is at an address, and how large its frames are.
//!
//! ```text
//! code heap    reserved range of segments; a byte for each says how far back its block begins, 255: free
//! block        header: length, used | code blob
//! code blob    size, where its code begins, from where in it the frame is complete, words of a frame
//! ```
//! Only consistent data is used: the block must be in use, and the blob must end inside of it. HotSpot never unmaps memory
//! of code heaps, so what was committed once stays readable.

use super::super::code::DynamicSymbols;
use super::super::sys::is_readable;
use super::tables::{FieldKind, FieldName, HotSpotField, ImageMemory};

/// Code heaps, at most; HotSpot has one or three.
const MAX_HEAPS: usize = 8;
/// Byte of the segment map where there is no block.
const FREE: u8 = 0xff;
/// Steps to the beginning of a block, at most: each step goes back by up to 254 segments.
const MAX_STEPS: usize = 1 << 12;
/// A larger number of words is taken for garbage.
const MAX_FRAME_WORDS: u32 = 1 << 16;

/// Location of the code cache and its layout, found once. It never changes.
pub struct CodeCache {
    heaps: [CodeHeap; MAX_HEAPS],
    /// From the lowest to the highest address of all heaps.
    pub low: u64,
    /// See `low`.
    pub high: u64,
    /// The bytecode interpreter's code.
    pub interpreter: (u64, u64),
    /// Where Java code returns to native code that has called it.
    call_stub_return: u64,
    layout: BlobLayout,
}

/// One heap; a `low` of 0: none.
#[derive(Clone, Copy, Default)]
struct CodeHeap {
    low: u64,
    /// End of what is reserved.
    end: u64,
    /// Where the end of what is committed is written.
    high_at: u64,
    segment_map: u64,
    /// The same of the segment map.
    map_high_at: u64,
    segment_shift: u32,
}

/// Offsets in blocks and blobs.
#[derive(Clone, Copy, Default)]
struct BlobLayout {
    block_header: u64,
    blob_bytes: u64,
    used: u64,
    /// 0: it has none.
    name: u64,
    size: u64,
    frame_size: u64,
    frame_complete: u64,
    /// `frame_complete` has two bytes.
    is_short: bool,
    code_begin: u64,
    /// `code_begin` is an address; else it is an offset in the blob.
    is_address: bool,
}

/// Layout of a frame of code in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JavaFrame {
    /// Its caller's stack pointer is so many bytes above its own; the return address lies below that, and the caller's
    /// rbp below it.
    Compiled(u32),
    /// rbp leads to the saved rbp and the return address; below it is the caller's stack pointer.
    Interpreted,
    /// rbp leads to the saved rbp and the return address.
    Entry,
    /// Code of a live blob whose frame layout is unknown.
    Other,
}

/// Why there is no code cache.
pub enum NoCache {
    /// The virtual machine is not there yet.
    NotYet,
    /// A table or a structure is not as expected.
    Unknown,
}

/// In the order of [`WANTED`].
const FIELDS: usize = 20;
const WANTED: [FieldName; FIELDS] = [
    FieldName(b"CodeCache", b"_heaps", true),
    FieldName(b"CodeCache", b"_low_bound", true),
    FieldName(b"CodeCache", b"_high_bound", true),
    FieldName(b"StubRoutines", b"_call_stub_return_address", true),
    FieldName(b"AbstractInterpreter", b"_code", true),
    FieldName(b"StubQueue", b"_stub_buffer", false),
    FieldName(b"StubQueue", b"_buffer_limit", false),
    FieldName(b"GrowableArrayBase", b"_len", false),
    FieldName(b"GrowableArray<int>", b"_data", false),
    FieldName(b"CodeHeap", b"_memory", false),
    FieldName(b"CodeHeap", b"_segmap", false),
    FieldName(b"CodeHeap", b"_log2_segment_size", false),
    FieldName(b"VirtualSpace", b"_low_boundary", false),
    FieldName(b"VirtualSpace", b"_high_boundary", false),
    FieldName(b"VirtualSpace", b"_low", false),
    FieldName(b"VirtualSpace", b"_high", false),
    FieldName(b"HeapBlock::Header", b"_used", false),
    FieldName(b"CodeBlob", b"_size", false),
    FieldName(b"CodeBlob", b"_frame_size", false),
    FieldName(b"CodeBlob", b"_frame_complete_offset", false),
];
const KINDS: [FieldKind; FIELDS] = {
    use FieldKind::{Byte, Inside, Int, Word};
    [
        Word, Word, Word, Word, Word, Word, Int, Int, Word, Inside, Inside, Int, Word, Word, Word, Word, Byte, Int,
        Int, // Or `Short`.
        Int,
    ]
};
/// Before JDK 24 the code's address, since then its offset.
const BEGINNINGS: [FieldName; 2] =
    [FieldName(b"CodeBlob", b"_code_begin", false), FieldName(b"CodeBlob", b"_code_offset", false)];

/// The word at `address`, an object of HotSpot's; asks first whether it can be read.
fn word(address: u64) -> Option<u64> {
    let is_there = address >= 4096 && address.is_multiple_of(8) && is_readable(address & !4095);
    // SAFETY: readable, and such objects are never freed.
    is_there.then(|| unsafe { (address as *const u64).read_volatile() })
}

/// The four bytes at `address`, likewise.
fn int(address: u64) -> Option<u32> {
    Some((word(address & !7)? >> ((address & 4) * 8)) as u32)
}

impl CodeCache {
    /// No code cache.
    pub const NONE: CodeCache = CodeCache {
        heaps: [CodeHeap { low: 0, end: 0, high_at: 0, segment_map: 0, map_high_at: 0, segment_shift: 0 }; MAX_HEAPS],
        low: 0,
        high: 0,
        interpreter: (0, 0),
        call_stub_return: 0,
        layout: BlobLayout {
            block_header: 0,
            blob_bytes: 0,
            used: 0,
            name: 0,
            size: 0,
            frame_size: 0,
            frame_complete: 0,
            is_short: false,
            code_begin: 0,
            is_address: false,
        },
    };

    /// The one of the virtual machine whose library this is.
    pub fn find(memory: &ImageMemory, symbols: &DynamicSymbols) -> Result<CodeCache, NoCache> {
        let mut fields = [HotSpotField::default(); FIELDS];
        memory.find_fields(symbols, &WANTED, &mut fields).ok_or(NoCache::NotYet)?;
        let mut beginnings = [HotSpotField::default(); 2];
        memory.find_fields(symbols, &BEGINNINGS, &mut beginnings).ok_or(NoCache::NotYet)?;
        let is_short = fields[FIELDS - 1].kind == FieldKind::Short;
        let agrees = |(field, kind): (&HotSpotField, &FieldKind)| field.kind == *kind;
        if !fields.iter().zip(&KINDS).take(FIELDS - 1).all(agrees)
            || !is_short && fields[FIELDS - 1].kind != FieldKind::Int
        {
            return Err(NoCache::Unknown);
        }
        let [address, offset] = beginnings;
        let (code_begin, is_address) = match (address.kind, offset.kind) {
            (FieldKind::Word, FieldKind::Absent) => (address.place, true),
            (FieldKind::Absent, FieldKind::Int) => (offset.place, false),
            _ => return Err(NoCache::Unknown),
        };
        let [heaps, low, high, call_stub, code, stub_buffer, buffer_limit, len, data, space, map, shift, rest @ ..] =
            fields.map(|field| field.place);
        let [low_boundary, high_boundary, committed_low, committed_high, used, size, frame_size, frame_complete] = rest;
        let mut name = [HotSpotField::default()];
        memory.find_fields(symbols, &[FieldName(b"CodeBlob", b"_name", false)], &mut name).ok_or(NoCache::NotYet)?;
        let name = if name[0].kind == FieldKind::Word { name[0].place } else { 0 };
        let size_of = |name: &[u8]| memory.size_of_type(symbols, name).ok_or(NoCache::Unknown);
        let block_header = size_of(b"HeapBlock")?;
        let blob_bytes = size_of(b"CodeBlob")?;
        let layout = BlobLayout {
            block_header,
            blob_bytes,
            used,
            name,
            size,
            frame_size,
            frame_complete,
            is_short,
            code_begin,
            is_address,
        };
        let sender_sp = memory.constant(symbols, b"frame::interpreter_frame_sender_sp_offset");
        if !layout.is_possible() || sender_sp != Some(-1) {
            return Err(NoCache::Unknown);
        }
        let value = |place: u64| memory.word(place).ok_or(NoCache::Unknown);
        let (low, high, call_stub_return) = (value(low)?, value(high)?, value(call_stub)?);
        let (heaps, code) = (value(heaps)?, value(code)?);
        if low == 0 || high == 0 || call_stub_return == 0 || heaps == 0 || code == 0 {
            return Err(NoCache::NotYet);
        }
        let read = |address: u64| word(address).ok_or(NoCache::Unknown);
        let read_int = |address: u64| int(address).ok_or(NoCache::Unknown);
        let interpreter = read(code + stub_buffer)?;
        let interpreter = (interpreter, interpreter + u64::from(read_int(code + buffer_limit)?));
        let mut cache = CodeCache { low, high, interpreter, call_stub_return, layout, ..CodeCache::NONE };
        let (count, list) = (read_int(heaps + len)? as usize, read(heaps + data)?);
        if count == 0 {
            return Err(NoCache::NotYet);
        }
        let slots = cache.heaps.get_mut(..count).ok_or(NoCache::Unknown)?;
        for (slot, at) in slots.iter_mut().zip((list..).step_by(8)) {
            let heap = read(at)?;
            *slot = CodeHeap {
                low: read(heap + space + low_boundary)?,
                end: read(heap + space + high_boundary)?,
                high_at: heap + space + committed_high,
                segment_map: read(heap + map + low_boundary)?,
                map_high_at: heap + map + committed_high,
                segment_shift: read_int(heap + shift)?,
            };
            let is_possible = low <= slot.low
                && slot.low < slot.end
                && slot.end <= high
                && (5..=16).contains(&slot.segment_shift)
                && read(heap + space + committed_low)? == slot.low
                && read(heap + map + committed_low)? == slot.segment_map
                && (slot.low + 1..=slot.end).contains(&read(slot.high_at)?)
                && read(slot.map_high_at)? > slot.segment_map;
            if !is_possible {
                return Err(NoCache::Unknown);
            }
        }
        // These two blobs always exist: if the layout found does not lead to them, it is wrong.
        if cache.blob_at(call_stub_return).is_none() || cache.blob_at(cache.interpreter.0).is_none() {
            return Err(NoCache::Unknown);
        }
        Ok(cache)
    }

    /// Layout of the frame whose return address is `pc`.
    pub fn frame_at(&self, pc: u64) -> Option<JavaFrame> {
        let inside = pc.wrapping_sub(1);
        if (self.interpreter.0..self.interpreter.1).contains(&inside) {
            return Some(JavaFrame::Interpreted);
        }
        if pc == self.call_stub_return {
            return Some(JavaFrame::Entry);
        }
        let blob = self.blob_at(inside)?;
        let layout = &self.layout;
        // SAFETY: `blob_at` has checked that the blob's members can be read.
        unsafe {
            let int = |offset: u64| ((blob + offset) as *const u32).read_volatile();
            let words = int(layout.frame_size);
            let begin = if layout.is_address {
                ((blob + layout.code_begin) as *const u64).read_volatile()
            } else {
                blob + u64::from(int(layout.code_begin))
            };
            let complete = if layout.is_short {
                i64::from(((blob + layout.frame_complete) as *const i16).read_volatile())
            } else {
                i64::from(int(layout.frame_complete) as i32)
            };
            // Negative for stubs in which HotSpot's own signal handlers must not unwind; calls in them have complete
            // frames.
            let is_complete = inside >= begin.saturating_add_signed(complete.max(0));
            let is_frame = (2..=MAX_FRAME_WORDS).contains(&words) && begin > blob && is_complete;
            Some(if is_frame { JavaFrame::Compiled(words * 8) } else { JavaFrame::Other })
        }
    }

    /// Whether pieces of code have names, so that [`makes_frames`](Self::makes_frames) knows.
    pub fn has_names(&self) -> bool {
        self.layout.name != 0
    }

    /// Whether the code that returns to `pc` replaces a compiled frame by interpreted ones. While it does, those outside of
    /// it have their place and nothing in it. `memory` is that of the virtual machine's library.
    pub fn makes_frames(&self, memory: &ImageMemory, pc: u64) -> bool {
        const MAKERS: [&[u8]; 2] = [b"DeoptimizationBlob", b"UncommonTrapBlob"];
        self.name_at(pc.wrapping_sub(1)).is_some_and(|name| MAKERS.iter().any(|maker| memory.is(name, maker)))
    }

    /// Whether `pc` is in the code that brings frames of virtual threads from the heap back to the stack.
    pub fn brings_frames(&self, memory: &ImageMemory, pc: u64) -> bool {
        self.has_names() && self.name_at(pc).is_some_and(|name| memory.begins(name, b"StubRoutines (continuation"))
    }

    /// Where the name of the live blob around `address` is.
    fn name_at(&self, address: u64) -> Option<u64> {
        let blob = self.blob_at(address)?;
        // SAFETY: `blob_at` has checked that the blob's members can be read.
        Some(unsafe { ((blob + self.layout.name) as *const u64).read_volatile() })
    }

    /// The interpreter's code from `pc` on, a return address in it; empty if it is none.
    pub fn interpreter_code(&self, pc: u64) -> &'static [u8] {
        let (start, end) = self.interpreter;
        if pc <= start || pc >= end {
            return &[];
        }
        // SAFETY: the interpreter's code is there for as long as the virtual machine, and does not change.
        unsafe { core::slice::from_raw_parts(pc as *const u8, (end - pc) as usize) }
    }

    /// The live blob around `address`, of which all members can be read.
    fn blob_at(&self, address: u64) -> Option<u64> {
        let heap = self.heaps.iter().find(|heap| (heap.low..heap.end).contains(&address))?;
        if !heap.is_committed(address)? {
            return None;
        }
        let mut segment = (address - heap.low) >> heap.segment_shift;
        // SAFETY: `find` has read this word of HotSpot's, which it never frees.
        let map_high = unsafe { (heap.map_high_at as *const u64).read_volatile() };
        if heap.segment_map + segment >= map_high {
            return None;
        }
        let mut steps = 0;
        loop {
            // SAFETY: committed, as checked above, and smaller segments are, too.
            let back = unsafe { ((heap.segment_map + segment) as *const u8).read_volatile() };
            if back == 0 {
                break;
            }
            steps += 1;
            segment = segment.checked_sub(u64::from(back))?;
            if back == FREE || steps > MAX_STEPS {
                return None;
            }
        }
        let block = heap.low + (segment << heap.segment_shift);
        let blob = block + self.layout.block_header;
        if !heap.is_committed(blob + self.layout.blob_bytes)? {
            return None;
        }
        // SAFETY: committed up to the end of the blob's members.
        let (used, size) = unsafe {
            (
                ((block + self.layout.used) as *const u8).read_volatile(),
                ((blob + self.layout.size) as *const u32).read_volatile(),
            )
        };
        (used == 1 && address >= blob && address - blob < u64::from(size)).then_some(blob)
    }
}

impl CodeHeap {
    /// Whether `address`, in what is reserved, can be read.
    fn is_committed(&self, address: u64) -> Option<bool> {
        // SAFETY: a word of an object of HotSpot's that `find` has read, and that is never freed.
        let high = unsafe { (self.high_at as *const u64).read_volatile() };
        (high <= self.end).then_some(address < high)
    }
}

impl BlobLayout {
    /// Whether all members lie in their structures, where such members can lie.
    fn is_possible(&self) -> bool {
        let code_bytes = if self.is_address { 8 } else { 4 };
        let complete_bytes = if self.is_short { 2 } else { 4 };
        let members = [
            (self.name, 8),
            (self.size, 4),
            (self.frame_size, 4),
            (self.code_begin, code_bytes),
            (self.frame_complete, complete_bytes),
        ];
        (8..=64).contains(&self.block_header)
            && self.block_header.is_multiple_of(8)
            && self.blob_bytes <= 1024
            && self.used < self.block_header
            && members.iter().all(|&(at, bytes)| at.is_multiple_of(bytes) && at + bytes <= self.blob_bytes)
    }
}
