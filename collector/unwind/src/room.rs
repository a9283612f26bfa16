//! Stack space for the recorder's work off the fast path: the thread's own stack where enough of it is certainly
//! left, else a stack of the recorder.
//!
//! ```text
//! own stack of the thread, ROOM bytes below the stack pointer known to be there   ─▶ right here
//! alternate signal stack, coroutine, the last bytes of a small stack              ─▶ a stack of ours, signals blocked
//! ```
//! A program may run a handler on 2 KiB and a thread on 16. The allocator needs a few hundred bytes of them; a new backtrace
//! or a thread's first event need kilobytes. While a stack of ours is in use no handler runs: one with SA_ONSTACK would
//! begin at the top of the alternate stack again, over the handler that has called us.

use core::ffi::c_void;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::sync::atomic::Ordering;

use crate::top_of_own_stack;
use tracehound_shared::gate::{self, ThreadGate};
use tracehound_shared::sys::{self, is_readable};
use tracehound_shared::thread::ThreadContext;

/// Bytes that must be left of a stack to work on it.
const ROOM: u64 = 16 << 10;
/// A stack of ours. Pages that are not used take no memory.
const STACK_BYTES: usize = 64 << 10;
const PAGE: u64 = 4096;
/// Bytes below the known part of a thread's stack that are checked at once.
const MAX_STEP: u64 = 1 << 20;

/// Calls `work` on the same stack: threads of the model have room.
#[cfg(loom)]
pub fn with_room<T, F: FnOnce() -> T>(work: F) -> T {
    work()
}

type Work = unsafe extern "C" fn(*mut c_void);

/// Calls `work` on a stack with room. It must neither unwind nor call the program's code.
#[inline]
#[cfg(not(loom))]
pub fn with_room<T, F: FnOnce() -> T>(work: F) -> T {
    struct Task<F, T> {
        work: ManuallyDrop<F>,
        result: MaybeUninit<T>,
    }
    unsafe extern "C" fn run<T, F: FnOnce() -> T>(task: *mut c_void) {
        // SAFETY: `call` passes the task below, once.
        unsafe {
            let task = &mut *task.cast::<Task<F, T>>();
            task.result.write(ManuallyDrop::take(&mut task.work)());
        }
    }
    let mut task = Task { work: ManuallyDrop::new(work), result: MaybeUninit::uninit() };
    // SAFETY: `run` wants this task, once; it neither unwinds nor calls the program's code, as `work` does not. `call` has
    // run it when it returns.
    unsafe {
        call(run::<T, F>, (&raw mut task).cast());
        task.result.assume_init()
    }
}

/// Calls `work` with `task`, exactly once.
///
/// # Safety
/// `task` must be what `work` wants, which must neither unwind nor call the program's code.
#[cold]
#[inline(never)]
unsafe fn call(work: Work, task: *mut c_void) {
    let (slot, sp) = (gate::slot(), stack_pointer());
    if !has_room(slot, sp) {
        let signals = sys::SignalsBlocked::new();
        if signals.are_blocked()
            && let Some(top) = stack_of_ours(slot)
        {
            // SAFETY: nobody else uses the stack: a thread on it has room and does not come here, and signals are blocked.
            // The rest is the contract of `call`.
            return unsafe { call_on(top, work, task) };
        }
    }
    // SAFETY: `task` is what `work` wants: the contract of `call`.
    unsafe { work(task) }
}

/// Whether `sp` lies on the recorder's stack of the calling thread, below the frame of [`call_on`] at its upper end.
pub fn is_on_stack_of_ours(sp: u64) -> bool {
    let base = gate::slot().stack_of_ours.get();
    base != 0 && (base..=base + STACK_BYTES as u64).contains(&sp)
}

fn has_room(slot: &ThreadGate, sp: u64) -> bool {
    if (slot.signal_stack_low.get()..slot.signal_stack_high.get()).contains(&sp) {
        return false;
    }
    let (low, high) = (slot.stack_low.get(), slot.stack_high.get());
    (sp < high && sp - ROOM >= low) || is_on_stack_of_ours(sp) || find_room(slot, sp)
}

/// Extends the known part of the thread's own stack down to [`ROOM`] below `sp`. Each page is checked once in the thread's
/// life: all of them in one call, because each call takes the lock of the address space, for which threads that begin
/// together queue; one by one only where the stack ends among them.
#[cold]
#[inline(never)]
fn find_room(slot: &ThreadGate, sp: u64) -> bool {
    if slot.stack_high.get() == 0 {
        let top = top_of_own_stack();
        slot.stack_low.set(top.wrapping_sub(1) & !(PAGE - 1));
        slot.stack_high.set(top);
    }
    let wanted = sp.saturating_sub(ROOM) & !(PAGE - 1);
    let mut low = slot.stack_low.get();
    if sp >= slot.stack_high.get() || wanted < slot.stack_floor.get() || low.saturating_sub(wanted) > MAX_STEP {
        return false;
    }
    if low > wanted && sys::are_readable(wanted, low) {
        low = wanted;
    }
    while low > wanted {
        if !is_readable(low - PAGE) {
            slot.stack_floor.set(low);
            break;
        }
        low -= PAGE;
    }
    slot.stack_low.set(low);
    low <= wanted
}

/// The upper end of the recorder's stack of the calling thread, mapped at the first use; `None` without memory.
fn stack_of_ours(slot: &ThreadGate) -> Option<u64> {
    if slot.stack_of_ours.get() == 0 {
        slot.stack_of_ours.set(sys::map_memory(STACK_BYTES).ok()? as u64);
        // SAFETY: contexts stay mapped.
        if let Some(context) = unsafe { slot.context.get().as_ref() } {
            keep(context);
        }
    }
    Some(slot.stack_of_ours.get() + STACK_BYTES as u64)
}

/// Leaves the recorder's stack of the calling thread to its context, for the context's next thread.
pub fn keep(context: &ThreadContext) {
    let slot = gate::slot();
    let (own, kept) = (slot.stack_of_ours.get(), context.kept_stack.load(Ordering::Relaxed));
    if own == 0 {
        slot.stack_of_ours.set(kept);
    } else if own != kept {
        context.kept_stack.store(own, Ordering::Relaxed);
        if kept != 0 {
            // SAFETY: the stack of a thread that has ended.
            unsafe { sys::unmap(kept as *mut u8, STACK_BYTES) };
        }
    }
}

/// Unmaps the recorder's stack that was left to a context.
///
/// # Safety
/// No thread may have the context or the stack any more.
pub unsafe fn give_back(context: &ThreadContext) {
    let kept = context.kept_stack.swap(0, Ordering::Relaxed);
    if kept != 0 {
        // SAFETY: a mapping of ours; the caller vouches for the rest.
        unsafe { sys::unmap(kept as *mut u8, STACK_BYTES) };
    }
}

/// The program has given the calling thread the alternate signal stack from `low` to `high`, or, if they are equal, none.
pub fn signal_stack_changed(low: u64, high: u64) {
    let slot = gate::slot();
    slot.signal_stack_high.set(0);
    slot.signal_stack_low.set(low);
    slot.signal_stack_high.set(high);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn stack_pointer() -> u64 {
    let sp;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn stack_pointer() -> u64 {
    let sp;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Calls `work` with `task` on the stack that ends at `top`. Unwinders find the way back by the frame pointer.
///
/// # Safety
/// `top` must be a multiple of 16, the upper end of a stack that nobody uses; `work` must not unwind.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn call_on(top: u64, work: Work, task: *mut c_void) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `work` with `task` on the stack that ends at `top`. Unwinders find the way back by the frame pointer.
///
/// # Safety
/// As for the variant of x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn call_on(top: u64, work: Work, task: *mut c_void) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_here_or_on_a_stack_of_ours() {
        let here = with_room(stack_pointer);
        assert!(here.abs_diff(stack_pointer()) < ROOM);
        // As if this were an alternate stack.
        let sp = stack_pointer();
        signal_stack_changed(sp - 65536, sp + 65536);
        let there = with_room(|| (stack_pointer(), with_room(stack_pointer)));
        signal_stack_changed(0, 0);
        assert!(is_on_stack_of_ours(there.0) && is_on_stack_of_ours(there.1));
        assert!(there.0.abs_diff(sp) > 65536);
    }

    #[test]
    fn the_end_of_a_stack_is_not_gone_beyond() {
        std::thread::Builder::new()
            .stack_size(128 << 10)
            .spawn(|| {
                fn deeper(depth: u32) -> bool {
                    let room = [0_u8; 4096];
                    core::hint::black_box(&room);
                    is_on_stack_of_ours(with_room(stack_pointer)) || depth > 0 && deeper(depth - 1)
                }
                assert!(!deeper(8));
                assert!(deeper(26));
            })
            .unwrap()
            .join()
            .unwrap();
    }
}
