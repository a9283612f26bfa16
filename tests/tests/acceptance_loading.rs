//! Loading: libraries that come and go, other allocators, other namespaces.

use std::path::PathBuf;

use serde_json::Value;
use tracehound_tests::ground_truth::{Case, agrees};
use tracehound_tests::ledger::Ledger;
use tracehound_tests::{Traced, compile, copy_program, json, number, trace, traced_command};

fn plugin(name: &str, size: u32) -> String {
    let flags = ["-O1", "-shared", "-fPIC", &format!("-DNAME={name}"), &format!("-DSIZE={size}")];
    compile("plugin.c", &flags).display().to_string()
}

#[test]
fn addresses_reused_by_another_library() {
    let run = Case::new("dlopen_cycle.c").args(&[plugin("one", 3000), plugin("two", 4000)]).agrees();
    assert!(run.traced.printed().contains("shared addresses: yes"), "{}", run.traced.stdout);
}

#[test]
fn a_library_opened_now() {
    Case::new("dlopen_once.c").args(&[plugin("one", 3000), "now".to_owned()]).agrees();
}

/// The loader knows it by the path that the program gave it, which means another file in the folder of who reads the recording.
#[test]
fn a_library_opened_by_a_relative_path() {
    let copy = format!("cp {} plugin.so", plugin("one", 3000));
    Case::new("dlopen_once.c").after(&copy).args(&["./plugin.so", "now"]).agrees();
}

/// As wrappers of relocatable programs do: the kernel then takes the loader for the program.
#[test]
fn a_program_that_the_user_starts_by_the_loader() {
    let by_loader = r#"p="$1"; shift; set -- "$p" /lib64/ld-linux-x86-64.so.2 "$@""#;
    let run = Case::new("dlopen_once.c").after(by_loader).args(&[plugin("one", 3000), "now".to_owned()]).agrees();
    let executable = run.info["process"]["executable"].as_str().unwrap_or_default();
    assert!(executable.contains("dlopen_once"), "{:#}", run.info["process"]);
    let name = run.recording.file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.contains("dlopen_once"), "{name}");
}

#[test]
fn a_malloc_that_valgrind_replaces_is_said() {
    let (mut command, folder) = traced_command("valgrind", &["-q", "/bin/true"]);
    let output = command.env("TRACEHOUND_CHILDREN", "1").output().expect("valgrind is installed");
    let traced = Traced { folder, output };
    let said = |path: &PathBuf| remarked(&json(&["info"], path), &["valgrind"]);
    assert!(traced.recordings().iter().any(said), "{}", traced.stderr());
}

/// Whether the recording's self-audit has a remark with one of these words.
fn remarked(info: &Value, words: &[&str]) -> bool {
    let remarks = info["remarks"].as_array().map_or(&[][..], Vec::as_slice);
    remarks
        .iter()
        .any(|remark| words.iter().any(|word| remark["text"].as_str().is_some_and(|text| text.contains(word))))
}

/// As PHP opens its extensions: the library finds the C library's functions before the recorder's.
#[test]
fn deep_binding_is_recorded() {
    for (way, link) in [("deepbind", "-Wl,-z,now"), ("deepbind", "-Wl,-z,norelro"), ("lazily", "-Wl,-z,lazy")] {
        let flags = ["-O1", "-shared", "-fPIC", "-DNAME=one", "-DSIZE=3000", "-DSIMPLE", link];
        let library = compile("plugin.c", &flags).display().to_string();
        let run = Case::new("dlopen_once.c").args(&[library, way.to_owned()]).agrees();
        assert_eq!(run.ledger.through("plugin_block_one"), (20, 60_000), "{way} {link}");
        assert_eq!(run.ledger.through("plugin_block_by_variable"), (1, 3001), "{way} {link}");
        assert!(!remarked(&run.info, &["DEEPBIND"]), "{:#}", run.info);
    }
}

/// What runs inside `dlopen` is too early.
#[test]
fn deep_bindings_constructors_are_said() {
    let program = compile("dlopen_once.c", &["-O1"]);
    let run = trace(&program, &[&plugin("one", 3000), "deepbind"], &[]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let (ledger, info) = (Ledger::of(&run.recording()), run.info());
    assert_eq!(ledger.through("plugin_block_one"), (20, 60_000));
    assert!(remarked(&info, &["DEEPBIND", "constructors"]), "{info:#}");
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 1, "of the constructor's block");
}

#[test]
fn another_namespace_is_recorded_or_said() {
    let run = Case::new("dlopen_once.c").args(&[plugin("one", 3000), "dlmopen".to_owned()]).any_stderr().agrees();
    let recorded = run.ledger.through("plugin_block_one") == (21, 63_000);
    assert!(recorded || remarked(&run.info, &["namespace", "dlmopen"]), "{:#}", run.info);
}

#[test]
fn a_library_that_only_the_callers_origin_finds() {
    let program = compile("dlopen_once.c", &["-O1", "-Wl,-rpath,$ORIGIN"]);
    let folder = tempfile::tempdir().unwrap();
    let moved = folder.path().join("dlopen_once");
    copy_program(&program, &moved);
    std::fs::copy(plugin("one", 3000), folder.path().join("libacceptance_plugin.so")).unwrap();
    Case::command(moved).args(&["unused", "origin"]).agrees();
}

#[test]
fn a_program_that_wraps_malloc() {
    agrees("wraps_malloc.c", &[]);
}

#[test]
fn a_program_with_an_allocator_of_its_own() {
    let (_, traced) = Case::new("own_allocator.c").any_stderr().unharmed();
    assert_eq!(traced.recordings().len(), 1);
}

fn linked_with(allocator: &str) {
    let run = Case::compiled("other_allocator.c", &["-O1", "-Wl,--no-as-needed", allocator]).agrees();
    assert!(number(&run.info, "/events/alloc") >= 1000);
}

#[test]
fn jemalloc_linked() {
    linked_with("-ljemalloc");
}

#[test]
fn tcmalloc_linked() {
    linked_with("-ltcmalloc_minimal");
}

#[test]
fn mimalloc_linked() {
    linked_with("-lmimalloc");
}

fn preloaded(library: &str) {
    let path = PathBuf::from("/usr/lib/x86_64-linux-gnu").join(library);
    assert!(path.exists(), "{} is missing: run tests/needs.sh", path.display());
    Case::new("other_allocator.c").preloads(path).agrees();
}

#[test]
fn jemalloc_preloaded() {
    preloaded("libjemalloc.so.2");
}

#[test]
fn tcmalloc_preloaded() {
    preloaded("libtcmalloc_minimal.so.4");
}

#[test]
fn mimalloc_preloaded() {
    preloaded("libmimalloc.so.2");
}

#[test]
fn handlers_over_all_states_of_an_allocator_that_calls_itself() {
    let allocator = compile("signal_safe_allocator.c", &["-O1", "-shared", "-fPIC", "-fno-builtin"]);
    let run = Case::new("signal_storm.c").preloads(&allocator).any_stderr().agrees();
    assert!(!run.info["remarks"].to_string().contains("replaced"), "{:#}", run.info["remarks"]);
}
