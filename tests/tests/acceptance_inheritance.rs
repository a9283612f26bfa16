//! What a followed child has inherited is found in its parent's recording, wherever that is and however the parent
//! ended; where it is not, every answer says so.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tracehound_tests::ground_truth::Case;
use tracehound_tests::ledger::{Ledger, amount};
use tracehound_tests::process::Running;
use tracehound_tests::{compile, functions, heaptrace, json, library, number, wait_for};

/// A family of processes, its recordings, and what each process held at its end.
struct Family {
    folder: TempDir,
    /// Blocks and bytes by process id.
    held: BTreeMap<u64, (u64, u64)>,
    parent: u64,
}

fn start(folder: &Path, args: &[&str], traced: bool) -> Child {
    let mut command = Command::new(compile("inherits.c", &["-O1"]));
    command.args(args).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    if traced {
        command.env("LD_PRELOAD", library()).env("TRACEHOUND_CHILDREN", "1");
        command.env("TRACEHOUND_OUTPUT", "memory-inherits-%p.dat");
    }
    command.spawn().expect("it can be started")
}

fn held(text: &str) -> BTreeMap<u64, (u64, u64)> {
    let numbers = |line: &str| line.split(' ').map(|word| word.parse().expect("a number")).collect::<Vec<u64>>();
    text.lines().filter_map(|line| line.strip_prefix("holds ")).map(numbers).map(|n| (n[0], (n[1], n[2]))).collect()
}

impl Family {
    /// Runs it until the last of its processes has ended.
    fn run(mode: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut child = Running(start(folder.path(), &[mode], true));
        let (mut text, parent) = (String::new(), u64::from(child.id()));
        child.stdout.as_mut().expect("a pipe").read_to_string(&mut text).expect("text");
        child.wait().expect("it can be waited for");
        let family = Self { folder, held: held(&text), parent };
        // A process that has ended has closed its standard output first.
        for path in family.recordings() {
            wait_for("the end of every process", Duration::from_secs(20), || {
                json(&["info"], &path)["end"] != "running"
            });
        }
        family
    }

    fn recordings(&self) -> Vec<PathBuf> {
        recordings(self.folder.path())
    }

    fn path(&self, pid: u64) -> PathBuf {
        self.folder.path().join(format!("memory-inherits-{pid}.dat"))
    }

    /// The only child.
    fn child(&self) -> PathBuf {
        let parent = self.path(self.parent);
        let found: Vec<_> = self.recordings().into_iter().filter(|path| *path != parent).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

    /// Every process's recording says what the process has said.
    fn assert_agrees(&self) {
        for (&pid, &held) in &self.held {
            assert_holds(&self.path(pid), held);
        }
    }
}

fn recordings(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "dat")).collect();
    found.sort();
    found
}

/// All recordings will be opened as if for the first time.
fn forget_indexes(folder: &Path) {
    for path in recordings(folder) {
        let _ = fs::remove_dir_all(path.with_extension("dat.idx"));
    }
}

/// Events of inherited blocks in a dump.
fn inherited(recording: &Path) -> usize {
    let output = Command::new(heaptrace()).args(["dump", "--no-symbols"]).arg(recording).output().expect("it starts");
    String::from_utf8_lossy(&output.stdout).matches(r#""function":"inherited""#).count()
}

/// `info`, `leaks` and `dump` agree with one another and with what the process held.
fn assert_holds(recording: &Path, held: (u64, u64)) -> Value {
    let info = json(&["info"], recording);
    assert_eq!(amount(&info, "/leaked"), held, "{info:#}");
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{info:#}");
    assert_eq!(info["complete"], true, "{info:#}");
    Ledger::of(recording).assert_agrees(&info, &json(&["leaks"], recording), "what is inherited");
    // What was there before is no work of the process's own.
    let before = info["inherited"]["count"].as_u64().unwrap_or(0);
    assert_eq!(before, inherited(recording) as u64, "{info:#}");
    let own = number(&info, "/allocations/count") - before;
    assert_eq!(number(&json(&["churn"], recording), "/total/allocations/count"), own);
    let check = Command::new(heaptrace()).args(["check", "--json", "--max-allocations", "0"]).arg(recording).output();
    let check: Value = serde_json::from_slice(&check.expect("it starts").stdout).expect("JSON");
    assert_eq!(number(&check, "/measured/allocations"), own, "{check:#}");
    info
}

/// Without the parent's recording: said in `info`, on the terminal, and with an export.
fn assert_says_missing(child: &Path) {
    let info = json(&["info"], child);
    assert_eq!(info["complete"], false, "{info:#}");
    // Ten frees and three reallocs of what was inherited; the two other frees are of blocks that those reallocs made.
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 13, "{info:#}");
    let said = "is not there: the blocks that were inherited are missing, and their frees count as unmatched";
    assert!(info["remarks"].to_string().contains(said), "{info:#}");
    for args in [&["info"][..], &["leaks"], &["top"], &["sites"], &["summary"], &["dump"]] {
        let output = Command::new(heaptrace()).args(args).arg(child).output().expect("heaptrace can be started");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.status.success() && text.contains(said), "{args:?}: {text}");
    }
}

#[test]
fn three_generations_each_hold_what_they_say() {
    let family = Family::run("tree");
    assert_eq!(family.held.len(), 4);
    family.assert_agrees();
    // Each is right, too, when it is the first that is opened.
    forget_indexes(family.folder.path());
    let mut newest_first: Vec<_> = family.held.iter().collect();
    newest_first.reverse();
    for (&pid, &held) in newest_first {
        let info = assert_holds(&family.path(pid), held);
        assert_eq!(inherited(&family.path(pid)) > 0, pid != family.parent, "{info:#}");
    }
}

#[test]
fn forty_children_at_once() {
    let family = Family::run("forty");
    assert_eq!(family.held.len(), 41);
    family.assert_agrees();
}

#[test]
fn a_fork_from_a_thread_among_others_that_allocate() {
    let family = Family::run("thread");
    assert_eq!(family.held.len(), 9);
    for (&pid, &(count, bytes)) in &family.held {
        let path = family.path(pid);
        let info = json(&["info"], &path);
        assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{info:#}");
        assert_eq!(info["complete"], true, "{info:#}");
        let leaks = json(&["leaks"], &path);
        Ledger::of(&path).assert_agrees(&info, &leaks, "a fork from a thread");
        let sites = leaks["sites"].as_array().into_iter().flatten();
        let own = sites.filter(|site| {
            let functions = functions(&site["stack"]);
            functions.iter().any(|name| name == "kept_block" || name == "moved_block")
        });
        let sum = own.fold((0, 0), |sum, site| (sum.0 + number(site, "/count"), sum.1 + number(site, "/bytes")));
        assert_eq!(sum, (count, bytes), "{leaks:#}");
    }
}

#[test]
fn a_parent_that_ends_first() {
    let family = Family::run("orphan");
    family.assert_agrees();
}

#[test]
fn a_parent_that_was_killed() {
    let family = Family::run("killed");
    assert_eq!(json(&["info"], &family.path(family.parent))["end"], "killed");
    assert_eq!(family.held.len(), 1, "the parent could not say what it held");
    family.assert_agrees();
}

#[test]
fn a_parent_that_still_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut child = Running(start(folder.path(), &["stays"], true));
    let (mut text, parent) = (String::new(), child.id());
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    while !text.ends_with("ready\n") {
        assert!(lines.read_line(&mut text).expect("text") > 0, "{text}");
    }
    let parent = folder.path().join(format!("memory-inherits-{parent}.dat"));
    assert_eq!(json(&["info"], &parent)["end"], "running");
    for (pid, held) in held(&text) {
        assert_holds(&folder.path().join(format!("memory-inherits-{pid}.dat")), held);
    }
}

#[test]
fn a_child_that_makes_no_event_has_inherited_all_the_same() {
    let family = Family::run("quiet");
    family.assert_agrees();
    let child = family.child();
    let ledger = Ledger::of(&child);
    assert_eq!(ledger.through("kept_block"), (95, 9500));
    assert_eq!(inherited(&child), 95);
}

#[test]
fn without_the_parents_recording_every_answer_says_so_until_it_is_there() {
    let family = Family::run("orphan");
    let (child, parent) = (family.child(), family.path(family.parent));
    let held = *family.held.iter().find(|(pid, _)| **pid != family.parent).expect("the child has said").1;
    let away = family.folder.path().join("away");
    fs::create_dir(&away).expect("writable");
    let moved = away.join("renamed");
    fs::rename(&parent, &moved).expect("it can be moved");
    forget_indexes(family.folder.path());
    assert_says_missing(&child);
    // Named along with it, in whatever folder and by whatever name.
    let output = Command::new(heaptrace()).args(["info", "--json"]).args([&child, &moved]).output().expect("it starts");
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(amount(&list["recordings"][0]["document"], "/leaked"), held, "{list:#}");
    forget_indexes(family.folder.path());
    assert_says_missing(&child);
    // It comes back: the index notices.
    fs::rename(&moved, &parent).expect("it can be moved");
    assert_holds(&child, held);
    // Once it has been seen, the index has what was needed.
    fs::rename(&parent, &moved).expect("it can be moved");
    assert_holds(&child, held);
}

#[test]
fn a_folder_that_was_moved() {
    let family = Family::run("tree");
    let other = tempfile::tempdir().expect("a temporary folder");
    for path in family.recordings() {
        let name = path.file_name().expect("a name").to_string_lossy().replace("memory", "renamed");
        fs::copy(&path, other.path().join(name)).expect("it can be copied");
        fs::remove_file(path).expect("it can be removed");
    }
    for (pid, held) in &family.held {
        assert_holds(&other.path().join(format!("renamed-inherits-{pid}.dat")), *held);
    }
    // The first of the four is gone: all others lack something.
    fs::remove_file(other.path().join(format!("renamed-inherits-{}.dat", family.parent))).expect("it is there");
    forget_indexes(other.path());
    for path in recordings(other.path()) {
        let info = json(&["info"], &path);
        assert_eq!(info["complete"], false, "{info:#}");
        assert!(info["remarks"].to_string().contains("is not there"), "{info:#}");
    }
}

#[test]
fn a_bundle_of_a_child_says_what_it_needs() {
    let family = Family::run("quiet");
    let child = family.child();
    let bundle = family.folder.path().join("bundle");
    let output =
        Command::new(heaptrace()).arg("bundle").arg(&child).arg("-o").arg(&bundle).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let parent = family.path(family.parent);
    assert!(said.contains(&format!("take its parent's recording {} along", parent.display())), "{said}");
    assert_holds(&bundle, (95, 9500));
}

/// Nobody may allocate in a child before the handlers of the program's allocator have run there, not the C library for a
/// thread of ours either.
#[test]
fn an_allocator_that_holds_its_lock_over_a_fork() {
    const FLAGS: [&str; 2] = ["-O1", "-fno-builtin"];
    for handlers in ["0", "3"] {
        let case = Case::compiled("atfork_allocator.c", &FLAGS).args(&["5", handlers]).option("CHILDREN", "1");
        let run = case.clone().within(Duration::from_secs(60)).agrees();
        assert_eq!(run.plain.printed(), "5 children have lived\n");
        let children: Vec<_> = run.traced.recordings().into_iter().filter(|path| *path != run.recording).collect();
        assert_eq!(children.len(), 5);
        for child in children {
            let info = case.sound(&child, "exit");
            assert_eq!((number(&info, "/events/alloc"), number(&info, "/events/free")), (500, 500), "{info:#}");
            assert!(!info["remarks"].to_string().contains("no-writer-thread"), "{info:#}");
        }
    }
}

/// The shortest time of a child that ends at once.
fn child_seconds(count: u64, traced: bool) -> f64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = start(folder.path(), &["million", &count.to_string()], traced).wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let times = text.lines().filter_map(|line| line.strip_prefix("child ")?.parse::<f64>().ok());
    let shortest = times.fold(f64::MAX, f64::min);
    if traced {
        let found = recordings(folder.path());
        assert_eq!(found.len(), 4, "{found:?}");
        for path in found {
            assert_eq!(amount(&json(&["info"], &path), "/leaked"), (count, count * 48));
        }
    }
    shortest
}

#[test]
fn a_million_live_blocks_cost_a_child_nothing_worth_mentioning() {
    // Pairs, since whatever else the machine does takes its time from both; the best of them counts.
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (plain, traced) = (child_seconds(1_000_000, false), child_seconds(1_000_000, true));
        seen.push((plain, traced));
        if traced <= plain + 0.2 {
            return;
        }
    }
    panic!("seconds of a child, plain and traced: {seen:?}");
}
