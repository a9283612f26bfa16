//! Detach: all steps back to an unrecorded process. The library stays mapped and does nothing.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use tracehound_format::attach::{DORMANT, ENDED, PREPARED, RECORDING, command};

use crate::attach::{Figures, change};
use crate::block::{LoadedLibrary, SlotLayout};
use crate::memory::ProcessMemory;
use crate::objects::{mappings, objects};
use crate::refusal::{Result, refuse};
use crate::safe_point::{StackJudge, id_outside};
use crate::stop::{StoppedThread, all_threads};
use crate::target::{TargetProcess, examine};

/// Longest wait for the file's end.
const END: Duration = Duration::from_secs(60);
/// Longest wait for threads that are in the middle of an event.
const QUIET: Duration = Duration::from_secs(10);
/// Longest wait for the recorder's thread to give everything back.
const RELEASE: Duration = Duration::from_secs(10);

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detached {
    /// The process is as it was.
    Clean,
    /// The process has ended, or has become another program.
    Gone,
    /// A thread was in the recorder for too long: its memory stays until the next attach.
    MemoryStays,
}

/// Ends what an attach has begun, whoever made it.
pub fn detach(pid: u32) -> Result<Detached> {
    let target = examine(pid, true)?;
    let Some(library) = target.library.clone() else {
        return refuse(format!("process {pid} was not attached to"));
    };
    match library.state(&target.memory) {
        Some(PREPARED | RECORDING | ENDED) => finish(&target, &library),
        _ => refuse(format!("process {pid} is not recorded by an attach")),
    }
}

/// Puts the bytes back that are not as they were.
pub(crate) fn put_back(target: &TargetProcess, library: &LoadedLibrary) -> Result<()> {
    let mut patches = library.patches(&target.memory);
    let changed =
        |patch: &crate::detours::Patch| target.memory.bytes(patch.at, patch.after.len()).as_ref() == Some(&patch.after);
    patches.retain(changed);
    if patches.is_empty() {
        return Ok(());
    }
    change(target, library, &patches, &[], false, &mut Figures::default())
}

/// Detaches, from any state.
pub(crate) fn finish(target: &TargetProcess, library: &LoadedLibrary) -> Result<Detached> {
    let (pid, memory) = (target.pid, &target.memory);
    let is_there = || Path::new(&format!("/proc/{pid}/task")).exists() && library.state(memory).is_some();
    let writer = library.writer(memory);
    if matches!(library.state(memory), Some(PREPARED | RECORDING)) {
        // Taken back at one instant for all threads: no event begins after it, so the recorder's thread catches up, however
        // busy the program is.
        if let Err(refusal) = put_back(target, library) {
            let goes_on = || refuse(format!("{refusal}; the recording goes on: `heaptrace detach {pid}` ends it"));
            return if is_there() { goes_on() } else { Ok(Detached::Gone) };
        }
        library.command(memory, command::STOP)?;
        if !library.wait_for(memory, pid, ENDED, END) {
            if !is_there() {
                return Ok(Detached::Gone);
            }
            return refuse(format!("the recorder in process {pid} does not end; its hooks are removed"));
        }
    }
    let outcome = (|| {
        put_back(target, library)?;
        if !forget(target, library, writer)? {
            return Ok(Detached::MemoryStays);
        }
        library.command(memory, command::RELEASE)?;
        if !library.wait_for(memory, pid, DORMANT, RELEASE) {
            return Ok(if is_there() { Detached::MemoryStays } else { Detached::Gone });
        }
        let started = Instant::now();
        while id_outside(pid, writer).is_some() && started.elapsed() < RELEASE {
            std::thread::sleep(Duration::from_micros(300));
        }
        Ok(Detached::Clean)
    })();
    if outcome.is_err() && !is_there() { Ok(Detached::Gone) } else { outcome }
}

/// Takes the recording out of all threads' slots, when none is in the middle of an event; false when that does not come.
fn forget(target: &TargetProcess, library: &LoadedLibrary, writer: u32) -> Result<bool> {
    let slots = library.slots(&target.memory);
    // The recorder calls functions of libc, also before its thread has a mark: what they return to must be there.
    let objects = objects(&target.memory, &mappings(target.pid)?);
    let recorder = vec![library.object.range.clone()];
    let mut judge = StackJudge::new(&target.memory, &objects, &target.libc, &target.libc_symbols, recorder, None);
    let started = Instant::now();
    while started.elapsed() < QUIET {
        let threads = all_threads(target.pid)?;
        let own = id_outside(target.pid, writer);
        let others = || threads.iter().filter(|thread| Some(thread.tid) != own);
        let is_out = |thread: &StoppedThread| !judge.is_in_forbidden(thread);
        if others().all(|thread| is_quiet(thread, &target.memory, library, slots)) && others().all(is_out) {
            let pointers: HashSet<u64> =
                others().filter_map(|thread| Some(thread.registers()?.fs_base)).filter(|&at| at != 0).collect();
            for pointer in pointers {
                let slot = pointer.wrapping_add(slots.offset);
                if target.memory.word(slot).is_some() {
                    target.memory.write(slot, &[0; 8])?;
                    target.memory.write(slot + slots.stack, &[0; 8])?;
                }
            }
            return Ok(true);
        }
        drop(threads);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// Whether a thread is neither in the recorder's code nor in an event, by its registers and its slot.
fn is_quiet(thread: &StoppedThread, memory: &ProcessMemory, library: &LoadedLibrary, slots: SlotLayout) -> bool {
    let Some(registers) = thread.registers() else { return true };
    if library.object.has_code_at(registers.rip) {
        return false;
    }
    let slot = registers.fs_base.wrapping_add(slots.offset);
    let (Some(context), Some(internal)) = (memory.word(slot), memory.half(slot + slots.internal)) else { return true };
    let idle = |at: u64| memory.word(at).is_none_or(|word| word & slots.mode_mask == 0);
    internal == 0 && (context == 0 || idle(context) && idle(context + slots.inner))
}
