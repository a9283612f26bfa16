//! Names that were looked up before, in one file beside the index.
//!
//! ```text
//! magic      8 bytes
//! varint     number of strings, then each as varint length and bytes
//! varint     number of modules, then each:
//!   varint   length of the key, the key; varint number of addresses, then each:
//!     varint address - previous address; varint number of functions, then each:
//!       varint  name + 1, or 0; file + 1, or 0 (indices of strings); line, or 0; 1 if inlined
//! u32        CRC-32 of everything before
//! ```
//! A key holds the identity of the file that the names come from: once that changes, they are looked up again.
//! A cache that is damaged, cut off or of another version is no cache; nobody is told.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use tracehound_format::varint::{Reader, put};

use super::resolve::{Function, Functions};

const MAGIC: &[u8; 8] = b"THSYMB\n\x01";

/// Names of one file: by address, as in the file.
pub type Names = BTreeMap<u64, Functions>;

/// Names by the key of their file.
pub type Modules = HashMap<Vec<u8>, Names>;

/// Reads a cache; empty if there is none that can be used.
pub fn load(path: &Path) -> Modules {
    // A cache has some ten bytes an address; one of gigabytes was not written by us.
    let small = fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() < 1 << 32);
    small.then(|| fs::read(path).ok()).flatten().and_then(|bytes| decode(&bytes)).unwrap_or_default()
}

/// Writes a cache, readable by its owner alone, in one step.
pub fn save(path: &Path, modules: &Modules) -> io::Result<()> {
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
pub fn encode(modules: &Modules) -> Vec<u8> {
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
            }
        }
    }
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn texts(function: &Function) -> impl Iterator<Item = &str> {
    [&function.name, &function.file].into_iter().filter_map(|text| text.as_deref())
}

/// What bytes hold, if they are a cache.
pub fn decode(bytes: &[u8]) -> Option<Modules> {
    let (bytes, crc) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(bytes) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut reader = Reader::new(bytes.strip_prefix(MAGIC)?);
    // Counts are believed only as far as the bytes reach: every element takes a byte at least.
    let mut strings: Vec<Arc<str>> = Vec::new();
    for _ in 0..reader.next_u64()? {
        strings.push(std::str::from_utf8(text(&mut reader)?).ok()?.into());
    }
    let string = |id: u64| match id.checked_sub(1) {
        None => Some(None),
        Some(index) => strings.get(usize::try_from(index).ok()?).cloned().map(Some),
    };
    let mut modules = Modules::new();
    for _ in 0..reader.next_u64()? {
        let key = text(&mut reader)?.to_vec();
        let mut names = Names::new();
        let mut address = 0_u64;
        for _ in 0..reader.next_u64()? {
            address = address.checked_add(reader.next_u64()?)?;
            let mut functions = Vec::new();
            for _ in 0..reader.next_u64()? {
                functions.push(Function {
                    name: string(reader.next_u64()?)?,
                    file: string(reader.next_u64()?)?,
                    line: Some(u32::try_from(reader.next_u64()?).ok()?).filter(|&line| line > 0),
                    inlined: reader.next_u64()? != 0,
                });
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

    fn function() -> impl Strategy<Value = Function> {
        let text = || prop::option::of("[a-z<>:ü]{0,12}".prop_map(|text: String| Arc::<str>::from(text)));
        (text(), text(), prop::option::of(1_u32..), any::<bool>()).prop_map(|(name, file, line, inlined)| Function {
            name,
            file,
            line,
            inlined,
        })
    }

    fn modules() -> impl Strategy<Value = Modules> {
        let functions = prop::collection::vec(function(), 0..4).prop_map(Functions::from);
        let names = prop::collection::btree_map(any::<u64>(), functions, 0..20);
        prop::collection::hash_map(prop::collection::vec(any::<u8>(), 0..9), names, 0..4)
    }

    proptest! {
        #[test]
        fn names_come_back(modules in modules()) {
            let temp = tempfile::tempdir().unwrap();
            let path = temp.path().join("symbols.bin");
            save(&path, &modules).unwrap();
            prop_assert_eq!(load(&path), modules);
        }

        #[test]
        fn hostile_bytes_are_no_cache(mut bytes: Vec<u8>, good_crc: bool) {
            bytes.splice(0..0, *MAGIC);
            let crc = if good_crc { crc32fast::hash(&bytes) } else { 7 };
            bytes.extend_from_slice(&crc.to_le_bytes());
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn no_byte_can_change_unnoticed() {
        let function = Function { name: Some("main".into()), file: None, line: Some(3), inlined: false };
        let names = Names::from([(0x1130, Functions::from([function]))]);
        let bytes = encode(&Modules::from([(b"key".to_vec(), names)]));
        assert!(decode(&bytes).is_some());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(decode(&damaged), None, "byte {at}");
            assert_eq!(decode(&bytes[..at]), None, "cut at {at}");
        }
    }
}
