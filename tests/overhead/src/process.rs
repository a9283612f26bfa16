//! Starting a program and learning what it and its children cost.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// What a process and the children that it waited for cost.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// From start to end.
    pub wall: Duration,
}

impl Cost {
    /// CPU time of both modes in nanoseconds.
    #[must_use]
    pub fn cpu_ns(&self) -> f64 {
        (self.user + self.system).as_nanos() as f64
    }
}

/// A started program, in a process group of its own.
#[derive(Debug)]
pub struct Running {
    pid: libc::pid_t,
    started: Instant,
    output: PathBuf,
}

impl Running {
    /// Starts `command` in `folder`; what it prints goes into a file there.
    pub fn start(mut command: Command, folder: &Path) -> Result<Self> {
        let output = folder.join("output.txt");
        let file = File::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
        let errors = file.try_clone().context("cannot share the output file")?;
        command.current_dir(folder).stdin(Stdio::null()).stdout(file).stderr(errors).process_group(0);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let pid = libc::pid_t::try_from(child.id()).context("a process id is out of range")?;
        Ok(Self { pid, started, output })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Waits until it ends well and returns its cost and output; after `limit` its whole group is killed.
    pub fn finish(self, limit: Duration) -> Result<(Cost, String)> {
        let (status, cost) = loop {
            if let Some(ended) = self.try_wait()? {
                break ended;
            }
            if self.started.elapsed() > limit {
                signal(-self.pid, libc::SIGKILL);
                while self.try_wait()?.is_none() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                bail!("it did not end within {limit:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let output = std::fs::read(&self.output).with_context(|| format!("cannot read {}", self.output.display()))?;
        let output = String::from_utf8_lossy(&output).into_owned();
        if !status.success() {
            let tail: Vec<&str> = output.lines().rev().take(3).collect();
            bail!("{status}; it said: {}", tail.into_iter().rev().collect::<Vec<_>>().join(" | "));
        }
        Ok((cost, output))
    }

    fn try_wait(&self) -> Result<Option<(ExitStatus, Cost)>> {
        let mut status = 0;
        // SAFETY: `rusage` is a structure of integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live local variables; the child is ours and nobody else waits for it.
        let waited = unsafe { libc::wait4(self.pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
        match waited {
            0 => Ok(None),
            -1 => Err(std::io::Error::last_os_error()).context("cannot wait for a process"),
            _ => {
                let cost = Cost {
                    user: duration(usage.ru_utime),
                    system: duration(usage.ru_stime),
                    wall: self.started.elapsed(),
                };
                Ok(Some((ExitStatus::from_raw(status), cost)))
            }
        }
    }
}

/// Sends a signal to a process, or with a negative id to a group; one that is gone needs none.
pub fn signal(pid: libc::pid_t, number: libc::c_int) {
    // SAFETY: kill touches no memory of ours.
    unsafe { libc::kill(pid, number) };
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
        + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

/// The most memory a process has held so far, in KiB.
pub fn peak_kib(pid: libc::pid_t) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Runs a helper program to its end and returns its standard output.
pub fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        bail!("{name}: {}; {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
