//! Backtraces through the real library: every option and every hook of unwinding, with the counts that say that its engine
//! was used, and stacks that agree with those that libgcc gives the program.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tracehound_tests::stated_stacks::{agrees, recorded};
use tracehound_tests::{Traced, compile, heaptrace, json, library, number, root, trace, traced_command};

/// A figure of `recorder.stacks`.
fn stacks(info: &Value, name: &str) -> u64 {
    number(info, &format!("/recorder/stacks/{name}"))
}

fn info(traced: &Traced) -> Value {
    assert!(traced.output.status.success(), "{:?}: {}", traced.output.status, traced.stderr());
    json(&["info"], &traced.recording())
}

/// Nothing was found by heuristics, and nothing is missing.
fn assert_exact(info: &Value, what: &str) {
    let inexact = ["heuristic", "truncated", "missing"].map(|name| stacks(info, name));
    assert_eq!(inexact, [0; 3], "{what}: {:#}", info["recorder"]["stacks"]);
    assert_eq!(
        (number(info, "/recorder/guessed_stacks"), number(info, "/recorder/truncated_stacks")),
        (0, 0),
        "{what}"
    );
}

/// Every event has one answer.
fn assert_adds_up(info: &Value) {
    let names = ["paths", "chains", "cfi", "general", "frame_chain", "libunwind", "nested", "missing"];
    let sum: u64 = names.iter().map(|name| stacks(info, name)).sum();
    assert_eq!(sum, stacks(info, "total"));
    let events = ["alloc", "free", "realloc", "map", "unmap", "remap", "brk"];
    let events: u64 = events.iter().map(|kind| number(info, &format!("/events/{kind}"))).sum();
    assert_eq!(sum, events, "{:#} {:#}", info["events"], info["recorder"]["stacks"]);
}

#[test]
fn segments_may_have_holes_between_them() {
    let page = "-Wl,-z,max-page-size=0x200000";
    let programs: [&[&str]; 8] = [
        &["-no-pie", "-Wl,-z,separate-code", page],
        &["-pie", "-fPIE", "-Wl,-z,separate-code", page],
        &["-no-pie", "-Wl,-z,noseparate-code", page],
        &["-pie", "-fPIE", "-Wl,-z,noseparate-code", page],
        &["-no-pie"],
        &["-pie", "-fPIE"],
        &["-no-pie", "-Wl,-Ttext-segment=0x10000000,-z,separate-code", page],
        &["-no-pie", "-Wl,-z,separate-code,-z,max-page-size=0x10000"],
    ];
    let libraries: Vec<PathBuf> = [page, "-Wl,-z,max-page-size=0x1000", "-Wl,-z,max-page-size=0x10000"]
        .map(|page| compile("holes_library.c", &["-O2", "-shared", "-fPIC", "-Wl,-z,separate-code", page]))
        .into();
    let libraries: Vec<&str> = libraries.iter().map(|path| path.to_str().unwrap()).collect();
    for flags in programs {
        let program = compile("holes.c", &[&["-O2", "-fomit-frame-pointer"], flags].concat());
        let traced = trace(program, &libraries, &[]);
        let info = info(&traced);
        assert_eq!(agrees(&traced), 20 + 20 * libraries.len(), "{flags:?}");
        assert_exact(&info, &format!("{flags:?}"));
        assert!(stacks(&info, "cfi") > 0 && stacks(&info, "paths") + stacks(&info, "chains") > 0, "{info:#}");
        assert_adds_up(&info);
    }
}

/// A library whose ELF header lies in no segment, as a linker script may have it.
#[test]
fn the_first_segment_may_begin_behind_the_header() {
    let script = Command::new("ld").args(["-shared", "--verbose"]).output().unwrap();
    let script = String::from_utf8_lossy(&script.stdout).into_owned();
    let script = script.split("==================================================").nth(1).unwrap();
    let start = "SEGMENT_START(\"text-segment\", 0) + SIZEOF_HEADERS";
    assert!(script.contains(start), "{script}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script");
    std::fs::write(&path, script.replace(start, "SEGMENT_START(\"text-segment\", 0x10000)")).unwrap();
    let script = format!("-Wl,-T,{}", path.display());
    let library = folder.path().join("behind.so");
    let source = root().join("tests/programs/holes_library.c");
    let status =
        Command::new("cc").args(["-O2", "-shared", "-fPIC", &script, "-o"]).args([&library, &source]).status().unwrap();
    assert!(status.success());
    let headers = Command::new("readelf").arg("-lW").arg(&library).output().unwrap();
    let headers = String::from_utf8_lossy(&headers.stdout).into_owned();
    let first = headers.lines().find(|line| line.trim_start().starts_with("LOAD")).unwrap();
    assert!(!first.split_whitespace().nth(1).unwrap().ends_with("x000000"), "{first}");
    let traced = trace(compile("holes.c", &["-O2"]), &[library.to_str().unwrap()], &[]);
    assert_eq!(agrees(&traced), 40);
    assert_exact(&info(&traced), "behind the header");
}

/// Code that lies between the segments of an object is not that object's.
#[test]
fn a_hole_may_hold_other_code() {
    for (flags, in_hole) in [
        (&["-no-pie", "-Wl,-z,separate-code,-z,max-page-size=0x200000"][..], true),
        (&["-pie", "-fPIE", "-Wl,-z,separate-code,-z,max-page-size=0x200000"], true),
        (&["-pie", "-fPIE"], false),
    ] {
        let traced = trace(compile("holes.c", &[&["-O2"], flags].concat()), &["jit"], &[]);
        let info = info(&traced);
        assert!(traced.stdout().contains(&format!("hole {}", u8::from(in_hole))), "{}", traced.stdout());
        assert_exact(&info, "code in a hole");
        assert_eq!(stacks(&info, "frame_pointers"), 10, "{info:#}");
        let recorded = recorded(&traced.recording());
        for size in traced.stdout().lines().filter_map(|line| line.strip_prefix("jit ")) {
            let depth = recorded[&size.parse::<u64>().unwrap()].len();
            assert!(depth >= 6, "quiet, the code, through_jit, main and two of the C library, not {depth}");
        }
    }
}

/// Runs with a copy of the library whose look-up of `name` fails, as where the C library does not have it.
fn trace_without(name: &str, program: &Path, args: &[&str]) -> Traced {
    let mut bytes = std::fs::read(library()).unwrap();
    let wanted = format!("{name}\0").into_bytes();
    let places: Vec<usize> = (0..bytes.len() - wanted.len()).filter(|&at| bytes[at..].starts_with(&wanted)).collect();
    assert!(!places.is_empty(), "{name} is not in the library");
    for at in places {
        bytes[at + 1] = b'#';
    }
    let (mut command, folder) = traced_command(program, args);
    let copy = folder.path().join("older.so");
    std::fs::write(&copy, bytes).unwrap();
    let output = command.env("LD_PRELOAD", &copy).output().unwrap();
    Traced { folder, output }
}

#[test]
fn without_dl_find_object_stacks_are_the_same() {
    let library = compile("holes_library.c", &["-O2", "-shared", "-fPIC", "-Wl,-z,max-page-size=0x200000"]);
    for flags in [&["-no-pie", "-Wl,-z,separate-code,-z,max-page-size=0x200000"][..], &["-pie", "-fPIE"]] {
        let program = compile("holes.c", &[&["-O2"], flags].concat());
        let traced = trace_without("_dl_find_object", &program, &[library.to_str().unwrap()]);
        assert_eq!(agrees(&traced), 40);
        assert_exact(&info(&traced), "without _dl_find_object");
        let traced = trace_without("_dl_find_object", &program, &["jit"]);
        let info = info(&traced);
        assert_exact(&info, "without _dl_find_object");
        assert_eq!(stacks(&info, "frame_pointers"), 10, "{info:#}");
    }
}

/// Names of the recorded stack of a block, leaf first.
fn names(recording: &Path, size: u64) -> Vec<String> {
    let output = Command::new(heaptrace()).arg("dump").arg(recording).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut blocks = events.filter(|event| event["function"] == "malloc" && event["size"] == size);
    let stack = blocks.next().unwrap_or_else(|| panic!("no block of {size} bytes"));
    let frames = stack["stack"].as_array().unwrap().iter();
    frames.map(|frame| frame["function"].as_str().unwrap_or("?").to_owned()).collect()
}

/// libgcc finds nothing there. What the sections in the file say is there before the program begins.
#[test]
fn information_that_only_the_file_has_is_used() {
    for flags in [
        // No `.eh_frame_hdr` leads to `.eh_frame`.
        &["-Wl,--no-eh-frame-hdr"][..],
        &["-Wl,--no-eh-frame-hdr", "-no-pie"],
        // `.debug_frame` alone.
        &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions"],
        &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions", "-no-pie"],
    ] {
        let flags = [&["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"], flags].concat();
        let traced = trace(compile("holes.c", &flags), &[], &[]);
        let info = info(&traced);
        assert_exact(&info, &format!("{flags:?}"));
        for i in 0..20_usize {
            let expected =
                [&["stated", "small", "large", "dynamic"][..], &vec!["recursive"; i % 7 + 1], &["main"]].concat();
            let found = names(&traced.recording(), 2000 + i as u64);
            assert_eq!(found.get(..expected.len()), Some(&expected.map_strings()[..]), "{flags:?}");
        }
    }
}

trait MapStrings {
    fn map_strings(&self) -> Vec<String>;
}

impl MapStrings for Vec<&str> {
    fn map_strings(&self) -> Vec<String> {
        self.iter().map(|&text| text.to_owned()).collect()
    }
}

/// The loader's first instructions, which have no unwind information, are the outermost frame.
#[test]
fn constructors_of_libraries_are_followed_to_the_loader() {
    let library = compile("constructed.c", &["-O2", "-shared", "-fPIC", "-DLIBRARY"]);
    let path = library.to_str().unwrap();
    let traced = trace(compile("constructed.c", &["-O2", path]), &[], &[]);
    let info = info(&traced);
    assert_exact(&info, "constructed.c");
    let names = names(&traced.recording(), 777);
    assert_eq!(names.first().map(String::as_str), Some("construct"), "{names:?}");
    assert!(names.iter().any(|name| name == "_dl_init" || name == "call_init"), "{names:?}");
}

/// A library that comes later: until its file has been read, stacks through it are heuristic, and marked; then they are
/// exact. The program's own threads open no file for that.
#[test]
fn files_are_read_by_the_recorders_own_thread() {
    let flags = ["-O2", "-shared", "-fPIC", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-DNAME=late"];
    let library = compile("late_library.c", &flags);
    let program = compile("late.c", &["-O2"]);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("strace");
    let output = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=openat,open,pread64,prctl", "-o"])
        .arg(&log)
        .arg("-E")
        .arg(format!("LD_PRELOAD={}", tracehound_tests::library().display()))
        .arg(&program)
        .arg(&library)
        .current_dir(folder.path())
        .output()
        .expect("strace is installed");
    let traced = Traced { folder, output };
    let info = info(&traced);
    let last = names(&traced.recording(), 6000);
    let expected = ["quiet", "late_inner", "late_call", "main"];
    assert_eq!(last.get(..4), Some(&expected.map(str::to_owned)[..]), "{info:#}");
    // The first ones were taken before anybody could know; the last ones are exact.
    let marked = stacks(&info, "heuristic");
    assert!((1..40).contains(&marked), "{marked} stacks are marked: {info:#}");
    let calls = std::fs::read_to_string(&log).unwrap();
    let name = library.file_name().unwrap().to_str().unwrap();
    let by_thread = |line: &&str| line.contains("openat") && line.contains(name);
    let opens: Vec<&str> = calls.lines().filter(by_thread).collect();
    // The loader's, in the first thread, and ours, in the writer's.
    let writer = calls.lines().find(|line| line.contains("tracehound-wr")).unwrap().split_whitespace().next().unwrap();
    assert_eq!(opens.len(), 2, "{opens:#?}");
    assert!(!opens[0].starts_with(writer) && opens[1].starts_with(writer), "{opens:#?} {writer}");
}

#[test]
fn registered_frames_are_used_in_every_form() {
    let program = compile("registered.c", &["-O2"]);
    for form in ["frame", "info", "bases", "table", "info-table", "table-bases", "threads"] {
        let traced = trace(&program, &[form], &[]);
        let info = info(&traced);
        assert_eq!(agrees(&traced), 48, "{form}");
        assert_exact(&info, form);
        // libgcc allocates when it looks at them first.
        assert!(stacks(&info, "registered") >= 48, "{form}: {info:#}");
    }
}

/// The same code without information: it is said that its stacks are not exact.
#[test]
fn code_that_registers_nothing_is_marked() {
    let traced = trace(compile("registered.c", &["-O2"]), &["unregistered"], &[]);
    let info = info(&traced);
    assert_eq!((stacks(&info, "registered"), stacks(&info, "frame_pointers")), (0, 0), "{info:#}");
    assert_eq!(stacks(&info, "heuristic"), 48, "{info:#}");
}

#[test]
fn each_unwinder_is_the_one_that_was_asked_for() {
    let program = compile("holes.c", &["-O1", "-fno-omit-frame-pointer", "-DKEEPS_FRAMES"]);
    for unwinder in ["auto", "cached"] {
        let traced = trace(&program, &[], &[("TRACEHOUND_UNWINDER", unwinder)]);
        let info = info(&traced);
        assert_eq!(agrees(&traced), 20);
        assert!(stacks(&info, "cfi") > 0 && stacks(&info, "libunwind") == 0 && stacks(&info, "frame_chain") == 0);
        assert_adds_up(&info);
    }
    let traced = trace(&program, &[], &[("TRACEHOUND_UNWINDER", "libunwind")]);
    let with_libunwind = info(&traced);
    assert_eq!(agrees(&traced), 20);
    assert!(stacks(&with_libunwind, "libunwind") >= 20, "{with_libunwind:#}");
    assert_adds_up(&with_libunwind);
    let traced = trace(&program, &[], &[("TRACEHOUND_UNWINDER", "frame-pointer")]);
    let info = info(&traced);
    assert!(stacks(&info, "frame_chain") > 0 && stacks(&info, "cfi") == 0, "{info:#}");
    assert_eq!(stacks(&info, "frame_pointers"), stacks(&info, "total"), "{info:#}");
    assert_eq!(stacks(&info, "heuristic"), 0, "{info:#}");
    for i in 0..20_usize {
        let found = names(&traced.recording(), 2000 + i as u64);
        assert_eq!(found.iter().filter(|name| *name == "recursive").count(), i % 7 + 1, "{found:?}");
    }
}

/// Without libunwind the recorder says so, on standard error and in the recording, and goes by its own rules.
#[test]
fn a_missing_libunwind_is_said() {
    let program = compile("holes.c", &["-O2"]);
    let mut bytes = std::fs::read(library()).unwrap();
    let wanted = b"libunwind.so.8\0";
    let at = (0..bytes.len()).find(|&at| bytes[at..].starts_with(wanted)).unwrap();
    bytes[at] = b'#';
    let (mut command, folder) = traced_command(&program, &[]);
    let copy = folder.path().join("other.so");
    std::fs::write(&copy, bytes).unwrap();
    let output = command.env("LD_PRELOAD", &copy).env("TRACEHOUND_UNWINDER", "libunwind").output().unwrap();
    let traced = Traced { folder, output };
    let said = traced.stderr();
    assert!(said.lines().count() == 1 && said.contains("libunwind"), "{said}");
    let info = info(&traced);
    assert_eq!(agrees(&traced), 20);
    assert_exact(&info, "without libunwind");
    let remarks = info["remarks"].as_array().unwrap();
    assert!(remarks.iter().any(|remark| remark["topic"] == "no-libunwind"), "{info:#}");
    assert!(stacks(&info, "libunwind") == 0 && stacks(&info, "cfi") > 0, "{info:#}");
}

/// V8 keeps frame pointers: stacks through its code are counted as such, and the rest of node has unwind information.
#[test]
fn node_has_few_heuristic_stacks() {
    let traced = trace("/usr/bin/node", &["-e", "0"], &[]);
    let info = info(&traced);
    let total = stacks(&info, "total");
    assert!(total > 100_000, "{info:#}");
    assert!(stacks(&info, "heuristic") < 20, "{:#}", info["recorder"]["stacks"]);
    assert!(stacks(&info, "frame_pointers") > 0, "{:#}", info["recorder"]["stacks"]);
    assert!(stacks(&info, "truncated") * 1000 < total, "{:#}", info["recorder"]["stacks"]);
}

/// Threads that begin when there is no address space left cannot be recorded: the recording says how much it lacks.
#[test]
fn a_thread_without_memory_is_said() {
    let program = compile("no_memory.c", &["-O1"]);
    let totals = |how: &str| {
        let traced = trace(&program, &[how], &[]);
        let info = info(&traced);
        assert_eq!(traced.stdout().trim(), "made 100000, all by 1000", "{how}");
        let said = info["remarks"].as_array().unwrap().iter().any(|remark| remark["topic"] == "no-context");
        let lost = number(&info, "/events/lost");
        (number(&info, "/events/alloc") + number(&info, "/events/free"), lost, said, info["complete"] == true)
    };
    let (all, nothing_lost, said, complete) = totals("all");
    assert_eq!((nothing_lost, said, complete), (0, false, true));
    assert!(all >= 200_000, "{all} events");
    let (recorded, lost, said, complete) = totals("none");
    assert!(lost > 0 && said && !complete, "{lost} lost, remark: {said}, complete: {complete}");
    assert_eq!(recorded + lost, all, "what is not recorded is counted");
}

/// libunwind opens files in the middle of malloc, which a filter of the program's may kill for: it is not asked any more
/// once there is one.
#[test]
fn libunwind_is_left_when_a_filter_comes() {
    let flags =
        ["-O2", "-shared", "-fPIC", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-g", "-DNAME=late"];
    let library = compile("late_library.c", &flags);
    for how in ["prctl", "seccomp"] {
        let program = compile("libunwind_sandbox.c", &["-O1"]);
        let args = [library.to_str().unwrap(), how];
        let traced = trace(program, &args, &[("TRACEHOUND_UNWINDER", "libunwind")]);
        let info = info(&traced);
        assert_eq!(traced.stdout().trim(), "allocated in the sandbox");
        assert!(stacks(&info, "libunwind") > 0 && stacks(&info, "libunwind") < stacks(&info, "total"), "{info:#}");
        let remarks = info["remarks"].as_array().unwrap();
        assert_eq!(remarks.iter().filter(|remark| remark["topic"] == "no-libunwind").count(), 1, "{info:#}");
        assert_eq!((&info["complete"], &info["end"]), (&true.into(), &"exit".into()), "{info:#}");
    }
}

/// What is compressed in a file is not read, and the recording says so.
#[test]
fn compressed_unwind_information_is_said() {
    let tables = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions", "-g"];
    let flags = [&["-O2", "-fomit-frame-pointer"][..], &tables].concat();
    let said = |flags: &[&str]| {
        let traced = trace(compile("holes.c", flags), &[], &[]);
        let info = info(&traced);
        let remarks = info["remarks"].as_array().unwrap();
        let is_said = |remark: &&Value| {
            remark["topic"] == "unwind-information"
                && remark["text"].as_str().is_some_and(|text| text.contains("compressed"))
        };
        (remarks.iter().filter(is_said).count(), stacks(&info, "heuristic"))
    };
    assert_eq!(said(&flags), (0, 0));
    let (times, heuristic) = said(&[&flags[..], &["-gz=zlib"]].concat());
    assert!(times == 1 && heuristic > 0, "said {times} times, {heuristic} stacks are marked");
}
