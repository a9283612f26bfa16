//! `heaptrace mcp`, asked by the official Python client about recordings with planted faults: the fact that decides is in
//! the first 2,000 tokens of the tool that the way through the tools (docs/skill/SKILL.md) names.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tracehound_tests::exporting::run;
use tracehound_tests::{Traced, clients, compile, heaptrace, root, trace};

/// Bytes of 2,000 tokens, counted low: names, figures and paths have three a token.
const PAGE: usize = 6000;

fn recorded(fault: &str) -> Traced {
    let traced = trace(compile("planted.c", &["-O1", "-g"]), &[fault], &[]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    traced
}

/// What the client says of these questions.
fn client(paths: &[&Path], questions: &[Value]) -> Value {
    let questions: Vec<String> = questions.iter().map(Value::to_string).collect();
    let script = root().join("tests/clients/ask_mcp.py");
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&script];
    let heaptrace = heaptrace();
    args.push(&heaptrace);
    paths.iter().for_each(|path| args.push(path));
    args.push(&"--");
    questions.iter().for_each(|question| args.push(question));
    let said = run(clients().join("python/bin/python"), &args);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn ask(paths: &[&Path], questions: &[Value]) -> Vec<String> {
    let said = client(paths, questions);
    let answers = said["answers"].as_array().expect("answers");
    let text = |answer: &Value| {
        assert_eq!(answer["error"], false, "{answer}");
        let text = answer["text"].as_str().expect("a text").to_owned();
        assert!(text.len() <= PAGE, "{} bytes: {text}", text.len());
        text
    };
    answers.iter().map(text).collect()
}

fn has(text: &str, words: &[&str]) {
    assert!(text.lines().any(|line| words.iter().all(|word| line.contains(word))), "no line with {words:?}:\n{text}");
}

#[test]
fn a_client_finds_eight_tools_and_every_recording() {
    let (one, other) = (recorded("none"), recorded("leak"));
    let folder = one.recording().parent().expect("a folder").to_path_buf();
    let said = client(&[&folder, &other.recording()], &[json!(["recordings", {}])]);
    assert_eq!(said["server"], "heaptrace");
    assert_eq!(said["tools"], json!(["recordings", "summary", "leaks", "top", "tree", "memory", "compare", "sql"]));
    assert!(said["version"].as_str().is_some_and(|version| version >= "2025-06-18"), "{said}");
    let text = said["answers"][0]["text"].as_str().expect("a text");
    assert!(text.starts_with("2 recordings\n"), "{text}");
    has(text, &["planted", "leak;", "exit", "peak"]);
}

#[test]
fn planted_faults_are_on_the_first_page() {
    let leak = recorded("leak");
    let answers = ask(&[&leak.recording()], &[json!(["summary", {}]), json!(["leaks", {}])]);
    has(&answers[0], &["growing", "session_open"]);
    has(&answers[1], &["1 leaking site grows"]);
    // It comes before the larger table that was made once.
    let (grows, once) = (answers[1].find("session_open"), answers[1].find("startup_tables"));
    assert!(grows.is_some() && grows < once, "{}", answers[1]);

    let cache = recorded("cache");
    let answers = ask(&[&cache.recording()], &[json!(["leaks", {}])]);
    has(&answers[0], &["growing", "freed at exit", "cache_insert"]);

    let peak = recorded("peak");
    let questions = [
        json!(["summary", {}]),
        json!(["tree", {"metric": "peak"}]),
        json!(["top", {"metric": "peak", "by": "program"}]),
    ];
    for text in ask(&[&peak.recording()], &questions) {
        has(&text, &["24", "MiB", "build_report"]);
    }

    let temporary = recorded("temporary");
    let answers = ask(
        &[&temporary.recording()],
        &[json!(["summary", {}]), json!(["top", {"metric": "temporary", "unit": "count"}])],
    );
    answers.iter().for_each(|text| has(text, &["format_line"]));

    let pins = recorded("pins");
    let answers = ask(&[&pins.recording()], &[json!(["memory", {"pins": "function"}])]);
    has(&answers[0], &["index_entry"]);
    has(&answers[0], &["holes in pages"]);

    let compared = [&*leak.recording(), &*pins.recording()].map(Path::to_path_buf);
    let names: Vec<String> = compared.iter().map(|path| path.display().to_string()).collect();
    let question = json!(["compare", {"before": [names[1]], "after": [names[0]]}]);
    let answers = ask(&[&compared[0], &compared[1]], &[question]);
    has(&answers[0], &["+", "session_open"]);

    let question = json!(["sql", {"query": "SELECT count(*) AS n FROM allocations WHERE size = 1200"}]);
    let columns = json!(["sql", {}]);
    let answers = ask(&[&leak.recording()], &[columns, question]);
    has(&answers[0], &["recordings"]);
}

#[test]
fn five_more_planted_faults_are_on_the_first_page() {
    let stopped = recorded("stopped");
    let answers = ask(&[&stopped.recording()], &[json!(["leaks", {}])]);
    has(&answers[0], &["No leaking site grows"]);
    has(&answers[0], &["bounded", "none of", "was ever freed", "growth stopped"]);

    let thread = recorded("thread");
    let answers = ask(&[&thread.recording()], &[json!(["summary", {}]), json!(["leaks", {}])]);
    has(&answers[0], &["growing", "log_line"]);
    has(&answers[1], &["growing", "of 3,200 blocks 2,400 were freed"]);

    let rows = recorded("rows");
    let answers = ask(&[&rows.recording()], &[json!(["top", {"metric": "allocated"}])]);
    let first = answers[0].lines().find(|line| line.contains("append_row")).expect("a row");
    assert!(first.contains("98.4%"), "{}", answers[0]);

    let burst = recorded("burst");
    let name = burst.recording().display().to_string();
    let question = json!(["compare", {"before": [name], "from": "100ms", "to": "peak"}]);
    let answers = ask(&[&burst.recording()], &[question]);
    has(&answers[0], &["+1.14 MiB", "+40", "import_batch"]);

    let untouched = recorded("untouched");
    let answers = ask(&[&untouched.recording()], &[json!(["summary", {}]), json!(["memory", {}])]);
    has(&answers[0], &["48.0 MiB", "reserve_arena"]);
    has(&answers[1], &["48.6 MiB of live blocks never touched"]);
}

/// Every filter of the command line, with the same result.
#[test]
fn filters_are_those_of_the_command_line() {
    let leak = recorded("leak");
    let path = leak.recording();
    let filters = [
        ("hide", "session_open"),
        ("show", "session_open"),
        ("show_from", "session_open"),
        ("transform", "drop-function:session_open"),
        ("freed_by", "main"),
        ("min_lifetime", "1ms"),
        ("max_lifetime", "1ms"),
        ("address", "0x0..0xffffffff"),
        ("module", "nosuch"),
    ];
    let question = |(name, value): &(&str, &str)| json!(["top", {"metric": "allocated", *name: value}]);
    let answers = ask(&[&path], &filters.iter().map(question).collect::<Vec<_>>());
    for ((name, value), answer) in filters.iter().zip(answers) {
        let option = format!("--{}", name.replace('_', "-"));
        let output = tracehound_tests::ask(&["top", "--metric", "allocated", &option, value], &path);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let first = text.lines().next().expect("a line");
        assert!(answer.lines().any(|line| line == first), "{name}: no line {first:?}:\n{answer}");
    }
    let name = path.display().to_string();
    let alike = json!(["compare", {"before": [name], "focus": "session_open"}]);
    let nothing = json!(["compare", {"before": [name], "ignore": "."}]);
    let answers = ask(&[&path], &[alike, nothing]);
    has(&answers[0], &["+", "session_open"]);
    assert!(!answers[1].contains("session_open"), "{}", answers[1]);
}

#[test]
fn a_page_says_how_to_go_on_and_what_is_not_there_is_an_answer() {
    let leak = recorded("leak");
    let path: PathBuf = leak.recording();
    let questions = [
        json!(["sql", {"query": "SELECT row, size, born_ns FROM allocations"}]),
        json!(["sql", {"query": "SELECT row, size, born_ns FROM allocations", "offset": 100, "budget": 400}]),
        json!(["leaks", {"recording": "other.dat"}]),
        json!(["leaks", {"focus": "("}]),
        json!(["sql", {"query": "DELETE FROM recordings"}]),
        json!(["sql", {"query": "ATTACH '/etc/passwd' AS x"}]),
        json!(["leaks", {"path": "/etc/passwd"}]),
        json!(["memory", {"pins": true}]),
    ];
    let said = client(&[&path], &questions);
    let answer = |at: usize| {
        let answer = &said["answers"][at];
        (answer["error"] == true, answer["text"].as_str().expect("a text"))
    };
    let (_, first) = answer(0);
    assert!(first.len() <= PAGE && first.contains("more lines: ask again with \"offset\": "), "{first}");
    let (_, second) = answer(1);
    assert!(second.len() <= 1200 && second.contains("\"offset\": 1"), "{second}");
    for at in 2..questions.len() {
        assert!(answer(at).0, "{}", answer(at).1);
    }
    assert!(answer(2).1.contains("there is no recording \"other.dat\"; there are: memory-"), "{}", answer(2).1);
    assert!(answer(4).1.contains("only SELECT"), "{}", answer(4).1);
    assert!(answer(7).1.contains("\"pins\" is a text"), "{}", answer(7).1);
}
