//! The index of a recording: an immutable snapshot that any number of threads may query at once.
//!
//! ```text
//! allocations   sorted by time: when, size, origin, address, and (ledger) which free ended it
//! frees   sorted by time: when, which allocation, origin
//! order    one bit an event: how allocations and frees interleave
//! pages    every 1024 events: time, position, live bytes with their extremes
//! zones    every 4096 allocations, every 4096 frees: which sizes, lifetimes, threads and sites occur
//! buckets  every 256 Ki events: sums by site, thread and pair of threads, in a hierarchy
//! ```

pub mod arrow_file;
pub mod ascending;
pub mod block_extents;
mod buckets;
pub mod cancel;
pub mod column;
mod contexts;
mod documents;
pub mod events;
mod existing;
pub mod facts;
pub mod files;
pub mod folded;
pub mod folder;
pub mod frame_tree;
pub mod interpreted;
pub mod kept;
pub mod language;
pub mod layout;
pub mod leaked;
pub mod ledger;
pub mod links;
pub mod looks;
pub mod mappings;
pub mod nodes;
mod page_finder;
pub mod payload;
pub mod places;
pub mod pre_order;
pub mod program;
pub mod rows;
pub mod scan;
pub mod schema;
pub mod sparse;
pub mod sums;
pub mod symbols;
pub mod walk;
pub mod zones;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

pub use cancel::{Cancel, Cancelled};
pub use events::{TraceEvent, TraceEvents, What};
pub use places::{Position, Span};
pub use rows::{AllocRow, Free};
pub use scan::{BlockEvent, BlockRow};
use tracehound_format::meta::EndReason;
use tracehound_format::nodes::Node;
pub use walk::{HeapState, PeakPlace};

use facts::{MarkFacts, ModuleFacts, RecordingFacts, ThreadFacts};
use files::Ledgers;
use folded::{FoldedFrames, RuntimeRole};
use frame_tree::FrameTree;
use interpreted::{InterpretedCodes, InterpreterCode, SourceCall};
use layout::NO_SITE;
use nodes::{NO_LOCATION, NodeTable};
use schema::{Columns, EventOrigin, EventPage, TableRow};
use symbols::{LocationId, RecordingSymbols};

/// State of a growing index that is in memory, not in columns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tail {
    /// The page that is being filled.
    pub page: Option<EventPage>,
    /// The word of order bits that is being filled.
    pub order_word: u64,
    /// Pages with live blocks among the events of that word: the fewest, the most, behind the last.
    pub occupied: [u32; 3],
}

/// An immutable snapshot of a recording's index.
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
    folder: PathBuf,
    facts: RecordingFacts,
    columns: Columns,
    ledgers: Ledgers,
    tail: Tail,
    nodes: NodeTable,
    module_ranges: ModuleRanges,
    revision: u64,
    pub(crate) leaked: OnceLock<leaked::LeakIndex>,
    page_finder: OnceLock<page_finder::PageFinder>,
    answers: kept::KeptAnswers,
    mapped: OnceLock<Vec<(u64, u64)>>,
    frame_trees: Mutex<Vec<(u64, Arc<FrameTree>)>>,
    interpreted: OnceLock<InterpretedCodes>,
    interpreter: OnceLock<InterpreterCode>,
    folded: OnceLock<FoldedFrames>,
    /// Keeps the index folder's lock, or a temporary folder, alive.
    _keep: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

/// A distinct place in the code that appears in backtraces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Return address; `pc - 1` lies in the call.
    pub pc: u64,
    /// How often the code there had been unloaded before.
    pub generation: u32,
    /// Position in [`Trace::modules`], if it lies in one.
    pub module: Option<u32>,
}

/// Segments of all modules by address.
#[derive(Debug, Default)]
struct ModuleRanges {
    /// (start, end, largest end up to here, module)
    ranges: Vec<(u64, u64, u64, u32)>,
}

impl ModuleRanges {
    fn new(modules: &[ModuleFacts]) -> Self {
        let mut ranges: Vec<_> = (0_u32..)
            .zip(modules)
            .flat_map(|(i, m)| m.segments.iter().map(move |s| (s.start, s.start.saturating_add(s.len), 0, i)))
            .collect();
        ranges.sort_unstable();
        let mut largest = 0;
        for range in &mut ranges {
            largest = largest.max(range.1);
            range.2 = largest;
        }
        Self { ranges }
    }

    /// The module around `address`; among several the one of that generation, else the latest.
    fn find(&self, modules: &[ModuleFacts], address: u64, generation: u32) -> Option<u32> {
        let behind = self.ranges.partition_point(|r| r.0 <= address);
        let reach = self.ranges[..behind].iter().rev().take_while(|r| r.2 > address);
        let mut best: Option<u32> = None;
        for &(_, end, _, index) in reach {
            if end <= address {
                continue;
            }
            if modules.get(index as usize).is_some_and(|m| m.generation == generation) {
                return Some(index);
            }
            best = best.max(Some(index));
        }
        best
    }
}

/// Parts of a snapshot.
pub struct Parts {
    /// The recording.
    pub path: PathBuf,
    /// The folder of the index.
    pub folder: PathBuf,
    /// Process, totals and the like.
    pub facts: RecordingFacts,
    /// Columns on disk.
    pub columns: Columns,
    /// Ends of blocks, and zones.
    pub ledgers: Ledgers,
    /// What is not in columns yet.
    pub tail: Tail,
    /// Grows with every snapshot of a growing recording.
    pub revision: u64,
    /// Kept as long as the snapshot: the lock of the folder, or a temporary folder.
    pub keep: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

impl Trace {
    /// A snapshot of these parts.
    #[must_use]
    pub fn assemble(parts: Parts) -> Self {
        let nodes = NodeTable::new(&parts.columns.node_parent);
        let module_ranges = ModuleRanges::new(&parts.facts.modules);
        Self {
            path: parts.path,
            folder: parts.folder,
            facts: parts.facts,
            columns: parts.columns,
            ledgers: parts.ledgers,
            tail: parts.tail,
            nodes,
            module_ranges,
            revision: parts.revision,
            leaked: OnceLock::new(),
            page_finder: OnceLock::new(),
            answers: kept::KeptAnswers::default(),
            mapped: OnceLock::new(),
            frame_trees: Mutex::new(Vec::new()),
            interpreted: OnceLock::new(),
            interpreter: OnceLock::new(),
            folded: OnceLock::new(),
            _keep: parts.keep,
        }
    }

    /// Path of the recording.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the index.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The recording's identity.
    #[must_use]
    pub fn recording_id(&self) -> [u8; 16] {
        self.facts.recording_id
    }

    /// Grows with every snapshot of a growing recording.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Process, totals and the like.
    #[must_use]
    pub fn facts(&self) -> &RecordingFacts {
        &self.facts
    }

    /// Columns on disk.
    #[must_use]
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Ends of blocks, and zones.
    #[must_use]
    pub fn ledgers(&self) -> &Ledgers {
        &self.ledgers
    }

    /// What is not in columns yet.
    #[must_use]
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// How far results can be trusted.
    #[must_use]
    pub fn exactness(&self) -> tracehound_api::Exactness {
        let f = &self.facts;
        let e = &f.events;
        tracehound_api::Exactness {
            events: e.alloc + e.free + e.realloc + e.map + e.unmap + e.remap + e.brk,
            lost_events: f.lost,
            damaged_blocks: f.damaged_blocks,
            watermark_ns: f.watermark_ns,
            complete: self.is_complete(),
        }
    }

    /// The recording has ended in an orderly way and nothing is known to be missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let f = &self.facts;
        // After a full disk events are missing for certain; how many is not known. A kill is no orderly end.
        f.end.is_some_and(|end| !matches!(end, EndReason::DiskFull | EndReason::Killed))
            && f.lost == 0
            && f.damaged_blocks == 0
            && f.uncertain == 0
            && !f.cut
            && f.inherited.as_ref().is_none_or(|inherited| inherited.shortfall.is_none())
    }

    /// Whether all blocks that were live at a time are known: recorded, or listed by an attach. Those are not that were allocated
    /// before recording began, or while it was switched off.
    #[must_use]
    pub fn knows_all_blocks(&self, at_ns: u64) -> bool {
        /// A last look comes this long after the end of what it belongs to.
        const LATE_NS: u64 = 100_000_000;
        let f = &self.facts;
        let Some(first) = f.captures.first() else { return false };
        let from_the_start = first.from_ns == 0 || f.events.existing.count > 0;
        from_the_start && at_ns <= first.to_ns.saturating_add(LATE_NS)
    }

    /// Some events are missing, frees perhaps: what is live may be less.
    #[must_use]
    pub fn misses_events(&self) -> bool {
        let f = &self.facts;
        let was_stopped = f.captures.len() > 1;
        let is_import_of_killed = self.imported_from().is_some() && f.end == Some(EndReason::Killed);
        was_stopped
            || is_import_of_killed
            || f.lost > 0
            || f.damaged_blocks > 0
            || f.cut
            || self.end() == tracehound_api::info::End::Unknown
    }

    /// The other tool whose recording this one was converted from.
    #[must_use]
    pub fn imported_from(&self) -> Option<&'static str> {
        const HEAPTRACK: &str = "heaptrack";
        let process = self.facts.process.as_ref()?;
        process.recorder.starts_with(HEAPTRACK).then_some(HEAPTRACK)
    }

    /// Why it ended.
    #[must_use]
    pub fn end(&self) -> tracehound_api::info::End {
        use tracehound_api::info::End;
        match self.facts.end {
            Some(EndReason::Exit) => End::Exit,
            Some(EndReason::Exec) => End::Exec,
            Some(EndReason::Stopped) => End::Stopped,
            Some(EndReason::Detached) => End::Detached,
            Some(EndReason::DiskFull) => End::DiskFull,
            Some(EndReason::Killed) => End::Killed,
            None if self.facts.running => End::Running,
            None if self.facts.killed => End::Killed,
            None => End::Unknown,
        }
    }

    /// Length of the recording, nanoseconds; every event lies before it.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.facts.duration_ns
    }

    /// Every event before this time is in the snapshot.
    #[must_use]
    pub fn watermark_ns(&self) -> u64 {
        self.facts.watermark_ns
    }

    /// Live bytes at the end.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.facts.live_bytes
    }

    /// Modules in the order of loading.
    #[must_use]
    pub fn modules(&self) -> &[ModuleFacts] {
        &self.facts.modules
    }

    /// Threads; rows refer to them by position.
    #[must_use]
    pub fn threads(&self) -> &[ThreadFacts] {
        &self.facts.threads
    }

    /// Marks by ordinal.
    #[must_use]
    pub fn marks(&self) -> &[MarkFacts] {
        &self.facts.marks
    }

    /// Functions of interpreted languages.
    #[must_use]
    pub fn interpreted(&self) -> &InterpretedCodes {
        self.interpreted.get_or_init(|| InterpretedCodes::new(&self.columns.codes))
    }

    /// The call at `pc`, a return address, if it is a call in an interpreted language.
    #[must_use]
    pub fn source_call(&self, pc: u64) -> Option<SourceCall<'_>> {
        self.interpreted().call_at(pc.wrapping_sub(1))
    }

    /// Number of call-tree nodes, the root (0) included.
    #[must_use]
    pub fn node_count(&self) -> u32 {
        self.nodes.len()
    }

    /// Parents and depths.
    #[must_use]
    pub fn nodes(&self) -> &NodeTable {
        &self.nodes
    }

    /// A node as it was recorded, its parent made safe; `None` for the root and for unknown nodes.
    #[must_use]
    pub fn node(&self, id: u32) -> Option<Node> {
        let location = self.location(self.node_location(id)?);
        Some(Node { parent: self.nodes.parent(id), pc: location.pc, generation: location.generation })
    }

    /// Number of locations.
    #[must_use]
    pub fn location_count(&self) -> u32 {
        self.columns.location_pc.len() as u32
    }

    /// A location; ids from [`Self::location_count`] on give an empty one.
    #[must_use]
    pub fn location(&self, id: LocationId) -> Location {
        let at = id as usize;
        let pc = self.columns.location_pc.get(at).copied().unwrap_or(0);
        let generation = self.columns.location_generation.get(at).copied().unwrap_or(0);
        let module = self.module_ranges.find(&self.facts.modules, pc.wrapping_sub(1), generation);
        Location { pc, generation, module }
    }

    /// Location of a node; `None` for the root and for unknown nodes.
    #[must_use]
    pub fn node_location(&self, node: u32) -> Option<LocationId> {
        let location = *self.columns.node_location.get(node as usize)?;
        (node != 0 && location != NO_LOCATION).then_some(location)
    }

    /// Nodes of a backtrace, leaf first, without the root.
    pub fn stack(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let first = if node < self.nodes.len() { node } else { 0 };
        std::iter::successors(Some(first), |&n| Some(self.nodes.parent(n))).take_while(|&n| n != 0)
    }

    /// The modules that run Python's functions.
    #[must_use]
    pub fn interpreter(&self) -> &InterpreterCode {
        self.interpreter.get_or_init(|| InterpreterCode::find(self))
    }

    /// Roles of frames that are left out of backtraces as `symbols` shows them; `None` if it shows all.
    #[must_use]
    pub fn folded_frames(&self, symbols: &dyn RecordingSymbols) -> Option<&FoldedFrames> {
        let folded =
            symbols.folds_interpreters().then(|| self.folded.get_or_init(|| FoldedFrames::find(self, symbols)));
        folded.filter(|folded| !folded.is_empty())
    }

    /// Nodes of a backtrace as it is to be shown, leaf first, without the root.
    pub fn shown_stack<'a>(&'a self, symbols: &dyn RecordingSymbols, node: u32) -> impl Iterator<Item = u32> + use<'a> {
        let folded = self.folded_frames(symbols);
        let mut has_function_inside = false;
        self.stack(node).filter(move |&node| {
            let role = folded.map_or(RuntimeRole::Other, |folded| folded.role(node));
            has_function_inside |= role == RuntimeRole::Function;
            !(role == RuntimeRole::Own && has_function_inside)
        })
    }

    /// Number of sites: distinct allocating backtraces.
    #[must_use]
    pub fn site_count(&self) -> u32 {
        self.columns.site_node.len() as u32
    }

    /// Call-tree node of a site.
    #[must_use]
    pub fn site_node(&self, site: u32) -> Option<u32> {
        self.columns.site_node.get(site as usize).copied()
    }

    /// Number of origins.
    #[must_use]
    pub fn origin_count(&self) -> u32 {
        self.columns.origin_site.len() as u32
    }

    /// Node, thread and function of an origin.
    #[must_use]
    pub fn origin(&self, id: u32) -> EventOrigin {
        let unknown = EventOrigin { site: NO_SITE, ..EventOrigin::default() };
        EventOrigin::get(&self.columns, id as usize).unwrap_or(unknown)
    }

    /// The alignment in bytes that an allocation asked for, beyond what every block has; `None` as well for recordings that
    /// do not say.
    #[must_use]
    pub fn alignment_of(&self, row: u64) -> Option<u64> {
        let power = self.origin_of_alloc(row).alignment;
        1_u64.checked_shl(u32::from(power)).filter(|_| power != 0)
    }

    /// Origin of an allocation.
    #[must_use]
    pub fn origin_of_alloc(&self, row: u64) -> EventOrigin {
        self.origin(self.columns.alloc_origin.get(row as usize).copied().unwrap_or(u32::MAX))
    }

    /// Recording-wide id of the thread at a position.
    #[must_use]
    pub fn thread_id(&self, position: u32) -> u32 {
        self.facts.threads.get(position as usize).map_or(0, |t| t.id)
    }

    /// The tree of functions over the call tree; built once for each source of symbols.
    ///
    /// # Errors
    /// When cancelled while symbols are looked up.
    pub fn frame_tree(&self, symbols: &dyn RecordingSymbols, cancel: &Cancel) -> Result<Arc<FrameTree>, Cancelled> {
        let known = |trees: &[(u64, Arc<FrameTree>)]| {
            trees.iter().find(|(id, _)| *id == symbols.identity()).map(|(_, tree)| Arc::clone(tree))
        };
        let lock = || self.frame_trees.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(tree) = known(&lock()) {
            return Ok(tree);
        }
        let tree = Arc::new(FrameTree::build(self, symbols, cancel)?);
        let mut trees = lock();
        if let Some(tree) = known(&trees) {
            return Ok(tree);
        }
        trees.push((symbols.identity(), Arc::clone(&tree)));
        Ok(tree)
    }
}
