//! What each site did in each minute of the clock, so that processes which began at different times can be added up.

use std::io::Write;

use super::super::events;
use super::super::{ExportInput, ExportScope, Result};
use super::columns::{ColumnCells, ColumnType, Ints, Names};
use super::names::FrameNames;
use super::table::{BATCH, ParquetTable, int};

/// Nanoseconds of a minute.
const MINUTE: u64 = 60_000_000_000;

/// Names of the columns behind the stack.
const COLUMNS: [&str; 7] = [
    "allocated_count",
    "allocated_bytes",
    "freed_count",
    "freed_bytes",
    "live_count",
    "live_bytes",
    "lowest_live_bytes",
];

/// One site: what is live, and the minute that is under way.
#[derive(Debug, Clone, Copy, Default)]
struct SiteMinute {
    touched: bool,
    allocated: (i64, i64),
    freed: (i64, i64),
    live: (i64, i64),
    lowest: i64,
}

impl SiteMinute {
    fn change(&mut self, sign: i64, bytes: i64) {
        if !self.touched {
            self.lowest = self.live.1;
            self.touched = true;
        }
        let sum = if sign > 0 { &mut self.allocated } else { &mut self.freed };
        *sum = (sum.0 + 1, sum.1 + bytes);
        self.live = (self.live.0 + sign, self.live.1 + sign * bytes);
        self.lowest = self.lowest.min(self.live.1);
    }
}

/// Writes a row for each site and minute in which it allocated or something of it was freed.
pub(super) fn site_minutes(
    source: ExportInput<'_>,
    scope: &ExportScope,
    names: &FrameNames,
    out: &mut dyn Write,
) -> Result<()> {
    let trace = source.trace;
    let started = trace.facts().process.as_ref().map_or(0, |process| process.started_unix_ns);
    let mut columns = vec![("minute_unix_ns", ColumnType::Int, false), ("stack", ColumnType::Name, false)];
    columns.extend(COLUMNS.map(|name| (name, ColumnType::Int, false)));
    let mut table = ParquetTable::new(source, &columns, out)?;
    let mut sites = vec![SiteMinute::default(); trace.site_count() as usize];
    let mut touched: Vec<u32> = Vec::new();
    let mut minute = 0;
    let mut close = |minute: u64, touched: &mut Vec<u32>, sites: &mut [SiteMinute]| -> Result<()> {
        touched.sort_unstable();
        for part in touched.chunks(BATCH) {
            let mut stack = Names::new();
            let mut minutes = Ints::new();
            let mut values: [Ints; 7] = std::array::from_fn(|_| Ints::new());
            for &site in part {
                let Some(of) = sites.get_mut(site as usize) else { continue };
                minutes.push(int(minute * MINUTE));
                stack.push(names.stack(trace.site_node(site).unwrap_or(0)));
                let row = [of.allocated.0, of.allocated.1, of.freed.0, of.freed.1, of.live.0, of.live.1, of.lowest];
                values.iter_mut().zip(row).for_each(|(cells, value)| cells.push(value));
                *of = SiteMinute { live: of.live, ..SiteMinute::default() };
            }
            let mut batch: Vec<ColumnCells> = vec![minutes.into(), stack.into()];
            batch.extend(values.into_iter().map(ColumnCells::from));
            table.batch(batch)?;
        }
        touched.clear();
        Ok(())
    };
    events::each(source, scope, |event| {
        let now = started.saturating_add(event.t_ns) / MINUTE;
        if now > minute {
            close(minute, &mut touched, &mut sites)?;
            minute = now;
        }
        if let Some(of) = sites.get_mut(event.site as usize) {
            if !of.touched {
                touched.push(event.site);
            }
            of.change(if event.allocated { 1 } else { -1 }, int(event.size));
        }
        Ok(())
    })?;
    close(minute, &mut touched, &mut sites)?;
    table.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_is_that_of_the_minute() {
        let mut site = SiteMinute { live: (2, 100), ..SiteMinute::default() };
        site.change(1, 50);
        site.change(-1, 100);
        site.change(1, 10);
        assert_eq!((site.allocated, site.freed, site.live, site.lowest), ((2, 60), (1, 100), (3, 60), 50));
        // A minute that only grows has what it began with.
        let mut site = SiteMinute { live: (1, 7), ..SiteMinute::default() };
        site.change(1, 1);
        assert_eq!(site.lowest, 7);
    }
}
