//! Finds the file that holds a recorded module's symbols, and rates their quality.
//!
//! A file counts only if it is the recorded one: same build id, or, without build ids, the same segments.
//! Debug information may be in the file itself, behind its `.gnu_debuglink`, or in the folders that are keyed by
//! build id. Nothing is fetched from a network unless the user asks for it.

use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::search_paths::chosen;
use memmap2::Mmap;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable};
use tracehound_api::modules::Symbols as Quality;
use tracehound_format::meta::Segment;
use tracehound_index::facts::ModuleFacts;

/// Source of a module's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymbolFiles {
    /// The file to read symbols from, if there is one.
    pub source: Option<SymbolFile>,
    /// Quality of the names.
    pub quality: Quality,
    /// Why they are not better, in words.
    pub note: Option<String>,
    /// The runtime that is inside.
    pub runtime: Option<Runtime>,
}

/// A language's runtime that is linked into programs, or is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// Go's linker has made the file.
    Go,
    /// Node: it has the functions that its native modules call.
    Node,
}

/// A file with symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SymbolFile {
    /// An ELF file, and its identity, by which a change is noticed.
    File {
        /// Where it is.
        path: PathBuf,
        /// Device, inode, length, modification time.
        identity: [u64; 5],
    },
    /// The vdso of the running kernel.
    Vdso,
}

/// Properties of an ELF file.
pub(super) struct Elf {
    pub(super) build_id: Option<Vec<u8>>,
    pub(super) has_debug: bool,
    pub(super) has_symbols: bool,
    /// Its symbols are those for the loader.
    is_stripped: bool,
    runtime: Option<Runtime>,
    pub(super) debug_link: Option<(PathBuf, u32)>,
    code: Vec<(u64, u64)>,
}

/// Looks for the symbols of `module` on this machine.
pub fn locate(module: &ModuleFacts) -> SymbolFiles {
    if module.path == b"[vdso]" {
        return vdso(module);
    }
    if module.is_interpreted() {
        let note = Some("functions of the program, whose names and lines are in the recording".to_owned());
        return SymbolFiles { source: None, quality: Quality::Debug, note, runtime: None };
    }
    let recorded = PathBuf::from(std::ffi::OsString::from_vec(module.path.clone()));
    let path = chosen().local(&recorded);
    // Other folders are searched by build id before giving up: a debug package may be installed although
    // the program itself is not, or has been replaced since.
    let elsewhere = || {
        file_by_build_id(&module.build_id, |elf| elf.has_debug)
            .or_else(|| debug_file_by_path(&recorded, &module.build_id))
            .or_else(|| fetched_debug_file(&module.build_id))
    };
    let give_up = |quality, note: String| {
        if let Some(source) = elsewhere() {
            return SymbolFiles {
                runtime: runtime_of(&source),
                source: Some(source),
                quality: Quality::Debug,
                note: None,
            };
        }
        match file_by_build_id(&module.build_id, |elf| elf.has_symbols) {
            Some(source) => {
                let note =
                    format!("{note}; a copy of its symbol table is: functions without lines and inlined callers");
                SymbolFiles {
                    runtime: runtime_of(&source),
                    source: Some(source),
                    quality: Quality::Table,
                    note: Some(note),
                }
            }
            None => SymbolFiles { source: None, quality, note: Some(note), runtime: None },
        }
    };
    let file = match open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return give_up(Quality::Missing, "the file is not on this machine".into());
        }
        Err(error) => return give_up(Quality::Missing, format!("the file cannot be read: {error}")),
    };
    let (elf, identity) = match file {
        Some(found) => found,
        None => return give_up(Quality::Mismatch, "the file on this machine is no 64-bit ELF file".into()),
    };
    if let Some(note) = mismatch(module, &elf) {
        return give_up(Quality::Mismatch, note);
    }
    let runtime = elf.runtime;
    let itself = SymbolFile::File { path: path.clone(), identity };
    if elf.has_debug {
        return SymbolFiles { source: Some(itself), quality: Quality::Debug, note: unchecked(module), runtime };
    }
    let separate = debug_file_by_link(&path, &elf).or_else(elsewhere);
    if let Some(source) = separate {
        return SymbolFiles { source: Some(source), quality: Quality::Debug, note: unchecked(module), runtime };
    }
    if elf.has_symbols {
        let note = if elf.is_stripped {
            "the file is stripped: only the functions that it exports have names; its debug symbols are not on this machine"
        } else {
            "the file has a symbol table but no debug information: functions without lines and inlined callers"
        };
        SymbolFiles { source: Some(itself), quality: Quality::Table, note: Some(note.into()), runtime }
    } else {
        SymbolFiles {
            source: None,
            quality: Quality::None,
            note: Some("the file is stripped: it has no symbols".into()),
            runtime,
        }
    }
}

fn unchecked(module: &ModuleFacts) -> Option<String> {
    module.build_id.is_empty().then(|| {
        "the file has no build id: that it is the recorded one is known only from the layout of its segments".into()
    })
}

/// Why `elf` is not the recorded file, if it is not.
fn mismatch(module: &ModuleFacts, elf: &Elf) -> Option<String> {
    let found = elf.build_id.as_deref().unwrap_or_default();
    if module.build_id.is_empty() && found.is_empty() {
        let code = |segment: &&Segment| segment.flags & 1 != 0;
        let same = module.segments.iter().filter(code).all(|segment| {
            elf.code.iter().any(|&(vaddr, offset)| vaddr == segment.vaddr && offset == segment.file_offset)
        });
        return (!same).then(|| "the file on this machine has other segments than the recorded one".into());
    }
    (module.build_id != found).then(|| {
        let name = |id: &[u8]| if id.is_empty() { "none".to_owned() } else { hex(id) };
        format!(
            "the file on this machine has build id {}, the recorded one {}: it was rebuilt or replaced",
            name(found),
            name(&module.build_id)
        )
    })
}

/// Opens a regular file and looks into it; `Ok(None)` if it is no 64-bit little-endian ELF file.
fn open(path: &Path) -> std::io::Result<Option<(Elf, [u64; 5])>> {
    let Some((map, identity)) = map(path)? else { return Ok(None) };
    Ok(inspect(&map).map(|elf| (elf, identity)))
}

/// Maps a regular file; `Ok(None)` for anything else, so that a device or a pipe named in a recording is left alone.
pub fn map(path: &Path) -> std::io::Result<Option<(Mmap, [u64; 5])>> {
    let meta = fs::metadata(path)?;
    if !meta.is_file() || meta.len() < 64 {
        return Ok(None);
    }
    let file = File::open(path)?;
    let meta = file.metadata()?;
    let identity =
        [meta.dev(), meta.ino(), meta.len(), meta.mtime().cast_unsigned(), meta.mtime_nsec().cast_unsigned()];
    // SAFETY: the map is only read, and only while this program symbolises. An ELF file that is in use is replaced by
    // renaming rather than written over (the kernel forbids writing to a running program); one that is truncated
    // nevertheless ends this program with SIGBUS, as it does any debugger.
    Ok(Some((unsafe { Mmap::map(&file)? }, identity)))
}

pub(super) fn inspect(bytes: &[u8]) -> Option<Elf> {
    let elf = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let has = |name: &str| elf.section_by_name(name).is_some_and(|section| section.size() > 0 && has_bytes(&section));
    let symbols = elf.symbol_table().is_some_and(|table| table.symbols().nth(1).is_some());
    let dynamic = elf.dynamic_symbol_table().is_some_and(|table| table.symbols().nth(1).is_some());
    let endian = elf.endian();
    let code = elf
        .elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == object::elf::PT_LOAD && header.p_flags(endian).0 & 1 != 0)
        .map(|header| (header.p_vaddr(endian), header.p_offset(endian)))
        .collect();
    Some(Elf {
        build_id: elf.build_id().ok().flatten().map(<[u8]>::to_vec),
        has_debug: has(".debug_info") || has(".zdebug_info"),
        has_symbols: symbols || dynamic || has(".gnu_debugdata"),
        runtime: if elf.section_by_name(".go.buildinfo").is_some() {
            Some(Runtime::Go)
        } else if elf
            .dynamic_symbols()
            .any(|symbol| symbol.is_definition() && symbol.name() == Ok("napi_create_object"))
        {
            Some(Runtime::Node)
        } else {
            None
        },
        is_stripped: !symbols && !has(".gnu_debugdata"),
        debug_link: elf
            .gnu_debuglink()
            .ok()
            .flatten()
            .map(|(name, crc)| (PathBuf::from(std::ffi::OsStr::from_bytes(name)), crc)),
        code,
    })
}

fn has_bytes<'a>(section: &impl ObjectSection<'a>) -> bool {
    section.file_range().is_some_and(|(_, len)| len > 0)
}

/// `/usr/lib/debug/.build-id/ab/cdef.debug`, and what debuginfod clients have fetched before.
fn file_by_build_id(build_id: &[u8], suits: impl Fn(&Elf) -> bool) -> Option<SymbolFile> {
    // Shorter ones are made up; the folder scheme needs two bytes at least.
    if build_id.len() < 4 {
        return None;
    }
    let (first, rest) = (hex(&build_id[..1]), hex(&build_id[1..]));
    let mut candidates: Vec<PathBuf> = chosen()
        .debug_dirs()
        .iter()
        .map(|dir| dir.join(".build-id").join(&first).join(format!("{rest}.debug")))
        .collect();
    let fetched = std::env::var_os("DEBUGINFOD_CACHE_PATH").map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
        Some(cache.or_else(home)?.join("debuginfod_client"))
    });
    candidates.extend(fetched.map(|dir| dir.join(hex(build_id)).join("debuginfo")));
    candidates.into_iter().find_map(|path| {
        let (elf, identity) = open(&path).ok()??;
        let good = suits(&elf) && elf.build_id.as_deref().is_none_or(|id| id == build_id);
        good.then_some(SymbolFile::File { path, identity })
    })
}

fn runtime_of(source: &SymbolFile) -> Option<Runtime> {
    let SymbolFile::File { path, .. } = source else { return None };
    open(path).ok().flatten().and_then(|(elf, _)| elf.runtime)
}

/// A debug file of the same build id in the folders that the user named, by path or by name.
fn debug_file_by_path(path: &Path, build_id: &[u8]) -> Option<SymbolFile> {
    if build_id.is_empty() {
        return None;
    }
    chosen().by_path(path).into_iter().find_map(|path| {
        let (elf, identity) = open(&path).ok()??;
        let good = (elf.has_debug || elf.has_symbols) && elf.build_id.as_deref() == Some(build_id);
        good.then_some(SymbolFile::File { path, identity })
    })
}

/// What debuginfod's client brings, if the user wants it to.
fn fetched_debug_file(build_id: &[u8]) -> Option<SymbolFile> {
    let path = chosen().fetched(&hex(build_id))?;
    let (elf, identity) = open(&path).ok()??;
    let good = elf.has_debug && elf.build_id.as_deref().is_none_or(|id| id == build_id);
    good.then_some(SymbolFile::File { path, identity })
}

/// The file that `.gnu_debuglink` names: beside the program, in `.debug` beside it, or below `/usr/lib/debug`.
fn debug_file_by_link(path: &Path, elf: &Elf) -> Option<SymbolFile> {
    let (name, crc) = elf.debug_link.as_ref()?;
    // It is a file name by definition; a path would lead out of the folders below.
    let name = Path::new(name.file_name()?);
    let real = path.canonicalize().ok()?;
    let dir = real.parent()?;
    let inside = dir.strip_prefix("/").ok()?;
    let mut candidates = vec![dir.join(name), dir.join(".debug").join(name)];
    for debug_dir in chosen().debug_dirs() {
        candidates.extend([debug_dir.join(inside).join(name), debug_dir.join(name)]);
    }
    candidates.into_iter().find_map(|candidate| {
        let (map, identity) = map(&candidate).ok()??;
        let debug = inspect(&map)?;
        let same = match (&elf.build_id, &debug.build_id) {
            (Some(a), Some(b)) => a == b,
            _ => crc32fast::hash(&map) == *crc,
        };
        (same && debug.has_debug).then_some(SymbolFile::File { path: candidate, identity })
    })
}

fn vdso(module: &ModuleFacts) -> SymbolFiles {
    let ours = vdso_bytes();
    let build_id = ours.as_deref().and_then(inspect).and_then(|elf| elf.build_id);
    if build_id.as_ref().is_some_and(|id| *id == module.build_id) {
        SymbolFiles { source: Some(SymbolFile::Vdso), quality: Quality::Table, note: None, runtime: None }
    } else {
        let note = "the vdso belongs to the kernel that the program ran on, which is another one than this machine's";
        SymbolFiles { source: None, quality: Quality::Mismatch, note: Some(note.into()), runtime: None }
    }
}

/// A copy of the vdso that the kernel has mapped into this process.
pub fn vdso_bytes() -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?.min(1 << 20)];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
