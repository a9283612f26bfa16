//! The C interface of `tracehound.h`, the toggle signal, and hooks that only tell the recorder something.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use tracehound_format::record::Kind;
use tracehound_record::record;
use tracehound_record::request_context;
use tracehound_shared::gate::{self, Internal};
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
    // SAFETY: called by the hook alone, with the caller's state; so for all of these.
    unsafe { tracehound_lifecycle::resume_recording(caller(stack, frame)) }
}

unsafe extern "C-unwind" fn stop_body(stack: u64, frame: u64) {
    start::ensure();
    // SAFETY: see above.
    unsafe { tracehound_lifecycle::stop(caller(stack, frame)) }
}

unsafe extern "C-unwind" fn mark_body(label: *const c_char, stack: u64, frame: u64) {
    start::ensure();
    // SAFETY: the label is a terminated string or null; see above for the caller.
    unsafe {
        let label = if label.is_null() { &[][..] } else { CStr::from_ptr(label).to_bytes() };
        tracehound_lifecycle::mark(caller(stack, frame), label);
    }
}

unsafe extern "C-unwind" fn pool_alloc_body(block: *mut c_void, size: usize, stack: u64, frame: u64) {
    if !block.is_null() && start::ensure() {
        start::arm();
        // SAFETY: see above.
        unsafe { record::single(caller(stack, frame), Kind::PoolAlloc, block as u64, size) };
    }
}

unsafe extern "C-unwind" fn pool_free_body(block: *mut c_void, stack: u64, frame: u64) {
    if !block.is_null() && start::ensure() {
        start::arm();
        // SAFETY: see above.
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
    // SAFETY: as the caller promises.
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
}

/// Defines a hook that looks at a call with up to three arguments and jumps on. The jump keeps the caller's address, by
/// which the loader finds the caller's search path and namespace.
#[cfg(target_arch = "x86_64")]
macro_rules! look_and_jump {
    ($name:ident, $look:path) => {
        #[doc = concat!("The hook of `", stringify!($name), "`, only looked at on the way.")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "call {look}",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "jmp rax",
                ".cfi_endproc",
                look = sym $look
            )
        }
    };
}

/// As above; here the caller's address stays in its register.
#[cfg(target_arch = "aarch64")]
macro_rules! look_and_jump {
    ($name:ident, $look:path) => {
        #[doc = concat!("The hook of `", stringify!($name), "`, only looked at on the way.")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "hint #34",
                "stp x29, x30, [sp, #-48]!",
                ".cfi_def_cfa_offset 48",
                ".cfi_offset x29, -48",
                ".cfi_offset x30, -40",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "bl {look}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                ".cfi_def_cfa_offset 0",
                "br x16",
                ".cfi_endproc",
                look = sym $look
            )
        }
    };
}

look_and_jump!(dlopen, look_at_dlopen);
look_and_jump!(dlmopen, look_at_dlmopen);

/// Gives the address to jump to.
unsafe extern "C" fn look_at_dlmopen(namespace: libc::c_long, path: *const c_char, _: c_int) -> usize {
    start::ensure();
    if namespace != 0 && !path.is_null() {
        // SAFETY: the program passes a terminated string.
        let path = unsafe { CStr::from_ptr(path) };
        remark(
            "dlmopen",
            |path| format!("{path} was opened by dlmopen: what it allocates in its namespace is not seen"),
            path,
        );
    }
    next::dlmopen_address()
}

/// Adds a remark about something that the program opened.
fn remark(topic: &'static str, text: impl FnOnce(&str) -> String, path: &CStr) {
    if let Some(session) = session::current().filter(|session| session.pid == sys::process_id()) {
        let errno = start::errno();
        let _internal = Internal::enter();
        let text = text(&path.to_string_lossy());
        session.remark(tracehound_shared::clock::now_after_alloc(), topic, text);
        start::set_errno(errno);
    }
}

/// Gives the address to jump to.
unsafe extern "C" fn look_at_dlopen(path: *const c_char, flags: c_int) -> usize {
    start::ensure();
    if flags & libc::RTLD_DEEPBIND != 0 && !path.is_null() {
        let text =
            |path: &str| format!("{path} was opened with RTLD_DEEPBIND: its calls of malloc may bypass the recorder");
        // SAFETY: the program passes a terminated string.
        remark("deepbind", text, unsafe { CStr::from_ptr(path) });
    }
    next::dlopen_address()
}

/// Remarks on it when the program's own calls of malloc do not come to this library first.
pub fn look_at_first_malloc() {
    // SAFETY: a constant, terminated name, which every process has.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    if first.is_null() || core::ptr::eq(first, crate::hooks::malloc as *const () as *const c_void) {
        return;
    }
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address of a loaded object, and a place for the answer, which names it by a terminated string.
    let path = unsafe {
        if libc::dladdr(first, info.as_mut_ptr()) == 0 || info.assume_init_ref().dli_fname.is_null() {
            return;
        }
        CStr::from_ptr(info.assume_init_ref().dli_fname)
    };
    let text = |path: &str| format!("malloc is {path}'s own: only what that asks of the next allocator is recorded");
    remark("first-malloc", text, path);
}
