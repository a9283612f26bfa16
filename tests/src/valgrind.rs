//! Valgrind as an oracle: what it counts of a program's heap, independently of us.

use std::ffi::OsStr;
use std::path::Path;

use crate::plain;

/// Valgrind's "total heap usage"; it counts a realloc as one allocation and one free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Bytes allocated.
    pub bytes: u64,
}

/// Runs `program ARGS…` under valgrind.
#[must_use]
pub fn usage(program: impl AsRef<OsStr>, args: &[&str], variables: &[(&str, &str)]) -> Usage {
    let program = program.as_ref().to_str().expect("a plain path");
    let mut all = vec!["--run-libc-freeres=no", "--run-cxx-freeres=no", program];
    all.extend_from_slice(args);
    let output = plain("valgrind", &all, variables);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code().is_some(), "valgrind could not run it to its end: {text}");
    // "==1== total heap usage: 5 allocs, 2 frees, 6,380 bytes allocated"; the last such line is the first process's.
    let line = text.lines().rfind(|line| line.contains("total heap usage")).unwrap_or_else(|| panic!("{text}"));
    let mut numbers = line.split_whitespace().filter_map(|word| word.replace(',', "").parse::<u64>().ok());
    let mut next = || numbers.next().unwrap_or_else(|| panic!("{line}"));
    Usage { allocs: next(), frees: next(), bytes: next() }
}

/// Runs a program under valgrind's DHAT, which writes its profile to `out`.
pub fn dhat(program: &Path, out: &Path) {
    let out = format!("--dhat-out-file={}", out.display());
    let program = program.to_str().expect("a plain path");
    let output = plain("valgrind", &["--tool=dhat", "--run-libc-freeres=no", &out, program], &[]);
    assert!(output.status.code().is_some(), "{}", String::from_utf8_lossy(&output.stderr));
}
