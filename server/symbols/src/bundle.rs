//! Names that are stored with a recording: inside it, as blocks behind all others, or in a file beside it.
//!
//! ```text
//! recording  header block*  names-block+  trailer-block          see docs/FORMAT.md, "Names"
//! beside     FILE.symbols, as in `cache`
//! ```
//! A reader that does not know the blocks skips them. The trailer has a fixed length, so that the names are found
//! without reading what lies before them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracehound_format::block::{BlockHeader, BlockKind, Codec, MAX_PAYLOAD};
use tracehound_format::meta::{self, GeneratedCode, Meta};
use tracehound_index::payload::unzstd;

use super::{cache, resolve};

/// Bytes of names in a block, before compression.
const PART: usize = 16 << 20;
/// Length of the trailer: a header and the offset of the first names block.
const TRAILER: usize = BlockHeader::LEN + 8;
/// Most bytes of names of one recording.
const MOST: usize = 1 << 30;

const _: () = assert!(PART <= MAX_PAYLOAD);

/// Path of the names that came with a recording from another machine, unless they are in it: beside it.
pub fn path_beside(recording: &Path) -> PathBuf {
    let mut path = recording.as_os_str().to_owned();
    path.push(".symbols");
    path.into()
}

/// Key of a module in a bundle, by what was recorded of it.
pub(super) fn key(build_id: &[u8], path: &[u8]) -> Vec<u8> {
    [build_id, &[0], path].concat()
}

/// Code in no module is under a name of its own in a bundle.
pub(super) const NO_MODULE: &[u8] = b"\0";

/// The names that came with a recording: those inside it, and those beside it, which win.
pub(super) fn load(recording: &Path) -> cache::CachedModules {
    let mut names = embedded(recording).unwrap_or_default();
    for (module, beside) in cache::load(&path_beside(recording), cache::Versions::All) {
        names.entry(module).or_default().extend(beside);
    }
    names
}

/// One function of a [`Bundle`].
#[derive(Debug, Clone, Default)]
pub struct Named {
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Line.
    pub line: Option<u32>,
    /// It was inlined into the next one.
    pub inlined: bool,
    /// Source file and line of its declaration; line 0: not known.
    pub declared: Option<(Arc<str>, u32)>,
    /// Its first address, where nothing else distinguishes it from others of its name.
    pub start: Option<u64>,
}

/// Names for another machine.
#[derive(Default)]
pub struct Bundle(cache::CachedModules);

impl Bundle {
    /// Adds names for the call that returns to `address`, as in the file of the module; without a module as it was.
    pub fn add(&mut self, module: Option<(&[u8], &[u8])>, address: u64, functions: Vec<Named>) {
        let key = module.map_or_else(|| NO_MODULE.to_vec(), |(build_id, path)| key(build_id, path));
        let functions = functions.into_iter().map(|named| resolve::ResolvedFunction {
            name: named.name,
            file: named.file,
            line: named.line,
            inlined: named.inlined,
            declared: named.declared,
            start: named.start,
        });
        self.0.entry(key).or_default().insert(address, functions.collect());
    }

    /// Places with a name, and all places.
    pub fn counts(&self) -> (usize, usize) {
        let functions = || self.0.values().flat_map(std::collections::BTreeMap::values);
        (functions().filter(|functions| !functions.is_empty()).count(), functions().count())
    }

    /// Writes the file that lies beside a recording.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_beside(&self, recording: &Path) -> io::Result<()> {
        cache::save(&path_beside(recording), &self.0)
    }

    /// Appends the names to a recording of which `at` bytes were written before.
    ///
    /// # Errors
    /// When the output refuses.
    pub fn append(&self, at: u64, out: &mut dyn Write) -> io::Result<()> {
        for part in cache::encode(&self.0).chunks(PART) {
            let stored = zstd::bulk::compress(part, 3)?;
            out.write_all(&header(Codec::Zstd, part.len(), &stored).encode())?;
            out.write_all(&stored)?;
        }
        let trailer = at.to_le_bytes();
        out.write_all(&header(Codec::None, trailer.len(), &trailer).encode())?;
        out.write_all(&trailer)
    }
}

/// Appends records of pieces of generated code to a recording, and returns the number of bytes.
///
/// # Errors
/// When the output refuses.
pub fn append_pieces(pieces: &[&GeneratedCode], out: &mut dyn Write) -> io::Result<u64> {
    let (mut raw, mut written) = (Vec::new(), 0);
    let mut pieces = pieces.iter().peekable();
    while let Some(&piece) = pieces.next() {
        meta::encode(&Meta::GeneratedCode(piece.clone()), &mut raw).map_err(io::Error::other)?;
        if raw.len() >= PART / 16 || pieces.peek().is_none() {
            let stored = zstd::bulk::compress(&raw, 3)?;
            let header = BlockHeader { kind: BlockKind::Meta, ..header(Codec::Zstd, raw.len(), &stored) }.encode();
            out.write_all(&header)?;
            out.write_all(&stored)?;
            written += (header.len() + stored.len()) as u64;
            raw.clear();
        }
    }
    Ok(written)
}

fn header(codec: Codec, raw_len: usize, stored: &[u8]) -> BlockHeader {
    BlockHeader {
        kind: BlockKind::Names,
        codec,
        thread: 0,
        // They may be taken away and put there again: the recording's own blocks alone are numbered.
        block_number: 0,
        first_record: 0,
        first_tick: 0,
        last_tick: 0,
        count: 0,
        raw_len: raw_len as u32,
        stored_len: stored.len() as u32,
        payload_crc: crc32fast::hash(stored),
    }
}

/// Bytes of a recording before the names in it: all of it, if there are none.
///
/// # Errors
/// When the file cannot be read.
pub fn length_without_names(file: &File) -> io::Result<u64> {
    let len = file.metadata()?.len();
    Ok(first_block(file, len)?.unwrap_or(len))
}

/// Where the names blocks begin, if the file ends with a trailer.
fn first_block(file: &File, len: u64) -> io::Result<Option<u64>> {
    let Some(at) = len.checked_sub(TRAILER as u64) else { return Ok(None) };
    let mut bytes = [0; TRAILER];
    file.read_exact_at(&mut bytes, at)?;
    let (head, payload) = bytes.split_at(BlockHeader::LEN);
    let Ok(header) = BlockHeader::decode(head) else { return Ok(None) };
    let is_trailer = header.kind == BlockKind::Names
        && header.codec == Codec::None
        && header.stored_len == 8
        && header.payload_crc == crc32fast::hash(payload);
    let first = payload.try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
    Ok((is_trailer && first <= at).then_some(first))
}

/// The names inside a recording; `None` if there are none, or none that can be read.
fn embedded(recording: &Path) -> Option<cache::CachedModules> {
    // A pipe or a device would keep us waiting.
    if !recording.metadata().ok()?.is_file() {
        return None;
    }
    let file = File::open(recording).ok()?;
    let len = file.metadata().ok()?.len();
    let (mut at, end) = (first_block(&file, len).ok()??, len - TRAILER as u64);
    let (mut all, mut raw, mut head) = (Vec::new(), Vec::new(), [0; BlockHeader::LEN]);
    while at < end {
        file.read_exact_at(&mut head, at).ok()?;
        let header = BlockHeader::decode(&head).ok().filter(|header| header.kind == BlockKind::Names)?;
        let mut stored = vec![0; header.stored_len as usize];
        file.read_exact_at(&mut stored, at + BlockHeader::LEN as u64).ok()?;
        header.open_payload(&stored, &mut raw, unzstd).ok()?;
        if all.len() + raw.len() > MOST {
            return None;
        }
        all.extend_from_slice(&raw);
        at += (BlockHeader::LEN + stored.len()) as u64;
    }
    cache::decode(&all, cache::Versions::All)
}

/// Copies the first `len` bytes of a file.
///
/// # Errors
/// When reading or writing fails.
pub fn copy(file: &File, len: u64, out: &mut dyn Write) -> io::Result<()> {
    let copied = io::copy(&mut file.take(len), out)?;
    if copied < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(name: &str) -> Bundle {
        let mut bundle = Bundle::default();
        let named = Named { name: Some(name.into()), line: Some(7), ..Named::default() };
        bundle.add(Some((b"id", b"/bin/app")), 16, vec![named]);
        bundle
    }

    #[test]
    fn names_inside_are_found_replaced_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.dat");
        let mut bytes = vec![7; 1000];
        bundle("first").append(1000, &mut bytes).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(length_without_names(&File::open(&path).unwrap()).unwrap(), 1000);
        assert_eq!(load(&path), bundle("first").0);
        // What lies beside it wins.
        bundle("second").write_beside(&path).unwrap();
        assert_eq!(load(&path), bundle("second").0);
        std::fs::remove_file(path_beside(&path)).unwrap();
        for at in 1000..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(load(&path), cache::CachedModules::new(), "byte {at}");
        }
        std::fs::write(&path, &bytes[..1000]).unwrap();
        assert_eq!(length_without_names(&File::open(&path).unwrap()).unwrap(), 1000);
    }
}
