//! The recorded calls, played back: against real runs with the same allocators, and what cannot be played.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tracehound_tests::http_client::{self, Server};
use tracehound_tests::{ask, compile, copy_program, heaptrace, json, library, number, plain, root, trace};

const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

fn block_cache() -> std::path::PathBuf {
    let include = format!("-I{}", root().join("preload/include").display());
    compile("block_cache.cpp", &["-O1", "-g", "-pthread", &include])
}

/// The first figure that a real run says: resident memory of no file at its end.
fn real(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> u64 {
    let output = plain(program, arguments, variables);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    said.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

fn bounds(row: &Value, key: &str) -> (u64, u64) {
    (number(row, &format!("/{key}/0")), number(row, &format!("/{key}/1")))
}

#[test]
fn one_thread_takes_what_real_runs_take() {
    let program = block_cache();
    let arguments = ["1", "60000", "48"];
    let traced = trace(&program, &arguments, &[]);
    let recording = traced.recording();
    let mut errors = Vec::new();
    for (allocator, library) in [
        ("system", ""),
        ("jemalloc", "libjemalloc.so.2"),
        ("tcmalloc", "libtcmalloc_minimal.so.4"),
        ("mimalloc", "libmimalloc.so.2"),
    ] {
        let preload = if library.is_empty() { String::new() } else { format!("{LIBRARIES}/{library}") };
        assert!(preload.is_empty() || Path::new(&preload).exists(), "{preload} is installed: run tests/needs.sh");
        let replay = json(&["replay", "--allocator", allocator], &recording);
        assert_eq!(replay["schema"], "heaptrace.replay/1");
        let error = replay["self_check"]["error"].as_f64().expect("its own allocator is there");
        assert!(error.abs() < 0.1, "{replay:#}");
        let row = &replay["rows"][0];
        let variables: &[(&str, &str)] = if preload.is_empty() { &[] } else { &[("LD_PRELOAD", &preload)] };
        let runs: Vec<u64> = (0..3).map(|_| real(&program, &arguments, variables)).collect();
        let (least, most) = (runs.iter().min().copied().unwrap_or(0), runs.iter().max().copied().unwrap_or(0));
        let (low, high) = bounds(row, "end_bytes");
        assert!(bounds(row, "peak_bytes").1 >= high && number(row, "/cpu_ns") > 0, "{row}");
        // A tenth, or what real runs differ by.
        let slack = (most / 10).max(most - least);
        assert!(low <= most + slack && high + slack >= least, "{allocator}: {low}..{high}, real {runs:?}");
        errors.push((allocator, high, runs));
        assert_eq!(
            row["command"].as_str().is_some_and(|command| command.starts_with("LD_PRELOAD=")),
            !preload.is_empty()
        );
    }
    // All of them are kept for the summary, which names the smallest if it is worth a word.
    let summary = json(&["summary"], &recording);
    let kept = summary["replay"]["rows"].as_array().expect("rows");
    assert_eq!(kept.len(), errors.len(), "{kept:#?}");
    let text = ask(&["summary"], &recording);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("at the peak instead of") || text.contains("would hold a tenth less"), "{text}");
    eprintln!("replayed and real: {errors:?}");
}

/// The peak lies between two calls that the player makes in one go, and blocks of this size begin anywhere in a page.
#[test]
fn a_peak_that_is_gone_at_once_is_seen() {
    let program = compile("brief_peak.c", &["-O1"]);
    let traced = trace(&program, &[], &[]);
    let preload = format!("{LIBRARIES}/libjemalloc.so.2");
    let settings = ["--set", "dirty_decay_ms=0", "--set", "muzzy_decay_ms=0"];
    let replay = json(&[&["replay", "--allocator", "jemalloc"], &settings[..]].concat(), &traced.recording());
    let row = &replay["rows"][0];
    let variables = [("LD_PRELOAD", preload.as_str()), ("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")];
    let peak = real(&program, &[], &variables);
    let (low, high) = bounds(row, "peak_bytes");
    assert!(low.abs_diff(peak) < peak / 50 && high.abs_diff(peak) < peak / 50, "{low}..{high}, real {peak}");
    assert!(bounds(row, "end_bytes").1 < peak / 8, "{row}");
}

#[test]
fn memory_that_is_not_the_allocators_is_that_of_its_time() {
    let include = format!("-I{}", root().join("preload/include").display());
    let program = compile("passing_map.c", &["-O1", &include]);
    // With a look at the mappings, and with samples of the resident set only, whose part of the recorder is an estimate from
    // above.
    for (arguments, least) in [(&[][..], 80), (&["1000"], 72)] {
        let traced = trace(&program, arguments, &[]);
        let replay = json(&["replay", "--allocator", "system"], &traced.recording());
        let most = |key| bounds(&replay["rows"][0], key).1 >> 20;
        let (peak, end) = (most("peak_bytes"), most("end_bytes"));
        assert!(
            (least..84).contains(&peak) && (32..36).contains(&end),
            "{peak} and {end} MiB: {arguments:?} {replay:#}"
        );
    }
}

#[test]
fn nothing_is_recommended_that_takes_more() {
    let traced = trace(block_cache(), &["1", "2000", "8"], &[]);
    let said = |allocator: &str, setting: &str| {
        let output = ask(&["replay", "--allocator", allocator, "--set", setting], &traced.recording());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let worse = said("tcmalloc", "release_rate=0");
    assert!(worse.contains("tcmalloc 2.") && worse.contains(" release_rate=0"), "{worse}");
    assert!(worse.contains("\nNo row takes less at the end than the program's own allocator, "), "{worse}");
    assert!(!worse.contains("Prove it"), "{worse}");
    let known = said("mimalloc", "MIMALLOC_RESET_DELAY=0");
    assert!(known.contains("MIMALLOC_RESET_DELAY=0"), "{known}");
}

#[test]
fn blocks_have_the_alignment_that_the_program_asked_for() {
    let traced = trace(compile("family.c", &["-O1"]), &[], &[]);
    let folder = tempfile::tempdir().unwrap();
    let (library, alignments) =
        (compile("tells_alignments.c", &["-shared", "-fPIC"]), folder.path().join("alignments"));
    let output = Command::new(heaptrace())
        .args(["replay", "--json", "--allocator", library.to_str().expect("a plain path")])
        .arg(traced.recording())
        .env("ALIGNMENTS", &alignments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = std::fs::read_to_string(&alignments).unwrap();
    let asked: std::collections::BTreeSet<u64> = lines.lines().filter_map(|line| line.parse().ok()).collect();
    // memalign(24, …) is for 32 in glibc, valloc and pvalloc are for a page.
    assert_eq!(asked, [32, 64, 256, 4096].into());
}

/// An allocator that is written in C++ brings the C++ library along, and the real program has its reserve once.
#[test]
fn a_cxx_allocator_has_the_reserve_of_the_cxx_library_once() {
    let traced = trace(compile("exceptions.cpp", &["-O1"]), &["1"], &[]);
    let folder = tempfile::tempdir().unwrap();
    let shared = ["-shared", "-fPIC"];
    for (flags, name) in [(&shared[..], "c"), (&[&shared[..], &["-Wl,--no-as-needed", "-lstdc++"]].concat(), "cxx")] {
        let (library, calls) = (compile("tells_large.c", flags), folder.path().join(name));
        let output = Command::new(heaptrace())
            .args(["replay", "--json", "--orders", "1", "--allocator", library.to_str().expect("a plain path")])
            .arg(traced.recording())
            .env("LARGE", &calls)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(std::fs::read_to_string(&calls).unwrap().lines().count(), 1, "{name}");
    }
}

#[test]
fn settings_reach_the_allocator_and_one_arena_takes_less_than_eight() {
    let traced = trace(block_cache(), &["8", "40000", "48"], &[]);
    let recording = traced.recording();
    let end = |options: &[&str]| {
        let replay = json(&[&["replay", "--orders", "2"], options].concat(), &recording);
        (bounds(&replay["rows"][0], "end_bytes").1, replay["rows"][0].clone())
    };
    let (many, _) = end(&["--allocator", "system"]);
    let (one, row) = end(&["--allocator", "system", "--set", "arena_max=1"]);
    assert!(one * 10 < many * 8, "{one} {many}");
    assert_eq!(row["settings"]["arena_max"], "1");
    let command = row["command"].as_str().expect("a command");
    assert!(command.starts_with("GLIBC_TUNABLES=glibc.malloc.arena_max=1 "), "{command}");
}

#[test]
fn what_is_given_back_after_a_while_is_given_back_by_the_recorded_clock() {
    let program = compile("idle_decay.c", &["-O1"]);
    let jemalloc = format!("{LIBRARIES}/libjemalloc.so.2");
    let traced = trace(program, &[], &[]);
    let replay = json(&["replay", "--allocator", &jemalloc], &traced.recording());
    let row = &replay["rows"][0];
    // 100 MiB were freed; after ten seconds of jemalloc's default they are gone, which takes the replay no ten seconds.
    assert!(bounds(row, "peak_bytes").1 > 90 << 20, "{replay:#}");
    assert!(bounds(row, "end_bytes").1 < 30 << 20, "{replay:#}");
    assert!(number(row, "/cpu_ns") < 5_000_000_000, "{replay:#}");
}

#[test]
fn a_running_server_has_what_was_replayed_since() {
    let traced = trace(block_cache(), &["1", "2000", "8"], &[("TRACEHOUND_OUTPUT", "r.dat")]);
    let folder = traced.folder.path();
    let server = Server::start(folder);
    let none = server.get("replay");
    assert_eq!(
        (&none["schema"], &none["command"]),
        (&"heaptrace.kept_replay/1".into(), &"heaptrace replay r.dat".into())
    );
    assert!(none["replay"].is_null() && none["smaller"].is_null() && none["checked"] == false, "{none:#}");
    let replay = |more: &[&str]| {
        http_client::json(folder, &[&["replay", "--json", "--allocator", "system"], more, &["r.dat"]].concat())
    };
    let plain = replay(&[]);
    let first = server.get("replay");
    assert_eq!((&first["replay"]["rows"], &first["replay"]["recorded"]), (&plain["rows"], &plain["recorded"]));
    assert_eq!(first["replay"]["schema"], "heaptrace.replay/1");
    assert_eq!(plain["rows"].as_array().map(Vec::len), Some(1), "{plain:#}");
    // What it has given out is not the last word: the next replay is added.
    let limited = replay(&["--set", "arena_max=1"]);
    let both = server.get("replay");
    assert_eq!(both["replay"]["rows"], Value::from(vec![limited["rows"][0].clone(), plain["rows"][0].clone()]));
    let error = both["replay"]["self_check"]["error"].as_f64().expect("its own allocator is there");
    assert_eq!(both["checked"], error.abs() <= 0.15, "{both:#}");
    // The command line says the same.
    let summary = http_client::json(folder, &["summary", "--json", "r.dat"]);
    assert_eq!(summary["replay"]["rows"], both["replay"]["rows"]);
}

#[test]
fn the_command_of_the_systems_allocator_leads_past_the_programs_own() {
    let include = format!("-I{}", root().join("preload/include").display());
    let program = compile("block_cache.cpp", &["-O1", "-g", "-pthread", &include, "-ljemalloc"]);
    let arguments = ["1", "60000", "48"];
    let traced = trace(&program, &arguments, &[]);
    let replay = json(&["replay", "--allocator", "system"], &traced.recording());
    let row = &replay["rows"][0];
    let command = row["command"].as_str().unwrap_or_default();
    assert!(command.starts_with("LD_PRELOAD=libc.so.6 "), "{replay:#}");
    let system = real(&program, &arguments, &[("LD_PRELOAD", "libc.so.6")]);
    let (low, high) = bounds(row, "end_bytes");
    assert!(low <= system + system / 10 && high + system / 10 >= system, "{replay:#}: {system} in reality");
    // Only what lies in its own heap can glibc give back.
    let trimmed = |variables: &[(&str, &str)]| {
        let said = plain(&program, &arguments, &[variables, &[("TRIM", "1")]].concat()).stderr;
        let said = String::from_utf8_lossy(&said).into_owned();
        said.split_whitespace().last().and_then(|word| word.parse::<i64>().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    let (own, system) = (trimmed(&[]), trimmed(&[("LD_PRELOAD", "libc.so.6")]));
    assert!(own < 1 << 20 && system > 4 << 20, "{own} and {system}");
}

/// No variable replaces it, so no command would prove a row.
#[test]
fn an_allocator_inside_the_program_has_no_command() {
    let program = compile("static_jemalloc.c", &["-O1", "-l:libjemalloc.a", "-lstdc++", "-lm"]);
    let recording = trace(&program, &[], &[]);
    let replay = json(&["replay"], &recording.recording());
    assert_eq!(replay["recorded"]["allocator"], "jemalloc", "{replay:#}");
    assert!(replay["self_check"]["error"].is_number(), "{replay:#}");
    let rows = replay["rows"].as_array().expect("rows");
    assert!(rows.len() > 2 && rows.iter().all(|row| row["command"] == ""), "{replay:#}");
    let said = String::from_utf8_lossy(&ask(&["replay"], &recording.recording()).stdout).into_owned();
    assert!(!said.contains("LD_PRELOAD="), "{said}");
}

/// Ranges hold those of each recording by itself, and what is kept of each is its own.
#[test]
fn several_recordings_of_one_program_are_one_table() {
    let program = block_cache();
    let traced = ["16", "24", "32"].map(|mib| trace(&program, &["1", "20000", mib], &[]));
    let files = traced.each_ref().map(tracehound_tests::Traced::recording);
    let [first, second, third] = files.each_ref().map(|file| file.to_str().expect("a plain path"));
    let ask_all = |options: &[&str]| {
        let arguments = [&["replay", "--together", "--allocator", "system"], options, &[first, second]].concat();
        ask(&arguments, &files[2])
    };
    let output = ask_all(&["--json"]);
    assert!(output.status.success(), "{output:?}");
    let together: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&together["schema"], &together["recordings"]), (&"heaptrace.replay/1".into(), &3.into()));
    let alone = files.each_ref().map(|file| json(&["replay", "--allocator", "system"], file));
    assert!(alone.iter().all(|one| one.get("recordings").is_none()), "{alone:#?}");
    for key in ["peak_bytes", "end_bytes"] {
        let (low, high) = bounds(&together["rows"][0], key);
        let each = alone.each_ref().map(|one| bounds(&one["rows"][0], key));
        assert!(each[0].1 + (2 << 20) < each[2].0, "they differ: {each:?}");
        // Two replays of one recording differ by some pages.
        assert!(low.abs_diff(each[0].0) < 1 << 20 && high.abs_diff(each[2].1) < 1 << 20, "{low}..{high} {each:?}");
    }
    let kept = json(&["summary"], &files[0]);
    assert_eq!(kept["replay"]["rows"], alone[0]["rows"]);
    let said = String::from_utf8_lossy(&ask_all(&[]).stdout).into_owned();
    assert!(said.contains(" in 3 recordings: at most ") && said.contains("worst self-check: "), "{said}");
    assert_eq!(said.matches("at the end").count(), 1 + said.matches("Least at the end").count(), "{said}");
    // Not the same program.
    let other = trace(compile("brief_peak.c", &["-O1"]), &[], &[]);
    let output = ask(&["replay", "--together", first], &other.recording());
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && why.contains("different programs: "), "{why}");
    assert_eq!(why.lines().count(), 1, "{why}, {second}, {third}");
    // Not the same allocator.
    let preload = format!("{}:{LIBRARIES}/libjemalloc.so.2", library().display());
    let other = trace(&program, &["1", "20000", "16"], &[("LD_PRELOAD", &preload)]);
    let output = ask(&["replay", "--together", first], &other.recording());
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && why.contains("with glibc and with jemalloc"), "{why}");
}

#[test]
fn what_cannot_be_played_is_said_in_one_line() {
    let traced = trace(block_cache(), &["1", "1000", "8"], &[]);
    let recording = traced.recording();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let fake = folder.path().join("libfake.so");
    std::fs::write(&fake, "no library").expect("it can be written");
    let no_allocator = format!("{LIBRARIES}/libz.so.1");
    for (options, word) in [
        (&["--allocator", fake.to_str().expect("a plain path")][..], "it is no library"),
        (&["--allocator", &no_allocator], "defines no malloc"),
        (&["--allocator", "system", "--set", "nosuch=1"], "it has arena_max, "),
        (&["--allocator", "system", "--set", "arena_max=many"], "takes a number"),
        (&["--allocator", "tcmalloc", "--set", "arena_max=1"], "it has aggressive_decommit, "),
        (&["--allocator", "tcmalloc", "--set", "TCMALLOC_ARENA_MAX=1"], "has no such setting"),
        (&["--allocator", "mimalloc", "--set", "purge_delayed=0"], "libmimalloc.so.2 has no such setting"),
        (&["--allocator", "nedmalloc"][..], "accepted: system, jemalloc"),
        (&["--allocator", "./no/such.so"], "there is none"),
        (&["--allocator", "system", "--set", "arena_max"], "NAME=VALUE"),
    ] {
        let output = ask(&[&["replay"], options].concat(), &recording);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(word) && said.lines().count() == 1, "{said}");
    }
    // A setting that an allocator does not understand: there are no figures that would be those of its usual settings.
    let output = ask(&["replay", "--json", "--allocator", "jemalloc", "--set", "dirty_decay=0"], &recording);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("no allocator gave figures"), "{said}");
    let replay: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let why = replay["rows"][0]["failed"].as_str().unwrap_or_default();
    assert!(why.contains("Invalid conf pair: dirty_decay:0"), "{replay:#}");
    // Without the player beside it.
    let copy = folder.path().join("heaptrace");
    copy_program(&heaptrace(), &copy);
    let output = Command::new(&copy).arg("replay").arg(&recording).output().expect("it can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("heaptrace-replay"), "{said}");
}
