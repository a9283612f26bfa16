//! Sums by allocating backtrace, thread and size: what profiles with labels are made from.

use std::collections::HashMap;

use rayon::prelude::*;

use super::Result;
use super::amounts::{moment, stretches};
use super::filter::Filter;
use super::scan::{Also, BLOCK, Picker};
use super::window::Window;
use crate::api::{Amount, Metric};
use crate::trace::symbols::Symbols;
use crate::trace::{Cancel, Position, Trace};

/// Blocks of one backtrace, one thread and about one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// Site.
    pub site: u32,
    /// Call-tree node of the backtrace.
    pub node: u32,
    /// Position of the bearing thread.
    pub thread: u32,
    /// Size of the blocks if they are of one size, else the power of two that none exceeds.
    pub size: u64,
    /// Born in the window.
    pub allocated: Amount,
    /// Live at the end of the window, or at its moment.
    pub live: Amount,
    /// Live when most bytes were live in the window.
    pub peak: Amount,
    /// Born in the window and temporary.
    pub temporary: Amount,
}

#[derive(Debug, Clone, Copy)]
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
/// When the window or the filter does not fit the recording, or cancelled.
pub fn run(
    trace: &Trace,
    symbols: &dyn Symbols,
    window: &Window,
    filter: &Filter,
    cancel: &Cancel,
) -> Result<Vec<Class>> {
    let window = window.resolve(trace)?;
    let selection = filter.select(trace, symbols, cancel)?;
    let test = selection.rows(trace);
    let born = window.span.from.births..window.span.to.births;
    let live_place = moment(trace, Metric::Live, &window).map_or(window.span.to, |m| m.1);
    let peak_place = moment(trace, Metric::Peak, &window).map_or(window.span.to, |m| m.1);
    let until = born.end.max(live_place.births).max(peak_place.births);
    let lives = |row: u64, death: Option<u64>, place: Position| {
        row < place.births && death.is_none_or(|death| death >= place.deaths)
    };
    let add_up = |stretch: std::ops::Range<u64>| -> Result<HashMap<(u32, u32, u8), Sums>> {
        let mut sums: HashMap<(u32, u32, u8), Sums> = HashMap::new();
        let mut picker = Picker::new(&test, Also::Nothing);
        for start in stretch.clone().step_by(BLOCK) {
            cancel.check()?;
            for &offset in picker.pick(start, (start + BLOCK as u64).min(stretch.end)) {
                let row = start + u64::from(offset);
                let death = trace.death_of(row);
                let is_born = born.contains(&row);
                let is = [
                    is_born,
                    lives(row, death, live_place),
                    lives(row, death, peak_place),
                    is_born && trace.is_temporary(row),
                ];
                if !is.contains(&true) {
                    continue;
                }
                let size = trace.size_of(row);
                let origin = trace.columns().birth_origin.get(row as usize).copied().unwrap_or(u32::MAX);
                let origin = trace.origin(origin);
                let class = size.checked_next_power_of_two().map_or(64, u64::trailing_zeros) as u8;
                let class = if size == 0 { u8::MAX } else { class };
                let entry = sums.entry((origin.site, origin.thread, class)).or_default();
                entry.smallest = entry.smallest.min(size);
                entry.largest = entry.largest.max(size);
                for (amount, _) in entry.amounts.iter_mut().zip(is).filter(|(_, is)| *is) {
                    amount.bytes += size;
                    amount.count += 1;
                }
            }
        }
        Ok(sums)
    };
    let sums = stretches(0, until).into_par_iter().map(add_up).try_reduce(HashMap::new, |a, b| {
        let (mut large, small) = if a.len() >= b.len() { (a, b) } else { (b, a) };
        for (key, sums) in small {
            large.entry(key).or_default().merge(&sums);
        }
        Ok(large)
    })?;
    let class = |((site, thread, class), sums): ((u32, u32, u8), Sums)| {
        let [allocated, live, peak, temporary] = sums.amounts;
        let bound = if class < 64 { 1 << class } else { u64::MAX };
        let size = if sums.smallest == sums.largest { sums.largest } else { bound };
        let node = trace.site_node(site).unwrap_or(0);
        Class { site, node, thread, size, allocated, live, peak, temporary }
    };
    let mut classes: Vec<Class> = sums.into_iter().map(class).collect();
    classes.sort_unstable_by_key(|class| (class.site, class.thread, class.size));
    Ok(classes)
}
