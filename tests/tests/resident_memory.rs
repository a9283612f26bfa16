//! What resident memory is made of, against programs that know: row by row, and against what glibc gives back.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tracehound_tests::{compile, heaptrace, json, number, root, stated_bytes, trace};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

fn include() -> String {
    format!("-I{}", root().join("preload/include").display())
}

fn resident_program() -> PathBuf {
    compile("resident.c", &["-O1", "-pthread", &include()])
}

fn row(ledger: &Value, key: &str) -> u64 {
    let rows = ledger["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("no row {key}: {ledger:#}"));
    number(row, "/bytes")
}

fn beside(ledger: &Value, key: &str) -> u64 {
    let rows = ledger["beside"].as_array().expect("rows");
    rows.iter().find(|row| row["key"] == key).map_or(0, |row| number(row, "/bytes"))
}

fn memory(file: &Path, at: &str) -> Value {
    let ledger = json(&["memory", "--at", at], file);
    assert_eq!(ledger["schema"], "heaptrace.memory/2");
    let rows = ledger["rows"].as_array().expect("rows");
    let sum: u64 = rows.iter().map(|row| number(row, "/bytes")).sum();
    assert_eq!(sum, number(&ledger, "/rss_bytes"), "the rows add up: {ledger:#}");
    assert_eq!(sum - row(&ledger, "unexplained"), number(&ledger, "/explained_bytes"));
    ledger
}

#[track_caller]
fn near(what: &str, got: u64, expected: u64, slack: u64) {
    let slack = slack.max(expected / 50);
    assert!(got.abs_diff(expected) <= slack, "{what}: {got} where {expected} is true");
}

#[test]
fn every_kind_of_memory_has_its_row() {
    let traced = trace(resident_program(), &[], &[]);
    let truth = stated_bytes(&traced.stdout());
    let ledger = memory(&traced.recording(), "truth");
    assert!(ledger["look_ns"].is_u64(), "{ledger:#}");
    near("mappings", row(&ledger, "mappings"), truth["mappings"], 2 * PAGE);
    near("files", row(&ledger, "files"), truth["shared"], 2 * PAGE);
    // Beside what the threads touched, the first pages of four stacks.
    near("stacks", row(&ledger, "stacks"), truth["stacks"] + 4 * 5 * PAGE, 4 * 5 * PAGE);
    let modules = row(&ledger, "modules");
    assert!((truth["bss"]..truth["bss"] + 4 * MIB).contains(&modules), "{modules}");
    near("live", row(&ledger, "live"), truth["live"], 2 * PAGE + 4096);
    near("free pages", row(&ledger, "free_pages") + row(&ledger, "free_top"), truth["free"], 2 * PAGE);
    near("untouched", beside(&ledger, "live_untouched"), truth["untouched"], 2 * PAGE);
    near("trim", number(&ledger, "/returnable_by_trim_bytes"), truth["trimmed"], 2 * PAGE);
    let rss = number(&ledger, "/rss_bytes");
    assert!(row(&ledger, "unexplained") * 100 <= rss, "{ledger:#}");
    assert!(row(&ledger, "other") * 20 <= rss, "{ledger:#}");
    assert!(row(&ledger, "recorder") > 0 && beside(&ledger, "page_tables") > 0);
    assert!(ledger["why"].as_str().is_some_and(|why| why.ends_with('.')), "{ledger:#}");
}

/// The nearest look in time is the one at the end, where all is freed: the one before the peak says more of it.
#[test]
fn a_moment_has_the_look_at_which_as_much_was_live() {
    let traced = trace(compile("peak_at_end.c", &["-O1", &include()]), &[], &[]);
    let ledger = memory(&traced.recording(), "peak");
    assert!(row(&ledger, "live") >= 32 * MIB, "{ledger:#}");
    let ledger = memory(&traced.recording(), "end");
    assert!(row(&ledger, "live") < MIB, "{ledger:#}");
}

/// Where the nearest look is of another instant than the one asked for, blocks are counted at the look, and that is said.
#[test]
fn blocks_are_counted_at_the_look() {
    let traced = trace(compile("untouched_peak.c", &["-O1"]), &[], &[]);
    let file = traced.recording();
    for at in ["start", "50%", "peak", "end"] {
        let ledger = memory(&file, at);
        let looked = memory(&file, &format!("{}ns", number(&ledger, "/look_ns")));
        assert_eq!(number(&ledger, "/live_count"), number(&looked, "/live/count"), "{at}: {ledger:#}");
    }
    let peak = memory(&file, "peak");
    assert_eq!(number(&peak, "/live/count"), 1001);
    assert!(number(&peak, "/live_count") != 1001, "a look fell between two lines of the program: {peak:#}");
    let said = Command::new(heaptrace()).args(["memory", "--at", "peak"]).arg(&file).output().expect("it runs");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("this is the look at the pages that is most like it") && said.contains("in 1,001 live blocks"),
        "{said}"
    );
}

/// Stacks of threads without an event are found by their guards, whatever their size; and what the program takes by sbrk is no
/// free memory of the allocator's.
#[test]
fn stacks_of_any_size_and_the_programs_own_break_have_their_rows() {
    let traced = trace(compile("own_stacks.c", &["-O1", "-pthread", &include()]), &[], &[]);
    let truth = stated_bytes(&traced.stdout());
    let ledger = memory(&traced.recording(), "truth");
    near("stacks", row(&ledger, "stacks"), truth["stacks"] + 4 * 5 * PAGE, 4 * 5 * PAGE);
    near("mappings", row(&ledger, "mappings"), truth["mappings"], 2 * PAGE);
    assert!(row(&ledger, "other") * 20 <= number(&ledger, "/rss_bytes"), "{ledger:#}");
    assert!(number(&ledger, "/returnable_by_trim_bytes") < MIB, "{ledger:#}");
}

/// The sentence names what the memory is, whatever it is; and a file's mapping is the program's where it was written to.
#[test]
fn memory_of_no_allocator_has_its_sentence() {
    let program = compile("resident_other.c", &["-O1", "-g", &include()]);
    for (what, key, child, words) in [
        ("variables", "modules", "", "are static variables, most of them resident_other"),
        ("copy", "mappings", "/copied", "mappings that the program made itself"),
        ("zero", "mappings", "/dev/zero", "mappings that the program made itself"),
        ("direct", "other", "", "that nobody was seen to map"),
    ] {
        let traced = trace(&program, &[what], &[]);
        let ledger = memory(&traced.recording(), "here");
        assert!(row(&ledger, key) >= 30 * MIB && row(&ledger, key) < 33 * MIB, "{what}: {ledger:#}");
        assert!(row(&ledger, "files") < MIB, "{what}: {ledger:#}");
        assert!(ledger["why"].as_str().is_some_and(|why| why.contains(words)), "{what}: {}", ledger["why"]);
        let of_key = ledger["rows"].as_array().unwrap().iter().find(|row| row["key"] == key).unwrap();
        let name = of_key["children"][0]["name"].as_str().unwrap_or_default();
        assert!(name.ends_with(child), "{what}: {name}");
        if !child.is_empty() {
            let output = tracehound_tests::ask(&["memory", "--at", "here"], &traced.recording());
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                text.lines().any(|line| line.contains("mapped by the program itself") && line.contains(child)),
                "{text}"
            );
        }
    }
}

#[test]
fn mappings_that_were_not_recorded_are_not_said_to_be_nobodys() {
    let program = compile("resident_other.c", &["-O1", "-g", &include()]);
    let traced = trace(&program, &["direct"], &[("TRACEHOUND_MAPPINGS", "0")]);
    let output = tracehound_tests::ask(&["memory", "--at", "here"], &traced.recording());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("who mapped it is not known, since mappings were not recorded"), "{text}");
    assert!(text.contains("\nmappings were not recorded (TRACEHOUND_MAPPINGS=0)\n"), "{text}");
}

#[test]
fn tens_of_thousands_of_mappings() {
    let traced = trace(resident_program(), &["15000"], &[]);
    let truth = stated_bytes(&traced.stdout());
    let ledger = memory(&traced.recording(), "truth");
    near("mappings", row(&ledger, "mappings"), truth["mappings"], 2 * PAGE);
    near("live", row(&ledger, "live"), truth["live"], 2 * PAGE + 4096);
}

#[test]
fn looks_that_wait_for_their_time_are_remarked() {
    let program = compile("looked_at.c", &["-O1", "-pthread", &include()]);
    let is_remarked = |mappings| {
        let traced = trace(&program, &["1", mappings, "3"], &[]);
        json(&["info"], &traced.recording()).to_string().contains("looks at the page tables are rarer")
    };
    assert!(!is_remarked("0"), "there are few mappings");
    // On a busy machine the looks before may have taken all the time, so that none was begun.
    assert!((0..3).any(|_| is_remarked("60000")), "no look was put off, or nothing says so");
}

/// The kernel blocks every thread that maps memory while it counts the kinds of a large mapping.
#[test]
fn kinds_of_a_large_resident_set_are_counted_on_request_and_at_the_end() {
    let traced = trace(
        compile("looked_at.c", &["-O1", "-pthread", &include()]),
        &["1", "0", "3"],
        &[("TRACEHOUND_PAGES", "100")],
    );
    let counted = |at: &str| {
        let answer = memory(&traced.recording(), at);
        let keys: Vec<&str> =
            answer["beside"].as_array().expect("rows").iter().filter_map(|row| row["key"].as_str()).collect();
        assert!(number(&answer, "/rss_bytes") > 512 * MIB, "{answer:#}");
        (number(&answer, "/kernel/rss_bytes"), keys.contains(&"lazy_free"))
    };
    let (before, is_shown) = counted("30%");
    assert!(before <= 256 * MIB && !is_shown, "{before} bytes were counted while the program ran, shown: {is_shown}");
    assert!(counted("cost").1, "not counted with a look that was requested");
    let (bytes, is_shown) = counted("end");
    assert!(bytes > 1024 * MIB && is_shown, "{bytes} bytes were counted at the end, shown: {is_shown}");
}

#[test]
fn looks_can_be_switched_off_and_come_by_a_period() {
    let traced = trace(resident_program(), &[], &[("TRACEHOUND_PAGES", "off")]);
    let ledger = memory(&traced.recording(), "end");
    assert!(ledger["look_ns"].is_null() && ledger["returnable_by_trim_bytes"].is_null(), "{ledger:#}");
    let traced = trace(resident_program(), &[], &[("TRACEHOUND_PAGES", "5")]);
    assert!(memory(&traced.recording(), "10ms")["look_ns"].is_u64());
    let refused = trace("/bin/true", &[], &[("TRACEHOUND_PAGES", "sometimes")]);
    assert!(refused.stderr().contains("TRACEHOUND_PAGES"), "{}", refused.stderr());
}

#[test]
fn what_trim_gives_back_with_eight_threads_is_predicted() {
    let program = compile("block_cache.cpp", &["-O1", "-g", "-pthread", &include()]);
    let traced = trace(program, &["8", "30000", "48"], &[("TRIM", "1")]);
    let words: Vec<String> = traced.stderr().split_whitespace().map(str::to_owned).collect();
    let trimmed: u64 = words.last().and_then(|word| word.parse().ok()).expect("the program says what it trimmed");
    let ledger = memory(&traced.recording(), "dropped");
    near("trim", number(&ledger, "/returnable_by_trim_bytes"), trimmed, 64 * PAGE);
    let rss = number(&ledger, "/rss_bytes");
    assert!(row(&ledger, "unexplained") * 100 <= rss && row(&ledger, "other") * 20 <= rss, "{ledger:#}");
}

/// The time series of pages with live blocks: its last value is a recount of the dump, and live bytes never exceed it.
#[test]
fn pages_with_live_blocks_are_counted_at_every_instant() {
    let program = compile("block_cache.cpp", &["-O1", "-g", "-pthread", &include()]);
    let traced = trace(&program, &["2", "6000", "8"], &[("TRACEHOUND_PAGES", "off")]);
    let file = traced.recording();
    let address = |event: &Value, key: &str| {
        event[key].as_str().and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok())
    };
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    // The number of blocks that begin, end or lie in a page, from one event to the next.
    let mut blocks: BTreeMap<u64, i64> = BTreeMap::new();
    let mut count = |at: u64, size: u64, by: i64| {
        for page in at / PAGE..=(at + size.max(1) - 1) / PAGE {
            let blocks_there = blocks.entry(page).or_default();
            *blocks_there += by;
            if *blocks_there == 0 {
                blocks.remove(&page);
            }
        }
        blocks.len() as u64
    };
    let (mut pages, mut most) = (0, 0);
    for event in tracehound_tests::dump(&file) {
        let kind = event["kind"].as_str().unwrap_or_default();
        let gone = if kind == "free" { "address" } else { "old_address" };
        if kind == "free" || kind == "realloc" {
            let at = address(&event, gone).expect("an address");
            let size = live.remove(&at).expect("a living block");
            pages = count(at, size, -1);
        }
        if kind == "alloc" || kind == "realloc" {
            let (at, size) = (address(&event, "address").expect("an address"), number(&event, "/size"));
            live.insert(at, size);
            pages = count(at, size, 1);
        }
        most = most.max(pages);
    }
    let sql = |query: &str| {
        let mut command = Command::new(tracehound_tests::heaptrace());
        let output = command.arg("sql").arg(&file).args([query, "--json"]).output().expect("heaptrace starts");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")["rows"][0].clone()
    };
    let last = sql("SELECT t_ns, occupied_bytes FROM timeline(500) ORDER BY t_ns DESC LIMIT 1");
    assert_eq!(number(&last, "/occupied_bytes"), pages * PAGE);
    let highest =
        sql("SELECT max(occupied_bytes) AS most, min(occupied_bytes - live_bytes) AS room FROM timeline(500)");
    let highest_seen = number(&highest, "/most");
    assert!(highest_seen <= most * PAGE && highest_seen * 10 > most * PAGE * 9, "{highest_seen} of {}", most * PAGE);
    // 64 events of at most 8 KiB are what the two may lie apart where a part of the time ends.
    let room = highest["room"].as_i64().expect("a number");
    assert!(room > -(64 * 8192), "{room}");
}

/// The figure that `info` calls the peak is the one whose parts `memory` lists, and so is the recorder's part of it.
#[test]
fn the_peak_is_the_sum_of_its_rows() {
    for pages in ["auto", "off"] {
        let traced = trace(resident_program(), &[], &[("TRACEHOUND_PAGES", pages)]);
        let peak = &traced.info()["peak_rss"];
        let ledger = memory(&traced.recording(), &number(peak, "/at_ns").to_string());
        assert_eq!(number(&ledger, "/rss_bytes"), number(peak, "/bytes"), "{pages}: {ledger:#}");
        if pages == "auto" {
            assert_eq!(row(&ledger, "recorder"), number(peak, "/recorder_bytes"), "{ledger:#}");
            assert_eq!(number(&ledger, "/look_ns"), number(peak, "/at_ns"));
        }
        // What contradicted the rows is gone.
        assert!(ledger.get("resident").is_none() && ledger.get("kinds").is_none(), "{ledger:#}");
    }
}

/// Row by row, where pages are huge, offered back, or moved out to swap; gives what the program said.
fn page_kinds(variables: &[(&str, &str)]) -> BTreeMap<String, u64> {
    let program = compile("page_kinds.c", &["-O1", &include()]);
    let traced = trace(program, &[], variables);
    let truth = stated_bytes(&traced.stdout());
    let suffix = format!("-{}.dat", truth["pid"]);
    let recordings = traced.recordings();
    let of_process = recordings.iter().find(|path| path.to_string_lossy().ends_with(&suffix));
    let recording = of_process.expect("the process that printed has a recording");
    let ledger = memory(recording, "truth");
    assert!(ledger["look_ns"].is_u64(), "{ledger:#}");
    near("mappings", row(&ledger, "mappings"), truth["mappings"], 2 * PAGE);
    near("live", row(&ledger, "live"), truth["live"], 2 * PAGE);
    near("swapped", beside(&ledger, "swapped"), truth["swapped"], 2 * PAGE);
    // Every block was touched; what is in swap was, too.
    near("untouched", beside(&ledger, "live_untouched"), 0, 4 * PAGE);
    let end = memory(recording, "end");
    near("lazily freed", beside(&end, "lazy_free"), truth["lazy"], 2 * PAGE);
    near("huge", beside(&end, "huge_pages"), truth["huge"], 2 * PAGE);
    assert!(row(&ledger, "unexplained") * 100 <= number(&ledger, "/rss_bytes"), "{ledger:#}");
    truth
}

/// A file that pages are moved out to, while this lives.
struct Swap {
    file: PathBuf,
}

impl Swap {
    fn on(folder: &Path) -> Result<Self, String> {
        let file = folder.join("swap");
        // A file with holes is refused.
        std::fs::write(&file, vec![0; 48 << 20]).map_err(|error| error.to_string())?;
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).map_err(|error| error.to_string())?;
        let run = |tool: &str| {
            let output = Command::new(tool).arg(&file).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").output();
            let output = output.map_err(|error| format!("{tool}: {error}"))?;
            let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if output.status.success() { Ok(()) } else { Err(said()) }
        };
        run("mkswap")?;
        run("swapon")?;
        Ok(Self { file })
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let off = Command::new("swapoff").arg(&self.file).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").status();
        let is_off = off.is_ok_and(|status| status.success());
        assert!(is_off || std::thread::panicking(), "swap stays switched on: {}", self.file.display());
    }
}

#[test]
fn what_is_in_swap_is_beside_the_rows_and_was_touched() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let _swap = match Swap::on(folder.path()) {
        Ok(swap) => swap,
        Err(reason) => {
            // Past the capture of the test's output: what was not tested must be seen.
            let words = format!("what_is_in_swap_is_beside_the_rows: NOT TESTED, no swap can be had: {reason}\n");
            std::io::stderr().write_all(words.as_bytes()).expect("standard error");
            return;
        }
    };
    let cases: [&[(&str, &str)]; 2] = [&[], &[("FILTER", "1")]];
    for variables in cases {
        let truth = page_kinds(variables);
        assert!(truth["swapped"] >= 8 * MIB && truth["block_in_swap"] >= 2 * MIB, "{truth:?}");
    }
    page_kinds(&[("FORK", "1"), ("TRACEHOUND_CHILDREN", "1")]);
}

#[test]
fn huge_pages_and_those_offered_back_have_their_rows() {
    page_kinds(&[]);
}

#[test]
fn a_forked_child_has_its_own_pages() {
    page_kinds(&[("FORK", "1"), ("TRACEHOUND_CHILDREN", "1")]);
}

#[test]
fn pages_are_read_behind_a_filter_that_kills_for_mincore() {
    page_kinds(&[("FILTER", "1")]);
}

/// The recorder's memory grows most in the first moments: samples that do not know it call it the program's.
#[test]
fn samples_of_the_first_moments_know_the_recorders_memory() {
    let traced = trace(compile("busy_start.c", &["-O1"]), &[], &[("TRACEHOUND_SAMPLE_MEMORY_MS", "1")]);
    let statement = "select distinct recorder_bytes from samples where t_ns < 150000000";
    let output =
        Command::new(heaptrace()).arg("sql").arg("--csv").arg(traced.recording()).arg(statement).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let figures: Vec<u64> = text.lines().skip(1).map(|line| line.trim().parse().unwrap()).collect();
    assert!(figures.len() > 2, "{figures:?}");
    let (least, most) = (figures.iter().min().unwrap(), figures.iter().max().unwrap());
    assert!(most - least > MIB, "{figures:?}");
}
