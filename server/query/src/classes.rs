//! Sums by allocating backtrace, thread and size: what profiles with labels are made from.
//!
//! There may be as many classes as blocks: they are handed on one by one, and what does not fit in memory goes through
//! files (`runs`).

mod runs;

use std::io;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::amounts::{self, SumQuery, ranges};
use super::filter::Filter;
use super::scan::{Also, BLOCK, Picker};
use super::window::Window;
use super::{QueryError, Result};
use tracehound_api::{Amount, Metric};
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Position, Trace};

/// Blocks of one backtrace, one thread and about one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// Site.
    pub site: u32,
    /// Call-tree node of the backtrace.
    pub node: u32,
    /// Position of the allocating thread.
    pub thread: u32,
    /// Size of the blocks if they are of one size, else the power of two that none exceeds.
    pub size: u64,
    /// Allocated in the window.
    pub allocated: Amount,
    /// Live at the end of the window, or at its moment.
    pub live: Amount,
    /// Live when most bytes were live in the window.
    pub peak: Amount,
    /// Allocated in the window and temporary.
    pub temporary: Amount,
}

/// Site, thread, and the size: 0 for none, else one more than the exponent of the power of two that it does not exceed.
type ClassKey = (u32, u32, u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sums {
    smallest: u64,
    largest: u64,
    /// Allocated, live, peak, temporary.
    amounts: [Amount; 4],
}

impl Default for Sums {
    fn default() -> Self {
        Self { smallest: u64::MAX, largest: 0, amounts: [Amount::default(); 4] }
    }
}

impl Sums {
    /// Adds one block to those of the amounts that it belongs to.
    fn add(&mut self, size: u64, is: [bool; 4]) {
        self.smallest = self.smallest.min(size);
        self.largest = self.largest.max(size);
        for (amount, _) in self.amounts.iter_mut().zip(is).filter(|(_, is)| *is) {
            amount.bytes += size;
            amount.count += 1;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.smallest = self.smallest.min(other.smallest);
        self.largest = self.largest.max(other.largest);
        for (a, b) in self.amounts.iter_mut().zip(&other.amounts) {
            a.bytes += b.bytes;
            a.count += b.count;
        }
    }
}

/// Adds up blocks by site, thread and power of two of their size, ordered by these three.
///
/// # Errors
/// When the window or the filter does not fit the recording, temporary files cannot be written, or cancelled.
pub fn run<'a>(
    trace: &'a Trace,
    symbols: &dyn RecordingSymbols,
    window: &Window,
    filter: &Filter,
    cancel: &Cancel,
) -> Result<impl Iterator<Item = Result<Class>> + use<'a>> {
    bounded(trace, symbols, window, filter, cancel, runs::ENTRIES)
}

/// [`run`], with at most `entries` classes in memory.
fn bounded<'a>(
    trace: &'a Trace,
    symbols: &dyn RecordingSymbols,
    window: &Window,
    filter: &Filter,
    cancel: &Cancel,
    entries: usize,
) -> Result<impl Iterator<Item = Result<Class>> + use<'a>> {
    let selection = filter.select(trace, symbols, cancel)?;
    let window = window.resolve(trace, &selection, cancel)?;
    let test = selection.rows(trace);
    let allocated = window.span.from.allocs..window.span.to.allocs;
    let question = SumQuery { trace, selection: &selection, key: amounts::SumKey::Site, cancel };
    let place =
        |metric| Ok::<_, QueryError>(question.moment(metric, &window)?.map_or(window.span.to, |moment| moment.place));
    let (live_place, peak_place) = (place(Metric::Live)?, place(Metric::Peak)?);
    let until = allocated.end.max(live_place.allocs).max(peak_place.allocs);
    let lives = |row: u64, free: Option<u64>, place: Position| {
        row < place.allocs && free.is_none_or(|free| free >= place.frees)
    };
    let limit = (entries / rayon::current_num_threads()).max(1);
    let all = Mutex::new(runs::Runs::new(trace.folder().to_path_buf(), limit));
    let lock = || all.lock().unwrap_or_else(PoisonError::into_inner);
    let add_up = |range: std::ops::Range<u64>| -> Result<()> {
        let mut table = runs::ClassSums::default();
        let mut picker = Picker::new(&test, Also::Nothing);
        for start in range.clone().step_by(BLOCK) {
            cancel.check()?;
            for &offset in picker.pick(start, (start + BLOCK as u64).min(range.end)) {
                let row = start + u64::from(offset);
                let free = trace.free_of(row);
                let is_allocated = allocated.contains(&row);
                let is = [
                    is_allocated,
                    lives(row, free, live_place),
                    lives(row, free, peak_place),
                    is_allocated && trace.is_temporary(row),
                ];
                if !is.contains(&true) {
                    continue;
                }
                let size = trace.size_of(row);
                let origin = trace.columns().alloc_origin.get(row as usize).copied().unwrap_or(u32::MAX);
                let origin = trace.origin(origin);
                let key = (origin.site, origin.thread, class_of(size));
                if let Some(sums) = runs::entry(&mut table, key, limit) {
                    sums.add(size, is);
                } else {
                    let full = runs::ordered(&mut table);
                    let file = lock().file()?;
                    let run = runs::store(file, full.into_iter().map(Ok))?;
                    lock().push(run)?;
                    table.entry(key).or_default().add(size, is);
                }
            }
        }
        Ok(lock().absorb(table)?)
    };
    ranges(0, until).into_par_iter().try_for_each(add_up)?;
    let merged = all.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?;
    Ok(merged.map(move |entry| {
        let ((site, thread, class), sums) = entry?;
        let [allocated, live, peak, temporary] = sums.amounts;
        let bound = class.checked_sub(1).map_or(0, |exponent| 1_u64.checked_shl(exponent.into()).unwrap_or(u64::MAX));
        let size = if sums.smallest == sums.largest { sums.largest } else { bound };
        let node = trace.site_node(site).unwrap_or(0);
        Ok(Class { site, node, thread, size, allocated, live, peak, temporary })
    }))
}

fn class_of(size: u64) -> u8 {
    match size {
        0 => 0,
        _ => 1 + size.checked_next_power_of_two().map_or(64, u64::trailing_zeros) as u8,
    }
}

impl From<io::Error> for QueryError {
    fn from(error: io::Error) -> Self {
        Self::Scratch { why: error.to_string() }
    }
}
