//! Generation of the code that is mapped at an address.
//!
//! Code that was never unloaded has generation 0. An address range gets a new generation when its object is
//! unloaded, and another when other code takes the place; if the very same object comes back to the very same
//! place, its old generation comes back with it. So a node's (pc, generation) names one piece of code for ever.
//!
//! One thread changes the table at a time (the loader's lock is held); all threads read it. An entry has a version, which is
//! odd while the entry is written: what a reader has found counts only if the version stayed the same, so that the start
//! of one range is never taken with the end of another.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::order;
use core::ops::Range;

/// Few in a model: its threads have small stacks.
const MAX_ENTRIES: usize = if cfg!(loom) { 4 } else { 2048 };

/// One range whose generation is not 0. `end` of 0: not in use.
struct GenerationRange {
    version: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
    generation: AtomicU32,
    /// Identity of the object that was unloaded from this range; 0 once other code was loaded there.
    gone: AtomicU64,
    /// The generation before the unloading.
    previous: AtomicU32,
}

/// All ranges with a generation other than 0.
pub struct Generations {
    entries: [GenerationRange; MAX_ENTRIES],
    used: AtomicU32,
    last: AtomicU32,
    /// Ranges that were not stored because the table was full.
    lost: AtomicU32,
}

impl GenerationRange {
    const fn free() -> GenerationRange {
        GenerationRange {
            version: AtomicU32::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            generation: AtomicU32::new(0),
            gone: AtomicU64::new(0),
            previous: AtomicU32::new(0),
        }
    }

    /// The range of the entry; consistent only for the thread that changes the table.
    fn range(&self) -> Range<u64> {
        self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)
    }

    fn set(&self, range: &Range<u64>, generation: u32, previous: u32, gone: u64) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // A reader that sees one of the stores below sees the odd version, too.
        fence(order!("generation-fence": Release, not Acquire));
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        self.previous.store(previous, Ordering::Relaxed);
        self.gone.store(gone, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The generation, if the range holds `pc`.
    fn of(&self, pc: u64) -> Option<u32> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            // While the entry is written, code is being loaded or unloaded in its range: no thread executes there.
            if version & 1 != 0 {
                return None;
            }
            let found = self.range().contains(&pc).then(|| self.generation.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return found;
            }
        }
    }
}

impl Default for Generations {
    fn default() -> Self {
        Self::new()
    }
}

impl Generations {
    /// An empty table.
    pub const fn new() -> Generations {
        Generations {
            entries: [const { GenerationRange::free() }; MAX_ENTRIES],
            used: AtomicU32::new(0),
            last: AtomicU32::new(0),
            lost: AtomicU32::new(0),
        }
    }

    fn used(&self) -> &[GenerationRange] {
        let used = self.used.load(Ordering::Acquire) as usize;
        self.entries.get(..used).unwrap_or(&self.entries)
    }

    /// The generation of the code at `pc`.
    pub fn of(&self, pc: u64) -> u32 {
        self.used().iter().filter_map(|entry| entry.of(pc)).max().unwrap_or(0)
    }

    /// Code identified by `identity` (0: not to be recognised) was unloaded from `range`.
    pub fn unload(&self, range: &Range<u64>, identity: u64) {
        let previous = self.of(range.start);
        self.add(range, previous, identity);
    }

    /// Code was loaded to `range`; answers its generation.
    pub fn load(&self, range: &Range<u64>, identity: u64) -> u32 {
        let overlapping = self.used().iter().filter(|entry| {
            let other = entry.range();
            other.start < range.end && range.start < other.end
        });
        let Some(newest) = overlapping.map(|entry| entry.generation.load(Ordering::Relaxed)).max() else { return 0 };
        let back = self
            .used()
            .iter()
            .find(|entry| entry.range() == *range && identity != 0 && entry.gone.load(Ordering::Relaxed) == identity);
        // A newer entry in the range means that other code was loaded there in the meantime.
        if let Some(entry) = back
            && entry.generation.load(Ordering::Relaxed) == newest
        {
            match entry.previous.load(Ordering::Relaxed) {
                0 => entry.end.store(0, Ordering::Release),
                previous => entry.set(range, previous, 0, 0),
            }
            return self.of(range.start);
        }
        self.add(range, 0, 0)
    }

    /// Gives `range` a new generation.
    fn add(&self, range: &Range<u64>, previous: u32, gone: u64) -> u32 {
        let generation = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        // The new entry hides those inside its range: they are not needed any more.
        let mut free = None;
        for entry in self.used() {
            let other = entry.range();
            if other.start >= range.start && other.end <= range.end {
                entry.end.store(0, Ordering::Release);
                free = free.or(Some(entry));
            }
        }
        let free = free.or_else(|| {
            let used = self.used.load(Ordering::Relaxed);
            let entry = self.entries.get(used as usize)?;
            self.used.store(used + 1, Ordering::Release);
            Some(entry)
        });
        match free {
            Some(entry) => entry.set(range, generation, previous, gone),
            None => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Range<u64> = 0x1000..0x5000;

    fn new() -> Box<Generations> {
        Box::new(Generations::new())
    }

    #[test]
    fn code_that_stays_has_generation_zero() {
        let generations = new();
        assert_eq!(generations.load(&A, 7), 0);
        assert_eq!(generations.of(0x2000), 0);
    }

    #[test]
    fn the_same_object_at_the_same_place_is_the_same_code() {
        let generations = new();
        generations.load(&A, 7);
        for _ in 0..3 {
            generations.unload(&A, 7);
            assert_ne!(generations.of(0x2000), 0, "whatever is here now is something else");
            assert_eq!(generations.load(&A, 7), 0);
            assert_eq!(generations.of(0x2000), 0);
        }
    }

    #[test]
    fn other_code_in_the_place_is_another_generation() {
        let generations = new();
        generations.unload(&A, 7);
        let second = generations.load(&(0x2000..0x3000), 8);
        assert!(second > 0);
        assert_eq!(generations.of(0x2800), second);
        assert!(generations.of(0x4000) > 0 && generations.of(0x4000) != second);
        generations.unload(&(0x2000..0x3000), 8);
        let third = generations.load(&A, 7);
        assert!(third > second, "7 is back, but 8 has been here");
        generations.unload(&A, 7);
        assert_eq!(generations.load(&A, 7), third);
    }

    #[test]
    fn an_object_without_identity_is_never_recognised() {
        let generations = new();
        generations.unload(&A, 0);
        let second = generations.load(&A, 0);
        generations.unload(&A, 0);
        assert!(generations.load(&A, 0) > second);
    }

    #[test]
    fn hidden_ranges_give_their_place_back() {
        let generations = new();
        for _ in 0..10 * MAX_ENTRIES {
            generations.unload(&A, 0);
            generations.load(&A, 0);
        }
        assert_eq!(generations.used.load(Ordering::Relaxed), 1);
        assert_eq!(generations.lost.load(Ordering::Relaxed), 0);
    }
}
