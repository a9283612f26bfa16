//! The tables by which HotSpot describes itself to debuggers: `gHotSpotVMStructs` and its kin, read in the memory of
//! `libjvm.so`. Nothing is read outside of its segments.
//!
//! ```text
//! gHotSpotVMStructs        (type, field, type of the field, static?, offset, address)
//! gHotSpotVMTypes          (type, size)
//! gHotSpotVMIntConstants   (name, value)
//! ```
//! Where the members of an entry lie, and how far entries are apart, is in variables beside each table. Some JDKs fill
//! them in when the library is initialised: until then they are zero.

use super::super::code::DynamicSymbols;
use super::super::code::elf::{Image, LOAD, READABLE};

/// Entries of a table, at most.
const MAX_ENTRIES: u64 = 1 << 14;
/// Distance of two entries, at most.
const MAX_STRIDE: u64 = 256;

/// The memory of a loaded object.
pub struct ImageMemory(Image);

/// One table, with the distance of its entries, and the offsets of the members that are wanted.
struct HotSpotTable<const N: usize> {
    start: u64,
    stride: u64,
    members: [u64; N],
}

/// A field as the tables describe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotSpotField {
    /// Offset in its object, or the address of a static one; 0 where it was not found.
    pub place: u64,
    /// Its type, as far as that matters here.
    pub kind: FieldKind,
}

/// Types of fields that are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldKind {
    /// Not found.
    #[default]
    Absent,
    /// A word: a pointer, or `size_t`.
    Word,
    /// `int`, `uint32_t` or `u4`.
    Int,
    /// `int16_t` or `u2`.
    Short,
    /// `bool` or `u1`.
    Byte,
    /// A structure in place.
    Inside,
    /// Something else.
    Other,
}

/// What is looked for: type, field, and whether it is static.
#[derive(Clone, Copy)]
pub struct FieldName(pub &'static [u8], pub &'static [u8], pub bool);

impl ImageMemory {
    /// The memory of the object whose first segment begins at `map_start`.
    ///
    /// # Safety
    /// The loader must have mapped it there, and it must stay while this is in use.
    pub unsafe fn of(map_start: u64) -> Option<ImageMemory> {
        // SAFETY: the loader has mapped the object at `map_start` and it stays: the contract of this function.
        unsafe { Image::at(map_start) }.map(ImageMemory)
    }

    fn holds(&self, address: u64, len: u64) -> bool {
        let Some(end) = address.checked_add(len) else { return false };
        self.0.headers().iter().filter(|header| header.kind == LOAD && header.flags & READABLE != 0).any(|header| {
            let start = self.0.bias.wrapping_add(header.address);
            start <= address && end <= start.wrapping_add(header.memory_bytes)
        })
    }

    /// The word at `address`; `None` where there is none, or where none can be: HotSpot's compiler aligns all of them, so
    /// what leads to another address is no offset of HotSpot's.
    pub fn word(&self, address: u64) -> Option<u64> {
        // SAFETY: aligned, and inside a readable segment of the object; HotSpot may write there meanwhile.
        self.holds_aligned(address, 8).then(|| unsafe { (address as *const u64).read_volatile() })
    }

    /// The four bytes at `address`; `None` as for [`word`](Self::word).
    pub fn int(&self, address: u64) -> Option<u32> {
        // SAFETY: aligned, and inside a readable segment of the object; HotSpot may write there meanwhile.
        self.holds_aligned(address, 4).then(|| unsafe { (address as *const u32).read_volatile() })
    }

    /// Whether a number of `len` bytes can be at `address`.
    fn holds_aligned(&self, address: u64, len: u64) -> bool {
        address.is_multiple_of(len) && self.holds(address, len)
    }

    /// Whether the text at `address` is this one.
    pub fn is(&self, address: u64, text: &[u8]) -> bool {
        let end = [0];
        self.has_bytes(address, text.iter().chain(&end), text.len() + 1)
    }

    /// Whether the text at `address` begins with this one.
    pub fn begins(&self, address: u64, text: &[u8]) -> bool {
        self.has_bytes(address, text.iter(), text.len())
    }

    fn has_bytes<'a>(&self, address: u64, mut bytes: impl Iterator<Item = &'a u8>, count: usize) -> bool {
        let mut at = address;
        address != 0
            && self.holds(address, count as u64)
            && bytes.all(|&byte| {
                // SAFETY: `holds` has checked that all these bytes are in a readable segment.
                let is_same = byte == unsafe { (at as *const u8).read() };
                at = at.wrapping_add(1);
                is_same
            })
    }

    /// Whether the text at `address` ends in the byte `last`: a pointer type's name ends in `*`.
    fn ends_in(&self, address: u64, last: u8) -> bool {
        const LONGEST: u64 = 128;
        let mut before = 0;
        for at in address..address.saturating_add(LONGEST) {
            if !self.holds(at, 1) {
                return false;
            }
            // SAFETY: `holds` has checked this byte.
            match unsafe { (at as *const u8).read() } {
                0 => return before == last,
                byte => before = byte,
            }
        }
        false
    }

    fn table<const N: usize>(
        &self,
        symbols: &DynamicSymbols,
        name: &[u8],
        stride: &[u8],
        members: [&[u8]; N],
    ) -> Option<HotSpotTable<N>> {
        let variable = |name: &[u8]| self.word(symbols.find(name)?.address);
        let mut table = HotSpotTable { start: variable(name)?, stride: variable(stride)?, members: [0; N] };
        for (to, name) in table.members.iter_mut().zip(members) {
            *to = variable(name).filter(|&offset| offset < table.stride)?;
        }
        (table.start != 0 && (8..=MAX_STRIDE).contains(&table.stride)).then_some(table)
    }

    /// Hands the entries to `each`, as the addresses of their members, until one has no name, which is the first member.
    fn each_entry<const N: usize>(&self, table: &HotSpotTable<N>, mut each: impl FnMut([u64; N])) {
        for index in 0..MAX_ENTRIES {
            let Some(entry) = table.start.checked_add(index * table.stride) else { return };
            let places = table.members.map(|offset| entry.wrapping_add(offset));
            match places.first().and_then(|&name| self.word(name)) {
                None | Some(0) => return,
                Some(_) => each(places),
            }
        }
    }

    /// The fields with these names, in `found`. `None` where there is no such table, or not yet.
    pub fn find_fields<const N: usize>(
        &self,
        symbols: &DynamicSymbols,
        wanted: &[FieldName; N],
        found: &mut [HotSpotField; N],
    ) -> Option<()> {
        let members: [&[u8]; 6] = [
            b"gHotSpotVMStructEntryTypeNameOffset",
            b"gHotSpotVMStructEntryFieldNameOffset",
            b"gHotSpotVMStructEntryTypeStringOffset",
            b"gHotSpotVMStructEntryIsStaticOffset",
            b"gHotSpotVMStructEntryOffsetOffset",
            b"gHotSpotVMStructEntryAddressOffset",
        ];
        let table = self.table(symbols, b"gHotSpotVMStructs", b"gHotSpotVMStructEntryArrayStride", members)?;
        self.each_entry(&table, |[type_name, field_name, field_type, is_static, offset, address]| {
            let text = |place| self.word(place).unwrap_or(0);
            let (type_name, field_name) = (text(type_name), text(field_name));
            let is_static = self.int(is_static).is_some_and(|word| word != 0);
            let entry = wanted
                .iter()
                .zip(found.iter_mut())
                .find(|(name, _)| name.2 == is_static && self.is(type_name, name.0) && self.is(field_name, name.1));
            if let Some((_, field)) = entry {
                field.place = text(if is_static { address } else { offset });
                field.kind = self.kind_of(text(field_type));
            }
        });
        Some(())
    }

    fn kind_of(&self, name: u64) -> FieldKind {
        const KNOWN: [(&[u8], FieldKind); 13] = [
            (b"int", FieldKind::Int),
            (b"uint32_t", FieldKind::Int),
            (b"u4", FieldKind::Int),
            (b"int16_t", FieldKind::Short),
            (b"u2", FieldKind::Short),
            (b"bool", FieldKind::Byte),
            (b"u1", FieldKind::Byte),
            (b"size_t", FieldKind::Word),
            (b"address", FieldKind::Word),
            (b"VirtualSpace", FieldKind::Inside),
            (b"HeapBlock::Header", FieldKind::Inside),
            (b"JavaFrameAnchor", FieldKind::Inside),
            (b"intptr_t", FieldKind::Word),
        ];
        match KNOWN.iter().find(|(text, _)| self.is(name, text)) {
            Some((_, kind)) => *kind,
            None if self.ends_in(name, b'*') => FieldKind::Word,
            None => FieldKind::Other,
        }
    }

    /// The size of a type.
    pub fn size_of_type(&self, symbols: &DynamicSymbols, name: &[u8]) -> Option<u64> {
        let members: [&[u8]; 2] = [b"gHotSpotVMTypeEntryTypeNameOffset", b"gHotSpotVMTypeEntrySizeOffset"];
        let table = self.table(symbols, b"gHotSpotVMTypes", b"gHotSpotVMTypeEntryArrayStride", members)?;
        let mut found = None;
        self.each_entry(&table, |[type_name, size]| {
            if self.word(type_name).is_some_and(|text| self.is(text, name)) {
                found = self.word(size);
            }
        });
        found
    }

    /// A constant that is an `int`.
    pub fn constant(&self, symbols: &DynamicSymbols, name: &[u8]) -> Option<i32> {
        let members: [&[u8]; 2] = [b"gHotSpotVMIntConstantEntryNameOffset", b"gHotSpotVMIntConstantEntryValueOffset"];
        let table =
            self.table(symbols, b"gHotSpotVMIntConstants", b"gHotSpotVMIntConstantEntryArrayStride", members)?;
        let mut found = None;
        self.each_entry(&table, |[constant, value]| {
            if self.word(constant).is_some_and(|text| self.is(text, name)) {
                found = self.int(value).map(|value| value as i32);
            }
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of this program.
    fn own_memory(at: u64) -> ImageMemory {
        // SAFETY: a zeroed answer is valid; the program's own file stays mapped.
        unsafe {
            let mut own = core::mem::zeroed::<libc::Dl_info>();
            assert_ne!(libc::dladdr(at as *const _, &raw mut own), 0);
            ImageMemory::of(own.dli_fbase as u64).unwrap()
        }
    }

    #[test]
    fn texts_are_compared_to_their_end_or_by_what_they_begin_with() {
        static TEXT: [u8; 11] = *b"Interpreter";
        static ENDED: [u8; 5] = *b"Inte\0";
        let (at, ended) = (&raw const TEXT as u64, &raw const ENDED as u64);
        let memory = own_memory(at);
        assert!(memory.is(ended, b"Inte") && memory.begins(ended, b"Inte") && memory.begins(ended, b"In"));
        assert!(memory.begins(at, b"Inte") && !memory.is(at, b"Inte") && !memory.begins(at, b"Ints"));
        let outside = Box::new(TEXT);
        assert!(!memory.begins(0, b"I") && !memory.begins(&raw const *outside as u64, b"I"));
    }

    #[test]
    fn numbers_are_read_at_their_addresses_alone() {
        static WORDS: [u64; 2] = [0x0123_4567_89ab_cdef, 0x1122_3344_5566_7788];
        let at = &raw const WORDS as u64;
        let memory = own_memory(at);
        assert_eq!((memory.word(at), memory.word(at + 8)), (Some(WORDS[0]), Some(WORDS[1])));
        assert_eq!((memory.int(at), memory.int(at + 4)), (Some(0x89ab_cdef), Some(0x0123_4567)));
        for apart in 1..8 {
            assert_eq!(memory.word(at + apart), None, "{apart}");
        }
        for apart in [1, 2, 3, 5, 6, 7] {
            assert_eq!(memory.int(at + apart), None, "{apart}");
        }
        let outside = Box::new(WORDS);
        assert_eq!((memory.word(&raw const *outside as u64), memory.int(0)), (None, None));
    }
}
