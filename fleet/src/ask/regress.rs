//! `heaptrace fleet regress`: what a version has more of than the one before, beyond chance, and since which version.
//!
//! Stacks of two builds are the same if their functions and modules are. Each is tested (Welch's test, a false discovery
//! rate of 5 % over all); a recording without a stack counts as a zero of it. For what is significant, the versions are
//! gone through in the order in which they began: the first whose 95 % interval lies above that of the version before.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use rustc_hash::FxHashMap;
use serde::Serialize;
use tracehound_query::statistics::{Moments, discoveries, student_95, welch};

use super::{FleetMetric, Where, bytes};
use crate::tables::read::{Name, RecordingRow, StackText};

/// Options of `fleet regress`.
#[derive(Debug, clap::Args)]
pub struct RegressArgs {
    #[command(flatten)]
    place: Where,
    /// The version before [default: the last but one that began]
    #[arg(long, value_name = "VERSION")]
    before: Option<String>,
    /// The version after [default: the last one that began]
    #[arg(long, value_name = "VERSION")]
    after: Option<String>,
    /// What is compared
    #[arg(long, value_enum, default_value_t)]
    metric: FleetMetric,
    /// Number of rows to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    rows: usize,
}

/// `heaptrace.fleet-regress/1`.
#[derive(Debug, Serialize)]
struct FleetRegress {
    schema: &'static str,
    metric: FleetMetric,
    before: VersionSum,
    after: VersionSum,
    total_p: f64,
    false_discovery_rate: f64,
    /// Stacks that were compared.
    stacks: usize,
    rows: Vec<RegressionRow>,
    /// Differences that may be chance.
    noise: usize,
}

#[derive(Debug, Serialize)]
struct VersionSum {
    version: String,
    recordings: usize,
    mean_bytes: f64,
}

#[derive(Debug, Serialize)]
struct RegressionRow {
    change_bytes: f64,
    before_mean_bytes: f64,
    after_mean_bytes: f64,
    p: f64,
    /// The first version that has more than the one before it.
    since: Option<String>,
    #[serde(flatten)]
    stack: StackText,
}

/// Part of the rows that may be chance.
const RATE: f64 = 0.05;

/// Runs the query.
pub async fn run(args: RegressArgs) -> Result<()> {
    let Some(column) = args.metric.column() else {
        bail!("versions are compared by sums of whole recordings, not by grown")
    };
    let store = args.place.store()?;
    let set = args.place.open(&store, None).await?;
    let services: Vec<&str> = unique(set.recordings.iter().map(|row| row.service.as_str()));
    if services.len() > 1 {
        bail!("versions are those of one service: --service is one of {}", services.join(", "));
    }
    let versions: Vec<String> =
        unique(set.recordings.iter().map(|row| row.version.as_str())).into_iter().map(str::to_owned).collect();
    let (before, after) = sides(&versions, args.before, args.after)?;
    let place: BTreeMap<&str, usize> =
        versions.iter().enumerate().map(|(at, version)| (version.as_str(), at)).collect();
    let version_of: Vec<usize> = set.recordings.iter().map(|row: &RecordingRow| place[row.version.as_str()]).collect();
    let mut counts = vec![0.0; versions.len()];
    version_of.iter().for_each(|&at| counts[at] += 1.0);
    if counts[before] < 2.0 || counts[after] < 2.0 {
        let has = |at: usize| format!("{} has {}", crate::clean(&versions[at]), counts[at]);
        bail!(
            "a test of significance needs two recordings of each version, better five: {}, {}; --before and --after name others",
            has(before),
            has(after)
        );
    }

    let names = set.names(None).await?;
    let mut values: FxHashMap<Name, Vec<(u32, f64)>> = FxHashMap::default();
    let mut texts: FxHashMap<Name, StackText> = FxHashMap::default();
    let mut keys: FxHashMap<Name, Name> = FxHashMap::default();
    let mut totals = vec![0.0; set.recordings.len()];
    set.stacks("sites", &[column], &mut |recording, stack, of| {
        if of[0] != 0.0 {
            let key = *keys.entry(stack).or_insert_with(|| {
                let text = names.get(&stack);
                let key = text.key;
                texts.entry(key).or_insert(text);
                key
            });
            values.entry(key).or_default().push((recording, of[0]));
            totals[recording as usize] += of[0];
        }
    })
    .await?;

    let moments = |by_recording: &[(u32, f64)]| -> Vec<Moments> {
        let mut all: Vec<Moments> = counts.iter().map(|&count| Moments { count, ..Moments::default() }).collect();
        for &(recording, value) in by_recording {
            all[version_of[recording as usize]].add(value);
        }
        all
    };
    let totals: Vec<(u32, f64)> = (0..).zip(totals).collect();
    let total = moments(&totals);
    let tested = values.iter_mut().map(|(&key, by_recording)| (key, moments(summed(by_recording))));
    let (mut rows, stacks) = beyond_chance(tested, before, after);
    let noise = stacks - rows.len();
    let change = |all: &[Moments]| all[after].mean() - all[before].mean();
    rows.sort_by(|a, b| change(&b.2).abs().total_cmp(&change(&a.2).abs()));
    rows.truncate(args.rows);
    let side = |at: usize| VersionSum {
        version: versions[at].clone(),
        recordings: counts[at] as usize,
        mean_bytes: total[at].mean(),
    };
    let answer = FleetRegress {
        schema: "heaptrace.fleet-regress/1",
        metric: args.metric,
        before: side(before),
        after: side(after),
        total_p: welch(&total[before], &total[after]),
        false_discovery_rate: RATE,
        stacks,
        noise,
        rows: rows
            .into_iter()
            .map(|(p, key, all)| RegressionRow {
                change_bytes: change(&all),
                before_mean_bytes: all[before].mean(),
                after_mean_bytes: all[after].mean(),
                p,
                since: since(&all).map(|at| versions[at].clone()),
                stack: texts.get(&key).cloned().unwrap_or_default(),
            })
            .collect(),
    };
    args.place.print(&answer, text)
}

/// A stack whose difference is beyond chance: p-value, name, and the moments of all versions.
type Significant = (f64, Name, Vec<Moments>);

/// The stacks that differ between two versions by more than chance, of those that one of both has; and how many these are.
fn beyond_chance(
    tested: impl Iterator<Item = (Name, Vec<Moments>)>,
    before: usize,
    after: usize,
) -> (Vec<Significant>, usize) {
    let mut rows: Vec<Significant> = tested
        .filter(|(_, all)| all[before].sum > 0.0 || all[after].sum > 0.0)
        .map(|(key, all)| (welch(&all[before], &all[after]), key, all))
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let stacks = rows.len();
    let p_values: Vec<f64> = rows.iter().map(|row| row.0).collect();
    rows.truncate(discoveries(&p_values, RATE));
    (rows, stacks)
}

/// One sum for each recording, since several stacks of one build may have the same name.
fn summed(by_recording: &mut Vec<(u32, f64)>) -> &[(u32, f64)] {
    by_recording.sort_by_key(|&(recording, _)| recording);
    by_recording.dedup_by(|next, sum| {
        let same = next.0 == sum.0;
        if same {
            sum.1 += next.1;
        }
        same
    });
    by_recording
}

/// The probability of such a difference by chance.
fn probability(p: f64) -> String {
    // The test takes each version's values for a normal distribution, of which some recordings say nothing so far out.
    if p < 1e-6 { "p < 1e-6".to_owned() } else { format!("p {p:.1e}") }
}

fn text(answer: &FleetRegress) -> String {
    let (before, after) = (&answer.before, &answer.after);
    let mut out = format!(
        "{}: {} in {} recordings → {}: {} in {} recordings (means, {})\n",
        crate::clean(&before.version),
        bytes(before.mean_bytes),
        before.recordings,
        crate::clean(&after.version),
        bytes(after.mean_bytes),
        after.recordings,
        probability(answer.total_p)
    );
    for row in &answer.rows {
        let since = row.since.as_ref().map_or_else(String::new, |since| format!("  since {}", crate::clean(since)));
        let sign = if row.change_bytes > 0.0 { "+" } else { "" };
        out.push_str(&format!(
            "{sign}{:>10}  {}  {}{since}\n",
            bytes(row.change_bytes),
            probability(row.p),
            row.stack.line()
        ));
    }
    if answer.rows.is_empty() {
        out.push_str("no stack differs by more than chance\n");
    }
    out.push_str(&format!("{} more stacks differ by no more than chance\n", answer.noise));
    out
}

/// In the order of their first appearance.
fn unique<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    all.for_each(|one| {
        if !seen.contains(&one) {
            seen.push(one);
        }
    });
    seen
}

fn sides(versions: &[String], before: Option<String>, after: Option<String>) -> Result<(usize, usize)> {
    let find = |version: &str| match versions.iter().position(|known| known == version) {
        Some(at) => Ok(at),
        None => bail!("there is no recording of version {version:?}; there are: {}", versions.join(", ")),
    };
    let after = match &after {
        Some(version) => find(version)?,
        None => versions.len() - 1,
    };
    let before = match &before {
        Some(version) => find(version)?,
        None => match after.checked_sub(1) {
            Some(at) => at,
            None => bail!("there is no version before {:?}: --before names one", versions[after]),
        },
    };
    if before == after {
        bail!("both sides are version {:?}", versions[after]);
    }
    Ok((before, after))
}

/// The first version whose interval lies above that of the one before.
fn since(all: &[Moments]) -> Option<usize> {
    let interval = |moments: &Moments| {
        let reach = student_95((moments.count - 1.0).max(1.0)) * moments.spread().sqrt();
        (moments.mean() - reach, moments.mean() + reach)
    };
    (1..all.len())
        .find(|&at| all[at].count >= 2.0 && all[at - 1].count >= 2.0 && interval(&all[at]).0 > interval(&all[at - 1]).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_began_it_is_found() {
        let version = |mean: f64| Moments::of([mean - 2.0, mean, mean + 2.0, mean + 1.0, mean - 1.0]);
        let all = [version(100.0), version(100.5), version(200.0), version(201.0)];
        assert_eq!(since(&all), Some(2));
        assert_eq!(since(&all[..2]), None);
    }

    /// Bytes that stacks have in a recording: of any size, most of them the more the longer tail, some not there at all.
    struct Draws(u64);

    impl Draws {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }

        fn bytes(&mut self, stack: usize) -> f64 {
            let size = 64.0 * (1 << (stack % 12)) as f64;
            // Twelve uniform numbers are nearly normal.
            let normal: f64 = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
            match stack % 4 {
                0 => size * (10.0 + normal).max(0.0).round(),
                1 => size * normal.exp().round(),
                2 => size * if self.uniform() < 0.6 { 0.0 } else { (5.0 + normal).round() },
                // The same in every run, but for one object more or less.
                _ => size * (100.0 + (normal * 0.4).round()),
            }
        }

        /// Two versions with so many recordings each; `planted` has half as much again in the second one.
        fn versions(&mut self, recordings: usize, planted: Option<usize>) -> Vec<(Name, Vec<Moments>)> {
            let stack = |number: usize| {
                let mut name = Name::default();
                name[..8].copy_from_slice(&number.to_le_bytes());
                let factor = |version: usize| if planted == Some(number) && version == 1 { 1.5 } else { 1.0 };
                let of = |version| {
                    Moments::of((0..recordings).map(|_| self.bytes(number) * factor(version)).collect::<Vec<_>>())
                };
                (name, [0, 1].map(of).to_vec())
            };
            (0..1000).map(stack).collect()
        }
    }

    #[test]
    fn chance_is_no_regression_and_one_stack_in_a_thousand_is_found() {
        const DRAWS: usize = 200;
        for recordings in [8, 20] {
            let mut draws = Draws(88_172_645_463_325_252);
            let (mut false_alarms, mut found, mut false_share) = (0, 0, 0.0);
            for draw in 0..DRAWS {
                let null = draws.versions(recordings, None);
                false_alarms += usize::from(!beyond_chance(null.into_iter(), 0, 1).0.is_empty());
                // Each size and each kind but those that vary more than they grow.
                let planted = draw * 4 % 1000 + if draw % 2 == 0 { 0 } else { 3 };
                let (rows, stacks) = beyond_chance(draws.versions(recordings, Some(planted)).into_iter(), 0, 1);
                assert!(stacks <= 1000);
                let is_planted = |name: &Name| name[..8] == planted.to_le_bytes();
                let true_rows = rows.iter().filter(|row| is_planted(&row.1)).count();
                found += true_rows;
                false_share += (rows.len() - true_rows) as f64 / rows.len().max(1) as f64 / DRAWS as f64;
            }
            let said = format!(
                "{recordings} recordings: false alarms in {false_alarms} of {DRAWS} draws, planted found in {found}, {:.1} % of the rows are false discoveries",
                false_share * 100.0
            );
            println!("{said}");
            // With eight recordings of a version, what varies most is not always beyond chance.
            let least = if recordings < 20 { DRAWS * 17 / 20 } else { DRAWS };
            assert!(false_alarms * 20 <= DRAWS && found >= least && false_share <= 0.05, "{said}");
        }
    }
}
