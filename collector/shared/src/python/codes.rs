//! Code objects that backtraces go through, and the addresses that stand for their instructions.
//!
//! A code object is known by its content, not by where it lies: name, file, first line, line table. Each distinct one
//! gets a range of addresses that no process has, so that the call tree and all later stages need no special case for
//! Python:
//!
//! ```text
//! CODE_ADDRESSES | base + 0        before the first instruction
//! CODE_ADDRESSES | base + 1 + n    instruction n
//! ```
//! The address of an object is kept until the object is freed. Its name goes into an append-only list: the writer
//! writes it into the recording before the first node that refers to it, and a forked child writes it again into its
//! own recording.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::code_text::{self, HEADER_BYTES};
use super::layout::{BYTES_DATA, OBJECT_SIZE, OBJECT_TYPE, PythonLayout, REFERENCE_MARKS, TEXT_STATE, UNIT};
use super::memory::ObjectMemory;
use super::{PythonInterpreter, move_epoch};
use crate::code_list::CodeEntry;
use crate::gate;
use crate::lock::{Lock, LockGuard};
use crate::sys;

/// Addresses from here on are code objects'. Not in the half that a process can have, on any processor.
pub const CODE_ADDRESSES: u64 = 1 << 60;

/// Represents each instruction of code that is no function of the program's: the interpreter runs it between two of them.
/// The first range begins behind it.
pub const INTERPRETERS_OWN: u64 = CODE_ADDRESSES;

/// Code objects whose places are known at a time, and distinct ones in all.
const MOST_CODES: usize = 1 << 18;
const FULL: usize = MOST_CODES / 4 * 3;
/// Longest text and line table that are kept; longer ones are cut.
const MOST_TEXT: usize = 16 << 10;
const MOST_LINES: usize = 1 << 20;

/// Place of a code object that was freed.
const DEAD: u64 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
struct PlaceSlot {
    /// Address of the object; 0: none, [`DEAD`]: there was one.
    code: u64,
    /// Where its range begins; [`NO_RANGE`]: it is the interpreter's own.
    base: u64,
    units: u64,
}

/// Base of code that represents nothing in a backtrace.
const NO_RANGE: u64 = u64::MAX;

#[repr(C)]
#[derive(Clone, Copy)]
struct ContentSlot {
    /// Both halves zero: none.
    hash: [u64; 2],
    base: u64,
}

struct Codes {
    places: *mut PlaceSlot,
    contents: *mut ContentSlot,
    used_places: usize,
    used_contents: usize,
}

// SAFETY: the mappings are reached through the lock alone.
unsafe impl Send for Codes {}

static CODES: Lock<Codes> = Lock::new(Codes::EMPTY);
/// Holder of the lock: a word that is the calling thread's alone, with [`FREEING`] in [`forget`]; 0: nobody.
static HOLDER: AtomicU64 = AtomicU64::new(0);
/// A code object was freed and could not be removed from the table, because the lock was held.
static MISSED: AtomicBool = AtomicBool::new(false);

impl Codes {
    const EMPTY: Codes =
        Codes { places: core::ptr::null_mut(), contents: core::ptr::null_mut(), used_places: 0, used_contents: 0 };

    fn prepare(&mut self) -> Option<()> {
        if self.places.is_null() {
            let places = sys::map_memory(MOST_CODES * size_of::<PlaceSlot>()).ok()?;
            let contents = sys::map_memory(MOST_CODES * size_of::<ContentSlot>()).ok()?;
            (self.places, self.contents) = (places.cast(), contents.cast());
        }
        Some(())
    }

    /// The slot of the object at `code`, or the free one where it belongs.
    fn place(&self, code: u64) -> *mut PlaceSlot {
        let mut index = (code.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize;
        loop {
            let slot = self.places.wrapping_add(index % MOST_CODES);
            // SAFETY: in bounds, and the lock is held.
            let found = unsafe { (*slot).code };
            if found == code || found == 0 {
                return slot;
            }
            index += 1;
        }
    }

    /// The slot of a content, or the free one where it belongs.
    fn content(&self, hash: [u64; 2]) -> *mut ContentSlot {
        let [mut index, _] = hash.map(|half| half as usize);
        loop {
            let slot = self.contents.wrapping_add(index % MOST_CODES);
            // SAFETY: in bounds, and the lock is held.
            let found = unsafe { (*slot).hash };
            if found == hash || found == [0; 2] {
                return slot;
            }
            index = index.wrapping_add(1);
        }
    }

    fn forget_places(&mut self) {
        // SAFETY: the whole mapping, with the lock held.
        unsafe { core::ptr::write_bytes(self.places, 0, MOST_CODES) };
        self.used_places = 0;
        move_epoch();
    }

    /// Base and number of instructions of the object at `code`, which is made known if it is new.
    ///
    /// # Safety
    /// The calling thread must be inside a frame of it.
    unsafe fn known(
        &mut self,
        interpreter: &PythonInterpreter,
        memory: &mut ObjectMemory,
        code: u64,
    ) -> Option<(u64, u64)> {
        self.prepare()?;
        if self.used_places >= FULL || MISSED.swap(false, Ordering::SeqCst) {
            self.forget_places();
        }
        // SAFETY: a slot of the table, whose lock is held.
        let slot = unsafe { *self.place(code) };
        if slot.code == code {
            return Some((slot.base, slot.units));
        }
        // SAFETY: a frame keeps its code object: the contract of `known`. The type of every object is at the same offset.
        if unsafe { memory.word(code + OBJECT_TYPE) }? != interpreter.code_type {
            return None;
        }
        // SAFETY: its type says that it is a code object, which the frame keeps while `text` is in use here.
        let text = unsafe { CodeObject::read(interpreter.layout, memory, code) }?;
        let base = if text.is_interpreters_own { NO_RANGE } else { self.base_of(&text)? };
        // SAFETY: a slot of the table, whose lock is held.
        unsafe { self.place(code).write(PlaceSlot { code, base, units: text.units }) };
        self.used_places += 1;
        Some((base, text.units))
    }

    /// Where the range of this content begins, which gets one if it is new.
    fn base_of(&mut self, text: &CodeObject) -> Option<u64> {
        let hash = text.hash();
        let content = self.content(hash);
        // SAFETY: a slot of the table, whose lock is held.
        let known = unsafe { *content };
        if known.hash == hash {
            return Some(known.base);
        }
        if self.used_contents >= FULL {
            return None;
        }
        // First, so that a capture that is left here wastes addresses, and the next function does not get the same.
        let base = code_text::CODES.take_addresses(text.units + 1);
        text.append(base)?;
        // SAFETY: a slot of the table, whose lock is held.
        unsafe { content.write(ContentSlot { hash, base }) };
        self.used_contents += 1;
        Some(base)
    }
}

/// Marks a holder that is in no event of the recorder.
const FREEING: u64 = 1;

/// The calling thread as a holder; it lacks [`FREEING`].
fn own_mark() -> u64 {
    core::ptr::from_ref(gate::slot()) as u64
}

/// The lock, for a holder with this mark; `None` when the calling thread seems to hold it already: a signal handler has
/// interrupted it.
fn codes(mark: u64) -> Option<LockGuard<'static, Codes>> {
    const SPINS: u32 = 100;
    const SLEEPS: u32 = 2000;
    let own = own_mark();
    for attempt in 0..SPINS + SLEEPS {
        if let Some(guard) = CODES.try_lock() {
            HOLDER.store(own | mark, Ordering::Relaxed);
            return Some(guard);
        }
        if HOLDER.load(Ordering::Relaxed) & !FREEING == own {
            return None;
        }
        if attempt < SPINS { crate::sync::pause() } else { sys::sleep(50_000) }
    }
    None
}

fn give_back(guard: LockGuard<'static, Codes>) {
    HOLDER.store(0, Ordering::Relaxed);
    drop(guard);
}

/// The address that represents an instruction of the code object at `code`, plus one like a return address, for the call
/// tree, or [`INTERPRETERS_OWN`]. `code` and `instruction` are as in the frame. `None` if this is no code object, or not one
/// of its instructions.
///
/// # Safety
/// The calling thread must be inside a frame of it.
pub unsafe fn address_of(
    interpreter: &PythonInterpreter,
    memory: &mut ObjectMemory,
    code: u64,
    instruction: u64,
) -> Option<u64> {
    let code = code & !REFERENCE_MARKS;
    let mut codes = codes(0)?;
    // SAFETY: the calling thread is inside a frame of it: the contract of `address_of`.
    let known = unsafe { codes.known(interpreter, memory, code) };
    give_back(codes);
    let (base, units) = known?;
    if base == NO_RANGE {
        return Some(INTERPRETERS_OWN);
    }
    let layout = interpreter.layout;
    let number = if layout.has_inline_code() {
        let first = code + u64::from(layout.code_instructions);
        // One before the first: the frame has not begun.
        let at = instruction.wrapping_sub(first.wrapping_sub(UNIT));
        if !at.is_multiple_of(UNIT) {
            return None;
        }
        at / UNIT
    } else {
        let number = i64::from(instruction as u32 as i32);
        (number / i64::from(layout.instruction_step) + i64::from(number >= 0)).max(0) as u64
    };
    (number <= units).then_some(CODE_ADDRESSES + base + number + 1)
}

/// Removes the code object at `code`, which is being freed.
pub(super) fn forget(code: u64) {
    let Some(mut codes) = codes(FREEING) else {
        // The holder of the lock checks this flag before it uses an entry.
        MISSED.store(true, Ordering::SeqCst);
        move_epoch();
        return;
    };
    if !codes.places.is_null() {
        let slot = codes.place(code);
        // SAFETY: a slot of the table, whose lock is held.
        unsafe {
            if (*slot).code == code {
                (*slot).code = DEAD;
                move_epoch();
            }
        }
    }
    // Entries of freed objects are used again only after the table has been emptied.
    if codes.used_places >= FULL {
        codes.forget_places();
    }
    give_back(codes);
}

/// After a jump out of a signal handler has left a capture of the calling thread: opens the lock, if it was left held. Other
/// threads would wait for it in vain at each new function.
pub(super) fn after_jump() {
    if HOLDER.load(Ordering::Relaxed) == own_mark() {
        HOLDER.store(0, Ordering::Relaxed);
        // SAFETY: the calling thread holds it since `address_of`, in a capture that does not continue; a holder that may is
        // marked with FREEING. The old tables are left where they are.
        unsafe { CODES.abandon(Codes::EMPTY) };
        move_epoch();
    }
}

/// In a forked child: whoever was in the middle of a change is gone.
pub(super) fn after_fork_in_child() {
    if HOLDER.swap(0, Ordering::Relaxed) != 0 {
        // SAFETY: the child has one thread. The old tables are left where they are.
        unsafe { CODES.abandon(Codes::EMPTY) };
        move_epoch();
    }
}

/// Fields of a code object, read in place.
struct CodeObject {
    minor: u8,
    units: u64,
    first_line: u32,
    name: ObjectText,
    file: ObjectText,
    lines: &'static [u8],
    /// No compiler has made it of a program's source.
    is_interpreters_own: bool,
}

/// A text object: its bytes, and how many of them make a character.
struct ObjectText {
    bytes: &'static [u8],
    width: usize,
    is_ascii: bool,
}

impl ObjectText {
    /// The text object at `at`.
    ///
    /// # Safety
    /// There must be one, as `memory` wants it, which the calling thread keeps while the result is in use.
    unsafe fn read(layout: &PythonLayout, memory: &mut ObjectMemory, at: u64) -> Option<ObjectText> {
        const COMPACT: u32 = 1 << 5;
        const ASCII: u32 = 1 << 6;
        // SAFETY: both are fields of every text object: the contract of `read`.
        let (len, state) = unsafe { (memory.word(at + OBJECT_SIZE)?, memory.half_word(at + TEXT_STATE)?) };
        let len = usize::try_from(len).ok()?;
        let (width, is_ascii) = ((state >> 2 & 7) as usize, state & ASCII != 0);
        if state & COMPACT == 0 || !matches!(width, 1 | 2 | 4) {
            return None;
        }
        let [ascii, other] = layout.text_headers;
        let data = at + u64::from(if is_ascii { ascii } else { other });
        // SAFETY: a compact object has its characters behind its header, as many as it says; it is kept as long as the
        // result is in use: the contract of `read`.
        let bytes = unsafe { memory.bytes(data, len.min(MOST_TEXT).checked_mul(width)?) }?;
        Some(ObjectText { bytes, width, is_ascii })
    }

    fn characters(&self) -> impl Iterator<Item = char> {
        self.bytes.chunks_exact(self.width.max(1)).map(|bytes| {
            let value = bytes.iter().rev().fold(0, |value: u32, &byte| value << 8 | u32::from(byte));
            char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
        })
    }

    /// Bytes as UTF-8.
    fn len(&self) -> usize {
        if self.is_ascii { self.bytes.len() } else { self.characters().map(char::len_utf8).sum() }
    }

    fn put(&self, out: &mut CodeEntry) {
        if self.is_ascii {
            out.put(self.bytes);
        } else {
            self.characters().for_each(|character| put_character(character, out));
        }
    }
}

/// Appends a character in UTF-8, without the standard library's check of the room for it, which is a panic.
fn put_character(character: char, out: &mut CodeEntry) {
    let code = u32::from(character);
    let lead = |mark: u8, shift: u32| mark | (code >> shift) as u8;
    let tail = |shift: u32| 0x80 | (code >> shift & 0x3f) as u8;
    match code {
        0..0x80 => out.put(&[code as u8]),
        0x80..0x800 => out.put(&[lead(0xc0, 6), tail(0)]),
        0x800..0x1_0000 => out.put(&[lead(0xe0, 12), tail(6), tail(0)]),
        _ => out.put(&[lead(0xf0, 18), tail(12), tail(6), tail(0)]),
    }
}

impl CodeObject {
    /// The code object at `code`.
    ///
    /// # Safety
    /// There must be one, as `memory` wants it, which the calling thread keeps while the result is in use.
    unsafe fn read(layout: &PythonLayout, memory: &mut ObjectMemory, code: u64) -> Option<CodeObject> {
        // SAFETY: all are fields of the code object, by the layout of its version, and of the objects that it keeps for its
        // whole life: a text for the name and the file, bytes for the lines and the instructions. It is kept itself: the
        // contract of `read`.
        unsafe {
            let units = if layout.has_inline_code() {
                memory.word(code + OBJECT_SIZE)?
            } else {
                let instructions = memory.word(code + u64::from(layout.code_instructions))?;
                memory.word(instructions + OBJECT_SIZE)? / UNIT
            };
            let lines = memory.word(code + u64::from(layout.code_lines))?;
            let lines_len = usize::try_from(memory.word(lines + OBJECT_SIZE)?).ok()?;
            let name = memory.word(code + u64::from(layout.code_name))?;
            let file = memory.word(code + u64::from(layout.code_file))?;
            let first_line = memory.half_word(code + u64::from(layout.code_first_line))?;
            Some(CodeObject {
                // What 3.13 and later run below a constructor that is called without a call of C (`_Py_InitCleanup`): its
                // file is its name, one object, and it is defined in no line. Tracebacks do not show it.
                is_interpreters_own: name == file && first_line == 0,
                minor: layout.minor,
                units: Some(units).filter(|&units| units < 1 << 32)?,
                first_line,
                name: ObjectText::read(layout, memory, name)?,
                file: ObjectText::read(layout, memory, file)?,
                lines: memory.bytes(lines + BYTES_DATA, lines_len.min(MOST_LINES))?,
            })
        }
    }

    /// 128 bits over all of it; never both zero.
    fn hash(&self) -> [u64; 2] {
        let mut state = [0x243F_6A88_85A3_08D3_u64, 0x1319_8A2E_0370_7344];
        let mut mix = |word: u64| {
            let [a, b] = &mut state;
            *a = (*a ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
            *b = (*b ^ word).wrapping_mul(0xC2B2_AE3D_27D4_EB4F).rotate_left(31) ^ *a >> 32;
        };
        mix(self.units | u64::from(self.first_line) << 32);
        for bytes in [self.name.bytes, self.file.bytes, self.lines] {
            mix(bytes.len() as u64);
            let words = bytes.chunks(8);
            words.for_each(|part| mix(part.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))));
        }
        mix(self.name.width as u64 | (self.file.width as u64) << 8);
        let [a, b] = state;
        [a | 1, b]
    }

    /// Adds it to the list; `None` without memory.
    fn append(&self, base: u64) -> Option<()> {
        let lens = [self.name.len(), self.file.len(), self.lines.len()];
        let bytes = (HEADER_BYTES + lens.iter().sum::<usize>()).next_multiple_of(8);
        let mut out = code_text::CODES.entry_of(bytes)?;
        out.put(&(self.units as u32).to_le_bytes());
        out.put(&base.to_le_bytes());
        for number in [self.first_line, u32::from(self.minor)] {
            out.put(&number.to_le_bytes());
        }
        lens.iter().for_each(|&len| out.put(&(len as u32).to_le_bytes()));
        out.put(&[0; 4]);
        self.name.put(&mut out);
        self.file.put(&mut out);
        out.put(self.lines);
        out.publish();
        if let Some(session) = crate::session::current() {
            session.hurry();
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_a_jump_has_left_is_opened_and_another_is_not() {
        let held = |mark| codes(mark).map(give_back).is_none();
        // As a jump does, which drops nothing.
        core::mem::forget(codes(0).unwrap());
        assert!(held(0));
        after_jump();
        assert!(!held(0));
        let freeing = codes(FREEING).unwrap();
        after_jump();
        assert!(held(0), "what is interrupted while an object is freed continues");
        give_back(freeing);
        assert!(!held(0));
    }
}
