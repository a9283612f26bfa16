//! The heap map of a real program against a recount of `heaptrace dump`, and the filter by addresses that a cell stands for.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tracehound_tests::{compile, heaptrace, json, number, root, trace};

/// The live blocks up to a time: address and size.
fn live_before(events: &[Value], t_ns: u64) -> BTreeMap<u64, u64> {
    let address = |event: &Value, key: &str| {
        let text = event[key].as_str().unwrap_or_else(|| panic!("no {key}: {event}"));
        u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("an address")
    };
    let mut live = BTreeMap::new();
    for event in events.iter().take_while(|event| number(event, "/t_ns") < t_ns) {
        match event["kind"].as_str() {
            Some("alloc") => drop(live.insert(address(event, "address"), number(event, "/size"))),
            Some("free") => drop(live.remove(&address(event, "address"))),
            Some("realloc") => {
                live.remove(&address(event, "old_address"));
                live.insert(address(event, "address"), number(event, "/size"));
            }
            _ => {}
        }
    }
    live
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().expect("a list").iter().map(|number| number.as_u64().expect("a number")).collect()
}

fn dump(file: &Path) -> Vec<Value> {
    let output = Command::new(heaptrace()).args(["dump", "--no-symbols"]).arg(file).output().expect("it runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn the_map_is_a_recount_of_the_dump() {
    let include = format!("-I{}", root().join("preload/include").display());
    let traced = trace(compile("resident.c", &["-O1", "-pthread", &include]), &[], &[]);
    let file = &traced.recording();
    let events = dump(file);
    let map = json(&["map", "--rows", "40", "--columns", "9"], file);
    assert_eq!(map["schema"], "heaptrace.map/1");
    let (row_bytes, addresses, times) = (number(&map, "/row_bytes"), numbers(&map["addresses"]), numbers(&map["t_ns"]));
    assert!(!addresses.is_empty() && addresses.len() <= 40 && times.len() == 9, "{addresses:x?}");
    // The last moment is the end, which takes in the last event.
    for (column, &t) in times.iter().enumerate().take(8) {
        let live = live_before(&events, t);
        for (row, &address) in addresses.iter().enumerate() {
            let (end, inside) = (address + row_bytes, live.range(..address + row_bytes));
            let expected: u64 =
                inside.map(|(&start, &size)| (start + size).min(end).saturating_sub(start.max(address))).sum();
            let occupied = number(&map, &format!("/occupied/{row}/{column}"));
            assert_eq!(occupied, expected, "{address:#x} at {t}");
            assert_eq!(map["dominant"][row][column].is_null(), expected == 0, "every site is listed");
        }
        let shown: u64 = (0..addresses.len()).map(|row| number(&map, &format!("/occupied/{row}/{column}"))).sum();
        assert_eq!(shown, live.values().sum::<u64>(), "no block is outside of the rows");
    }
    // The recorder has looked at the pages; what is in memory fits into its row.
    assert_eq!(map["look_ns"].as_array().map(Vec::len), Some(9));
    let resident: Vec<u64> = (0..addresses.len()).flat_map(|row| numbers(&map["resident"][row])).collect();
    assert!(resident.iter().all(|&bytes| bytes <= row_bytes) && resident.iter().any(|&bytes| bytes > 0));

    // A cell's addresses filter the other answers: the blocks that reach into them, whole.
    let at = times[4];
    let live = live_before(&events, at + 1);
    for &address in addresses.iter().take(5) {
        let range = format!("{address:#x}..{:x}", address + row_bytes);
        let inside =
            live.iter().filter(|&(&start, &size)| start < address + row_bytes && start + size.max(1) > address);
        let top = json(&["top", "--at", &at.to_string(), "--address", &range], file);
        assert_eq!(number(&top, "/total"), inside.map(|(_, size)| size).sum::<u64>(), "{range}");
        let zoomed = json(&["map", "--address", &range, "--rows", "40", "--columns", "9"], file);
        let zoomed_rows = numbers(&zoomed["addresses"]);
        let least =
            zoomed_rows.iter().min().is_none_or(|&first| first >= address - address % number(&zoomed, "/row_bytes"));
        assert!(least && zoomed_rows.iter().all(|&first| first < address + row_bytes), "{zoomed_rows:x?}");
        assert!(number(&zoomed, "/row_bytes") <= row_bytes);
    }

    // The picture: a line for each row, letters with their names below.
    let output = Command::new(heaptrace()).args(["map", "-n", "12"]).arg(file).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && text.contains(" │"), "{text}");
    assert!(text.contains("ranges of") && text.contains("resident.c:"), "{text}");
    let refused = Command::new(heaptrace()).args(["map", "--address", "7f..7e"]).arg(file).output().expect("it runs");
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && error.contains("--address"), "{error}");
}

/// Two entries of a legend that read alike say nothing.
#[test]
fn sites_of_one_function_are_told_apart_by_their_callers() {
    let traced = trace(compile("two_ways.c", &["-O1"]), &[], &[]);
    let map = json(&["map", "--rows", "60", "--columns", "5"], &traced.recording());
    let sites = map["sites"].as_array().expect("sites").iter().filter(|site| site["function"] == "fill");
    let mut callers: Vec<&str> = sites.filter_map(|site| site["caller"]["function"].as_str()).collect();
    callers.sort_unstable();
    assert_eq!(callers, ["reads", "writes"], "{:#}", map["sites"]);
    let others = map["sites"].as_array().into_iter().flatten().filter(|site| site["function"] != "fill");
    assert!(others.clone().all(|site| site["caller"].is_null()), "{:#}", map["sites"]);
    let output = Command::new(heaptrace()).arg("map").arg(traced.recording()).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("fill  two_ways.c:5, by reads  two_ways.c:10"), "{text}");
}
