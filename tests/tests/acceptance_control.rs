//! Control: start and stop act at once, from inside and outside; marks have their labels, pools are allocators.

use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tracehound_tests::ground_truth::Case;
use tracehound_tests::{ask, compile, dump, heaptrace, json, number, wait_for};

#[test]
fn start_and_stop_by_the_api() {
    let run = Case::new("controlled.c").agrees();
    let captures = run.info["captures"].as_array().map_or(0, Vec::len);
    assert_eq!(captures, 2, "{:#}", run.info);
    // What was not to be recorded is a gap, and the recording is complete: all answers say the same.
    assert_eq!(run.info["complete"], true);
    let answer = ask(&["leaks"], &run.recording);
    let said = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(said.contains("the recording has gaps: it was stopped once, and started again"), "{said}");
    let labels: Vec<&str> =
        run.info["marks"].as_array().into_iter().flatten().filter_map(|mark| mark["label"].as_str()).collect();
    assert_eq!(labels, ["after the first", "after the second"]);
    // `info`, and with it the windows that begin at a mark, have the time of the event itself.
    let time = |mark: &Value| (mark["label"].as_str().map(str::to_owned), number(mark, "/t_ns"));
    let mut events = dump(&run.recording);
    events.retain(|event| event["kind"] == "mark");
    let said = run.info["marks"].as_array().into_iter().flatten();
    assert_eq!(said.map(time).collect::<Vec<_>>(), events.iter().map(time).collect::<Vec<_>>());
    // A mark is looked at, too: a message names both once.
    let refused = ask(&["top", "--from", "noon"], &run.recording);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    for label in labels {
        assert_eq!(said.matches(&format!("`{label}`")).count(), 1, "{said}");
    }
}

#[test]
fn off_at_the_start() {
    Case::new("controlled.c").args(&["off"]).option("START", "off").agrees();
}

#[test]
fn toggled_by_a_signal() {
    Case::new("toggled.c").option("TOGGLE_SIGNAL", "USR1").agrees();
}

#[test]
fn pools_are_recorded_block_by_block() {
    Case::new("pools.c").agrees();
}

/// Every event of the recording lies inside one of its captures.
fn all_inside(recording: &Path, info: &Value) {
    let captures: Vec<(u64, u64)> = info["captures"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|capture| (number(capture, "/from_ns"), number(capture, "/to_ns")))
        .collect();
    let mut events = 0;
    for event in dump(recording) {
        if matches!(event["kind"].as_str(), Some("alloc" | "free" | "realloc")) {
            let t_ns = number(&event, "/t_ns");
            assert!(
                captures.iter().any(|&(from, to)| (from..to).contains(&t_ns)),
                "{event} is outside of {captures:?}"
            );
            events += 1;
        }
    }
    assert!(events > 100, "{events} events");
}

#[test]
fn busy_threads_leave_nothing_of_a_stop() {
    for how in ["api", "signal"] {
        // Blocks that are freed or allocated while recording is stopped leave halves of their lives in the recording.
        let case = Case::new("phases.c").args(&[how]).option("TOGGLE_SIGNAL", "USR1").with_pauses();
        let run = case.run_and(true, |_, _| {});
        assert!(run.status.success(), "{how}: {}", run.stderr);
        let recording = run.recordings_of(run.pid).pop().expect("there is a recording");
        let info = case.sound(&recording, "exit");
        assert_eq!(info["captures"].as_array().map_or(0, Vec::len), 11, "{how}: {:#}", info["captures"]);
        all_inside(&recording, &info);
        let sizes: Vec<u64> = dump(&recording).iter().filter_map(|event| event["size"].as_u64()).collect();
        for round in 0..10 {
            let size = 1000 + round * 4;
            assert!(sizes.contains(&(size + 1)) && sizes.contains(&(size + 4)), "{how}: {round}");
            assert!(
                !sizes.contains(&(size + 2)),
                "{how}: a block of size {} was allocated while recording was stopped",
                size + 2
            );
        }
    }
}

/// `heaptrace ctl PID ARGS…`: whether it succeeded, and what it printed.
fn ctl(pid: u32, args: &[&str]) -> (bool, String) {
    let output = Command::new(heaptrace()).arg("ctl").arg(pid.to_string()).args(args).output().expect("heaptrace runs");
    let both = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&both).into_owned())
}

/// The same, which must succeed, as JSON.
fn ctl_json(pid: u32, args: &[&str]) -> Value {
    let (done, text) = ctl(pid, &[args, &["--json"]].concat());
    assert!(done, "{args:?}: {text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error} in {text}"))
}

#[test]
fn switched_and_marked_from_outside() {
    let mut words = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    words.write_all(&[0; 4096]).expect("a temporary file can be written");
    let path = words.path().to_str().expect("a plain path").to_owned();
    let file = words.reopen().expect("a temporary file can be opened");
    let phase = |phase: u64| {
        file.write_all_at(&phase.to_le_bytes(), 0).expect("the phase can be written");
        wait_for("the phase", Duration::from_secs(20), || {
            let mut seen = [0; 24];
            file.read_exact_at(&mut seen, 8).expect("the answers can be read");
            seen.chunks_exact(8).all(|word| word == phase.to_le_bytes())
        });
        std::thread::sleep(Duration::from_millis(30));
    };
    let case = Case::new("phases.c").with_pauses().args(&["file", &path]);
    let run = case.run_and(true, |pid, _| {
        phase(1);
        let send =
            |signal| kill_process(Pid::from_raw(pid.cast_signed()).expect("a process id"), signal).expect("sent");
        send(Signal::STOP);
        let (done, text) = ctl(pid, &["status"]);
        assert!(!done && text.contains("is stopped"), "{text}");
        send(Signal::CONT);
        let status = ctl_json(pid, &["status"]);
        assert_eq!((&status["schema"], &status["state"]), (&"heaptrace.ctl/1".into(), &"recording".into()));
        assert_eq!(number(&status, "/pid"), u64::from(pid));
        assert!(status["recording"].as_str().is_some_and(|path| path.ends_with(&format!("-{pid}.dat"))), "{status}");
        let flushed = number(&ctl_json(pid, &["flush"]), "/records");
        assert!(flushed > number(&status, "/records"), "{flushed} records, before {status}");
        assert_eq!(ctl_json(pid, &["stop"])["state"], "stopped");
        phase(2);
        let still = number(&ctl_json(pid, &["status"]), "/records");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(number(&ctl_json(pid, &["flush"]), "/records"), still);
        let (done, text) = ctl(pid, &["mark", "too early"]);
        assert!(!done && text.contains("stopped"), "{text}");
        phase(3);
        assert_eq!(ctl_json(pid, &["start"])["state"], "recording");
        phase(4);
        let (done, text) = ctl(pid, &["mark", "in the fourth"]);
        assert!(done && text.contains("in the fourth"), "{text}");
        assert!(ctl(pid, &["mark", "phase 4..5"]).0);
        // What is so already is no mistake.
        assert!(ctl(pid, &["start"]).0);
        phase(5);
        assert!(ctl(pid, &["stop"]).0);
        file.write_all_at(&99_u64.to_le_bytes(), 0).expect("the phase can be written");
    });
    assert!(run.status.success(), "{}", run.stderr);
    let recording = run.recordings_of(run.pid).pop().expect("there is a recording");
    let info = case.sound(&recording, "exit");
    let sizes =
        |size: u64| dump(&recording).iter().filter(|event| event["kind"] == "alloc" && event["size"] == size).count();
    assert_eq!([sizes(1002), sizes(1006)], [0, 0]);
    assert!(sizes(1001) > 10 && sizes(1004) > 10);
    assert_eq!(info["captures"].as_array().map_or(0, Vec::len), 2, "{:#}", info["captures"]);
    all_inside(&recording, &info);
    // The main thread and three busy ones; whoever asks from outside is none.
    assert!(number(&info, "/threads") <= 4, "{info}");
    let mark = &info["marks"][0];
    assert_eq!((mark["label"].as_str(), mark["thread"].as_u64()), (Some("in the fourth"), Some(0)));
    // Each capture is a window.
    let allocated = |window: &[&str]| {
        let table = ask(&[&["top", "--metric", "allocated", "--count"], window].concat(), &recording);
        assert!(table.status.success(), "{window:?}: {}", String::from_utf8_lossy(&table.stderr));
        String::from_utf8_lossy(&table.stdout).into_owned()
    };
    assert_ne!(allocated(&["--capture", "1"]), allocated(&["--capture", "2"]));
    assert_eq!(allocated(&["--capture", "2"]), allocated(&["--from", "capture:2", "--to", "capture:2"]));
    let refused = ask(&["top", "--capture", "3"], &recording);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("there are 2"), "{refused:?}");
    // Windows are read at their `..`, which a label may contain.
    let windows = |before: &str| {
        let output = ask(&["diff", "--metric", "allocated", "--before", before, "--after", "start..end"], &recording);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = windows("phase 4..5..end");
    assert!(code == Some(2) && said.contains("double quotes: `\"phase 4..5\"..end`"), "{said}");
    for window in ["\"phase 4..5\"..end", "\"in the fourth\"..\"phase 4..5\"", "start..phase 4..5"] {
        assert_eq!(windows(window).0, Some(0), "{window}: {}", windows(window).1);
    }
    // The socket went with the process.
    let (done, text) = ctl(run.pid, &["status"]);
    assert!(!done && text.contains("there is no process"), "{text}");
}

#[test]
fn the_socket_is_private_and_invisible() {
    let mut words = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    words.write_all(&[0; 4096]).expect("a temporary file can be written");
    let path = words.path().to_str().expect("a plain path").to_owned();
    let case = Case::new("phases.c").with_pauses().args(&["file", &path]).option("START", "paused");
    let run = case.run_and(true, |pid, _| {
        assert_eq!(ctl_json(pid, &["status"])["state"], "stopped");
        let user = rustix::process::geteuid().as_raw();
        let found: Vec<PathBuf> = tracehound_format::control::folders(user)
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
            .map(|entry| entry.path())
            .filter(|path| path.to_string_lossy().ends_with(&format!("-{pid}")))
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        let mode = |path: &Path| path.symlink_metadata().expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&found[0]), mode(found[0].parent().expect("a folder"))), (0o600, 0o700));
        // No socket among the program's own descriptors.
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").flatten() {
            let target = entry.path().read_link().unwrap_or_default();
            assert!(!target.to_string_lossy().starts_with("socket:"), "{target:?}");
        }
        // A client that says nothing, and one that talks nonsense, hold nobody up.
        let silent = connect(&found[0]);
        let nonsense = connect(&found[0]);
        rustix::net::send(&nonsense, &[7; 100], rustix::net::SendFlags::NOSIGNAL).expect("a message can be sent");
        assert_eq!(ctl_json(pid, &["start"])["state"], "recording");
        assert_eq!(ctl_json(pid, &["stop"])["state"], "stopped");
        drop((silent, nonsense));
        kill_process(Pid::from_raw(pid.cast_signed()).expect("a process id"), Signal::KILL).expect("it runs");
    });
    assert_eq!(run.status.signal(), Some(9));
    let recording = run.recordings_of(run.pid).pop().expect("there is a recording");
    let info = json(&["info"], &recording);
    assert_eq!(info["captures"].as_array().map_or(0, Vec::len), 1, "{:#}", info["captures"]);
}

fn connect(path: &Path) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
    connect(&socket, &SocketAddrUnix::new(path).expect("a short path")).expect("the recorder listens");
    socket
}

/// A stop from outside while threads sleep in signal handlers that have interrupted whatever they were at: it does not
/// wait for them, and what was complete before it is recorded, exactly that.
#[test]
fn a_stop_does_not_wait_for_threads_asleep_in_handlers() {
    const THREADS: u64 = 6;
    let allocator = compile("simple_allocator.c", &["-shared", "-fPIC", "-O1"]);
    for _ in 0..3 {
        let words = tempfile::NamedTempFile::new().expect("a temporary file can be made");
        words.as_file().set_len(4096).expect("it can be made larger");
        let path = words.path().to_str().expect("a plain path").to_owned();
        let file = words.reopen().expect("a temporary file can be opened");
        let word = |at: u64| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, at * 8).expect("the answers can be read");
            u64::from_le_bytes(bytes)
        };
        let phase = |phase: u64| file.write_all_at(&phase.to_le_bytes(), 0).expect("the phase can be written");
        let case = Case::new("asleep_in_handler.c").args(&[&path, &THREADS.to_string()]).preloads(&allocator);
        let case = case.with_pauses().cut_stacks();
        let mut counted = Vec::new();
        let run = case.run_and(true, |pid, _| {
            phase(1);
            wait_for("the handlers", Duration::from_secs(30), || word(1) == THREADS);
            counted = (0..THREADS).map(|i| [word(32 + 16 * i), word(33 + 16 * i)]).collect();
            assert_eq!(ctl_json(pid, &["stop"])["state"], "stopped");
            phase(2);
            wait_for("the loops", Duration::from_secs(30), || word(2) == THREADS);
            assert_eq!(ctl_json(pid, &["start"])["state"], "recording");
            phase(3);
        });
        assert!(run.status.success(), "{}", run.stderr);
        let recording = run.recordings_of(run.pid).pop().expect("there is a recording");
        let info = case.sound(&recording, "exit");
        let events = dump(&recording);
        let of = |kind: &str, size: u64| {
            let is = |event: &&Value| event["kind"] == kind && event["size"] == size;
            events.iter().filter(is).count() as u64
        };
        for (i, [allocs, frees]) in (0..).zip(counted) {
            // One event may be under way when the handler comes.
            let found = [of("alloc", 3000 + i), of("free", 3000 + i)];
            assert!((allocs..=allocs + 1).contains(&found[0]), "{found:?} of {allocs} and {frees}: {info:#}");
            assert!((frees..=frees + 1).contains(&found[1]), "{found:?} of {allocs} and {frees}: {info:#}");
            assert_eq!([of("alloc", 4000 + i), of("free", 4000 + i)], [1, 0], "{info:#}");
            assert_eq!(of("alloc", 6000 + i), 1000, "{info:#}");
        }
        assert_eq!(info["captures"].as_array().map_or(0, Vec::len), 2, "{:#}", info["captures"]);
    }
}

/// An end from outside while threads allocate without pause: all up to it is recorded, nothing behind it, and the program
/// goes on to its own end.
#[test]
fn ended_from_outside() {
    let mut words = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    words.write_all(&[0; 4096]).expect("a temporary file can be written");
    let path = words.path().to_str().expect("a plain path").to_owned();
    let phase = |phase: u64| {
        words.as_file().write_all_at(&phase.to_le_bytes(), 0).expect("the phase can be written");
        wait_for("the phase", Duration::from_secs(20), || {
            let mut seen = [0; 24];
            words.as_file().read_exact_at(&mut seen, 8).expect("the answers can be read");
            seen.chunks_exact(8).all(|word| word == phase.to_le_bytes())
        });
        std::thread::sleep(Duration::from_millis(30));
    };
    let case = Case::new("phases.c").with_pauses().args(&["file", &path]);
    let run = case.run_and(true, |pid, _| {
        phase(1);
        let (done, text) = ctl(pid, &["end", "enough is enough"]);
        assert!(done && text.contains("ended"), "{text}");
        phase(2);
        let (done, text) = ctl(pid, &["start"]);
        assert!(!done && text.contains("recording has ended"), "{text}");
        words.as_file().write_all_at(&99_u64.to_le_bytes(), 0).expect("the phase can be written");
    });
    assert!(run.status.success(), "{}", run.stderr);
    let recording = run.recordings_of(run.pid).pop().expect("there is a recording");
    assert!(!PathBuf::from(format!("{}.live", recording.display())).exists());
    let info = json(&["info"], &recording);
    assert_eq!((&info["end"], number(&info, "/events/lost")), (&"stopped".into(), 0), "{info:#}");
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{info:#}");
    all_inside(&recording, &info);
    let sizes: Vec<u64> = dump(&recording).iter().filter_map(|event| event["size"].as_u64()).collect();
    assert!(sizes.iter().filter(|&&size| size == 1001).count() > 10 && !sizes.contains(&1002));
    let remarks = info["remarks"].as_array().expect("remarks");
    let said = remarks.iter().find(|remark| remark["topic"] == "ended").expect("a remark");
    assert_eq!(said["text"], "recording was ended from outside: enough is enough");
}

/// An exec holds all threads at their next event, until it fails; a mark waits for that, as an allocation does.
#[test]
fn marks_beside_execs_in_vain_are_all_recorded() {
    let run = Case::new("marks_beside_execs.c").run(true);
    assert!(run.status.success(), "{}", run.stderr);
    let labels: Vec<String> = dump(&run.recordings()[0])
        .iter()
        .filter(|event| event["kind"] == "mark")
        .map(|event| event["label"].as_str().unwrap().to_owned())
        .collect();
    let expected: Vec<String> = (0..2000).map(|at| format!("mark {at}")).collect();
    assert!(labels == expected, "{} of {}", labels.len(), expected.len());
}
