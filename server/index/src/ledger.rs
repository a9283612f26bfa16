//! Columns that are filled in later: a shared mapping whose values are stored at any time, and its reading side.

use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use memmap2::{Mmap, MmapMut, MmapOptions};

use super::arrow_file::BODY;
use super::column::{Column, Value, allocate, create_private, finish};

/// A number type that has an atomic type of the same layout.
pub trait LedgerCell: Value {
    /// The twin.
    type Atomic: Sync;
    /// Relaxed store.
    fn store(cell: &Self::Atomic, value: Self);
    /// Relaxed load.
    fn load(cell: &Self::Atomic) -> Self;
}

macro_rules! cells {
    ($($t:ty => $atomic:ty),*) => {$(
        impl LedgerCell for $t {
            type Atomic = $atomic;
            #[inline]
            fn store(cell: &$atomic, value: Self) { cell.store(value, Ordering::Relaxed); }
            #[inline]
            fn load(cell: &$atomic) -> Self { cell.load(Ordering::Relaxed) }
        }
    )*};
}
cells!(u8 => AtomicU8, u32 => AtomicU32, u64 => AtomicU64);

/// Fetches what a reference points to into the cache.
#[inline]
pub fn fetch<T>(target: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect on memory, and the address is that of a live reference.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::from_ref(target).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = target;
}

/// A column whose values are zero until they are stored, in any order.
#[derive(Debug)]
pub struct Ledger<T> {
    file: File,
    path: PathBuf,
    map: MmapMut,
    capacity: u64,
    /// Values that have room on the disk: a store into a hole of a full disk would end the process.
    backed: u64,
    kind: PhantomData<T>,
}

/// Values by which a ledger grows.
const STEP: u64 = 16 << 20;

impl<T: LedgerCell> Ledger<T> {
    /// Creates the file.
    ///
    /// # Errors
    /// When the file cannot be created or mapped.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::with(create_private(path)?, path, STEP)
    }

    /// Opens a file that an earlier run left, which has room for `len` values.
    ///
    /// # Errors
    /// When it cannot be opened or is shorter than that.
    pub fn reopen(path: &Path, len: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = BODY as u64 + len * size_of::<T>() as u64;
        if file.metadata()?.len() < bytes {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a column of the index is cut off"));
        }
        file.set_len(bytes)?;
        file.write_all_at(&[0; BODY], 0)?;
        Self::with(file, path, len.next_multiple_of(STEP) + STEP)
    }

    fn with(file: File, path: &Path, capacity: u64) -> io::Result<Self> {
        let map = Self::map(&file, capacity)?;
        Ok(Self { file, path: path.to_path_buf(), map, capacity, backed: 0, kind: PhantomData })
    }

    fn map(file: &File, capacity: u64) -> io::Result<MmapMut> {
        let bytes = capacity * size_of::<T>() as u64;
        file.set_len(BODY as u64 + bytes)?;
        // SAFETY: the file is ours and only grows while it is mapped; all accesses go through atomics.
        unsafe { MmapOptions::new().offset(BODY as u64).len(bytes as usize).map_mut(file) }
    }

    /// Makes room for `len` values.
    ///
    /// # Errors
    /// When the disk or the address space refuses.
    #[inline]
    pub fn reserve(&mut self, len: u64) -> io::Result<()> {
        if len > self.backed { self.back(len) } else { Ok(()) }
    }

    /// Leaves a hole of `len` values without disk space: for tests that do not read it.
    ///
    /// # Errors
    /// When the disk or the address space refuses.
    pub fn begin_at(&mut self, len: u64) -> io::Result<()> {
        self.widen(len)?;
        self.backed = len;
        Ok(())
    }

    /// Makes room for the values `from..to` alone.
    ///
    /// # Errors
    /// When the disk or the address space refuses.
    pub(super) fn reserve_among(&mut self, from: u64, to: u64) -> io::Result<()> {
        self.widen(to)?;
        let width = size_of::<T>() as u64;
        allocate(&self.file, BODY as u64 + from * width, (to - from) * width)
    }

    /// Values that there is a file for.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    fn widen(&mut self, len: u64) -> io::Result<()> {
        if len > self.capacity {
            // An eighth more each time: few mappings, and the file stays sparse.
            let capacity = (len + len / 8).next_multiple_of(STEP);
            self.map = Self::map(&self.file, capacity)?;
            self.capacity = capacity;
        }
        Ok(())
    }

    #[cold]
    fn back(&mut self, len: u64) -> io::Result<()> {
        self.widen(len)?;
        let backed = (len + len / 8 + (64 << 10)).min(self.capacity);
        let (from, to) = (self.backed * size_of::<T>() as u64, backed * size_of::<T>() as u64);
        allocate(&self.file, BODY as u64 + from, to - from)?;
        self.backed = backed;
        Ok(())
    }

    fn cells(&self) -> &[T::Atomic] {
        // SAFETY: the mapping is page-aligned and holds `capacity` values; atomics have the layout of their integers,
        // and every other access to these bytes is atomic, too.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.capacity as usize) }
    }

    /// Stores a value; out of reach of [`Self::reserve`] nothing happens.
    #[inline]
    pub fn store(&self, index: u64, value: T) {
        if let Some(cell) = self.cells().get(index as usize) {
            T::store(cell, value);
        }
    }

    /// Fetches the cell at `index` into the cache.
    #[inline]
    pub fn prefetch(&self, index: u64) {
        if let Some(cell) = self.cells().get(index as usize) {
            fetch(cell);
        }
    }

    /// The value at `index`; zero out of reach.
    #[inline]
    #[must_use]
    pub fn load(&self, index: u64) -> T {
        self.cells().get(index as usize).map(T::load).unwrap_or_default()
    }

    /// Frames the file with `len` values and gives the surplus back.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(self, len: u64) -> io::Result<()> {
        let Self { file, path, map, .. } = self;
        drop(map);
        finish(&file, &path, len, size_of::<T>())
    }

    /// Maps the first `len` values for reading.
    ///
    /// # Errors
    /// When the mapping fails.
    pub fn view(&self, len: u64) -> io::Result<LedgerView<T>> {
        LedgerView::map(&self.file, len)
    }
}

/// Values of a [`Ledger`]; while the index grows, ones beyond the snapshot may appear.
#[derive(Debug)]
pub struct LedgerView<T> {
    map: Option<Mmap>,
    len: usize,
    kind: PhantomData<T>,
}

impl<T: LedgerCell> LedgerView<T> {
    /// Opens a finished ledger of `len` values.
    ///
    /// # Errors
    /// When it cannot be opened or is shorter than that.
    pub fn open(path: &Path, len: u64) -> io::Result<Self> {
        Self::map(&File::open(path)?, len)
    }

    fn map(file: &File, len: u64) -> io::Result<Self> {
        let (map, len) = Column::<T>::map(file, len)?.into_parts();
        Ok(Self { map, len, kind: PhantomData })
    }

    /// All values, to be loaded one by one with [`LedgerCell::load`].
    #[inline]
    #[must_use]
    pub fn cells(&self) -> &[T::Atomic] {
        match &self.map {
            // SAFETY: as in `Column::deref`; the writer's accesses are atomic, as these are.
            Some(map) => unsafe { std::slice::from_raw_parts(map.as_ptr().cast(), self.len) },
            None => &[],
        }
    }

    /// The value at `index`; zero out of reach.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> T {
        self.cells().get(index).map(T::load).unwrap_or_default()
    }
}

impl<T> Default for LedgerView<T> {
    fn default() -> Self {
        Self { map: None, len: 0, kind: PhantomData }
    }
}
