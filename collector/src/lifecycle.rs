//! Start, fork, exec, stop and end of a recording: puts the hot path, the shared state and the writer together.
//!
//! Lock order: the writer's lock, then a thread's chunk lock, then the pool's or the notes'. Threads of the program take
//! the writer's lock only when the writer's own thread does not exist.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tracehound_format::meta::{ClockSample, ClockSource, EndReason, Process};
use tracehound_format::options::Options;
use tracehound_format::record::Kind;

use crate::background::file::RecordingFile;
use crate::background::live_blocks::LiveBlock;
use crate::background::output::{self, Output};
use crate::background::writer::{Facts, Writer};
use crate::hot::unwind::{self, Caller};
use crate::hot::{attach, clock, record};
use crate::shared::call_tree::CallTree;
use crate::shared::gate::{self, Internal};
use crate::shared::lock::Lock;
use crate::shared::pool::Pool;
use crate::shared::session::{self, Notes, Retired, Session};
use crate::shared::side_file::{Owner, SideMemory};
use crate::shared::sys::{self, Errno};
use crate::shared::thread::RECORDING;
use crate::shared::threads::Threads;
use crate::shared::{chunk, log};

/// Call-tree nodes that the recorder has room for; their memory is committed as they are made.
const MAX_NODES: u32 = 1 << 24;

enum WriterState {
    None,
    /// The files are there; the first round starts the recording in them.
    Pending(Option<Box<(Output, Facts)>>),
    Running(Box<Writer>),
}

static WRITER: Lock<WriterState> = Lock::new(WriterState::None);
/// What the writer shall do next, besides writing.
static COMMAND: AtomicU32 = AtomicU32::new(NO_COMMAND);
/// Counts the commands that the writer has carried out.
static CARRIED_OUT: AtomicU32 = AtomicU32::new(0);

const NO_COMMAND: u32 = 0;
const FINISH_EXIT: u32 = 1;
const FINISH_EXEC: u32 = 2;
const RESUME: u32 = 3;
const SUSPEND: u32 = 4;
/// 1 once the writer's thread has left the program's descriptor table, or cannot.
static WRITER_APART: AtomicU32 = AtomicU32::new(0);

/// Starts recording in this process: creates the files and opens the gate. Without success the gate lets everything
/// pass, and one line on stderr says why. Only memory and files: needs nothing of libc that constructors set up.
///
/// `given` are the options as the user wrote them, `NAME=value`, those that differ from their defaults.
pub fn start(options: Options, given: Vec<String>, heritage: Option<&Heritage>) {
    log::init(options.log);
    match prepare(options, given, heritage) {
        Ok(recording) => gate::set(if recording { gate::RECORDING } else { gate::PASS }),
        Err(text) => {
            log::error(&format!("{text}; the program runs unrecorded"));
            gate::set(gate::PASS);
        }
    }
}

fn prepare(options: Options, given: Vec<String>, heritage: Option<&Heritage>) -> Result<bool, String> {
    let forked_from = heritage.map(|heritage| heritage.recording_id);
    let signals = sys::SignalsBlocked::new();
    unwind::init();
    let source = clock::init();
    let pid = sys::process_id();
    let executable = sys::read_link(c"/proc/self/exe").unwrap_or_default();
    let file_name = executable.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
    let sample = clock::sample();
    let unix_seconds = sample.realtime_ns / 1_000_000_000;
    let output = output::create(&options.output, &file_name, pid, unix_seconds)
        .map_err(|failure| format!("{}: {}", String::from_utf8_lossy(&failure.path), failure.error))?;
    let mut recording_id = [0; 16];
    if sys::random(&mut recording_id).is_err() {
        // Too early in the machine's life for random numbers: time and process id must do.
        let (head, tail) = recording_id.split_at_mut(8);
        head.copy_from_slice(&sample.realtime_ns.to_ne_bytes());
        tail.copy_from_slice(&(u64::from(pid) << 32 | sample.ticks & 0xffff_ffff).to_ne_bytes());
    }
    let discard = |output: &Output| {
        let _ = sys::unlink_at(output.directory, &output.side_name);
        let _ = sys::unlink_at(output.directory, &output.name);
        for fd in [output.file, output.side_file, output.directory] {
            sys::close(fd);
        }
    };
    let max_nodes = nodes_within_limits();
    let chunks = u32::try_from(options.buffer_bytes / chunk::CHUNK_BYTES as u64).unwrap_or(u32::MAX).max(2);
    let owner = Owner { pid, recording_id, process_start: output::process_start(pid) };
    let mut remark = None;
    let side = SideMemory::in_file(output.side_file, chunks, u64::from(max_nodes), &owner).or_else(|error| {
        signals.forget_size_signal();
        let text = format!("no side file ({error}): a kill loses what is not in the recording yet");
        remark = Some(text);
        SideMemory::in_private_memory(chunks)
    });
    let side = match side {
        Ok(side) => side,
        Err(error) => {
            discard(&output);
            return Err(format!("no memory for chunks: {error}"));
        }
    };
    let tree = match heritage {
        Some(heritage) => heritage.tree,
        None => match CallTree::create(max_nodes) {
            Some(mut tree) => {
                tree.set_mirror(mirror);
                Box::leak(Box::new(tree))
            }
            None => {
                discard(&output);
                return Err("no memory for the call tree".into());
            }
        },
    };
    // SAFETY: the chunks lie at this address, zeroed and mapped for ever; the header is theirs.
    let pool = unsafe { Pool::new(side.first_chunk(), side.header(), side.is_shared(), side.chunks()) };
    let facts = Facts {
        process: process_record(given, pid, executable, &sample, forked_from),
        source: clock_source(source),
        shift: clock::SHIFT as u8,
        clock_note: clock_note(source).into(),
        clock: clock_sample,
        now: clock::now_after_alloc,
    };
    let start = options.start;
    let session = session::install(Session {
        number: session::new_number(),
        pid,
        options,
        recording_id,
        forked_from,
        started_tick: sample.ticks,
        started_unix_ns: sample.realtime_ns,
        tree,
        pool,
        threads: Threads::default(),
        side,
        notes: Lock::new(Notes::default()),
        writer_alive: AtomicBool::new(false),
        writer_thread: AtomicU32::new(0),
        leftovers: Lock::new(Vec::new()),
        has_leftovers: AtomicBool::new(false),
        flush_wanted: AtomicU32::new(0),
        flush_done: AtomicU32::new(0),
        names_changed: AtomicBool::new(false),
        marks: AtomicU64::new(0),
        main_gone: AtomicBool::new(false),
        retired: Retired::default(),
        drive,
        unwinder_figures: attach::unwinder_figures,
    });
    if let Some(text) = remark {
        session.remark(sample.ticks, "no-side-file", text);
    }
    if !sys::barrier_register() {
        session.remark(
            sample.ticks,
            "no-membarrier",
            "the kernel has no membarrier: watermarks rely on a pause".into(),
        );
    }
    *WRITER.lock() = WriterState::Pending(Some(Box::new((output, facts))));
    Ok(start)
}

/// Nodes for which address space is taken: fewer under a limit of the address space, which is the program's.
fn nodes_within_limits() -> u32 {
    let limit = sys::resource_limit(libc::RLIMIT_AS);
    let nodes = limit / 16 / (CallTree::NODE_BYTES as u64 + 16);
    u32::try_from(nodes).unwrap_or(u32::MAX).clamp(1 << 16, MAX_NODES)
}

fn mirror(id: u32, node: crate::shared::call_tree::Node) {
    if let Some(session) = session::current() {
        let node = tracehound_format::nodes::Node { parent: node.parent, pc: node.pc, generation: node.generation };
        session.side.mirror(id, node);
    }
}

fn process_record(
    given: Vec<String>,
    pid: u32,
    executable: Vec<u8>,
    sample: &clock::Sample,
    forked_from: Option<[u8; 16]>,
) -> Process {
    let line = sys::read_file(libc::AT_FDCWD, c"/proc/self/cmdline").unwrap_or_default();
    let mut arguments: Vec<Vec<u8>> = line.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    if line.last() == Some(&0) {
        arguments.pop();
    }
    // SAFETY: getauxval reads the process's own auxiliary vector.
    let page_bytes = unsafe { libc::getauxval(libc::AT_PAGESZ) } as u32;
    Process {
        pid,
        parent_pid: sys::parent_id(),
        executable,
        arguments,
        directory: sys::working_directory().unwrap_or_default(),
        started_unix_ns: sample.realtime_ns,
        started_tick: sample.ticks,
        page_bytes,
        recorder: env!("CARGO_PKG_VERSION").into(),
        options: given,
        forked_from,
    }
}

fn clock_source(source: clock::Source) -> ClockSource {
    match source {
        clock::Source::Monotonic => ClockSource::Monotonic,
        clock::Source::Counter if cfg!(target_arch = "aarch64") => ClockSource::Cntvct,
        clock::Source::Counter => ClockSource::Tsc,
    }
}

fn clock_note(source: clock::Source) -> &'static str {
    match source {
        clock::Source::Counter => "the processor's counter, invariant",
        clock::Source::Monotonic => {
            "CLOCK_MONOTONIC: the processor's counter is missing, not invariant or not trusted by the kernel"
        }
    }
}

fn clock_sample() -> ClockSample {
    let sample = clock::sample();
    ClockSample { tick: sample.ticks, monotonic_ns: sample.monotonic_ns, realtime_ns: sample.realtime_ns }
}

/// The stack of the writer's thread; 0 before the first one.
static WRITER_STACK: AtomicUsize = AtomicUsize::new(0);
const STACK_BYTES: usize = 1 << 20;

/// Starts the writer's thread. libc must be ready for threads, and no earlier writer's thread may be left.
pub fn start_writer() {
    let Some(session) = session::current() else { return };
    if session.writer_alive.swap(true, Ordering::AcqRel) {
        return;
    }
    let _internal = Internal::enter();
    if WRITER_STACK.load(Ordering::Relaxed) == 0 {
        let stack = sys::map_memory(STACK_BYTES).map_or(0, |stack| stack as usize);
        WRITER_STACK.store(stack, Ordering::Relaxed);
    }
    let stack = WRITER_STACK.load(Ordering::Relaxed);
    WRITER_APART.store(0, Ordering::Release);
    if stack == 0 || !create_thread(session, stack) {
        // The threads of the program will write when they run out of chunks, and at the end.
        session.writer_alive.store(false, Ordering::Release);
        let text = "no thread for the writer: the program's own threads write";
        session.remark(clock::now_after_alloc(), "no-writer-thread", text.into());
        return;
    }
    // When the program's code begins, its descriptor table is its own again: nothing it puts in the place of our
    // descriptors can be written to. The wait is short and bounded: should the thread not get to run, checks of what our
    // descriptors stand for must do.
    for _ in 0..20 {
        if WRITER_APART.load(Ordering::Acquire) != 0 {
            break;
        }
        sys::futex_wait(&WRITER_APART, 0, 10_000_000);
    }
    session.close_leftovers();
}

fn create_thread(session: &'static Session, stack: usize) -> bool {
    // SAFETY: plain calls with valid arguments. The lowest page becomes a guard. pthread_sigmask, unlike the system call,
    // leaves the two signals alone that libc needs for setuid and cancellation.
    unsafe {
        libc::mprotect(stack as *mut c_void, 4096, libc::PROT_NONE);
        let mut attributes = core::mem::zeroed::<libc::pthread_attr_t>();
        let (mut all, mut before) = (core::mem::zeroed::<libc::sigset_t>(), core::mem::zeroed());
        libc::sigfillset(&raw mut all);
        let mut thread = core::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstack(&raw mut attributes, stack as *mut c_void, STACK_BYTES);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let argument = core::ptr::from_ref(session).cast_mut().cast();
        let result = libc::pthread_create(&raw mut thread, &raw const attributes, writer_main, argument);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        result == 0
    }
}

/// Makes a call that the kernel refuses a process with several threads, or whose working directory another thread
/// shares, such as entering another user namespace: the writer's thread ends before and begins anew after it.
pub fn without_writer<T>(call: impl FnOnce() -> T) -> T {
    let session = session::current().filter(|session| session.pid == sys::process_id());
    let Some(session) = session.filter(|session| session.writer_alive.load(Ordering::Acquire)) else { return call() };
    {
        let _internal = Internal::enter();
        command(session, SUSPEND);
        let writer = session.writer_thread.load(Ordering::Acquire);
        for _ in 0..2000 {
            if !sys::thread_exists(session.pid, writer) {
                break;
            }
            sys::sleep(500_000);
        }
    }
    let result = call();
    if !sys::thread_exists(session.pid, session.writer_thread.load(Ordering::Acquire)) {
        // SAFETY: libc's own place for the calling thread.
        let errno = unsafe { *libc::__errno_location() };
        start_writer();
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    result
}

extern "C" fn writer_main(argument: *mut c_void) -> *mut c_void {
    gate::slot().internal.set(1);
    sys::set_thread_name(c"tracehound-wr");
    // SAFETY: `start_writer` passes a session, which is never freed.
    let session = unsafe { &*argument.cast::<Session>() };
    session.writer_thread.store(sys::thread_id(), Ordering::Release);
    guarded(session, || leave_descriptor_table(session));
    WRITER_APART.store(1, Ordering::Release);
    sys::futex_wake(&WRITER_APART, 1);
    loop {
        let mut rest = 100_000_000;
        let ended = guarded(session, || {
            let mut state = WRITER.lock();
            let Some(writer) = running(&mut state, session) else { return true };
            serve(writer);
            rest = writer.rest_ns();
            writer.has_ended_for_good() || writer.is_suspended()
        });
        if ended || (session.main_gone.load(Ordering::Acquire) && alone()) {
            break;
        }
        session.pool.sleep(if session.main_gone.load(Ordering::Relaxed) { 2_000_000 } else { rest });
    }
    session.writer_alive.store(false, Ordering::Release);
    core::ptr::null_mut()
}

/// Runs a piece of the writer; should it panic, recording stops and the program goes on.
fn guarded<T: Default + From<bool>>(session: &'static Session, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        gate::change(gate::RECORDING, gate::PASS);
        session.writer_alive.store(false, Ordering::Release);
        log::error("the writer failed; recording stops here, the program goes on");
        CARRIED_OUT.fetch_add(1, Ordering::SeqCst);
        T::from(true)
    })
}

/// The writer, started if it was pending.
fn running<'a>(state: &'a mut WriterState, session: &'static Session) -> Option<&'a mut Writer> {
    if let WriterState::Pending(files) = state {
        let (output, facts) = *files.take()?;
        let path = output.path.clone();
        let writer = RecordingFile::new(output).and_then(|file| Writer::new(session, facts, file));
        match writer {
            Ok(writer) => *state = WriterState::Running(Box::new(writer)),
            Err(error) => {
                *state = WriterState::None;
                failed(&path, error);
            }
        }
    }
    match state {
        WriterState::Running(writer) => Some(writer),
        _ => None,
    }
}

#[cold]
fn failed(path: &std::ffi::CStr, error: Errno) {
    gate::change(gate::RECORDING, gate::PASS);
    log::error(&format!("{}: {error}; the program runs unrecorded", path.to_string_lossy()));
}

/// What is wanted of the writer: a command, or a round.
fn serve(writer: &mut Writer) {
    match COMMAND.swap(NO_COMMAND, Ordering::AcqRel) {
        NO_COMMAND => return writer.round(),
        FINISH_EXIT => writer.finish(EndReason::Exit),
        FINISH_EXEC => writer.finish(EndReason::Exec),
        SUSPEND => writer.suspend(),
        _ => writer.resume(),
    }
    CARRIED_OUT.fetch_add(1, Ordering::SeqCst);
    sys::futex_wake(&CARRIED_OUT, i32::MAX);
}

/// Has the writer carry out a command, and waits for it.
fn command(session: &'static Session, command: u32) {
    let before = CARRIED_OUT.load(Ordering::SeqCst);
    COMMAND.store(command, Ordering::SeqCst);
    loop {
        if !session.writer_alive.load(Ordering::Acquire) {
            drive(session);
            // Without a writer there is nothing to finish: recording never began, or it failed.
            COMMAND.store(NO_COMMAND, Ordering::SeqCst);
            return;
        }
        session.pool.ring();
        sys::futex_wait(&CARRIED_OUT, before, 50_000_000);
        if CARRIED_OUT.load(Ordering::SeqCst) != before {
            return;
        }
        check_writer(session);
    }
}

/// Notices when the writer's thread is gone.
fn check_writer(session: &Session) {
    let writer = session.writer_thread.load(Ordering::Relaxed);
    if writer != 0 && !sys::thread_exists(session.pid, writer) {
        session.writer_alive.store(false, Ordering::Release);
    }
}

/// Gives the writer's thread a descriptor table of its own: the program cannot close ours, nor are its descriptors kept
/// open by us. What remains in the program's table is closed by its threads, later.
fn leave_descriptor_table(session: &'static Session) -> bool {
    let mut state = WRITER.lock();
    let Some(writer) = running(&mut state, session) else { return true };
    writer.go_on();
    sys::own_directory();
    let descriptors = writer.descriptors();
    let mut numbers: Vec<i32> = descriptors.iter().map(|(fd, _)| *fd).collect();
    // Messages still need stderr.
    numbers.push(2);
    if sys::own_descriptor_table(&mut numbers) {
        writer.file().table_is_private();
        *session.leftovers.lock() = descriptors;
        session.has_leftovers.store(true, Ordering::Release);
    }
    true
}

/// Whether no other thread of the process lives: the main thread has gone by pthread_exit and waits for the rest.
fn alone() -> bool {
    let own = sys::thread_id();
    let Ok(status) = sys::read_file(libc::AT_FDCWD, c"/proc/self/stat") else { return false };
    let Some(at) = status.iter().rposition(|&byte| byte == b')') else { return false };
    let fields = status.get(at + 2..).unwrap_or_default().split(|&byte| byte == b' ');
    // Field 20: threads, the gone main thread included.
    let threads = fields.clone().nth(17).and_then(|text| std::str::from_utf8(text).ok()?.parse::<u32>().ok());
    let _ = own;
    threads.is_some_and(|threads| threads <= 2)
}

/// A round of the writer on the calling thread, if nobody else has it.
fn drive(session: &'static Session) {
    if let Some(mut state) = WRITER.try_lock()
        && let Some(writer) = running(&mut state, session)
    {
        serve(writer);
    }
}

/// Stops all other threads at their next event, so that nothing completes any more that would not be in the file.
fn freeze(session: &Session) {
    let slot = gate::slot();
    slot.exempt.set(1);
    gate::set(gate::FROZEN);
    let own = slot.context.get();
    for context in session.threads.iter() {
        if !core::ptr::eq(own, context) && context.is_in_use() {
            let _held = context.lock_chunks();
            context.limit.store(0, Ordering::Relaxed);
        }
    }
    sys::barrier();
    // Threads that had room before are now in the last nanoseconds of an event, unless they wait for a processor.
    for attempt in 0..200_u64 {
        let busy = session.threads.iter().any(|context| {
            !core::ptr::eq(own, context)
                && context.is_in_use()
                && context.mode() == RECORDING
                && context.parked.load(Ordering::SeqCst) == 0
        });
        if !busy {
            return;
        }
        sys::sleep(20_000 * (attempt / 8 + 1));
    }
}

/// Why the recording is to be finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// The process ends.
    Exit,
    /// The process is about to exec.
    Exec,
}

/// Finishes the recording; other threads wait at their next event. True if there was one to finish.
pub fn finish(reason: Finish) -> bool {
    let Some(session) = session::current() else { return false };
    if session.pid != sys::process_id() || !matches!(gate::state(), gate::RECORDING | gate::PASS) {
        return false;
    }
    let _internal = Internal::enter();
    let was = gate::state();
    freeze(session);
    command(session, if reason == Finish::Exec { FINISH_EXEC } else { FINISH_EXIT });
    if was == gate::PASS {
        gate::set(gate::PASS);
    }
    true
}

/// The exec for which the recording was finished has failed: it goes on.
pub fn resume() {
    let Some(session) = session::current() else { return };
    let _internal = Internal::enter();
    command(session, RESUME);
    gate::slot().exempt.set(0);
    gate::change(gate::FROZEN, gate::RECORDING);
    session.pool.ring();
}

/// What a followed child takes over from its parent.
pub struct Heritage {
    /// The parent's recording.
    pub recording_id: [u8; 16],
    /// The call tree: the child's copy of it goes on with the same ids.
    tree: &'static CallTree,
    /// The blocks that were alive at the fork.
    blocks: Vec<LiveBlock>,
}

static FORK_HELD: AtomicBool = AtomicBool::new(false);

/// Before a fork whose child will be followed: everything is in the file, the writer and all other threads stand still,
/// so that the child finds a consistent picture of its heritage.
pub fn before_followed_fork() {
    let Some(session) = session::current() else { return };
    if session.pid != sys::process_id() || gate::state() != gate::RECORDING || gate::is_internal() {
        return;
    }
    let _internal = Internal::enter();
    session.close_leftovers();
    freeze(session);
    flush();
    WRITER.hold();
    FORK_HELD.store(true, Ordering::SeqCst);
}

/// In the parent, after such a fork.
pub fn after_followed_fork() {
    if FORK_HELD.swap(false, Ordering::SeqCst) {
        // SAFETY: held by this thread since `before_followed_fork`.
        unsafe { WRITER.release() };
        gate::slot().exempt.set(0);
        gate::change(gate::FROZEN, gate::RECORDING);
    }
}

/// In a forked child: forgets the parent's recording. Gives what there is to take over.
pub fn forget_in_child() -> Option<Heritage> {
    let slot = gate::slot();
    gate::set(gate::PASS);
    slot.context.set(core::ptr::null_mut());
    slot.exempt.set(0);
    let session = session::current()?;
    let mut blocks = Vec::new();
    if FORK_HELD.swap(false, Ordering::SeqCst) {
        // SAFETY: held by this thread since `before_followed_fork`; the parent's other threads do not exist here.
        if let WriterState::Running(writer) = unsafe { WRITER.held() } {
            blocks = writer.live_blocks();
        }
    }
    // SAFETY: the child of a fork has one thread, this one.
    unsafe { WRITER.abandon(WriterState::None) };
    COMMAND.store(NO_COMMAND, Ordering::SeqCst);
    session::forget();
    Some(Heritage { recording_id: session.recording_id, tree: session.tree, blocks })
}

/// Records what a followed child has inherited, on its only thread.
pub fn record_heritage(heritage: &Heritage) {
    for block in &heritage.blocks {
        record::inherited(block.address, block.size, block.node);
    }
}

/// Starts recording again after [`stop`] or `TRACEHOUND_START=off`; at once.
///
/// # Safety
/// `caller` must be the state of a caller on the calling thread.
pub unsafe fn resume_recording(caller: Caller) {
    let has_ended = session::current().is_none_or(|session| session.pid != sys::process_id());
    if !has_ended && gate::change(gate::PASS, gate::RECORDING) {
        // SAFETY: passed on.
        unsafe { record::single(caller, Kind::CaptureStart, 0, 0) };
    }
}

/// Stops recording until [`resume_recording`]; at once.
///
/// # Safety
/// As for [`resume_recording`].
pub unsafe fn stop(caller: Caller) {
    if gate::state() == gate::RECORDING {
        // SAFETY: passed on.
        unsafe { record::single(caller, Kind::CaptureStop, 0, 0) };
        gate::change(gate::RECORDING, gate::PASS);
    }
}

/// Sets a mark with a label.
///
/// # Safety
/// As for [`resume_recording`].
pub unsafe fn mark(caller: Caller, label: &[u8]) {
    let Some(session) = session::current().filter(|_| gate::state() == gate::RECORDING) else { return };
    let ordinal = session.marks.fetch_add(1, Ordering::Relaxed);
    // SAFETY: passed on.
    let Some(thread) = (unsafe { record::single(caller, Kind::Mark, ordinal, 0) }) else { return };
    let _internal = Internal::enter();
    let label = label.get(..label.len().min(4096)).unwrap_or_default().to_vec();
    session.notes.lock().marks.push((ordinal, thread, clock::now_after_alloc(), label));
}

/// Waits until everything recorded so far is in the file, at most two seconds.
pub fn flush() {
    let Some(session) = session::current().filter(|session| session.pid == sys::process_id()) else { return };
    let _internal = Internal::enter();
    let request = session.flush_wanted.fetch_add(1, Ordering::AcqRel) + 1;
    for _ in 0..100 {
        let done = session.flush_done.load(Ordering::Acquire);
        if done.wrapping_sub(request) as i32 >= 0 {
            return;
        }
        if session.writer_alive.load(Ordering::Acquire) {
            session.pool.ring();
            sys::futex_wait(&session.flush_done, done, 20_000_000);
        } else {
            drive(session);
        }
    }
}

/// The calling thread ends.
pub fn thread_ends() {
    let Some(session) = session::current() else { return };
    if session.pid == sys::process_id() {
        if sys::thread_id() == session.pid {
            session.main_gone.store(true, Ordering::Release);
        }
        attach::thread_ends();
    }
}
