//! `heaptrace fleet outliers`: hosts whose recordings are unlike the others', by the robust z of their median (distance
//! from the median of all hosts in units of 1.4826 times the median distance).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde::Serialize;

use super::{Where, bytes};
use crate::tables::read::RecordingRow;

/// Options of `fleet outliers`.
#[derive(Debug, clap::Args)]
pub struct OutliersArgs {
    #[command(flatten)]
    place: Where,
    /// Only recordings of this version
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// What is looked at
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// A host is unlike the others from this z on
    #[arg(long, value_name = "Z", default_value_t = 3.5)]
    z: f64,
}

/// A figure of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum By {
    /// Most live bytes
    #[default]
    Peak,
    /// Bytes that were never freed
    Leaked,
    /// Bytes allocated a second
    Rate,
    /// Largest resident memory
    Rss,
}

impl By {
    fn of(self, row: &RecordingRow) -> f64 {
        match self {
            Self::Peak => row.peak_bytes as f64,
            Self::Leaked => row.leaked_bytes as f64,
            Self::Rate => row.allocated_bytes as f64 / (row.duration_ns as f64 / 1e9).max(1e-9),
            Self::Rss => row.peak_rss_bytes as f64,
        }
    }
}

/// `heaptrace.fleet-outliers/1`.
#[derive(Debug, Serialize)]
struct FleetOutliers {
    schema: &'static str,
    by: By,
    /// Hosts with recordings.
    hosts: usize,
    /// Versions of services that ran on several hosts, which are compared.
    compared: usize,
    /// Of all recordings.
    median: f64,
    rows: Vec<OutlierRow>,
}

#[derive(Debug, Serialize)]
struct OutlierRow {
    host: String,
    service: String,
    version: String,
    recordings: usize,
    median: f64,
    z: f64,
}

/// Runs the query.
pub async fn run(args: OutliersArgs) -> Result<()> {
    let store = args.place.store()?;
    let set = args.place.open(&store, args.version.as_deref()).await?;
    // Hosts are compared that run the same.
    let mut groups: BTreeMap<(&str, &str), BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    for row in &set.recordings {
        let hosts = groups.entry((&row.service, &row.version)).or_default();
        hosts.entry(&row.host).or_default().push(args.by.of(row));
    }
    let hosts = set.recordings.iter().map(|row| &row.host).collect::<BTreeSet<_>>().len();
    let compared = groups.values().filter(|hosts| hosts.len() > 1).count();
    let mut all: Vec<f64> = set.recordings.iter().map(|row| args.by.of(row)).collect();
    let mut rows = Vec::new();
    for ((service, version), hosts) in groups {
        let medians: Vec<(&str, usize, f64)> =
            hosts.into_iter().map(|(host, mut values)| (host, values.len(), median(&mut values))).collect();
        for ((host, recordings, median), z) in medians.iter().zip(robust_z(medians.iter().map(|host| host.2))) {
            if z.abs() >= args.z {
                let (service, version) = (service.to_owned(), version.to_owned());
                rows.push(OutlierRow {
                    host: (*host).to_owned(),
                    service,
                    version,
                    recordings: *recordings,
                    median: *median,
                    z,
                });
            }
        }
    }
    rows.sort_by(|a, b| b.z.abs().total_cmp(&a.z.abs()));
    let answer = FleetOutliers {
        schema: "heaptrace.fleet-outliers/1",
        by: args.by,
        hosts,
        compared,
        median: median(&mut all),
        rows,
    };
    args.place.print(&answer, |answer| {
        let hosts = if answer.hosts == 1 { "1 host".into() } else { format!("{} hosts", answer.hosts) };
        let mut out = format!("{hosts}, median of all recordings {}\n", bytes(answer.median));
        if answer.compared == 0 {
            out.push_str("nothing to compare: no version of a service ran on more than one host\n");
        } else if answer.rows.is_empty() {
            out.push_str("no host differs from the others that ran the same\n");
        }
        for row in &answer.rows {
            out.push_str(&format!(
                "{}  {} {}: {} in {} recordings, z {:+.1}\n",
                crate::clean(&row.host),
                crate::clean(&row.service),
                crate::clean(&row.version),
                bytes(row.median),
                row.recordings,
                row.z
            ));
        }
        out
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// The distance of each from the median of all; where most are equal, a hundredth of the median is the unit at least.
fn robust_z(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let middle = median(&mut values.clone());
    let spread = median(&mut values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>());
    let unit = (1.4826 * spread).max(middle.abs() / 100.0).max(1.0);
    values.iter().map(|value| (value - middle) / unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_does_not_hide_itself() {
        let z = robust_z([100.0, 101.0, 99.0, 100.0, 102.0, 1000.0].into_iter());
        assert!(z[5] > 100.0 && z[..5].iter().all(|z| z.abs() < 3.5), "{z:?}");
        assert!(robust_z([5.0, 5.0, 5.0].into_iter()).iter().all(|z| *z == 0.0));
    }
}
