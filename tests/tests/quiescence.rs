//! Fork, exec, exit and stop while other threads are in the middle of anything: nothing is lost in silence, and nothing
//! waits without end.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tracehound_tests::ground_truth::Case;
use tracehound_tests::ledger::Ledger;
use tracehound_tests::{compile, json, library, number};

/// The library whose fork handlers take a mutex.
fn handlers() -> PathBuf {
    compile("atfork_locks.c", &["-shared", "-fPIC", "-DHANDLERS"])
}

/// A followed fork whose handlers wait for a mutex that allocating threads hold: all that the parent does is recorded, and
/// every child has a recording.
fn forks_with_handlers(case: &Case, forks: usize) {
    let run = case.clone().option("CHILDREN", "1").agrees();
    let children: Vec<_> = run.traced.recordings().into_iter().filter(|path| *path != run.recording).collect();
    assert_eq!(children.len(), forks, "{children:?}");
    for child in children {
        let info = case.sound(&child, "exit");
        assert_eq!(Ledger::of(&child).blocks.iter().filter(|block| block.size == 7777).count(), 1, "{info:#}");
    }
}

#[test]
fn a_followed_fork_waits_for_no_handler_of_the_program() {
    forks_with_handlers(&Case::new("atfork_locks.c").args(&["own", "6"]), 6);
}

#[test]
fn a_followed_fork_waits_for_no_handler_of_a_library() {
    // Initialised before the recorder, after it, and between the two.
    let case = Case::new("atfork_locks.c").args(&["library", "6"]);
    forks_with_handlers(&case.clone().preloads(handlers()), 6);
    forks_with_handlers(&case.preloads_first(handlers()), 6);
    let folder = handlers().parent().expect("a folder").to_path_buf();
    let name = handlers().file_name().expect("a name").to_string_lossy().into_owned();
    let flags = ["-O1", &format!("-L{}", folder.display()), &format!("-l:{name}")].map(str::to_owned);
    let linked = compile("atfork_locks.c", &flags.each_ref().map(String::as_str));
    let case = Case::command(linked).args(&["library", "6"]);
    forks_with_handlers(&case.variable("LD_LIBRARY_PATH", &folder.display().to_string()), 6);
}

#[test]
fn allocators_with_fork_handlers_of_their_own_are_followed() {
    for allocator in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let path = Path::new("/usr/lib/x86_64-linux-gnu").join(allocator);
        if path.exists() {
            forks_with_handlers(&Case::new("atfork_locks.c").args(&["own", "4"]).preloads(path), 4);
        } else {
            eprintln!("{allocator} is not installed");
        }
    }
}

#[test]
fn a_storm_of_followed_forks() {
    let run = Case::new("fork_storm.c").option("CHILDREN", "1").agrees();
    let children: Vec<_> = run.traced.recordings().into_iter().filter(|path| *path != run.recording).collect();
    assert_eq!(children.len(), 40, "{children:?}");
    for child in children {
        let info = json(&["info"], &child);
        assert_eq!((&info["complete"], &info["end"]), (&true.into(), &"exit".into()), "{info:#}");
        let own = Ledger::of(&child).blocks.iter().filter(|block| block.size == 6543).count();
        assert_eq!(own, 100, "{info:#}");
    }
}

#[test]
fn a_fork_in_a_signal_handler_is_followed() {
    // The C library's allocator cannot be forked from a handler that interrupts it where there are several threads.
    let allocator = compile("simple_allocator.c", &["-shared", "-fPIC", "-O1"]);
    for _ in 0..4 {
        let case = Case::new("fork_in_handler.c").preloads(&allocator).option("CHILDREN", "1");
        let run = case.cut_stacks().agrees();
        let children: Vec<_> = run.traced.recordings().into_iter().filter(|path| *path != run.recording).collect();
        assert_eq!(children.len(), 5, "{children:?}");
        for child in children {
            let info = json(&["info"], &child);
            assert_eq!((&info["complete"], &info["end"]), (&true.into(), &"exit".into()), "{info:#}");
            let own = Ledger::of(&child).blocks.iter().filter(|block| block.size == 5002).count();
            assert_eq!(own, 1000, "{info:#}");
        }
    }
}

/// What the threads of `end_counted.c` had counted, allocations and frees, and what of it is recorded.
fn ends_counted(how: &str, ends: &str) {
    const THREADS: u64 = 3;
    for _ in 0..6 {
        let case = Case::new("end_counted.c").args(&["counters", how, &THREADS.to_string()]).option("CHILDREN", "0");
        let run = case.run(true);
        let file = File::open(run.folder.path().join("counters")).expect("the counters are there");
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, 0).expect("the counters can be read");
        let at = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"));
        let sum = |word: usize| (0..=THREADS as usize).map(|i| at(i * 128 + word * 8)).sum::<u64>();
        let info = json(&["info"], &run.recordings()[0]);
        assert_eq!(info["end"], ends, "{info:#}");
        assert_eq!(info["complete"], true, "{info:#}");
        let recorded = ["alloc", "free"].map(|kind| number(&info, &format!("/events/{kind}")));
        // A thread has at most one event that it has not counted; the loader allocates for each thread.
        for (found, counted) in recorded.into_iter().zip([sum(0), sum(1)]) {
            let more = counted..=counted + 2 * THREADS + 3;
            assert!(more.contains(&found), "{how}: {counted} were counted, {found} recorded: {info:#}");
        }
    }
}

#[test]
fn nothing_that_completed_before_an_exec_is_missing() {
    ends_counted("exec", "exec");
}

#[test]
fn nothing_that_completed_before_an_exit_is_missing() {
    ends_counted("exit", "exit");
    ends_counted("_exit", "exit");
}

#[test]
fn nothing_that_completed_before_an_exit_in_a_handler_is_missing() {
    ends_counted("handler", "exit");
}

/// A program whose disk holds every write of its recording up for five seconds.
fn on_a_stuck_disk(program: &str, args: &[&str]) -> (Vec<Value>, String) {
    let (slow_disk, program) = (compile("slow_disk.c", &["-O1"]), compile(program, &["-O1"]));
    let mut all = vec!["5000000", "report", program.to_str().expect("a path in UTF-8")];
    all.extend(args);
    let case = Case::command(&slow_disk).args(&all);
    let run = case.variable("SLOW_PRELOAD", library().to_str().expect("a path in UTF-8")).run(false);
    (run.recordings().iter().map(|recording| json(&["info"], recording)).collect(), run.stderr)
}

fn gave_up(info: &Value, words: &str) -> bool {
    let remarks = info["remarks"].as_array().into_iter().flatten();
    remarks.filter(|remark| remark["topic"] == "gave-up").any(|remark| remark["text"].to_string().contains(words))
}

#[test]
fn an_exit_does_not_wait_for_a_stuck_disk() {
    for how in ["exit", "_exit"] {
        let (infos, stderr) = on_a_stuck_disk("end_counted.c", &["counters", how, "2"]);
        let info = &infos[0];
        assert_eq!(info["end"], "exit", "{info:#}");
        assert!(gave_up(info, "exit the writer did not answer"), "{info:#}");
        assert!(number(info, "/events/alloc") > 1000, "{info:#}");
        assert_eq!(number(info, "/events/lost"), 0, "{info:#}");
        assert_eq!(stderr.lines().filter(|line| line.contains("did not take it within")).count(), 1, "{stderr}");
    }
}

#[test]
fn an_exec_does_not_wait_for_a_stuck_disk() {
    let (infos, stderr) = on_a_stuck_disk("end_counted.c", &["counters", "exec", "2"]);
    let info = &infos[0];
    assert_eq!(info["end"], "exec", "{info:#}");
    assert!(gave_up(info, "exec the writer did not answer"), "{info:#}");
    assert!(number(info, "/events/alloc") > 1000, "{info:#}");
    assert_eq!(stderr.lines().filter(|line| line.contains("did not take it within")).count(), 1, "{stderr}");
}
