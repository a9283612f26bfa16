//! Recording of the malloc family's events and of changes of the address space, around the real call: [`alloc`],
//! [`free`], [`realloc`].
//!
//! The fast path is [`ready`] and one of the functions below it; everything else is in [`crate::nested`].

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use tracehound_format::record::{Kind, Record, RequestDetails};

use crate::nested;
use crate::publish::{self, after, enter, settle};
use tracehound_shared::clock;
use tracehound_shared::gate;
use tracehound_shared::prefetch;
use tracehound_shared::stack_counters::count;
use tracehound_shared::thread::{IDLE, IN_REAL, RECORDING, STAMPED, ThreadContext};
use tracehound_unwind::room::with_room;
use tracehound_unwind::{Caller, Unwinder};

/// The calling thread's context, if it can record right now: the gate open, the thread known and in no event.
#[inline(always)]
pub fn ready() -> Option<&'static ThreadContext> {
    if is_off() {
        return None;
    }
    // SAFETY: the gate is open.
    unsafe { ready_behind_gate() }
}

/// Whether the gate is anything but open.
#[inline(always)]
pub fn is_off() -> bool {
    gate::state() != gate::RECORDING
}

/// [`ready`] for a caller that has found the gate open.
///
/// # Safety
/// The gate must have been open.
#[inline(always)]
pub unsafe fn ready_behind_gate() -> Option<&'static ThreadContext> {
    // SAFETY: the gate is open only in a relocated library; contexts stay mapped.
    let context = unsafe { gate::slot().context.get().as_ref()? };
    if context.mode() != IDLE {
        return None;
    }
    Some(context)
}

/// Whether a call goes straight to the real function: nothing is recorded, and the call is not the recorder's own.
#[inline(always)]
pub fn passes() -> bool {
    gate::state() == gate::PASS && gate::slot().internal.get() == 0
}

/// The node of `caller`; 0 without an unwinder.
///
/// # Safety
/// `caller` must be the state of the hooked function's caller; the unwinder must be null or the calling thread's, in no
/// capture.
#[inline(always)]
unsafe fn capture(context: &ThreadContext, unwinder: *mut (), caller: Caller) -> u32 {
    // SAFETY: the unwinder is null or the calling thread's; the mode keeps it from being entered twice.
    unsafe {
        match unwinder.cast::<Unwinder>().as_mut() {
            Some(unwinder) => unwinder.capture(caller).node.0,
            None => without_unwinder(context),
        }
    }
}

/// Counts an event without a stack: none is wanted of frees, or there was no memory for the unwinder.
#[cold]
#[inline(never)]
pub(super) fn without_unwinder(context: &ThreadContext) -> u32 {
    if context.alloc_unwinder.load(Ordering::Relaxed).is_null() {
        count(&context.stacks.missing);
        count(&context.stacks.truncated);
    } else {
        count(&context.stacks.unwanted);
    }
    0
}

/// Prefetches what [`capture`] will look at first, while the allocator works.
///
/// # Safety
/// The unwinder must be null or the calling thread's.
#[inline(always)]
unsafe fn prefetch_stack(unwinder: *mut (), caller: Caller) {
    // SAFETY: the unwinder is null or the calling thread's: the contract of `prefetch_stack`.
    if let Some(unwinder) = unsafe { unwinder.cast::<Unwinder>().as_ref() } {
        unwinder.prefetch_stack(caller);
    }
}

/// Records a call that may allocate a block of `size` bytes; `real` makes the call.
///
/// # Safety
/// `caller` must be the state of the hooked function's caller; `context` the calling thread's, in no event.
#[inline(always)]
pub unsafe fn alloc(
    context: &ThreadContext,
    caller: Caller,
    kind: Kind,
    size: usize,
    real: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    // SAFETY: `caller` is the state of the hooked function's caller; `context` the calling thread's, in no event: the
    // contract of `alloc`.
    unsafe { alloc_aligned(context, caller, kind, size, 0, real) }
}

/// As [`alloc`], of a block whose address is to be a multiple of `alignment`.
///
/// # Safety
/// As for [`alloc`].
#[inline(always)]
pub unsafe fn alloc_aligned(
    context: &ThreadContext,
    caller: Caller,
    kind: Kind,
    size: usize,
    alignment: usize,
    real: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let state = context.state.load(Ordering::Relaxed);
    context.entry_sp.store(caller.sp, Ordering::Relaxed);
    enter(context, state, IN_REAL);
    // SAFETY: the unwinder of the calling thread's context: the contract of `alloc`.
    unsafe { prefetch_stack(context.alloc_unwinder.load(Ordering::Relaxed), caller) };
    let block = real();
    if block.is_null() {
        settle(context, state);
        return block;
    }
    enter(context, state, RECORDING);
    let tick = clock::now_after_alloc();
    // SAFETY: the caller keeps the contract of `alloc`, which covers this call.
    let node = unsafe { capture(context, context.alloc_unwinder.load(Ordering::Relaxed), caller) };
    let details = RequestDetails::of(size as u64, alignment as u64);
    let record = Record::new(kind, tick, block as u64, node, size as u32);
    if details.is_empty() {
        publish::one(context, record);
    } else {
        with_details(context, record, details);
    }
    settle(context, after(state));
    block
}

#[cold]
fn with_details(context: &ThreadContext, record: Record, details: RequestDetails) {
    publish::several(context, &[Record::new(Kind::SizeHigh, record.tick, details.word(), 0, 0), record], false);
}

/// The record that precedes an allocation of more than 32 bits of size.
fn size_high(tick: u64, size: usize) -> Record {
    Record::new(Kind::SizeHigh, tick, size as u64 >> 32, 0, 0)
}

/// Records a call that frees `block`, not null; `real` makes the call.
///
/// # Safety
/// As for [`alloc`].
#[inline(always)]
pub unsafe fn free(context: &ThreadContext, caller: Caller, kind: Kind, block: *mut c_void, real: impl FnOnce()) {
    // The allocator looks at the block's header, often a line that nobody has touched for long.
    prefetch::fetch(block.wrapping_byte_sub(16));
    let state = context.state.load(Ordering::Relaxed);
    context.entry_sp.store(caller.sp, Ordering::Relaxed);
    enter(context, state, RECORDING);
    let tick = clock::now_before_free();
    // SAFETY: the caller keeps the contract of `alloc`, which covers this call.
    let node = unsafe { capture(context, context.free_unwinder.load(Ordering::Relaxed), caller) };
    publish::one(context, Record::new(kind, tick, block as u64, node, 0));
    let state = after(state);
    enter(context, state, IN_REAL);
    real();
    settle(context, state);
}

/// What a realloc is recorded as.
#[derive(Clone, Copy)]
pub struct ReallocKinds {
    /// Allocation without predecessor.
    pub new: Kind,
    /// The old block.
    pub from: Kind,
    /// The new block.
    pub to: Kind,
}

/// `realloc(3)`.
pub const REALLOC: ReallocKinds = ReallocKinds { new: Kind::ReallocNew, from: Kind::ReallocFrom, to: Kind::ReallocTo };
/// `reallocarray(3)`.
pub const REALLOCARRAY: ReallocKinds =
    ReallocKinds { new: Kind::ReallocarrayNew, from: Kind::ReallocarrayFrom, to: Kind::ReallocarrayTo };

/// Records a call that resizes `old`, not null, to `size` bytes; `real` makes the call.
///
/// # Safety
/// As for [`alloc`].
#[inline(always)]
pub unsafe fn realloc(
    context: &ThreadContext,
    caller: Caller,
    kinds: ReallocKinds,
    old: *mut c_void,
    size: usize,
    real: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let state = context.state.load(Ordering::Relaxed);
    context.entry_sp.store(caller.sp, Ordering::Relaxed);
    enter(context, state, STAMPED);
    let before = clock::now_before_free();
    let block = real();
    if block.is_null() && size != 0 {
        settle(context, state);
        return block;
    }
    enter(context, state, RECORDING);
    let tick = clock::now_after_alloc();
    // SAFETY: the caller keeps the contract of `alloc`, which covers this call.
    let node = unsafe { capture(context, context.alloc_unwinder.load(Ordering::Relaxed), caller) };
    if block.is_null() {
        publish::one(context, Record::new(Kind::ReallocFree, before, old as u64, node, 0));
    } else {
        publish_realloc(context, kinds, [before, tick], [old, block], node, size, false);
    }
    settle(context, after(state));
    block
}

/// Both halves of a realloc.
#[inline]
pub(super) fn publish_realloc(
    context: &ThreadContext,
    kinds: ReallocKinds,
    ticks: [u64; 2],
    blocks: [*mut c_void; 2],
    node: u32,
    size: usize,
    nested: bool,
) {
    let from = Record::new(kinds.from, ticks[0], blocks[0] as u64, node, 0);
    let to = Record::new(kinds.to, ticks[1], blocks[1] as u64, node, size as u32);
    if size >> 32 == 0 {
        publish::several(context, &[from, to], nested);
    } else {
        publish::several(context, &[from, size_high(ticks[1], size), to], nested);
    }
}

/// What a change of the address space is recorded as, once it has succeeded.
#[derive(Clone, Copy)]
pub enum MappingChange {
    /// `mmap`: length, protection, flags, descriptor.
    Map {
        /// Bytes, rounded up to pages.
        len: usize,
        /// `PROT_*`.
        protection: i32,
        /// `MAP_*`.
        flags: i32,
        /// Descriptor, or -1.
        fd: i32,
    },
    /// `munmap`.
    Unmap {
        /// First address.
        at: usize,
        /// Bytes, rounded up to pages.
        len: usize,
    },
    /// `mremap`.
    Remap {
        /// Old address.
        old: usize,
        /// Old length.
        old_len: usize,
        /// New length.
        new_len: usize,
    },
    /// `brk`, `sbrk`: bytes that the break moved.
    Break {
        /// Bytes, negative when it shrank.
        by: isize,
    },
}

/// Records an address-space change whose result is `address`; `before` was stamped before the call, `tick` after it.
fn publish_change(
    context: &ThreadContext,
    change: MappingChange,
    before: u64,
    tick: u64,
    address: usize,
    node: u32,
    nested: bool,
) {
    let mut records = [Record::new(Kind::SizeHigh, 0, 0, 0, 0); 4];
    let mut len = 0;
    let mut push = |record: Record| {
        if let Some(slot) = records.get_mut(len) {
            *slot = record;
            len += 1;
        }
    };
    let mut sized = |kind: Kind, tick: u64, at: usize, size: usize| {
        if size >> 32 != 0 {
            push(size_high(tick, size));
        }
        push(Record::new(kind, tick, at as u64, node, size as u32));
    };
    match change {
        MappingChange::Map { len, protection, flags, fd } => {
            let detail = u64::from(protection as u32) | u64::from(flags as u32) << 32;
            let first = Record::new(Kind::MapDetail, tick, detail, node, fd as u32);
            let high = size_high(tick, len);
            let map = Record::new(Kind::Mmap, tick, address as u64, node, len as u32);
            if len >> 32 == 0 {
                publish::several(context, &[first, map], nested);
            } else {
                publish::several(context, &[first, high, map], nested);
            }
            return;
        }
        MappingChange::Unmap { at, len } => sized(Kind::Munmap, before, at, len),
        MappingChange::Remap { old, old_len, new_len } => {
            sized(Kind::MremapFrom, before, old, old_len);
            sized(Kind::MremapTo, tick, address, new_len);
        }
        MappingChange::Break { by } => sized(Kind::Brk, if by < 0 { before } else { tick }, address, by as usize),
    }
    publish::several(context, records.get(..len).unwrap_or_default(), nested);
}

/// Records an address-space change around `real`, which returns the resulting address, or `None` when it failed.
/// `change` gets the result and returns the change to record, or `None`.
///
/// # Safety
/// `caller` must be the state of the hooked function's caller.
pub unsafe fn change(
    caller: Caller,
    real: impl FnOnce() -> Option<usize>,
    change: impl FnOnce(usize) -> Option<MappingChange>,
) -> Option<usize> {
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `change`.
    let Some(entry) = (unsafe { nested::enter_event(caller, RECORDING) }) else { return real() };
    // Before the call: what it unmaps may be the memory of an interpreter's frames that a backtrace goes through. CPython
    // 3.11 unmaps a piece of its stack whose last frame it still names as the thread's.
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `change`.
    let node = unsafe { entry.node(caller) };
    entry.stamp();
    let before = clock::now_before_free();
    let address = real();
    let Some(what) = address.and_then(change) else {
        entry.leave(false);
        return address;
    };
    entry.record();
    let tick = clock::now_after_alloc();
    if let Some(node) = node {
        with_room(|| publish_change(entry.context, what, before, tick, address.unwrap_or(0), node, entry.nested));
    }
    entry.leave(true);
    address
}

/// Records an event whose caller is not known.
pub fn without_stack(kind: Kind, address: u64, size: usize) {
    // SAFETY: no stack is taken; the caller's state only shows where this thread's stack is.
    let Some(entry) = (unsafe { nested::enter_event(here(), RECORDING) }) else { return };
    entry.without_stack();
    let tick = clock::now_after_alloc();
    let record = Record::new(kind, tick, address, 0, size as u32);
    if size >> 32 == 0 {
        publish::several(entry.context, &[record], entry.nested);
    } else {
        publish::several(entry.context, &[size_high(tick, size), record], entry.nested);
    }
    entry.leave(true);
}

/// A caller's state on the calling thread's stack, for events without a caller.
fn here() -> Caller {
    let mark = 0_u64;
    Caller { pc: 0, sp: &raw const mark as u64, fp: 0 }
}

/// Records a start or a stop of recording, in any state of the gate, with the tick that decides which events are before it
/// and which after.
///
/// # Safety
/// As for [`single`].
pub unsafe fn switched(caller: Caller, kind: Kind, tick: u64) {
    // SAFETY: the caller keeps the contract of `single`, which covers this call.
    let Some(entry) = (unsafe { nested::enter_at_any_gate(caller, RECORDING) }) else { return };
    // SAFETY: the caller keeps the contract of `single`, which covers this call.
    if let Some(node) = unsafe { entry.node(caller) } {
        publish::several(entry.context, &[Record::new(kind, tick, 0, node, 0)], entry.nested);
    }
    entry.leave(true);
}

/// Records one event that is complete by itself: a mark, a fork, an allocation or free of a pool. Returns the thread's id and
/// the event's time in ticks; `None`: nothing was recorded.
///
/// # Safety
/// `caller` must be the state of the hooked function's caller.
pub unsafe fn single(caller: Caller, kind: Kind, address: u64, size: usize) -> Option<(u32, u64)> {
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `single`.
    let entry = unsafe { nested::enter_event(caller, RECORDING) }?;
    let tick = if kind.is_free() { clock::now_before_free() } else { clock::now_after_alloc() };
    // SAFETY: `caller` is the state of the hooked function's caller: the contract of `single`.
    if let Some(node) = unsafe { entry.node(caller) } {
        let record = Record::new(kind, tick, address, node, if kind.is_free() { 0 } else { size as u32 });
        if size >> 32 == 0 {
            publish::several(entry.context, &[record], entry.nested);
        } else {
            publish::several(entry.context, &[size_high(tick, size), record], entry.nested);
        }
    }
    let id = entry.context.id.load(Ordering::Relaxed);
    entry.leave(true);
    Some((id, tick))
}
