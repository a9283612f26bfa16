//! Splits call-tree nodes by time if their addresses had several pieces of generated code, one after the other.
//!
//! ```text
//! recorder   one node for each (caller's node, return address), whatever code was at the address
//! here       address → times of change: one function, not certain which, the next function, …
//!            node → times of change of all addresses of its backtrace; an event's time selects a part
//!            (node, part) with events → a node of its own, whose addresses mean one function each
//! ```
//! The runtime and the recorder read different clocks. Near a time of change it is not certain which function was there, and
//! the address means both. A separate pass over the events finds the parts that have any, so the numbers of new nodes do
//! not depend on the order in which blocks are decoded.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::sync::Arc;

use tracehound_format::meta::{ClockSample, Code, GeneratedCode};
use tracehound_format::nodes::Node;
use tracehound_index::interpreted::GENERATED;

use super::decode::{BlockDecoder, Run};
use super::merge::{Pending, RunSource};

/// Pieces at addresses of the call tree, all together: beyond that the file is not a runtime's.
const MOST_PIECES: usize = 16 << 20;
/// Addresses that mean versions have this bit, which no address of a program has.
const VERSION: u64 = 1 << 63;
/// Bits of the address itself.
const ADDRESS_BITS: u32 = 47;
/// Versions that one address may have.
const MOST_VERSIONS: usize = 1 << (63 - ADDRESS_BITS);

/// Cuts of time in ticks, ascending: part 0 is before the first one.
type Cuts = Arc<[u64]>;

/// What was at one return address.
struct AddressVersions {
    cuts: Cuts,
    /// Names of each part, one a line; empty if no code is known.
    names: Vec<Vec<u8>>,
}

/// The versions of a recording's addresses; see the head of this file.
#[derive(Debug, Default)]
pub struct CodeVersions {
    /// By node; `None` if each of its addresses had one piece of code.
    cuts: Vec<Option<Cuts>>,
    /// The node of a node's part.
    nodes: HashMap<(u32, u32), u32>,
}

/// What is added to the recording's own.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NewNodes {
    /// Nodes behind the last one.
    pub nodes: Vec<Node>,
    /// What their addresses mean.
    pub codes: Vec<Code>,
}

impl CodeVersions {
    /// Splits the nodes of a recording whose events are in `pending`. `None` where no address had two pieces of code.
    #[must_use]
    pub fn find(
        pieces: &[GeneratedCode],
        samples: &[ClockSample],
        nodes: &[Option<Node>],
        file: &File,
        pending: &[Pending],
    ) -> Option<(Self, NewNodes)> {
        let addresses = versions_of(pieces, samples, nodes)?;
        let mut versions = Self { cuts: cuts_of(&addresses, nodes), nodes: HashMap::new() };
        let mut used = BTreeSet::new();
        let mut decoder = BlockDecoder::default();
        for pending in pending {
            let mut run = Run::default();
            match &pending.source {
                RunSource::Ready(ready) => versions.note_used(ready, &mut used),
                RunSource::Blocks(blocks) => {
                    // Block by block: a damaged one does not hide the others.
                    for block in blocks {
                        if decoder.decode(file, std::slice::from_ref(block), &mut run).is_ok() {
                            versions.note_used(&run, &mut used);
                        }
                    }
                }
            }
        }
        let new = versions.number(&addresses, nodes, &used);
        Some((versions, new))
    }

    fn part(&self, node: u32, tick: u64) -> Option<u32> {
        let cuts = self.cuts.get(node as usize)?.as_ref()?;
        Some(cuts.partition_point(|&cut| cut <= tick) as u32)
    }

    fn note_used(&self, run: &Run, used: &mut BTreeSet<(u32, u32)>) {
        for item in &run.items {
            let Some(&(node, _)) = run.origins.get(item.origin()) else { continue };
            if let Some(part) = self.part(node, item.tick) {
                used.insert((node, part));
            }
        }
    }

    /// Numbers the used parts and those of their callers, callers first.
    fn number(
        &mut self,
        addresses: &HashMap<u64, AddressVersions>,
        nodes: &[Option<Node>],
        used: &BTreeSet<(u32, u32)>,
    ) -> NewNodes {
        let mut new = NewNodes::default();
        let mut coded = BTreeSet::new();
        let mut path = Vec::new();
        for &(node, part) in used {
            let Some(Some(cuts)) = self.cuts.get(node as usize) else { continue };
            let since = (part as usize).checked_sub(1).and_then(|before| cuts.get(before)).copied().unwrap_or(0);
            path.clear();
            let mut at = node;
            // Up to a node that is numbered already, or has no versions.
            let mut parent = loop {
                let Some(part) = self.part(at, since) else { break at };
                if let Some(&known) = self.nodes.get(&(at, part)) {
                    break known;
                }
                path.push((at, part));
                match nodes.get(at as usize).copied().flatten() {
                    Some(node) if node.parent < at => at = node.parent,
                    _ => break 0,
                }
            };
            for &(at, part) in path.iter().rev() {
                let Some(mut node) = nodes.get(at as usize).copied().flatten() else { continue };
                if let Some(versions) = addresses.get(&node.pc) {
                    let version = versions.cuts.partition_point(|&cut| cut <= since);
                    let address =
                        VERSION | (version as u64) << ADDRESS_BITS | (node.pc - 1) & ((1 << ADDRESS_BITS) - 1);
                    if coded.insert(address) {
                        let function = versions.names.get(version).cloned().unwrap_or_default();
                        let language = GENERATED.into();
                        new.codes.push(Code { address, len: 1, language, function, ..Code::default() });
                    }
                    node.pc = address + 1;
                }
                node.parent = parent;
                parent = (nodes.len().max(1) + new.nodes.len()) as u32;
                new.nodes.push(node);
                self.nodes.insert((at, part), parent);
            }
        }
        new
    }

    /// Gives the events of a run the nodes of their parts.
    pub fn split(&self, run: &mut Run) {
        let Run { items, origins } = run;
        let mut numbers: HashMap<(u32, u8), u32> = HashMap::new();
        for item in items {
            let Some(&(node, kind)) = origins.get(item.origin()) else { continue };
            let Some(part) = self.part(node, item.tick) else { continue };
            let Some(&node) = self.nodes.get(&(node, part)) else { continue };
            let number = *numbers.entry((node, kind)).or_insert_with(|| {
                origins.push((node, kind));
                origins.len() as u32 - 1
            });
            item.origin_kind = number << 6 | u32::from(item.kind());
        }
    }
}

/// The addresses of nodes that had several functions.
fn versions_of(
    pieces: &[GeneratedCode],
    samples: &[ClockSample],
    nodes: &[Option<Node>],
) -> Option<HashMap<u64, AddressVersions>> {
    let ticks = Ticks::new(samples)?;
    // No version of an address is one of a version.
    let mut pcs: Vec<u64> = nodes.iter().flatten().map(|node| node.pc).filter(|&pc| 0 < pc && pc < VERSION).collect();
    pcs.sort_unstable();
    pcs.dedup();
    let mut found: HashMap<u64, Vec<&GeneratedCode>> = HashMap::new();
    let mut count = 0;
    for piece in pieces {
        let end = piece.start.saturating_add(piece.len);
        let first = pcs.partition_point(|&pc| pc - 1 < piece.start);
        let inside = pcs.get(first..).unwrap_or_default().iter().take_while(|&&pc| pc - 1 < end);
        for &pc in inside {
            count += 1;
            if count > MOST_PIECES {
                return None;
            }
            found.entry(pc).or_default().push(piece);
        }
    }
    let versions: HashMap<u64, AddressVersions> = found
        .into_iter()
        .filter_map(|(pc, pieces)| AddressVersions::of(pieces, &ticks).map(|versions| (pc, versions)))
        .collect();
    (!versions.is_empty()).then_some(versions)
}

impl AddressVersions {
    /// `None` where all pieces have one name.
    fn of(mut pieces: Vec<&GeneratedCode>, ticks: &Ticks) -> Option<Self> {
        pieces.sort_by_key(|piece| piece.from_ns);
        pieces.dedup_by(|piece, before| piece.name == before.name);
        if pieces.len() < 2 || pieces.len() * 2 > MOST_VERSIONS {
            return None;
        }
        // From when on a piece may be there, and from when on it is.
        let times: Vec<(u64, u64)> = pieces
            .iter()
            .map(|piece| {
                let early = ticks.at(piece.from_ns.saturating_sub(piece.within_ns));
                (early, ticks.at(piece.from_ns.saturating_add(piece.within_ns)).max(early + 1))
            })
            .collect();
        let mut cuts: Vec<u64> = times
            .iter()
            .enumerate()
            .flat_map(|(at, &(from, to))| {
                // Nothing was there before the first one.
                [Some(from), (at > 0).then_some(to)]
            })
            .flatten()
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        let name_at = |tick: u64| {
            let mut names: Vec<&[u8]> = Vec::new();
            for (at, piece) in pieces.iter().enumerate() {
                let may_be = times.get(at).is_some_and(|time| time.0 <= tick);
                let is_over = times.get(at + 1).is_some_and(|next| next.1 <= tick);
                if may_be && !is_over && !names.contains(&&*piece.name) {
                    names.push(&piece.name);
                }
            }
            names.join(&b'\n')
        };
        let names = std::iter::once(Vec::new()).chain(cuts.iter().map(|&cut| name_at(cut))).collect();
        Some(Self { cuts: cuts.into(), names })
    }
}

/// By node: the cuts of all addresses of its backtrace.
fn cuts_of(addresses: &HashMap<u64, AddressVersions>, nodes: &[Option<Node>]) -> Vec<Option<Cuts>> {
    let mut all: Vec<Option<Cuts>> = Vec::with_capacity(nodes.len());
    for (id, node) in nodes.iter().enumerate() {
        // Callers have lower numbers; where damage says otherwise, nothing is known of them.
        let Some(node) = node.filter(|node| (node.parent as usize) < id) else {
            all.push(None);
            continue;
        };
        let outside = all.get(node.parent as usize).cloned().flatten();
        let own = addresses.get(&node.pc).map(|versions| &versions.cuts);
        all.push(match (outside, own) {
            (outside, None) => outside,
            (None, Some(own)) => Some(Arc::clone(own)),
            (Some(outside), Some(own)) => {
                let mut both: Vec<u64> = outside.iter().chain(own.iter()).copied().collect();
                both.sort_unstable();
                both.dedup();
                Some(both.into())
            }
        });
    }
    all
}

/// Monotonic time to ticks, through the recording's samples of both.
struct Ticks(Vec<ClockSample>);

impl Ticks {
    fn new(samples: &[ClockSample]) -> Option<Self> {
        let mut kept: Vec<ClockSample> = Vec::with_capacity(samples.len());
        for &sample in samples {
            if kept.last().is_none_or(|last| last.tick < sample.tick && last.monotonic_ns < sample.monotonic_ns) {
                kept.push(sample);
            }
        }
        (kept.len() >= 2).then_some(Self(kept))
    }

    fn at(&self, ns: u64) -> u64 {
        // The two samples around the time, or the two next to it.
        let behind = self.0.partition_point(|sample| sample.monotonic_ns <= ns).clamp(1, self.0.len() - 1);
        let (Some(a), Some(b)) = (self.0.get(behind - 1), self.0.get(behind)) else { return 0 };
        let rate = (b.tick - a.tick) as f64 / (b.monotonic_ns - a.monotonic_ns) as f64;
        let since = ns as i128 - i128::from(a.monotonic_ns);
        let tick = i128::from(a.tick) + (since as f64 * rate) as i128;
        u64::try_from(tick.max(0)).unwrap_or(u64::MAX - 1).min(u64::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::DecodedRecord;
    use super::*;

    fn piece(from_ns: u64, start: u64, name: &str) -> GeneratedCode {
        GeneratedCode { from_ns, within_ns: 10, start, len: 0x100, name: name.as_bytes().to_vec() }
    }

    /// A tick has 2 ns, and tick 1,000 is nanosecond 10,000.
    fn samples() -> Vec<ClockSample> {
        let sample = |tick, monotonic_ns| ClockSample { tick, monotonic_ns, realtime_ns: 0 };
        vec![sample(1000, 10_000), sample(2000, 12_000)]
    }

    /// main calls what is at 0x7101, that calls what is at 0x7201, and that C code.
    fn nodes() -> Vec<Option<Node>> {
        let node = |parent, pc| Some(Node { parent, pc, generation: 0 });
        vec![None, node(0, 0x401), node(1, 0x7101), node(2, 0x7201), node(3, 0x501), node(1, 0x501)]
    }

    fn run(events: &[(u32, u64)]) -> Run {
        let items = events.iter().enumerate();
        let item = |(at, &(_, tick)): (usize, &(u32, u64))| DecodedRecord {
            tick,
            origin_kind: (at as u32) << 6 | 1,
            ..DecodedRecord::default()
        };
        Run { items: items.map(item).collect(), origins: events.iter().map(|&(node, _)| (node, 1)).collect() }
    }

    fn pending(run: Run) -> Pending {
        let source = RunSource::Ready(run);
        Pending { key: 0, thread: 1, first_record: 0, count: 0, bytes: 0, newest: 0, source }
    }

    /// The names of the backtrace of each event, innermost first; addresses without versions are themselves.
    fn names(pieces: &[GeneratedCode], events: &[(u32, u64)]) -> Vec<Vec<String>> {
        let (mut nodes, mut run) = (nodes(), run(events));
        let file = tempfile::tempfile().unwrap();
        let found = CodeVersions::find(pieces, &samples(), &nodes, &file, &[pending(run.clone())]);
        let mut codes = Vec::new();
        if let Some((versions, new)) = found {
            versions.split(&mut run);
            nodes.extend(new.nodes.into_iter().map(Some));
            codes = new.codes;
        }
        let name = |pc: u64| {
            let code = codes.iter().find(|code| code.address + 1 == pc);
            code.map_or(format!("{pc:x}"), |code| String::from_utf8(code.function.clone()).unwrap())
        };
        let stack = |item: &DecodedRecord| {
            let mut at = run.origins[item.origin()].0;
            let mut stack = Vec::new();
            while let Some(node) = nodes[at as usize] {
                stack.push(name(node.pc));
                at = node.parent;
            }
            stack
        };
        run.items.iter().map(stack).collect()
    }

    #[test]
    fn events_have_the_function_that_was_there() {
        let pieces = [piece(10_200, 0x7100, "first"), piece(10_600, 0x7100, "second"), piece(10_400, 0x7200, "inner")];
        let seen = names(&pieces, &[(4, 1150), (4, 1290), (4, 1310), (4, 5000), (5, 1290), (2, 1304)]);
        assert_eq!(seen[0], ["501", "7201", "first", "401"]);
        assert_eq!(seen[1], seen[0], "just before the cut");
        assert_eq!(seen[2], ["501", "7201", "second", "401"]);
        assert_eq!(seen[3], seen[2]);
        assert_eq!(seen[4], ["501", "401"]);
        assert_eq!(seen[5], ["first\nsecond", "401"], "within ten nanoseconds of the cut");
    }

    #[test]
    fn both_addresses_of_a_backtrace_have_their_own_times() {
        let pieces = [
            piece(10_200, 0x7100, "first"),
            piece(10_600, 0x7100, "second"),
            piece(10_000, 0x7200, "a"),
            piece(10_400, 0x71f0, "b"),
        ];
        let seen = names(&pieces, &[(4, 1150), (4, 1250), (4, 1400)]);
        let inner: Vec<_> = seen.iter().map(|stack| (&*stack[1], &*stack[2])).collect();
        assert_eq!(inner, [("a", "first"), ("b", "first"), ("b", "second")]);
    }

    #[test]
    fn what_has_one_name_stays_as_it_is() {
        let twice = [piece(10_200, 0x7100, "one"), piece(10_600, 0x7100, "one")];
        assert_eq!(names(&twice, &[(4, 1150)]), [["501", "7201", "7101", "401"]]);
        // Before all of them, there was none.
        let two = [piece(10_200, 0x7100, "one"), piece(10_600, 0x7100, "two")];
        assert_eq!(names(&two, &[(4, 1050)]), [["501", "7201", "", "401"]]);
    }

    #[test]
    fn damage_ends_in_nothing_worse() {
        let looped = vec![
            None,
            Some(Node { parent: 2, pc: 0x7101, generation: 0 }),
            Some(Node { parent: 1, pc: 0x7101, generation: 0 }),
        ];
        let pieces = [piece(0, 0x7100, "a"), piece(u64::MAX, 0x7100, "b"), piece(5, u64::MAX, "c")];
        let file = tempfile::tempfile().unwrap();
        let pending = [pending(run(&[(1, 5), (2, 1 << 40), (77, 0)]))];
        assert!(CodeVersions::find(&pieces, &samples(), &looped, &file, &pending).is_some());
        assert!(CodeVersions::find(&pieces, &[], &looped, &file, &pending).is_none());
    }
}
