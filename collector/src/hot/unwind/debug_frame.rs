//! Unwind information of objects that have it on disk only: `.debug_frame`, as `-fno-asynchronous-unwind-tables -g`
//! leaves it. Read once for each object that needs it, when a PC turns up that nothing else covers.
//!
//! The section is copied, not mapped: a file that shrinks under a mapping would kill the program. Copies stay until
//! the process ends, at most [`MAX_FILES`] of them; an object that comes back finds its own again.

use core::cmp::Ordering as Order;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::cfi::bytes::Bytes;
use super::cfi::entry::{Parsed, Section, parse, record};
use super::lookup::Located;
use super::memory::Array;
use super::rule_cache;
use crate::shared::code::{self, Object};
use crate::shared::elf_file::ElfFile;

const MAX_FILES: usize = 64;
const MAX_SECTION_BYTES: u64 = 64 << 20;

const UNUSED: u32 = 0;
const LOADING: u32 = 1;
const READY: u32 = 2;
const NOTHING: u32 = 3;

/// What one object's file had. All but `state` is written in the state LOADING, by the thread that set it.
struct File {
    state: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
    /// Tells the file's contents from others.
    identity: AtomicU64,
    bias: AtomicU64,
    section: AtomicU64,
    section_bytes: AtomicU64,
    index: AtomicU64,
    index_len: AtomicU64,
}

impl File {
    const fn unused() -> File {
        File {
            state: AtomicU32::new(UNUSED),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            identity: AtomicU64::new(0),
            bias: AtomicU64::new(0),
            section: AtomicU64::new(0),
            section_bytes: AtomicU64::new(0),
            index: AtomicU64::new(0),
            index_len: AtomicU64::new(0),
        }
    }

    fn is_of(&self, object: &Object) -> bool {
        self.start.load(Ordering::Relaxed) == object.start && self.end.load(Ordering::Relaxed) == object.end
    }
}

static FILES: [File; MAX_FILES] = [const { File::unused() }; MAX_FILES];

/// One entry of a section, for bisecting.
#[repr(C)]
#[derive(Clone, Copy)]
struct IndexRow {
    begin: u64,
    length: u32,
    /// Of the entry in the section.
    offset: u32,
}

/// The entry of `object`'s `.debug_frame` that covers `inside`.
#[cold]
pub fn locate(object: &Object, inside: u64) -> Option<Located> {
    let generation = code::generation_of(inside);
    for file in &FILES {
        match file.state.load(Ordering::Acquire) {
            UNUSED => {
                let claim = file.state.compare_exchange(UNUSED, LOADING, Ordering::Acquire, Ordering::Relaxed);
                if claim.is_ok() {
                    return load(file, object, generation, inside);
                }
            }
            state if file.is_of(object) && file.identity.load(Ordering::Relaxed) == u64::from(generation) => {
                return if state == READY { file.locate(inside) } else { None };
            }
            _ => {}
        }
    }
    None
}

fn load(file: &'static File, object: &Object, generation: u32, inside: u64) -> Option<Located> {
    file.start.store(object.start, Ordering::Relaxed);
    file.end.store(object.end, Ordering::Relaxed);
    file.identity.store(u64::from(generation), Ordering::Relaxed);
    let read = read(file, inside);
    file.state.store(if read.is_some() { READY } else { NOTHING }, Ordering::Release);
    if read.is_some() {
        // Threads that came while it was loading have learned that there is nothing.
        code::announce(&(object.start..object.end), &mut rule_cache::forget);
    }
    file.locate(inside)
}

impl File {
    fn locate(&self, inside: u64) -> Option<Located> {
        if self.state.load(Ordering::Acquire) != READY {
            return None;
        }
        let index = self.index.load(Ordering::Relaxed) as *const IndexRow;
        // SAFETY: a READY file's index holds this many rows and is never freed.
        let rows = unsafe { core::slice::from_raw_parts(index, self.index_len.load(Ordering::Relaxed) as usize) };
        let bias = self.bias.load(Ordering::Relaxed);
        let address = inside.wrapping_sub(bias);
        let after = rows.partition_point(|row| row.begin <= address);
        let row = rows.get(after.checked_sub(1)?)?;
        if address - row.begin >= u64::from(row.length) {
            return None;
        }
        let start = self.section.load(Ordering::Relaxed);
        // SAFETY: a READY file's section is readable and is never freed.
        let window = unsafe { Bytes::new(start, start + self.section_bytes.load(Ordering::Relaxed), 0) };
        let section = Section::DebugFrame { start, load_bias: bias };
        match parse(window, start + u64::from(row.offset), section)? {
            Parsed::Entry(entry) => Some(Located { entry, window }),
            _ => None,
        }
    }
}

fn read(file: &File, inside: u64) -> Option<()> {
    let module = code::modules()?.around(inside)?;
    let elf = ElfFile::of_module(module)?;
    let found = elf.section_named(b".debug_frame\0")?;
    let bytes = found.bytes;
    if !(1..=MAX_SECTION_BYTES).contains(&bytes) {
        return None;
    }
    let section = Array::<u8>::new(bytes as usize)?;
    // SAFETY: the array has room for this many bytes, all of them zero so far, and nobody else knows it.
    let room = unsafe { core::slice::from_raw_parts_mut(section.as_ptr(), bytes as usize) };
    elf.read_exactly(room, found.offset)?;
    let start = section.as_ptr() as u64;
    // SAFETY: the copy was just filled with this many bytes.
    let window = unsafe { Bytes::new(start, start + bytes, 0) };
    let (index, len) = index(window)?;
    file.bias.store(module.bias, Ordering::Relaxed);
    file.section.store(start, Ordering::Relaxed);
    file.section_bytes.store(bytes, Ordering::Relaxed);
    file.index.store(index.as_ptr() as u64, Ordering::Relaxed);
    file.index_len.store(len as u64, Ordering::Relaxed);
    Some(())
}

/// The section's entries in the order of their addresses.
fn index(window: Bytes) -> Option<(Array<IndexRow>, usize)> {
    let start = window.position();
    let section = Section::DebugFrame { start, load_bias: 0 };
    let each = |found: &mut dyn FnMut(IndexRow)| {
        let mut cursor = window;
        while !cursor.is_empty() {
            let at = cursor.position();
            if record(&mut cursor).is_none() {
                break;
            }
            if let Some(Parsed::Entry(entry)) = parse(window, at, section)
                && let Ok(length) = u32::try_from(entry.length)
                && let Ok(offset) = u32::try_from(at - start)
            {
                found(IndexRow { begin: entry.begin, length, offset });
            }
        }
    };
    let mut len = 0;
    each(&mut |_| len += 1);
    let rows = Array::<IndexRow>::new(len)?;
    let mut at = 0;
    each(&mut |row| {
        if at < len {
            // SAFETY: `at` is below the array's length.
            unsafe { rows.as_ptr().add(at).write(row) };
            at += 1;
        }
    });
    // SAFETY: `at` rows are initialised, and nobody else knows them.
    unsafe { core::slice::from_raw_parts_mut(rows.as_ptr(), at) }
        .sort_unstable_by(|a, b| if a.begin < b.begin { Order::Less } else { Order::Greater });
    Some((rows, at))
}
