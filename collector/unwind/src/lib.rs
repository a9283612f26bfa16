//! Backtraces: from a caller's registers to a node of the call tree, exact and for a few nanoseconds a frame.
//!
//! ```text
//! capture ─▶ stack trie: seen before, words equal?  ─▶ node             (every event)
//!               │ no
//!               ▼
//!            walk: rule by rule, join the verified-chain table, insert the rest there  (new stacks)
//!               │ rule not in the cache           │ rule too complicated
//!               ▼                                 ▼
//!            cfi: parse, compile                general unwinder         (new code; odd code)
//! ```
//!
//! One [`Unwinder`] belongs to one thread. Rules are shared by all threads and are dropped with the code epoch.

#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "a model has stand-ins for what asks the kernel or the processor")
)]

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod address;
mod budget;
pub mod cfi;
#[cfg(target_arch = "x86_64")]
mod epilogue;
pub mod file_sections;
mod general;
mod go_switch;
mod hotspot;
mod libunwind;
mod lookup;
mod memory;
mod nested;
mod python;
mod registered;
pub mod room;
pub mod rule;
mod rule_cache;
mod stack;
mod stack_cache;
mod stack_trie;
mod step;
#[cfg(all(test, target_arch = "x86_64"))]
mod stepping;
mod verified_chains;
mod walk;

use core::ffi::c_void;
use core::ptr::NonNull;
use tracehound_shared::sync::atomic::{AtomicU64, Ordering};

use crate::python::PythonStacks;
use crate::room::with_room;
pub(crate) use memory::Array;
use memory::{MemoryBlock, bytes_in_block};
use stack::OwnStack;
use stack_cache::StackCache;
use stack_trie::StackTrie;
use step::FrameState;
use tracehound_shared::call_tree::{CallTree, NodeId};
use tracehound_shared::clock;
use tracehound_shared::code;
use tracehound_shared::gate::Internal;
use tracehound_shared::stack_counters::{StackCounters, count};
use tracehound_shared::threads::UNWINDER_BYTES;
use verified_chains::WalkedFrame;
use walk::{Means, Rules};

#[cfg(target_arch = "aarch64")]
pub use aarch64::is_sigreturn as is_signal_return;
pub use budget::limit as memory_limit;
pub use registered::Registration;
#[cfg(loom)]
pub use rule_cache::rule_of;
pub use stack::top_of_own_stack;

/// The backtrace ends before the outermost frame.
pub const TRUNCATED: u8 = 1;
/// Some frame was found by heuristics: its code, part of an object, has no unwind information.
pub const HEURISTIC: u8 = 2;
/// Taken by the general unwinder.
pub const SLOW: u8 = 4;
/// Some frame was found by its frame pointer, which its code keeps by convention: code of no object, as JIT compilers
/// make it, or any with [`UnwindEngine::FramePointer`].
pub const FRAME_POINTERS: u8 = 8;
/// Some frame was found by unwind information that the program registered.
pub const REGISTERED: u8 = 16;

/// Some frame is a call of Python's evaluation loop, and none within it moves Python's calls to another stack.
pub const INTERPRETED: u8 = 32;
/// Some frame is code in HotSpot's code cache.
pub const JAVA: u8 = 64;
/// Of a frame alone: it moves Python's calls to another stack, so that the calls outside of it say nothing of Python's frames.
const SWITCHES: u8 = 128;

/// Flags of a backtrace that ends in a frame with these flags, called from a backtrace with those.
#[inline(always)]
fn flags_inside(outer: u8, frame: u8) -> u8 {
    if frame & SWITCHES == 0 { outer | frame } else { outer & !INTERPRETED | frame & !SWITCHES }
}

/// State of the caller of the hooked function, at the entry of the hook: `([rsp], rsp + 8, rbp)`, or `(x30, sp, x29)`.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Return address of the hooked function.
    pub pc: u64,
    /// Stack pointer after the hooked function will have returned.
    pub sp: u64,
    /// Frame pointer register.
    pub fp: u64,
}

/// A captured backtrace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured {
    /// Innermost node of the backtrace.
    pub node: NodeId,
    /// [`TRUNCATED`], [`HEURISTIC`], [`SLOW`], [`FRAME_POINTERS`], [`REGISTERED`], [`INTERPRETED`] and [`JAVA`].
    pub flags: u8,
}

impl Captured {
    const NOTHING: Captured = Captured { node: NodeId::ROOT, flags: 0 };
    const FAILED: Captured = Captured { node: NodeId::ROOT, flags: TRUNCATED };
}

/// How backtraces are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnwindEngine {
    /// Verified chains over cached rules; frame pointers where there is no unwind information.
    Cached,
    /// `libunwind.so.8`, found at run time; [`Cached`](Engine::Cached) where there is none.
    LibUnwind,
    /// Frame pointers alone.
    FramePointer,
}

/// Counters of one unwinder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnwindStats {
    /// Captures that were unwound, because their stack was new or had changed.
    pub learned: u64,
    /// Captures that were [`TRUNCATED`].
    pub truncated: u64,
    /// Captures that were [`HEURISTIC`].
    pub heuristic: u64,
    /// Captures that were [`SLOW`].
    pub slow: u64,
    /// Times that all records were dropped because memory for them ran out.
    pub forgotten: u64,
    /// Captures that were answered by the hash of all words.
    pub signatures: u64,
    /// Records in use.
    pub records: u64,
    /// Bytes of memory held.
    pub bytes: u64,
}

/// The unwinder of one thread.
pub struct Unwinder {
    known: StackCache,
    own_stack: OwnStack,
    scratch: Array<WalkedFrame>,
    /// What libunwind fills; made when it is used first.
    addresses: Array<*mut c_void>,
    tree: &'static CallTree,
    engine: UnwindEngine,
    counters: &'static StackCounters,
    learned: u64,
    python: PythonStacks,
    /// The block that this begins is a mapping of its own.
    own_block: bool,
}

const _: () = assert!(
    bytes_in_block::<Unwinder>(1) + bytes_in_block::<WalkedFrame>(FIRST_FRAMES) + StackCache::FIRST_BYTES
        <= UNWINDER_BYTES
);

const FIRST_FRAMES: usize = 64;
/// Bytes of its block that a thread's first event certainly touches, mostly by look-ups that find nothing.
const TOUCHED_AT_FIRST: usize =
    bytes_in_block::<Unwinder>(1) + bytes_in_block::<WalkedFrame>(FIRST_FRAMES) + StackTrie::TABLE_BYTES;
const FIRST_ADDRESSES: usize = 256;

impl Unwinder {
    /// An unwinder for the calling thread, in memory of its own, that counts in the thread's `counters`. Null when
    /// there is no memory.
    ///
    /// # Safety
    /// `caller` must be the state of a caller on the calling thread's stack.
    pub unsafe fn create(
        engine: UnwindEngine,
        tree: &'static CallTree,
        counters: &'static StackCounters,
        caller: Caller,
    ) -> *mut Unwinder {
        let Some(mut block) = Array::<u8>::new(UNWINDER_BYTES) else { return core::ptr::null_mut() };
        // SAFETY: a fresh mapping, which the unwinder owns; the rest is the caller's promise.
        unsafe {
            let this = Self::create_in(block.as_ptr(), engine, tree, counters, caller);
            match this.as_mut() {
                Some(this) => this.own_block = true,
                None => block.release(),
            }
            this
        }
    }

    /// The same in `block`, which has [`UNWINDER_BYTES`] bytes and outlives the unwinder.
    ///
    /// # Safety
    /// As for [`create`](Self::create); the block must be aligned to a cache line, zeroed and nobody else's.
    pub unsafe fn create_in(
        block: *mut u8,
        engine: UnwindEngine,
        tree: &'static CallTree,
        counters: &'static StackCounters,
        caller: Caller,
    ) -> *mut Unwinder {
        // SAFETY: the block is aligned, zeroed and owned by the caller alone: the contract of `create_in`.
        let mut block = unsafe {
            // A write makes a page once; one that is read first is made twice. The block is zeroed, so nothing changes.
            for page in (0..TOUCHED_AT_FIRST).step_by(4096) {
                block.add(page).write_volatile(0);
            }
            MemoryBlock::new(block, UNWINDER_BYTES)
        };
        let mut parts = || {
            let place = Array::<Unwinder>::first(&mut block, 1)?;
            // What is used by every walk first: these share pages.
            let scratch = Array::first(&mut block, FIRST_FRAMES)?;
            Some((place, scratch, StackCache::new(counters, &mut block)?))
        };
        let Some((place, scratch, known)) = parts() else { return core::ptr::null_mut() };
        let own_stack = OwnStack::of_this_thread(caller.sp);
        let unwinder = Unwinder {
            known,
            own_stack,
            scratch,
            addresses: Array::EMPTY,
            tree,
            engine,
            counters,
            learned: 0,
            python: PythonStacks::new(),
            own_block: false,
        };
        let this = place.as_ptr();
        // SAFETY: the array has room for one unwinder.
        unsafe { this.write(unwinder) };
        this
    }

    /// Gives the unwinder of a thread that has ended to the calling thread, whose counters are the same. It keeps
    /// its memory and drops its caches.
    ///
    /// # Safety
    /// As for [`create`](Self::create); the thread that it was made for must not use it any more.
    pub unsafe fn adopt(&mut self, caller: Caller) {
        self.known.forget();
        self.own_stack = OwnStack::of_this_thread(caller.sp);
        self.learned = 0;
        self.python.forget();
    }

    /// Frees an unwinder and its caches.
    ///
    /// # Safety
    /// `this` must come from [`create`](Self::create) and must not be used afterwards.
    pub unsafe fn destroy(this: *mut Unwinder) {
        let Some(place) = NonNull::new(this) else { return };
        // SAFETY: by the contract above; the arrays are released once, then the place they are named in.
        unsafe {
            (*this).known.release();
            (*this).python.release();
            (*this).scratch.release();
            (*this).addresses.release();
            if (*this).own_block {
                Array::<u8>::from_raw(place.cast(), UNWINDER_BYTES).release();
            }
        }
    }

    /// The backtrace of `caller`.
    ///
    /// # Safety
    /// `caller` must be the state of a function that has not returned, on the thread this unwinder belongs
    /// to. Must not be re-entered, see [`reset`](Self::reset) and [`capture_nested`].
    #[inline(always)]
    pub unsafe fn capture(&mut self, caller: Caller) -> Captured {
        // SAFETY: `caller` is the state of a function that has not returned, on the thread this unwinder belongs to:
        // the contract of `capture`.
        let captured = unsafe {
            match self.known.recall(FrameState::from(caller), &mut self.own_stack, self.tree) {
                Some(captured) => captured,
                None => return self.learn_and_complete(caller),
            }
        };
        if captured.flags != 0 {
            // SAFETY: the state of a function that has not returned, by the contract of `capture`.
            return unsafe { self.flagged(caller, captured) };
        }
        captured
    }

    #[cold]
    #[inline(never)]
    unsafe fn learn_and_complete(&mut self, caller: Caller) -> Captured {
        // SAFETY: the only caller is `capture`, whose contract covers this call.
        unsafe {
            let captured = self.learn(caller);
            if captured.flags == 0 { captured } else { self.complete(captured) }
        }
    }

    /// Completes a known backtrace that is not only machine code with unwind information.
    #[cold]
    #[inline(never)]
    unsafe fn flagged(&mut self, caller: Caller, captured: Captured) -> Captured {
        // SAFETY: the only caller is `capture`, whose contract covers this call.
        unsafe {
            let is_stale = captured.flags & JAVA != 0 && !self.known.still_holds();
            let captured = if is_stale { self.learn(caller) } else { captured };
            self.complete(captured)
        }
    }

    /// A backtrace that is not only machine code with unwind information is counted, and, below Python's evaluation loop,
    /// completed by Python's frames.
    #[cold]
    unsafe fn complete(&mut self, captured: Captured) -> Captured {
        let mut captured = captured;
        if captured.flags & INTERPRETED != 0 {
            // SAFETY: `caller` is the state of a function that has not returned, on this thread: the contract of
            // `capture`.
            captured = unsafe { self.python.complete(captured, self.tree) };
        }
        if captured.flags & COUNTED != 0 {
            count_flags(self.counters, captured.flags);
        }
        captured
    }

    /// Fetches what [`capture`](Self::capture) will look at first.
    #[inline(always)]
    pub fn prefetch_stack(&self, caller: Caller) {
        self.known.paths.prefetch_stack(caller.pc, caller.sp);
    }

    #[cold]
    #[inline(never)]
    unsafe fn learn(&mut self, caller: Caller) -> Captured {
        // SAFETY: the caller is below `capture`, whose contract covers this call.
        with_room(|| unsafe { self.learn_here(caller) })
    }

    unsafe fn learn_here(&mut self, caller: Caller) -> Captured {
        self.learned += 1;
        // SAFETY: `caller` is the state of a function that has not returned, on this thread: the contract of `capture`.
        unsafe {
            match self.engine {
                UnwindEngine::Cached => self.walk(caller, Rules::UnwindInformation),
                UnwindEngine::FramePointer => self.walk(caller, Rules::FramePointers),
                UnwindEngine::LibUnwind => match self.ask_libunwind(caller) {
                    Some(captured) => {
                        count(&self.counters.libunwind);
                        captured
                    }
                    None => self.walk(caller, Rules::UnwindInformation),
                },
            }
        }
    }

    unsafe fn walk(&mut self, caller: Caller, rules: Rules) -> Captured {
        let Unwinder { known, own_stack, scratch, tree, counters, .. } = self;
        // SAFETY: `caller` is the state of a function that has not returned, on this thread: the contract of `capture`.
        let (captured, means) = unsafe { walk::learn(known, own_stack, scratch, tree, caller, rules) };
        count(match means {
            Means::Chain => &counters.chains,
            Means::Rules => &counters.cfi,
            Means::FramePointers => &counters.frame_chain,
            Means::General => &counters.general,
        });
        captured
    }

    unsafe fn ask_libunwind(&mut self, caller: Caller) -> Option<Captured> {
        let _visit = libunwind::Visit::begin()?;
        // Allocations of libunwind are not the program's.
        let _internal = Internal::enter();
        // SAFETY: nothing points into an empty array. `caller` is the state of a function that has not returned, on this
        // thread: the contract of `capture`.
        unsafe {
            if self.addresses.is_empty() {
                self.addresses.grow(FIRST_ADDRESSES)?;
            }
            libunwind::capture(&mut self.addresses, self.tree, caller)
        }
    }

    /// Restores the unwinder's invariants after a jump out of a signal handler has left a capture unfinished.
    pub fn reset(&mut self) {
        self.known.forget();
        self.python.reset();
    }

    /// The counters. Only for the thread that the unwinder belongs to.
    pub fn stats(&self) -> UnwindStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        UnwindStats {
            learned: self.learned,
            truncated: get(&self.counters.truncated),
            heuristic: get(&self.counters.heuristic),
            slow: get(&self.counters.general),
            forgotten: self.known.chains.forgotten + self.known.paths.forgotten,
            signatures: self.known.paths.by_signature(),
            records: self.known.chains.records() as u64,
            bytes: (self.known.bytes() + self.scratch.bytes() + self.python.bytes()) as u64,
        }
    }
}

/// Flags that are counted.
const COUNTED: u8 = TRUNCATED | HEURISTIC | FRAME_POINTERS | REGISTERED;

#[cold]
fn count_flags(counters: &StackCounters, flags: u8) {
    for (flag, counter) in [
        (TRUNCATED, &counters.truncated),
        (HEURISTIC, &counters.heuristic),
        (FRAME_POINTERS, &counters.frame_pointers),
        (REGISTERED, &counters.registered),
    ] {
        if flags & flag != 0 {
            count(counter);
        }
    }
}

/// Initialises what unwinders need of the process, once. Call it when the library starts, after [`clock::init`], and before
/// any thread has an unwinder: until it has returned no object is known, and what is unwound by heuristics would be kept.
pub fn init() {
    code::init(clock::now());
}

/// Notes that code may have been loaded or unloaded: call it after dlopen and dlclose. Cheap when nothing changed. What
/// glibc loads and unloads on its own is noticed without it, by the loader's own calls of malloc and free.
pub fn code_changed() {
    code_changed_since(clock::now());
}

/// The same; what is new has been there since `tick`.
pub fn code_changed_since(tick: u64) {
    code::changed(tick, &mut rule_cache::forget);
}

/// Opens libunwind, for [`UnwindEngine::LibUnwind`]. Returns whether it is there.
/// It allocates and takes the loader's locks: call it when the library starts or from a thread of ours, never from
/// a hook.
pub fn prepare_libunwind() -> bool {
    libunwind::prepare()
}

/// Stops the use of libunwind. Returns whether it was in use until now.
pub fn leave_libunwind() -> bool {
    libunwind::leave()
}

/// Whether a thread is in libunwind.
pub fn is_in_libunwind() -> bool {
    libunwind::is_in_use()
}

/// The program has registered unwind information: call it after the real function.
///
/// # Safety
/// It must be what the program gave.
pub unsafe fn frames_registered(registration: Registration) {
    // SAFETY: it is what the program gave: the contract of `frames_registered`.
    unsafe { registered::register(registration) };
}

/// Removes what the program has registered as `begin`: call it before the real function.
pub fn frames_deregistered(begin: *const u8) {
    registered::deregister(begin);
}

/// In a forked child, before anything else here: opens locks that other threads of the parent may have held. Returns whether
/// libunwind was in use until now, and has locks that nobody can open.
pub fn after_fork_in_child() -> bool {
    code::after_fork_in_child();
    tracehound_shared::python::after_fork_in_child();
    tracehound_shared::hotspot::after_fork_in_child();
    registered::after_fork_in_child();
    file_sections::after_fork_in_child();
    libunwind::after_fork_in_child()
}

/// A backtrace without an unwinder, for a signal handler that allocates in the middle of a capture on the same
/// thread. Slower, and keeps nothing.
///
/// # Safety
/// `caller` must be the state of a function that has not returned, on the calling thread.
pub unsafe fn capture_nested(tree: &CallTree, caller: Caller) -> Captured {
    // SAFETY: `caller` is the state of a function that has not returned, on the calling thread: the contract of
    // `capture_nested`.
    unsafe { nested::capture(tree, caller) }
}

/// Calls `judge` for the frames from `caller` outwards, and returns its first answer. Caches nothing.
///
/// # Safety
/// As for [`capture_nested`].
pub unsafe fn first_answer<T>(caller: Caller, judge: impl FnMut(u64) -> Option<T>) -> Option<T> {
    // SAFETY: the caller keeps the contract of `capture_nested`, which covers this call.
    unsafe { nested::first_answer(caller, judge) }
}

/// Whether unwinding from `caller` by exact rules alone reaches a frame above `sp`, on the same stack, and none whose PC is
/// sought, there or further out. Caches nothing.
///
/// # Safety
/// As for [`capture_nested`].
pub unsafe fn leads_past(caller: Caller, sp: u64, is_sought: impl FnMut(u64) -> bool) -> bool {
    // SAFETY: the caller keeps the contract of `capture_nested`, which covers this call.
    unsafe { nested::leads_past(caller, sp, is_sought) }
}

/// Counts a backtrace of [`capture_nested`] that is used.
pub fn count_nested(counters: &StackCounters, captured: Captured) {
    count(&counters.nested);
    count_flags(counters, captured.flags);
}
