//! An ELF file with its debug sections as slices, decompressed where they were compressed, and the files that its
//! debug information continues in: dwz's supplementary file, and the units of `-gsplit-dwarf`.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use memmap2::Mmap;
use object::read::elf::ElfFile64;
use object::{CompressionFormat, Endianness, Object, ObjectSection};

use super::locate;
use super::search_paths::chosen;

/// How DWARF is read: from slices, little-endian.
pub type R<'a> = EndianSlice<'a, LittleEndian>;

/// Most bytes of one section after decompression.
const LARGEST: u64 = 1 << 36;

/// How names of debug sections go on that are not read: where variables are, macros, indices of names.
const UNUSED: [&str; 7] = ["loc", "macinfo", "macro", "pub", "gnu_pub", "frame", "names"];

/// A file that was opened for its symbols.
pub struct ObjectFile {
    path: PathBuf,
    map: Mmap,
    /// Debug sections by name, without a `z` in front.
    sections: HashMap<String, Data>,
    /// The ELF file with symbols inside `.gnu_debugdata`; empty if there is none.
    mini: Vec<u8>,
    /// What dwz moved out of this file and others.
    supplement: Option<Box<ObjectFile>>,
    /// All split units in one file.
    package: Option<Box<ObjectFile>>,
}

enum Data {
    Mapped(std::ops::Range<usize>),
    Unpacked(Vec<u8>),
}

impl ObjectFile {
    /// Opens a file and what belongs to it; `None` if it is no 64-bit ELF file.
    pub fn open(path: &Path) -> Option<Self> {
        let mut file = Self::open_alone(path)?;
        file.supplement = file.find_supplement().map(Box::new);
        let mut package = path.as_os_str().to_owned();
        package.push(".dwp");
        file.package = Self::open_alone(Path::new(&package)).map(Box::new);
        Some(file)
    }

    /// Opens a file without looking for others.
    pub fn open_alone(path: &Path) -> Option<Self> {
        let (map, _) = locate::map(path).ok()??;
        let elf = ElfFile64::<Endianness>::parse(&*map).ok()?;
        let mut sections = HashMap::new();
        for section in elf.sections() {
            let Ok(name) = section.name() else { continue };
            let Some(name) = name.strip_prefix(".debug_").or_else(|| name.strip_prefix(".zdebug_")) else { continue };
            if UNUSED.iter().any(|unused| name.starts_with(unused)) {
                continue;
            }
            if let Some(data) = data(&section) {
                sections.insert(format!(".debug_{name}"), data);
            }
        }
        let mini = elf.section_by_name(".gnu_debugdata").and_then(|section| unxz(section.data().ok()?));
        Some(Self {
            path: path.to_owned(),
            sections,
            mini: mini.unwrap_or_default(),
            map,
            supplement: None,
            package: None,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether units of it may continue in other files.
    pub fn has_split_units(&self) -> bool {
        self.sections.contains_key(".debug_addr")
    }

    /// All of its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// The ELF file with more symbols that it contains; empty if it contains none.
    pub fn mini_debug_info(&self) -> &[u8] {
        &self.mini
    }

    /// Its DWARF, with the supplementary file's.
    pub fn dwarf(&self) -> Dwarf<R<'_>> {
        let mut dwarf = self.sections(SectionId::name);
        if let Some(supplement) = &self.supplement {
            dwarf.set_sup(supplement.sections(SectionId::name));
        }
        dwarf
    }

    /// Its DWARF, if it is a file of split units.
    pub fn split_dwarf(&self) -> Dwarf<R<'_>> {
        self.sections(|id| id.dwo_name().unwrap_or(""))
    }

    /// The package of split units beside it.
    pub fn package(&self) -> Option<gimli::DwarfPackage<R<'_>>> {
        let package = self.package.as_deref()?;
        let load = |id: SectionId| Ok::<_, gimli::Error>(package.section(id.dwo_name().unwrap_or("")));
        gimli::DwarfPackage::load(load, EndianSlice::new(&[], LittleEndian)).ok()
    }

    fn sections(&self, name: impl Fn(SectionId) -> &'static str) -> Dwarf<R<'_>> {
        // Reading slices of an open file cannot fail.
        Dwarf::load(|id| Ok::<_, std::convert::Infallible>(self.section(name(id))))
            .unwrap_or_else(|never| match never {})
    }

    fn section(&self, name: &str) -> R<'_> {
        let bytes = match self.sections.get(name) {
            None => &[],
            Some(Data::Unpacked(bytes)) => &bytes[..],
            Some(Data::Mapped(range)) => self.map.get(range.clone()).unwrap_or_default(),
        };
        EndianSlice::new(bytes, LittleEndian)
    }

    /// The file that `.gnu_debugaltlink` names, if it has the build id that is named there.
    fn find_supplement(&self) -> Option<Self> {
        let elf = ElfFile64::<Endianness>::parse(&*self.map).ok()?;
        let (name, build_id) = elf.gnu_debugaltlink().ok()??;
        let name = Path::new(std::str::from_utf8(name).ok()?);
        let real = self.path.canonicalize().ok()?;
        let mut candidates = vec![real.parent()?.join(name)];
        for folder in chosen().debug_dirs() {
            candidates.extend(name.file_name().map(|name| folder.join(".dwz").join(name)));
            if let [first, rest @ ..] = build_id {
                let file = format!("{}.debug", locate::hex(rest));
                candidates.push(folder.join(".build-id").join(locate::hex(&[*first])).join(file));
            }
        }
        candidates.into_iter().find_map(|path| {
            let file = Self::open_alone(&path)?;
            let elf = ElfFile64::<Endianness>::parse(&*file.map).ok()?;
            (elf.build_id().ok().flatten() == Some(build_id)).then_some(file)
        })
    }
}

fn data<'a>(section: &impl ObjectSection<'a>) -> Option<Data> {
    let stored = section.compressed_data().ok()?;
    if stored.format == CompressionFormat::None {
        let (start, len) = section.file_range()?;
        let start = usize::try_from(start).ok()?;
        return Some(Data::Mapped(start..start.checked_add(usize::try_from(len).ok()?)?));
    }
    if stored.uncompressed_size > LARGEST {
        return None;
    }
    // The stated size is a limit and no promise: room is made as bytes come.
    let mut bytes = Vec::new();
    let read = match stored.format {
        CompressionFormat::Zlib => {
            flate2::read::ZlibDecoder::new(stored.data).take(stored.uncompressed_size).read_to_end(&mut bytes)
        }
        CompressionFormat::Zstandard => {
            zstd::Decoder::new(stored.data).ok()?.take(stored.uncompressed_size).read_to_end(&mut bytes)
        }
        _ => return None,
    };
    read.ok().map(|_| Data::Unpacked(bytes))
}

fn unxz(bytes: &[u8]) -> Option<Vec<u8>> {
    const LARGEST: u64 = 1 << 30;
    let mut out = Vec::new();
    liblzma::read::XzDecoder::new(bytes).take(LARGEST).read_to_end(&mut out).ok()?;
    Some(out)
}
