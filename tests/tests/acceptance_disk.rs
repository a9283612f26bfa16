//! Disk and damage: the program goes on, the file opens, the loss is stated.

use std::path::Path;
use std::process::Command;

use tracehound_tests::ground_truth::{Case, Outcome};
use tracehound_tests::{compile, dump, json, library, number};

/// Runs `churn.c` on a file system of 1 MiB in a mount namespace of its own; what was recorded is copied out.
/// `None` where namespaces are not permitted.
fn on_a_small_disk(options: &str, traced: bool) -> Option<Outcome> {
    let permitted = Command::new("unshare").args(["-rm", "true"]).output().is_ok_and(|o| o.status.success());
    if !permitted {
        eprintln!("mount namespaces are not permitted here");
        return None;
    }
    let program = compile("churn.c", &["-O1"]);
    let preload = if traced { format!("LD_PRELOAD={}", library().display()) } else { String::new() };
    let script = format!(
        "mkdir small && mount -t tmpfs -o size=1m none small && cd small || exit 90; \
         env {options} {preload} {} 3000; code=$?; cp -- *.dat *.live .. 2>/dev/null; exit $code",
        program.display()
    );
    Some(Case::command("unshare").args(&["-rm", "sh", "-c", script.as_str()]).run(false))
}

#[test]
fn a_full_disk_stops_the_recording_not_the_program() {
    let Some(plain) = on_a_small_disk("", false) else { return };
    let Some(traced) = on_a_small_disk("", true) else { return };
    assert_eq!(traced.status, plain.status, "{}", traced.stderr);
    assert_eq!(traced.stdout, plain.stdout, "{}", traced.stderr);
    assert_eq!(traced.stderr.lines().count(), 1, "{}", traced.stderr);
    let recordings = traced.recordings();
    assert_eq!(recordings.len(), 1, "{recordings:?}");
    let info = json(&["info"], &recordings[0]);
    assert_eq!(info["complete"], false, "{info:#}");
    assert!(number(&info, "/allocations/count") > 0, "{info:#}");
    // What all threads did until then is there, in the file or beside it.
    for figure in ["/events/lost", "/recorder/unmatched_frees", "/recorder/clock_quality/order_violations"] {
        assert_eq!(number(&info, figure), 0, "{figure}: {info:#}");
    }
}

/// Where nothing at all can be written there is no recording, and nothing is left of the attempt.
#[test]
fn a_disk_that_is_full_before_gets_no_file() {
    let script = format!(
        "mount -t tmpfs -o size=16k none . && cd . && head -c 100000 /dev/zero >rest 2>/dev/null; cd \"$PWD\" || exit 90; \
         LD_PRELOAD={} {} 3000 || exit 91; ls",
        library().display(),
        compile("churn.c", &["-O1"]).display()
    );
    let run = Case::command("unshare").args(&["-rm", "sh", "-c", script.as_str()]).run(false);
    if run.stderr.contains("unshare") {
        eprintln!("mount namespaces are not permitted here");
        return;
    }
    assert!(run.status.success(), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.ends_with("\nrest\n"), "{}", run.stdout);
    assert!(run.stderr.lines().count() == 1 && run.stderr.contains("runs unrecorded"), "{}", run.stderr);
}

#[test]
fn a_deleted_folder_does_not_disturb_the_program() {
    let script = format!(
        "mkdir gone && cd gone || exit 90; (sleep 0.1; rm -r ../gone) & LD_PRELOAD={} exec {} 3000",
        library().display(),
        compile("churn.c", &["-O1"]).display()
    );
    let run = Case::command("sh").args(&["-c", script.as_str()]).run(false);
    let plain = Case::new("churn.c").args(&["3000"]).run(false);
    assert_eq!(run.status, plain.status, "{}", run.stderr);
    assert_eq!(run.stdout, plain.stdout, "{}", run.stderr);
}

#[test]
fn dropping_by_choice_states_every_loss() {
    let case = Case::new("churn.c").args(&["3000"]).option("BUFFER", "1M").option("ON_FULL", "drop").any_stderr();
    let (_, traced) = case.unharmed();
    let info = json(&["info"], &traced.recordings()[0]);
    let said: Vec<u64> = traced.stdout.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let events = |kind: &str| number(&info, &format!("/events/{kind}"));
    // A realloc is one event. The loader's calloc for each of two threads comes on top.
    let all = events("alloc") + events("free") + events("realloc") + events("lost");
    assert_eq!(all, said[0] + said[2] + said[3] + 2, "{info:#}\n{said:?}");
}

#[test]
fn waiting_for_the_disk_is_counted() {
    let case = Case::new("churn.c").args(&["3000"]).option("BUFFER", "1M").option("COMPRESSION", "zstd");
    let (_, traced) = case.unharmed();
    let info = case.sound(&traced.recordings()[0], "exit");
    let said: Vec<u64> = traced.stdout.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    assert_eq!(number(&info, "/events/alloc"), said[0] + 2, "{info:#}");
    assert_eq!(number(&info, "/events/realloc"), said[3], "{info:#}");
    assert_eq!(number(&info, "/events/free"), said[2], "{info:#}");
    assert!(number(&info, "/recorder/wait_ns") > 0, "{info:#}");
}

/// `churn.c` with its recording on a disk that takes 30 ms longer for every write, in both ways of being full. Gives what
/// the program printed, the recording's `info`, and for how long the writes were held up, in nanoseconds.
fn on_a_slow_disk(on_full: &str) -> (Vec<u64>, Outcome, u64) {
    let (slow_disk, churn) = (compile("slow_disk.c", &["-O1"]), compile("churn.c", &["-O1"]));
    let args = ["30000", "report", churn.to_str().expect("a path in UTF-8"), "600"];
    let case = |preload: &Path| {
        Case::command(&slow_disk)
            .args(&args)
            .variable("SLOW_PRELOAD", preload.to_str().expect("a path in UTF-8"))
            .variable("TRACEHOUND_BUFFER", "1M")
            .variable("TRACEHOUND_ON_FULL", on_full)
    };
    let plain = case(Path::new("")).run(false);
    let traced = case(&library()).run(false);
    assert_eq!(plain.status.code(), Some(0), "{}", plain.stderr);
    assert_eq!((traced.status, &traced.stdout), (plain.status, &plain.stdout), "{}", traced.stderr);
    let report = std::fs::read_to_string(traced.folder.path().join("report")).expect("the report is there");
    let report: Vec<u64> = report.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [writes, bytes, held_ns] = report[..] else { panic!("{report:?}") };
    assert!(writes > 5 && bytes > 100_000 && held_ns >= writes * 30_000_000, "{report:?}");
    let said = traced.stdout.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    (said, traced, held_ns)
}

#[test]
fn a_slow_disk_is_waited_for_and_the_recording_says_how_long() {
    let (said, traced, held_ns) = on_a_slow_disk("wait");
    let info = json(&["info"], &traced.recordings()[0]);
    assert_eq!((&info["complete"], &info["end"]), (&true.into(), &"exit".into()), "{info:#}");
    assert_eq!(number(&info, "/events/lost"), 0, "{info:#}");
    // The loader's calloc for each of two threads comes on top.
    assert_eq!(number(&info, "/events/alloc"), said[0] + 2, "{info:#}");
    assert_eq!(number(&info, "/events/realloc"), said[3], "{info:#}");
    assert_eq!(number(&info, "/events/free"), said[2], "{info:#}");
    // Without the delays the program is done in a fraction of the time: nearly all of it some thread waits, and at most
    // all three do for as long as the recording takes.
    let (waited, lasted) = (number(&info, "/recorder/wait_ns"), number(&info, "/process/duration_ns"));
    assert!(waited > held_ns / 3, "waited {waited} ns, writes were held up for {held_ns} ns");
    assert!(waited <= 3 * lasted, "waited {waited} ns in {lasted} ns");
    let chunks = number(&info, "/recorder/chunk_memory_bytes");
    assert!(chunks <= 1 << 20, "{chunks} bytes of chunks");
}

#[test]
fn a_slow_disk_loses_what_is_dropped_by_choice_and_nothing_else() {
    let (said, traced, held_ns) = on_a_slow_disk("drop");
    let recording = &traced.recordings()[0];
    let info = json(&["info"], recording);
    let events = |kind: &str| number(&info, &format!("/events/{kind}"));
    assert!(events("lost") > 1000, "{info:#}");
    assert!(number(&info, "/recorder/wait_ns") < held_ns / 100, "{info:#}");
    let all = events("alloc") + events("free") + events("realloc") + events("lost");
    assert_eq!(all, said[0] + said[2] + said[3] + 2, "{info:#}\n{said:?}");
    let gaps: Vec<u64> = dump(recording).iter().filter(|e| e["kind"] == "lost").map(|e| number(e, "/count")).collect();
    assert_eq!(gaps.iter().sum::<u64>(), events("lost"), "{} gaps", gaps.len());
}

#[test]
fn a_recording_is_never_written_over() {
    let case = Case::new("family.c").option("OUTPUT", "same.dat").after("touch same.dat");
    let (_, traced) = case.unharmed();
    let recordings = traced.recordings();
    let sizes: Vec<u64> = recordings.iter().map(|path| Path::new(path).metadata().map_or(0, |m| m.len())).collect();
    assert_eq!(recordings.len(), 2, "{recordings:?}; {}", traced.stderr);
    assert!(sizes.contains(&0), "{sizes:?}");
}

#[test]
fn no_environment_is_in_the_recording() {
    let secret = "a-secret-of-the-environment-42";
    let run = Case::new("family.c").variable("SECRET_TOKEN", secret).option("COMPRESSION", "none").agrees();
    let bytes = std::fs::read(&run.recording).expect("the recording can be read");
    assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
}
