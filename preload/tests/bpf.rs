//! The judge of filters of system calls, with the tests beside it: what is built as a C library runs none of its own.

#[path = "../src/bpf.rs"]
mod bpf;
