//! Memory of the recorded process that is not its allocator's: mappings of the program and of its runtime, stacks, data.
//!
//! Looks at the page tables tell it exactly, but a short run has few of them. Between two of them it is taken to change evenly,
//! and where a sample of the process' memory is higher than that and the replayed allocator explain together, the rest is in
//! the program's own mappings, as far as these are large enough.

use tracehound_query::replay_basis::{ReplayBasis, SampleBetweenLooks};

/// How much of it there is from a moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherMemory {
    /// When.
    pub t_ns: u64,
    /// How much.
    pub bytes: u64,
}

/// Steps between two looks.
const STEPS: u64 = 16;

/// By looks, by time: at each of them, in steps between two, and at each sample.
pub fn by_looks(basis: &ReplayBasis) -> Vec<OtherMemory> {
    let looks = &basis.others;
    let begin = looks.first().map(|&(_, bytes)| OtherMemory { t_ns: 0, bytes });
    let mut all: Vec<OtherMemory> = begin.into_iter().collect();
    for pair in looks.windows(2) {
        let [from, to] = *pair else { continue };
        let times =
            (1..=STEPS).map(|step| from.0 + (u128::from(to.0 - from.0) * u128::from(step) / u128::from(STEPS)) as u64);
        all.extend(times.map(|t_ns| OtherMemory { t_ns, bytes: between(looks, t_ns) }));
    }
    if begin.is_some() {
        all.extend(
            basis.samples.iter().map(|sample| OtherMemory { t_ns: sample.t_ns, bytes: between(looks, sample.t_ns) }),
        );
    }
    all.sort_by_key(|other| other.t_ns);
    all
}

/// With what samples tell beside looks. `others` are those of [`by_looks`], and `replayed` is what the program's own allocator
/// had taken at each of them.
pub fn by_samples(basis: &ReplayBasis, others: &[OtherMemory], replayed: &[u64]) -> Vec<OtherMemory> {
    let mut more: Vec<(u64, u64)> = basis.others.iter().map(|&(t_ns, _)| (t_ns, 0)).collect();
    more.extend(basis.samples.iter().filter_map(|sample| {
        let at = others.iter().position(|other| other.t_ns == sample.t_ns)?;
        Some((sample.t_ns, unexplained(sample, others.get(at)?.bytes, *replayed.get(at)?)))
    }));
    more.sort_by_key(|point| point.0);
    others
        .iter()
        .map(|other| OtherMemory { bytes: other.bytes.saturating_add(between(&more, other.t_ns)), ..*other })
        .collect()
}

/// Bytes of a sample that are in the program's own mappings beyond what looks say.
fn unexplained(sample: &SampleBetweenLooks, by_looks: u64, replayed: u64) -> u64 {
    let rest = sample.anonymous_bytes.saturating_sub(by_looks).saturating_sub(replayed);
    rest.min(sample.mapped_bytes.saturating_sub(by_looks))
}

/// The value of a curve at a moment; outside of it that of its nearer end.
fn between(curve: &[(u64, u64)], t_ns: u64) -> u64 {
    let behind = curve.partition_point(|point| point.0 < t_ns);
    let (Some(&from), Some(&to)) = (curve.get(behind.saturating_sub(1)), curve.get(behind).or(curve.last())) else {
        return 0;
    };
    if to.0 <= from.0 {
        return to.1;
    }
    let way = (i128::from(to.1) - i128::from(from.1)) * i128::from(t_ns.clamp(from.0, to.0) - from.0)
        / i128::from(to.0 - from.0);
    (i128::from(from.1) + way) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_have_values_between_their_points() {
        let curve = [(10, 100), (20, 200), (40, 0)];
        let at = [0, 10, 15, 20, 30, 40, 99].map(|t_ns| between(&curve, t_ns));
        assert_eq!(at, [100, 100, 150, 200, 100, 0, 0]);
        assert_eq!(between(&[], 5), 0);
        assert_eq!(between(&[(7, 3)], 5), 3);
    }

    #[test]
    fn samples_add_what_neither_looks_nor_the_allocator_explain() {
        let sample = |t_ns, anonymous_bytes, mapped_bytes| SampleBetweenLooks { t_ns, anonymous_bytes, mapped_bytes };
        let basis = ReplayBasis {
            others: vec![(0, 10), (320, 10)],
            samples: vec![sample(100, 90, 500), sample(200, 150, 30), sample(300, 40, 500)],
            ..ReplayBasis::default()
        };
        let others = by_looks(&basis);
        assert!(
            others.is_sorted_by_key(|other| other.t_ns) && others.iter().all(|other| other.bytes == 10),
            "{others:?}"
        );
        let replayed = vec![50; others.len()];
        let found = by_samples(&basis, &others, &replayed);
        let at = |t_ns| found.iter().find(|other| other.t_ns == t_ns).unwrap().bytes;
        // 90 are 10 + 50 + 30; of 150 only 30 can be mapped; 40 are less than is known.
        assert_eq!([at(0), at(100), at(160), at(200), at(300), at(320)], [10, 40, 34, 30, 10, 10]);
    }
}
