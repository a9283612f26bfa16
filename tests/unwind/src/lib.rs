//! The unwinder behind a C interface, for the traced programs of these tests: `probe()` takes the backtrace of
//! its caller as a hook of malloc would, and the rest reads what it found.

#[cfg(target_arch = "x86_64")]
mod framehop;

use std::arch::naked_asm;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracehound_lifecycle::load_frame_sections;
use tracehound_shared::call_tree::{CallTree, NodeId};
use tracehound_shared::stack_counters::StackCounters;
use tracehound_unwind::{
    Caller, Captured, FRAME_POINTERS, HEURISTIC, REGISTERED, Registration, UnwindEngine, Unwinder, capture_nested,
    code_changed, frames_deregistered, frames_registered, prepare_libunwind,
};

static TREE: OnceLock<CallTree> = OnceLock::new();

fn tree() -> &'static CallTree {
    TREE.get_or_init(|| CallTree::create(1 << 24).expect("address space for the call tree"))
}

/// What a thread needs to take backtraces: reached as the recorder reaches its own, by two instructions.
/// As the recorder does before its first event: threads that come while one of them does this would know no object, and
/// leave rules for code without unwind information in the shared cache.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    tracehound_unwind::init();
}

struct Thread {
    unwinder: Cell<*mut Unwinder>,
    busy: Cell<bool>,
}

std::arch::global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".p2align 4",
    ".hidden tracehound_probe_thread",
    ".globl tracehound_probe_thread",
    ".type tracehound_probe_thread,@object",
    ".size tracehound_probe_thread, 16",
    "tracehound_probe_thread: .zero 16",
    ".text"
);

#[inline(always)]
fn thread() -> &'static Thread {
    let thread: *const Thread;
    // SAFETY: the slot above is zeroed for each thread, which is a valid `Thread`; only its thread uses it.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!(
            "mrs {1}, tpidr_el0",
            "adrp {0}, :gottprel:tracehound_probe_thread",
            "ldr {0}, [{0}, :gottprel_lo12:tracehound_probe_thread]",
            "add {0}, {0}, {1}",
            out(reg) thread,
            out(reg) _,
            options(nostack, readonly, pure)
        );
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!(
            "mov {0}, qword ptr [rip + tracehound_probe_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) thread,
            options(nostack, readonly, pure)
        );
        &*thread
    }
}

fn engine() -> UnwindEngine {
    match std::env::var("PROBE_ENGINE").as_deref() {
        Ok("libunwind") => UnwindEngine::LibUnwind,
        Ok("frame-pointer") => UnwindEngine::FramePointer,
        _ => UnwindEngine::Cached,
    }
}

/// Takes the backtrace of its caller: node in the low 32 bits, flags above.
///
/// # Safety
/// None beyond the C ABI.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn probe() -> u64 {
    #[cfg(target_arch = "aarch64")]
    naked_asm!("hint #34", "mov x0, x30", "mov x1, sp", "mov x2, x29", "b {}", sym probe_at);
    #[cfg(target_arch = "x86_64")]
    naked_asm!("mov rdi, [rsp]", "lea rsi, [rsp + 8]", "mov rdx, rbp", "jmp {}", sym probe_at)
}

/// Takes the backtrace of the function in this state.
///
/// # Safety
/// The state must be that of a function on the running thread that has not returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_at(pc: u64, sp: u64, fp: u64) -> u64 {
    let caller = Caller { pc, sp, fp };
    let thread = thread();
    if thread.busy.replace(true) {
        // SAFETY: as the caller promises.
        return pack(unsafe { capture_nested(tree(), caller) });
    }
    if thread.unwinder.get().is_null() {
        // SAFETY: as above.
        thread.unwinder.set(unsafe { create(caller) });
    }
    // SAFETY: this thread's unwinder; `busy` keeps it from being re-entered.
    let captured = unsafe { (*thread.unwinder.get()).capture(caller) };
    thread.busy.set(false);
    pack(captured)
}

/// As [`probe`], the way a signal handler takes it in the middle of another capture.
///
/// # Safety
/// None beyond the C ABI.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn probe_nested() -> u64 {
    #[cfg(target_arch = "aarch64")]
    naked_asm!("hint #34", "mov x0, x30", "mov x1, sp", "mov x2, x29", "b {}", sym nested);
    #[cfg(target_arch = "x86_64")]
    naked_asm!("mov rdi, [rsp]", "lea rsi, [rsp + 8]", "mov rdx, rbp", "jmp {}", sym nested)
}

unsafe extern "C" fn nested(pc: u64, sp: u64, fp: u64) -> u64 {
    // SAFETY: the state is that of the function which called `probe_nested`.
    pack(unsafe { capture_nested(tree(), Caller { pc, sp, fp }) })
}

/// The PCs of the caller's stack by framehop; answers how many there are. Not asked on aarch64.
///
/// # Safety
/// None: it does nothing.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_framehop(_: *mut u64, _: usize) -> usize {
    0
}

/// The PCs of the caller's stack by framehop; answers how many there are.
///
/// # Safety
/// `out` must have room for `max` values.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn probe_framehop(out: *mut u64, max: usize) -> usize {
    naked_asm!("mov rdx, [rsp]", "lea rcx, [rsp + 8]", "mov r8, rbp", "jmp {}", sym by_framehop)
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn by_framehop(out: *mut u64, max: usize, pc: u64, sp: u64, fp: u64) -> usize {
    let mut count = 0;
    let each = |pc| {
        if count < max {
            // SAFETY: `count` is below `max`.
            unsafe { out.add(count).write(pc) };
            count += 1;
        }
    };
    // SAFETY: the state is that of the function which called `probe_framehop`.
    unsafe { framehop::backtrace(pc, sp, fp, each) };
    count
}

/// Frees this thread's unwinder.
#[unsafe(no_mangle)]
pub extern "C" fn probe_destroy() {
    // SAFETY: this thread's unwinder, or null; not used afterwards.
    unsafe { Unwinder::destroy(thread().unwinder.replace(std::ptr::null_mut())) };
}

/// Makes this thread's unwinder whole after a capture was left by a jump.
#[unsafe(no_mangle)]
pub extern "C" fn probe_reset() {
    let thread = thread();
    // SAFETY: this thread's unwinder, or null.
    if let Some(unwinder) = unsafe { thread.unwinder.get().as_mut() } {
        unwinder.reset();
    }
    thread.busy.set(false);
}

#[cold]
unsafe fn create(caller: Caller) -> *mut Unwinder {
    if engine() == UnwindEngine::LibUnwind {
        prepare_libunwind();
    }
    // SAFETY: as the caller promises.
    unsafe { Unwinder::create(engine(), tree(), counters(), caller) }
}

/// Counters for another unwinder, in memory that is there already: the first ones again when there are no more.
fn counters() -> &'static StackCounters {
    static ALL: [StackCounters; 1024] = [const { StackCounters::new() }; 1024];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let counters = &ALL[NEXT.fetch_add(1, Ordering::Relaxed) % ALL.len()];
    counters.clear();
    counters
}

fn pack(captured: Captured) -> u64 {
    // Frame pointers by convention are not proved: for these tests they are heuristics, where they were not asked for.
    // Registered frames are exact.
    static ASKED_FOR: OnceLock<bool> = OnceLock::new();
    let is_heuristic = |flags: u8| {
        flags & FRAME_POINTERS != 0 && !*ASKED_FOR.get_or_init(|| matches!(engine(), UnwindEngine::FramePointer))
    };
    let heuristic = if is_heuristic(captured.flags) { HEURISTIC } else { 0 };
    let flags = captured.flags & !(FRAME_POINTERS | REGISTERED) | heuristic;
    u64::from(captured.node.0) | u64::from(flags) << 32
}

/// Copies the PCs of a node, innermost first; answers how many there are.
///
/// # Safety
/// `out` must have room for `max` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_pcs(node: u32, out: *mut u64, max: usize) -> usize {
    let mut count = 0;
    let mut id = node;
    while count < max
        && id != NodeId::ROOT.0
        && let Some(node) = tree().get(id)
    {
        // SAFETY: `count` is below `max`.
        unsafe { out.add(count).write(node.pc) };
        count += 1;
        id = node.parent;
    }
    count
}

/// The generation of the code of the frame that is `out` frames outside of a node's.
#[unsafe(no_mangle)]
pub extern "C" fn probe_generation(node: u32, out: u32) -> u32 {
    let outer = (0..out).fold(node, |node, _| tree().get(node).map_or(0, |node| node.parent));
    tree().get(outer).map_or(0, |node| node.generation)
}

/// As the hook of `__register_frame` calls it.
///
/// # Safety
/// `begin` must be a section as `__register_frame` takes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_frames_registered(begin: *const u8) {
    // SAFETY: as the caller promises.
    unsafe { frames_registered(Registration { begin, is_table: false, text_base: 0, data_base: 0 }) };
}

/// As the hook of `__deregister_frame` calls it.
#[unsafe(no_mangle)]
pub extern "C" fn probe_frames_deregistered(begin: *const u8) {
    frames_deregistered(begin);
}

/// Loads the unwind information that was missed so far, as the recorder's own thread does.
#[unsafe(no_mangle)]
pub extern "C" fn probe_load_frame_sections() {
    load_frame_sections();
}

/// Tells the unwinder that code was loaded or unloaded.
#[unsafe(no_mangle)]
pub extern "C" fn probe_code_changed() {
    code_changed();
}

/// A counter of this thread's unwinder.
#[unsafe(no_mangle)]
pub extern "C" fn probe_stat(which: i32) -> u64 {
    // SAFETY: null or this thread's unwinder, which nobody else uses.
    let Some(unwinder) = (unsafe { thread().unwinder.get().as_ref() }) else { return 0 };
    let stats = unwinder.stats();
    match which {
        0 => stats.learned,
        1 => stats.truncated,
        2 => stats.heuristic,
        3 => stats.slow,
        4 => stats.forgotten,
        5 => stats.records,
        6 => stats.bytes,
        7 => u64::from(tree().len()),
        8 => stats.signatures,
        _ => 0,
    }
}
