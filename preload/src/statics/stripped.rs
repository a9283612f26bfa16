//! Allocators in a program that was stripped: their functions cannot be found, but their messages are still there.

use memchr::memmem;
use tracehound_format::allocators::Family;
use tracehound_shared::elf_file::{ElfFile, ElfSection};

const PIECE: usize = 256 << 10;
/// Constants of a program that are searched; what lies behind is not worth the time at the start.
const MAX_BYTES: u64 = 256 << 20;

/// What to say about the program in `file`, none of whose functions is an allocator's by name; `None`: nothing.
/// `python_malloc` is the value of `PYTHONMALLOC`.
pub fn remark(file: &ElfFile, python_malloc: &[u8]) -> Option<String> {
    let section = file.section_named(b".rodata\0")?;
    let mut found = texts_in(file, &section)?;
    if found.contains(&Family::Mimalloc) && !python_malloc.starts_with(b"mimalloc") && !is_used(file, &section) {
        found.retain(|family| *family != Family::Mimalloc);
    }
    if found.is_empty() {
        return None;
    }
    let names = Family::list(&found);
    Some(format!(
        "{names} seems to be inside the program, whose symbols were stripped: its functions cannot be found, and blocks \
         from it are not recorded; a build with symbols is recorded whole"
    ))
}

/// Whether the program with mimalloc inside uses it without being asked to: CPython has it from 3.13 on, and a build with
/// the global lock does not. True of any other program.
fn is_used(file: &ElfFile, section: &ElfSection) -> bool {
    let is_python = search(file, section, &[((), memmem::Finder::new(b"PYTHONMALLOC"))]);
    let is_free_threaded = || search(file, section, &[((), memmem::Finder::new(b"free-threading build"))]);
    is_python.is_none_or(|found| found.is_empty()) || is_free_threaded().is_none_or(|found| !found.is_empty())
}

/// The families whose messages are in the section.
fn texts_in(file: &ElfFile, section: &ElfSection) -> Option<Vec<Family>> {
    let finders: Vec<(Family, memmem::Finder<'static>)> = Family::WITH_TEXT
        .iter()
        .filter_map(|family| Some((*family, memmem::Finder::new(family.text_inside()?))))
        .collect();
    search(file, section, &finders)
}

/// What of `finders` is found in the section.
fn search<T: Copy + PartialEq>(
    file: &ElfFile,
    section: &ElfSection,
    finders: &[(T, memmem::Finder<'static>)],
) -> Option<Vec<T>> {
    let longest = finders.iter().map(|(_, finder)| finder.needle().len()).max()?;
    let mut found = Vec::new();
    let mut buffer = vec![0_u8; PIECE];
    let (mut at, end) = (section.offset, section.offset.checked_add(section.bytes.min(MAX_BYTES))?);
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        let read = file.read(buffer.get_mut(..wanted)?, at)?;
        let piece = buffer.get(..read)?;
        for (family, finder) in finders {
            if !found.contains(family) && finder.find(piece).is_some() {
                found.push(*family);
            }
        }
        if read < wanted || at + read as u64 >= end {
            break;
        }
        // A text may lie across the border of two pieces.
        at += (read - longest) as u64;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_in_constants() {
        // This test program holds the texts: it names them.
        let file = ElfFile::open(c"/proc/self/exe").unwrap();
        let section = file.section_named(b".rodata\0").unwrap();
        let found = texts_in(&file, &section).unwrap();
        assert!(found.contains(&Family::Mimalloc), "{found:?}");
        let mut nothing = section;
        nothing.bytes = 0;
        assert_eq!(texts_in(&file, &nothing).unwrap(), []);
    }
}
