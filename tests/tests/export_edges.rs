//! Exports of what is unusual: names that formats use for themselves, and recordings that are damaged, cut, running, empty.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use tracehound_tests::exporting::{EXPORT_FORMATS, export_of, read_json, run, sample};
use tracehound_tests::{clients, compile, json, number, pythons, root, trace, traced_command, wait_for};

/// Replaces a name in the file of a program by one of the same length.
fn rename(program: &mut [u8], from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let places: Vec<usize> =
        program.windows(from.len()).enumerate().filter(|(_, window)| *window == from).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "{from:?} is not in the program");
    places.iter().for_each(|&at| program[at..at + to.len()].copy_from_slice(to));
}

#[test]
fn hostile_names_survive_every_format() {
    let plain = compile("hostile_names.c", &["-O1", "-g0"]);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = folder.path().join("hostile");
    let mut bytes = std::fs::read(&plain).expect("the program was compiled");
    rename(&mut bytes, b"renamed_function_1", b"semi;colon new\nlin");
    rename(&mut bytes, b"renamed_function_2", b"quo\"te back\\slash#");
    rename(&mut bytes, b"renamed_function_3", b"no utf-8 \xff\xfe <b>&xy");
    std::fs::copy(&plain, &program).expect("the folder can be written");
    std::fs::write(&program, bytes).expect("the folder can be written");
    let traced = trace(&program, &[], &[]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    let recording = traced.recording();
    let info = traced.info();
    assert_eq!(number(&info, "/leaked/bytes"), 66);

    let folded = std::fs::read_to_string(export_of(&recording, "folded", "h.folded")).expect("UTF-8");
    assert_eq!(folded.lines().count(), 3, "{folded}");
    assert!(folded.lines().all(|line| line.starts_with("_start;")), "{folded}");
    let names = |text: &str| {
        for part in ["semi", "quo", "no utf-8"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    };
    names(&folded);
    for (format, file) in [("json", "h.json"), ("speedscope", "h.ss"), ("dhat", "h.dhat"), ("firefox", "h.ff")] {
        let text = serde_json::to_string(&read_json(&export_of(&recording, format, file))).expect("a document");
        names(&text);
        // In JSON nothing need be changed.
        assert!(text.contains(r"semi;colon new\nlin") && text.contains(r#"quo\"te back\\slash#"#), "{format}: {text}");
    }
    names(&run("heaptrack_print", &[&export_of(&recording, "heaptrack", "h.heaptrack")]));
    names(&run("ms_print", &[&export_of(&recording, "massif", "h.massif")]));
    names(&run("go", &[&"tool", &"pprof", &"-traces", &export_of(&recording, "pprof", "h.pb.gz")]));
    let tables = export_of(&recording, "parquet", "h");
    let functions = run(
        clients().join("python/bin/python"),
        &[
            &"-c",
            &"import sys, pyarrow.parquet as p; print(p.read_table(sys.argv[1])['function'].to_pylist())",
            &tables.join("frames.parquet"),
        ],
    );
    names(&functions);
}

#[test]
fn functions_of_python_have_the_same_hash_in_every_recording() {
    let script = root().join("tests/python/in_order.py");
    let script = script.to_str().expect("a path in UTF-8");
    let frames = |name: &str, order: &[&str]| {
        let arguments: Vec<&str> = std::iter::once(script).chain(order.iter().copied()).collect();
        let traced = trace(pythons().last().expect("a Python"), &arguments, &[("PYTHONMALLOC", "malloc")]);
        let tables = export_of(&traced.recording(), "parquet", name);
        let reader = root().join("tests/clients/python_frames.py");
        run(clients().join("python/bin/python"), &[&reader, &tables.join("frames.parquet"), &"in_order.py"])
    };
    let one = frames("one", &["first", "second", "third"]);
    let other = frames("other", &["third", "second", "first"]);
    assert_eq!(one, other, "the same functions");
    let hashes: BTreeSet<&str> = one.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(hashes.len(), one.lines().count(), "two functions have one hash: {one}");
    assert!(["first", "second", "third"].iter().all(|name| one.contains(name)), "{one}");
}

#[test]
fn damaged_cut_running_and_empty_recordings_are_exported() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let bytes = std::fs::read(sample().recording()).expect("the recording can be read");
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 16].fill(0x55);
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("the folder can be written");
        path
    };
    let empty = trace(compile("nothing.c", &["-O1"]), &[], &[]);
    let (mut running, running_folder) = traced_command(compile("nothing.c", &["-O1"]), &["wait"]);
    let mut running = running.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program can be started");
    let mut line = String::new();
    let mut said = BufReader::new(running.stdout.take().expect("it is a pipe"));
    said.read_line(&mut line).expect("the program says something");
    let live = std::fs::read_dir(running_folder.path())
        .expect("the folder can be read")
        .map(|entry| entry.expect("the folder can be read").path())
        .find(|path| path.extension().is_some_and(|end| end == "dat"))
        .expect("a recording");
    wait_for("the first events", Duration::from_secs(20), || number(&json(&["info"], &live), "/leaked/bytes") == 100);
    assert_eq!(json(&["info"], &live)["end"], "running");
    let recordings = [
        live,
        write("damaged.dat", &damaged),
        write("cut.dat", &bytes[..bytes.len() * 2 / 3]),
        write("start.dat", &bytes[..bytes.len() / 4]),
        empty.recording(),
    ];
    for recording in &recordings {
        for format in EXPORT_FORMATS {
            let out = export_of(recording, format, &format!("x.{format}"));
            let size = std::fs::metadata(&out).expect("the export is there").len();
            assert!(size > 0 || format == "folded", "{format} of {}", recording.display());
            match format {
                "massif" => assert!(run("ms_print", &[&out]).contains("Command:")),
                "heaptrack" => assert!(run("heaptrack_print", &[&out]).contains("calls to allocation functions")),
                "pprof" => assert!(run("go", &[&"tool", &"pprof", &"-raw", &out]).contains("Samples:")),
                "json" | "speedscope" | "dhat" | "firefox" => assert!(read_json(&out).is_object()),
                _ => {}
            }
        }
    }
    drop(running.stdin.take());
    assert!(running.wait().expect("the program ends").success());
}
