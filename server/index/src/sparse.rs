//! A column of which few values are stored, anywhere: the rest takes no room on the disk and reads as zero.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use super::arrow_file::BODY;
use super::ledger::{Ledger, LedgerView};

/// See the module's description.
#[derive(Debug)]
pub struct Sparse {
    ledger: Ledger<u64>,
    /// Ranges of [`RANGE`] values that have room on the disk.
    backed: HashSet<u64>,
}

/// Values that get room together.
const RANGE: u64 = 8 << 10;

impl Sparse {
    /// Creates the file.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { ledger: Ledger::create(path)?, backed: HashSet::new() })
    }

    /// Opens what an earlier run left, and keeps at most `len` values.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn reopen(path: &Path, len: u64) -> io::Result<Self> {
        Ok(Self { ledger: Ledger::reopen(path, len.min(values_in(path)?))?, backed: HashSet::new() })
    }

    /// Stores a value.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn store(&mut self, index: u64, value: u64) -> io::Result<()> {
        let range = index / RANGE;
        if self.backed.insert(range) {
            self.ledger.reserve_among(range * RANGE, (range + 1) * RANGE)?;
        }
        self.ledger.store(index, value);
        Ok(())
    }

    /// The value at `index`; zero where none was stored.
    #[must_use]
    pub fn load(&self, index: u64) -> u64 {
        self.ledger.load(index)
    }

    /// Frames the file with at most `len` values: none if nothing was stored.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(self, len: u64) -> io::Result<()> {
        self.ledger.finish(len)
    }

    /// Opens the first `len` values for reading, or as many as there are: those behind are zero.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, len: u64) -> io::Result<LedgerView<u64>> {
        LedgerView::open(path, len.min(values_in(path)?))
    }

    /// Maps the first `len` values for reading, or as many as there is a file for: those behind are zero.
    ///
    /// # Errors
    /// When the mapping fails.
    pub fn view(&self, len: u64) -> io::Result<LedgerView<u64>> {
        self.ledger.view(len.min(self.ledger.capacity()))
    }
}

/// Values that the file has room for.
fn values_in(path: &Path) -> io::Result<u64> {
    Ok(std::fs::metadata(path)?.len().saturating_sub(BODY as u64) / size_of::<u64>() as u64)
}
