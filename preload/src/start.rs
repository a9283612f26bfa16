//! Start of the library: at the first hooked call after it is relocated, or in its constructor.
//!
//! ```text
//! COLD ── first hooked call ──▶ files, memory, gate open ── constructor ──▶ writer's thread, exit handlers
//! ```
//! A library that is loaded into a running process does none of this: it waits for `heaptrace attach`, which begins the
//! recording on a borrowed thread ([`crate::attach`]).
//!
//! Before the loader has relocated the library and initialised thread-local storage (an IFUNC resolver may allocate
//! that early), a hook can do nothing but serve from the arena.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use tracehound_format::attach::DORMANT;
use tracehound_format::options::{self, LaunchOptions};
use tracehound_format::record::Kind;
use tracehound_lifecycle::{Finish, InheritedState};
use tracehound_shared::gate::{self, Internal};
use tracehound_shared::log;
use tracehound_shared::session;
use tracehound_shared::sys;

use crate::{api, arena, attach, environment, limits, loader, next, process, pymem};

static ANCHOR: u8 = 0;
/// A pointer that the loader must relocate.
static PROBE: Probe = Probe(&raw const ANCHOR);

struct Probe(*const u8);

// SAFETY: a constant.
unsafe impl Sync for Probe {}

const NOTHING: u32 = 0;
const RUNNING: u32 = 1;
const DONE: u32 = 2;
/// The library was loaded late: nothing begins by itself.
const LATE: u32 = 3;

static STAGE: AtomicU32 = AtomicU32::new(NOTHING);
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// The process in which a recorder that came late is ready; [`ANY_PROCESS`]: the one that it is in.
static READY_IN: AtomicU32 = AtomicU32::new(0);
const ANY_PROCESS: u32 = u32::MAX;
/// 1: the library was loaded late.
static BY_ATTACH: AtomicU32 = AtomicU32::new(0);
static CHILDREN: AtomicU32 = AtomicU32::new(0);
/// Options of a dormant recorder (`TRACEHOUND_START=off`), as they were given.
static ASLEEP: AtomicPtr<(LaunchOptions, Vec<String>)> = AtomicPtr::new(core::ptr::null_mut());
static WAKING: AtomicU32 = AtomicU32::new(0);
static PYTHON_OBJECTS: AtomicU32 = AtomicU32::new(0);

/// Whether the loader has relocated this library and prepared the thread's storage. It writes the first values of the
/// first thread only when all objects are relocated: before, thread-local variables read zero and what is stored there
/// is lost.
#[inline]
pub fn is_loaded() -> bool {
    // SAFETY: a static of ours.
    let probe = unsafe { (&raw const PROBE.0).read_volatile() };
    core::ptr::eq(probe, &raw const ANCHOR) && has_storage() && gate::slot().is_initialised()
}

/// Whether the calling thread has storage of the C library's. What `clone` makes with room of the program's own for it, as
/// Chromium does to leave its file system, has nothing there, and thread-local variables would be at no address.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_storage() -> bool {
    let itself: usize;
    // SAFETY: reads the first word of the thread's block, which is there where anything is, and its own address by the ABI.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) itself, options(nostack, preserves_flags, readonly)) };
    itself != 0
}

/// As on x86-64; there such a block has no word that says what it is.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
const fn has_storage() -> bool {
    true
}

/// Whether children are followed.
pub fn follows_children() -> bool {
    CHILDREN.load(Ordering::Relaxed) != 0
}

/// 1: the constructor has begun.
#[cfg(linked)]
static CONSTRUCTING: AtomicU32 = AtomicU32::new(0);

/// Whether the C library of the program, which allocates while it initialises itself, is still doing so. Nothing of the
/// recorder can begin before, and those blocks are not the program's.
#[cfg(linked)]
pub fn is_too_early() -> bool {
    if CONSTRUCTING.load(Ordering::Relaxed) != 0 {
        return false;
    }
    if next::malloc().is_none() {
        next::resolve();
    }
    true
}

/// Initialises at the first call; later ones return at once. False while another thread, or an outer call of this one,
/// initialises.
#[cold]
pub fn ensure() -> bool {
    #[cfg(linked)]
    if is_too_early() {
        return false;
    }
    match STAGE.compare_exchange(NOTHING, RUNNING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) if loader::came_late() => {
            let errno = errno();
            {
                let _internal = Internal::enter();
                BY_ATTACH.store(1, Ordering::Relaxed);
                next::resolve();
                process::register_fork_handlers();
                READY_IN.store(sys::process_id(), Ordering::Relaxed);
                attach::tracehound_attach.late.store(1, Ordering::Relaxed);
            }
            set_errno(errno);
            STAGE.store(LATE, Ordering::Release);
            return false;
        }
        Ok(_) => {}
        Err(DONE) => return true,
        Err(LATE) => return false,
        Err(_) if gate::is_internal() => return false,
        Err(_) => loop {
            match STAGE.load(Ordering::Acquire) {
                DONE => return true,
                LATE => return false,
                _ => sys::sleep(100_000),
            }
        },
    }
    let errno = errno();
    {
        let _internal = Internal::enter();
        next::resolve();
        #[cfg(not(linked))]
        crate::thread_count::resolve();
        begin(None);
        process::register_fork_handlers();
    }
    set_errno(errno);
    STAGE.store(DONE, Ordering::Release);
    true
}

/// Whether the library was loaded late.
pub fn is_late() -> bool {
    BY_ATTACH.load(Ordering::Relaxed) != 0
}

/// In the child of a fork whose handlers have run: the recorder's memory is there as it should be.
pub fn is_ready_in_child() {
    READY_IN.store(ANY_PROCESS, Ordering::Relaxed);
}

/// Whether the memory of a recorder that came late may be used in this process. In a child that was made past the handlers
/// of forks its allocator may be locked for ever, by a thread that is not there, or half made.
pub fn is_ready() -> bool {
    let pid = sys::process_id();
    let ready_in = READY_IN.load(Ordering::Relaxed);
    if ready_in == ANY_PROCESS {
        READY_IN.store(pid, Ordering::Relaxed);
    }
    !is_late() || ready_in == pid || ready_in == ANY_PROCESS
}

/// On a borrowed thread, in a library that was loaded late or sleeps: `set_up` makes the recording.
pub fn attach(set_up: impl FnOnce(bool) -> Result<(), String>) -> Result<(), String> {
    let is_asleep = !ASLEEP.load(Ordering::Acquire).is_null();
    let is_first = match STAGE.load(Ordering::Acquire) {
        LATE => true,
        DONE if is_late() || is_asleep => false,
        _ => return Err("the process was started with the recorder: `heaptrace ctl` starts and stops it".into()),
    };
    if WAKING.swap(1, Ordering::AcqRel) != 0 {
        return Err("the process is about to record by itself".into());
    }
    let outcome = set_up(is_first);
    WAKING.store(0, Ordering::Release);
    outcome?;
    if is_asleep {
        // Says in the recording which allocators of the program's are hooked.
        let _internal = Internal::enter();
        hook_inside_allocators();
    }
    STAGE.store(DONE, Ordering::Release);
    Ok(())
}

/// Makes sure that the ends of threads will be noticed.
pub fn watch_thread_ends() {
    let mut key = 0;
    // SAFETY: a valid place for the key, a function that lives as long as the library, which is never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_destructor)) } == 0 {
        KEY.store(key, Ordering::Release);
    }
}

/// Reads the options and starts recording.
pub fn begin(inherited: Option<&InheritedState>) {
    // The object that it lies in is the program.
    #[cfg(linked)]
    tracehound_record::nested::set_own_code(&loader::own_code());
    #[cfg(linked)]
    if inherited.is_none() && loader::keeps_out() {
        return gate::set(gate::PASS);
    }
    if inherited.is_none() {
        limits::make_room();
    }
    begin_by_options(inherited);
    if inherited.is_none() {
        limits::settle();
    }
}

fn begin_by_options(inherited: Option<&InheritedState>) {
    match LaunchOptions::parse(environment::get) {
        #[cfg(linked)]
        Ok(options) if inherited.is_none() && !loader::is_asked_for() => sleep(options, Vec::new()),
        Ok(options) => {
            CHILDREN.store(u32::from(options.children), Ordering::Relaxed);
            if options.allocator == options::AllocatorChoice::Jemalloc {
                next::use_bundled_allocator();
            }
            PYTHON_OBJECTS.store(u32::from(options.python_objects), Ordering::Relaxed);
            let signal = options.toggle_signal;
            let given = given();
            if inherited.is_none() && options.is_dormant() {
                return sleep(options, given);
            }
            tracehound_lifecycle::start(options, given, inherited);
            hook_inside_allocators();
            if let Some(signal) = signal {
                api::install_toggle(signal);
            }
        }
        Err(bad) => {
            log::init(options::LogLevel::Warn);
            log::error(&format!("{bad}; the program runs unrecorded"));
            gate::set(gate::PASS);
        }
    }
}

/// Hooks allocators that the program carries inside itself, where that is known how to do.
fn hook_inside_allocators() {
    #[cfg(all(target_arch = "x86_64", not(linked)))]
    crate::statics::install();
}

/// Makes the recorder dormant until a recording is requested: no file, no memory for events, no thread.
fn sleep(options: LaunchOptions, given: Vec<String>) {
    log::init(options.log);
    ASLEEP.store(Box::into_raw(Box::new((options, given))), Ordering::Release);
    attach::tracehound_attach.dormant.store(1, Ordering::Release);
    gate::set(gate::PASS);
    hook_inside_allocators();
}

/// Whether the recorder is dormant.
pub fn is_asleep() -> bool {
    !ASLEEP.load(Ordering::Acquire).is_null()
}

/// Sets up the recording of a dormant recorder, switched off. Called on a thread that may call anything: one of the
/// program's that requests it, or a borrowed one.
pub fn wake() {
    // SAFETY: null, or options that are never given back.
    let Some((options, given)) = (unsafe { ASLEEP.load(Ordering::Acquire).as_ref() }) else { return };
    if session::current().is_some() || WAKING.swap(1, Ordering::AcqRel) != 0 {
        return;
    }
    // A recording by `heaptrace attach` that has ended and has not been given back yet is still in the way.
    if attach::tracehound_attach.state.load(Ordering::Acquire) != DORMANT || session::current().is_some() {
        WAKING.store(0, Ordering::Release);
        return;
    }
    let errno = errno();
    {
        let _internal = Internal::enter();
        limits::make_room();
        tracehound_lifecycle::start(options.clone(), given.clone(), None);
        hook_inside_allocators();
        tracehound_lifecycle::prepare_unwinder();
        tracehound_lifecycle::start_writer();
        limits::settle();
    }
    set_errno(errno);
    attach::tracehound_attach.dormant.store(0, Ordering::Release);
    ASLEEP.store(core::ptr::null_mut(), Ordering::Release);
}

/// The variables that differ from their defaults, as they were given.
fn given() -> Vec<String> {
    given_by(environment::get)
}

/// The same, of variables that `get` knows.
pub fn given_by<'a>(get: impl Fn(&str) -> Option<&'a [u8]>) -> Vec<String> {
    let mut list = Vec::new();
    for name in options::NAMES {
        let Some(value) = get(name).filter(|value| !value.is_empty()) else { continue };
        let alone = LaunchOptions::parse(|other| if other == name { Some(value) } else { None });
        if alone != Ok(LaunchOptions::default()) {
            list.push(format!("{name}={}", String::from_utf8_lossy(value)));
        }
    }
    list
}

/// The library's constructor: libc is ready, the program's own code has not begun.
extern "C" fn construct() {
    #[cfg(linked)]
    CONSTRUCTING.store(1, Ordering::Relaxed);
    if !ensure() {
        return;
    }
    #[cfg(linked)]
    if loader::is_out() {
        return;
    }
    let errno = errno();
    {
        let _internal = Internal::enter();
        watch_thread_ends();
        process::register();
        #[cfg(not(linked))]
        loader::look_at_first_malloc();
        pymem::begin(PYTHON_OBJECTS.load(Ordering::Relaxed) != 0);
        if follows_children() {
            environment::remember();
        } else {
            environment::leave_preload();
            #[cfg(linked)]
            environment::leave_variables();
        }
        tracehound_lifecycle::prepare_unwinder();
        tracehound_lifecycle::start_writer();
    }
    set_errno(errno);
    arm();
}

// In a program the linker sorts by these numbers: ours comes before the program's own.
#[used]
#[cfg_attr(not(linked), unsafe(link_section = ".init_array"))]
#[cfg_attr(linked, unsafe(link_section = ".init_array.00000"))]
static CONSTRUCTOR: extern "C" fn() = construct;

/// Makes sure that the calling thread's end will be noticed.
pub fn arm() {
    let key = KEY.load(Ordering::Acquire);
    let slot = gate::slot();
    if key != u32::MAX && slot.armed.get() == 0 {
        slot.armed.set(1);
        let errno = errno();
        let _internal = Internal::enter();
        // SAFETY: the key exists; any value but null makes libc call the destructor.
        unsafe { libc::pthread_setspecific(key, core::ptr::without_provenance(1)) };
        set_errno(errno);
    }
}

/// Runs among the thread's pthread destructors. Others may still allocate: the thread is given up in the last round.
unsafe extern "C" fn thread_destructor(_: *mut c_void) {
    const ROUNDS: u32 = 4;
    let slot = gate::slot();
    let round = slot.rounds.get() + 1;
    slot.rounds.set(round);
    if round < ROUNDS {
        let _internal = Internal::enter();
        // SAFETY: the key exists, as this is its destructor; any value but null makes libc call the destructor again.
        unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed), core::ptr::without_provenance(1)) };
        return;
    }
    tracehound_lifecycle::thread_ends();
}

/// Records blocks that the program took before it could be recorded.
pub fn record_early_blocks() {
    static DONE_ONCE: AtomicU32 = AtomicU32::new(0);
    if DONE_ONCE.swap(1, Ordering::AcqRel) == 0 {
        arena::program_blocks(|block, size| {
            tracehound_record::record::without_stack(Kind::Malloc, block as u64, size);
        });
    }
}

/// Ends the recording because the process does.
pub extern "C" fn finish() {
    let errno = errno();
    pymem::tell();
    tracehound_lifecycle::finish(Finish::Exit);
    set_errno(errno);
}

/// The process id of the recording, 0 without one.
pub fn recorded_pid() -> u32 {
    session::current().map_or(0, |session| session.pid)
}

/// The calling thread's errno.
pub fn errno() -> c_int {
    // SAFETY: libc's own place for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
pub fn set_errno(value: c_int) {
    // SAFETY: libc's own place for the calling thread.
    unsafe { *libc::__errno_location() = value };
}
