//! Inherited blocks of a forked process: those that were live in its parent at the fork, found in the parent's
//! recording.
//!
//! The recorder writes where the parent's recording is, its id, and the tick of the fork; parent and child read the
//! same clock and share the call tree up to there. Of the parent's events those count that carry this tick or an
//! earlier one. So a block that another thread was about to free at the fork (its free is stamped, the allocator not
//! yet called) is not inherited, and one that another thread was about to get (it is stamped after the allocator
//! returned) is not, either: those threads do not exist in the child, and nobody there knows of these blocks.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use rustix::fs::OFlags;
use tracehound_format::header::FileHeader;
use tracehound_format::meta::ForkedFrom;
use tracehound_format::nodes::Node;
use tracehound_format::record::Kind;

use super::engine::{MergedEvent, PairingEngine};
use super::event_batch::EventBatch;
use super::intake::Intake;
use super::recording::{IndexPlace, OpenOptions, Recording, modified_ns};
use super::seal::Sealer;
use tracehound_index::facts::{Inherited, InheritedFrom, MissingRecording, ModuleFacts, RecordingFacts};
use tracehound_index::{Cancel, Trace};

/// Recordings around one that is opened, among which its parent's is looked for, and how that is opened.
#[derive(Debug, Clone)]
pub(super) struct Kin {
    path: PathBuf,
    index: IndexPlace,
    cancel: Cancel,
    live_bytes: u64,
    others: Vec<PathBuf>,
    /// The recording itself, and those of its descendants that are being opened.
    descendants: Vec<[u8; 16]>,
}

/// How long a running parent is waited for until it has written what it did before the fork.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most generations of forks that are followed: more than any program needs that is not hostile.
const MOST_GENERATIONS: usize = 200;
/// Files of a folder that are looked at.
const MOST_FILES: usize = 20_000;

impl Kin {
    pub(super) fn new(path: &Path, recording_id: [u8; 16], options: &OpenOptions) -> Self {
        let mut descendants = options.descendants.clone();
        descendants.push(recording_id);
        Self {
            path: path.to_path_buf(),
            index: options.index.clone(),
            cancel: options.cancel.clone(),
            live_bytes: options.live_bytes,
            others: options.others.clone(),
            descendants,
        }
    }

    /// Finds the recording with this id: where it was written, beside the child's, among the files that were named
    /// along with it, and anywhere in the child's folder.
    fn find(&self, id: [u8; 16], recorded: &[u8]) -> Option<PathBuf> {
        let recorded = PathBuf::from(OsStr::from_bytes(recorded));
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let beside = recorded.file_name().map(|name| folder.join(name));
        let likely = [Some(recorded), beside].into_iter().flatten().chain(self.others.iter().cloned());
        let fits = |path: &PathBuf| recording_id(path) == Some(id);
        likely.into_iter().find(fits).or_else(|| {
            let entries = std::fs::read_dir(folder).ok()?.flatten();
            entries.take(MOST_FILES).map(|entry| entry.path()).find(fits)
        })
    }

    /// Whether the inherited blocks in an index are those that would be found now.
    pub(super) fn is_current(&self, inherited: &Inherited) -> bool {
        let missing_still = |missing: &MissingRecording| self.find(missing.recording_id, &missing.path).is_none();
        if !inherited.missing.iter().all(missing_still) {
            return false;
        }
        let Some(from) = &inherited.from else { return true };
        // The index has the inherited blocks of a recording that is no longer there.
        let Some(path) = self.find(from.recording_id, &from.path) else { return true };
        let Ok(file) = File::open(path) else { return true };
        let len = file.metadata().map_or(0, |meta| meta.len());
        if from.may_grow && inherited.shortfall.is_none() {
            return len >= from.file_bytes;
        }
        len == from.file_bytes && modified_ns(&file) == from.modified_ns
    }

    /// Opens the parent's recording and finds the inherited blocks.
    pub(super) fn inherit(&self, fork: &ForkedFrom) -> (Inherited, Option<Arc<Trace>>) {
        let name = format!("{} ({})", String::from_utf8_lossy(&fork.path), short(fork.recording_id));
        let without = |why: &str, missing: Vec<MissingRecording>, from| {
            let text = format!(
                "the recording of the process that forked this one, {name}, {why}: the blocks that were inherited are \
                 missing, and their frees count as unmatched"
            );
            (Inherited { from, missing, shortfall: Some(text), ..Inherited::default() }, None)
        };
        if self.descendants.contains(&fork.recording_id) || self.descendants.len() > MOST_GENERATIONS {
            return without("cannot be an ancestor's", Vec::new(), None);
        }
        let missing = MissingRecording { recording_id: fork.recording_id, path: fork.path.clone() };
        let Some(path) = self.find(fork.recording_id, &fork.path) else {
            return without("is not there", vec![missing], None);
        };
        let from = |may_grow| {
            let file = File::open(&path).ok();
            Some(InheritedFrom {
                recording_id: fork.recording_id,
                path: path.as_os_str().as_bytes().to_vec(),
                file_bytes: file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len()),
                modified_ns: file.as_ref().map_or(0, modified_ns),
                may_grow,
            })
        };
        let before = from(false);
        let options = OpenOptions {
            index: match &self.index {
                IndexPlace::Auto => IndexPlace::Auto,
                IndexPlace::In(folder) => IndexPlace::In(folder.join(format!("parent-{}", short(fork.recording_id)))),
            },
            cancel: self.cancel.clone(),
            live_bytes: self.live_bytes,
            others: self.others.clone(),
            descendants: self.descendants.clone(),
            ..OpenOptions::default()
        };
        let mut recording = match Recording::open(&path, options) {
            Ok(recording) => recording,
            Err(error) => return without(&format!("cannot be read ({error})"), Vec::new(), before),
        };
        let started = Instant::now();
        let is_short = |recording: &Recording| {
            let trace = recording.trace();
            recording.is_running() && trace.watermark_ns() <= trace.facts().ns_of_tick(fork.tick)
        };
        while is_short(&recording) && started.elapsed() < PATIENCE && !self.cancel.is_cancelled() {
            std::thread::sleep(Duration::from_millis(50));
            if recording.refresh().is_err() {
                break;
            }
        }
        if is_short(&recording) {
            return without("has not been written up to the fork yet", Vec::new(), from(true));
        }
        let trace = recording.trace();
        let facts = trace.facts();
        let may_grow = recording.is_running();
        let mut inherited = Inherited {
            from: if may_grow { from(true) } else { before },
            missing: facts.inherited.as_ref().map_or_else(Vec::new, |above| above.missing.clone()),
            had_pauses: !fork.recording || stopped_before(facts, facts.ns_of_tick(fork.tick)),
            modules: gone_before(facts.modules.iter(), facts.ns_of_tick(fork.tick)),
            ..Inherited::default()
        };
        let lacks = |what: &str| {
            Some(format!(
                "the recording of the process that forked this one, {name}, {what}: blocks that were inherited may be \
                 missing or may have been freed before the fork"
            ))
        };
        if let Some(text) = facts.inherited.as_ref().and_then(|above| above.shortfall.as_ref()) {
            inherited.shortfall = lacks(&format!("lacks what it inherited itself ({text})"));
        } else if facts.lost > 0 || facts.damaged_blocks > 0 || facts.cut {
            inherited.shortfall = lacks("is damaged or lacks events");
        } else if facts.end.is_none() && !facts.running && !facts.killed {
            inherited.shortfall = lacks("has no end, and no side file completes it");
        } else if facts.end == Some(tracehound_format::meta::EndReason::DiskFull) {
            inherited.shortfall = lacks("ends where the disk was full");
        }
        (inherited, Some(trace))
    }
}

/// The first bytes of an id, as `%i` in the name of a recording has them.
fn short(id: [u8; 16]) -> String {
    let [a, b, c, d, ..] = id;
    format!("{:08x}", u32::from_be_bytes([a, b, c, d]))
}

/// The id of the recording at `path`, if it is one. Whatever else is there is not waited for.
fn recording_id(path: &PathBuf) -> Option<[u8; 16]> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file =
        std::fs::OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path).ok()?;
    let mut header = [0; FileHeader::LEN];
    file.read_exact_at(&mut header, 0).ok()?;
    Some(FileHeader::decode(&header).ok()?.recording_id)
}

/// Whether the parent's recording had been switched off before the fork, or what it inherited had been.
fn stopped_before(facts: &RecordingFacts, fork_ns: u64) -> bool {
    facts.inherited.as_ref().is_some_and(|above| above.had_pauses)
        || facts.captures.iter().any(|capture| capture.to_ns < fork_ns && capture.to_ns < facts.duration_ns)
}

/// Modules that the parent had unloaded: the child's recording does not know them, stacks of inherited blocks may.
fn gone_before<'a>(modules: impl Iterator<Item = &'a ModuleFacts>, fork_ns: u64) -> Vec<ModuleFacts> {
    let gone = modules.filter(|module| module.unloaded_ns.is_some_and(|ns| ns <= fork_ns));
    gone.map(|module| ModuleFacts { loaded_ns: 0, unloaded_ns: Some(0), ..module.clone() }).collect()
}

/// The child's thread that the fork left: the first of its recording.
const FIRST_THREAD: u32 = 1;

/// Begins a child's index with the blocks of its parent that were alive at the fork, in the order of their allocations,
/// as allocations at time 0, and with what the parent had mapped, as mappings from before with a backtrace. False when cancelled; then the index is of no use.
pub(super) fn begin_with(
    parent: &Trace,
    fork: &ForkedFrom,
    inherited: &mut Inherited,
    child: &mut Intake,
    engine: &mut PairingEngine,
    sealer: &mut Sealer,
    cancel: &Cancel,
) -> io::Result<bool> {
    let mut nodes = SharedNodes::fill(parent, fork, child);
    let tick = child.process.as_ref().map_or(fork.tick, |process| process.started_tick);
    let thread = engine.thread(FIRST_THREAD);
    let mut hand_over = |mut chunk: EventBatch| {
        sealer.take(&chunk)?;
        chunk.clear();
        Ok(chunk)
    };
    let mut origins = FxHashMap::default();
    let mut batch = Vec::new();
    let full = engine.batch_events(1024);
    let at = parent.position_before(parent.facts().ns_of_tick(fork.tick).saturating_add(1));
    for row in 0..at.allocs {
        if parent.free_of(row).is_some_and(|free| free < at.frees) {
            continue;
        }
        let alloc = parent.origin_of_alloc(row);
        // Blocks of a pool lie in blocks of the allocator, maybe at the same address: the kind tells them apart.
        let kind = if alloc.kind == Kind::PoolAlloc as u8 { Kind::PoolAlloc } else { Kind::Inherited } as u8;
        let node = nodes.look_up(alloc.node, child);
        let origin = *origins.entry((node, kind)).or_insert_with(|| engine.origin(node, thread, kind));
        let (address, size) = (parent.address_of(row), parent.size_of(row));
        if size >> 32 != 0 {
            let kind = Kind::SizeHigh as u8;
            let origin = engine.origin(0, thread, kind);
            batch.push(MergedEvent { tick, address: size >> 32, size: 0, origin, thread, kind });
        }
        batch.push(MergedEvent { tick, address, size: size as u32, origin, thread, kind });
        inherited.blocks += 1;
        inherited.bytes += size;
        if batch.len() >= full {
            if cancel.is_cancelled() {
                return Ok(false);
            }
            engine.take(&mut batch, None, &mut hand_over)?;
            batch.clear();
        }
    }
    let space = parent.mapped_at(parent.facts().ns_of_tick(fork.tick));
    for mapping in space.mappings().filter(|mapping| mapping.node != 0) {
        let node = nodes.look_up(mapping.node, child);
        let (kind, detail) = (Kind::MapExisting as u8, Kind::SizeHigh as u8);
        if mapping.len >> 32 != 0 {
            let origin = engine.origin(0, thread, detail);
            batch.push(MergedEvent { tick, address: mapping.len >> 32, size: 0, origin, thread, kind: detail });
        }
        let origin = engine.origin(node, thread, kind);
        batch.push(MergedEvent { tick, address: mapping.start, size: mapping.len as u32, origin, thread, kind });
    }
    engine.take(&mut batch, None, &mut hand_over)?;
    if let Some(thread) = engine.threads.get_mut(thread as usize) {
        thread.active |= inherited.blocks > 0;
    }
    // Not a block that the child has made: its end does not make it a temporary one.
    engine.forget_last_allocs(thread);
    engine.flush(&mut hand_over)?;
    Ok(true)
}

/// From nodes of the parent's call tree to nodes of the child's: the same ids, as far as both grew together.
struct SharedNodes<'a> {
    parent: &'a Trace,
    nodes: u32,
    known: FxHashMap<u32, u32>,
}

impl<'a> SharedNodes<'a> {
    /// Fills in what the child's recording lacks: it has nodes as far as its own events need them.
    fn fill(parent: &'a Trace, fork: &ForkedFrom, child: &mut Intake) -> Self {
        for id in 1..fork.nodes.min(parent.node_count()) {
            if let Some(node) = parent.node(id) {
                child.node(id, node);
            }
        }
        Self { parent, nodes: fork.nodes, known: FxHashMap::default() }
    }

    /// The child's node for a node of the parent's. A node that came into the parent's tree just when the process was
    /// forked has none: its nearest caller that has one stands for it.
    fn look_up(&mut self, node: u32, child: &Intake) -> u32 {
        let mut path = Vec::new();
        let mut at = node;
        let mut found = loop {
            match self.known.get(&at) {
                Some(&known) => break known,
                None if at == 0 => break 0,
                None => {
                    path.push(at);
                    at = self.parent.nodes().parent(at);
                }
            }
        };
        let mut caller = at;
        while let Some(node) = path.pop() {
            if found == caller && self.is_shared(node, caller, child) {
                found = node;
            }
            self.known.insert(node, found);
            caller = node;
        }
        found
    }

    fn is_shared(&self, id: u32, caller: u32, child: &Intake) -> bool {
        let node = self.parent.node(id).map(|node| Node { parent: caller, ..node });
        id < self.nodes && node.is_some() && child.nodes.get(id as usize).copied().flatten() == node
    }
}
