//! Owners of address space: the mappings of a look, cut where the program's own mappings begin and end.

use std::collections::HashSet;
use std::ops::Range;

use tracehound_format::look::{MappingClass, PageState};

use super::LedgerSums;
use crate::live_blocks::HeapRegions;
use crate::stacks;
use tracehound_index::Trace;
use tracehound_index::block_extents::AllocatorModel;
use tracehound_index::looks::{LookedMapping, PageMap};
use tracehound_index::mappings::{AddressSpace, Mapping, MappingUse};
use tracehound_index::symbols::RecordingSymbols;

/// What a region is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionKind {
    /// The allocator's: blocks have been in it.
    Heap,
    /// The program has mapped it.
    Mapped,
    /// So has the runtime of a language, for its own heap.
    Runtime,
    /// A stack.
    Stack,
    /// Code and data of a module.
    Module,
    /// Another file, or shared memory.
    File,
    /// The recorder's.
    Recorder,
    /// The allocator's own, as far as is known.
    Metadata,
    /// None of these.
    Other,
}

/// Address space with one use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address behind it.
    pub end: u64,
    /// What it is for.
    pub kind: RegionKind,
    /// What it is called among its likes.
    pub name: String,
    /// By how mappings lie, not by what is known.
    pub is_modelled: bool,
    /// The program may write to it.
    pub is_writable: bool,
}

impl Region {
    /// Whether live blocks can be in it.
    pub const fn holds_blocks(&self) -> bool {
        matches!(self.kind, RegionKind::Heap | RegionKind::Mapped | RegionKind::Runtime | RegionKind::Other)
    }

    /// Adds pages of it that are not the heap's to the rows.
    pub(super) fn add(&self, sums: &mut LedgerSums, bytes: u64, state: PageState) {
        let (key, kind) = match self.kind {
            RegionKind::Heap => ("free_pages", "heap"),
            RegionKind::Mapped => ("mappings", "site"),
            RegionKind::Runtime => ("runtime_heaps", "site"),
            RegionKind::Stack => ("stacks", "thread"),
            RegionKind::Module if state == PageState::File => ("modules", "code"),
            RegionKind::Module => ("modules", "data"),
            // What the program has written to a private mapping, or has mapped of /dev/zero, is no file's any more.
            RegionKind::File if state == PageState::Anonymous => ("mappings", "copy"),
            RegionKind::File => ("files", "file"),
            RegionKind::Recorder => ("recorder", "recorder"),
            RegionKind::Metadata => ("allocator_metadata", "mapping"),
            RegionKind::Other => ("other", "mapping"),
        };
        sums.add(key, bytes, kind, &self.name);
        sums.row(key).is_modelled |= self.is_modelled && bytes > 0;
    }
}

/// glibc's heaps beside the break begin at multiples of this.
const ARENA_BYTES: u64 = 64 << 20;
/// A guard below a stack is not larger.
const MOST_GUARD: u64 = 1 << 20;
/// Modules whose mappings are the heaps of a language.
const RUNTIMES: [&str; 10] =
    ["python", "libpython", "node", "libnode", "libjvm", "ruby", "libruby", "libmono", "libcoreclr", "libv8"];

/// Whether a module's mappings are the heap of a language.
pub fn is_runtime(module: &str) -> bool {
    RUNTIMES.iter().any(|runtime| module.starts_with(runtime))
}

/// All regions of a look, by address.
pub fn of(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    map: &PageMap,
    heap: &HeapRegions,
    model: AllocatorModel,
) -> Vec<Region> {
    let space = trace.mapped_at(map.t_ns);
    let mut namer = Namer { trace, symbols };
    let mut regions = Vec::new();
    let mut before: Option<&LookedMapping> = None;
    // The loader and the kernel may know a file by different paths: of a module some mapping is code.
    let is_code = |mapping: &&LookedMapping| mapping.protection & 4 != 0 && !mapping.name.is_empty();
    let modules: HashSet<&str> = map.mappings.iter().filter(is_code).map(|mapping| mapping.name.as_str()).collect();
    let facts = MappingFacts { trace, modules, heap, model, knows_all: trace.knows_all_blocks(map.t_ns) };
    for mapping in &map.mappings {
        let is_own =
            mapped_in(&space, mapping.start..mapping.end()).iter().any(|(range, _)| range.start <= mapping.start);
        let (kind, name) = facts.base(mapping, before, is_own);
        let is_modelled = kind == RegionKind::Stack && mapping.thread == 0 && mapping.class != MappingClass::Stack;
        let region = |range: Range<u64>, kind, name| Region {
            start: range.start,
            end: range.end,
            kind,
            name,
            is_modelled,
            is_writable: mapping.protection & 2 != 0,
        };
        if matches!(kind, RegionKind::Heap | RegionKind::Other | RegionKind::Metadata) {
            let mut at = mapping.start;
            for (range, node) in mapped_in(&space, mapping.start..mapping.end()) {
                if at < range.start {
                    regions.push(region(at..range.start, kind, name.clone()));
                }
                let (kind, name) = namer.mapper(node);
                at = range.end;
                regions.push(region(range, kind, name));
            }
            if at < mapping.end() {
                regions.push(region(at..mapping.end(), kind, name));
            }
        } else {
            regions.push(region(mapping.start..mapping.end(), kind, name));
        }
        before = Some(mapping);
    }
    regions
}

/// What tells mappings apart.
struct MappingFacts<'a> {
    trace: &'a Trace,
    /// Names of mappings with code.
    modules: HashSet<&'a str>,
    heap: &'a HeapRegions,
    model: AllocatorModel,
    /// Whether all blocks that are live are known.
    knows_all: bool,
}

impl MappingFacts<'_> {
    /// What a mapping is, whoever made it. `is_own`: it begins with what the program has mapped itself, which is no stack that the C
    /// library has made.
    fn base(&self, mapping: &LookedMapping, before: Option<&LookedMapping>, is_own: bool) -> (RegionKind, String) {
        let is_module = || {
            let same = self.trace.modules().iter().any(|module| module.path == mapping.name.as_bytes());
            same || self.modules.contains(mapping.name.as_str())
        };
        match mapping.class {
            MappingClass::Recorder => (RegionKind::Recorder, "recorder".into()),
            MappingClass::Break => (RegionKind::Heap, "main heap".into()),
            MappingClass::Stack => (RegionKind::Stack, stack_name(self.trace, mapping)),
            MappingClass::File if is_module() => (RegionKind::Module, short(&mapping.name).into()),
            MappingClass::File | MappingClass::Shared if mapping.name.is_empty() => {
                (RegionKind::File, "shared memory".into())
            }
            MappingClass::File | MappingClass::Shared => (RegionKind::File, mapping.name.clone()),
            MappingClass::Special => (RegionKind::Other, mapping.name.clone()),
            MappingClass::Anonymous => {
                if self.heap.touch(mapping.start..mapping.end().max(mapping.start + 1)) {
                    let name = if mapping.start.is_multiple_of(ARENA_BYTES) && self.model == AllocatorModel::Glibc {
                        format!("arena {:#x}", mapping.start)
                    } else {
                        "other mappings".into()
                    };
                    return (RegionKind::Heap, name);
                }
                if let Some(module) = self.trace.modules().iter().find(|module| module.contains(mapping.start)) {
                    return (RegionKind::Module, module.name());
                }
                let guard = before
                    .filter(|guard| guard.protection == 0 && guard.end() == mapping.start && guard.len <= MOST_GUARD);
                let can_be_arena = mapping.len >= ARENA_BYTES && mapping.start.is_multiple_of(ARENA_BYTES);
                if guard.is_some() && mapping.protection == 3 && !can_be_arena && !is_own {
                    return (RegionKind::Stack, "threads that made no event, or have ended".into());
                }
                let kind = match self.model {
                    AllocatorModel::Glibc => RegionKind::Other,
                    // Blocks from before the recording may fill it.
                    _ if !self.knows_all => RegionKind::Heap,
                    _ => RegionKind::Metadata,
                };
                let name = if mapping.name.is_empty() { format!("{:#x}", mapping.start) } else { mapping.name.clone() };
                (kind, name)
            }
        }
    }
}

fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn stack_name(trace: &Trace, mapping: &LookedMapping) -> String {
    let known = trace.threads().iter().find(|thread| thread.id == mapping.thread);
    match known {
        Some(thread) if !thread.name.is_empty() => format!("{} ({})", thread.name, thread.id),
        Some(thread) => format!("thread {}", thread.id),
        None if mapping.name == "[stack]" => "main".into(),
        None => "thread".into(),
    }
}

/// The program's own mappings in a range, with the nodes that made them.
fn mapped_in(space: &AddressSpace, range: Range<u64>) -> Vec<(Range<u64>, u32)> {
    let own = |mapping: &Mapping| match mapping.kind {
        MappingUse::Anonymous | MappingUse::Stack | MappingUse::File => true,
        // Inherited from the process that forked this one, whose recording knows who mapped it; and the break, which the C
        // library moves for its heap by calls that are not recorded.
        MappingUse::Existing | MappingUse::Break => mapping.node != 0,
    };
    let mut found = Vec::new();
    for mapping in overlapping(space, range.clone()) {
        let (from, to) = (mapping.start.max(range.start), mapping.start.saturating_add(mapping.len).min(range.end));
        if own(mapping) && from < to {
            found.push((from..to, mapping.node));
        }
    }
    found
}

struct Namer<'a> {
    trace: &'a Trace,
    symbols: &'a dyn RecordingSymbols,
}

impl Namer<'_> {
    /// Kind and name of a mapping, by the call-tree node that made it.
    fn mapper(&mut self, node: u32) -> (RegionKind, String) {
        let frame = stacks::allocated_by(self.trace, self.symbols, node);
        let module = frame.as_ref().and_then(|frame| frame.module.clone()).unwrap_or_default();
        let name = frame.and_then(|frame| frame.function.or(frame.offset)).unwrap_or_else(|| "unknown".into());
        (if is_runtime(&module) { RegionKind::Runtime } else { RegionKind::Mapped }, name)
    }
}

/// The mappings that overlap a range, by address.
fn overlapping(space: &AddressSpace, range: Range<u64>) -> impl Iterator<Item = &Mapping> {
    let reaches_in = |m: &&Mapping| m.start < range.start && m.start.saturating_add(m.len) > range.start;
    space.before(range.start).filter(reaches_in).into_iter().chain(space.from(range))
}
