//! Memory of the unwinder: whole pages straight from the kernel, never from an allocator.

use core::ptr::NonNull;

use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

use crate::shared::own;

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
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            mmap_anonymous(core::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let base = NonNull::<T>::new(base.ok()?.cast())?;
        own::note(base.addr().get(), bytes);
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
        let base = unsafe { mremap(self.base.as_ptr().cast(), self.bytes, bytes, MremapFlags::MAYMOVE) };
        let base = NonNull::<T>::new(base.ok()?.cast())?;
        own::forget(self.base.addr().get(), self.bytes);
        own::note(base.addr().get(), bytes);
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
        // SAFETY: the range is this array's own mapping. A failed unmap leaves memory behind, no more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        own::forget(self.base.addr().get(), self.bytes);
        own::stacks_changed(self.bytes, 0);
    }
}

/// Bytes that an array of `count` elements occupies; `None` if that overflows.
pub fn bytes_of<T>(count: usize) -> Option<usize> {
    count.checked_mul(size_of::<T>())?.max(1).checked_next_multiple_of(PAGE)
}

/// While this lives, no signal handler runs on this thread, so none can jump out of a change of what an array is.
pub struct SignalsBlocked {
    before: u64,
}

impl SignalsBlocked {
    /// Blocks all signals.
    pub fn new() -> SignalsBlocked {
        let (all, mut before) = (u64::MAX, 0);
        set_mask(&raw const all, &raw mut before);
        SignalsBlocked { before }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        set_mask(&raw const self.before, core::ptr::null_mut());
    }
}

/// `rt_sigprocmask(SIG_SETMASK, new, old, 8)`, past libc, which would not block its own signals.
fn set_mask(new: *const u64, old: *mut u64) {
    const SETMASK: usize = 2;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both sets have eight bytes, `old` may be null; the kernel changes rax, rcx and r11 only.
    unsafe {
        core::arch::asm!(
            "syscall",
            inout("rax") 14usize => _,
            in("rdi") SETMASK,
            in("rsi") new,
            in("rdx") old,
            in("r10") 8usize,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: both sets have eight bytes, `old` may be null.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") 135usize,
            inout("x0") SETMASK => _,
            in("x1") new,
            in("x2") old,
            in("x3") 8usize,
            options(nostack),
        );
    }
}
