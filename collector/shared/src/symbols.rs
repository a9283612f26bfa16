//! The functions that an ELF file defines, by its symbol table: two passes over the file, little memory.
//!
//! The first pass goes through the strings and keeps those that matter; the second one goes through the symbols and
//! looks their names up among these. A linker may let a name share the end of a longer one, so names are looked up by
//! where they begin, not by which string they are.

use super::elf_file::{ElfFile, ElfSection, little_endian};

const PIECE: usize = 64 << 10;
const SYMBOL_BYTES: usize = 24;
/// Longest string that is kept.
const MAX_NAME: usize = 256;
/// Strings that are kept; a file with more of them is not understood.
const MAX_NAMES: usize = 1 << 16;
/// Bytes of a string table that are gone through.
const MAX_STRINGS: u64 = 1 << 30;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElfSymbol {
    /// Address in the file.
    pub start: u64,
    /// Address behind it; `start` if the table does not say.
    pub end: u64,
    /// Other objects may see it.
    pub global: bool,
}

/// Which table the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolTableKind {
    /// All symbols.
    Full,
    /// Only what other objects need: the file is stripped.
    Dynamic,
    /// None, or none that could be read.
    Missing,
}

/// Calls `each` for every function that `file` defines and whose name is, or ends, a string that `interesting` accepts.
pub fn functions(
    file: &ElfFile,
    interesting: &dyn Fn(&[u8]) -> bool,
    each: &mut dyn FnMut(&[u8], ElfSymbol),
) -> SymbolTableKind {
    const SYMTAB: u32 = 2;
    const DYNSYM: u32 = 11;
    for (kind, table) in [(SYMTAB, SymbolTableKind::Full), (DYNSYM, SymbolTableKind::Dynamic)] {
        if let Some(symbols) = file.find_section(|section| section.kind == kind && section.bytes > 0) {
            let read = SymbolStrings::read(file, &symbols, interesting)
                .and_then(|names| if names.list.is_empty() { Some(()) } else { look_up(file, &symbols, &names, each) });
            return if read.is_some() { table } else { SymbolTableKind::Missing };
        }
    }
    SymbolTableKind::Missing
}

/// The strings that matter, by where they begin in their table.
struct SymbolStrings {
    list: Vec<(u32, Vec<u8>)>,
}

impl SymbolStrings {
    fn read(file: &ElfFile, symbols: &ElfSection, interesting: &dyn Fn(&[u8]) -> bool) -> Option<Self> {
        let strings = file.section(u64::from(symbols.link)).filter(|strings| strings.bytes <= MAX_STRINGS)?;
        let mut list = Vec::new();
        let mut buffer = vec![0_u8; PIECE];
        // What of the buffer is the beginning of a string that the last piece cut off.
        let mut kept = 0_usize;
        let mut at = 0_u64;
        while at < strings.bytes {
            let wanted = buffer.len().saturating_sub(kept).min(usize::try_from(strings.bytes - at).unwrap_or(PIECE));
            let room = buffer.get_mut(kept..kept + wanted)?;
            let read = file.read(room, strings.offset.checked_add(at)?)?;
            if read == 0 {
                break;
            }
            let from = at - kept as u64;
            at += read as u64;
            let filled = buffer.get(..kept + read)?;
            let mut start = 0;
            for (end, _) in filled.iter().enumerate().filter(|(_, byte)| **byte == 0) {
                let text = filled.get(start..end)?;
                if !text.is_empty() && text.len() <= MAX_NAME && interesting(text) {
                    list.push((u32::try_from(from + start as u64).ok()?, text.to_vec()));
                }
                start = end + 1;
            }
            if list.len() > MAX_NAMES {
                return None;
            }
            kept = filled.len() - start;
            if kept > MAX_NAME {
                // Of no interest, and too long to be kept: its end is skipped like a string of its own, which begins
                // with as many bytes as make it too long again.
                start = filled.len() - MAX_NAME - 1;
                kept = MAX_NAME + 1;
            }
            let end = filled.len();
            let (Some(rest), true) = (buffer.get(start..end).map(<[u8]>::to_vec), kept < buffer.len()) else {
                return None;
            };
            buffer.get_mut(..rest.len())?.copy_from_slice(&rest);
        }
        Some(Self { list })
    }

    /// The name that begins at `offset`, if it belongs to a string that matters.
    fn at(&self, offset: u32) -> Option<&[u8]> {
        let after = self.list.partition_point(|(start, _)| *start <= offset);
        let (start, text) = self.list.get(after.checked_sub(1)?)?;
        text.get((offset - start) as usize..).filter(|rest| !rest.is_empty())
    }
}

fn look_up(
    file: &ElfFile,
    symbols: &ElfSection,
    names: &SymbolStrings,
    each: &mut dyn FnMut(&[u8], ElfSymbol),
) -> Option<()> {
    const FUNCTION: u8 = 2;
    const LOCAL: u8 = 0;
    let mut buffer = vec![0_u8; PIECE / SYMBOL_BYTES * SYMBOL_BYTES];
    let mut at = 0_u64;
    while at < symbols.bytes {
        let wanted = buffer.len().min(usize::try_from(symbols.bytes - at).unwrap_or(PIECE));
        let read = file.read(buffer.get_mut(..wanted)?, symbols.offset.checked_add(at)?)?;
        if read < SYMBOL_BYTES {
            break;
        }
        at += read as u64;
        for symbol in buffer.get(..read)?.chunks_exact(SYMBOL_BYTES) {
            let first = little_endian(symbol, 0);
            let (name, info, section) = (first as u32, (first >> 32) as u8, (first >> 48) as u16);
            if info & 0xf != FUNCTION || section == 0 {
                continue;
            }
            if let Some(name) = names.at(name) {
                let (start, bytes) = (little_endian(symbol, 8), little_endian(symbol, 16));
                each(name, ElfSymbol { start, end: start.saturating_add(bytes), global: info >> 4 != LOCAL });
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[unsafe(no_mangle)]
    extern "C" fn tracehound_symbols_test_function() -> u32 {
        4711
    }

    #[test]
    fn a_function_of_this_program_is_found_at_its_address() {
        let file = ElfFile::open(c"/proc/self/exe").unwrap();
        let mut found = Vec::new();
        let wanted = |name: &[u8]| name.ends_with(b"symbols_test_function");
        let table = functions(&file, &wanted, &mut |name, symbol| found.push((name.to_vec(), symbol)));
        assert_eq!(table, SymbolTableKind::Full);
        let (name, symbol) = &found[0];
        assert_eq!((found.len(), &name[..]), (1, &b"tracehound_symbols_test_function"[..]));
        assert!(symbol.global && symbol.end > symbol.start);
        let here = tracehound_symbols_test_function as *const () as u64;
        assert_eq!(here % 4096, symbol.start % 4096);
    }

    #[test]
    fn all_functions_are_many_and_a_stripped_file_says_so() {
        let mut count = 0;
        let file = ElfFile::open(c"/proc/self/exe").unwrap();
        assert_eq!(functions(&file, &|_| true, &mut |_, _| count += 1), SymbolTableKind::Full);
        assert!(count > 1000);
        let libc = ElfFile::open(c"/lib/x86_64-linux-gnu/libc.so.6");
        if let Some(libc) = libc {
            let mut names = Vec::new();
            let table = functions(&libc, &|name| name.ends_with(b"malloc"), &mut |name, _| names.push(name.to_vec()));
            assert!(table == SymbolTableKind::Full || table == SymbolTableKind::Dynamic);
            assert!(names.contains(&b"malloc".to_vec()));
        }
    }
}
