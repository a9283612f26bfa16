//! The hooks of exit and fork: exit, _exit, quick_exit, fork, daemon.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tracehound_format::record::Kind;
use tracehound_record::record;
use tracehound_shared::gate::{self, Internal};
#[cfg(not(linked))]
use tracehound_shared::libc_version;
use tracehound_shared::sys;

use crate::entry::{caller, hook, passes_on};
use crate::next;
use crate::start;
use crate::unfollowed;

unsafe extern "C" {
    #[cfg(not(linked))]
    fn __cxa_atexit(function: unsafe extern "C" fn(*mut c_void), argument: *mut c_void, object: *mut c_void) -> c_int;
    #[cfg(linked)]
    fn __cxa_at_quick_exit(function: unsafe extern "C" fn(*mut c_void), object: *mut c_void) -> c_int;
}

/// The fork handlers of the recorder's own jemalloc.
mod own_allocator {
    unsafe extern "C" {
        #[link_name = "_rjem_je_jemalloc_prefork"]
        pub fn before_fork();
        #[link_name = "_rjem_je_jemalloc_postfork_parent"]
        pub fn in_parent();
        #[link_name = "_rjem_je_jemalloc_postfork_child"]
        pub fn in_child();
    }
}

/// Registers the handlers. Exit handlers run last in, first out, and this library's constructor runs before the
/// program's start code registers the loader's destructors: the handler runs after all of those. It belongs to no
/// object, so that our own destructor does not run it. In a program whose own start code has registered its destructors
/// before, [`DESTRUCTOR`] does that work, and so it does under musl, which runs all destructors behind all exit handlers.
pub fn register() {
    // SAFETY: functions that live as long as the process.
    #[cfg(linked)]
    unsafe {
        __cxa_at_quick_exit(at_exit, core::ptr::null_mut());
    }
    #[cfg(not(linked))]
    // SAFETY: functions that live as long as the process.
    unsafe {
        if libc_version::is_glibc() {
            __cxa_atexit(at_exit, core::ptr::null_mut(), core::ptr::null_mut());
            next::cxa_at_quick_exit().map(|register| register(at_exit, core::ptr::null_mut()));
        } else {
            next::at_quick_exit().map(|register| register(at_exit));
        }
    }
}

/// Registers the fork handlers, as the first of all: ours run when those of the program and of its libraries have run
/// before a fork, and before them after it. So what those wait for or allocate is recorded as usual, and the time between
/// our handler and the fork is the C library's alone. What may allocate with the program's allocator has to wait for its
/// handlers, though: see [`behind_others`].
pub fn register_fork_handlers() {
    if OURS_ARE_THERE.load(Ordering::Relaxed) {
        return;
    }
    // Our allocator is ready with its first block, and not before: its own handlers, which are called by ours, must not
    // run earlier.
    drop(core::hint::black_box(Box::new(0_u64)));
    // SAFETY: functions that live as long as the process.
    unsafe { next_atfork(Some(before_fork), Some(in_parent), Some(in_child), core::ptr::null_mut()) };
    OURS_ARE_THERE.store(true, Ordering::Relaxed);
}

/// Calls the C library's function that registers fork handlers: glibc's, or musl's, whose handlers belong to no object.
unsafe fn next_atfork(
    prepare: next::ForkHandler,
    parent: next::ForkHandler,
    child: next::ForkHandler,
    object: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match next::register_atfork() {
            Some(register) => register(prepare, parent, child, object),
            #[cfg(not(linked))]
            None if !libc_version::is_glibc() => {
                next::pthread_atfork().map_or(libc::ENOMEM, |register| register(prepare, parent, child))
            }
            None => libc::ENOMEM,
        }
    }
}

/// `__register_atfork`, which glibc's `pthread_atfork` is made of.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __register_atfork(
    prepare: next::ForkHandler,
    parent: next::ForkHandler,
    child: next::ForkHandler,
    object: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { register_atfork(prepare, parent, child, object) }
}

/// `pthread_atfork(3)`, musl's; under glibc, old programs alone look it up.
#[cfg(not(linked))]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_atfork(
    prepare: next::ForkHandler,
    parent: next::ForkHandler,
    child: next::ForkHandler,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { register_atfork(prepare, parent, child, core::ptr::null_mut()) }
}

/// Our own fork handlers are registered.
static OURS_ARE_THERE: AtomicBool = AtomicBool::new(false);
/// Handlers of ours that were registered behind others.
static BEHIND_OTHERS: AtomicU32 = AtomicU32::new(0);
/// In a child: how many of them have run.
static HAVE_RUN: AtomicU32 = AtomicU32::new(0);
/// In a child: it is recorded, and its writer has no thread yet.
static WANTS_WRITER: AtomicBool = AtomicBool::new(false);

/// Registers handlers: whoever does, ours are there before. Behind those that do anything in a child comes
/// [`behind_others`].
unsafe fn register_atfork(
    prepare: next::ForkHandler,
    parent: next::ForkHandler,
    child: next::ForkHandler,
    object: *mut c_void,
) -> c_int {
    let own: unsafe extern "C" fn() = own_allocator::before_fork;
    if prepare.is_some_and(|prepare| core::ptr::fn_addr_eq(prepare, own)) {
        // Our allocator asks in the middle of its first steps. In a process with threads, one that forked right then would
        // have its handlers use what is not there yet.
        return 0;
    }
    start::ensure();
    // What is registered before ours also runs before ours in a child.
    let is_followed = child.is_some() && OURS_ARE_THERE.load(Ordering::Relaxed);
    // Counted first: a fork of another thread meanwhile waits for one that is not there, and its child has no writer's
    // thread, instead of one that was made too early.
    BEHIND_OTHERS.fetch_add(u32::from(is_followed), Ordering::Relaxed);
    // SAFETY: the caller's arguments; a function that lives as long as the process.
    let (result, is_behind) = unsafe {
        let result = next_atfork(prepare, parent, child, object);
        let wanted = result == 0 && is_followed;
        (result, wanted && next_atfork(None, None, Some(behind_others), core::ptr::null_mut()) == 0)
    };
    if is_followed && !is_behind {
        BEHIND_OTHERS.fetch_sub(1, Ordering::Relaxed);
    }
    result
}

/// In a child, behind each of the program's handlers: the last one starts the writer's thread. The C library allocates for
/// a thread, with the program's allocator, whose locks are held until its handler has run.
unsafe extern "C" fn behind_others() {
    let have_run = HAVE_RUN.fetch_add(1, Ordering::Relaxed) + 1;
    if have_run >= BEHIND_OTHERS.load(Ordering::Relaxed) && WANTS_WRITER.swap(false, Ordering::Relaxed) {
        let errno = start::errno();
        let _signals = sys::SignalsBlocked::new();
        tracehound_lifecycle::start_writer();
        start::set_errno(errno);
    }
}

unsafe extern "C" fn at_exit(_: *mut c_void) {
    start::finish();
}

/// Destructors run from the last to the first, and the linker sorts by these numbers: ours is the last.
#[cfg(linked)]
#[used]
#[unsafe(link_section = ".fini_array.00000")]
static DESTRUCTOR: extern "C" fn() = start::finish;

/// A preloaded library's constructor runs before those of all others but the C library's, so its destructor runs behind
/// theirs. glibc has an exit handler of ours that runs behind those.
#[cfg(not(linked))]
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = finish_under_musl;

#[cfg(not(linked))]
extern "C" fn finish_under_musl() {
    if !libc_version::is_glibc() {
        start::finish();
    }
}

unsafe extern "C" fn before_fork() {
    let errno = start::errno();
    tracehound_lifecycle::before_fork();
    if start::follows_children() {
        tracehound_lifecycle::before_followed_fork();
    }
    // SAFETY: the allocator is ready since the handlers are registered.
    unsafe { own_allocator::before_fork() };
    start::set_errno(errno);
}

unsafe extern "C" fn in_parent() {
    // SAFETY: behind its handler before the fork.
    unsafe { own_allocator::in_parent() };
    tracehound_lifecycle::after_followed_fork();
}

unsafe extern "C" fn in_child() {
    let errno = start::errno();
    // A signal handler must find the child recorded.
    let _signals = sys::SignalsBlocked::new();
    // SAFETY: behind its handler before the fork.
    unsafe { own_allocator::in_child() };
    start::is_ready_in_child();
    let inherited = tracehound_lifecycle::forget_in_child();
    gate::slot().internal.set(0);
    HAVE_RUN.store(0, Ordering::Relaxed);
    WANTS_WRITER.store(false, Ordering::Relaxed);
    if let Some(inherited) = inherited.filter(|_| start::follows_children()) {
        {
            let _internal = Internal::enter();
            start::begin(Some(&inherited));
            let others = BEHIND_OTHERS.load(Ordering::Relaxed);
            WANTS_WRITER.store(others > 0, Ordering::Relaxed);
            if others == 0 {
                tracehound_lifecycle::start_writer();
            }
        }
        gate::slot().armed.set(0);
        start::arm();
    }
    tracehound_lifecycle::child_is_ready();
    start::set_errno(errno);
}

/// Ends the process at once, all threads, without exit handlers.
fn exit_now(status: c_int) -> ! {
    // Without a recording no system call of ours: the program may have forbidden it.
    if start::is_loaded() && start::recorded_pid() != 0 && start::recorded_pid() == sys::process_id() {
        start::finish();
    }
    sys::exit_process(status)
}

/// The calling thread is about to end by the system call. With the program's only thread the process ends.
pub fn thread_exits_by_number() {
    // Without a recording no system call of ours, as above.
    let recorded = if start::is_loaded() { start::recorded_pid() } else { 0 };
    if recorded != 0 && recorded == sys::process_id() && tracehound_lifecycle::is_only_thread() {
        start::finish();
        tracehound_lifecycle::leave_as_last();
    }
}

/// `_exit(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    exit_now(status)
}

/// `_Exit(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    exit_now(status)
}

hook!(private exit_entry, 1, exit_body);

/// Where `_exit` leads in a process that was attached to.
unsafe extern "C-unwind" fn exit_body(status: c_int, _: u64, _: u64) {
    exit_now(status)
}

hook!(fork, 0, fork_body);
hook!(daemon, 2, daemon_body);

unsafe extern "C-unwind" fn fork_body(stack: u64, frame: u64) -> c_int {
    start::ensure();
    // SAFETY: plain forwarding; the child's handler runs inside.
    let child = unsafe { next::fork().map_or(-1, |function| function()) };
    if child > 0 {
        let errno = start::errno();
        tracehound_lifecycle::forked(child as u32);
        // SAFETY: called by the hook alone, with the caller's state.
        unsafe { record::single(caller(stack, frame), Kind::Fork, 0, child as usize) };
        start::set_errno(errno);
    }
    child
}

/// Where a call of `_Fork` goes on, for the hook to jump to.
#[cfg(not(linked))]
extern "C" fn look_at_fork() -> usize {
    unfollowed::child_without_handlers();
    match next::fork_without_handlers_address() {
        0 => no_such_function as *const () as usize,
        address => address,
    }
}

/// Where a call of `clone` goes on. With memory in common it makes a thread, or a child that execs soon.
extern "C" fn look_at_clone(_: usize, _: usize, flags: c_int) -> usize {
    if flags & libc::CLONE_VM == 0 {
        unfollowed::child_without_handlers();
    }
    match next::clone_address() {
        0 => no_such_function as *const () as usize,
        address => address,
    }
}

extern "C" fn no_such_function() -> c_int {
    start::set_errno(libc::ENOSYS);
    -1
}

// In a program that is linked statically the C library's own `fork` calls it by this name.
#[cfg(not(linked))]
passes_on!(
    /// `_Fork(3)`: `fork` without its handlers, which follow children here.
    _Fork, look_at_fork
);
passes_on!(
    /// `clone(2)`.
    clone, look_at_clone
);

/// `daemon(3)` ends the calling process inside libc, behind its fork: the recording is finished right before that, and
/// goes on should the call fail.
unsafe extern "C-unwind" fn daemon_body(keep_directory: c_int, keep_streams: c_int, _: u64, _: u64) -> c_int {
    start::ensure();
    tracehound_lifecycle::end_at_fork();
    // SAFETY: plain forwarding.
    let result = unsafe { next::daemon().map_or(-1, |function| function(keep_directory, keep_streams)) };
    // Not in the child, which has a recording of its own or none.
    if tracehound_lifecycle::ended_at_fork() {
        let errno = start::errno();
        tracehound_lifecycle::resume();
        start::set_errno(errno);
    }
    result
}

/// `unshare(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn unshare(flags: c_int) -> c_int {
    const ALONE: c_int = libc::CLONE_NEWUSER | libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
    start::ensure();
    // SAFETY: the program's argument.
    let call = || unsafe { next::unshare().map_or(-1, |function| function(flags)) };
    if flags & ALONE != 0 { tracehound_lifecycle::without_writer(call) } else { call() }
}

/// `setns(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setns(fd: c_int, kind: c_int) -> c_int {
    start::ensure();
    // SAFETY: the program's arguments.
    tracehound_lifecycle::without_writer(|| unsafe { next::setns().map_or(-1, |function| function(fd, kind)) })
}
