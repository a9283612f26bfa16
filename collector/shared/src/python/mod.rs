//! CPython in the process: where it is, which version, and what its code objects are called.
//!
//! ```text
//! module loaded ─▶ look_at: has it _PyRuntime?  ─▶ FOUND, pcs of the evaluation loop are known
//! first event below the loop ─▶ interpreter(): version, layout, destructor of code objects ─▶ READY or REFUSED
//! ```
//! Only four functions of Python are called, and they only read: the thread's state (two ways), whether the interpreter
//! ends, the version.

mod code_text;
mod codes;
mod layout;
mod memory;
mod own_offsets;

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;

use super::code::{self, DynamicSymbols};
use super::sys;

pub use code_text::{CodeText, code_texts};
pub use codes::{CODE_ADDRESSES, INTERPRETERS_OWN, address_of};
pub use layout::{EntryMark, PythonLayout, TopFrame};
pub use memory::ObjectMemory;
use own_offsets::{OwnLayout, own_layout};

const UNSEEN: u32 = 0;
const FOUND: u32 = 1;
const PREPARING: u32 = 2;
const READY: u32 = 3;
const REFUSED: u32 = 4;

static ENABLED: AtomicBool = AtomicBool::new(false);
static STATE: AtomicU32 = AtomicU32::new(UNSEEN);
/// Epoch of Python's code: incremented when code objects that backtraces named were freed, and when the interpreter was
/// unloaded.
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// The evaluation loop, and the part of it that the compiler has put elsewhere.
static LOOP: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
/// `_PyRuntime`.
static RUNTIME: AtomicU64 = AtomicU64::new(0);
/// The part of the loop that lies elsewhere was looked for.
static PART_KNOWN: AtomicBool = AtomicBool::new(false);
static CODE_TYPE: AtomicU64 = AtomicU64::new(0);
static CURRENT_THREAD: AtomicU64 = AtomicU64::new(0);
static OWN_THREAD: AtomicU64 = AtomicU64::new(0);
static IS_ENDING: AtomicU64 = AtomicU64::new(0);
static GET_VERSION: AtomicU64 = AtomicU64::new(0);
static VERSION: AtomicU64 = AtomicU64::new(0);
/// The destructor of code objects that ours calls.
static DEALLOC: AtomicU64 = AtomicU64::new(0);
/// Why frames are refused: see [`remark`].
static REFUSAL: AtomicU32 = AtomicU32::new(0);
static REMARKED: AtomicBool = AtomicBool::new(false);

const NO_SYMBOLS: u32 = 1;
const FREE_THREADED: u32 = 2;
const WRONG_LAYOUT: u32 = 3;
/// Plus the minor version.
const UNKNOWN_VERSION: u32 = 0x100;
/// Entry of greenlet's module, today's and that of its versions below 1.0. gevent and eventlet are made of it.
const SWITCHERS: [&[u8]; 2] = [b"PyInit__greenlet", b"PyInit_greenlet"];
/// First address of that module and the one behind it; zeros: it is not loaded.
static SWITCHER: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

type Get = unsafe extern "C" fn() -> u64;
type IsEnding = unsafe extern "C" fn() -> c_int;
type GetVersion = unsafe extern "C" fn() -> *const c_char;
type Dealloc = unsafe extern "C" fn(*mut c_void);

/// What a thread needs to read its frames.
#[derive(Clone, Copy)]
pub struct PythonInterpreter {
    /// Where things are.
    pub layout: &'static PythonLayout,
    /// `PyCode_Type`.
    pub code_type: u64,
    /// State of the thread that holds the lock; of the calling thread alone from 3.12 on.
    current_thread: Get,
    /// State of the calling thread.
    own_thread: Get,
    is_ending: IsEnding,
}

/// The innermost frame of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopFrameFound {
    /// Its address; 0: no frame.
    pub frame: u64,
    /// It is certain that the thread runs this state and no other; else the count of frames must prove it.
    pub is_certain: bool,
}

/// Switches Python frames on or off.
pub fn enable(wanted: bool) {
    ENABLED.store(wanted, Ordering::Relaxed);
}

/// An object was loaded whose first segment begins at `map_start`.
///
/// # Safety
/// The loader must have mapped it there, and it must stay until [`gone`].
pub unsafe fn look_at(map_start: u64) {
    // SAFETY: the loader has mapped the object at `map_start` and it stays: the contract of this function.
    let Some(symbols) = (unsafe { DynamicSymbols::of(map_start) }) else { return };
    if STATE.load(Ordering::Acquire) != UNSEEN {
        let is_switcher = SWITCHERS.iter().any(|name| symbols.find(name).is_some());
        // SAFETY: as above.
        if let Some(to) = is_switcher.then(|| unsafe { code::image_end(map_start) }).flatten() {
            let [start, end] = &SWITCHER;
            end.store(to, Ordering::Relaxed);
            start.store(map_start, Ordering::Release);
        }
        return;
    }
    let Some(runtime) = symbols.find(b"_PyRuntime") else { return };
    let Some(evaluation) = symbols.find(b"_PyEval_EvalFrameDefault") else { return };
    let address = |names: &[&[u8]]| names.iter().find_map(|name| symbols.find(name)).map_or(0, |found| found.address);
    for (place, names) in [
        (&CODE_TYPE, &[&b"PyCode_Type"[..]][..]),
        (&CURRENT_THREAD, &[b"_PyThreadState_UncheckedGet", b"PyThreadState_GetUnchecked"]),
        (&OWN_THREAD, &[b"PyGILState_GetThisThreadState"]),
        (&IS_ENDING, &[b"_Py_IsFinalizing", b"Py_IsFinalizing"]),
        (&GET_VERSION, &[b"Py_GetVersion"]),
        (&VERSION, &[b"Py_Version"]),
    ] {
        place.store(address(names), Ordering::Relaxed);
    }
    RUNTIME.store(runtime.address, Ordering::Relaxed);
    let [_, end, ..] = &LOOP;
    end.store(evaluation.address + evaluation.bytes, Ordering::Relaxed);
    STATE.store(FOUND, Ordering::Release);
    let [start, ..] = &LOOP;
    start.store(evaluation.address, Ordering::Release);
}

/// Whether a frame whose return address is `pc` is of the module that moves Python's calls from stack to stack. In its
/// functions the thread's state says what ran before, or runs next: Python's frames cannot be read.
#[inline]
pub fn switches_stacks(pc: u64) -> bool {
    let [start, end] = &SWITCHER;
    (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&pc.wrapping_sub(1))
}

/// Notes that the objects in this range were unloaded.
pub fn gone(range: &Range<u64>) {
    let [switcher, switcher_end] = &SWITCHER;
    if range.contains(&switcher.load(Ordering::Relaxed)) {
        switcher.store(0, Ordering::Relaxed);
        switcher_end.store(0, Ordering::Relaxed);
    }
    let [start, end, cold, cold_end] = &LOOP;
    if range.contains(&start.load(Ordering::Relaxed)) {
        for word in [start, end, cold, cold_end] {
            word.store(0, Ordering::Relaxed);
        }
        PART_KNOWN.store(false, Ordering::Release);
        STATE.store(UNSEEN, Ordering::Release);
        EPOCH.fetch_add(1, Ordering::Release);
    }
}

/// The evaluation loop, as long as the part of it that lies elsewhere was not looked for.
#[inline]
pub fn loop_without_parts() -> Option<Range<u64>> {
    let [start, end, ..] = &LOOP;
    let start = start.load(Ordering::Acquire);
    if start == 0 || PART_KNOWN.load(Ordering::Acquire) || !ENABLED.load(Ordering::Relaxed) {
        return None;
    }
    Some(start..end.load(Ordering::Relaxed))
}

/// Sets where that part lies; an empty range if there is none.
pub fn set_loop_part(part: Range<u64>) {
    let [.., cold, cold_end] = &LOOP;
    cold_end.store(part.end, Ordering::Relaxed);
    cold.store(part.start, Ordering::Relaxed);
    PART_KNOWN.store(true, Ordering::Release);
}

/// Whether a frame whose return address is `pc` is a call of the evaluation loop, as far as its parts are known.
#[inline]
pub fn is_evaluation(pc: u64) -> bool {
    let [start, end, cold, cold_end] = &LOOP;
    let first = start.load(Ordering::Relaxed);
    if first == 0 || !ENABLED.load(Ordering::Relaxed) {
        return false;
    }
    let at = pc.wrapping_sub(1);
    (first..end.load(Ordering::Relaxed)).contains(&at)
        || (cold.load(Ordering::Relaxed)..cold_end.load(Ordering::Relaxed)).contains(&at)
}

/// The epoch: a change means that cached Python stacks may name code that was freed.
#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

pub(super) fn move_epoch() {
    EPOCH.fetch_add(1, Ordering::SeqCst);
}

/// The interpreter, if its frames can be read.
///
/// # Safety
/// The calling thread must be inside a call of the evaluation loop.
pub unsafe fn interpreter() -> Option<PythonInterpreter> {
    match STATE.load(Ordering::Acquire) {
        READY => {}
        FOUND if STATE.compare_exchange(FOUND, PREPARING, Ordering::AcqRel, Ordering::Relaxed).is_ok() => {
            // SAFETY: the thread is inside the evaluation loop, by the contract of this function; only the thread
            // that has changed the state comes here.
            let refusal = unsafe { prepare() };
            REFUSAL.store(refusal.unwrap_or(0), Ordering::Relaxed);
            STATE.store(if refusal.is_none() { READY } else { REFUSED }, Ordering::Release);
            if refusal.is_some() {
                return None;
            }
        }
        _ => return None,
    }
    let layout = PythonLayout::of(u8::try_from(MINOR.load(Ordering::Relaxed)).unwrap_or(0))?;
    // SAFETY: addresses of CPython's functions of these types, which are there since `prepare` has looked.
    unsafe {
        Some(PythonInterpreter {
            layout,
            code_type: CODE_TYPE.load(Ordering::Relaxed),
            current_thread: core::mem::transmute::<u64, Get>(CURRENT_THREAD.load(Ordering::Relaxed)),
            own_thread: core::mem::transmute::<u64, Get>(OWN_THREAD.load(Ordering::Relaxed)),
            is_ending: core::mem::transmute::<u64, IsEnding>(IS_ENDING.load(Ordering::Relaxed)),
        })
    }
}

/// Its minor version.
static MINOR: AtomicU32 = AtomicU32::new(0);

/// Finds out the version, and has the destructor of code objects come to us. Gives why frames are refused.
unsafe fn prepare() -> Option<u32> {
    let needed = [&CODE_TYPE, &CURRENT_THREAD, &OWN_THREAD, &IS_ENDING, &GET_VERSION];
    if needed.iter().any(|word| word.load(Ordering::Relaxed) == 0) {
        return Some(NO_SYMBOLS);
    }
    // SAFETY: CPython's function of this type: it gives a terminated text of its own.
    let text = unsafe {
        let get = core::mem::transmute::<u64, GetVersion>(GET_VERSION.load(Ordering::Relaxed));
        CStr::from_ptr(get()).to_bytes()
    };
    let minor = minor_version(text);
    MINOR.store(minor, Ordering::Relaxed);
    if text.windows(14).any(|part| part == b"free-threading") {
        return Some(FREE_THREADED);
    }
    let Some(layout) = u8::try_from(minor).ok().and_then(PythonLayout::of) else {
        return Some(UNKNOWN_VERSION + minor);
    };
    // SAFETY: no backtrace has been proved before this function has returned, so the memory is careful.
    match unsafe { own_layout(layout, RUNTIME.load(Ordering::Relaxed), &mut ObjectMemory::for_backtrace()) } {
        OwnLayout::Agrees => {}
        OwnLayout::Differs => return Some(WRONG_LAYOUT),
        OwnLayout::FreeThreaded => return Some(FREE_THREADED),
    }
    // SAFETY: a word of CPython's own, static and writable type.
    let slot = unsafe { &*((CODE_TYPE.load(Ordering::Relaxed) + layout::TYPE_DEALLOC) as *const AtomicU64) };
    let own = code_is_freed as *const () as u64;
    let found = slot.load(Ordering::Relaxed);
    if found != own {
        DEALLOC.store(found, Ordering::Release);
        slot.store(own, Ordering::Release);
    }
    None
}

/// 11 of `3.11.2 (main, …)`; 0 for what begins otherwise.
fn minor_version(text: &[u8]) -> u32 {
    let rest = text.strip_prefix(b"3.").unwrap_or_default();
    rest.iter().take_while(|byte| byte.is_ascii_digit()).fold(0, |minor, byte| minor * 10 + u32::from(byte - b'0'))
}

/// Destructor of code objects that replaces CPython's: removes the object from the table, since its address may be used
/// again, and calls the real one.
unsafe extern "C" fn code_is_freed(code: *mut c_void) {
    codes::forget(code as u64);
    let real = DEALLOC.load(Ordering::Acquire);
    if real != 0 {
        // SAFETY: what the type had before; the argument is CPython's.
        unsafe { core::mem::transmute::<u64, Dealloc>(real)(code) }
    }
}

impl PythonInterpreter {
    /// The innermost frame of the calling thread.
    ///
    /// # Safety
    /// The calling thread must be inside a call of the evaluation loop.
    #[inline]
    pub unsafe fn top_frame(&self) -> TopFrameFound {
        // SAFETY: both only read; states of the calling thread are there while it is inside Python.
        unsafe {
            let current = (self.current_thread)();
            if self.layout.minor >= 12 && current != 0 {
                return TopFrameFound { frame: self.frame_of(current), is_certain: true };
            }
            let own = (self.own_thread)();
            if own == current && own != 0 {
                return TopFrameFound { frame: self.frame_of(own), is_certain: true };
            }
            self.top_frame_without_lock(current, own)
        }
    }

    /// The thread does not hold the interpreter's lock, or runs another state than the one that it was made with.
    #[cold]
    unsafe fn top_frame_without_lock(&self, current: u64, own: u64) -> TopFrameFound {
        let id = current + u64::from(self.layout.thread_id);
        // SAFETY: another thread's state may go away at any time, hence the question. Its own are there.
        unsafe {
            if current != 0
                && sys::is_readable(id & !7)
                && (id as *const u64).read_volatile() == libc::pthread_self() as u64
            {
                return TopFrameFound { frame: self.frame_of(current), is_certain: true };
            }
            if own == 0 || (self.is_ending)() != 0 {
                return TopFrameFound { frame: 0, is_certain: false };
            }
            TopFrameFound { frame: self.frame_of(own), is_certain: false }
        }
    }

    #[inline]
    unsafe fn frame_of(&self, state: u64) -> u64 {
        // SAFETY: a state of the calling thread; the structure on its stack that it names is there as long.
        unsafe {
            match self.layout.top {
                TopFrame::Direct(offset) => ((state + u64::from(offset)) as *const u64).read_volatile(),
                TopFrame::CFrame(first, second) => {
                    let at = ((state + u64::from(first)) as *const u64).read_volatile();
                    if at == 0 { 0 } else { ((at + u64::from(second)) as *const u64).read_volatile() }
                }
            }
        }
    }

    /// Notes that frames are not as expected: none is read from here on.
    pub fn refuse(&self) {
        REFUSAL.store(WRONG_LAYOUT, Ordering::Relaxed);
        STATE.store(REFUSED, Ordering::Release);
        move_epoch();
    }
}

/// Remark for the recording, returned once: Python's frames are missing, and why.
pub fn remark() -> Option<String> {
    if STATE.load(Ordering::Acquire) != REFUSED || REMARKED.swap(true, Ordering::Relaxed) {
        return None;
    }
    let minor = MINOR.load(Ordering::Relaxed);
    Some(match REFUSAL.load(Ordering::Relaxed) {
        NO_SYMBOLS => {
            "Python's frames are missing: this interpreter does not export the functions that return its state".into()
        }
        FREE_THREADED => format!("Python's frames are missing: 3.{minor} without the global lock is not supported"),
        WRONG_LAYOUT => {
            format!(
                "Python's frames are missing: the structures of this 3.{minor} do not have the layout of that version"
            )
        }
        _ => format!("Python's frames are missing: 3.{minor} is none of the versions 3.9 to 3.15"),
    })
}

/// After a jump out of a signal handler has left a capture of the calling thread unfinished, which will not continue.
pub fn after_jump() {
    codes::after_jump();
}

/// In a forked child, whose other threads do not exist.
pub fn after_fork_in_child() {
    codes::after_fork_in_child();
    let _ = STATE.compare_exchange(PREPARING, FOUND, Ordering::Relaxed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(minor_version(b"3.11.2 (main, Mar 13 2023)"), 11);
        assert_eq!(minor_version(b"3.9.18"), 9);
        assert_eq!(minor_version(b"2.7.18"), 0);
        assert_eq!(minor_version(b""), 0);
        assert!(PythonLayout::of(8).is_none() && PythonLayout::of(16).is_none());
    }
}
