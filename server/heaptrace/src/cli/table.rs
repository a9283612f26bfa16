//! A table whose figures are aligned and whose last column takes what is left of the line.
//!
//! On a terminal the last column is cut to the width, marked by an ellipsis; in a pipe nothing is cut.

use std::borrow::Cow;
use std::io::{self, Write};

use super::terminal::{Style, TextRole, clean, truncate, width};

/// Alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// One cell: its text and looks.
#[derive(Debug, Clone)]
pub struct TextCell {
    text: String,
    role: TextRole,
}

impl TextCell {
    /// A cell; control characters in `text` are made visible.
    pub fn new(role: TextRole, text: impl AsRef<str>) -> Self {
        Self { text: clean(text.as_ref()).into_owned(), role }
    }
}

impl From<String> for TextCell {
    fn from(text: String) -> Self {
        Self::new(TextRole::Plain, text)
    }
}

/// A table being filled.
pub struct TextTable {
    columns: Vec<(Cow<'static, str>, Align)>,
    rows: Vec<Vec<TextCell>>,
}

impl TextTable {
    /// A table without rows.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.iter().map(|&(name, align)| (name.into(), align)).collect(), rows: Vec::new() }
    }

    /// The same, of columns whose names are known only when it is made.
    pub fn of(columns: Vec<(String, Align)>) -> Self {
        Self { columns: columns.into_iter().map(|(name, align)| (name.into(), align)).collect(), rows: Vec::new() }
    }

    /// Adds a row; it has one cell for each column.
    pub fn row(&mut self, cells: Vec<TextCell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Writes heading and rows.
    pub fn print(&self, style: Style, out: &mut dyn Write) -> io::Result<()> {
        const GAP: usize = 2;
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| {
                let cells = self.rows.iter().filter_map(|row| row.get(i)).map(|cell| width(&cell.text));
                cells.chain([width(&self.columns[i].0)]).max().unwrap_or(0)
            })
            .collect();
        let before_last: usize = widths.iter().rev().skip(1).map(|width| width + GAP).sum();
        // Below 20 columns a name says nothing: then the line may rather wrap.
        let room = style.width.map(|columns| columns.saturating_sub(before_last).max(20));

        let heading = self.columns.iter().map(|(name, _)| TextCell::new(TextRole::Strong, name)).collect();
        for row in [&heading].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (i, (cell, (_, align))) in row.iter().zip(&self.columns).enumerate() {
                let last = i + 1 == row.len();
                let text = match room {
                    Some(room) if last => truncate(&cell.text, room),
                    _ => cell.text.as_str().into(),
                };
                let pad = " ".repeat(widths[i].saturating_sub(width(&text)));
                let painted = style.paint(cell.role, &text).to_string();
                match align {
                    Align::Right => line.extend([pad.as_str(), &painted]),
                    Align::Left if last => line.push_str(&painted),
                    Align::Left => line.extend([painted.as_str(), &pad]),
                }
                if !last {
                    line.push_str(&" ".repeat(GAP));
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
