//! Seccomp filters: a program of instructions, run for a system call.
//!
//! ```text
//! input = number: u32 | arguments: 6 × u64 | instructions of 8 bytes
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_fuzz::bpf::{Instruction, JudgedCall, is_survived, run};

fuzz_target!(|input: &[u8]| {
    let Some((number, rest)) = input.split_first_chunk::<4>() else { return };
    let Some((arguments, code)) = rest.split_first_chunk::<48>() else { return };
    let mut call = JudgedCall(i64::from(u32::from_le_bytes(*number)), [0; 6]);
    for (argument, bytes) in call.1.iter_mut().zip(arguments.as_chunks::<8>().0) {
        *argument = u64::from_le_bytes(*bytes);
    }
    let code: Vec<Instruction> = code
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| {
            let &[low, high, if_true, if_false, a, b, c, d] = bytes;
            let (code, k) = (u16::from_le_bytes([low, high]), u32::from_le_bytes([a, b, c, d]));
            Instruction { code, if_true, if_false, k }
        })
        .collect();
    let verdict = run(&code, call);
    assert!(verdict.is_some() || !is_survived(&code, call), "what is no filter is not survived");
});
