//! Copies of the files that names come from: a collector keeps them for programs whose container will be gone.
//!
//! A copy is an ELF file with zeros in place of code and data, so that it compresses to its symbols and debug
//! information, and is read as the file itself. Files are copied before they are looked into: one that is cut off
//! meanwhile would end a program that has it mapped.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _};
use object::{Endianness, Object, elf};

use super::locate::{hex, inspect};

/// Longest file that is copied.
const LONGEST: u64 = 4 << 30;
/// Bytes that are read or written at once.
const PART: usize = 64 << 10;

/// Opens a file by its absolute path, as the process sees it.
pub type OpenFile<'a> = &'a dyn Fn(&Path) -> Option<File>;

/// What names need of a module.
pub struct SymbolCopy {
    map: Mmap,
}

/// Finds what names need of the module at `path` with this build id: the file with its debug information if that is to
/// be had, else the file itself if it has symbols. `None` if there is nothing, or the file there is another one.
pub fn find(path: &Path, build_id: &[u8], open: OpenFile<'_>) -> Option<SymbolCopy> {
    if build_id.len() < 4 || !path.is_absolute() {
        return None;
    }
    let is_it = |map: &Mmap| inspect(map).filter(|elf| elf.build_id.as_deref() == Some(build_id));
    let itself = copy_of(open, path).filter(|map| is_it(map).is_some());
    let about = itself.as_ref().and_then(is_it);
    if about.as_ref().is_none_or(|elf| !elf.has_debug) {
        let link = about.as_ref().and_then(|elf| elf.debug_link.as_ref()).map(|(name, _)| name.as_path());
        for candidate in separate(path, build_id, link) {
            let found = copy_of(open, &candidate);
            if let Some(map) = found.filter(|map| is_it(map).is_some_and(|elf| elf.has_debug)) {
                return Some(SymbolCopy { map });
            }
        }
    }
    let has_names = about.is_some_and(|elf| elf.has_debug || elf.has_symbols);
    itself.filter(|_| has_names).map(|map| SymbolCopy { map })
}

/// Where the debug information of a module may lie apart from it.
fn separate(path: &Path, build_id: &[u8], link: Option<&Path>) -> Vec<PathBuf> {
    let debug = Path::new("/usr/lib/debug");
    let mut all = Vec::new();
    if let [first, rest @ ..] = build_id {
        all.push(debug.join(".build-id").join(hex(&[*first])).join(format!("{}.debug", hex(rest))));
    }
    // A path would lead out of the folders.
    if let (Some(name), Some(folder)) = (link.and_then(Path::file_name), path.parent()) {
        let inside = folder.strip_prefix("/").unwrap_or(folder);
        all.extend([folder.join(".debug").join(name), debug.join(inside).join(name)]);
        if folder.join(name) != path {
            all.push(folder.join(name));
        }
    }
    all
}

/// A private copy, mapped; `None` if there is no such file, or one that is no file or too long.
fn copy_of(open: OpenFile<'_>, path: &Path) -> Option<Mmap> {
    let file = open(path)?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() < 64 || meta.len() > LONGEST {
        return None;
    }
    let mut copy = tempfile::tempfile().ok()?;
    let copied = io::copy(&mut file.take(LONGEST), &mut copy).ok()?;
    // SAFETY: the file has no name and one descriptor, which is closed here: nobody changes it.
    (copied >= 64).then(|| unsafe { Mmap::map(&copy) }.ok()).flatten()
}

impl SymbolCopy {
    /// Path and build id of the file that dwz has moved parts of the debug information into.
    pub fn supplement(&self, of: &Path) -> Option<(PathBuf, Vec<u8>)> {
        let elf = ElfFile64::<Endianness>::parse(&*self.map).ok()?;
        let (name, build_id) = elf.gnu_debugaltlink().ok()??;
        Some((of.parent()?.join(Path::new(std::ffi::OsStr::from_bytes(name))), build_id.to_vec()))
    }

    /// Writes the copy, compressed.
    ///
    /// # Errors
    /// When the output refuses.
    pub fn pack(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut encoder = zstd::Encoder::new(out, 3)?;
        let zeros = [0; PART];
        let mut at = 0;
        for range in self.unneeded() {
            encoder.write_all(self.map.get(at..range.start).unwrap_or_default())?;
            let mut left = range.len();
            while left > 0 {
                let part = left.min(PART);
                encoder.write_all(zeros.get(..part).unwrap_or_default())?;
                left -= part;
            }
            at = range.end;
        }
        encoder.write_all(self.map.get(at..).unwrap_or_default())?;
        encoder.finish().map(drop)
    }

    /// Code and data, in order: sections with contents that are loaded, but for tables of symbols and notes, which have
    /// types of their own.
    fn unneeded(&self) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        if let Ok(file) = elf::FileHeader64::<Endianness>::parse(&*self.map)
            && let Ok(endian) = file.endian()
            && let Ok(sections) = file.sections(endian, &*self.map)
        {
            for section in sections.iter() {
                let is_loaded = section.sh_flags(endian).contains(elf::SHF_ALLOC);
                let (true, elf::SHT_PROGBITS) = (is_loaded, section.sh_type(endian)) else { continue };
                let Some((start, len)) = section.file_range(endian) else { continue };
                let (Ok(start), Ok(len)) = (usize::try_from(start), usize::try_from(len)) else { continue };
                found.push(start..start.saturating_add(len).min(self.map.len()));
            }
        }
        found.sort_by_key(|range| range.start);
        let mut end = 0;
        found.retain(|range: &Range<usize>| {
            let is_apart = range.start >= end && range.start < range.end;
            if is_apart {
                end = range.end;
            }
            is_apart
        });
        found
    }
}

/// Where the copy for a build id lies in a folder of debug files.
pub fn place_in(folder: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let [first, rest @ ..] = build_id else { return None };
    Some(folder.join(".build-id").join(hex(&[*first])).join(format!("{}.debug", hex(rest))))
}

/// Writes a packed copy as a file again, with holes where it has zeros.
///
/// # Errors
/// When it is none, or the file cannot be written.
pub fn unpack(packed: impl Read, out: &mut File) -> io::Result<()> {
    let mut decoder = zstd::Decoder::new(packed)?;
    let (mut part, mut at) = (vec![0; PART], 0_u64);
    loop {
        let mut have = 0;
        while have < part.len() {
            match decoder.read(&mut part[have..])? {
                0 => break,
                bytes => have += bytes,
            }
        }
        if have == 0 {
            return out.set_len(at);
        }
        if part[..have].iter().any(|&byte| byte != 0) {
            out.seek(SeekFrom::Start(at))?;
            out.write_all(&part[..have])?;
        }
        at += have as u64;
        if at > LONGEST {
            return Err(io::Error::other("it is too long"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_symbols_and_not_the_code() {
        let itself = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&itself).unwrap();
        let about = inspect(&bytes).unwrap();
        let build_id = about.build_id.unwrap();
        let open = |path: &Path| File::open(path).ok();
        let copy = find(&itself, &build_id, &open).unwrap();
        let mut packed = Vec::new();
        copy.pack(&mut packed).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        unpack(&packed[..], &mut file).unwrap();
        let mut unpacked = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked.len(), bytes.len());
        let again = inspect(&unpacked).unwrap();
        assert_eq!((again.build_id.as_deref(), again.has_symbols), (Some(&*build_id), true));
        let section = |bytes: &[u8], name: &str| {
            use object::ObjectSection;
            let elf = ElfFile64::<Endianness>::parse(bytes).unwrap();
            elf.section_by_name(name).unwrap().data().unwrap().to_vec()
        };
        assert!(section(&unpacked, ".text").iter().all(|&byte| byte == 0));
        assert_eq!(section(&unpacked, ".strtab"), section(&bytes, ".strtab"));
        // Another file of that name is no source.
        assert!(find(&itself, &[7; 20], &open).is_none());
        assert!(find(Path::new("[vdso]"), &build_id, &open).is_none());
    }
}
