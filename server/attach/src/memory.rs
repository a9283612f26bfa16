//! The memory of another process, by `/proc/PID/mem`, which can write code without a change of its protection.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::refusal::{During, Refusal, Result, not_permitted};

/// See the module's description.
#[derive(Debug)]
pub struct ProcessMemory {
    file: File,
}

/// A thread by whose folder in `/proc` the process can be looked at: the first one, or another when that has ended before
/// the process, as `pthread_exit` does.
#[must_use]
pub fn living_thread(pid: u32) -> u32 {
    let is_alive = |id: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
    };
    if is_alive(pid) {
        return pid;
    }
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let ids = tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.into_iter().find(|&id| is_alive(id)).unwrap_or(pid)
}

impl ProcessMemory {
    /// Opens it for reading and writing, which the kernel allows to those who may trace the process.
    pub fn open(pid: u32) -> Result<Self> {
        match File::options().read(true).write(true).open(format!("/proc/{}/mem", living_thread(pid))) {
            Ok(file) => Ok(Self { file }),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => Err(not_permitted(pid)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Refusal(format!("there is no process {pid}"))),
            Err(error) => Err(error).during(&format!("the memory of process {pid}")),
        }
    }

    /// Fills `bytes` from `at`; false when not all of it is there.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> bool {
        self.file.read_exact_at(bytes, at).is_ok()
    }

    /// As many of `len` bytes as there are.
    pub fn read_up_to(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at + done as u64) {
                Ok(0) | Err(_) => break,
                Ok(read) => done += read,
            }
        }
        bytes.truncate(done);
        bytes
    }

    /// All of `len` bytes.
    pub fn bytes(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let bytes = self.read_up_to(at, len);
        (bytes.len() == len).then_some(bytes)
    }

    /// A word.
    pub fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    /// A half word.
    pub fn half(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    /// Writes all of `bytes`.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at).during("the process's memory cannot be written")
    }
}
