//! Entries of the list of Python's code objects.

use crate::code_list::{CodeList, ListPosition};

/// The code objects that backtraces go through.
pub(super) static CODES: CodeList = CodeList::new();

/// Bytes of an entry before its texts: its length, how many instructions, where its range begins, first line, minor
/// version, the lengths of the three texts and four bytes of nothing.
pub(super) const HEADER_BYTES: usize = 2 * 4 + 8 + 6 * 4;

/// A code object as the list has it.
#[derive(Clone, Copy, Debug)]
pub struct CodeText {
    /// First address behind [`CODE_ADDRESSES`](super::CODE_ADDRESSES).
    pub base: u64,
    /// Instructions.
    pub units: u32,
    /// Line of its definition.
    pub first_line: u32,
    /// Minor version of the interpreter, whose line tables these are.
    pub minor: u32,
    /// Qualified name, UTF-8.
    pub name: &'static [u8],
    /// Source file, UTF-8.
    pub file: &'static [u8],
    /// Line table, as the version has it.
    pub lines: &'static [u8],
}

/// Hands all code objects behind `position` to `each`.
pub fn code_texts(position: &mut ListPosition, mut each: impl FnMut(CodeText)) {
    CODES.each(position, |bytes| text_of(bytes).into_iter().for_each(&mut each));
}

fn text_of(bytes: &'static [u8]) -> Option<CodeText> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let base = u64::from(word(8)?) | u64::from(word(12)?) << 32;
    let [units, first_line, minor] = [word(4)?, word(16)?, word(20)?];
    let [name, file, lines] = [word(24)?, word(28)?, word(32)?].map(|len| len as usize);
    let rest = bytes.get(HEADER_BYTES..)?;
    Some(CodeText {
        base,
        units,
        first_line,
        minor,
        name: rest.get(..name)?,
        file: rest.get(name..name + file)?,
        lines: rest.get(name + file..name + file + lines)?,
    })
}
