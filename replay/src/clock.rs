//! The recorded time in place of the real one, because allocators give memory back after some time.

use std::sync::atomic::{AtomicU64, Ordering};

/// Recorded time, nanoseconds.
static NOW: AtomicU64 = AtomicU64::new(0);
/// What a clock that counts from the start of the machine shows at time 0.
const UPTIME_NS: u64 = 1_000_000_000_000;

/// It is so late now.
pub fn set(now: u64) {
    NOW.store(now, Ordering::Relaxed);
}

/// What allocators call for the time.
///
/// # Safety
/// `time` must be null or valid for a `timespec`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let monotonic = [libc::CLOCK_MONOTONIC, libc::CLOCK_MONOTONIC_COARSE, libc::CLOCK_MONOTONIC_RAW];
    // SAFETY: as the caller promises.
    let Some(time) = (unsafe { time.as_mut() }) else { return -1 };
    if monotonic.contains(&clock) {
        let now = UPTIME_NS + NOW.load(Ordering::Relaxed);
        time.tv_sec = (now / 1_000_000_000).cast_signed();
        time.tv_nsec = (now % 1_000_000_000).cast_signed();
        return 0;
    }
    // SAFETY: as the caller promises.
    (unsafe { libc::syscall(libc::SYS_clock_gettime, clock, core::ptr::from_mut(time)) }) as libc::c_int
}
