//! Programs of the musl C library, and a recorder for them.

use std::path::PathBuf;

use crate::shipped::shipped_library;

/// The compiler's flag that makes a program for musl.
pub const FLAG: &str = "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs";

/// What is preloaded into them: what `make dist` builds. What `make build` makes needs libgcc, which musl has not here.
#[must_use]
pub fn recorder() -> PathBuf {
    shipped_library("libtracehound.so")
}
