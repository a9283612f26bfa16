//! A part of the unwinder of Rust's panics, where that is linked into the library, so that it needs no `libgcc_s.so.1`, which
//! small images lack.
//!
//! LLVM's libunwind has these in the object that defines `__register_frame`, which is a hook of ours. As they are here,
//! that object stays out of the link. Hidden: the program's unwinder is none of our business. It is only about panics of
//! the recorder's own thread; backtraces of events are made without any of it.

// Backtraces in messages of panics end at once (_URC_END_OF_STACK). An instruction's address is always behind a call.
// Nothing of ours is relative to text or data.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".text",
    ".hidden _Unwind_Backtrace, _Unwind_GetIPInfo, _Unwind_GetTextRelBase, _Unwind_GetDataRelBase",
    ".globl _Unwind_Backtrace, _Unwind_GetIPInfo, _Unwind_GetTextRelBase, _Unwind_GetDataRelBase",
    "_Unwind_Backtrace: mov eax, 5",
    "ret",
    "_Unwind_GetIPInfo: mov dword ptr [rsi], 0",
    "jmp _Unwind_GetIP",
    "_Unwind_GetTextRelBase:",
    "_Unwind_GetDataRelBase: xor eax, eax",
    "ret",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".text",
    ".hidden _Unwind_Backtrace, _Unwind_GetIPInfo, _Unwind_GetTextRelBase, _Unwind_GetDataRelBase",
    ".globl _Unwind_Backtrace, _Unwind_GetIPInfo, _Unwind_GetTextRelBase, _Unwind_GetDataRelBase",
    "_Unwind_Backtrace: mov w0, #5",
    "ret",
    "_Unwind_GetIPInfo: str wzr, [x1]",
    "b _Unwind_GetIP",
    "_Unwind_GetTextRelBase:",
    "_Unwind_GetDataRelBase: mov x0, #0",
    "ret",
);
