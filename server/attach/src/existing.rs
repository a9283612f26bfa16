//! `--existing`: the blocks that the heap holds at the instant in which recording begins.
//!
//! All of it happens while all threads are stopped and none is in the allocator: the jumps are written, the heap is
//! read, and the recorder's own thread opens the recording. So a block is either in the list or has an event.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use tracehound_format::attach::{RECORDING, command};

use crate::at_rest::bring_to_rest;
use crate::attach::{Figures, change, is_inside};
use crate::block::LoadedLibrary;
use crate::detours::Patch;
use crate::heap::{self, HeapBlocks, HeapSurroundings, PagesOfProcess};
use crate::memory::living_thread;
use crate::objects::{mappings, objects};
use crate::refusal::{During, Result};
use crate::safe_point::{StackJudge, id_outside};
use crate::stop::{StoppedThread, all_threads};
use crate::target::TargetProcess;

/// Longest wait for the recorder's thread, while the others stand still.
const START: Duration = Duration::from_secs(2);

/// Writes the jumps, lists the blocks, and starts recording.
pub(crate) fn begin(
    target: &TargetProcess,
    library: &LoadedLibrary,
    patches: &[Patch],
    moved: &[std::ops::Range<u64>],
    list: &File,
    figures: &mut Figures,
) -> Result<()> {
    let without = |why: String, figures: &mut Figures| {
        write(list, &format!("Blocks from before are not listed: {why}."), &HeapBlocks::default())?;
        change(target, library, patches, moved, true, figures)
    };
    if let Some(why) = other_allocator(target, library) {
        return without(why, figures);
    }
    let all = objects(&target.memory, &mappings(target.pid)?);
    let hooks = vec![library.object.range.clone()];
    let mut judge = StackJudge::new(&target.memory, &all, &target.libc, &target.libc_symbols, hooks, None);
    let writer = id_outside(target.pid, library.writer(&target.memory));
    let started = Instant::now();
    let mut threads = all_threads(target.pid)?;
    let in_the_way = |thread: &StoppedThread| is_inside(thread, &target.memory, moved);
    let is_in_the_way =
        |thread: &StoppedThread| Some(thread.tid) != writer && (judge.is_in_allocator(thread) || in_the_way(thread));
    if !bring_to_rest(target.pid, &mut threads, is_in_the_way)? {
        drop(threads);
        return without("a thread was always in the allocator".into(), figures);
    }
    for patch in patches {
        target.memory.write(patch.at, &patch.after)?;
    }
    let found = heap::blocks(&target.memory, &PagesOfProcess::of(target.pid), &surroundings(target, &threads)?);
    write(list, &found.sentence(), &found)?;
    // The recorder's own thread alone goes on.
    threads.retain(|thread| Some(thread.tid) != writer);
    library.command(&target.memory, command::START)?;
    library.wait_for(&target.memory, target.pid, RECORDING, START);
    drop(threads);
    figures.stopped = figures.stopped.max(started.elapsed());
    figures.existing = Some((found.blocks.len() as u64, found.blocks.iter().map(|block| block.1).sum()));
    Ok(())
}

/// Why the heap is not glibc's, if it is another's.
fn other_allocator(target: &TargetProcess, library: &LoadedLibrary) -> Option<String> {
    let malloc = library.malloc(&target.memory);
    if target.libc.has_code_at(malloc) {
        return None;
    }
    let owner = target.objects.iter().find(|object| object.has_code_at(malloc));
    let owner = owner.map_or("another allocator", |object| object.path.as_str());
    Some(format!("malloc is that of {owner}, whose heap is not known"))
}

fn surroundings(target: &TargetProcess, threads: &[StoppedThread]) -> Result<HeapSurroundings> {
    let mappings = mappings(target.pid)?;
    let registers: Vec<_> = threads.iter().filter_map(StoppedThread::registers).collect();
    let of_libc = |range: &std::ops::Range<u64>| {
        let libc = &target.libc.range;
        range.start < libc.end && libc.start < range.end
    };
    let libc_data = mappings.iter().filter(|mapping| mapping.writable && of_libc(&mapping.range));
    Ok(HeapSurroundings {
        libc_data: libc_data.map(|mapping| mapping.range.clone()).collect(),
        thread_pointers: registers.iter().map(|registers| registers.fs_base).filter(|&at| at != 0).collect(),
        break_start: break_start(target.pid),
        mappings,
    })
}

/// Where the program break began: field 47 of `stat`; 0: not known.
fn break_start(pid: u32) -> u64 {
    const BEHIND_NAME: usize = 47 - 3;
    let text = std::fs::read_to_string(format!("/proc/{}/stat", living_thread(pid))).unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields.split_whitespace().nth(BEHIND_NAME).and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn write(mut list: &File, text: &str, found: &HeapBlocks) -> Result<()> {
    list.write_all(&heap::list(text, &found.blocks)).during("the list of blocks")
}
