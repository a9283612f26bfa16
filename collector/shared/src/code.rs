//! Which code is loaded, and since when: the code epoch, the loaded objects, the generations of addresses.
//!
//! Unwind rules and verified chains hold while the code at their PCs stays the same. The *epoch* is a number that every
//! thread compares before it uses its caches; it changes when code is loaded or unloaded, and names the range. A
//! *generation* distinguishes the code that was mapped at one address at different times.
//!
//! Changes of the loaded objects are taken in inside `dl_iterate_phdr`, that is with the loader's own, recursive
//! lock held: one thread at a time does it, and a thread that finds the loader's counters unmoved knows that they are complete.
//!
//! **The thread that writes the recording must not call `dl_iterate_phdr` itself.** A thread that waits for the writer
//! in the middle of dlclose holds the loader's lock: that would be a deadlock. [`modules`] has the same information
//! without a lock.

mod dynamic_symbols;
#[doc(hidden)]
pub mod elf;
mod generations;
mod module;
mod modules;
mod regions;
mod shape;

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;
use core::ops::Range;

pub use dynamic_symbols::{DynamicSymbols, LoadedSymbol};
use elf::Image;
pub use generations::Generations;
pub use module::{LoadedModule, LoadedSegment, MAX_SEGMENTS};
use modules::ModuleChange;
pub use modules::{LoadedModules, ModuleEvent};
pub use regions::Regions;
#[cfg(loom)]
pub use shape::ModuleShape;
pub use shape::Object;

use crate::{libc_version, loader};

static EPOCH: AtomicU32 = AtomicU32::new(1);
static ADDED: AtomicU64 = AtomicU64::new(0);
static REMOVED: AtomicU64 = AtomicU64::new(0);
static LOADER_START: AtomicU64 = AtomicU64::new(0);
static LOADER_END: AtomicU64 = AtomicU64::new(0);
/// The loader's first instruction; 0: not known.
static LOADER_ENTRY: AtomicU64 = AtomicU64::new(0);
/// Offset of `e_entry` in the header of an ELF file.
const ELF_ENTRY: u64 = 24;
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);
static READY: AtomicBool = AtomicBool::new(false);
/// The thread that is updating, by its control block; 0: none.
static UPDATER: AtomicU64 = AtomicU64::new(0);
/// Held for the few stores that move the epoch.
static ANNOUNCING: AtomicBool = AtomicBool::new(false);
static MODULES: ModulesPlace = ModulesPlace(UnsafeCell::new(None), AtomicBool::new(false));
static GENERATIONS: Generations = Generations::new();
static CHANGES: Changes = Changes([const { ChangedRange::nothing() }; KEPT_CHANGES]);

/// The loaded objects, set once. Not `OnceLock`: it waits by the function `syscall`, which is a hook of ours.
struct ModulesPlace(UnsafeCell<Option<LoadedModules>>, AtomicBool);

// SAFETY: the value is written once, before the flag is set, and only read behind it.
unsafe impl Sync for ModulesPlace {}

impl ModulesPlace {
    fn get(&self) -> Option<&LoadedModules> {
        if !self.1.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the flag is set behind the only write.
        unsafe { (*self.0.get()).as_ref() }
    }

    /// For the one caller that [`init`] lets pass.
    fn set(&self, modules: LoadedModules) {
        // SAFETY: nobody reads before the flag is set, and there is no other writer.
        unsafe { *self.0.get() = Some(modules) };
        self.1.store(true, Ordering::Release);
    }
}

/// Changes that are kept for threads whose caches are of an older epoch.
const KEPT_CHANGES: usize = 1024;

struct ChangedRange {
    start: AtomicU64,
    end: AtomicU64,
}

impl ChangedRange {
    const fn nothing() -> ChangedRange {
        ChangedRange { start: AtomicU64::new(0), end: AtomicU64::new(0) }
    }
}

/// The ranges of the latest epochs, at `epoch % KEPT_CHANGES`.
struct Changes([ChangedRange; KEPT_CHANGES]);

/// Looks up the functions that cannot be looked up inside an event, and lists the loaded objects; `tick` is the time now.
/// Call it once when the library starts; later calls return at once.
pub fn init(tick: u64) {
    if READY.swap(true, Ordering::AcqRel) {
        return;
    }
    const FIND: &CStr = c"_dl_find_object";
    if !libc_version::lacks(FIND) {
        // SAFETY: a constant, terminated name; the default handle needs no object.
        let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, FIND.as_ptr()) };
        FIND_OBJECT.store(find as usize, Ordering::Release);
    }
    // musl's loader is the C library, and what it takes for itself does not go through `malloc`: nothing is noticed by that.
    let loader = loader::base();
    // SAFETY: zero or where the loader is mapped, headers first.
    if let Some(image) = unsafe { Image::at(loader) } {
        LOADER_END.store(image.end(), Ordering::Relaxed);
        LOADER_START.store(loader, Ordering::Release);
        // SAFETY: a field of the file's header, which is mapped there.
        let entry = unsafe { ((loader + ELF_ENTRY) as *const u64).read() };
        LOADER_ENTRY.store(loader.wrapping_add(entry), Ordering::Release);
    }
    if let Some(modules) = LoadedModules::create() {
        MODULES.set(modules);
        changed(tick, &mut |_| {});
    }
}

/// The loaded objects; `None` before [`init`] or without memory.
pub fn modules() -> Option<&'static LoadedModules> {
    MODULES.get()
}

/// The current epoch; never 0.
#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// The code ranges that changed after the epoch `since`, up to now; `None` if they are no longer kept.
pub fn changes_after(since: u32, mut each: impl FnMut(Range<u64>)) -> Option<u32> {
    let now = EPOCH.load(Ordering::Acquire);
    if now.wrapping_sub(since) as usize >= KEPT_CHANGES {
        return None;
    }
    for epoch in since..now {
        let change = &CHANGES.0[(epoch as usize + 1) % KEPT_CHANGES];
        each(change.start.load(Ordering::Relaxed)..change.end.load(Ordering::Relaxed));
    }
    // The oldest range must not have been overwritten by a newer one while it was read.
    fence(Ordering::Acquire);
    let later = EPOCH.load(Ordering::Relaxed);
    ((later.wrapping_sub(since) as usize) < KEPT_CHANGES).then_some(now)
}

/// Invalidates the caches of all threads for the code in `range`; `forget` removes it from the shared caches.
pub fn announce(range: &Range<u64>, forget: &mut dyn FnMut(&Range<u64>)) {
    // Twice: a thread may cache shared data again before `forget` has removed it; the second change invalidates that copy.
    bump(range);
    forget(range);
    bump(range);
}

fn bump(range: &Range<u64>) {
    while ANNOUNCING.swap(true, Ordering::Acquire) {
        crate::sync::pause();
    }
    let next = EPOCH.load(Ordering::Relaxed).wrapping_add(1).max(1);
    let change = &CHANGES.0[next as usize % KEPT_CHANGES];
    change.start.store(range.start, Ordering::Relaxed);
    change.end.store(range.end, Ordering::Relaxed);
    EPOCH.store(next, Ordering::SeqCst);
    ANNOUNCING.store(false, Ordering::Release);
}

/// Whether `pc` lies in the dynamic loader: when that allocates or frees, objects may be coming or going.
pub fn in_loader(pc: u64) -> bool {
    pc >= LOADER_START.load(Ordering::Acquire) && pc < LOADER_END.load(Ordering::Relaxed)
}

/// Whether `pc` is a return address in the loader's first instructions, which have no unwind information. They call the
/// loader, then the constructors, and at last jump to the program: nothing has called them.
pub fn begins_process(pc: u64) -> bool {
    const BYTES: u64 = 128;
    let entry = LOADER_ENTRY.load(Ordering::Acquire);
    entry != 0 && pc.wrapping_sub(1).wrapping_sub(entry) < BYTES
}

/// Updates the table of loaded objects from the loader's list; `tick` is the time now, `forget` removes the shared rules
/// of a range of code.
pub fn changed(tick: u64, forget: &mut dyn FnMut(&Range<u64>)) {
    let Some(modules) = MODULES.get() else { return };
    with_loader_lock(&mut |added, removed| {
        let before = (ADDED.load(Ordering::Relaxed), REMOVED.load(Ordering::Relaxed));
        if before == (added, removed) {
            return;
        }
        let (mut loads, mut unloads) = (0, 0);
        modules.update(tick, |change| match change {
            ModuleChange::Unloaded { range, identity } => {
                unloads += 1;
                GENERATIONS.unload(&range, identity);
                super::python::gone(&range);
                super::hotspot::gone(&range);
                announce(&range, forget);
                0
            }
            ModuleChange::Loaded { range, identity } => {
                loads += 1;
                // SAFETY: the loader has mapped the object there, and `gone` is called when it is unloaded.
                #[cfg(not(loom))]
                unsafe {
                    super::python::look_at(range.start);
                    super::hotspot::look_at(range.start);
                }
                let generation = GENERATIONS.load(&range, identity);
                announce(&range, forget);
                generation
            }
        });
        let seen = (before.0.wrapping_add(loads), before.1.wrapping_add(unloads));
        if seen != (added, removed) && before != (0, 0) {
            // Objects were loaded and unloaded since the last update, at unknown addresses.
            announce(&(0..u64::MAX), forget);
        }
        ADDED.store(added, Ordering::Relaxed);
        REMOVED.store(removed, Ordering::Relaxed);
    });
}

/// In a forked child: forgets that another thread of the parent may have been in the middle of a change.
pub fn after_fork_in_child() {
    UPDATER.store(0, Ordering::Relaxed);
    ANNOUNCING.store(false, Ordering::Relaxed);
}

/// Generation of the code at `pc` now: 0 unless earlier code at this address was unloaded and other code was loaded
/// there.
pub fn generation_of(pc: u64) -> u32 {
    GENERATIONS.of(pc.wrapping_sub(1))
}

/// Address after the last page of the ELF object whose file header is mapped at `map_start`.
///
/// # Safety
/// The page at `map_start` must be readable.
pub unsafe fn image_end(map_start: u64) -> Option<u64> {
    // SAFETY: the page at `map_start` is readable: the contract of this function.
    unsafe { elf::Image::at(map_start) }.and_then(|image| image.end().checked_next_multiple_of(4096))
}

/// The object around `pc`; `None` if there is none, or if it was loaded so recently that the table lacks it.
///
/// The data comes from the table of [`modules`]. Where libc has a look-up that takes no lock (`_dl_find_object`), the
/// table must agree with it: so an object that was loaded or unloaded a moment ago is not taken for another.
pub fn object_at(pc: u64) -> Option<Object> {
    let modules = MODULES.get()?;
    let find = FIND_OBJECT.load(Ordering::Acquire);
    if find == 0 {
        return modules.around(pc);
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
    // The range that glibc names is the whole object, or, where there are holes in it, the segment around `pc`. So it says
    // nothing about where the file's header is mapped.
    let agrees = |object: &Object| {
        // Pages may have up to 64 KiB.
        let end = object.end.saturating_add(LARGEST_PAGE - 1) & !(LARGEST_PAGE - 1);
        object.start & !(LARGEST_PAGE - 1) <= found.map_start as u64
            && found.map_end as u64 <= end
            && object.frame_header == found.eh_frame as u64
    };
    modules.around(pc).filter(agrees).or_else(|| {
        // Objects of other namespaces are not in the loader's list. Nothing says where the file's header is mapped,
        // so it is assumed at the beginning of the mapping, and the bias computed from it is compared with the loader's.
        let start = found.map_start as u64;
        // SAFETY: the loader mapped the segment there, and the caller's pc keeps it loaded; its link map, too, whose
        // first member is the load bias.
        let (image, bias) = unsafe { (Image::at(start)?, found.link_map.cast::<u64>().as_ref().copied()?) };
        (image.bias == bias).then(|| Object::of_image(image, start, found.map_end as u64)).filter(agrees)
    })
}

/// Whether any loaded object has code at `pc`, also one that is not in the table.
pub fn has_object(pc: u64) -> bool {
    let find = FIND_OBJECT.load(Ordering::Acquire);
    if find == 0 {
        return MODULES.get().is_some_and(|modules| modules.around(pc).is_some());
    }
    // SAFETY: `find` is the address of glibc's function of this type.
    let find = unsafe { core::mem::transmute::<usize, FindObject>(find) };
    let mut found = MaybeUninit::<FoundObject>::uninit();
    // SAFETY: the function takes any address and fills `found` when it returns zero. It takes no lock.
    unsafe { find(pc as *mut c_void, found.as_mut_ptr()) == 0 }
}

const LARGEST_PAGE: u64 = 1 << 16;

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

/// musl calls back without its lock, as it never unloads anything: one thread at a time comes here. Waits for another one's
/// turn, with a limit; false if it is not over then, or if this thread is in the middle of its own.
fn takes_turn() -> bool {
    const TURNS: u32 = 10_000;
    // SAFETY: pthread_self reads a register.
    let this = unsafe { libc::pthread_self() } as u64;
    for _ in 0..TURNS {
        match UPDATER.compare_exchange(0, this, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(holder) if holder == this => return false,
            Err(_) => crate::sys::sleep(100_000),
        }
    }
    false
}

/// Runs `work` with the loader's lock held, with the counts of objects that it has loaded and unloaded so far.
/// Not at all if this thread is in `work` already.
fn with_loader_lock(work: &mut dyn FnMut(u64, u64)) {
    struct Call<'a>(&'a mut dyn FnMut(u64, u64));
    if !libc_version::is_glibc() && !takes_turn() {
        return;
    }
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: `data` is the call below, and the loader passes a valid info.
        let (call, info) = unsafe { (&mut *data.cast::<Call<'_>>(), &*info) };
        // A signal handler may come here in the middle of an update of its own thread: the lock is recursive.
        // SAFETY: pthread_self reads a register.
        let this = unsafe { libc::pthread_self() } as u64;
        if !libc_version::is_glibc() {
            // musl counts from 0 what comes after the start.
            (call.0)(info.dlpi_adds + 1, info.dlpi_subs);
            UPDATER.store(0, Ordering::Release);
        } else if UPDATER.load(Ordering::Relaxed) != this {
            UPDATER.store(this, Ordering::Relaxed);
            (call.0)(info.dlpi_adds, info.dlpi_subs);
            UPDATER.store(0, Ordering::Relaxed);
        }
        1
    }
    let mut call = Call(work);
    // SAFETY: the callback has the type the loader expects, and `call` lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut call).cast()) };
}
