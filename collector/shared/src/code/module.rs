//! One loaded object: the data that is kept of it, and how it is read from the loader.

use core::cell::Cell;
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;

use super::elf::{self, ProgramHeader};

/// Bytes of a path that are kept; a longer path is truncated and flagged.
const PATH_BYTES: usize = 1024;
const BUILD_ID_BYTES: usize = 64;
/// Segments kept of an object; none that a linker makes has more.
pub const MAX_SEGMENTS: usize = 32;
/// Bytes of unwind information that are hashed to distinguish two objects without a build id.
const MAX_HASHED_BYTES: u64 = 4 << 20;

/// A mapped segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LoadedSegment {
    /// First address in the process.
    pub start: u64,
    /// Bytes in memory.
    pub bytes: u64,
    /// `p_vaddr`.
    pub file_address: u64,
    /// `p_offset`.
    pub file_offset: u64,
    /// `p_filesz`.
    pub file_bytes: u64,
    /// `p_flags`: 1 execute, 2 write, 4 read.
    pub flags: u32,
}

/// A loaded object.
#[derive(Clone, Copy, Debug)]
pub struct LoadedModule {
    /// Counts loaded objects from 1; never used twice.
    pub serial: u64,
    /// Addresses from the first segment's beginning to the last one's end.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// Run-time address minus address in the file.
    pub bias: u64,
    /// Address of `.eh_frame_hdr`; 0 if there is none.
    pub frame_header: u64,
    /// Generation of call-tree nodes whose pc lies in this object.
    pub generation: u32,
    /// Clock ticks when it was seen first.
    pub loaded_tick: u64,
    /// Whether the path was too long to be kept whole.
    pub path_was_cut: bool,
    pub(super) identity: Identity,
    segments: [LoadedSegment; MAX_SEGMENTS],
    segment_count: usize,
    build_id: [u8; BUILD_ID_BYTES],
    build_id_len: usize,
    path: [u8; PATH_BYTES],
    path_len: usize,
}

/// Identity of an object, to distinguish it from others at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    hash: u64,
    /// Whether the hash covers the object's code, by its build id or by its unwind information.
    certain: bool,
}

impl Identity {
    /// The hash; 0 for an object that could not be recognised if it were loaded again.
    pub(super) fn lasting(self) -> u64 {
        if self.certain { self.hash | 1 } else { 0 }
    }
}

#[cfg(loom)]
impl LoadedModule {
    /// An object of one segment, whose numbers all follow from where it begins.
    pub fn of_model(start: u64) -> LoadedModule {
        let mut module = LoadedModule::EMPTY;
        (module.start, module.end, module.bias) = (start, start + 0x1000, start);
        (module.serial, module.frame_header) = (start >> 12, start + 0x10);
        module.push(LoadedSegment { start, bytes: 0xf00, file_bytes: 0x800, flags: 4, ..LoadedSegment::default() });
        module
    }
}

impl LoadedModule {
    /// No object yet.
    pub(super) const EMPTY: LoadedModule = LoadedModule {
        serial: 0,
        start: 0,
        end: 0,
        bias: 0,
        frame_header: 0,
        generation: 0,
        loaded_tick: 0,
        path_was_cut: false,
        identity: Identity { hash: 0, certain: false },
        segments: [LoadedSegment { start: 0, bytes: 0, file_address: 0, file_offset: 0, file_bytes: 0, flags: 0 };
            MAX_SEGMENTS],
        segment_count: 0,
        build_id: [0; BUILD_ID_BYTES],
        build_id_len: 0,
        path: [0; PATH_BYTES],
        path_len: 0,
    };

    /// Path as the loader knows it: empty for the executable.
    pub fn path(&self) -> &[u8] {
        self.path.get(..self.path_len).unwrap_or(&[])
    }

    /// GNU build id; empty if there is none.
    pub fn build_id(&self) -> &[u8] {
        self.build_id.get(..self.build_id_len).unwrap_or(&[])
    }

    /// Loaded segments, in the order of their addresses.
    pub fn segments(&self) -> &[LoadedSegment] {
        self.segments.get(..self.segment_count).unwrap_or(&[])
    }

    /// Adds a segment, as long as there is room.
    pub(super) fn push(&mut self, segment: LoadedSegment) {
        if let Some(place) = self.segments.get_mut(self.segment_count) {
            *place = segment;
            self.segment_count += 1;
        }
    }

    /// First to last address.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// An object as `dl_iterate_phdr` shows it.
pub(super) struct LoadedObject {
    pub(super) bias: u64,
    name: *const core::ffi::c_char,
    headers: *const ProgramHeader,
    header_count: usize,
    identity: Cell<Option<Identity>>,
}

impl LoadedObject {
    fn headers(&self) -> &[ProgramHeader] {
        // SAFETY: the loader keeps the headers of a loaded object mapped, and its lock is held.
        unsafe { core::slice::from_raw_parts(self.headers, self.header_count) }
    }

    fn name(&self) -> &[u8] {
        if self.name.is_null() {
            return &[];
        }
        // SAFETY: the loader's name is terminated, and its lock is held.
        unsafe { CStr::from_ptr(self.name) }.to_bytes()
    }

    fn loads(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.headers().iter().filter(|header| header.kind == elf::LOAD)
    }

    pub(super) fn range(&self) -> Range<u64> {
        let start = self.loads().map(|header| header.address).min().unwrap_or(0) & !0xfff;
        let end = self.loads().map(|header| header.address + header.memory_bytes).max().unwrap_or(0);
        self.bias.wrapping_add(start)..self.bias.wrapping_add((end + 0xfff) & !0xfff)
    }

    /// Readable memory of the part that `header` describes, if some segment holds it.
    fn part(&self, header: &ProgramHeader) -> Option<&[u8]> {
        let end = header.address.checked_add(header.memory_bytes)?;
        self.loads().find(|load| {
            load.flags & elf::READABLE != 0
                && load.address <= header.address
                && end <= load.address.saturating_add(load.file_bytes)
        })?;
        let start = self.bias.wrapping_add(header.address) as *const u8;
        // SAFETY: the range lies in a readable segment of a loaded object.
        Some(unsafe { core::slice::from_raw_parts(start, header.memory_bytes as usize) })
    }

    fn build_id(&self) -> Option<&[u8]> {
        let notes = self.headers().iter().filter(|header| header.kind == elf::NOTE);
        notes.filter_map(|header| self.part(header)).find_map(elf::build_id)
    }

    /// Comparable for objects at the same address.
    pub(super) fn identity(&self) -> Identity {
        if let Some(identity) = self.identity.get() {
            return identity;
        }
        let mut hash = Hash::new();
        hash.add(self.name());
        for header in self.headers() {
            hash.add(&header.address.to_le_bytes());
            hash.add(&header.memory_bytes.to_le_bytes());
            hash.add(&header.offset.to_le_bytes());
        }
        // Where nothing names the file's contents, its unwind information identifies the code.
        let contents = self.build_id().or_else(|| self.frames());
        hash.add(contents.unwrap_or(&[]));
        let identity = Identity { hash: hash.0, certain: contents.is_some() };
        self.identity.set(Some(identity));
        identity
    }

    /// `.eh_frame_hdr` and what follows it in its segment: first of all `.eh_frame`.
    fn frames(&self) -> Option<&[u8]> {
        let mut frames = *self.headers().iter().find(|header| header.kind == elf::FRAMES)?;
        let end = self
            .loads()
            .map(|load| (load.address, load.address.saturating_add(load.file_bytes)))
            .find(|(start, end)| (*start..*end).contains(&frames.address))?
            .1;
        frames.memory_bytes = (end - frames.address).min(MAX_HASHED_BYTES);
        self.part(&frames)
    }

    pub(super) fn describe(&self, module: &mut LoadedModule) {
        let range = self.range();
        (module.start, module.end, module.bias) = (range.start, range.end, self.bias);
        module.identity = self.identity();
        let frames = self.headers().iter().find(|header| header.kind == elf::FRAMES);
        module.frame_header = frames.map_or(0, |header| self.bias.wrapping_add(header.address));
        for header in self.loads() {
            module.push(LoadedSegment {
                start: self.bias.wrapping_add(header.address),
                bytes: header.memory_bytes,
                file_address: header.address,
                file_offset: header.offset,
                file_bytes: header.file_bytes,
                flags: header.flags,
            });
        }
        module.path_was_cut = copy(self.name(), &mut module.path, &mut module.path_len);
        copy(self.build_id().unwrap_or(&[]), &mut module.build_id, &mut module.build_id_len);
    }
}

/// Copies as much as fits; returns whether something did not fit.
fn copy(from: &[u8], to: &mut [u8], len: &mut usize) -> bool {
    *len = from.len().min(to.len());
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
    from.len() > to.len()
}

/// FNV-1a, eight bytes at a time.
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            copy(chunk, &mut word, &mut 0);
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
            self.0 ^= self.0 >> 29;
        }
    }
}

/// Calls `each` for every loaded object, under the loader's lock.
pub(super) fn each_loaded(each: &mut dyn FnMut(&LoadedObject)) {
    unsafe extern "C" fn one(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid info.
        let info = unsafe { &*info };
        let object = LoadedObject {
            bias: info.dlpi_addr,
            name: info.dlpi_name,
            headers: info.dlpi_phdr.cast(),
            header_count: usize::from(info.dlpi_phnum),
            identity: Cell::new(None),
        };
        if !object.headers.is_null() && object.loads().next().is_some() {
            // SAFETY: `data` is the reference below.
            unsafe { (*data.cast::<&mut dyn FnMut(&LoadedObject)>())(&object) };
        }
        0
    }
    let mut each = each;
    // SAFETY: the callback has the type the loader expects, and `each` lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut each).cast()) };
}
