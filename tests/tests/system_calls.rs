//! The recorder's system calls on threads of the program: all of them are in its table, and a program that forbids
//! itself one of them lives on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use tracehound_shared::sys::calls::{CallingThreads, SystemCall, calls_by};
use tracehound_tests::ground_truth::Case;
use tracehound_tests::{compile, json, library, number};

/// Calls of threads of the program behind its start, by name. The recorder's own thread is left out.
fn calls_in(trace: &Path) -> BTreeMap<String, u32> {
    let text = std::fs::read_to_string(trace).expect("strace has written its file");
    let mut by_thread: BTreeMap<&str, BTreeMap<String, u32>> = BTreeMap::new();
    let (mut writers, mut begun) = (BTreeSet::new(), false);
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if rest.contains("\"tracehound-wr\"") {
            writers.insert(thread);
        }
        if rest.starts_with("getpgid(12345") {
            begun = true;
            by_thread.entry(thread).or_default().clear();
            continue;
        }
        let Some((name, _)) = rest.split_once('(') else { continue };
        if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            *by_thread.entry(thread).or_default().entry(name.to_owned()).or_default() += 1;
        }
    }
    assert!(begun, "the program has not begun:\n{text}");
    let mut all = BTreeMap::new();
    for (name, count) in by_thread.iter().filter(|(thread, _)| !writers.contains(*thread)).flat_map(|(_, calls)| calls)
    {
        *all.entry(name.clone()).or_default() += count;
    }
    all
}

fn strace(program: &Path, preload: &str) -> BTreeMap<String, u32> {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("calls");
    let status = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&file)
        // Arenas grow by calls whose number depends on timing.
        .args(["-E", "GLIBC_TUNABLES=glibc.malloc.arena_max=1", "-E", &format!("LD_PRELOAD={preload}")])
        .arg(program)
        .current_dir(folder.path())
        .output()
        .expect("strace is installed: run tests/needs.sh");
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    calls_in(&file)
}

#[test]
fn what_threads_of_the_program_ask_of_the_kernel_is_in_the_table() {
    let marker = compile("start_marker.c", &["-O1", "-shared", "-fPIC"]);
    let table: BTreeSet<&str> =
        calls_by(CallingThreads::Program).map(|call| call.name.strip_prefix("SYS_").unwrap_or(call.name)).collect();
    for source in ["altstack.c", "small_stacks.c", "realloc_chain.c", "exec_fails.c", "fork_plain.c", "thread_names.c"]
    {
        let program = compile(source, &["-O1"]);
        let plain = strace(&program, &marker.display().to_string());
        let traced = strace(&program, &format!("{}:{}", marker.display(), library().display()));
        let ours: Vec<&str> = traced
            .iter()
            .filter(|(name, count)| **count > plain.get(*name).copied().unwrap_or(0))
            .map(|(name, _)| name.as_str())
            .collect();
        assert!(ours.contains(&"mmap") && ours.contains(&"rt_sigprocmask"), "{source}: not traced? {ours:?}");
        // Asked before an exec, but not behind a filter that kills for it.
        let asked = |name: &str| source == "exec_fails.c" && name == "faccessat";
        let unknown: Vec<&&str> = ours.iter().filter(|name| !table.contains(**name) && !asked(name)).collect();
        assert!(unknown.is_empty(), "{source}: {unknown:?} are not in the table");
    }
}

/// Numbers and names of what a sandbox may forbid: the table's, and others that the recorder has made or might make.
fn forbidden() -> BTreeMap<i64, &'static str> {
    const OTHERS: [(i64, &str); 12] = [
        (libc::SYS_openat, "openat"),
        (libc::SYS_pread64, "pread64"),
        (libc::SYS_read, "read"),
        (libc::SYS_fstat, "fstat"),
        (libc::SYS_close, "close"),
        (libc::SYS_fcntl, "fcntl"),
        (libc::SYS_sigaltstack, "sigaltstack"),
        (libc::SYS_clock_nanosleep, "clock_nanosleep"),
        (libc::SYS_pwrite64, "pwrite64"),
        (libc::SYS_write, "write"),
        (libc::SYS_mprotect, "mprotect"),
        (libc::SYS_sched_yield, "sched_yield"),
    ];
    calls_by(CallingThreads::Program).map(|SystemCall { number, name, .. }| (number, name)).chain(OTHERS).collect()
}

/// Forbids each of the calls to `seccomp_call.c`, which must not notice the recorder.
fn lives_on(action: &str, way: &str, scene: &str) {
    let (mut tried, mut ended_early) = (0, 0);
    for (call, name) in forbidden() {
        let number_of_call = call.to_string();
        let case = Case::new("seccomp_call.c").args(&[&number_of_call, action, way, scene]).any_stderr();
        if !case.run(false).status.success() {
            // The program itself cannot do without it.
            continue;
        }
        tried += 1;
        let traced = case.run(true);
        let what = format!("{action} {way} {scene}: {name}");
        assert!(traced.status.success(), "{what}: {}; {}", traced.status, traced.stderr);
        let recordings = traced.recordings();
        assert_eq!(recordings.len(), 1, "{what}: {recordings:?}; {}", traced.stderr);
        if action == "errno" {
            // What the kernel refuses may be missing in the recording.
            continue;
        }
        let info = json(&["info"], &recordings[0]);
        assert_eq!(number(&info, "/events/lost"), 0, "{what}: {info:#}");
        let allocations = number(&info, "/allocations/count");
        if info["end"] == "stopped" {
            ended_early += 1;
            assert_eq!(traced.stderr.lines().filter(|line| line.contains("seccomp")).count(), 1, "{what}");
            assert!(info["remarks"].to_string().contains("seccomp"), "{what}: {info:#}");
            assert!(allocations >= 2000, "{what}: {info:#}");
        } else {
            assert_eq!(info["end"], "exit", "{what}: {info:#}");
            assert_eq!(info["complete"], true, "{what}: {info:#}");
            assert!(allocations >= 2000 + 600 * 9, "{what}: {info:#}");
        }
    }
    assert!(tried >= 12, "{action} {way} {scene}: only {tried} calls could be forbidden at all");
    assert!(action == "errno" || ended_early >= 5, "{action} {way} {scene}: {ended_early} recordings ended early");
}

#[test]
fn a_sandbox_without_files_around_code_whose_unwind_information_lies_in_its_file() {
    let flags = ["-O1", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for call in [libc::SYS_openat, libc::SYS_pread64, libc::SYS_fstat, libc::SYS_close, libc::SYS_fcntl] {
        for (way, scene) in [("prctl", "alone"), ("seccomp", "thread"), ("tsync", "busy")] {
            let call = call.to_string();
            let args = [call.as_str(), "kill_process", way, scene];
            Case::compiled("seccomp_call.c", &flags).args(&args).any_stderr().unharmed();
        }
    }
}

#[test]
fn forbidden_to_its_only_thread_on_pain_of_free() {
    lives_on("kill_process", "prctl", "alone");
}

#[test]
fn forbidden_to_its_only_thread_by_an_error() {
    lives_on("errno", "seccomp", "alone");
}

#[test]
fn forbidden_to_all_threads_while_they_allocate() {
    lives_on("kill_process", "tsync", "busy");
}

#[test]
fn forbidden_by_a_signal_to_all_threads() {
    lives_on("trap", "tsync", "busy");
}

#[test]
fn forbidden_before_a_thread_starts() {
    lives_on("kill_process", "seccomp", "before");
}

#[test]
fn forbidden_to_one_thread() {
    lives_on("kill_thread", "seccomp", "thread");
}
