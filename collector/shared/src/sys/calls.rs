//! The table of the functions that [`sys`](super) exports: each function, the threads that may call it, and the system
//! calls that it makes, with the arguments that matter to filters: operations, flags and protections. Addresses,
//! lengths and descriptors are zero or arbitrary.

use core::ffi::{c_int, c_long};

/// Which threads make a call, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallingThreads {
    /// Any thread of the program, in any event.
    Program,
    /// The writer's thread. A thread of the program only while no filter is known that would kill it for such a call
    /// ([`Session::confined`](crate::session::Session::confined)): where it starts a recording, or does the work of
    /// a writer that has no thread.
    Writer,
    /// The same threads, and one that is about to exec, but only as long as the program has put no filter on all of them
    /// ([`Session::filtered`](crate::session::Session::filtered)): what a recording can do without once it runs.
    Start,
    /// A thread of the program that was about to make the same call.
    InPlace,
}

/// A system call: number and arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemCall {
    /// `SYS_*`.
    pub number: c_long,
    /// Arguments.
    pub arguments: [u64; 6],
    /// Its name.
    pub name: &'static str,
}

/// A function of this module.
#[derive(Clone, Copy, Debug)]
pub struct KernelFunction {
    /// Its name.
    pub name: &'static str,
    /// Who calls it.
    pub by: CallingThreads,
    /// What it calls.
    pub calls: &'static [SystemCall],
}

/// All system calls that `by` makes.
pub fn calls_by(by: CallingThreads) -> impl Iterator<Item = SystemCall> {
    FUNCTIONS.iter().filter(move |function| function.by == by).flat_map(|function| function.calls.iter().copied())
}

const fn padded(given: &[u64]) -> [u64; 6] {
    let mut arguments = [0; 6];
    let mut at = 0;
    while at < given.len() {
        arguments[at] = given[at];
        at += 1;
    }
    arguments
}

/// `FILE { FUNCTION: WHO [SYS_CALL(ARGUMENTS), …] }` gives the function to the rest of the crate and a row to the table.
macro_rules! table {
    ($($file:ident { $($name:ident: $by:ident [$($call:ident($($argument:expr),*)),*],)* })*) => {
        $(pub use super::$file::{$($name),*};)*
        /// The table.
        pub const FUNCTIONS: &[KernelFunction] = &[$($(
            KernelFunction {
                name: stringify!($name),
                by: CallingThreads::$by,
                calls: &[$(SystemCall {
                    number: libc::$call,
                    arguments: padded(&[$($argument as u64),*]),
                    name: stringify!($call),
                }),*],
            },
        )*)*];
    };
}

const CWD: c_int = libc::AT_FDCWD;
const OPEN: c_int = libc::O_RDONLY | libc::O_CLOEXEC;
const MASK_BYTES: u64 = 8;
const WAIT: c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const WAKE: c_int = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
const EXPEDITED: u64 = 1 << 3;
const REGISTER_EXPEDITED: u64 = 1 << 4;
const NONE: c_int = -1;
const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
const THERE: c_int = PRIVATE | libc::MAP_FIXED_NOREPLACE;
const OVER: c_int = libc::MAP_SHARED | libc::MAP_FIXED;
const SOCKET: c_int = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
const QUIET: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

table! {
    waiting {
        futex_wait: Program [SYS_futex(0, WAIT)],
        futex_wake: Program [SYS_futex(0, WAKE, i32::MAX)],
        sleep: Program [SYS_nanosleep()],
        barrier: Program [SYS_membarrier(EXPEDITED), SYS_nanosleep()],
        barrier_register: Start [SYS_membarrier(REGISTER_EXPEDITED)],
    }
    raw {
        is_readable: Program [SYS_rt_sigprocmask(NONE, 0, 0, MASK_BYTES)],
        thread_exists: Program [SYS_tgkill()],
        clock: Program [SYS_clock_gettime(libc::CLOCK_MONOTONIC)],
        thread_name: Program [SYS_prctl(libc::PR_GET_NAME)],
        counter_is_allowed: Start [SYS_prctl(super::raw::PR_GET_TSC)],
        host_name: Start [SYS_uname()],
        mmap_for_program: InPlace [SYS_mmap()],
        munmap_for_program: InPlace [SYS_munmap()],
        current_break: InPlace [SYS_brk()],
        resident_pages: Start [SYS_mincore(0, 4096)],
        exit_process: InPlace [SYS_exit_group()],
        SignalsBlocked: Program [SYS_rt_sigprocmask(libc::SIG_SETMASK, 0, 0, MASK_BYTES)],
        forget_size_signal: Writer [SYS_rt_sigtimedwait(0, 0, 0, MASK_BYTES)],
    }
    memory {
        map_memory: Program [SYS_mmap(0, 4096, READ_WRITE, PRIVATE, NONE, 0)],
        map_unlisted: Program [SYS_mmap(0, 4096, READ_WRITE, PRIVATE, NONE, 0)],
        map_at_free: Program [SYS_mmap(0, 4096, READ_WRITE, THERE, NONE, 0)],
        unmap: Program [SYS_munmap(0, 4096)],
        unmap_unlisted: Program [SYS_munmap(0, 4096)],
        populate: Program [SYS_madvise(0, 4096, libc::MADV_POPULATE_WRITE)],
        are_readable: Program [SYS_madvise(0, 4096, libc::MADV_POPULATE_READ)],
        wipe_in_children: Program [SYS_madvise(0, 4096, libc::MADV_WIPEONFORK)],
        keep_apart: Writer [
            SYS_madvise(0, 4096, libc::MADV_DONTFORK),
            SYS_madvise(0, 4096, libc::MADV_DONTDUMP),
            SYS_madvise(0, 4096, libc::MADV_RANDOM)
        ],
        map_shared: Start [SYS_mmap(0, 4096, READ_WRITE, libc::MAP_SHARED, 0, 0)],
        map_shared_over: Writer [SYS_mmap(0, 4096, READ_WRITE, OVER, 0, 0)],
        lock_memory: Start [SYS_mlock2(), SYS_mlock2(0, 4096, libc::MLOCK_ONFAULT)],
        protect: Start [
            SYS_mprotect(0, 4096, libc::PROT_NONE),
            SYS_mprotect(0, 4096, libc::PROT_READ | libc::PROT_EXEC)
        ],
        let_write: Start [
            SYS_mprotect(0, 4096, libc::PROT_READ | libc::PROT_WRITE),
            SYS_mprotect(0, 4096, libc::PROT_READ)
        ],
    }
    pages {
        scan_pages: Start [SYS_ioctl(0, super::pages::PAGEMAP_SCAN)],
    }
    process {
        process_id: Program [SYS_getpid()],
        thread_id: Program [SYS_gettid()],
        parent_id: Start [SYS_getppid()],
        user_id: Start [SYS_geteuid()],
        process_exists: Start [SYS_kill()],
        resource_limit: Start [SYS_prlimit64()],
        memory_room: Start [SYS_prlimit64(), SYS_openat(CWD, 0, OPEN), SYS_pread64(), SYS_close()],
        set_thread_name: Start [SYS_prctl(libc::PR_SET_NAME)],
        own_directory: Start [SYS_unshare(libc::CLONE_FS)],
        own_descriptor_table: Start [
            SYS_close_range(u32::MAX, u32::MAX, 2),
            SYS_close_range(),
            SYS_unshare(libc::CLONE_FILES),
            SYS_readlinkat(CWD),
            SYS_fcntl(0, libc::F_DUPFD_CLOEXEC),
            SYS_prlimit64(),
            SYS_close()
        ],
    }
    credentials {
        thread_credentials: Start [
            SYS_getresuid(),
            SYS_getresgid(),
            SYS_capget(),
            SYS_prctl(libc::PR_GET_SECUREBITS)
        ],
        take_credentials: Start [
            SYS_setresgid(),
            SYS_setresuid(),
            SYS_capset(),
            SYS_prctl(libc::PR_SET_SECUREBITS),
            SYS_prctl(libc::PR_SET_KEEPCAPS),
            SYS_prctl(libc::PR_SET_KEEPCAPS, 1)
        ],
        may_lock_memory: Start [SYS_capget()],
        gains_rights: Start [
            SYS_newfstatat(CWD),
            SYS_getresuid(),
            SYS_getresgid(),
            SYS_getxattr(),
            SYS_statfs(),
            SYS_prctl(libc::PR_GET_NO_NEW_PRIVS)
        ],
    }
    files {
        is_executable: Start [SYS_faccessat(CWD, 0, libc::X_OK)],
        open_at: Writer [SYS_openat(CWD, 0, OPEN)],
        close: Writer [SYS_close()],
        write_all_at: Writer [SYS_pwrite64()],
        write_once: Writer [SYS_write(2)],
        read_at: Writer [SYS_pread64()],
        read_on: Writer [SYS_pread64()],
        read_file: Writer [SYS_openat(CWD, 0, OPEN), SYS_pread64(), SYS_close()],
        read_start: Start [SYS_openat(CWD, 0, OPEN), SYS_pread64(), SYS_close()],
        read_link: Writer [SYS_readlinkat(CWD)],
        truncate: Writer [SYS_ftruncate()],
        allocate: Writer [SYS_fallocate(), SYS_fallocate(0, libc::FALLOC_FL_KEEP_SIZE)],
        stat: Writer [SYS_fstat()],
        identity: Writer [SYS_fstat()],
        unlink_at: Writer [SYS_unlinkat(CWD)],
        move_high: Writer [SYS_fcntl(0, libc::F_DUPFD_CLOEXEC), SYS_close()],
        lock_file: Writer [SYS_flock(0, libc::LOCK_EX | libc::LOCK_NB)],
        working_directory: Start [SYS_getcwd()],
        random: Start [SYS_getrandom(0, 16, libc::GRND_NONBLOCK)],
        names_in: Start [SYS_openat(CWD, 0, OPEN | libc::O_DIRECTORY), SYS_getdents64(), SYS_close()],
        private_folder: Start [
            SYS_mkdirat(CWD, 0, 0o700),
            SYS_openat(CWD, 0, OPEN | libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW),
            SYS_fstat(),
            SYS_close()
        ],
    }
    socket {
        listen_at: Start [
            SYS_socket(libc::AF_UNIX, SOCKET, 0),
            SYS_unlinkat(CWD),
            SYS_bind(),
            SYS_fchmodat(CWD, 0, 0o600),
            SYS_listen(),
            SYS_close()
        ],
        accept: Start [SYS_accept4(0, 0, 0, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)],
        peer_user: Start [SYS_getsockopt(0, libc::SOL_SOCKET, libc::SO_PEERCRED)],
        receive: Start [SYS_recvfrom(0, 0, 0, libc::MSG_DONTWAIT)],
        send: Start [SYS_sendto(0, 0, 0, QUIET)],
    }
}
