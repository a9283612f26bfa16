//! The collector as a library, driven by many threads at once, for ThreadSanitizer: blocks go from hand to hand,
//! threads come and go, recording stops and starts, the chunks run out.
//!
//! usage: `stress SECONDS [--insert-race]`. The last line says how many allocations and frees were recorded; a script
//! holds that against the recording. `--insert-race` adds a race of two threads, which a run under a sanitizer must
//! find.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracehound_format::options::LaunchOptions;
use tracehound_format::record::Kind;
use tracehound_record::nested;
use tracehound_record::record;
use tracehound_shared::gate;
use tracehound_unwind::Caller;

/// Threads at a time.
const THREADS: usize = 5;
/// Places where threads leave blocks for each other.
const SLOTS: usize = 64;

static BLOCKS: [AtomicPtr<c_void>; SLOTS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS];
static ALLOCS: AtomicU64 = AtomicU64::new(0);
static FREES: AtomicU64 = AtomicU64::new(0);

/// `malloc` as a hook sees it: with the state of its caller.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn traced_malloc(size: usize) -> *mut c_void {
    std::arch::naked_asm!("mov rsi, [rsp]", "lea rdx, [rsp + 8]", "mov rcx, rbp", "jmp {}", sym malloc_at)
}

/// `free` as a hook sees it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn traced_free(block: *mut c_void) {
    std::arch::naked_asm!("mov rsi, [rsp]", "lea rdx, [rsp + 8]", "mov rcx, rbp", "jmp {}", sym free_at)
}

unsafe extern "C" fn malloc_at(size: usize, pc: u64, sp: u64, fp: u64) -> *mut c_void {
    let caller = Caller { pc, sp, fp };
    // SAFETY: plain malloc.
    let mut real = || unsafe { libc::malloc(size) };
    // SAFETY: the state is that of the function which called `traced_malloc`.
    unsafe {
        match record::ready() {
            Some(context) => record::alloc(context, caller, Kind::Malloc, size, real),
            None => nested::alloc(caller, Kind::Malloc, size, &mut real),
        }
    }
}

unsafe extern "C" fn free_at(block: *mut c_void, pc: u64, sp: u64, fp: u64) {
    let caller = Caller { pc, sp, fp };
    // SAFETY: the block is malloc's and nobody else's any more.
    let mut real = || unsafe { libc::free(block) };
    // SAFETY: the state is that of the function which called `traced_free`.
    unsafe {
        match record::ready() {
            Some(context) => record::free(context, caller, Kind::Free, block, real),
            None => nested::free(caller, Kind::Free, block, &mut real),
        }
    }
}

/// Allocates at one of many depths of the stack.
#[inline(never)]
fn allocate(depth: u64, size: usize) -> *mut c_void {
    if depth == 0 {
        ALLOCS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: called as C would.
        return unsafe { traced_malloc(size) };
    }
    std::hint::black_box(allocate(std::hint::black_box(depth - 1), size))
}

fn free(block: *mut c_void) {
    if !block.is_null() {
        FREES.fetch_add(1, Ordering::Relaxed);
        // SAFETY: taken out of a slot by an exchange, so that it is ours alone.
        unsafe { traced_free(block) };
    }
}

/// One thread's life: blocks into random slots, what was there is freed.
fn live(mut random: u64, events: u64) {
    for _ in 0..events {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let block = allocate(random >> 8 & 15, (random >> 16 & 0xff) as usize + 1);
        let old = BLOCKS[random as usize % SLOTS].swap(block, Ordering::AcqRel);
        free(old);
        if random >> 32 & 0xfff == 0 {
            tracehound_lifecycle::flush();
        }
    }
    tracehound_lifecycle::thread_ends();
}

static mut PLANTED: u64 = 0;

/// Two threads that add to a number without a lock.
fn race() {
    let add = || {
        for _ in 0..1000 {
            // SAFETY: none: this is the race that a sanitizer must report.
            unsafe { (&raw mut PLANTED).write((&raw const PLANTED).read() + 1) };
        }
    };
    let other = std::thread::spawn(add);
    add();
    other.join().expect("a thread");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(5);
    let insert = arguments.next().is_some_and(|word| word == "--insert-race");
    let options = LaunchOptions::parse(|name| {
        // The smallest memory that is accepted: chunks run out.
        if name == "TRACEHOUND_BUFFER" {
            return Some(b"1M");
        }
        std::env::var(name).ok().map(|value| -> &'static [u8] { Box::leak(value.into_bytes().into_boxed_slice()) })
    });
    tracehound_lifecycle::start(options.expect("the options are understood"), Vec::new(), None);
    assert_eq!(gate::state(), gate::RECORDING, "it records");
    tracehound_lifecycle::start_writer();
    if insert {
        race();
    }
    let seed = std::env::var("TRACEHOUND_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | 1);
    println!("seed {seed}");
    let started = Instant::now();
    let mut lives = 0;
    let mut threads: Vec<_> = Vec::new();
    while started.elapsed() < Duration::from_secs(seconds) {
        while threads.len() < THREADS {
            lives += 1;
            let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(lives << 17) | 1;
            // Short lives and long ones.
            let events = if lives % 3 == 0 { 20_000 } else { 50 };
            threads.push(std::thread::spawn(move || live(random, events)));
        }
        threads.remove(0).join().expect("a thread");
    }
    for thread in threads {
        thread.join().expect("a thread");
    }
    for slot in &BLOCKS {
        free(slot.swap(std::ptr::null_mut(), Ordering::AcqRel));
    }
    tracehound_lifecycle::finish(tracehound_lifecycle::Finish::Exit);
    println!(
        "{lives} threads, {} allocations, {} frees",
        ALLOCS.load(Ordering::Relaxed),
        FREES.load(Ordering::Relaxed)
    );
}
