//! Random schedules of kills: of the traced process, of the collector between its steps, of the collector that stands for
//! the store. Whoever is killed when, what arrives is what was recorded, event by event.
//!
//! `SCHEDULES=1000` for a long run (`make fleet-schedules`). Each schedule has a seed of its own, which is printed when it
//! fails: `TRACEHOUND_TEST_SEED=SEED SCHEDULES=1` runs it again, as far as time allows.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{SeekFrom, seek};
use serde_json::Value;
use tracehound_tests::fleet::{Fleet, answers, free_address, kill};
use tracehound_tests::process::Running;
use tracehound_tests::{ask, compile, heaptrace, json, number, random_seed, wait_for};

/// Schedules that run side by side: most of their time they wait.
const AT_ONCE: u32 = 4;

/// System calls before which a collector may be killed: between writing a piece and having it in the store (`fsync`,
/// `rename`), between that and the hole (`fallocate`), between the end and the files (`unlink`), in a request.
const STEPS: [&str; 7] = ["fsync", "rename", "fallocate", "unlink", "sendto", "recvfrom", "writev"];

/// Numbers that look random (xorshift).
struct ScheduleRandom(u32);

impl ScheduleRandom {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % limit
    }

    fn is(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    fn moment(&mut self, from: u32, to: u32) -> Duration {
        Duration::from_millis(u64::from(from + self.below(to - from)))
    }
}

/// How a schedule goes.
struct Schedule {
    /// The collector gives back to the disk what the store has.
    holes: bool,
    /// A collector with a listener stands for the store.
    remote: bool,
    /// Two collectors work on the spool at once.
    twins: bool,
    /// Blocks after which the program ends by itself; 0: it is killed.
    blocks: u32,
}

/// What the run of a schedule came to.
#[derive(Default)]
struct Outcome {
    kills: u32,
    had_hole: bool,
}

/// Runs `command` until it ends, or is killed: before one of the [`STEPS`], or at the moment that is given. Whether it was
/// killed.
fn doomed(command: &Command, random: &mut ScheduleRandom, longest: Duration) -> bool {
    let mut all = if random.is(60) {
        let step = STEPS[random.below(STEPS.len() as u32) as usize];
        let mut strace = Command::new("strace");
        // Each thread counts its own calls.
        let inject = format!("inject={step}:signal=KILL:when={}", 1 + random.below(4));
        strace.args(["-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e", &inject]).arg(command.get_program());
        strace
    } else {
        Command::new(command.get_program())
    };
    all.args(command.get_args()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = Running(all.spawn().expect("heaptrace and strace are installed"));
    let since = Instant::now();
    while since.elapsed() < longest {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return !status.success();
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    // With its group, so that strace does not let it live.
    drop(child);
    true
}

/// The files of the one recording in the spool, under other names: they stay when the collector deletes its own.
fn keep_aside(spool: &Path, folder: &Path) -> PathBuf {
    let mut found = None;
    wait_for("a recording", Duration::from_secs(60), || {
        let entries = std::fs::read_dir(spool).expect("a spool").map(|entry| entry.expect("an entry").path());
        found = entries.into_iter().find(|path| path.extension().is_some_and(|end| end == "dat"));
        found.as_ref().is_some_and(|path| path.metadata().is_ok_and(|meta| meta.len() >= 64))
    });
    let path = found.expect("a recording");
    let aside = folder.join("reference.dat");
    std::fs::hard_link(&path, &aside).expect("a link");
    let live = |path: &Path| PathBuf::from(format!("{}.live", path.display()));
    std::fs::hard_link(live(&path), live(&aside)).expect("a link to the side file");
    aside
}

fn run(schedule: &Schedule, random: &mut ScheduleRandom) -> Outcome {
    let fleet = Fleet::default();
    let aside_folder = tempfile::tempdir_in(fleet.spool().parent().expect("a folder")).expect("a folder");
    let counter = aside_folder.path().join("done");
    let program = compile("counted_blocks.c", &["-O1"]);
    let mut traced = fleet.traced(&program, "service=schedule");
    traced.arg(&counter).arg(schedule.blocks.to_string()).env("TRACEHOUND_SAMPLE_MEMORY_MS", "20");
    let traced = Running(traced.spawn().expect("it starts"));
    let reference = keep_aside(&fleet.spool(), aside_folder.path());

    let mut options = vec!["--interval", "10", "--no-tables", "--no-symbols"];
    if schedule.holes {
        options.extend(["--quota", "600K"]);
    }
    let address = free_address();
    let mut sender = Fleet::collector(&fleet.spool(), &format!("http://{address}"), &options);
    let mut listener = Command::new(heaptrace());
    listener.args(["collect", "--listen", &address, "--store", &fleet.store, "--no-tables", "--no-symbols"]);
    if !schedule.remote {
        sender = fleet.collect(&options);
    }

    let (program_over, schedule_over, kills) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU32::new(0));
    let life = random.moment(60, 700);
    let mut store_random = ScheduleRandom(random.below(u32::MAX) | 1);
    let mut twin_random = ScheduleRandom(random.below(u32::MAX) | 1);
    let until_over = |command: &Command, random: &mut ScheduleRandom, longest: u32| {
        while !schedule_over.load(Ordering::SeqCst) {
            let moment = random.moment(20, longest);
            kills.fetch_add(u32::from(doomed(command, random, moment)), Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut traced = traced;
            if schedule.blocks == 0 {
                std::thread::sleep(life);
                traced.kill().expect("it runs");
            }
            traced.wait().expect("it ends");
            program_over.store(true, Ordering::SeqCst);
        });
        if schedule.remote {
            scope.spawn(|| until_over(&listener, &mut store_random, 500));
        }
        if schedule.twins {
            scope.spawn(|| until_over(&sender, &mut twin_random, 300));
        }
        let mut rounds_left = 1 + random.below(4);
        while rounds_left > 0 {
            if program_over.load(Ordering::SeqCst) {
                rounds_left -= 1;
            }
            let moment = random.moment(20, 300);
            kills.fetch_add(u32::from(doomed(&sender, random, moment)), Ordering::SeqCst);
        }
        schedule_over.store(true, Ordering::SeqCst);
    });

    // Now nobody is killed any more.
    let _listener = schedule.remote.then(|| listening(listener, &address));
    let output = sender.arg("--once").output().expect("heaptrace can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<_> = std::fs::read_dir(fleet.spool()).expect("a spool").map(|e| e.unwrap().file_name()).collect();
    assert!(left.is_empty(), "what was stored goes: {left:?}");
    let had_hole = check(&fleet, schedule, &reference, &counter);
    Outcome { kills: kills.into_inner(), had_hole }
}

/// A collector that listens at an address. One that was killed may have that for a moment more.
fn listening(mut listener: Command, address: &str) -> Running {
    listener.stderr(Stdio::null());
    let mut running = Running(listener.spawn().expect("heaptrace can be started"));
    wait_for("the listener", Duration::from_secs(60), || {
        if running.try_wait().expect("it can be waited for").is_some() {
            running = Running(listener.spawn().expect("heaptrace can be started"));
        }
        answers(address)
    });
    running
}

/// Whether what arrived is what was recorded; gives whether the recording had been given back in parts.
fn check(fleet: &Fleet, schedule: &Schedule, reference: &Path, counter: &Path) -> bool {
    let mut names: Vec<String> = std::fs::read_dir(fleet.stored().join("raw"))
        .expect("a store")
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let [stored] = &fleet.recordings()[..] else { panic!("one recording: {names:?}") };
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let expected = [name(stored), name(&stored.with_extension("json"))];
    // A twin that is killed behind the other's end may leave a piece.
    assert!(names == expected || schedule.twins, "nothing is left but the recording: {names:?}");
    if schedule.blocks > 0 {
        let _ = std::fs::remove_file(format!("{}.live", reference.display()));
    }

    // The bytes of the file that are still there are those in the store.
    let (here, there) = (File::open(reference).unwrap(), File::open(stored).unwrap());
    let had_hole = same_bytes(&here, &there, schedule.blocks > 0);
    assert!(schedule.holes || !had_hole);
    let arrived = dump(stored);
    if !had_hole {
        let recorded = dump(reference);
        let differs = arrived.lines().zip(recorded.lines()).position(|(a, b)| a != b);
        assert!(
            arrived == recorded,
            "line {differs:?} of {} and {}",
            arrived.lines().count(),
            recorded.lines().count()
        );
    }
    check_counted(&arrived, counter, schedule);
    let info = json(&["info"], stored);
    let killed = schedule.blocks == 0;
    assert_eq!((&info["end"], &info["complete"]), (&if killed { "killed" } else { "exit" }.into(), &(!killed).into()));
    assert_eq!((number(&info, "/events/lost"), number(&info, "/recorder/unmatched_frees")), (0, 0), "{info}");
    had_hole
}

fn dump(path: &Path) -> String {
    let output = ask(&["dump", "--no-symbols"], path);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("dump prints UTF-8")
}

/// Compares a recording with its copy; whether it has holes, which are left out. A process that was killed may have left
/// the beginning of a block that it did not complete: that is no part of the copy.
fn same_bytes(here: &File, there: &File, complete: bool) -> bool {
    let (len, copied) = (here.metadata().unwrap().len(), there.metadata().unwrap().len());
    let (mut at, mut had_hole) = (0, false);
    while at < len {
        let Ok(data) = seek(here, SeekFrom::Data(at)) else { break };
        let end = seek(here, SeekFrom::Hole(data)).unwrap().min(len);
        had_hole |= data > at;
        let mut ours = vec![0; (end - data) as usize];
        here.read_exact_at(&mut ours, data).unwrap();
        let mut theirs = vec![0; copied.saturating_sub(data).min(end - data) as usize];
        there.read_exact_at(&mut theirs, data).unwrap();
        let differs = ours.iter().zip(&theirs).position(|(a, b)| a != b);
        let is_end = !complete && end == len;
        assert!(differs.is_none() || is_end, "byte {} differs", data + differs.unwrap_or_default() as u64);
        at = end;
    }
    assert!(!complete || len == copied, "{len} bytes became {copied}");
    had_hole
}

/// The blocks of `counted_blocks.c`: all that it had counted, in their order, with their sizes; and what it frees is what
/// it allocated a thousand blocks before in the same place.
fn check_counted(dump: &str, counter: &Path, schedule: &Schedule) {
    // On a busy machine it may have been killed before it came to its counter.
    let counted = std::fs::read(counter).unwrap_or_default();
    let done = counted.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (mut at, mut kept, mut freed) = (0_u64, vec![None; 1000], 0_u64);
    for line in dump.lines() {
        let is = |kind: &str| line.contains(&format!("\"kind\":\"{kind}\""));
        if !is("alloc") && !is("free") {
            continue;
        }
        let event: Value = serde_json::from_str(line).expect("JSON");
        let address = event["address"].as_str().expect("an address").to_owned();
        if is("alloc") {
            assert_eq!(event["size"].as_u64(), Some(16 + at * 7919 % 3001), "block {at}");
            kept[(at * 31 % 1000) as usize] = Some(address);
            at += 1;
        } else {
            // What it frees before its next block.
            let slot = &mut kept[(at * 31 % 1000) as usize];
            assert_eq!(slot.take(), Some(address), "free {freed} before block {at}");
            freed += 1;
        }
    }
    if schedule.blocks > 0 {
        assert_eq!((at, done), (u64::from(schedule.blocks), u64::from(schedule.blocks)));
    } else {
        assert!(at == done || at == done + 1, "{at} blocks arrived, {done} were counted");
    }
    assert!(freed == at.saturating_sub(1000) || freed == (at + 1).saturating_sub(1000), "{freed} of {at}");
}

#[test]
fn what_arrives_is_what_was_recorded_whoever_is_killed_when() {
    let seed = random_seed();
    let count: u32 = std::env::var("SCHEDULES").map_or(40, |count| count.parse().expect("SCHEDULES is a number"));
    let _ = compile("counted_blocks.c", &["-O1"]);
    let (next, kills, holes) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let since = Instant::now();
    let failed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(count) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count || !failed.lock().unwrap().is_empty() {
                        return;
                    }
                    let own = seed.wrapping_add(number);
                    let mut random = ScheduleRandom(own | 1);
                    for _ in 0..8 {
                        random.below(2);
                    }
                    let ends_itself = random.is(30);
                    let schedule = Schedule {
                        holes: random.is(50),
                        remote: random.is(40),
                        twins: random.is(25),
                        blocks: if ends_itself { 2000 + random.below(18_000) } else { 0 },
                    };
                    let one = std::panic::AssertUnwindSafe(|| run(&schedule, &mut random));
                    let Ok(outcome) = std::panic::catch_unwind(one) else {
                        let Schedule { holes, remote, twins, blocks } = schedule;
                        failed.lock().unwrap().push(format!(
                            "schedule {number} of seed {own}: holes {holes}, remote {remote}, twins {twins}, blocks {blocks}"
                        ));
                        return;
                    };
                    kills.fetch_add(outcome.kills, Ordering::SeqCst);
                    holes.fetch_add(u32::from(outcome.had_hole), Ordering::SeqCst);
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:#?}");
    let (kills, holes) = (kills.into_inner(), holes.into_inner());
    println!(
        "{count} schedules in {:.0} s: collectors were killed {kills} times, {holes} recordings had holes",
        since.elapsed().as_secs_f64()
    );
    assert!(kills >= count, "{kills} kills are too few to say anything");
    assert!(count < 20 || holes > 0, "no recording had a hole");
}

#[test]
fn a_front_that_is_gone_is_not_replaced_by_zeros() {
    let fleet = Fleet::default();
    let counter = fleet.spool().with_file_name("done");
    let mut program = fleet.traced(&compile("counted_blocks.c", &["-O1"]), "service=moved");
    let program = program.arg(&counter).arg("0").spawn().expect("it starts");
    let mut collector = fleet.collect(&["--quota", "600K", "--interval", "20", "--no-tables", "--no-symbols"]);
    let collector = collector.stderr(Stdio::null()).spawn().expect("heaptrace can be started");
    let has_note = || {
        let mut names = std::fs::read_dir(fleet.spool()).unwrap().map(|e| e.unwrap().path());
        names.any(|path| path.extension().is_some_and(|end| end == "shipped"))
    };
    wait_for("a hole", Duration::from_secs(60), has_note);
    std::thread::sleep(Duration::from_millis(300));
    kill(collector);
    kill(program);
    // Somebody names another store now: it cannot have all of it, and nothing may be deleted.
    let elsewhere = format!("file://{}", fleet.spool().with_file_name("elsewhere").display());
    let mut other = Fleet::collector(&fleet.spool(), &elsewhere, &["--interval", "20", "--no-tables", "--no-symbols"]);
    let mut other = other.stderr(Stdio::piped()).spawn().expect("heaptrace can be started");
    std::thread::sleep(Duration::from_secs(2));
    other.kill().expect("it runs");
    let said = String::from_utf8_lossy(&other.wait_with_output().expect("it ends").stderr).into_owned();
    assert!(said.contains("are not here any more"), "{said}");
    // The first store gets the rest.
    fleet.collect_all(&["--no-tables", "--no-symbols"]);
    let [stored] = &fleet.recordings()[..] else { panic!("one recording") };
    let schedule = Schedule { holes: true, remote: false, twins: false, blocks: 0 };
    check_counted(&dump(stored), &counter, &schedule);
}
