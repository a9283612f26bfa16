//! Stops all threads of a process without a signal that it could see, and lets them go again.

use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use crate::refusal::{Result, not_permitted, refuse};

/// Longest wait for a thread that does not come to a stop, while others stand still.
const PATIENCE: Duration = Duration::from_millis(200);
/// The same for one that only waits for a processor.
const STARVED: Duration = Duration::from_secs(5);
/// What [`PATIENCE`] grows to while several threads take turns: each waits for its child of vfork when the other has stopped.
const LONGEST: Duration = Duration::from_secs(1);
/// Longest wait for threads that do not come to a stop, while the others run.
const LATEST: Duration = Duration::from_secs(10);

/// The stop of a system call, with `PTRACE_O_TRACESYSGOOD`.
const SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;

/// A thread that is stopped, and goes on when this value is dropped.
#[derive(Debug)]
pub struct StoppedThread {
    /// Its id.
    pub tid: i32,
}

/// One request of ptrace's, whose numbers are signed in one C library and unsigned in another.
pub(crate) fn ptrace(request: impl Into<i64>, tid: i32, at: u64, data: u64) -> io::Result<()> {
    // SAFETY: the kernel checks the thread; where `data` is an address, the caller passes one of enough bytes.
    let result = unsafe { libc::ptrace(request.into() as _, tid, at, data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// How a wait for a thread ended.
pub(crate) enum Stop {
    /// Stopped as asked for.
    Asked,
    /// By a signal that is about to be delivered.
    Signal(i32),
    /// At the beginning or the end of a system call, as asked for.
    SystemCall,
    /// The thread is gone.
    Gone,
}

/// What the thread has come to; `None`: nothing yet.
pub(crate) fn look(tid: i32) -> Option<Stop> {
    let mut status = 0;
    // SAFETY: a valid place for the status.
    let found = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
    if found == 0 {
        return None;
    }
    if found != tid || !libc::WIFSTOPPED(status) {
        return Some(Stop::Gone);
    }
    if status >> 16 == libc::PTRACE_EVENT_STOP {
        return Some(Stop::Asked);
    }
    match libc::WSTOPSIG(status) {
        SYSTEM_CALL => Some(Stop::SystemCall),
        signal => Some(Stop::Signal(signal)),
    }
}

/// Waits a little, longer with each time.
pub(crate) fn pause(round: u32) {
    match round {
        0..20 => std::hint::spin_loop(),
        20..200 => std::thread::sleep(Duration::from_micros(20)),
        _ => std::thread::sleep(Duration::from_millis(1)),
    }
}

/// Whether a thread that was asked to has stopped.
enum Asked {
    Stopped,
    /// Not yet, and it does not run either.
    Late,
    Gone,
}

/// Waits for a thread that was asked to stop. It counts as late when that takes longer than `patience` since `started`, or
/// [`STARVED`] while it waits for a processor.
fn wait_for_stop(tid: i32, started: Instant, patience: Duration) -> Asked {
    for round in 0.. {
        match look(tid) {
            None => pause(round),
            Some(Stop::Asked) => return Asked::Stopped,
            Some(Stop::Gone) => return Asked::Gone,
            // Its delivery goes on; the stop comes right behind it.
            Some(Stop::Signal(signal)) => {
                let _ = ptrace(libc::PTRACE_CONT, tid, 0, signal as u64);
            }
            Some(Stop::SystemCall) => {
                let _ = ptrace(libc::PTRACE_CONT, tid, 0, 0);
            }
        }
        let waited = started.elapsed();
        if waited > patience && (waited > STARVED || round % 64 == 63 && state(tid) != Some('R')) {
            break;
        }
    }
    Asked::Late
}

impl StoppedThread {
    /// Stops a thread that goes on; `None` when it is gone.
    pub(crate) fn interrupt(tid: i32) -> Result<Option<()>> {
        if ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0).is_err() {
            return Ok(None);
        }
        match wait_for_stop(tid, Instant::now(), PATIENCE) {
            Asked::Stopped => Ok(Some(())),
            Asked::Gone => Ok(None),
            Asked::Late => no_stop(tid),
        }
    }

    /// Its general registers.
    pub(crate) fn registers(&self) -> Option<libc::user_regs_struct> {
        let mut registers = MaybeUninit::uninit();
        ptrace(libc::PTRACE_GETREGS, self.tid, 0, registers.as_mut_ptr() as u64).ok()?;
        // SAFETY: the kernel has filled it.
        Some(unsafe { registers.assume_init() })
    }
}

impl StoppedThread {
    /// Lets the thread go on for a moment; [`Self::interrupt`] stops it again.
    pub(crate) fn go_on(&self) {
        let _ = ptrace(libc::PTRACE_CONT, self.tid, 0, 0);
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        let _ = ptrace(libc::PTRACE_DETACH, self.tid, 0, 0);
    }
}

/// Stops all threads of `pid`. On an error all go on. One that waits for a device, or for its child of vfork, is waited
/// for while the others run; it stays stopped then while they are stopped.
pub fn all_threads(pid: u32) -> Result<Vec<StoppedThread>> {
    let started = Instant::now();
    let mut stopped = Vec::new();
    let mut patience = PATIENCE;
    loop {
        let late = stop(pid, &mut stopped, patience)?;
        let Some(&first) = late.first() else { return Ok(stopped) };
        stopped.clear();
        patience = (patience * 3 / 2).min(LONGEST);
        // A stop that was asked for stays so: a thread that cannot stop now cannot be let go either.
        loop {
            let found = late.iter().find_map(|&tid| match wait_for_stop(tid, Instant::now(), Duration::ZERO) {
                Asked::Stopped => Some(Some(StoppedThread { tid })),
                Asked::Gone => Some(None),
                Asked::Late => None,
            });
            if let Some(thread) = found {
                stopped.extend(thread);
                break;
            }
            if started.elapsed() > LATEST {
                return no_stop(first);
            }
        }
    }
}

fn no_stop<T>(tid: i32) -> Result<T> {
    refuse(format!("thread {tid} does not come to a stop: it waits for a device, or for a child of vfork"))
}

/// Stops those threads of `pid` that are not among the stopped ones.
pub(crate) fn stop_others(pid: u32, stopped: &mut Vec<StoppedThread>) -> Result<()> {
    stop(pid, stopped, PATIENCE)?.first().map_or(Ok(()), |&tid| no_stop(tid))
}

/// The same; the threads that do not come to a stop in time, if there are any.
fn stop(pid: u32, stopped: &mut Vec<StoppedThread>, patience: Duration) -> Result<Vec<i32>> {
    let mut gone = Vec::new();
    loop {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            return refuse(format!("process {pid} has ended"));
        };
        let ids = tasks.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_new = |tid: &i32| !gone.contains(tid) && !stopped.iter().any(|thread| thread.tid == *tid);
        let new: Vec<i32> = ids.filter(is_new).collect();
        // A stopped thread makes no new threads.
        if new.is_empty() {
            break;
        }
        // All are asked before the first is waited for: on a busy machine each waits for a processor to stop on.
        let (mut asked, mut is_forbidden) = (Vec::new(), false);
        for tid in new {
            match ptrace(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_TRACESYSGOOD as u64) {
                Ok(()) => {}
                // It was late when all were stopped before.
                Err(_) if is_ours(pid, tid) => {}
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && is_alive(pid, tid) => {
                    is_forbidden = true;
                    break;
                }
                Err(_) => {
                    gone.push(tid);
                    continue;
                }
            }
            match ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) {
                Ok(()) => asked.push(tid),
                Err(_) => gone.push(tid),
            }
        }
        let (started, mut late) = (Instant::now(), Vec::new());
        for tid in asked {
            match wait_for_stop(tid, started, patience) {
                Asked::Stopped => stopped.push(StoppedThread { tid }),
                Asked::Late => late.push(tid),
                Asked::Gone => gone.push(tid),
            }
        }
        if is_forbidden {
            return Err(not_permitted(pid));
        }
        if !late.is_empty() {
            return Ok(late);
        }
    }
    if stopped.is_empty() { refuse(format!("process {pid} has ended")) } else { Ok(Vec::new()) }
}

/// Whether this thread traces that one.
fn is_ours(pid: u32, tid: i32) -> bool {
    // SAFETY: a system call without arguments.
    let own = unsafe { libc::syscall(libc::SYS_gettid) };
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() == own.to_string())
}

/// Whether the thread is there and no zombie, which nobody may trace.
fn is_alive(pid: u32, tid: i32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
        && state(tid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// What the kernel says a thread does: `R` has or wants a processor.
fn state(tid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}
