//! Frees of allocations, filled in when they happen, which may be long after they were stored; and the zones
//! of runs.

use std::io;
use std::path::Path;

use super::event_batch::EventBatch;
use tracehound_index::files::Ledgers;
use tracehound_index::layout::{Granularity, NO_SITE};
use tracehound_index::ledger::Ledger;
use tracehound_index::links;
use tracehound_index::schema::{FarFree, Lengths, TableRow, Writers, path};
use tracehound_index::sparse::Sparse;
use tracehound_index::zones::ZoneWriter;

/// What becomes of allocations: filled in when they are freed, which may be long after they were stored.
#[derive(Debug)]
pub struct FreeLedgers {
    /// The ordinal of the free, see `trace::links`.
    pub free: Ledger<u32>,
    /// 1 + ordinal of the free where that is far.
    pub far: Sparse,
    /// Class of the lifetime and whether the block was temporary.
    pub lifetime_class: Ledger<u8>,
    /// What occurs in each run of allocations.
    pub alloc_zones: ZoneWriter,
    /// What occurs in each run of frees.
    pub free_zones: ZoneWriter,
    reach: u64,
    /// Links of the frees of a chunk, and those that are far.
    links: Vec<u32>,
    far_links: Vec<FarFree>,
}

/// Frees between the fetch of a ledger's cells and the stores to them.
const AHEAD: usize = 24;

impl FreeLedgers {
    /// Creates the files in `folder`.
    ///
    /// # Errors
    /// When one cannot be created.
    pub fn create(folder: &Path, Granularity { zone_rows, reach, .. }: Granularity) -> io::Result<Self> {
        Ok(Self {
            free: Ledger::create(&path(folder, "alloc_free"))?,
            far: Sparse::create(&path(folder, "alloc_far"))?,
            lifetime_class: Ledger::create(&path(folder, "alloc_fate"))?,
            alloc_zones: ZoneWriter::create(&path(folder, "alloc_zone"), zone_rows)?,
            free_zones: ZoneWriter::create(&path(folder, "free_zone"), zone_rows)?,
            reach,
            links: Vec::new(),
            far_links: Vec::new(),
        })
    }

    /// Opens what an earlier run left, cut to `lengths`; frees beyond are taken back.
    ///
    /// # Errors
    /// When a file cannot be opened or is too short.
    pub fn reopen(folder: &Path, fine: Granularity, lengths: &Lengths) -> io::Result<Self> {
        let Granularity { zone_rows, reach, .. } = fine;
        let (allocs, frees) = (lengths.allocs, lengths.frees);
        let mut free_ledgers = Self {
            free: Ledger::reopen(&path(folder, "alloc_free"), allocs)?,
            far: Sparse::reopen(&path(folder, "alloc_far"), allocs)?,
            lifetime_class: Ledger::reopen(&path(folder, "alloc_fate"), allocs)?,
            alloc_zones: ZoneWriter::reopen(&path(folder, "alloc_zone"), zone_rows, allocs)?,
            free_zones: ZoneWriter::reopen(&path(folder, "free_zone"), zone_rows, frees)?,
            reach,
            links: Vec::new(),
            far_links: Vec::new(),
        };
        free_ledgers.free.reserve(allocs)?;
        free_ledgers.lifetime_class.reserve(allocs)?;
        free_ledgers.alloc_zones.forget_counts(0, allocs);
        for row in 0..allocs {
            let free = match free_ledgers.free.load(row) {
                links::NONE => continue,
                links::FAR => free_ledgers.far.load(row).wrapping_sub(1),
                near => links::near(row, near),
            };
            if free < frees {
                free_ledgers.alloc_zones.count(row, free_ledgers.lifetime_class.load(row));
            } else {
                free_ledgers.free.store(row, links::NONE);
                free_ledgers.lifetime_class.store(row, 0);
            }
        }
        Ok(free_ledgers)
    }

    /// Counts again what was freed in the last run of frees; `row` returns the allocation that a free, by its
    /// ordinal, ended.
    pub fn recount(&mut self, frees: u64, row: impl Fn(u64) -> u64) {
        let zones = &mut self.free_zones;
        let first = frees - frees % zones.run_rows();
        zones.forget_counts(first, frees);
        for ordinal in first..frees {
            zones.count(ordinal, self.lifetime_class.load(row(ordinal)));
        }
    }

    /// Frames the files.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(self, allocs: u64, frees: u64, has_far: bool) -> io::Result<()> {
        self.free.finish(allocs)?;
        self.far.finish(if has_far { allocs } else { 0 })?;
        self.lifetime_class.finish(allocs)?;
        self.alloc_zones.finish(allocs)?;
        self.free_zones.finish(frees)
    }

    /// What they are now, with so many allocations and frees.
    ///
    /// # Errors
    /// When a mapping fails.
    pub fn view(&self, allocs: u64, frees: u64) -> io::Result<Ledgers> {
        Ok(Ledgers {
            free: self.free.view(allocs)?,
            far: self.far.view(allocs)?,
            lifetime_class: self.lifetime_class.view(allocs)?,
            alloc_zones: self.alloc_zones.snapshot(allocs),
            free_zones: self.free_zones.snapshot(frees),
        })
    }

    /// Puts a chunk into the zones, but for what the frees of its allocations are.
    pub(super) fn zones(&mut self, chunk: &EventBatch, origins: &[(u32, u32)]) -> io::Result<()> {
        let of = |origin: u32| origins.get(origin as usize).copied().unwrap_or((NO_SITE, 0));
        let mut large = chunk.large.iter();
        let allocated = chunk.alloc_origin.iter().zip(&chunk.alloc_size).map(|(&origin, &size)| {
            let size = if size == u32::MAX { large.next().copied().unwrap_or(0) } else { u64::from(size) };
            let (site, thread) = of(origin);
            (site, thread, size)
        });
        self.alloc_zones.allocs(chunk.first_alloc, allocated)?;
        let frees = chunk.free_row.iter().zip(&chunk.free_class).zip(&chunk.free_alloc_origin).zip(&chunk.free_size);
        let freed = frees.map(|(((&row, &lifetime_class), &origin), &size)| {
            let (site, thread) = of(origin);
            (row, lifetime_class, site, thread, size)
        });
        self.free_zones.frees(chunk.first_free, freed)
    }

    /// Stores which allocations the frees of a chunk ended.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(super) fn link_frees(&mut self, chunk: &EventBatch, writers: &mut Writers) -> io::Result<()> {
        let Self { reach, links, far_links, .. } = self;
        links.clear();
        links.extend((chunk.first_free..).zip(&chunk.free_row).map(|(ordinal, &row)| {
            let link = links::code(ordinal, row, *reach);
            if link == links::FAR {
                far_links.push(FarFree { ordinal, row });
            }
            link
        }));
        writers.free_row.append(links)?;
        FarFree::append(far_links, writers)?;
        far_links.clear();
        Ok(())
    }

    /// Fills in what the frees of a chunk mean for their allocations.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(super) fn take(&mut self, chunk: &EventBatch) -> io::Result<()> {
        let allocs = chunk.first_alloc + chunk.alloc_time.len() as u64;
        self.free.reserve(allocs)?;
        self.lifetime_class.reserve(allocs)?;
        let rows = &chunk.free_row;
        for (at, ((&row, &lifetime_class), ordinal)) in
            rows.iter().zip(&chunk.free_class).zip(chunk.first_free..).enumerate()
        {
            if let Some(&next) = rows.get(at + AHEAD) {
                self.free.prefetch(next);
                self.lifetime_class.prefetch(next);
            }
            let link = links::code(row, ordinal, self.reach);
            if link == links::FAR {
                self.far.store(row, ordinal + 1)?;
            }
            self.free.store(row, link);
            self.lifetime_class.store(row, lifetime_class);
            self.alloc_zones.free_of(row, ordinal, lifetime_class);
        }
        Ok(())
    }
}
