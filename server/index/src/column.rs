//! Columns on disk that are written front to back, and read through a mapping.
//!
//! ```text
//! Writer<T>          owns the file, appends or overwrites by index             → Column<T>   a mapped prefix, &[T]
//! ledger::Ledger<T>  owns the file, shared mapping, values stored at any time  → LedgerView  a mapped prefix, relaxed loads
//! ```
//! The files lie in the index folder, which belongs to the user and which nobody but this program writes (0700).

use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};

use super::arrow_file::{self, BODY};

mod sealed {
    pub trait Sealed {}
}

/// A plain number that may be read from any bytes.
pub trait Value: sealed::Sealed + Copy + Default + Send + Sync + 'static {}

macro_rules! values {
    ($($t:ty),*) => {$(
        impl sealed::Sealed for $t {}
        impl Value for $t {}
    )*};
}
values!(u8, u16, u32, u64);

fn bytes_of<T: Value>(values: &[T]) -> &[u8] {
    // SAFETY: T is one of the primitive integers above (sealed), which have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// A column that is written once, front to back; the part that no snapshot has seen yet may be written again.
#[derive(Debug)]
pub struct ColumnWriter<T> {
    file: File,
    path: PathBuf,
    len: u64,
    kind: PhantomData<T>,
}

impl<T: Value> ColumnWriter<T> {
    /// Creates the file; one that was there before is unlinked, so that mappings of it stay valid.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = create_private(path)?;
        file.set_len(BODY as u64)?;
        Ok(Self { file, path: path.to_path_buf(), len: 0, kind: PhantomData })
    }

    /// Opens a file that an earlier run left, keeping `len` values.
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
        Ok(Self { file, path: path.to_path_buf(), len, kind: PhantomData })
    }

    /// Values in the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `values`.
    ///
    /// # Errors
    /// When the disk refuses them.
    pub fn append(&mut self, values: &[T]) -> io::Result<()> {
        self.write_at(self.len, values)
    }

    /// Puts `values` at `index`, which lies inside the column or at its end.
    ///
    /// # Errors
    /// When the disk refuses them.
    pub fn write_at(&mut self, index: u64, values: &[T]) -> io::Result<()> {
        self.file.write_all_at(bytes_of(values), BODY as u64 + index * size_of::<T>() as u64)?;
        self.len = self.len.max(index + values.len() as u64);
        Ok(())
    }

    /// Values that were written.
    ///
    /// # Errors
    /// When they lie outside the column or cannot be read.
    pub fn read_at(&self, index: u64, values: &mut [T]) -> io::Result<()> {
        if index + values.len() as u64 > self.len {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "outside the column"));
        }
        let len = size_of_val(values);
        // SAFETY: T is a primitive integer (sealed): any bytes are a value, and the slice is `len` bytes long.
        let bytes = unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), len) };
        self.file.read_exact_at(bytes, BODY as u64 + index * size_of::<T>() as u64)
    }

    /// Frames the file, so that any Arrow tool reads it. It can still be reopened.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(&mut self) -> io::Result<()> {
        finish(&self.file, &self.path, self.len, size_of::<T>())
    }

    /// Maps the first `len` values, which are not written any more.
    ///
    /// # Errors
    /// When the mapping fails.
    pub fn view(&self, len: u64) -> io::Result<Column<T>> {
        Column::map(&self.file, len)
    }
}

pub(super) fn create_private(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

pub(super) fn finish(file: &File, path: &Path, len: u64, width: usize) -> io::Result<()> {
    let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let frame = arrow_file::frame(&name, len, width);
    let end = BODY as u64 + len * width as u64;
    file.set_len(end)?;
    file.write_all_at(&frame.back, end)?;
    file.write_all_at(&frame.front, 0)
}

/// Takes room on the disk. A file system that cannot do so ahead of time takes it as it comes.
///
/// # Errors
/// When the disk is full.
pub fn allocate(file: &File, from: u64, len: u64) -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), from, len) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Values of a column that do not change any more.
#[derive(Debug)]
pub struct Column<T> {
    map: Option<Mmap>,
    len: usize,
    kind: PhantomData<T>,
}

impl<T: Value> Column<T> {
    /// Opens a finished column of `len` values.
    ///
    /// # Errors
    /// When it cannot be opened or is shorter than that.
    pub fn open(path: &Path, len: u64) -> io::Result<Self> {
        Self::map(&File::open(path)?, len)
    }

    pub(super) fn map(file: &File, len: u64) -> io::Result<Self> {
        let bytes = usize::try_from(len).ok().and_then(|len| len.checked_mul(size_of::<T>()));
        let Some(bytes) = bytes.filter(|&b| file.metadata().is_ok_and(|m| m.len() >= (b + BODY) as u64)) else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a column of the index is cut off"));
        };
        if bytes == 0 {
            return Ok(Self { map: None, len: 0, kind: PhantomData });
        }
        // SAFETY: the file lies in our private index folder; its first `len` values are only ever written before they
        // are mapped, and a rebuild unlinks files instead of cutting them.
        let map = unsafe { MmapOptions::new().offset(BODY as u64).len(bytes).map(file)? };
        Ok(Self { map: Some(map), len: len as usize, kind: PhantomData })
    }

    /// The mapping, and the number of values.
    pub(super) fn into_parts(self) -> (Option<Mmap>, usize) {
        (self.map, self.len)
    }
}

impl<T: Value> std::ops::Deref for Column<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.map {
            // SAFETY: the mapping is page-aligned (BODY is a page), holds `len` values by construction, every bit
            // pattern is a value (sealed), and nobody writes them while they are mapped.
            Some(map) => unsafe { std::slice::from_raw_parts(map.as_ptr().cast(), self.len) },
            None => &[],
        }
    }
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self { map: None, len: 0, kind: PhantomData }
    }
}
