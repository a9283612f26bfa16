//! Events off the fast path: a thread's first, those of signal handlers that interrupt another event, and calls
//! that allocators make to themselves.

use core::ffi::c_void;
use core::ops::Range;
use tracehound_shared::sync::atomic::{AtomicU64, Ordering};

use tracehound_format::record::{Kind, Record, RequestDetails};

use crate::attach;
use crate::publish::{self, after, enter, settle};
use crate::record::{ReallocKinds, publish_realloc, without_unwinder};
use tracehound_shared::clock;
use tracehound_shared::code;
use tracehound_shared::gate;
use tracehound_shared::session;
use tracehound_shared::stack_counters::count;
use tracehound_shared::thread::{IDLE, IN_REAL, MODE, RECORDING, STAMPED, ThreadContext};
#[cfg(target_arch = "aarch64")]
use tracehound_unwind::is_signal_return;
use tracehound_unwind::room::with_room;
use tracehound_unwind::{Caller, Unwinder, capture_nested, count_nested, first_answer, leads_past};

/// An event that has been entered on the slow path.
pub struct SlowEntry {
    /// The thread's context.
    pub context: &'static ThreadContext,
    /// The event interrupts another one.
    pub nested: bool,
    /// It interrupts a call of the real function: it may be that function's own.
    inside_real: bool,
    /// The thread's state before the event.
    state: u64,
    /// [`ThreadContext::inner`] before the event.
    inner: u64,
}

/// Enters an event in `mode`; `None` when the call is to pass through.
///
/// # Safety
/// `caller` must be the state of the hooked function's caller.
#[cold]
pub unsafe fn enter_event(caller: Caller, mode: u64) -> Option<SlowEntry> {
    let slot = gate::slot();
    // Counted until the session knows the thread, so that an early end of the recording waits for it.
    let mut company = None;
    loop {
        match gate::state() {
            gate::RECORDING if slot.context.get().is_null() && company.is_none() => {
                company = Some(gate::Company::join());
            }
            gate::RECORDING => break,
            held if gate::is_held(held) && slot.exempt.get() == 0 && slot.internal.get() == 0 => {
                company = None;
                gate::wait_while_held();
            }
            _ => return None,
        }
    }
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `enter_event`.
    unsafe { enter_at_any_gate(caller, mode) }
}

/// [`enter_event`] in any state of the gate: for records of starts and stops.
///
/// # Safety
/// As for [`enter_event`].
#[cold]
pub unsafe fn enter_at_any_gate(caller: Caller, mode: u64) -> Option<SlowEntry> {
    let slot = gate::slot();
    if slot.internal.get() != 0 {
        return None;
    }
    // SAFETY: contexts stay mapped.
    let context = match unsafe { slot.context.get().as_ref() } {
        Some(context) => context,
        // SAFETY: the caller keeps the contract of `enter_event`, which covers this call.
        None => with_room(|| unsafe { attach::attach(caller) })?,
    };
    if context.id.load(Ordering::Relaxed) == 0 {
        // A child that is not ready yet, or that was cloned without fork and is not recorded: its context is zeroed.
        gate::set(gate::PASS);
        if slot.fork_tick.get() != 0 {
            slot.fork_missed.set(slot.fork_missed.get() + 1);
        }
        return None;
    }
    let mut state = context.state.load(Ordering::Relaxed);
    // SAFETY: the caller keeps the contract of `enter_event`, which covers this call.
    if state & MODE != IDLE && unsafe { is_stale(context, caller) } {
        state = after(state);
        // SAFETY: the event that had entered the unwinder was left by a jump and does not continue.
        if let Some(unwinder) = unsafe { context.alloc_unwinder.load(Ordering::Relaxed).cast::<Unwinder>().as_mut() } {
            unwinder.reset();
        }
        context.parked.store(0, Ordering::Relaxed);
        context.inner.store(IDLE, Ordering::Relaxed);
        context.state.store(state, Ordering::Relaxed);
    }
    let nested = state & MODE != IDLE;
    if !nested {
        context.entry_sp.store(caller.sp, Ordering::Relaxed);
    }
    let inner = context.inner.load(Ordering::Relaxed);
    let interrupted = if inner == IDLE { state & MODE } else { inner };
    let entry =
        SlowEntry { context, nested, inside_real: interrupted == IN_REAL || interrupted == STAMPED, state, inner };
    entry.enter(mode);
    Some(entry)
}

impl SlowEntry {
    /// Enters `mode`. The thread's state stays at what the interrupted events need: see [`ThreadContext::inner`].
    fn enter(&self, mode: u64) {
        if self.nested {
            self.context.inner.store(mode, Ordering::Relaxed);
        }
        let outer = self.state & MODE;
        let held = |held: u64| mode == held || outer == held;
        let state = [RECORDING, STAMPED, IN_REAL].into_iter().find(|&state| held(state)).unwrap_or(IDLE);
        enter(self.context, self.state, state);
    }

    /// Enters the mode RECORDING, after the real call: from here on records are written.
    pub fn record(&self) {
        self.enter(RECORDING);
    }

    /// Enters the mode STAMPED, before the real call: the event has its time stamp.
    pub fn stamp(&self) {
        self.enter(STAMPED);
    }

    /// Enters the mode IN_REAL, before the real call: the records that belong before it are written.
    pub fn in_real(&self) {
        self.enter(IN_REAL);
    }

    /// Node of the caller; `None` when the event is the allocator's own and is not to be recorded.
    ///
    /// # Safety
    /// `caller` must be the state of the hooked function's caller.
    pub unsafe fn node(&self, caller: Caller) -> Option<u32> {
        // A table of tracemalloc's that shrinks when a block is freed: its free is an event, and so is its allocation.
        let is_apart = gate::slot().freed_by_python.get() & gate::PYTHON_FREES != 0;
        // SAFETY: `caller` is the state of the hooked function's caller: the contract of `node`.
        with_room(|| unsafe { self.node_here(caller, is_apart) })
    }

    /// The same, of a call that frees `block`. What Python's allocator frees beside its own block is no part of that: it may
    /// be what tracemalloc knows of the block, which was allocated outside.
    ///
    /// # Safety
    /// As for [`node`](Self::node).
    unsafe fn node_of_free(&self, caller: Caller, block: *mut c_void) -> Option<u32> {
        let freed = gate::slot().freed_by_python.get() & !gate::PYTHON_FREES;
        let is_another = freed != 0 && freed != gate::short_address(block.addr());
        // SAFETY: `caller` is the state of the hooked function's caller: the contract of `node_of_free`.
        with_room(|| unsafe { self.node_here(caller, is_another) })
    }

    unsafe fn node_here(&self, caller: Caller, is_apart: bool) -> Option<u32> {
        if !self.nested {
            let unwinder = self.context.alloc_unwinder.load(Ordering::Relaxed);
            // SAFETY: the thread's own unwinder, in no capture.
            return Some(unsafe {
                match unwinder.cast::<Unwinder>().as_mut() {
                    Some(unwinder) => unwinder.capture(caller).node.0,
                    None => without_unwinder(self.context),
                }
            });
        }
        let session = session::current()?;
        // SAFETY: the callers' contracts cover this call.
        if self.inside_real && !is_apart && !unsafe { comes_from_signal_handler(caller) } {
            return None;
        }
        // SAFETY: the callers' contracts cover this call.
        let captured = unsafe { capture_nested(session.tree, caller) };
        count_nested(&self.context.stacks, captured);
        Some(captured.node.0)
    }

    /// Counts an event for which no stack is taken.
    pub fn without_stack(&self) {
        if !self.nested {
            count(&self.context.stacks.unwanted);
        }
    }

    /// Ends the event.
    pub fn leave(self, recorded: bool) {
        if self.nested {
            self.context.inner.store(self.inner, Ordering::Relaxed);
        }
        let state = if recorded && !self.nested { after(self.state) } else { self.state };
        settle(self.context, state);
    }
}

/// Whether the event that the context is in was left by a jump (`siglongjmp` out of a handler): none of our functions is on
/// the stack, which has been unwound past it, or is used again where the event was. Only where both lie close together; else
/// the event counts as interrupted.
///
/// # Safety
/// `caller` must be the state of the hooked function's caller.
#[cold]
unsafe fn is_stale(context: &ThreadContext, caller: Caller) -> bool {
    const NEAR: u64 = 1 << 20;
    let entry = context.entry_sp.load(Ordering::Relaxed);
    if caller.sp.abs_diff(entry) >= NEAR {
        return false;
    }
    // A handler's event may have come between the store of `entry_sp` and the beginning of this event, and have stored
    // its own: a live event is looked for further out, too.
    let own = own_code();
    if caller.sp <= entry {
        // An allocator that calls itself through the hooks does so from the same places again and again, on which no
        // program's call can come: between `entry` and them are the same frames.
        let call = (caller.pc.rotate_left(32) ^ caller.sp).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ entry;
        if context.inner_call.load(Ordering::Relaxed) == call {
            return false;
        }
        // An event that goes on has its frame right below `entry`, and a handler's stack elsewhere leads there first.
        // SAFETY: `caller` is the state of the hooked function's caller: the contract of `is_stale`.
        let is_over = with_room(|| unsafe { leads_past(caller, entry, |pc| own.contains(&pc)) });
        if !is_over {
            context.inner_call.store(call, Ordering::Relaxed);
        }
        return is_over;
    }
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `is_stale`.
    with_room(|| unsafe { first_answer(caller, |pc| own.contains(&pc).then_some(())) }).is_none()
}

/// Whether a signal frame lies between `caller` and our own code: then a handler makes the call, not the allocator that
/// it interrupted.
///
/// # Safety
/// `caller` must be the state of the hooked function's caller.
unsafe fn comes_from_signal_handler(caller: Caller) -> bool {
    let own = own_code();
    let judge = |pc| if own.contains(&pc) { Some(false) } else { is_signal_return(pc).then_some(true) };
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `comes_from_signal_handler`.
    unsafe { first_answer(caller, judge) }.unwrap_or(false)
}

/// Where the recorder's code begins and ends; zeros: nobody has asked yet.
static OWN_CODE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Says where the recorder's code is, for a recorder that is linked into a program: else it is all of its library's.
pub fn set_own_code(range: &Range<u64>) {
    OWN_CODE[0].store(range.start, Ordering::Relaxed);
    OWN_CODE[1].store(range.end, Ordering::Release);
}

/// Address range of the recorder's code.
fn own_code() -> Range<u64> {
    if OWN_CODE[1].load(Ordering::Acquire) == 0
        && let Some(object) = code::object_at(own_code as *const () as u64)
    {
        set_own_code(&(object.start..object.end));
    }
    OWN_CODE[0].load(Ordering::Relaxed)..OWN_CODE[1].load(Ordering::Relaxed)
}

/// Whether the code at `pc` is the one to which the kernel makes signal handlers return.
#[cfg(target_arch = "x86_64")]
fn is_signal_return(pc: u64) -> bool {
    // mov $15, %rax; syscall
    const RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let Some((start, end)) = code::object_at(pc).and_then(|object| object.segment(pc)) else { return false };
    if pc < start || pc + RETURN.len() as u64 > end {
        return false;
    }
    // SAFETY: inside a loaded, readable segment of the object around a return address.
    let bytes = unsafe { core::slice::from_raw_parts(pc as *const u8, RETURN.len()) };
    bytes == RETURN
}

/// [`crate::record::alloc`] for a thread that is not ready.
///
/// # Safety
/// `caller` must be the state of the hooked function's caller.
#[cold]
#[inline(never)]
pub unsafe fn alloc(caller: Caller, kind: Kind, size: usize, real: &mut dyn FnMut() -> *mut c_void) -> *mut c_void {
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `alloc`.
    unsafe { alloc_aligned(caller, kind, size, 0, real) }
}

/// [`crate::record::alloc_aligned`] for a thread that is not ready.
///
/// # Safety
/// As for [`alloc`].
#[cold]
#[inline(never)]
pub unsafe fn alloc_aligned(
    caller: Caller,
    kind: Kind,
    size: usize,
    alignment: usize,
    real: &mut dyn FnMut() -> *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller keeps the contract of `alloc`, which covers this call.
    let Some(entry) = (unsafe { enter_event(caller, IN_REAL) }) else { return real() };
    let block = real();
    if block.is_null() {
        entry.leave(false);
        return block;
    }
    entry.record();
    let tick = clock::now_after_alloc();
    // SAFETY: the caller keeps the contract of `alloc`, which covers this call.
    unsafe { allocated(entry, caller, kind, [size, alignment], [tick, block as u64]) };
    block
}

/// What [`alloc`] does after the real call. A function of its own, so that its stack frame is not there during that call.
///
/// # Safety
/// As for [`alloc`].
#[inline(never)]
unsafe fn allocated(
    entry: SlowEntry,
    caller: Caller,
    kind: Kind,
    [size, alignment]: [usize; 2],
    [tick, block]: [u64; 2],
) {
    // SAFETY: the caller keeps the contract of `alloc`, which covers this call.
    if let Some(node) = unsafe { entry.node(caller) } {
        let record = Record::new(kind, tick, block, node, size as u32);
        let details = RequestDetails::of(size as u64, alignment as u64);
        if details.is_empty() {
            publish::several(entry.context, &[record], entry.nested);
        } else {
            let details = Record::new(Kind::SizeHigh, tick, details.word(), 0, 0);
            publish::several(entry.context, &[details, record], entry.nested);
        }
    }
    entry.leave(true);
}

/// [`crate::record::free`] for a thread that is not ready.
///
/// # Safety
/// `caller` must be the state of the hooked function's caller.
#[cold]
#[inline(never)]
pub unsafe fn free(caller: Caller, kind: Kind, block: *mut c_void, real: &mut dyn FnMut()) {
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `free`.
    let Some(entry) = (unsafe { enter_event(caller, RECORDING) }) else { return real() };
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `free`.
    unsafe { freeing(&entry, caller, kind, block) };
    entry.in_real();
    real();
    entry.leave(true);
}

/// What [`free`] does before the real call: see [`allocated`].
///
/// # Safety
/// As for [`free`].
#[inline(never)]
unsafe fn freeing(entry: &SlowEntry, caller: Caller, kind: Kind, block: *mut c_void) {
    entry.record();
    let tick = clock::now_before_free();
    let wanted = !entry.context.free_unwinder.load(Ordering::Relaxed).is_null();
    let node = if wanted || entry.nested {
        // SAFETY: the caller keeps the contract of `free`, which covers this call.
        unsafe { entry.node_of_free(caller, block) }
    } else {
        Some(without_unwinder(entry.context))
    };
    if let Some(node) = node {
        let record = Record::new(kind, tick, block as u64, if wanted { node } else { 0 }, 0);
        publish::several(entry.context, &[record], entry.nested);
    }
}

/// [`crate::record::realloc`] for a thread that is not ready.
///
/// # Safety
/// `caller` must be the state of the hooked function's caller.
#[cold]
#[inline(never)]
pub unsafe fn realloc(
    caller: Caller,
    kinds: ReallocKinds,
    old: *mut c_void,
    size: usize,
    real: &mut dyn FnMut() -> *mut c_void,
) -> *mut c_void {
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `realloc`.
    let Some(entry) = (unsafe { enter_event(caller, STAMPED) }) else { return real() };
    let before = clock::now_before_free();
    let block = real();
    if block.is_null() && size != 0 {
        entry.leave(false);
        return block;
    }
    entry.record();
    let ticks = [before, clock::now_after_alloc()];
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `realloc`.
    unsafe { reallocated(entry, caller, kinds, ticks, [old, block], size) };
    block
}

/// What [`realloc`] does after the real call: see [`allocated`].
///
/// # Safety
/// As for [`realloc`].
#[inline(never)]
unsafe fn reallocated(
    entry: SlowEntry,
    caller: Caller,
    kinds: ReallocKinds,
    ticks: [u64; 2],
    blocks: [*mut c_void; 2],
    size: usize,
) {
    // SAFETY: the caller keeps the contract of `realloc`, which covers this call.
    if let Some(node) = unsafe { entry.node(caller) } {
        if blocks[1].is_null() {
            let record = Record::new(Kind::ReallocFree, ticks[0], blocks[0] as u64, node, 0);
            publish::several(entry.context, &[record], entry.nested);
        } else {
            publish_realloc(entry.context, kinds, ticks, blocks, node, size, entry.nested);
        }
    }
    entry.leave(true);
}
