//! What the recorder's machine code can do when something is wrong: which of its functions call Rust's panics, by the
//! disassembly of the library and not by its sources.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::process::Command;

use tracehound_tests::library;

/// Entries of the standard library that end in a panic or an abort.
const PANICS: [&str; 12] = [
    "core::panicking::",
    "core::option::unwrap_failed",
    "core::option::expect_failed",
    "core::result::unwrap_failed",
    "core::slice::index::slice_",
    "core::slice::copy_from_slice_impl::len_mismatch_fail",
    "core::str::slice_error_fail",
    "core::cell::panic_",
    "core::slice::sort::shared::smallsort::panic_on_ord_violation",
    "std::panicking::begin_panic",
    "alloc::alloc::handle_alloc_error",
    "alloc::raw_vec::",
];

/// Only behind another panic: while a frame is unwound, or at a border that unwinding may not cross.
const SECOND: [&str; 4] = [
    "core::panicking::panic_in_cleanup",
    "core::panicking::panic_cannot_unwind",
    "core::panicking::panic_nounwind",
    "core::panicking::panic_nounwind_nobacktrace",
];

/// Functions of the writer's thread and of the start that call a panic, with the reason why it is not met.
const KNOWN: &[(&str, &str, &str)] = &[
    ("Session::remark", "alloc::raw_vec::", "the private heap has a reserve, so that no allocation of a remark fails"),
    ("convert::Into", "alloc::raw_vec::", "a constant text is copied; the private heap has a reserve"),
    (
        "Writer>::flush_everything",
        "unwrap_failed",
        "the standard library's ordered map: its own tree is never empty there",
    ),
    ("Writer>::write_thread", "core::panicking::panic", "the standard library's ordered map: checks of its own tree"),
    ("page_looks::", "unwrap_failed", "the standard library's ordered map: its own tree is never empty there"),
    ("page_looks::", "core::panicking::panic", "the standard library's ordered map: checks of its own tree"),
    ("page_looks::", "slice_index_fail", "the standard library's split of a slice: at a place that it has found in it"),
    (
        "tracehound_attach_prepare",
        "unwrap_failed",
        "to_string of an option that is wrong: a Display that fails does not exist",
    ),
    ("control::attend", "unwrap_failed", "to_string of a number and a constant text"),
    (
        "meta_codec::",
        "unwrap_failed",
        "the encoder's own errors are turned into ours; a Display that fails does not exist",
    ),
    ("tracehound_format::control::", "unwrap_failed", "the same"),
    ("sync::once::", "panic_fmt", "only after a panic in what is done once"),
    ("control::answer", "unwrap_failed", "the same, inlined"),
    ("Writer::end", "unwrap_failed", "to_string of a number and a constant text"),
    ("control::serve", "unwrap_failed", "to_string of a number and a constant text"),
    ("Writer::round", "unwrap_failed", "to_string of a number and a constant text"),
    ("Writer::stop", "unwrap_failed", "to_string of a number and a constant text"),
    (
        "lz4_flex::",
        "core::panicking::panic",
        "assertions about the room for the result, which was asked of lz4_flex itself",
    ),
    ("lz4_flex::", "slice_index_fail", "the same"),
    ("block::compress_lz4_into", "unwrap_failed", "the same, inlined"),
    ("clock::init", "expect_failed", "a division by a constant"),
    ("statics::hook", "", "the detour crate, at the start, for an allocator inside the executable"),
    ("statics::prologue::check", "unwrap_failed", "the same"),
    ("Finder::symbol", "panic_fmt", "a chunk size of zero, which is a constant above zero"),
    ("crossbeam_queue::", "", "a capacity of zero, which is excluded"),
    (
        "tracehound_shared::sys::",
        "expect_failed",
        "a descriptor of -1, which is an error and told apart by rustix before",
    ),
    ("tracehound_shared::sys::socket::", "assert_failed", "lengths of buffers that rustix has made itself"),
    ("sys::files::names_in", "slice_index_fail", "the length of a name, which the kernel has written"),
    ("panic_on_ord_violation", "", "integers are ordered"),
    ("core::slice::sort::", "", "integers are ordered"),
];

/// Who calls whom, and by which names.
struct Calls {
    edges: BTreeMap<String, BTreeSet<String>>,
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).arg(library()).output().expect("the package binutils is installed");
    assert!(output.status.success(), "{program} {args:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

impl Calls {
    fn of_the_library() -> Self {
        // Calls go through the global offset table, whose slots the loader fills by these.
        let slots: HashMap<u64, u64> = run("readelf", &["-rW"])
            .lines()
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [slot, _, "R_X86_64_RELATIVE", target] = words[..] else { return None };
                Some((hex(slot)?, hex(target)?))
            })
            .collect();
        let names: HashMap<u64, String> = run("nm", &["-C"])
            .lines()
            .filter_map(|line| {
                let mut words = line.splitn(3, ' ');
                let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
                ["t", "T"].contains(&kind).then_some((hex(address)?, name.to_owned()))
            })
            .collect();
        assert!(slots.len() > 100 && names.len() > 1000, "{} slots, {} functions", slots.len(), names.len());
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut function = String::new();
        for line in run("objdump", &["-d", "--no-show-raw-insn", "-C"]).lines() {
            if let Some(name) = line.split_once(" <").and_then(|(_, rest)| rest.strip_suffix(">:")) {
                function = name.to_owned();
                continue;
            }
            let Some((_, instruction)) = line.split_once(":\t") else { continue };
            let operation = instruction.split_whitespace().next().unwrap_or_default();
            if !operation.starts_with('j') && !operation.starts_with("call") {
                continue;
            }
            let target = match instruction.split_once("# ") {
                Some((_, slot)) => slot.split_whitespace().next().and_then(hex).and_then(|at| slots.get(&at)),
                None => None,
            };
            let name = match target {
                Some(address) => names.get(address).cloned(),
                // A jump into the middle of a function stays in it.
                None => instruction
                    .split_once(" <")
                    .and_then(|(_, rest)| rest.strip_suffix('>'))
                    .filter(|name| name.rsplit_once("+0x").is_none_or(|(_, tail)| hex(tail).is_none()))
                    .map(str::to_owned),
            };
            if let Some(name) = name {
                edges.entry(function.clone()).or_default().insert(name);
            }
        }
        Self { edges }
    }

    fn from(&self, function: &str) -> impl Iterator<Item = &String> {
        self.edges.get(function).into_iter().flatten()
    }
}

fn is_panic(name: &str) -> bool {
    PANICS.iter().any(|panic| name.starts_with(panic)) && !SECOND.contains(&name)
}

fn is_allocation(name: &str) -> bool {
    name.starts_with("alloc::")
}

/// From the entry of a hooked function there is no way to a panic, but for the one start of the library.
#[test]
fn no_hook_reaches_a_panic() {
    let calls = Calls::of_the_library();
    let is_hook = |name: &str| {
        name.ends_with("_body") && (name.starts_with("tracehound::hooks::") || name.starts_with("tracehound::maps::"))
    };
    let hooks: Vec<&String> = calls.edges.keys().filter(|name| is_hook(name)).collect();
    assert!(hooks.len() >= 15, "{hooks:?}");
    let mut came_from: BTreeMap<&str, &str> = hooks.iter().map(|hook| (hook.as_str(), "")).collect();
    let mut queue: VecDeque<&str> = came_from.keys().copied().collect();
    while let Some(function) = queue.pop_front() {
        if function == "tracehound::start::ensure" || is_panic(function) || SECOND.contains(&function) {
            continue;
        }
        for next in calls.from(function) {
            if !came_from.contains_key(next.as_str()) {
                came_from.insert(next, function);
                queue.push_back(next);
            }
        }
    }
    assert!(came_from.len() > 50, "{came_from:?}");
    let mut bad = Vec::new();
    for (&function, &from) in &came_from {
        let known = KNOWN.iter().any(|(part, panic, _)| from.contains(part) && function.contains(panic));
        if is_panic(function) && !known {
            let mut way = vec![function];
            let mut at = from;
            while !at.is_empty() {
                way.push(at);
                at = came_from[at];
            }
            bad.push(way.join(" <- "));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Whatever the recorder's own functions do on any thread, panics are met in none but the known places. A failed allocation is
/// none: the recorder's heap has a reserve, and recording ends before that is used up.
#[test]
fn every_call_of_a_panic_has_a_reason() {
    let calls = Calls::of_the_library();
    let ours = ["tracehound", "<tracehound", "crossbeam_queue", "<crossbeam_queue", "lz4_flex", "<lz4_flex"];
    let mut bad = Vec::new();
    let mut seen = 0;
    for (function, targets) in calls.edges.iter().filter(|(name, _)| ours.iter().any(|own| name.starts_with(own))) {
        seen += 1;
        for target in targets.iter().filter(|target| is_panic(target) && !is_allocation(target)) {
            if !KNOWN.iter().any(|(part, panic, _)| function.contains(part) && target.contains(panic)) {
                bad.push(format!("{function} calls {target}"));
            }
        }
    }
    assert!(seen > 200, "{seen} functions");
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}
