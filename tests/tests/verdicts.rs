//! Verdicts on real programs: what each does with its memory is known, and heaptrace has to see it. Prints the confusion
//! matrix (`make bench`, or `cargo test --test verdicts -- --nocapture`). Histories of many more kinds, in made-up time,
//! are in `server/query/tests/verdicts`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tracehound_tests::{Traced, compile, functions, number, root, trace};

/// What a program does, and which verdicts are right.
struct Label {
    program: &'static str,
    /// The allowed `kind`s; `none` if no site needs to be named.
    kinds: &'static [&'static str],
    /// The allowed `shape`s; empty: any.
    shapes: &'static [&'static str],
}

const fn label(program: &'static str, kinds: &'static [&'static str], shapes: &'static [&'static str]) -> Label {
    Label { program, kinds, shapes }
}

const CORPUS: [Label; 14] = [
    label("linear_leak", &["growing"], &["growing"]),
    label("slow_leak_in_noise", &["growing"], &["growing"]),
    label("per_request_leak", &["growing"], &["growing"]),
    label("leak_freed_at_exit", &["growing"], &["growing"]),
    label("lru_cache", &["bounded"], &["bounded"]),
    label("warm_up_then_flat", &["bounded"], &["bounded"]),
    label("sawtooth_queue", &["bounded", "none"], &[]),
    label("arena", &["bounded", "none"], &[]),
    label("thread_local_caches", &["bounded", "one_time"], &[]),
    label("phase_change", &["bounded", "unclear"], &["stepwise"]),
    label("grown_vector", &["growing", "bounded", "unclear"], &["stepwise"]),
    label("one_time", &["one_time"], &["one_time"]),
    label("constant_churn", &["bounded", "one_time"], &["constant"]),
    label("stopped_leak", &["bounded"], &["bounded"]),
];

/// Programs whose growth has stopped without a single free; of all others that must not be said. A table that is filled
/// once cannot be distinguished from a leak whose requests have stopped.
const NEVER_FREED: [&str; 2] = ["stopped_leak", "warm_up_then_flat"];

fn corpus() -> PathBuf {
    let include = format!("-I{}", root().join("preload/include").display());
    compile("verdicts/corpus.cpp", &["-O1", &include])
}

/// Runs a program; again if the machine was so busy that one of its turns was late, because then its history is another
/// one.
fn undisturbed(program: &Path, args: &[&str]) -> Traced {
    const LIMIT_MS: u64 = 40;
    let late = |traced: &Traced| {
        let said = String::from_utf8_lossy(&traced.output.stdout).into_owned();
        said.lines().last().and_then(|line| line.parse::<u64>().ok()).expect("how late it was")
    };
    let mut least = trace(program, args, &[]);
    for _ in 0..8 {
        if late(&least) < LIMIT_MS {
            break;
        }
        let traced = trace(program, args, &[]);
        if late(&traced) < late(&least) {
            least = traced;
        }
    }
    least
}

/// The verdict on the largest site that allocates in `subject`.
fn verdict_on(traced: &Traced) -> Option<Value> {
    assert!(traced.output.status.success(), "{}", traced.stderr());
    let leaks = traced.leaks();
    let lists = ["sites", "freed_at_exit"].map(|name| leaks[name].as_array().cloned().unwrap_or_default());
    let subject = |site: &&Value| functions(&site["stack"]).iter().any(|name| name.starts_with("subject"));
    let sites = lists.iter().flatten().filter(subject);
    sites.max_by_key(|site| site["bytes"].as_u64()).map(|site| site["verdict"].clone())
}

#[test]
fn the_corpus_is_judged_as_labelled() {
    const SEEDS: [&str; 1] = ["1"];
    let program = corpus();
    // They sleep most of the time, and are few at once so that a small machine keeps up.
    let mut judged: BTreeMap<(usize, &str), Option<Value>> = BTreeMap::new();
    for seed in SEEDS {
        for part in CORPUS.chunks(5) {
            let runs: Vec<_> = std::thread::scope(|scope| {
                let run = |label: &'static Label| undisturbed(&program, &[label.program, seed]);
                let threads: Vec<_> = part.iter().map(|label| scope.spawn(move || run(label))).collect();
                threads.into_iter().map(|thread| thread.join().expect("a run")).collect()
            });
            for (label, traced) in part.iter().zip(runs) {
                let at = CORPUS.iter().position(|known| known.program == label.program).expect("a label");
                judged.insert((at, seed), verdict_on(&traced));
            }
        }
    }

    const SHAPES: [&str; 7] = ["growing", "stepwise", "bounded", "constant", "one_time", "unclear", "none"];
    let text = |verdict: &Option<Value>, field: &str| -> String {
        verdict.as_ref().map_or("none".into(), |verdict| verdict[field].as_str().unwrap_or("?").to_owned())
    };
    println!("{:20} {}", "", SHAPES.map(|shape| format!("{shape:>9}")).join(" "));
    for (at, label) in CORPUS.iter().enumerate() {
        let counts = SHAPES.map(|shape| {
            let of = |seed: &&&str| text(&judged[&(at, **seed)], "shape") == shape;
            SEEDS.iter().filter(|seed| of(seed)).count()
        });
        let cells = counts.map(|count| if count == 0 { format!("{:>9}", "·") } else { format!("{count:>9}") });
        println!("{:20} {}", label.program, cells.join(" "));
    }
    println!();
    let mut wrong = Vec::new();
    for (at, label) in CORPUS.iter().enumerate() {
        for seed in SEEDS {
            let verdict = &judged[&(at, seed)];
            let (kind, shape) = (text(verdict, "kind"), text(verdict, "shape"));
            if seed == SEEDS[0] {
                println!("{:20} {kind}, {shape}: {}", label.program, text(verdict, "why"));
            }
            let right = label.kinds.contains(&kind.as_str())
                && (label.shapes.is_empty() || label.shapes.contains(&shape.as_str()));
            let never_freed = verdict.as_ref().is_some_and(|verdict| verdict["never_freed"] == true);
            if !right || never_freed != NEVER_FREED.contains(&label.program) {
                wrong.push(format!("{} (seed {seed}): {kind}, {shape}: {}", label.program, text(verdict, "why")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // Numbers in the words and beside them: 100 bytes a millisecond.
    let linear = judged[&(0, SEEDS[0])].as_ref().expect("a verdict");
    let rate = linear["bytes_per_second"].as_f64().expect("a rate");
    assert!((50_000.0..150_000.0).contains(&rate), "{linear}");
    assert!(linear["bytes_per_second_low"].as_f64() <= Some(rate) && linear["forecast"]["bytes"].is_u64(), "{linear}");
    assert!(linear["why"].as_str().expect("words").contains("with 95% confidence"), "{linear}");
    assert_eq!(judged[&(3, SEEDS[0])].as_ref().expect("a verdict")["freed_at_exit"], true);
    let phases = judged[&(9, SEEDS[0])].as_ref().expect("a verdict");
    assert!(phases["why"].as_str().expect("words").contains("“serve”"), "{phases}");
}

/// What libstdc++ keeps in reserve for exceptions is no leak, and is added up apart with the built-in suppressions.
#[test]
fn what_libraries_keep_by_design_is_suppressed() {
    let traced = trace(corpus(), &["one_time", "1"], &[]);
    let leaks = |options: &[&str]| tracehound_tests::json(&[&["leaks"], options].concat(), &traced.recording());
    let (all, rest) = (leaks(&[]), leaks(&["--builtin-suppressions"]));
    let is_pool = |site: &Value| number(site, "/bytes") == 72_704;
    assert!(all["sites"].as_array().expect("sites").iter().any(is_pool), "{all:#}");
    assert!(!rest["sites"].as_array().expect("sites").iter().any(is_pool), "{rest:#}");
    assert!(number(&rest, "/suppressed/bytes") >= 72_704, "{rest:#}");
    assert_eq!(number(&all, "/leaked/bytes"), number(&rest, "/leaked/bytes") + number(&rest, "/suppressed/bytes"));
}
