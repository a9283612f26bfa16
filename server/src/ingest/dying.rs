//! What becomes of births, filled in when they die, which may be long after they were stored; and the zones of runs.

use std::io;
use std::path::Path;

use super::chunk::Chunk;
use crate::trace::facts::Lengths;
use crate::trace::files::{Ledgers, Writers, path};
use crate::trace::layout::{Granularity, NO_SITE};
use crate::trace::ledger::Ledger;
use crate::trace::links;
use crate::trace::sparse::Sparse;
use crate::trace::zones::ZoneWriter;

/// What becomes of births: filled in when they die, which may be long after they were stored.
#[derive(Debug)]
pub struct Dying {
    /// The ordinal of the death, see `trace::links`.
    pub death: Ledger<u32>,
    /// 1 + ordinal of the death where that is far.
    pub far: Sparse,
    /// Class of the lifetime and whether the block was temporary.
    pub fate: Ledger<u8>,
    /// What occurs in each run of births.
    pub birth_zones: ZoneWriter,
    /// What occurs in each run of deaths.
    pub death_zones: ZoneWriter,
    reach: u64,
    /// Links of the deaths of a chunk, and those that are far: ordinals and rows.
    links: Vec<u32>,
    far_links: (Vec<u64>, Vec<u64>),
}

/// Deaths between the fetch of a ledger's cells and the stores to them.
const AHEAD: usize = 24;

impl Dying {
    /// Creates the files in `folder`.
    ///
    /// # Errors
    /// When one cannot be created.
    pub fn create(folder: &Path, Granularity { zone_rows, reach, .. }: Granularity) -> io::Result<Self> {
        Ok(Self {
            death: Ledger::create(&path(folder, "birth_death"))?,
            far: Sparse::create(&path(folder, "birth_far"))?,
            fate: Ledger::create(&path(folder, "birth_fate"))?,
            birth_zones: ZoneWriter::create(&path(folder, "birth_zone"), zone_rows)?,
            death_zones: ZoneWriter::create(&path(folder, "death_zone"), zone_rows)?,
            reach,
            links: Vec::new(),
            far_links: Default::default(),
        })
    }

    /// Opens what an earlier run left, cut to `lengths`; deaths beyond are taken back.
    ///
    /// # Errors
    /// When a file cannot be opened or is too short.
    pub fn reopen(folder: &Path, fine: Granularity, lengths: &Lengths) -> io::Result<Self> {
        let Granularity { zone_rows, reach, .. } = fine;
        let (births, deaths) = (lengths.births, lengths.deaths);
        let mut dying = Self {
            death: Ledger::reopen(&path(folder, "birth_death"), births)?,
            far: Sparse::reopen(&path(folder, "birth_far"), births)?,
            fate: Ledger::reopen(&path(folder, "birth_fate"), births)?,
            birth_zones: ZoneWriter::reopen(&path(folder, "birth_zone"), zone_rows, births)?,
            death_zones: ZoneWriter::reopen(&path(folder, "death_zone"), zone_rows, deaths)?,
            reach,
            links: Vec::new(),
            far_links: Default::default(),
        };
        dying.death.reserve(births)?;
        dying.fate.reserve(births)?;
        dying.birth_zones.forget_counts(0, births);
        for row in 0..births {
            let death = match dying.death.load(row) {
                links::NONE => continue,
                links::FAR => dying.far.load(row).wrapping_sub(1),
                near => links::near(row, near),
            };
            if death < deaths {
                dying.birth_zones.count(row, dying.fate.load(row));
            } else {
                dying.death.store(row, links::NONE);
                dying.fate.store(row, 0);
            }
        }
        Ok(dying)
    }

    /// Counts what died in the last run of deaths again; `row` tells of an ordinal which birth it ended.
    pub fn recount(&mut self, deaths: u64, row: impl Fn(u64) -> u64) {
        let zones = &mut self.death_zones;
        let first = deaths - deaths % zones.run_rows();
        zones.forget_counts(first, deaths);
        for ordinal in first..deaths {
            zones.count(ordinal, self.fate.load(row(ordinal)));
        }
    }

    /// Frames the files.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(self, births: u64, deaths: u64, has_far: bool) -> io::Result<()> {
        self.death.finish(births)?;
        self.far.finish(if has_far { births } else { 0 })?;
        self.fate.finish(births)?;
        self.birth_zones.finish(births)?;
        self.death_zones.finish(deaths)
    }

    /// What they are now, with so many births and deaths.
    ///
    /// # Errors
    /// When a mapping fails.
    pub fn view(&self, births: u64, deaths: u64) -> io::Result<Ledgers> {
        Ok(Ledgers {
            death: self.death.view(births)?,
            far: self.far.view(births)?,
            fate: self.fate.view(births)?,
            birth_zones: self.birth_zones.snapshot(births),
            death_zones: self.death_zones.snapshot(deaths),
        })
    }

    /// Puts a chunk into the zones, but for what the deaths of its births are.
    pub(super) fn zones(&mut self, chunk: &Chunk, origins: &[(u32, u32)]) -> io::Result<()> {
        let of = |origin: u32| origins.get(origin as usize).copied().unwrap_or((NO_SITE, 0));
        let mut large = chunk.large.iter();
        let born = chunk.birth_origin.iter().zip(&chunk.birth_size).map(|(&origin, &size)| {
            let size = if size == u32::MAX { large.next().copied().unwrap_or(0) } else { u64::from(size) };
            let (site, thread) = of(origin);
            (site, thread, size)
        });
        self.birth_zones.births(chunk.first_birth, born)?;
        let deaths =
            chunk.death_row.iter().zip(&chunk.death_fate).zip(&chunk.death_birth_origin).zip(&chunk.death_size);
        let died = deaths.map(|(((&row, &fate), &origin), &size)| {
            let (site, thread) = of(origin);
            (row, fate, site, thread, size)
        });
        self.death_zones.deaths(chunk.first_death, died)
    }

    /// Stores which births the deaths of a chunk ended.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(super) fn link_deaths(&mut self, chunk: &Chunk, writers: &mut Writers) -> io::Result<()> {
        let Self { reach, links, far_links: (far_deaths, far_rows), .. } = self;
        links.clear();
        links.extend((chunk.first_death..).zip(&chunk.death_row).map(|(ordinal, &row)| {
            let link = links::code(ordinal, row, *reach);
            if link == links::FAR {
                far_deaths.push(ordinal);
                far_rows.push(row);
            }
            link
        }));
        writers.death_row.append(links)?;
        writers.far_death.append(far_deaths)?;
        writers.far_row.append(far_rows)?;
        far_deaths.clear();
        far_rows.clear();
        Ok(())
    }

    /// Fills in what the deaths of a chunk mean for their births.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(super) fn take(&mut self, chunk: &Chunk) -> io::Result<()> {
        let births = chunk.first_birth + chunk.birth_time.len() as u64;
        self.death.reserve(births)?;
        self.fate.reserve(births)?;
        let rows = &chunk.death_row;
        for (at, ((&row, &fate), ordinal)) in rows.iter().zip(&chunk.death_fate).zip(chunk.first_death..).enumerate() {
            if let Some(&next) = rows.get(at + AHEAD) {
                self.death.prefetch(next);
                self.fate.prefetch(next);
            }
            let link = links::code(row, ordinal, self.reach);
            if link == links::FAR {
                self.far.store(row, ordinal + 1)?;
            }
            self.death.store(row, link);
            self.fate.store(row, fate);
            self.birth_zones.death_of(row, ordinal, fate);
        }
        Ok(())
    }
}
