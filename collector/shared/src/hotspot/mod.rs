//! HotSpot, the usual Java virtual machine, in the process: location of its code cache, and layout of the frames of the
//! code there.
//!
//! ```text
//! module loaded ─▶ look_at: has it gHotSpotVMStructs?  ─▶ FOUND
//! first code of no object in a backtrace ─▶ prepare: tables, layouts, heaps ─▶ READY or REFUSED
//! ```
//! Everything is read from memory: no function of HotSpot's is called, and nothing of it is changed. Layouts come from the
//! tables that it exports for debuggers, of versions whose code keeps to what [`JavaFrame`] says.

mod code_cache;
mod tables;

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::cell::UnsafeCell;
use core::ops::Range;

use super::code::DynamicSymbols;
use super::sys::SignalsBlocked;
pub use code_cache::JavaFrame;
use code_cache::{CodeCache, NoCache};
use tables::{FieldName, HotSpotField, ImageMemory};

const UNSEEN: u32 = 0;
const FOUND: u32 = 1;
const PREPARING: u32 = 2;
const READY: u32 = 3;
const REFUSED: u32 = 4;
/// HotSpot was loaded and unloaded: this process cannot load it again.
const GONE: u32 = 5;

/// Major versions whose code is known to have such frames.
const VERSIONS: core::ops::RangeInclusive<u32> = 17..=25;

static STATE: AtomicU32 = AtomicU32::new(UNSEEN);
/// Where `libjvm.so` begins.
static START: AtomicU64 = AtomicU64::new(0);
static VERSION: AtomicU32 = AtomicU32::new(0);
/// The code cache, once it is known: else an empty range.
static LOW: AtomicU64 = AtomicU64::new(0);
static HIGH: AtomicU64 = AtomicU64::new(0);
static REMARKED: AtomicBool = AtomicBool::new(false);
static CACHE: CachePlace = CachePlace(UnsafeCell::new(CodeCache::NONE));

struct CachePlace(UnsafeCell<CodeCache>);

// SAFETY: written once, by the thread that has moved the state from FOUND to PREPARING, and read only when it is READY.
unsafe impl Sync for CachePlace {}

/// An object was loaded whose first segment begins at `map_start`.
///
/// # Safety
/// The loader must have mapped it there, and it must stay until [`gone`].
pub unsafe fn look_at(map_start: u64) {
    if !cfg!(target_arch = "x86_64") || STATE.load(Ordering::Acquire) != UNSEEN {
        return;
    }
    // SAFETY: the loader has mapped the object at `map_start` and it stays: the contract of this function.
    let Some(symbols) = (unsafe { DynamicSymbols::of(map_start) }) else { return };
    if symbols.find(b"gHotSpotVMStructs").is_some() && symbols.find(b"JNI_CreateJavaVM").is_some() {
        START.store(map_start, Ordering::Relaxed);
        STATE.store(FOUND, Ordering::Release);
    }
}

/// Notes that the objects in this range were unloaded.
pub fn gone(range: &Range<u64>) {
    if STATE.load(Ordering::Acquire) != UNSEEN && range.contains(&START.load(Ordering::Relaxed)) {
        STATE.store(GONE, Ordering::Release);
        HIGH.store(0, Ordering::Release);
        LOW.store(0, Ordering::Release);
    }
}

/// Whether there is a code cache, as far as is known.
pub fn is_known() -> bool {
    HIGH.load(Ordering::Relaxed) != 0
}

/// Whether `inside` is code in HotSpot's code cache, as far as one is known.
#[inline(always)]
pub fn covers(inside: u64) -> bool {
    inside < HIGH.load(Ordering::Relaxed) && inside >= LOW.load(Ordering::Relaxed)
}

/// Layout of the frame whose return address is `pc`; `None` if there is no code at `pc`.
pub fn frame_at(pc: u64) -> Option<JavaFrame> {
    if STATE.load(Ordering::Acquire) != READY {
        return None;
    }
    // SAFETY: nobody writes it any more.
    unsafe { &*CACHE.0.get() }.frame_at(pc)
}

/// Looks for the code cache, after a backtrace has met code of no object, unless it was found before. Returns its range
/// when this call has found it.
#[cold]
pub fn prepare() -> Option<Range<u64>> {
    if STATE.load(Ordering::Acquire) != FOUND {
        return None;
    }
    // A signal handler on this thread would find the state PREPARING, which only the interrupted code ends.
    let _undisturbed = SignalsBlocked::new();
    STATE.compare_exchange(FOUND, PREPARING, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    let (state, range) = match find() {
        Ok(cache) => {
            let range = cache.low..cache.high;
            // SAFETY: only this thread is in the state PREPARING, and nobody reads the cache before READY.
            unsafe { *CACHE.0.get() = cache };
            (READY, Some(range))
        }
        Err(NoCache::NotYet) => (FOUND, None),
        Err(NoCache::Unknown) => (REFUSED, None),
    };
    STATE.compare_exchange(PREPARING, state, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    if let Some(range) = &range {
        LOW.store(range.start, Ordering::Release);
        HIGH.store(range.end, Ordering::Release);
    }
    range
}

fn find() -> Result<CodeCache, NoCache> {
    let start = START.load(Ordering::Relaxed);
    // SAFETY: the loader has mapped it there, and the state shows that it was not unloaded.
    let found = unsafe { (ImageMemory::of(start), DynamicSymbols::of(start)) };
    let (Some(memory), Some(symbols)) = found else { return Err(NoCache::Unknown) };
    let mut version = [HotSpotField::default()];
    let wanted = [FieldName(b"Abstract_VM_Version", b"_vm_major_version", true)];
    memory.find_fields(&symbols, &wanted, &mut version).ok_or(NoCache::NotYet)?;
    let version = memory.int(version[0].place).unwrap_or(0);
    VERSION.store(version, Ordering::Relaxed);
    if !VERSIONS.contains(&version) {
        return Err(NoCache::Unknown);
    }
    CodeCache::find(&memory, &symbols)
}

/// Remark for the recording, returned once: Java frames are not exact, and why.
pub fn remark() -> Option<String> {
    if STATE.load(Ordering::Acquire) != REFUSED || REMARKED.swap(true, Ordering::Relaxed) {
        return None;
    }
    let version = VERSION.load(Ordering::Relaxed);
    Some(if VERSIONS.contains(&version) {
        format!(
            "Java's frames are found by frame pointers: the structures of this HotSpot {version} do not have the layout of \
             that version. -XX:+PreserveFramePointer has it keep frame pointers"
        )
    } else {
        format!(
            "Java's frames are found by frame pointers: HotSpot {version} is none of the versions 17 to 25. \
             -XX:+PreserveFramePointer has it keep frame pointers"
        )
    })
}

/// In a forked child, whose other threads do not exist.
pub fn after_fork_in_child() {
    let _ = STATE.compare_exchange(PREPARING, FOUND, Ordering::Relaxed, Ordering::Relaxed);
}
