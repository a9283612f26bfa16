//! Peak of what passes a filter: the first moment of a range at which most of its bytes were live, by exact events.
//!
//! Parts of the range are walked on all threads of the pool, each from zero. What was live at the start comes from
//! sums, and the sum of each part is added to the parts after it.

use rayon::prelude::*;

use super::steps::{Filtered, SeriesSteps, Watch};
use crate::Result;
use crate::amounts::{SumKey, SumQuery};
use crate::filter::Selection;
use tracehound_index::{Cancel, PeakPlace, Span, Trace};

/// Allocations and frees of a part.
const PART_EVENTS: u64 = 1 << 16;

/// Highest sum of a part, against its start.
#[derive(Debug, Clone, Copy, Default)]
struct PeakPart {
    bytes: i64,
    count: i64,
    /// Highest bytes, the blocks then, allocations and frees of the trace up to there.
    best: (i64, i64, u64),
}

impl Watch for PeakPart {
    #[inline]
    fn live(&self) -> (i64, i64) {
        (self.bytes, self.count)
    }

    #[inline]
    fn set_live(&mut self, bytes: i64, count: i64) {
        (self.bytes, self.count) = (bytes, count);
    }

    #[inline]
    fn see(&mut self, bytes: i64, count: i64, events: u64) {
        if bytes > self.best.0 {
            self.best = (bytes, count, events);
        }
    }

    #[inline]
    fn add(&mut self, _: u64, _: u64, _: u64) {}
}

/// The first moment of a range at which most bytes of what `selection` keeps were live; what was live when the range
/// began, at `from_ns`, counts.
///
/// # Errors
/// When cancelled.
pub fn find(trace: &Trace, selection: &Selection, span: Span, from_ns: u64, cancel: &Cancel) -> Result<PeakPlace> {
    if selection.is_everything() {
        return Ok(trace.peak_in(span, from_ns));
    }
    let (first, last) = (span.from.events(), span.to.events());
    let parts = (last.saturating_sub(first)).div_ceil(PART_EVENTS);
    let border = |i: u64| {
        if i == 0 {
            span.from
        } else if i >= parts {
            span.to
        } else {
            trace.position_after(first + i * PART_EVENTS)
        }
    };
    let filtered = Filtered::new(trace, selection, span, cancel);
    let found: Vec<PeakPart> = (0..parts)
        .into_par_iter()
        .map_init(
            || SeriesSteps::new(&filtered),
            |steps, i| {
                let mut part = PeakPart::default();
                steps.walk(Span { from: border(i), to: border(i + 1) }, &mut part)?;
                Ok(part)
            },
        )
        .collect::<Result<_>>()?;
    let question = SumQuery { trace, selection, key: SumKey::Site, cancel };
    let (mut bytes, mut count) = (0, 0);
    if first > 0 {
        for sum in question.live_at(span.from)? {
            bytes += sum.bytes;
            count += sum.count;
        }
    }
    let mut best = (bytes, count, first);
    for part in found {
        if bytes + part.best.0 > best.0 {
            best = (bytes + part.best.0, count + part.best.1, part.best.2);
        }
        bytes += part.bytes;
        count += part.count;
    }
    let (bytes, count, events) = best;
    let (place, at_ns) = if events == first {
        (span.from, from_ns)
    } else {
        (trace.position_after(events), trace.time_of_event(events - 1))
    };
    Ok(PeakPlace { bytes: bytes.max(0) as u64, count: count.max(0) as u64, at_ns, place })
}
