//! The check of a function's beginning, before it is replaced by a jump.
#![cfg(target_arch = "x86_64")]

#[path = "../src/statics/prologue.rs"]
mod prologue;

use prologue::check;

#[test]
fn a_plain_function_may_be_changed() {
    // push rbp; mov rbp, rsp; mov eax, 5; pop rbp; ret
    assert_eq!(check(&[0x55, 0x48, 0x89, 0xe5, 0xb8, 5, 0, 0, 0, 0x5d, 0xc3], 0x1000), Ok(()));
    // jmp elsewhere: a function that is another one
    assert_eq!(check(&[0xe9, 0, 1, 0, 0], 0x1000), Ok(()));
    // back to its very first byte, which leads to the hook again, as a call of itself does
    assert_eq!(check(&[0x55, 0x48, 0x89, 0xe5, 0x90, 0x90, 0xeb, 0xf8], 0x1000), Ok(()));
}

#[test]
fn a_loop_into_the_first_instructions_is_seen() {
    // push rbp; mov rbp, rsp; inc eax; jmp 0x1001
    assert!(check(&[0x55, 0x48, 0x89, 0xe5, 0xff, 0xc0, 0xeb, 0xf9], 0x1000).is_err());
}

#[test]
fn calls_and_breakpoints_are_seen() {
    assert!(check(&[0xe8, 0, 0, 0, 0, 0xc3], 0x1000).is_err());
    assert!(check(&[0xcc, 0x48, 0x89, 0xe5, 0xc3], 0x1000).is_err());
    assert!(check(&[0x06, 0x06, 0x06, 0x06, 0x06], 0x1000).is_err());
}
