//! The writer's thread: its creation, its commands, and which thread writes when it does not exist.

use core::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracehound_shared::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tracehound_format::meta::EndReason;

use super::{attached, capture_control, control, credentials, frame_loader};
use tracehound_background::file::RecordingFile;
use tracehound_background::output::Output;
use tracehound_background::writer::{ProcessFacts, RecordingWriter};
use tracehound_shared::clock;
use tracehound_shared::gate::{self, Internal};
use tracehound_shared::lock::Lock;
use tracehound_shared::log;
use tracehound_shared::session::{self, Session};
use tracehound_shared::sys::{self, Errno};

enum WriterState {
    None,
    /// The files exist; the first round starts the recording in them.
    Pending(Option<Box<(Output, ProcessFacts)>>),
    Running(Box<RecordingWriter>),
}

static WRITER: Lock<WriterState> = Lock::new(WriterState::None);
/// 1 when the control socket was closed for an exec: should that fail, it opens again.
static SOCKET_WANTED: AtomicU32 = AtomicU32::new(0);
/// Command that the writer carries out next.
static COMMAND: AtomicU32 = AtomicU32::new(NO_COMMAND);
/// Counts the commands that the writer has carried out.
static CARRIED_OUT: AtomicU32 = AtomicU32::new(0);

const NO_COMMAND: u32 = 0;
pub(super) const FINISH_EXIT: u32 = 1;
pub(super) const FINISH_EXEC: u32 = 2;
const SUSPEND: u32 = 4;
/// Longest wait for a writer that is to end for a while.
const SUSPEND_NS: u64 = 3_000_000_000;
pub(super) const FINISH_STOPPED: u32 = 5;
/// 1 once the writer's thread has left the program's descriptor table, or has failed to.
static WRITER_APART: AtomicU32 = AtomicU32::new(0);

/// Sets the files of the recording: the writer's first round starts it in them.
pub(super) fn set_pending(output: Output, facts: ProcessFacts) {
    let bytes = output.path.to_bytes();
    if let Ok(mut path) = PATH.try_lock().ok_or(()) {
        let len = bytes.len().min(MAX_PATH);
        if let (Some(to), Some(from)) = (path.bytes.get_mut(..len), bytes.get(..len)) {
            to.copy_from_slice(from);
            path.len = len;
        }
    }
    *WRITER.lock() = WriterState::Pending(Some(Box::new((output, facts))));
}

/// The recording's path, for messages while the writer is stuck.
#[derive(Clone, Copy)]
pub(super) struct RecordingPath {
    bytes: [u8; MAX_PATH],
    len: usize,
}

impl RecordingPath {
    /// The path; empty if it is not known.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

const MAX_PATH: usize = 400;
static PATH: Lock<RecordingPath> = Lock::new(RecordingPath { bytes: [0; MAX_PATH], len: 0 });

/// The recording's path. Needs no memory and no lock.
pub(super) fn path() -> RecordingPath {
    PATH.try_lock().map_or(RecordingPath { bytes: [0; MAX_PATH], len: 0 }, |path| *path)
}

/// In a forked child: forgets the parent's writer, whatever it was doing. Data that it was changing belongs to it or
/// to the session, which the child makes anew; the heap is consistent, by its own fork handlers.
///
/// # Safety
/// The calling thread must be the child's only one.
pub(super) unsafe fn forget_writer() {
    // SAFETY: the calling thread is the child's only one: the contract of `forget_writer`.
    unsafe {
        WRITER.abandon(WriterState::None);
        PATH.abandon(RecordingPath { bytes: [0; MAX_PATH], len: 0 });
        credentials::forget();
    }
    COMMAND.store(NO_COMMAND, Ordering::SeqCst);
    control::forget();
    capture_control::forget();
}

/// Loads the unwind information that the program is known to need from files, before its own code begins.
pub(super) fn load_first_frames() {
    let _writer = WRITER.lock();
    frame_loader::begin();
}

/// The stack of the writer's thread; 0 before the first one.
static WRITER_STACK: AtomicUsize = AtomicUsize::new(0);
const STACK_BYTES: usize = 1 << 20;
/// Longest wait for the writer's first block, and for its leaving of the program's descriptor table.
const BEGIN_NS: u64 = 500_000_000;

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
        session.remark(clock::now(), "no-writer-thread", text.into());
        return;
    }
    // When the program's code begins, the first block is in the file, so that a recording of a program that is killed at
    // once has names. The program's descriptor table no longer has our descriptors, so it cannot write to our files
    // by reused
    // numbers. The wait is short and bounded: if the thread does not run in time, the identities of descriptors are
    // checked.
    let started = sys::clock(libc::CLOCK_MONOTONIC);
    while WRITER_APART.load(Ordering::Acquire) == 0 {
        let waited = sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(started);
        if waited > BEGIN_NS {
            session.give_up("start-writer", waited, 0, false);
            break;
        }
        sys::futex_wait(&WRITER_APART, 0, 10_000_000);
    }
    session.close_leftovers();
}

fn create_thread(session: &'static Session, stack: usize) -> bool {
    // SAFETY: plain calls with valid arguments. The lowest page becomes a guard. pthread_sigmask, unlike the system
    // call, leaves the two signals alone that libc needs for setuid and cancellation.
    unsafe {
        sys::protect(stack as *mut u8, 4096, false);
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
    if !super::fork_exec_exit::is_free(session, "the recording ends before the program enters other namespaces") {
        super::end_early("the program enters other namespaces behind a seccomp filter");
        return call();
    }
    {
        let _internal = Internal::enter();
        if let Err(waited) = end_writer(session) {
            session.give_up("suspend-writer", waited, 0, false);
        }
    }
    let result = call();
    if !sys::thread_exists(session.pid, session.writer_thread.load(Ordering::Acquire)) {
        // SAFETY: libc's own place for the calling thread.
        let errno = unsafe { *libc::__errno_location() };
        start_writer();
        // SAFETY: libc's own place for the calling thread.
        unsafe { *libc::__errno_location() = errno };
    }
    result
}

/// Whether the writer has a thread of its own.
pub fn has_writer() -> bool {
    session::current().is_some_and(|session| session.writer_alive.load(Ordering::Acquire))
}

/// Waits for the end of the writer's thread, at most a second.
pub(super) fn wait_for_end(session: &Session) {
    let writer = session.writer_thread.load(Ordering::Acquire);
    for _ in 0..2000 {
        if !sys::thread_exists(session.pid, writer) {
            break;
        }
        sys::sleep(500_000);
    }
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
        credentials::serve(session);
        let mut rest = 100_000_000;
        let ended = guarded(session, || {
            let mut state = WRITER.lock();
            let Some(writer) = running(&mut state, session) else { return true };
            serve(writer);
            frame_loader::serve();
            control::attend(writer, session);
            attached::serve(writer, session);
            rest = match () {
                () if control::has_clients() || attached::is_waited_for() => 1_000_000,
                () => writer.rest_ns(),
            };
            writer.has_ended_for_good() || writer.is_suspended()
        });
        if ended {
            break;
        }
        if is_last(session) {
            if !session.main_gone.load(Ordering::Acquire) {
                end_as_last(session);
            }
            break;
        }
        session.pool.sleep(if session.main_gone.load(Ordering::Relaxed) { 2_000_000 } else { rest });
    }
    control::close();
    // The recording's lock ends with this thread's descriptors, the process does not.
    session.side.set_locked(false);
    session.writer_alive.store(false, Ordering::Release);
    if session::is_current(session) && has_ended_for_good() {
        attached::after_end(session);
    }
    core::ptr::null_mut()
}

/// On the writer's thread, the last one of a process whose main thread went without the C library: no exit handler runs. If
/// that was the only thread, the process ends with its status.
fn end_as_last(session: &'static Session) {
    // No thread is left that could wait at the gate.
    gate::change(gate::RECORDING, gate::HELD);
    COMMAND.store(FINISH_EXIT, Ordering::SeqCst);
    guarded(session, || {
        let mut state = WRITER.lock();
        running(&mut state, session).map(serve);
        true
    });
    if session.threads.count() <= 1 {
        sys::exit_process(threads().map_or(0, |threads| threads.main_status));
    }
}

fn has_ended_for_good() -> bool {
    matches!(&*WRITER.lock(), WriterState::Running(writer) if writer.has_ended_for_good())
}

/// Drops the writer of a recording that has ended.
pub(super) fn drop_writer() {
    *WRITER.lock() = WriterState::None;
}

/// Runs a part of the writer's work; if it panics, recording stops and the program goes on.
fn guarded<T: Default + From<bool>>(session: &'static Session, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        session.end_recording();
        // The file is still open here: its end block names the panic. If that fails, too, the side file stays beside it.
        let noted = catch_unwind(AssertUnwindSafe(|| {
            if let WriterState::Running(writer) = &mut *WRITER.lock() {
                writer.failed();
            }
        }));
        if noted.is_err() {
            log::error("the writer failed; recording stops here, the program goes on");
        }
        session.writer_alive.store(false, Ordering::Release);
        CARRIED_OUT.fetch_add(1, Ordering::SeqCst);
        T::from(true)
    })
}

/// The writer; starts it if it was pending.
fn running<'a>(state: &'a mut WriterState, session: &'static Session) -> Option<&'a mut RecordingWriter> {
    if let WriterState::Pending(files) = state {
        let (output, facts) = *files.take()?;
        let path = output.path.clone();
        // The files of an attach are those of `heaptrace attach`, which gives them back.
        let made = facts.attached.is_none().then(|| output.side_path.clone());
        let writer = RecordingFile::new(output).and_then(|file| RecordingWriter::new(session, facts, file));
        match writer {
            Ok(writer) => *state = WriterState::Running(Box::new(writer)),
            Err(error) => {
                *state = WriterState::None;
                for path in made.iter().flat_map(|side| [side, &path]) {
                    let _ = sys::unlink_at(libc::AT_FDCWD, path);
                }
                failed(session, &path, error);
            }
        }
    }
    match state {
        WriterState::Running(writer) => Some(writer),
        _ => None,
    }
}

#[cold]
fn failed(session: &Session, path: &std::ffi::CStr, error: Errno) {
    session.end_recording();
    log::error(&format!("{}: {error}; the program runs unrecorded", path.to_string_lossy()));
}

/// Carries out the command, or runs a round.
fn serve(writer: &mut RecordingWriter) {
    match COMMAND.swap(NO_COMMAND, Ordering::AcqRel) {
        NO_COMMAND => {
            writer.round();
            if SOCKET_WANTED.load(Ordering::Relaxed) != 0 && !writer.has_ended() {
                SOCKET_WANTED.store(0, Ordering::Relaxed);
                control::open(writer.session());
            }
            return;
        }
        FINISH_EXIT => {
            control::close();
            writer.finish(EndReason::Exit);
        }
        FINISH_EXEC => {
            let had_socket = control::close();
            SOCKET_WANTED.store(u32::from(had_socket), Ordering::Relaxed);
            writer.finish(EndReason::Exec);
        }
        FINISH_STOPPED => {
            control::close();
            writer.finish(EndReason::Stopped);
        }
        SUSPEND => {
            control::close();
            writer.suspend();
        }
        _ => {}
    }
    CARRIED_OUT.fetch_add(1, Ordering::SeqCst);
    sys::futex_wake(&CARRIED_OUT, i32::MAX);
}

/// Makes the writer carry out a command, and waits for it until `is_over`; then takes the command back, if the writer has
/// not begun it. True when it was carried out.
pub(super) fn command_until(session: &'static Session, command: u32, mut is_over: impl FnMut() -> bool) -> bool {
    let before = CARRIED_OUT.load(Ordering::SeqCst);
    COMMAND.store(command, Ordering::SeqCst);
    loop {
        if !session.writer_alive.load(Ordering::Acquire) {
            drive(session);
            // Without a writer there is nothing to finish: recording never began, or it failed.
            COMMAND.store(NO_COMMAND, Ordering::SeqCst);
            return true;
        }
        session.pool.ring();
        sys::futex_wait(&CARRIED_OUT, before, 20_000_000);
        if CARRIED_OUT.load(Ordering::SeqCst) != before {
            return true;
        }
        if is_over() {
            let _ = COMMAND.compare_exchange(command, NO_COMMAND, Ordering::SeqCst, Ordering::SeqCst);
            return false;
        }
        check_writer(session);
    }
}

/// Notices when the writer's thread is gone.
pub(super) fn check_writer(session: &Session) {
    let writer = session.writer_thread.load(Ordering::Relaxed);
    if writer != 0 && !sys::thread_exists(session.pid, writer) {
        session.writer_alive.store(false, Ordering::Release);
    }
}

/// Gives the writer's thread a descriptor table of its own: the program cannot close our descriptors, and we do not keep
/// the program's open. What remains in the program's table is closed by its threads, later.
fn leave_descriptor_table(session: &'static Session) -> bool {
    let mut state = WRITER.lock();
    let Some(writer) = running(&mut state, session) else { return true };
    writer.go_on();
    sys::own_directory();
    let mut descriptors = writer.descriptors();
    descriptors.extend(attached::list_descriptor());
    let mut numbers: Vec<i32> = descriptors.iter().map(|(fd, _)| *fd).collect();
    // Messages still need stderr.
    numbers.push(2);
    if sys::own_descriptor_table(&mut numbers) {
        let locked = writer.file().table_is_private();
        session.side.set_locked(locked);
        control::open(session);
        *session.leftovers.lock() = descriptors;
        session.has_leftovers.store(true, Ordering::Release);
    }
    true
}

/// Whether this is the last thread of the process, which is to end. The main thread may have gone without the C library.
pub(super) fn is_last(session: &Session) -> bool {
    if session.main_gone.load(Ordering::Acquire) {
        return threads().is_some_and(|threads| threads.count <= 2);
    }
    let now = sys::clock(libc::CLOCK_MONOTONIC);
    let last = LAST_LOOK.load(Ordering::Relaxed);
    if now.saturating_sub(last) < LOOK_NS {
        return false;
    }
    LAST_LOOK.store(now, Ordering::Relaxed);
    last != 0 && threads().is_some_and(|threads| threads.main_is_gone && threads.count <= 2)
}

/// How often the writer looks whether the main thread is gone.
const LOOK_NS: u64 = 1_000_000_000;
/// When it did last; 0: never.
static LAST_LOOK: AtomicU64 = AtomicU64::new(0);

/// Whether the calling thread, one of the program's, is its only one: with it the process ends.
pub fn is_only_thread() -> bool {
    let session = session::current().filter(|session| session.pid == sys::process_id());
    let Some(session) = session.filter(|session| !session.confined.load(Ordering::SeqCst)) else { return false };
    if gate::is_internal() {
        // A handler of signals inside the recorder's own code, which this would enter again.
        return false;
    }
    let _internal = Internal::enter();
    let writer = u32::from(session.writer_alive.load(Ordering::Acquire));
    let main = u32::from(sys::thread_id() != session.pid);
    threads().is_some_and(|threads| threads.count <= 1 + writer + if threads.main_is_gone { main } else { 0 })
}

/// Has the writer's thread of a finished recording end: the last thread of a process gives it its status.
pub fn leave_as_last() {
    let session = session::current().filter(|session| session.pid == sys::process_id());
    if let Some(session) = session.filter(|session| session.writer_alive.load(Ordering::Acquire)) {
        let _internal = Internal::enter();
        // Without success the process ends a little later, with another status: the recording is whole and closed.
        let _ = end_writer(session);
    }
}

/// Ends the writer's thread for a while; an error if it does not end in time: how long that was, in ns.
fn end_writer(session: &'static Session) -> Result<(), u64> {
    let started = sys::clock(libc::CLOCK_MONOTONIC);
    let waited = || sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(started);
    if command_until(session, SUSPEND, || waited() > SUSPEND_NS) {
        wait_for_end(session);
        return Ok(());
    }
    Err(waited())
}

/// Threads of the process.
struct ThreadsOfProcess {
    /// How many, the main thread included as long as others live.
    count: u32,
    main_is_gone: bool,
    /// What it has ended with, if it is gone.
    main_status: i32,
}

fn threads() -> Option<ThreadsOfProcess> {
    let status = sys::read_file(libc::AT_FDCWD, c"/proc/self/stat").ok()?;
    let at = status.iter().rposition(|&byte| byte == b')')?;
    let mut fields = status.get(at + 2..)?.split(|&byte| byte == b' ');
    // Field 3, the state of the main thread, then 20 and 52, which is its status as wait(2) has it.
    let main_is_gone = fields.next()? == b"Z";
    let mut number = |skipped| std::str::from_utf8(fields.nth(skipped)?.trim_ascii()).ok()?.parse::<i64>().ok();
    let (count, main_status) = (number(16)?, number(31).unwrap_or(0));
    Some(ThreadsOfProcess { count: count as u32, main_is_gone, main_status: (main_status >> 8) as i32 & 0xff })
}

/// Runs a round of the writer on the calling thread, unless another thread runs one.
pub(super) fn drive(session: &'static Session) {
    if session.confined.load(Ordering::SeqCst) {
        return;
    }
    if let Some(mut state) = WRITER.try_lock()
        && let Some(writer) = running(&mut state, session)
    {
        writer.adopt();
        serve(writer);
        frame_loader::serve();
    }
}
