//! Sums by size class: the powers of two that sizes lie between, as allocators group them.

use rayon::prelude::*;

use super::Result;
use super::amounts::{Signed, SumKey, SumQuery, ranges};
use super::filter::Selection;
use super::histogram::Scale;
use super::scan::{Also, BLOCK, Picker};
use super::window::Resolved;
use tracehound_api::Metric;
use tracehound_index::sums::BlockAmount;
use tracehound_index::{Cancel, Trace};

/// Classes of sizes.
pub const SCALE: Scale = Scale { split: 1 };

/// What a class is called: its smallest size, and the size that it ends before.
#[must_use]
pub fn name(class: usize) -> String {
    match SCALE.floor(class) {
        size @ (0 | 1) => format!("{size} B"),
        size => format!("{} to < {}", power(size), size.checked_mul(2).map_or_else(|| "16 EiB".into(), power)),
    }
}

/// A power of two with its unit.
fn power(size: u64) -> String {
    let unit = size.ilog2() / 10;
    format!("{} {}", size >> (10 * unit), ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit as usize])
}

/// Sums of a metric by class, of all classes that there can be.
///
/// # Errors
/// When cancelled.
pub fn sums(
    trace: &Trace,
    selection: &Selection,
    metric: Metric,
    window: &Resolved,
    cancel: &Cancel,
) -> Result<Vec<Signed>> {
    let span = window.span;
    let allocs = (span.from.allocs, span.to.allocs);
    let scan = |(from, to): (u64, u64), also: Also| scan(trace, selection, from, to, &also, cancel);
    match metric {
        Metric::Live | Metric::Peak => {
            let question = SumQuery { trace, selection, key: SumKey::Site, cancel };
            let place = question.moment(metric, window)?.map_or(span.to, |moment| moment.place);
            scan((0, place.allocs), Also::LiveAt(place.frees))
        }
        Metric::Leaked => scan(allocs, Also::LiveAt(trace.free_count())),
        Metric::Allocated => scan(allocs, Also::Nothing),
        Metric::Temporary => scan(allocs, Also::Temporary),
        Metric::Freed => scan((0, span.to.allocs), Also::Freed(span.from.frees..span.to.frees)),
        Metric::Grown => {
            let mut grown = scan(allocs, Also::Nothing)?;
            for (sum, freed) in grown.iter_mut().zip(sums(trace, selection, Metric::Freed, window, cancel)?) {
                sum.count -= freed.count;
                sum.bytes -= freed.bytes;
            }
            Ok(grown)
        }
    }
}

/// Sums over the allocations `from..to` that pass the selection and fulfil `also`.
fn scan(trace: &Trace, selection: &Selection, from: u64, to: u64, also: &Also, cancel: &Cancel) -> Result<Vec<Signed>> {
    let test = selection.rows(trace);
    let one = |range: std::ops::Range<u64>| -> Result<Vec<Signed>> {
        let mut sums = vec![Signed::default(); SCALE.classes()];
        let mut picker = Picker::new(&test, also.clone());
        for (at, start) in range.clone().step_by(BLOCK).enumerate() {
            if at.is_multiple_of(256) {
                cancel.check()?;
            }
            for &offset in picker.pick(start, (start + BLOCK as u64).min(range.end)) {
                let size = trace.size_of(start + u64::from(offset));
                sums[SCALE.class(size)].add(BlockAmount { count: 1, bytes: size }, 1);
            }
        }
        Ok(sums)
    };
    let merge = |mut a: Vec<Signed>, b: Vec<Signed>| {
        for (a, b) in a.iter_mut().zip(b) {
            a.count += b.count;
            a.bytes += b.bytes;
        }
        Ok(a)
    };
    ranges(from, to).into_par_iter().map(one).try_reduce(|| vec![Signed::default(); SCALE.classes()], merge)
}

#[cfg(test)]
mod tests {
    use super::{SCALE, name};

    #[test]
    fn classes_are_named_by_their_bounds() {
        let of = |size| name(SCALE.class(size));
        assert_eq!([0, 1, 3, 64, 127].map(of), ["0 B", "1 B", "2 B to < 4 B", "64 B to < 128 B", "64 B to < 128 B"]);
        assert_eq!(
            [1000, 1024, 1 << 30, u64::MAX].map(of),
            ["512 B to < 1 KiB", "1 KiB to < 2 KiB", "1 GiB to < 2 GiB", "8 EiB to < 16 EiB"]
        );
    }
}
