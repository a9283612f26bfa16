//! Python's own allocator, object by object (`TRACEHOUND_PYTHON_OBJECTS`).
//!
//! CPython gives memory for objects out of arenas of its own (pymalloc). Its functions are reached through two tables,
//! of the domains "mem" and "object", which `PyMem_SetAllocator` replaces: the recorder's functions record the event
//! and call the previous ones. So the program keeps its allocator.
//!
//! ```text
//! PyObject_Malloc ─▶ table ─▶ hook here ─▶ pymalloc ─▶ an arena; or malloc, for more than 512 bytes
//!                                                      └ inside a call that is recorded: no event of its own,
//!                                                        but for the free of another block
//! ```
//! An arena is mapped inside such a call, too, so no byte counts twice.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use tracehound_format::record::Kind;
use tracehound_record::nested;
use tracehound_record::record::{self, REALLOC};
use tracehound_shared::clock;
use tracehound_shared::gate;
use tracehound_shared::session;
use tracehound_unwind::Caller;

use crate::entry::{caller, hook};
use crate::environment;
use crate::start;

type Ptr = *mut c_void;

/// `PyMemAllocatorEx`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AllocatorTable {
    context: Ptr,
    malloc: usize,
    calloc: usize,
    realloc: usize,
    free: usize,
}

/// What a domain had before; written once, before the table is ours.
#[repr(C)]
struct Domain {
    context: AtomicUsize,
    malloc: AtomicUsize,
    calloc: AtomicUsize,
    realloc: AtomicUsize,
    free: AtomicUsize,
}

/// `PYMEM_DOMAIN_MEM` and `PYMEM_DOMAIN_OBJ`.
const DOMAINS: [c_int; 2] = [1, 2];

static BEFORE: [Domain; 2] = [const {
    Domain {
        context: AtomicUsize::new(0),
        malloc: AtomicUsize::new(0),
        calloc: AtomicUsize::new(0),
        realloc: AtomicUsize::new(0),
        free: AtomicUsize::new(0),
    }
}; 2];

const NOT_TRIED: u32 = 0;
const IN_PLACE: u32 = 1;
const NO_PYTHON: u32 = 2;
const OTHER_WISH: u32 = 3;
static STATE: AtomicU32 = AtomicU32::new(NOT_TRIED);

type Exchange = unsafe extern "C" fn(c_int, *mut AllocatorTable);
type Malloc = unsafe extern "C-unwind" fn(Ptr, usize) -> Ptr;
type Calloc = unsafe extern "C-unwind" fn(Ptr, usize, usize) -> Ptr;
type Realloc = unsafe extern "C-unwind" fn(Ptr, Ptr, usize) -> Ptr;
type Free = unsafe extern "C-unwind" fn(Ptr, Ptr);

hook!(private python_malloc, 2, malloc_body);
hook!(private python_calloc, 3, calloc_body);
hook!(private python_realloc, 3, realloc_body);
hook!(private python_free, 2, free_body);

/// Before the interpreter begins, in the library's constructor: puts our functions into the tables if that is `wanted`,
/// and adds a remark to the recording if `PYTHONMALLOC` selects another allocator for Python's objects.
pub fn begin(wanted: bool) {
    if wanted {
        install();
    }
    let text = match environment::get("PYTHONMALLOC").unwrap_or_default() {
        b"malloc" | b"malloc_debug" => {
            "PYTHONMALLOC is set: Python takes each object from malloc, and it is recorded as that"
        }
        // What is in the program itself is hooked, or has a remark of its own.
        b"mimalloc" | b"mimalloc_debug" if !is_in_program(c"PyMem_GetAllocator") => {
            "PYTHONMALLOC is set: Python takes objects from the mimalloc inside its library, whose blocks are not recorded"
        }
        _ => return,
    };
    if function(c"PyMem_GetAllocator").is_some()
        && let Some(session) = session::current()
    {
        session.remark(clock::now(), "python-malloc", text.into());
    }
}

/// Whether the executable defines the function with this name.
fn is_in_program(name: &CStr) -> bool {
    let Some(address) = function(name) else { return false };
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address of a loaded function, and room for the answer. Program headers are in the first page.
    unsafe {
        libc::dladdr(address as *const c_void, info.as_mut_ptr()) != 0
            && info.assume_init_ref().dli_fbase as u64 == libc::getauxval(libc::AT_PHDR) & !4095
    }
}

fn install() {
    if environment::get("PYTHONMALLOC").is_some_and(|value| !value.is_empty()) {
        // Python sets its tables up itself then, after us.
        STATE.store(OTHER_WISH, Ordering::Relaxed);
        return;
    }
    let (Some(get), Some(set)) = (function(c"PyMem_GetAllocator"), function(c"PyMem_SetAllocator")) else {
        STATE.store(NO_PYTHON, Ordering::Relaxed);
        return;
    };
    for (domain, before) in DOMAINS.into_iter().zip(&BEFORE) {
        let Some(table) = table_of(get, domain) else {
            STATE.store(NO_PYTHON, Ordering::Relaxed);
            return;
        };
        before.context.store(table.context as usize, Ordering::Relaxed);
        before.malloc.store(table.malloc, Ordering::Relaxed);
        before.calloc.store(table.calloc, Ordering::Relaxed);
        before.realloc.store(table.realloc, Ordering::Relaxed);
        before.free.store(table.free, Ordering::Release);
        let mut ours = AllocatorTable {
            context: core::ptr::from_ref(before).cast_mut().cast(),
            malloc: python_malloc as *const () as usize,
            calloc: python_calloc as *const () as usize,
            realloc: python_realloc as *const () as usize,
            free: python_free as *const () as usize,
        };
        // SAFETY: CPython copies the table, which may be done before it is initialised.
        unsafe { set(domain, &raw mut ours) };
    }
    STATE.store(IN_PLACE, Ordering::Release);
}

/// At the end: notes in the recording why it has no objects.
pub fn tell() {
    let Some(session) = session::current().filter(|session| session.options.python_objects) else { return };
    let is_ours = |get| {
        let ours = python_malloc as *const () as usize;
        DOMAINS.into_iter().all(|domain| table_of(get, domain).is_some_and(|table| table.malloc == ours))
    };
    let text = match STATE.load(Ordering::Acquire) {
        IN_PLACE if function(c"PyMem_GetAllocator").is_none_or(is_ours) => return,
        IN_PLACE => {
            "Python has replaced the recorder's allocator functions (-X dev, or an extension): its objects are missing"
        }
        OTHER_WISH => {
            "PYTHONMALLOC is set, and Python uses that allocator: objects are recorded only if it calls malloc"
        }
        NO_PYTHON => "the program had no Python at its start: Python objects are not recorded",
        _ => return,
    };
    session.remark(clock::now(), "python-objects", text.into());
}

fn function(name: &CStr) -> Option<Exchange> {
    // SAFETY: a terminated name; the function has this type in all versions.
    unsafe { core::mem::transmute::<Ptr, Option<Exchange>>(libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr())) }
}

fn table_of(get: Exchange, domain: c_int) -> Option<AllocatorTable> {
    let mut table = AllocatorTable { context: core::ptr::null_mut(), malloc: 0, calloc: 0, realloc: 0, free: 0 };
    // SAFETY: CPython fills the table.
    unsafe { get(domain, &raw mut table) };
    let functions = [table.malloc, table.calloc, table.realloc, table.free];
    functions.iter().all(|&function| function != 0).then_some(table)
}

/// Whether an event off the fast path may be recorded.
fn is_up() -> bool {
    if !start::is_loaded() || gate::is_internal() || !start::ensure() {
        return false;
    }
    start::record_early_blocks();
    start::arm();
    true
}

unsafe extern "C-unwind" fn malloc_body(domain: &'static Domain, size: usize, stack: u64, frame: u64) -> Ptr {
    // SAFETY: called by the hook alone, with the caller's state and the context that we gave; the function is that of
    // the table before us.
    unsafe {
        let caller = caller(stack, frame);
        let real = || {
            let malloc = core::mem::transmute::<usize, Malloc>(domain.malloc.load(Ordering::Relaxed));
            malloc(domain.context.load(Ordering::Relaxed) as Ptr, size)
        };
        allocated(caller, size, real)
    }
}

unsafe extern "C-unwind" fn calloc_body(
    domain: &'static Domain,
    count: usize,
    size: usize,
    stack: u64,
    frame: u64,
) -> Ptr {
    // SAFETY: called by the hook alone, with the caller's state and the context that we gave; the function is that of
    // the table before us. Should the product overflow, the real function fails and nothing is recorded.
    unsafe {
        let caller = caller(stack, frame);
        let real = || {
            let calloc = core::mem::transmute::<usize, Calloc>(domain.calloc.load(Ordering::Relaxed));
            calloc(domain.context.load(Ordering::Relaxed) as Ptr, count, size)
        };
        allocated(caller, count.wrapping_mul(size), real)
    }
}

#[inline(always)]
unsafe fn allocated(caller: Caller, size: usize, mut real: impl FnMut() -> Ptr) -> Ptr {
    // SAFETY: every caller passes the state of the hooked function's caller; `ready` gives the calling thread's
    // context, in no event.
    unsafe {
        match record::ready() {
            Some(context) => record::alloc(context, caller, Kind::OtherAlloc, size, real),
            None if is_up() => nested::alloc(caller, Kind::OtherAlloc, size, &mut real),
            None => real(),
        }
    }
}

unsafe extern "C-unwind" fn realloc_body(
    domain: &'static Domain,
    old: Ptr,
    size: usize,
    stack: u64,
    frame: u64,
) -> Ptr {
    // SAFETY: called by the hook alone, with the caller's state and the context that we gave; the function is that of
    // the table before us.
    unsafe {
        let caller = caller(stack, frame);
        let mut real = || {
            let realloc = core::mem::transmute::<usize, Realloc>(domain.realloc.load(Ordering::Relaxed));
            realloc(domain.context.load(Ordering::Relaxed) as Ptr, old, size)
        };
        if old.is_null() {
            return allocated(caller, size, real);
        }
        match record::ready() {
            Some(context) => with_block(gate::short_address(old.addr()), || {
                record::realloc(context, caller, REALLOC, old, size, real)
            }),
            None if is_up() => nested::realloc(caller, REALLOC, old, size, &mut real),
            None => real(),
        }
    }
}

/// Makes a call that gives a block back or moves it. tracemalloc, between us and malloc, frees what it knows of the block
/// inside of it, which is an event of its own. `freed` is what the thread's slot is to have.
#[inline(always)]
fn with_block<T>(freed: u32, call: impl FnOnce() -> T) -> T {
    let slot = gate::slot();
    slot.freed_by_python.set(freed);
    let result = call();
    slot.freed_by_python.set(0);
    result
}

unsafe extern "C-unwind" fn free_body(domain: &'static Domain, block: Ptr, stack: u64, frame: u64) {
    // SAFETY: called by the hook alone, with the caller's state and the context that we gave; the function is that of
    // the table before us.
    unsafe {
        let caller = caller(stack, frame);
        let mut real = || {
            let free = core::mem::transmute::<usize, Free>(domain.free.load(Ordering::Relaxed));
            free(domain.context.load(Ordering::Relaxed) as Ptr, block);
        };
        if block.is_null() {
            return real();
        }
        match record::ready() {
            Some(context) => {
                let freed = gate::short_address(block.addr()) | gate::PYTHON_FREES;
                with_block(freed, || record::free(context, caller, Kind::OtherFree, block, real))
            }
            None if is_up() => nested::free(caller, Kind::OtherFree, block, &mut real),
            None => real(),
        }
    }
}
