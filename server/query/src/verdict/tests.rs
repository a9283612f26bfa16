//! Time series made by hand, and what is said of them.

use super::*;

const S: u64 = 1_000_000_000;
const N: u64 = 256;

fn judged(bytes: impl Fn(u64) -> i64, left: Option<(u64, u64)>, count: u64) -> Verdict {
    judged_every(S, bytes, left, count)
}

/// Moments are so many nanoseconds apart.
fn judged_every(step: u64, bytes: impl Fn(u64) -> i64, left: Option<(u64, u64)>, count: u64) -> Verdict {
    let curve: Vec<_> = (1..=N).map(|i| (i * step, bytes(i))).collect();
    let history = History {
        duration_ns: N * step,
        curve: &curve,
        left_allocated_ns: left,
        left_count: count,
        allocated_freed: (count, 0),
        exit_ns: Some(exit_of(N * step, N * step)),
        ..History::default()
    };
    judge(&history)
}

/// The same noise every time.
fn noise(i: u64, height: u64) -> i64 {
    let mut x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 33) % height) as i64
}

#[test]
fn nothing_grows_where_frees_may_be_missing() {
    let curve: Vec<(u64, i64)> = (0..256).map(|at| (at * 1_000_000_000, at as i64 * 1000)).collect();
    let history = |misses_events| History {
        duration_ns: 256_000_000_000,
        curve: &curve,
        left_allocated_ns: Some((0, 255_000_000_000)),
        left_count: 2000,
        allocated_freed: (2000, 0),
        misses_events,
        ..History::default()
    };
    assert_eq!(judge(&history(false)).kind, VerdictKind::Growing);
    let unclear = judge(&history(true));
    assert_eq!(unclear.kind, VerdictKind::Unclear);
    assert!(unclear.why.starts_with("events are missing, and frees may be among them: "), "{unclear:?}");
}

#[test]
fn kinds_are_told_apart() {
    let growing = judged(|i| i as i64 * 1000, Some((S, 255 * S)), 256);
    assert_eq!((growing.kind, growing.shape), (VerdictKind::Growing, Shape::Growing), "{growing:?}");
    assert!((growing.bytes_per_second - 1000.0).abs() < 1.0);
    assert!(growing.why.contains("31 of 31") && growing.why.contains("95%"), "{}", growing.why);
    let forecast = growing.forecast.unwrap();
    assert_eq!((forecast.after_ns, forecast.bytes), (3600 * S, 256_000 + 3_600_000));

    let words = |total: u64| {
        let step = total / N;
        let verdict = judged_every(step, |i| i as i64 * 1000, Some((step, 255 * step)), 256);
        (verdict.kind, verdict.forecast.map(|forecast| forecast.after_ns), verdict.why)
    };
    let (kind, after, why) = words(40 * S);
    assert!(kind == VerdictKind::Growing && after == Some(600 * S) && why.contains("in another ten minutes"), "{why}");
    let (kind, after, why) = words(S / 10);
    assert!(kind == VerdictKind::Growing && after == Some(S) && why.contains("in another second"), "{why}");

    let bounded = judged(|i| 100_000.min(i as i64 * 2_000), Some((S, 255 * S)), 50);
    assert_eq!((bounded.kind, bounded.shape), (VerdictKind::Bounded, Shape::Bounded), "{bounded:?}");
    let filling = judged(|i| (1e6 * (1.0 - (-(i as f64) / 80.0).exp())) as i64, Some((S, 255 * S)), 50);
    assert_eq!(filling.kind, VerdictKind::Bounded, "{filling:?}");
    let once = judged(|_| 64, Some((S / 2, S / 2)), 1);
    assert_eq!((once.kind, once.shape), (VerdictKind::OneTime, Shape::OneTime), "{once:?}");
    let constant = judged(|_| 64, Some((S, 200 * S)), 4);
    assert_eq!((constant.kind, constant.shape), (VerdictKind::Bounded, Shape::Constant), "{constant:?}");
    for other in [0, 4032, 8192] {
        let churn = judged(|i| if i % 50 == 27 { other } else { 4096 }, Some((S, 255 * S)), 64);
        assert_eq!((churn.kind, churn.shape), (VerdictKind::Bounded, Shape::Constant), "{churn:?}");
        assert!(churn.why.contains(" moments since ") && churn.why.contains(" at the others"), "{churn:?}");
    }
    let saw = judged(|i| if i % 2 == 0 { 10 } else { 90_000 }, Some((S, 255 * S)), 4);
    assert_eq!(saw.kind, VerdictKind::Bounded, "{saw:?}");
    let late = judged(|i| if i > 252 { 9 } else { 0 }, Some((20 * S, 255 * S)), 2);
    assert_eq!(late.kind, VerdictKind::Unclear, "{late:?}");
    let never = judged(|_| 0, None, 1);
    assert_eq!((never.kind, never.why.as_str()), (VerdictKind::Unclear, "nothing was live at any of 256 moments"));
    let wild = judged(|i| noise(i, 1000) * i as i64 * i as i64, Some((S, 255 * S)), 9);
    assert_ne!(wild.kind, VerdictKind::Growing, "{wild:?}");
}

#[test]
fn a_slow_leak_shows_below_noise() {
    let leak = judged(|i| i as i64 * 100 + noise(i, 20_000), Some((S, 255 * S)), 256);
    assert_eq!(leak.kind, VerdictKind::Growing, "{leak:?}");
    let (low, high) = (leak.bytes_per_second_low.unwrap(), leak.bytes_per_second_high.unwrap());
    assert!(low < 100.0 && high > 100.0, "{leak:?}");
    let queue = judged(|i| noise(i, 20_000), Some((250 * S, 255 * S)), 256);
    assert_eq!(queue.kind, VerdictKind::Bounded, "{queue:?}");
}

#[test]
fn a_leak_below_swings_shows_in_the_ages_of_what_is_left() {
    let curve: Vec<_> = (1..=N).map(|i| (i * S, 1_000_000 * (i as i64 % 40) + i as i64)).collect();
    let history = |left_ages| History {
        duration_ns: N * S,
        curve: &curve,
        left_allocated_ns: Some((S, 255 * S)),
        left_count: 500,
        left_ages,
        allocated_freed: (1_000_000, 999_500),
        ..History::default()
    };
    let leak = judge(&history([100; AGES]));
    assert_eq!(leak.kind, VerdictKind::Growing, "{leak:?}");
    assert!((leak.bytes_per_second - 100.0 / 16.0).abs() < 0.1, "{leak:?}");
    // Few blocks, allocated at random: some ranges are empty by chance.
    let sparse = [2, 0, 1, 3, 0, 2, 0, 0, 4, 1, 2, 3, 0, 5, 2, 6].map(|blocks| blocks * 128);
    assert_eq!(judge(&history(sparse)).kind, VerdictKind::Growing);
    let early = [9, 0, 1, 3, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 2, 6].map(|blocks| blocks * 128);
    assert_eq!(judge(&history(early)).kind, VerdictKind::Bounded);
    let mut young = [0; AGES];
    young[AGES - 1] = 1600;
    assert_eq!(judge(&history(young)).kind, VerdictKind::Bounded);
}

#[test]
fn what_exit_frees_grows_until_then() {
    let at_exit = judged(|i| if i < N { i as i64 * 1000 } else { 0 }, None, 0);
    assert_eq!(at_exit.kind, VerdictKind::Growing, "{at_exit:?}");
    assert!(at_exit.freed_at_exit && at_exit.why.contains("only when the program ended"), "{at_exit:?}");
}

#[test]
fn a_program_ends_when_it_allocates_nothing_more_and_at_the_latest_a_little_before_the_end() {
    assert_eq!(exit_of(1000 * S, 1000 * S), 970 * S);
    assert_eq!(exit_of(1000 * S, 900 * S), 900 * S);
    assert_eq!(exit_of(1000 * S, 300 * S), 800 * S);
    assert_eq!(exit_of(0, 0), 0);
}

#[test]
fn steps_are_seen_with_their_marks() {
    let phases = |i: u64| 1_000_000 * (1 + i as i64 / 100);
    let marks = [(100 * S - S / 2, "second"), (200 * S - S / 2, "third")];
    let curve: Vec<_> = (1..=N).map(|i| (i * S, phases(i))).collect();
    let history = History {
        duration_ns: N * S,
        curve: &curve,
        left_allocated_ns: Some((S, 200 * S)),
        left_count: 3,
        allocated_freed: (3, 0),
        marks: &marks,
        ..History::default()
    };
    let steps = judge(&history);
    assert_eq!((steps.kind, steps.shape), (VerdictKind::Unclear, Shape::Stepwise), "{steps:?}");
    let many = judged(|i| 1000 * (i as i64 / 32), Some((S, 255 * S)), 8);
    assert_eq!((many.kind, many.shape), (VerdictKind::Growing, Shape::Stepwise), "{many:?}");
    let rate = many.bytes_per_second;
    assert!((rate - 1000.0 / 32.0).abs() < 1.0 && many.forecast.unwrap().bytes > 100_000, "{many:?}");
    let vector = judged(|i| (i as i64).next_power_of_two_signed(), Some((200 * S, 200 * S)), 1);
    assert_eq!(vector.shape, Shape::Stepwise, "{vector:?}");
}

#[test]
fn a_burst_that_is_over_does_not_grow() {
    // Five steps within a fiftieth of the run, in its second half, then nothing: what a program sets up.
    let burst = judged(|i| 200 * (i as i64 - 150).clamp(0, 5), Some((150 * S, 155 * S)), 24);
    assert_eq!((burst.kind, burst.shape), (VerdictKind::Bounded, Shape::Stepwise), "{burst:?}");
    assert!(burst.why.contains("1 min 41 s since"), "{burst:?}");
    // As many steps, of which the next may come at any time.
    let going_on = judged(|i| 200 * (i as i64 / 40), Some((40 * S, 240 * S)), 24);
    assert_eq!((going_on.kind, going_on.shape), (VerdictKind::Growing, Shape::Stepwise), "{going_on:?}");
}

#[test]
fn steps_that_come_ever_more_slowly_have_the_rate_of_most_of_the_time() {
    // A block of 5,000 bytes at 1, 3, 6 … 192 seconds of 256: the mean over all of it is 156 bytes a second.
    let slowing = judged(|i| 5000 * i64::from((i * 2 / 3).max(1).ilog2() + 1), Some((S, 192 * S)), 8);
    assert_eq!((slowing.kind, slowing.shape), (VerdictKind::Growing, Shape::Stepwise), "{slowing:?}");
    assert!((20.0..100.0).contains(&slowing.bytes_per_second), "{slowing:?}");
}

#[test]
fn steps_of_code_that_runs_for_the_first_time_do_not_grow() {
    let curve: Vec<_> = (1..=N).map(|i| (i * S, 200 * (i as i64 / 40))).collect();
    let of_sites = |sites| {
        judge(&History {
            duration_ns: N * S,
            curve: &curve,
            left_allocated_ns: Some((40 * S, 240 * S)),
            left_count: 14,
            sites,
            allocated_freed: (14, 0),
            ..History::default()
        })
    };
    let first_times = of_sites(12);
    assert_eq!((first_times.kind, first_times.shape), (VerdictKind::Unclear, Shape::Stepwise), "{first_times:?}");
    assert!(first_times.why.contains("14 blocks of 12 sites"), "{first_times:?}");
    assert_eq!(of_sites(7).kind, VerdictKind::Growing, "{:?}", of_sites(7));
    assert_eq!(of_sites(0).kind, VerdictKind::Growing, "{:?}", of_sites(0));
}

trait NextPowerOfTwo {
    fn next_power_of_two_signed(self) -> i64;
}

impl NextPowerOfTwo for i64 {
    fn next_power_of_two_signed(self) -> i64 {
        self.cast_unsigned().next_power_of_two().cast_signed()
    }
}

#[test]
fn growth_that_stopped_without_a_free_is_said() {
    let stopped = |allocated_freed, left_allocated_ns| {
        let curve: Vec<_> = (1..=N).map(|i| (i * S, i.min(100) as i64 * 2_000)).collect();
        judge(&History {
            duration_ns: N * S,
            curve: &curve,
            left_allocated_ns: Some(left_allocated_ns),
            left_count: 2000,
            allocated_freed,
            exit_ns: Some(exit_of(N * S, N * S)),
            ..History::default()
        })
    };
    let sessions = stopped((2000, 0), (S, 100 * S));
    assert_eq!((sessions.kind, sessions.never_freed), (VerdictKind::Bounded, true), "{sessions:?}");
    assert!(
        sessions.why.starts_with("none of 2,000 blocks was ever freed; growth stopped at 1 min 40 s"),
        "{sessions:?}"
    );
    // What comes until the end, however little, has not stopped.
    let slow = stopped((2000, 0), (S, (N - 2) * S));
    assert!(slow.never_freed && slow.why.contains("ever freed; some were added until"), "{slow:?}");
    // A cache frees, and a table that is filled at the start is quickly full.
    assert!(!stopped((2000, 500), (S, 100 * S)).never_freed);
    assert!(!stopped((2000, 0), (S, 20 * S)).never_freed);
    assert!(!stopped((20, 0), (S, 100 * S)).never_freed);
}

#[test]
fn a_rise_that_has_just_begun_is_said_to_be_one() {
    // One block at the start, and a leak in the last ninth.
    let late = judged(|i| 1000 + 1000 * (i as i64 - 228).max(0), Some((S, 256 * S)), 29);
    assert_eq!(late.kind, VerdictKind::Unclear, "{late:?}");
    assert!(late.why.contains("since 3 min 4") && late.why.contains("none of 29 blocks freed"), "{late:?}");
    // The same without the block at the start; and one that stops a moment before the end.
    for until in [256, 252] {
        let late = judged(|i| 1000 * (i.min(until) as i64 - 228).max(0), Some((229 * S, until * S)), 28);
        assert_eq!(late.kind, VerdictKind::Unclear, "{late:?}");
        assert!(late.why.contains("in the last 11% of the recording"), "{late:?}");
    }
}

#[test]
fn a_rise_that_ends_at_once_does_not_slow_down() {
    let stops = judged(|i| 1000 * i.min(205) as i64, Some((S, 205 * S)), 50);
    assert_eq!((stops.kind, stops.shape), (VerdictKind::Bounded, Shape::Bounded), "{stops:?}");
    assert!(stops.why.contains("and stayed there for the"), "{stops:?}");
    let slows = judged(|i| (1e6 * (1.0 - (-(i as f64) / 60.0).exp())) as i64, Some((S, 255 * S)), 50);
    assert!(slows.why.contains("ever more slowly"), "{slows:?}");
}
