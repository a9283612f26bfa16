//! Programs of the musl C library: their own books agree with the recording, as those of glibc's programs do.
//! Most of it needs what `make dist` builds.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tracehound_tests::attached::Program;
use tracehound_tests::ground_truth::Case;
use tracehound_tests::musl::{FLAG, recorder};
use tracehound_tests::{Traced, compile, heaptrace, json, library, number};

/// musl has no unwind information: the stacks end there, which is counted.
fn case(source: &str, args: &[&str]) -> Case {
    Case::compiled(source, &["-O1", FLAG, "-ldl"]).args(args).recorder(recorder()).cut_stacks()
}

#[track_caller]
fn agree(programs: &[(&str, &[&str])]) {
    for (source, args) in programs {
        case(source, args).agrees();
    }
}

#[test]
fn they_have_musl() {
    let program = compile("nothing.c", &["-O1", FLAG, "-ldl"]);
    let output = Command::new("readelf").args(["-lW"]).arg(program).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("/lib/ld-musl-x86_64.so.1"));
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn the_whole_family_and_its_edges() {
    agree(&[("family.c", &[]), ("edges.c", &[]), ("realloc_chain.c", &[]), ("sizes.c", &[]), ("maps.c", &[])]);
    agree(&[("many_maps.c", &[]), ("errno_kept.c", &[]), ("limits.c", &[])]);
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn threads() {
    agree(&[("threads_short.c", &[]), ("threads_48.c", &[]), ("cross_free.c", &[]), ("thread_names.c", &[])]);
    agree(&[("key_destructors.c", &[]), ("cancel.c", &[]), ("first_leaves.c", &[]), ("counts_threads.c", &[])]);
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn forks_and_ends() {
    // Not fork_in_handler.c: with two threads musl's fork waits for the lock of its malloc that the handler interrupted, and
    // the recorder's thread is the second.
    agree(&[("fork_plain.c", &[]), ("fork_in_thread.c", &[]), ("fork_storm.c", &[])]);
    agree(&[("atfork.c", &[]), ("vfork.c", &[]), ("clone_storage.c", &[]), ("spawn.c", &[])]);
    case("atfork_allocator.c", &["5", "3"]).option("CHILDREN", "1").within(Duration::from_secs(60)).agrees();
    for end in ["exit", "_exit", "quick_exit", "pthread_exit"] {
        case("exit_with_threads.c", &[end]).agrees();
    }
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn children_are_followed_through_fork_and_exec() {
    case("exec_self.c", &[]).ends("exec").agrees();
    case("exec_self.c", &["thread"]).ends("exec").agrees();
    let run = case("exec_self.c", &[]).option("CHILDREN", "1").run(true);
    assert!(run.recordings().len() > 1, "{:?}", run.recordings());
    let run = case("fork_plain.c", &[]).option("CHILDREN", "1").run(true);
    assert!(run.recordings().len() > 1, "{:?}", run.recordings());
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn signals_and_stacks_that_change() {
    agree(&[("signals.c", &[]), ("longjmp.c", &[]), ("altstack.c", &[]), ("depth.c", &["5000"])]);
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn a_kill_loses_nothing() {
    case("fatal.c", &["9"]).ends("killed").agrees();
}

fn plugin(name: &str, size: u32) -> String {
    let flags = ["-shared", "-fPIC", FLAG, &format!("-DNAME={name}"), &format!("-DSIZE={size}")];
    compile("plugin.c", &flags).to_str().expect("a plain path").to_owned()
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn libraries_that_are_opened() {
    case("dlopen_cycle.c", &[&plugin("one", 3000), &plugin("two", 4000)]).agrees();
    case("dlopen_once.c", &[&plugin("one", 3000), "now"]).agrees();
}

fn run(program: &Path, library: &Path) -> (Traced, bool) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(heaptrace());
    command.args(["run", "--"]).arg(program).current_dir(folder.path()).env("TRACEHOUND_LIBRARY", library);
    let output = command.output().unwrap();
    let succeeded = output.status.success();
    (Traced { folder, output }, succeeded)
}

#[test]
#[ignore = "builds the library that is shipped by zig, minutes: make systems"]
fn heaptrace_runs_them_and_says_if_it_cannot() {
    let program = compile("five.c", &["-O1", FLAG]);
    let (traced, succeeded) = run(&program, &recorder());
    assert!(succeeded, "{}", traced.stderr());
    assert_eq!(number(&json(&["info"], &traced.recording()), "/allocations/count"), 5);

    let (refused, succeeded) = run(&program, &library());
    assert!(!succeeded && refused.stderr().contains("uses the musl C library, and "), "{}", refused.stderr());
}

#[test]
fn attach_refuses_them_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(compile("attached.c", &["-O1", FLAG]));
    command.arg("1");
    let program = Program::from(command, folder);
    let output = Command::new(heaptrace()).args(["attach", &program.pid()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("uses musl"), "{said}");
    assert_eq!(program.rest(), "errors 0\n");
}
