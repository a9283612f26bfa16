//! Choice of a thread that may be borrowed: one that was interrupted where a signal handler could have called any
//! function.
//!
//! The rule is that of POSIX for signal handlers: a call is safe if no unsafe function was interrupted. So a full
//! unwinding from outside must show a stack that begins in the program's own code or in a system call of libc's that
//! only waits, and that nowhere goes through the loader, an allocator, fork, exit, or code of libc's that has no name.
//! A stack that cannot be unwound to its end proves nothing.

use std::ops::Range;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};

use crate::memory::ProcessMemory;
use crate::objects::{DynamicSymbol, ProcessObject, symbol_around, symbol_named};
use crate::refusal::Result;
use crate::stop::{StoppedThread, ptrace};

/// Frames of the deepest stack that is looked at.
const DEEPEST: usize = 4096;

/// System calls that wait for something, or are done at once, and that libc's functions make without a lock of its own.
const WAITING: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_pause,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_fcntl,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_io_getevents,
];

/// Those of them that an allocator makes, too.
const MADE_BY_ALLOCATORS: &[libc::c_long] = &[libc::SYS_sched_yield];

/// Functions in which a thread may wait for another one, by how their names begin.
const WAITS: &[&str] = &[
    "pthread_cond_",
    "pthread_mutex_",
    "pthread_rwlock_",
    "pthread_barrier_",
    "pthread_join",
    "pthread_timedjoin_np",
    "pthread_clockjoin_np",
    "sem_",
    "cnd_",
    "mtx_",
    "thrd_join",
    "__pthread_",
    // Rust's threads park by it.
    "syscall",
];

/// Those of them by which allocators lock.
const LOCKS: &[&str] = &["syscall", "pthread_mutex_", "pthread_rwlock_", "mtx_", "__pthread_mutex", "__pthread_rwlock"];

/// Functions of libc that hold a lock which our calls need, too, by how their names begin.
const UNSAFE: &[&str] = &[
    "fork",
    "vfork",
    "_Fork",
    "__fork",
    "__vfork",
    "__libc_fork",
    "posix_spawn",
    "clone",
    "daemon",
    "exit",
    "quick_exit",
    "_exit",
    "__cxa_",
    "__libc_freeres",
    "dl",
    "_dl",
    "__libc_dl",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_free",
    "__libc_memalign",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "mallopt",
    "mallinfo",
    "mcheck",
    "mprobe",
    "pthread_create",
    "pthread_exit",
    "pthread_atfork",
    "__register_atfork",
    "pthread_key_",
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setgroups",
];

/// What is known of a process for judging its threads.
pub struct StackJudge<'a> {
    memory: &'a ProcessMemory,
    objects: &'a [ProcessObject],
    libc: &'a ProcessObject,
    libc_symbols: &'a [DynamicSymbol],
    /// Objects in which no frame may lie: the loader, another allocator, the recorder.
    forbidden: Vec<Range<u64>>,
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
    /// Where libc keeps a thread's id, from its thread pointer.
    thread_id_at: Option<u64>,
    /// libc's allocator.
    allocator: Range<u64>,
    /// Before glibc 2.34, the library of threads.
    threads: Option<(ProcessObject, Vec<DynamicSymbol>)>,
    /// An executable that defines malloc.
    own_allocator: Option<OwnAllocator>,
}

/// Whose code is at an address.
enum CodeOwner<'a> {
    /// Not the C library's.
    Other,
    /// A function of the C library's, by its exported name.
    Named(&'a str),
    /// One that is not exported.
    Nameless,
}

/// An executable with an allocator inside: where in it the allocator's functions lie is known only as far as they are
/// exported.
pub struct OwnAllocator {
    /// The executable.
    object: ProcessObject,
    /// The allocator's exported functions.
    functions: Vec<Range<u64>>,
}

impl OwnAllocator {
    /// `None` if the object does not define malloc.
    #[must_use]
    pub fn of(object: &ProcessObject, symbols: &[DynamicSymbol]) -> Option<Self> {
        defines_malloc(object, symbols).then(|| {
            let is_one =
                |symbol: &&DynamicSymbol| OWN.iter().chain(ALLOCATOR).any(|name| symbol.name.starts_with(name));
            let functions = symbols.iter().filter(is_one).map(|symbol| symbol.start..symbol.start + symbol.len);
            Self { object: object.clone(), functions: functions.collect() }
        })
    }
}

/// Whether an object has a malloc of its own.
#[must_use]
pub fn defines_malloc(object: &ProcessObject, symbols: &[DynamicSymbol]) -> bool {
    symbols.iter().any(|symbol| symbol.name == "malloc" && object.has_code_at(symbol.start))
}

/// How names of exported functions of allocators begin, besides those of libc's: operators new and delete, jemalloc's,
/// tcmalloc's, mimalloc's.
const OWN: &[&str] = &[
    "_Znw",
    "_Zna",
    "_Zdl",
    "_Zda",
    "je_",
    "_rjem_",
    "mallctl",
    "nallocx",
    "rallocx",
    "sallocx",
    "xallocx",
    "dallocx",
    "sdallocx",
    "tc_",
    "MallocExtension",
    "_ZN8tcmalloc",
    "mi_",
    "_mi_",
];

/// Functions of libc's allocator, by how their names begin.
const ALLOCATOR: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "free",
    "cfree",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "mallopt",
    "mallinfo",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_free",
    "__libc_memalign",
    "__libc_valloc",
    "__libc_pvalloc",
    "__libc_mallopt",
    "__libc_mallinfo",
    "__default_morecore",
    "__malloc_",
    "__posix_memalign",
];

/// Functions that hold the locks of all arenas.
const FORKS: &[&str] = &["fork", "__fork", "_Fork", "__libc_fork"];

/// The addresses of libc's allocator: functions with names, and those without around them.
fn allocator(symbols: &[DynamicSymbol], code: &[Range<u64>]) -> Range<u64> {
    const NAMELESS: u64 = 32 << 10;
    let is_one = |symbol: &&DynamicSymbol| ALLOCATOR.iter().any(|name| symbol.name.starts_with(name));
    let Some(malloc) = symbol_named(symbols, "malloc") else { return 0..0 };
    let in_code = |symbol: &&DynamicSymbol| code.iter().any(|range| range.contains(&symbol.start));
    let near = |symbol: &&DynamicSymbol| in_code(symbol) && symbol.start.abs_diff(malloc.start) < NAMELESS;
    let family = || symbols.iter().filter(near).filter(is_one);
    let others = || symbols.iter().filter(near).filter(|symbol| !is_one(symbol));
    let first = family().map(|symbol| symbol.start).min().unwrap_or(malloc.start);
    let last = family().map(|symbol| symbol.start + symbol.len).max().unwrap_or(malloc.start);
    let before = others().map(|symbol| symbol.start + symbol.len).filter(|&end| end <= first).max();
    let behind = others().map(|symbol| symbol.start).filter(|&start| start >= last).min();
    before.unwrap_or(first.saturating_sub(NAMELESS))..behind.unwrap_or(last)
}

impl<'a> StackJudge<'a> {
    /// Reads the unwind information of all objects. `allocator` defines the program's malloc.
    #[must_use]
    pub fn new(
        memory: &'a ProcessMemory,
        objects: &'a [ProcessObject],
        libc: &'a ProcessObject,
        libc_symbols: &'a [DynamicSymbol],
        forbidden: Vec<Range<u64>>,
        own_allocator: Option<OwnAllocator>,
    ) -> Self {
        let mut unwinder = UnwinderX86_64::new();
        for object in objects {
            if let Some(module) = module(memory, object) {
                unwinder.add_module(module);
            }
        }
        let thread_id_at = symbol_named(libc_symbols, "_thread_db_pthread_tid")
            .and_then(|symbol| memory.half(symbol.start + 8))
            .map(u64::from);
        let allocator = allocator(libc_symbols, &libc.code);
        let cache = CacheX86_64::new();
        let threads = objects.iter().find(|object| object.name().starts_with("libpthread"));
        let threads = threads.map(|object| (object.clone(), object.symbols(memory).unwrap_or_default()));
        Self {
            memory,
            objects,
            libc,
            libc_symbols,
            forbidden,
            unwinder,
            cache,
            thread_id_at,
            allocator,
            threads,
            own_allocator,
        }
    }

    /// Whether the thread is in libc's allocator, in an object where no frame may lie, or in a fork, which holds the
    /// allocator's locks: as far as its stack can be unwound.
    pub fn is_in_allocator(&mut self, thread: &StoppedThread) -> bool {
        let Some(registers) = thread.registers() else { return false };
        let (frames, _) = self.known_frames(&registers);
        frames.iter().any(|frame| {
            let symbol = || symbol_around(self.libc_symbols, *frame).filter(|_| self.libc.has_code_at(*frame));
            let forbidden = self.forbidden.iter().any(|range| range.contains(frame));
            forbidden
                || self.allocator.contains(frame)
                || symbol().is_some_and(|symbol| FORKS.contains(&symbol.name.as_str()))
        })
    }

    /// Whether the thread is in an object where no frame may lie, as far as its stack can be unwound.
    pub fn is_in_forbidden(&mut self, thread: &StoppedThread) -> bool {
        let Some(registers) = thread.registers() else { return false };
        let (frames, _) = self.known_frames(&registers);
        frames.iter().any(|frame| self.forbidden.iter().any(|range| range.contains(frame)))
    }

    /// The first thread that may be borrowed, with its place among `threads`.
    pub fn choose(&mut self, threads: &[StoppedThread], own_id: impl Fn(i32) -> u32) -> Option<usize> {
        threads.iter().position(|thread| self.may_borrow(thread, own_id(thread.tid)).is_some())
    }

    fn may_borrow(&mut self, thread: &StoppedThread, id: u32) -> Option<()> {
        let registers = thread.registers()?;
        // 64-bit code, with a thread of libc's around it.
        if registers.cs != 0x33 || !self.is_known_to_libc(registers.fs_base, id) || is_in_rseq(thread, self.memory) {
            return None;
        }
        let pc = registers.rip;
        let first = self.objects.iter().find(|object| object.has_code_at(pc))?;
        let is_libc = self.is_c_library(first);
        let call = (registers.orig_rax as i64 >= 0).then_some(registers.orig_rax as libc::c_long);
        let waits_for_thread = call == Some(libc::SYS_futex) && is_libc;
        match call {
            Some(number) if WAITING.contains(&number) || waits_for_thread => {}
            Some(_) => return None,
            None if is_libc => return None,
            None => {}
        }
        let waits = call.is_some_and(|number| WAITING.contains(&number) && !MADE_BY_ALLOCATORS.contains(&number));
        let frames = self.frames(&registers)?;
        if waits_for_thread && !self.is_a_wait(&frames) || !self.is_outside_own_allocator(call, &frames) {
            return None;
        }
        let last = frames.len();
        let safe = frames.iter().enumerate().all(|(number, &frame)| {
            if self.forbidden.iter().any(|range| range.contains(&frame)) {
                return false;
            }
            match self.in_c_library(frame) {
                CodeOwner::Other => true,
                CodeOwner::Named(name) => !UNSAFE.iter().any(|begin| name.starts_with(begin)),
                // The innermost frames have been looked at; the outermost are those that start threads. In the other waits
                // no lock is held but those of streams, resolvers and the like, which the recorder does not take.
                CodeOwner::Nameless => number == 0 || waits || waits_for_thread && number < 4 || number + 3 >= last,
            }
        });
        safe.then_some(())
    }

    /// Where the executable has an allocator inside: whether the thread waits as a program does, and in no function that is
    /// known to be the allocator's.
    fn is_outside_own_allocator(&self, call: Option<libc::c_long>, frames: &[u64]) -> bool {
        let Some(own) = &self.own_allocator else { return true };
        let locks = self.first_name(frames).is_some_and(|name| LOCKS.iter().any(|begin| name.starts_with(begin)));
        let waits = call.is_some_and(|call| !MADE_BY_ALLOCATORS.contains(&call))
            && frames.first().is_some_and(|frame| !own.object.has_code_at(*frame));
        waits && !locks && !frames.iter().any(|frame| own.functions.iter().any(|range| range.contains(frame)))
    }

    /// Whether the first function with a name is one that waits for threads: not one that waits for a lock of libc's own.
    fn is_a_wait(&self, frames: &[u64]) -> bool {
        match self.first_name(frames) {
            Some(name) => WAITS.iter().any(|begin| name.starts_with(begin)),
            // sem_wait and its like leave to functions that are not exported, which lie right before them.
            None => {
                let inside = |frame: &&u64| matches!(self.in_c_library(**frame), CodeOwner::Nameless);
                let outermost = frames.iter().take_while(inside).last();
                outermost.and_then(|frame| self.name_behind(*frame)).is_some_and(|name| name.starts_with("sem_"))
            }
        }
    }

    /// The name of the first function of the C library right behind an address in it.
    fn name_behind(&self, address: u64) -> Option<&str> {
        const NEAR: u64 = 512;
        let of_threads = self.threads.as_ref().filter(|(object, _)| object.has_code_at(address));
        let symbols = of_threads.map_or(self.libc_symbols, |(_, symbols)| symbols);
        let next = symbols.get(symbols.partition_point(|symbol| symbol.start <= address))?;
        (next.start - address < NEAR).then_some(next.name.as_str())
    }

    /// The innermost name among the frames in the C library, before the first outside it.
    fn first_name(&self, frames: &[u64]) -> Option<&str> {
        for frame in frames {
            match self.in_c_library(*frame) {
                CodeOwner::Other => return None,
                CodeOwner::Named(name) => return Some(name),
                CodeOwner::Nameless => {}
            }
        }
        None
    }

    fn is_c_library(&self, object: &ProcessObject) -> bool {
        object.range == self.libc.range
            || self.threads.as_ref().is_some_and(|(threads, _)| object.range == threads.range)
    }

    /// What an address belongs to.
    fn in_c_library(&self, address: u64) -> CodeOwner<'_> {
        let symbols = if self.libc.has_code_at(address) {
            self.libc_symbols
        } else {
            match &self.threads {
                Some((object, symbols)) if object.has_code_at(address) => symbols,
                _ => return CodeOwner::Other,
            }
        };
        symbol_around(symbols, address).map_or(CodeOwner::Nameless, |symbol| CodeOwner::Named(&symbol.name))
    }

    /// Addresses of all frames, innermost first; `None` when the outermost is not reached.
    fn frames(&mut self, registers: &libc::user_regs_struct) -> Option<Vec<u64>> {
        let (frames, is_whole) = self.known_frames(registers);
        is_whole.then_some(frames)
    }

    /// Addresses of the frames that can be found, innermost first, and whether the outermost is among them.
    fn known_frames(&mut self, registers: &libc::user_regs_struct) -> (Vec<u64>, bool) {
        let memory = self.memory;
        let mut read = |address: u64| memory.word(address).ok_or(());
        let state = UnwindRegsX86_64::new(registers.rip, registers.rsp, registers.rbp);
        let mut found = Vec::new();
        let mut frames = self.unwinder.iter_frames(registers.rip, state, &mut self.cache, &mut read);
        loop {
            let frame = match frames.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => return (found, true),
                Err(_) => return (found, false),
            };
            let address = match frame {
                FrameAddress::InstructionPointer(address) => address,
                FrameAddress::ReturnAddress(address) => address.get() - 1,
            };
            // Code of no object has no information that could be trusted.
            if found.len() == DEEPEST || !self.objects.iter().any(|object| object.has_code_at(address)) {
                return (found, false);
            }
            found.push(address);
        }
    }

    /// Whether the thread is one of libc's: a bare clone may share its storage with another.
    fn is_known_to_libc(&self, thread_pointer: u64, id: u32) -> bool {
        let own = self.memory.word(thread_pointer) == Some(thread_pointer);
        let known = self.thread_id_at.is_none_or(|at| self.memory.half(thread_pointer + at) == Some(id));
        thread_pointer != 0 && own && known
    }
}

/// Whether the thread is in a restartable sequence: moved out of it, it would go on in its middle unprotected.
fn is_in_rseq(thread: &StoppedThread, memory: &ProcessMemory) -> bool {
    const GET_RSEQ_CONFIGURATION: u16 = 0x420f;
    const SECTION: u64 = 8;
    let mut configuration = [0_u64; 3];
    let size = size_of_val(&configuration) as u64;
    if ptrace(GET_RSEQ_CONFIGURATION, thread.tid, size, configuration.as_mut_ptr() as u64).is_err() {
        return false;
    }
    let [area, ..] = configuration;
    area != 0 && memory.word(area + SECTION).is_none_or(|section| section != 0)
}

fn module(memory: &ProcessMemory, object: &ProcessObject) -> Option<Module<Vec<u8>>> {
    let table = object.unwind_table.clone()?;
    let header = memory.bytes(table.start, (table.end - table.start) as usize)?;
    // The usual encoding of the first address: signed, 4 bytes, from its own place.
    if header.get(1) != Some(&0x1b) {
        return None;
    }
    let distance = i32::from_le_bytes(header.get(4..8)?.try_into().ok()?);
    let start = (table.start + 4).wrapping_add_signed(i64::from(distance));
    let end = object.segment_end(start)?;
    let frames = memory.bytes(start, (end - start) as usize)?;
    let in_file = |range: Range<u64>| range.start.wrapping_sub(object.bias)..range.end.wrapping_sub(object.bias);
    let code = object.code.first()?.start..object.code.last()?.end;
    let sections = ExplicitModuleSectionInfo {
        base_svma: object.range.start.wrapping_sub(object.bias),
        text_svma: Some(in_file(code)),
        eh_frame_svma: Some(in_file(start..end)),
        eh_frame: Some(frames),
        eh_frame_hdr_svma: Some(in_file(table)),
        eh_frame_hdr: Some(header),
        ..ExplicitModuleSectionInfo::default()
    };
    Some(Module::new(object.path.clone(), object.range.clone(), object.range.start, sections))
}

/// The thread's id as the process itself sees it.
pub fn id_inside(pid: u32, tid: i32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or(tid as u32)
}

/// The thread that has the id `inside` for the process itself; `None` when there is none.
pub fn id_outside(pid: u32, inside: u32) -> Option<i32> {
    let path = |tid: i32| format!("/proc/{pid}/task/{tid}");
    if std::path::Path::new(&path(inside as i32)).exists() && id_inside(pid, inside as i32) == inside {
        return Some(inside as i32);
    }
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let ids = tasks.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.into_iter().find(|&tid| id_inside(pid, tid) == inside)
}

/// Refuses, with the reason why no thread could be borrowed. `has_allocator`: the executable defines malloc.
pub fn no_thread<T>(pid: u32, has_allocator: bool) -> Result<T> {
    if has_allocator {
        return crate::refusal::refuse(format!(
            "no thread of process {pid} came to a point where it may be borrowed: the executable has its own malloc inside, \
             so that only a thread may be borrowed that waits in a system call, and not for a lock"
        ));
    }
    crate::refusal::refuse(format!(
        "no thread of process {pid} came to a point where it may be borrowed: each was in an allocator, in the loader, in a \
         lock of the C library, or in code that cannot be unwound"
    ))
}
