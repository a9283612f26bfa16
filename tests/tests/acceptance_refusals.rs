//! What cannot be recorded is said in one sentence before anything starts; what can is run as it is.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use tracehound_tests::ground_truth::Case;
use tracehound_tests::{compile, copy_program, heaptrace, json, number};

/// `heaptrace run -- ARGS…` in a folder of its own; says whether a recording came of it.
fn heaptrace_run(args: &[&str]) -> (Output, usize) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let output = Command::new(heaptrace())
        .args(["run", "--"])
        .args(args)
        .current_dir(folder.path())
        .output()
        .expect("heaptrace can be started");
    let files = std::fs::read_dir(folder.path()).expect("the folder can be read").count();
    (output, files)
}

fn refused(program: &str, words: &str) {
    let (output, files) = heaptrace_run(&[program]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(words), "{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    assert_eq!(files, 0);
}

#[test]
fn a_static_program() {
    for how in ["-static", "-static-pie"] {
        refused(compile("unrelated.c", &[how]).to_str().unwrap(), "is linked statically");
        // With what to do about it.
        refused(compile("unrelated.c", &[how]).to_str().unwrap(), "gcc -static … @");
    }
}

#[test]
fn a_32_bit_program() {
    refused(compile("unrelated.c", &["-m32"]).to_str().unwrap(), "32-bit");
}

#[test]
fn a_program_with_the_allocator_of_a_sanitizer() {
    for kind in ["address", "leak", "thread"] {
        let flag = format!("-fsanitize={kind}");
        refused(compile("unrelated.c", &[&flag]).to_str().unwrap(), &flag);
    }
}

#[test]
fn a_program_of_another_machine() {
    let mut bytes = std::fs::read(compile("unrelated.c", &["-O1"])).unwrap();
    // e_machine: RISC-V
    bytes[18] = 243;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("foreign");
    std::fs::write(&path, bytes).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    refused(path.to_str().unwrap(), "RISC-V");
}

#[test]
fn a_setuid_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("setuid");
    copy_program(&compile("unrelated.c", &["-O1"]), &path);
    if rustix::process::geteuid().is_root() {
        rustix::fs::chown(&path, Some(rustix::fs::Uid::from_raw(65534)), None).unwrap();
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
    if rustix::process::geteuid().is_root() {
        refused(path.to_str().unwrap(), "setuid");
    }
}

#[test]
fn a_program_that_is_not_there() {
    refused("/nonexistent/program", "/nonexistent/program");
    refused("/etc/passwd", "/etc/passwd");
}

#[test]
fn run_passes_code_and_signal_on() {
    let (output, files) = heaptrace_run(&["sh", "-c", "echo out; exit 9"]);
    assert_eq!((output.status.code(), files), (Some(9), 1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"out\n");
    let fatal = compile("fatal.c", &["-O1"]);
    let (output, _) = heaptrace_run(&[fatal.to_str().unwrap(), "11"]);
    use std::os::unix::process::ExitStatusExt;
    assert!(output.status.signal() == Some(11) || output.status.code() == Some(128 + 11), "{output:?}");
}

#[test]
fn an_allocator_inside_the_program_is_named() {
    // The program defines malloc itself, so ours is never asked: the recording has to say so.
    let (_, traced) = Case::new("own_allocator.c").any_stderr().unharmed();
    let info = json(&["info"], &traced.recordings()[0]);
    assert_eq!(number(&info, "/allocations/count"), 0, "{info:#}");
    let remarks = info["remarks"].to_string();
    assert!(remarks.contains("malloc"), "{info:#}");
}
