//! Methods of Java that backtraces go through in HotSpot's interpreter, and the addresses that stand for their bytecodes.
//!
//! As with Python's code objects, a method is known by its content: class, name, descriptor, source file, size of its
//! bytecodes, table of lines. Each distinct one gets a range of addresses that no process has:
//!
//! ```text
//! JAVA_ADDRESSES | base + 0        the bytecode is not known
//! JAVA_ADDRESSES | base + 1 + n    the bytecode at n
//! ```
//! The virtual machine frees methods and puts others there without notice. So an address of a method is never taken for the
//! method: whoever has a name compares all that it depends on with what is there now, by [`is_still`].

use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::method_layout::{LiveMethod, MethodLayout};
use crate::code_list::{CodeList, ListPosition};
use crate::lock::Lock;
use crate::sys::{self, SignalsBlocked};

/// Addresses from here on are methods'. Not in the half that a process can have, on any processor.
pub const JAVA_ADDRESSES: u64 = 1 << 61;

/// Places of methods that are known at a time, and distinct methods in all.
const MOST_METHODS: usize = 1 << 17;
const FULL: usize = MOST_METHODS / 4 * 3;

/// The distinct methods.
static METHODS: CodeList = CodeList::new();
/// By address of a method: what was there. Whoever finds something must compare it.
static PLACES: AtomicPtr<MethodSlot> = AtomicPtr::new(core::ptr::null_mut());
/// The address that stands for frames in the heap; 0 until there are any.
static FRAMES_IN_HEAP: AtomicU64 = AtomicU64::new(0);
/// What such frames are called. No method's name has spaces in it.
const NAME_OF_FRAMES_IN_HEAP: &[u8] = b"[frames of a virtual thread in the heap]";
static KNOWN: Lock<KnownMethods> = Lock::new(KnownMethods::EMPTY);

#[repr(C)]
struct MethodSlot {
    method: AtomicU64,
    entry: AtomicPtr<MethodEntry>,
}

/// The tables as they are filled. Whoever holds the lock has all signals blocked.
struct KnownMethods {
    /// By content.
    contents: *mut *const MethodEntry,
    used_places: usize,
    used_contents: usize,
}

// SAFETY: the mapping is reached through the lock alone.
unsafe impl Send for KnownMethods {}

/// An entry of the list; the texts follow it, in this order.
#[repr(C)]
struct MethodEntry {
    bytes: u32,
    code_bytes: u32,
    base: u64,
    class: u32,
    name: u32,
    descriptor: u32,
    file: u32,
    lines: u32,
    hash: u32,
}

const _: () = assert!(size_of::<MethodEntry>() == 40);

/// What a method was when it was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodName(u64);

impl MethodName {
    /// As a number, never 0.
    #[must_use]
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// What [`to_word`](Self::to_word) gave; `None` for 0.
    ///
    /// # Safety
    /// It must be such a number, or 0.
    #[must_use]
    pub unsafe fn from_word(word: u64) -> Option<MethodName> {
        (word != 0).then_some(MethodName(word))
    }
}

/// A frame's method, and the address that stands for its bytecode in the call tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedBytecode {
    /// What the method was.
    pub name: MethodName,
    /// The address plus one, like a return address.
    pub pc: u64,
}

/// A method as the list has it.
#[derive(Clone, Copy, Debug)]
pub struct MethodText {
    /// First address behind [`JAVA_ADDRESSES`].
    pub base: u64,
    /// Bytes of its bytecodes.
    pub code_bytes: u32,
    /// Its class, with slashes, in Java's form of UTF-8, as all texts are.
    pub class: &'static [u8],
    /// Its name.
    pub name: &'static [u8],
    /// Its parameters and its result.
    pub descriptor: &'static [u8],
    /// Its source file, without folders; empty if that is not known.
    pub file: &'static [u8],
    /// Its compressed table of lines; empty if it has none.
    pub lines: &'static [u8],
}

/// Hands all methods behind `position` to `each`.
pub fn method_texts(position: &mut ListPosition, mut each: impl FnMut(MethodText)) {
    METHODS.each(position, |bytes| {
        // SAFETY: an entry of the list, whose segments are aligned, and which begins with its head.
        let entry = unsafe { &*bytes.as_ptr().cast::<MethodEntry>() };
        let [class, name, descriptor, file, lines] = entry.texts();
        let (base, code_bytes) = (entry.base, entry.code_bytes);
        each(MethodText { base, code_bytes, class, name, descriptor, file, lines });
    });
}

impl MethodEntry {
    fn texts(&'static self) -> [&'static [u8]; 5] {
        let mut at = core::ptr::from_ref(self).wrapping_add(1).cast::<u8>();
        [self.class, self.name, self.descriptor, self.file, self.lines].map(|len| {
            // SAFETY: an entry has its texts behind it, as long as it says: `append` has written them.
            let text = unsafe { core::slice::from_raw_parts(at, len as usize) };
            at = at.wrapping_add(len as usize);
            text
        })
    }

    /// Whether `method` has this content: the same names and the same lines.
    #[inline]
    fn is(&'static self, method: &LiveMethod) -> bool {
        let [class, name, descriptor, file, lines] = self.texts();
        let now = method.behind_code;
        self.code_bytes == method.code_bytes
            && is_same(name, method.name)
            && is_same(class, method.class)
            && is_same(descriptor, method.descriptor)
            && is_same(file, method.file)
            && if lines.is_empty() {
                now.is_empty()
            } else {
                now.get(..lines.len()).is_some_and(|now| is_same(lines, now))
            }
    }

    fn name(&'static self) -> MethodName {
        MethodName(core::ptr::from_ref(self) as u64)
    }

    /// The address for a bytecode of `method`, which is this one; `None` if it is none of its bytecodes.
    #[inline]
    fn pc_of(&self, method: &LiveMethod, bytecode: Option<u64>) -> Option<u64> {
        let place = match bytecode {
            Some(bytecode) if method.code_bytes != 0 => {
                let index = bytecode.wrapping_sub(method.code);
                (index < u64::from(method.code_bytes)).then_some(index + 1)?
            }
            // A native method has none.
            Some(0) | None => 0,
            Some(_) => return None,
        };
        Some(JAVA_ADDRESSES + self.base + place + 1)
    }
}

/// Whether two texts are equal. Most are a few words long: a call would cost more than they do.
#[inline(always)]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let (ones, others) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    ones.0.iter().zip(others.0).all(|(one, other)| one == other)
        && ones.1.iter().zip(others.1).all(|(one, other)| one == other)
}

impl KnownMethods {
    const EMPTY: KnownMethods = KnownMethods { contents: core::ptr::null_mut(), used_places: 0, used_contents: 0 };

    fn prepare(&mut self) -> Option<()> {
        if self.contents.is_null() {
            let contents = sys::map_memory(MOST_METHODS * size_of::<*const MethodEntry>()).ok()?;
            let places = sys::map_memory(MOST_METHODS * size_of::<MethodSlot>()).ok()?;
            self.contents = contents.cast();
            PLACES.store(places.cast(), Ordering::Release);
        }
        Some(())
    }

    /// The entry of this content, which is made if it is new.
    fn entry_of(&mut self, layout: &MethodLayout, method: &LiveMethod) -> Option<&'static MethodEntry> {
        let lines = layout.lines_of(method)?;
        let hash = hash_of(method, lines);
        let mut index = hash as usize;
        loop {
            let slot = self.contents.wrapping_add(index % MOST_METHODS);
            // SAFETY: in bounds, and the lock is held. Entries stay for ever.
            match unsafe { (*slot).as_ref() } {
                Some(entry) if entry.hash == hash && entry.is(method) => return Some(entry),
                Some(_) => index += 1,
                None if self.used_contents >= FULL => return None,
                None => {
                    let entry = append(method, lines, hash)?;
                    // SAFETY: as above.
                    unsafe { slot.write(entry) };
                    self.used_contents += 1;
                    return Some(entry);
                }
            }
        }
    }

    fn put_place(&mut self, method: u64, entry: &'static MethodEntry) {
        let places = PLACES.load(Ordering::Relaxed);
        if self.used_places >= FULL {
            for index in 0..MOST_METHODS {
                // SAFETY: in bounds. Others may be reading: whatever they find they compare.
                let slot = unsafe { &*places.wrapping_add(index) };
                slot.entry.store(core::ptr::null_mut(), Ordering::Relaxed);
                slot.method.store(0, Ordering::Relaxed);
            }
            self.used_places = 0;
        }
        let slot = slot_of(places, method);
        self.used_places += usize::from(slot.method.load(Ordering::Relaxed) == 0);
        slot.entry.store(core::ptr::from_ref(entry).cast_mut(), Ordering::Release);
        slot.method.store(method, Ordering::Release);
    }
}

/// The slot of a method, or the free one where it belongs.
fn slot_of(places: *mut MethodSlot, method: u64) -> &'static MethodSlot {
    let mut index = (method.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize;
    loop {
        // SAFETY: in bounds of the table, which stays for ever.
        let slot = unsafe { &*places.wrapping_add(index % MOST_METHODS) };
        let found = slot.method.load(Ordering::Acquire);
        if found == method || found == 0 {
            return slot;
        }
        index += 1;
    }
}

fn hash_of(method: &LiveMethod, lines: &[u8]) -> u32 {
    let mut state = 0x243F_6A88_85A3_08D3_u64 ^ u64::from(method.code_bytes);
    for text in [method.class, method.name, method.descriptor, method.file, lines] {
        let words = text.chunks(8).map(|part| part.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)));
        for word in core::iter::once(text.len() as u64).chain(words) {
            state = (state ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
    }
    (state >> 32) as u32
}

/// Adds a method to the list; `None` without memory.
fn append(method: &LiveMethod, lines: &[u8], hash: u32) -> Option<&'static MethodEntry> {
    let texts = [method.class, method.name, method.descriptor, method.file, lines];
    let bytes = size_of::<MethodEntry>() + texts.iter().map(|text| text.len()).sum::<usize>();
    let base = METHODS.take_addresses(u64::from(method.code_bytes) + 2);
    let mut out = METHODS.entry_of(bytes.next_multiple_of(8))?;
    out.put(&method.code_bytes.to_le_bytes());
    out.put(&base.to_le_bytes());
    texts.iter().for_each(|text| out.put(&(text.len() as u32).to_le_bytes()));
    out.put(&hash.to_le_bytes());
    texts.iter().for_each(|text| out.put(text));
    let entry = out.publish().cast::<MethodEntry>();
    if let Some(session) = crate::session::current() {
        session.hurry();
    }
    // SAFETY: written above, as `MethodEntry` has it; it stays for ever.
    Some(unsafe { &*entry })
}

/// The name for the method at `method`, whose bytecode at `bytecode` runs, if that is known. `None` if there is no method,
/// or if the bytecode is not one of its. With `is_live` the kernel is not asked about a method that is known.
///
/// # Safety
/// If `is_live`, the calling thread must be in a frame of the method.
pub(super) unsafe fn name_of(
    layout: &MethodLayout,
    method: u64,
    bytecode: Option<u64>,
    is_live: bool,
) -> Option<NamedBytecode> {
    let places = PLACES.load(Ordering::Acquire);
    if is_live && method != 0 && !places.is_null() {
        // SAFETY: entries stay for ever.
        let known = unsafe { slot_of(places, method).entry.load(Ordering::Acquire).as_ref() };
        // SAFETY: the method is live: the contract of `name_of`.
        let now = known.and_then(|known| Some((known, unsafe { layout.read_live(method) }?)));
        if let Some((known, now)) = now.filter(|(known, now)| known.is(now)) {
            return Some(NamedBytecode { name: known.name(), pc: known.pc_of(&now, bytecode)? });
        }
    }
    let now = layout.read(method, is_live)?;
    // A signal handler on this thread would wait for the lock that it has interrupted.
    let undisturbed = SignalsBlocked::new();
    if !undisturbed.are_blocked() {
        return None;
    }
    let mut known = KNOWN.lock();
    known.prepare()?;
    let entry = known.entry_of(layout, &now)?;
    let pc = entry.pc_of(&now, bytecode)?;
    known.put_place(method, entry);
    Some(NamedBytecode { name: entry.name(), pc })
}

/// The address that stands for frames of virtual threads that are in the heap: they are listed as a method without a class.
pub(super) fn frames_in_heap() -> Option<u64> {
    let known = FRAMES_IN_HEAP.load(Ordering::Acquire);
    if known != 0 {
        return Some(known);
    }
    // As in `name_of`.
    let undisturbed = SignalsBlocked::new();
    if !undisturbed.are_blocked() {
        return None;
    }
    let _alone = KNOWN.lock();
    let known = FRAMES_IN_HEAP.load(Ordering::Acquire);
    if known != 0 {
        return Some(known);
    }
    let nothing: &[u8] = &[];
    let frames = LiveMethod {
        class: nothing,
        name: NAME_OF_FRAMES_IN_HEAP,
        descriptor: nothing,
        file: nothing,
        code: 0,
        code_bytes: 0,
        behind_code: nothing,
    };
    let pc = JAVA_ADDRESSES + append(&frames, nothing, 0)?.base + 1;
    FRAMES_IN_HEAP.store(pc, Ordering::Release);
    Some(pc)
}

/// Whether the method at `method` is still what it was when its bytecode at `bytecode` got this name.
///
/// # Safety
/// The calling thread must be in a frame of the method, or `is_live` be false: then the kernel is asked.
#[inline]
pub(super) unsafe fn is_still(
    layout: &MethodLayout,
    named: NamedBytecode,
    method: u64,
    bytecode: Option<u64>,
    is_live: bool,
) -> bool {
    // SAFETY: names are made of entries alone, which stay for ever. The method is live, or the kernel is asked: the contract
    // of `is_still`.
    let (known, now) = unsafe {
        let known = &*(named.name.0 as *const MethodEntry);
        (known, if is_live { layout.read_live(method) } else { layout.read(method, false) })
    };
    now.is_some_and(|now| known.is(&now) && known.pc_of(&now, bytecode) == Some(named.pc))
}

/// In a forked child, whose other threads do not exist.
pub(super) fn after_fork_in_child() {
    if KNOWN.try_lock().is_none() {
        // SAFETY: the child has one thread, which does not hold it. The old tables are left where they are.
        unsafe { KNOWN.abandon(KnownMethods::EMPTY) };
        PLACES.store(core::ptr::null_mut(), Ordering::Release);
    }
}
