//! A child that does not outlive its test, however that ends.

use std::ops::{Deref, DerefMut};
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// A started program; dropping it kills it, with its process group if it leads one.
#[derive(Debug)]
pub struct Running(pub Child);

impl Deref for Running {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        if let Some(pid) = Pid::from_raw(self.0.id().cast_signed()) {
            // Without a group of its own, the first fails.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}
