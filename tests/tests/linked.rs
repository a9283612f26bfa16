//! Programs that the recorder is linked into, since nothing can be preloaded into them: their own books and the recording
//! agree, they behave as without it, and they are left alone where nobody asks for a recording.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tracehound_tests::ground_truth::Case;
use tracehound_tests::{
    compile, dump, dump_where, heaptrace, json, library, link_flags, number, profile, root, trace, unless_busy,
    wait_for,
};

/// A program of `tests/programs`, linked statically with the recorder inside. What the linker has to say fails it.
fn linked_with(source: &str, more: &[&str]) -> PathBuf {
    let recorder = link_flags();
    let flags = [&["-O1", "-Wl,--fatal-warnings"], more, &recorder.each_ref().map(String::as_str)].concat();
    compile(source, &flags)
}

fn linked(source: &str) -> PathBuf {
    linked_with(source, &["-static"])
}

/// Remarks of `info` on the recording.
fn remarks(info: &serde_json::Value) -> usize {
    info["remarks"].as_array().expect("a list of remarks").len()
}

/// What `heaptrace run` says and makes of a program.
fn run(program: &Path, variables: &[(&str, &str)]) -> (Output, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut command = Command::new(heaptrace());
    command.args(["run", "-o", "x.dat", "--"]).arg(program).current_dir(folder.path());
    (command.envs(variables.iter().copied()).output().expect("heaptrace can be started"), folder)
}

fn recordings(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).expect("the folder can be read").flatten().map(|entry| entry.path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "dat")).collect()
}

#[test]
fn every_hook_is_among_the_options() {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().expect("nm is installed");
    let exported = String::from_utf8_lossy(&output.stdout).into_owned();
    // libc has none of the first three, what opens libraries is for programs that have a loader, and so is `initgroups`, which
    // reads the system's lists of users by a library. The C library's own `fork` calls the next. Two are looked at for what a
    // loader preloads into their children, and the rest is of no use in a static program: `pthread_atfork` is made of
    // another hook there, and Chromium, which counts its threads, is not static.
    let mut others = vec![
        "cfree",
        "free_sized",
        "free_aligned_sized",
        "dlopen",
        "dlmopen",
        "initgroups",
        "_Fork",
        "popen",
        "system",
    ];
    others.extend(["pthread_atfork", "stat", "stat64", "fstatat", "fstatat64"]);
    others.extend(["__xstat", "__xstat64", "__fxstatat", "__fxstatat64"]);
    let mut hooks: Vec<&str> = exported
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .filter(|name| !name.starts_with("tracehound_") && !others.contains(name))
        .collect();
    let options = std::fs::read_to_string(link_flags()[0].trim_start_matches('@')).expect("the options are there");
    let mut wrapped: Vec<&str> = options.lines().filter_map(|line| line.strip_prefix("-Wl,--wrap=")).collect();
    hooks.sort_unstable();
    wrapped.sort_unstable();
    assert!(hooks.len() > 40);
    assert_eq!(wrapped, hooks);
}

#[test]
fn eight_threads_and_a_child_agree() {
    for how in ["-static", "-static-pie"] {
        let run = Case::command(linked_with("linked.c", &[how])).agrees();
        assert_eq!(remarks(&run.info), 0, "{how}: {:#}", run.info["remarks"]);
        assert_eq!(run.traced.recordings().len(), 1, "{how}: the child is not followed");
    }
}

#[test]
fn programs_in_c_agree() {
    for source in ["family.c", "realloc_chain.c", "maps.c", "fork_plain.c", "exec_fails.c", "longjmp.c", "errno_kept.c"]
    {
        Case::command(linked(source)).agrees();
    }
    let run = Case::command(linked("exec_self.c")).ends("exec").agrees();
    assert_eq!(run.traced.recordings().len(), 1, "what it starts is not followed");
}

#[test]
fn the_interface_signals_and_filters_do_what_they_do_elsewhere() {
    for source in ["controlled.c", "pools.c", "altstack.c"] {
        Case::command(linked(source)).agrees();
    }
    Case::command(linked("controlled.c")).args(&["off"]).option("START", "off").agrees();
    let (_, traced) = Case::command(linked("seccomp.c")).any_stderr().unharmed();
    assert_eq!(traced.recordings().len(), 1, "{}", traced.stderr);
    Case::command(linked("seccomp.c")).args(&["kill"]).warns("seccomp").unharmed();
}

/// The recorder's code and the program's are one object here: what a handler does is not what it interrupts, and a jump out of
/// a handler ends the event that was interrupted.
#[test]
fn handlers_record_and_jump_as_elsewhere() {
    let run = trace(linked("maps_in_handlers.c"), &[], &[("TRACEHOUND_OUTPUT", "m.dat")]);
    let handled: u64 = run.stdout().trim().parse().expect("a number");
    let info = run.info();
    assert!(handled > 500, "{handled}");
    for kind in ["map", "unmap"] {
        assert_eq!(number(&info, &format!("/events/{kind}")), handled, "{kind}: {info:#}");
    }
    for call in ["mmap", "sbrk", "mremap"] {
        let run = trace(linked("jumps_out_of_maps.c"), &[call, "0"], &[("TRACEHOUND_OUTPUT", "m.dat")]);
        assert_eq!(run.output.status.code(), Some(3), "{call}: {}", run.stderr());
        let counted = dump_where(&run.recording(), |event| event["kind"] == "alloc" && event["size"] == 20001);
        assert_eq!(counted.len(), 1000, "{call}: {:#}", run.info());
    }
}

#[test]
fn the_programs_own_malloc_stays_and_is_recorded() {
    let run = Case::command(linked("own_allocator.c")).agrees();
    assert!(run.traced.printed().contains("served from the pool: 1"), "{}", run.traced.stdout);
    // Behind the recorder in the link, and no other allocator with it.
    let recorder = link_flags();
    let jemalloc = ["-l:libjemalloc.a", "-lstdc++", "-lm"];
    let flags = [&["-O1", "-static"][..], &recorder.each_ref().map(String::as_str), &jemalloc].concat();
    let run = Case::command(compile("linked.c", &flags)).agrees();
    assert_eq!(remarks(&run.info), 0, "{:#}", run.info["remarks"]);
}

#[test]
fn operator_new_and_exceptions_in_cpp_agree() {
    for source in ["cpp_new.cpp", "exceptions.cpp"] {
        let run = Case::command(linked(source)).agrees();
        assert!(number(&run.info, "/allocations/count") > 500, "{source}: {:#}", run.info);
    }
}

#[test]
fn children_are_followed() {
    let case = Case::command(linked("fork_follow.c")).option("CHILDREN", "1");
    let run = case.run(true);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let infos: Vec<_> = run.recordings().iter().map(|path| json(&["info"], path)).collect();
    assert_eq!(infos.len(), 3, "{}", run.stderr);
    assert!(infos.iter().all(|info| info["complete"] == true), "{infos:#?}");
    let mut counts: Vec<u64> = infos.iter().map(|info| number(info, "/events/free")).collect();
    counts.sort_unstable();
    assert_eq!(counts, [20, 40, 120], "the grandchild, the parent, the child");

    let run = Case::command(linked("exec_self.c")).option("CHILDREN", "1").run(true);
    assert_eq!((run.status.code(), run.recordings().len()), (Some(21), 2), "{}", run.stderr);
}

#[test]
fn a_kill_loses_nothing() {
    let done = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    let path = done.path().to_str().expect("a plain path").to_owned();
    let made = || {
        let bytes = std::fs::read(done.path()).expect("the file can be read");
        bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    };
    let case = Case::command(linked("counted_blocks.c")).args(&[path, "0".to_owned()]).ends("killed");
    let run = case.run_and(true, |pid, _| {
        wait_for("blocks", Duration::from_secs(60), || made() > 5000);
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::KILL).expect("the program runs");
    });
    let info = case.sound(&run.recordings_of(run.pid)[0], "killed");
    let made = made();
    assert!((made..=made + 1).contains(&number(&info, "/events/alloc")), "{made} blocks: {info:#}");
}

#[test]
fn a_stripped_program_is_run_and_recorded() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let stripped = folder.path().join("stripped");
    let done = Command::new("strip").arg("-o").arg(&stripped).arg(linked("five.c")).status();
    assert!(done.expect("strip is installed").success());
    let (output, folder) = run(&stripped, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("recorded x.dat"), "{said}");
    assert_eq!(said.lines().count(), 1, "nothing is said to be unseen: {said}");
    let info = json(&["info"], &folder.path().join("x.dat"));
    assert_eq!((number(&info, "/allocations/count"), number(&info, "/recorder/truncated_stacks")), (5, 0));
    assert_eq!((&info["end"], remarks(&info)), (&"exit".into(), 0), "{info:#}");
}

#[test]
fn nothing_is_recorded_unasked() {
    let program = linked("five.c");
    for (variables, expected) in [
        (&[][..], 0),
        (&[("TRACEHOUND_OUTPUT", "")], 0),
        (&[("TRACEHOUND_OUTPUT", "y.dat")], 1),
        (&[("TRACEHOUND_START", "off")], 0),
        (&[("LD_PRELOAD", library().to_str().expect("a plain path"))], 1),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut command = Command::new(&program);
        command.current_dir(folder.path()).envs(variables.iter().copied());
        let output = unless_busy(|| command.output()).expect("the program can be started");
        assert!(output.status.success() && output.stderr.is_empty(), "{variables:?}: {output:?}");
        assert_eq!(recordings(folder.path()).len(), expected, "{variables:?}");
    }
}

#[test]
fn a_program_with_libraries_is_told_to_be_preloaded_into() {
    let program = linked_with("linked.c", &[]);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut command = Command::new(&program);
    command.current_dir(folder.path()).env("TRACEHOUND_OUTPUT", "x.dat");
    let output = unless_busy(|| command.output()).expect("the program can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("heaptrace run") && said.lines().count() == 1, "{said}");
    assert_eq!(recordings(folder.path()).len(), 0);
    // And so it is recorded, by the library alone.
    Case::command(program).agrees();
}

/// The crate, as Cargo builds it.
fn rust_crate() -> &'static Path {
    static CRATE: OnceLock<PathBuf> = OnceLock::new();
    CRATE.get_or_init(|| {
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--profile", &profile(), "--quiet", "-p", "tracehound"]).current_dir(root());
        let output = command.output().expect("cargo can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        library().with_extension("rlib")
    })
}

#[test]
fn programs_in_rust_agree_through_the_crate() {
    let [_, archive] = link_flags();
    let search = format!("-L{}", Path::new(&archive).parent().expect("a folder").display());
    let extern_crate = format!("--extern=tracehound={}", rust_crate().display());
    let flags = ["-O", "--cfg=linked", &search, &extern_crate];
    for source in ["rust_threads.rs", "collections.rs", "rust_panic.rs"] {
        for how in [&["-Ctarget-feature=+crt-static"][..], &[]] {
            let program = compile(source, &[&flags, how].concat());
            let (plain, traced) = (trial(&program, false), trial(&program, true));
            assert_eq!((plain.0.status, &plain.0.stderr), (traced.0.status, &traced.0.stderr), "{source} {how:?}");
            assert_eq!(recordings(plain.1.path()).len(), 0, "{source} {how:?}");
            let [recording] = &recordings(traced.1.path())[..] else { panic!("{source} {how:?}: one recording") };
            let info = json(&["info"], recording);
            assert_eq!((&info["end"], remarks(&info)), (&"exit".into(), 0), "{info:#}");
            assert_eq!(number(&info, "/recorder/truncated_stacks"), 0, "{info:#}");
            let counted = String::from_utf8_lossy(&traced.0.stdout).into_owned();
            let truth = counted.lines().find_map(|line| line.strip_prefix("truth counted ")).expect("the books");
            let [allocs, bytes, frees, reallocs, live, live_bytes] =
                truth.split(' ').map(|word| word.parse().expect("a number")).collect::<Vec<u64>>()[..]
            else {
                panic!("{truth}")
            };
            let of = |path| number(&info, path);
            assert_eq!((of("/allocations/count"), of("/allocations/bytes")), (allocs, bytes), "{source} {how:?}");
            assert_eq!((of("/events/free"), of("/events/realloc")), (frees, reallocs), "{source} {how:?}");
            assert_eq!((of("/leaked/count"), of("/leaked/bytes")), (live, live_bytes), "{source} {how:?}");
        }
    }
}

/// A run without `LD_PRELOAD`: with or without a variable that asks for a recording.
fn trial(program: &Path, traced: bool) -> (Output, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut command = Command::new(program);
    command.current_dir(folder.path());
    if traced {
        command.env("TRACEHOUND_LOG", "warn");
    }
    (unless_busy(|| command.output()).expect("the program can be started"), folder)
}

#[test]
fn a_project_takes_the_crate_in() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file can be written");
    let manifest = format!(
        "[package]\nname = \"app\"\nedition = \"2024\"\n[dependencies]\ntracehound = {{ path = \"{}\" }}\n\
         [profile.release]\nstrip = true\npanic = \"abort\"\n[workspace]\n",
        root().join("bindings/rust").display()
    );
    write("Cargo.toml", &manifest);
    std::fs::create_dir(folder.path().join("src")).expect("a folder can be made");
    write(
        "src/main.rs",
        "#[global_allocator]\nstatic ALLOCATOR: tracehound::Allocator = tracehound::Allocator::system();\n\
         fn main() {\n    for size in 1..=100 {\n        std::mem::forget(vec![0_u8; 10_000 + size]);\n    }\n}\n",
    );
    let [_, archive] = link_flags();
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--release", "--quiet", "--offline"]).current_dir(folder.path());
    command.env("TRACEHOUND_LIB_DIR", Path::new(&archive).parent().expect("a folder"));
    command.env("RUSTFLAGS", "-Ctarget-feature=+crt-static").env_remove("CARGO_TARGET_DIR");
    let output = command.output().expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (output, run) = run(&folder.path().join("target/release/app"), &[]);
    assert!(output.status.success(), "{output:?}");
    let events = dump(&run.path().join("x.dat"));
    let zeroed = |event: &&serde_json::Value| {
        event["function"] == "calloc" && (10_001..=10_100).contains(&event["size"].as_u64().unwrap_or(0))
    };
    assert_eq!(events.iter().filter(zeroed).count(), 100);
}
