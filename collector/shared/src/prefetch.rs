//! Software prefetch of cache lines that will be needed soon.

/// Fetches the line around `address`, which need not be one that can be read.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn fetch<T>(address: *const T) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint to the processor; it never faults and changes nothing but caches.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

/// Fetches the line around `address`, which need not be one that can be read.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn fetch<T>(address: *const T) {
    // SAFETY: a hint to the processor; it never faults and changes nothing but caches.
    unsafe { core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly)) }
}
