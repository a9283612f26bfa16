//! Signals while the program runs: those of the terminal reach the program directly, others are passed on to it.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The program's pid; 0 before it was started and after it ended.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// Signals that came before the program was started, one bit each.
static EARLY: AtomicU64 = AtomicU64::new(0);

/// Keys of the terminal send these, to the program as well: those are outlived. A supervisor's are passed on.
const OF_KEYS: [i32; 2] = [libc::SIGINT, libc::SIGQUIT];
/// All that are passed on.
const PASSED_ON: [i32; 7] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH];

extern "C" fn handle(signal: i32, info: *const libc::siginfo_t, _context: *const libc::c_void) {
    // SAFETY: the kernel passes a valid structure to a handler with SA_SIGINFO.
    let is_from_kernel = unsafe { (*info).si_code } == libc::SI_KERNEL;
    if !(is_from_kernel && OF_KEYS.contains(&signal)) {
        pass_on(signal);
    }
}

fn pass_on(signal: i32) {
    let child = CHILD.load(Ordering::SeqCst);
    if child > 0 {
        // SAFETY: kill(2) is safe to call from a signal handler, and takes no pointers. The pid is a child that was
        // not waited for yet, so it cannot belong to anybody else: `forget` is called before it is reaped.
        unsafe { libc::kill(child, signal) };
    } else {
        EARLY.fetch_or(1 << signal, Ordering::SeqCst);
    }
}

/// Installs the handlers. exec resets them, so the program starts with the default actions; a signal that was ignored
/// when we started (`nohup`) stays ignored for both.
pub fn step_back() {
    for signal in PASSED_ON {
        // SAFETY: both structures are valid for the calls, zero is a valid sigaction (no flags, empty mask), and the
        // handler only makes async-signal-safe calls.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut old) == 0 && old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = handle as *const () as libc::sighandler_t;
            new.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
            libc::sigaction(signal, &new, std::ptr::null_mut());
        }
    }
}

/// From now on signals go to this process; those that came early are delivered now.
pub fn adopt(child: i32) {
    CHILD.store(child, Ordering::SeqCst);
    let early = EARLY.swap(0, Ordering::SeqCst);
    for signal in PASSED_ON.into_iter().filter(|signal| early & (1 << signal) != 0) {
        pass_on(signal);
    }
}

/// Waits until the program has ended, without reaping it, and stops passing signals on.
pub fn wait_and_forget(child: i32) -> io::Result<()> {
    loop {
        // SAFETY: zero is a valid siginfo_t, and it is valid for the call.
        let result = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, child.cast_unsigned(), &mut info, libc::WEXITED | libc::WNOWAIT)
        };
        let error = io::Error::last_os_error();
        if result == 0 || error.kind() != io::ErrorKind::Interrupted {
            CHILD.store(0, Ordering::SeqCst);
            return if result == 0 { Ok(()) } else { Err(error) };
        }
    }
}

/// Ends this process by `signal`, so that whoever waits for us sees how the program ended. Returns only if the
/// signal does not end a process.
pub fn die_by(signal: i32) {
    // SAFETY: all structures are valid for the calls; SIG_DFL is a valid action.
    unsafe {
        // The program has left its core dump; ours would only hide it.
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
    }
}
