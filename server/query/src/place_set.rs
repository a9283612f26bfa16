//! A set of places of a tree's pre-order, as bits: how many lie before a place is one look-up and one count of bits.

use std::ops::Range;

use tracehound_index::pre_order::TreePlace;

/// See the module's text. Counts and positions are for a set that is finished, see [`PlaceSet::finish`].
#[derive(Debug, Default)]
pub struct PlaceSet {
    words: Vec<u64>,
    /// By word: places in the words before it.
    before: Vec<u32>,
}

impl PlaceSet {
    /// An empty set for places below `len`.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { words: vec![0; len / 64 + 1], before: Vec::new() }
    }

    /// Adds a place.
    #[inline]
    pub fn insert(&mut self, place: TreePlace) {
        self.words[place as usize / 64] |= 1 << (place % 64);
    }

    /// Counts the places. Nothing is added afterwards.
    pub fn finish(&mut self) {
        let mut sum = 0;
        let count = |word: &u64| {
            let before = sum;
            sum += word.count_ones();
            before
        };
        self.before = self.words.iter().map(count).collect();
    }

    /// How many places are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// How many places of the set lie before `place`.
    #[inline]
    #[must_use]
    pub fn count_before(&self, place: TreePlace) -> usize {
        let at = place as usize / 64;
        let (word, before) = (self.words[at], self.before[at]);
        (before + (word & ((1 << (place % 64)) - 1)).count_ones()) as usize
    }

    /// The first place of the set that is `place` or lies behind it.
    #[must_use]
    pub fn first_from(&self, place: TreePlace) -> Option<TreePlace> {
        let mut at = place as usize / 64;
        let mut word = self.words.get(at)? & (u64::MAX << (place % 64));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some((at * 64) as TreePlace + word.trailing_zeros())
    }

    /// All places, ascending.
    pub fn iter(&self) -> impl Iterator<Item = TreePlace> + '_ {
        self.among(0..self.words.len())
    }

    /// The places of some words, ascending.
    fn among(&self, words: Range<usize>) -> impl Iterator<Item = TreePlace> + '_ {
        (words.start as TreePlace..).zip(&self.words[words]).flat_map(|(at, &word)| {
            let rests = std::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)));
            rests.take_while(|&rest| rest != 0).map(move |rest| at * 64 + rest.trailing_zeros())
        })
    }

    /// The places of a finished set in at most `count` runs, ascending: how many each has, and which.
    pub fn runs(&self, count: usize) -> Vec<(usize, impl Iterator<Item = TreePlace> + '_)> {
        let len = self.words.len();
        let before = |word: usize| self.before.get(word).map_or_else(|| self.len(), |&before| before as usize);
        let bounds = (0..count).map(|at| len * at / count..len * (at + 1) / count);
        let runs = bounds.filter(|words| !words.is_empty());
        runs.map(|words| (before(words.end) - before(words.start), self.among(words))).collect()
    }

    /// Adds what another set of as many places has.
    pub fn insert_all(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_and_found() {
        let places = [0, 5, 63, 64, 127, 128, 300];
        let mut set = PlaceSet::new(301);
        assert!(set.is_empty());
        places.iter().rev().for_each(|&place| set.insert(place));
        set.finish();
        assert_eq!((set.len(), set.is_empty()), (places.len(), false));
        assert_eq!(set.iter().collect::<Vec<_>>(), places);
        for count in 1..9 {
            let runs: Vec<(usize, Vec<TreePlace>)> =
                set.runs(count).into_iter().map(|(len, run)| (len, run.collect())).collect();
            assert!(runs.len() <= count && runs.iter().all(|(len, run)| *len == run.len()), "{runs:?}");
            assert_eq!(runs.into_iter().flat_map(|(_, run)| run).collect::<Vec<_>>(), places);
        }
        for place in 0..=301 {
            let before = places.iter().filter(|&&known| known < place).count();
            assert_eq!(set.count_before(place), before, "{place}");
            assert_eq!(set.first_from(place), places.get(before).copied(), "{place}");
        }
        assert_eq!(set.first_from(9999), None);
    }
}
