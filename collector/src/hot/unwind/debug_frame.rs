//! Unwind information of objects that have it on disk only: `.debug_frame`, as `-fno-asynchronous-unwind-tables -g`
//! leaves it. Read once for each object that needs it, when a PC turns up that nothing else covers.
//!
//! The section is copied, not mapped: a file that shrinks under a mapping would kill the program. Copies stay until
//! the process ends, at most [`MAX_FILES`] of them; an object that comes back finds its own again.

use core::cmp::Ordering as Order;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::pread;

use super::cfi::bytes::Bytes;
use super::cfi::entry::{Parsed, Section, parse, record};
use super::lookup::Located;
use super::memory::Array;
use super::rule_cache;
use crate::shared::code::{self, Object};

const MAX_FILES: usize = 64;
const MAX_SECTION_BYTES: u64 = 64 << 20;
const MAX_HEADERS: u64 = 4096;

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
    let mut path = [0u8; 1100];
    let name: &[u8] = if module.path().is_empty() { b"/proc/self/exe" } else { module.path() };
    if module.path_was_cut || name.len() >= path.len() {
        return None;
    }
    path.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let low = open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK, Mode::empty()).ok()?;
    // Out of the way of the program's own numbers, where the limit allows.
    let fd = rustix::io::fcntl_dupfd_cloexec(&low, 256).unwrap_or(low);
    let elf = Elf::open(&fd)?;
    if !elf.is_loaded_as(module) {
        return None;
    }
    let (offset, bytes) = elf.section(b".debug_frame\0")?;
    let section = Array::<u8>::new(bytes as usize)?;
    read_exactly(&fd, section.as_ptr(), bytes, offset)?;
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

/// An ELF-64 file, read piece by piece.
struct Elf<'a> {
    fd: &'a OwnedFd,
    header: [u8; 64],
}

impl<'a> Elf<'a> {
    fn open(fd: &'a OwnedFd) -> Option<Elf<'a>> {
        let file = fstat(fd).ok()?;
        if file.st_mode & 0o170_000 != 0o100_000 {
            return None;
        }
        let header = read_array::<64>(fd, 0)?;
        header.starts_with(&[0x7f, b'E', b'L', b'F', 2, 1]).then_some(Elf { fd, header })
    }

    fn u16(&self, at: usize) -> u64 {
        self.header
            .get(at..at + 2)
            .map_or(0, |bytes| bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn u64(&self, at: usize) -> u64 {
        little_endian(&self.header, at)
    }

    /// Whether the file's loadable segments are those of `module`: the path may name another file by now.
    fn is_loaded_as(&self, module: &code::Module) -> bool {
        let (offset, count) = (self.u64(32), self.u16(56));
        if self.u16(54) != 56 || count > MAX_HEADERS {
            return false;
        }
        let mut loaded = module.segments().iter();
        for number in 0..count {
            let Some(header) = read_array::<56>(self.fd, offset + number * 56) else { return false };
            if little_endian(&header, 0) as u32 == 1 {
                let Some(segment) = loaded.next() else { return module.segments().len() == code::MAX_SEGMENTS };
                let same = segment.file_offset == little_endian(&header, 8)
                    && segment.file_address == little_endian(&header, 16)
                    && segment.file_bytes == little_endian(&header, 32)
                    && segment.bytes == little_endian(&header, 40);
                if !same {
                    return false;
                }
            }
        }
        loaded.next().is_none()
    }

    /// Offset and length of the section with this name, terminator included, unless it is compressed.
    fn section(&self, name: &[u8]) -> Option<(u64, u64)> {
        let (headers, count, names) = (self.u64(40), self.u16(60), self.u16(62));
        if self.u16(58) != 64 || count > MAX_HEADERS || names >= count {
            return None;
        }
        let header = |number: u64| read_array::<64>(self.fd, headers.checked_add(number * 64)?);
        let names_at = little_endian(&header(names)?, 24);
        for number in 0..count {
            let section = header(number)?;
            let mut text = [0u8; 16];
            let text = text.get_mut(..name.len())?;
            let name_at = names_at.checked_add(little_endian(&section, 0) & 0xffff_ffff)?;
            if read_exactly(self.fd, text.as_mut_ptr(), text.len() as u64, name_at).is_none() || text != name {
                continue;
            }
            const COMPRESSED: u64 = 0x800;
            let (flags, offset, bytes) =
                (little_endian(&section, 8), little_endian(&section, 24), little_endian(&section, 32));
            return (flags & COMPRESSED == 0 && (1..=MAX_SECTION_BYTES).contains(&bytes)).then_some((offset, bytes));
        }
        None
    }
}

fn little_endian(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn read_array<const N: usize>(fd: &OwnedFd, offset: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    read_exactly(fd, bytes.as_mut_ptr(), N as u64, offset)?;
    Some(bytes)
}

fn read_exactly(fd: &OwnedFd, to: *mut u8, bytes: u64, offset: u64) -> Option<()> {
    let mut done = 0;
    while done < bytes {
        // SAFETY: the caller has room for `bytes` bytes at `to`.
        let rest = unsafe { core::slice::from_raw_parts_mut(to.add(done as usize), (bytes - done) as usize) };
        match pread(fd, rest, offset.checked_add(done)?) {
            Ok(0) => return None,
            Ok(count) => done += count as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(())
}
