//! Sealer: takes batches from the pairing, on a thread of its own, stores columns, and adds up buckets.

use std::collections::HashMap;
use std::io;

use super::engine::OccupiedRun;
use super::event_batch::EventBatch;
use super::free_ledgers::FreeLedgers;
use super::sizes::SizeCodes;
use tracehound_index::facts::Bucket;
use tracehound_index::layout::field;
use tracehound_index::schema::{
    EventOrigin, EventPage, LateTemporary, OddAddress, OrphanRealloc, OtherEvent, TableRow, ThreadPair, Writers,
};
use tracehound_index::sums::{BlockAmount, Builder, Dense, Extent, SumDirectory};

/// See the module's description.
#[derive(Debug)]
pub struct Sealer {
    /// The columns.
    pub writers: Writers,
    /// The columns that are filled in as blocks are freed.
    pub ledgers: FreeLedgers,
    /// Sums by site.
    pub sites: Builder<3>,
    /// Sums by thread: allocated, temporary.
    pub threads: Builder<2>,
    /// Sums by pair of threads: freed.
    pub pairs: Builder<1>,
    /// Starts of closed buckets.
    pub buckets: Vec<Bucket>,
    open: Bucket,
    origins: Vec<(u32, u32)>,
    by_site: Dense<3>,
    by_thread: Dense<2>,
    by_pair: Dense<1>,
    pair_numbers: PairNumbers,
    sizes: SizeCodes,
}

/// Numbers for pairs of threads. Few threads: a table; many: a map.
#[derive(Debug, Default)]
struct PairNumbers {
    table: Vec<u32>,
    map: HashMap<(u32, u32), u32>,
    new: Vec<ThreadPair>,
    len: u32,
}

const TABLE_THREADS: u32 = 128;

impl PairNumbers {
    #[inline]
    fn number(&mut self, bearer: u32, freer: u32) -> u32 {
        if bearer < TABLE_THREADS && freer < TABLE_THREADS {
            if self.table.is_empty() {
                self.table.resize((TABLE_THREADS * TABLE_THREADS) as usize, u32::MAX);
            }
            let known = self.table[(bearer * TABLE_THREADS + freer) as usize];
            if known != u32::MAX {
                return known;
            }
        }
        self.slow(bearer, freer)
    }

    fn slow(&mut self, bearer: u32, freer: u32) -> u32 {
        let len = self.len;
        let number = *self.map.entry((bearer, freer)).or_insert(len);
        if number == len {
            self.len += 1;
            self.new.push(ThreadPair { bearer, freer });
        }
        if bearer < TABLE_THREADS && freer < TABLE_THREADS {
            self.table[(bearer * TABLE_THREADS + freer) as usize] = number;
        }
        number
    }
}

impl Sealer {
    /// A sealer that starts with empty columns.
    #[must_use]
    pub fn new(writers: Writers, ledgers: FreeLedgers, sizes: SizeCodes) -> Self {
        let (sites, threads, pairs) = Default::default();
        Self::resume(writers, ledgers, sites, threads, pairs, Vec::new(), &[], &[], sizes)
    }

    /// A sealer that goes on with columns that an earlier run left; the open bucket is still to be put back with
    /// [`Self::reopen_bucket`].
    #[must_use]
    #[allow(clippy::too_many_arguments)] // What an earlier run left, part by part.
    pub fn resume(
        writers: Writers,
        ledgers: FreeLedgers,
        sites: SumDirectory,
        threads: SumDirectory,
        pairs: SumDirectory,
        buckets: Vec<Bucket>,
        origins: &[EventOrigin],
        known_pairs: &[(u32, u32)],
        sizes: SizeCodes,
    ) -> Self {
        let mut pair_numbers = PairNumbers::default();
        for &(bearer, freer) in known_pairs {
            pair_numbers.number(bearer, freer);
        }
        pair_numbers.new.clear();
        Self {
            writers,
            ledgers,
            sites: Builder::resume(sites),
            threads: Builder::resume(threads),
            pairs: Builder::resume(pairs),
            buckets,
            open: Bucket::default(),
            origins: origins.iter().map(|o| (o.site, o.thread)).collect(),
            by_site: Dense::default(),
            by_thread: Dense::default(),
            by_pair: Dense::default(),
            pair_numbers,
            sizes,
        }
    }

    /// Says where the open bucket began.
    pub fn reopen_bucket(&mut self, allocs: u64, frees: u64) {
        self.open = Bucket { allocs, frees };
    }

    /// Adds an allocation to the open bucket.
    #[inline]
    pub fn add_alloc(&mut self, origin: u32, size: u64) {
        let Some(&(site, thread)) = self.origins.get(origin as usize) else { return };
        let amount = BlockAmount { count: 1, bytes: size };
        self.by_site.add(site, field::ALLOCATED, amount);
        self.by_thread.add(thread, 0, amount);
    }

    /// Adds a free to the open bucket.
    #[inline]
    pub fn add_free(&mut self, alloc_origin: u32, free_origin: u32, size: u64) {
        let Some(&(site, bearer)) = self.origins.get(alloc_origin as usize) else { return };
        let Some(&(_, freer)) = self.origins.get(free_origin as usize) else { return };
        let amount = BlockAmount { count: 1, bytes: size };
        self.by_site.add(site, field::FREED, amount);
        let pair = self.pair_numbers.number(bearer, freer);
        self.by_pair.add(pair, 0, amount);
    }

    /// Adds a temporary block allocated in the open bucket.
    #[inline]
    pub fn add_temporary(&mut self, origin: u32, size: u64) {
        let Some(&(site, thread)) = self.origins.get(origin as usize) else { return };
        let amount = BlockAmount { count: 1, bytes: size };
        self.by_site.add(site, field::TEMPORARY, amount);
        self.by_thread.add(thread, 1, amount);
    }

    /// Stores a chunk.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn take(&mut self, chunk: &EventBatch) -> io::Result<()> {
        let w = &mut self.writers;
        for origin in &chunk.origins {
            self.origins.push((origin.site, origin.thread));
        }
        EventOrigin::append(&chunk.origins, w)?;
        w.site_node.append(&chunk.sites)?;
        w.alloc_time.append(&chunk.alloc_time)?;
        w.alloc_origin.append(&chunk.alloc_origin)?;
        w.alloc_address.append(&chunk.alloc_address)?;
        w.alloc_address_high.append(&chunk.alloc_address_high)?;
        w.free_time.append(&chunk.free_time)?;
        self.ledgers.link_frees(chunk, w)?;
        w.free_origin.append(&chunk.free_origin)?;
        append_contexts(w, chunk)?;
        w.order.write_at(chunk.order_first, &chunk.order)?;
        write_occupied(w, chunk.order_first, &chunk.occupied)?;
        EventPage::append(&chunk.pages, w)?;
        OddAddress::append(&chunk.odd, w)?;
        OrphanRealloc::append(&chunk.orphans, w)?;
        LateTemporary::append(&chunk.late, w)?;
        OtherEvent::append(&chunk.others, w)?;
        self.ledgers.zones(chunk, &self.origins)?;
        self.ledgers.take(chunk)?;
        self.add_up(chunk);
        self.sizes.store(chunk.first_alloc, &mut self.writers)?;
        self.append_new_pairs()?;
        if chunk.ends_bucket {
            self.close_bucket()?;
            let allocs = chunk.first_alloc + chunk.alloc_time.len() as u64;
            self.reopen_bucket(allocs, self.writers.free_time.len());
        }
        Ok(())
    }

    fn add_up(&mut self, chunk: &EventBatch) {
        let mut large = chunk.large.iter();
        for (&origin, &size) in chunk.alloc_origin.iter().zip(&chunk.alloc_size) {
            let size = if size == u32::MAX { large.next().copied().unwrap_or(0) } else { u64::from(size) };
            self.sizes.alloc(size);
            self.add_alloc(origin, size);
        }
        let frees = chunk.free_alloc_origin.iter().zip(&chunk.free_origin).zip(&chunk.free_size);
        for ((&alloc_origin, &origin), &size) in frees {
            self.sizes.free(size);
            self.add_free(alloc_origin, origin, size);
        }
        for &(origin, size) in &chunk.temporary {
            self.add_temporary(origin, size);
        }
    }

    /// Stores the numbers of pairs that appeared since the last time.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn append_new_pairs(&mut self) -> io::Result<()> {
        let new = std::mem::take(&mut self.pair_numbers.new);
        ThreadPair::append(&new, &mut self.writers)
    }

    fn close_bucket(&mut self) -> io::Result<()> {
        let sums = std::cell::RefCell::new(&mut self.writers.sums);
        let mut append = |bytes: &[u8]| {
            let mut sums = sums.borrow_mut();
            let at = sums.len();
            sums.append(bytes).map(|()| at)
        };
        let mut read = |extent: Extent| {
            let mut bytes = vec![0; extent.len as usize];
            sums.borrow().read_at(extent.offset, &mut bytes).map(|()| bytes)
        };
        self.sites.push(&self.by_site.drain_list(), &mut append, &mut read)?;
        self.threads.push(&self.by_thread.drain_list(), &mut append, &mut read)?;
        self.pairs.push(&self.by_pair.drain_list(), &mut append, &mut read)?;
        self.buckets.push(self.open);
        Ok(())
    }
}

/// Pages with live blocks, from the run of 64 events with the number `first` on.
///
/// # Errors
/// When the disk refuses.
pub fn write_occupied(w: &mut Writers, first: u64, runs: &[OccupiedRun]) -> io::Result<()> {
    let column = |pick: fn(&OccupiedRun) -> u32| runs.iter().map(pick).collect::<Vec<u32>>();
    w.occupied_min.write_at(first, &column(|run| run.min))?;
    w.occupied_max.write_at(first, &column(|run| run.max))?;
    w.occupied_last.write_at(first, &column(|run| run.last))
}

/// Columns that begin where the first context does: what comes before has none.
fn append_contexts(w: &mut Writers, chunk: &EventBatch) -> io::Result<()> {
    const AT_ONCE: u64 = 1 << 16;
    w.context_id.append(&chunk.contexts)?;
    for (writer, values, first) in [
        (&mut w.alloc_context, &chunk.alloc_context, chunk.first_alloc),
        (&mut w.free_context, &chunk.free_context, chunk.first_free),
    ] {
        if values.is_empty() {
            continue;
        }
        while writer.len() < first {
            let some = (first - writer.len()).min(AT_ONCE);
            writer.append(&vec![0; some as usize])?;
        }
        writer.append(values)?;
    }
    Ok(())
}
