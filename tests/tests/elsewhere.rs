//! Names from other places than the machine that a program ran on.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tracehound_tests::http_client::{ask, json};
use tracehound_tests::{Traced, compile, copy_program, functions, heaptrace, number, root, trace, traced_command};

fn names_of(folder: &Path, args: &[&str]) -> Vec<String> {
    let leaks = json(folder, &[&["leaks", "--json", "r.dat"], args].concat());
    leaks["sites"].as_array().expect("sites").iter().flat_map(|site| functions(&site["stack"])).collect()
}

/// A run of a copy of a program, which is then taken away; the recording is `r.dat`.
fn gone(flags: &[&str]) -> (Traced, PathBuf) {
    let built = compile("suppressed.c", flags);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = folder.path().join("prog");
    std::fs::copy(&built, &program).expect("it can be copied");
    let traced = trace(&program, &[], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    // With its folder it goes away when this function ends.
    (traced, program)
}

#[test]
fn a_sysroot_and_debug_folders_bring_names_back() {
    let (traced, program) = gone(&["-O0"]);
    let folder = traced.folder.path();
    assert!(!names_of(folder, &[]).contains(&"real_leak".to_owned()), "the program is gone");
    let built = compile("suppressed.c", &["-O0"]);

    let sysroot = folder.join("sysroot");
    let inside = sysroot.join(program.strip_prefix("/").expect("an absolute path"));
    std::fs::create_dir_all(inside.parent().expect("a folder")).expect("it can be made");
    std::fs::copy(&built, &inside).expect("it can be copied");
    let found = names_of(folder, &["--sysroot", sysroot.to_str().expect("a plain path")]);
    assert!(found.contains(&"real_leak".to_owned()), "{found:?}");

    // By name, then by build id; a file of another build is refused.
    let debug = folder.join("debug");
    std::fs::create_dir_all(&debug).expect("it can be made");
    std::fs::copy(&built, debug.join("prog.debug")).expect("it can be copied");
    let by_name = ["--debug-dir", debug.to_str().expect("a plain path")];
    assert!(names_of(folder, &by_name).contains(&"real_leak".to_owned()));
    std::fs::copy(compile("suppressed.c", &["-O2"]), debug.join("prog.debug")).expect("it can be copied");
    assert!(!names_of(folder, &by_name).contains(&"real_leak".to_owned()));
    let modules = json(folder, &["export", "--format", "json", "r.dat", "-o", "-"])["modules"].clone();
    let of_program = |module: &&Value| module["path"].as_str().is_some_and(|path| path.ends_with("/prog"));
    let module = modules.as_array().expect("modules").iter().find(of_program).expect("the program");
    let id = module["build_id"].as_str().expect("a build id");
    let place = debug.join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&place).expect("it can be made");
    std::fs::copy(&built, place.join(format!("{}.debug", &id[2..]))).expect("it can be copied");
    assert!(names_of(folder, &by_name).contains(&"real_leak".to_owned()));
}

#[test]
fn a_bundle_takes_the_names_along() {
    let built = compile("suppressed.c", &["-O0"]);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = folder.path().join("prog");
    std::fs::copy(&built, &program).expect("it can be copied");
    let traced = trace(&program, &[], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    let away = tempfile::tempdir().expect("a temporary folder can be made");
    let out = away.path().join("r.dat");
    let bundled = ask(traced.folder.path(), &["bundle", "r.dat", "-o", out.to_str().expect("a plain path")]);
    assert!(bundled.status.success(), "{bundled:?}");
    std::fs::remove_file(&program).expect("it is there");
    let found = names_of(away.path(), &[]);
    assert!(found.contains(&"real_leak".to_owned()) && found.contains(&"main".to_owned()), "{found:?}");
    let leaks = json(away.path(), &["leaks", "--json", "r.dat"]);
    assert!(leaks.to_string().contains("suppressed.c"), "lines come along: {leaks}");
    // One file, of which the recording's part is what it was.
    let files: Vec<_> =
        std::fs::read_dir(away.path()).expect("the folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert!(!files.contains(&"r.dat.symbols".into()), "{files:?}");
    let (plain, packed) =
        (std::fs::read(traced.recording()).expect("it"), std::fs::read(&out).expect("it was written"));
    assert!(packed.len() > plain.len() && packed.starts_with(&plain));
    let (before, after) =
        (json(traced.folder.path(), &["info", "--json", "r.dat"]), json(away.path(), &["info", "--json", "r.dat"]));
    assert_eq!((&before["complete"], &before["events"]), (&after["complete"], &after["events"]));
    // Packed again it is the same, though now the names come out of the file.
    let again = ask(away.path(), &["bundle", "r.dat", "-o", "again.dat"]);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(json(away.path(), &["leaks", "--json", "again.dat"]), leaks);
    assert!(std::fs::read(away.path().join("again.dat")).expect("it was written").len() <= packed.len() + 64);
    // Without names at the end there are none, and what is damaged is no name.
    std::fs::write(&out, &packed[..packed.len() - 1]).expect("it can be written");
    let _ = std::fs::remove_dir_all(away.path().join("r.dat.idx"));
    assert!(!names_of(away.path(), &[]).contains(&"real_leak".to_owned()));
    // Beside the recording they are found as well.
    std::fs::copy(&built, &program).expect("it can be copied");
    let beside = ask(traced.folder.path(), &["bundle", "r.dat"]);
    assert!(beside.status.success(), "{beside:?}");
    std::fs::remove_file(&program).expect("it is there");
    let _ = std::fs::remove_dir_all(traced.folder.path().join("r.dat.idx"));
    assert!(names_of(traced.folder.path(), &[]).contains(&"real_leak".to_owned()));
    std::fs::write(traced.folder.path().join("r.dat.symbols"), b"THSYMB\n\x01rubbish").expect("it can be written");
    let _ = std::fs::remove_dir_all(traced.folder.path().join("r.dat.idx"));
    assert!(!names_of(traced.folder.path(), &[]).contains(&"real_leak".to_owned()));
}

#[test]
fn a_bundle_takes_the_place_of_an_older_one_and_of_no_other_recording() {
    let program = compile("five.c", &[]);
    let record = || trace(&program, &[], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    let (ours, theirs) = (record(), record());
    let folder = ours.folder.path();
    let bundle = |out: &Path| {
        let output = ask(folder, &["bundle", "r.dat", "-o", out.to_str().expect("a plain path")]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (copy, packed) = (folder.join("copy.dat"), folder.join("packed.dat"));
    std::fs::copy(ours.recording(), &copy).expect("it can be copied");
    let packed_theirs = folder.join("theirs.dat");
    let bundled = ask(theirs.folder.path(), &["bundle", "r.dat", "-o", packed_theirs.to_str().expect("a plain path")]);
    assert!(bundled.status.success(), "{bundled:?}");
    for existing in [&theirs.recording(), &packed_theirs, &copy] {
        let before = std::fs::read(existing).expect("it is there");
        let (code, said) = bundle(existing);
        assert!(code == Some(2) && said.contains("is a recording; name another file"), "{said}");
        assert!(std::fs::read(existing).expect("it is there") == before, "{}", existing.display());
    }
    for _ in 0..2 {
        let (code, said) = bundle(&packed);
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn a_bundle_of_a_killed_program_takes_its_side_file_along() {
    let (mut command, folder) = traced_command(compile("nothing.c", &["-O1"]), &["wait"]);
    command.env("TRACEHOUND_OUTPUT", "r.dat").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().expect("the program can be started");
    let mut said = BufReader::new(program.stdout.take().expect("it is a pipe"));
    let started = said.read_line(&mut String::new());
    // What the program has completed and nobody has written yet is in the side file alone.
    program.kill().and_then(|()| program.wait()).expect("it can be killed");
    started.expect("the program says something");
    let folder = folder.path();
    assert!(folder.join("r.dat.live").is_file(), "a killed program leaves its side file");
    let away = tempfile::tempdir().expect("a temporary folder can be made");
    let out = away.path().join("r.dat");
    let out = out.to_str().expect("a plain path");
    let bundled = ask(folder, &["bundle", "r.dat", "-o", out]);
    let said = String::from_utf8_lossy(&bundled.stderr).into_owned();
    assert!(bundled.status.success() && said.contains("r.dat.live along, too"), "{said}");
    let read = |path: &Path| std::fs::read(path).expect("the side file");
    let (theirs, ours) = (folder.join("r.dat.live"), away.path().join("r.dat.live"));
    assert!(read(&theirs) == read(&ours));
    // It is mostly holes, and stays so.
    let on_disk = |path: &Path| std::fs::metadata(path).expect("it is there").blocks() * 512;
    let (there, here) = (on_disk(&theirs), on_disk(&ours));
    assert!(here <= there + there / 4, "{here} bytes of {there}");
    assert!(there * 4 < read(&theirs).len() as u64, "there are no holes in {}", theirs.display());
    let info = |folder: &Path| json(folder, &["info", "--json", "r.dat"]);
    let (there, here) = (info(folder), info(away.path()));
    assert_eq!((&here["end"], number(&here, "/leaked/bytes")), (&"killed".into(), 100));
    assert_eq!((&there["events"], &there["leaked"]), (&here["events"], &here["leaked"]));
    // Two files do not go down one pipe, and a recording is not overwritten by its own bundle.
    for target in ["-", "/dev/null", "r.dat", "./r.dat"] {
        let refused = ask(folder, &["bundle", "r.dat", "-o", target]);
        assert_eq!(refused.status.code(), Some(2), "{target}: {refused:?}");
        assert!(refused.stdout.is_empty(), "{target}");
    }
    assert!(read(&theirs) == read(&ours) && !folder.join("-.live").exists());
}

#[test]
fn code_made_by_a_compiler_in_the_process_has_the_names_of_its_perf_map() {
    // A function without a module: the recording has its address alone.
    let include = format!("-I{}", root().join("tests/programs").display());
    let traced = trace(compile("jit.c", &["-O1", &include]), &[], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    let folder = traced.folder.path();
    let line = traced.stdout();
    let map = line.lines().find_map(|line| line.strip_prefix("map ")).expect("the program says where its code is");
    assert!(!names_of(folder, &[]).iter().any(|name| name.contains("madeAtRunTime")));
    let said = |options: &[&str]| {
        String::from_utf8_lossy(&ask(folder, &[&["info", "r.dat"], options].concat()).stdout).into_owned()
    };
    assert!(said(&[]).contains("code that the program has generated"), "{}", said(&[]));
    std::fs::write(folder.join("jit.map"), format!("{map} LazyCompile:*madeAtRunTime a.js:3\n"))
        .expect("it can be written");
    let found = names_of(folder, &["--perf-map", "jit.map"]);
    assert!(found.iter().any(|name| name == "madeAtRunTime"), "{found:?}");
    assert!(!said(&["--perf-map", "jit.map"]).contains("code that the program has generated"));
}

/// A debuginfod server: hands out one file under its build id, and remembers what it was asked for.
struct Debuginfod {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Debuginfod {
    fn start(build_id: &str, debug_file: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port can be had");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (list, known) = (Arc::clone(&asked), format!("/buildid/{build_id}/debuginfo"));
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let path = lines.next().and_then(|line| line.split(' ').nth(1).map(str::to_owned)).unwrap_or_default();
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let (status, body) =
                    if path == known { ("200 OK", &debug_file[..]) } else { ("404 Not Found", &[][..]) };
                list.lock().expect("nobody panics while holding it").push(path);
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = (&stream).write_all(head.as_bytes()).and_then(|()| (&stream).write_all(body));
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panics while holding it").clone()
    }
}

#[test]
fn a_debuginfod_server_is_asked_only_on_request() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (program, debug) = (folder.path().join("prog"), folder.path().join("prog.debug"));
    copy_program(&compile("suppressed.c", &["-O0"]), &program);
    let strip = |args: &[&str]| {
        let done = Command::new("objcopy").args(args).status().expect("objcopy is installed by tests/needs.sh");
        assert!(done.success(), "{args:?}");
    };
    let (program_name, debug_name) = (program.to_str().expect("a plain path"), debug.to_str().expect("a plain path"));
    strip(&["--only-keep-debug", program_name, debug_name]);
    strip(&["--strip-all", program_name]);
    let traced = trace(&program, &[], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    let here = traced.folder.path();
    let modules = json(here, &["export", "--format", "json", "r.dat", "-o", "-"])["modules"].clone();
    let of_program = |module: &&Value| module["path"].as_str().is_some_and(|path| path.ends_with("/prog"));
    let module = modules.as_array().expect("modules").iter().find(of_program).expect("the program");
    let build_id = module["build_id"].as_str().expect("a build id");
    let server = Debuginfod::start(build_id, std::fs::read(&debug).expect("objcopy made it"));
    std::fs::remove_file(&debug).expect("it is there");

    let names = |args: &[&str]| {
        let output = Command::new(heaptrace())
            .args(["leaks", "--json", "r.dat"])
            .args(args)
            .current_dir(here)
            .env("DEBUGINFOD_URLS", &server.url)
            .env("DEBUGINFOD_CACHE_PATH", here.join("fetched"))
            .output()
            .expect("heaptrace can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(!names(&[]).contains("real_leak"), "the program is stripped");
    assert!(server.asked().is_empty(), "nobody asked for it: {:?}", server.asked());
    let found = names(&["--debuginfod"]);
    assert!(found.contains("real_leak") && found.contains("suppressed.c"), "{found}");
    let asked = server.asked();
    assert!(asked.contains(&format!("/buildid/{build_id}/debuginfo")), "{asked:?}");
    assert!(asked.iter().all(|path| path.starts_with("/buildid/") && path.ends_with("/debuginfo")), "{asked:?}");
    // What was fetched stays in the client's folder, and is used without asking again.
    assert!(names(&[]).contains("real_leak"));
    assert_eq!(server.asked().len(), asked.len());
}

#[test]
fn the_jvms_perf_map_names_java_methods() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let source = folder.path().join("Native.java");
    let program = "import java.nio.ByteBuffer;
        public class Native {
            static ByteBuffer[] kept = new ByteBuffer[64];
            static void keepsBuffers(int n) { kept[n & 63] = ByteBuffer.allocateDirect(5000 + (n & 7)); }
            public static void main(String[] args) { for (int n = 0; n < 60000; n++) keepsBuffers(n); }
        }";
    std::fs::write(&source, program).expect("it can be written");
    let compiled = Command::new("javac").arg(&source).status().expect("javac is installed by tests/needs.sh");
    assert!(compiled.success());
    let classes = folder.path().to_str().expect("a plain path");
    let flags = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit", "-XX:+PreserveFramePointer", "-Xmx256m"];
    let traced = trace("java", &[&flags[..], &["-cp", classes, "Native"]].concat(), &[("TRACEHOUND_OUTPUT", "r.dat")]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    let folder = traced.folder.path();
    let map = format!("/tmp/perf-{}.map", number(&json(folder, &["info", "--json", "r.dat"]), "/process/pid"));
    let folded = ask(folder, &["export", "--format", "folded", "--metric", "allocated", "r.dat", "-o", "-"]);
    let map_was_there = std::fs::remove_file(map).is_ok();
    assert!(map_was_there && folded.status.success(), "{}", String::from_utf8_lossy(&folded.stderr));
    let text = String::from_utf8_lossy(&folded.stdout).into_owned();
    let named = text.lines().filter(|line| line.contains("keepsBuffers")).count();
    assert!(named > 0, "none of {} stacks names the method", text.lines().count());
}

#[test]
fn nodes_own_perf_map_names_javascript_functions() {
    let which =
        Command::new("node").args(["-p", "process.execPath"]).output().expect("node is installed by tests/needs.sh");
    let node = PathBuf::from(String::from_utf8_lossy(&which.stdout).trim());
    let script = "function keepsBuffers(n) { const all = []; for (let i = 0; i < n; i++) \
                  all.push(Buffer.allocUnsafeSlow(5000 + i)); return all; } \
                  const kept = []; for (let k = 0; k < 100; k++) kept.push(keepsBuffers(20));";
    let traced = trace(&node, &["--perf-basic-prof", "-e", script], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    let folder = traced.folder.path();
    let map = format!("/tmp/perf-{}.map", number(&json(folder, &["info", "--json", "r.dat"]), "/process/pid"));
    let folded = ask(folder, &["export", "--format", "folded", "--metric", "allocated", "r.dat", "-o", "-"]);
    let map_was_there = std::fs::remove_file(map).is_ok();
    assert!(map_was_there && folded.status.success(), "{}", String::from_utf8_lossy(&folded.stderr));
    let text = String::from_utf8_lossy(&folded.stdout).into_owned();
    let named = text.lines().filter(|line| line.contains("keepsBuffers")).count();
    assert!(named > 0, "none of {} stacks names the function", text.lines().count());
}
