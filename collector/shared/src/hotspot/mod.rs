//! HotSpot, the usual Java virtual machine, in the process: location of its code cache, layout of the frames of the code
//! there, and names of the methods that its interpreter runs.
//!
//! ```text
//! module loaded ─▶ look_at: has it gHotSpotVMStructs?  ─▶ FOUND
//! first code of no object in a backtrace ─▶ prepare: tables, layouts, heaps ─▶ READY or REFUSED
//! ```
//! Everything is read from memory: no function of HotSpot's is called, and nothing of it is changed. Layouts come from the
//! tables that it exports for debuggers, of versions whose code keeps to what [`JavaFrame`] says.

mod code_cache;
mod interpreter_code;
mod line_table;
mod method_layout;
mod methods;
mod tables;
mod unloading;

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::cell::UnsafeCell;
use core::ops::Range;

use super::code::DynamicSymbols;
use super::sys::SignalsBlocked;
pub use code_cache::JavaFrame;
use code_cache::{CodeCache, NoCache};
use interpreter_code::relies_on_frame;
pub use line_table::{LinePair, LineTable, NextPair};
use method_layout::MethodLayout;
pub use methods::{JAVA_ADDRESSES, MethodName, MethodText, NamedBytecode, method_texts};
use tables::{FieldKind, FieldName, HotSpotField, ImageMemory};
use unloading::UnloadCounters;

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
static LAYOUTS: LayoutsPlace = LayoutsPlace(UnsafeCell::new(Layouts {
    cache: CodeCache::NONE,
    methods: None,
    anchor: 0,
    unloading: CountersPlace::new(),
}));

/// What is known of the virtual machine.
struct Layouts {
    cache: CodeCache,
    /// `None`: methods have no names.
    methods: Option<MethodLayout>,
    /// Where a thread has the stack pointer of its last frame of Java.
    anchor: u32,
    unloading: CountersPlace,
}

/// Where the counters of unloaded classes are. The virtual machine makes them after its first code: they are looked for when
/// they are needed first.
struct CountersPlace {
    state: AtomicU32,
    found: UnsafeCell<Option<UnloadCounters>>,
}

impl CountersPlace {
    const fn new() -> CountersPlace {
        CountersPlace { state: AtomicU32::new(FOUND), found: UnsafeCell::new(None) }
    }

    #[inline]
    fn get(&self) -> Option<&UnloadCounters> {
        if self.state.load(Ordering::Acquire) == READY {
            // SAFETY: nobody writes it any more.
            return unsafe { (*self.found.get()).as_ref() };
        }
        self.find();
        None
    }

    #[cold]
    fn find(&self) {
        let _undisturbed = SignalsBlocked::new();
        if self.state.compare_exchange(FOUND, PREPARING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            let start = START.load(Ordering::Relaxed);
            // SAFETY: the loader has mapped it there, and it was not unloaded: its layouts are in use. Only this thread is in
            // the state PREPARING, and nobody reads what is found before READY.
            unsafe {
                let of_library = ImageMemory::of(start).zip(DynamicSymbols::of(start));
                *self.found.get() = of_library.and_then(|(memory, symbols)| UnloadCounters::find(&memory, &symbols));
            }
            self.state.store(READY, Ordering::Release);
        }
    }
}

struct LayoutsPlace(UnsafeCell<Layouts>);

// SAFETY: written once, by the thread that has moved the state from FOUND to PREPARING, and read only when it is READY.
unsafe impl Sync for LayoutsPlace {}

/// How far below the frame pointer an interpreted frame has its `Method`, and the address of its bytecode: the same in all
/// of [`VERSIONS`].
pub const METHOD_SLOT: u64 = 24;
/// See [`METHOD_SLOT`].
pub const BYTECODE_SLOT: u64 = 64;

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

fn layouts() -> Option<&'static Layouts> {
    // SAFETY: nobody writes them any more.
    (STATE.load(Ordering::Acquire) == READY).then(|| unsafe { &*LAYOUTS.0.get() })
}

/// Layout of the frame whose return address is `pc`; `None` if there is no code at `pc`.
pub fn frame_at(pc: u64) -> Option<JavaFrame> {
    layouts()?.cache.frame_at(pc)
}

/// Whether methods of interpreted frames can be named.
pub fn names_methods() -> bool {
    layouts().is_some_and(|layouts| layouts.methods.is_some())
}

/// Whether an interpreted frame that is returned to at `pc` has the address of its bytecode, as it is now.
pub fn has_bytecode(pc: u64) -> bool {
    layouts().is_some_and(|layouts| relies_on_frame(layouts.cache.interpreter_code(pc), layouts.anchor))
}

/// Whether the code that returns to `pc` replaces a compiled frame by interpreted ones. While it does, those outside of it
/// have their place and nothing in it.
pub fn makes_frames(pc: u64) -> bool {
    layouts().is_some_and(|layouts| {
        // SAFETY: the loader has mapped the library there, and the state shows that it was not unloaded.
        let memory = unsafe { ImageMemory::of(START.load(Ordering::Relaxed)) };
        memory.is_none_or(|memory| layouts.cache.makes_frames(&memory, pc))
    })
}

/// The address that stands for frames of a virtual thread that are in the heap, where the frame inside of them returns to
/// `pc`, the code that brings them back; `None`: that is other code.
#[cold]
pub fn frames_in_heap(pc: u64) -> Option<u64> {
    let cache = &layouts()?.cache;
    // SAFETY: the loader has mapped the library there, and the state shows that it was not unloaded.
    let memory = unsafe { ImageMemory::of(START.load(Ordering::Relaxed)) }?;
    if cache.brings_frames(&memory, pc) { methods::frames_in_heap() } else { None }
}

/// The name of the method at `method`, in a frame that has `bytecode`; `None` if there is no method, or if the bytecode is
/// none of its. If it is not certain that there is one (`is_live`), the kernel is asked about all that is read.
///
/// # Safety
/// If `is_live`, the calling thread must be in a frame of the method.
pub unsafe fn name_of(method: u64, bytecode: Option<u64>, is_live: bool) -> Option<NamedBytecode> {
    let layout = layouts()?.methods.as_ref()?;
    // SAFETY: the contract of `name_of`, in both.
    unsafe { methods::name_of(layout, method, bytecode, is_live) }
}

/// Whether the method at `method` is still what it was when it got this name, in a frame that has `bytecode`.
///
/// # Safety
/// As for [`name_of`].
#[inline]
pub unsafe fn is_still(named: NamedBytecode, method: u64, bytecode: Option<u64>, is_live: bool) -> bool {
    let Some(layout) = layouts().and_then(|layouts| layouts.methods.as_ref()) else { return false };
    // SAFETY: the contract of `is_still`, in both.
    unsafe { methods::is_still(layout, named, method, bytecode, is_live) }
}

/// A number that changes whenever methods may have been unloaded, never 0; `None`: nothing says so.
#[inline]
pub fn unload_count() -> Option<u32> {
    layouts()?.unloading.get()?.count()
}

/// Major version of the virtual machine; 0: none is known.
pub fn version() -> u32 {
    VERSION.load(Ordering::Relaxed)
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
        Ok(layouts) => {
            let range = layouts.cache.low..layouts.cache.high;
            // SAFETY: only this thread is in the state PREPARING, and nobody reads the layouts before READY.
            unsafe { *LAYOUTS.0.get() = layouts };
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

fn find() -> Result<Layouts, NoCache> {
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
    let cache = CodeCache::find(&memory, &symbols)?;
    let methods = MethodLayout::find(&memory, &symbols, version, cache.interpreter).filter(|_| cache.has_names());
    let anchor = anchor(&memory, &symbols).unwrap_or(0);
    Ok(Layouts { cache, methods, anchor, unloading: CountersPlace::new() })
}

fn anchor(memory: &ImageMemory, symbols: &DynamicSymbols) -> Option<u32> {
    let wanted = [FieldName(b"JavaThread", b"_anchor", false), FieldName(b"JavaFrameAnchor", b"_last_Java_sp", false)];
    let mut found = [HotSpotField::default(); 2];
    memory.find_fields(symbols, &wanted, &mut found)?;
    let [anchor, stack_pointer] = found;
    let is_known = anchor.kind == FieldKind::Inside && stack_pointer.kind == FieldKind::Word;
    is_known.then(|| u32::try_from(anchor.place + stack_pointer.place).ok())?
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
    methods::after_fork_in_child();
    let _ = STATE.compare_exchange(PREPARING, FOUND, Ordering::Relaxed, Ordering::Relaxed);
}
