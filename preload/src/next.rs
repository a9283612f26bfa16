//! The next definitions in link order: the functions that the program would call without the recorder.
//!
//! Only names that libc has are looked up: a look-up that fails makes libc allocate its error message, which a program with
//! a malloc of its own would see. What `free` can do is left to `free`. libgcc's names are looked up when the program calls
//! them: not every program has libgcc, and neither does this library.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use tracehound_shared::gate::Internal;

use crate::loader;

macro_rules! functions {
    ($($name:ident: $symbol:literal, fn($($argument:ty),*) -> $result:ty;)*) => {
        struct NextTable { $($name: AtomicUsize,)* }

        static TABLE: NextTable = NextTable { $($name: AtomicUsize::new(0),)* };

        /// Looks all of them up. What does not exist stays unset.
        pub fn resolve() {
            $(TABLE.$name.store(loader::find_next($symbol), Ordering::Release);)*
        }

        /// Has calls of a function go to `address` from now on; false when it is none of the table.
        pub fn set(name: &[u8], address: usize) -> bool {
            $(if name == stringify!($name).as_bytes() {
                TABLE.$name.store(address, Ordering::Release);
                return true;
            })*
            false
        }

        $(
            #[doc = concat!("The next `", stringify!($name), "`, if there is one.")]
            #[inline(always)]
            pub fn $name() -> Option<unsafe extern "C-unwind" fn($($argument),*) -> $result> {
                let address = TABLE.$name.load(Ordering::Relaxed);
                // SAFETY: zero, which is `None`, or the address of a function of this type.
                unsafe { core::mem::transmute::<usize, Option<unsafe extern "C-unwind" fn($($argument),*) -> $result>>(address) }
            }
        )*
    };
}

type Ptr = *mut c_void;
/// A handler of `pthread_atfork`, or none.
pub type ForkHandler = Option<unsafe extern "C" fn()>;
/// An exit handler.
#[cfg(not(linked))]
pub type ExitHandler = unsafe extern "C" fn(Ptr);

functions! {
    malloc: c"malloc", fn(usize) -> Ptr;
    calloc: c"calloc", fn(usize, usize) -> Ptr;
    realloc: c"realloc", fn(Ptr, usize) -> Ptr;
    reallocarray: c"reallocarray", fn(Ptr, usize, usize) -> Ptr;
    free: c"free", fn(Ptr) -> ();
    posix_memalign: c"posix_memalign", fn(*mut Ptr, usize, usize) -> c_int;
    aligned_alloc: c"aligned_alloc", fn(usize, usize) -> Ptr;
    memalign: c"memalign", fn(usize, usize) -> Ptr;
    valloc: c"valloc", fn(usize) -> Ptr;
    pvalloc: c"pvalloc", fn(usize) -> Ptr;
    malloc_usable_size: c"malloc_usable_size", fn(Ptr) -> usize;

    mmap: c"mmap", fn(Ptr, usize, c_int, c_int, c_int, i64) -> Ptr;
    munmap: c"munmap", fn(Ptr, usize) -> c_int;
    mremap: c"mremap", fn(Ptr, usize, usize, c_int, Ptr) -> Ptr;
    brk: c"brk", fn(Ptr) -> c_int;
    sbrk: c"sbrk", fn(isize) -> Ptr;

    fork: c"fork", fn() -> c_int;
    register_atfork: c"__register_atfork", fn(ForkHandler, ForkHandler, ForkHandler, Ptr) -> c_int;
    daemon: c"daemon", fn(c_int, c_int) -> c_int;
    execve: c"execve", fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    execvpe: c"execvpe", fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    fexecve: c"fexecve", fn(c_int, *const *const c_char, *const *const c_char) -> c_int;
    execveat: c"execveat", fn(c_int, *const c_char, *const *const c_char, *const *const c_char, c_int) -> c_int;
    posix_spawn: c"posix_spawn",
        fn(*mut c_int, *const c_char, *const c_void, *const c_void, *const *const c_char, *const *const c_char) -> c_int;
    posix_spawnp: c"posix_spawnp",
        fn(*mut c_int, *const c_char, *const c_void, *const c_void, *const *const c_char, *const *const c_char) -> c_int;
    unshare: c"unshare", fn(c_int) -> c_int;
    setns: c"setns", fn(c_int, c_int) -> c_int;
    setuid: c"setuid", fn(u32) -> c_int;
    setgid: c"setgid", fn(u32) -> c_int;
    seteuid: c"seteuid", fn(u32) -> c_int;
    setegid: c"setegid", fn(u32) -> c_int;
    setreuid: c"setreuid", fn(u32, u32) -> c_int;
    setregid: c"setregid", fn(u32, u32) -> c_int;
    setresuid: c"setresuid", fn(u32, u32, u32) -> c_int;
    setresgid: c"setresgid", fn(u32, u32, u32) -> c_int;
    setgroups: c"setgroups", fn(usize, *const u32) -> c_int;
    initgroups: c"initgroups", fn(*const c_char, u32) -> c_int;
    setrlimit: c"setrlimit", fn(c_int, *const libc::rlimit) -> c_int;
    getrlimit: c"getrlimit", fn(c_int, *mut libc::rlimit) -> c_int;
    prlimit: c"prlimit", fn(libc::pid_t, c_int, *const libc::rlimit, *mut libc::rlimit) -> c_int;
    mlockall: c"mlockall", fn(c_int) -> c_int;
    pthread_setname_np: c"pthread_setname_np", fn(libc::pthread_t, *const c_char) -> c_int;
    prctl: c"prctl", fn(c_int, usize, usize, usize, usize) -> c_int;
    sigaltstack: c"sigaltstack", fn(*const libc::stack_t, *mut libc::stack_t) -> c_int;
    syscall: c"syscall", fn(libc::c_long) -> libc::c_long;
}

/// As [`functions`], of functions that are looked up when they are called first.
macro_rules! functions_on_demand {
    ($($name:ident: $symbol:literal, fn($($argument:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("The next `", stringify!($name), "`, if there is one.")]
            pub fn $name() -> Option<unsafe extern "C-unwind" fn($($argument),*) -> $result> {
                static ADDRESS: AtomicUsize = AtomicUsize::new(UNKNOWN);
                let mut address = ADDRESS.load(Ordering::Relaxed);
                if address == UNKNOWN {
                    let _internal = Internal::enter();
                    address = loader::find_next($symbol);
                    ADDRESS.store(address, Ordering::Relaxed);
                }
                // SAFETY: zero, which is `None`, or the address of a function of this type.
                unsafe { core::mem::transmute::<usize, Option<unsafe extern "C-unwind" fn($($argument),*) -> $result>>(address) }
            }
        )*
    };
}

/// Nobody has looked yet.
const UNKNOWN: usize = usize::MAX;

// The C library's own: the first is glibc's, the next two musl's, the last one younger than some. musl's exit handlers take no argument, so ours has none to
// look at.
#[cfg(not(linked))]
functions_on_demand! {
    cxa_at_quick_exit: c"__cxa_at_quick_exit", fn(ExitHandler, Ptr) -> c_int;
    at_quick_exit: c"at_quick_exit", fn(ExitHandler) -> c_int;
    fork_without_handlers: c"_Fork", fn() -> c_int;
    pthread_atfork: c"pthread_atfork", fn(ForkHandler, ForkHandler, ForkHandler) -> c_int;
    system: c"system", fn(*const c_char) -> c_int;
    popen: c"popen", fn(*const c_char, *const c_char) -> Ptr;
    stat: c"stat", fn(*const c_char, *mut libc::stat) -> c_int;
    xstat: c"__xstat", fn(c_int, *const c_char, *mut libc::stat) -> c_int;
    fstatat: c"fstatat", fn(c_int, *const c_char, *mut libc::stat, c_int) -> c_int;
    fxstatat: c"__fxstatat", fn(c_int, c_int, *const c_char, *mut libc::stat, c_int) -> c_int;
}

functions_on_demand! {
    clone: c"clone", fn() -> c_int;
    register_frame: c"__register_frame", fn(Ptr) -> ();
    register_frame_table: c"__register_frame_table", fn(Ptr) -> ();
    register_frame_info: c"__register_frame_info", fn(Ptr, Ptr) -> ();
    register_frame_info_table: c"__register_frame_info_table", fn(Ptr, Ptr) -> ();
    register_frame_info_bases: c"__register_frame_info_bases", fn(Ptr, Ptr, Ptr, Ptr) -> ();
    register_frame_info_table_bases: c"__register_frame_info_table_bases", fn(Ptr, Ptr, Ptr, Ptr) -> ();
    deregister_frame: c"__deregister_frame", fn(Ptr) -> ();
    deregister_frame_info: c"__deregister_frame_info", fn(Ptr) -> Ptr;
    deregister_frame_info_bases: c"__deregister_frame_info_bases", fn(Ptr) -> Ptr;
}

/// Address of the next `syscall`, to be jumped to.
pub fn syscall_address() -> usize {
    match syscall() {
        Some(function) => function as *const () as usize,
        // Before the first look-up.
        None => loader::find_next(c"syscall"),
    }
}

/// Address of the next `_Fork`, to be jumped to; 0: the C library has none.
#[cfg(not(linked))]
pub fn fork_without_handlers_address() -> usize {
    fork_without_handlers().map_or(0, |function| function as *const () as usize)
}

/// Address of the next `clone`, to be jumped to; 0: the C library has none.
pub fn clone_address() -> usize {
    clone().map_or(0, |function| function as *const () as usize)
}

/// Serves the program from the bundled jemalloc from now on: a what-if switch.
pub fn use_bundled_allocator() {
    use tracehound_shared::heap::program as bundled;
    for (slot, address) in [
        (&TABLE.malloc, bundled::malloc as *const () as usize),
        (&TABLE.calloc, bundled::calloc as *const () as usize),
        (&TABLE.realloc, bundled::realloc as *const () as usize),
        (&TABLE.free, bundled::free as *const () as usize),
        (&TABLE.posix_memalign, bundled::posix_memalign as *const () as usize),
        (&TABLE.aligned_alloc, bundled::aligned_alloc as *const () as usize),
        (&TABLE.memalign, bundled::memalign as *const () as usize),
        (&TABLE.valloc, bundled::valloc as *const () as usize),
        (&TABLE.pvalloc, bundled::pvalloc as *const () as usize),
        (&TABLE.malloc_usable_size, bundled::malloc_usable_size as *const () as usize),
    ] {
        slot.store(address, Ordering::Release);
    }
    TABLE.reallocarray.store(0, Ordering::Release);
}
