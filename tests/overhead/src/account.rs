//! Where the added time of a pair goes: the recorder's own thread, the reads of the clock, and the rest.

use crate::instructions::Instructions;
use crate::report::Outcome;
use crate::statistics::Spread;
use crate::tool::Tool;

/// Nanoseconds of one read of the processor's counter.
#[derive(Debug, Clone, Copy)]
pub struct ClockReads {
    /// `rdtsc`, as while one thread records.
    pub plain: f64,
    /// `rdtscp`, which waits for loads before it, as with several threads.
    pub ordered: f64,
}

/// The parts of a pair's added nanoseconds.
#[derive(Debug)]
pub struct Account {
    /// The workload's name.
    pub name: &'static str,
    /// All that was added.
    pub added: f64,
    /// Of it the CPU time of the recorder's own thread, which encodes and writes.
    pub background: f64,
    /// Of it the two reads of the clock, as a loop of such reads takes them.
    pub clock: Option<f64>,
    /// Instructions for a pair in the hooks, and in the recorder's thread, where they were counted.
    pub instructions: Option<(f64, f64)>,
}

impl Account {
    /// Of a workload, if its recording was read.
    pub fn of(outcome: &Outcome, counts: &[Instructions], reads: Option<ClockReads>) -> Option<Self> {
        let pairs = outcome.pairs()? as f64;
        let recorder = outcome.info()?.get("recorder")?;
        let background = recorder.get("background_cpu_ns")?.as_u64()? as f64 / pairs;
        let is_ordered = outcome.name() == "threads";
        let counts = counts.iter().find(|counts| counts.name == outcome.name());
        Some(Self {
            name: outcome.title(),
            added: outcome.added(Tool::Tracehound)?.median,
            background,
            clock: reads.map(|reads| 2.0 * if is_ordered { reads.ordered } else { reads.plain }),
            instructions: counts.map(|counts| (counts.traced - counts.plain, counts.background)),
        })
    }

    /// What is left: the other instructions of the hooks, and misses of caches that the recorder causes.
    pub fn rest(&self) -> f64 {
        self.added - self.background - self.clock.unwrap_or(0.0)
    }
}

/// How long reads of the counter take here, one after the other; `None` where there is no such counter.
#[cfg(target_arch = "x86_64")]
pub fn clock_reads() -> Option<ClockReads> {
    use std::arch::x86_64::{__rdtscp, _rdtsc};
    use std::hint::black_box;
    use std::time::Instant;

    const READS: u32 = 100_000;
    let median = |read: &dyn Fn() -> u64| {
        let batch = || {
            let start = Instant::now();
            for _ in 0..READS {
                black_box(read());
            }
            start.elapsed().as_nanos() as f64 / f64::from(READS)
        };
        Spread::of((0..21).map(|_| batch())).map(|spread| spread.median)
    };
    // SAFETY: the instruction has no precondition, and the recorder uses it on each processor of this kind.
    let plain = median(&|| unsafe { _rdtsc() })?;
    let ordered = median(&|| {
        let mut processor = 0;
        // SAFETY: as above; the number of the processor goes into a local.
        unsafe { __rdtscp(&raw mut processor) }
    })?;
    Some(ClockReads { plain, ordered })
}

/// The counter of other processors is read by another instruction.
#[cfg(not(target_arch = "x86_64"))]
pub const fn clock_reads() -> Option<ClockReads> {
    None
}
