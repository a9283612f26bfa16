//! A borrowed thread: it makes system calls and calls functions for heaptrace, and then continues where it was.
//!
//! The thread can return without heaptrace at any time. For a system call it is at one of libc's own `syscall; ret`,
//! behind which lies a signal frame with its full state; for a call it runs on a stack of ours, in a few instructions of
//! ours that end with the same frame. So if heaptrace is killed, the thread returns all the same. Otherwise heaptrace
//! restores it from outside, so that an interrupted wait continues as if nothing had happened.

use std::time::{Duration, Instant};

use crate::memory::ProcessMemory;
use crate::refusal::{During, Refusal, Result, refuse};
use crate::seccomp::name_of;
use crate::stop::{Stop, StoppedThread, look, pause, ptrace};

/// Data and stack of a call.
const AREA: u64 = 1 << 20;
/// Longest call.
const LONGEST_CALL: Duration = Duration::from_secs(60);
/// `NT_X86_XSTATE`.
const STATE: u64 = 0x202;
const RED_ZONE: u64 = 128;

// Places in the area.
const RESULT: u64 = 0;
const DONE: u64 = 8;
const TIME: u64 = 32;
const FRAME: u64 = 64;
/// Data of whoever calls.
pub const DATA: u64 = 16 << 10;
/// Bytes of it.
pub const DATA_BYTES: u64 = 64 << 10;

/// A frame of `rt_sigreturn` before its floating-point state.
const FRAME_BYTES: u64 = 8 + 304 + 128;

/// See the module's description.
pub struct BorrowedThread<'a> {
    thread: Option<StoppedThread>,
    memory: &'a ProcessMemory,
    registers: libc::user_regs_struct,
    state: Vec<u8>,
    mask: u64,
    /// `syscall; ret`.
    gadget: u64,
    /// The frame on the thread's own stack.
    frame: u64,
    area: u64,
    code: u64,
    /// Where the thread's errno is, and what it was.
    errno: Option<SavedErrno>,
}

/// A thread's errno.
#[derive(Debug, Clone, Copy)]
struct SavedErrno {
    at: u64,
    value: u32,
}

impl<'a> BorrowedThread<'a> {
    /// Borrows a stopped thread. `gadget` is the address of `syscall; ret`, `sigreturn` that of libc's return from
    /// signal handlers, `errno_location` libc's function of that name, `is_stack` whether a range can be written.
    pub fn new(
        thread: StoppedThread,
        memory: &'a ProcessMemory,
        gadget: u64,
        sigreturn: u64,
        errno_location: Option<u64>,
        is_stack: impl Fn(u64, u64) -> bool,
    ) -> Result<Self> {
        let registers = thread.registers().ok_or_else(|| Refusal("the thread has ended".into()))?;
        let state = extended_state(thread.tid)?;
        let mut mask = 0_u64;
        ptrace(libc::PTRACE_GETSIGMASK, thread.tid, 8, (&raw mut mask) as u64).during("the thread's signal mask")?;
        let size = FRAME_BYTES + state.len() as u64 + 128;
        let frame = (registers.rsp - RED_ZONE - size) & !63;
        if !is_stack(frame, registers.rsp) {
            return refuse("the thread has too little of its stack left");
        }
        let mut this =
            Self { thread: Some(thread), memory, registers, state, mask, gadget, frame, area: 0, code: 0, errno: None };
        memory.write(frame, &this.signal_frame(frame, sigreturn))?;
        let all = !0_u64;
        ptrace(libc::PTRACE_SETSIGMASK, this.tid(), 8, (&raw const all) as u64).during("the thread's signal mask")?;
        this.make_area(sigreturn)?;
        if let Some(function) = errno_location {
            this.keep_errno(function)?;
        }
        Ok(this)
    }

    fn tid(&self) -> i32 {
        self.thread.as_ref().map_or(0, |thread| thread.tid)
    }

    /// Address in the process of the caller's data, [`DATA_BYTES`] of it.
    #[must_use]
    pub fn data(&self) -> u64 {
        self.area + DATA
    }

    /// The frame by which `rt_sigreturn` restores the thread, to be written at `at`. The word in front is what a `ret` pops.
    fn signal_frame(&self, at: u64, sigreturn: u64) -> Vec<u8> {
        const HAS_EXTENDED_STATE: u64 = 1;
        const STACK_SEGMENT: u64 = 6;
        // Refused by the kernel, which leaves the alternate stack as it is then.
        const NO_STACK: u64 = 7;
        let r = &self.registers;
        let (mut rip, mut rax) = (r.rip, r.rax);
        if r.orig_rax as i64 >= 0 {
            // A call that was interrupted: it is made again, or, where that cannot be from here, says so.
            match rax as i64 {
                -514..=-512 => (rip, rax) = (rip - 2, r.orig_rax),
                -516 => rax = -i64::from(libc::EINTR) as u64,
                _ => {}
            }
        }
        let state_at = (at + FRAME_BYTES).next_multiple_of(64);
        let segments = r.cs | r.ss << 48;
        let mut words = vec![sigreturn, HAS_EXTENDED_STATE | STACK_SEGMENT, 0, 0, NO_STACK, 0];
        words.extend([r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15]);
        words.extend([r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, rax, r.rcx, r.rsp, rip, r.eflags]);
        words.extend([segments, 0, 0, self.mask, 0, state_at]);
        words.extend([0; 8]);
        words.push(self.mask);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize((state_at - at) as usize, 0);
        bytes.extend(for_signal_frame(&self.state));
        bytes
    }

    /// Memory of ours in the process, and the instructions of a call.
    fn make_area(&mut self, sigreturn: u64) -> Result<()> {
        let (data, code) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_EXEC);
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let mut map = |bytes: u64, protection: i32| {
            self.system_call(libc::SYS_mmap, [0, bytes, protection as u64, flags, u64::MAX, 0])
                .map_err(|Refusal(why)| Refusal(format!("the process gets no memory for the attach: {why}")))
        };
        let area = map(AREA, data)?;
        let code = map(4096, code)?;
        (self.area, self.code) = (area, code);
        self.memory.write(area + FRAME, &self.signal_frame(area + FRAME, sigreturn))?;
        self.memory.write(code, &call_code(self.errno))
    }

    fn set(&self, registers: &libc::user_regs_struct) -> Result<()> {
        ptrace(libc::PTRACE_SETREGS, self.tid(), 0, core::ptr::from_ref(registers) as u64)
            .during("the borrowed thread's registers")
    }

    /// Registers as they were, at `rip` on the stack at `rsp`, in no system call.
    fn moved(&self, rip: u64, rsp: u64) -> libc::user_regs_struct {
        const TRAP: u64 = 1 << 8;
        const BACKWARDS: u64 = 1 << 10;
        let mut registers = self.registers;
        (registers.rip, registers.rsp, registers.orig_rax) = (rip, rsp, u64::MAX);
        registers.eflags &= !(TRAP | BACKWARDS);
        registers
    }

    /// Remembers the thread's errno: what is called on it may change it, and the program may be about to look at it.
    fn keep_errno(&mut self, location: u64) -> Result<()> {
        let at = self.call(location, [0; 3])?;
        self.errno = self.memory.half(at).map(|value| SavedErrno { at, value });
        self.memory.write(self.code, &call_code(self.errno))
    }

    /// Makes a system call on the thread.
    pub fn system_call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> Result<u64> {
        let mut registers = self.moved(self.gadget, self.frame);
        registers.rax = number as u64;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = arguments;
        self.set(&registers)?;
        // To its beginning, and to its end. No single step: that would outlive us, and end the thread by a signal.
        self.next_system_call()?;
        self.next_system_call()?;
        let registers = self.thread.as_ref().and_then(StoppedThread::registers);
        let result = registers.map_or(-i64::from(libc::ESRCH), |registers| registers.rax as i64);
        if (-4095..0).contains(&result) {
            return Err(std::io::Error::from_raw_os_error(-result as i32)).during(&name_of(number));
        }
        Ok(result as u64)
    }

    /// Lets the thread go on to the next beginning or end of a system call.
    fn next_system_call(&mut self) -> Result<()> {
        let go_on = |tid: i32| ptrace(libc::PTRACE_SYSCALL, tid, 0, 0).during("the borrowed thread");
        go_on(self.tid())?;
        for round in 0.. {
            match look(self.tid()) {
                None => pause(round),
                Some(Stop::SystemCall) => break,
                Some(Stop::Gone) => return self.lost(),
                Some(Stop::Asked | Stop::Signal(_)) => go_on(self.tid())?,
            }
        }
        Ok(())
    }

    /// Calls a function with up to three arguments on the thread. Other threads must run.
    pub fn call(&mut self, function: u64, arguments: [u64; 3]) -> Result<u64> {
        let top = (self.area + AREA) & !15;
        let mut registers = self.moved(self.code, top);
        (registers.rax, registers.rbx, registers.rbp) = (function, self.area, 0);
        [registers.rdi, registers.rsi, registers.rdx] = arguments;
        self.memory.write(self.area + RESULT, &[0; 16])?;
        self.set(&registers)?;
        ptrace(libc::PTRACE_CONT, self.tid(), 0, 0).during("the borrowed thread")?;
        let started = Instant::now();
        for round in 0.. {
            match look(self.tid()) {
                Some(Stop::Gone) => return self.lost(),
                Some(Stop::Asked | Stop::SystemCall) => {
                    ptrace(libc::PTRACE_CONT, self.tid(), 0, 0).during("the borrowed thread")?;
                }
                // The call went wrong; the thread is stopped in it, and is put back.
                Some(Stop::Signal(signal)) => return refuse(format!("a call inside the process got signal {signal}")),
                None if self.memory.half(self.area + DONE) == Some(1) => break,
                None => pause(round),
            }
            if started.elapsed() > LONGEST_CALL {
                StoppedThread::interrupt(self.tid())?;
                return refuse("a call inside the process did not come back within a minute");
            }
        }
        if StoppedThread::interrupt(self.tid())?.is_none() {
            return self.lost();
        }
        Ok(self.memory.word(self.area + RESULT).unwrap_or(0))
    }

    fn lost<T>(&mut self) -> Result<T> {
        if let Some(thread) = self.thread.take() {
            std::mem::forget(thread);
        }
        refuse("the process ended meanwhile")
    }

    /// Gives the memory of the calls back, and lets the thread go on where it was.
    pub fn give_back(mut self) {
        let (area, code) = (self.area, self.code);
        for (at, bytes) in [(area, AREA), (code, 4096)] {
            let _ = self.system_call(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]);
        }
    }
}

impl Drop for BorrowedThread<'_> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // Only at such a stop does the kernel look whether the registers are those of an interrupted system call.
        let _ = ptrace(libc::PTRACE_INTERRUPT, thread.tid, 0, 0);
        let _ = ptrace(libc::PTRACE_CONT, thread.tid, 0, 0);
        if !matches!(StoppedThread::interrupt(thread.tid), Ok(Some(()))) {
            std::mem::forget(thread);
            return;
        }
        if let Some(SavedErrno { at, value }) = self.errno {
            let _ = self.memory.write(at, &value.to_le_bytes());
        }
        let mut state = libc::iovec { iov_base: self.state.as_mut_ptr().cast(), iov_len: self.state.len() };
        let _ = ptrace(libc::PTRACE_SETREGSET, thread.tid, STATE, (&raw mut state) as u64);
        let registers = core::ptr::from_ref(&self.registers) as u64;
        let _ = ptrace(libc::PTRACE_SETREGS, thread.tid, 0, registers);
        let _ = ptrace(libc::PTRACE_SETSIGMASK, thread.tid, 8, (&raw const self.mask) as u64);
    }
}

/// The thread's floating-point and vector registers.
fn extended_state(tid: i32) -> Result<Vec<u8>> {
    let mut state = vec![0_u8; 16 << 10];
    let mut place = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
    ptrace(libc::PTRACE_GETREGSET, tid, STATE, (&raw mut place) as u64).during("the thread's registers")?;
    state.truncate(place.iov_len);
    Ok(state)
}

/// The extended state as a signal frame has it: what is in use, between two marks.
fn for_signal_frame(state: &[u8]) -> Vec<u8> {
    const LEGACY: usize = 512;
    const HEADER: usize = 64;
    const DESCRIPTION: usize = 464;
    let components = state.get(LEGACY..LEGACY + 8).and_then(|word| word.try_into().ok()).map_or(3, u64::from_le_bytes);
    let mut len = LEGACY + HEADER;
    for component in 2..63 {
        if components >> component & 1 != 0 {
            // The size and the place of a component of the standard form.
            let leaf = core::arch::x86_64::__cpuid_count(0xd, component);
            len = len.max((leaf.eax + leaf.ebx) as usize);
        }
    }
    let len = len.min(state.len());
    let mut bytes = state.get(..len).unwrap_or_default().to_vec();
    let mut description = Vec::new();
    description.extend(0x4650_5853_u32.to_le_bytes());
    description.extend((len as u32 + 4).to_le_bytes());
    description.extend((components | 3).to_le_bytes());
    description.extend((len as u32).to_le_bytes());
    description.resize(48, 0);
    if let Some(place) = bytes.get_mut(DESCRIPTION..DESCRIPTION + 48) {
        place.copy_from_slice(&description);
    }
    bytes.extend(0x4650_5845_u32.to_le_bytes());
    bytes
}

/// The instructions of a call: `rax` is the function, `rbx` the area. When the function has returned they wait two
/// seconds for us to look at the result, and go back by themselves, with errno as it was, if nobody comes.
fn call_code(errno: Option<SavedErrno>) -> Vec<u8> {
    const ROUNDS: u32 = 20_000;
    const MICROSECONDS: u32 = 100;
    let mut code = vec![0xff, 0xd0]; // call rax
    code.extend([0x48, 0x89, 0x43, RESULT as u8]); // mov [rbx + RESULT], rax
    code.extend([0xc7, 0x43, DONE as u8, 1, 0, 0, 0]); // mov dword [rbx + DONE], 1
    code.extend([0x41, 0xbc]); // mov r12d, ROUNDS
    code.extend(ROUNDS.to_le_bytes());
    let again = code.len();
    code.extend([0x48, 0xc7, 0x43, TIME as u8, 0, 0, 0, 0]); // mov qword [rbx + TIME], 0
    code.extend([0x48, 0xc7, 0x43, TIME as u8 + 8]); // mov qword [rbx + TIME + 8], MICROSECONDS
    code.extend(MICROSECONDS.to_le_bytes());
    code.extend([0xb8, libc::SYS_select as u8, 0, 0, 0]); // mov eax, SYS_select
    code.extend([0x31, 0xff, 0x31, 0xf6, 0x31, 0xd2, 0x45, 0x31, 0xd2]); // xor edi, esi, edx, r10d
    code.extend([0x4c, 0x8d, 0x43, TIME as u8]); // lea r8, [rbx + TIME]
    code.extend([0x0f, 0x05]); // syscall
    code.extend([0x41, 0xff, 0xcc]); // dec r12d
    let distance = again as i32 - (code.len() as i32 + 6);
    code.extend([0x0f, 0x85]); // jnz again
    code.extend(distance.to_le_bytes());
    if let Some(SavedErrno { at, value }) = errno {
        code.extend([0x48, 0xb8]); // mov rax, at
        code.extend(at.to_le_bytes());
        code.extend([0xc7, 0x00]); // mov dword [rax], value
        code.extend(value.to_le_bytes());
    }
    code.extend([0x48, 0x8d, 0x63, FRAME as u8 + 8]); // lea rsp, [rbx + FRAME + 8]
    code.extend([0xb8, libc::SYS_rt_sigreturn as u8, 0, 0, 0]); // mov eax, SYS_rt_sigreturn
    code.extend([0x0f, 0x05]); // syscall
    code
}
