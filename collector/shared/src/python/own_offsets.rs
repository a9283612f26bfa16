//! `_Py_DebugOffsets`: an interpreter's own description of its layout, at the beginning of `_PyRuntime` from 3.13 on.
//!
//! Its numbers are compared with those of [`PythonLayout`] once, before the first frame is read. An interpreter that was
//! built differently from the releases is refused, instead of read wrongly.

use super::layout::{EntryMark, OBJECT_TYPE, PythonLayout, TopFrame};
use super::memory::ObjectMemory;

/// The eight bytes that the structure begins with.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
/// Offset of the version: major version in the upper eight of 32 bits, minor version in the next eight.
const VERSION: u64 = 8;
/// Offset of the word that is 1 in a build without the global lock.
const FREE_THREADED: u64 = 16;

/// Offsets into the structure, by version: it grows in the middle.
struct OwnOffsets {
    minor: u8,
    current_frame: u16,
    thread_id: u16,
    previous: u16,
    executable: u16,
    instruction: u16,
    owner: u16,
    file: u16,
    qualified_name: u16,
    lines: u16,
    first_line: u16,
    instructions: u16,
    object_type: u16,
    ascii_header: u16,
}

const OWN_OFFSETS: [OwnOffsets; 3] = [
    OwnOffsets {
        minor: 13,
        current_frame: 184,
        thread_id: 192,
        previous: 232,
        executable: 240,
        instruction: 248,
        owner: 264,
        file: 280,
        qualified_name: 296,
        lines: 304,
        first_line: 312,
        instructions: 344,
        object_type: 360,
        ascii_header: 560,
    },
    OwnOffsets {
        minor: 14,
        current_frame: 208,
        thread_id: 216,
        previous: 256,
        executable: 264,
        instruction: 272,
        owner: 288,
        file: 320,
        qualified_name: 336,
        lines: 344,
        first_line: 352,
        instructions: 384,
        object_type: 408,
        ascii_header: 640,
    },
    OwnOffsets {
        minor: 15,
        current_frame: 208,
        thread_id: 240,
        previous: 320,
        executable: 328,
        instruction: 336,
        owner: 352,
        file: 384,
        qualified_name: 400,
        lines: 408,
        first_line: 416,
        instructions: 448,
        object_type: 472,
        ascii_header: 736,
    },
];

impl OwnOffsets {
    /// Where each number is in the structure, and what the layout expects there.
    fn numbers(&self, layout: &PythonLayout) -> [(u16, u16); 13] {
        let top = match layout.top {
            TopFrame::Direct(offset) | TopFrame::CFrame(offset, _) => offset,
        };
        let mark = match layout.entry {
            EntryMark::Every => 0,
            EntryMark::Flag(offset) | EntryMark::Shim(offset) => offset,
        };
        let [ascii_header, _] = layout.text_headers;
        [
            (self.current_frame, top),
            (self.thread_id, layout.thread_id),
            (self.previous, layout.frame_previous),
            (self.executable, layout.frame_code),
            (self.instruction, layout.frame_instruction),
            (self.owner, mark),
            (self.file, layout.code_file),
            (self.qualified_name, layout.code_name),
            (self.lines, layout.code_lines),
            (self.first_line, layout.code_first_line),
            (self.instructions, layout.code_instructions),
            (self.object_type, OBJECT_TYPE as u16),
            (self.ascii_header, ascii_header),
        ]
    }
}

/// Result of comparing an interpreter's own description with the layout of its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnLayout {
    /// It is that of its version, or the version says nothing.
    Agrees,
    /// A number differs, or there is no such structure.
    Differs,
    /// It was built without the global lock.
    FreeThreaded,
}

/// Compares the structure at `runtime`, the address of `_PyRuntime`, with `layout`.
///
/// # Safety
/// `memory` must be careful, or the structure of this version must be there.
pub unsafe fn own_layout(layout: &PythonLayout, runtime: u64, memory: &mut ObjectMemory) -> OwnLayout {
    let Some(own) = OWN_OFFSETS.iter().find(|own| own.minor == layout.minor) else { return OwnLayout::Agrees };
    // SAFETY: the kernel is asked, or the offset is one of the structure's: the contract of `own_layout`.
    let mut word = |offset: u64| unsafe { memory.word(runtime.wrapping_add(offset)) };
    let is_known = word(0) == Some(COOKIE)
        && word(VERSION).is_some_and(|version| version >> 16 & 0xffff == 0x300 + u64::from(layout.minor));
    if is_known && word(FREE_THREADED) == Some(1) {
        return OwnLayout::FreeThreaded;
    }
    let is_same =
        own.numbers(layout).into_iter().all(|(offset, expected)| word(u64::from(offset)) == Some(u64::from(expected)));
    if is_known && is_same { OwnLayout::Agrees } else { OwnLayout::Differs }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The structure as an interpreter of this version has it.
    fn structure(own: &OwnOffsets, layout: &PythonLayout) -> Vec<u64> {
        let mut words = vec![0; 128];
        let mut put = |offset: u16, value: u64| words[usize::from(offset) / 8] = value;
        put(0, COOKIE);
        put(8, 0x0300_0000 + (u64::from(layout.minor) << 16) + 0x8f0);
        for (offset, value) in own.numbers(layout) {
            put(offset, u64::from(value));
        }
        words
    }

    #[test]
    fn each_number_is_compared() {
        for own in &OWN_OFFSETS {
            let layout = PythonLayout::of(own.minor).unwrap();
            let whole = structure(own, layout);
            // SAFETY: the words are the structure of this version.
            let ask = |words: &[u64]| unsafe {
                own_layout(layout, words.as_ptr() as u64, &mut ObjectMemory::for_backtrace())
            };
            assert_eq!(ask(&whole), OwnLayout::Agrees, "3.{}", own.minor);
            let mut differing = 0;
            for at in 0..whole.len() {
                let mut other = whole.clone();
                other[at] += 0x10000;
                differing += usize::from(ask(&other) == OwnLayout::Differs);
            }
            assert_eq!(differing, 15, "3.{}", own.minor);
            let mut free = whole.clone();
            free[2] = 1;
            assert_eq!(ask(&free), OwnLayout::FreeThreaded, "3.{}", own.minor);
        }
        let older = PythonLayout::of(12).unwrap();
        // SAFETY: versions without such a structure are not looked at.
        assert_eq!(unsafe { own_layout(older, 0, &mut ObjectMemory::for_backtrace()) }, OwnLayout::Agrees);
    }
}
