//! Sums by key that may be more than fit in memory: tables that are full go to a file, ordered, and are merged at the end.
//!
//! ```text
//! table of a worker ─full─▶ run (ordered, in a file) ─┐ FAN_IN of a level become one of the next
//!                   ─end──▶ rest (one table) ─────────┴─▶ Merged: every key once, in order
//! ```
//! A run is a row of entries of [`ENTRY`] bytes; its file has no name and goes with it.

use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::PathBuf;

use rustc_hash::FxHashMap;

use super::{ClassKey, Sums};

/// Entries that all tables together hold, about 200 bytes each while a table grows.
pub(super) const ENTRIES: usize = 7 << 14;
/// Runs of one level; more are merged into one of the next level.
const FAN_IN: usize = 32;
/// Bytes of a key and its sums in a file.
const ENTRY: usize = 4 + 4 + 1 + 8 * 10;
/// Bytes that are read from a run at once.
const BUFFER: usize = 1 << 14;

/// Sums of the rows of one worker.
pub(super) type ClassSums = FxHashMap<ClassKey, Sums>;

/// An ordered part of the sums.
type Run = BufReader<File>;

/// All that was added up so far.
#[derive(Debug)]
pub(super) struct Runs {
    folder: PathBuf,
    /// Most entries in [`Self::rest`].
    limit: usize,
    rest: ClassSums,
    levels: Vec<Vec<Run>>,
}

impl Runs {
    /// Files go to `folder` if it can be written, else to that for temporary files.
    pub fn new(folder: PathBuf, limit: usize) -> Self {
        Self { folder, limit, rest: ClassSums::default(), levels: Vec::new() }
    }

    /// A file for a run.
    ///
    /// # Errors
    /// When there is no folder to write to.
    pub fn file(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.folder).or_else(|_| tempfile::tempfile())
    }

    /// Adds a full table of a worker that continues.
    ///
    /// # Errors
    /// When files cannot be written or read.
    pub fn push(&mut self, run: Run) -> io::Result<()> {
        let mut run = run;
        for level in 0.. {
            if self.levels.len() <= level {
                self.levels.push(Vec::new());
            }
            self.levels[level].push(run);
            if self.levels[level].len() < FAN_IN {
                break;
            }
            let full = std::mem::take(&mut self.levels[level]);
            run = store(self.file()?, Merged::new(Vec::new(), full)?)?;
        }
        Ok(())
    }

    /// Adds the last table of a worker.
    ///
    /// # Errors
    /// When files cannot be written or read.
    pub fn absorb(&mut self, table: ClassSums) -> io::Result<()> {
        for (key, sums) in table {
            self.rest.entry(key).or_default().merge(&sums);
        }
        if self.rest.len() > self.limit {
            let rest = ordered(&mut self.rest);
            let run = store(self.file()?, rest.into_iter().map(Ok))?;
            self.push(run)?;
        }
        Ok(())
    }

    /// All sums.
    ///
    /// # Errors
    /// When files cannot be read.
    pub fn finish(mut self) -> io::Result<Merged> {
        let rest = ordered(&mut self.rest);
        Merged::new(rest, self.levels.into_iter().flatten().collect())
    }
}

/// The entries of a table by key; the table is empty, and its memory given back.
pub(super) fn ordered(table: &mut ClassSums) -> Vec<(ClassKey, Sums)> {
    let mut entries: Vec<(ClassKey, Sums)> = std::mem::take(table).into_iter().collect();
    entries.sort_unstable_by_key(|entry| entry.0);
    entries
}

/// Writes entries as a run.
///
/// # Errors
/// When the file cannot be written, or the entries cannot be read.
pub(super) fn store(file: File, entries: impl Iterator<Item = io::Result<(ClassKey, Sums)>>) -> io::Result<Run> {
    let mut out = BufWriter::with_capacity(BUFFER, file);
    for entry in entries {
        let (key, sums) = entry?;
        out.write_all(&encode(key, &sums))?;
    }
    let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(BufReader::with_capacity(BUFFER, file))
}

fn encode((site, thread, class): ClassKey, sums: &Sums) -> [u8; ENTRY] {
    let mut bytes = [0; ENTRY];
    bytes[..4].copy_from_slice(&site.to_le_bytes());
    bytes[4..8].copy_from_slice(&thread.to_le_bytes());
    bytes[8] = class;
    let amounts = sums.amounts.iter().flat_map(|amount| [amount.count, amount.bytes]);
    let numbers = [sums.smallest, sums.largest].into_iter().chain(amounts);
    for (place, number) in bytes[9..].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn decode(bytes: &[u8; ENTRY]) -> (ClassKey, Sums) {
    let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let number = |i: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[9 + 8 * i..17 + 8 * i]);
        u64::from_le_bytes(word)
    };
    let mut sums = Sums { smallest: number(0), largest: number(1), ..Sums::default() };
    for (i, amount) in sums.amounts.iter_mut().enumerate() {
        (amount.count, amount.bytes) = (number(2 + 2 * i), number(3 + 2 * i));
    }
    ((half(0), half(4), bytes[8]), sums)
}

/// The next entry of a run; `None` behind its last.
fn read(run: &mut Run) -> io::Result<Option<(ClassKey, Sums)>> {
    let mut bytes = [0; ENTRY];
    match run.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(decode(&bytes))),
        // Only whole entries are written.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Every key once, in order, with the sums of all runs.
#[derive(Debug)]
pub(super) struct Merged {
    rest: std::iter::Peekable<std::vec::IntoIter<(ClassKey, Sums)>>,
    runs: Vec<Run>,
    /// The next entry of each run, smallest key first.
    heads: BinaryHeap<Head>,
}

#[derive(Debug)]
struct Head {
    key: ClassKey,
    run: usize,
    sums: Sums,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.key, other.run).cmp(&(self.key, self.run))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

impl Merged {
    fn new(rest: Vec<(ClassKey, Sums)>, runs: Vec<Run>) -> io::Result<Self> {
        let mut merged = Self { rest: rest.into_iter().peekable(), heads: BinaryHeap::with_capacity(runs.len()), runs };
        for run in 0..merged.runs.len() {
            merged.advance(run)?;
        }
        Ok(merged)
    }

    fn advance(&mut self, run: usize) -> io::Result<()> {
        if let Some((key, sums)) = read(&mut self.runs[run])? {
            self.heads.push(Head { key, run, sums });
        }
        Ok(())
    }

    fn step(&mut self) -> io::Result<Option<(ClassKey, Sums)>> {
        let keys = [self.rest.peek().map(|entry| entry.0), self.heads.peek().map(|head| head.key)];
        let Some(key) = keys.into_iter().flatten().min() else { return Ok(None) };
        let mut all = self.rest.next_if(|entry| entry.0 == key).map_or_else(Sums::default, |entry| entry.1);
        while self.heads.peek().is_some_and(|head| head.key == key) {
            let Some(head) = self.heads.pop() else { break };
            all.merge(&head.sums);
            self.advance(head.run)?;
        }
        Ok(Some((key, all)))
    }
}

impl Iterator for Merged {
    type Item = io::Result<(ClassKey, Sums)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

/// The sums of a key, if there is room for it.
pub(super) fn entry(table: &mut ClassSums, key: ClassKey, limit: usize) -> Option<&mut Sums> {
    let len = table.len();
    match table.entry(key) {
        Entry::Occupied(known) => Some(known.into_mut()),
        Entry::Vacant(new) if len < limit => Some(new.insert(Sums::default())),
        Entry::Vacant(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use tracehound_api::Amount;

    fn sums(size: u64) -> Sums {
        let amount = Amount { count: 1, bytes: size };
        Sums { smallest: size, largest: size, amounts: [amount, amount, Amount::default(), amount] }
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_sums_are_the_same(
            rows in proptest::collection::vec((0_u32..40, 0_u32..3, 0_u8..65, 0_u64..1 << 40), 0..3000),
            limit in 1_usize..50,
        ) {
            let mut expected: BTreeMap<ClassKey, Sums> = BTreeMap::new();
            let mut runs = Runs::new(std::env::temp_dir(), limit);
            let mut table = ClassSums::default();
            for &(site, thread, class, size) in &rows {
                let key = (site, thread, class);
                expected.entry(key).or_default().merge(&sums(size));
                match entry(&mut table, key, limit) {
                    Some(known) => known.merge(&sums(size)),
                    None => {
                        let full = ordered(&mut table);
                        let run = store(runs.file().unwrap(), full.into_iter().map(Ok)).unwrap();
                        runs.push(run).unwrap();
                        table.entry(key).or_default().merge(&sums(size));
                    }
                }
            }
            runs.absorb(table).unwrap();
            prop_assert!(runs.rest.len() <= limit);
            prop_assert!(runs.levels.iter().all(|level| level.len() < FAN_IN));
            let merged: Vec<_> = runs.finish().unwrap().map(|entry| entry.unwrap()).collect();
            prop_assert_eq!(merged, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
