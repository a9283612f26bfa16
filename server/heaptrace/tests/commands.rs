//! The reading commands as their user sees them: numbers that agree, errors in a sentence, exit codes.

mod support;

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};
use support::{Maker, folder_with_sample, heaptrace};
use tracehound_format::block::{BlockHeader, BlockKind};
use tracehound_format::header::FileHeader;
use tracehound_format::record::Kind;

fn json_of(folder: &Path, arguments: &[&str]) -> Value {
    let output = heaptrace(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn dump(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = heaptrace(folder, &[&["dump"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_filter_that_nothing_passes_does_not_say_that_nothing_leaked() {
    let folder = folder_with_sample();
    let said = |arguments: &[&str]| {
        let output = heaptrace(folder.path(), &[&["leaks", "app.dat"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(said(&[]).contains(" leaked in "), "{}", said(&[]));
    for arguments in [["--focus", "no such function"], ["--min-size", "100g"]] {
        let text = said(&arguments);
        assert!(text.starts_with("No leaked block matches") && !text.contains("Nothing leaked"), "{text}");
    }
}

#[test]
fn a_module_is_meant_by_its_path_or_its_file_name() {
    let folder = folder_with_sample();
    let top = |arguments: &[&str]| {
        let output = heaptrace(folder.path(), &[&["top", "app.dat", "--json"], arguments].concat());
        let total = serde_json::from_slice::<Value>(&output.stdout).unwrap()["total"].as_u64();
        (total, String::from_utf8(output.stderr).unwrap())
    };
    let all = top(&[]);
    for arguments in [["--module", "^app$"], ["--module", "^/opt/.*/app$"], ["--transform", "collapse-module:app"]] {
        assert_eq!(top(&arguments), all, "{arguments:?}");
    }
    let why = "heaptrace: app.dat: no module matches `^app2$` (there are `app`)\n".to_owned();
    assert_eq!(top(&["--module", "^app2$"]), (Some(0), why));
}

#[test]
fn info_and_leaks_can_be_rebuilt_from_dump() {
    let folder = folder_with_sample();
    let (mut live, mut live_bytes, mut peak) = (HashMap::new(), 0, 0);
    let (mut count, mut bytes, mut last) = (0, 0, 0);
    for event in dump(folder.path(), &["app.dat"]) {
        let number = |name: &str| event[name].as_u64().unwrap();
        assert!(number("t_ns") >= last, "time goes back: {event}");
        last = number("t_ns");
        let kind = event["kind"].as_str().unwrap();
        let old = if kind == "realloc" { &event["old_address"] } else { &event["address"] };
        if matches!(kind, "free" | "realloc") {
            live_bytes -= live.remove(old.as_str().unwrap()).unwrap();
        }
        if matches!(kind, "alloc" | "realloc") {
            let size = number("size");
            live.insert(event["address"].as_str().unwrap().to_owned(), size);
            (count, bytes, live_bytes) = (count + 1, bytes + size, live_bytes + size);
            peak = peak.max(live_bytes);
        }
    }
    let info = json_of(folder.path(), &["info", "--json", "app.dat"]);
    assert_eq!(info["allocations"], json!({"bytes": bytes, "count": count}));
    assert_eq!(info["peak"]["bytes"], peak);
    assert_eq!(info["leaked"], json!({"bytes": live_bytes, "count": live.len()}));
    let leaks = json_of(folder.path(), &["leaks", "--json", "app.dat"]);
    assert_eq!(leaks["leaked"], info["leaked"]);
    let sum: u64 = leaks["sites"].as_array().unwrap().iter().map(|site| site["bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum, live_bytes);
    let top = json_of(folder.path(), &["top", "--json", "--metric", "leaked", "app.dat"]);
    assert_eq!(top["total"], live_bytes);
    let flame = json_of(folder.path(), &["flamegraph", "--json", "--metric", "leaked", "app.dat", "-o", "-"]);
    assert_eq!(flame["total"], live_bytes);
}

#[test]
fn dump_prints_the_documented_shapes() {
    let folder = folder_with_sample();
    let events = dump(folder.path(), &["app.dat"]);
    let of_kind =
        |kind: &str| events.iter().find(|event| event["kind"] == kind).unwrap_or_else(|| panic!("no {kind}")).clone();
    let alloc = of_kind("alloc");
    assert_eq!((&alloc["t_ns"], &alloc["thread"], &alloc["function"]), (&json!(1000), &json!(1), &json!("malloc")));
    assert_eq!((&alloc["address"], &alloc["size"]), (&json!("0x100000"), &json!(64)));
    let frame = json!({"function": null, "file": null, "line": null, "module": "app", "inlined": false, "address": "0x402000",
               "language": null});
    assert_eq!(alloc["stack"][0], frame);
    assert_eq!(alloc["stack"].as_array().unwrap().len(), 2);
    let realloc = of_kind("realloc");
    assert_eq!((&realloc["old_address"], &realloc["address"]), (&json!("0x200000"), &json!("0x300000")));
    assert_eq!(realloc["stack"][0]["module"], Value::Null);
    assert_eq!(of_kind("map")["size"], 8192);
    assert_eq!(of_kind("unmap")["size"], 8192);
    assert_eq!(of_kind("thread")["name"], "app");

    let plain = dump(folder.path(), &["--no-symbols", "app.dat"]);
    assert_eq!(plain.len(), events.len());
    let alloc = plain.iter().find(|event| event["kind"] == "alloc").unwrap();
    assert_eq!(alloc["stack"], json!(["0x402000", "0x401000"]));
    // Of several recordings each line says which it is of.
    let two = dump(folder.path(), &["app.dat", "./app.dat"]);
    let files = ["app.dat", "./app.dat"].map(|file| vec![json!(file); events.len()]).concat();
    assert!(two.iter().map(|e| &e["file"]).eq(&files) && events.iter().all(|e| e.get("file").is_none()));
}

/// The events of a signal handler that interrupted a realloc, and got the old address, are in blocks of the file before
/// the realloc's own. Each block that is damaged is one, whatever was read together with it.
#[test]
fn a_realloc_that_was_interrupted_is_put_in_order_across_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.dat");
    let mut maker = Maker::new();
    maker.event(Kind::Malloc, 10, 0x100, 0, 1000);
    maker.event(Kind::Malloc, 30, 0x100, 0, 70);
    maker.end_block();
    maker.event(Kind::Free, 40, 0x100, 0, 0);
    maker.end_block();
    maker.event(Kind::Malloc, 50, 0x100, 0, 60);
    maker.end_block();
    maker.event(Kind::ReallocFrom, 20, 0x100, 0, 0);
    maker.event(Kind::ReallocTo, 60, 0x200, 0, 2000);
    maker.event(Kind::Free, 70, 0x200, 0, 0);
    maker.write(&path, 100);
    let seen = |event: &Value| (event["t_ns"].as_u64().unwrap(), event["kind"].as_str().unwrap().to_owned());
    let events: Vec<_> = dump(folder.path(), &["app.dat"]).iter().skip(1).map(seen).collect();
    let ordered =
        [(10, "alloc"), (20, "free"), (30, "alloc"), (40, "free"), (50, "alloc"), (60, "alloc"), (70, "free")];
    assert_eq!(events, ordered.map(|(at, kind)| (at, kind.to_owned())));
    let info = json_of(folder.path(), &["info", "--json", "app.dat"]);
    assert_eq!((&info["complete"], &info["leaked"]["bytes"]), (&json!(true), &json!(60)), "{info:#}");

    // A byte of the third block's payload.
    let mut bytes = std::fs::read(&path).unwrap();
    let mut at = FileHeader::LEN;
    let mut blocks = Vec::new();
    while at < bytes.len() {
        let header = BlockHeader::decode(&bytes[at..]).unwrap();
        at += BlockHeader::LEN;
        if header.kind == BlockKind::Events {
            blocks.push(at);
        }
        at += header.stored_len as usize;
    }
    bytes[blocks[2]] ^= 0x55;
    std::fs::write(&path, &bytes).unwrap();
    let info = json_of(folder.path(), &["info", "--json", "app.dat"]);
    assert_eq!((&info["complete"], &info["events"]["lost"]), (&json!(false), &json!(1)), "{info:#}");
    assert_eq!(info["exactness"]["damaged_blocks"], 1, "{info:#}");
    assert_eq!(info["allocations"]["count"], 3, "{info:#}");
}

#[test]
fn bad_files_get_one_sentence_and_exit_code_1() {
    let folder = folder_with_sample();
    let whole = std::fs::read(folder.path().join("app.dat")).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("empty.dat", b"");
    write("short.dat", &whole[..30]);
    write("letter.dat", &b"Dear reader, this is a letter. ".repeat(20));
    let mut newer = whole.clone();
    newer[8] = 99;
    let crc = crc32fast::hash(&newer[..60]);
    newer[60..64].copy_from_slice(&crc.to_le_bytes());
    write("newer.dat", &newer);
    std::fs::create_dir(folder.path().join("folder.dat")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(folder.path().join("pipe.dat")).status().unwrap().success());
    for name in ["missing.dat", "empty.dat", "short.dat", "letter.dat", "newer.dat", "folder.dat", "pipe.dat"] {
        for arguments in [
            &["info", name][..],
            &["info", "--json", name],
            &["leaks", name],
            &["top", name],
            &["dump", name],
            &["flamegraph", name, "-o", "x.svg"],
            &["export", "--format", "json", name, "-o", "x.json"],
        ] {
            let output = heaptrace(folder.path(), arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
            assert!(said.starts_with("heaptrace: ") && said.contains(name), "{arguments:?}: {said}");
            assert!(output.stdout.is_empty(), "{arguments:?}");
        }
    }
    assert!(!folder.path().join("x.svg").exists() && !folder.path().join("x.json").exists());
}

#[test]
fn a_recording_cut_or_damaged_anywhere_never_panics() {
    let folder = folder_with_sample();
    let whole = std::fs::read(folder.path().join("app.dat")).unwrap();
    for at in (64..whole.len()).step_by(37) {
        let name = format!("cut-{at}.dat");
        std::fs::write(folder.path().join(&name), &whole[..at]).unwrap();
        let info = json_of(folder.path(), &["info", "--json", &name]);
        assert_eq!(info["complete"], false, "cut at {at}");
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        let name = format!("damaged-{at}.dat");
        std::fs::write(folder.path().join(&name), &damaged).unwrap();
        let (info, leaks) =
            (json_of(folder.path(), &["info", "--json", &name]), json_of(folder.path(), &["leaks", "--json", &name]));
        assert_eq!(info["leaked"], leaks["leaked"], "damaged at {at}");
        assert_eq!(info["complete"], false, "damaged at {at}: {info}");
    }
}

#[test]
fn misuse_is_exit_code_2() {
    let folder = folder_with_sample();
    for (arguments, words) in [
        (&["top", "--from", "noon", "app.dat"][..], "--from"),
        (&["top", "--metric", "love", "app.dat"], "possible values: live, peak"),
        (&["top", "--focus", "(", "app.dat"], "--focus"),
        (&["leaks", "--min-size", "big", "app.dat"], "--min-size"),
        (&["leaks", "--lifetime", "eternal", "app.dat"], "--lifetime"),
        (&["top", "--at", "1us", "--from", "0", "app.dat"], "--at"),
        (&["top", "--at", "1us", "--metric", "allocated", "app.dat"], "the metric `live`"),
        (&["export", "--format", "massif", "--at", "1us", "app.dat", "-o", "-"], "massif is of a window"),
        (&["export", "--format", "tar", "app.dat", "-o", "-"], "possible values"),
        (&["diff", "--before", "1us..0", "--after", "0..1us", "app.dat"], "--before: the window ends before it starts"),
        (&["diff", "--before", "0..1us", "--after", "1us..0", "app.dat"], "--after: the window ends before it starts"),
        (
            &["check", "app.dat"],
            "--max-leaked, --max-temporary, --max-block, --max-rss, --max-pinned, --max-allocations",
        ),
        (&["info"], "FILE"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let output = heaptrace(folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn a_mistake_in_the_configuration_is_said_with_its_line() {
    let folder = folder_with_sample();
    std::fs::write(folder.path().join("heaptrace.toml"), "color = 'never'\nbroken = [\n").unwrap();
    let output = heaptrace(folder.path(), &["top", "app.dat"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("heaptrace: heaptrace.toml is no configuration: line 2: unclosed array"), "{said}");
    assert!(said.lines().count() == 1 && !said.contains("\\n"), "{said}");
}

#[test]
fn a_bundle_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder_with_sample();
    let output = heaptrace(folder.path(), &["bundle", "app.dat", "-o", "packed.dat"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mode = std::fs::metadata(folder.path().join("packed.dat")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
}

#[test]
fn several_recordings_are_one_document() {
    let folder = folder_with_sample();
    std::fs::copy(folder.path().join("app.dat"), folder.path().join("b.dat")).unwrap();
    let list = json_of(folder.path(), &["info", "--json", "app.dat", "b.dat"]);
    assert_eq!(list["schema"], "heaptrace.list/1");
    let files: Vec<_> = list["recordings"].as_array().unwrap().iter().map(|one| one["file"].clone()).collect();
    assert_eq!(files, ["app.dat", "b.dat"]);
    assert_eq!(list["recordings"][1]["document"]["schema"], "heaptrace.info/1");
    let one = dump(folder.path(), &["app.dat"]).len();
    assert_eq!(dump(folder.path(), &["app.dat", "b.dat"]).len(), 2 * one);
}

#[test]
fn answers_about_several_recordings_name_each() {
    let folder = folder_with_sample();
    std::fs::copy(folder.path().join("app.dat"), folder.path().join("b.dat")).unwrap();
    let text = |arguments: &[&str]| {
        let output = heaptrace(folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for command in [
        "leaks",
        "top",
        "sites",
        "threads",
        "churn",
        "contexts",
        "lifetimes",
        "memory",
        "pins",
        "map",
        "info",
        "summary",
    ] {
        let alone = text(&[command, "app.dat"]);
        let names_itself = matches!(command, "info" | "summary");
        let named = |file: &str| match names_itself {
            true => alone.replace("app.dat", file),
            false => format!("{file}\n{alone}"),
        };
        assert_eq!(alone.contains("app.dat"), names_itself, "{alone}");
        let both = text(&[command, "app.dat", "b.dat"]);
        assert_eq!(both, format!("{}\n{}", named("app.dat"), named("b.dat")), "{command}");
    }
}

#[test]
fn one_of_several_that_cannot_be_read_is_left_out() {
    let folder = folder_with_sample();
    std::fs::write(folder.path().join("empty.dat"), b"").unwrap();
    for arguments in [&["info", "empty.dat", "app.dat"][..], &["check", "--max-leaked", "1g", "app.dat", "empty.dat"]] {
        let output = heaptrace(folder.path(), arguments);
        let (answer, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(answer.contains("app.dat"), "{arguments:?}: {answer}");
        assert!(said.contains("1 of 2 recordings could not be read") && said.contains("empty.dat"), "{said}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let folder = folder_with_sample();
    let program = env!("CARGO_BIN_EXE_heaptrace");
    for command in ["dump app.dat", "openapi", "completions zsh", "leaks --json app.dat", "export -f json app.dat -o -"]
    {
        let script = format!("{program} {command} | head -c 1 > /dev/null; exit ${{PIPESTATUS[0]}}");
        let output =
            std::process::Command::new("bash").current_dir(folder.path()).args(["-c", &script]).output().unwrap();
        assert!(output.stderr.is_empty(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{command}: {:?}", output.status);
    }
}

#[test]
fn exports_appear_whole_or_not_at_all() {
    let folder = folder_with_sample();
    let output =
        heaptrace(folder.path(), &["export", "-f", "folded", "--metric", "allocated", "app.dat", "-o", "a.txt"]);
    assert!(output.status.success());
    let text = std::fs::read_to_string(folder.path().join("a.txt")).unwrap();
    let sum: u64 = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(sum, 100 * 64 + 1000 + 5000, "{text}");
    let output = heaptrace(folder.path(), &["export", "-f", "json", "app.dat", "-o", "missing/a.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write missing/a.json"));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains(".part")), "{left:?}");
}

#[test]
fn the_json_export_holds_every_block() {
    let folder = folder_with_sample();
    let document = json_of(folder.path(), &["export", "-f", "json", "app.dat", "-o", "-"]);
    assert_eq!(document["schema"], "heaptrace.export/1");
    assert_eq!(document["info"], json_of(folder.path(), &["info", "--json", "app.dat"]));
    let fields: Vec<_> =
        document["allocation_fields"].as_array().unwrap().iter().map(|field| field.as_str().unwrap()).collect();
    let at = |name: &str| fields.iter().position(|field| *field == name).unwrap();
    let blocks = document["allocations"].as_array().unwrap();
    assert_eq!(blocks.len(), 102);
    let bytes: u64 = blocks.iter().map(|block| block[at("size")].as_u64().unwrap()).sum();
    assert_eq!(document["info"]["allocations"]["bytes"], bytes);
    let living = blocks.iter().filter(|block| block[at("died_ns")].is_null()).count();
    assert_eq!(document["info"]["leaked"]["count"], living);
    let last = blocks.last().unwrap();
    assert_eq!((&last[at("function")], &last[at("previous")]), (&json!("realloc"), &json!(100)));
    let stack = &document["stacks"][blocks[0][at("stack")].as_u64().unwrap() as usize];
    let frame = &document["frames"][stack[0].as_u64().unwrap() as usize];
    assert_eq!((&frame["address"], &frame["module"]), (&json!("0x402000"), &json!("app")));
}

/// Fields of a protocol buffers message: number and value, bytes of nested messages unread.
fn fields(bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    let mut reader = tracehound_format::varint::Reader::new(bytes);
    while !reader.is_empty() {
        let tag = reader.next_u64().unwrap();
        let field = match tag & 7 {
            0 => Field::Number(reader.next_u64().unwrap()),
            2 => {
                let len = reader.next_u64().unwrap();
                Field::Bytes(reader.take(len as usize).unwrap())
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

#[derive(Debug, Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn number(self) -> u64 {
        let Field::Number(number) = self else { panic!("{self:?} is no number") };
        number
    }

    fn bytes(self) -> &'a [u8] {
        let Field::Bytes(bytes) = self else { panic!("{self:?} is no message") };
        bytes
    }

    fn packed(self) -> Vec<u64> {
        let mut reader = tracehound_format::varint::Reader::new(self.bytes());
        std::iter::from_fn(|| reader.next_u64()).collect()
    }
}

#[test]
fn the_pprof_export_adds_up_and_refers_to_what_is_there() {
    use std::collections::HashSet;
    use std::io::Read;
    let folder = folder_with_sample();
    let output = heaptrace(folder.path(), &["export", "-f", "pprof", "app.dat", "-o", "-"]);
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&*output.stdout).read_to_end(&mut bytes).unwrap();
    let profile = fields(&bytes);
    let all = |number: u64| profile.iter().filter(move |(field, _)| *field == number).map(|(_, value)| *value);
    let strings: Vec<&[u8]> = all(6).map(Field::bytes).collect();
    assert_eq!(strings[0], b"");
    let types: Vec<&[u8]> = all(1).map(|kind| strings[fields(kind.bytes())[0].1.number() as usize]).collect();
    assert_eq!(types[..4], [&b"alloc_objects"[..], b"alloc_space", b"inuse_objects", b"inuse_space"]);

    let ids = |number| -> HashSet<u64> { all(number).map(|one| fields(one.bytes())[0].1.number()).collect() };
    let (mappings, locations, functions) = (ids(3), ids(4), ids(5));
    let mut sums = vec![0; types.len()];
    for sample in all(2) {
        let sample = fields(sample.bytes());
        assert!(sample[0].1.packed().iter().all(|id| locations.contains(id)));
        sample[1].1.packed().iter().zip(&mut sums).for_each(|(value, sum)| *sum += value);
    }
    assert_eq!(sums[..4], [102, 100 * 64 + 1000 + 5000, 11, 10 * 64 + 5000]);
    assert_eq!(sums[4..6], [100, 6400], "the peak");
    for location in all(4) {
        for (number, value) in fields(location.bytes()) {
            match number {
                2 => assert!(mappings.contains(&value.number())),
                4 => assert!(functions.contains(&fields(value.bytes())[0].1.number())),
                _ => {}
            }
        }
    }
    for function in all(5) {
        let name = fields(function.bytes()).iter().find(|(number, _)| *number == 2).unwrap().1.number();
        assert!(!strings[name as usize].is_empty());
    }
}

#[test]
fn the_speedscope_export_adds_up_and_refers_to_what_is_there() {
    let folder = folder_with_sample();
    let document = json_of(folder.path(), &["export", "-f", "speedscope", "app.dat", "-o", "-"]);
    let frames = document["shared"]["frames"].as_array().unwrap().len() as u64;
    let totals: HashMap<_, _> = document["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|profile| {
            let weights: u64 =
                profile["weights"].as_array().unwrap().iter().map(|weight| weight.as_u64().unwrap()).sum();
            assert_eq!(profile["endValue"], weights);
            let samples = profile["samples"].as_array().unwrap();
            assert_eq!(samples.len(), profile["weights"].as_array().unwrap().len());
            let indices = samples.iter().flat_map(|sample| sample.as_array().unwrap());
            assert!(indices.into_iter().all(|index| index.as_u64().unwrap() < frames));
            (profile["name"].as_str().unwrap(), weights)
        })
        .collect();
    assert_eq!((totals["leaked"], totals["allocated"], totals["allocations"]), (5640, 12400, 102));
    assert_eq!(document["shared"]["frames"][0]["name"], "0x1000 in app");
}

#[test]
fn the_heaptrack_export_can_be_replayed() {
    let folder = folder_with_sample();
    let output = heaptrace(folder.path(), &["export", "-f", "heaptrack", "app.dat", "-o", "-"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let hex = |word: Option<&str>| usize::from_str_radix(word.unwrap(), 16).unwrap();
    let (mut strings, mut places, mut traces, mut kinds) = (0, 0, 0, Vec::new());
    let (mut live, mut peak, mut allocs) = (0, 0, 0);
    for line in text.lines() {
        let mut words = line.split(' ');
        match words.next().unwrap() {
            "s" => {
                let len = hex(words.next());
                assert_eq!(line.splitn(3, ' ').nth(2).unwrap().len(), len);
                strings += 1;
            }
            "i" => {
                words.next();
                assert!(words.all(|word| hex(Some(word)) <= strings), "{line}");
                places += 1;
            }
            "t" => {
                assert!(hex(words.next()) <= places && hex(words.next()) <= traces, "{line}");
                traces += 1;
            }
            "a" => {
                kinds.push(hex(words.next()));
                assert!(hex(words.next()) <= traces, "{line}");
            }
            "+" => {
                live += kinds[hex(words.next())];
                allocs += 1;
                peak = peak.max(live);
            }
            "-" => live -= kinds[hex(words.next())],
            _ => {}
        }
    }
    assert_eq!((allocs, peak, live), (102, 6400, 5640));
}

#[test]
fn what_changed_is_shown_between_instants_and_between_recordings() {
    let folder = folder_with_sample();
    std::fs::copy(folder.path().join("app.dat"), folder.path().join("b.dat")).unwrap();
    let instants = json_of(folder.path(), &["diff", "--json", "--from", "3us", "app.dat"]);
    assert_eq!((&instants["total_before"]["bytes"], &instants["total_after"]["bytes"]), (&json!(6400), &json!(5640)));
    let same = json_of(folder.path(), &["diff", "--json", "--metric", "allocated", "app.dat", "b.dat"]);
    assert_eq!(same["total_before"], same["total_after"]);
    assert_eq!(same["total_after"]["count"], 102);
    for arguments in [&["diff", "--from", "1us", "app.dat", "b.dat"][..], &["diff", "--metric", "peak", "app.dat"]] {
        assert_eq!(heaptrace(folder.path(), arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn churn_counts_what_dump_shows() {
    let folder = folder_with_sample();
    let (mut allocations, mut bytes, mut reallocs, mut moved) = (0, 0, 0, 0);
    for event in dump(folder.path(), &["app.dat"]) {
        let kind = event["kind"].as_str().unwrap();
        if matches!(kind, "alloc" | "realloc") {
            (allocations, bytes) = (allocations + 1, bytes + event["size"].as_u64().unwrap());
        }
        if kind == "realloc" {
            (reallocs, moved) = (reallocs + 1, moved + u64::from(event["old_address"] != event["address"]));
        }
    }
    let churn = json_of(folder.path(), &["churn", "--json", "app.dat"]);
    assert_eq!(churn["schema"], "heaptrace.churn/1");
    let total = &churn["total"];
    assert_eq!(total["allocations"], json!({"bytes": bytes, "count": allocations}));
    assert_eq!((&total["reallocs"], &total["moved"]), (&json!(reallocs), &json!(moved)));
    let rows = churn["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["reallocs"].as_u64().unwrap()).sum::<u64>(), reallocs);
    let printed = heaptrace(folder.path(), &["churn", "--sort", "moved", "app.dat"]);
    assert!(String::from_utf8(printed.stdout).unwrap().contains("1 time, "));
}

#[test]
fn transforms_and_freeing_stacks_on_the_command_line() {
    let folder = folder_with_sample();
    let flame = |more: &[&str]| {
        let arguments = ["flamegraph", "--json", "--metric", "allocated", "app.dat", "-o", "-"];
        json_of(folder.path(), &[&arguments, more].concat())
    };
    let whole = flame(&[]);
    let name = whole["frames"][0]["name"].as_str().unwrap().to_owned();
    let has = |graph: &Value| graph["frames"].as_array().unwrap().iter().any(|frame| frame["name"] == *name);
    let merged = flame(&["--transform", &format!("merge-function:{name}")]);
    assert_eq!(merged["total"], whole["total"]);
    assert!(has(&whole) && !has(&merged));
    let part = |kind: &str| flame(&["--transform", &format!("{kind}:{name}")])["total"].as_u64().unwrap();
    assert_eq!(part("drop-function") + part("focus-function"), whole["total"].as_u64().unwrap());
    let refused = heaptrace(folder.path(), &["top", "--transform", "merge:x", "app.dat"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("`merge` is none of merge-function"));

    let freed = ["flamegraph", "--json", "--metric", "freed", "app.dat", "-o", "-"];
    let (by, of) = (json_of(folder.path(), &[&freed[..], &["--freeing"]].concat()), json_of(folder.path(), &freed));
    assert_eq!((&by["freeing"], &by["total"]), (&json!(true), &of["total"]));
    for wrong in
        [&["--freeing"][..], &["--metric", "allocated", "--pinned"], &["--freeing", "--pinned"], &["--pin-unit", "2M"]]
    {
        let refused = heaptrace(folder.path(), &[&["flamegraph", "app.dat", "-o", "-"], wrong].concat());
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
    }
}
