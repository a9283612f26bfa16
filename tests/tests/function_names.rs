//! Who allocated: every way of asking names the same function, in the file that it is in. Programs allocate a size of
//! its own at each place, so that the size says which function it was.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tracehound_tests::http_client::{Server, ask, json};
use tracehound_tests::{Traced, root, trace};

/// What a place is called: its function, the file of that function, and whether a symbol table has it.
type Expected = (u64, &'static str, &'static str, bool);

const C: &[Expected] = &[
    (1 << 20, "init", "one.c", true),
    (2 << 20, "init", "two.c", true),
    (10007, "only_here", "one.c", true),
    (10009, "inlined_here", "one.c", false),
    (10037, "f", "one.c", true),
    (10039, "v", "one.c", true),
    (10061, "d", "one.c", true),
    (10067, "s", "one.c", true),
    (10069, "h", "one.c", true),
    (10079, "w", "one.c", true),
    (10091, "a", "one.c", true),
    (10093, "b", "one.c", true),
    (10099, "St", "one.c", true),
    (10103, "PKc", "one.c", true),
    (10111, "i", "one.c", true),
    (10133, "St_in", "one.c", false),
    (10139, "my_zalloc", "one.c", true),
    // In two files, and one function all the same: it is declared in one place.
    (10141, "in_header", "names.h", true),
];

const CPP: &[Expected] = &[
    (20011, "app::plain(int)", "names.cpp", true),
    (20021, "app::(anonymous namespace)::hidden(int)", "names.cpp", true),
    (20023, "app::(anonymous namespace)::Anonymous::put(long)", "names.cpp", false),
    (20029, "app::(anonymous namespace)::Anonymous::out(char const*) const", "names.cpp", true),
    (20047, "app::helper(unsigned long, void (*)(int))", "names.cpp", false),
    (20051, "app::Pool<int>::take(int)", "names.cpp", false),
    (20063, "app::Pool<long>::give(long)", "names.cpp", true),
    (20071, "void app::generic<short>(short)", "names.cpp", true),
    (20089, "app::enclosing(int)::Local::go(int)", "names.cpp", true),
    (20101, "app::enclosing(int)::Local::in(int)", "names.cpp", false),
    (20107, "app::enclosing(int)::{lambda(int)#1}::operator()(int) const", "names.cpp", true),
    (20113, "stays(int)", "names.cpp", true),
    (20117, "рекурсия(int)", "names.cpp", true),
    (20123, "Größe::ünïcödé(Größe const&)", "names.cpp", true),
    (20147, "main::{lambda(int)#?}::operator()(int) const", "names.cpp", true),
    (20149, "main::{lambda(int)#?}::operator()(int) const", "names.cpp", true),
    (20161, "main::{lambda(int)#?}::operator()(int) const", "names.cpp", false),
    (20173, "main::{lambda(int)#?}::operator()(int) const", "names.cpp", false),
    (20129, "main::{lambda()#?}::operator()() const", "names.cpp", false),
    (20143, "main::{lambda()#?}::operator()() const", "names.cpp", false),
    (20177, "main::{lambda()#?}::operator()() const", "names.cpp", false),
];

/// Compiles sources of `tests/programs/names` in a folder of their own.
fn build(folder: &Path, compiler: &str, sources: &[&str], flags: &[&str]) -> PathBuf {
    let from = root().join("tests/programs/names");
    let mut command = Command::new(compiler);
    command.current_dir(folder).args(sources.iter().map(|source| from.join(source)));
    let output = command.args(["-o", "prog", "-pthread"]).args(flags).output().expect("a compiler is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder.join("prog")
}

fn record(program: &Path) -> Traced {
    let traced = trace(program, &[], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    traced
}

/// A function and the last part of its file's path.
type Named = (String, Option<String>);

fn named(function: &Value, file: &Value) -> Named {
    let file = file.as_str().map(|file| file.rsplit('/').next().unwrap_or(file).to_owned());
    (function.as_str().unwrap_or("-").to_owned(), file)
}

/// Answers of one way of asking, by the size of the blocks.
type Answers = BTreeMap<u64, Named>;

/// Numbers of lines of the sources: a line that a file does not have is of another file.
fn check_line(file: &Value, line: &Value, way: &str) {
    let Some(path) = file.as_str().filter(|path| path.contains("/tests/programs/names/")) else { return };
    let lines = std::fs::read_to_string(path).expect("a source of ours").lines().count() as u64;
    let line = line.as_u64().unwrap_or(1);
    assert!(line <= lines, "{way}: {path} has {lines} lines, and none of the number {line}");
}

fn of_frame(frame: &Value, way: &str) -> Named {
    check_line(&frame["file"], &frame["line"], way);
    named(&frame["function"], &frame["file"])
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

fn by_dump(folder: &Path) -> Answers {
    let output = ask(folder, &["dump", "r.dat"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    let allocated = events.filter(|event| event["kind"] == "alloc");
    let answer = |event: Value| Some((event["size"].as_u64()?, of_frame(event["stack"].get(0)?, "dump")));
    allocated.filter_map(answer).collect()
}

fn by_leaks(document: &Value, way: &str) -> Answers {
    let mut answers = Answers::new();
    for site in list(&document["sites"]) {
        let each = site["bytes"].as_u64().unwrap_or(0) / site["count"].as_u64().unwrap_or(1).max(1);
        answers.insert(each, of_frame(&site["stack"][0], way));
    }
    answers
}

fn by_json_export(folder: &Path) -> Answers {
    let document = json(folder, &["export", "--format", "json", "r.dat", "-o", "-"]);
    let mut answers = Answers::new();
    for block in list(&document["allocations"]) {
        let stack = &document["stacks"][block[6].as_u64().expect("a stack") as usize];
        if let Some(frame) = stack[0].as_u64() {
            answers.insert(block[1].as_u64().expect("a size"), of_frame(&document["frames"][frame as usize], "json"));
        }
    }
    answers
}

/// Rows of a table of functions: bytes of their own by name and place.
fn by_functions(document: &Value, way: &str) -> Answers {
    let rows = list(&document["rows"]).iter();
    rows.map(|row| {
        check_line(&row["file"], &row["line"], way);
        (row["flat"].as_u64().unwrap_or(0), named(&row["name"], &row["file"]))
    })
    .collect()
}

fn by_flamegraph(document: &Value) -> Answers {
    let (rows, frames) = (&document["rows"], &document["frames"]);
    let mut answers = Answers::new();
    for (frame, own) in list(&rows["frame"]).iter().zip(list(&rows["own"])) {
        if let (Some(frame), Some(own @ 1..)) = (frame.as_u64(), own.as_u64()) {
            let frame = &frames[frame as usize];
            check_line(&frame["file"], &frame["line"], "flame graph");
            answers.insert(own, named(&frame["name"], &frame["file"]));
        }
    }
    answers
}

fn by_folded(folder: &Path) -> BTreeMap<u64, String> {
    let output = ask(folder, &["export", "--format", "folded", "r.dat", "-o", "-"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let line = |line: &str| {
        let (stack, value) = line.rsplit_once(' ')?;
        Some((value.parse().ok()?, stack.rsplit(';').next()?.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

fn by_speedscope(folder: &Path) -> Answers {
    let document = json(folder, &["export", "--format", "speedscope", "r.dat", "-o", "-"]);
    let frames = &document["shared"]["frames"];
    let profile = list(&document["profiles"]).iter().find(|profile| profile["name"] == "leaked").expect("a profile");
    let mut answers = Answers::new();
    for (sample, weight) in list(&profile["samples"]).iter().zip(list(&profile["weights"])) {
        let Some(frame) = list(sample).last().and_then(Value::as_u64) else { continue };
        let frame = &frames[frame as usize];
        check_line(&frame["file"], &frame["line"], "speedscope");
        answers.insert(weight.as_u64().expect("bytes"), named(&frame["name"], &frame["file"]));
    }
    answers
}

/// `name (file:line)` without the place.
fn by_dhat(folder: &Path) -> Answers {
    let document = json(folder, &["export", "--format", "dhat", "r.dat", "-o", "-"]);
    let mut answers = Answers::new();
    for point in list(&document["pps"]) {
        let text = document["ftbl"][point["fs"][0].as_u64().expect("a frame") as usize].as_str().expect("text");
        let (name, place) = text.rsplit_once(" (").unwrap_or((text, ")"));
        let file = place.trim_end_matches(')').rsplit_once(':').map_or("", |(file, _)| file);
        let each = point["tb"].as_u64().expect("bytes") / point["tbk"].as_u64().expect("blocks");
        answers.insert(each, named(&name.into(), &file.into()));
    }
    answers
}

/// Numbers and bytes of a message of protocol buffers.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().expect("a number ends");
            *bytes = rest;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return value;
            }
        }
        value
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        match tag & 7 {
            0 => fields.push((tag >> 3, varint(&mut bytes), &[][..])),
            2 => {
                let len = varint(&mut bytes) as usize;
                fields.push((tag >> 3, 0, &bytes[..len]));
                bytes = &bytes[len..];
            }
            other => panic!("wire type {other}"),
        }
    }
    fields
}

fn packed(bytes: &[u8]) -> Vec<u64> {
    // Each number as a field of its own: with a tag in front.
    let mut numbers = Vec::new();
    let (mut value, mut shift) = (0, 0);
    for &byte in bytes {
        value |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            numbers.push(value);
            (value, shift) = (0, 0);
        }
    }
    numbers
}

/// Blocks that were allocated, by size; pprof merges functions by name, file and first line.
fn by_pprof(folder: &Path) -> Answers {
    let output = ask(folder, &["export", "--format", "pprof", "r.dat", "-o", "r.pb"]);
    assert!(output.status.success(), "{output:?}");
    let profile = Command::new("gzip").args(["-dc", "r.pb"]).current_dir(folder).output().expect("gzip is installed");
    let profile = fields(&profile.stdout);
    let of = |kind: u64| profile.iter().filter(move |field| field.0 == kind).map(|field| field.2);
    let strings: Vec<String> = of(6).map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    let number = |message: &[u8], kind: u64| fields(message).iter().find(|f| f.0 == kind).map_or(0, |f| f.1);
    let text = |message: &[u8], kind: u64| strings[number(message, kind) as usize].clone();
    let types: Vec<String> = of(1).map(|kind| text(kind, 1)).collect();
    let bytes = types.iter().position(|kind| kind == "alloc_space").unwrap_or_else(|| panic!("{types:?}"));
    let functions: HashMap<u64, Named> = of(5)
        .map(|message| {
            let (name, file) = (Value::from(text(message, 2)), Value::from(text(message, 4)));
            check_line(&file, &Value::from(number(message, 5)), "pprof");
            (number(message, 1), named(&name, &file))
        })
        .collect();
    let locations: HashMap<u64, Vec<(u64, u64)>> = of(4)
        .map(|message| {
            let lines = fields(message).into_iter().filter(|field| field.0 == 4);
            (number(message, 1), lines.map(|line| (number(line.2, 1), number(line.2, 2))).collect())
        })
        .collect();
    let mut answers = Answers::new();
    for sample in of(2) {
        let all = fields(sample);
        let list = |kind: u64| all.iter().filter(|f| f.0 == kind).flat_map(|f| packed(f.2)).collect::<Vec<u64>>();
        if let Some(&(function, line)) = list(1).first().and_then(|location| locations[location].first()) {
            let answer = functions[&function].clone();
            assert!(line > 0 || answer.1.as_deref() == Some(""), "a line is of its function's file: {answer:?}");
            answers.insert(list(2)[bytes], answer);
        }
    }
    answers
}

/// Names of functions in a symbol table, as binutils read them.
fn symbol_names(program: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").arg("-C").arg(program).output().expect("binutils are installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mangled = Command::new("nm").arg(program).output().expect("binutils are installed");
    let mangled = String::from_utf8_lossy(&mangled.stdout).into_owned();
    // Of what binutils cannot read, the names that are not ASCII, the length alone is compared.
    assert!(!mangled.is_empty());
    text.lines().filter_map(|line| line.splitn(3, ' ').nth(2)).map(str::to_owned).collect()
}

/// Compares one way of asking with what is expected; lambdas may have any number.
fn compare(way: &str, answers: &Answers, expected: &[Expected]) {
    for &(size, function, file, _) in expected {
        let Some((found, found_file)) = answers.get(&size) else {
            panic!("{way}: nothing of {size} bytes: {answers:?}")
        };
        let same = match function.split_once('?') {
            Some((front, back)) => found.starts_with(front) && found.ends_with(back),
            None => found == function,
        };
        assert!(same, "{way}: {size} bytes are of {found}, expected {function}");
        assert_eq!(found_file.as_deref(), Some(file), "{way}: {found}");
    }
}

/// Asks everybody, and compares all answers with what is expected and with one another.
fn all_agree(program: &Path, expected: &[Expected]) {
    let traced = record(program);
    let folder = traced.folder.path();
    let leaks = by_leaks(&json(folder, &["leaks", "--json", "r.dat"]), "leaks");
    let table = ["top", "--json", "--metric", "leaked", "r.dat"];
    let server = Server::start(folder);
    let ways = [
        ("dump", by_dump(folder)),
        ("leaks", leaks.clone()),
        ("json", by_json_export(folder)),
        ("speedscope", by_speedscope(folder)),
        ("dhat", by_dhat(folder)),
        ("pprof", by_pprof(folder)),
        ("HTTP leaks", by_leaks(&server.get("leaks"), "HTTP leaks")),
    ];
    // Sizes that only one place asks for tell functions; two places with one size are one row of a table.
    for (way, answers) in &ways {
        compare(way, answers, expected);
        for &(size, ..) in expected {
            assert_eq!(answers[&size], leaks[&size], "{way} and leaks, {size} bytes");
        }
    }
    let graph = server.get("flamegraph?metric=leaked&min_px=0&max_nodes=10000");
    for (way, answers) in [
        ("top", by_functions(&json(folder, &table), "top")),
        ("HTTP functions", by_functions(&server.get("functions?metric=leaked"), "HTTP functions")),
        ("flame graph", by_flamegraph(&graph)),
    ] {
        let answers: Answers = expected.iter().filter_map(|e| Some((e.0, once_or_twice(&answers, e.0)?))).collect();
        compare(way, &answers, expected);
        assert!(answers.iter().all(|(size, answer)| leaks[size] == *answer), "{way}: {answers:?}");
    }
    let folded = by_folded(folder);
    let folded: BTreeMap<u64, String> =
        expected.iter().filter_map(|e| Some((e.0, once_or_twice(&folded, e.0)?))).collect();
    for &(size, ..) in expected {
        let (name, _) = &leaks[&size];
        assert!(folded[&size].starts_with(name.as_str()), "folded: {} is {name}", folded[&size]);
    }
    let different: BTreeSet<&String> = expected.iter().filter(|e| e.0 != 10141).map(|e| &folded[&e.0]).collect();
    let functions = expected.iter().filter(|e| e.0 != 10141).count();
    assert_eq!(different.len(), functions, "as many names as functions: {different:?}");
    let symbols = symbol_names(program);
    for &(size, .., has_symbol) in expected.iter().filter(|e| e.1.is_ascii()) {
        let (name, _) = &leaks[&size];
        assert!(!has_symbol || symbols.contains(name), "nm -C does not know {name}");
    }
}

/// Of the function in the header, which both files call: one row may have the blocks of both calls.
fn once_or_twice<T: Clone>(answers: &BTreeMap<u64, T>, size: u64) -> Option<T> {
    answers.get(&size).or_else(|| answers.get(&(2 * size)).filter(|_| size == 10141)).cloned()
}

#[test]
fn c_functions_have_their_own_names_and_files() {
    for flags in [["-g", "-O0"], ["-g", "-O2"]] {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        all_agree(&build(folder.path(), "cc", &["one.c", "two.c"], &flags), C);
    }
}

#[test]
fn cpp_functions_have_their_full_names() {
    for flags in [["-g", "-O0"], ["-g", "-O2"]] {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        all_agree(&build(folder.path(), "c++", &["names.cpp"], &flags), CPP);
    }
}

#[test]
fn every_form_of_debug_information_says_the_same() {
    for (compiler, sources, expected) in [("cc", &["one.c", "two.c"][..], C), ("c++", &["names.cpp"], CPP)] {
        for flags in [
            &["-gdwarf-4"][..],
            &["-gdwarf-5"],
            &["-g", "-gsplit-dwarf"],
            &["-gdwarf-4", "-gsplit-dwarf"],
            &["-g", "-gz"],
        ] {
            let folder = tempfile::tempdir().expect("a temporary folder can be made");
            let program = build(folder.path(), compiler, sources, &[&["-O2"], flags].concat());
            let traced = record(&program);
            let leaks = json(traced.folder.path(), &["leaks", "--json", "r.dat"]);
            compare(&format!("{flags:?}"), &by_leaks(&leaks, "leaks"), expected);
        }
        // By link, then by build id.
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let program = build(folder.path(), compiler, sources, &["-O2", "-g", "-Wl,--build-id=sha1"]);
        for strip in [
            &["--only-keep-debug", "prog", "prog.debug"][..],
            &["--strip-all", "--add-gnu-debuglink=prog.debug", "prog"],
        ] {
            let output = Command::new("objcopy").args(strip).current_dir(folder.path()).output().expect("binutils");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let traced = record(&program);
        let leaks = json(traced.folder.path(), &["leaks", "--json", "r.dat"]);
        compare("a debug file", &by_leaks(&leaks, "leaks"), expected);
    }
}

#[test]
fn without_debug_information_the_symbol_table_tells_functions_apart() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let traced = record(&build(folder.path(), "cc", &["one.c", "two.c"], &["-O2", "-g0"]));
    let top = by_functions(&json(traced.folder.path(), &["top", "--json", "--metric", "leaked", "r.dat"]), "top");
    assert_eq!(top[&(1 << 20)], ("init".to_owned(), Some("one.c".to_owned())));
    assert_eq!(top[&(2 << 20)], ("init".to_owned(), Some("two.c".to_owned())));
    for size in [10037, 10099, 10103] {
        assert_eq!(top[&size].0, leaks_name(size), "{size}");
    }
}

fn leaks_name(size: u64) -> &'static str {
    C.iter().find(|expected| expected.0 == size).expect("it is expected").1
}

#[test]
fn two_recordings_keep_functions_of_one_name_apart() {
    let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let before = record(&build(one.path(), "cc", &["one.c", "two.c"], &["-g", "-O0"]));
    let after = record(&build(two.path(), "cc", &["one.c", "two.c"], &["-g", "-O2"]));
    let second = after.folder.path().join("r.dat");
    let args = ["diff", "--json", "r.dat", second.to_str().expect("a plain path")];
    let diff = json(before.folder.path(), &args);
    let inits: BTreeSet<(u64, u64)> = list(&diff["rows"])
        .iter()
        .filter(|row| row["stack"][0]["function"] == "init")
        .map(|row| (row["before"]["bytes"].as_u64().expect("bytes"), row["after"]["bytes"].as_u64().expect("bytes")))
        .collect();
    assert_eq!(inits, BTreeSet::from([(1 << 20, 1 << 20), (2 << 20, 2 << 20)]));
}

/// A function of several with its name is chosen by its file, whoever is asked, and in whatever way.
#[test]
fn one_of_two_functions_of_a_name_can_be_chosen() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let traced = record(&build(folder.path(), "cc", &["one.c", "two.c"], &["-g", "-O0"]));
    let (folder, server) = (traced.folder.path(), Server::start(traced.folder.path()));
    let (one, two) = (1 << 20, 2 << 20);
    for (pattern, bytes) in [
        ("^init$", one + two),
        ("^init@.*/one\\.c:4@prog$", one),
        ("^init@.*/two\\.c(:\\d+)?@prog$", two),
        ("init@.*two", two),
        ("@.*/names/one\\.c:4@", one),
        ("^init@/nowhere/one\\.c", 0),
    ] {
        let top = ["top", "--json", "--metric", "leaked", "--focus", pattern, "r.dat"];
        assert_eq!(json(folder, &top)["total"], bytes, "top {pattern}");
        let escaped: String = pattern.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for document in ["functions", "flamegraph"] {
            for filter in ["focus", "show_from"] {
                let answer = server.get(&format!("{document}?metric=leaked&{filter}={escaped}"));
                assert_eq!(answer["total"], bytes, "{document} {filter} {pattern}");
            }
        }
        let without = ["top", "--json", "--metric", "leaked", "--ignore", pattern, "r.dat"];
        let all = json(folder, &["top", "--json", "--metric", "leaked", "r.dat"])["total"].as_u64().expect("a sum");
        assert_eq!(json(folder, &without)["total"].as_u64(), Some(all - bytes), "without {pattern}");
        let found = server.get(&format!("functions?metric=leaked&search={escaped}"));
        let found: u64 = list(&found["rows"]).iter().filter_map(|row| row["flat"].as_u64()).sum();
        assert_eq!(found, bytes, "rows of {pattern}");
        // Hidden, its blocks are its caller's.
        let hidden = server.get(&format!("functions?metric=leaked&hide={escaped}"));
        let shown: BTreeSet<u64> = list(&hidden["rows"])
            .iter()
            .filter(|row| row["name"] == "init")
            .filter_map(|row| row["flat"].as_u64())
            .collect();
        assert_eq!(shown.iter().sum::<u64>(), one + two - bytes, "hidden {pattern}");
    }
}

#[test]
fn wrappers_and_nameless_code_are_not_who_allocated() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = build(folder.path(), "cc", &["one.c", "two.c"], &["-g", "-O0"]);
    let traced = record(&program);
    let server = Server::start(traced.folder.path());
    let sites = server.get("sites?limit=100");
    let row = |bytes: u64| {
        let has = |row: &&Value| row["allocated"]["bytes"] == bytes;
        list(&sites["sites"]).iter().find(has).unwrap_or_else(|| panic!("{bytes}: {sites}")).clone()
    };
    assert_eq!(row(10139)["function"], "asks_wrapper");
    assert_eq!(row(10007)["function"], "only_here");
    assert_eq!(row(10139)["called_from"], "main");
    let site = server.get(&format!("sites/{}", row(10139)["id"].as_str().expect("an id")));
    let flags: Vec<(&str, bool)> = list(&site["stack"])
        .iter()
        .map(|frame| {
            (frame["function"].as_str().unwrap_or("-"), frame["library"].as_bool().expect("every frame says it"))
        })
        .collect();
    assert_eq!(flags[..3], [("my_zalloc", true), ("asks_wrapper", false), ("main", false)]);
    assert!(flags.iter().any(|(function, library)| function.contains("libc_start") && *library), "{flags:?}");
    // What has lost its names: the function that still has one is named, the addresses below it are not.
    let strip = ["--strip-debug", "--strip-symbol=my_zalloc", "--strip-symbol=asks_wrapper", "prog"];
    let stripped = Command::new("objcopy").args(strip).current_dir(folder.path()).output().expect("binutils");
    assert!(stripped.status.success(), "{}", String::from_utf8_lossy(&stripped.stderr));
    let traced = record(&program);
    let summary = ask(traced.folder.path(), &["summary", "r.dat"]);
    assert!(summary.status.success(), "{summary:?}");
    let server = Server::start(traced.folder.path());
    let rows = server.get("functions?metric=leaked&by=program");
    let by = ["top", "--json", "--metric", "leaked", "--by", "program", "r.dat"];
    let printed = json(traced.folder.path(), &by);
    assert_eq!(printed["rows"], rows["rows"]);
    let main = list(&rows["rows"]).iter().find(|row| row["name"] == "main").unwrap_or_else(|| panic!("{rows}"));
    // Without debug information what is inlined into main is main's, too.
    assert_eq!(main["flat"], 10139 + 1 + 10009 + 10133);
    // What calls main is a library, which says nothing.
    let sites = server.get("sites?limit=100");
    let of_main: Vec<&Value> = list(&sites["sites"]).iter().filter(|row| row["function"] == "main").collect();
    assert!(!of_main.is_empty() && of_main.iter().all(|row| row["called_from"].is_null()), "{of_main:?}");
    let nameless = list(&rows["rows"]).iter().filter(|row| row["name"].as_str().is_some_and(|n| n.starts_with("0x")));
    assert_eq!(nameless.count(), 0, "{rows}");
}
