//! Layout of CPython's frames and code objects, version by version, as far as a backtrace needs it.
//!
//! The offsets are those of each version's own headers, 64-bit, with the global interpreter lock. They did not change
//! within a minor version so far.

/// How a thread's state leads to its innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopFrame {
    /// The frame's address is at this offset.
    Direct(u16),
    /// A structure on the C stack is at the first offset, the frame's address at the second of that.
    CFrame(u16, u16),
}

/// What ends the part of a chain that one C call of the evaluation loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryMark {
    /// Every frame is run by a call of its own.
    Every,
    /// The frame whose byte at the offset is 1 is the outermost of a call.
    Flag(u16),
    /// The frame whose byte at the offset is 3 represents the call itself, and is no frame of the program.
    Shim(u16),
}

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are fields of CPython's structures, under their names")]
pub struct PythonLayout {
    pub minor: u8,
    pub top: TopFrame,
    pub thread_id: u16,
    pub frame_code: u16,
    pub frame_previous: u16,
    pub frame_instruction: u16,
    /// The frame has the number of the instruction in so many bytes each, not its address; 0: the address.
    pub instruction_step: u16,
    pub entry: EntryMark,
    /// Of the code object: where instructions begin; or, where they are an object of their own, its address.
    pub code_instructions: u16,
    pub code_name: u16,
    pub code_file: u16,
    pub code_first_line: u16,
    pub code_lines: u16,
    /// Header of a text object that is ASCII, and of another one.
    pub text_headers: [u16; 2],
}

/// Number of `ob_type` in every object.
pub const OBJECT_TYPE: u64 = 8;
/// Offset of the size of an object that has one, and of the length of a text.
pub const OBJECT_SIZE: u64 = 16;
/// Offset of the bits that say how a text is stored.
pub const TEXT_STATE: u64 = 32;
/// Offset of the bytes of a bytes object.
pub const BYTES_DATA: u64 = 32;
/// Offset of the destructor in a type.
pub const TYPE_DEALLOC: u64 = 48;
/// Bytes of an instruction.
pub const UNIT: u64 = 2;
/// Bits of a frame's word for its code that are no part of the address: 0 before 3.14.
pub const REFERENCE_MARKS: u64 = 3;

const fn with_frame_objects(minor: u8, instruction: u16, step: u16) -> PythonLayout {
    PythonLayout {
        minor,
        top: TopFrame::Direct(24),
        thread_id: 176,
        frame_code: 32,
        frame_previous: 24,
        frame_instruction: instruction,
        instruction_step: step,
        entry: EntryMark::Every,
        code_instructions: 48,
        code_name: 112,
        code_file: 104,
        code_first_line: 40,
        code_lines: 120,
        text_headers: [48, 72],
    }
}

/// From 3.14 on a frame has a reference to its code, whose lowest bits are marks.
const fn with_references(minor: u8, thread_id: u16) -> PythonLayout {
    PythonLayout {
        minor,
        top: TopFrame::Direct(72),
        thread_id,
        frame_code: 0,
        frame_previous: 8,
        frame_instruction: 56,
        instruction_step: 0,
        entry: EntryMark::Shim(74),
        code_instructions: 208,
        code_name: 128,
        code_file: 112,
        code_first_line: 68,
        code_lines: 136,
        text_headers: [40, 56],
    }
}

const LAYOUTS: [PythonLayout; 7] = [
    with_frame_objects(9, 104, 2),
    with_frame_objects(10, 96, 1),
    PythonLayout {
        minor: 11,
        top: TopFrame::CFrame(56, 8),
        thread_id: 152,
        frame_code: 32,
        frame_previous: 48,
        frame_instruction: 56,
        instruction_step: 0,
        entry: EntryMark::Flag(68),
        code_instructions: 184,
        code_name: 128,
        code_file: 112,
        code_first_line: 72,
        code_lines: 136,
        text_headers: [48, 72],
    },
    PythonLayout {
        minor: 12,
        top: TopFrame::CFrame(56, 0),
        thread_id: 136,
        frame_code: 0,
        frame_previous: 8,
        frame_instruction: 56,
        instruction_step: 0,
        entry: EntryMark::Shim(70),
        code_instructions: 192,
        code_name: 128,
        code_file: 112,
        code_first_line: 68,
        code_lines: 136,
        text_headers: [40, 56],
    },
    PythonLayout {
        minor: 13,
        top: TopFrame::Direct(72),
        thread_id: 152,
        frame_code: 0,
        frame_previous: 8,
        frame_instruction: 56,
        instruction_step: 0,
        entry: EntryMark::Shim(70),
        code_instructions: 200,
        code_name: 128,
        code_file: 112,
        code_first_line: 68,
        code_lines: 136,
        text_headers: [40, 56],
    },
    with_references(14, 152),
    with_references(15, 176),
];

impl PythonLayout {
    /// That of Python 3.`minor`; `None` for one that is not known.
    pub fn of(minor: u8) -> Option<&'static PythonLayout> {
        LAYOUTS.iter().find(|layout| layout.minor == minor)
    }

    /// The instructions are in the code object itself, and a frame has the address of one.
    pub fn has_inline_code(&self) -> bool {
        self.instruction_step == 0
    }
}
