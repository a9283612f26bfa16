//! Recordings of heaptrack, opened here: its own, ours exported to it and back, and old versions.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tracehound_tests::{compile, functions, heaptrace, json, number, trace};

fn import(from: &Path, to: &Path) -> String {
    let output =
        Command::new(heaptrace()).arg("import").arg(from).arg("-o").arg(to).output().expect("it can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", from.display());
    said
}

#[test]
fn what_a_killed_program_left_is_not_called_complete() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = compile("until_killed_counted.c", &[]);
    let _ = Command::new("heaptrack").args(["-o", "theirs"]).arg(&program).current_dir(folder.path()).output();
    let theirs = std::fs::read_dir(folder.path()).expect("the folder").map(|entry| entry.expect("an entry").path());
    let theirs: PathBuf = theirs.into_iter().find(|path| path.is_file()).expect("a recording of heaptrack");
    let ours = folder.path().join("ours.dat");
    assert!(import(&theirs, &ours).contains("the program was killed, its last events are missing"));
    let info = json(&["info"], &ours);
    assert_eq!((&info["end"], &info["complete"]), (&Value::from("killed"), &Value::from(false)));
    assert_eq!(info["process"]["started_at"], "", "nobody knows");
    // A part of a file: what is there is read.
    let text =
        Command::new("zstd").arg("-dcf").arg(&theirs).output().expect("zstd is installed by tests/needs.sh").stdout;
    let cut = folder.path().join("cut");
    std::fs::write(&cut, &text[..text.len() * 2 / 3]).expect("writable");
    let of_cut = folder.path().join("cut.dat");
    assert!(import(&cut, &of_cut).contains("the file is cut"));
    let info = json(&["info"], &of_cut);
    assert_eq!((&info["end"], &info["complete"]), (&Value::from("unknown"), &Value::from(false)));
    // The addresses of the blocks are not known.
    for command in [&["memory"][..], &["pins"], &["map"], &["top", "--address", "0x0..0x10000000"]] {
        let output = Command::new(heaptrace()).args(command).arg(&ours).output().expect("it can be started");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("keeps no addresses"), "{command:?}: {said}");
        assert!(output.stdout.is_empty());
    }
}

fn leaking(recording: &Path) -> Vec<(u64, Vec<String>)> {
    let leaks = json(&["leaks"], recording);
    let sites = leaks["sites"].as_array().expect("sites");
    // Code without a name has its address for one in heaptrack's file.
    let named = |name: String| if name.starts_with("0x") { "?".to_owned() } else { name };
    let stack = |site: &Value| functions(&site["stack"]).into_iter().map(named).collect();
    sites.iter().map(|site| (number(site, "/bytes"), stack(site))).collect()
}

#[test]
fn what_heaptrack_recorded_itself_is_opened() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = compile("exported.cpp", &["-O2"]);
    let recorded = Command::new("heaptrack")
        .args(["-o", "theirs"])
        .arg(&program)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .output()
        .expect("heaptrack is installed by tests/needs.sh");
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let files = std::fs::read_dir(folder.path()).expect("the folder").map(|entry| entry.expect("an entry").path());
    let theirs: PathBuf =
        files.into_iter().find(|path| path.to_string_lossy().contains("theirs.")).expect("a recording of heaptrack");
    let ours = folder.path().join("ours.dat");
    import(&theirs, &ours);

    // Older ones of it write gzip: the same, packed otherwise.
    let unpacked = Command::new("zstd").arg("-dcf").arg(&theirs).output().expect("zstd is installed by tests/needs.sh");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, unpacked.stdout).expect("it can be written");
    assert!(Command::new("gzip").arg(&plain).status().expect("gzip is everywhere").success());
    let of_gzip = folder.path().join("gzip.dat");
    import(&folder.path().join("plain.gz"), &of_gzip);
    for path in ["/allocations/bytes", "/allocations/count", "/peak/bytes", "/leaked/count", "/sites"] {
        assert_eq!(number(&json(&["info"], &of_gzip), path), number(&json(&["info"], &ours), path), "{path}");
    }

    let printed = Command::new("heaptrack_print").arg("-l").arg("1").arg(&theirs).output().expect("it is installed");
    let report = String::from_utf8_lossy(&printed.stdout).into_owned();
    let info = json(&["info"], &ours);
    let calls = format!("calls to allocation functions: {} ", number(&info, "/allocations/count"));
    assert!(report.contains(&calls), "{calls} {report}");
    assert_eq!((&info["complete"], &info["end"]), (&true.into(), &"exit".into()));
    assert!(info["process"]["executable"].as_str().expect("a path").contains("exported"), "{info}");
    let figure = |label: &str| {
        let line =
            report.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_else(|| panic!("{label}: {report}"));
        let (number, unit) = line.trim().split_at(line.trim().len() - 1);
        number.parse::<f64>().expect("a figure") * if unit == "K" { 1e3 } else { 1e6 }
    };
    assert!((figure("peak heap memory consumption:") - number(&info, "/peak/bytes") as f64).abs() <= 10.0, "{report}");
    assert!((figure("total memory leaked:") - number(&info, "/leaked/bytes") as f64).abs() <= 10.0, "{report}");
    let sites = leaking(&ours);
    assert!(sites.iter().any(|(_, stack)| stack.iter().any(|name| name.starts_with("leaks("))), "{sites:?}");
}

#[test]
fn our_own_export_comes_back_the_same() {
    let traced = trace(compile("exported.cpp", &["-O2"]), &[], &[]);
    let folder = traced.folder.path();
    let exported = folder.join("x.heaptrack.gz");
    let status = Command::new(heaptrace())
        .args(["export", "--format", "heaptrack"])
        .arg(traced.recording())
        .arg("-o")
        .arg(&exported)
        .status()
        .expect("it can be started");
    assert!(status.success());
    let back = folder.join("back.bin");
    import(&exported, &back);
    let (before, after) = (traced.info(), json(&["info"], &back));
    for path in ["/allocations/bytes", "/allocations/count", "/leaked/bytes", "/leaked/count", "/peak/bytes", "/sites"]
    {
        assert_eq!(number(&before, path), number(&after, path), "{path}");
    }
    assert_eq!(leaking(&traced.recording()), leaking(&back));
    // Lines and inlined functions come along, and everything else works on it.
    let leaks = json(&["leaks"], &back).to_string();
    assert!(leaks.contains("exported.cpp") && leaks.contains("\"inlined\":true"), "{leaks}");
    assert_eq!(number(&json(&["top", "--metric", "leaked"], &back), "/total"), number(&before, "/leaked/bytes"));
}

/// Three blocks in two kinds, one of which is freed: as the three versions write it. Version 2 brought suppressions,
/// version 3 the lengths of strings.
const VERSION_2: &str = "v 10200 2\nX ./old --flag\nI 1000 10\nS leak:nothing\ns main\ns old\ns /src/old.c\ni 401000 2 1 3 7\n\
                         t 1 0\na 40 1\na 20 1\nc 5\n+ 0\n+ 1\nc a\nR 3\n+ 0\n- 1\nc 14\n\n# strings: 3\n# ips: 1\n";
const VERSION_3: &str = "v 10300 3\nX ./old --flag\nI 1000 10\ns 4 main\ns 3 old\ns a /src/old.c\ni 401000 2 1 3 7\n\
                         t 1 0\na 40 1\na 20 1\nc 5\n+ 0\n+ 1\nc a\nR 3\n+ 0\n- 1\nc 14\n\n# strings: 3\n# ips: 1\n";
const VERSION_1: &str = "v 10000 1\nX ./old --flag\ns main\ns old\ns /src/old.c\ni 401000 2 1 3 7\nt 1 0\na 40 1\na 20 1\n\
                         c 5\n+ 0\n+ 1\nc a\n+ 0\n- 1\nc 14\n\n# strings: 3\n# ips: 1\n";

#[test]
fn all_versions_compressed_or_piped_are_opened() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let versions = [VERSION_1, VERSION_2, VERSION_3];
    for (version, tool) in (1..).zip(versions).flat_map(|version| ["gzip", "zstd", "cat"].map(|tool| (version, tool))) {
        let plain = folder.path().join("heaptrack.old.1");
        std::fs::write(&plain, version.1).expect("it can be written");
        let compressed = folder.path().join(format!("heaptrack.{}.{tool}", version.0));
        let flags: &[&str] = if tool == "cat" { &[] } else { &["-c"] };
        let made = Command::new(tool).args(flags).arg(&plain).output();
        let Ok(made) = made else { panic!("{tool} is installed by tests/needs.sh") };
        std::fs::write(&compressed, made.stdout).expect("it can be written");
        let recording = folder.path().join(format!("{}-{tool}.bin", version.0));
        let said = import(&compressed, &recording);
        assert!(!said.contains("not understood"), "{said}");
        let info = json(&["info"], &recording);
        let of = |path: &str| number(&info, path);
        assert_eq!((of("/allocations/count"), of("/allocations/bytes"), of("/leaked/bytes")), (3, 160, 128));
        assert_eq!((of("/peak/bytes"), of("/process/duration_ns") / 1_000_000), (160, 20));
        let leaks = json(&["leaks"], &recording);
        let frame: &Value = &leaks["sites"][0]["stack"][0];
        assert_eq!(
            (&frame["function"], &frame["file"], &frame["line"]),
            (&"main".into(), &"/src/old.c".into(), &7.into())
        );
    }
    let piped = folder.path().join("piped.bin");
    let mut child = Command::new(heaptrace())
        .args(["import", "-", "-o"])
        .arg(&piped)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it can be started");
    child.stdin.take().expect("a pipe").write_all(VERSION_1.as_bytes()).expect("it is read");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(number(&json(&["info"], &piped), "/leaked/count"), 2);
}

/// Neither its source nor a recording can be made again.
#[test]
fn an_import_replaces_no_recording() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let theirs = folder.path().join("theirs");
    std::fs::write(&theirs, VERSION_3).expect("it can be written");
    let ours = folder.path().join("ours.dat");
    import(&theirs, &ours);
    let mode = std::fs::metadata(&ours).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}: for its owner alone, as a recorded one");
    let linked = folder.path().join("linked");
    std::os::unix::fs::symlink(&theirs, &linked).expect("a link can be made");
    let before = [&theirs, &ours].map(|path| std::fs::read(path).expect("it can be read"));
    for target in [&theirs, &linked, &ours] {
        let refused = Command::new(heaptrace()).arg("import").arg(&theirs).arg("-o").arg(target).output();
        let refused = refused.expect("it can be started");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert_eq!(said, format!("heaptrace: {} is a recording; name another file\n", target.display()));
        assert_eq!(before, [&theirs, &ours].map(|path| std::fs::read(path).expect("it can be read")));
    }
}

#[test]
fn what_is_no_recording_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (name, text) in
        [("letter", "Dear reader\n"), ("empty", ""), ("raw", "v 10400 3\nx /bin/true\n"), ("cut", "v 10400 3\n+ 1\n")]
    {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        let out = folder.path().join("out.bin");
        let refused = Command::new(heaptrace()).arg("import").arg(&path).arg("-o").arg(&out).output().expect("it runs");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && said.lines().count() == 1 && said.contains(name), "{name}: {said}");
        assert!(!out.exists(), "{name}: nothing is left behind");
    }
}
