//! Whether a library can be preloaded by musl's loader.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::Endianness;
use object::elf::DT_NEEDED;
use object::read::elf::ElfFile64;

/// glibc's libraries, by whose names musl's loader knows itself.
const KNOWN: [&[u8]; 5] = [b"libc.so", b"libm.so", b"libpthread.so", b"libdl.so", b"librt.so"];

/// Refuses a program with musl where `library` needs what musl's loader does not know, as what `make build` makes does.
pub fn check(program: &Path, library: &Path) -> Result<()> {
    let bytes = fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let Some(other) = unknown(&bytes).with_context(|| format!("{} is no library", library.display()))? else {
        return Ok(());
    };
    bail!(
        "{} uses the musl C library, and {} needs {other}: it was built for the glibc of one machine; what `make dist` builds \
         is for both",
        program.display(),
        library.display()
    );
}

/// The first library that it needs and musl does not know.
fn unknown(library: &[u8]) -> Result<Option<String>> {
    let elf = ElfFile64::<Endianness>::parse(library)?;
    let table = elf.elf_dynamic_table()?;
    for entry in table.iter().filter(|entry| entry.tag == DT_NEEDED) {
        let name = table.string(entry)?;
        if !KNOWN.iter().any(|known| name.starts_with(known)) {
            return Ok(Some(String::from_utf8_lossy(name).into_owned()));
        }
    }
    Ok(None)
}
