//! Check that the seccomp filters of a process allow the recorder's system calls.
//!
//! The filters are read by ptrace and run here, on all calls that an attach and the recorder make. One that would kill for a
//! call that is always made, or refuse one that must succeed, keeps the process untouched; so does one that cannot be read.
//! Where a filter would kill for a call that can be done without, the recorder gets to know.

use crate::refusal::{Refusal, Result, not_permitted, refuse};
use crate::stop::{StoppedThread, ptrace};

const GET_FILTER: u16 = 0x420c;
/// `AUDIT_ARCH_X86_64`.
const MACHINE: u32 = 0xc000_003e;
const KILL: u32 = 0;
const ALLOW: u32 = 0x7fff_0000;
const ERROR: u32 = 0x0005_0000;
const LOG: u32 = 0x7ffc_0000;

/// What a filter may do with a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// It must pass.
    Passes,
    /// It must pass, or fail as if the kernel did not know it: then another one is made.
    PassesOrUnknown,
    /// It may fail: there is another way, or it is done without.
    MayFail,
    /// Where a filter kills for it, the recorder does without what needs it.
    Dispensable,
}

use Need::{Dispensable, MayFail, Passes, PassesOrUnknown};

/// System calls of an attach, on a thread of the program and on the recorder's own: the number, the arguments that filters
/// look at, the name.
const CALLS: &[(Need, libc::c_long, [u64; 6], &str)] = &[
    // The loader, and the thread that comes to be.
    (Passes, libc::SYS_newfstatat, [3, 0, 0, 0x1000, 0, 0], "newfstatat"),
    (Passes, libc::SYS_mmap, [0, 4096, 5, 2, 3, 0], "mmap of code"),
    (Passes, libc::SYS_exit, [0; 6], "exit"),
    (PassesOrUnknown, libc::SYS_clone3, [0, 88, 0, 0, 0, 0], "clone3"),
    (Passes, libc::SYS_clone, [0x003d_0f00, 0, 0, 0, 0, 0], "clone"),
    (Passes, libc::SYS_rt_sigreturn, [0; 6], "rt_sigreturn"),
    (Passes, libc::SYS_socketpair, [1, 2, 0, 0, 0, 0], "socketpair"),
    (Passes, libc::SYS_recvmsg, [3, 0, 0, 0, 0, 0], "recvmsg"),
    (Passes, libc::SYS_read, [3, 0, 0, 0, 0, 0], "read"),
    (Passes, libc::SYS_select, [0; 6], "select"),
    (MayFail, libc::SYS_open, [0, 0x8_0000, 0, 0, 0, 0], "open"),
    (MayFail, libc::SYS_readlink, [0; 6], "readlink"),
    (MayFail, libc::SYS_brk, [0; 6], "brk"),
    (MayFail, libc::SYS_sched_getaffinity, [0, 128, 0, 0, 0, 0], "sched_getaffinity"),
    (MayFail, libc::SYS_rt_sigaction, [33, 0, 0, 8, 0, 0], "rt_sigaction"),
    (MayFail, libc::SYS_set_robust_list, [0, 24, 0, 0, 0, 0], "set_robust_list"),
    (MayFail, libc::SYS_rseq, [0, 32, 0, 0x5305_3053, 0, 0], "rseq"),
    (MayFail, libc::SYS_restart_syscall, [0; 6], "restart_syscall"),
    // The recorder, in every recording.
    (Passes, libc::SYS_mmap, [0, 4096, 3, 0x22, u64::MAX, 0], "mmap"),
    (Passes, libc::SYS_mprotect, [0, 4096, 1, 0, 0, 0], "mprotect"),
    (Passes, libc::SYS_munmap, [0, 4096, 0, 0, 0, 0], "munmap"),
    (Passes, libc::SYS_openat, [0xffff_ff9c, 0, 0, 0, 0, 0], "openat"),
    (Passes, libc::SYS_pread64, [3, 0, 0, 0, 0, 0], "pread64"),
    (Passes, libc::SYS_pwrite64, [3, 0, 0, 0, 0, 0], "pwrite64"),
    (Passes, libc::SYS_fstat, [3, 0, 0, 0, 0, 0], "fstat"),
    (Passes, libc::SYS_ftruncate, [3, 0, 0, 0, 0, 0], "ftruncate"),
    (Passes, libc::SYS_readlinkat, [0xffff_ff9c, 0, 0, 0, 0, 0], "readlinkat"),
    (Passes, libc::SYS_fcntl, [3, 1030, 256, 0, 0, 0], "fcntl"),
    (Passes, libc::SYS_close, [3, 0, 0, 0, 0, 0], "close"),
    (Passes, libc::SYS_futex, [0, 128, 0, 0, 0, 0], "futex"),
    (Passes, libc::SYS_nanosleep, [0; 6], "nanosleep"),
    (Passes, libc::SYS_rt_sigprocmask, [2, 0, 0, 8, 0, 0], "rt_sigprocmask"),
    (Passes, libc::SYS_clock_gettime, [1, 0, 0, 0, 0, 0], "clock_gettime"),
    (Passes, libc::SYS_getpid, [0; 6], "getpid"),
    (Passes, libc::SYS_gettid, [0; 6], "gettid"),
    (Passes, libc::SYS_tgkill, [1, 1, 0, 0, 0, 0], "tgkill"),
    (MayFail, libc::SYS_madvise, [0, 4096, 4, 0, 0, 0], "madvise"),
    (MayFail, libc::SYS_fallocate, [3, 0, 0, 0, 0, 0], "fallocate"),
    (MayFail, libc::SYS_flock, [3, 6, 0, 0, 0, 0], "flock"),
    (MayFail, libc::SYS_unshare, [0x400, 0, 0, 0, 0, 0], "unshare"),
    (MayFail, libc::SYS_close_range, [3, 4, 2, 0, 0, 0], "close_range"),
    (MayFail, libc::SYS_membarrier, [8, 0, 0, 0, 0, 0], "membarrier"),
    (MayFail, libc::SYS_prctl, [15, 0, 0, 0, 0, 0], "prctl"),
    (MayFail, libc::SYS_unlinkat, [0xffff_ff9c, 0, 0, 0, 0, 0], "unlinkat"),
    (MayFail, libc::SYS_write, [2, 0, 0, 0, 0, 0], "write"),
    (MayFail, libc::SYS_rt_sigtimedwait, [0, 0, 0, 8, 0, 0], "rt_sigtimedwait"),
    (MayFail, libc::SYS_uname, [0; 6], "uname"),
    (MayFail, libc::SYS_getppid, [0; 6], "getppid"),
    (MayFail, libc::SYS_getcwd, [0; 6], "getcwd"),
    (MayFail, libc::SYS_getrandom, [0, 16, 1, 0, 0, 0], "getrandom"),
    (MayFail, libc::SYS_prlimit64, [0, 9, 0, 0, 0, 0], "prlimit64"),
    // The socket of `heaptrace ctl`.
    (Dispensable, libc::SYS_socket, [1, 5, 0, 0, 0, 0], "socket"),
    (Dispensable, libc::SYS_bind, [3, 0, 0, 0, 0, 0], "bind"),
    (Dispensable, libc::SYS_listen, [3, 0, 0, 0, 0, 0], "listen"),
    (Dispensable, libc::SYS_accept4, [3, 0, 0, 0x8_0800, 0, 0], "accept4"),
    (Dispensable, libc::SYS_getsockopt, [3, 1, 17, 0, 0, 0], "getsockopt"),
    (Dispensable, libc::SYS_recvfrom, [3, 0, 0, 0x40, 0, 0], "recvfrom"),
    (Dispensable, libc::SYS_sendto, [3, 0, 0, 0x4040, 0, 0], "sendto"),
    (Dispensable, libc::SYS_mkdirat, [0xffff_ff9c, 0, 0o700, 0, 0, 0], "mkdirat"),
    (Dispensable, libc::SYS_fchmodat, [0xffff_ff9c, 0, 0o600, 0, 0, 0], "fchmodat"),
    (Dispensable, libc::SYS_getdents64, [3, 0, 0, 0, 0, 0], "getdents64"),
    (Dispensable, libc::SYS_kill, [1, 0, 0, 0, 0, 0], "kill"),
    (Dispensable, libc::SYS_geteuid, [0; 6], "geteuid"),
    // What the program's own calls of setuid, setrlimit, mlockall and execve need, and looks at resident pages.
    (Dispensable, libc::SYS_getresuid, [0; 6], "getresuid"),
    (Dispensable, libc::SYS_getresgid, [0; 6], "getresgid"),
    (Dispensable, libc::SYS_setresuid, [0; 6], "setresuid"),
    (Dispensable, libc::SYS_setresgid, [0; 6], "setresgid"),
    (Dispensable, libc::SYS_capget, [0; 6], "capget"),
    (Dispensable, libc::SYS_capset, [0; 6], "capset"),
    (Dispensable, libc::SYS_mlock2, [0, 4096, 0, 0, 0, 0], "mlock2"),
    (Dispensable, libc::SYS_faccessat, [0xffff_ff9c, 0, 1, 0, 0, 0], "faccessat"),
    (Dispensable, libc::SYS_getxattr, [0; 6], "getxattr"),
    (Dispensable, libc::SYS_statfs, [0; 6], "statfs"),
    (Dispensable, libc::SYS_mincore, [0, 4096, 0, 0, 0, 0], "mincore"),
    (Dispensable, libc::SYS_ioctl, [3, 0xc060_6610, 0, 0, 0, 0], "ioctl"),
];

/// The system calls that an attach, and the recorder in an attached process, make: numbers and names.
pub fn calls() -> impl Iterator<Item = (libc::c_long, &'static str)> {
    CALLS.iter().map(|(_, number, _, name)| (*number, *name))
}

/// The name of one of them.
pub(crate) fn name_of(number: libc::c_long) -> String {
    let known = calls().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("system call {number}"), |(_, name)| name.to_owned())
}

/// What the filters of a process let the recorder do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// All of it.
    Everything,
    /// Recording, and nothing that can be done without.
    RecordingAlone,
}

/// Reads the filters of a process and judges them: those of each thread that has any, since each may have put its own on
/// itself. Such a thread is stopped for some microseconds.
pub fn check(pid: u32) -> Result<Allowed> {
    let mut allowed = Allowed::Everything;
    let mut judged: Vec<Filters> = Vec::new();
    for tid in filtered_threads(pid) {
        let Some(filters) = read(pid, tid)? else { continue };
        if judged.contains(&filters) {
            continue;
        }
        let whose = if tid as u32 == pid { format!("process {pid}") } else { format!("thread {tid} of process {pid}") };
        let forbids = |name| Refusal(format!("a seccomp filter of {whose} forbids {name}, which the recorder needs"));
        if judge(&filters).map_err(forbids)? == Allowed::RecordingAlone {
            allowed = Allowed::RecordingAlone;
        }
        judged.push(filters);
    }
    Ok(allowed)
}

/// Whether any thread of a process has a filter.
pub fn has_filter(pid: u32) -> bool {
    !filtered_threads(pid).is_empty()
}

/// The threads of a process that have filters.
fn filtered_threads(pid: u32) -> Vec<i32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let ids = tasks.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|tid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
        // A first thread that has ended stays there as a zombie, which nobody may trace and which makes no call.
        !matches!(field("Seccomp:"), "" | "0") && !field("State:").starts_with(['Z', 'X'])
    })
    .collect()
}

/// The instructions of a thread's filters.
type Filters = Vec<Vec<[u8; 8]>>;

/// Reads the filters of a thread; `None` when it is gone.
fn read(pid: u32, tid: i32) -> Result<Option<Filters>> {
    let unreadable = |why: String| {
        refuse(format!(
            "process {pid} has a seccomp filter that cannot be read ({why}): whether the recorder's system calls are \
             allowed is not known; --force attaches all the same"
        ))
    };
    match ptrace(libc::PTRACE_SEIZE, tid, 0, 0) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(not_permitted(pid)),
        Err(error) => return unreadable(error.to_string()),
    }
    let thread = StoppedThread { tid };
    if StoppedThread::interrupt(tid)?.is_none() {
        return Ok(None);
    }
    let mut filters = Vec::new();
    loop {
        let number = filters.len() as u64;
        // SAFETY: without a place for it, the kernel only says how many instructions the filter has.
        let len = unsafe { libc::ptrace(GET_FILTER as _, tid, number, 0_u64) };
        if len < 0 {
            let error = std::io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::ENOENT) && !filters.is_empty() {
                break;
            }
            if error.raw_os_error() == Some(libc::EINVAL) {
                drop(thread);
                return refuse(format!(
                    "thread {tid} of process {pid} is in seccomp's strict mode, which forbids all that the recorder needs"
                ));
            }
            drop(thread);
            return unreadable(error.to_string());
        }
        let mut program = vec![[0_u8; 8]; len as usize];
        if let Err(error) = ptrace(GET_FILTER, tid, number, program.as_mut_ptr() as u64) {
            drop(thread);
            return unreadable(error.to_string());
        }
        filters.push(program);
    }
    drop(thread);
    Ok(Some(filters))
}

/// What filters allow; otherwise the name of a call that they must not forbid.
fn judge(filters: &[Vec<[u8; 8]>]) -> std::result::Result<Allowed, &'static str> {
    let mut allowed = Allowed::Everything;
    let mut is_clone_needed = false;
    for &(need, number, arguments, name) in CALLS {
        if number == libc::SYS_clone && !is_clone_needed {
            continue;
        }
        let data = call_data(number, &arguments);
        for verdict in filters.iter().map(|filter| run(filter, &data).unwrap_or(KILL)) {
            let (action, error) = (verdict & 0xffff_0000, verdict & 0xffff);
            match need {
                _ if matches!(action, ALLOW | LOG) => {}
                MayFail | Dispensable if action == ERROR => {}
                PassesOrUnknown if action == ERROR && error == libc::ENOSYS as u32 => is_clone_needed = true,
                Dispensable => allowed = Allowed::RecordingAlone,
                _ => return Err(name),
            }
        }
    }
    Ok(allowed)
}

/// What a filter sees of a call.
fn call_data(number: libc::c_long, arguments: &[u64; 6]) -> [u8; 64] {
    let mut data = [0; 64];
    let words = [&(number as u32).to_le_bytes()[..], &MACHINE.to_le_bytes(), &[0; 8]].concat();
    let arguments = arguments.iter().flat_map(|word| word.to_le_bytes());
    data.iter_mut().zip(words.into_iter().chain(arguments)).for_each(|(to, from)| *to = from);
    data
}

/// Runs a filter; `None` for one that the kernel would not have taken.
fn run(program: &[[u8; 8]], data: &[u8; 64]) -> Option<u32> {
    let (mut a, mut x, mut cells) = (0_u32, 0_u32, [0_u32; 16]);
    let mut at = 0_usize;
    loop {
        let [c0, c1, yes, no, k @ ..] = *program.get(at)?;
        let (code, k) = (u16::from_le_bytes([c0, c1]), u32::from_le_bytes(k));
        at += 1;
        let operand = if code & 8 != 0 { x } else { k };
        match code & 7 {
            0 if code == 0x20 => a = u32::from_le_bytes(data.get(k as usize..k as usize + 4)?.try_into().ok()?),
            0 if code == 0x80 => a = 64,
            0 if code == 0x60 => a = *cells.get(k as usize)?,
            0 => a = k,
            1 if code == 0x61 => x = *cells.get(k as usize)?,
            1 if code == 0x81 => x = 64,
            1 => x = k,
            2 => *cells.get_mut(k as usize)? = a,
            3 => *cells.get_mut(k as usize)? = x,
            4 => {
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    0x30 => a.checked_div(operand)?,
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.checked_shl(operand).unwrap_or(0),
                    0x70 => a.checked_shr(operand).unwrap_or(0),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ operand,
                    _ => return None,
                };
            }
            5 => {
                let holds = match code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(k as usize)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if holds { yes } else { no });
            }
            6 => return Some(if code & 0x18 == 0x10 { a } else { k }),
            _ if code & 0xf8 == 0x80 => a = x,
            _ => x = a,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u16, yes: u8, no: u8, k: u32) -> [u8; 8] {
        let [c0, c1] = code.to_le_bytes();
        let [k0, k1, k2, k3] = k.to_le_bytes();
        [c0, c1, yes, no, k0, k1, k2, k3]
    }

    #[test]
    fn a_filter_is_run_as_the_kernel_does() {
        // Load the number; is it mmap? Then error 1, else allow.
        let program = [
            instruction(0x20, 0, 0, 0),
            instruction(0x15, 0, 1, libc::SYS_mmap as u32),
            instruction(0x06, 0, 0, 0x0005_0001),
            instruction(0x06, 0, 0, ALLOW),
        ];
        let verdict = |number| run(&program, &call_data(number, &[0; 6]));
        assert_eq!((verdict(libc::SYS_mmap), verdict(libc::SYS_read)), (Some(0x0005_0001), Some(ALLOW)));
        assert_eq!(run(&program[..1], &call_data(0, &[0; 6])), None);
    }

    /// A filter that does `action` for one call.
    fn filter(number: libc::c_long, action: u32) -> Vec<[u8; 8]> {
        vec![
            instruction(0x20, 0, 0, 0),
            instruction(0x15, 0, 1, number as u32),
            instruction(0x06, 0, 0, action),
            instruction(0x06, 0, 0, ALLOW),
        ]
    }

    #[test]
    fn a_call_that_would_kill_is_never_made() {
        let traps = 0x0003_0000;
        for &(need, number, _, name) in CALLS.iter().filter(|(_, number, ..)| *number != libc::SYS_clone) {
            for action in [KILL, 0x8000_0000, traps] {
                let verdict = judge(&[filter(number, LOG), filter(number, action)]);
                let expected = if need == Dispensable { Ok(Allowed::RecordingAlone) } else { Err(name) };
                let same_number = calls().filter(|(known, _)| *known == number).count() > 1;
                assert!(verdict == expected || same_number && verdict.is_err(), "{name}: {verdict:?}");
            }
        }
        assert_eq!(judge(&[filter(1000, KILL)]), Ok(Allowed::Everything));
    }

    #[test]
    fn what_may_fail_may_be_refused() {
        let refused = |number, error: i32| judge(&[filter(number, ERROR | error as u32)]);
        assert_eq!(refused(libc::SYS_socket, libc::EPERM), Ok(Allowed::Everything));
        assert_eq!(refused(libc::SYS_membarrier, libc::EPERM), Ok(Allowed::Everything));
        assert_eq!(refused(libc::SYS_pwrite64, libc::EPERM), Err("pwrite64"));
        assert_eq!(refused(libc::SYS_clone3, libc::EPERM), Err("clone3"));
        assert_eq!(refused(libc::SYS_clone3, libc::ENOSYS), Ok(Allowed::Everything));
        let neither = [filter(libc::SYS_clone3, ERROR | libc::ENOSYS as u32), filter(libc::SYS_clone, KILL)];
        assert_eq!(judge(&neither), Err("clone"));
        assert_eq!(judge(&neither[1..]), Ok(Allowed::Everything));
    }

    #[test]
    fn every_call_of_the_recorder_is_judged() {
        use tracehound_shared::sys::{CallingThreads, calls_by};
        let judged =
            |number, needs: &[Need]| CALLS.iter().any(|(need, known, ..)| *known == number && needs.contains(need));
        for (by, needs) in [
            (CallingThreads::Program, &[Passes, MayFail][..]),
            (CallingThreads::Writer, &[Passes, MayFail]),
            (CallingThreads::Start, &[Passes, MayFail, Dispensable]),
        ] {
            for call in calls_by(by) {
                assert!(judged(call.number, needs), "{} of {by:?}", call.name);
            }
        }
    }
}
