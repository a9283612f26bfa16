//! Names that were looked up before, in one file beside the index.
//!
//! ```text
//! magic      8 bytes
//! varint     number of strings, then each as varint length and bytes
//! varint     number of modules, then each:
//!   varint   length of the key, the key; varint number of addresses, then each:
//!     varint address - previous address; varint number of functions, then each:
//!       varint  name + 1, or 0; file + 1, or 0 (indices of strings); line, or 0; 1 if inlined;
//!               from version 2 on: file of the declaration + 1, or 0; its line, or 0; first address + 1, or 0
//! u32        CRC-32 of everything before
//! ```
//! A key holds the identity of the file that the names come from: once that changes, they are looked up again. The last
//! byte of the magic is the version. A cache that is damaged, truncated or of another version is ignored silently.
//! Names of version 1 were chosen by other rules: they are looked up again where they can be, and used where a
//! recording brought them along from another machine.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use tracehound_format::varint::{Reader, put};

use super::resolve::{ResolvedFunction, ResolvedFunctions};

const MAGIC: &[u8; 8] = b"THSYMB\n\x02";
const MAGIC_1: &[u8; 8] = b"THSYMB\n\x01";

/// Names of one file: by address, as in the file.
pub type FileNames = BTreeMap<u64, ResolvedFunctions>;

/// Names by the key of their file.
pub type CachedModules = HashMap<Vec<u8>, FileNames>;

/// Versions that are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// What this program writes.
    Current,
    /// All versions.
    All,
}

/// Reads a cache; empty if there is none that can be used.
pub fn load(path: &Path, versions: Versions) -> CachedModules {
    // A cache has some ten bytes an address; one of gigabytes was not written by us.
    let small = fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() < 1 << 32);
    small.then(|| fs::read(path).ok()).flatten().and_then(|bytes| decode(&bytes, versions)).unwrap_or_default()
}

/// Writes a cache, readable by its owner alone, in one step.
pub fn save(path: &Path, modules: &CachedModules) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let result = (|| {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&encode(modules))?;
        fs::rename(&temporary, path)
    })();
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// The bytes of a cache.
pub fn encode(modules: &CachedModules) -> Vec<u8> {
    let mut ids: HashMap<&str, u64> = HashMap::new();
    let mut strings: Vec<&str> = Vec::new();
    for text in modules.values().flat_map(BTreeMap::values).flat_map(|functions| functions.iter()).flat_map(texts) {
        ids.entry(text).or_insert_with(|| {
            strings.push(text);
            strings.len() as u64
        });
    }
    let id = |text: &Option<Arc<str>>| text.as_deref().map_or(0, |text| ids[text]);

    let mut out = MAGIC.to_vec();
    put(&mut out, strings.len() as u64);
    for text in strings {
        put(&mut out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
    }
    put(&mut out, modules.len() as u64);
    for (key, names) in modules {
        put(&mut out, key.len() as u64);
        out.extend_from_slice(key);
        put(&mut out, names.len() as u64);
        let mut previous = 0;
        for (&address, functions) in names {
            put(&mut out, address - previous);
            previous = address;
            put(&mut out, functions.len() as u64);
            for function in functions {
                put(&mut out, id(&function.name));
                put(&mut out, id(&function.file));
                put(&mut out, u64::from(function.line.unwrap_or(0)));
                put(&mut out, u64::from(function.inlined));
                let declared = function.declared.as_ref();
                put(&mut out, declared.map_or(0, |(file, _)| ids[&**file]));
                put(&mut out, declared.map_or(0, |&(_, line)| u64::from(line)));
                put(&mut out, function.start.map_or(0, |start| start.wrapping_add(1)));
            }
        }
    }
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn texts(function: &ResolvedFunction) -> impl Iterator<Item = &str> {
    let declared = function.declared.as_ref().map(|(file, _)| file);
    [function.name.as_ref(), function.file.as_ref(), declared].into_iter().flatten().map(|text| &**text)
}

/// Decodes a cache; `None` if the bytes are none.
pub fn decode(bytes: &[u8], versions: Versions) -> Option<CachedModules> {
    let (bytes, crc) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(bytes) != u32::from_le_bytes(*crc) {
        return None;
    }
    let current = bytes.strip_prefix(MAGIC);
    let old = || bytes.strip_prefix(MAGIC_1).filter(|_| versions == Versions::All);
    let mut reader = Reader::new(current.or_else(old)?);
    // Counts are limited by the number of bytes: every element takes at least one.
    let mut strings: Vec<Arc<str>> = Vec::new();
    for _ in 0..reader.next_u64()? {
        strings.push(std::str::from_utf8(text(&mut reader)?).ok()?.into());
    }
    let string = |id: u64| match id.checked_sub(1) {
        None => Some(None),
        Some(index) => strings.get(usize::try_from(index).ok()?).cloned().map(Some),
    };
    let mut modules = CachedModules::new();
    for _ in 0..reader.next_u64()? {
        let key = text(&mut reader)?.to_vec();
        let mut names = FileNames::new();
        let mut address = 0_u64;
        for _ in 0..reader.next_u64()? {
            address = address.checked_add(reader.next_u64()?)?;
            let mut functions = Vec::new();
            for _ in 0..reader.next_u64()? {
                let mut function = ResolvedFunction {
                    name: string(reader.next_u64()?)?,
                    file: string(reader.next_u64()?)?,
                    line: Some(u32::try_from(reader.next_u64()?).ok()?).filter(|&line| line > 0),
                    inlined: reader.next_u64()? != 0,
                    ..ResolvedFunction::default()
                };
                if current.is_some() {
                    let (file, line) = (string(reader.next_u64()?)?, u32::try_from(reader.next_u64()?).ok()?);
                    function.declared = file.map(|file| (file, line));
                    function.start = reader.next_u64()?.checked_sub(1);
                }
                functions.push(function);
            }
            names.insert(address, functions.into_boxed_slice());
        }
        modules.insert(key, names);
    }
    reader.is_empty().then_some(modules)
}

fn text<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = reader.next_u64()?;
    reader.take(usize::try_from(len).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn function() -> impl Strategy<Value = ResolvedFunction> {
        let text = || prop::option::of("[a-z<>:ü]{0,12}".prop_map(|text: String| Arc::<str>::from(text)));
        let declared = (text(), any::<u32>()).prop_map(|(file, line)| Some((file?, line)));
        let start = prop::option::of(0..u64::MAX);
        (text(), text(), prop::option::of(1_u32..), any::<bool>(), declared, start).prop_map(
            |(name, file, line, inlined, declared, start)| ResolvedFunction {
                name,
                file,
                line,
                inlined,
                declared,
                start,
            },
        )
    }

    fn modules() -> impl Strategy<Value = CachedModules> {
        let functions = prop::collection::vec(function(), 0..4).prop_map(ResolvedFunctions::from);
        let names = prop::collection::btree_map(any::<u64>(), functions, 0..20);
        prop::collection::hash_map(prop::collection::vec(any::<u8>(), 0..9), names, 0..4)
    }

    proptest! {
        #[test]
        fn names_come_back(modules in modules()) {
            let temp = tempfile::tempdir().unwrap();
            let path = temp.path().join("symbols.bin");
            save(&path, &modules).unwrap();
            prop_assert_eq!(load(&path, Versions::Current), modules);
        }

        #[test]
        fn hostile_bytes_are_no_cache(mut bytes: Vec<u8>, good_crc: bool, old: bool) {
            bytes.splice(0..0, if old { *MAGIC_1 } else { *MAGIC });
            let crc = if good_crc { crc32fast::hash(&bytes) } else { 7 };
            bytes.extend_from_slice(&crc.to_le_bytes());
            let _ = decode(&bytes, Versions::All);
        }
    }

    #[test]
    fn no_byte_can_change_unnoticed() {
        let declared = Some(("a.c".into(), 2));
        let function =
            ResolvedFunction { name: Some("main".into()), line: Some(3), declared, ..ResolvedFunction::default() };
        let names = FileNames::from([(0x1130, ResolvedFunctions::from([function]))]);
        let bytes = encode(&CachedModules::from([(b"key".to_vec(), names)]));
        assert!(decode(&bytes, Versions::Current).is_some());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(decode(&damaged, Versions::All), None, "byte {at}");
            assert_eq!(decode(&bytes[..at], Versions::All), None, "cut at {at}");
        }
    }

    #[test]
    fn old_names_are_read_only_where_they_cannot_be_looked_up() {
        // One string, `main`; one module, `k`; one address, 4, with one function: the string, no file, line 3.
        let mut bytes = MAGIC_1.to_vec();
        bytes.extend_from_slice(&[1, 4, b'm', b'a', b'i', b'n', 1, 1, b'k', 1, 4, 1, 1, 0, 3, 0]);
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&bytes, Versions::Current), None);
        let function = ResolvedFunction { name: Some("main".into()), line: Some(3), ..ResolvedFunction::default() };
        let names = FileNames::from([(4, ResolvedFunctions::from([function]))]);
        assert_eq!(decode(&bytes, Versions::All), Some(CachedModules::from([(b"k".to_vec(), names)])));
    }
}
