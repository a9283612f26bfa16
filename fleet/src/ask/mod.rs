//! `heaptrace fleet`: questions over all recordings of a store. Sums come from the tables; what is significant is decided
//! here.
//!
//! ```text
//! top        stacks by bytes over all recordings
//! regress    what a version has more of than the one before, and since which version
//! leaks      stacks whose verdict is growing, by service and version
//! outliers   hosts whose recordings are unlike the others'
//! budget     recordings over limits
//! serve      a page: service, version, host, recording (`page.rs` its text, `page_server.rs` the rest)
//! sql        the sums as SQL, for DuckDB and Spark
//! pack, compact   the tables themselves
//! ```

mod budget;
mod interval;
mod leaks;
mod outliers;
mod page;
mod page_server;
mod regress;
mod sql;
mod top;

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;
use tracehound_format::options::parse_size;

use crate::store::Store;
use crate::tables::pack::{Options, pack};
use crate::tables::read::{DataSet, Scope};
use crate::tables::{RECORDINGS, ROOT, compact, value_of};

/// Query all recordings of a store: leaks, changes between versions, hosts that differ from the others.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace fleet top s3://bucket/heap --service api
  heaptrace fleet regress file:///srv/heap --service api --before 1.4 --after 1.5
  heaptrace fleet leaks file:///srv/heap --json
  heaptrace fleet outliers file:///srv/heap --service api
  heaptrace fleet serve s3://bucket/heap
  heaptrace fleet budget file:///srv/heap --max-peak 512M --share 95

The tables below data/v1 are plain Parquet in folders: DuckDB, Spark and others read them, too; see docs/guide/fleet.md.")]
pub struct QuestionArgs {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Debug, clap::Subcommand)]
enum FleetCommand {
    /// Show the stacks with most bytes over all recordings
    Top(top::FleetTopArgs),
    /// Show the stacks that have significantly more in a version than in the one before, and the first such version
    Regress(regress::RegressArgs),
    /// Show the stacks that grow, by service and version
    Leaks(leaks::FleetLeaksArgs),
    /// Show hosts whose recordings differ from those of the others
    Outliers(outliers::OutliersArgs),
    /// Check recordings against limits; exit code 1 if too many exceed them
    Budget(budget::BudgetArgs),
    /// Show services, versions, hosts and recordings in a browser, and each recording as `heaptrace server` shows it
    Serve(page_server::FleetPageArgs),
    /// Print a question in SQL, for DuckDB or Spark over the same tables
    Sql(sql::FleetSqlArgs),
    /// Write the tables of recordings that have none
    Pack(PackArgs),
    /// Merge the small files of each past day into one file per table
    Compact(CompactArgs),
}

/// The store, and the selection of its recordings.
#[derive(Debug, Clone, clap::Args)]
struct Where {
    /// The store: file:///FOLDER or a bucket (s3://, gs://, az://)
    #[arg(value_name = "STORE")]
    store: String,
    /// Only recordings of this service
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Only recordings of this day and later
    #[arg(long, value_name = "YYYY-MM-DD")]
    since: Option<String>,
    /// Only recordings of this day and earlier
    #[arg(long, value_name = "YYYY-MM-DD")]
    until: Option<String>,
    /// Print one JSON document, with a stable schema
    #[arg(long)]
    json: bool,
}

impl Where {
    fn store(&self) -> Result<Store> {
        Store::open_existing(&self.store)
    }

    async fn open<'a>(&self, store: &'a Store, version: Option<&str>) -> Result<DataSet<'a>> {
        let scope = Scope {
            service: self.service.clone(),
            version: version.map(str::to_owned),
            since: self.since.clone(),
            until: self.until.clone(),
        };
        let set = DataSet::open(store, scope).await?;
        // An answer from a part of the recordings says so.
        let waiting = set.without_tables().await?;
        if set.recordings.is_empty() {
            bail!(self.nothing(store, waiting).await?);
        }
        if waiting > 0 {
            crate::tell!(
                "heaptrace: {waiting} whole recordings have no tables yet and are not in this answer: a collector writes them, \
                 and so does `heaptrace fleet pack`"
            );
        }
        Ok(set)
    }

    /// Why no recording is asked: `waiting` ones have no tables yet.
    async fn nothing(&self, store: &Store, waiting: usize) -> Result<String> {
        if waiting > 0 {
            let of = &self.store;
            return Ok(format!(
                "no matching recording in {of} has tables, {waiting} have none yet; `heaptrace fleet pack` writes tables"
            ));
        }
        let all = DataSet::open(store, Scope::default()).await?;
        let services: BTreeSet<&str> = all.recordings.iter().map(|row| row.service.as_str()).collect();
        let services: Vec<String> = services.into_iter().map(crate::clean).collect();
        Ok(match services.as_slice() {
            [] => format!("there is no recording in {}", self.store),
            some => format!("no recording in {} matches; its services are {}", self.store, some.join(", ")),
        })
    }

    /// Prints an answer, as JSON or for people.
    fn print<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
        let mut out = if self.json { serde_json::to_string_pretty(answer)? } else { text(answer) };
        if !out.ends_with('\n') {
            out.push('\n');
        }
        crate::print(&out)
    }
}

/// Which column of `sites` is summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum FleetMetric {
    /// Never freed
    #[default]
    Leaked,
    /// Live when most was live in the process
    Peak,
    /// Allocated at any time
    Allocated,
    /// Freed at once
    Temporary,
    /// Allocated and not freed again, in an interval
    Grown,
}

impl FleetMetric {
    /// The column of `sites`; `None` of what is a sum of minutes.
    const fn column(self) -> Option<&'static str> {
        match self {
            Self::Leaked => Some("leaked_bytes"),
            Self::Peak => Some("peak_bytes"),
            Self::Allocated => Some("allocated_bytes"),
            Self::Temporary => Some("temporary_bytes"),
            Self::Grown => None,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Leaked => "leaked",
            Self::Peak => "peak",
            Self::Allocated => "allocated",
            Self::Temporary => "temporary",
            Self::Grown => "grown",
        }
    }
}

#[derive(Debug, clap::Args)]
struct PackArgs {
    /// The store
    #[arg(value_name = "STORE")]
    store: String,
    /// Write the table of all allocations, too
    #[arg(long)]
    allocations: bool,
}

#[derive(Debug, clap::Args)]
struct CompactArgs {
    /// The store
    #[arg(value_name = "STORE")]
    store: String,
    /// Days before this one [default: today]
    #[arg(long, value_name = "YYYY-MM-DD")]
    before: Option<String>,
}

/// Runs the command.
pub async fn run(args: QuestionArgs) -> Result<ExitCode> {
    match args.command {
        FleetCommand::Top(args) => top::run(args).await,
        FleetCommand::Regress(args) => regress::run(args).await,
        FleetCommand::Leaks(args) => leaks::run(args).await,
        FleetCommand::Outliers(args) => outliers::run(args).await,
        FleetCommand::Budget(args) => return budget::run(args).await,
        FleetCommand::Serve(args) => page_server::run(args).await,
        FleetCommand::Sql(args) => sql::run(args).await,
        FleetCommand::Pack(args) => pack_all(args).await,
        FleetCommand::Compact(args) => compact_all(args).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn pack_all(args: PackArgs) -> Result<()> {
    let store = Store::open_existing(&args.store)?;
    let mut packed: std::collections::BTreeSet<String> =
        compact::states(&store).await?.into_values().flat_map(|s| s.recordings).collect();
    for (name, _) in store.list(&format!("{ROOT}/{RECORDINGS}")).await? {
        packed.extend(value_of(&name, "recording").map(str::to_owned));
    }
    let all = store.collected().await?;
    let (mut done, mut failed) = (0, 0);
    for about in all.iter().filter(|about| !packed.contains(&about.recording)) {
        let options = Options { tables: true, allocations: args.allocations };
        match pack(&store, about, options).await {
            Ok(_) => done += 1,
            Err(error) => {
                failed += 1;
                crate::tell!("heaptrace: {}: {}", about.recording, crate::clean(&format!("{error:#}")));
            }
        }
    }
    crate::tell!("heaptrace: {done} recordings packed, {} had tables", all.len() - done - failed);
    if failed > 0 {
        bail!("{failed} recordings have no tables");
    }
    Ok(())
}

async fn compact_all(args: CompactArgs) -> Result<()> {
    let store = Store::open_existing(&args.store)?;
    let before = args.before.unwrap_or_else(today);
    let done = compact::compact(&store, &before, &mut |_| Ok(())).await?;
    crate::tell!("heaptrace: {} days compacted, {} small files are gone", done.days, done.files);
    Ok(())
}

/// The day, in UTC.
fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    day_of(now.as_secs() / 86_400)
}

/// A day by its number since 1970 (Hinnant's algorithm).
pub(crate) fn day_of(days: u64) -> String {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let in_era = shifted % 146_097;
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + u64::from(month <= 2))
}

fn bytes(value: f64) -> String {
    tracehound_api::units::signed_bytes(value.round() as i64)
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "a size such as 64M".to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, name) in [(0, "1970-01-01"), (19_782, "2024-02-29"), (20_779, "2026-11-22"), (11_016, "2000-02-29")]
        {
            assert_eq!(super::day_of(days), name);
        }
    }
}
