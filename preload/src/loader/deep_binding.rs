//! `dlopen` with `RTLD_DEEPBIND`: a library that is opened so finds the C library's functions before the recorder's, as PHP's
//! extensions do. When it has been loaded, the places that hold these functions get the recorder's instead.
//!
//! That is too late for its constructors, which have run: where there are any, a remark says so.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;
use std::ffi::CString;

use tracehound_shared::code::DynamicSymbols;
use tracehound_shared::gate::Internal;
use tracehound_shared::sys;

use super::{DLOPEN, find_next, next_address, own_code, remark};
use crate::start;

/// `dlopen(3)`, glibc's.
type Open = unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void;

/// An object that was loaded.
struct Opened {
    path: CString,
    /// Run-time address minus address in the file.
    bias: u64,
    /// Its dynamic section.
    dynamic: Range<u64>,
    /// What the loader has made read-only after it has written there.
    read_only: Range<u64>,
}

/// What may not be recorded.
#[derive(Clone, Copy, Default)]
struct Missed {
    /// There are constructors.
    constructors: bool,
    /// A word could not be written.
    calls: bool,
}

/// Whether the library can be opened by a call of ours: a name without a folder is looked for where the caller's own
/// object says, and `$ORIGIN` is the caller's folder.
pub fn can_open(path: &CStr) -> bool {
    let path = path.to_bytes();
    path.contains(&b'/') && !path.contains(&b'$')
}

/// Opens the library, and has what was loaded call the recorder.
///
/// # Safety
/// As for `dlopen`.
pub unsafe extern "C-unwind" fn open(path: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: 0, which is `None`, or glibc's function of this type.
    let next = unsafe { core::mem::transmute::<usize, Option<Open>>(next_address(&DLOPEN, c"dlopen")) };
    let Some(next) = next else { return core::ptr::null_mut() };
    let before = objects(&mut |_| {});
    // SAFETY: the program's arguments.
    let handle = unsafe { next(path, flags) };
    if handle.is_null() || !start::is_loaded() {
        return handle;
    }
    let errno = start::errno();
    let mut missed = Missed::default();
    {
        let _internal = Internal::enter();
        for object in opened_since(before) {
            // Another thread may close what it has opened meanwhile: it stays while it is worked at.
            // SAFETY: a terminated path.
            let held = unsafe { next(object.path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            if held.is_null() {
                continue;
            }
            // SAFETY: the object is loaded and stays; `handle` is open.
            unsafe {
                bind(&object, handle, &mut missed);
                libc::dlclose(held);
            }
        }
        // A look-up may have failed; the program's own call has not.
        // SAFETY: forgets the calling thread's last error.
        unsafe { libc::dlerror() };
    }
    let what = match missed {
        Missed { calls: true, .. } => "its calls of malloc",
        Missed { constructors: true, .. } => "what its constructors allocate",
        Missed { .. } => "",
    };
    if !what.is_empty() {
        let text = |path: &str| format!("{path} was opened with RTLD_DEEPBIND: {what} may bypass the recorder");
        // SAFETY: the program's terminated path.
        remark("deepbind", text, unsafe { CStr::from_ptr(path) });
    }
    start::set_errno(errno);
    handle
}

/// Hands all loaded objects to `each`, in the order of loading; returns how many were loaded so far.
fn objects(each: &mut dyn FnMut(&libc::dl_phdr_info)) -> u64 {
    struct Look<'a> {
        each: &'a mut dyn FnMut(&libc::dl_phdr_info),
        loaded: u64,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, argument: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid info; the argument is the one below.
        let (info, look) = unsafe { (&*info, &mut *argument.cast::<Look<'_>>()) };
        look.loaded = info.dlpi_adds;
        (look.each)(info);
        0
    }
    let mut state = Look { each, loaded: 0 };
    // SAFETY: the callback has the type that the loader expects; its argument lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut state).cast()) };
    state.loaded
}

/// The objects that were loaded since so many were.
fn opened_since(before: u64) -> Vec<Opened> {
    const PAGE: u64 = 4096;
    let mut all = Vec::new();
    let loaded = objects(&mut |info| {
        // SAFETY: the loader's terminated path.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned();
        let mut object = Opened { path, bias: info.dlpi_addr, dynamic: 0..0, read_only: 0..0 };
        for at in 0..info.dlpi_phnum {
            // SAFETY: the object has this many headers.
            let header = unsafe { &*info.dlpi_phdr.add(usize::from(at)) };
            let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
            match header.p_type {
                libc::PT_DYNAMIC => object.dynamic = start..start.wrapping_add(header.p_memsz),
                // Whole pages, as the loader does it.
                libc::PT_GNU_RELRO => {
                    object.read_only = start & !(PAGE - 1)..start.wrapping_add(header.p_memsz) & !(PAGE - 1);
                }
                _ => {}
            }
        }
        all.push(object);
    });
    // New ones come last.
    let new = usize::try_from(loaded.wrapping_sub(before)).unwrap_or(usize::MAX).min(all.len());
    all.split_off(all.len() - new)
}

/// The tables of an object that say which of its words the loader fills in.
#[derive(Default)]
struct DynamicTables {
    strings: u64,
    symbols: u64,
    /// Address and bytes: of all words but calls, then of those of calls.
    relocations: [(u64, u64); 2],
    constructor_bytes: u64,
}

impl DynamicTables {
    /// # Safety
    /// The object must be loaded and stay.
    unsafe fn of(object: &Opened) -> Self {
        let mut found = Self::default();
        for at in object.dynamic.clone().step_by(16) {
            // SAFETY: inside the dynamic section.
            let [tag, value] = unsafe { (at as *const [u64; 2]).read_volatile() };
            // glibc puts run-time addresses there.
            let address = if value < object.bias { value.wrapping_add(object.bias) } else { value };
            match tag {
                0 => break,
                2 => found.relocations[1].1 = value,
                5 => found.strings = address,
                6 => found.symbols = address,
                7 => found.relocations[0].0 = address,
                8 => found.relocations[0].1 = value,
                23 => found.relocations[1].0 = address,
                27 => found.constructor_bytes = value,
                _ => {}
            }
        }
        found
    }
}

/// Puts the recorder's functions where an object has the C library's.
///
/// # Safety
/// The object must be loaded and stay, and have been opened with `handle`.
unsafe fn bind(object: &Opened, handle: *mut c_void, missed: &mut Missed) {
    /// Of a word that holds an address, and of one that a call goes through.
    const KINDS: [u32; 3] = if cfg!(target_arch = "x86_64") { [1, 6, 7] } else { [257, 1025, 1026] };
    const RELOCATION_BYTES: usize = 24;
    const SYMBOL_BYTES: u64 = 24;
    /// Each object has one of its start code.
    const ONE: u64 = 8;
    // SAFETY: this library stays.
    let Some(ours) = (unsafe { DynamicSymbols::of(own_code().start) }) else {
        missed.calls = true;
        return;
    };
    // SAFETY: the contract of this function.
    let tables = unsafe { DynamicTables::of(object) };
    if tables.symbols == 0 || tables.strings == 0 {
        return;
    }
    for (start, bytes) in tables.relocations {
        for at in (start..start.wrapping_add(bytes)).step_by(RELOCATION_BYTES) {
            // SAFETY: inside a table of the loaded object, whose symbol and whose name are in its other tables.
            let (place, name) = unsafe {
                let [offset, info, addend] = (at as *const [u64; 3]).read_unaligned();
                let symbol = tables.symbols + (info >> 32) * SYMBOL_BYTES;
                let section = ((symbol + 6) as *const u16).read_unaligned();
                if !KINDS.contains(&(info as u32)) || info >> 32 == 0 || section != 0 || addend != 0 {
                    continue;
                }
                let name = tables.strings + u64::from((symbol as *const u32).read_unaligned());
                (object.bias.wrapping_add(offset), CStr::from_ptr(name as *const c_char))
            };
            let Some(hook) = ours.find(name.to_bytes()) else { continue };
            // Another object may define the name for this one: then that is meant.
            // SAFETY: an open handle, and a terminated name.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) } as usize;
            if found != 0 && found == find_next(name) {
                // SAFETY: a word that the loader fills in with this function's address.
                missed.calls |= !unsafe { put(place, hook.address, object.read_only.contains(&place)) };
            }
        }
    }
    missed.constructors |= tables.constructor_bytes > ONE;
}

/// Writes a word that other threads may read; false if that cannot be done.
///
/// # Safety
/// The word must be the object's, and mean an address.
unsafe fn put(place: u64, address: u64, is_read_only: bool) -> bool {
    use core::sync::atomic::{AtomicU64, Ordering};
    if !place.is_multiple_of(8) || is_read_only && !sys::let_write(place, true) {
        return false;
    }
    // SAFETY: aligned, as all words are that the loader fills in; writable, as the caller says or by the call above.
    unsafe { (*(place as *const AtomicU64)).store(address, Ordering::Release) };
    if is_read_only {
        let _ = sys::let_write(place, false);
    }
    true
}
