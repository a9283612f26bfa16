//! The loaded objects, as a table that any thread may read without a lock.
//!
//! ```text
//!         update                 update                acknowledge
//! FREE ─────────────▶ LOADED ─────────────▶ GONE ─────────────────▶ FREE
//! ```
//!
//! *Update* runs with the loader's own lock held (inside `dl_iterate_phdr`), so there is one at a time. Whoever
//! stores modules in the recording *acknowledges* those that are gone once it has stored them; until then they
//! keep their place, so that none is missed however short its life was.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::elf::{self, ProgramHeader};

/// Longest path kept; longer ones are cut and say so.
const PATH_BYTES: usize = 1024;
const BUILD_ID_BYTES: usize = 64;
/// Segments kept of an object; none that a linker makes has more.
pub const MAX_SEGMENTS: usize = 12;
const MAX_MODULES: usize = 8192;
/// Unwind information read to tell apart two objects without build id.
const MAX_HASHED_BYTES: u64 = 4 << 20;

/// A mapped segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Segment {
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
pub struct Module {
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
    identity: Identity,
    segments: [Segment; MAX_SEGMENTS],
    segment_count: usize,
    build_id: [u8; BUILD_ID_BYTES],
    build_id_len: usize,
    path: [u8; PATH_BYTES],
    path_len: usize,
}

/// What tells one object from another at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    hash: u64,
    /// Whether the hash covers the object's code, by its build id or by its unwind information.
    certain: bool,
}

impl Identity {
    /// 0 unless the object would be recognised if it came back.
    fn lasting(self) -> u64 {
        if self.certain { self.hash | 1 } else { 0 }
    }
}

impl Module {
    const EMPTY: Module = Module {
        serial: 0,
        start: 0,
        end: 0,
        bias: 0,
        frame_header: 0,
        generation: 0,
        loaded_tick: 0,
        path_was_cut: false,
        identity: Identity { hash: 0, certain: false },
        segments: [Segment { start: 0, bytes: 0, file_address: 0, file_offset: 0, file_bytes: 0, flags: 0 };
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
    pub fn segments(&self) -> &[Segment] {
        self.segments.get(..self.segment_count).unwrap_or(&[])
    }

    /// First to last address.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

const FREE: u32 = 0;
const LOADED: u32 = 1;
const GONE: u32 = 2;

struct Slot {
    state: AtomicU32,
    /// The update that saw it last.
    seen: AtomicU64,
    /// Whether its loading has been handed to [`Modules::drain`]'s reader.
    told: AtomicBool,
    unloaded_tick: AtomicU64,
    module: UnsafeCell<Module>,
}

/// The table of all objects.
pub struct Modules {
    slots: *mut Slot,
    used: AtomicU32,
    updates: AtomicU64,
    serials: AtomicU64,
    lost: AtomicU64,
}

// SAFETY: a slot's module is written while its state is FREE, by the one updater; everything else is atomic.
unsafe impl Send for Modules {}
// SAFETY: as above.
unsafe impl Sync for Modules {}

/// What happened to an object.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// It was loaded.
    Loaded(&'a Module),
    /// The object with this serial was unloaded, at this tick.
    Unloaded {
        /// [`Module::serial`].
        serial: u64,
        /// Clock ticks when it was missed first.
        tick: u64,
    },
}

/// A change that an update found, in the order in which it must take effect.
pub enum Change {
    /// The object's code is not there any more.
    Unloaded {
        /// Where it was.
        range: Range<u64>,
        /// What it was; 0 for what cannot be recognised.
        identity: u64,
    },
    /// New code is there.
    Loaded {
        /// Where it is.
        range: Range<u64>,
        /// What it is.
        identity: u64,
    },
}

impl Modules {
    /// An empty table; `None` when there is no address space for it.
    pub fn create() -> Option<Modules> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let bytes = MAX_MODULES * size_of::<Slot>();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let slots = unsafe { mmap_anonymous(core::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        Some(Modules {
            slots: slots.ok()?.cast(),
            used: AtomicU32::new(0),
            updates: AtomicU64::new(0),
            serials: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    fn slots(&self) -> &[Slot] {
        let used = (self.used.load(Ordering::Acquire) as usize).min(MAX_MODULES);
        // SAFETY: the mapping holds MAX_MODULES zeroed or initialised slots, for ever.
        unsafe { core::slice::from_raw_parts(self.slots, used) }
    }

    /// Compares the table with the loader's list. `change` hears of every change before the table shows it, and
    /// answers a loaded object's generation.
    pub fn update(&self, tick: u64, mut change: impl FnMut(Change) -> u32) {
        let update = self.updates.fetch_add(1, Ordering::Relaxed) + 1;
        // What is loaded already is marked first, so that unloading takes effect before loading.
        each_loaded(&mut |object| {
            if let Some(slot) = self.find(object) {
                slot.seen.store(update, Ordering::Relaxed);
            }
        });
        for slot in self.slots() {
            if slot.state.load(Ordering::Acquire) == LOADED && slot.seen.load(Ordering::Relaxed) != update {
                // SAFETY: modules do not change while their slot is not FREE.
                let module = unsafe { &*slot.module.get() };
                change(Change::Unloaded { range: module.range(), identity: module.identity.lasting() });
                slot.unloaded_tick.store(tick.max(1), Ordering::Relaxed);
                slot.state.store(GONE, Ordering::Release);
            }
        }
        each_loaded(&mut |object| {
            if self.find(object).is_some() {
                return;
            }
            let Some(slot) = self.free_slot() else {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            };
            // SAFETY: the slot is FREE, and updates come one at a time.
            let module = unsafe { &mut *slot.module.get() };
            *module = Module::EMPTY;
            object.describe(module);
            module.serial = self.serials.fetch_add(1, Ordering::Relaxed) + 1;
            module.loaded_tick = tick;
            module.generation = change(Change::Loaded { range: module.range(), identity: module.identity.lasting() });
            slot.seen.store(update, Ordering::Relaxed);
            slot.told.store(false, Ordering::Relaxed);
            slot.unloaded_tick.store(0, Ordering::Relaxed);
            slot.state.store(LOADED, Ordering::Release);
        });
    }

    fn find(&self, object: &LoadedObject) -> Option<&Slot> {
        let range = object.range();
        self.slots().iter().find(|slot| {
            if slot.state.load(Ordering::Acquire) != LOADED {
                return false;
            }
            // SAFETY: modules do not change while their slot is not FREE, and only the updater frees LOADED ones.
            let module = unsafe { &*slot.module.get() };
            module.range() == range && module.bias == object.bias && module.identity == object.identity()
        })
    }

    fn free_slot(&self) -> Option<&Slot> {
        let free = |slot: &&Slot| slot.state.load(Ordering::Acquire) == FREE;
        if let Some(slot) = self.slots().iter().find(free) {
            return Some(slot);
        }
        let used = self.used.load(Ordering::Relaxed);
        if used as usize >= MAX_MODULES {
            return None;
        }
        self.used.store(used + 1, Ordering::Release);
        self.slots().last()
    }

    /// Hands everything that happened since the last time to `sink`; false means "again next time". Only one
    /// thread may call this: the one that stores the recording.
    pub fn drain(&self, mut sink: impl FnMut(Event<'_>) -> bool) {
        for slot in self.slots() {
            let state = slot.state.load(Ordering::Acquire);
            if state == FREE {
                continue;
            }
            // SAFETY: modules do not change while their slot is not FREE, and only this thread frees slots.
            let module = unsafe { &*slot.module.get() };
            if !slot.told.load(Ordering::Relaxed) {
                if !sink(Event::Loaded(module)) {
                    return;
                }
                slot.told.store(true, Ordering::Relaxed);
            }
            if state == GONE {
                let tick = slot.unloaded_tick.load(Ordering::Relaxed);
                if !sink(Event::Unloaded { serial: module.serial, tick }) {
                    return;
                }
                slot.state.store(FREE, Ordering::Release);
            }
        }
    }

    /// Makes the next [`drain`](Self::drain) begin with all that is loaded: for a new recording.
    pub fn tell_again(&self) {
        for slot in self.slots() {
            slot.told.store(false, Ordering::Relaxed);
        }
    }

    /// Objects that found the table full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The loaded object around `pc`.
    pub fn around(&self, pc: u64) -> Option<&Module> {
        self.slots()
            .iter()
            .filter(|slot| slot.state.load(Ordering::Acquire) == LOADED)
            // SAFETY: as in `drain`; a slot freed and filled again meanwhile belongs to an object that is being
            // unloaded, where no caller of ours can be.
            .map(|slot| unsafe { &*slot.module.get() })
            .find(|module| module.range().contains(&pc))
    }
}

/// An object as `dl_iterate_phdr` shows it.
struct LoadedObject {
    bias: u64,
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

    fn range(&self) -> Range<u64> {
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
    fn identity(&self) -> Identity {
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
        // Where nothing names the file's contents, the code is told by its unwind information.
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

    fn describe(&self, module: &mut Module) {
        let range = self.range();
        (module.start, module.end, module.bias) = (range.start, range.end, self.bias);
        module.identity = self.identity();
        let frames = self.headers().iter().find(|header| header.kind == elf::FRAMES);
        module.frame_header = frames.map_or(0, |header| self.bias.wrapping_add(header.address));
        for (segment, header) in module.segments.iter_mut().zip(self.loads()) {
            *segment = Segment {
                start: self.bias.wrapping_add(header.address),
                bytes: header.memory_bytes,
                file_address: header.address,
                file_offset: header.offset,
                file_bytes: header.file_bytes,
                flags: header.flags,
            };
            module.segment_count += 1;
        }
        module.path_was_cut = copy(self.name(), &mut module.path, &mut module.path_len);
        copy(self.build_id().unwrap_or(&[]), &mut module.build_id, &mut module.build_id_len);
    }
}

/// Copies as much as fits; answers whether that was not all.
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
fn each_loaded(each: &mut dyn FnMut(&LoadedObject)) {
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
