//! How much memory of no file this process has, by the kernel's counts, and how much it had at most.

use std::cell::Cell;
use std::ffi::CStr;

use crate::event::PAGE;

/// The counts. Reading them allocates nothing, and takes time that is not the allocator's.
pub struct MemoryMeter {
    statm: i32,
    status: i32,
    references: i32,
    spent_ns: Cell<u64>,
}

impl MemoryMeter {
    /// Opens the files of the kernel. Without them all is 0.
    pub fn new() -> Self {
        // SAFETY: terminated names.
        let open = |name: &CStr, how| unsafe { libc::open(name.as_ptr(), how | libc::O_CLOEXEC) };
        Self {
            statm: open(c"/proc/self/statm", libc::O_RDONLY),
            status: open(c"/proc/self/status", libc::O_RDONLY),
            references: open(c"/proc/self/clear_refs", libc::O_WRONLY),
            spent_ns: Cell::new(0),
        }
    }

    /// Processor time that was spent here, nanoseconds.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns.get()
    }

    /// Resident memory of no file, bytes.
    pub fn anonymous(&self) -> u64 {
        self.measured(|| {
            let (resident, shared) = self.resident();
            resident.saturating_sub(shared)
        })
    }

    /// From here on [`most`](Self::most) is asked for.
    pub fn watch(&self) {
        // SAFETY: a valid buffer. The number stands for the highest resident memory.
        self.measured(|| unsafe { libc::write(self.references, b"5".as_ptr().cast(), 1) });
    }

    /// The most memory of no file since [`watch`](Self::watch), bytes. What of files has come in since then is taken for what was
    /// there all along, so that it is too low by that.
    pub fn most(&self) -> u64 {
        const NAME: &str = "VmHWM:";
        self.measured(|| {
            let mut buffer = [0_u8; 4096];
            let text = read(self.status, &mut buffer);
            let line = text.lines().find_map(|line| line.strip_prefix(NAME));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
            (kib << 10).saturating_sub(self.resident().1)
        })
    }

    /// Resident memory, and that of files, bytes.
    fn resident(&self) -> (u64, u64) {
        let mut buffer = [0_u8; 128];
        let text = read(self.statm, &mut buffer);
        let mut numbers = text.split(' ').skip(1).map(|word| word.parse::<u64>().unwrap_or(0) * PAGE as u64);
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }

    fn measured<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = thread_ns();
        let result = work();
        self.spent_ns.set(self.spent_ns.get() + thread_ns().saturating_sub(began));
        result
    }
}

/// A small file of the kernel's, from its beginning.
fn read(fd: i32, buffer: &mut [u8]) -> &str {
    // SAFETY: a valid buffer.
    let len = unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    std::str::from_utf8(buffer.get(..usize::try_from(len).unwrap_or(0)).unwrap_or_default()).unwrap_or("")
}

/// Processor time of this thread; not by the C library's name, which shows the recorded time.
fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
