//! Memory of the unwinder: a block that each thread begins with, then whole pages straight from the kernel; never from an
//! allocator.

use core::ptr::{self, NonNull};

use tracehound_shared::own;
use tracehound_shared::sync::atomic::{Ordering, compiler_fence};
use tracehound_shared::sys;

const PAGE: usize = 4096;

/// A zeroed array, in whole pages of its own or in a thread's block. The caller keeps indices and pointers in bounds.
///
/// A signal handler of the program may leave by `siglongjmp` between any two instructions. So an array is only ever changed
/// by [`replace`](Self::replace): after each of its stores the array has `bytes` bytes at `base`. Assign to one that is in
/// use by no other way, and keep it in no `Option`: the fields of these are stored in any order.
pub struct Array<T> {
    /// Null: there is no memory yet.
    base: *mut T,
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
    /// No elements, and no memory.
    pub const EMPTY: Array<T> = Array { base: ptr::null_mut(), bytes: 0, in_block: true };

    /// Room for `count` elements or a few more; `None` when the kernel has no memory.
    pub fn new(count: usize) -> Option<Array<T>> {
        let bytes = bytes_of::<T>(count)?;
        let base = NonNull::<T>::new(sys::map_memory(bytes).ok()?.cast())?;
        own::stacks_changed(0, bytes);
        Some(Array { base: base.as_ptr(), bytes, in_block: false })
    }

    /// Room for `count` elements in `block`, or as [`new`](Self::new) where the block is used up.
    pub fn first(block: &mut MemoryBlock, count: usize) -> Option<Array<T>> {
        let bytes = bytes_in_block::<T>(count);
        let Some(base) = NonNull::<T>::new(block.at.cast()).filter(|_| bytes <= block.left) else {
            return Array::new(count);
        };
        block.at = block.at.wrapping_add(bytes);
        block.left -= bytes;
        Some(Array { base: base.as_ptr(), bytes: count * size_of::<T>(), in_block: true })
    }

    /// The array of `count` elements that [`new`](Self::new) put at `base`.
    ///
    /// # Safety
    /// There must be no other owner.
    pub unsafe fn from_raw(base: NonNull<T>, count: usize) -> Array<T> {
        Array { base: base.as_ptr(), bytes: bytes_of::<T>(count).unwrap_or(0), in_block: false }
    }

    /// Puts `new` in the place of this array, and returns what was there. A jump out of a signal handler may end it after
    /// any store: the old or the new memory is lost then, and the array has never more bytes than the memory at `base`.
    #[must_use]
    pub fn replace(&mut self, new: Array<T>) -> Array<T> {
        let old = Array { base: self.base, bytes: self.bytes, in_block: self.in_block };
        self.bytes = old.bytes.min(new.bytes);
        compiler_fence(Ordering::SeqCst);
        self.base = new.base;
        compiler_fence(Ordering::SeqCst);
        // After the base: what is in a block is never unmapped.
        self.in_block = new.in_block;
        compiler_fence(Ordering::SeqCst);
        self.bytes = new.bytes;
        compiler_fence(Ordering::SeqCst);
        old
    }

    /// Grows to `count` elements, old ones kept, new ones zeroed; the array moves. On failure nothing has changed.
    ///
    /// # Safety
    /// No pointer into the array may be used afterwards without being rebased.
    pub unsafe fn grow(&mut self, count: usize) -> Option<()> {
        // Not by mremap: between that call and the store of the new address, the array would be where nothing is mapped.
        let larger = Array::<T>::new(count.max(self.len()))?;
        // SAFETY: both hold so many elements; the new array is another one.
        unsafe { larger.as_ptr().copy_from_nonoverlapping(self.as_ptr(), self.len()) };
        let mut old = self.replace(larger);
        // SAFETY: this array has other memory now, and no pointer into the old one is used: the contract of `grow`.
        unsafe { old.release() };
        Some(())
    }

    /// Whether there is no memory yet.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.base.is_null()
    }

    /// The first `count` elements.
    ///
    /// # Safety
    /// `count` must be at most [`len`](Self::len), and these elements must have been written, or be valid as zeros.
    #[inline]
    pub unsafe fn elements(&self, count: usize) -> &[T] {
        if self.is_empty() {
            return &[];
        }
        // SAFETY: there is memory for so many elements, which are valid: the contract of `elements`.
        unsafe { core::slice::from_raw_parts(self.base, count) }
    }

    /// Elements there is room for.
    pub fn len(&self) -> usize {
        self.bytes / size_of::<T>()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address of the first element; null where there is no memory.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut T {
        self.base
    }

    /// Gives the memory back to the kernel. The array is empty afterwards.
    ///
    /// # Safety
    /// Its elements must not be used afterwards.
    pub unsafe fn release(&mut self) {
        let old = self.replace(Array::EMPTY);
        if old.in_block || old.is_empty() {
            // The block is unmapped as a whole, with the unwinder.
            return;
        }
        // SAFETY: the range was this array's own mapping, and nobody knows it any more.
        unsafe { sys::unmap(old.base.cast(), old.bytes) };
        own::stacks_changed(old.bytes, 0);
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
impl<T> Array<T> {
    /// Whether all of it can be read.
    pub fn is_there(&self) -> bool {
        let (first, end) = (self.base as u64 & !7, self.base as u64 + self.bytes as u64);
        (first..end).step_by(PAGE).all(sys::is_readable)
    }
}

/// Bytes that an array of `count` elements occupies; `None` if that overflows.
pub fn bytes_of<T>(count: usize) -> Option<usize> {
    count.checked_mul(size_of::<T>())?.max(1).checked_next_multiple_of(PAGE)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::stepping::after_each_instruction;

    /// Grows an array of this many elements to as many as fill 64 pages.
    fn grow_in_steps(mut array: Array<u64>, count: usize) {
        let watched = &raw mut array;
        for index in 0..count {
            // SAFETY: below the length.
            unsafe { array.as_ptr().add(index).write(index as u64) };
        }
        // SAFETY: reads what the interrupted code has stored, as the next event does after a jump.
        let is_there = || unsafe { (*watched).is_there() && (*watched).len() >= count };
        // SAFETY: the only use of the array, beside `is_there`.
        let found = after_each_instruction(is_there, || unsafe { (*watched).grow(64 * 512).unwrap() });
        assert_eq!(found.failing, None, "of {} instructions", found.instructions);
        assert!(found.instructions > 100, "{}", found.instructions);
        assert_eq!(array.len(), 64 * 512);
        // SAFETY: so many elements were written, the rest is zero.
        let elements = unsafe { array.elements(array.len()) };
        assert!(elements.iter().enumerate().all(|(at, &found)| found == if at < count { at as u64 } else { 0 }));
        // SAFETY: not used afterwards.
        unsafe { array.release() };
        assert_eq!((array.is_empty(), array.bytes()), (true, 0));
    }

    #[test]
    fn an_array_that_grows_is_whole_between_any_two_instructions() {
        grow_in_steps(Array::EMPTY, 0);
        // Memory above it, so that it has no room where it is.
        let above = sys::map_memory(PAGE).unwrap();
        grow_in_steps(Array::new(512).unwrap(), 512);
        // SAFETY: nobody uses it.
        unsafe { sys::unmap(above, PAGE) };
        let mut memory = Box::new([0_u64; 1024]);
        // SAFETY: so many bytes are there, longer than the array.
        let mut block = unsafe { MemoryBlock::new(memory.as_mut_ptr().cast(), 8192) };
        grow_in_steps(Array::first(&mut block, 512).unwrap(), 512);
    }
}
