//! How many classes HotSpot has unloaded, as its own counters say, which tools read: the memory of `PerfMemory`.
//!
//! ```text
//! head     magic, byte order, version, …, where entries begin, how many
//! entry    bytes, where its name is, …, type, …, where its value is
//! ```
//! A class is counted before anything of it is freed. So as long as no more are counted, a method that has run in a frame is
//! where it was; only agents replace methods of classes that stay.

use super::super::code::DynamicSymbols;
use super::super::sys::is_readable;
use super::tables::{FieldKind, FieldName, HotSpotField, ImageMemory};

/// Where the counters and the mark of agents are.
#[derive(Clone, Copy)]
pub struct UnloadCounters {
    counters: [u64; 2],
    /// A byte that is not 0 if an agent may replace methods.
    has_agents: u64,
}

const NAMES: [&[u8]; 2] = [b"java.cls.unloadedClasses", b"java.cls.sharedUnloadedClasses"];
const MAGIC: u32 = 0xc0c0_feca;
const LITTLE_ENDIAN: u8 = 1;
const VERSION: u8 = 2;
/// Of the head: the byte order, the version, where entries begin, how many they are.
const ORDER: u64 = 4;
const MAJOR: u64 = 5;
const FIRST_ENTRY: u64 = 24;
const ENTRY_COUNT: u64 = 28;
/// Of an entry: where its name is, its type, where its value is.
const NAME: u64 = 4;
const TYPE: u64 = 12;
const VALUE: u64 = 16;
const LONG: u8 = b'J';
const MOST_ENTRIES: u32 = 1 << 12;
const MOST_BYTES: u64 = 1 << 24;

/// The memory of the counters.
struct CounterMemory {
    start: u64,
    end: u64,
    /// A page that can be read.
    page: u64,
}

impl CounterMemory {
    fn byte(&mut self, at: u64) -> Option<u8> {
        let address = self.start.checked_add(at)?;
        if address >= self.end {
            return None;
        }
        if address & !4095 != self.page {
            if !is_readable(address & !4095) {
                return None;
            }
            self.page = address & !4095;
        }
        // SAFETY: the kernel was asked for its page, and this memory is never unmapped.
        Some(unsafe { (address as *const u8).read_volatile() })
    }

    fn int(&mut self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        for (byte, at) in bytes.iter_mut().zip(at..) {
            *byte = self.byte(at)?;
        }
        Some(u32::from_le_bytes(bytes))
    }

    fn has_text(&mut self, at: u64, text: &[u8]) -> bool {
        text.iter().chain(&[0]).zip(at..).all(|(&byte, at)| self.byte(at) == Some(byte))
    }

    /// The addresses of the values with these names.
    fn find(&mut self) -> Option<[u64; 2]> {
        if self.int(0)? != MAGIC || self.byte(ORDER)? != LITTLE_ENDIAN || self.byte(MAJOR)? != VERSION {
            return None;
        }
        let mut found = [0; 2];
        let mut at = u64::from(self.int(FIRST_ENTRY)?);
        for _ in 0..self.int(ENTRY_COUNT)?.min(MOST_ENTRIES) {
            let (bytes, name, value) = (self.int(at)?, self.int(at + NAME)?, self.int(at + VALUE)?);
            let known = NAMES.iter().position(|text| self.has_text(at + u64::from(name), text));
            if let Some(found) = known.and_then(|known| found.get_mut(known)) {
                let address = self.start + at + u64::from(value);
                self.byte(at + u64::from(value) + 7)?;
                if self.byte(at + TYPE)? != LONG || !address.is_multiple_of(8) {
                    return None;
                }
                *found = address;
            }
            at += u64::from(bytes.max(1));
        }
        (!found.contains(&0)).then_some(found)
    }
}

impl UnloadCounters {
    /// Those of the virtual machine whose library this is; `None` if it does not count.
    pub fn find(memory: &ImageMemory, symbols: &DynamicSymbols) -> Option<UnloadCounters> {
        let wanted = [
            FieldName(b"PerfMemory", b"_start", true),
            FieldName(b"PerfMemory", b"_end", true),
            FieldName(b"JvmtiExport", b"_can_hotswap_or_post_breakpoint", true),
        ];
        let mut fields = [HotSpotField::default(); 3];
        memory.find_fields(symbols, &wanted, &mut fields)?;
        let [start, end, has_agents] = fields;
        if [start.kind, end.kind, has_agents.kind] != [FieldKind::Word, FieldKind::Word, FieldKind::Byte] {
            return None;
        }
        memory.int(has_agents.place & !3)?;
        let (start, end) = (memory.word(start.place)?, memory.word(end.place)?);
        let is_possible = start >= 4096 && start.is_multiple_of(8) && start < end && end - start < MOST_BYTES;
        let counters = CounterMemory { start, end, page: 0 }.find().filter(|_| is_possible)?;
        Some(UnloadCounters { counters, has_agents: has_agents.place })
    }

    /// A number that changes whenever classes are unloaded, never 0; `None` if that does not say whether methods stay: agents may
    /// replace them.
    #[inline]
    pub fn count(&self) -> Option<u32> {
        let [one, other] = self.counters;
        // SAFETY: `find` has read these, which are never unmapped: one in the library, two in the counters' memory.
        let (has_agents, count) = unsafe {
            let counted = |at: u64| (at as *const u64).read_volatile();
            ((self.has_agents as *const u8).read_volatile(), counted(one).wrapping_add(counted(other)))
        };
        Some((count as u32).wrapping_add(1)).filter(|&number| has_agents == 0 && number != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory with one entry for each name, and one more.
    fn memory(type_of_last: u8) -> Vec<u64> {
        let mut bytes = vec![0_u8; 32];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        (bytes[4], bytes[5]) = (LITTLE_ENDIAN, VERSION);
        bytes[24] = 32;
        bytes[28] = 3;
        for (name, kind) in [(&b"java.cls.loadedClasses"[..], LONG), (NAMES[0], LONG), (NAMES[1], type_of_last)] {
            let mut entry = vec![0_u8; 64];
            (entry[0], entry[4], entry[12], entry[16]) = (64, 20, kind, 56);
            entry[20..20 + name.len()].copy_from_slice(name);
            bytes.extend_from_slice(&entry);
        }
        bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn find(words: &[u64], bytes: u64) -> Option<[u64; 2]> {
        let start = words.as_ptr() as u64;
        let found = CounterMemory { start, end: start + bytes, page: 0 }.find();
        found.map(|found| found.map(|address| address - start))
    }

    #[test]
    fn counters_are_found_by_name() {
        let words = memory(LONG);
        assert_eq!(find(&words, 224), Some([32 + 64 + 56, 32 + 128 + 56]));
        assert_eq!(find(&words, 220), None, "the last value is beyond the end");
        assert_eq!(find(&memory(b'B'), 224), None);
        let mut other = memory(LONG);
        other[0] ^= 1;
        assert_eq!(find(&other, 224), None);
        assert_eq!(find(&words, 0), None);
    }
}
