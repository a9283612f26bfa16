//! The C interface of `tracehound.h`, the toggle signal, and hooks that only pass information to the recorder.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use tracehound_format::record::Kind;
use tracehound_record::record;
use tracehound_record::request_context;
use tracehound_shared::gate;
use tracehound_shared::session;
use tracehound_shared::sys;
use tracehound_unwind::Caller;
use tracehound_unwind::room;

use crate::entry::{caller, hook};
use crate::next;
use crate::seccomp;
use crate::start;

hook!(tracehound_start, 0, start_body);
hook!(tracehound_stop, 0, stop_body);
hook!(tracehound_mark, 1, mark_body);
hook!(tracehound_pool_alloc, 2, pool_alloc_body);
hook!(tracehound_pool_free, 1, pool_free_body);

unsafe extern "C-unwind" fn start_body(stack: u64, frame: u64) {
    start::ensure();
    start::wake();
    // SAFETY: called by the hook alone, with the caller's state.
    unsafe { tracehound_lifecycle::resume_recording(caller(stack, frame)) }
}

unsafe extern "C-unwind" fn stop_body(stack: u64, frame: u64) {
    start::ensure();
    // SAFETY: called by the hook alone, with the caller's state.
    unsafe { tracehound_lifecycle::stop(caller(stack, frame)) }
}

unsafe extern "C-unwind" fn mark_body(label: *const c_char, stack: u64, frame: u64) {
    start::ensure();
    // SAFETY: the label is a terminated string or null; the hook alone calls this, with the caller's state.
    unsafe {
        let label = if label.is_null() { &[][..] } else { CStr::from_ptr(label).to_bytes() };
        tracehound_lifecycle::mark(caller(stack, frame), label);
    }
}

unsafe extern "C-unwind" fn pool_alloc_body(block: *mut c_void, size: usize, stack: u64, frame: u64) {
    if !block.is_null() && start::ensure() {
        start::arm();
        // SAFETY: called by the hook alone, with the caller's state.
        unsafe { record::single(caller(stack, frame), Kind::PoolAlloc, block as u64, size) };
    }
}

unsafe extern "C-unwind" fn pool_free_body(block: *mut c_void, stack: u64, frame: u64) {
    if !block.is_null() && start::ensure() {
        start::arm();
        // SAFETY: called by the hook alone, with the caller's state.
        unsafe { record::single(caller(stack, frame), Kind::PoolFree, block as u64, 0) };
    }
}

/// `tracehound_look(label)`.
///
/// # Safety
/// The label must be a terminated string or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tracehound_look(label: *const c_char) {
    let errno = start::errno();
    start::ensure();
    // SAFETY: the label is a terminated string or null: the contract of `tracehound_look`.
    let label = if label.is_null() { &[][..] } else { unsafe { CStr::from_ptr(label) }.to_bytes() };
    tracehound_lifecycle::look(label);
    start::set_errno(errno);
}

/// `tracehound_flush()`.
#[unsafe(no_mangle)]
pub extern "C" fn tracehound_flush() {
    let errno = start::errno();
    tracehound_lifecycle::flush();
    start::set_errno(errno);
}

/// `tracehound_context_set(id)`.
#[unsafe(no_mangle)]
pub extern "C" fn tracehound_context_set(id: u64) {
    request_context::set(id);
}

/// `tracehound_context_get()`.
#[unsafe(no_mangle)]
pub extern "C" fn tracehound_context_get() -> u64 {
    request_context::get()
}

/// `tracehound_context_name(id, name)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tracehound_context_name(id: u64, name: *const c_char) {
    if !name.is_null() && start::ensure() {
        let errno = start::errno();
        // SAFETY: the program passes a terminated string.
        request_context::name(id, unsafe { CStr::from_ptr(name) }.to_bytes());
        start::set_errno(errno);
    }
}

/// Toggles recording on `signal`, unless the program has a handler of its own for it already.
pub fn install_toggle(signal: c_int) {
    // SAFETY: valid structures; the handler touches nothing but the recorder.
    unsafe {
        let mut before = core::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(signal, core::ptr::null(), &raw mut before) != 0 || before.sa_sigaction > libc::SIG_IGN {
            return;
        }
        let mut action = core::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = tracehound_toggle as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigaction(signal, &raw const action, core::ptr::null_mut());
    }
}

hook!(private tracehound_toggle, 1, toggle_body);

unsafe extern "C-unwind" fn toggle_body(_: c_int, stack: u64, frame: u64) {
    let errno = start::errno();
    // SAFETY: the kernel calls the handler like a function; its return address leads to the signal frame.
    unsafe {
        let caller: Caller = caller(stack, frame);
        tracehound_lifecycle::toggle(caller);
    }
    start::set_errno(errno);
}

/// `pthread_setname_np(3)`: a thread's name reaches the recording at once when it is its own.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int {
    start::ensure();
    // SAFETY: the program's arguments.
    let result = unsafe { next::pthread_setname_np().map_or(libc::ENOSYS, |function| function(thread, name)) };
    if result == 0 {
        // SAFETY: no arguments.
        name_changed(unsafe { libc::pthread_self() } == thread);
    }
    result
}

/// `prctl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    start::ensure();
    // SAFETY: the program's arguments.
    unsafe { seccomp::before_prctl(option, a, b) };
    // SAFETY: the program's arguments; those that it did not pass are ignored by the kernel, as with libc's variadic
    // function.
    let result = unsafe { next::prctl().map_or(-1, |function| function(option, a, b, c, d)) };
    if result == 0 && option == libc::PR_SET_NAME {
        name_changed(true);
    }
    result
}

/// The hook [`prctl`] as an address.
// SAFETY: a function's address, not called by this type.
pub const PRCTL_ENTRY: unsafe extern "C" fn() = unsafe {
    core::mem::transmute::<
        unsafe extern "C-unwind" fn(c_int, usize, usize, usize, usize) -> c_int,
        unsafe extern "C" fn(),
    >(prctl)
};

/// `sigaltstack(2)`: there may be less room on it than the recorder would like to have.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigaltstack(stack: *const libc::stack_t, before: *mut libc::stack_t) -> c_int {
    start::ensure();
    // SAFETY: the program's arguments.
    let result = unsafe { next::sigaltstack().map_or(-1, |function| function(stack, before)) };
    // SAFETY: null, or what the kernel has read.
    if let (0, Some(stack)) = (result, unsafe { stack.as_ref() }) {
        let (low, len) = (stack.ss_sp as u64, stack.ss_size as u64);
        let none = stack.ss_flags & libc::SS_DISABLE != 0;
        room::signal_stack_changed(low, if none { low } else { low.saturating_add(len) });
    }
    result
}

fn name_changed(own: bool) {
    let Some(session) = session::current() else { return };
    if gate::is_internal() || session.pid != sys::process_id() {
        return;
    }
    if own {
        // SAFETY: contexts stay mapped.
        if let Some(context) = unsafe { gate::slot().context.get().as_ref() } {
            context.set_name(sys::thread_name());
        }
    } else {
        session.names_changed.store(true, Ordering::Release);
    }
    session.hurry();
}
