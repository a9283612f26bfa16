//! Reads an ELF-64 file of this machine's byte order, piece by piece, by system calls alone.
//!
//! Nothing is mapped: a file that shrinks under a mapping would kill the program, and pages that were looked at would
//! count as the program's memory.

use core::ffi::CStr;
use std::ffi::CString;

use super::code::{LoadedModule, MAX_SEGMENTS};
use super::{loader, sys};

/// Sections and segments that are looked at.
const MAX_HEADERS: u64 = 4096;
/// `SHF_COMPRESSED`.
pub const COMPRESSED: u64 = 0x800;

/// An open file.
pub struct ElfFile {
    fd: i32,
    header: [u8; 64],
}

/// A section: where its bytes are in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElfSection {
    /// `sh_type`.
    pub kind: u32,
    /// `sh_addr`.
    pub address: u64,
    /// `sh_offset`.
    pub offset: u64,
    /// `sh_size`.
    pub bytes: u64,
    /// `sh_link`.
    pub link: u32,
    /// `sh_flags`.
    pub flags: u64,
    name: u32,
}

impl ElfFile {
    /// Opens a file; `None` unless it is a regular ELF-64 file.
    pub fn open(path: &CStr) -> Option<Self> {
        let fd = sys::open_at(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_NOCTTY | libc::O_NONBLOCK, 0).ok()?;
        // Out of the way of the program's own numbers, where the limit allows.
        let mut file = Self { fd: sys::move_high(fd), header: [0; 64] };
        if sys::stat(file.fd).ok()?.st_mode & libc::S_IFMT != libc::S_IFREG {
            return None;
        }
        file.header = file.read_array::<64>(0)?;
        file.header.starts_with(&[0x7f, b'E', b'L', b'F', 2, 1]).then_some(file)
    }

    /// Opens the file that `module` was loaded from; `None` if what lies there now is another one.
    pub fn of_module(module: &LoadedModule) -> Option<Self> {
        let is_its_own = |file: &Self| file.is_loaded_as(module);
        // Without a path: the program's file may have been removed, and lies at no path for a process with another root.
        let program = if module.path().is_empty() { Self::open(c"/proc/thread-self/exe") } else { None };
        program.filter(is_its_own).or_else(|| Self::open_bytes(&loader::path_of(module)).filter(is_its_own))
    }

    /// Opens the file at a path without a zero at its end.
    pub fn open_bytes(path: &[u8]) -> Option<Self> {
        Self::open(&CString::new(path).ok()?)
    }

    fn u16(&self, at: usize) -> u64 {
        little_endian(&self.header, at) & 0xffff
    }

    fn u64(&self, at: usize) -> u64 {
        little_endian(&self.header, at)
    }

    /// Whether the file's loadable segments are those of `module`: the path may name another file by now.
    pub fn is_loaded_as(&self, module: &LoadedModule) -> bool {
        let (offset, count) = (self.u64(32), self.u16(56));
        if self.u16(54) != 56 || count > MAX_HEADERS {
            return false;
        }
        let mut loaded = module.segments().iter();
        for number in 0..count {
            let header = offset.checked_add(number * 56).and_then(|at| self.read_array::<56>(at));
            let Some(header) = header else { return false };
            if little_endian(&header, 0) as u32 == libc::PT_LOAD {
                let Some(segment) = loaded.next() else { return module.segments().len() == MAX_SEGMENTS };
                let same = segment.file_offset == little_endian(&header, 8)
                    && segment.file_address == little_endian(&header, 16)
                    && segment.file_bytes == little_endian(&header, 32)
                    && segment.bytes == little_endian(&header, 40);
                if !same {
                    return false;
                }
            }
        }
        loaded.next().is_none()
    }

    /// Section `number`.
    pub fn section(&self, number: u64) -> Option<ElfSection> {
        if self.u16(58) != 64 || number >= self.u16(60).min(MAX_HEADERS) {
            return None;
        }
        let header = self.read_array::<64>(self.u64(40).checked_add(number * 64)?)?;
        let word = |at: usize| little_endian(&header, at);
        Some(ElfSection {
            name: word(0) as u32,
            kind: word(4) as u32,
            flags: word(8),
            address: word(16),
            offset: word(24),
            bytes: word(32),
            link: word(40) as u32,
        })
    }

    /// The first section that `wanted` wants.
    pub fn find_section(&self, wanted: impl Fn(&ElfSection) -> bool) -> Option<ElfSection> {
        (0..self.u16(60)).map_while(|number| self.section(number)).find(wanted)
    }

    /// The section with this name, terminator included, unless it is empty in the file. It may be compressed.
    pub fn section_named(&self, name: &[u8]) -> Option<ElfSection> {
        const NOBITS: u32 = 8;
        let names = self.section(self.u16(62))?;
        self.find_section(|section| {
            let mut text = [0_u8; 32];
            let at = names.offset.checked_add(u64::from(section.name));
            match (text.get_mut(..name.len()), at) {
                (Some(text), Some(at)) => self.read_exactly(text, at).is_some() && text == name,
                _ => false,
            }
        })
        .filter(|section| section.kind != NOBITS)
    }

    /// Reads up to `buffer.len()` bytes at `offset`, fewer only at the end of the file.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> Option<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match sys::read_at(self.fd, buffer.get_mut(done..)?, offset.checked_add(done as u64)?).ok()? {
                0 => break,
                count => done += count,
            }
        }
        Some(done)
    }

    /// Fills `buffer` from `offset` on; `None` if the file is too short.
    pub fn read_exactly(&self, buffer: &mut [u8], offset: u64) -> Option<()> {
        (self.read(buffer, offset)? == buffer.len()).then_some(())
    }

    fn read_array<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exactly(&mut bytes, offset)?;
        Some(bytes)
    }
}

impl Drop for ElfFile {
    fn drop(&mut self) {
        sys::close(self.fd);
    }
}

/// The eight bytes at `at` as a number; bytes that are not there are zero.
pub fn little_endian(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_programs_file_has_sections() {
        let file = ElfFile::open(c"/proc/self/exe").unwrap();
        let text = file.section_named(b".text\0").unwrap();
        assert!(text.bytes > 1000);
        assert!(file.section_named(b".bss\0").is_none());
        assert!(file.section_named(b".no-such-section\0").is_none());
        let mut bytes = [0; 16];
        assert_eq!(file.read_exactly(&mut bytes, u64::MAX - 3), None);
    }

    #[test]
    fn what_is_no_elf_file_is_refused() {
        assert!(ElfFile::open(c"/proc/self/status").is_none());
        assert!(ElfFile::open(c"/dev/null").is_none());
        assert!(ElfFile::open(c"/no/such/file").is_none());
    }

    #[test]
    fn numbers_at_the_end_are_short() {
        assert_eq!(little_endian(&[1, 2], 1), 2);
        assert_eq!(little_endian(&[1, 2], 9), 0);
    }
}
