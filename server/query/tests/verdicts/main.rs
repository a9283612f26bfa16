//! Verdicts on a labelled corpus of histories: what each does with its memory is known, and heaptrace has to see it.
//! Prints the confusion matrix (`make bench`, or `cargo test -p tracehound-query --test verdicts -- --nocapture`).

mod corpus;
mod heap;

use std::collections::BTreeMap;
use std::sync::Arc;

use corpus::{CORPUS, Label};
use heap::{Heap, SUBJECT};
use tracehound_api::leaks::{LeakSite, Verdict};
use tracehound_index::program::CodeKind;
use tracehound_index::symbols::{FileId, FunctionFacts, FunctionId, LocationId, RecordingSymbols, SymbolFrame};
use tracehound_index::{Cancel, Cancelled, Trace};
use tracehound_ingest::{IndexPlace, OpenOptions, Recording};
use tracehound_query::leaks;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;

/// Functions are called by their addresses.
struct Addresses;

impl RecordingSymbols for Addresses {
    fn identity(&self) -> u64 {
        1
    }

    fn resolve(&self, _: &Trace, _: &[LocationId], _: &Cancel) -> Result<(), Cancelled> {
        Ok(())
    }

    fn frames(&self, trace: &Trace, location: LocationId, out: &mut Vec<SymbolFrame>) {
        let function = trace.location(location).pc as FunctionId;
        out.push(SymbolFrame { function, file: None, line: None, inlined: false });
    }

    fn function(&self, id: FunctionId) -> FunctionFacts {
        let name: Arc<str> = format!("f{id:x}").into();
        FunctionFacts {
            name: Some(Arc::clone(&name)),
            fallback: name,
            module: None,
            file: None,
            line: None,
            kind: CodeKind::Program,
            language: None,
        }
    }

    fn file(&self, _: FileId) -> Arc<str> {
        "".into()
    }
}

/// The verdict on what `subject` allocated, if there is one.
fn judged(label: &Label, seed: u64) -> Option<Verdict> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.dat");
    let mut heap = Heap::new(seed);
    (label.run)(&mut heap);
    heap.write(&path);
    let options = OpenOptions { index: IndexPlace::Auto, ..OpenOptions::default() };
    let trace = Recording::open(&path, options).unwrap().trace();
    let answer = leaks::run(&trace, &Addresses, &leaks::LeaksParams::default(), &Cancel::new()).unwrap();
    let name = format!("f{SUBJECT:x}");
    let is_subject = |site: &LeakSite| site.stack.first().is_some_and(|frame| frame.function.as_ref() == Some(&name));
    answer.sites.into_iter().chain(answer.freed_at_exit).find(is_subject).map(|site| site.verdict)
}

fn text<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap_or("?").to_owned()
}

#[test]
fn the_corpus_is_judged_as_labelled() {
    const KINDS: [&str; 5] = ["growing", "bounded", "one_time", "unclear", "none"];
    println!("{:24} {}", "", KINDS.map(|kind| format!("{kind:>9}")).join(" "));
    let (mut wrong, mut words) = (Vec::new(), Vec::new());
    for label in &CORPUS {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for seed in SEEDS {
            let verdict = judged(label, seed);
            let kind = verdict.as_ref().map_or_else(|| "none".to_owned(), |verdict| text(&verdict.kind));
            let why = verdict.as_ref().map_or("", |verdict| verdict.why.as_str());
            let shape = verdict.as_ref().map_or_else(String::new, |verdict| text(&verdict.shape));
            if !label.kinds.contains(&kind.as_str()) {
                wrong.push(format!("{} (seed {seed}): {kind}, {shape}: {why}", label.name));
            }
            if seed == *SEEDS.start() {
                words.push(format!("{:24} {kind}, {shape}: {why}", label.name));
            }
            *counts.entry(kind).or_default() += 1;
        }
        let cells = KINDS.map(|kind| counts.get(kind).map_or("·".to_owned(), u64::to_string));
        println!("{:24} {}", label.name, cells.map(|cell| format!("{cell:>9}")).join(" "));
    }
    println!("\n{}\n", words.join("\n"));
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), CORPUS.len() * SEEDS.count(), wrong.join("\n"));
}

#[test]
fn rates_are_those_that_were_made() {
    // 100 bytes in each of turns of half a second, on average.
    let verdict = judged(&CORPUS[0], 1).unwrap();
    assert!((150.0..250.0).contains(&verdict.bytes_per_second), "{verdict:?}");
    let (low, high) = (verdict.bytes_per_second_low.unwrap(), verdict.bytes_per_second_high.unwrap());
    assert!(low <= verdict.bytes_per_second && verdict.bytes_per_second <= high, "{verdict:?}");
    assert!(verdict.why.contains("with 95% confidence") && verdict.forecast.is_some(), "{verdict:?}");
    let beside = CORPUS.iter().find(|label| label.name == "leak_below_a_big_cache").unwrap();
    let verdict = judged(beside, 1).unwrap();
    assert!((300.0..800.0).contains(&verdict.bytes_per_second), "{verdict:?}");
}
