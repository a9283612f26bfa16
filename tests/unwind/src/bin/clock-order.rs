//! clock-order KIND HAND-OVERS [STAMPS]: do the stamps of the recorder order the lives of a block across threads?
//!
//! Threads on all CPUs allocate and free blocks of one size, so that blocks pass from thread to thread. The true
//! order is a counter for each address, which only the owner of the block there touches: it lies outside the block, of
//! which an allocator may write every byte while it is free. A *hand-over* is a free by one thread followed by an
//! allocation by another, or an allocation by one thread followed by a free by another; it is *violated* if the stamps
//! say the opposite.
//!
//! The counters of two CPUs agree to one of their steps and no better: on a Zen 5 they count 26 every 10 ns, and two of
//! them were seen 1 to 14 apart, now one in front and now the other. A hand-over within a step has stamps that are
//! *tied*: apart by up to a step, in either direction. Whoever reads them has to tell the order by what the events do.
//!
//! The threads meet after every few pairs. Otherwise each would do all its pairs while it has a processor for itself,
//! which on a busy machine is most of the time, and no block would go over.
//!
//! KIND: `glibc` or `jemalloc`, whose threads free what they allocated; `slots` (four slots, exchanged by one
//! instruction) or `mailbox` (one block, handed over by a plain store: the tightest there is), which do the same and are
//! no allocators; `relay-slots`, `relay-mailbox`, `relay-lock` (a list under a spin lock), where some threads only
//! allocate and the others only free, so that both directions are crossed.
//! STAMPS: `ours`, `plain` (rdtsc on both sides), `half` (rdtsc before a free only), `fenced` (lfence).
//!
//! It goes on until there were so many hand-overs, or at least a thousand and `CLOCK_ORDER_SECONDS` (60) have passed.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tracehound_shared::clock;

/// Pairs of allocation and free for each thread of a round.
const PAIRS: usize = 20_000;
/// Pairs after which the threads meet.
const TOGETHER: usize = 250;
/// Hand-overs without which a run says nothing.
const FEWEST: u64 = 1_000;
const BLOCK_BYTES: usize = 96;
/// Counters: one for each possible address of a block in 256 MiB.
const COUNTERS: usize = 1 << 24;
static COUNTS: [AtomicU64; COUNTERS] = [const { AtomicU64::new(0) }; COUNTERS];

/// Tries, and lets others run when that was in vain for a while: on a busy machine the one that is waited for may have
/// no processor.
#[inline(always)]
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    for vain in 1_u32.. {
        for _ in 0..1_000 {
            if let Some(done) = attempt() {
                return done;
            }
        }
        if vain % 8 == 0 {
            // Who sleeps gets a processor soon after; who only yields waits behind all that want it.
            std::thread::sleep(Duration::from_micros(20));
        } else {
            std::thread::yield_now();
        }
    }
    unreachable!("a thread waits for ever")
}

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
        until(|| {
            for slot in &self.0 {
                if !slot.load(Ordering::Relaxed).is_null() {
                    let block = slot.swap(std::ptr::null_mut(), Ordering::Acquire);
                    if !block.is_null() {
                        return Some(block);
                    }
                }
            }
            None
        })
    }

    #[inline(always)]
    fn give(&self, block: *mut u8) {
        until(|| {
            self.0.iter().find_map(|slot| {
                let free = slot.load(Ordering::Relaxed).is_null();
                let null = std::ptr::null_mut();
                let filled = free && slot.compare_exchange(null, block, Ordering::Release, Ordering::Relaxed).is_ok();
                filled.then_some(())
            })
        });
    }
}

struct Mailbox(AtomicPtr<u8>);

impl Allocator for Mailbox {
    #[inline(always)]
    fn take(&self) -> *mut u8 {
        until(|| {
            let block = self.0.load(Ordering::Acquire);
            let null = std::ptr::null_mut();
            let taken =
                !block.is_null() && self.0.compare_exchange(block, null, Ordering::Acquire, Ordering::Relaxed).is_ok();
            taken.then_some(block)
        })
    }

    #[inline(always)]
    fn give(&self, block: *mut u8) {
        self.0.store(block, Ordering::Release);
    }
}

/// A list of blocks under a lock that is taken by an exchange and left by a plain store.
struct Locked {
    locked: AtomicBool,
    len: AtomicUsize,
    blocks: [AtomicPtr<u8>; 4],
}

impl Locked {
    #[inline(always)]
    fn lock(&self) {
        until(|| {
            if !self.locked.swap(true, Ordering::Acquire) {
                return Some(());
            }
            std::hint::spin_loop();
            None
        });
    }

    #[inline(always)]
    fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }
}

impl Allocator for Locked {
    #[inline(always)]
    fn take(&self) -> *mut u8 {
        until(|| {
            self.lock();
            let len = self.len.load(Ordering::Relaxed);
            let block = (len > 0).then(|| {
                self.len.store(len - 1, Ordering::Relaxed);
                self.blocks[len - 1].load(Ordering::Relaxed)
            });
            self.unlock();
            block
        })
    }

    #[inline(always)]
    fn give(&self, block: *mut u8) {
        self.lock();
        let len = self.len.load(Ordering::Relaxed);
        self.blocks[len].store(block, Ordering::Relaxed);
        self.len.store(len + 1, Ordering::Relaxed);
        self.unlock();
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

struct Half;

impl Stamps for Half {
    #[inline(always)]
    fn after_alloc() -> u64 {
        clock::now_after_alloc()
    }

    #[inline(always)]
    fn before_free() -> u64 {
        Plain::before_free()
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
        Self::after_alloc()
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

/// Counts one more event of a block, which is this thread's until it gives it up.
#[inline(always)]
fn count(block: *mut u8) -> u64 {
    let counter = &COUNTS[(block as usize >> 4) % COUNTERS];
    let count = counter.load(Ordering::Relaxed) + 1;
    counter.store(count, Ordering::Relaxed);
    count
}

/// Where threads meet: who has come so many times.
struct Meeting {
    threads: usize,
    came: AtomicUsize,
}

impl Meeting {
    /// Waits for the others, at the how-manieth meeting.
    fn meet(&self, number: usize) {
        self.came.fetch_add(1, Ordering::AcqRel);
        until(|| (self.came.load(Ordering::Acquire) >= self.threads * (number + 1)).then_some(()));
    }
}

/// Some moments, of a random number.
#[inline(always)]
fn pause(random: &mut u64) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    for _ in 0..*random & 15 {
        // SAFETY: does nothing, for a moment.
        unsafe { std::arch::asm!("nop", options(nomem, nostack)) };
    }
}

/// What a thread does with blocks.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// Allocates a block and frees it.
    Both,
    /// Allocates blocks and hands them over.
    Allocates,
    /// Frees what is handed over.
    Frees,
}

#[inline(never)]
fn work<A: Allocator, B: Allocator, S: Stamps>(
    (allocator, between): (&A, &B),
    role: Role,
    thread: u32,
    events: &mut Vec<Event>,
    meeting: &Meeting,
) {
    events.clear();
    events.reserve(2 * PAIRS);
    let mut random = 0x9e37_79b9_u64.wrapping_mul(u64::from(thread) + 1) | 1;
    for pair in 0..PAIRS {
        if pair % TOGETHER == 0 {
            meeting.meet(pair / TOGETHER);
        }
        let block = if role == Role::Frees {
            between.take()
        } else {
            let block = allocator.take();
            let stamp = S::after_alloc();
            events.push(Event { block: block as u64, count: count(block), stamp, thread, is_free: false });
            pause(&mut random);
            block
        };
        if role == Role::Allocates {
            between.give(block);
        } else {
            // First the stamp, as in `free`: what it must not pass is the load that has just brought the block.
            let stamp = S::before_free();
            let count = count(block);
            allocator.give(block);
            events.push(Event { block: block as u64, count, stamp, thread, is_free: true });
        }
    }
}

/// What was seen.
struct Outcome {
    hand_overs: u64,
    violations: u64,
    /// Hand-overs whose stamps are the wrong way round by no more than [`step`].
    tied: u64,
    /// Places where a block's allocations and frees do not alternate by their stamps, tied ones aside.
    disorders: u64,
    /// Ticks between the two events of a hand-over, at least.
    smallest: i64,
}

/// A step of the counter in ticks: the least by which one reading of it is behind another on the same CPU.
fn step() -> i64 {
    // SAFETY: rdtsc has no effect but its result.
    let read = || unsafe { core::arch::x86_64::_rdtsc() };
    let mut before = read();
    let mut least = u64::MAX;
    for _ in 0..100_000 {
        let now = read();
        // A counter that has not moved may be reported one further, so that no two readings are equal.
        if now > before + 1 {
            least = least.min(now - before);
        }
        before = now;
    }
    least.div_ceil(1 << clock::SHIFT) as i64
}

/// What each thread does, and where it notes it.
type Workers = Vec<(Role, Vec<Event>)>;

fn round<A: Allocator, B: Allocator, S: Stamps>(
    by: (&A, &B),
    workers: &mut Workers,
    events: &mut Vec<Event>,
    (outcome, step): (&mut Outcome, i64),
) {
    let meeting = Meeting { threads: workers.len(), came: AtomicUsize::new(0) };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for (thread, (role, events)) in (0..).zip(workers.iter_mut()) {
            let (role, meeting) = (*role, &meeting);
            scope.spawn(move || {
                pin(thread as usize % cpus);
                clock::joined();
                work::<A, B, S>(by, role, thread, events, meeting);
            });
        }
    });
    events.clear();
    workers.iter().for_each(|(_, done)| events.extend_from_slice(done));
    events.sort_unstable_by_key(|event| (event.block, event.count));
    for at in 1..events.len() {
        let (first, second) = (events[at - 1], events[at]);
        assert!((first.block, first.count) != (second.block, second.count), "a block had two owners");
        let follows = first.block == second.block && second.count == first.count + 1;
        if follows && first.is_free != second.is_free && first.thread != second.thread {
            let distance = second.stamp as i64 - first.stamp as i64;
            outcome.hand_overs += 1;
            outcome.smallest = outcome.smallest.min(distance);
            if distance < -step {
                outcome.violations += 1;
            } else if distance < 0 {
                outcome.tied += 1;
                events[at].stamp = first.stamp;
            }
        }
    }
    // By stamps alone: at equal stamps the true order is as good as any.
    events.sort_unstable_by_key(|event| (event.block, event.stamp, event.count));
    let broken = |pair: &[Event]| pair[0].block == pair[1].block && pair[0].is_free == pair[1].is_free;
    outcome.disorders += events.windows(2).filter(|pair| broken(pair)).count() as u64;
}

/// Rounds until there were this many hand-overs, or enough and much time has passed.
fn run<A: Allocator, B: Allocator, S: Stamps>(by: (&A, &B), roles: &[Role], hand_overs: u64) -> Outcome {
    let mut outcome = Outcome { hand_overs: 0, violations: 0, tied: 0, disorders: 0, smallest: i64::MAX };
    let step = step();
    let (mut workers, mut events) = (roles.iter().map(|&role| (role, Vec::new())).collect(), Vec::new());
    let begun = Instant::now();
    while outcome.hand_overs < hand_overs.min(FEWEST) || outcome.hand_overs < hand_overs && begun.elapsed() < patience()
    {
        round::<A, B, S>(by, &mut workers, &mut events, (&mut outcome, step));
    }
    outcome
}

/// For how long to go on when there were enough.
fn patience() -> Duration {
    let seconds = std::env::var("CLOCK_ORDER_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

fn pin(cpu: usize) {
    // SAFETY: a zeroed set is empty; the call reads it and changes this thread alone.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

fn with_stamps<A: Allocator, B: Allocator>(name: &str, by: (&A, &B), roles: &[Role], asked: &Asked) -> bool {
    let outcome = match asked.stamps.as_str() {
        "plain" => run::<A, B, Plain>(by, roles, asked.hand_overs),
        "half" => run::<A, B, Half>(by, roles, asked.hand_overs),
        "fenced" => run::<A, B, Fenced>(by, roles, asked.hand_overs),
        _ => run::<A, B, Ours>(by, roles, asked.hand_overs),
    };
    println!(
        "{name} threads {} stamps {} hand_overs {} violations {} tied {} disorders {} smallest {}",
        roles.len(),
        asked.stamps,
        outcome.hand_overs,
        outcome.violations,
        outcome.tied,
        outcome.disorders,
        outcome.smallest
    );
    outcome.violations == 0 && outcome.disorders == 0
}

struct Asked {
    hand_overs: u64,
    stamps: String,
}

fn blocks(count: usize) -> Vec<*mut u8> {
    // SAFETY: calloc takes any size; the blocks are never freed.
    (0..count).map(|_| unsafe { libc::calloc(1, BLOCK_BYTES).cast() }).collect()
}

fn slots(filled: usize) -> Slots {
    let blocks = blocks(filled);
    Slots(std::array::from_fn(|index| AtomicPtr::new(blocks.get(index).copied().unwrap_or(std::ptr::null_mut()))))
}

fn mailbox(is_filled: bool) -> Mailbox {
    Mailbox(AtomicPtr::new(if is_filled { blocks(1)[0] } else { std::ptr::null_mut() }))
}

fn locked(filled: usize) -> Locked {
    let blocks = blocks(filled);
    let slot = |index: usize| AtomicPtr::new(blocks.get(index).copied().unwrap_or(std::ptr::null_mut()));
    Locked { locked: AtomicBool::new(false), len: AtomicUsize::new(filled), blocks: std::array::from_fn(slot) }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let name = arguments.get(1).map_or("", String::as_str);
    let asked = Asked {
        hand_overs: arguments.get(2).and_then(|count| count.parse().ok()).unwrap_or(1_000_000),
        stamps: arguments.get(3).cloned().unwrap_or_else(|| "ours".into()),
    };
    clock::init();
    let relay = [Role::Allocates, Role::Frees];
    let many = [Role::Allocates, Role::Frees, Role::Frees, Role::Allocates];
    let both = |threads: usize| vec![Role::Both; threads];
    let in_order = match name {
        "glibc" => [2, 4].iter().all(|&n| with_stamps(name, (&Glibc, &Glibc), &both(n), &asked)),
        "jemalloc" => [2, 4].iter().all(|&n| with_stamps(name, (&Jemalloc, &Jemalloc), &both(n), &asked)),
        "slots" => with_stamps(name, (&slots(2), &slots(0)), &both(2), &asked),
        "mailbox" => with_stamps(name, (&mailbox(true), &mailbox(false)), &both(2), &asked),
        "relay-slots" => {
            with_stamps(name, (&slots(2), &slots(0)), &relay, &asked)
                && with_stamps(name, (&slots(4), &slots(0)), &many, &asked)
        }
        "relay-mailbox" => with_stamps(name, (&mailbox(true), &mailbox(false)), &relay, &asked),
        "relay-lock" => {
            with_stamps(name, (&locked(2), &locked(0)), &relay, &asked)
                && with_stamps(name, (&locked(4), &locked(0)), &many, &asked)
        }
        _ => {
            eprintln!(
                "clock-order glibc|jemalloc|slots|mailbox|relay-slots|relay-mailbox|relay-lock HAND-OVERS \
                 [ours|plain|half|fenced]"
            );
            return ExitCode::from(2);
        }
    };
    ExitCode::from(u8::from(!in_order))
}
