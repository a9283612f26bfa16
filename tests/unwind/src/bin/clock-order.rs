//! clock-order ALLOCATOR HAND-OVERS [STAMPS]: do the stamps of the recorder order the lives of a block across threads?
//!
//! Threads on all CPUs allocate and free blocks of one size, so that blocks pass from thread to thread. The true
//! order is a counter inside the block, which only its owner touches. A *hand-over* is a free by one thread followed
//! by an allocation by another; it is *violated* if the stamps say the opposite.
//!
//! ALLOCATOR: `glibc`, `jemalloc`, `slots` (four slots, exchanged by one instruction) or `mailbox` (one block, handed
//! over by a plain store: the tightest there is). STAMPS: `ours`, `plain` (rdtsc on both sides), `fenced` (lfence).

use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use tracehound_collector::hot::clock;

/// Pairs of allocation and free for each thread of a round.
const PAIRS: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(8);
const BLOCK_BYTES: usize = 96;
/// Offset of the counter: what allocators write into free blocks ends before it.
const COUNTER_AT: usize = 32;

trait Allocator: Sync {
    fn take(&self) -> *mut u8;
    fn give(&self, block: *mut u8);
}

struct Glibc;

impl Allocator for Glibc {
    #[inline(always)]
    fn take(&self) -> *mut u8 {
        // SAFETY: malloc takes any size.
        unsafe { libc::malloc(BLOCK_BYTES).cast() }
    }

    #[inline(always)]
    fn give(&self, block: *mut u8) {
        // SAFETY: `block` came from `take`, and its owner gives it up.
        unsafe { libc::free(block.cast()) }
    }
}

struct Jemalloc;

impl Allocator for Jemalloc {
    #[inline(always)]
    fn take(&self) -> *mut u8 {
        // SAFETY: malloc takes any size.
        unsafe { tikv_jemalloc_sys::malloc(BLOCK_BYTES).cast() }
    }

    #[inline(always)]
    fn give(&self, block: *mut u8) {
        // SAFETY: `block` came from `take`, and its owner gives it up.
        unsafe { tikv_jemalloc_sys::free(block.cast()) }
    }
}

struct Slots([AtomicPtr<u8>; 4]);

impl Allocator for Slots {
    #[inline(always)]
    fn take(&self) -> *mut u8 {
        loop {
            for slot in &self.0 {
                if !slot.load(Ordering::Relaxed).is_null() {
                    let block = slot.swap(std::ptr::null_mut(), Ordering::Acquire);
                    if !block.is_null() {
                        return block;
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn give(&self, block: *mut u8) {
        loop {
            for slot in &self.0 {
                let free = slot.load(Ordering::Relaxed).is_null();
                let null = std::ptr::null_mut();
                if free && slot.compare_exchange(null, block, Ordering::Release, Ordering::Relaxed).is_ok() {
                    return;
                }
            }
        }
    }
}

struct Mailbox(AtomicPtr<u8>);

impl Allocator for Mailbox {
    #[inline(always)]
    fn take(&self) -> *mut u8 {
        loop {
            let block = self.0.load(Ordering::Acquire);
            let null = std::ptr::null_mut();
            if !block.is_null() && self.0.compare_exchange(block, null, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return block;
            }
        }
    }

    #[inline(always)]
    fn give(&self, block: *mut u8) {
        self.0.store(block, Ordering::Release);
    }
}

trait Stamps: Sync {
    fn after_alloc() -> u64;
    fn before_free() -> u64;
}

struct Ours;

impl Stamps for Ours {
    #[inline(always)]
    fn after_alloc() -> u64 {
        clock::now_after_alloc()
    }

    #[inline(always)]
    fn before_free() -> u64 {
        clock::now_before_free()
    }
}

struct Plain;

impl Stamps for Plain {
    #[inline(always)]
    fn after_alloc() -> u64 {
        // SAFETY: rdtsc has no effect but its result.
        unsafe { core::arch::x86_64::_rdtsc() >> clock::SHIFT }
    }

    #[inline(always)]
    fn before_free() -> u64 {
        Self::after_alloc()
    }
}

struct Fenced;

impl Stamps for Fenced {
    #[inline(always)]
    fn after_alloc() -> u64 {
        // SAFETY: neither instruction has an effect but its result.
        unsafe {
            core::arch::x86_64::_mm_lfence();
            core::arch::x86_64::_rdtsc() >> clock::SHIFT
        }
    }

    #[inline(always)]
    fn before_free() -> u64 {
        Plain::before_free()
    }
}

#[derive(Clone, Copy)]
struct Event {
    block: u64,
    count: u64,
    stamp: u64,
    thread: u32,
    is_free: bool,
}

#[inline(never)]
fn work<A: Allocator, S: Stamps>(allocator: &A, thread: u32, pairs: usize, start: &Barrier) -> Vec<Event> {
    let mut events = Vec::with_capacity(2 * pairs);
    let mut random = 0x9e37_79b9_u64.wrapping_mul(u64::from(thread) + 1) | 1;
    start.wait();
    for _ in 0..pairs {
        let block = allocator.take();
        let stamp = S::after_alloc();
        // SAFETY: the block is this thread's until it gives it up, and larger than the counter's place.
        let counter = unsafe { block.add(COUNTER_AT).cast::<u64>() };
        let count = || {
            // SAFETY: as above.
            unsafe {
                *counter += 1;
                *counter
            }
        };
        events.push(Event { block: block as u64, count: count(), stamp, thread, is_free: false });
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        for _ in 0..random & 15 {
            // SAFETY: does nothing, for a moment.
            unsafe { std::arch::asm!("nop", options(nomem, nostack)) };
        }
        let count = count();
        let stamp = S::before_free();
        allocator.give(block);
        events.push(Event { block: block as u64, count, stamp, thread, is_free: true });
    }
    events
}

/// What was seen.
struct Outcome {
    hand_overs: u64,
    violations: u64,
    /// Places where a block's births and deaths do not alternate by their stamps.
    disorders: u64,
    /// Ticks between a free and the allocation after it, at least.
    smallest: i64,
}

fn round<A: Allocator, S: Stamps>(allocator: &A, threads: usize, outcome: &mut Outcome) {
    let start = Barrier::new(threads);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut events: Vec<Event> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || {
                    pin(thread % cpus);
                    work::<A, S>(allocator, thread as u32, PAIRS, start)
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
    });
    events.sort_by_key(|event| (event.block, event.count));
    for pair in events.windows(2) {
        let (free, alloc) = (pair[0], pair[1]);
        // An allocator that gives pages back to the kernel gets them zeroed: the counter cannot tell the order then.
        assert!((free.block, free.count) != (alloc.block, alloc.count), "the allocator must keep the counters");
        let follows = free.block == alloc.block && alloc.count == free.count + 1;
        if follows && free.is_free && !alloc.is_free && free.thread != alloc.thread {
            let distance = alloc.stamp as i64 - free.stamp as i64;
            outcome.hand_overs += 1;
            outcome.violations += u64::from(distance < 0);
            outcome.smallest = outcome.smallest.min(distance);
        }
    }
    // By stamps alone; at equal stamps a free comes first, as the reader of a recording has it.
    events.sort_by_key(|event| (event.block, event.stamp, !event.is_free));
    let broken = |pair: &[Event]| pair[0].block == pair[1].block && pair[0].is_free == pair[1].is_free;
    outcome.disorders += events.windows(2).filter(|pair| broken(pair)).count() as u64;
}

/// Rounds until there were this many hand-overs, or too much time has passed.
fn run<A: Allocator, S: Stamps>(allocator: &A, threads: usize, hand_overs: u64) -> Outcome {
    let mut outcome = Outcome { hand_overs: 0, violations: 0, disorders: 0, smallest: i64::MAX };
    let begun = Instant::now();
    while outcome.hand_overs < hand_overs && begun.elapsed() < PATIENCE {
        round::<A, S>(allocator, threads, &mut outcome);
    }
    outcome
}

fn pin(cpu: usize) {
    // SAFETY: a zeroed set is empty; the call reads it and changes this thread alone.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

fn with_stamps<A: Allocator>(name: &str, allocator: &A, threads: usize, hand_overs: u64, stamps: &str) -> bool {
    let outcome = match stamps {
        "plain" => run::<A, Plain>(allocator, threads, hand_overs),
        "fenced" => run::<A, Fenced>(allocator, threads, hand_overs),
        _ => run::<A, Ours>(allocator, threads, hand_overs),
    };
    println!(
        "{name} threads {threads} stamps {stamps} hand_overs {} violations {} disorders {} smallest {}",
        outcome.hand_overs, outcome.violations, outcome.disorders, outcome.smallest
    );
    outcome.violations == 0 && outcome.disorders == 0
}

fn blocks(count: usize) -> Vec<*mut u8> {
    // SAFETY: calloc takes any size; the blocks are never freed.
    (0..count).map(|_| unsafe { libc::calloc(1, BLOCK_BYTES).cast() }).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let name = arguments.get(1).map_or("", String::as_str);
    let wanted = arguments.get(2).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let stamps = arguments.get(3).map_or("ours", String::as_str);
    clock::init();
    let in_order = match name {
        "glibc" => [2, 4].iter().all(|threads| with_stamps(name, &Glibc, *threads, wanted, stamps)),
        "jemalloc" => [2, 4].iter().all(|threads| with_stamps(name, &Jemalloc, *threads, wanted, stamps)),
        "slots" => {
            let blocks = blocks(2);
            let slot = |index: usize| AtomicPtr::new(blocks.get(index).copied().unwrap_or(std::ptr::null_mut()));
            with_stamps(name, &Slots(std::array::from_fn(slot)), 2, wanted, stamps)
        }
        "mailbox" => with_stamps(name, &Mailbox(AtomicPtr::new(blocks(1)[0])), 2, wanted, stamps),
        _ => {
            eprintln!("clock-order glibc|jemalloc|slots|mailbox HAND-OVERS [ours|plain|fenced]");
            return ExitCode::from(2);
        }
    };
    ExitCode::from(u8::from(!in_order))
}
