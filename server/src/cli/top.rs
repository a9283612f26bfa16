//! `heaptrace top`: who has the memory, in pprof's columns.

use std::io::{self, Write};

use tracehound_server::api::functions::{FunctionRow, Functions, GroupBy};
use tracehound_server::api::{Metric, Unit};

use super::table::{Align, Cell, Table};
use super::terminal::{Role, Style};
use super::units::{duration, percent, signed_bytes, signed_count};

/// Writes the table.
pub fn print(functions: &Functions, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let amount = |value: i64| match functions.unit {
        Unit::Bytes => signed_bytes(value),
        Unit::Count => signed_count(value),
    };
    let total = functions.total;
    let shown: i64 = functions.rows.iter().map(|row| row.flat).sum();
    writeln!(
        out,
        "{} {}: {} {}",
        style.paint(Role::Strong, metric_name(functions.metric)),
        unit_name(functions.unit),
        style.paint(Role::Strong, amount(total)),
        style.paint(Role::Faint, when(functions)),
    )?;
    writeln!(
        out,
        "{}",
        style.paint(
            Role::Faint,
            format!(
                "{} of {} {}, {} of the total",
                functions.rows.len(),
                functions.total_rows,
                group_name(functions.by, functions.total_rows),
                percent(shown, total)
            )
        )
    )?;

    let mut table = Table::new(&[
        ("flat", Align::Right),
        ("flat%", Align::Right),
        ("sum%", Align::Right),
        ("cum", Align::Right),
        ("cum%", Align::Right),
        (column_name(functions.by), Align::Left),
    ]);
    let mut sum = 0;
    for row in &functions.rows {
        sum += row.flat;
        let hot = |value: i64| if value.saturating_mul(10) >= total && value > 0 { Role::Hot } else { Role::Plain };
        table.row(vec![
            Cell::new(hot(row.flat), amount(row.flat)),
            percent(row.flat, total).into(),
            Cell::new(Role::Faint, percent(sum, total)),
            Cell::new(hot(row.cum), amount(row.cum)),
            percent(row.cum, total).into(),
            Cell::new(Role::Name, label(row, functions.by)),
        ]);
    }
    table.print(style, out)
}

fn label(row: &FunctionRow, by: GroupBy) -> String {
    let mut label = row.name.clone();
    if matches!(by, GroupBy::Function | GroupBy::Site) {
        if let Some(file) = &row.file {
            let name = file.rsplit('/').next().unwrap_or(file);
            label.push_str(&match row.line {
                Some(line) => format!("  {name}:{line}"),
                None => format!("  {name}"),
            });
        } else if let Some(module) = &row.module {
            label.push_str(&format!("  {module}"));
        }
    }
    if by == GroupBy::Site {
        label = format!("{}  {label}", row.id);
    }
    label
}

fn when(functions: &Functions) -> String {
    match functions.at_ns {
        Some(at) => format!("at {}", duration(at)),
        None => format!("from {} to {}", duration(functions.from_ns), duration(functions.to_ns)),
    }
}

/// The metric in a word or two.
pub const fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Live => "live",
        Metric::Peak => "live at the peak",
        Metric::Leaked => "leaked",
        Metric::Allocated => "allocated",
        Metric::Freed => "freed",
        Metric::Grown => "grown",
        Metric::Temporary => "temporary",
    }
}

/// The unit in a word.
pub const fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes",
        Unit::Count => "blocks",
    }
}

const fn column_name(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Function => "function",
        GroupBy::File => "file",
        GroupBy::Module => "module",
        GroupBy::Thread => "thread",
        GroupBy::Site => "site",
    }
}

const fn group_name(by: GroupBy, count: u64) -> &'static str {
    match (by, count) {
        (GroupBy::Function, 1) => "function",
        (GroupBy::Function, _) => "functions",
        (GroupBy::File, 1) => "file",
        (GroupBy::File, _) => "files",
        (GroupBy::Module, 1) => "module",
        (GroupBy::Module, _) => "modules",
        (GroupBy::Thread, 1) => "thread",
        (GroupBy::Thread, _) => "threads",
        (GroupBy::Site, 1) => "site",
        (GroupBy::Site, _) => "sites",
    }
}
