//! The recorded threads, each with a thread of its own, and the blocks that they hand to one another.

use std::ffi::CStr;
use std::fmt::Write;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::clock::{self, ReplayClock};
use crate::event::{
    ALIGNED, CALLOC, CXX_RESERVE, FREE, MALLOC, OTHER_MEMORY, PAGE, PlayedCall, PlayedCalls, REALLOC, THREAD_END,
};

/// Most events of a chunk.
pub const MOST_EVENTS: usize = 1 << 15;
const NONE: u32 = u32::MAX;
const IDLE: u32 = 0;
const GO: u32 = 1;
const END: u32 = 2;

/// One recorded thread.
struct ReplayThread {
    state: AtomicU32,
    /// First event of the chunk.
    first: AtomicU32,
    thread: AtomicU64,
    alive: AtomicU32,
}

/// What all threads see.
struct ReplayStage {
    events: &'static [PlayedCall],
    /// Chunk's first event.
    base: AtomicU64,
    /// Next event of the same thread in the chunk, by place in it.
    next: [AtomicU32; MOST_EVENTS],
    /// When each event of the chunk happens.
    times: [AtomicU64; MOST_EVENTS],
    blocks: &'static [AtomicPtr<u8>],
    players: &'static [ReplayThread],
    pending: AtomicU32,
    failed: AtomicU64,
    /// The allocator is written in C++, and its library is loaded.
    has_cxx: bool,
}

/// See the module's description.
pub struct ReplayCrew {
    stage: &'static ReplayStage,
    /// Last event of each thread in the chunk; its generation.
    last: &'static mut [(u32, u32)],
    generation: u32,
    clock: ReplayClock,
}

/// Events that are linked, to be played at once.
#[derive(Debug)]
pub struct LinkedChunk {
    start: usize,
    end: usize,
    threads: u32,
    touched_pages: u64,
}

impl LinkedChunk {
    /// How much memory is not the allocator's behind it, if that changes there.
    pub fn other_bytes(&self, events: &[PlayedCall]) -> Option<u64> {
        events.get(self.end.checked_sub(1)?).filter(|event| event.op == OTHER_MEMORY).map(|event| event.size)
    }

    /// Bytes of pages that its allocations write to.
    pub fn touched_bytes(&self) -> u64 {
        self.touched_pages * PAGE as u64
    }
}

/// Pages of its block that a call writes to.
fn pages_of(event: &PlayedCall) -> usize {
    if matches!(event.op, MALLOC | CALLOC | ALIGNED | REALLOC | CXX_RESERVE) {
        size_of_call(event).div_ceil(PAGE).min(event.touched as usize)
    } else {
        0
    }
}

fn size_of_call(event: &PlayedCall) -> usize {
    usize::try_from(event.size).unwrap_or(usize::MAX)
}

/// Whether a library whose file's name begins like this is loaded.
fn has_library(name: &str) -> bool {
    struct LibrarySearch<'a> {
        name: &'a [u8],
        is_found: bool,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the loader gives a valid structure with a terminated name, and the search that was given to it.
        let (path, search) = unsafe { (CStr::from_ptr((*info).dlpi_name), &mut *search.cast::<LibrarySearch<'_>>()) };
        search.is_found =
            path.to_bytes().rsplit(|&byte| byte == b'/').next().is_some_and(|file| file.starts_with(search.name));
        libc::c_int::from(search.is_found)
    }
    let mut search = LibrarySearch { name: name.as_bytes(), is_found: false };
    // SAFETY: the function takes what is given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.is_found
}

/// Zeroed memory of a file, so that it does not count.
fn table<T>(count: usize) -> Option<&'static mut [T]> {
    let bytes = (count.max(1) * size_of::<T>()).next_multiple_of(PAGE);
    // SAFETY: a new mapping of a new file, large enough; zeroes are valid for the types that are asked for here.
    unsafe {
        let fd = libc::syscall(libc::SYS_memfd_create, c"replay".as_ptr(), 1) as i32;
        if fd < 0 || libc::ftruncate(fd, i64::try_from(bytes).ok()?) != 0 {
            return None;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(core::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0);
        libc::close(fd);
        if at == libc::MAP_FAILED {
            return None;
        }
        Some(core::slice::from_raw_parts_mut(at.cast::<T>(), count))
    }
}

impl ReplayCrew {
    /// Tables for the events, which happen so many times as fast as they were recorded.
    pub fn new(events: &PlayedCalls, pace: u64) -> Option<Self> {
        let stage = table::<core::mem::MaybeUninit<ReplayStage>>(1)?.first_mut()?;
        let stage = stage.write(ReplayStage {
            events: events.list,
            base: AtomicU64::new(0),
            next: [const { AtomicU32::new(NONE) }; MOST_EVENTS],
            times: [const { AtomicU64::new(0) }; MOST_EVENTS],
            blocks: table::<AtomicPtr<u8>>(events.slots)?,
            players: table::<ReplayThread>(events.threads)?,
            pending: AtomicU32::new(0),
            failed: AtomicU64::new(0),
            has_cxx: has_library("libstdc++.so"),
        });
        let last = table::<(u32, u32)>(events.threads)?;
        Some(Self { stage, last, generation: 0, clock: ReplayClock::new(pace) })
    }

    /// Allocations that failed.
    pub fn failed(&self) -> u64 {
        self.stage.failed.load(Ordering::Relaxed)
    }

    /// Links the events from `start` on, to chains of one thread each: `most` of them, or up to the end of a thread or a change of
    /// other memory.
    pub fn prepare(&mut self, start: usize, most: usize) -> LinkedChunk {
        let stage = self.stage;
        self.generation += 1;
        stage.base.store(start as u64, Ordering::Relaxed);
        let mut end = (start + most).min(stage.events.len());
        let (mut count, mut touched_pages) = (0, 0);
        // The threads of the chunk lie in `last` behind their generation; a list of them is not needed: the first event of
        // each is found again below.
        for place in 0..end - start {
            let Some(event) = stage.events.get(start + place) else { break };
            if event.op == OTHER_MEMORY {
                end = start + place + 1;
                break;
            }
            let Some(last) = self.last.get_mut(event.thread as usize) else { continue };
            stage.next[place].store(NONE, Ordering::Relaxed);
            stage.times[place].store(self.clock.at(event.t_ns), Ordering::Relaxed);
            if last.1 == self.generation {
                stage.next[last.0 as usize].store(place as u32, Ordering::Relaxed);
            } else {
                stage.players[event.thread as usize].first.store(place as u32, Ordering::Relaxed);
                count += 1;
            }
            *last = (place as u32, self.generation);
            touched_pages += pages_of(event) as u64;
            if event.op == THREAD_END {
                end = start + place + 1;
                break;
            }
        }
        LinkedChunk { start, end, threads: count, touched_pages }
    }

    /// Plays a chunk, the one that was prepared last; gives where the next one begins. Calls `meanwhile` now and then.
    pub fn play(&mut self, chunk: &LinkedChunk, mut meanwhile: impl FnMut()) -> usize {
        let stage = self.stage;
        let &LinkedChunk { start, end, threads, .. } = chunk;
        stage.pending.store(threads, Ordering::SeqCst);
        let mut main_first = None;
        for place in 0..end - start {
            let Some(event) = stage.events.get(start + place).filter(|event| event.op != OTHER_MEMORY) else { break };
            let Some(player) = stage.players.get(event.thread as usize) else { continue };
            if player.first.load(Ordering::Relaxed) != place as u32 {
                continue;
            }
            if event.thread == 0 {
                main_first = Some(place as u32);
            } else {
                wake(stage, event.thread);
            }
        }
        if let Some(first) = main_first {
            run(stage, first);
            stage.pending.fetch_sub(1, Ordering::SeqCst);
        }
        loop {
            let pending = stage.pending.load(Ordering::SeqCst);
            if pending == 0 {
                break;
            }
            wait_a_moment(&stage.pending, pending);
            meanwhile();
        }
        if let Some(event) = stage.events.get(end - 1).filter(|event| event.op == THREAD_END && event.thread != 0) {
            end_thread(stage, event.thread);
        }
        end
    }
}

fn wake(stage: &'static ReplayStage, number: u32) {
    let Some(player) = stage.players.get(number as usize) else { return };
    player.state.store(GO, Ordering::SeqCst);
    if player.alive.swap(1, Ordering::SeqCst) != 0 {
        notify(&player.state);
        return;
    }
    let mut thread = 0;
    // SAFETY: the stage is never freed; the number comes as the pointer's value.
    let result = unsafe {
        let argument = core::ptr::without_provenance_mut(number as usize);
        STAGE.store(core::ptr::from_ref(stage).cast_mut(), Ordering::SeqCst);
        libc::pthread_create(&raw mut thread, core::ptr::null(), play, argument)
    };
    player.thread.store(thread, Ordering::SeqCst);
    if result != 0 {
        // Without a thread of its own its calls are made here.
        player.alive.store(0, Ordering::SeqCst);
        player.state.store(IDLE, Ordering::SeqCst);
        run(stage, player.first.load(Ordering::Relaxed));
        stage.pending.fetch_sub(1, Ordering::SeqCst);
    }
}

fn end_thread(stage: &ReplayStage, number: u32) {
    let Some(player) = stage.players.get(number as usize) else { return };
    if player.alive.swap(0, Ordering::SeqCst) != 0 {
        player.state.store(END, Ordering::SeqCst);
        notify(&player.state);
        // SAFETY: a thread of ours that ends now.
        unsafe { libc::pthread_join(player.thread.load(Ordering::SeqCst), core::ptr::null_mut()) };
        player.state.store(IDLE, Ordering::SeqCst);
    }
}

static STAGE: AtomicPtr<ReplayStage> = AtomicPtr::new(core::ptr::null_mut());

extern "C" fn play(number: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: stored before the thread was made, and never freed.
    let stage: &'static ReplayStage = unsafe { &*STAGE.load(Ordering::SeqCst) };
    let Some(player) = stage.players.get(number.addr()) else { return core::ptr::null_mut() };
    loop {
        match player.state.load(Ordering::SeqCst) {
            IDLE => wait(&player.state, IDLE),
            END => return core::ptr::null_mut(),
            _ => {
                run(stage, player.first.load(Ordering::Relaxed));
                player.state.store(IDLE, Ordering::SeqCst);
                if stage.pending.fetch_sub(1, Ordering::SeqCst) == 1 {
                    notify(&stage.pending);
                }
            }
        }
    }
}

/// Plays a thread's events of the chunk.
fn run(stage: &ReplayStage, first: u32) {
    let base = stage.base.load(Ordering::Relaxed) as usize;
    let mut place = first;
    while let (Some(next), Some(event)) = (stage.next.get(place as usize), stage.events.get(base + place as usize)) {
        clock::set(stage.times.get(place as usize).map_or(event.t_ns, |time| time.load(Ordering::Relaxed)));
        call(stage, event);
        place = next.load(Ordering::Relaxed);
    }
}

fn call(stage: &ReplayStage, event: &PlayedCall) {
    let Some(block) = stage.blocks.get(event.slot as usize) else { return };
    let size = size_of_call(event);
    if event.op == CXX_RESERVE && stage.has_cxx {
        block.store(NO_BLOCK, Ordering::Release);
        return;
    }
    // SAFETY: the calls of the recorded program, in an order in which it made them: a block is used between its allocation and
    // its free by one thread at a time.
    let made = unsafe {
        match event.op {
            MALLOC | CXX_RESERVE => libc::malloc(size),
            CALLOC => libc::calloc(1, size),
            ALIGNED => {
                let mut at = core::ptr::null_mut();
                let alignment = (1_usize << event.alignment.clamp(3, 30)).max(size_of::<usize>());
                if libc::posix_memalign(&raw mut at, alignment, size) == 0 { at } else { core::ptr::null_mut() }
            }
            REALLOC => {
                let Some(old) = stage.blocks.get(event.old as usize) else { return };
                libc::realloc(take(old).cast(), size.max(1))
            }
            FREE => {
                libc::free(take(block).cast());
                return;
            }
            _ => return,
        }
    };
    if made.is_null() {
        stage.failed.fetch_add(1, Ordering::Relaxed);
        block.store(NO_BLOCK, Ordering::Release);
        return;
    }
    let pages = pages_of(event);
    let first = made.cast::<u8>();
    for page in 0..pages {
        // SAFETY: inside the block.
        unsafe { first.add(page * PAGE).write_volatile(1) };
    }
    if pages > 0 && pages == size.div_ceil(PAGE) {
        // A block that begins in the middle of a page ends in one more.
        // SAFETY: inside the block.
        unsafe { first.add(size - 1).write_volatile(1) };
    }
    block.store(made.cast(), Ordering::Release);
}

/// Stands for a block that could not be had, or that is not asked for.
const NO_BLOCK: *mut u8 = core::ptr::without_provenance_mut(1);

/// Waits for a block, and takes it out of the table.
fn take(block: &AtomicPtr<u8>) -> *mut u8 {
    let mut tries = 0_u32;
    loop {
        let at = block.load(Ordering::Acquire);
        if !at.is_null() {
            block.store(core::ptr::null_mut(), Ordering::Relaxed);
            return if core::ptr::eq(at, NO_BLOCK) { core::ptr::null_mut() } else { at };
        }
        tries += 1;
        if tries > 100 {
            // SAFETY: lets others run.
            unsafe { libc::sched_yield() };
        }
    }
}

fn wait(word: &AtomicU32, expected: u32) {
    // SAFETY: the word is valid.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, core::ptr::null::<u8>()) };
}

/// The same for a millisecond at most.
fn wait_a_moment(word: &AtomicU32, expected: u32) {
    let moment = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: the word and the time are valid.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const moment) };
}

fn notify(word: &AtomicU32) {
    // SAFETY: the word is valid.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Writes to standard output.
pub fn put(text: &[u8]) {
    // SAFETY: a valid buffer.
    unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
}

struct FixedText<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl Write for FixedText<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let place = self.buffer.get_mut(self.len..self.len + text.len()).ok_or(std::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Text without an allocation; what finds no room is left out.
pub fn format<'a>(buffer: &'a mut [u8], text: std::fmt::Arguments<'_>) -> &'a [u8] {
    let mut into = FixedText { buffer, len: 0 };
    let _ = into.write_fmt(text);
    let len = into.len;
    buffer.get(..len).unwrap_or_default()
}

/// The same as text.
pub fn words<'a>(buffer: &'a mut [u8; 64], text: std::fmt::Arguments<'_>) -> &'a str {
    std::str::from_utf8(format(buffer, text)).unwrap_or("")
}
