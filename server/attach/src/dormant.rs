//! A dormant recorder that was loaded at the start of the process (`TRACEHOUND_START=off`): whether there is one, and
//! how it is started.

use tracehound_format::attach::DORMANT;

use crate::attach::{Figures, borrow, choose, is_locked, locks_all};
use crate::block::LoadedLibrary;
use crate::memory::ProcessMemory;
use crate::objects::{mappings, objects};
use crate::refusal::{Result, refuse};
use crate::seccomp::Allowed;
use crate::target::look_at;

/// Whether the recorder came with the process, and is dormant.
#[must_use]
pub fn is_dormant(pid: u32) -> bool {
    let Ok(memory) = ProcessMemory::open(pid) else { return false };
    let Ok(mappings) = mappings(pid) else { return false };
    let found = LoadedLibrary::find(&memory, &objects(&memory, &mappings));
    // One that is attached to has a recording.
    let sleeps = |library: &LoadedLibrary| library.is_dormant(&memory) && library.state(&memory) == Some(DORMANT);
    found.is_ok_and(|library| library.as_ref().is_some_and(sleeps))
}

/// Wakes a dormant recorder on one of the process's threads: the recording is set up then, switched off.
pub fn wake(pid: u32) -> Result<()> {
    let target = look_at(pid, false)?;
    let wake = target.library.as_ref().map_or(0, |library| library.wake);
    if wake == 0 {
        return refuse(format!("process {pid} has no dormant recorder"));
    }
    if target.allowed == Allowed::RecordingAlone {
        return refuse(format!(
            "a seccomp filter of process {pid} kills for what `heaptrace ctl` needs; `heaptrace attach {pid}` records it without"
        ));
    }
    let thread = choose(&target, &mut Figures::default())?;
    let mut thread = borrow(&target, thread)?;
    if is_locked(pid, thread.data()) {
        thread.give_back();
        return locks_all(pid);
    }
    let outcome = thread.call(wake, [0; 3]);
    thread.give_back();
    outcome.map(|_| ())
}
