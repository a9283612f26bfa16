//! `heaptrace run` as its user sees it: exit codes, signals, refusals, and the line at the end.
//!
//! The recorder is a few lines of C that write a recording's header where the template says, so that these tests are
//! about `run` alone.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tracehound_format::header::FileHeader;

const RECORDER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void record(void) {
    const char *template = getenv("TRACEHOUND_OUTPUT"), *header = getenv("HEADER");
    if (!template || !header) return;
    char path[4096];
    const char *percent = strstr(template, "%p");
    if (percent) snprintf(path, sizeof path, "%.*s%d%s", (int)(percent - template), template, getpid(), percent + 2);
    else snprintf(path, sizeof path, "%s", template);
    int in = open(header, O_RDONLY), out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    char bytes[64];
    if (read(in, bytes, 64) == 64 && write(out, bytes, 64) != 64) abort();
    close(in);
    close(out);
}
"#;

/// The recorder, compiled once, and a header for it to write.
fn recorder() -> &'static (PathBuf, PathBuf) {
    static RECORDER_FILES: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    RECORDER_FILES.get_or_init(|| {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("run");
        std::fs::create_dir_all(&dir).unwrap();
        let (source, library, header) = (dir.join("recorder.c"), dir.join("recorder.so"), dir.join("header"));
        std::fs::write(&source, RECORDER).unwrap();
        std::fs::write(&header, FileHeader::new([7; 16]).encode()).unwrap();
        let status = Command::new("gcc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status();
        assert!(status.unwrap().success());
        (library, header)
    })
}

/// `heaptrace run` with these arguments, in `dir`.
fn heaptrace(dir: &Path, arguments: &[&str]) -> Command {
    let (library, header) = recorder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_heaptrace"));
    command.current_dir(dir).arg("run").args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"TRACEHOUND_") {
            command.env_remove(name);
        }
    }
    command.env("TRACEHOUND_LIBRARY", library).env("HEADER", header);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_exit_code_is_the_programs() {
    let temp = tempfile::tempdir().unwrap();
    for code in [0, 7, 255] {
        let script = format!("echo out; exit {code}");
        let output = heaptrace(temp.path(), &["-o", "a.dat", "--", "sh", "-c", &script]).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(output.stdout, b"out\n");
        assert_eq!(said(&output), "heaptrace: recorded a.dat (64 B); next: heaptrace server a.dat\n");
    }
}

#[test]
fn the_exit_code_is_the_programs_where_nothing_can_be_said() {
    let temp = tempfile::tempdir().unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = heaptrace(temp.path(), &["--", "sh", "-c", "exit 7"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(7));
}

#[test]
fn it_dies_by_the_signal_that_ended_the_program() {
    for (name, signal) in [("TERM", libc::SIGTERM), ("KILL", libc::SIGKILL), ("ABRT", libc::SIGABRT)] {
        let temp = tempfile::tempdir().unwrap();
        let script = format!("kill -{name} $$");
        let output = heaptrace(temp.path(), &["--", "sh", "-c", &script]).output().unwrap();
        assert_eq!(output.status.signal(), Some(signal), "{name}");
        assert!(said(&output).contains("recorded memory-%e-"), "{}", said(&output));
    }
}

fn wait_for(path: &Path) {
    let since = std::time::Instant::now();
    while !path.exists() {
        assert!(since.elapsed() < std::time::Duration::from_secs(60), "{} never came", path.display());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// With the default actions of the signals of keys, whatever these tests were started with: what `nohup` or a shell starts in
/// the background ignores them, and so does what that starts.
fn with_default_actions(command: &mut Command) -> &mut Command {
    let reset = || {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: SIG_DFL is a valid action.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: signal(2) is all that it calls, which is safe between fork and exec.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, reset) }
}

#[test]
fn a_signal_sent_to_it_reaches_the_program() {
    for (name, signal) in [("TERM", libc::SIGTERM), ("INT", libc::SIGINT), ("QUIT", libc::SIGQUIT)] {
        let temp = tempfile::tempdir().unwrap();
        let script = format!("trap 'echo got it; exit 9' {name}; touch ready; while :; do sleep 0.05; done");
        let mut command = heaptrace(temp.path(), &["-o", "a.dat", "--", "sh", "-c", &script]);
        let child = with_default_actions(&mut command).stdout(std::process::Stdio::piped()).spawn().unwrap();
        wait_for(&temp.path().join("ready"));
        // SAFETY: kill(2) takes no pointers, and the child has not been waited for.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(9), "{name}");
        assert_eq!(output.stdout, b"got it\n");
    }
}

/// The terminal sends the signal of a key to all of its foreground processes: the program must not get it twice.
#[test]
fn a_key_of_the_terminal_reaches_the_program_once() {
    let temp = tempfile::tempdir().unwrap();
    let script = "trap 'echo got >>log' INT; touch ready; while [ ! -e stop ]; do sleep 0.05; done";
    std::fs::write(temp.path().join("program.sh"), script).unwrap();
    let started = heaptrace(temp.path(), &["-o", "a.dat", "--", "sh", "program.sh"]);
    let words = std::iter::once(started.get_program()).chain(started.get_args());
    let line = words.map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ");
    let mut terminal = std::process::Command::new("script");
    terminal.args(["-qfec", &line, "/dev/null"]).current_dir(temp.path());
    terminal.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    let mut terminal = with_default_actions(&mut terminal).spawn().expect("script (bsdutils) is there");
    wait_for(&temp.path().join("ready"));
    std::io::Write::write_all(terminal.stdin.as_mut().unwrap(), b"\x03").unwrap();
    wait_for(&temp.path().join("log"));
    // Time for a second one, which must not come.
    std::thread::sleep(std::time::Duration::from_millis(300));
    std::fs::write(temp.path().join("stop"), "").unwrap();
    terminal.wait().unwrap();
    assert_eq!(std::fs::read_to_string(temp.path().join("log")).unwrap(), "got\n");
}

#[test]
fn options_become_variables_and_the_environment_counts() {
    let temp = tempfile::tempdir().unwrap();
    let arguments = [
        "--children",
        "--no-free-stacks",
        "--buffer",
        "64M",
        "-o",
        "x-%p.dat",
        "--",
        "sh",
        "-c",
        "env; echo $0 $1",
        "a b",
        "-c",
    ];
    let output = heaptrace(temp.path(), &arguments)
        .env("TRACEHOUND_COMPRESSION", "none")
        .env("TRACEHOUND_BUFFER", "2M")
        .env("LD_PRELOAD", "libm.so.6")
        .output()
        .unwrap();
    let environment = String::from_utf8(output.stdout).unwrap();
    let output_path = temp.path().canonicalize().unwrap().join("x-%p.dat");
    for line in [
        "TRACEHOUND_CHILDREN=1",
        "TRACEHOUND_FREE_STACKS=0",
        "TRACEHOUND_BUFFER=64M",
        "TRACEHOUND_COMPRESSION=none",
        &format!("TRACEHOUND_OUTPUT={}", output_path.display()),
        &format!("LD_PRELOAD={}:libm.so.6", recorder().0.display()),
        "a b -c",
    ] {
        assert!(environment.lines().any(|found| found == line), "{line} is missing in\n{environment}");
    }
}

#[test]
fn misuse_is_exit_code_2_and_nothing_is_started() {
    let temp = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["--buffer", "lots", "--", "touch", "started"][..], "TRACEHOUND_BUFFER"),
        (&["--on-full", "maybe", "--", "touch", "started"], "wait, drop"),
        (&["--no-such-option", "--", "touch", "started"], "--no-such-option"),
        (&["-o", "/dev/null", "--", "touch", "started"], "/dev/null is no file"),
        (&[], "CMD"),
    ] {
        let output = heaptrace(temp.path(), arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    let output = heaptrace(temp.path(), &["--", "touch", "started"]).env("TRACEHOUND_LOG", "shout").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(!temp.path().join("started").exists());
}

#[test]
fn what_cannot_be_recorded_is_not_started() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(
        temp.path().join("a.c"),
        "#include <fcntl.h>\nint main(void) { return creat(\"started\", 0600) < 0; }",
    )
    .unwrap();
    let compiled = Command::new("gcc").current_dir(&temp).args(["-static", "-o", "static", "a.c"]).status().unwrap();
    assert!(compiled.success());
    for (program, words) in
        [("./static", "linked statically"), ("./missing", "No such file"), ("no-such-program", "PATH")]
    {
        let output = heaptrace(temp.path(), &["--", program]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
        assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    }
    assert!(!temp.path().join("started").exists());
    let output = heaptrace(temp.path(), &["--", "true"]).env("TRACEHOUND_LIBRARY", "/nonexistent.so").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("TRACEHOUND_LIBRARY names /nonexistent.so"));
}

#[test]
fn several_recordings_and_none_are_said_so() {
    let temp = tempfile::tempdir().unwrap();
    let output = heaptrace(temp.path(), &["-o", "m-%p.dat", "--children", "--", "sh", "-c", "true; env true; exit 0"])
        .output()
        .unwrap();
    assert!(said(&output).contains("made 2 recordings (128 B)"), "{}", said(&output));
    let output = heaptrace(temp.path(), &["-o", "none.dat", "--", "true"]).env_remove("HEADER").output().unwrap();
    assert!(said(&output).contains("no recording was made at"), "{}", said(&output));
    let script = temp.path().join("script");
    std::fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = heaptrace(temp.path(), &["-o", "a.dat", "--", "./script"]).output().unwrap();
    assert!(said(&output).contains("only with --children"), "{}", said(&output));
}
