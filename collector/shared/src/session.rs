//! One recording of one process: everything that its threads share. Made once, never freed; a followed forked child
//! makes its own.

use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use tracehound_format::look::LookReason;
use tracehound_format::meta::{Forked, ForkedFrom};
use tracehound_format::options::LaunchOptions;
use tracehound_format::record::{Kind, Record};

use super::call_tree::CallTree;
use super::lock::Lock;
use super::pool::Pool;
use super::side_file::SideMemory;
use super::stack_counters::StackCounters;
use super::thread::{IN_REAL, ThreadContext};
use super::threads::ThreadTable;

/// See the module's description.
pub struct Session {
    /// Distinguishes the sessions that one address space has seen.
    pub number: u32,
    /// Process that is recorded.
    pub pid: u32,
    /// Launch options.
    pub options: LaunchOptions,
    /// The recording's id.
    pub recording_id: [u8; 16],
    /// Where the recording is written, absolute.
    pub path: Vec<u8>,
    /// The recording of the process that forked this one, and the fork.
    pub forked_from: Option<ForkedFrom>,
    /// Time 0 of the recording.
    pub started_tick: u64,
    /// The same on CLOCK_REALTIME, nanoseconds.
    pub started_unix_ns: u64,
    /// All nodes.
    pub tree: &'static CallTree,
    /// All chunks.
    pub pool: Pool,
    /// All threads.
    pub threads: ThreadTable,
    /// Where chunks and nodes lie.
    pub side: SideMemory,
    /// What threads want the writer to put into the metadata.
    pub notes: Lock<Notes>,
    /// The writer's thread runs.
    pub writer_alive: AtomicBool,
    /// The writer's kernel thread id.
    pub writer_thread: AtomicU32,
    /// Descriptors of ours in the program's table: those of the writer, until it has a table of its own, and then those
    /// that it has left behind, to be closed by one of the program's threads.
    pub leftovers: Lock<Vec<(i32, super::sys::FileIdentity)>>,
    /// There are leftovers.
    pub has_leftovers: AtomicBool,
    /// Asks the writer to flush everything; counts requests.
    pub flush_wanted: AtomicU32,
    /// The last request served.
    pub flush_done: AtomicU32,
    /// Looks at the page tables that are wanted.
    pub looks: LookRequests,
    /// Someone named a thread by other means than for itself.
    pub names_changed: AtomicBool,
    /// What names events waits for the writer: a function, an object, a mark, a thread, a context. See [`Session::hurry`].
    pub names_wanted: AtomicBool,
    /// Marks made so far.
    pub marks: AtomicU64,
    /// Recording is switched off, and can be switched on again.
    pub paused: AtomicBool,
    /// See [`Switches`].
    pub switches: Switches,
    /// The program has installed a seccomp filter: our threads keep to the system calls that they cannot do without.
    pub filtered: AtomicBool,
    /// Some thread of the program has a filter that would kill it for what [`By::Writer`] and [`By::Start`] allow: none makes
    /// such calls any more.
    ///
    /// [`By::Writer`]: super::sys::By::Writer
    /// [`By::Start`]: super::sys::By::Start
    pub confined: AtomicBool,
    /// The main thread has called pthread_exit.
    pub main_gone: AtomicBool,
    /// Figures of unwinders that are gone.
    pub retired: Retired,
    /// Runs a round of the writer on the calling thread, when the writer's own thread does not exist.
    pub drive: fn(&'static Session),
    /// The tick from which on the recording is to list what is mapped already; 0: nothing is to be listed.
    pub existing_wanted: AtomicU64,
    /// The most memory that unwinders take: of so many threads, with so many call-tree nodes.
    pub unwinder_limit: fn(u64, u64) -> u64,
}

/// Data shared by start, stop and end of the recording; see docs/decisions/0027-quiescence.md.
#[derive(Default)]
pub struct Switches {
    /// The tick of the last stop: what is stamped before it belongs to the recording, however late it is published.
    /// `u64::MAX` while a stop is under way.
    pub stopped: AtomicU64,
    /// The tick of the last start.
    pub started: AtomicU64,
    /// The recording has ended and is to go on after all.
    pub go_on: AtomicBool,
    /// Waits that were given up and could not be added to the notes.
    pub untold: AtomicU32,
}

/// A wait that was given up.
#[derive(Clone, Copy, Default)]
pub struct GivenUp {
    /// See [`tracehound_format::meta::GaveUp`].
    pub what: &'static str,
    /// Nanoseconds waited, the longest time.
    pub waited_ns: u64,
    /// Threads waited for.
    pub threads: u32,
    /// Events may be missing.
    pub uncertain: bool,
}

/// Room for waits of different names; there are fewer.
const WAITS: usize = 16;

/// Waits that were given up and that the recording does not mention yet, one entry for each name. Takes no memory: it
/// may be that a signal handler gives up which has interrupted the recorder's own allocator.
#[derive(Default)]
pub struct GivenUpList {
    entries: [GivenUp; WAITS],
    len: usize,
}

impl GivenUpList {
    /// Adds a wait, to the one of the same name if there is one.
    pub fn add(&mut self, wait: GivenUp) {
        let known = self.entries.iter_mut().take(self.len).find(|entry| entry.what == wait.what);
        if let Some(entry) = known {
            entry.waited_ns = entry.waited_ns.max(wait.waited_ns);
            entry.threads = entry.threads.max(wait.threads);
            entry.uncertain |= wait.uncertain;
        } else if let Some(place) = self.entries.get_mut(self.len) {
            *place = wait;
            self.len += 1;
        }
    }

    /// The waits.
    pub fn iter(&self) -> impl Iterator<Item = &GivenUp> {
        self.entries.iter().take(self.len)
    }
}

/// See [`Session::notes`].
#[derive(Default)]
pub struct Notes {
    /// Marks: ordinal, thread, tick, label.
    pub marks: Vec<(u64, u32, u64, Vec<u8>)>,
    /// Records of nobody's thread: marks, starts and stops from outside.
    pub outside: Vec<Record>,
    /// Remarks: tick, topic, text.
    pub remarks: Vec<(u64, &'static str, String)>,
    /// Forks whose children are followed.
    pub forks: Vec<Forked>,
    /// Names of request contexts: id, tick, name.
    pub context_names: Vec<(u64, u64, Vec<u8>)>,
    /// Waits that were given up.
    pub given_up: GivenUpList,
}

/// Looks at the page tables that somebody has asked for.
pub struct LookRequests {
    /// Counts requests.
    pub wanted: AtomicU32,
    /// The last request served.
    pub done: AtomicU32,
    /// Why, and the labels.
    list: Lock<Vec<(LookReason, Vec<u8>)>>,
}

impl LookRequests {
    /// None.
    #[expect(clippy::new_without_default, reason = "locks and atomics of the models are made, not defaulted")]
    pub fn new() -> Self {
        Self { wanted: AtomicU32::new(0), done: AtomicU32::new(0), list: Lock::new(Vec::new()) }
    }

    /// Takes the requests out.
    pub fn take(&self) -> Vec<(LookReason, Vec<u8>)> {
        let _signals = super::sys::SignalsBlocked::new();
        core::mem::take(&mut *self.list.lock())
    }

    /// Adds a request and gives its number.
    fn add(&self, reason: LookReason, label: &[u8]) -> u32 {
        // A signal handler may ask, too.
        let _signals = super::sys::SignalsBlocked::new();
        self.list.lock().push((reason, label.to_vec()));
        self.wanted.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }
}

/// Totals over threads that have ended.
#[derive(Default)]
pub struct Retired {
    /// How backtraces were found.
    pub stacks: StackCounters,
    /// Events dropped.
    pub lost: AtomicU64,
    /// Waits.
    pub waits: AtomicU64,
    /// Nanoseconds waited.
    pub wait_ns: AtomicU64,
}

static SESSION: AtomicPtr<Session> = AtomicPtr::new(core::ptr::null_mut());
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A new session number.
pub fn new_number() -> u32 {
    NUMBER.fetch_add(1, Ordering::Relaxed) + 1
}

/// The session of this process, if it records or has recorded.
pub fn current() -> Option<&'static Session> {
    // SAFETY: the pointer is null or a leaked session.
    unsafe { SESSION.load(Ordering::Acquire).as_ref() }
}

/// Whether `session` is the current one still: a forked child has another one or none.
pub fn is_current(session: &Session) -> bool {
    current().is_some_and(|current| core::ptr::eq(current, session))
}

/// Makes `session` the current one.
pub fn install(session: Session) -> &'static Session {
    let session = crate::sync::keep(session);
    SESSION.store(core::ptr::from_ref(session).cast_mut(), Ordering::Release);
    session
}

/// Forgets the current session, as a forked child does that is not recorded.
pub fn forget() {
    SESSION.store(core::ptr::null_mut(), Ordering::Release);
}

impl Session {
    /// Adds the figures of a context whose thread has ended to the session's, and keeps its unwinder for the next thread.
    pub fn retire(&self, context: &ThreadContext) {
        let unwinder = {
            // The writer reads figures under this lock.
            let _held = context.lock_chunks();
            context.free_unwinder.store(core::ptr::null_mut(), Ordering::Relaxed);
            context.alloc_unwinder.swap(core::ptr::null_mut(), Ordering::Relaxed)
        };
        if !unwinder.is_null() {
            context.kept_unwinder.store(unwinder, Ordering::Relaxed);
        }
        self.retired.stacks.add(&context.stacks, context.events());
        context.stacks.clear();
        // The number of events was added to the totals above.
        context.state.store(IN_REAL, Ordering::Relaxed);
        for (total, figure) in [
            (&self.threads.unreported, &context.lost_unreported),
            (&self.retired.lost, &context.lost),
            (&self.retired.waits, &context.waits),
            (&self.retired.wait_ns, &context.wait_ns),
        ] {
            total.fetch_add(figure.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Recording has ended for good, while the process goes on.
    #[cold]
    pub fn end_recording(&self) {
        use super::gate::{HELD, PASS, RECORDING, change};
        self.paused.store(false, Ordering::SeqCst);
        while !change(RECORDING, PASS) && !change(HELD, PASS) && super::gate::state() == RECORDING {}
    }

    /// Makes the writer continue a recording that has ended.
    pub fn go_on(&self) {
        self.switches.go_on.store(true, Ordering::SeqCst);
        self.pool.ring();
    }

    /// Notes a wait that was given up, for the recording.
    #[cold]
    pub fn give_up(&self, what: &'static str, waited_ns: u64, threads: u32, uncertain: bool) {
        // The holder of the lock may need memory from an allocator that the interrupted thread has locked: the wait
        // is bounded.
        for _ in 0..50 {
            let signals = super::sys::SignalsBlocked::new();
            if let Some(mut notes) = self.notes.try_lock() {
                notes.given_up.add(GivenUp { what, waited_ns, threads, uncertain });
                return;
            }
            drop(signals);
            super::sys::sleep(1_000_000);
        }
        self.switches.untold.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `leave` with the notes for the writer, locked. Signals are blocked, because a handler may leave a note, too.
    pub fn with_notes<T>(&self, leave: impl FnOnce(&mut Notes) -> T) -> T {
        let _signals = super::sys::SignalsBlocked::new();
        leave(&mut self.notes.lock())
    }

    /// Adds a record that belongs to no thread of the program.
    #[cold]
    pub fn note_from_outside(&self, kind: Kind, tick: u64, address: u64) {
        self.with_notes(|notes| notes.outside.push(Record::new(kind, tick, address, 0, 0)));
    }

    /// Wakes the writer, so that what names events is in the file soon: until then it is in this process's memory alone, and
    /// a kill loses it. Waits for nothing, and may be called in a signal handler.
    #[cold]
    pub fn hurry(&self) {
        if !self.names_wanted.swap(true, Ordering::AcqRel) {
            self.pool.ring();
        }
    }

    /// Requests a look at the page tables; returns the number of the request.
    #[cold]
    pub fn want_look(&self, reason: LookReason, label: &[u8]) -> u32 {
        use tracehound_format::options::LookSchedule;
        if self.options.pages == LookSchedule::Off {
            return self.looks.done.load(Ordering::Relaxed);
        }
        let request = self.looks.add(reason, label);
        self.pool.ring();
        request
    }

    /// Adds a remark to the recording, once for each topic and text.
    #[cold]
    pub fn remark(&self, tick: u64, topic: &'static str, text: String) {
        self.with_notes(|notes| {
            if notes.remarks.iter().all(|(_, known, known_text)| *known != topic || *known_text != text) {
                notes.remarks.push((tick, topic, text));
            }
        });
    }

    /// Closes descriptors that the writer has left behind in the program's table. The program may have closed them
    /// and used their numbers again: so the file's identity is compared first.
    #[cold]
    pub fn close_leftovers(&self) {
        if self.has_leftovers.load(Ordering::Acquire) {
            self.close_descriptors();
        }
    }

    /// In a forked child: closes those of our descriptors that it has, so that it does not hold the recording's lock,
    /// which says that its parent lives.
    pub fn close_descriptors(&self) {
        if self.confined.load(Ordering::SeqCst) {
            return;
        }
        let Some(mut leftovers) = self.leftovers.try_lock() else { return };
        for (fd, identity) in leftovers.drain(..) {
            if super::sys::identity(fd) == Ok(identity) {
                super::sys::close(fd);
            }
        }
        self.has_leftovers.store(false, Ordering::Release);
    }
}
