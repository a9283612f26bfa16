//! The books of a recording, kept anew from `heaptrace dump`: every block from allocation to free, in the order of the
//! events. `info` and `leaks` must agree with them to the byte.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{heaptrace, number};

/// A frame as far as the books need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Name without arguments, `?` if unknown.
    pub function: String,
    /// File name of the module, empty if unknown.
    pub module: String,
}

/// A backtrace, leaf first; inlined functions are frames of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Its frames.
    pub frames: Vec<Frame>,
    /// The return addresses, which tell equal backtraces from different ones.
    addresses: String,
}

impl Stack {
    /// How many frames are of this function.
    #[must_use]
    pub fn count(&self, function: &str) -> usize {
        self.frames.iter().filter(|frame| is_called(&frame.function, function)).count()
    }

    /// Whether one of the frames' names contains these words.
    #[must_use]
    pub fn mentions(&self, words: &str) -> bool {
        self.frames.iter().any(|frame| frame.function.contains(words))
    }

    /// The names, leaf first.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.frames.iter().map(|frame| frame.function.as_str()).collect()
    }
}

/// `full` is the function's name as the symbolizer prints it, `short` as the author wrote it.
#[must_use]
pub fn is_called(full: &str, short: &str) -> bool {
    let bare = match full.find('(') {
        Some(at) if at > 0 => &full[..at],
        _ => full,
    };
    // A compiler may have made a variant, such as `f.cold` or `f.constprop.0`.
    let bare = bare.split('.').next().unwrap_or(bare);
    bare == short || bare.strip_suffix(short).is_some_and(|before| before.ends_with("::"))
}

/// A block.
#[derive(Debug, Clone)]
pub struct Block {
    /// Bytes asked for.
    pub size: u64,
    /// Thread that made it.
    pub thread: u64,
    /// Index into [`Ledger::stacks`].
    pub stack: usize,
    /// It still lives.
    pub live: bool,
    /// It came from a realloc of another block.
    pub by_realloc: bool,
    /// A realloc ended it, no free.
    pub ended_by_realloc: bool,
}

/// The books.
#[derive(Debug, Default)]
pub struct Ledger {
    /// All blocks in the order of their allocations.
    pub blocks: Vec<Block>,
    /// All distinct backtraces.
    pub stacks: Vec<Stack>,
    /// Backtrace of every free.
    pub frees: Vec<usize>,
    /// Frees without an allocation.
    pub unmatched: u64,
    /// Largest sum of live bytes.
    pub peak_bytes: u64,
    /// Events by kind.
    pub kinds: BTreeMap<String, u64>,
    /// Sizes of map, unmap and remap events with their numbers.
    pub mapped: BTreeMap<(String, u64), u64>,
    /// Last name of each thread that has one.
    pub names: HashMap<u64, String>,
    /// Threads with heap or mapping events.
    pub threads: HashSet<u64>,
    /// Labels of the marks.
    pub marks: Vec<String>,
    /// What cannot be: times that go back, a block allocated where one lives.
    pub faults: Vec<String>,
}

impl Ledger {
    /// Reads `heaptrace dump FILE`.
    #[must_use]
    pub fn of(file: &Path) -> Self {
        Self::with(&[], file)
    }

    /// The same, with options of `heaptrace dump`.
    #[must_use]
    pub fn with(options: &[&OsStr], file: &Path) -> Self {
        let mut child = Command::new(heaptrace())
            .arg("dump")
            .args(options)
            .arg(file)
            .stdout(Stdio::piped())
            .spawn()
            .expect("heaptrace can be started");
        let mut reading = Reading::default();
        let output = child.stdout.take().expect("its output is a pipe");
        for line in BufReader::new(output).lines() {
            let line = line.expect("the pipe can be read");
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("no JSON ({e}): {line}"));
            reading.event(&event);
        }
        assert!(child.wait().expect("heaptrace can be waited for").success(), "heaptrace dump {}", file.display());
        reading.finish()
    }

    /// Allocations through `function`: their number and bytes.
    #[must_use]
    pub fn through(&self, function: &str) -> (u64, u64) {
        sum(self.blocks.iter().filter(|block| self.stacks[block.stack].count(function) > 0))
    }

    /// Blocks that live at the end.
    pub fn live(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.live)
    }
}

/// Number and bytes of some blocks.
pub fn sum<'a>(blocks: impl Iterator<Item = &'a Block>) -> (u64, u64) {
    blocks.fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.size))
}

#[derive(Default)]
struct Reading {
    ledger: Ledger,
    seen: HashMap<String, usize>,
    /// Live blocks by address. A realloc's line is at the time of its new block, so the old address may have been
    /// handed out before that line comes: then the older block waits in front.
    live: HashMap<String, Vec<usize>>,
    live_bytes: u64,
    last: u64,
}

impl Reading {
    fn event(&mut self, event: &Value) {
        let kind = event["kind"].as_str().unwrap_or_else(|| panic!("an event without kind: {event}"));
        let time = number(event, "/t_ns");
        if time < self.last {
            self.ledger.faults.push(format!("time goes back from {} to {time}: {event}", self.last));
        }
        self.last = time;
        *self.ledger.kinds.entry(kind.to_owned()).or_default() += 1;
        match kind {
            "alloc" => self.alloc(event, false),
            "free" => {
                let stack = self.stack(event);
                self.ledger.frees.push(stack);
                self.free(event, "address", false);
            }
            "realloc" => {
                self.free(event, "old_address", true);
                self.alloc(event, true);
            }
            "map" | "unmap" | "remap" => {
                *self.ledger.mapped.entry((kind.to_owned(), number(event, "/size"))).or_default() += 1;
            }
            "overwritten" => self.ledger.faults.push(format!("a block is allocated where one lives: {event}")),
            "mark" => self.ledger.marks.push(event["label"].as_str().unwrap_or("").to_owned()),
            "thread" => {
                if let Some(name) = event["name"].as_str() {
                    self.ledger.names.insert(number(event, "/thread"), name.to_owned());
                }
                return;
            }
            "brk" => {}
            _ => return,
        }
        self.ledger.threads.insert(number(event, "/thread"));
    }

    fn alloc(&mut self, event: &Value, by_realloc: bool) {
        let block = Block {
            size: number(event, "/size"),
            thread: number(event, "/thread"),
            stack: self.stack(event),
            live: true,
            by_realloc,
            ended_by_realloc: false,
        };
        self.live_bytes += block.size;
        self.ledger.peak_bytes = self.ledger.peak_bytes.max(self.live_bytes);
        let index = self.ledger.blocks.len();
        self.ledger.blocks.push(block);
        self.live.entry(address(event, "address")).or_default().push(index);
    }

    fn free(&mut self, event: &Value, field: &str, by_realloc: bool) {
        let blocks = self.live.entry(address(event, field)).or_default();
        let index = if by_realloc && !blocks.is_empty() { Some(blocks.remove(0)) } else { blocks.pop() };
        let Some(index) = index else {
            self.ledger.unmatched += 1;
            return;
        };
        let block = &mut self.ledger.blocks[index];
        block.live = false;
        block.ended_by_realloc = by_realloc;
        self.live_bytes -= block.size;
    }

    fn stack(&mut self, event: &Value) -> usize {
        let frames = event["stack"].as_array().unwrap_or_else(|| panic!("an event without stack: {event}"));
        let mut addresses = String::new();
        let mut key = String::new();
        for frame in frames {
            addresses.push_str(frame["address"].as_str().unwrap_or("?"));
            key.push_str(frame["function"].as_str().unwrap_or("?"));
        }
        key.push_str(&addresses);
        if let Some(&known) = self.seen.get(&key) {
            return known;
        }
        let text = |frame: &Value, field: &str| frame[field].as_str().unwrap_or("").to_owned();
        let frames = frames
            .iter()
            .map(|frame| {
                let module = text(frame, "module");
                let module = module.rsplit('/').next().unwrap_or("").to_owned();
                Frame { function: frame["function"].as_str().unwrap_or("?").to_owned(), module }
            })
            .collect();
        self.ledger.stacks.push(Stack { frames, addresses });
        self.seen.insert(key, self.ledger.stacks.len() - 1);
        self.ledger.stacks.len() - 1
    }

    fn finish(mut self) -> Ledger {
        for (address, blocks) in self.live.iter().filter(|(_, blocks)| blocks.len() > 1) {
            self.ledger.faults.push(format!("{} blocks live at {address} at the end", blocks.len()));
        }
        self.ledger
    }
}

fn address(event: &Value, field: &str) -> String {
    event[field].as_str().unwrap_or_else(|| panic!("an event without {field}: {event}")).to_owned()
}

impl Ledger {
    /// Panics unless `info` and `leaks` say what the books say.
    pub fn assert_agrees(&self, info: &Value, leaks: &Value, about: &str) {
        assert!(self.faults.is_empty(), "{about}: {:#?}", &self.faults[..self.faults.len().min(10)]);
        let kind = |name: &str| self.kinds.get(name).copied().unwrap_or(0);
        for name in ["alloc", "free", "realloc", "map", "unmap", "remap", "brk"] {
            assert_eq!(number(info, &format!("/events/{name}")), kind(name), "{about}: events of kind {name}");
        }
        let totals = sum(self.blocks.iter());
        assert_eq!(amount(info, "/allocations"), totals, "{about}: allocations");
        let leaked = sum(self.live());
        assert_eq!(amount(info, "/leaked"), leaked, "{about}: leaked, by info");
        assert_eq!(number(info, "/peak/bytes"), self.peak_bytes, "{about}: peak");
        assert_eq!(number(info, "/recorder/unmatched_frees"), self.unmatched, "{about}: unmatched frees");
        assert_eq!(number(info, "/threads"), self.threads.len() as u64, "{about}: threads");
        // Code that is loaded again at the same addresses makes new sites, which a dump does not tell apart.
        let sites: HashSet<usize> = self.blocks.iter().map(|block| block.stack).collect();
        assert!(number(info, "/sites") >= sites.len() as u64, "{about}: {} sites at least", sites.len());

        assert_eq!(amount(leaks, "/leaked"), leaked, "{about}: leaked, by leaks");
        let mut by_site: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for block in self.live() {
            let site = by_site.entry(&self.stacks[block.stack].addresses).or_default();
            *site = (site.0 + 1, site.1 + block.size);
        }
        let mut said: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for site in leaks["sites"].as_array().unwrap_or_else(|| panic!("{about}: no sites in {leaks}")) {
            let frames = site["stack"].as_array().expect("a site has a stack");
            let known =
                said.entry(frames.iter().map(|frame| frame["address"].as_str().unwrap_or("?")).collect()).or_default();
            let (count, bytes) = amount(site, "");
            *known = (known.0 + count, known.1 + bytes);
        }
        let said: BTreeMap<&str, (u64, u64)> = said.iter().map(|(key, amount)| (key.as_str(), *amount)).collect();
        assert_eq!(said, by_site, "{about}: leaks by site");
    }
}

/// `count` and `bytes` below `path`.
#[must_use]
pub fn amount(document: &Value, path: &str) -> (u64, u64) {
    (number(document, &format!("{path}/count")), number(document, &format!("{path}/bytes")))
}
