//! Event time: raw ticks whose order at equal addresses is the true order across threads.
//!
//! An allocation is stamped *after* the allocator returned, and a free *before* it is called. Each stamp has two sides:
//!
//! ```text
//! loads before it ──▶ stamp ──▶ stores after it become visible
//! ```
//!
//! The left side: the load that brought the block (out of the allocator, or out of another thread's mailbox) is done
//! before the counter is read, so a stamp is not older than the hand-over that led to it. The right side: the store that
//! hands the block on cannot be seen before the counter was read. Free → alloc needs the left side of the alloc and the
//! right side of the free; alloc → free needs the left side of the free and the right side of the alloc. So every stamp
//! has both. On x86-64 the left side takes `rdtscp`: plain `rdtsc` runs ahead of a load that waits for another CPU's
//! line. The right side is free there: a store leaves the CPU only after all instructions before it have retired.
//!
//! Stamps are equal where a hand-over takes less than a tick; the reader orders these by what they do to the block.
//!
//! While only one thread has recorded anything nobody hands blocks over, and the counter is read without waiting
//! ([`joined`]). A thread calls `joined` before its first event, hence before it can hand a block on: a thread that gets
//! such a block also sees the new number of threads. That needs loads in program order, which aarch64 does not have:
//! stamps are always ordered there.

use core::sync::atomic::AtomicU8;

use crate::sync::atomic::{AtomicU32, Ordering};

#[cfg(target_arch = "x86_64")]
use crate::sys;

/// Ticks are shifted right by this many bits: the counters of today's CPUs step by 16 and more.
#[cfg(target_arch = "x86_64")]
pub const SHIFT: u32 = 4;
/// Ticks are as they are read.
#[cfg(not(target_arch = "x86_64"))]
pub const SHIFT: u32 = 0;

/// Whether a lone recording thread reads the counter without waiting. A thread that gets a block from a second thread must
/// then see that there are two: on x86-64 the load of [`STAMPS`] comes after the load that brought the block, on aarch64
/// it may come before.
const MAY_RUN_AHEAD: bool = cfg!(any(target_arch = "x86_64", loom));

/// Where ticks come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TickSource {
    /// The CPU's counter: invariant, and synchronised between CPUs as the kernel has found out.
    Counter = 0,
    /// `clock_gettime(CLOCK_MONOTONIC)`, in nanoseconds.
    Monotonic = 1,
}

static SOURCE: AtomicU8 = AtomicU8::new(TickSource::Monotonic as u8);

/// [`STAMPS`]: the counter, read after the loads before it are done.
const ORDERED: u32 = 0;
/// [`STAMPS`]: the counter, read without waiting.
const UNORDERED: u32 = 1;
/// [`STAMPS`]: the kernel's clock.
const MONOTONIC: u32 = 2;

/// How events are stamped.
static STAMPS: AtomicU32 = AtomicU32::new(if cfg!(loom) { ORDERED } else { MONOTONIC });
/// Threads that have recorded anything, up to [`SEVERAL`].
static THREADS: AtomicU32 = AtomicU32::new(0);
const SEVERAL: u32 = 2;

/// Chooses the source. Call it before the first stamp of a session.
pub fn init() -> TickSource {
    let source = if has_reliable_counter() { TickSource::Counter } else { TickSource::Monotonic };
    SOURCE.store(source as u8, Ordering::Release);
    let stamps = match source {
        TickSource::Monotonic => MONOTONIC,
        TickSource::Counter if MAY_RUN_AHEAD && THREADS.load(Ordering::Acquire) < SEVERAL => UNORDERED,
        TickSource::Counter => ORDERED,
    };
    STAMPS.store(stamps, Ordering::Release);
    source
}

/// Announces that the calling thread will record events: call it before its first one. A thread may be counted twice.
pub fn joined() {
    // A thread that reads SEVERAL also sees ordered stamps: the store of SEVERAL below comes after the change of STAMPS.
    if THREADS.load(Ordering::Acquire) == SEVERAL {
        return;
    }
    let is_alone = THREADS.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok();
    #[cfg(loom)]
    let is_alone = is_alone || crate::sync::model::is_mutant("joined");
    if !is_alone {
        let _ = STAMPS.compare_exchange(UNORDERED, ORDERED, Ordering::AcqRel, Ordering::Acquire);
        THREADS.store(SEVERAL, Ordering::Release);
    }
}

/// In a forked child: the other threads are not there. Call it before [`init`].
pub fn forget_others() {
    THREADS.store(0, Ordering::Release);
}

/// The source in use.
pub fn source() -> TickSource {
    if SOURCE.load(Ordering::Relaxed) == TickSource::Counter as u8 {
        TickSource::Counter
    } else {
        TickSource::Monotonic
    }
}

/// The time of an allocation: call it directly after the allocator returned.
#[inline(always)]
pub fn now_after_alloc() -> u64 {
    event()
}

/// The time of a free: call it directly before the allocator.
#[inline(always)]
pub fn now_before_free() -> u64 {
    event()
}

/// The time of an event of the calling thread, which has [`joined`].
#[cfg(not(loom))]
#[inline(always)]
fn event() -> u64 {
    match STAMPS.load(Ordering::Relaxed) {
        UNORDERED => counter::unordered() >> SHIFT,
        ORDERED => counter::ordered() >> SHIFT,
        _ => monotonic_ticks(),
    }
}

/// The time of an event of the model.
#[cfg(loom)]
fn event() -> u64 {
    if STAMPS.load(Ordering::Relaxed) == UNORDERED { crate::sync::system::early_tick() } else { now() }
}

/// The time of the model.
#[cfg(loom)]
pub fn now() -> u64 {
    crate::sync::system::tick()
}

/// The time: not before the loads before it are done, and not after a store behind it can be seen.
#[cfg(not(loom))]
#[inline(always)]
pub fn now() -> u64 {
    if SOURCE.load(Ordering::Relaxed) == TickSource::Counter as u8 {
        counter::ordered() >> SHIFT
    } else {
        monotonic_ticks()
    }
}

/// One instant, read from all clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockReading {
    /// In the unit of the stamps.
    pub ticks: u64,
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME.
    pub realtime_ns: u64,
}

/// Reads all clocks as close together as can be had in a few tries.
pub fn sample() -> ClockReading {
    let mut best = None::<(u64, ClockReading)>;
    for _ in 0..8 {
        let before = now();
        let monotonic_ns = clock_ns(libc::CLOCK_MONOTONIC);
        let realtime_ns = clock_ns(libc::CLOCK_REALTIME);
        let after = now();
        let width = after.wrapping_sub(before);
        if best.is_none_or(|(narrowest, _)| width < narrowest) {
            best = Some((width, ClockReading { ticks: before.wrapping_add(width / 2), monotonic_ns, realtime_ns }));
        }
    }
    best.map_or(ClockReading { ticks: 0, monotonic_ns: 0, realtime_ns: 0 }, |(_, sample)| sample)
}

/// The kernel reads the counter behind a fence of its own, in the vdso as in the system call, so both sides hold.
#[cold]
#[inline(never)]
fn monotonic_ticks() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC) >> SHIFT
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes; the vdso's function neither allocates nor locks. Both clocks exist on
    // every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(target_arch = "x86_64")]
mod counter {
    /// Read after all loads before it, and before a store behind it can be seen.
    #[inline(always)]
    pub fn ordered() -> u64 {
        let mut cpu = 0;
        // SAFETY: `init` has seen that the CPU has rdtscp.
        unsafe { core::arch::x86_64::__rdtscp(&raw mut cpu) }
    }

    /// Read without waiting, perhaps before earlier loads are done.
    #[inline(always)]
    pub fn unordered() -> u64 {
        // SAFETY: `init` has seen that the counter may be read.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
}

#[cfg(target_arch = "aarch64")]
mod counter {
    /// Read after all loads before it, and before a store behind it can be seen.
    #[inline(always)]
    pub fn ordered() -> u64 {
        let ticks;
        // An isb alone does not wait for loads, and stores may pass the read of the counter: hence a barrier for the
        // loads before it and one more isb behind it.
        // SAFETY: reads the virtual counter, which Linux opens to user space; the barriers have no operands.
        unsafe {
            core::arch::asm!("dsb ishld", "isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks, options(nostack));
        }
        ticks
    }

    /// Read without waiting, perhaps before earlier loads are done.
    #[inline(always)]
    pub fn unordered() -> u64 {
        let ticks;
        // SAFETY: reads the virtual counter, which Linux opens to user space.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nostack));
        }
        ticks
    }
}

#[cfg(loom)]
fn has_reliable_counter() -> bool {
    true
}

#[cfg(all(target_arch = "x86_64", not(loom)))]
fn has_reliable_counter() -> bool {
    use core::arch::x86_64::__cpuid;
    if !sys::counter_is_allowed() {
        return false;
    }
    let extended = __cpuid(0x8000_0000).eax;
    if extended < 0x8000_0007 {
        return false;
    }
    let rdtscp = __cpuid(0x8000_0001).edx & 1 << 27 != 0;
    let invariant = __cpuid(0x8000_0007).edx & 1 << 8 != 0;
    rdtscp && invariant && kernel_trusts_counter()
}

#[cfg(all(target_arch = "aarch64", not(loom)))]
fn has_reliable_counter() -> bool {
    // The generic timer is one system-wide counter by architecture.
    true
}

/// Whether the kernel itself keeps time by the TSC: it has then checked that all CPUs agree. Under a hypervisor's
/// paravirtual clock, which is computed from the TSC, it says so by calling the clock stable; there the TSC is used
/// as well if the CPU promises an invariant one.
#[cfg(target_arch = "x86_64")]
fn kernel_trusts_counter() -> bool {
    let mut name = [0u8; 32];
    let path = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let Some(length) = sys::read_start(path, &mut name) else {
        // No sysfs, as in many containers: the CPU's promise must do.
        return true;
    };
    matches!(name.get(..length), Some(b"tsc\n" | b"kvm-clock\n" | b"hyperv_clocksource_tsc_page\n"))
}
