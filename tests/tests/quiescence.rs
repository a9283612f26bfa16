//! Fork, exec, exit and stop while other threads are in the middle of anything: nothing is lost in silence, and nothing
//! waits without end.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tracehound_format::block::{BlockHeader, BlockKind};
use tracehound_format::header::FileHeader;
use tracehound_format::meta::{Frames, Meta, decode_body};
use tracehound_tests::ground_truth::{Case, LIMIT};
use tracehound_tests::ledger::Ledger;
use tracehound_tests::{compile, json, library, number, wait_for};

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
    for _ in 0..6 {
        let case = Case::new("fork_in_handler.c").preloads(&allocator).option("CHILDREN", "1");
        let run = case.cut_stacks().agrees();
        let children: Vec<_> = run.traced.recordings().into_iter().filter(|path| *path != run.recording).collect();
        assert_eq!(children.len(), 5, "{children:?}");
        for child in children {
            let info = json(&["info"], &child);
            assert_eq!((&info["complete"], &info["end"]), (&true.into(), &"exit".into()), "{info:#}");
            // The event that the handler has interrupted is both processes', or the child has inherited it.
            assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{info:#}");
            let ledger = Ledger::of(&child);
            assert_eq!(ledger.faults, Vec::<String>::new());
            let own = ledger.blocks.iter().filter(|block| block.size == 5002).count();
            assert_eq!(own, 1000, "{info:#}");
        }
    }
}

/// The interrupted event goes on in a child that is not recorded, too.
#[test]
fn a_fork_in_a_signal_handler_is_harmless_where_it_is_not_followed() {
    let allocator = compile("simple_allocator.c", &["-shared", "-fPIC", "-O1"]);
    for _ in 0..6 {
        let run = Case::new("fork_in_handler.c").preloads(&allocator).cut_stacks().agrees();
        assert_eq!(run.traced.recordings().len(), 1);
    }
}

/// What the threads of `end_counted.c` had counted, allocations and frees, and what of it is recorded.
fn ends_counted(how: &str, ends: &str) {
    const THREADS: u64 = 3;
    for _ in 0..6 {
        let case = Case::new("end_counted.c").args(&["counters", how, &THREADS.to_string()]).option("CHILDREN", "0");
        let run = case.run(true);
        let info = json(&["info"], &run.recordings()[0]);
        assert_eq!(info["end"], ends, "{info:#}");
        assert_eq!(info["complete"], true, "{info:#}");
        assert_counted(how, &info, &run.folder.path().join("counters"), THREADS);
    }
}

/// What the threads of `end_counted.c` have counted is recorded.
fn assert_counted(how: &str, info: &Value, counters: &Path, threads: u64) {
    let file = File::open(counters).expect("the counters are there");
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, 0).expect("the counters can be read");
    let at = |offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"));
    let sum = |word: usize| (0..=threads as usize).map(|i| at(i * 128 + word * 8)).sum::<u64>();
    let recorded = ["alloc", "free"].map(|kind| number(info, &format!("/events/{kind}")));
    // A thread has at most one event that it has not counted; the loader allocates for each thread.
    for (found, counted) in recorded.into_iter().zip([sum(0), sum(1)]) {
        let more = counted..=counted + 2 * threads + 3;
        assert!(more.contains(&found), "{how}: {counted} were counted, {found} recorded: {info:#}");
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
    on_a_slow_disk("5000000", program, args, library().to_str().expect("a path in UTF-8"))
}

/// A program whose disk holds every write up for so many microseconds, with these libraries preloaded.
fn on_a_slow_disk(holds_us: &str, program: &str, args: &[&str], preload: &str) -> (Vec<Value>, String) {
    let (slow_disk, program) = (compile("slow_disk.c", &["-O1"]), compile(program, &["-O1"]));
    let mut all = vec![holds_us, "report", program.to_str().expect("a path in UTF-8")];
    all.extend(args);
    let case = Case::command(&slow_disk).args(&all);
    let run = case.variable("SLOW_PRELOAD", preload).run(false);
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
        assert_eq!(
            stderr.lines().filter(|line| line.contains("did not accept the end of the recording within")).count(),
            1,
            "{stderr}"
        );
    }
}

/// The program's own code does not wait for a disk that takes the first block late, and the recording says so.
#[test]
fn a_start_does_not_wait_for_a_slow_disk() {
    let library = library();
    let preload = library.to_str().expect("a path in UTF-8");
    let (infos, _) = on_a_slow_disk("800000", "end_counted.c", &["counters", "exit", "0"], preload);
    let info = &infos[0];
    assert!(gave_up(info, "start the writer did not answer"), "{info:#}");
    assert_eq!((&info["end"], number(info, "/events/lost")), (&"exit".into(), 0), "{info:#}");
}

#[test]
fn an_exec_does_not_wait_for_a_stuck_disk() {
    let (infos, stderr) = on_a_stuck_disk("end_counted.c", &["counters", "exec", "2"]);
    let info = &infos[0];
    assert_eq!(info["end"], "exec", "{info:#}");
    assert!(gave_up(info, "exec the writer did not answer"), "{info:#}");
    assert!(number(info, "/events/alloc") > 1000, "{info:#}");
    assert_eq!(
        stderr.lines().filter(|line| line.contains("did not accept the end of the recording within")).count(),
        1,
        "{stderr}"
    );
}

/// The disk is stuck, an exec does not wait for it and fails: everything is recorded on.
#[test]
fn a_failed_exec_on_a_stuck_disk_loses_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let counters = folder.path().join("counters");
    let (infos, stderr) =
        on_a_stuck_disk("end_counted.c", &[counters.to_str().expect("a path in UTF-8"), "badexec", "2"]);
    assert_eq!(infos.len(), 1, "{stderr}");
    let info = &infos[0];
    assert_eq!(info["end"], "exit", "{info:#}");
    // That the exec did not wait either is reported when the disk comes back, which it does not.
    assert!(gave_up(info, "exit the writer did not answer"), "{info:#}");
    assert_eq!(stderr.lines().filter(|line| line.contains("before exec")).count(), 1, "{stderr}");
    assert_eq!(number(info, "/events/lost"), 0, "{info:#}");
    assert_counted("badexec", info, &counters, 2);
}

/// A program without a thread of ours, which the C library refuses to make: its own thread writes at the end, and waits
/// for the write that it is in, but for no further one.
#[test]
fn an_end_without_a_writers_thread_is_bounded() {
    let refuses = compile("no_threads.c", &["-shared", "-fPIC", "-O1"]);
    let preload = format!("{}:{}", library().display(), refuses.display());
    let (infos, stderr) = on_a_slow_disk("5000000", "end_counted.c", &["counters", "exit", "0"], &preload);
    let info = &infos[0];
    assert_eq!(info["end"], "exit", "{info:#}");
    assert!(gave_up(info, "exit the writer did not answer"), "{info:#}");
    assert_eq!(
        stderr.lines().filter(|line| line.contains("did not accept the end of the recording within")).count(),
        1,
        "{stderr}"
    );
    // On a quick disk there is nothing to say.
    let run = Case::new("end_counted.c").args(&["counters", "exit", "0"]).preloads(&refuses).run(true);
    let info = json(&["info"], &run.recordings()[0]);
    assert_eq!((&info["complete"], &info["end"]), (&true.into(), &"exit".into()), "{info:#}");
    let remarks = info["remarks"].as_array().into_iter().flatten();
    assert_eq!(remarks.filter(|remark| remark["topic"] == "no-writer-thread").count(), 1, "{info:#}");
}

/// `daemon` ends the recording of the process that calls it, and waits for no thread that would wait for that end: fork
/// handlers of the program take a mutex that allocating threads hold.
#[test]
fn a_daemon_waits_for_no_handler_of_the_program() {
    for follow in ["0", "1"] {
        let case = Case::new("atfork_locks.c").args(&["daemon", "1"]).option("CHILDREN", follow);
        let traced = case.run(true);
        let took = traced.folder.path().join("took");
        wait_for("the daemon", LIMIT, || took.exists());
        let took: f64 = std::fs::read_to_string(took).expect("it can be read").parse().expect("a number");
        eprintln!("daemon took {took} s");
        let info = json(&["info"], &traced.recordings_of(traced.pid)[0]);
        assert_eq!((&info["complete"], &info["end"]), (&true.into(), &"exec".into()), "{info:#}");
        assert!(!gave_up(&info, "hold"), "{info:#}");
        assert_eq!(traced.recordings().len(), if follow == "1" { 2 } else { 1 });
    }
}

/// An exec and an exit beside more busy threads than there are processors are bounded in time, and lose nothing: what the
/// writer has no time for is in the side file.
#[test]
fn ends_beside_busy_threads_are_bounded() {
    const THREADS: u64 = 8;
    for how in ["exec", "exit", "_exit"] {
        let case = Case::new("end_counted.c").args(&["counters", how, &THREADS.to_string()]);
        let run = case.run(true);
        let ended = monotonic();
        let counters = run.folder.path().join("counters");
        let file = File::open(&counters).expect("the counters are there");
        let mut began = [0; 8];
        file.read_exact_at(&mut began, 4088).expect("the counters can be read");
        let took = ended.saturating_sub(Duration::from_nanos(u64::from_le_bytes(began)));
        eprintln!("{how} took {took:?}");
        // The longest end is 10 s, and its last part may begin at that time.
        assert!(took < Duration::from_secs(20), "{how} took {took:?}");
        let info = json(&["info"], &run.recordings()[0]);
        assert_eq!(info["complete"], true, "{info:#}");
        assert_counted(how, &info, &counters, THREADS);
    }
}

/// CLOCK_MONOTONIC.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A live reader never reads that everything up to a time is in the file when an event of before that time may still
/// come: here a realloc is stamped, and its thread is interrupted by a handler that allocates and takes its time.
#[test]
fn no_event_comes_behind_its_watermark() {
    let allocator = compile("slow_allocator.c", &["-shared", "-fPIC", "-O1"]);
    for _ in 0..4 {
        let case = Case::compiled("slow_realloc.c", &["-O1"]).preloads(&allocator);
        let run = case.agrees();
        let (watermarks, late) = watermarks(&run.recording);
        assert!(watermarks > 2, "{watermarks} watermarks");
        assert_eq!(late, 0, "blocks with events of before a watermark behind it");
    }
}

/// A handler interrupts a realloc that has given the old block back, and its own blocks get that address: the recording
/// has their events before those of the realloc, and the reader puts the old block's end where it belongs.
#[test]
fn a_handler_gets_the_address_of_a_block_that_is_being_moved() {
    let allocator = compile("slow_allocator.c", &["-shared", "-fPIC", "-O1"]);
    // The second time a block of the file ends between a handler's events and those of the realloc.
    for args in [&[][..], &["flush"]] {
        let case = Case::compiled("realloc_reuse.c", &["-O1"]).args(args);
        let run = case.preloads(&allocator).agrees();
        let info = json(&["info"], &run.recording);
        assert_eq!(info["complete"], true, "{args:?} {info:#}");
        assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{args:?} {info:#}");
        assert_eq!(number(&info, "/recorder/clock_quality/order_violations"), 0, "{args:?} {info:#}");
    }
}

/// How many watermarks a recording has, and how many blocks of events stand behind one that they are not behind in time.
fn watermarks(path: &Path) -> (usize, usize) {
    let bytes = std::fs::read(path).expect("the recording can be read");
    let (mut at, mut count, mut late, mut last) = (FileHeader::LEN, 0, 0, 0);
    let (mut raw, no_zstd) = (Vec::new(), |_: &[u8], _, _: &mut Vec<u8>| Err("zstd is not asked for".to_owned()));
    while at < bytes.len() {
        let header = BlockHeader::decode(&bytes[at..]).expect("a whole recording");
        let payload = at + BlockHeader::LEN;
        at = payload + header.stored_len as usize;
        match header.kind {
            BlockKind::Events if header.first_tick < last => late += 1,
            BlockKind::Meta => {
                header.open_payload(&bytes[payload..at], &mut raw, no_zstd).expect("a whole block");
                for frame in Frames::new(&raw) {
                    let (tag, body) = frame.expect("a whole record");
                    if let Ok(Some(Meta::Watermark(watermark))) = decode_body(tag, body) {
                        (last, count) = (watermark.tick, count + 1);
                    }
                }
            }
            _ => {}
        }
    }
    (count, late)
}
