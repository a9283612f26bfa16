//! Check that the seccomp filters of a process allow the recorder's system calls.
//!
//! The filters are read by ptrace and run here, on the calls that an attach and the recorder's thread make. One that
//! would refuse or kill for any of them keeps the process untouched; so does one that cannot be read.

use crate::refusal::{Result, refuse};
use crate::stop::{StoppedThread, ptrace};

const GET_FILTER: libc::c_uint = 0x420c;
/// `AUDIT_ARCH_X86_64`.
const MACHINE: u32 = 0xc000_003e;
const ALLOW: u32 = 0x7fff_0000;
const ERROR: u32 = 0x0005_0000;
const LOG: u32 = 0x7ffc_0000;

/// What an attach needs, on a thread of the program and on the recorder's own.
const NEEDED: &[(libc::c_long, [u64; 6], &str)] = &[
    (libc::SYS_mmap, [0, 4096, 3, 0x22, u64::MAX, 0], "mmap"),
    (libc::SYS_mmap, [0, 4096, 5, 2, 3, 0], "mmap of code"),
    (libc::SYS_mprotect, [0, 4096, 1, 0, 0, 0], "mprotect"),
    (libc::SYS_munmap, [0, 4096, 0, 0, 0, 0], "munmap"),
    (libc::SYS_madvise, [0, 4096, 4, 0, 0, 0], "madvise"),
    (libc::SYS_socketpair, [1, 2, 0, 0, 0, 0], "socketpair"),
    (libc::SYS_recvmsg, [3, 0, 0, 0, 0, 0], "recvmsg"),
    (libc::SYS_openat, [0xffff_ff9c, 0, 0, 0, 0, 0], "openat"),
    (libc::SYS_read, [3, 0, 0, 0, 0, 0], "read"),
    (libc::SYS_pread64, [3, 0, 0, 0, 0, 0], "pread64"),
    (libc::SYS_pwrite64, [3, 0, 0, 0, 0, 0], "pwrite64"),
    (libc::SYS_fstat, [3, 0, 0, 0, 0, 0], "fstat"),
    (libc::SYS_ftruncate, [3, 0, 0, 0, 0, 0], "ftruncate"),
    (libc::SYS_fallocate, [3, 0, 0, 0, 0, 0], "fallocate"),
    (libc::SYS_readlinkat, [0xffff_ff9c, 0, 0, 0, 0, 0], "readlinkat"),
    (libc::SYS_fcntl, [3, 1030, 256, 0, 0, 0], "fcntl"),
    (libc::SYS_flock, [3, 6, 0, 0, 0, 0], "flock"),
    (libc::SYS_close, [3, 0, 0, 0, 0, 0], "close"),
    (libc::SYS_unshare, [0x400, 0, 0, 0, 0, 0], "unshare"),
    (libc::SYS_close_range, [3, 4, 2, 0, 0, 0], "close_range"),
    (libc::SYS_clone3, [0, 88, 0, 0, 0, 0], "clone3"),
    (libc::SYS_futex, [0, 128, 0, 0, 0, 0], "futex"),
    (libc::SYS_membarrier, [8, 0, 0, 0, 0, 0], "membarrier"),
    (libc::SYS_nanosleep, [0, 0, 0, 0, 0, 0], "nanosleep"),
    (libc::SYS_select, [0, 0, 0, 0, 0, 0], "select"),
    (libc::SYS_rt_sigreturn, [0, 0, 0, 0, 0, 0], "rt_sigreturn"),
    (libc::SYS_rt_sigprocmask, [2, 0, 0, 8, 0, 0], "rt_sigprocmask"),
    (libc::SYS_clock_gettime, [1, 0, 0, 0, 0, 0], "clock_gettime"),
    (libc::SYS_prctl, [15, 0, 0, 0, 0, 0], "prctl"),
    (libc::SYS_unlinkat, [0xffff_ff9c, 0, 0, 0, 0, 0], "unlinkat"),
    (libc::SYS_getpid, [0; 6], "getpid"),
    (libc::SYS_gettid, [0; 6], "gettid"),
    (libc::SYS_tgkill, [1, 1, 0, 0, 0, 0], "tgkill"),
];

/// Calls whose refusal by an error number does no harm: there is another way, or it is done without.
const OPTIONAL: &[&str] =
    &["clone3", "membarrier", "close_range", "unshare", "fallocate", "flock", "unlinkat", "madvise", "prctl"];

/// Reads the filters of the process and judges them. The process is stopped for some microseconds.
pub fn check(pid: u32) -> Result<()> {
    let unreadable = |why: String| {
        refuse(format!(
            "process {pid} has a seccomp filter that cannot be read ({why}): whether the recorder's system calls are \
             allowed is not known; --force attaches all the same"
        ))
    };
    let tid = pid as i32;
    if let Err(error) = ptrace(libc::PTRACE_SEIZE, tid, 0, 0) {
        return unreadable(error.to_string());
    }
    let thread = StoppedThread { tid };
    if StoppedThread::interrupt(tid)?.is_none() {
        return refuse(format!("process {pid} has ended"));
    }
    let mut filters = Vec::new();
    loop {
        let number = filters.len() as u64;
        // SAFETY: without a place for it, the kernel only says how many instructions the filter has.
        let len = unsafe { libc::ptrace(GET_FILTER, tid, number, 0_u64) };
        if len < 0 {
            let error = std::io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::ENOENT) && !filters.is_empty() {
                break;
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
    for (number, arguments, name) in NEEDED {
        let data = call_data(*number, arguments);
        for filter in &filters {
            let verdict = run(filter, &data).unwrap_or(0);
            let action = verdict & 0xffff_0000;
            let passes = matches!(action, ALLOW | LOG) || action == ERROR && OPTIONAL.contains(name);
            if !passes {
                return refuse(format!("a seccomp filter of process {pid} forbids {name}, which the recorder needs"));
            }
        }
    }
    Ok(())
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
}
