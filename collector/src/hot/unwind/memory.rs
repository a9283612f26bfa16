//! Memory of the unwinder: whole pages straight from the kernel, never from an allocator.

use core::ptr::NonNull;

use crate::shared::{own, sys};

const PAGE: usize = 4096;

/// A zeroed array of whole pages. The caller keeps indices and pointers in bounds.
pub struct Array<T> {
    base: NonNull<T>,
    bytes: usize,
}

impl<T> Array<T> {
    /// Room for `count` elements or a few more; `None` when the kernel has no memory.
    pub fn new(count: usize) -> Option<Array<T>> {
        let bytes = bytes_of::<T>(count)?;
        let base = NonNull::<T>::new(sys::map_memory(bytes).ok()?.cast())?;
        own::stacks_changed(0, bytes);
        Some(Array { base, bytes })
    }

    /// The array of `count` elements that [`new`](Self::new) put at `base`.
    ///
    /// # Safety
    /// There must be no other owner.
    pub unsafe fn from_raw(base: NonNull<T>, count: usize) -> Array<T> {
        Array { base, bytes: bytes_of::<T>(count).unwrap_or(0) }
    }

    /// Grows to `count` elements, old ones kept, new ones zeroed; the array may move. On failure nothing
    /// has changed.
    ///
    /// # Safety
    /// No pointer into the array may be used afterwards without being rebased.
    pub unsafe fn grow(&mut self, count: usize) -> Option<()> {
        let bytes = bytes_of::<T>(count)?;
        // SAFETY: the old range is this array's own mapping.
        let base = unsafe { sys::remap(self.base.as_ptr().cast(), self.bytes, bytes) };
        let base = NonNull::<T>::new(base.ok()?.cast())?;
        own::stacks_changed(self.bytes, bytes);
        self.base = base;
        self.bytes = bytes;
        Some(())
    }

    /// Elements there is room for.
    pub fn len(&self) -> usize {
        self.bytes / size_of::<T>()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address of the first element.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut T {
        self.base.as_ptr()
    }

    /// Gives the memory back to the kernel.
    ///
    /// # Safety
    /// Neither the array nor its elements may be used afterwards.
    pub unsafe fn release(&mut self) {
        // SAFETY: the range is this array's own mapping.
        unsafe { sys::unmap(self.base.as_ptr().cast(), self.bytes) };
        own::stacks_changed(self.bytes, 0);
    }
}

/// Bytes that an array of `count` elements occupies; `None` if that overflows.
pub fn bytes_of<T>(count: usize) -> Option<usize> {
    count.checked_mul(size_of::<T>())?.max(1).checked_next_multiple_of(PAGE)
}
