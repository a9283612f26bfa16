//! Changes of what is live, one by one: the base of curves of many keys at many moments.
//!
//! Sums of all keys are not made, so that the cost of many short spans is that of the changes in them.

use super::Result;
use super::amounts::{Signed, SumKey, SumQuery};
use super::scan::{Also, BLOCK, Picker, RowTest};
use crate::window::Resolved;
use tracehound_api::Metric;
use tracehound_index::Span;
use tracehound_index::layout::field;
use tracehound_index::sums::BlockAmount;

/// Blocks between two looks at the cancel flag.
const CHECK: u64 = 64;

/// The changes that a question is about. Any number of threads may ask at the same time.
pub struct LiveChanges<'a> {
    question: &'a SumQuery<'a>,
    /// Where the sums of buckets do not answer.
    test: Option<RowTest<'a>>,
}

impl<'a> LiveChanges<'a> {
    /// Those of a question.
    #[must_use]
    pub fn new(question: &'a SumQuery<'a>) -> Self {
        let test = (!question.sums_do()).then(|| question.selection.rows(question.trace));
        Self { question, test }
    }

    /// Passes the changes in a span to `each`, with their key: a key comes as often as lists and rows have it.
    ///
    /// # Errors
    /// When cancelled.
    pub fn each(&self, span: Span, mut each: impl FnMut(usize, Signed)) -> Result<()> {
        let question = self.question;
        question.cancel.check()?;
        match (&self.test, question.key) {
            (Some(test), _) => self.of_rows(span, test, &mut each),
            (None, SumKey::Site) => self.of_sites(span, &mut each),
            // Threads are few: sums of all of them are no work.
            (None, SumKey::Thread) => {
                let window = Resolved { from_ns: 0, to_ns: 0, span, at: None, peak_of: None };
                let sums = question.metric(Metric::Grown, &window)?;
                sums.into_iter().enumerate().for_each(|(key, change)| each(key, change));
                Ok(())
            }
        }
    }

    /// From the lists of whole buckets, and the rows on either side of them.
    fn of_sites(&self, span: Span, each: &mut impl FnMut(usize, Signed)) -> Result<()> {
        let SumQuery { trace, selection, .. } = *self.question;
        let passing = selection.sites.as_ref();
        let mut change = |site: usize, amount: Signed| {
            if passing.is_none_or(|sites| sites.get(site) == Some(&true)) {
                each(site, amount);
            }
        };
        let everything = crate::filter::Selection::all();
        let test = everything.rows(trace);
        let (first, last) = trace.whole_buckets(span);
        if first == last {
            return self.of_rows(span, &test, &mut change);
        }
        let (inner_from, inner_to) = (trace.bucket_start(first), trace.bucket_start(last));
        self.of_rows(Span { from: span.from, to: inner_from }, &test, &mut change)?;
        self.of_rows(Span { from: inner_to, to: span.to }, &test, &mut change)?;
        let lists = &trace.facts().site_sums;
        for (field, sign) in [(field::ALLOCATED, 1), (field::FREED, -1)] {
            trace.walk_buckets::<3>(lists, (first, last), field, self.question.cancel, |site, amount| {
                change(site as usize, signed(amount, sign));
            })?;
        }
        Ok(())
    }

    /// From the rows that pass.
    fn of_rows(&self, span: Span, test: &RowTest<'_>, each: &mut impl FnMut(usize, Signed)) -> Result<()> {
        let question = self.question;
        let trace = question.trace;
        let mut picker = Picker::new(test, Also::Nothing);
        let blocks = |from: u64, to: u64| {
            (0..).zip((from..to).step_by(BLOCK)).map(move |(at, start)| (at, start, to.min(start + BLOCK as u64)))
        };
        let check = |at: u64| if at.is_multiple_of(CHECK) { question.cancel.check() } else { Ok(()) };
        for (at, start, end) in blocks(span.from.allocs, span.to.allocs) {
            check(at)?;
            for &offset in picker.pick(start, end) {
                let row = start + u64::from(offset);
                each(question.key_of(row), signed(BlockAmount { count: 1, bytes: trace.size_of(row) }, 1));
            }
        }
        for (at, start, end) in blocks(span.from.frees, span.to.frees) {
            check(at)?;
            for &offset in picker.pick_frees(start, end) {
                let ordinal = start + u64::from(offset);
                let amount = BlockAmount { count: 1, bytes: trace.size_of_free(ordinal) };
                each(question.key_of(trace.row_of_free(ordinal)), signed(amount, -1));
            }
        }
        Ok(())
    }
}

fn signed(amount: BlockAmount, sign: i64) -> Signed {
    let mut signed = Signed::default();
    signed.add(amount, sign);
    signed
}
