//! What one backtrace costs, unwound and interned, without clock, record and writer; and beside it libunwind's cached
//! `unw_backtrace`, which fills an array and interns nothing. Medians of interleaved rounds, an empty call subtracted.
//!
//! - *one caller*: the same frames stand for every backtrace;
//! - *two branches in turn*: two deep branches, all of whose frames are entered anew for each backtrace.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::time::Instant;

use tracehound_unwind_probe::{probe, probe_pcs};

/// Takes a backtrace of its caller.
type Take = unsafe extern "C" fn() -> u64;
type UnwBacktrace = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;

const ROUNDS: usize = 31;
/// Backtraces of one round.
const EACH: u32 = 4_000;
const DEPTHS: [usize; 3] = [10, 20, 50];
const MAX_FRAMES: usize = 256;

fn main() {
    let libunwind = open_libunwind();
    println!("ns for one backtrace, medians of {ROUNDS} rounds of {EACH}");
    println!("{:24} {:>6} {:>10} {:>12} {:>8}", "pattern", "frames", "tracehound", "libunwind", "ratio");
    for (name, pattern) in [("one caller", one_caller as Pattern), ("two branches in turn", two_branches)] {
        for depth in DEPTHS {
            // The frames of main and of those around it count as well.
            let levels = (0..depth as u32).find(|&levels| frames(pattern, levels) >= depth).unwrap_or(0);
            let takes = [Some(nothing as Take), Some(probe as Take), libunwind.map(|_| by_libunwind as Take)];
            let mut rounds = [const { Vec::new() }; 3];
            for round in 0..=ROUNDS {
                for (take, rounds) in takes.iter().zip(&mut rounds) {
                    let Some(take) = take else { continue };
                    let begun = Instant::now();
                    pattern(levels, EACH, *take);
                    // The first round learns.
                    if round > 0 {
                        rounds.push(begun.elapsed().as_nanos() as f64 / f64::from(EACH));
                    }
                }
            }
            let [nothing, ours, theirs] = rounds.map(median);
            let ours = ours.unwrap_or(0.0) - nothing.unwrap_or(0.0);
            let theirs = theirs.map(|theirs| theirs - nothing.unwrap_or(0.0));
            let shown = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
            let ratio = theirs.map(|theirs| theirs / ours);
            println!("{name:24} {:>6} {ours:>10.1} {:>12} {:>8}", frames(pattern, levels), shown(theirs), shown(ratio));
        }
    }
    if libunwind.is_none() {
        println!("libunwind.so.8 is not installed (Debian: libunwind8)");
    }
}

/// Takes so many backtraces so many levels below.
type Pattern = fn(u32, u32, Take);

fn one_caller(levels: u32, times: u32, take: Take) {
    left(levels, times, take);
}

fn two_branches(levels: u32, times: u32, take: Take) {
    for _ in 0..times / 2 {
        left(levels, 1, take);
        right(levels, 1, take);
    }
    if times == 1 {
        right(levels, 1, take);
    }
}

#[inline(never)]
fn left(levels: u32, times: u32, take: Take) -> u64 {
    if levels > 0 {
        return black_box(left(levels - 1, times, take));
    }
    let mut last = 0;
    for _ in 0..times {
        // SAFETY: none of the functions has any condition.
        last = unsafe { take() };
    }
    black_box(last)
}

#[inline(never)]
fn right(levels: u32, times: u32, take: Take) -> u64 {
    if levels > 0 {
        return black_box(right(levels - 1, times, take)) + 1;
    }
    let mut last = 1;
    for _ in 0..times {
        // SAFETY: as in `left`.
        last += unsafe { take() };
    }
    black_box(last)
}

/// Frames that are found below so many levels.
fn frames(pattern: Pattern, levels: u32) -> usize {
    thread_local!(static FRAMES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });
    unsafe extern "C" fn count() -> u64 {
        let mut pcs = [0; MAX_FRAMES];
        // SAFETY: there is room for so many.
        let found = unsafe { probe_pcs(probe() as u32, pcs.as_mut_ptr(), MAX_FRAMES) };
        // This function is no frame of the pattern's.
        FRAMES.set(found - 1);
        0
    }
    pattern(levels, 1, count);
    FRAMES.get()
}

unsafe extern "C" fn nothing() -> u64 {
    0
}

/// `unw_backtrace`, once it has been found.
static LIBUNWIND: std::sync::OnceLock<UnwBacktrace> = std::sync::OnceLock::new();

unsafe extern "C" fn by_libunwind() -> u64 {
    let mut buffer = [std::mem::MaybeUninit::<*mut c_void>::uninit(); MAX_FRAMES];
    // SAFETY: the buffer has room for so many.
    LIBUNWIND.get().map_or(0, |take| unsafe { take(buffer.as_mut_ptr().cast(), MAX_FRAMES as c_int) } as u64)
}

/// `unw_backtrace` with a cache for each thread.
fn open_libunwind() -> Option<UnwBacktrace> {
    const CACHE_PER_THREAD: c_int = 2;
    type SetCachingPolicy = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
    // SAFETY: constant, terminated names; the functions have these types (libunwind-x86_64.h).
    unsafe {
        let library = libc::dlopen(c"libunwind.so.8".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() {
            return None;
        }
        let [space, policy, take] = [c"_ULx86_64_local_addr_space", c"_ULx86_64_set_caching_policy", c"unw_backtrace"]
            .map(|name| libc::dlsym(library, name.as_ptr()));
        if space.is_null() || policy.is_null() || take.is_null() {
            return None;
        }
        std::mem::transmute::<*mut c_void, SetCachingPolicy>(policy)(*space.cast::<*mut c_void>(), CACHE_PER_THREAD);
        Some(*LIBUNWIND.get_or_init(|| std::mem::transmute::<*mut c_void, UnwBacktrace>(take)))
    }
}

fn median(mut rounds: Vec<f64>) -> Option<f64> {
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied()
}
