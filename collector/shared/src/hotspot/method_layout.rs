//! Reads a `Method` of HotSpot's: names, source file, bytecodes and table of lines of a method.
//!
//! ```text
//! Method ─▶ ConstMethod | bytecodes | table of lines     name index, descriptor index
//!               └▶ ConstantPool | symbols                source file index
//!                      └▶ InstanceKlass ─▶ Symbol        name of the class
//! ```
//! A method that runs in a frame of the calling thread is alive, and with it all of these.

use super::super::code::DynamicSymbols;
use super::super::sys::is_readable;
use super::line_table::LineTable;
use super::tables::{FieldKind, FieldName, HotSpotField, ImageMemory};

/// Offsets in the structures.
#[derive(Clone, Copy)]
pub struct MethodLayout {
    version: u32,
    interpreter: (u64, u64),
    method_const: u64,
    method_entry: u64,
    const_pool: u64,
    const_words: u64,
    const_flags: u64,
    /// The flags have two bytes.
    are_flags_short: bool,
    code_bytes: u64,
    name: u64,
    descriptor: u64,
    /// Bytes of a `ConstMethod`: the bytecodes are behind it.
    const_bytes: u64,
    pool_holder: u64,
    pool_len: u64,
    pool_file: u64,
    /// Bytes of a `ConstantPool`: its entries are behind it.
    pool_bytes: u64,
    holder_pool: u64,
    holder_name: u64,
    symbol_len: u64,
    symbol_text: u64,
}

const FIELDS: usize = 14;
const WANTED: [FieldName; FIELDS] = [
    FieldName(b"Method", b"_constMethod", false),
    FieldName(b"Method", b"_i2i_entry", false),
    FieldName(b"ConstMethod", b"_constants", false),
    FieldName(b"ConstMethod", b"_constMethod_size", false),
    FieldName(b"ConstMethod", b"_code_size", false),
    FieldName(b"ConstMethod", b"_name_index", false),
    FieldName(b"ConstMethod", b"_signature_index", false),
    FieldName(b"ConstantPool", b"_pool_holder", false),
    FieldName(b"ConstantPool", b"_length", false),
    FieldName(b"ConstantPool", b"_source_file_name_index", false),
    FieldName(b"InstanceKlass", b"_constants", false),
    FieldName(b"Klass", b"_name", false),
    FieldName(b"Symbol", b"_length", false),
    FieldName(b"Symbol", b"_body[0]", false),
];
const KINDS: [FieldKind; FIELDS] = {
    use FieldKind::{Byte, Int, Short, Word};
    [Word, Word, Word, Int, Short, Short, Short, Word, Int, Short, Word, Word, Short, Byte]
};
/// Before JDK 21, and since then.
const FLAGS: [FieldName; 2] =
    [FieldName(b"ConstMethod", b"_flags", false), FieldName(b"ConstMethod", b"_flags._flags", false)];
const HAS_LINES: [&[u8]; 2] = [b"ConstMethod::_has_linenumber_table", b"ConstMethodFlags::_misc_has_linenumber_table"];
/// The bit of the flags.
const LINES_FLAG: u32 = 1;
/// A structure's offset of a member, at most.
const MOST_BYTES: u64 = 1 << 12;
/// Longer texts and tables are refused.
pub const MOST_TEXT: usize = 4 << 10;
const MOST_LINES: usize = 1 << 16;

/// A method as it is now. The slices are the virtual machine's own.
#[derive(Clone, Copy)]
pub struct LiveMethod {
    /// Its class, with slashes.
    pub class: &'static [u8],
    /// Its name.
    pub name: &'static [u8],
    /// Its parameters and its result.
    pub descriptor: &'static [u8],
    /// Its source file; empty if that is not known.
    pub file: &'static [u8],
    /// Where its bytecodes begin.
    pub code: u64,
    /// Bytes of its bytecodes; 0 for a native method.
    pub code_bytes: u32,
    /// All that may be its table of lines; empty if it has none.
    pub behind_code: &'static [u8],
}

/// Reads words. As long as it is `CAREFUL`, it asks the kernel first whether they can be read.
struct MethodMemory<const CAREFUL: bool> {
    page: u64,
}

impl<const CAREFUL: bool> MethodMemory<CAREFUL> {
    #[inline(always)]
    fn is_there(&mut self, address: u64) -> bool {
        if !CAREFUL || address >> 12 == self.page {
            return true;
        }
        let there = is_readable(address & !4095);
        if there {
            self.page = address >> 12;
        }
        there
    }

    /// # Safety
    /// It is careful, or there is a word of a live object.
    #[inline(always)]
    unsafe fn word(&mut self, address: u64) -> Option<u64> {
        let is_possible = (4096..1 << 47).contains(&address) && address.is_multiple_of(8) && self.is_there(address);
        // SAFETY: aligned, and there: the kernel was asked, or the contract of `word` says so.
        is_possible.then(|| unsafe { (address as *const u64).read_volatile() })
    }

    /// # Safety
    /// As for [`word`](Self::word).
    #[inline(always)]
    unsafe fn int(&mut self, address: u64) -> Option<u32> {
        // SAFETY: objects consist of whole words: the contract of `int`.
        let word = unsafe { self.word(address & !7) }?;
        Some((word >> ((address & 4) * 8)) as u32)
    }

    /// # Safety
    /// As for [`word`](Self::word).
    #[inline(always)]
    unsafe fn short(&mut self, address: u64) -> Option<u32> {
        // SAFETY: objects consist of whole words: the contract of `short`.
        let word = unsafe { self.word(address & !7) }?;
        Some(u32::from((word >> ((address & 6) * 8)) as u16))
    }

    /// # Safety
    /// As for [`word`](Self::word); the slice must not be used when the object may be gone.
    #[inline(always)]
    unsafe fn bytes(&mut self, address: u64, len: usize) -> Option<&'static [u8]> {
        let end = address.checked_add(len as u64)?;
        if address < 4096 || end >= 1 << 47 {
            return None;
        }
        if CAREFUL && !(address & !4095..end).step_by(4096).all(|page| self.is_there(page)) {
            return None;
        }
        // SAFETY: they are there: the kernel was asked, or the contract of `bytes` says so.
        Some(unsafe { core::slice::from_raw_parts(address as *const u8, len) })
    }
}

impl MethodLayout {
    /// The one of the virtual machine whose library this is; `None` if something is not as it is known.
    pub fn find(
        memory: &ImageMemory,
        symbols: &DynamicSymbols,
        version: u32,
        interpreter: (u64, u64),
    ) -> Option<MethodLayout> {
        let mut fields = [HotSpotField::default(); FIELDS];
        memory.find_fields(symbols, &WANTED, &mut fields)?;
        let mut flags = [HotSpotField::default(); 2];
        memory.find_fields(symbols, &FLAGS, &mut flags)?;
        let is_known = |(field, kind): (&HotSpotField, &FieldKind)| field.kind == *kind && field.place < MOST_BYTES;
        if !fields.iter().zip(&KINDS).all(is_known) {
            return None;
        }
        let (const_flags, are_flags_short) = match flags.map(|field| field.kind) {
            [FieldKind::Short, FieldKind::Absent] => (flags[0].place, true),
            [FieldKind::Absent, FieldKind::Int] => (flags[1].place, false),
            _ => return None,
        };
        if memory.constant(symbols, HAS_LINES[usize::from(!are_flags_short)]) != Some(LINES_FLAG as i32) {
            return None;
        }
        let size_of = |name: &[u8]| {
            memory.size_of_type(symbols, name).filter(|&size| size.is_multiple_of(8) && (8..MOST_BYTES).contains(&size))
        };
        let [method_const, method_entry, const_pool, const_words, code_bytes, name, descriptor, rest @ ..] =
            fields.map(|field| field.place);
        let [pool_holder, pool_len, pool_file, holder_pool, holder_name, symbol_len, symbol_text] = rest;
        let layout = MethodLayout {
            version,
            interpreter,
            method_const,
            method_entry,
            const_pool,
            const_words,
            const_flags,
            are_flags_short,
            code_bytes,
            name,
            descriptor,
            const_bytes: size_of(b"ConstMethod")?,
            pool_holder,
            pool_len,
            pool_file,
            pool_bytes: size_of(b"ConstantPool")?,
            holder_pool,
            holder_name,
            symbol_len,
            symbol_text,
        };
        layout.is_possible().then_some(layout)
    }

    /// Whether all members are aligned, those of known size lie in their structures, and no number lies in two words.
    fn is_possible(&self) -> bool {
        let words = [self.method_const, self.method_entry, self.const_pool, self.pool_holder, self.holder_pool];
        let ints = [self.const_words, self.pool_len];
        let shorts = [self.code_bytes, self.name, self.descriptor, self.pool_file, self.symbol_len];
        let in_const = [self.const_pool, self.const_words, self.const_flags, self.code_bytes, self.name];
        words.iter().chain([&self.holder_name]).all(|at| at.is_multiple_of(8))
            && ints.iter().all(|at| at.is_multiple_of(4))
            && shorts.iter().all(|at| at.is_multiple_of(2))
            && self.const_flags.is_multiple_of(if self.are_flags_short { 2 } else { 4 })
            && in_const.iter().chain([&self.descriptor]).all(|&at| at < self.const_bytes)
            && [self.pool_holder, self.pool_len, self.pool_file].iter().all(|&at| at < self.pool_bytes)
            && self.symbol_len + 2 <= self.symbol_text
    }

    /// The method at `method`, after the kernel was asked for all that is read; `None` if it is none. One that agents have
    /// replaced since it was called has the pool of before, which its class does not lead to: it counts if a frame of it is
    /// there (`is_live`).
    pub fn read(&self, method: u64, is_live: bool) -> Option<LiveMethod> {
        let mut memory = MethodMemory::<true> { page: 0 };
        // SAFETY: the memory is careful.
        unsafe {
            let entry = memory.word(method.checked_add(self.method_entry)?)?;
            if !(self.interpreter.0..self.interpreter.1).contains(&entry) {
                return None;
            }
            let found = self.read_by(&mut memory, method)?;
            let const_method = memory.word(method + self.method_const)?;
            let pool = memory.word(const_method + self.const_pool)?;
            let holder = memory.word(pool + self.pool_holder)?;
            let pool_of_class = memory.word(holder.checked_add(self.holder_pool)?)?;
            let leads_back = pool_of_class == pool
                || is_live && memory.word(pool_of_class.checked_add(self.pool_holder)?)? == holder;
            let is_whole = leads_back
                && found.descriptor.first() == Some(&b'(')
                && ![found.class, found.name].iter().any(|text| text.is_empty() || text.contains(&0));
            is_whole.then_some(found)
        }
    }

    /// The same of a method that is known to be there.
    ///
    /// # Safety
    /// A live method must be at `method`; the slices must not be used when it may have ended.
    #[inline]
    pub unsafe fn read_live(&self, method: u64) -> Option<LiveMethod> {
        // SAFETY: the method is live, and with it all that it leads to: the contract of `read_live`.
        unsafe { self.read_by(&mut MethodMemory::<false> { page: 0 }, method) }
    }

    #[inline(always)]
    unsafe fn read_by<const CAREFUL: bool>(
        &self,
        memory: &mut MethodMemory<CAREFUL>,
        method: u64,
    ) -> Option<LiveMethod> {
        // SAFETY: the memory is careful, or all of these are live objects: both callers say so. `word` has checked each
        // address that an offset is added to, which the layout bounds.
        unsafe {
            let const_method = memory.word(method.checked_add(self.method_const)?)?;
            let pool = memory.word(const_method.checked_add(self.const_pool)?)?;
            let code_bytes = memory.short(const_method + self.code_bytes)?;
            let bytes = u64::from(memory.int(const_method + self.const_words)?) * 8;
            let flags = const_method + self.const_flags;
            let flags = if self.are_flags_short { memory.short(flags)? } else { memory.int(flags)? };
            let behind = bytes.checked_sub(self.const_bytes + u64::from(code_bytes))?;
            let code = const_method + self.const_bytes;
            let holder = memory.word(pool.checked_add(self.pool_holder)?)?;
            let class = memory.word(holder.checked_add(self.holder_name)?)?;
            let name = memory.short(const_method + self.name)?;
            let descriptor = memory.short(const_method + self.descriptor)?;
            let file = memory.short(pool + self.pool_file)?;
            Some(LiveMethod {
                class: self.text(memory, class)?,
                name: self.text_at(memory, pool, name)?,
                descriptor: self.text_at(memory, pool, descriptor)?,
                file: if file == 0 { &[] } else { self.text_at(memory, pool, file)? },
                code,
                code_bytes,
                behind_code: if flags & LINES_FLAG == 0 {
                    &[]
                } else {
                    memory.bytes(code + u64::from(code_bytes), (behind as usize).min(MOST_LINES))?
                },
            })
        }
    }

    /// # Safety
    /// As for [`read_by`](Self::read_by).
    #[inline(always)]
    unsafe fn text_at<const CAREFUL: bool>(
        &self,
        memory: &mut MethodMemory<CAREFUL>,
        pool: u64,
        index: u32,
    ) -> Option<&'static [u8]> {
        // SAFETY: an entry of the pool, which leads to a symbol: the contract of `text_at`.
        unsafe {
            if index == 0 || index >= memory.int(pool + self.pool_len)? {
                return None;
            }
            let symbol = memory.word(pool + self.pool_bytes + u64::from(index) * 8)?;
            self.text(memory, symbol)
        }
    }

    /// # Safety
    /// As for [`read_by`](Self::read_by).
    #[inline(always)]
    unsafe fn text<const CAREFUL: bool>(
        &self,
        memory: &mut MethodMemory<CAREFUL>,
        symbol: u64,
    ) -> Option<&'static [u8]> {
        // SAFETY: a symbol of a live method: the contract of `text`.
        unsafe {
            if !symbol.is_multiple_of(8) {
                return None;
            }
            let len = memory.short(symbol.checked_add(self.symbol_len)?)? as usize;
            if len > MOST_TEXT { None } else { memory.bytes(symbol + self.symbol_text, len) }
        }
    }

    /// The table of lines of a method with its end; empty if it has none.
    pub fn lines_of(&self, method: &LiveMethod) -> Option<&'static [u8]> {
        if method.behind_code.is_empty() {
            return Some(&[]);
        }
        method.behind_code.get(..LineTable::new(method.behind_code, self.version).byte_count()?)
    }
}
