//! Looks names up in the dynamic symbols of a loaded object, in its memory: no file, no lock, nothing allocated.

use super::elf::Image;

/// A symbol as it is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedSymbol {
    /// Run-time address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
}

/// `Elf64_Sym`.
#[repr(C)]
#[derive(Clone, Copy)]
struct DynamicEntry {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

const DYNAMIC: u32 = 2;
const END: u64 = 0;
const HASH: u64 = 4;
const STRINGS: u64 = 5;
const SYMBOLS: u64 = 6;
const GNU_HASH: u64 = 0x6fff_fef5;

/// The dynamic symbols of an object, found by their hash table: GNU's, or else the one of the ELF specification.
pub struct DynamicSymbols {
    bias: u64,
    strings: u64,
    symbols: u64,
    hash: u64,
    /// The older table, of objects that do not have the other: 0 where it is not needed.
    old_hash: u64,
}

impl DynamicSymbols {
    /// The dynamic symbols of the object whose first segment begins at `map_start`.
    ///
    /// # Safety
    /// The loader must have mapped the object there, and it must stay.
    pub unsafe fn of(map_start: u64) -> Option<DynamicSymbols> {
        // SAFETY: the loader has mapped the object at `map_start` and it stays: the contract of this function.
        let image = unsafe { Image::at(map_start) }?;
        let header = image.headers().iter().find(|header| header.kind == DYNAMIC)?;
        let mut found = DynamicSymbols { bias: image.bias, strings: 0, symbols: 0, hash: 0, old_hash: 0 };
        let entries = image.bias.wrapping_add(header.address) as *const [u64; 2];
        for index in 0..(header.memory_bytes / 16) as usize {
            // SAFETY: inside the dynamic section, which is loaded.
            let [tag, value] = unsafe { entries.add(index).read_volatile() };
            // glibc puts run-time addresses there, before or after this is called; others leave them as they are.
            let address = if value < image.bias { value.wrapping_add(image.bias) } else { value };
            match tag {
                END => break,
                STRINGS => found.strings = address,
                SYMBOLS => found.symbols = address,
                GNU_HASH => found.hash = address,
                HASH => found.old_hash = address,
                _ => {}
            }
        }
        (found.strings != 0 && found.symbols != 0 && found.hash | found.old_hash != 0).then_some(found)
    }

    /// The defined symbol with this name.
    pub fn find(&self, name: &[u8]) -> Option<LoadedSymbol> {
        if self.hash == 0 {
            return self.find_by_old_hash(name);
        }
        // SAFETY: the tables of a loaded object, laid out as every linker does (binutils, "GNU hash section").
        unsafe {
            let word = |at: u64| (at as *const u32).read_unaligned();
            let (buckets, first, bloom_words, bloom_shift) =
                (word(self.hash), word(self.hash + 4), word(self.hash + 8), word(self.hash + 12));
            if buckets == 0 || bloom_words == 0 {
                return None;
            }
            let hash = gnu_hash(name);
            let bloom = self.hash + 16;
            let filter = ((bloom + u64::from(hash / 64 % bloom_words) * 8) as *const u64).read_unaligned();
            if filter >> (hash % 64) & filter >> ((hash >> (bloom_shift & 31)) % 64) & 1 == 0 {
                return None;
            }
            let bucket_table = bloom + u64::from(bloom_words) * 8;
            let chain = bucket_table + u64::from(buckets) * 4;
            let mut index = word(bucket_table + u64::from(hash % buckets) * 4);
            if index < first {
                return None;
            }
            loop {
                let found = word(chain + u64::from(index - first) * 4);
                if found | 1 == hash | 1
                    && let Some(symbol) = self.symbol_at(index, name)
                {
                    return Some(symbol);
                }
                if found & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    fn find_by_old_hash(&self, name: &[u8]) -> Option<LoadedSymbol> {
        // SAFETY: the tables of a loaded object, laid out as the ELF specification says ("Hash Table").
        unsafe {
            let word = |at: u64| (at as *const u32).read_unaligned();
            let (buckets, symbols) = (word(self.old_hash), word(self.old_hash + 4));
            if buckets == 0 {
                return None;
            }
            let bucket_table = self.old_hash + 8;
            let chain = bucket_table + u64::from(buckets) * 4;
            let mut index = word(bucket_table + u64::from(old_hash(name) % buckets) * 4);
            // No list is longer than there are symbols.
            for _ in 0..symbols {
                if index == 0 || index >= symbols {
                    return None;
                }
                if let Some(symbol) = self.symbol_at(index, name) {
                    return Some(symbol);
                }
                index = word(chain + u64::from(index) * 4);
            }
        }
        None
    }

    /// The symbol at `index`, if it is defined and has this name.
    ///
    /// # Safety
    /// The object must have so many symbols.
    unsafe fn symbol_at(&self, index: u32, name: &[u8]) -> Option<LoadedSymbol> {
        // SAFETY: an entry of the table: the contract of `symbol_at`.
        let symbol = unsafe { (self.symbols as *const DynamicEntry).add(index as usize).read_unaligned() };
        // SAFETY: the same entry.
        (symbol.section != 0 && unsafe { self.is_named(symbol, name) })
            .then(|| LoadedSymbol { address: self.bias.wrapping_add(symbol.value), bytes: symbol.size })
    }

    unsafe fn is_named(&self, symbol: DynamicEntry, name: &[u8]) -> bool {
        let text = (self.strings + u64::from(symbol.name)) as *const u8;
        // SAFETY: a terminated string of the object; reading stops at the first difference.
        unsafe {
            name.iter().enumerate().all(|(at, &byte)| text.add(at).read() == byte) && text.add(name.len()).read() == 0
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

fn old_hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash: u32, &byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        (hash ^ (hash >> 28 << 4)) & 0x0fff_ffff
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_libc_are_where_the_loader_says() {
        // SAFETY: constant names; the object that `dladdr` names is loaded.
        unsafe {
            let malloc = libc::dlsym(libc::RTLD_DEFAULT, c"memfrob".as_ptr());
            let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
            assert_ne!(libc::dladdr(malloc, info.as_mut_ptr()), 0);
            let symbols = DynamicSymbols::of(info.assume_init().dli_fbase as u64).unwrap();
            assert_eq!(symbols.find(b"memfrob").unwrap().address, malloc as u64);
            assert!(symbols.find(b"memfrob").unwrap().bytes > 0);
            assert_eq!(symbols.find(b"_PyRuntime"), None);
        }
    }
}
