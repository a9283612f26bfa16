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
use tracehound_tests::{compile, copy_program, heaptrace, json, library, wait_for};

/// Starts it and waits until it has all its blocks.
fn ready(mut command: Command) -> Running {
    let mut child = Running(command.process_group(0).stdout(Stdio::piped()).spawn().expect("it can be started"));
    let mut line = [0; 6];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("it gets ready");
    assert_eq!(&line, b"ready\n");
    child
}

/// A control group with a limit of memory; it is removed with this.
struct MemoryGroup {
    folder: PathBuf,
    /// The file that says how many were killed, and the line of it.
    kills: &'static str,
}

impl MemoryGroup {
    /// One of so many bytes, by version 2 or 1 of control groups; `None` if this user may not make one.
    fn of(bytes: u64) -> Option<Self> {
        let name = format!("tracehound-test-{}", std::process::id());
        let (unified, memory) = (Path::new("/sys/fs/cgroup"), Path::new("/sys/fs/cgroup/memory"));
        let (folder, limit, kills) = if memory.is_dir() {
            (memory.join(name), "memory.limit_in_bytes", "memory.oom_control")
        } else {
            (unified.join(name), "memory.max", "memory.events")
        };
        std::fs::create_dir(&folder).ok()?;
        let group = Self { folder, kills };
        std::fs::write(group.folder.join(limit), bytes.to_string()).ok()?;
        // Nothing goes to a swap.
        let _ = std::fs::write(group.folder.join("memory.swap.max"), "0");
        let _ = std::fs::write(group.folder.join("memory.swappiness"), "0");
        Some(group)
    }

    fn kills(&self) -> u64 {
        let text = std::fs::read_to_string(self.folder.join(self.kills)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.map_or(0, |count| count.trim().parse().expect("a number"))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
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
    copy_program(&compile("stays.c", &["-O1", "-g"]), &program);
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

#[test]
fn a_container_whose_memory_was_short_has_names_and_its_end() {
    let permitted = Command::new("unshare").args(["-mpf", "true"]).output().is_ok_and(|output| output.status.success());
    let Some(group) = MemoryGroup::of(96 << 20).filter(|_| permitted) else {
        eprintln!("NOT RUN: this user may not make namespaces and control groups");
        return;
    };
    // Process 1 of its own namespace, on a file system that goes with it; the kernel kills it.
    let fleet = Fleet::default();
    let outside = tempfile::tempdir().expect("a folder");
    let program = outside.path().join("service");
    let script = format!(
        "mount -t tmpfs none {0} && cp {1} {0}/service && LD_PRELOAD={2} exec {0}/service 1000 1000 eat",
        outside.path().display(),
        compile("stays.c", &["-O1", "-g"]).display(),
        library().display()
    );
    let enter =
        format!("echo $$ >{}/cgroup.procs && exec unshare -mpf --mount-proc sh -c \"$1\"", group.folder.display());
    let mut command = fleet.traced(Path::new("sh"), "service=container");
    command.env_remove("LD_PRELOAD").args(["-c", &enter, "sh", &script]).stdin(Stdio::piped());
    let mut child = ready(command);
    let _collector = running(fleet.collect(&["--interval", "20"]));
    wait_for("the symbols", Duration::from_secs(60), || symbol_files(&fleet).len() >= 2);
    let mut input = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, b"x").expect("it reads");
    child.wait().expect("it can be waited for");
    assert!(group.kills() >= 1, "the kernel has killed it");
    check_names(&fleet, &program);
    // It was process 1 where it ran; its control group was asked for by its id here.
    let about = stored_recording(&fleet).with_extension("json");
    let about: Value = serde_json::from_slice(&std::fs::read(about).unwrap()).unwrap();
    assert_eq!(about["pid"], 1, "{about}");
    assert!(about["cgroup"].as_str().is_some_and(|group| group.contains('/')), "{about}");
}
