//! One Python frame, as the words that distinguish it from every other frame.

use tracehound_shared::python::{EntryMark, ObjectMemory, PythonInterpreter, PythonLayout};

/// Frames of a chain that are followed.
pub const MOST_FRAMES: usize = 100_000;

/// What tells a frame from others that run something else: its code object, its instruction, and the byte that says whether
/// it is the outermost of a call of the evaluation loop. Where it lies does not matter: generators, and what is called
/// again and again, run in many places.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameWord {
    /// Address of the code object, as the frame has it: from 3.14 on with marks in the lowest bits.
    pub code: u64,
    /// Address or number of the instruction, as the frame has it, and the byte in the upper eight bits.
    instruction_mark: u64,
}

/// Bits that addresses have.
const ADDRESS: u64 = (1 << 48) - 1;
const MARK_SHIFT: u32 = 56;

/// What a frame is to the call of the evaluation loop that runs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameRole {
    /// One of its frames, run by the same call as the next one outwards.
    Inner,
    /// Its outermost frame.
    Outermost,
    /// None of the program's: it stands for the call.
    Call,
    /// None of the program's either: the thread's first one, below all calls, which 3.15 has. It has no instruction.
    Base,
}

#[inline(always)]
unsafe fn load(address: u64) -> u64 {
    // SAFETY: every caller reads a field of a frame that exists. Volatile: Python writes here between two events.
    unsafe { (address as *const u64).read_volatile() }
}

#[inline(always)]
unsafe fn load_instruction(layout: &PythonLayout, frame: u64) -> u64 {
    let at = frame + u64::from(layout.frame_instruction);
    // SAFETY: both callers have a frame of the calling thread at `frame`; this is a field of it.
    unsafe { if layout.has_inline_code() { load(at) } else { u64::from((at as *const u32).read_volatile()) } }
}

/// Offset of the byte that marks a frame, if one does.
#[inline(always)]
fn mark_offset(layout: &PythonLayout) -> Option<u64> {
    match layout.entry {
        EntryMark::Every => None,
        EntryMark::Flag(offset) | EntryMark::Shim(offset) => Some(u64::from(offset)),
    }
}

impl FrameWord {
    /// What the frame at `frame` is now, and the next one outwards. `None` where no frame can be.
    ///
    /// # Safety
    /// `memory` must be careful, or `frame` the innermost frame of the calling thread or what the one within leads to.
    pub unsafe fn read(layout: &PythonLayout, memory: &mut ObjectMemory, frame: u64) -> Option<(FrameWord, u64)> {
        if frame & !ADDRESS != 0 {
            return None;
        }
        // SAFETY: the kernel is asked, or all are fields of a frame of the calling thread: the contract of `read`.
        let (code, instruction, mark, previous) = unsafe {
            let code = memory.word(frame + u64::from(layout.frame_code))?;
            let at = frame + u64::from(layout.frame_instruction);
            let instruction =
                if layout.has_inline_code() { memory.word(at)? } else { u64::from(memory.half_word(at)?) };
            let mark = match mark_offset(layout) {
                Some(offset) => memory.byte(frame + offset)?,
                None => 0,
            };
            (code, instruction, mark, memory.word(frame + u64::from(layout.frame_previous))?)
        };
        if instruction >> MARK_SHIFT != 0 {
            return None;
        }
        Some((FrameWord { code, instruction_mark: instruction | u64::from(mark) << MARK_SHIFT }, previous))
    }

    /// A number of 64 bits that words one behind the other have, made of the number of those before.
    #[inline]
    pub fn mixed_into(self, before: u64) -> u64 {
        let code = (before ^ self.code).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (code ^ code >> 32 ^ self.instruction_mark).wrapping_mul(0xD6E8_FEB8_6659_FD93)
    }

    fn instruction(self) -> u64 {
        self.instruction_mark & ((1 << MARK_SHIFT) - 1)
    }

    /// See [`FrameRole`].
    pub fn role(self, layout: &PythonLayout) -> FrameRole {
        let mark = self.instruction_mark >> MARK_SHIFT;
        match layout.entry {
            EntryMark::Every => FrameRole::Outermost,
            EntryMark::Flag(_) if mark != 0 => FrameRole::Outermost,
            EntryMark::Shim(_) if mark == 3 && self.instruction() == 0 => FrameRole::Base,
            EntryMark::Shim(_) if mark == 3 => FrameRole::Call,
            EntryMark::Flag(_) | EntryMark::Shim(_) => FrameRole::Inner,
        }
    }

    /// The address that stands for its instruction in the call tree.
    ///
    /// # Safety
    /// The frame must exist.
    pub unsafe fn address(self, interpreter: &PythonInterpreter, memory: &mut ObjectMemory) -> Option<u64> {
        // SAFETY: the frame exists, so the calling thread is inside a frame of the code object: the contract of
        // `address_of`.
        unsafe { tracehound_shared::python::address_of(interpreter, memory, self.code, self.instruction()) }
    }
}

/// Where a frame has its words. `MARKED`: it has the address of its instruction and a byte that marks it, as from 3.11 on;
/// else the number of its instruction alone.
#[derive(Clone, Copy)]
pub struct FrameReader<const MARKED: bool> {
    code: u64,
    instruction: u64,
    previous: u64,
    mark: u64,
}

/// Whether frames are those of [`FrameReader<true>`].
#[inline(always)]
pub fn are_marked(layout: &PythonLayout) -> bool {
    layout.has_inline_code() && mark_offset(layout).is_some()
}

impl<const MARKED: bool> FrameReader<MARKED> {
    /// `MARKED` must be as [`are_marked`] says.
    #[inline(always)]
    pub fn new(layout: &PythonLayout) -> FrameReader<MARKED> {
        FrameReader {
            code: u64::from(layout.frame_code),
            instruction: u64::from(layout.frame_instruction),
            previous: u64::from(layout.frame_previous),
            mark: mark_offset(layout).unwrap_or(0),
        }
    }

    /// As [`FrameWord::read`], without asking the kernel.
    ///
    /// # Safety
    /// The layout must be proved, and `frame` the innermost frame of the calling thread or what the one within leads to.
    #[inline(always)]
    pub unsafe fn read(&self, frame: u64) -> Option<(FrameWord, u64)> {
        if frame & !ADDRESS != 0 || frame < 4096 || !frame.is_multiple_of(8) {
            return None;
        }
        // SAFETY: with a proved layout, a chain of the calling thread leads to its frames: the contract of `read`. All
        // reads are of their fields.
        unsafe {
            let (instruction, mark) = if MARKED {
                (load(frame + self.instruction), ((frame + self.mark) as *const u8).read_volatile())
            } else {
                (u64::from(((frame + self.instruction) as *const u32).read_volatile()), 0)
            };
            let word = FrameWord {
                code: load(frame + self.code),
                instruction_mark: instruction | u64::from(mark) << MARK_SHIFT,
            };
            (instruction >> MARK_SHIFT == 0).then(|| (word, load(frame + self.previous)))
        }
    }

    /// Whether the frame at `frame` runs this. Gives the next one outwards.
    ///
    /// # Safety
    /// A frame of the calling thread must be at this address.
    #[inline(always)]
    pub unsafe fn next_if_unchanged(&self, word: &FrameWord, frame: u64) -> Option<u64> {
        // SAFETY: a frame of the calling thread is at this address: the contract of
        // `next_if_unchanged`. All reads are of its fields.
        unsafe {
            let instruction = if MARKED {
                let mark = ((frame + self.mark) as *const u8).read_volatile();
                load(frame + self.instruction) | u64::from(mark) << MARK_SHIFT
            } else {
                u64::from(((frame + self.instruction) as *const u32).read_volatile())
            };
            let differs = load(frame + self.code) ^ word.code | instruction ^ word.instruction_mark;
            (differs == 0).then(|| load(frame + self.previous))
        }
    }
}

/// The instruction of the frame at `frame`.
///
/// # Safety
/// A frame of the calling thread must be there.
#[inline(always)]
pub unsafe fn instruction_of(layout: &PythonLayout, frame: u64) -> u64 {
    // SAFETY: a frame of the calling thread is there: the contract of `instruction_of`.
    unsafe { load_instruction(layout, frame) }
}
