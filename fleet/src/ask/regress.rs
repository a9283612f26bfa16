//! `heaptrace fleet regress`: what a version has more of than the one before, beyond chance, and since which version.
//!
//! Stacks of two builds are the same if their functions and modules are. Each is tested (Welch's test, a false discovery
//! rate of 5 % over all); a recording without a stack counts as a zero of it. For what is significant, the versions are
//! gone through in the order in which they began: the first whose 95 % interval lies above that of the version before.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde::Serialize;
use tracehound_query::statistics::{Moments, discoveries, student_95, welch};

use super::{FleetMetric, Where, bytes};
use crate::tables::read::{RecordingRow, StackText};

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
    /// Show so many rows
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

/// Answers.
pub async fn run(args: RegressArgs) -> Result<()> {
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
    let version_of: BTreeMap<&str, usize> =
        set.recordings.iter().map(|row: &RecordingRow| (row.id.as_str(), place[row.version.as_str()])).collect();
    let mut counts = vec![0.0; versions.len()];
    version_of.values().for_each(|&at| counts[at] += 1.0);
    if counts[before] < 2.0 || counts[after] < 2.0 {
        bail!("a test of significance needs two recordings of each version, better five");
    }

    let names = set.names(None).await?;
    // By recording, since several stacks of one build may have the same name.
    let mut values: BTreeMap<u64, BTreeMap<String, f64>> = BTreeMap::new();
    let mut texts: BTreeMap<u64, StackText> = BTreeMap::new();
    set.stacks("sites", &[args.metric.column()], &mut |recording, stack, of| {
        if of[0] != 0.0 {
            let text = names.get(&stack);
            *values.entry(text.key).or_default().entry(recording.to_owned()).or_default() += of[0];
            texts.entry(text.key).or_insert(text);
        }
    })
    .await?;

    let moments = |by_recording: &BTreeMap<String, f64>| -> Vec<Moments> {
        let mut all: Vec<Moments> = counts.iter().map(|&count| Moments { count, ..Moments::default() }).collect();
        for (recording, &value) in by_recording {
            if let Some(&at) = version_of.get(recording.as_str()) {
                all[at].add(value);
            }
        }
        all
    };
    let mut totals: BTreeMap<String, f64> = BTreeMap::new();
    for by_recording in values.values() {
        for (recording, value) in by_recording {
            *totals.entry(recording.clone()).or_default() += value;
        }
    }
    let total = moments(&totals);
    let mut rows: Vec<(f64, u64, Vec<Moments>)> = values
        .iter()
        .map(|(&key, by_recording)| (key, moments(by_recording)))
        .filter(|(_, all)| all[before].sum > 0.0 || all[after].sum > 0.0)
        .map(|(key, all)| (welch(&all[before], &all[after]), key, all))
        .collect();
    rows.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let stacks = rows.len();
    let p_values: Vec<f64> = rows.iter().map(|row| row.0).collect();
    rows.truncate(discoveries(&p_values, RATE));
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

fn text(answer: &FleetRegress) -> String {
    let (before, after) = (&answer.before, &answer.after);
    let mut out = format!(
        "{}: {} in {} recordings → {}: {} in {} recordings (means, p {:.1e})\n",
        crate::clean(&before.version),
        bytes(before.mean_bytes),
        before.recordings,
        crate::clean(&after.version),
        bytes(after.mean_bytes),
        after.recordings,
        answer.total_p
    );
    for row in &answer.rows {
        let since = row.since.as_ref().map_or_else(String::new, |since| format!("  since {}", crate::clean(since)));
        let sign = if row.change_bytes > 0.0 { "+" } else { "" };
        out.push_str(&format!("{sign}{:>10}  p {:.1e}  {}{since}\n", bytes(row.change_bytes), row.p, row.stack.line()));
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

    #[test]
    fn chance_is_no_regression() {
        // 200 draws without a difference: at most one in twenty may be taken for one.
        let mut state = 88_172_645_463_325_252_u64;
        let mut draw = || {
            // Twelve uniform numbers are nearly normal.
            (0..12)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 11) as f64 / (1_u64 << 53) as f64
                })
                .sum::<f64>()
        };
        let mut found = 0;
        for _ in 0..200 {
            let mut p: Vec<f64> = (0..50)
                .map(|_| {
                    welch(&Moments::of((0..8).map(|_| 100.0 + draw())), &Moments::of((0..8).map(|_| 100.0 + draw())))
                })
                .collect();
            p.sort_by(f64::total_cmp);
            found += usize::from(discoveries(&p, RATE) > 0);
        }
        assert!(found <= 20, "{found} of 200");
    }
}
