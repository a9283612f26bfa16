//! The side of `heaptrace attach` inside the process: the functions that a borrowed thread calls.
//!
//! Hooks by symbol name have no effect then. heaptrace writes a jump to the hook at the beginning of each function, and
//! passes the addresses by which the original code can be called. Here the functions are looked up, the recording is
//! set up in files that heaptrace has opened, and its thread is started; see [`tracehound_format::attach`] for what
//! follows.
//!
//! A dormant recorder that was loaded at the start of the program is used as it is: it has its hooks already.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::ffi::CString;

use tracehound_background::output::{self, Output};
use tracehound_format::attach::{self, AttachBlock, AttachHook, AttachPatch, AttachRequest, HOOKS, PATCHES};
use tracehound_format::options::{AllocatorChoice, LaunchOptions};
use tracehound_shared::gate::{self, Internal, ThreadGate};
use tracehound_shared::sys;
use tracehound_shared::thread::{MODE, ThreadContext};

use crate::{api, credentials, exec, hooks, maps, next, process, seccomp, start};

/// The block, found from outside by its name.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a symbol's name")]
pub static tracehound_attach: AttachBlock = AttachBlock {
    magic: attach::MAGIC,
    version: attach::VERSION,
    state: AtomicU32::new(attach::DORMANT),
    command: AtomicU32::new(attach::command::NONE),
    pid: AtomicU32::new(0),
    writer: AtomicU32::new(0),
    hook_count: AtomicU32::new(0),
    late: AtomicU32::new(0),
    dormant: AtomicU32::new(0),
    slot_offset: AtomicU64::new(0),
    slot_internal: core::mem::offset_of!(ThreadGate, internal) as u32,
    slot_stack: core::mem::offset_of!(ThreadGate, stack_of_ours) as u32,
    context_inner: core::mem::offset_of!(ThreadContext, inner) as u32,
    mode_mask: MODE as u32,
    prepare_ns: AtomicU64::new(0),
    code: [AtomicU64::new(0), AtomicU64::new(0)],
    malloc: AtomicU64::new(0),
    patch_count: AtomicU64::new(0),
    failure: [const { AtomicU64::new(0) }; 32],
    hooks: [const {
        AttachHook {
            name: [const { AtomicU64::new(0) }; 3],
            hook: AtomicU64::new(0),
            target: AtomicU64::new(0),
            spares_own_calls: AtomicU64::new(0),
        }
    }; HOOKS],
    patches: [const {
        AttachPatch {
            at: AtomicU64::new(0),
            before: AtomicU64::new(0),
            after: AtomicU64::new(0),
            len: AtomicU64::new(0),
        }
    }; PATCHES],
};

const _: () = assert!(core::mem::offset_of!(ThreadGate, context) == 0);
const _: () = assert!(core::mem::offset_of!(ThreadContext, state) == 0);

const EXIT: &CStr = c"_exit";

/// Functions that the C library calls for the program: calls from inside it are the program's, too.
const CALLED_INSIDE: [&CStr; 4] = [EXIT, c"execve", c"execveat", c"fexecve"];

/// What is hooked, in the order of the block: the name, and the hook.
const HOOKED: [(&CStr, unsafe extern "C" fn()); attach::HOOKED.len()] = [
    (c"malloc", hooks::malloc),
    (c"calloc", hooks::calloc),
    (c"realloc", hooks::realloc),
    (c"reallocarray", hooks::reallocarray),
    (c"free", hooks::free),
    (c"posix_memalign", hooks::posix_memalign),
    (c"aligned_alloc", hooks::aligned_alloc),
    (c"memalign", hooks::memalign),
    (c"valloc", hooks::valloc),
    (c"pvalloc", hooks::pvalloc),
    (c"mmap", maps::mmap),
    (c"munmap", maps::munmap),
    (c"mremap", maps::mremap),
    (c"brk", maps::brk),
    (c"sbrk", maps::sbrk),
    // `exit` calls it last, when all handlers and destructors have run.
    (EXIT, process::exit_entry),
    (c"setuid", credentials::setuid),
    (c"setgid", credentials::setgid),
    (c"seteuid", credentials::seteuid),
    (c"setegid", credentials::setegid),
    (c"setreuid", credentials::setreuid),
    (c"setregid", credentials::setregid),
    (c"setresuid", credentials::setresuid),
    (c"setresgid", credentials::setresgid),
    (c"setgroups", credentials::setgroups),
    (c"initgroups", credentials::initgroups),
    (c"execve", exec::entries::EXECVE),
    (c"execveat", exec::entries::EXECVEAT),
    (c"fexecve", exec::entries::FEXECVE),
    (c"prctl", api::PRCTL_ENTRY),
    (c"syscall", seccomp::syscall),
];

const _: () = assert!(are_known());

/// Whether these are the functions that `heaptrace` expects.
const fn are_known() -> bool {
    let mut at = 0;
    while at < HOOKED.len() {
        let (here, there) = (HOOKED[at].0.to_bytes(), attach::HOOKED[at].as_bytes());
        let mut byte = 0;
        while byte < here.len() && byte < there.len() && here[byte] == there[byte] {
            byte += 1;
        }
        if byte < here.len() || byte < there.len() {
            return false;
        }
        at += 1;
    }
    true
}

/// Looks up what the program calls by the hooked names: in libc, or in what comes before it.
#[unsafe(no_mangle)]
pub extern "C" fn tracehound_attach_look() {
    let block = &tracehound_attach;
    for ((name, hook), place) in HOOKED.iter().zip(&block.hooks) {
        // SAFETY: a terminated name.
        let mut target = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as u64;
        let hook = *hook as *const () as u64;
        if target == hook {
            target = 0;
        }
        put_text(&place.name, name.to_bytes());
        place.spares_own_calls.store(u64::from(!CALLED_INSIDE.contains(name)), Ordering::Relaxed);
        place.hook.store(hook, Ordering::Relaxed);
        place.target.store(target, Ordering::Relaxed);
        if *name == c"malloc" {
            let next = || next::malloc().map_or(0, |malloc| malloc as *const () as u64);
            block.malloc.store(if target == 0 { next() } else { target }, Ordering::Relaxed);
        }
    }
    let thread_pointer = thread_pointer();
    block.slot_offset.store((core::ptr::from_ref(gate::slot()) as u64).wrapping_sub(thread_pointer), Ordering::Relaxed);
    block.hook_count.store(HOOKED.len() as u32, Ordering::Release);
}

/// Sets a recording up. 0, or an error number; then the block says why in words.
///
/// # Safety
/// Called by `heaptrace attach` alone, on a thread that may call anything, with a request that lives until it returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tracehound_attach_prepare(request: *const AttachRequest) -> c_int {
    let errno = start::errno();
    if !start::is_ready() {
        // SAFETY: the request lives until this returns: the contract of `tracehound_attach_prepare`.
        unsafe { &*request }.descriptors.into_iter().for_each(sys::close);
        put_text(&tracehound_attach.failure, attach::FORKED_MEANWHILE.as_bytes());
        start::set_errno(errno);
        return libc::EINVAL;
    }
    let started = sys::clock(libc::CLOCK_MONOTONIC);
    // SAFETY: the request lives until this returns: the contract of `tracehound_attach_prepare`.
    let outcome = start::attach(|is_first| set_up(unsafe { &*request }, is_first));
    let taken = sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(started);
    tracehound_attach.prepare_ns.store(taken, Ordering::Relaxed);
    start::set_errno(errno);
    match outcome {
        Ok(()) => 0,
        Err(text) => {
            put_text(&tracehound_attach.failure, text.as_bytes());
            libc::EINVAL
        }
    }
}

/// Wakes a recorder that sleeps.
#[unsafe(no_mangle)]
pub extern "C" fn tracehound_attach_wake() {
    start::wake();
}

/// Puts a text into words, ended by a zero; what has no room is cut off.
fn put_text(places: &[AtomicU64], text: &[u8]) {
    let cut = text.get(..text.len().min(places.len() * 8 - 1)).unwrap_or_default();
    for (place, at) in places.iter().zip((0..).step_by(8)) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(cut.get(at..).unwrap_or_default()) {
            *to = *from;
        }
        place.store(u64::from_le_bytes(word), Ordering::Relaxed);
    }
}

fn set_up(request: &AttachRequest, is_first: bool) -> Result<(), String> {
    let _internal = Internal::enter();
    let get = |name: &str| option(&request.options, name);
    let (output, block_list) = opened(request)?;
    let closed = |why: String| {
        [output.file, output.side_file, output.directory, block_list].into_iter().for_each(sys::close);
        why
    };
    let options = LaunchOptions::parse(get).map_err(|bad| closed(bad.to_string()))?;
    if options.allocator == AllocatorChoice::Jemalloc {
        return Err(closed("another allocator cannot take over in a process that runs already".into()));
    }
    let given = start::given_by(get);
    for ((name, _), &function) in HOOKED.iter().zip(&request.functions) {
        if function != 0 && *name != EXIT {
            next::set(name.to_bytes(), function as usize);
        }
    }
    if is_first {
        start::watch_thread_ends();
    }
    let filtered = request.filtered != 0;
    tracehound_lifecycle::start_attached(&tracehound_attach, options, given, output, block_list, filtered)
}

/// The files of the request, and the list of blocks.
fn opened(request: &AttachRequest) -> Result<(Output, i32), String> {
    let bad = || "the recording's path cannot be used".to_owned();
    let path = CStr::from_bytes_until_nul(&request.path).map_err(|_| bad())?;
    let name = path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let text = |parts: [&[u8]; 2]| CString::new(parts.concat()).map_err(|_| bad());
    let [file, side_file, directory, block_list] = request.descriptors.map(sys::move_high);
    let output = Output {
        path: path.to_owned(),
        side_path: text([path.to_bytes(), b".live"])?,
        name: text([name, b""])?,
        side_name: text([name, b".live"])?,
        file,
        side_file,
        directory,
        locked: output::lock(file),
    };
    Ok((output, block_list))
}

/// The value of `NAME=value` among texts that end with zeros.
fn option<'a>(texts: &'a [u8], name: &str) -> Option<&'a [u8]> {
    texts
        .split(|&byte| byte == 0)
        .take_while(|text| !text.is_empty())
        .find_map(|text| text.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: reads the word at the thread pointer, which is the pointer itself.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(readonly, nostack, preserves_flags)) };
    pointer
}

#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}
