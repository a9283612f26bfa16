//! Mapped objects of a process: its list of mappings, and the ELF objects among them, read from its memory. The files
//! may be gone, replaced, or in another mount namespace; what runs is what is in memory.

use std::ops::Range;

use crate::memory::{ProcessMemory, living_thread};
use crate::refusal::{During, Refusal, Result, not_permitted};

/// A line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessMapping {
    /// Addresses.
    pub range: Range<u64>,
    /// May be written.
    pub writable: bool,
    /// May be run.
    pub executable: bool,
    /// Where in the file it begins.
    pub offset: u64,
    /// Device and inode.
    pub file: (String, u64),
    /// Path as the kernel says it.
    pub path: String,
}

/// The process's mappings.
pub fn mappings(pid: u32) -> Result<Vec<ProcessMapping>> {
    let text = match std::fs::read(format!("/proc/{}/maps", living_thread(pid))) {
        Ok(text) => text,
        Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
            return Err(not_permitted(pid));
        }
        other => other.during(&format!("the mappings of process {pid}"))?,
    };
    Ok(String::from_utf8_lossy(&text).lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<ProcessMapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let rights = fields.next()?.as_bytes();
    let offset = hex(fields.next()?)?;
    let device = fields.next()?.to_owned();
    let inode = fields.next()?.parse().ok()?;
    Some(ProcessMapping {
        range: hex(start)?..hex(end)?,
        writable: rights.get(1) == Some(&b'w'),
        executable: rights.get(2) == Some(&b'x'),
        offset,
        file: (device, inode),
        path: fields.next().unwrap_or_default().trim_start().to_owned(),
    })
}

/// A loaded ELF object.
#[derive(Debug, Clone)]
pub struct ProcessObject {
    /// Path as the kernel says it.
    pub path: String,
    /// All its addresses.
    pub range: Range<u64>,
    /// Address in memory less address in the file.
    pub bias: u64,
    /// Its code.
    pub code: Vec<Range<u64>>,
    /// Readable segments.
    segments: Vec<Range<u64>>,
    dynamic: Option<Range<u64>>,
    /// Its table of unwind information (`.eh_frame_hdr`).
    pub unwind_table: Option<Range<u64>>,
    /// It needs a loader, or is one that needs none.
    pub has_interpreter: bool,
}

/// A function of an object's dynamic symbol table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DynamicSymbol {
    /// First address in memory.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Name.
    pub name: String,
}

/// Word of a table of bytes.
fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    at(bytes, offset).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    at(bytes, offset).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    at(bytes, offset).map(u64::from_le_bytes)
}

/// The ELF objects in `mappings`, by address.
pub fn objects(memory: &ProcessMemory, mappings: &[ProcessMapping]) -> Vec<ProcessObject> {
    let first = |mapping: &&ProcessMapping| mapping.offset == 0 && mapping.file.1 != 0;
    mappings.iter().filter(first).filter_map(|mapping| object(memory, mapping)).collect()
}

fn object(memory: &ProcessMemory, first: &ProcessMapping) -> Option<ProcessObject> {
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    const INTERPRETER: u32 = 3;
    const UNWIND_TABLE: u32 = 0x6474_e550;
    let base = first.range.start;
    let header = memory.bytes(base, 64)?;
    // 64 bits, little-endian, an object in memory.
    if header.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, size, count) = (u64_at(&header, 32)?, u16_at(&header, 54)?, u16_at(&header, 56)?);
    if size != 56 || count > 256 {
        return None;
    }
    let headers = memory.bytes(base + table, usize::from(size) * usize::from(count))?;
    let rows: Vec<(u32, u32, u64, u64)> = headers
        .chunks_exact(56)
        .filter_map(|row| Some((u32_at(row, 0)?, u32_at(row, 4)?, u64_at(row, 16)?, u64_at(row, 40)?)))
        .collect();
    let loads = || rows.iter().filter(|row| row.0 == LOAD);
    let bias = base.wrapping_sub(loads().next()?.2 & !0xfff);
    let moved = |row: &(u32, u32, u64, u64)| row.2.wrapping_add(bias)..row.2.wrapping_add(bias).wrapping_add(row.3);
    let one = |kind| rows.iter().find(|row| row.0 == kind).map(moved);
    let code = loads().filter(|row| row.1 & 1 != 0).map(moved).collect();
    let segments: Vec<Range<u64>> = loads().filter(|row| row.1 & 4 != 0).map(moved).collect();
    let end = loads().map(|row| moved(row).end).max()?;
    Some(ProcessObject {
        path: first.path.clone(),
        range: base..end,
        bias,
        code,
        segments,
        dynamic: one(DYNAMIC),
        unwind_table: one(UNWIND_TABLE),
        has_interpreter: one(INTERPRETER).is_some(),
    })
}

/// The objects that the loader lists, in the order in which it searches them for a name.
pub fn loader_order<'a>(memory: &ProcessMemory, objects: &'a [ProcessObject]) -> Vec<&'a ProcessObject> {
    const DEBUG: u64 = 21;
    const MOST: usize = 10_000;
    // The program's own dynamic section leads to the list. Its rows: bias, name, dynamic section, next row.
    let list = objects.iter().find_map(|object| object.dynamic_word(memory, DEBUG).filter(|&at| at != 0));
    let mut row = list.and_then(|list| memory.word(list + 8)).unwrap_or(0);
    let mut order = Vec::new();
    while row != 0 && order.len() < MOST {
        let dynamic = memory.word(row + 16);
        let here = |object: &&ProcessObject| object.dynamic.as_ref().map(|dynamic| dynamic.start) == dynamic;
        // The vdso is no file.
        order.extend(objects.iter().find(here));
        row = memory.word(row + 24).unwrap_or(0);
    }
    order
}

impl ProcessObject {
    /// The file's name without folders.
    #[must_use]
    pub fn name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or_default()
    }

    /// Whether `address` is in its code.
    #[must_use]
    pub fn has_code_at(&self, address: u64) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }

    /// Where the readable segment around `address` ends.
    #[must_use]
    pub fn segment_end(&self, address: u64) -> Option<u64> {
        self.segments.iter().find(|segment| segment.contains(&address)).map(|segment| segment.end)
    }

    /// Functions and variables that it defines for others, by address.
    pub fn symbols(&self, memory: &ProcessMemory) -> Result<Vec<DynamicSymbol>> {
        self.read_symbols(memory)
            .ok_or_else(|| Refusal(format!("the symbols of {} cannot be read from memory", self.path)))
    }

    /// A word of its dynamic section, by its tag.
    fn dynamic_word(&self, memory: &ProcessMemory, tag: u64) -> Option<u64> {
        let dynamic = self.dynamic.clone()?;
        let rows = memory.bytes(dynamic.start, (dynamic.end - dynamic.start) as usize)?;
        let row = rows.chunks_exact(16).find(|row| u64_at(row, 0) == Some(tag))?;
        u64_at(row, 8)
    }

    fn read_symbols(&self, memory: &ProcessMemory) -> Option<Vec<DynamicSymbol>> {
        const HASH: u64 = 4;
        const STRINGS: u64 = 5;
        const SYMBOLS: u64 = 6;
        const STRINGS_BYTES: u64 = 10;
        const GNU_HASH: u64 = 0x6fff_fef5;
        let dynamic = self.dynamic.clone()?;
        let rows = memory.bytes(dynamic.start, (dynamic.end - dynamic.start) as usize)?;
        let value = |wanted| {
            let row = rows.chunks_exact(16).find(|row| u64_at(row, 0) == Some(wanted))?;
            u64_at(row, 8)
        };
        // The loader has moved the addresses in most objects.
        let address =
            |wanted| value(wanted).map(|at| if at < self.range.start { at.wrapping_add(self.bias) } else { at });
        let count = match (address(GNU_HASH), address(HASH)) {
            (Some(hash), _) => gnu_hash_count(memory, hash)?,
            (None, Some(hash)) => memory.half(hash + 4)?,
            (None, None) => return None,
        };
        let table = memory.bytes(address(SYMBOLS)?, count as usize * 24)?;
        let strings = memory.bytes(address(STRINGS)?, value(STRINGS_BYTES)? as usize)?;
        let mut found: Vec<DynamicSymbol> = table
            .chunks_exact(24)
            .filter_map(|row| {
                let (name, section) = (u32_at(row, 0)? as usize, u16_at(row, 6)?);
                let text = strings.get(name..)?.split(|&byte| byte == 0).next()?;
                let text = String::from_utf8_lossy(text).into_owned();
                let start = u64_at(row, 8)?.wrapping_add(self.bias);
                (section != 0 && !text.is_empty()).then_some(DynamicSymbol { start, len: u64_at(row, 16)?, name: text })
            })
            .collect();
        found.sort_by_key(|symbol| symbol.start);
        Some(found)
    }
}

/// Symbols that a GNU hash table covers, and those before them.
fn gnu_hash_count(memory: &ProcessMemory, at: u64) -> Option<u32> {
    let head = memory.bytes(at, 16)?;
    let (buckets, first, bloom) = (u32_at(&head, 0)?, u32_at(&head, 4)?, u32_at(&head, 8)?);
    let at_buckets = at + 16 + u64::from(bloom) * 8;
    let table = memory.bytes(at_buckets, buckets as usize * 4)?;
    let mut last = table.chunks_exact(4).filter_map(|word| u32_at(word, 0)).max()?;
    if last < first {
        return Some(first);
    }
    let chains = at_buckets + u64::from(buckets) * 4;
    loop {
        let word = memory.half(chains + u64::from(last - first) * 4)?;
        last += 1;
        if word & 1 != 0 {
            return Some(last);
        }
    }
}

/// The symbol that `address` lies in.
#[must_use]
pub fn symbol_around(symbols: &[DynamicSymbol], address: u64) -> Option<&DynamicSymbol> {
    let until = symbols.partition_point(|symbol| symbol.start <= address);
    let before = symbols.get(..until)?;
    before.iter().rev().take(16).find(|symbol| address - symbol.start < symbol.len)
}

/// A symbol by name.
#[must_use]
pub fn symbol_named<'a>(symbols: &'a [DynamicSymbol], name: &str) -> Option<&'a DynamicSymbol> {
    symbols.iter().find(|symbol| symbol.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read_like_any_other() {
        let pid = std::process::id();
        let memory = ProcessMemory::open(pid).unwrap();
        let mappings = mappings(pid).unwrap();
        let objects = objects(&memory, &mappings);
        let libc = objects.iter().find(|object| object.name().starts_with("libc.so")).unwrap();
        let symbols = libc.symbols(&memory).unwrap();
        // SAFETY: a terminated name.
        let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) } as u64;
        assert_eq!(symbol_named(&symbols, "malloc").unwrap().start, malloc);
        assert_eq!(symbol_around(&symbols, malloc + 3).unwrap().start, malloc);
        assert!(libc.has_code_at(malloc) && libc.unwind_table.is_some());
        let here = this_process_is_read_like_any_other as *const () as u64;
        assert!(objects.iter().any(|object| object.has_interpreter && object.has_code_at(here)));
    }
}
