//! The library that is shipped, on other C libraries than this machine's: programs are compiled for glibc 2.31 and 2.41 and
//! run with these; their own books agree with the recording, and backtraces are exact.

use std::path::PathBuf;
use std::process::Command;

use tracehound_tests::ground_truth::Case;
use tracehound_tests::shipped::{flag_for, other_system, shipped_library};
use tracehound_tests::{Traced, compile, root, stated_stacks};

/// Debian's releases, and the glibc that each has.
const SYSTEMS: [(&str, &str); 2] = [("bullseye", "2.31"), ("trixie", "2.41")];

fn recorder() -> PathBuf {
    shipped_library("libtracehound.so")
}

fn case(system: &str, source: &str, args: &[&str]) -> Case {
    Case::compiled(source, &["-O1", &flag_for(system), "-ldl"]).args(args).recorder(recorder())
}

/// On both systems, and with the library that is shipped on this one.
#[track_caller]
fn agree_everywhere(programs: &[(&str, &[&str])]) {
    for (source, args) in programs {
        for (system, _) in SYSTEMS {
            case(system, source, args).agrees();
        }
        Case::new(source).args(args).recorder(recorder()).agrees();
    }
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn what_is_shipped_needs_glibc_2_17_and_no_other_library() {
    let library = recorder();
    let output = Command::new(root().join("packaging/needs.py")).args(["--at-most", "2.17"]).arg(&library).output();
    let output = output.expect("python3 is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A gate that can close.
    let output = Command::new(root().join("packaging/needs.py")).args(["--at-most", "2.16"]).arg(&library).output();
    assert!(!output.expect("python3 is there").status.success());
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn programs_have_the_c_library_that_they_are_made_for() {
    for (system, version) in SYSTEMS {
        let program = compile("nothing.c", &["-O1", &flag_for(system), "-ldl"]);
        let loader = other_system(system).join("lib64/ld-linux-x86-64.so.2");
        let output = Command::new(loader).arg("--list").arg(program).output().expect("the loader can be started");
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let libc = listed.lines().find_map(|line| line.split_once("libc.so.6 => ")?.1.split(' ').next());
        let libc = std::fs::read(libc.expect("it has a C library")).expect("it can be read");
        let wanted = format!("GLIBC {version}");
        assert!(libc.windows(wanted.len()).any(|bytes| bytes == wanted.as_bytes()), "{system} has not {version}");
    }
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn the_whole_family_and_its_edges() {
    agree_everywhere(&[
        ("family.c", &[]),
        ("edges.c", &[]),
        ("realloc_chain.c", &[]),
        ("sizes.c", &[]),
        ("maps.c", &[]),
    ]);
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn threads() {
    agree_everywhere(&[
        ("threads_short.c", &[]),
        ("cross_free.c", &[]),
        ("thread_names.c", &[]),
        ("key_destructors.c", &[]),
        ("small_stacks.c", &[]),
        ("cancel.c", &[]),
        ("counts_threads.c", &[]),
    ]);
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn forks_and_ends() {
    agree_everywhere(&[
        ("fork_plain.c", &[]),
        ("fork_in_thread.c", &[]),
        ("fork_storm.c", &[]),
        ("atfork.c", &[]),
        ("vfork.c", &[]),
        ("clone_storage.c", &[]),
        ("spawn.c", &[]),
        ("exit_with_threads.c", &["exit"]),
        ("exit_with_threads.c", &["_exit"]),
        ("exit_with_threads.c", &["quick_exit"]),
        ("exit_with_threads.c", &["pthread_exit"]),
    ]);
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn signals_and_stacks_that_change() {
    agree_everywhere(&[
        ("signals.c", &[]),
        ("longjmp.c", &[]),
        ("ucontext.c", &[]),
        ("depth.c", &["5000"]),
        ("ifunc.c", &[]),
    ]);
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn exec_ends_one_recording_and_begins_another() {
    for (system, _) in SYSTEMS {
        case(system, "exec_self.c", &[]).ends("exec").agrees();
        case(system, "exec_self.c", &["thread"]).ends("exec").agrees();
        let run = case(system, "exec_self.c", &[]).option("CHILDREN", "1").run(true);
        assert!(run.recordings().len() > 1, "{system}: {:?}", run.recordings());
    }
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn libraries_that_come_and_go() {
    for (system, _) in SYSTEMS {
        let plugin = |name: &str, size: u32| {
            let flags = ["-shared", "-fPIC", &flag_for(system), &format!("-DNAME={name}"), &format!("-DSIZE={size}")];
            compile("plugin.c", &flags).to_str().expect("a plain path").to_owned()
        };
        case(system, "dlopen_cycle.c", &[&plugin("one", 3000), &plugin("two", 4000)]).agrees();
    }
}

/// glibc finds the object around an address without a lock since 2.35. Before, the recorder's own table must do.
#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn backtraces_are_those_of_libgcc() {
    for (system, _) in SYSTEMS {
        let flag = flag_for(system);
        let library = compile("holes_library.c", &["-O2", "-shared", "-fPIC", &flag]);
        let program = compile("holes.c", &["-O2", &flag, "-ldl"]);
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut command = Command::new(program);
        command.arg(library).current_dir(folder.path()).env("LD_PRELOAD", recorder());
        let output = command.output().expect("the program can be started");
        let traced = Traced { folder, output };
        assert_eq!(stated_stacks::agrees(&traced), 40, "{system}: {}", traced.stderr());
        let info = traced.info();
        let stacks = &info["recorder"]["stacks"];
        assert_eq!((&stacks["heuristic"], &stacks["truncated"], &stacks["missing"]), (&0.into(), &0.into(), &0.into()));
    }
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn a_kill_loses_nothing() {
    for (system, _) in SYSTEMS {
        case(system, "fatal.c", &["9"]).ends("killed").agrees();
    }
}
