//! The truth about a random program, and brute-force answers.

use std::collections::BTreeMap;

use tracehound_api::Metric;
use tracehound_format::nodes::Node;
use tracehound_format::record::Kind;

use crate::symbols;

#[derive(Debug, Clone)]
pub struct Alloc {
    pub born_ns: u64,
    pub address: u64,
    pub size: u64,
    pub node: u32,
    pub thread: u32,
    pub kind: Kind,
    pub freed: Option<Freed>,
    pub previous: Option<usize>,
    pub next: Option<usize>,
    pub temporary: bool,
    /// Allocations and frees before.
    pub allocated_event: u64,
    pub freed_event: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Freed {
    pub ns: u64,
    pub thread: u32,
    pub node: u32,
    pub kind: Kind,
}

impl Alloc {
    pub fn new(born_ns: u64, address: u64, size: u64, node: u32, thread: u32, kind: Kind) -> Self {
        Self {
            born_ns,
            address,
            size,
            node,
            thread,
            kind,
            freed: None,
            previous: None,
            next: None,
            temporary: false,
            allocated_event: 0,
            freed_event: u64::MAX,
        }
    }

    pub fn lifetime(&self, duration: u64) -> u64 {
        self.freed.map_or(duration, |d| d.ns) - self.born_ns
    }

    pub fn is_live_at_event(&self, events: u64) -> bool {
        self.allocated_event < events && self.freed_event >= events
    }
}

#[derive(Debug, Clone)]
pub enum Truth {
    Alloc(usize),
    Free(usize),
    Realloc { old: Option<usize>, new: usize },
    Other { t_ns: u64, thread: u32 },
}

/// What happened to the address space, in pages.
#[derive(Debug, Clone, Copy)]
pub enum Mapping {
    Map { page: usize, pages: usize, node: u32 },
    Unmap { page: usize, pages: usize },
    Remap { from: usize, pages: usize, to: usize, to_pages: usize, node: u32 },
}

#[derive(Debug, Clone, Default)]
pub struct Reference {
    pub nodes: Vec<Node>,
    pub allocs: Vec<Alloc>,
    pub order: Vec<Truth>,
    pub maps: u64,
    pub breaks: u64,
    pub mappings: Vec<(u64, Mapping)>,
    pub frees: u64,
    pub reallocs: u64,
    pub unmatched: u64,
    /// Hand-overs with their stamps the wrong way round.
    pub inverted: u64,
    pub marks: Vec<(u64, String)>,
    pub samples: Vec<(u64, u64)>,
    pub duration: u64,
    /// Live bytes, blocks, time, whether a realloc is not half done: behind each allocation and free.
    pub states: Vec<State>,
    /// Allocation or free of which block each of them is behind.
    pub steps: Vec<(usize, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    pub t_ns: u64,
    pub bytes: u64,
    pub count: u64,
    pub settled: bool,
}

/// A filter, as the reference understands it.
#[derive(Debug, Clone, Default)]
pub struct Keep {
    pub focus: Option<String>,
    pub ignore: Option<String>,
    pub hide: Option<String>,
    pub show: Option<String>,
    pub show_from: Option<String>,
    /// Kind and function (or module); none: every function.
    pub transforms: Vec<(&'static str, Option<u32>)>,
    pub module: Option<u32>,
    pub thread: Option<u32>,
    pub min_size: u64,
    pub max_size: Option<u64>,
    pub min_lifetime: u64,
    pub max_lifetime: Option<u64>,
    pub lifetime: Option<&'static str>,
    pub freed_by: Option<String>,
    pub address: Option<(u64, u64)>,
}

fn matches(function: u32, text: &str) -> bool {
    symbols::name(function).contains(text) || symbols::file(function).contains(text)
}

/// One step on a backtrace that begins with its outermost function.
fn transform(stack: Vec<u32>, kind: &str, target: Option<u32>) -> Option<Vec<u32>> {
    let is = |f: u32| target.is_none_or(|target| f == target);
    let first = stack.iter().position(|&f| is(f));
    let last = stack.iter().rposition(|&f| is(f));
    Some(match kind {
        "merge-function" => stack.into_iter().filter(|&f| !is(f)).collect(),
        "drop-function" => return first.is_none().then_some(stack),
        "collapse-function" => stack[..first.map_or(stack.len(), |at| at + 1)].to_vec(),
        "collapse-module" => {
            let inside = |f: u32| Some(f % 2) == target;
            let kept = |i: &usize| !(*i > 0 && inside(stack[*i]) && inside(stack[*i - 1]));
            (0..stack.len()).filter(kept).map(|i| stack[i]).collect()
        }
        "collapse-direct-recursion" => {
            let kept = |i: &usize| !(*i > 0 && is(stack[*i]) && stack[*i] == stack[*i - 1]);
            (0..stack.len()).filter(kept).map(|i| stack[i]).collect()
        }
        "collapse-recursion" => {
            let mut kept: Vec<u32> = Vec::new();
            for f in stack {
                match kept.iter().position(|&above| above == f).filter(|_| is(f)) {
                    Some(at) => kept.truncate(at + 1),
                    None => kept.push(f),
                }
            }
            kept
        }
        "focus-function" => stack[first?..].to_vec(),
        "focus-inverted" => stack[..=last?].to_vec(),
        _ => unreachable!("{kind}"),
    })
}

fn apply(mapping: &Mapping, owners: &mut [Option<u32>; 128]) {
    match *mapping {
        Mapping::Map { page, pages, node } => owners[page..page + pages].fill(Some(node)),
        Mapping::Unmap { page, pages } => owners[page..page + pages].fill(None),
        Mapping::Remap { from, pages, to, to_pages, node } => {
            let owner = owners[from].unwrap_or(node);
            owners[from..from + pages].fill(None);
            owners[to..to + to_pages].fill(Some(owner));
        }
    }
}

pub type Sum = (i64, i64);

impl Reference {
    pub fn alloc(&mut self, alloc: Alloc) -> usize {
        self.allocs.push(alloc);
        self.allocs.len() - 1
    }

    pub fn free(&mut self, index: usize, ns: u64, thread: u32, node: u32, kind: Kind) {
        self.allocs[index].freed = Some(Freed { ns, thread, node, kind });
    }

    /// Numbers the events, finds temporary blocks and the states in between.
    pub fn settle(&mut self, duration: u64) {
        self.duration = duration;
        let (mut event, mut bytes, mut count) = (0, 0, 0);
        let mut last_allocs: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut states = Vec::new();
        let order = std::mem::take(&mut self.order);
        for truth in &order {
            let (free, alloc) = match *truth {
                Truth::Alloc(i) => (None, Some(i)),
                Truth::Free(i) => (Some(i), None),
                Truth::Realloc { old, new } => (old, Some(new)),
                Truth::Other { .. } => continue,
            };
            if let Some(i) = free {
                let b = &mut self.allocs[i];
                b.freed_event = event;
                let later = last_allocs[&b.thread].iter().rev().take_while(|&&other| other != i).count();
                b.temporary = later <= 1;
                bytes -= b.size;
                count -= 1;
                event += 1;
                states.push(State { t_ns: b.freed.unwrap().ns, bytes, count, settled: alloc.is_none() });
                self.steps.push((i, false));
            }
            if let Some(i) = alloc {
                let b = &mut self.allocs[i];
                b.allocated_event = event;
                last_allocs.entry(b.thread).or_default().push(i);
                bytes += b.size;
                count += 1;
                event += 1;
                states.push(State { t_ns: b.born_ns, bytes, count, settled: true });
                self.steps.push((i, true));
            }
        }
        self.order = order;
        self.states = states;
    }

    /// For each of the 128 pages who mapped it, behind every event up to a time.
    pub fn mapped_at(&self, t_ns: u64) -> [Option<u32>; 128] {
        let mut pages = [None; 128];
        for (_, mapping) in self.mappings.iter().filter(|m| m.0 <= t_ns) {
            apply(mapping, &mut pages);
        }
        pages
    }

    /// Mapped pages behind each event.
    pub fn mapped_pages(&self) -> Vec<(u64, usize)> {
        let mut pages = [None; 128];
        let behind = |(t_ns, mapping): &(u64, Mapping)| {
            apply(mapping, &mut pages);
            (*t_ns, pages.iter().flatten().count())
        };
        self.mappings.iter().map(behind).collect()
    }

    /// Allocations in the order of time; the index's rows.
    pub fn by_row(&self) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..self.allocs.len()).collect();
        rows.sort_by_key(|&i| self.allocs[i].allocated_event);
        rows
    }

    pub fn path(&self, node: u32) -> Vec<u32> {
        let mut path = Vec::new();
        let mut at = node;
        while at != 0 {
            path.push(at);
            at = self.nodes[at as usize].parent;
        }
        path
    }

    /// Functions of a backtrace, leaf first.
    pub fn functions(&self, node: u32) -> Vec<u32> {
        self.path(node).iter().flat_map(|&n| symbols::levels(self.nodes[n as usize].pc)).collect()
    }

    /// Functions of a backtrace as a filter shows them, leaf first. A backtrace that does not count has none.
    pub fn shown(&self, node: u32, keep: &Keep) -> Vec<u32> {
        self.counted(node, keep).unwrap_or_default()
    }

    /// The same of any backtrace; `None`: it does not count.
    pub fn counted(&self, node: u32, keep: &Keep) -> Option<Vec<u32>> {
        let functions = self.functions(node);
        let starts = |text: &String| functions.iter().any(|&f| matches(f, text));
        if keep.show_from.as_ref().is_some_and(|text| !starts(text)) {
            return None;
        }
        self.transformed(node, keep)
    }

    /// The same of one that `show_from` lets through; `None`: a transform leaves the backtrace out.
    fn transformed(&self, node: u32, keep: &Keep) -> Option<Vec<u32>> {
        let mut stack = self.filtered(node, keep);
        stack.reverse();
        for &(kind, target) in &keep.transforms {
            stack = transform(stack, kind, target)?;
        }
        stack.reverse();
        Some(stack)
    }

    fn filtered(&self, node: u32, keep: &Keep) -> Vec<u32> {
        let mut functions = self.functions(node);
        if let Some(text) = &keep.show_from {
            let first = functions.iter().rposition(|&f| matches(f, text));
            functions.truncate(first.map_or(0, |at| at + 1));
        }
        functions.retain(|&f| {
            !keep.hide.as_ref().is_some_and(|text| matches(f, text))
                && keep.show.as_ref().is_none_or(|text| matches(f, text))
        });
        functions
    }

    pub fn passes(&self, b: &Alloc, keep: &Keep) -> bool {
        let functions = self.functions(b.node);
        let hit = |wanted: &Option<String>, missing: bool| match wanted {
            None => missing,
            Some(text) => functions.iter().any(|&f| matches(f, text)),
        };
        let module_of = |n: u32| {
            let pc = self.nodes[n as usize].pc - 1;
            if (0x1000..0x1800).contains(&pc) { 0 } else { 1 }
        };
        let in_module = keep.module.is_none_or(|m| {
            self.path(b.node)
                .iter()
                .any(|&n| (0x1000..0x2000).contains(&(self.nodes[n as usize].pc - 1)) && module_of(n) == m)
        });
        let lifetime = b.lifetime(self.duration);
        hit(&keep.focus, true)
            && !hit(&keep.ignore, false)
            && hit(&keep.show_from, true)
            && self.transformed(b.node, keep).is_some()
            && in_module
            && keep.thread.is_none_or(|t| b.thread == t)
            && b.size >= keep.min_size
            && keep.max_size.is_none_or(|m| b.size <= m)
            && lifetime >= keep.min_lifetime
            && keep.max_lifetime.is_none_or(|m| lifetime <= m)
            && keep.freed_by.as_ref().is_none_or(|text| {
                b.freed.is_some_and(|free| self.functions(free.node).iter().any(|&f| matches(f, text)))
            })
            && keep.address.is_none_or(|(start, end)| b.address < end && b.address + b.size.max(1) > start)
            && match keep.lifetime {
                None => true,
                Some("leaked") => b.freed.is_none(),
                Some("freed") => b.freed.is_some(),
                Some(_) => b.temporary,
            }
    }

    /// Allocations and frees before a time.
    pub fn events_before(&self, t_ns: u64) -> u64 {
        self.states.iter().filter(|s| s.t_ns < t_ns).count() as u64
    }

    /// The highest state of `[from, to)`, its start included: (bytes, count, time, events before).
    pub fn peak(&self, from: u64, to: u64) -> (u64, u64, u64, u64) {
        let first = self.events_before(from);
        let start = if first == 0 {
            (0, 0)
        } else {
            let s = self.states[first as usize - 1];
            (s.bytes, s.count)
        };
        let mut best = (start.0, start.1, from, first);
        for (i, s) in self.states.iter().enumerate() {
            if s.t_ns >= from && s.t_ns < to && s.bytes > best.0 {
                best = (s.bytes, s.count, s.t_ns, i as u64 + 1);
            }
        }
        best
    }

    /// The same of what passes a filter.
    pub fn peak_of(&self, from: u64, to: u64, keep: &Keep) -> (u64, u64, u64, u64) {
        let first = self.events_before(from);
        let passing: Vec<bool> = self.allocs.iter().map(|b| self.passes(b, keep)).collect();
        let (mut bytes, mut count) = (0, 0);
        for (b, _) in self.allocs.iter().zip(&passing).filter(|(b, passes)| **passes && b.is_live_at_event(first)) {
            bytes += b.size;
            count += 1;
        }
        let mut best = (bytes, count, from, first);
        for (i, (s, &(block, allocated))) in self.states.iter().zip(&self.steps).enumerate().skip(first as usize) {
            if s.t_ns >= to {
                break;
            }
            if !passing[block] {
                continue;
            }
            let size = self.allocs[block].size;
            (bytes, count) = if allocated { (bytes + size, count + 1) } else { (bytes - size, count - 1) };
            if bytes > best.0 {
                best = (bytes, count, s.t_ns, i as u64 + 1);
            }
        }
        best
    }

    /// What an allocation counts for a metric: -1, 0 or 1.
    pub fn weight(&self, b: &Alloc, metric: Metric, from: u64, to: u64, at_event: u64) -> i64 {
        let inside = |t: u64| t >= from && t < to;
        let allocated = inside(b.born_ns);
        let freed = b.freed.is_some_and(|d| inside(d.ns));
        i64::from(match metric {
            Metric::Live | Metric::Peak => b.is_live_at_event(at_event),
            Metric::Leaked => allocated && b.freed.is_none(),
            Metric::Allocated => allocated,
            Metric::Freed => freed,
            Metric::Temporary => allocated && b.temporary,
            Metric::Grown => return i64::from(allocated) - i64::from(freed),
        })
    }

    /// (bytes, count) by node.
    pub fn sums(&self, metric: Metric, from: u64, to: u64, at_event: u64, keep: &Keep) -> BTreeMap<u32, Sum> {
        let mut sums: BTreeMap<u32, Sum> = BTreeMap::new();
        for b in self.allocs.iter().filter(|b| self.passes(b, keep)) {
            let weight = self.weight(b, metric, from, to, at_event);
            let sum = sums.entry(b.node).or_default();
            sum.0 += weight * b.size as i64;
            sum.1 += weight;
        }
        sums.retain(|_, s| *s != (0, 0));
        sums
    }
}
