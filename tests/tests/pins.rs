//! Pins: what would be given back if blocks were elsewhere, against programs that move them and against recounts of the dump.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tracehound_tests::{compile, json, number, root, stated_bytes, trace};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

fn include() -> String {
    format!("-I{}", root().join("preload/include").display())
}

fn pin_of<'a>(pins: &'a Value, function: &str) -> &'a Value {
    let rows = pins["rows"].as_array().expect("rows");
    let named = |row: &&Value| row["function"].as_str().is_some_and(|name| name.starts_with(function));
    rows.iter().find(named).unwrap_or_else(|| panic!("no row {function}: {pins:#}"))
}

#[test]
fn pins_foretell_what_moving_blocks_elsewhere_gives_back() {
    let program = compile("block_cache.cpp", &["-O1", "-g", "-pthread", &include()]);
    let arguments = ["1", "120000", "48"];
    let resident = |variables: &[(&str, &str)]| {
        let output = tracehound_tests::plain(&program, &arguments, variables);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    let truth = resident(&[("TRIM", "1")]) - resident(&[("TRIM", "1"), ("POOL", "1")]);
    let traced = trace(&program, &arguments, &[]);
    let pins = json(&["pins", "--at", "dropped"], &traced.recording());
    assert_eq!((&pins["schema"], &pins["page_bytes"]), (&"heaptrace.pins/1".into(), &4096.into()));
    let index = pin_of(&pins, "index_entry");
    let predicted = number(index, "/given_back_bytes");
    assert!(predicted.abs_diff(truth) * 100 <= truth * 15, "predicted {predicted}, true {truth}: {index}");
    // The function with most live bytes is not the one that holds most.
    let cache = pin_of(&pins, "read_block");
    assert!(number(cache, "/own_bytes") > 10 * number(index, "/own_bytes"), "{cache} {index}");
    assert!(number(cache, "/given_back_bytes") < predicted / 2, "{cache} {index}");
    assert_eq!(number(index, "/blocks"), 3000);
    assert!(number(index, "/born_first_ns") < number(index, "/born_last_ns"));
    assert!(!pins["pairs"].as_array().expect("pairs").is_empty(), "{pins:#}");
    // What is above everything holds nearly every page, and is not what is shown first.
    let worker = pin_of(&pins, "worker");
    assert!(number(worker, "/pages") * 100 >= number(&pins, "/pages/count") * 99, "{worker}");
    assert!(pins["rows"][0]["function"].as_str().is_some_and(|name| name.starts_with("index_entry")), "{pins:#}");
    for by in ["site", "age", "thread"] {
        let pins = json(&["pins", "--at", "dropped", "--by", by], &traced.recording());
        assert!(number(&pins, "/rows/0/pages") > 0, "{by}: {pins:#}");
    }
}

/// Every block of the dump that is not freed, by address: its size, and the names on its backtrace.
type LiveInDump = BTreeMap<u64, (u64, Vec<String>)>;

fn live_in_dump(file: &Path) -> LiveInDump {
    let mut live = LiveInDump::new();
    let address = |event: &Value, key: &str| {
        event[key].as_str().and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok())
    };
    for event in tracehound_tests::dump(file) {
        let kind = event["kind"].as_str().unwrap_or_default();
        if kind == "free" {
            live.remove(&address(&event, "address").expect("an address"));
        }
        if kind == "realloc" {
            live.remove(&address(&event, "old_address").expect("an address"));
        }
        if kind == "alloc" || kind == "realloc" {
            let block = (number(&event, "/size"), tracehound_tests::functions(&event["stack"]));
            live.insert(address(&event, "address").expect("an address"), block);
        }
    }
    live
}

/// The backtraces of the blocks in each unit of the address space, by glibc's rules.
fn units_of(live: &LiveInDump, unit: u64) -> BTreeMap<u64, Vec<&Vec<String>>> {
    let mut units: BTreeMap<u64, Vec<&Vec<String>>> = BTreeMap::new();
    for (&at, (size, stack)) in live {
        // Large blocks are mapped, and begin 16 bytes behind a page.
        let (start, end) = if *size >= 128 << 10 && at % PAGE == 16 {
            (at - 16, (at + size).next_multiple_of(PAGE))
        } else {
            (at - 8, at - 8 + (size + 8).next_multiple_of(16).max(32))
        };
        for number in start / unit..=(end - 1) / unit {
            units.entry(number).or_default().push(stack);
        }
    }
    units
}

/// Pages of the row of a function; 0: it has none.
fn pages_of(pins: &Value, function: &str) -> u64 {
    let rows = pins["rows"].as_array().expect("rows");
    let named = |row: &&Value| row["function"].as_str().is_some_and(|name| name.starts_with(function));
    rows.iter().find(named).map_or(0, |row| number(row, "/pages"))
}

#[test]
fn pins_of_huge_pages_are_those_of_a_recount() {
    let program = compile("block_cache.cpp", &["-O1", "-g", "-pthread", &include()]);
    let traced = trace(&program, &["2", "6000", "8"], &[("TRACEHOUND_PAGES", "off")]);
    let live = live_in_dump(&traced.recording());
    let units = units_of(&live, 2 * MIB);
    let pins = json(&["pins", "--unit", "2M"], &traced.recording());
    assert_eq!((&pins["unit"], number(&pins, "/page_bytes")), (&"2M".into(), 2 * MIB));
    assert_eq!(number(&pins, "/pages/count"), units.len() as u64);
    for function in ["index_entry", "read_block", "worker", "main"] {
        let has = |stack: &Vec<String>| stack.iter().any(|name| name.starts_with(function));
        let alone = units.values().filter(|stacks| stacks.iter().all(|stack| has(stack))).count() as u64;
        assert_eq!(pages_of(&pins, function), alone, "{function}");
    }
    assert!(pages_of(&pins, "worker") > 0, "{pins:#}");
    let graph = pinned_graph(&traced.recording(), &["--pin-unit", "2M"]);
    assert_eq!((&graph["pin_unit"], number(&graph, "/total")), (&"2M".into(), units.len() as u64 * 2 * MIB));
    // With a look only ranges that are wholly resident count; the rest of the pages is named.
    let traced = trace(&program, &["2", "6000", "48"], &[]);
    let [small, huge] =
        ["4k", "2M"].map(|unit| json(&["pins", "--at", "dropped", "--unit", unit], &traced.recording()));
    let in_units = number(&huge, "/pages/live_bytes");
    assert!(huge["look_ns"].is_u64() && in_units > 0 && huge["unit_basis"] == "modelled", "{huge:#}");
    assert_eq!(in_units + number(&huge, "/outside/live_bytes"), number(&small, "/pages/live_bytes"), "{huge:#}");
    let pages = number(&huge, "/outside/count") + number(&huge, "/pages/count") * 512;
    assert!(pages >= number(&small, "/pages/count") && number(&small, "/outside/count") == 0, "{huge:#}");
}

/// What freeing the blocks that are left gives back, with allocators that give back slabs, spans and pages of their own.
#[test]
fn pins_of_slabs_foretell_what_allocators_give_back() {
    let program = compile("slab_holders.c", &["-O1", "-g", &include(), "-ldl"]);
    let recorder = tracehound_tests::library();
    for (allocator, errors, known) in [
        ("", 2, "single pages"),
        ("libjemalloc.so.2", 2, "slabs"),
        ("libmimalloc.so.2", 3, "64 and 512 KiB"),
        ("libtcmalloc_minimal.so.4", 20, "spans"),
    ] {
        let preload = format!("{}:{allocator}", recorder.display());
        let traced = trace(&program, &[], &[("LD_PRELOAD", &preload), ("MIMALLOC_DECOMMIT_DELAY", "0")]);
        let truth = stated_bytes(&traced.stdout())["held"];
        let [pages, slabs] =
            ["4k", "slab"].map(|unit| json(&["pins", "--at", "held", "--unit", unit], &traced.recording()));
        assert!(slabs["look_ns"].is_u64() && slabs["unit"] == "slab", "{slabs:#}");
        let held = pages_of(&slabs, "keep") * PAGE;
        assert!(held.abs_diff(truth) * 100 <= truth * errors, "{allocator}: predicted {held}, true {truth}");
        let words = slabs["unit_words"].as_str().expect("words");
        assert!(words.contains(known), "{words}");
        let is_glibc = allocator.is_empty();
        assert_eq!(slabs["unit_basis"], if is_glibc { "exact" } else { "modelled" });
        // Single pages say too little of these allocators, and all of glibc.
        let by_pages = pages_of(&pages, "keep") * PAGE;
        if is_glibc {
            assert_eq!((by_pages, &pages["pairs"]), (held, &slabs["pairs"]));
        } else {
            assert!(by_pages * 100 < truth * 80, "{allocator}: {by_pages} by pages, true {truth}");
        }
        let graph = pinned_graph_at(&traced.recording(), "held", &["--pin-unit", "slab"]);
        assert_eq!(number(&graph, "/total"), number(&slabs, "/pages/bytes"), "{allocator}");
    }
}

#[test]
fn slabs_of_an_unknown_allocator_are_refused() {
    // What counts is that a module is called as such an allocator's.
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let library = folder.path().join("libsnmalloc.so");
    std::fs::copy(compile("late_library.c", &["-shared", "-fPIC"]), &library).expect("it can be copied");
    let preload = format!("{}:{}", tracehound_tests::library().display(), library.display());
    let traced = trace(compile("other_allocator.c", &["-O1"]), &[], &[("LD_PRELOAD", &preload)]);
    let ask = |arguments: &[&str]| {
        let file = traced.recording();
        Command::new(tracehound_tests::heaptrace()).args(arguments).arg(file).output().expect("heaptrace starts")
    };
    let refused = ask(&["pins", "--unit", "slab"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(2) && said.lines().count() == 1 && said.contains("`4k` counts pages"),
        "{said}"
    );
    assert!(ask(&["pins", "--unit", "2M"]).status.success());
}

#[test]
fn pins_are_those_of_a_recount() {
    let program = compile("block_cache.cpp", &["-O1", "-g", "-pthread", &include()]);
    let traced = trace(&program, &["2", "6000", "8"], &[("TRACEHOUND_PAGES", "off")]);
    let pins = json(&["pins"], &traced.recording());
    let live = live_in_dump(&traced.recording());
    let pages = units_of(&live, PAGE);
    assert_eq!(number(&pins, "/pages/count"), pages.len() as u64);
    for function in ["index_entry", "read_block", "write_buffer", "worker", "main"] {
        let has = |stack: &Vec<String>| stack.iter().any(|name| name.starts_with(function));
        let alone = pages.values().filter(|stacks| stacks.iter().all(|stack| has(stack))).count() as u64;
        assert_eq!(pages_of(&pins, function), alone, "{function}");
        // What only they hold is the whole of the flame graph that is focused on them.
        let focused = pinned_graph(&traced.recording(), &["--focus", &format!("^{function}(\\(|$)")]);
        assert_eq!(number(&focused, "/total"), alone * PAGE, "{function}");
    }
    // As a flame graph: each page at the last function that the backtraces of all its blocks have in common, from main on.
    let graph = pinned_graph(&traced.recording(), &[]);
    assert_eq!((&graph["pinned"], number(&graph, "/total")), (&true.into(), pages.len() as u64 * PAGE));
    let mut held: BTreeMap<Vec<&str>, u64> = BTreeMap::new();
    for stacks in pages.values() {
        let paths = stacks.iter().map(|stack| stack.iter().rev().map(String::as_str).collect::<Vec<&str>>());
        let common =
            paths.reduce(|one, two| one.into_iter().zip(two).take_while(|(a, b)| a == b).map(|(a, _)| a).collect());
        let common = common.expect("a block");
        for end in 0..=common.len() {
            *held.entry(common[..end].to_vec()).or_default() += PAGE;
        }
    }
    let rows = |name: &str| graph["rows"][name].as_array().expect("a column");
    let mut paths: Vec<Vec<&str>> = Vec::new();
    for at in 0..rows("value").len() {
        let parent = number(&rows("parent")[at], "") as usize;
        let mut path = if at == 0 { Vec::new() } else { paths[parent].clone() };
        if let Some(frame) = rows("frame")[at].as_u64() {
            let name = graph["frames"][frame as usize]["name"].as_str().expect("a name");
            // Code without a symbol: its place in the module.
            path.push(if name.starts_with("0x") { "?" } else { name });
        }
        if number(&rows("folded")[at], "") == 0 {
            assert_eq!(Some(&number(&rows("value")[at], "")), held.get(&path), "{path:?}");
        }
        paths.push(path);
    }
    assert!(paths.iter().any(|path| path.last().is_some_and(|name| name.starts_with("index_entry"))), "{graph:#}");
}

fn pinned_graph(file: &Path, more: &[&str]) -> Value {
    pinned_graph_at(file, "end", more)
}

fn pinned_graph_at(file: &Path, at: &str, more: &[&str]) -> Value {
    let output = Command::new(tracehound_tests::heaptrace())
        .args(["flamegraph", "--pinned", "--at", at, "--json", "-o", "-"])
        .args(more)
        .arg(file)
        .output()
        .expect("heaptrace starts");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}
