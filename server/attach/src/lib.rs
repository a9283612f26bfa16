//! Brings the recorder into a running process and removes it again, by ptrace alone.
//!
//! ```text
//! target      look before touching, refuse in words          objects   mappings, ELF objects, symbols: from memory
//! stop        all threads stand still, without a signal       safe_point  which of them may be borrowed
//! borrow      a thread makes calls for us and goes on         detours   jumps at functions, and code to call them by
//! block       the library's side of it, read from outside     files     the recording's files
//! at_rest     nobody is in the allocator                 heap      the blocks that glibc's heap holds
//! existing    the instant in which both meet              dormant   a recorder that came with the process
//! attach, detach   the two ways, from beginning to end        seccomp   may the recorder's system calls be made?
//! hand_over   descriptors for the process
//! ```
//! The rule for all of it: if this program is killed at any point, the process lives on, and a later attach or detach
//! detects how far the earlier one came.

#[cfg(target_arch = "x86_64")]
mod at_rest;
#[cfg(target_arch = "x86_64")]
mod attach;
#[cfg(target_arch = "x86_64")]
mod block;
#[cfg(target_arch = "x86_64")]
mod borrow;
#[cfg(target_arch = "x86_64")]
mod detach;
#[cfg(target_arch = "x86_64")]
mod detours;
#[cfg(target_arch = "x86_64")]
mod dormant;
#[cfg(target_arch = "x86_64")]
mod existing;
#[cfg(target_arch = "x86_64")]
mod files;
#[cfg(target_arch = "x86_64")]
mod hand_over;
#[cfg(target_arch = "x86_64")]
mod heap;
#[cfg(target_arch = "x86_64")]
mod memory;
#[cfg(target_arch = "x86_64")]
mod objects;
mod refusal;
#[cfg(target_arch = "x86_64")]
mod safe_point;
#[cfg(target_arch = "x86_64")]
mod seccomp;
#[cfg(target_arch = "x86_64")]
mod stop;
#[cfg(target_arch = "x86_64")]
mod target;

#[cfg(target_arch = "x86_64")]
pub use attach::{AttachOptions, Attachment, Figures, attach, plan};
#[cfg(target_arch = "x86_64")]
pub use detach::{Detached, detach};
#[cfg(target_arch = "x86_64")]
pub use dormant::{is_dormant, wake};
pub use refusal::{Refusal, Result};
#[cfg(target_arch = "x86_64")]
pub use seccomp::calls;
