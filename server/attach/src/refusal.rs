//! Reasons to refuse an attach, as one line for the user.

use std::io;

/// One sentence without a full stop.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Result of a step that may be refused.
pub type Result<T> = core::result::Result<T, Refusal>;

/// Refuses.
pub fn refuse<T>(text: impl Into<String>) -> Result<T> {
    Err(Refusal(text.into()))
}

/// Adds the failed step to an error of the kernel.
pub trait During<T> {
    /// `what` failed: the kernel's reason follows.
    fn during(self, what: &str) -> Result<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: &str) -> Result<T> {
        self.map_err(|error| Refusal(format!("{what}: {error}")))
    }
}

/// What to do about a kernel that does not let this process trace that one.
#[must_use]
pub fn not_permitted(pid: u32) -> Refusal {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).map_or("0", str::trim);
    // SAFETY: a system call without arguments.
    let own = unsafe { libc::syscall(libc::SYS_gettid) };
    if tracer != "0" && tracer != own.to_string() {
        return Refusal(format!("process {pid} is traced by process {tracer} now (another heaptrace, or a debugger)"));
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let hint = match scope.trim() {
        "1" => "kernel.yama.ptrace_scope is 1: run it as root, or `sysctl kernel.yama.ptrace_scope=0`",
        "2" => "kernel.yama.ptrace_scope is 2: it needs the capability SYS_PTRACE; run it as root",
        "3" => "kernel.yama.ptrace_scope is 3: no process may be traced until the machine is restarted",
        _ => "run it as the user of the process or as root, and in a container with the capability SYS_PTRACE",
    };
    Refusal(format!("the kernel does not let process {pid} be traced ({hint})"))
}
