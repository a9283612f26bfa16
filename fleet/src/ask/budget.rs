//! `heaptrace fleet budget`: which share of the recordings keeps limits.

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;

use super::{Where, bytes, size};
use tracehound_api::units::fraction;

/// Options of `fleet budget`.
#[derive(Debug, clap::Args)]
pub struct BudgetArgs {
    #[command(flatten)]
    place: Where,
    /// Only recordings of this version
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Most live bytes
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_peak: Option<u64>,
    /// Bytes that are never freed
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_leaked: Option<u64>,
    /// Largest resident memory
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_rss: Option<u64>,
    /// So many percent of the recordings must keep all limits
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0)]
    share: f64,
}

/// `heaptrace.fleet-budget/1`.
#[derive(Debug, Serialize)]
struct FleetBudget {
    schema: &'static str,
    ok: bool,
    recordings: usize,
    within: usize,
    share_percent: f64,
    wanted_percent: f64,
    over: Vec<OverBudgetRow>,
}

#[derive(Debug, Serialize)]
struct OverBudgetRow {
    recording: String,
    service: String,
    version: String,
    day: String,
    host: String,
    peak_bytes: i64,
    leaked_bytes: i64,
    peak_rss_bytes: i64,
    complete: bool,
}

/// Runs the query; exit code 1 when too few keep the limits.
pub async fn run(args: BudgetArgs) -> Result<ExitCode> {
    if args.max_peak.is_none() && args.max_leaked.is_none() && args.max_rss.is_none() {
        bail!("there is no limit: --max-peak, --max-leaked or --max-rss");
    }
    let store = args.place.store()?;
    let set = args.place.open(&store, args.version.as_deref()).await?;
    let within =
        |limit: Option<u64>, value: i64| limit.is_none_or(|limit| value <= i64::try_from(limit).unwrap_or(i64::MAX));
    let mut over: Vec<OverBudgetRow> = set
        .recordings
        .iter()
        .filter(|row| {
            !(within(args.max_peak, row.peak_bytes)
                && within(args.max_leaked, row.leaked_bytes)
                && within(args.max_rss, row.peak_rss_bytes))
        })
        .map(|row| OverBudgetRow {
            recording: row.id.clone(),
            service: row.service.clone(),
            version: row.version.clone(),
            day: row.day.clone(),
            host: row.host.clone(),
            peak_bytes: row.peak_bytes,
            leaked_bytes: row.leaked_bytes,
            peak_rss_bytes: row.peak_rss_bytes,
            complete: row.complete,
        })
        .collect();
    over.sort_by_key(|row| std::cmp::Reverse((row.peak_bytes, row.leaked_bytes)));
    let all = set.recordings.len();
    let kept = all - over.len();
    let share = 100.0 * kept as f64 / all as f64;
    let answer = FleetBudget {
        schema: "heaptrace.fleet-budget/1",
        ok: share >= args.share,
        recordings: all,
        within: kept,
        share_percent: share,
        wanted_percent: args.share,
        over,
    };
    args.place.print(&answer, |answer| {
        let verdict = if answer.ok { "kept" } else { "NOT KEPT" };
        let mut out = format!(
            "{verdict}: {} of {} recordings are within the limits, {} ({} wanted)\n",
            answer.within,
            answer.recordings,
            fraction(answer.share_percent / 100.0),
            fraction(answer.wanted_percent / 100.0),
        );
        for row in answer.over.iter().take(20) {
            out.push_str(&format!(
                "{}  {} {} on {}: peak {}, leaked {}, resident {}\n",
                row.recording,
                crate::clean(&row.service),
                crate::clean(&row.version),
                crate::clean(&row.host),
                bytes(row.peak_bytes as f64),
                bytes(row.leaked_bytes as f64),
                bytes(row.peak_rss_bytes as f64)
            ));
        }
        if answer.over.len() > 20 {
            out.push_str(&format!("… and {} more (--json shows all)\n", answer.over.len() - 20));
        }
        out
    })?;
    Ok(if answer.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
