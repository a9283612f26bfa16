//! Reads CPython's objects. As long as their addresses are not verified, it asks the kernel first whether they can be
//! read.

use crate::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// Number of first backtraces that are read only after asking for each page whether it is there.
const CAREFUL: u32 = 64;

static PROVED: AtomicU32 = AtomicU32::new(0);
static FAILED: AtomicU32 = AtomicU32::new(0);

/// See the module's text. What is read, as its functions want it, is *a field of an object*: of one of CPython's, by the
/// layout of its version, on a thread that keeps the object. As long as it [is careful](Self::is_careful), it may be
/// anything: what cannot be read is not.
pub struct ObjectMemory {
    careful: bool,
    page: u64,
}

impl ObjectMemory {
    /// For one backtrace.
    pub fn for_backtrace() -> ObjectMemory {
        ObjectMemory { careful: PROVED.load(Ordering::Relaxed) < CAREFUL, page: 0 }
    }

    /// Whether the kernel is asked for every page.
    pub fn is_careful(&self) -> bool {
        self.careful
    }

    /// Counts a backtrace that was read as expected.
    pub fn proved(&self) {
        if self.careful {
            PROVED.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a backtrace that was not as expected. True if none was so far: the interpreter's layout is then another
    /// than its version's.
    pub fn failed() -> bool {
        PROVED.load(Ordering::Relaxed) == 0 && FAILED.fetch_add(1, Ordering::Relaxed) >= CAREFUL
    }

    /// The word at `address`; `None` where there can be none.
    ///
    /// # Safety
    /// A field of an object must be there.
    #[inline]
    pub unsafe fn word(&mut self, address: u64) -> Option<u64> {
        if address < 4096 || !address.is_multiple_of(8) || !self.is_there(address) {
            return None;
        }
        // SAFETY: aligned; the kernel was asked for the page, or a field of an object is there: the contract of `word`.
        Some(unsafe { (address as *const u64).read_volatile() })
    }

    /// The four bytes at `address`.
    ///
    /// # Safety
    /// A field of an object must be there.
    #[inline]
    pub unsafe fn half_word(&mut self, address: u64) -> Option<u32> {
        // SAFETY: objects of CPython's consist of whole words, so this one is of the same object: the contract of
        // `half_word`.
        let word = unsafe { self.word(address & !7) }?;
        Some((word >> ((address & 4) * 8)) as u32)
    }

    /// The byte at `address`.
    ///
    /// # Safety
    /// A field of an object must be there.
    #[inline]
    pub unsafe fn byte(&mut self, address: u64) -> Option<u8> {
        // SAFETY: objects of CPython's consist of whole words, so this one is of the same object: the contract of `byte`.
        let word = unsafe { self.word(address & !7) }?;
        Some((word >> ((address & 7) * 8)) as u8)
    }

    /// `len` bytes at `address`, an object's own.
    ///
    /// # Safety
    /// They must be fields of one object, and the slice must not be used when the object may have been freed.
    pub unsafe fn bytes(&mut self, address: u64, len: usize) -> Option<&'static [u8]> {
        let end = address.checked_add(len as u64)?;
        let mut pages = (address & !4095..end).step_by(4096);
        if address < 4096 || !pages.all(|page| self.is_there(page.max(address & !7))) {
            return None;
        }
        // SAFETY: the kernel was asked for these pages, or the bytes are an object's; the slice is used no longer than that:
        // the contract of `bytes`.
        Some(unsafe { core::slice::from_raw_parts(address as *const u8, len) })
    }

    #[inline]
    fn is_there(&mut self, address: u64) -> bool {
        if !self.careful || address >> 12 == self.page {
            return true;
        }
        let there = sys::is_readable(address);
        if there {
            self.page = address >> 12;
        }
        there
    }
}
