//! Live blocks in the order of their addresses, in three steps without a sort of all of them at once.
//!
//! ```text
//! shares   the addresses of a sample cut the address space into shares of some thousand blocks
//! parts    each part of the recording puts its blocks into their shares as it finds them: 16 bytes each
//! sorted   each share is sorted by itself, by the digits of its addresses, in a processor's cache
//! ```

use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::PlacedBlock;

/// Blocks of a share: their keys fit in the cache of one core.
const SHARE: u64 = 1 << 14;
/// Most shares: each part writes to all of them in turn.
const SHARES: usize = 512;
/// Bits of the addresses that a part has room for; few programs have others.
const ADDRESS_BITS: u32 = 48;
/// Blocks by which a share of a part grows.
const STEP: usize = 256;

/// A partition of the address space.
#[derive(Debug, Clone)]
pub(super) struct AddressShares {
    /// First addresses of all shares but the first, ascending; behind them the largest number.
    bounds: [u64; SHARES],
    count: usize,
}

impl AddressShares {
    /// Of about `count` blocks; `sample` are the addresses of some.
    pub(super) fn new(mut sample: Vec<u64>, count: u64) -> Self {
        let shares = (count / SHARE).clamp(1, SHARES as u64);
        sample.sort_unstable();
        let at = |share: u64| sample.get((sample.len() as u64 * share / shares) as usize).copied();
        let mut cuts: Vec<u64> = (1..shares).filter_map(at).collect();
        cuts.dedup();
        let mut bounds = [u64::MAX; SHARES];
        for (bound, cut) in bounds.iter_mut().zip(&cuts) {
            *bound = *cut;
        }
        Self { bounds, count: cuts.len() + 1 }
    }

    /// The share of an address. A search without branches: which way it goes cannot be predicted.
    #[inline]
    fn of(&self, address: u64) -> usize {
        let (mut share, mut step) = (0, SHARES / 2);
        while step > 0 {
            share += if self.bounds[(share + step - 1) % SHARES] <= address { step } else { 0 };
            step /= 2;
        }
        share
    }

    /// All blocks by address, and by row where several have the same. The parts come in the order of their rows; `size_of`
    /// gives the size of a code and a row.
    pub(super) fn sorted(
        &self,
        parts: &[FoundBlocks<'_>],
        size_of: impl Fn(u16, u64) -> u64 + Sync,
    ) -> Vec<PlacedBlock> {
        let count_of = |share| parts.iter().map(|part| part.count(share)).sum();
        let counts: Vec<usize> = (0..self.count).map(count_of).collect();
        let count = counts.iter().sum();
        let mut blocks = Vec::with_capacity(count);
        let mut rest = blocks.spare_capacity_mut();
        let mut rooms = Vec::with_capacity(counts.len());
        for (share, &count) in counts.iter().enumerate() {
            let (room, behind) = rest.split_at_mut(count);
            rooms.push((share, room));
            rest = behind;
        }
        let sort = |sorter: &mut Sorter, (share, room): (usize, &mut [_])| sorter.sort(parts, share, &size_of, room);
        let written: usize = rooms.into_par_iter().map_init(Sorter::default, sort).sum();
        assert_eq!(written, count, "every share is full");
        // SAFETY: the room is for `count` blocks and is cut into the rooms of the shares; each share has filled its own.
        unsafe { blocks.set_len(count) };
        add(&mut blocks, parts.iter().flat_map(|part| &part.odd).copied());
        blocks
    }
}

/// A block: the code of its size above its address, its row as a distance, its origin.
#[derive(Debug, Clone, Copy, Default)]
struct Packed {
    code_and_address: u64,
    row: u32,
    origin: u32,
}

/// Blocks of one part of the recording, by share.
#[derive(Debug)]
pub(super) struct FoundBlocks<'a> {
    shares: &'a AddressShares,
    first_row: u64,
    /// Steps of all shares.
    blocks: Vec<Packed>,
    /// Where the steps of each share begin.
    steps: Vec<Vec<usize>>,
    /// Where the next block of each share goes, unless its last step is full.
    next: Vec<usize>,
    /// Blocks that there is no room for.
    odd: Vec<PlacedBlock>,
}

impl<'a> FoundBlocks<'a> {
    /// None yet, of rows from this one on.
    pub(super) fn new(shares: &'a AddressShares, first_row: u64) -> Self {
        let (steps, next) = (vec![Vec::new(); shares.count], vec![0; shares.count]);
        Self { shares, first_row, blocks: Vec::new(), steps, next, odd: Vec::new() }
    }

    /// Puts a block with the code of its size into its share.
    #[inline]
    pub(super) fn push(&mut self, block: PlacedBlock, code: u16) {
        let PlacedBlock { start, row, origin, .. } = block;
        let (share, distance) = (self.shares.of(start), u32::try_from(row - self.first_row));
        let (Some(next), 0, Ok(distance)) = (self.next.get_mut(share), start >> ADDRESS_BITS, distance) else {
            return self.odd.push(block);
        };
        if next.is_multiple_of(STEP) {
            *next = self.blocks.len();
            self.steps[share].push(*next);
            self.blocks.resize(*next + STEP, Packed::default());
        }
        self.blocks[*next] =
            Packed { code_and_address: u64::from(code) << ADDRESS_BITS | start, row: distance, origin };
        *next += 1;
    }

    fn count(&self, share: usize) -> usize {
        self.of(share).map(<[Packed]>::len).sum()
    }

    /// The blocks of a share, in the order in which they were put in.
    fn of(&self, share: usize) -> impl Iterator<Item = &[Packed]> {
        let steps = self.steps.get(share).map(Vec::as_slice).unwrap_or_default();
        let end = self.next.get(share).copied().unwrap_or(0);
        let step = move |(number, &start): (usize, &usize)| {
            let end = if number + 1 == steps.len() { end } else { start + STEP };
            self.blocks.get(start..end).unwrap_or_default()
        };
        steps.iter().enumerate().map(step)
    }
}

/// Adds blocks to others that are by address and by row.
pub(super) fn add(blocks: &mut Vec<PlacedBlock>, more: impl Iterator<Item = PlacedBlock>) {
    let before = blocks.len();
    blocks.extend(more);
    if blocks.len() > before {
        blocks.par_sort_by_key(|block| (block.start, block.row));
    }
}

/// Sorts one share after the other.
#[derive(Debug, Default)]
struct Sorter {
    blocks: Vec<PlacedBlock>,
    /// Address above that of the share's first block, and behind it the place in `blocks`.
    keys: Vec<u64>,
    spare: Vec<u64>,
}

impl Sorter {
    /// Writes the blocks of a share into `room` by address and row, and says how many there were.
    fn sort(
        &mut self,
        parts: &[FoundBlocks<'_>],
        share: usize,
        size_of: impl Fn(u16, u64) -> u64,
        room: &mut [MaybeUninit<PlacedBlock>],
    ) -> usize {
        self.blocks.clear();
        let (mut first, mut last) = (u64::MAX, 0);
        for part in parts {
            for &Packed { code_and_address, row, origin } in part.of(share).flatten() {
                let (start, row) = (code_and_address & ((1 << ADDRESS_BITS) - 1), part.first_row + u64::from(row));
                let size = size_of((code_and_address >> ADDRESS_BITS) as u16, row);
                (first, last) = (start.min(first), start.max(last));
                self.blocks.push(PlacedBlock { start, size, row, origin });
            }
        }
        let count = self.blocks.len();
        let place_bits = u64::BITS - (count as u64).leading_zeros();
        let bits = u64::BITS - last.saturating_sub(first).leading_zeros();
        if bits + place_bits > u64::BITS {
            // No key has room for address and place.
            self.blocks.sort_by_key(|block| block.start);
            return fill(room, self.blocks.iter().copied());
        }
        self.keys.clear();
        let key = |(place, block): (u64, &PlacedBlock)| (block.start - first) << place_bits | place;
        self.keys.extend((0..).zip(&self.blocks).map(key));
        if bits > MOST_DIGITS * DIGIT_BITS {
            self.keys.sort_unstable();
        } else {
            self.by_digits(place_bits, bits);
        }
        let place = |key: &u64| (key & ((1 << place_bits) - 1)) as usize;
        fill(room, self.keys.iter().filter_map(|key| self.blocks.get(place(key)).copied()))
    }

    /// Sorts the keys by so many bits above the lowest ones, digit after digit; equal ones stay as they are.
    fn by_digits(&mut self, lowest: u32, bits: u32) {
        const MASK: u64 = (1 << DIGIT_BITS) - 1;
        self.spare.resize(self.keys.len(), 0);
        for shift in (lowest..lowest + bits).step_by(DIGIT_BITS as usize) {
            let digit = |key: u64| (key >> shift & MASK) as usize;
            let mut places = [0; MASK as usize + 1];
            for &key in &self.keys {
                places[digit(key)] += 1;
            }
            let mut before = 0;
            for place in &mut places {
                before += std::mem::replace(place, before);
            }
            for &key in &self.keys {
                let place = &mut places[digit(key)];
                self.spare[*place] = key;
                *place += 1;
            }
            std::mem::swap(&mut self.keys, &mut self.spare);
        }
    }
}

/// Bits of a digit.
const DIGIT_BITS: u32 = 8;
/// Keys of more digits are compared: a share over a gap in the address space.
const MOST_DIGITS: u32 = 4;

/// Writes blocks into the room for them, and says how many.
fn fill(room: &mut [MaybeUninit<PlacedBlock>], blocks: impl Iterator<Item = PlacedBlock>) -> usize {
    room.iter_mut().zip(blocks).map(|(room, block)| room.write(block)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(shares: &AddressShares, parts: Vec<Vec<u64>>) {
        let (mut row, mut all, mut found) = (0, Vec::new(), Vec::new());
        for part in parts {
            let mut blocks = FoundBlocks::new(shares, row);
            for start in part {
                let code = (row % 7) as u16;
                let block = PlacedBlock { start, size: u64::from(code) + row, row, origin: row as u32 * 3 };
                blocks.push(block, code);
                all.push(block);
                row += 1;
            }
            found.push(blocks);
        }
        all.sort_by_key(|block| (block.start, block.row));
        assert!(shares.sorted(&found, |code, row| u64::from(code) + row) == all);
    }

    proptest! {
        /// Against one sort, with samples of any kind.
        #[test]
        fn shares_are_sorted_as_one(
            parts in prop::collection::vec(prop::collection::vec((0_usize..4, 0_u64..300), 0..400), 1..5),
            sample in prop::collection::vec((0_usize..4, 0_u64..300), 0..40),
            count in 0_u64..400_000,
        ) {
            // Two heaps far apart, and addresses that a part has no room for.
            let address = |(heap, at): (usize, u64)| [0x5555_0000_0000 + at, 0x7fff_0000_0000 + at, (5 << 60) + at, u64::MAX - at][heap];
            let shares = AddressShares::new(sample.into_iter().map(address).collect(), count);
            check(&shares, parts.into_iter().map(|part| part.into_iter().map(address).collect()).collect());
        }

        #[test]
        fn the_share_of_an_address_is_behind_all_bounds_up_to_it(
            sample in prop::collection::vec(0_u64..2000, 0..600),
            count in 0_u64..20_000_000,
            address in 0_u64..2100,
        ) {
            let shares = AddressShares::new(sample, count);
            let bounds = &shares.bounds[..shares.count - 1];
            prop_assert!(bounds.is_sorted() && shares.count <= SHARES);
            prop_assert_eq!(shares.of(address), bounds.partition_point(|&bound| bound <= address));
        }
    }

    #[test]
    fn long_shares_are_sorted_by_digits_and_those_over_gaps_by_comparison() {
        let mixed = |row: u64, most: u64| row.wrapping_mul(0x9E37_79B9_7F4A_7C15) % most;
        for most in [1, 1 << 8, 1 << 30, (1 << 48) - 1] {
            let parts = (0..3).map(|part| (0..30_000).map(|row| mixed(row * 3 + part, most)).collect()).collect();
            check(&AddressShares::new(Vec::new(), 0), parts);
        }
    }
}
