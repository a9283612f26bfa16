//! The reference of tables and columns: in the guide, and as a document.

use std::fmt::Write;

use tracehound_api::sql::{SqlColumnInfo, SqlSchema, SqlTableInfo};

use super::examples::examples;
use super::schema::{SqlColumn, TABLES, VIEWS};

/// Tables, views, columns, parameters and examples, as a document.
#[must_use]
pub fn description() -> SqlSchema {
    let column = |column: &SqlColumn| SqlColumnInfo {
        name: column.name.into(),
        kind: column.kind.name().into(),
        about: column.about.into(),
    };
    let tables = TABLES.iter().map(|table| SqlTableInfo {
        name: table.name.into(),
        about: table.about.into(),
        parameters: table.parameters.iter().map(column).collect(),
        columns: table.columns.iter().map(column).collect(),
        query: None,
    });
    let views = VIEWS.iter().map(|view| SqlTableInfo {
        name: view.name.into(),
        about: format!("A view, {}.", view.about),
        parameters: Vec::new(),
        columns: Vec::new(),
        query: Some(view.query.into()),
    });
    SqlSchema { schema: "heaptrace.sql_schema/1".into(), tables: tables.chain(views).collect(), examples: examples() }
}

/// Tables, views, columns and parameters, as Markdown.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::new();
    for table in TABLES {
        let parameters: Vec<&str> = table.parameters.iter().map(|parameter| parameter.name).collect();
        let call = if parameters.is_empty() { String::new() } else { format!("({})", parameters.join(", ")) };
        // Writing to a string does not fail.
        let _ = writeln!(out, "### `{}{call}`\n\n{}\n", table.name, table.about);
        for parameter in table.parameters {
            let _ = writeln!(out, "- parameter `{}`: {}", parameter.name, parameter.about);
        }
        if !table.parameters.is_empty() {
            let _ = writeln!(out, "\nAll parameters may be left out, from the last one on.\n");
        }
        let _ = writeln!(out, "| column | type | |\n|---|---|---|");
        let row = |column: &SqlColumn| format!("| `{}` | {} | {} |", column.name, column.kind.name(), column.about);
        for column in table.columns {
            let _ = writeln!(out, "{}", row(column));
        }
        out.push('\n');
    }
    for view in VIEWS {
        let _ = writeln!(out, "### `{}`\n\nA view, {}:\n\n```sql\n{}\n```\n", view.name, view.about, view.query);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_has_the_examples() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/sql.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        for example in examples() {
            let text = format!("{}\n\n```sql\n{}\n```\n", example.title, example.query);
            assert!(guide.contains(&text), "docs/guide/sql.md is without:\n{text}");
        }
    }
}
