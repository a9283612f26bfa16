//! redis under load for a while: the recorder's own memory stays what it was, nothing is lost, and redis answers.
//!
//! The short run is part of the suite; `make soak` runs the long one, SOAK_MINUTES (default 10) of it, and prints what
//! it saw.

use std::time::{Duration, Instant};

use tracehound_tests::redis::Redis;
use tracehound_tests::{json, number};

const KIB: u64 = 1 << 10;
/// `TRACEHOUND_BUFFER=4M`.
const BUFFER: u64 = 4096 * KIB;

/// One look at a running server.
#[derive(Debug, Clone)]
struct Look {
    seconds: u64,
    /// Resident memory of the whole process.
    resident: u64,
    /// The recorder's own memory, by its own count, at most.
    recorder: u64,
    /// Its parts: name, bytes, limit.
    parts: Vec<(String, u64, u64)>,
    events: u64,
    file: u64,
}

fn look(redis: &Redis, since: Instant) -> Look {
    let status = std::fs::read_to_string(format!("/proc/{}/status", redis.server.id())).expect("the server runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the kernel says it");
    let resident: u64 = resident.trim_end_matches("kB").trim().parse().expect("a number");
    let info = json(&["info"], &redis.recording());
    let events = ["alloc", "free", "realloc"].map(|kind| number(&info, &format!("/events/{kind}")));
    Look {
        seconds: since.elapsed().as_secs(),
        resident: resident * KIB,
        recorder: number(&info, "/recorder/memory_bytes"),
        parts: info["recorder"]["memory"]
            .as_array()
            .expect("the recorder tells its parts")
            .iter()
            .map(|part| {
                (
                    part["part"].as_str().expect("a name").to_owned(),
                    number(part, "/bytes"),
                    number(part, "/limit_bytes"),
                )
            })
            .collect(),
        events: events.iter().sum(),
        file: number(&info, "/recorder/file_bytes"),
    }
}

/// Load for `duration`, looked at `looks` times.
fn soak(duration: Duration, looks: u32, requests: u32) -> Vec<Look> {
    let mut redis = Redis::start(&[("TRACEHOUND_BUFFER", "4M")]);
    // Everything that grows with use, in redis and in the recorder, has grown.
    let warm = Instant::now();
    while warm.elapsed() < Duration::from_secs(3) {
        redis.load(requests);
    }
    let start = Instant::now();
    let mut seen = vec![look(&redis, start)];
    for turn in 1..=looks {
        while start.elapsed() < duration * turn / looks {
            redis.load(requests);
            let _ = redis.ask(&["flushall"]);
        }
        let now = look(&redis, start);
        println!(
            "{:>5} s  resident {:>7} KiB  recorder {:>7} KiB  {:>12} events  {:>8} KiB in the file",
            now.seconds,
            now.resident / KIB,
            now.recorder / KIB,
            now.events,
            now.file / KIB
        );
        let parts: Vec<String> = now.parts.iter().map(|(name, bytes, _)| format!("{name} {}", bytes / KIB)).collect();
        println!("        KiB: {}", parts.join(", "));
        seen.push(now);
    }
    assert_eq!(redis.ask(&["ping"]), "PONG");
    let recording = redis.stop();
    let info = json(&["info"], &recording);
    assert_eq!(info["end"], "exit", "{info:#}");
    assert_eq!(info["complete"], true, "{info:#}");
    assert_eq!(number(&info, "/events/lost"), 0, "{info:#}");
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{info:#}");
    println!("waited {} ns for the writer", number(&info, "/recorder/wait_ns"));
    seen
}

/// The pool of chunks fills up when the machine gets busy, and no further than its limit: it is not looked at twice. What
/// may be added to the rest between the first look and the last: buffers that double when one block is larger than those
/// before, as on a machine that has got busy, and new call-tree nodes. A byte kept for each hundredth event would be more
/// in ten minutes.
const LATER: u64 = 4096 * KIB;
/// What may be added between the two looks between which least was: buffers that are large enough stay as they are, and
/// a leak goes on.
const STEADY: u64 = 256 * KIB;

/// Every part of the recorder's memory stays below its limit, and but for the pool of chunks they have grown between the
/// first look and the last one by no more than so much.
fn is_flat(seen: &[Look], slack: u64) {
    let (first, last) = (seen.first().expect("one look"), seen.last().expect("one look"));
    assert!(last.events > first.events, "{seen:?}");
    for look in seen {
        assert!(look.parts.len() >= 6, "{look:?}");
        for (name, bytes, limit) in &look.parts {
            assert!(bytes <= limit, "{name} has {bytes} bytes, its limit is {limit}: {seen:#?}");
        }
    }
    let rest = |look: &Look| look.parts.iter().filter(|part| part.0 != "events").map(|part| part.1).sum::<u64>();
    assert!(rest(last) <= rest(first) + slack, "the recorder has grown: {seen:#?}");
    let least = seen.windows(2).map(|pair| rest(&pair[1]).saturating_sub(rest(&pair[0]))).min();
    assert!(least.is_some_and(|least| least <= STEADY), "the recorder grows all the time: {seen:#?}");
    let events = last.parts.iter().find(|part| part.0 == "events").expect("a part");
    assert_eq!(events.2, BUFFER, "the limit of the pool of chunks");
}

#[test]
fn a_while_of_redis() {
    is_flat(&soak(Duration::from_secs(8), 2, 2000), LATER);
}

#[test]
#[ignore = "takes SOAK_MINUTES; `make soak` runs it"]
fn redis_for_as_long_as_it_takes() {
    let minutes = std::env::var("SOAK_MINUTES").ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(10.0);
    is_flat(&soak(Duration::from_secs_f64(minutes * 60.0), 10, 50_000), LATER);
}
