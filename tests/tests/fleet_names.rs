//! Names of programs that are gone: the collector takes their symbols into the store while their files can be read.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tracehound_tests::fleet::{Fleet, answers, free_address, running};
use tracehound_tests::http_client::Server;
use tracehound_tests::process::Running;
use tracehound_tests::{compile, heaptrace, json, library, wait_for};

/// Starts it and waits until it has all its blocks.
fn ready(mut command: Command) -> Running {
    let mut child = Running(command.process_group(0).stdout(Stdio::piped()).spawn().expect("it can be started"));
    let mut line = [0; 6];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("it gets ready");
    assert_eq!(&line, b"ready\n");
    child
}

/// Kills the process, as the kernel does where memory is short.
fn kill(mut child: Running) {
    child.kill().expect("it runs");
    child.wait().expect("it can be waited for");
}

fn stored_recording(fleet: &Fleet) -> PathBuf {
    let mut found = Vec::new();
    wait_for("the recording with its tables", Duration::from_secs(60), || {
        let packed = || {
            let rows = Command::new("find").arg(fleet.stored().join("data/v1/recordings")).output().expect("find runs");
            String::from_utf8_lossy(&rows.stdout).contains("recordings.parquet")
        };
        let raw = fleet.stored().join("raw").is_dir();
        found = if raw && packed() { fleet.recordings() } else { Vec::new() };
        !found.is_empty()
    });
    found.remove(0)
}

fn symbol_files(fleet: &Fleet) -> Vec<String> {
    let entries = std::fs::read_dir(fleet.stored().join("symbols")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Commands and the server name the functions of `stays.c`, with their lines, from what the store has.
fn check_names(fleet: &Fleet, program: &Path) {
    assert!(!program.exists(), "the program is gone");
    let stored = stored_recording(fleet);
    let url = format!("{}/raw/{}", fleet.store, stored.file_name().unwrap().to_str().unwrap());
    let first = |leaks: &Value| leaks["sites"][0]["stack"].clone();
    let stack = first(&json(&["leaks"], Path::new(&url)));
    assert_eq!((&stack[0]["function"], &stack[1]["function"]), (&"kept_block".into(), &"main".into()), "{stack}");
    for frame in [&stack[0], &stack[1]] {
        assert!(frame["file"].as_str().is_some_and(|file| file.ends_with("stays.c")), "{frame}");
        assert!(frame["line"].as_u64().is_some_and(|line| line > 4), "{frame}");
    }
    let server = Server::opening(&fleet.spool(), fleet.store.as_ref());
    let leaks = server.get("leaks");
    assert_eq!(first(&leaks)[0]["function"], "kept_block", "{leaks}");
    let top = fleet.json("top", &[]);
    assert_eq!(top["rows"][0]["function"], "kept_block", "the tables have them, too: {top}");
    let info = json(&["info"], Path::new(&url));
    assert_eq!(info["end"], "killed");
}

#[test]
fn a_program_whose_folder_is_gone_has_names() {
    let fleet = Fleet::default();
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("service");
    std::fs::copy(compile("stays.c", &["-O1", "-g"]), &program).expect("a copy");
    let mut command = fleet.traced(&program, "service=gone");
    command.args(["1000", "1000", "stay"]);
    let child = ready(command);
    let _collector = running(fleet.collect(&["--interval", "20"]));
    wait_for("the symbols", Duration::from_secs(60), || symbol_files(&fleet).len() >= 2);
    kill(child);
    drop(folder);
    check_names(&fleet, &program);
    // Once for each build id, however many processes run it.
    let before = symbol_files(&fleet);
    assert!(before.iter().all(|name| name.ends_with(".debug.zst")), "{before:?}");
}

#[test]
fn a_program_of_a_container_has_names() {
    let permitted = Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|output| output.status.success());
    if !permitted {
        eprintln!("NOT RUN: this user may not make mount namespaces");
        return;
    }
    // Its folder is a file system of the process's own: it was never to be seen here, and goes with the process. What is
    // collected goes to a collector elsewhere, which has no part in any of it.
    let fleet = Fleet::default();
    let address = free_address();
    let mut listener = Command::new(heaptrace());
    listener.args(["collect", "--listen", &address, "--store", &fleet.store]);
    let _listener = running(listener);
    wait_for("the listener", Duration::from_secs(30), || answers(&address));
    let outside = tempfile::tempdir().expect("a folder");
    let program = outside.path().join("service");
    let script = format!(
        "mount -t tmpfs none {0} && cp {1} {0}/service && LD_PRELOAD={2} exec {0}/service 1000 1000 stay",
        outside.path().display(),
        compile("stays.c", &["-O1", "-g"]).display(),
        library().display()
    );
    let mut command = fleet.traced(Path::new("unshare"), "service=container");
    command.env_remove("LD_PRELOAD").args(["-m", "sh", "-c", &script]);
    let child = ready(command);
    let _collector = running(Fleet::collector(&fleet.spool(), &format!("http://{address}"), &["--interval", "20"]));
    wait_for("the symbols", Duration::from_secs(60), || symbol_files(&fleet).len() >= 2);
    kill(child);
    check_names(&fleet, &program);
}
