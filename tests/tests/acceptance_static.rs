//! Allocators that a program carries inside itself are recorded where their functions begin, and keep their meaning;
//! what cannot be seen is said, before the start and in the recording.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use tracehound_tests::ground_truth::Case;
use tracehound_tests::{compile, heaptrace, json, profile, root, trace};

/// A binary of `tests/programs/static-allocators`. With the whole workspace's features, as the tests themselves: all
/// that it shares with them is built already.
fn static_allocators(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let output = Command::new(env!("CARGO"))
            .args(["build", "--profile", &profile(), "--quiet", "--workspace"])
            .args(["with-jemalloc", "with-mimalloc"].iter().flat_map(|binary| ["--bin", binary]))
            .current_dir(root())
            .output()
            .expect("cargo can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        heaptrace().parent().expect("heaptrace lies in a folder").to_owned()
    });
    folder.join(name)
}

/// Remarks of a document of `info` with this topic.
fn remarks(info: &serde_json::Value, topic: &str) -> Vec<String> {
    let all = info["remarks"].as_array().into_iter().flatten();
    all.filter(|remark| remark["topic"] == topic)
        .filter_map(|remark| Some(remark["text"].as_str()?.to_owned()))
        .collect()
}

#[track_caller]
fn is_recorded(case: &Case, family: &str) {
    let run = case.agrees();
    let said = remarks(&run.info, "static-allocator").join(" ");
    // Nothing else is said of its malloc.
    assert_eq!(remarks(&run.info, "first-malloc"), [""; 0]);
    assert!(said.contains(family) && said.contains("is recorded"), "{said}");
    assert_eq!(remarks(&run.info, "unhooked-allocator"), [""; 0]);
}

#[test]
fn jemalloc_with_a_prefix_in_rust() {
    is_recorded(&Case::command(static_allocators("with-jemalloc")), "jemalloc");
}

#[test]
fn mimalloc_in_rust() {
    is_recorded(&Case::command(static_allocators("with-mimalloc")), "mimalloc");
}

const JEMALLOC: [&str; 4] = ["-O", "-Clink-arg=-l:libjemalloc_pic.a", "-Clink-arg=-lstdc++", "-Clink-arg=-lm"];

#[test]
fn jemalloc_without_a_prefix_in_rust() {
    is_recorded(&Case::compiled("static-allocators/src/unprefixed.rs", &JEMALLOC), "jemalloc");
}

#[test]
fn the_whole_of_jemalloc_in_rust_that_aborts_on_panics() {
    let flags = [
        &["-Cpanic=abort", "-Clink-arg=-Wl,--whole-archive"],
        &JEMALLOC[..2],
        &["-Clink-arg=-Wl,--no-whole-archive"],
        &JEMALLOC[2..],
    ]
    .concat();
    is_recorded(&Case::compiled("static-allocators/src/unprefixed.rs", &flags), "jemalloc");
}

#[test]
fn jemalloc_in_c() {
    is_recorded(&Case::compiled("static_jemalloc.c", &["-O1", "-l:libjemalloc.a", "-lstdc++", "-lm"]), "jemalloc");
}

#[test]
fn tcmalloc_in_cpp() {
    is_recorded(
        &Case::compiled("static_tcmalloc.cpp", &["-O1", "-l:libtcmalloc_minimal.a", "-fno-builtin"]),
        "tcmalloc",
    );
}

#[test]
fn a_stripped_one_is_said_to_be_unseen() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (name, family, status) in [("with-jemalloc", "jemalloc", 23), ("with-mimalloc", "mimalloc", 24)] {
        let stripped = folder.path().join(name);
        let done = Command::new("strip").arg("-o").arg(&stripped).arg(static_allocators(name)).status();
        assert!(done.expect("strip is installed").success());
        let run = trace(&stripped, &[], &[]);
        assert_eq!(run.output.status.code(), Some(status), "{}", run.stderr());
        assert_eq!(run.stderr(), "");
        let said = remarks(&run.info(), "static-allocator").join(" ");
        assert!(said.contains(family) && said.contains("not recorded") && said.contains("stripped"), "{said}");
        let output = Command::new(heaptrace())
            .args(["run", "-o", "x.dat", "--"])
            .arg(&stripped)
            .current_dir(folder.path())
            .output()
            .expect("heaptrace can be started");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let first = stderr.lines().next().unwrap_or_default();
        assert!(first.contains(family) && first.contains("will not be recorded"), "{stderr}");
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        std::fs::remove_file(folder.path().join("x.dat")).expect("there is a recording");
    }
}

#[test]
fn calls_beside_the_usual_names_are_said_to_be_unseen() {
    for (flags, function, library) in [
        (&["-O1", "-ljemalloc"][..], "mallocx", "libjemalloc"),
        (&["-O1", "-DMIMALLOC", "-lmimalloc"][..], "mi_malloc", "libmimalloc"),
    ] {
        let run = trace(compile("bypasses.c", flags), &[], &[]);
        assert!(run.output.status.success(), "{}", run.stderr());
        let said = remarks(&json(&["info"], &run.recording()), "unhooked-allocator").join(" ");
        assert!(said.contains(function) && said.contains(library) && said.contains("not recorded"), "{said}");
    }
}

#[test]
fn ordinary_programs_have_nothing_to_be_said() {
    let run = trace(compile("five.c", &["-O1"]), &[], &[]);
    assert_eq!(run.info()["remarks"].as_array().map_or(0, Vec::len), 0, "{:#}", run.info()["remarks"]);
}
