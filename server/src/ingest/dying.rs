//! What becomes of births, filled in when they die, which may be long after they were stored; and the zones of runs.

use std::io;
use std::path::Path;

use super::chunk::Chunk;
use crate::trace::files::{Ledgers, path};
use crate::trace::layout::NO_SITE;
use crate::trace::ledger::Ledger;
use crate::trace::zones::ZoneWriter;

/// What becomes of births: filled in when they die, which may be long after they were stored.
#[derive(Debug)]
pub struct Dying {
    /// 1 + ordinal of the death.
    pub death: Ledger<u32>,
    /// Class of the lifetime and whether the block was temporary.
    pub fate: Ledger<u8>,
    /// What occurs in each run of births.
    pub birth_zones: ZoneWriter,
    /// What occurs in each run of deaths.
    pub death_zones: ZoneWriter,
}

/// Deaths between the fetch of a ledger's cells and the stores to them.
const AHEAD: usize = 24;

impl Dying {
    /// Creates the files in `folder`; `zone_rows` rows have a zone.
    ///
    /// # Errors
    /// When one cannot be created.
    pub fn create(folder: &Path, zone_rows: u64) -> io::Result<Self> {
        Ok(Self {
            death: Ledger::create(&path(folder, "birth_death"))?,
            fate: Ledger::create(&path(folder, "birth_fate"))?,
            birth_zones: ZoneWriter::create(&path(folder, "birth_zone"), zone_rows)?,
            death_zones: ZoneWriter::create(&path(folder, "death_zone"), zone_rows)?,
        })
    }

    /// Opens what an earlier run left, with so many births and deaths; deaths beyond are taken back.
    ///
    /// # Errors
    /// When a file cannot be opened or is too short.
    pub fn reopen(folder: &Path, zone_rows: u64, births: u64, deaths: u64) -> io::Result<Self> {
        let mut dying = Self {
            death: Ledger::reopen(&path(folder, "birth_death"), births)?,
            fate: Ledger::reopen(&path(folder, "birth_fate"), births)?,
            birth_zones: ZoneWriter::reopen(&path(folder, "birth_zone"), zone_rows, births)?,
            death_zones: ZoneWriter::reopen(&path(folder, "death_zone"), zone_rows, deaths)?,
        };
        dying.death.reserve(births)?;
        dying.fate.reserve(births)?;
        dying.birth_zones.forget_counts(0, births);
        for row in 0..births {
            let death = u64::from(dying.death.load(row));
            if death > deaths {
                dying.death.store(row, 0);
                dying.fate.store(row, 0);
            } else if death != 0 {
                dying.birth_zones.count(row, dying.fate.load(row));
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
    pub fn finish(self, births: u64, deaths: u64) -> io::Result<()> {
        self.death.finish(births)?;
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
                self.death.prefetch(u64::from(next));
                self.fate.prefetch(u64::from(next));
            }
            self.death.store(u64::from(row), ordinal as u32 + 1);
            self.fate.store(u64::from(row), fate);
            self.birth_zones.death_of(u64::from(row), ordinal as u32, fate);
        }
        Ok(())
    }
}
