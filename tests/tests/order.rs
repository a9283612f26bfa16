//! Order: which thread with which stack allocated and freed which block, when blocks go from thread to thread as fast as
//! they can. The blocks carry the truth (`tests/programs/hand_over.c`).
//!
//! `HAND_OVERS` says how many hand-overs of each kind are wanted; `make order` asks for ten million.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tracehound_tests::{compile, heaptrace, number, trace};

/// Rounds of a thread in one run.
const ROUNDS: u64 = 250_000;

/// One event of a worker, as it knows it itself.
#[derive(Debug, Clone, Copy)]
struct Done {
    address: u64,
    old: u64,
    number: u32,
    count: u32,
    old_count: u32,
    owner: u16,
    kind: u8,
    site: u8,
}

const ALLOC: u8 = 0;
const FREE: u8 = 1;
const REALLOC: u8 = 2;

fn truth(path: &Path) -> Vec<Vec<Done>> {
    let bytes = std::fs::read(path).expect("the program leaves the truth");
    let mut rest = bytes.as_slice();
    let mut workers = Vec::new();
    while let Some((len, behind)) = rest.split_first_chunk::<8>() {
        let (events, behind) = behind.split_at(u64::from_ne_bytes(*len) as usize * 32);
        let word = |event: &[u8], at: usize| u64::from_ne_bytes(event[at..at + 8].try_into().expect("eight bytes"));
        let done = |event: &[u8]| Done {
            address: word(event, 0),
            old: word(event, 8),
            number: word(event, 16) as u32,
            count: (word(event, 16) >> 32) as u32,
            owner: word(event, 24) as u16,
            old_count: (word(event, 24) >> 32) as u32,
            kind: (word(event, 24) >> 16) as u8,
            site: (word(event, 24) >> 24) as u8,
        };
        workers.push(events.chunks_exact(32).map(done).collect());
        rest = behind;
    }
    workers
}

/// A line of `heaptrace dump --no-symbols`, as far as it matters here.
struct Line<'a> {
    t_ns: u64,
    thread: u64,
    kind: &'a str,
    address: u64,
    old: u64,
    size: u64,
    caller: u64,
}

fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let Some(at) = line.find(key) else { return "" };
    let rest = line[at + key.len()..].trim_start_matches(['[', '"']);
    &rest[..rest.find([',', '"', '}', ']']).unwrap_or(rest.len())]
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0)
}

fn read(line: &str) -> Line<'_> {
    let decimal = |key| value(line, key).parse().unwrap_or(0);
    Line {
        t_ns: decimal("\"t_ns\":"),
        thread: decimal("\"thread\":"),
        kind: value(line, "\"kind\":"),
        address: hexadecimal(value(line, "\"address\":")),
        old: hexadecimal(value(line, "\"old_address\":")),
        size: decimal("\"size\":"),
        caller: hexadecimal(value(line, "\"stack\":")),
    }
}

/// What a function that calls the allocator does, and its number.
type Site = (u8, u8);

struct Check {
    workers: Vec<Vec<Done>>,
    /// Starts of the functions, sorted.
    sites: Vec<(u64, Site)>,
    /// Workers by the recording's threads.
    threads: HashMap<u64, usize>,
    /// What comes next of each worker.
    at: Vec<usize>,
    /// Blocks by address: worker, and its how-manieth.
    live: HashMap<u64, (u16, u32)>,
    /// Blocks that each worker has allocated.
    numbers: Vec<u32>,
    counts: HashMap<u64, u32>,
    last_ns: u64,
    /// Old blocks of reallocs whose address was handed out before they had returned.
    halves: HashMap<usize, u64>,
    wrong: Vec<String>,
}

impl Check {
    fn site(&self, caller: u64) -> Option<Site> {
        let at = self.sites.partition_point(|site| site.0 <= caller).checked_sub(1)?;
        let (start, site) = self.sites[at];
        (caller - start < 64).then_some(site)
    }

    fn line(&mut self, text: &str) {
        let line = read(text);
        let known = match line.kind {
            "alloc" => self.site(line.caller),
            "free" | "realloc" => self.site(line.caller),
            _ => return,
        };
        if let Some(worker @ 0..4) = line.size.checked_sub(4096).filter(|_| line.kind == "alloc") {
            self.threads.insert(line.thread, worker as usize);
            return;
        }
        let (Some(site), Some(&worker)) = (known, self.threads.get(&line.thread)) else { return };
        if let Err(why) = self.event(&line, site, worker) {
            self.wrong.push(format!("{why}: {text}"));
        }
        if line.t_ns < self.last_ns {
            self.wrong.push(format!("time goes back: {text}"));
        }
        self.last_ns = line.t_ns;
    }

    fn event(&mut self, line: &Line<'_>, site: Site, worker: usize) -> Result<(), String> {
        let Some(&done) = self.workers[worker].get(self.at[worker]) else { return Err("more than was done".into()) };
        let split = done.kind == REALLOC && line.kind == "free" && line.address == done.old;
        let completes = done.kind == REALLOC && line.kind == "alloc" && self.halves.remove(&worker) == Some(done.old);
        if split {
            self.halves.insert(worker, done.old);
        } else {
            self.at[worker] += 1;
        }
        let kind = match line.kind {
            _ if split || completes => REALLOC,
            "alloc" => ALLOC,
            "free" => FREE,
            _ => REALLOC,
        };
        let expected = (done.kind, done.site);
        if kind != done.kind || site != expected {
            return Err(format!("{done:?} was done by worker {worker}"));
        }
        let address = if split { done.old } else { done.address };
        if line.address != address || line.kind == "realloc" && line.old != done.old {
            return Err(format!("{done:?} was done, at another address"));
        }
        let ends = if line.kind == "realloc" { line.old } else { line.address };
        if line.kind != "alloc" {
            let block = self.live.remove(&ends);
            if block != Some((done.owner, done.number)) {
                return Err(format!("{block:?} ends where {done:?} was done"));
            }
        }
        if line.kind != "free" {
            let number = self.numbers[worker];
            self.numbers[worker] += 1;
            if let Some(other) = self.live.insert(line.address, (worker as u16, number)) {
                return Err(format!("{other:?} lives where {done:?} was done"));
            }
        }
        if line.kind == "realloc" || split {
            self.follows(done.old, done.old_count, &done)?;
        }
        if split { Ok(()) } else { self.follows(done.address, done.count, &done) }
    }

    /// Events at one address come in the order in which they happened.
    fn follows(&mut self, address: u64, count: u32, done: &Done) -> Result<(), String> {
        match self.counts.insert(address, count).unwrap_or(0) {
            last if last + 1 == count => Ok(()),
            last => Err(format!("number {last} at this address came before number {count}: {done:?}")),
        }
    }
}

/// Runs the program until there were so many hand-overs, or some seconds have passed when nobody has asked for many.
fn hand_overs(kind: &str, allocator: &str) {
    let asked = std::env::var("HAND_OVERS").ok().and_then(|text| text.parse::<u64>().ok());
    let (begun, wanted) = (Instant::now(), asked.unwrap_or(300_000));
    let (mut crossed, mut runs) = (0, 0);
    let program = compile("hand_over.c", &["-O2"]);
    while crossed < wanted && (runs < 2 || asked.is_some() || begun.elapsed() < Duration::from_secs(8)) {
        let variables = [
            ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1"),
            ("TRACEHOUND_ALLOCATOR", allocator),
        ];
        let traced = trace(&program, &[kind, &ROUNDS.to_string(), "2"], &variables);
        assert!(traced.output.status.success(), "{}", traced.stderr());
        let text = traced.stdout();
        let mut sites = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["crossed", count] => crossed += count.parse::<u64>().expect("a number"),
                ["site", number, calls @ ..] => {
                    let number = number.parse().expect("a number");
                    sites.extend((0..).zip(calls).map(|(kind, call)| (hexadecimal(call), (kind, number))));
                }
                _ => panic!("{line}"),
            }
        }
        sites.sort_unstable();
        let workers = truth(&traced.folder.path().join("truth"));
        let mut check = Check {
            at: vec![0; workers.len()],
            numbers: vec![0; workers.len()],
            workers,
            sites,
            threads: HashMap::new(),
            live: HashMap::new(),
            counts: HashMap::new(),
            last_ns: 0,
            halves: HashMap::new(),
            wrong: Vec::new(),
        };
        let recording = traced.recording();
        let mut dump = Command::new(heaptrace())
            .args(["dump", "--no-symbols"])
            .arg(&recording)
            .stdout(Stdio::piped())
            .spawn()
            .expect("heaptrace can be started");
        for line in BufReader::new(dump.stdout.take().expect("its output is a pipe")).lines() {
            check.line(&line.expect("the pipe can be read"));
        }
        assert!(dump.wait().expect("heaptrace can be waited for").success());
        let wrong = check.wrong.len();
        assert_eq!(wrong, 0, "{:#?}", &check.wrong[..wrong.min(20)]);
        let missing: usize = check.workers.iter().zip(&check.at).map(|(done, &at)| done.len() - at).sum();
        assert_eq!(missing, 0, "events are missing");
        let info = traced.info();
        assert_eq!(info["complete"], true);
        assert_eq!(number(&info, "/recorder/unmatched_frees"), 0);
        // The recorder's own stamps need no repair.
        assert_eq!(number(&info, "/recorder/order_repairs"), 0);
        runs += 1;
    }
    println!("{kind} {allocator}: {crossed} hand-overs in {runs} runs, 0 wrong");
    assert!(crossed > 0, "no block went from one thread to another");
    assert!(asked.is_none() || crossed >= wanted);
}

#[test]
fn through_slots_that_are_exchanged() {
    hand_overs("slots", "system");
}

#[test]
fn through_a_mailbox_that_is_stored_plainly() {
    hand_overs("mailbox", "system");
}

#[test]
fn through_a_list_under_a_spin_lock() {
    hand_overs("lock", "system");
}

#[test]
fn through_the_allocator() {
    hand_overs("heap", "system");
}

#[test]
fn through_slots_with_jemalloc() {
    hand_overs("slots", "jemalloc");
}

/// The handler's events lie between the stamp of the old block, which another thread may get at once, and the record.
#[test]
fn moved_blocks_while_handlers_map_memory() {
    let program = compile("moved_under_signals.c", &["-O2", "-pthread"]);
    for _ in 0..10 {
        let traced = trace(&program, &[], &[]);
        assert!(traced.output.status.success(), "{}", traced.stderr());
        let info = traced.info();
        for figure in ["/unmatched_frees", "/order_repairs", "/clock_quality/order_violations"] {
            assert_eq!(number(&info["recorder"], figure), 0, "{figure}: {info:#}");
        }
        assert_eq!(info["complete"], true);
        let counted: Vec<u64> = traced.stdout().split_whitespace().map(|word| word.parse().unwrap()).collect();
        let (allocated, left) = (number(&info, "/allocations/count"), number(&info, "/leaked/count"));
        // The C library's own: a buffer for the output, and what it keeps for threads.
        let more = allocated - counted[0];
        assert!(more < 100 && left <= more, "{allocated} allocations, {left} left, of {counted:?}");
    }
}
