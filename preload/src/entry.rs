//! Entry of a hook: a naked function that passes the caller's `rsp` and `rbp` behind the C arguments.
//!
//! On x86-64 it does not rely on the caller's alignment of the stack. Machine code written by hand may call malloc from an
//! odd stack, and a compiler that sees both the program and its own malloc aligns no more than that malloc needs.

use tracehound_unwind::Caller;

/// The caller's state at the entry of a hook: stack pointer and frame pointer registers.
///
/// # Safety
/// `stack` must be the stack pointer at the hook's first instruction, on x86-64; the return address lies there.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub unsafe fn caller(stack: u64, frame: u64) -> Caller {
    // SAFETY: the return address was pushed by the call of the hook.
    Caller { pc: unsafe { *(stack as *const u64) }, sp: stack + 8, fp: frame }
}

/// Defines an exported hook `$name` that jumps to `$body` with the caller's state in the two argument registers that
/// follow `$count` C arguments. A `gated` one jumps to `$off` when the gate is anything but open.
#[cfg(target_arch = "x86_64")]
macro_rules! hook {
    (private $name:ident, 1, $body:path) => { hook!(@ [] $name, "mov rsi, rsp", "mov rdx, rbp", $body); };
    (private $name:ident, 2, $body:path) => { hook!(@ [] $name, "mov rdx, rsp", "mov rcx, rbp", $body); };
    (private $name:ident, 3, $body:path) => { hook!(@ [] $name, "mov rcx, rsp", "mov r8, rbp", $body); };
    ($name:ident, 0, $body:path) => { hook!(@ [#[unsafe(no_mangle)]] $name, "mov rdi, rsp", "mov rsi, rbp", $body); };
    ($name:ident, 1, $body:path) => { hook!(@ [#[unsafe(no_mangle)]] $name, "mov rsi, rsp", "mov rdx, rbp", $body); };
    ($name:ident, 2, $body:path) => { hook!(@ [#[unsafe(no_mangle)]] $name, "mov rdx, rsp", "mov rcx, rbp", $body); };
    ($name:ident, 3, $body:path) => { hook!(@ [#[unsafe(no_mangle)]] $name, "mov rcx, rsp", "mov r8, rbp", $body); };
    ($name:ident, 4, $body:path) => { hook!(@ [#[unsafe(no_mangle)]] $name, "mov r8, rsp", "mov r9, rbp", $body); };
    (gated $name:ident, 1, $body:path, $off:path) => { hook!(@gated $name, "mov rsi, rsp", "mov rdx, rbp", $body, $off); };
    (gated $name:ident, 2, $body:path, $off:path) => { hook!(@gated $name, "mov rdx, rsp", "mov rcx, rbp", $body, $off); };
    (@gated $name:ident, $stack:literal, $frame:literal, $body:path, $off:path) => {
        #[doc = concat!("The hook of `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(".cfi_startproc",
                "endbr64", $stack, $frame, "test spl, 8", "jz 2f",
                "cmp dword ptr [rip + tracehound_gate], {open}", "jne {off}", "jmp {body}",
                // The caller's stack is not aligned as the ABI has it; the body must find it aligned.
                "2:", "cmp dword ptr [rip + tracehound_gate], {open}", "jne 3f", "call {body}", "ret",
                "3:", "call {off}", "ret",
                ".cfi_endproc", open = const tracehound_shared::gate::RECORDING, off = sym $off, body = sym $body)
        }
    };
    (@ [$(#[$export:meta])?] $name:ident, $stack:literal, $frame:literal, $body:path) => {
        #[doc = concat!("The hook of `", stringify!($name), "`.")]
        $(#[$export])?
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(".cfi_startproc",
                "endbr64", $stack, $frame, "test spl, 8", "jz 2f", "jmp {body}", "2:", "call {body}", "ret",
                ".cfi_endproc", body = sym $body)
        }
    };
}

/// The caller's state at the entry of a hook.
///
/// # Safety
/// `stack` must be the address of the hook's frame record: the caller's frame pointer and the return address.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub unsafe fn caller(stack: u64, frame: u64) -> Caller {
    // SAFETY: the hook has just stored the record.
    Caller { pc: unsafe { *((stack + 8) as *const u64) }, sp: stack + 16, fp: frame }
}

/// Defines an exported hook `$name` that calls `$body` with the caller's state in the two argument registers that
/// follow `$count` C arguments. The return address lies in a register here, so the hook has a frame of its own. The body of
/// a `gated` one looks at the gate itself.
#[cfg(target_arch = "aarch64")]
macro_rules! hook {
    (gated $name:ident, $count:tt, $body:path, $off:path) => { hook!($name, $count, $body); };
    (private $name:ident, 1, $body:path) => { hook!(@ [] $name, "mov x1, sp", "mov x2, x29", $body); };
    (private $name:ident, 2, $body:path) => { hook!(@ [] $name, "mov x2, sp", "mov x3, x29", $body); };
    (private $name:ident, 3, $body:path) => { hook!(@ [] $name, "mov x3, sp", "mov x4, x29", $body); };
    ($name:ident, 0, $body:path) => { hook!(@ [#[unsafe(no_mangle)]] $name, "mov x0, sp", "mov x1, x29", $body); };
    ($name:ident, 1, $body:path) => { hook!(@ [#[unsafe(no_mangle)]] $name, "mov x1, sp", "mov x2, x29", $body); };
    ($name:ident, 2, $body:path) => { hook!(@ [#[unsafe(no_mangle)]] $name, "mov x2, sp", "mov x3, x29", $body); };
    ($name:ident, 3, $body:path) => { hook!(@ [#[unsafe(no_mangle)]] $name, "mov x3, sp", "mov x4, x29", $body); };
    ($name:ident, 4, $body:path) => { hook!(@ [#[unsafe(no_mangle)]] $name, "mov x4, sp", "mov x5, x29", $body); };
    ($name:ident, 6, $body:path) => { hook!(@ [#[unsafe(no_mangle)]] $name, "mov x6, sp", "mov x7, x29", $body); };
    (@ [$(#[$export:meta])?] $name:ident, $stack:literal, $frame:literal, $body:path) => {
        #[doc = concat!("The hook of `", stringify!($name), "`.")]
        $(#[$export])?
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "hint #34",
                "stp x29, x30, [sp, #-16]!",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset x29, -16",
                ".cfi_offset x30, -8",
                $stack,
                $frame,
                "mov x29, sp",
                "bl {body}",
                "ldp x29, x30, [sp], #16",
                ".cfi_def_cfa_offset 0",
                "ret",
                ".cfi_endproc",
                body = sym $body
            )
        }
    };
}

/// Defines an exported hook `$name` of any arguments: `$look`, which gets the first of them, gives the address at which the
/// call goes on, with registers and stack as they were: the function there sees the caller's address, by which the loader
/// finds the caller's search path and namespace.
#[cfg(target_arch = "x86_64")]
macro_rules! passes_on {
    ($(#[$doc:meta])* $name:ident, $look:path) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                "push r9",
                ".cfi_adjust_cfa_offset 8",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call {look}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "pop r9",
                ".cfi_adjust_cfa_offset -8",
                "pop r8",
                ".cfi_adjust_cfa_offset -8",
                "pop rcx",
                ".cfi_adjust_cfa_offset -8",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "jmp rax",
                ".cfi_endproc",
                look = sym $look
            )
        }
    };
}

/// As above.
#[cfg(target_arch = "aarch64")]
macro_rules! passes_on {
    ($(#[$doc:meta])* $name:ident, $look:path) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "hint #34",
                "stp x29, x30, [sp, #-80]!",
                ".cfi_def_cfa_offset 80",
                ".cfi_offset x29, -80",
                ".cfi_offset x30, -72",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "bl {look}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]",
                "ldp x29, x30, [sp], #80",
                ".cfi_def_cfa_offset 0",
                "br x16",
                ".cfi_endproc",
                look = sym $look
            )
        }
    };
}

pub(crate) use hook;
pub(crate) use passes_on;
