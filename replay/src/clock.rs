//! The recorded time in place of the real one, because allocators give memory back after some time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Recorded time, nanoseconds.
static NOW: AtomicU64 = AtomicU64::new(0);
/// Somebody has asked for it.
static ASKED: AtomicBool = AtomicBool::new(false);
/// What a clock that counts from the start of the machine shows at time 0.
const UPTIME_NS: u64 = 1_000_000_000_000;

/// It is so late now.
pub fn set(now: u64) {
    NOW.store(now, Ordering::Relaxed);
}

/// Whether the time was asked for: what an allocator does may depend on it.
pub fn was_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// The recorded time, or that of a program that works faster: what is at most [`BUSY_NS`] between two calls is work and takes
/// `1 / pace` of the time, longer pauses stay as long as they were.
#[derive(Debug)]
pub struct ReplayClock {
    pace: u64,
    recorded: u64,
    now: u64,
}

const BUSY_NS: u64 = 10_000_000;

impl ReplayClock {
    /// At the start.
    pub const fn new(pace: u64) -> Self {
        Self { pace, recorded: 0, now: 0 }
    }

    /// When an event happens, given when it was recorded; events come in their order.
    pub fn at(&mut self, recorded: u64) -> u64 {
        let passed = recorded.saturating_sub(self.recorded);
        self.recorded = self.recorded.max(recorded);
        self.now += if passed <= BUSY_NS { passed.checked_div(self.pace).unwrap_or(passed) } else { passed };
        self.now
    }
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
        ASKED.store(true, Ordering::Relaxed);
        let now = UPTIME_NS + NOW.load(Ordering::Relaxed);
        time.tv_sec = (now / 1_000_000_000).cast_signed();
        time.tv_nsec = (now % 1_000_000_000).cast_signed();
        return 0;
    }
    // SAFETY: as the caller promises.
    (unsafe { libc::syscall(libc::SYS_clock_gettime, clock, core::ptr::from_mut(time)) }) as libc::c_int
}
