//! Chunks with a mapping of their own. No list contains them: every page at which one may begin is read.
//!
//! ```text
//! page     0 | bytes, bit 2 | the block …
//! ```
//! An aligned block begins later on the first page, or on a later one, with a header of its own that says how far.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::arenas::Arenas;
use super::chunks::{HEADER, MAPPED, SIZE};
use super::reader::WordReader;
use super::{HeapBlocks, HeapSurroundings};
use crate::memory::living_thread;
use crate::objects::ProcessMapping;

const PAGE: u64 = 4096;
/// Pages that are looked at together.
const BATCH: u64 = 1024;
/// Pages that are asked about at all: those of 64 GiB.
const MOST_PAGES: u64 = 16 << 20;

/// Which pages are there.
pub trait ProcessPages {
    /// For `count` pages from the one at `at`: whether there is anything on it.
    fn present(&self, at: u64, count: u64) -> Vec<bool>;
    /// The first two words of pages that are there.
    fn heads(&self, pages: &[u64]) -> Vec<Option<[u64; 2]>>;
}

/// The pages of a process.
#[derive(Debug)]
pub struct PagesOfProcess {
    pid: i32,
    page_map: Option<File>,
}

impl PagesOfProcess {
    /// Of the process with this id.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let thread = living_thread(pid);
        Self { pid: thread as i32, page_map: File::open(format!("/proc/{thread}/pagemap")).ok() }
    }
}

impl ProcessPages for PagesOfProcess {
    fn present(&self, at: u64, count: u64) -> Vec<bool> {
        // In memory, or swapped out.
        const THERE: u64 = 0b11 << 62;
        let mut bytes = vec![0; count as usize * 8];
        let read = self.page_map.as_ref().and_then(|map| map.read_at(&mut bytes, at / PAGE * 8).ok()).unwrap_or(0);
        bytes.truncate(read);
        let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok()).map(u64::from_le_bytes);
        words.map(|word| word & THERE != 0).collect()
    }

    fn heads(&self, pages: &[u64]) -> Vec<Option<[u64; 2]>> {
        let mut heads = vec![[0_u64; 2]; pages.len()];
        let local: Vec<libc::iovec> = heads
            .iter_mut()
            .map(|head| libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: size_of_val(head) })
            .collect();
        let remote: Vec<libc::iovec> =
            pages.iter().map(|&page| libc::iovec { iov_base: page as *mut _, iov_len: 16 }).collect();
        // SAFETY: the local parts are the vector's elements, which live until the call is over; the remote ones are only
        // numbers to the kernel.
        let read = unsafe {
            let (ours, theirs) = (local.as_ptr(), remote.as_ptr());
            libc::process_vm_readv(self.pid, ours, local.len() as u64, theirs, remote.len() as u64, 0)
        };
        let whole = usize::try_from(read).unwrap_or(0) / 16;
        heads.into_iter().enumerate().map(|(number, head)| (number < whole).then_some(head)).collect()
    }
}

/// Adds the blocks with a mapping of their own.
pub(super) fn blocks(
    reader: &mut WordReader<'_>,
    pages: &dyn ProcessPages,
    around: &HeapSurroundings,
    arenas: &Arenas,
    found: &mut HeapBlocks,
) {
    let mut left = MOST_PAGES;
    for mapping in &around.mappings {
        // A thread's stack may lie in one mapping with blocks behind it.
        let anonymous = mapping.file.1 == 0 && mapping.writable && mapping.path.is_empty();
        let regions = || arenas.all.iter().flat_map(|arena| &arena.regions);
        let has_heap = regions().any(|region| region.first < mapping.range.end && mapping.range.start < region.end);
        if !anonymous || has_heap {
            continue;
        }
        of_mapping(reader, pages, mapping, &mut left, found);
    }
    if left == 0 {
        found.gaps.push("there is more memory than is searched for large blocks".into());
    }
}

fn of_mapping(
    reader: &mut WordReader<'_>,
    pages: &dyn ProcessPages,
    mapping: &ProcessMapping,
    left: &mut u64,
    found: &mut HeapBlocks,
) {
    let mut at = mapping.range.start;
    while at < mapping.range.end && *left > 0 && !reader.is_late() {
        let count = ((mapping.range.end - at) / PAGE).min(BATCH).min(*left);
        *left -= count;
        let there = pages.present(at, count);
        let candidates: Vec<u64> =
            (0_u64..).zip(there).filter(|(_, there)| *there).map(|(number, _)| at + number * PAGE).collect();
        let mut next = at + count.max(1) * PAGE;
        let mut until = at;
        for (&page, head) in candidates.iter().zip(pages.heads(&candidates)) {
            let Some([0, size_word]) = head else { continue };
            let size = size_word & SIZE;
            let fits = size_word & !SIZE == MAPPED && size != 0 && size.is_multiple_of(PAGE);
            if page < until || !fits || size > mapping.range.end - page {
                continue;
            }
            let (block, usable) = aligned(reader, page, size);
            found.blocks.push((block, usable));
            until = page + size;
        }
        next = next.max(until);
        at = next;
    }
}

/// The block of a chunk of `size` bytes at `page`: an aligned one is further behind.
fn aligned(reader: &mut WordReader<'_>, page: u64, size: u64) -> (u64, u64) {
    for bits in 5..48 {
        let alignment = 1_u64 << bits;
        let block = (page + HEADER).next_multiple_of(alignment);
        let lead = block - HEADER - page;
        if lead == 0 {
            continue;
        }
        if lead + HEADER >= size {
            break;
        }
        let chunk = page + lead;
        if reader.word(chunk) == Some(lead) && reader.word(chunk + 8) == Some((size - lead) | MAPPED) {
            return (block, size - lead - HEADER);
        }
    }
    (page + HEADER, size - HEADER)
}
