//! Request contexts: each event carries the id that its thread had set, and sums, names and filters follow from that.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tracehound_tests::{ask, compile, dump, json, number, trace};

/// What the program says of a block: where it was allocated and freed, `None` for no free.
fn stated_blocks(stdout: &str) -> BTreeMap<u64, (u64, Option<u64>)> {
    let mut blocks = BTreeMap::new();
    for line in stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["block", size, allocated, freed] = words[..] else { panic!("{line}") };
        blocks.insert(size.parse().unwrap(), (allocated.parse().unwrap(), freed.parse().ok()));
    }
    blocks
}

fn context(event: &Value) -> u64 {
    assert_ne!(event["context"], 0, "none is left out");
    event["context"].as_u64().unwrap_or(0)
}

#[test]
fn events_carry_the_context_that_the_thread_had_set() {
    let program = compile("contexts.c", &["-pthread", "-O0"]);
    let run = trace(program, &[], &[("TRACEHOUND_CHILDREN", "1"), ("TRACEHOUND_BUFFER", "1M")]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let blocks = stated_blocks(&run.stdout());
    assert!(blocks.len() > 12_000, "{}", blocks.len());
    let recordings = run.recordings();
    let of_child = |recording: &Path| dump(recording).iter().any(|event| event["size"] == 4005);
    let (child, parent): (Vec<_>, Vec<_>) = recordings.iter().partition(|recording| of_child(recording));
    let [child, parent] = [child, parent].map(|mut some| some.pop().expect("there are two recordings"));

    let mut seen = BTreeMap::new();
    let mut by_context: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let events = dump(parent);
    for event in &events {
        let Some(size) = event["size"].as_u64() else { continue };
        match event["kind"].as_str() {
            Some("alloc" | "realloc") => {
                if blocks.contains_key(&size) {
                    let context = context(event);
                    seen.insert(size, (context, None));
                }
                let sum = by_context.entry(context(event)).or_default();
                *sum = (sum.0 + 1, sum.1 + size);
            }
            Some("free") => {
                if let Some((_, freed)) = seen.get_mut(&size) {
                    *freed = Some(context(event));
                }
            }
            _ => {}
        }
    }
    let wrong: Vec<_> = blocks.iter().filter(|(size, stated)| seen.get(size) != Some(stated)).take(5).collect();
    assert!(wrong.is_empty(), "{wrong:?} {:?}", wrong.iter().map(|(size, _)| seen.get(size)).collect::<Vec<_>>());
    assert!(!seen.contains_key(&4003), "recording was off");
    assert!(events.iter().all(|event| event["context"] != 999), "nothing happened in it");
    let inherited = dump(child).into_iter().find(|event| event["size"] == 4005).map(|event| context(&event));
    assert_eq!(inherited, Some(78));

    // The sums are those of the dump, and the names the latest.
    let document = json(&["contexts"], parent);
    assert_eq!(document["schema"], "heaptrace.contexts/1");
    let rows: BTreeMap<u64, &Value> =
        document["contexts"].as_array().unwrap().iter().map(|row| (row["id"].as_u64().unwrap(), row)).collect();
    by_context.remove(&0);
    let sums: BTreeMap<u64, (u64, u64)> = rows
        .iter()
        .map(|(&id, row)| (id, (number(row, "/allocations/count"), number(row, "/allocations/bytes"))))
        .collect();
    assert_eq!(sums, by_context);
    assert_eq!(rows[&101]["name"], "GET /items");
    assert_eq!(rows[&102]["name"], "POST /items");
    assert_eq!(rows[&78]["name"], Value::Null);
    assert_eq!((number(rows[&78], "/live/count"), number(rows[&78], "/live/bytes")), (1, 4004));
    assert_eq!(number(rows[&101], "/live/count"), 0);
    assert!(number(rows[&101], "/peak_bytes") > 0 && number(rows[&101], "/freed_elsewhere/count") > 0);

    // The filter gives the same sums.
    let count = |pattern: &str| {
        let document = json(&["top", "--metric", "allocated", "--count", "--context", pattern], parent);
        number(&document, "/total")
    };
    assert_eq!(count("101"), by_context[&101].0);
    assert_eq!(count("items"), by_context[&101].0 + by_context[&102].0);
    let leaks = json(&["leaks", "--context", "78"], parent);
    assert_eq!(number(&leaks, "/leaked/bytes"), 4004);
    let refused = ask(&["leaks", "--context", "12345"], parent);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("12345"));
}
