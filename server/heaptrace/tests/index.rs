//! Location of an index, when it is used again, and what happens when there is no room for it.

mod support;

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use support::{Server, folder_with_sample, heaptrace};
use tracehound_format::header::FileHeader;
use tracehound_ingest::{OnProgress, OpenOptions, Recording};
use tracehound_query::info;
use tracehound_recordings::{Shape, generate};

/// What makes one index another: a rebuilt one is another file.
fn identity(index: &Path) -> (u64, i64, i64) {
    let manifest = fs::metadata(index.join("index.json")).unwrap();
    (manifest.ino(), manifest.mtime(), manifest.mtime_nsec())
}

/// Opens a recording; whether it was indexed for that, and its allocations.
fn open(path: &Path) -> (bool, u64) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let progress: OnProgress = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let trace = Recording::open(path, OpenOptions { progress: Some(progress), ..OpenOptions::default() }).unwrap();
    (calls.load(Ordering::Relaxed) > 0, info::run(&trace.trace()).allocations.count)
}

fn big(path: &Path, events: u64, seed: u64) {
    let out = BufWriter::new(File::create(path).unwrap());
    generate(out, &Shape { events, live: 2_000, nodes: 500, sites: 100, seed, ..Shape::default() }).unwrap();
}

fn touch(path: &Path) {
    let file = File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
}

#[test]
fn an_index_is_taken_as_long_as_the_content_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.dat");
    let index = folder.path().join("a.dat.idx");
    big(&path, 20_000, 1);
    let (built, count) = open(&path);
    assert!(built);
    let first = identity(&index);
    assert_eq!(open(&path), (false, count), "nothing has changed");
    touch(&path);
    assert_eq!(open(&path), (false, count), "the time has changed, the content has not");
    assert_eq!(identity(&index), first);

    // Same recording by name, time and length, but one byte of a block is another.
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&path, &bytes).unwrap();
    touch(&path);
    let (built, damaged) = open(&path);
    assert!(built && damaged < count, "the content has changed");

    bytes[middle] ^= 0x10;
    fs::write(&path, &bytes).unwrap();
    touch(&path);
    assert_eq!(open(&path), (true, count), "and back");
}

#[test]
fn an_index_of_another_version_is_built_anew() {
    let folder = folder_with_sample();
    let path = folder.path().join("app.dat");
    let (_, count) = open(&path);
    let manifest = folder.path().join("app.dat.idx/index.json");
    let mut document: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    document["layout"] = (document["layout"].as_u64().unwrap() + 1).into();
    fs::write(&manifest, document.to_string()).unwrap();
    assert_eq!(open(&path), (true, count));
    assert_eq!(open(&path), (false, count));
    // A column that was cut, or is gone, is no index either.
    let column = folder.path().join("app.dat.idx/alloc_size.arrow");
    File::options().write(true).open(&column).unwrap().set_len(4100).unwrap();
    assert_eq!(open(&path), (true, count));
    fs::remove_file(folder.path().join("app.dat.idx/page_live.arrow")).unwrap();
    assert_eq!(open(&path), (true, count));
}

#[test]
fn another_recording_under_the_same_name_gets_its_own_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.dat");
    big(&path, 3_000, 1);
    let (_, one) = open(&path);
    big(&path, 9_000, 2);
    let (built, other) = open(&path);
    assert!(built && other > one);
}

#[test]
fn beside_a_recording_that_cannot_be_written_the_cache_holds_the_index() {
    let folder = folder_with_sample();
    let home = folder.path().join("recordings");
    fs::create_dir(&home).unwrap();
    fs::rename(folder.path().join("app.dat"), home.join("app.dat")).unwrap();
    // Root may write into any folder, but a file is no folder.
    fs::write(home.join("app.dat.idx"), b"mine").unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o500)).unwrap();
    let cached = || -> Vec<PathBuf> {
        let list = fs::read_dir(folder.path().join("cache/tracehound")).unwrap();
        list.map(|entry| entry.unwrap().path().join("index.json")).collect()
    };
    for _ in 0..2 {
        let output = heaptrace(folder.path(), &["info", "--json", "recordings/app.dat"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(cached().len(), 1);
        assert!(cached()[0].is_file());
    }
    let before = fs::metadata(&cached()[0]).unwrap();
    heaptrace(folder.path(), &["info", "recordings/app.dat"]);
    assert_eq!(fs::metadata(&cached()[0]).unwrap().ino(), before.ino(), "it was taken as it is");
    assert_eq!(fs::read(home.join("app.dat.idx")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(&home).unwrap().count(), 2, "nothing was left beside the recording");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
}

/// Indexing is killed at no chosen moment; the next run ends with the index that an undisturbed one makes.
#[test]
fn a_run_that_is_killed_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.dat");
    big(&path, 300_000, 3);
    let run = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heaptrace"));
        command.args(["info", "--json", name]).current_dir(folder.path()).stdin(Stdio::null());
        command.env("XDG_CACHE_HOME", folder.path().join("cache"));
        command
    };
    for pause in [30, 90, 200] {
        let mut child = run("a.dat").stdout(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(pause) && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        child.wait().unwrap();
    }
    let after = run("a.dat").output().unwrap();
    fs::copy(&path, folder.path().join("b.dat")).unwrap();
    let undisturbed = run("b.dat").output().unwrap();
    assert!(after.status.success() && undisturbed.status.success());
    let document = |output: &[u8]| serde_json::from_slice::<Value>(output).unwrap();
    assert_eq!(document(&after.stdout), document(&undisturbed.stdout));
}

/// On a file system of a megabyte, in a namespace of its own; where that is not allowed, as root; else not at all.
#[test]
fn a_full_disk_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.dat");
    big(&path, 200_000, 4);
    fs::create_dir(folder.path().join("small")).unwrap();
    let script = "mount -t tmpfs -o size=3m none small || exit 77; cp a.dat small/ || exit 77; cd small; \
                  exec \"$0\" info a.dat";
    let run = |flags: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(flags).args(["sh", "-c", script, env!("CARGO_BIN_EXE_heaptrace")]).current_dir(folder.path());
        command.env("XDG_CACHE_HOME", "/proc/none").env("TMPDIR", "/proc/none").output()
    };
    let allowed =
        [&["-rm"][..], &["-m"]].into_iter().find_map(|flags| run(flags).ok().filter(|o| o.status.code() != Some(77)));
    let Some(output) = allowed.filter(|o| !String::from_utf8_lossy(&o.stderr).starts_with("unshare")) else {
        eprintln!("no file system can be mounted here: nothing was tried");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("cannot index") && said.contains("No space left on device"), "{said}");
}

/// Waits until a recording is in this state; its progress then.
fn reach(server: &Server, recording: usize, wanted: &str) -> Value {
    let started = Instant::now();
    loop {
        let list = server.json("/api/v1/recordings");
        let summary = &list["recordings"][recording];
        if summary["state"] == wanted {
            return summary["progress"].clone();
        }
        assert!(started.elapsed() < Duration::from_secs(120), "{wanted}: {summary}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program that runs again with the same output replaces the file that a server has open.
#[test]
fn a_replaced_file_is_said_and_read_anew() {
    let folder = folder_with_sample();
    let path = folder.path().join("app.dat");
    let server = Server::start(folder.path(), &["app.dat"]);
    let summary = || server.json("/api/v1/recordings")["recordings"][0].clone();
    let post = || server.request("POST", "/api/v1/recordings/r1/start_indexing", &[]).status;
    reach(&server, 0, "ready");
    let before = server.json("/api/v1/recordings/r1");
    assert_eq!(summary()["file"], "as_read");
    assert_eq!(post(), 409, "it is the file that was read");

    // Another recording takes its place, as a rename does.
    let mut other = fs::read(&path).unwrap();
    big(&path, 1000, 1);
    let mut new = fs::read(&path).unwrap();
    new[..FileHeader::LEN].copy_from_slice(&FileHeader::new([7; 16]).encode());
    fs::write(folder.path().join("new.dat"), &new).unwrap();
    fs::rename(folder.path().join("new.dat"), &path).unwrap();
    assert_eq!(summary()["file"], "changed");
    assert_eq!(
        server.json("/api/v1/recordings/r1"),
        before,
        "what was read is shown until somebody asks for the new one"
    );
    assert_eq!(post(), 202);
    reach(&server, 0, "ready");
    assert_eq!(summary()["file"], "as_read");
    let after = server.json("/api/v1/recordings/r1");
    assert_ne!(after["allocations"]["count"], before["allocations"]["count"]);

    // What cannot be opened can be tried again.
    fs::write(&path, "no recording").unwrap();
    assert_eq!((summary()["file"].clone(), post()), ("changed".into(), 202));
    reach(&server, 0, "failed");
    other[..FileHeader::LEN].copy_from_slice(&FileHeader::new([8; 16]).encode());
    fs::write(&path, &other).unwrap();
    assert_eq!(post(), 202);
    reach(&server, 0, "ready");
    assert_eq!(server.json("/api/v1/recordings/r1")["allocations"], before["allocations"]);

    fs::remove_file(&path).unwrap();
    assert_eq!(summary()["file"], "removed");
    assert_eq!(post(), 409, "there is nothing to read");
    assert_eq!(server.get("/api/v1/recordings/r1/leaks").status, 200);
}

#[test]
fn indexing_is_cancelled_leaves_nothing_and_starts_again() {
    let folder = folder_with_sample();
    let path = folder.path().join("big.dat");
    big(&path, 6_000_000, 1);
    let index = folder.path().join("big.dat.idx");
    let server = Server::start(folder.path(), &["big.dat", "app.dat"]);
    let post = |command: &str| server.request("POST", &format!("/api/v1/recordings/r1/{command}"), &[]);
    assert_eq!(server.get("/api/v1/recordings/r1/cancel_indexing").status, 405);
    assert_eq!(post("start_indexing").status, 409, "it was not cancelled");

    let asked = Instant::now();
    let answer = post("cancel_indexing");
    assert_eq!(answer.status, 202, "{}", answer.text());
    reach(&server, 0, "cancelled");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(!index.exists());
    let refused = server.get("/api/v1/recordings/r1/leaks");
    assert_eq!(refused.status, 409);
    assert!(refused.json()["detail"].as_str().unwrap().contains("indexing big.dat was cancelled"), "{refused:?}");
    assert_eq!(post("cancel_indexing").status, 409);
    // The others are as they were.
    reach(&server, 1, "ready");

    // In the middle as well: something was written already.
    assert_eq!(post("start_indexing").status, 202);
    while reach(&server, 0, "indexing")["events"] == 0 {}
    assert!(index.exists());
    assert_eq!(post("cancel_indexing").status, 202);
    reach(&server, 0, "cancelled");
    assert!(!index.exists());

    assert_eq!(post("start_indexing").status, 202);
    reach(&server, 0, "ready");
    let events = &server.json("/api/v1/recordings/r1")["events"];
    let of = |kind: &str| events[kind].as_u64().unwrap();
    assert!(of("alloc") + of("free") + of("realloc") >= 5_900_000, "{events}");
    assert!(index.join("index.json").exists());
    assert_eq!(post("cancel_indexing").status, 409, "it is done");
    assert_eq!(server.request("POST", "/api/v1/recordings/r2/cancel_indexing", &[]).status, 409);
    assert_eq!(server.request("POST", "/api/v1/recordings/r9/cancel_indexing", &[]).status, 404);
}
