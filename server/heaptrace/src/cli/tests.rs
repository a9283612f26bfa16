//! Goldens of what people see: documents made by hand, printed for a terminal of 100 columns or for a pipe.

use serde_json::{Value, json};
use tracehound_api::functions::Functions;
use tracehound_api::info::Info;
use tracehound_api::leaks::Leaks;
use tracehound_index::program::CodeKind;

use super::terminal::Style;
use super::{info, leaks, top};

const PIPE: Style = Style { color: false, width: None };
const TERMINAL: Style = Style { color: true, width: Some(80) };

fn printed(print: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    print(&mut out).unwrap();
    // Escapes are easier to read, and to review, by name.
    String::from_utf8(out).unwrap().replace('\x1b', "␛")
}

fn exactness() -> Value {
    json!({"events": 12, "lost_events": 0, "damaged_blocks": 0, "watermark_ns": 5_000_000_000_u64, "complete": true})
}

fn info_document() -> Info {
    serde_json::from_value(json!({
        "schema": "heaptrace.info/1",
        "process": {"pid": 4711, "parent_pid": 1, "executable": "/opt/app", "arguments": ["app", "--name", "a\u{1b}[2Jb"],
                    "started_at": "2026-01-02T03:04:05.000000006Z", "duration_ns": 5_000_000_000_u64},
        "complete": false, "end": "killed",
        "events": {"alloc": 1234567, "free": 1234000, "realloc": 17, "map": 0, "unmap": 0, "remap": 0, "brk": 1, "lost": 3},
        "allocations": {"bytes": 987654321, "count": 1234584},
        "peak": {"bytes": 7654321, "count": 4567, "at_ns": 1_500_000_000},
        "peak_rss": {"bytes": 50_000_000, "recorder_bytes": 4_000_000, "at_ns": 2_000_000_000},
        "leaked": {"bytes": 65536, "count": 1},
        "temporary": {"count": 1000, "bytes": 64000, "rule": "freed within 1 later allocation of the same thread"},
        "threads": 4, "sites": 321, "max_depth": 57,
        "recorder": {"version": "0.1.0", "wait_ns": 12_000_000, "chunk_memory_bytes": 33554432, "memory_bytes": 40_000_000,
                     "clock": "tsc", "unmatched_frees": 2, "truncated_stacks": 0, "guessed_stacks": 0, "slow_stacks": 9,
                     "nodes": 1000, "background_cpu_ns": 5, "options": ["TRACEHOUND_BUFFER=64M"], "file_bytes": 4_000_000,
                     "memory": []},
        "marks": [{"t_ns": 1_000_000, "label": "warm", "thread": 1}],
        "captures": [{"from_ns": 0, "to_ns": 5_000_000_000_u64}],
        "remarks": [{"t_ns": 0, "topic": "static-allocator", "text": "the program brings its own allocator"}],
        "exactness": {"events": 12, "lost_events": 3, "damaged_blocks": 1, "watermark_ns": 5, "complete": false}
    }))
    .unwrap()
}

fn frame(function: &str, file: &str, line: u32, module: &str, inlined: bool) -> Value {
    let file = (!file.is_empty()).then_some(file);
    let line = file.map(|_| line);
    let function = (!function.is_empty()).then_some(function);
    let library = CodeKind::of(function, file, Some(module)).is_library();
    json!({"function": function, "file": file, "line": line, "module": module, "inlined": inlined, "address": "0x401234", "library": library})
}

fn leaks_document() -> Leaks {
    let std = "/rustc/59807616e1fa/library/alloc/src";
    let stack = [
        frame("alloc::alloc::alloc", &format!("{std}/alloc.rs"), 95, "app", true),
        frame("alloc::alloc::Global::alloc_impl", &format!("{std}/alloc.rs"), 190, "app", true),
        frame("alloc::boxed::Box<T>::new", &format!("{std}/boxed.rs"), 286, "app", true),
        frame("app::cache::insert", "/home/u/app/src/cache.rs", 12, "app", false),
        frame(
            "app::serve::<a_type_parameter_that_goes_on_and_on_until_it_does_not_fit_anywhere>",
            "/home/u/app/src/serve.rs",
            7,
            "app",
            false,
        ),
        frame("", "", 0, "plugin.so", false),
        frame("app::main", "/home/u/app/src/main.rs", 3, "app", false),
        frame("std::rt::lang_start", "/rustc/59807616e1fa/library/std/src/rt.rs", 206, "app", false),
        frame("__libc_start_call_main", "./csu/libc_start.h", 58, "libc.so.6", false),
        frame("__libc_start_main_impl", "./csu/libc_start.c", 360, "libc.so.6", false),
    ];
    let verdict =
        |kind: &str, why: &str| json!({"kind": kind, "bytes_per_second": 1_500_000.0, "confidence": 0.9, "why": why});
    serde_json::from_value(json!({
        "schema": "heaptrace.leaks/1",
        "leaked": {"bytes": 3 << 20, "count": 7}, "suppressed": {"bytes": 100, "count": 2}, "total_sites": 5,
        "sites": [
            {"id": "s12", "bytes": 2 << 20, "count": 2, "first_ns": 1, "last_ns": 2, "verdict": verdict("growing", "it grew"), "stack": stack},
            {"id": "s3", "bytes": 1000, "count": 1, "first_ns": 1, "last_ns": 1, "verdict": verdict("one_time", "once"),
             "stack": [frame("strdup", "", 0, "libc.so.6", false)]},
        ],
        "exactness": exactness()
    }))
    .unwrap()
}

fn functions_document(by: &str) -> Functions {
    let row = |id: &str, name: &str, flat: i64, cum: i64| json!({"id": id, "name": name, "module": "app", "file": "/src/app.c", "line": 12, "flat": flat, "cum": cum, "flat_other": 1, "cum_other": 1});
    serde_json::from_value(json!({
        "schema": "heaptrace.functions/1", "metric": "peak", "unit": "bytes", "by": by,
        "from_ns": 0, "to_ns": 5_000_000_000_u64, "at_ns": 1_500_000_000, "total": 1_000_000, "total_rows": 17,
        "rows": [row("f1", "parse", 900_000, 950_000), row("f2", "read_a_line_and_do_something_with_it_that_has_a_very_long_name", 50_000, 60_000), row("f3", "main", 0, 1_000_000)],
        "exactness": exactness()
    }))
    .unwrap()
}

#[test]
fn info_in_a_pipe() {
    insta::assert_snapshot!(printed(|out| info::print(&info_document(), "memory-app-4711.dat", PIPE, out)));
}

#[test]
fn info_on_a_terminal() {
    insta::assert_snapshot!(printed(|out| info::print(&info_document(), "memory-app-4711.dat", TERMINAL, out)));
}

#[test]
fn leaks_in_a_pipe() {
    insta::assert_snapshot!(printed(|out| leaks::print(&leaks_document(), false, false, PIPE, out)));
}

#[test]
fn leaks_in_full() {
    insta::assert_snapshot!(printed(|out| leaks::print(&leaks_document(), false, true, PIPE, out)));
}

#[test]
fn leaks_on_a_terminal() {
    insta::assert_snapshot!(printed(|out| leaks::print(&leaks_document(), false, false, TERMINAL, out)));
}

#[test]
fn no_leaks() {
    let none = json!({"schema": "heaptrace.leaks/1", "leaked": {"bytes": 0, "count": 0}, "suppressed": {"bytes": 0, "count": 0},
                      "total_sites": 0, "sites": [], "exactness": exactness()});
    let none: Leaks = serde_json::from_value(none).unwrap();
    assert_eq!(printed(|out| leaks::print(&none, false, false, PIPE, out)), "Nothing leaked: every block was freed.\n");
    let early = printed(|out| leaks::print(&none, true, false, PIPE, out));
    assert!(early.starts_with("Nothing leaked up to the end of the recording"), "{early}");
}

#[test]
fn top_in_a_pipe() {
    insta::assert_snapshot!(printed(|out| top::print(&functions_document("function"), PIPE, out)));
}

#[test]
fn top_on_a_terminal() {
    insta::assert_snapshot!(printed(|out| top::print(&functions_document("site"), TERMINAL, out)));
}

#[test]
fn help_names_every_command() {
    use clap::CommandFactory;
    super::Cli::command().debug_assert();
    insta::assert_snapshot!(super::Cli::command().render_help().to_string());
}
