//! Look-ups in musl's loader, and its `dlopen`.
//!
//! What musl lacks is not asked for by `dlsym`, whose answer would be an error for the program's next `dlerror`. And
//! musl's loader serves itself without `malloc`, so what it has loaded is looked at behind each `dlopen`. It never unloads.

use core::ffi::{CStr, c_char, c_int, c_void};

use tracehound_shared::clock;
use tracehound_shared::code::DynamicSymbols;
use tracehound_shared::gate::Internal;

use super::{ANCHOR, DLOPEN, next_address};
use crate::start;

/// What is looked for, in the objects behind this library.
struct Search<'a> {
    name: &'a CStr,
    is_behind_us: bool,
    found: usize,
}

/// The definition that follows this library's; 0: none.
pub fn find_next(name: &CStr) -> usize {
    let mut search = Search { name, is_behind_us: false, found: 0 };
    // SAFETY: the callback has the type that the loader expects; the search lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// musl lists objects in the order in which names are searched.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid info; `search` is the one above.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    let (mut first, mut is_ours) = (u64::MAX, false);
    for at in 0..info.dlpi_phnum {
        // SAFETY: the object has this many headers.
        let header = unsafe { &*info.dlpi_phdr.add(usize::from(at)) };
        if header.p_type == libc::PT_LOAD {
            let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
            first = first.min(start & !4095);
            is_ours |= (&raw const ANCHOR as u64).wrapping_sub(start) < header.p_memsz;
        }
    }
    if is_ours {
        search.is_behind_us = true;
    } else if search.is_behind_us && first != u64::MAX {
        // SAFETY: the loader has mapped the object there and never unmaps it.
        let symbols = unsafe { DynamicSymbols::of(first) };
        let found = symbols.and_then(|symbols| symbols.find(search.name.to_bytes()));
        search.found = found.map_or(0, |symbol| symbol.address as usize);
    }
    c_int::from(search.found != 0)
}

/// `dlopen(3)`: loads, and looks at what is new. It has been there for the whole call: its constructors have run.
pub unsafe extern "C-unwind" fn open(path: *const c_char, flags: c_int) -> *mut c_void {
    let since = clock::now();
    let next = next_address(&DLOPEN, c"dlopen");
    type Open = unsafe extern "C-unwind" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: 0, which is `None`, or musl's function of this type.
    let next = unsafe { core::mem::transmute::<usize, Option<Open>>(next) };
    // SAFETY: the program's arguments.
    let opened = next.map_or(core::ptr::null_mut(), |next| unsafe { next(path, flags) });
    if start::is_loaded() && !opened.is_null() {
        let errno = start::errno();
        let _internal = Internal::enter();
        tracehound_unwind::code_changed_since(since);
        start::set_errno(errno);
    }
    opened
}
