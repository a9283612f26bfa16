//! Quotas of a spool whose store is away: the greediest recording is ended and says so, its program goes on, nothing that
//! was not shipped is deleted.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tracehound_tests::fleet::{Fleet, free_address};
use tracehound_tests::process::Running;
use tracehound_tests::{ask, compile, copy_program, heaptrace, json, number, wait_for};

/// A program that records into the spool until it is killed.
fn started(fleet: &Fleet, name: &str, arguments: &[&str]) -> Running {
    let source = if name == "greedy" { "counted_blocks.c" } else { "stays.c" };
    let program = fleet.spool().with_file_name(name);
    copy_program(&compile(source, &["-O1", "-g"]), &program);
    let mut command = fleet.traced(&program, &format!("service={name}"));
    Running(command.args(arguments).process_group(0).spawn().expect("it starts"))
}

fn recording_of(fleet: &Fleet, name: &str) -> PathBuf {
    let mut found = None;
    wait_for("a recording", Duration::from_secs(60), || {
        let entries = std::fs::read_dir(fleet.spool()).expect("a spool").map(|entry| entry.expect("an entry").path());
        // It has a name before it has a header.
        let is_it = |path: &PathBuf| {
            path.extension().is_some_and(|end| end == "dat")
                && path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))
                && path.metadata().is_ok_and(|meta| meta.len() > 0)
        };
        found = entries.into_iter().find(is_it);
        found.is_some()
    });
    found.expect("a recording")
}

fn end(recording: &Path) -> String {
    json(&["info"], recording)["end"].as_str().expect("an end").to_owned()
}

fn remark(info: &Value) -> String {
    let remarks = info["remarks"].as_array().expect("remarks");
    let ended = remarks.iter().find(|remark| remark["topic"] == "ended");
    ended.unwrap_or_else(|| panic!("no remark in {info}"))["text"].as_str().expect("a text").to_owned()
}

fn collector_of(fleet: &Fleet, store: &str, options: &[&str]) -> Running {
    let mut command = Fleet::collector(&fleet.spool(), store, options);
    command.args(["--interval", "20"]).stderr(Stdio::null()).process_group(0);
    Running(command.spawn().expect("heaptrace can be started"))
}

/// The sizes of the blocks in a recording are those of `counted_blocks.c` from the first one on; how many there are.
fn blocks(recording: &Path) -> u64 {
    let output = ask(&["dump", "--no-symbols"], recording);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut at = 0;
    for line in String::from_utf8(output.stdout).unwrap().lines().filter(|line| line.contains("\"kind\":\"alloc\"")) {
        let event: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(event["size"].as_u64(), Some(16 + at * 7919 % 3001), "block {at}");
        at += 1;
    }
    at
}

#[test]
fn the_greediest_recording_of_a_full_spool_is_ended() {
    let fleet = Fleet::default();
    let counter = fleet.spool().with_file_name("done");
    let modest = started(&fleet, "modest", &["1000", "100", "stay"]);
    let greedy = started(&fleet, "greedy", &[counter.to_str().unwrap(), "0"]);
    let (modest_path, greedy_path) = (recording_of(&fleet, "modest"), recording_of(&fleet, "greedy"));
    let nowhere = format!("http://{}", free_address());
    let collector = collector_of(&fleet, &nowhere, &["--quota", "400K"]);
    wait_for("the end of the greedy recording", Duration::from_secs(60), || end(&greedy_path) == "stopped");

    let info = json(&["info"], &greedy_path);
    let said = remark(&info);
    assert!(said.contains("heaptrace collect") && said.contains("the quota is 400 KiB"), "{said}");
    let text = String::from_utf8(ask(&["info"], &greedy_path).stdout).unwrap();
    assert!(text.contains("recording was stopped before the program ended") && text.contains(&said), "{text}");
    // Both programs live, the modest one is recorded on, and nothing is gone.
    let done = || u64::from_le_bytes(std::fs::read(&counter).unwrap()[..8].try_into().unwrap());
    let before = done();
    wait_for("more blocks", Duration::from_secs(30), || done() > before);
    assert_eq!(end(&modest_path), "running");
    assert!(Path::new(&format!("/proc/{}", greedy.id())).exists());
    let len = greedy_path.metadata().unwrap().len();
    assert!((100 << 10..4 << 20).contains(&len), "{len} bytes");
    let recorded = blocks(&greedy_path);
    assert!(recorded > 1000 && recorded < done(), "{recorded} of {}", done());
    assert_eq!(number(&info, "/events/lost"), 0);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(greedy_path.metadata().unwrap().len(), len, "it does not grow any more");
    // Nobody starts it again.
    let ctl = Command::new(heaptrace()).args(["ctl", &greedy.id().to_string(), "start"]).output().unwrap();
    assert!(!ctl.status.success(), "{}", String::from_utf8_lossy(&ctl.stdout));

    // When the store is back, it gets all of both.
    drop((collector, modest, greedy));
    fleet.collect_all(&["--quota", "400K"]);
    let stored = fleet.recordings();
    assert_eq!(stored.len(), 2);
    let ended = stored.iter().find(|path| end(path) == "stopped").expect("the greedy one");
    assert_eq!((blocks(ended), remark(&json(&["info"], ended))), (recorded, said));
}

#[test]
fn a_recording_over_its_own_quota_is_ended() {
    let fleet = Fleet::default();
    let counter = fleet.spool().with_file_name("done");
    let greedy = started(&fleet, "greedy", &[counter.to_str().unwrap(), "0"]);
    let path = recording_of(&fleet, "greedy");
    let nowhere = format!("http://{}", free_address());
    let address = free_address();
    let _collector = collector_of(&fleet, &nowhere, &["--quota-each", "100K", "--listen", &address]);
    wait_for("the end of the recording", Duration::from_secs(60), || end(&path) == "stopped");
    let said = remark(&json(&["info"], &path));
    assert!(said.contains("its quota is 100 KiB"), "{said}");
    assert!(Path::new(&format!("/proc/{}", greedy.id())).exists());
    let status = Command::new(heaptrace()).args(["collect", "status", &address]).output().unwrap();
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("ended for a quota, whose programs go on: 1"), "{status}");
}

#[test]
fn a_store_that_keeps_up_ends_nothing() {
    let fleet = Fleet::default();
    let counter = fleet.spool().with_file_name("done");
    let _greedy = started(&fleet, "greedy", &[counter.to_str().unwrap(), "0"]);
    let path = recording_of(&fleet, "greedy");
    let _collector = collector_of(&fleet, &fleet.store, &["--quota", "400K", "--quota-each", "300K"]);
    wait_for("more than the quota", Duration::from_secs(60), || {
        path.metadata().is_ok_and(|meta| meta.len() > 800 << 10)
    });
    let greedy = Path::new(&format!("{}.live", path.display())).exists();
    assert!(greedy, "it is recorded on");
}
