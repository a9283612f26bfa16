//! Names, from the program on disk to what is printed and served: a program is compiled, a recording of it made by
//! hand.

mod support;

use std::path::Path;
use std::process::Command;

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};
use serde_json::{Value, json};
use support::{Maker, Server, heaptrace, sample};
use tracehound_format::meta::Segment;
use tracehound_format::record::Kind;

const PROGRAM: &str = "\
#include <stdlib.h>
static inline __attribute__((always_inline)) void *wrap(int n) {
    return malloc(n);
}
__attribute__((noinline)) void *leak(int n) {
    void *block = wrap(n);
    __asm__ volatile(\"\" : : \"r\"(block) : \"memory\");
    return block;
}
int main(void) {
    void *block = leak(16);
    __asm__ volatile(\"\" : : \"r\"(block) : \"memory\");
    return 0;
}
";

const BIAS: u64 = 0x5555_5555_0000;

fn compile(folder: &Path, extra: &[&str]) {
    std::fs::write(folder.join("app.c"), PROGRAM).unwrap();
    let arguments = [&["-O1", "-g", "-Wl,--build-id=sha1", "-o", "app", "app.c"], extra].concat();
    assert!(Command::new("gcc").current_dir(folder).args(arguments).status().unwrap().success());
}

/// Return address of the only call in a function: behind its `call` instruction.
fn behind_call(bytes: &[u8], elf: &ElfFile64<'_, Endianness>, name: &str) -> u64 {
    let symbol = elf.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
    let code = &bytes[symbol.address() as usize..][..symbol.size() as usize];
    let at = code.iter().position(|&byte| byte == 0xe8).expect("x86-64's call instruction");
    symbol.address() + at as u64 + 5
}

/// A recording of the program in `folder`: `leak` allocates two blocks, one is freed by `main`.
fn record(folder: &Path) {
    let path = folder.join("app");
    let bytes = std::fs::read(&path).unwrap();
    let elf = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
    let endian = elf.endian();
    let load = elf.elf_program_headers().iter().filter(|header| header.p_type(endian) == object::elf::PT_LOAD);
    let segments = load.map(|header| Segment {
        start: BIAS + header.p_vaddr(endian),
        len: header.p_memsz(endian),
        vaddr: header.p_vaddr(endian),
        file_offset: header.p_offset(endian),
        flags: header.p_flags(endian).0,
    });
    let mut maker = Maker::new();
    let build_id = elf.build_id().unwrap().unwrap();
    maker.module(path.to_str().unwrap(), build_id, BIAS, segments.collect());
    let main = maker.node(0, BIAS + behind_call(&bytes, &elf, "main"));
    let leak = maker.node(main, BIAS + behind_call(&bytes, &elf, "leak"));
    maker.event(Kind::Malloc, 1000, 0x1000, leak, 16);
    maker.event(Kind::Malloc, 2000, 0x2000, leak, 48);
    maker.event(Kind::Free, 3000, 0x1000, main, 0);
    maker.write(&folder.join("app.dat"), 10_000);
}

fn leaking_stack(folder: &Path) -> Vec<(Value, Value, Value, Value)> {
    let output = heaptrace(folder, &["leaks", "--json", "app.dat"]);
    let leaks: Value = serde_json::from_slice(&output.stdout).unwrap();
    let stack = leaks["sites"][0]["stack"].as_array().unwrap();
    let frame = |frame: &Value| {
        let file = frame["file"].as_str().and_then(|file| file.rsplit('/').next());
        (frame["function"].clone(), json!(file), frame["line"].clone(), frame["inlined"].clone())
    };
    stack.iter().map(frame).collect()
}

fn named() -> Vec<(Value, Value, Value, Value)> {
    vec![
        (json!("wrap"), json!("app.c"), json!(3), json!(true)),
        (json!("leak"), json!("app.c"), json!(6), json!(false)),
        (json!("main"), json!("app.c"), json!(11), json!(false)),
    ]
}

#[test]
fn names_come_from_the_recorded_build_and_from_no_other() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    compile(folder, &[]);
    record(folder);
    assert_eq!(leaking_stack(folder), named());
    let cache = folder.join("app.dat.idx/symbols.bin");
    let first = std::fs::read(&cache).expect("names are kept beside the index");
    assert_eq!(leaking_stack(folder), named());
    assert_eq!(std::fs::read(&cache).unwrap(), first, "nothing new was looked up");

    // Another build of the same program: its names would be wrong.
    std::fs::rename(folder.join("app"), folder.join("original")).unwrap();
    compile(folder, &["-DOTHER", "-O0"]);
    let unnamed = (Value::Null, Value::Null, Value::Null, json!(false));
    assert_eq!(leaking_stack(folder), [unnamed.clone(), unnamed.clone()]);
    std::fs::remove_file(folder.join("app")).unwrap();
    assert_eq!(leaking_stack(folder), [unnamed.clone(), unnamed]);
    std::fs::rename(folder.join("original"), folder.join("app")).unwrap();
    assert_eq!(leaking_stack(folder), named());

    // A cache that is damaged is no cache.
    std::fs::write(&cache, &first[..first.len() / 2]).unwrap();
    assert_eq!(leaking_stack(folder), named());
}

#[test]
fn stacks_are_the_same_in_all_views() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    compile(folder, &[]);
    record(folder);
    let text = |arguments: &[&str]| String::from_utf8(heaptrace(folder, arguments).stdout).unwrap();
    assert_eq!(text(&["export", "-f", "folded", "app.dat", "-o", "-"]), "main;leak;wrap 48\n");
    assert!(text(&["leaks", "app.dat"]).contains("leak  "), "{}", text(&["leaks", "app.dat"]));
    let top = text(&["top", "--cum", "app.dat"]);
    assert!(top.contains("main  app.c") && top.contains("wrap  app.c"), "{top}");
    let svg = text(&["flamegraph", "app.dat", "-o", "-"]);
    assert!(svg.starts_with("<?xml") && svg.contains(">wrap</text>") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for (filter, bytes) in [("--focus=leak", 48), ("--focus=nothing", 0), ("--ignore=wrap", 0), ("--hide=wrap", 48)] {
        let output = heaptrace(folder, &["top", "--json", filter, "app.dat"]);
        let top: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(top["total"], bytes, "{filter}");
    }
}

#[test]
fn sources_and_modules_are_served() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    compile(folder, &[]);
    record(folder);
    let server = Server::start(folder, &["app.dat"]);
    let id = "/api/v1/recordings/r1";
    let modules = server.json(&format!("{id}/modules"));
    let module = &modules["modules"][0];
    assert_eq!((&module["symbols"], &module["addresses"], &module["named"]), (&json!("debug"), &json!(2), &json!(2)));

    let leaks = server.json(&format!("{id}/leaks"));
    let file = leaks["sites"][0]["stack"][0]["file"].as_str().unwrap().replace('/', "%2F");
    let source = server.json(&format!("{id}/source?file={file}&metric=allocated"));
    assert_eq!(source["text"], PROGRAM);
    let line = |n: u64| source["lines"].as_array().unwrap().iter().find(|line| line["line"] == n).cloned().unwrap();
    assert_eq!((&line(3)["flat"], &line(3)["cum"]), (&json!(64), &json!(64)));
    assert_eq!((&line(11)["flat"], &line(11)["cum"]), (&json!(0), &json!(64)));
    assert_eq!(server.get(&format!("{id}/source?file=%2Fetc%2Fpasswd")).status, 404);

    // Elsewhere the text is not shown, the sums are.
    std::fs::create_dir(folder.join("elsewhere")).unwrap();
    let server = Server::start(&folder.join("elsewhere"), &["../app.dat"]);
    let source = server.json(&format!("{id}/source?file={file}"));
    assert_eq!(source["text"], Value::Null);
    assert!(source["note"].as_str().unwrap().contains("--source"));
    assert_eq!(source["lines"][0]["flat"], 48);
}

#[test]
fn lines_of_a_source_are_those_that_all_filters_leave() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    compile(folder, &[]);
    record(folder);
    let server = Server::start(folder, &["app.dat"]);
    let id = "/api/v1/recordings/r1";
    let leaks = server.json(&format!("{id}/leaks"));
    let file = leaks["sites"][0]["stack"][0]["file"].as_str().unwrap().replace('/', "%2F");
    let lines = |filters: &str| -> Vec<(u64, i64, i64)> {
        let source = server.json(&format!("{id}/source?file={file}&{filters}"));
        let lines = source["lines"].as_array().unwrap_or_else(|| panic!("{filters}: {source}")).clone();
        let line = |line: &Value| {
            (line["line"].as_u64().unwrap(), line["flat"].as_i64().unwrap(), line["cum"].as_i64().unwrap())
        };
        lines.iter().map(line).collect()
    };
    // `wrap` is line 3, its caller `leak` 6, `main` 11.
    let all = [(3, 48, 48), (6, 0, 48), (11, 0, 48)];
    let module = server.json(&format!("{id}/modules"))["modules"][0]["id"].clone();
    for filters in ["", "frames=all", "module=^app%24", &format!("module={module}"), "context=0", "thread=1"] {
        assert_eq!(lines(filters), all, "{filters}");
    }
    for filters in ["transform=drop-function:leak", "show_from=nothing", "focus=nothing"] {
        assert_eq!(lines(filters), [], "{filters}");
    }
    for filters in ["hide=^wrap%24", "transform=merge-function:wrap", "transform=collapse-function:leak"] {
        assert_eq!(lines(filters), [(6, 48, 48), (11, 0, 48)], "{filters}");
    }
    for filters in ["show_from=^leak%24", "transform=focus-function:leak", "hide=^main%24"] {
        assert_eq!(lines(filters), [(3, 48, 48), (6, 0, 48)], "{filters}");
    }
    for filters in ["transform=collapse-module:app", "show=^main%24", "transform=focus-inverted:main"] {
        assert_eq!(lines(filters), [(11, 48, 48)], "{filters}");
    }
    for (filters, why) in [
        ("context=7", "no event belongs to a request context"),
        ("module=7", "there is no module 7"),
        ("module=(", "regular expression"),
    ] {
        let answer = server.get(&format!("{id}/source?file={file}&{filters}"));
        assert!(answer.status == 400 && answer.text().contains(why), "{filters}: {}", answer.text());
    }
}

#[test]
fn a_module_that_one_side_alone_has_can_be_compared() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    compile(folder, &[]);
    record(folder);
    sample(&folder.join("other.dat"));
    let server = Server::start(folder, &["app.dat", "other.dat"]);
    let id = "/api/v1/recordings/r1";
    let status = |target: &str| server.get(&format!("{id}/{target}")).status;
    assert_eq!(status("functions?module=^/opt/"), 400);
    for route in ["diff", "diff/flamegraph"] {
        assert_eq!(status(&format!("{route}?other=r2&module=^/opt/")), 200, "{route}");
        assert_eq!(status(&format!("{route}?other=r2&module=^/usr/")), 400, "{route}");
        assert_eq!(status(&format!("{route}?module=^/opt/")), 400, "{route}");
    }
}
