//! What resident memory is made of, against programs that know: row by row, and against what glibc gives back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tracehound_tests::{compile, json, number, root, trace};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

fn include() -> String {
    format!("-I{}", root().join("preload/include").display())
}

fn resident_program() -> PathBuf {
    compile("resident.c", &["-O1", "-pthread", &include()])
}

/// Lines of `name bytes`.
fn truth(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| line.split_once(' ').and_then(|(name, bytes)| Some((name.to_owned(), bytes.parse().ok()?)));
    text.lines().filter_map(line).collect()
}

fn row(ledger: &Value, key: &str) -> u64 {
    let rows = ledger["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("no row {key}: {ledger:#}"));
    number(row, "/bytes")
}

fn beside(ledger: &Value, key: &str) -> u64 {
    let rows = ledger["beside"].as_array().expect("rows");
    rows.iter().find(|row| row["key"] == key).map_or(0, |row| number(row, "/bytes"))
}

fn memory(file: &Path, at: &str) -> Value {
    let ledger = json(&["memory", "--at", at], file);
    assert_eq!(ledger["schema"], "heaptrace.memory/2");
    let rows = ledger["rows"].as_array().expect("rows");
    let sum: u64 = rows.iter().map(|row| number(row, "/bytes")).sum();
    assert_eq!(sum, number(&ledger, "/rss_bytes"), "the rows add up: {ledger:#}");
    assert_eq!(sum - row(&ledger, "unexplained"), number(&ledger, "/explained_bytes"));
    ledger
}

#[track_caller]
fn near(what: &str, got: u64, expected: u64, slack: u64) {
    let slack = slack.max(expected / 50);
    assert!(got.abs_diff(expected) <= slack, "{what}: {got} where {expected} is true");
}

#[test]
fn every_kind_of_memory_has_its_row() {
    let traced = trace(resident_program(), &[], &[]);
    let truth = truth(&traced.stdout());
    let ledger = memory(&traced.recording(), "truth");
    assert!(ledger["look_ns"].is_u64(), "{ledger:#}");
    near("mappings", row(&ledger, "mappings"), truth["mappings"], 2 * PAGE);
    near("files", row(&ledger, "files"), truth["shared"], 2 * PAGE);
    // Beside what the threads touched, the first pages of four stacks.
    near("stacks", row(&ledger, "stacks"), truth["stacks"] + 4 * 5 * PAGE, 4 * 5 * PAGE);
    let modules = row(&ledger, "modules");
    assert!((truth["bss"]..truth["bss"] + 4 * MIB).contains(&modules), "{modules}");
    near("live", row(&ledger, "live"), truth["live"], 2 * PAGE + 4096);
    near("free pages", row(&ledger, "free_pages") + row(&ledger, "free_top"), truth["free"], 2 * PAGE);
    near("untouched", beside(&ledger, "live_untouched"), truth["untouched"], 2 * PAGE);
    near("trim", number(&ledger, "/returnable_by_trim_bytes"), truth["trimmed"], 2 * PAGE);
    let rss = number(&ledger, "/rss_bytes");
    assert!(row(&ledger, "unexplained") * 100 <= rss, "{ledger:#}");
    assert!(row(&ledger, "other") * 20 <= rss, "{ledger:#}");
    assert!(row(&ledger, "recorder") > 0 && beside(&ledger, "page_tables") > 0);
    assert!(ledger["why"].as_str().is_some_and(|why| why.ends_with('.')), "{ledger:#}");
}

#[test]
fn tens_of_thousands_of_mappings() {
    let traced = trace(resident_program(), &["15000"], &[]);
    let truth = truth(&traced.stdout());
    let ledger = memory(&traced.recording(), "truth");
    near("mappings", row(&ledger, "mappings"), truth["mappings"], 2 * PAGE);
    near("live", row(&ledger, "live"), truth["live"], 2 * PAGE + 4096);
}

#[test]
fn looks_can_be_switched_off_and_come_by_a_period() {
    let traced = trace(resident_program(), &[], &[("TRACEHOUND_PAGES", "off")]);
    let ledger = memory(&traced.recording(), "end");
    assert!(ledger["look_ns"].is_null() && ledger["returnable_by_trim_bytes"].is_null(), "{ledger:#}");
    let traced = trace(resident_program(), &[], &[("TRACEHOUND_PAGES", "5")]);
    assert!(memory(&traced.recording(), "10ms")["look_ns"].is_u64());
    let refused = trace("/bin/true", &[], &[("TRACEHOUND_PAGES", "sometimes")]);
    assert!(refused.stderr().contains("TRACEHOUND_PAGES"), "{}", refused.stderr());
}

#[test]
fn what_trim_gives_back_with_eight_threads_is_foretold() {
    let program = compile("block_cache.cpp", &["-O1", "-g", "-pthread", &include()]);
    let traced = trace(program, &["8", "30000", "48"], &[("TRIM", "1")]);
    let words: Vec<String> = traced.stderr().split_whitespace().map(str::to_owned).collect();
    let trimmed: u64 = words.last().and_then(|word| word.parse().ok()).expect("the program says what it trimmed");
    let ledger = memory(&traced.recording(), "dropped");
    near("trim", number(&ledger, "/returnable_by_trim_bytes"), trimmed, 64 * PAGE);
    let rss = number(&ledger, "/rss_bytes");
    assert!(row(&ledger, "unexplained") * 100 <= rss && row(&ledger, "other") * 20 <= rss, "{ledger:#}");
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
    let foretold = number(index, "/given_back_bytes");
    assert!(foretold.abs_diff(truth) * 100 <= truth * 15, "foretold {foretold}, true {truth}: {index}");
    // The function with most live bytes is not the one that holds most.
    let cache = pin_of(&pins, "read_block");
    assert!(number(cache, "/own_bytes") > 10 * number(index, "/own_bytes"), "{cache} {index}");
    assert!(number(cache, "/given_back_bytes") < foretold / 2, "{cache} {index}");
    assert_eq!(number(index, "/blocks"), 3000);
    assert!(number(index, "/born_first_ns") < number(index, "/born_last_ns"));
    assert!(!pins["pairs"].as_array().expect("pairs").is_empty(), "{pins:#}");
    // What stands above everything holds nearly every page, and is not what is shown first.
    let worker = pin_of(&pins, "worker");
    assert!(number(worker, "/pages") * 100 >= number(&pins, "/pages/count") * 99, "{worker}");
    assert!(pins["rows"][0]["function"].as_str().is_some_and(|name| name.starts_with("index_entry")), "{pins:#}");
    for by in ["site", "age", "thread"] {
        let pins = json(&["pins", "--at", "dropped", "--by", by], &traced.recording());
        assert!(number(&pins, "/rows/0/pages") > 0, "{by}: {pins:#}");
    }
}

#[test]
fn pins_are_those_of_a_recount() {
    let program = compile("block_cache.cpp", &["-O1", "-g", "-pthread", &include()]);
    let traced = trace(&program, &["2", "6000", "8"], &[("TRACEHOUND_PAGES", "off")]);
    let pins = json(&["pins"], &traced.recording());
    // Every block of the dump that is not freed, by glibc's rules, with the names on its backtrace.
    let mut live: BTreeMap<u64, (u64, Vec<String>)> = BTreeMap::new();
    let address = |event: &Value, key: &str| {
        event[key].as_str().and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok())
    };
    for event in tracehound_tests::dump(&traced.recording()) {
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
    let mut pages: BTreeMap<u64, Vec<&Vec<String>>> = BTreeMap::new();
    for (&at, (size, stack)) in &live {
        // Large blocks are mapped, and begin 16 bytes behind a page.
        let (start, end) = if *size >= 128 << 10 && at % PAGE == 16 {
            (at - 16, (at + size).next_multiple_of(PAGE))
        } else {
            (at - 8, at - 8 + (size + 8).next_multiple_of(16).max(32))
        };
        for page in start / PAGE..=(end - 1) / PAGE {
            pages.entry(page).or_default().push(stack);
        }
    }
    assert_eq!(number(&pins, "/pages/count"), pages.len() as u64);
    for function in ["index_entry", "read_block", "write_buffer", "worker", "main"] {
        let has = |stack: &Vec<String>| stack.iter().any(|name| name.starts_with(function));
        let alone = pages.values().filter(|stacks| stacks.iter().all(|stack| has(stack))).count() as u64;
        let rows = pins["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["function"].as_str().is_some_and(|name| name.starts_with(function)));
        assert_eq!(row.map_or(0, |row| number(row, "/pages")), alone, "{function}: {row:?}");
    }
}
