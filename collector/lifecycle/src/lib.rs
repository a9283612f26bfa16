//! Start, fork, exec, stop and end of a recording: puts the hot path, the shared state and the writer together.
//!
//! ```text
//! lib              the start of a recording
//! driver           the writer's thread and its commands
//! capture_control  recording on and off, marks, flush
//! control          the same, requested from outside by the control socket
//! credentials      the writer's users, groups and capabilities
//! fork_exec_exit   exit, exec and fork
//! quiesce          the end of a recording while threads run
//! attached         a recording that begins and ends while the process runs
//! frame_loader     unwind information from files
//! ```
//! Lock order: `SWITCH`, `WRITER`, `SOCKET`, then a thread's `chunk_lock`, then the notes; docs/ARCHITECTURE.md has the
//! whole table. Threads of the program take the writer's lock only when the writer's own thread does not exist.

#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "a model has stand-ins for what asks the kernel or the processor")
)]

mod attached;
mod capture_control;
mod control;
mod credentials;
mod driver;
mod fork_exec_exit;
mod frame_loader;
mod quiesce;

pub use attached::start_attached;
#[cfg(loom)]
pub use capture_control::from_outside;
pub use capture_control::{flush, look, mark, resume_recording, stop, toggle};
pub use control::close_from_program as close_control;
pub use credentials::before_change_of_user;
pub use driver::{has_writer, is_only_thread, leave_as_last, start_writer, without_writer};
pub use fork_exec_exit::{
    Finish, InheritedState, after_followed_fork, before_followed_fork, before_fork, child_is_ready, confine,
    end_at_fork, end_early, ended_at_fork, finish, forget_in_child, forked, is_confined, resume, thread_ends,
};
pub use frame_loader::serve as load_frame_sections;
#[cfg(loom)]
pub use quiesce::settle;

use tracehound_shared::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use tracehound_format::meta::{Attached, ClockSample, ClockSource, Process};
use tracehound_format::options::{self, LaunchOptions, OutputNames, StartMode};
use tracehound_format::record::Kind;

use tracehound_background::output::{self, Output};
use tracehound_background::writer::ProcessFacts;
use tracehound_background::{earlier_recordings, initial_mappings};
use tracehound_shared::call_tree::CallTree;
use tracehound_shared::chunk;
use tracehound_shared::clock;
use tracehound_shared::gate;
use tracehound_shared::heap;
use tracehound_shared::loader;
use tracehound_shared::lock::Lock;
use tracehound_shared::log;
use tracehound_shared::pool::Pool;
use tracehound_shared::session::{self, LookRequests, Notes, Retired, Session, Switches};
use tracehound_shared::side_file::{Owner, SideMemory};
use tracehound_shared::sys;
use tracehound_shared::threads::ThreadTable;

/// Call-tree nodes that the recorder has room for; their memory is committed as they are made.
const MAX_NODES: u32 = 1 << 24;
/// Where limits leave less memory than this, the recorder would take more than a third of it.
const LEAST_ROOM: u64 = 256 << 20;
/// Where limits leave less than this, no pages are reserved for a kernel that gives no more.
const RESERVED_ROOM: u64 = 4 << 30;
/// Where a program may have fewer files open, the recorder's few would be most of them.
const LEAST_FILES: u64 = 14;

/// Starts recording in this process: creates the files and opens the gate. Without success the gate lets everything
/// pass, and one line on stderr has the reason. Needs memory and files only, nothing of libc that constructors set up.
///
/// `given` are the options as the user wrote them, `NAME=value`, those that differ from their defaults.
pub fn start(options: LaunchOptions, given: Vec<String>, inherited: Option<&InheritedState>) {
    log::init(options.log);
    match prepare(options, given, Beginning::Fresh(inherited)) {
        Ok(recording) => gate::set(if recording { gate::RECORDING } else { gate::PASS }),
        Err(text) => {
            log::error(&format!("{text}; the program runs unrecorded"));
            gate::set(gate::PASS);
            heap::give_reserve_back();
        }
    }
}

/// Where the files and the state of a recording come from.
enum Beginning<'a> {
    /// The start of a program, or a fork.
    Fresh(Option<&'a InheritedState>),
    /// A request from outside, with its files open.
    Attached(Output),
}

/// Makes the session; true if it is to record at once.
fn prepare(options: LaunchOptions, given: Vec<String>, beginning: Beginning<'_>) -> Result<bool, String> {
    let (inherited, opened) = match beginning {
        Beginning::Fresh(inherited) => (inherited, None),
        Beginning::Attached(output) => (None, Some(output)),
    };
    let is_attached = opened.is_some();
    let room = sys::memory_room();
    if room < LEAST_ROOM {
        return Err(format!(
            "limits leave the process {} MiB of memory (ulimit -v, ulimit -d), of which the recorder would take more than a third",
            room >> 20
        ));
    }
    let forked_from = inherited.map(|inherited| inherited.from.clone());
    let files = sys::resource_limit(sys::Resource::Nofile);
    if files < LEAST_FILES {
        return Err(format!("a limit of {files} open files (ulimit -n) leaves the recorder none beside the program's"));
    }
    if room > RESERVED_ROOM {
        heap::reserve_pages();
    }
    let signals = sys::SignalsBlocked::new();
    let source = clock::init();
    tracehound_unwind::init();
    tracehound_record::attach::note_first_thread();
    let pid = sys::process_id();
    let executable = loader::program_path();
    let file_name = program_name(&executable);
    let sample = clock::sample();
    let unix_seconds = sample.realtime_ns / 1_000_000_000;
    let mut recording_id = [0; 16];
    if sys::random(&mut recording_id).is_err() {
        // Too early in the machine's life for random numbers: time and process id must do.
        let (head, tail) = recording_id.split_at_mut(8);
        head.copy_from_slice(&sample.realtime_ns.to_ne_bytes());
        tail.copy_from_slice(&(u64::from(pid) << 32 | sample.ticks & 0xffff_ffff).to_ne_bytes());
    }
    let host = sys::host_name();
    let names = OutputNames { executable: &file_name, pid, unix_seconds, counter: 0, host: &host, recording_id };
    let output = match opened {
        Some(output) => output,
        None => output::create(&options.output, names)
            .map_err(|failure| format!("{}: {}", String::from_utf8_lossy(&failure.path), failure.error))?,
    };
    let discard = |output: &Output| {
        let _ = sys::unlink_at(output.directory, &output.side_name);
        let _ = sys::unlink_at(output.directory, &output.name);
        for fd in [output.file, output.side_file, output.directory] {
            sys::close(fd);
        }
    };
    let max_nodes = nodes_within(room);
    let buffer_bytes = options.buffer_bytes.min(room / 16);
    let chunks = u32::try_from(buffer_bytes / chunk::SLOT_BYTES as u64).unwrap_or(u32::MAX).max(2);
    let owner = Owner {
        pid,
        recording_id,
        process_start: earlier_recordings::process_start(),
        pid_namespace: earlier_recordings::pid_namespace(),
        boot_id: earlier_recordings::boot_id(),
        recording: sys::identity(output.file).ok(),
    };
    let mut remark = None;
    let side = SideMemory::in_file(output.side_file, chunks, u64::from(max_nodes), &owner).or_else(|error| {
        sys::forget_size_signal(&signals);
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
    let tree = match inherited {
        Some(inherited) => inherited.tree,
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
    let facts = ProcessFacts {
        process: process_record(given, pid, executable, &sample, forked_from.as_ref().map(|from| from.recording_id)),
        source: clock_source(source),
        shift: clock::SHIFT as u8,
        clock_note: clock_note(source).into(),
        clock: clock_sample,
        now: clock::now,
        attached: is_attached.then_some(Attached { tick: sample.ticks }),
    };
    let opened = [output.file, output.side_file, output.directory];
    let descriptors = opened.iter().filter_map(|&fd| Some((fd, sys::identity(fd).ok()?))).collect();
    // A forked child begins in its parent's state: recording or not.
    let maps = options.mappings;
    let given_start = options.start == StartMode::On;
    let start = inherited.map_or(given_start, |inherited| inherited.from.recording);
    tracehound_shared::python::enable(options.interpreter);
    let session = session::install(Session {
        number: session::new_number(),
        pid,
        options,
        recording_id,
        path: output.path.to_bytes().to_vec(),
        forked_from,
        started_tick: sample.ticks,
        started_unix_ns: sample.realtime_ns,
        tree,
        pool,
        threads: ThreadTable::default(),
        side,
        notes: Lock::new(Notes::default()),
        writer_alive: AtomicBool::new(false),
        writer_thread: AtomicU32::new(0),
        leftovers: Lock::new(descriptors),
        has_leftovers: AtomicBool::new(false),
        flush_wanted: AtomicU32::new(0),
        flush_done: AtomicU32::new(0),
        looks: LookRequests::new(),
        names_changed: AtomicBool::new(false),
        names_wanted: AtomicBool::new(false),
        marks: AtomicU64::new(0),
        main_gone: AtomicBool::new(false),
        paused: AtomicBool::new(!start),
        filtered: AtomicBool::new(false),
        confined: AtomicBool::new(false),
        retired: Retired::default(),
        switches: Switches::default(),
        existing_wanted: AtomicU64::new(if start && maps && is_attached { sample.ticks.max(1) } else { 0 }),
        unwinder_limit: tracehound_unwind::memory_limit,
        drive: driver::drive,
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
    if start != given_start {
        let kind = if start { Kind::CaptureStart } else { Kind::CaptureStop };
        session.note_from_outside(kind, sample.ticks, 0);
    }
    // Read before the program goes on: the recorder's thread would list what the program has mapped meanwhile, too. An
    // attach stops a program that may have very many mappings, and leaves them to the recorder's thread.
    if start && maps && !is_attached {
        let existing = initial_mappings::records(sample.ticks);
        session.with_notes(|notes| notes.outside.extend(existing));
    }
    driver::set_pending(output, facts);
    Ok(start)
}

/// Nodes for which address space is taken: fewer where limits leave little, which is the program's.
fn nodes_within(room: u64) -> u32 {
    let nodes = room / 16 / (CallTree::NODE_BYTES as u64 + 16);
    u32::try_from(nodes).unwrap_or(u32::MAX).clamp(1 << 16, MAX_NODES)
}

fn mirror(id: u32, node: tracehound_shared::call_tree::TreeNode) {
    if let Some(session) = session::current() {
        let node = tracehound_format::nodes::Node { parent: node.parent, pc: node.pc, generation: node.generation };
        session.side.mirror(id, node);
    }
}

fn process_record(
    given: Vec<String>,
    pid: u32,
    executable: Vec<u8>,
    sample: &clock::ClockReading,
    forked_from: Option<[u8; 16]>,
) -> Process {
    let read = |path| sys::read_file(libc::AT_FDCWD, path).unwrap_or_default();
    let by_thread = read(c"/proc/thread-self/cmdline");
    let line = if by_thread.is_empty() { read(c"/proc/self/cmdline") } else { by_thread };
    let mut arguments: Vec<Vec<u8>> = line.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    if line.last() == Some(&0) {
        arguments.pop();
    }
    let page_bytes = sys::page_bytes() as u32;
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

/// The program's name: the name of the link by which it was started, if there is one, else that of its file.
fn program_name(executable: &[u8]) -> Vec<u8> {
    // SAFETY: getauxval reads the process's own auxiliary vector; the kernel's entry is a terminated string on the
    // stack.
    let started = unsafe {
        let at = libc::getauxval(libc::AT_EXECFN) as *const core::ffi::c_char;
        if at.is_null() { c"" } else { core::ffi::CStr::from_ptr(at) }
    };
    let identity = |path: &core::ffi::CStr| {
        let fd = sys::open_at(libc::AT_FDCWD, path, libc::O_PATH, 0).ok()?;
        let identity = sys::identity(fd).ok();
        sys::close(fd);
        identity
    };
    // A script's name is there, too, but the program is its interpreter.
    let program = std::ffi::CString::new(executable).ok().and_then(|path| identity(&path));
    let program = program.or_else(|| identity(c"/proc/self/exe"));
    let is_same = identity(started).is_some_and(|found| program == Some(found));
    let path = if is_same { started.to_bytes() } else { executable };
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec()
}

fn clock_source(source: clock::TickSource) -> ClockSource {
    match source {
        clock::TickSource::Monotonic => ClockSource::Monotonic,
        clock::TickSource::Counter if cfg!(target_arch = "aarch64") => ClockSource::Cntvct,
        clock::TickSource::Counter => ClockSource::Tsc,
    }
}

fn clock_note(source: clock::TickSource) -> &'static str {
    match source {
        clock::TickSource::Counter => "the processor's counter, invariant",
        clock::TickSource::Monotonic => {
            "CLOCK_MONOTONIC: the processor's counter is missing, not invariant or not trusted by the kernel"
        }
    }
}

fn clock_sample() -> ClockSample {
    let sample = clock::sample();
    ClockSample { tick: sample.ticks, monotonic_ns: sample.monotonic_ns, realtime_ns: sample.realtime_ns }
}

/// The program puts a filter of system calls on itself: libunwind, which makes calls of its own on the program's
/// threads, is not asked any more.
pub fn leave_libunwind() {
    const PATIENCE_NS: u64 = 1_000_000_000;
    let Some(session) = session::current() else { return };
    if !tracehound_unwind::leave_libunwind() {
        return;
    }
    let _internal = gate::Internal::enter();
    let text = "the program installed a seccomp filter: libunwind is no longer used";
    session.remark(clock::now(), "no-libunwind", text.into());
    let started = sys::clock(libc::CLOCK_MONOTONIC);
    while tracehound_unwind::is_in_libunwind() {
        let waited = sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(started);
        if waited > PATIENCE_NS {
            return session.give_up("filter-libunwind", waited, 0, false);
        }
        sys::sleep(100_000);
    }
}

/// Before the program's own code begins, with libc ready: loads the unwind information that only files have, and opens
/// libunwind where the options ask for it.
pub fn prepare_unwinder() {
    driver::load_first_frames();
    let Some(session) =
        session::current().filter(|session| session.options.unwinder == options::UnwinderChoice::Libunwind)
    else {
        return;
    };
    if !tracehound_unwind::prepare_libunwind() {
        let text = "libunwind.so.8 is not installed: the recorder's own unwinder is used";
        log::warn(text);
        session.remark(clock::now(), "no-libunwind", text.into());
    }
}
