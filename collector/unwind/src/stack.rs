//! Ranges of stack memory that may be read. Nothing is loaded from a stack before it is known to be readable.
//!
//! - The thread's **own stack** is remembered as one range that lives as long as the thread: its upper end is
//!   fixed, its lower end follows the deepest stack pointer seen.
//! - **Every other stack** (coroutines, alternate signal stacks, split stacks) may be gone at the next event,
//!   so nothing is remembered of it: a walk begins with the page of its stack pointer and asks the kernel
//!   page by page as it goes up.
//!
//! The question, [`sys::is_readable`], needs no descriptor, as /proc/self/maps does, is allowed in every sandbox, as
//! process_vm_readv is not, and tells guard pages from memory, as mincore does not.

use core::ops::Range;

use tracehound_shared::sys::{self, is_readable};

const PAGE: u64 = 4096;
/// How far the own stack may be extended downwards at once, and how far one walk may look upwards on another
/// stack: 64 MiB.
const MAX_PAGES: u64 = 1 << 14;
/// How far below a stack that has overflowed its stack pointer may lie: a large frame skips the guard page.
const MAX_HOLE: u64 = 1 << 20;

/// The thread's own stack.
#[derive(Clone, Debug)]
pub struct OwnStack {
    /// Verified to be readable, from the deepest stack pointer seen to the upper end.
    range: Range<u64>,
    /// An address below the range that is known to be unreadable: what lies under it is another stack.
    barrier: u64,
}

/// What one walk may read.
#[derive(Clone, Debug)]
pub struct Readable {
    range: Range<u64>,
    /// Where the walk began: below the range where a stack has overflowed, since its last frame is not mapped.
    bottom: u64,
    own: bool,
    budget: u64,
}

impl OwnStack {
    /// The own stack of the calling thread, seen from the frame at `sp`.
    pub fn of_this_thread(sp: u64) -> OwnStack {
        let top = top_of_own_stack();
        let mut stack = OwnStack { range: page_start(top.wrapping_sub(1))..top, barrier: 0 };
        // If the first backtrace is on another stack, this one is found at the first event on it.
        stack.contains(sp);
        if is_readable(stack.range.start) { stack } else { OwnStack::none() }
    }

    /// No known stack: every address belongs to another one.
    pub const fn none() -> OwnStack {
        OwnStack { range: 0..0, barrier: 0 }
    }

    /// Whether `sp` lies on this stack; follows the stack down if it has grown.
    #[inline(always)]
    pub fn contains(&mut self, sp: u64) -> bool {
        if sp >= self.range.start {
            return sp < self.range.end;
        }
        sp > self.barrier && self.extend(sp)
    }

    /// Whether `bytes` bytes from `sp` on lie on this stack, which can be read then.
    #[inline(always)]
    pub fn holds(&mut self, sp: u64, bytes: u64) -> bool {
        self.contains(sp) && bytes <= self.range.end - sp
    }

    #[cold]
    fn extend(&mut self, sp: u64) -> bool {
        let wanted = page_start(sp);
        if self.range.start.saturating_sub(wanted) > MAX_PAGES * PAGE {
            return false;
        }
        let mut page = self.range.start;
        while page > wanted {
            page -= PAGE;
            if !is_readable(page) {
                // Pages above the barrier stay part of the stack; the barrier is not checked again.
                self.range.start = page + PAGE;
                self.barrier = page + PAGE - 1;
                return false;
            }
        }
        self.range.start = page;
        true
    }
}

/// The upper end of the calling thread's own stack.
pub fn top_of_own_stack() -> u64 {
    if sys::thread_id() == sys::process_id() {
        // The strings of the program's start are the last thing on the main stack.
        // SAFETY: getauxval reads the process's own auxiliary vector.
        page_end(unsafe { libc::getauxval(libc::AT_EXECFN) })
    } else {
        // The thread's control block lies at the upper end of its stack.
        thread_pointer()
    }
}

impl Readable {
    /// What may be read by a walk that begins in the frame below `sp`, whose last word has just been read.
    #[inline(always)]
    pub fn from(own: &mut OwnStack, sp: u64) -> Readable {
        if own.contains(sp) {
            Readable { range: sp..own.range.end, bottom: sp, own: true, budget: MAX_PAGES }
        } else {
            // The return address at sp - 8 was readable, so its page is.
            Readable { range: sp..page_end(sp - 1), bottom: sp, own: false, budget: MAX_PAGES }
        }
    }

    /// As [`from`](Self::from) for a stack pointer that was not read through, such as an interrupted one.
    pub fn at(own: &mut OwnStack, sp: u64, budget: u64) -> Option<Readable> {
        if own.contains(sp) {
            return Some(Readable { range: sp..own.range.end, bottom: sp, own: true, budget });
        }
        let budget = budget.checked_sub(1)?;
        if is_readable(page_start(sp)) {
            return Some(Readable { range: sp..page_end(sp), bottom: sp, own: false, budget });
        }
        // A stack that has overflowed begins a little further up. The rule of the frame confirms which stack it is:
        // its size is known, and must lead there.
        let end = page_start(sp).checked_add(MAX_HOLE)?;
        let first = (page_end(sp)..end).step_by(PAGE as usize).find(|&page| is_readable(page))?;
        let own_stack = own.contains(first);
        let end = if own_stack { own.range.end } else { page_end(first) };
        Some(Readable { range: first..end, bottom: sp, own: own_stack, budget })
    }

    /// Whether `start..end` lies above the walk's beginning, and all of it can be read except for words that
    /// [`reads`](Self::reads) denies.
    #[inline(always)]
    pub fn holds(&mut self, start: u64, end: u64) -> bool {
        if start < self.bottom || end < start {
            return false;
        }
        end <= self.range.end || self.extend(end)
    }

    /// Whether a word that [`holds`](Self::holds) allows is mapped: it is not where the stack has overflowed.
    #[inline(always)]
    pub fn reads(&self, slot: u64) -> bool {
        slot >= self.range.start
    }

    #[cold]
    fn extend(&mut self, end: u64) -> bool {
        if self.own || (end - self.range.end) / PAGE >= self.budget {
            return false;
        }
        while self.range.end < end {
            if !is_readable(self.range.end) {
                return false;
            }
            self.range.end += PAGE;
            self.budget -= 1;
        }
        true
    }

    /// Whether the walk is on the thread's own stack.
    pub fn is_own(&self) -> bool {
        self.own
    }

    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// From the walk's beginning to the end of what is known to be readable.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }
}

fn page_start(address: u64) -> u64 {
    address & !(PAGE - 1)
}

fn page_end(address: u64) -> u64 {
    page_start(address).wrapping_add(PAGE)
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: the ABI keeps the thread control block's own address in its first word.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, pure, readonly, preserves_flags)) };
    pointer
}

#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: reading the thread pointer register has no effect.
    unsafe { core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags)) };
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_is_readables_from_the_rest() {
        let local = 0u64;
        assert!(is_readable(page_start(&raw const local as u64)));
        assert!(!is_readable(0));
        assert!(!is_readable(0x7fff_ffff_f000));
        assert!(!is_readable(0xffff_8000_0000_0000));
    }

    #[test]
    fn own_stack_of_a_thread_holds_its_frames() {
        let check = || {
            let local = 0u64;
            let sp = &raw const local as u64;
            let mut own = OwnStack::of_this_thread(sp);
            assert!(own.contains(sp));
            assert!(own.contains(sp + 64));
            assert!(!own.contains(own.range.end));
            let heap = Box::new(0u64);
            assert!(!own.contains(&raw const *heap as u64));
        };
        std::thread::spawn(check).join().unwrap();
    }
}
