//! `heaptrace fleet sql`: the sums of the questions as SQL over the same tables, for engines that people have. The text of
//! each question is one file (`fleet/queries`), the same for all engines but for how a list's first element is called.

use anyhow::{Result, bail};

use super::FleetMetric;
use crate::store::Store;
use crate::tables::read::{DataSet, Scope};
use crate::tables::{ROOT, value_of};

/// Options of `fleet sql`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace fleet sql file:///srv/heap top | duckdb
  heaptrace fleet sql s3://bucket/heap minutes --engine spark >minutes.sql; spark-sql -f minutes.sql")]
pub struct FleetSqlArgs {
    /// The store: file:///FOLDER or a bucket (s3://, gs://, az://)
    #[arg(value_name = "STORE")]
    store: String,
    /// What is asked
    #[arg(value_enum)]
    question: FleetQuestion,
    /// Who is asked
    #[arg(long, value_enum, default_value_t)]
    engine: SqlEngine,
    /// What is summed
    #[arg(long, value_enum, default_value_t)]
    metric: FleetMetric,
    /// Number of rows to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    rows: u32,
    /// Print the question alone, for tables that are there by their names
    #[arg(long)]
    without_tables: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FleetQuestion {
    /// The stacks with most bytes
    Top,
    /// The stacks that grow
    Leaks,
    /// Sums and squares of each stack and version
    Regress,
    /// The medians of each host
    Outliers,
    /// The most and the mean of each version
    Budget,
    /// What was allocated and freed in each minute
    Minutes,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum SqlEngine {
    /// DuckDB
    #[default]
    Duckdb,
    /// Spark SQL
    Spark,
}

impl FleetQuestion {
    const fn text(self) -> &'static str {
        match self {
            Self::Top => include_str!("../../queries/top.sql"),
            Self::Leaks => include_str!("../../queries/leaks.sql"),
            Self::Regress => include_str!("../../queries/regress.sql"),
            Self::Outliers => include_str!("../../queries/outliers.sql"),
            Self::Budget => include_str!("../../queries/budget.sql"),
            Self::Minutes => include_str!("../../queries/minutes.sql"),
        }
    }

    /// The tables that it names.
    const fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Top => &["sites", "stacks", "frames"],
            Self::Leaks => &["verdicts", "stacks", "frames"],
            Self::Regress => &["sites", "stacks", "recordings"],
            Self::Outliers | Self::Budget => &["recordings"],
            Self::Minutes => &["site_minutes"],
        }
    }
}

/// Prints it.
pub async fn run(args: FleetSqlArgs) -> Result<()> {
    let store = Store::open_existing(&args.store)?;
    let mut out = String::new();
    if !args.without_tables {
        let set = DataSet::open(&store, Scope::default()).await?;
        let root = root_of(&args.store, &store, args.engine)?;
        if args.engine == SqlEngine::Spark {
            out.push_str("set spark.sql.sources.partitionColumnTypeInference.enabled=false;\n");
        }
        for table in args.question.tables() {
            out.push_str(&view(&set, &store, &root, table, args.engine).await?);
        }
    }
    let Some(column) = args.metric.column() else { bail!("sums of whole recordings have no grown: ask for minutes") };
    let first = match args.engine {
        SqlEngine::Duckdb => "frames[1]",
        SqlEngine::Spark => "frames[0]",
    };
    let text = args.question.text().trim_end().replace("METRIC_bytes", column).replace("FIRST_FRAME", first);
    out.push_str(&text.replace("ROWS", &args.rows.to_string()));
    crate::print(&format!("{out};\n"))
}

/// The store as the engine names it.
fn root_of(url: &str, store: &Store, engine: SqlEngine) -> Result<String> {
    let root = match &store.folder {
        Some(folder) => folder.display().to_string(),
        None if engine == SqlEngine::Spark => url.trim_end_matches('/').replacen("s3://", "s3a://", 1),
        None => url.trim_end_matches('/').to_owned(),
    };
    if root.contains(['\'', '*', '?', '[', '{', '\\']) {
        bail!("{root:?} has letters that stand for others in patterns of files");
    }
    Ok(root)
}

/// A table as a view: recordings as they came, and compacted days, with the same columns.
async fn view(set: &DataSet<'_>, store: &Store, root: &str, table: &str, engine: SqlEngine) -> Result<String> {
    let counting = set.files(table).await?;
    let all = store.list(&format!("{ROOT}/{table}")).await?;
    let all = all.iter().filter(|(name, _)| name.ends_with(".parquet")).count();
    if counting.len() != all {
        bail!(
            "{} files of {table} do not count any more: `heaptrace fleet compact` was stopped; run it again",
            all - counting.len()
        );
    }
    if counting.is_empty() {
        bail!("there is no table {table} in the store: `heaptrace fleet pack` writes tables");
    }
    let day = format!("{root}/{ROOT}/{table}/service=*/version=*/day=*");
    let fresh = counting.iter().any(|name| value_of(name, "recording").is_some());
    let compacted = counting.iter().any(|name| value_of(name, "recording").is_none());
    // Stacks and frames of a compacted day are of no recording.
    let shared = matches!(table, "stacks" | "frames");
    let mut columns = set.columns(table).await?;
    columns.retain(|name| name != "recording");
    if !shared {
        columns.push("recording".into());
    }
    columns.extend(["service", "version", "day"].map(str::to_owned));
    // Some names are words of SQL: offset.
    let quote = match engine {
        SqlEngine::Duckdb => '"',
        SqlEngine::Spark => '`',
    };
    let columns = columns.iter().map(|name| format!("{quote}{name}{quote}")).collect::<Vec<_>>().join(", ");
    let mut out = String::new();
    let mut parts = Vec::new();
    for (is_there, suffix, pattern) in [
        (fresh, "fresh", format!("{day}/recording=*/{table}.parquet")),
        (compacted, "days", format!("{day}/compact-*.parquet")),
    ] {
        if !is_there {
            continue;
        }
        parts.push(match engine {
            SqlEngine::Duckdb => format!(
                "select {columns} from read_parquet('{pattern}', hive_partitioning = true, hive_types_autocast = false, union_by_name = true)"
            ),
            SqlEngine::Spark => {
                out.push_str(&format!(
                    "create or replace temporary view {table}_{suffix} using parquet options (path '{pattern}', basePath '{root}/{ROOT}/{table}');\n"
                ));
                format!("select {columns} from {table}_{suffix}")
            }
        });
    }
    let kind = if engine == SqlEngine::Spark { "temporary view" } else { "temp view" };
    out.push_str(&format!("create or replace {kind} {table} as {};\n", parts.join(" union all ")));
    Ok(out)
}
