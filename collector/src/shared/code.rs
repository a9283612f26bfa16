//! Which code is loaded, and since when: the code epoch, the loader's own text, the object around a PC.
//!
//! Unwind rules and verified chains hold while the code at their PCs stays the same. The *epoch* is a number
//! that every thread compares before it trusts what it remembers; it moves when code came or went.

mod elf;

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use elf::Image;

static EPOCH: AtomicU32 = AtomicU32::new(1);
static ADDED: AtomicU64 = AtomicU64::new(0);
static REMOVED: AtomicU64 = AtomicU64::new(0);
static LOADER_START: AtomicU64 = AtomicU64::new(0);
static LOADER_END: AtomicU64 = AtomicU64::new(0);
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);
static READY: AtomicBool = AtomicBool::new(false);

/// A loaded object, as far as unwinding cares.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// First address of the object's mapping.
    pub start: u64,
    /// Address after its last one.
    pub end: u64,
    /// Address of `.eh_frame_hdr`; 0 if the object has none.
    pub frame_header: u64,
    image: Option<Image>,
}

impl Object {
    /// The readable segment of the object that holds `address`.
    pub fn segment(&self, address: u64) -> Option<(u64, u64)> {
        self.image?.segment(address)
    }
}

/// Looks up what must be looked up in a safe place. Call it once when the library starts; later calls return
/// at once.
pub fn init() {
    if READY.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: a constant, terminated name; the default handle needs no object.
    let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(find as usize, Ordering::Release);
    // SAFETY: getauxval reads the process's own auxiliary vector.
    let loader = unsafe { libc::getauxval(libc::AT_BASE) };
    // SAFETY: AT_BASE is zero or where the kernel mapped the loader, headers first.
    if let Some(image) = unsafe { Image::at(loader) } {
        let end = image.headers().iter().filter(|header| header.kind == 1).map(|header| header.address + header.memory_bytes);
        LOADER_END.store(image.bias.wrapping_add(end.max().unwrap_or(0)), Ordering::Relaxed);
        LOADER_START.store(loader, Ordering::Release);
    }
    let (added, removed) = load_counters();
    ADDED.store(added, Ordering::Relaxed);
    REMOVED.store(removed, Ordering::Relaxed);
}

/// The current epoch.
#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Whether `pc` lies in the dynamic loader: when that allocates or frees, objects may be coming or going.
pub fn in_loader(pc: u64) -> bool {
    pc >= LOADER_START.load(Ordering::Acquire) && pc < LOADER_END.load(Ordering::Relaxed)
}

/// Tells that code may have been loaded or unloaded: call it after dlopen, dlclose, `__register_frame` and
/// `__deregister_frame`. Cheap when nothing changed. Loads and unloads inside glibc are noticed without it,
/// by the loader's own calls of malloc and free.
pub fn code_changed() {
    let (added, removed) = load_counters();
    if ADDED.swap(added, Ordering::AcqRel) != added || REMOVED.swap(removed, Ordering::AcqRel) != removed {
        EPOCH.fetch_add(1, Ordering::AcqRel);
    }
}

/// Which of the codes that lived at `pc` lives there now: 0 unless code there was unloaded and its place
/// taken by other code.
pub fn generation_of(_pc: u64) -> u32 {
    0
}

/// The object around `pc`.
pub fn object_at(pc: u64) -> Option<Object> {
    let find = FIND_OBJECT.load(Ordering::Acquire);
    if find == 0 {
        return None;
    }
    // SAFETY: `find` is the address of glibc's function of this type.
    let find = unsafe { core::mem::transmute::<usize, FindObject>(find) };
    let mut found = MaybeUninit::<FoundObject>::uninit();
    // SAFETY: the function takes any address and fills `found` when it returns zero. It takes no lock.
    let found = unsafe {
        if find(pc as *mut c_void, found.as_mut_ptr()) != 0 {
            return None;
        }
        found.assume_init()
    };
    let start = found.map_start as u64;
    Some(Object {
        start,
        end: found.map_end as u64,
        frame_header: found.eh_frame as u64,
        // SAFETY: the loader mapped the first segment there, and the caller's pc keeps it loaded.
        image: unsafe { Image::at(start) },
    })
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut FoundObject) -> c_int;

/// glibc's `struct dl_find_object`.
#[repr(C)]
struct FoundObject {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut c_void,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

/// How many objects the loader has loaded and unloaded so far.
fn load_counters() -> (u64, u64) {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid info, and `data` is the pair below.
        unsafe { *data.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
        1
    }
    let mut counters = (0u64, 0u64);
    // SAFETY: the callback writes to `counters` only, before this returns.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counters).cast()) };
    counters
}
