//! The unwinder behind a C interface, for the traced programs of these tests: `probe()` takes the backtrace of
//! its caller as a hook of malloc would, and the rest reads what it found.

use std::arch::naked_asm;
use std::cell::Cell;
use std::sync::OnceLock;

use tracehound_collector::hot::unwind::{Caller, Captured, Engine, Unwinder, capture_nested, code_changed};
use tracehound_collector::shared::call_tree::{CallTree, NodeId};

static TREE: OnceLock<CallTree> = OnceLock::new();

fn tree() -> &'static CallTree {
    TREE.get_or_init(|| CallTree::create(1 << 24).expect("address space for the call tree"))
}

struct Thread {
    unwinder: Cell<*mut Unwinder>,
    busy: Cell<bool>,
}

thread_local! {
    static THREAD: Thread = const { Thread { unwinder: Cell::new(std::ptr::null_mut()), busy: Cell::new(false) } };
}

fn engine() -> Engine {
    match std::env::var("PROBE_ENGINE").as_deref() {
        Ok("libunwind") => Engine::LibUnwind,
        Ok("frame-pointer") => Engine::FramePointer,
        _ => Engine::Cached,
    }
}

/// Takes the backtrace of its caller: node in the low 32 bits, flags above.
///
/// # Safety
/// None beyond the C ABI.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn probe() -> u64 {
    naked_asm!("mov rdi, [rsp]", "lea rsi, [rsp + 8]", "mov rdx, rbp", "jmp {}", sym capture)
}

unsafe extern "C" fn capture(pc: u64, sp: u64, fp: u64) -> u64 {
    let caller = Caller { pc, sp, fp };
    let captured = THREAD.with(|thread| {
        if thread.busy.replace(true) {
            // SAFETY: the state is that of the function which called `probe`.
            return unsafe { capture_nested(tree(), caller) };
        }
        if thread.unwinder.get().is_null() {
            // SAFETY: as above.
            thread.unwinder.set(unsafe { Unwinder::create(engine(), tree(), caller) });
        }
        // SAFETY: this thread's unwinder; `busy` keeps it from being re-entered.
        let captured = unsafe { (*thread.unwinder.get()).capture(caller) };
        thread.busy.set(false);
        captured
    });
    pack(captured)
}

fn pack(captured: Captured) -> u64 {
    u64::from(captured.node.0) | u64::from(captured.flags) << 32
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

/// Tells the unwinder that code was loaded or unloaded.
#[unsafe(no_mangle)]
pub extern "C" fn probe_code_changed() {
    code_changed();
}

/// A counter of this thread's unwinder.
#[unsafe(no_mangle)]
pub extern "C" fn probe_stat(which: i32) -> u64 {
    THREAD.with(|thread| {
        // SAFETY: null or this thread's unwinder, which nobody else uses.
        let Some(unwinder) = (unsafe { thread.unwinder.get().as_ref() }) else { return 0 };
        let stats = unwinder.stats();
        match which {
            0 => stats.learned,
            1 => stats.truncated,
            2 => stats.guessed,
            3 => stats.slow,
            4 => stats.forgotten,
            5 => stats.records,
            6 => stats.bytes,
            7 => u64::from(tree().len()),
            _ => 0,
        }
    })
}
