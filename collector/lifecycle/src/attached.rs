//! Recording of a process that was already running: begun and ended from outside, by the words of an [`AttachBlock`].
//!
//! The recorder's thread reads the command of the block in every round. Once the file has its end block, the session is
//! detached from the globals. Then the recorder's thread waits until heaptrace, from outside, has checked that no
//! thread of the program is inside an event and has cleared the threads' slots. Then all memory is unmapped, and the
//! recorder's thread ends.

use tracehound_shared::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use tracehound_format::attach::{AttachBlock, DORMANT, ENDED, PREPARED, RECORDING, command};
use tracehound_format::meta::EndReason;
use tracehound_format::options::{LaunchOptions, StartMode};

use super::{Beginning, RESERVED_ROOM, capture_control, driver, prepare};
use tracehound_background::output::Output;
use tracehound_background::writer::RecordingWriter;
use tracehound_shared::gate::{self, Internal};
use tracehound_shared::heap;
use tracehound_shared::log;
use tracehound_shared::session::{self, Session};
use tracehound_shared::sys;
use tracehound_shared::thread::{self, ThreadContext};
use tracehound_unwind::Unwinder;
use tracehound_unwind::room;

/// Longest wait for threads that have taken a time stamp before the stop and not published it.
const SETTLE_NS: u64 = 1_000_000_000;
/// Longest wait of our thread for the release: after that the memory stays until the next attach.
const PATIENCE_NS: u64 = 30_000_000_000;

/// Addresses for the heap of all recordings; none was seen to take more than 30 MiB of them.
const ADDRESSES: usize = 48 << 20;

/// The block, while it is this process's.
static BLOCK: AtomicPtr<AttachBlock> = AtomicPtr::new(core::ptr::null_mut());
/// A session that has ended and was not released.
static LEFT: AtomicPtr<Session> = AtomicPtr::new(core::ptr::null_mut());

/// The list of blocks that the heap held when recording began; [`NO_LIST`]: none.
static BLOCK_LIST: AtomicU32 = AtomicU32::new(NO_LIST);
const NO_LIST: u32 = u32::MAX;

/// The descriptor of that list, with the file's identity.
pub(super) fn list_descriptor() -> Option<(i32, sys::FileIdentity)> {
    let fd = BLOCK_LIST.load(Ordering::Acquire).cast_signed();
    Some((fd, sys::identity(fd).ok()?))
}

fn block() -> Option<&'static AttachBlock> {
    // SAFETY: null, or a static of the library.
    unsafe { BLOCK.load(Ordering::Acquire).as_ref() }
}

/// Sets up a recording in `output`, switched off, and starts our thread. Called on a borrowed thread of the program, at
/// a point where it may call anything. `filtered`: a filter of system calls kills for some that the recorder can do without.
///
/// # Errors
/// With a sentence, when there is no memory, or recording goes on already.
pub fn start_attached(
    block: &'static AttachBlock,
    options: LaunchOptions,
    given: Vec<String>,
    output: Output,
    block_list: i32,
    filtered: bool,
) -> Result<(), String> {
    if session::current().is_some() {
        [output.file, output.side_file, output.directory, block_list].into_iter().for_each(sys::close);
        return Err("the process is being recorded already".into());
    }
    let _internal = Internal::enter();
    log::init(options.log);
    gate::set(gate::PASS);
    release_left();
    if sys::memory_room() > RESERVED_ROOM {
        heap::take_addresses(ADDRESSES);
    }
    let options = LaunchOptions { start: StartMode::Paused, children: false, ..options };
    sys::close(BLOCK_LIST.swap(block_list.cast_unsigned(), Ordering::AcqRel).cast_signed());
    prepare(options, given, Beginning::Attached(output))?;
    if let Some(session) = session::current() {
        session.filtered.store(filtered, Ordering::SeqCst);
    }
    block.pid.store(sys::process_id(), Ordering::Relaxed);
    block.command.store(command::NONE, Ordering::Relaxed);
    block.writer.store(0, Ordering::Relaxed);
    BLOCK.store(core::ptr::from_ref(block).cast_mut(), Ordering::Release);
    super::prepare_unwinder();
    driver::start_writer();
    let Some(session) = session::current().filter(|session| session.writer_alive.load(Ordering::Acquire)) else {
        return Err("the recorder's thread could not be made".into());
    };
    block.writer.store(session.writer_thread.load(Ordering::Acquire), Ordering::Relaxed);
    block.state.store(PREPARED, Ordering::Release);
    Ok(())
}

/// In a forked child: forgets the block, which controls the parent alone.
pub fn forget_in_child() {
    if let Some(block) = block() {
        block.state.store(DORMANT, Ordering::Relaxed);
        block.command.store(command::NONE, Ordering::Relaxed);
        BLOCK.store(core::ptr::null_mut(), Ordering::Release);
    }
    LEFT.store(core::ptr::null_mut(), Ordering::Relaxed);
    sys::close(BLOCK_LIST.swap(NO_LIST, Ordering::Relaxed).cast_signed());
}

/// The recording has ended early, because of the process itself: its memory stays mapped.
pub(super) fn ended_early() {
    if let Some(block) = block() {
        BLOCK.store(core::ptr::null_mut(), Ordering::Release);
        block.state.store(DORMANT, Ordering::Release);
    }
}

/// Whether our thread is to look for commands often.
pub(super) fn is_waited_for() -> bool {
    block().is_some_and(|block| block.state.load(Ordering::Relaxed) == PREPARED)
}

/// Carries out the command of the block, on the recorder's thread, between two rounds.
pub(super) fn serve(writer: &mut RecordingWriter, session: &'static Session) {
    let Some(block) = block() else { return };
    // The borrowed thread does not wait long for this thread's first turn.
    block.writer.store(session.writer_thread.load(Ordering::Acquire), Ordering::Relaxed);
    match block.command.load(Ordering::Acquire) {
        command::START if capture_control::from_outside(session, true).is_some() => {
            let list = BLOCK_LIST.swap(NO_LIST, Ordering::AcqRel);
            if list != NO_LIST {
                writer.list_blocks(list.cast_signed());
            }
            block.command.store(command::NONE, Ordering::Relaxed);
            block.state.store(RECORDING, Ordering::Release);
        }
        command::STOP => {
            if capture_control::from_outside(session, false).is_none() {
                return;
            }
            settle(session, "detach-threads");
            writer.finish(EndReason::Detached);
            block.command.store(command::NONE, Ordering::Relaxed);
        }
        _ => {}
    }
}

/// Waits for events that were stamped before the stop: they belong to the recording. `what` names the wait in the
/// recording if it is given up.
pub(super) fn settle(session: &Session, what: &'static str) {
    let started = sys::clock(libc::CLOCK_MONOTONIC);
    let is_late = |context: &ThreadContext| matches!(context.mode_seen(), thread::RECORDING | thread::STAMPED);
    loop {
        let late = session.threads.iter().filter(|context| is_late(context)).count();
        let waited = sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(started);
        if late == 0 {
            return;
        }
        if waited > SETTLE_NS {
            return session.give_up(what, waited, late as u32, false);
        }
        sys::sleep(200_000);
    }
}

/// Waits for the release, on the recorder's thread, when the recording has ended; then the thread ends.
pub(super) fn after_end(session: &'static Session) {
    let Some(block) = block() else { return };
    // From here on no thread can get the session that does not have it already.
    session::forget();
    LEFT.store(core::ptr::from_ref(session).cast_mut(), Ordering::Release);
    block.state.store(ENDED, Ordering::Release);
    let started = sys::clock(libc::CLOCK_MONOTONIC);
    while block.command.load(Ordering::Acquire) != command::RELEASE {
        let waited = sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(started);
        if waited > PATIENCE_NS || driver::is_last(session) {
            return;
        }
        sys::sleep(1_000_000);
    }
    release_left();
    block.command.store(command::NONE, Ordering::Relaxed);
    BLOCK.store(core::ptr::null_mut(), Ordering::Release);
    block.state.store(DORMANT, Ordering::Release);
}

/// Unmaps what an ended recording has left. heaptrace has checked from outside that no thread uses it: the threads' slots
/// have no context.
fn release_left() {
    let left = LEFT.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if left.is_null() {
        return;
    }
    driver::drop_writer();
    // SAFETY: the session was made by `Box::leak`; it is not the current one, and no thread uses it, as described.
    unsafe {
        let session = Box::from_raw(left);
        for context in session.threads.all() {
            for unwinder in [&context.alloc_unwinder, &context.kept_unwinder] {
                Unwinder::destroy(unwinder.swap(core::ptr::null_mut(), Ordering::Relaxed).cast());
            }
            room::give_back(context);
        }
        session.threads.unmap();
        session.side.unmap();
        drop(Box::from_raw(core::ptr::from_ref(session.tree).cast_mut()));
    }
    heap::give_back();
}
