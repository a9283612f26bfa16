//! The reference of tables and columns in the guide.

use std::fmt::Write;

use super::schema::{SqlColumn, TABLES, VIEWS};

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
