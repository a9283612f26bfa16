//! Memory of the unwinder: a block that each thread begins with, then whole pages straight from the kernel; never from an
//! allocator.

use core::ptr::NonNull;

use tracehound_shared::own;
use tracehound_shared::sys;

const PAGE: usize = 4096;

/// A zeroed array, in whole pages of its own or in a thread's block. The caller keeps indices and pointers in bounds.
pub struct Array<T> {
    base: NonNull<T>,
    bytes: usize,
    in_block: bool,
}

/// The block that a thread's arrays begin in: one mapping instead of one for each, and pages that they share. An array that
/// outgrows it moves out.
pub struct MemoryBlock {
    at: *mut u8,
    left: usize,
}

impl MemoryBlock {
    /// A block of zeroed memory.
    ///
    /// # Safety
    /// `base` must be aligned to 64 bytes and nobody else's for `bytes`, as long as arrays in it are used.
    pub unsafe fn new(base: *mut u8, bytes: usize) -> MemoryBlock {
        MemoryBlock { at: base, left: bytes }
    }

    /// No block: every array has pages of its own.
    #[cfg(test)]
    pub fn none() -> MemoryBlock {
        MemoryBlock { at: core::ptr::null_mut(), left: 0 }
    }
}

/// Bytes that an array of `count` elements takes in a block.
pub const fn bytes_in_block<T>(count: usize) -> usize {
    (count * size_of::<T>()).next_multiple_of(64)
}

impl<T> Array<T> {
    /// Room for `count` elements or a few more; `None` when the kernel has no memory.
    pub fn new(count: usize) -> Option<Array<T>> {
        let bytes = bytes_of::<T>(count)?;
        let base = NonNull::<T>::new(sys::map_memory(bytes).ok()?.cast())?;
        own::stacks_changed(0, bytes);
        Some(Array { base, bytes, in_block: false })
    }

    /// Room for `count` elements in `block`, or as [`new`](Self::new) where the block is used up.
    pub fn first(block: &mut MemoryBlock, count: usize) -> Option<Array<T>> {
        let bytes = bytes_in_block::<T>(count);
        let Some(base) = NonNull::<T>::new(block.at.cast()).filter(|_| bytes <= block.left) else {
            return Array::new(count);
        };
        block.at = block.at.wrapping_add(bytes);
        block.left -= bytes;
        Some(Array { base, bytes: count * size_of::<T>(), in_block: true })
    }

    /// The array of `count` elements that [`new`](Self::new) put at `base`.
    ///
    /// # Safety
    /// There must be no other owner.
    pub unsafe fn from_raw(base: NonNull<T>, count: usize) -> Array<T> {
        Array { base, bytes: bytes_of::<T>(count).unwrap_or(0), in_block: false }
    }

    /// Grows to `count` elements, old ones kept, new ones zeroed; the array may move. On failure nothing
    /// has changed.
    ///
    /// # Safety
    /// No pointer into the array may be used afterwards without being rebased.
    pub unsafe fn grow(&mut self, count: usize) -> Option<()> {
        if self.in_block {
            let larger = Array::<T>::new(count.max(self.len()))?;
            // SAFETY: both hold so many elements; the new array is another one.
            unsafe { larger.as_ptr().copy_from_nonoverlapping(self.as_ptr(), self.len()) };
            *self = larger;
            return Some(());
        }
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
        if self.in_block {
            // The block is unmapped as a whole, with the unwinder.
            return;
        }
        // SAFETY: the range is this array's own mapping.
        unsafe { sys::unmap(self.base.as_ptr().cast(), self.bytes) };
        own::stacks_changed(self.bytes, 0);
    }
}

/// Bytes that an array of `count` elements occupies; `None` if that overflows.
pub fn bytes_of<T>(count: usize) -> Option<usize> {
    count.checked_mul(size_of::<T>())?.max(1).checked_next_multiple_of(PAGE)
}
