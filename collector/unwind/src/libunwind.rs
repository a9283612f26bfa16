//! `libunwind.so.8`, if it is installed: an alternative unwinder, for comparison.
//!
//! It takes the loader's lock and opens files while it unwinds, in the middle of the program's calls of malloc. So it
//! is used only with `TRACEHOUND_UNWINDER=libunwind`.
//!
//! It is opened by name at run time, in its own scope. Linking it would put its `_Unwind_*` and `backtrace` before
//! those of libgcc and glibc for the whole program.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use super::memory::Array;
use super::rule::RuleKind;
use super::rule_cache::rule_of;
use super::{Caller, Captured, TRUNCATED};
use tracehound_shared::call_tree::CallTree;
use tracehound_shared::code;

type Backtrace = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type FlushCache = unsafe extern "C" fn(*mut c_void, usize, usize);
type SetCachingPolicy = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

const CACHE_PER_THREAD: c_int = 2;

/// Names of the library's variable and functions.
#[cfg(target_arch = "x86_64")]
const NAMES: [&CStr; 3] = [c"_ULx86_64_local_addr_space", c"_Ux86_64_flush_cache", c"_ULx86_64_set_caching_policy"];
#[cfg(target_arch = "aarch64")]
const NAMES: [&CStr; 3] = [c"_ULaarch64_local_addr_space", c"_Uaarch64_flush_cache", c"_ULaarch64_set_caching_policy"];

static OPENED: AtomicBool = AtomicBool::new(false);
static BACKTRACE: AtomicUsize = AtomicUsize::new(0);
static FLUSH_CACHE: AtomicUsize = AtomicUsize::new(0);
static ADDRESS_SPACE: AtomicUsize = AtomicUsize::new(0);
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// Opens the library; answers whether it is there. Allocates and takes the loader's locks: for a safe place only.
pub fn prepare() -> bool {
    if OPENED.swap(true, Ordering::AcqRel) {
        return is_ready();
    }
    // SAFETY: constant, terminated names. The library's initialisation changes nothing outside of it.
    unsafe {
        let library = libc::dlopen(c"libunwind.so.8".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() {
            return false;
        }
        let [space, flush, policy] = NAMES;
        let space = libc::dlsym(library, space.as_ptr()).cast::<*mut c_void>();
        if let Some(space) = space.as_ref() {
            ADDRESS_SPACE.store(*space as usize, Ordering::Relaxed);
            let flush = libc::dlsym(library, flush.as_ptr());
            FLUSH_CACHE.store(flush as usize, Ordering::Relaxed);
            let policy = libc::dlsym(library, policy.as_ptr());
            if !policy.is_null() {
                let policy = core::mem::transmute::<*mut c_void, SetCachingPolicy>(policy);
                policy(*space, CACHE_PER_THREAD);
            }
        }
        let backtrace = libc::dlsym(library, c"unw_backtrace".as_ptr());
        BACKTRACE.store(backtrace as usize, Ordering::Release);
    }
    is_ready()
}

/// 1 once the program has a filter of system calls.
static LEFT: AtomicU32 = AtomicU32::new(0);
/// Threads in the library.
static VISITS: AtomicU32 = AtomicU32::new(0);

/// Stops the use of the library: it opens files, which the program's filter may kill for. Returns whether it was in use
/// until now.
pub fn leave() -> bool {
    is_ready() && LEFT.swap(1, Ordering::SeqCst) == 0
}

/// Whether a thread is in the library.
pub fn is_in_use() -> bool {
    VISITS.load(Ordering::SeqCst) != 0
}

/// In a forked child: threads of the parent that were in the library have left its locks taken, and will never come back for
/// them: it is not used any more. Returns whether it was until now.
pub fn after_fork_in_child() -> bool {
    VISITS.swap(0, Ordering::SeqCst) != 0 && leave()
}

/// A thread's stay in the library.
pub struct Visit(());

impl Visit {
    /// Begins a visit, unless the library must not be used any more.
    pub fn begin() -> Option<Visit> {
        VISITS.fetch_add(1, Ordering::SeqCst);
        let visit = Visit(());
        (LEFT.load(Ordering::SeqCst) == 0).then_some(visit)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // A signal handler may have forked during a visit.
        let _ = VISITS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |visits| visits.checked_sub(1));
    }
}

/// Whether the library has been opened and has what is needed.
pub fn is_ready() -> bool {
    BACKTRACE.load(Ordering::Acquire) != 0
}

/// The backtrace of `caller`, for which `buffer` holds the frames found. `None` if libunwind cannot be had or does
/// not find the caller.
///
/// # Safety
/// `caller` must be the state of a function that has not returned, further out on the running thread's stack.
pub unsafe fn capture(buffer: &mut Array<*mut c_void>, tree: &CallTree, caller: Caller) -> Option<Captured> {
    let backtrace = BACKTRACE.load(Ordering::Acquire);
    if backtrace == 0 {
        return None;
    }
    flush_stale();
    // SAFETY: the address is that of the library's function of this type.
    let backtrace = unsafe { core::mem::transmute::<usize, Backtrace>(backtrace) };
    let (count, flags) = loop {
        let room = buffer.len().min(c_int::MAX as usize);
        // SAFETY: the buffer has room for this many addresses.
        let count = unsafe { backtrace(buffer.as_ptr(), room as c_int) };
        let count = usize::try_from(count).ok()?;
        if count < room {
            break (count, 0);
        }
        // SAFETY: nothing points into the buffer.
        if unsafe { buffer.grow(room * 2) }.is_none() {
            break (count, TRUNCATED);
        }
    };
    // SAFETY: the library has filled this many.
    let found = unsafe { core::slice::from_raw_parts(buffer.as_ptr(), count) };
    let first = found.iter().position(|pc| *pc as u64 == caller.pc)?;
    let found = found.get(first..)?;
    let mut captured = Captured { flags, ..Captured::NOTHING };
    for (index, pc) in found.iter().enumerate().rev() {
        let inner = index.checked_sub(1).and_then(|index| found.get(index)).copied();
        // libunwind gives the interrupted address as it is.
        let interrupted = inner.is_some_and(|inner| rule_of(inner as u64).kind() == RuleKind::Signal);
        let pc = (*pc as u64).wrapping_add(u64::from(interrupted));
        captured.node = tree.intern(captured.node, pc, code::generation_of(pc));
    }
    Some(captured)
}

/// Flushes libunwind's caches when code has changed: libunwind does not notice it.
fn flush_stale() {
    let epoch = code::epoch();
    let flush = FLUSH_CACHE.load(Ordering::Relaxed);
    if EPOCH.swap(epoch, Ordering::Relaxed) != epoch && flush != 0 {
        // SAFETY: the address is that of the library's function of this type; an empty range means everything.
        unsafe {
            let flush = core::mem::transmute::<usize, FlushCache>(flush);
            flush(ADDRESS_SPACE.load(Ordering::Relaxed) as *mut c_void, 0, 0);
        }
    }
}
