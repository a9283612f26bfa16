//! `heaptrace sql`: questions in SQL.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use tracehound_sql::{Database, JsonRows, RowSink, SqlError, SqlRecording, Value, hex};

use super::table::{Align, TextCell, TextTable};
use super::terminal::{ColorChoice, Style, TextRole};
use super::{Interrupted, Misuse, interrupt, open, terminal};

/// Query recordings in SQL; --schema and the guide describe the tables.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace sql memory-app-1.dat 'SELECT * FROM recordings'
  heaptrace sql memory-app-1.dat \"SELECT function, flat_bytes FROM functions('peak') ORDER BY 2 DESC LIMIT 10\"
  heaptrace sql --csv memory-*.dat \"SELECT recording, sum(size) FROM live('50%') GROUP BY 1\"
  heaptrace sql memory-app-1.dat - < question.sql
  heaptrace sql --schema")]
pub struct SqlArgs {
    /// Recordings, which are numbered from 1, then one SELECT; `-` instead of the SELECT reads it from standard input
    #[arg(required_unless_present = "schema", value_name = "FILE… STATEMENT", value_hint = clap::ValueHint::FilePath)]
    words: Vec<PathBuf>,
    /// Print one JSON document
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values (RFC 4180), the names of the columns first
    #[arg(long)]
    csv: bool,
    /// Print the tables and their columns
    #[arg(long, conflicts_with_all = ["json", "csv", "words"])]
    schema: bool,
}

/// Opens the recordings, asks, and prints the answer.
pub fn run(args: &SqlArgs, color: ColorChoice) -> Result<()> {
    let mut out = terminal::stdout();
    if args.schema {
        out.write_all(tracehound_sql::markdown().as_bytes())?;
        out.flush()?;
        return Ok(());
    }
    let Some((statement, files)) = args.words.split_last().filter(|(_, files)| !files.is_empty()) else {
        let only = args.words.first().map_or(String::new(), |word| word.display().to_string());
        let why = "recordings and a statement are needed: heaptrace sql FILE… \"SELECT …\"";
        return Err(Misuse(format!("{why}; there is only `{}`", terminal::clean(&only))).into());
    };
    let statement = statement_of(statement)?;
    let mut recordings = Vec::new();
    for file in files {
        let opened = open::open_telling_among(file, files)?;
        recordings.push(SqlRecording { trace: opened.trace, symbols: Arc::new(opened.symbols), path: opened.path });
    }
    let database = Database::new(recordings, interrupt::flag())?;
    let asked = if args.json {
        let mut sink = JsonRows::new(&mut out);
        let asked = database.query(&statement, &mut sink);
        sink.finish(asked.as_ref().err()).map_err(SqlError::Output).and(asked)
    } else if args.csv {
        database.query(&statement, &mut CsvRows { out: &mut out })
    } else {
        let mut sink = TableRows::default();
        database.query(&statement, &mut sink).and_then(|()| Ok(sink.print(Style::of_stdout(color), &mut out)?))
    };
    asked.map_err(|error| match error {
        SqlError::Cancelled => Interrupted.into(),
        SqlError::Output(error) => anyhow::Error::from(error),
        other => Misuse(other.to_string()).into(),
    })?;
    out.flush()?;
    Ok(())
}

fn statement_of(word: &std::path::Path) -> Result<String> {
    if word == std::path::Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("cannot read the statement from standard input")?;
        return Ok(text);
    }
    let text = word.to_str().map(str::to_owned);
    text.ok_or_else(|| Misuse("the statement is not UTF-8".into()).into())
}

/// RFC 4180; NULL is an empty field.
struct CsvRows<'a> {
    out: &'a mut dyn Write,
}

impl CsvRows<'_> {
    fn line(&mut self, fields: impl Iterator<Item = String>) -> io::Result<()> {
        let quoted = fields.map(|field| {
            if field.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
        });
        write!(self.out, "{}\r\n", quoted.collect::<Vec<_>>().join(","))
    }
}

impl RowSink for CsvRows<'_> {
    fn columns(&mut self, names: &[String]) -> io::Result<()> {
        self.line(names.iter().cloned())
    }

    fn row(&mut self, values: &[Value]) -> io::Result<ControlFlow<()>> {
        self.line(values.iter().map(|value| plain(value).unwrap_or_default()))?;
        Ok(ControlFlow::Continue(()))
    }
}

/// Collected, since widths are known at the end.
#[derive(Default)]
pub struct TableRows {
    names: Vec<String>,
    rows: Vec<Vec<Value>>,
    more: u64,
}

/// Rows of a table on a screen; JSON and CSV have no such limit.
const MOST_ROWS: usize = 100_000;

impl RowSink for TableRows {
    fn columns(&mut self, names: &[String]) -> io::Result<()> {
        self.names = names.to_vec();
        Ok(())
    }

    fn row(&mut self, values: &[Value]) -> io::Result<ControlFlow<()>> {
        if self.rows.len() < MOST_ROWS {
            self.rows.push(values.to_vec());
        } else {
            self.more += 1;
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl TableRows {
    /// Writes the table.
    pub fn print(self, style: Style, out: &mut dyn Write) -> io::Result<()> {
        let is_figure = |at: usize| {
            let mut known = self.rows.iter().filter_map(|row| row.get(at)).filter(|value| **value != Value::Null);
            known.all(|value| matches!(value, Value::Integer(_) | Value::Real(_)))
        };
        let align = |at| if is_figure(at) { Align::Right } else { Align::Left };
        let columns = self.names.iter().enumerate().map(|(at, name)| (terminal::clean(name).into_owned(), align(at)));
        let mut table = TextTable::of(columns.collect());
        for row in &self.rows {
            let cell = |value: &Value| match plain(value) {
                Some(text) => TextCell::from(text),
                None => TextCell::new(TextRole::Faint, "NULL"),
            };
            table.row(row.iter().map(cell).collect());
        }
        table.print(style, out)?;
        if self.more > 0 {
            let hint = "--json and --csv show all, LIMIT shows fewer";
            writeln!(out, "… and {} more rows ({hint})", super::units::count(self.more))?;
        }
        Ok(())
    }
}

/// A value as text; `None` for NULL.
fn plain(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        Value::Blob(bytes) => hex(bytes),
    })
}
