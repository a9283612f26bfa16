//! Limits: from the command line, from `heap.toml`, from a baseline.
//!
//! ```toml
//! peak = "64MiB"             # live bytes at most, at any moment
//! leaked = "4k"              # what lives at the end, suppressions aside
//! temporary = "30%"          # part of all allocations
//! largest = "16MiB"          # one block
//! allocations = 1_000_000    # blocks allocated
//! rss = "512MiB"             # resident memory without the recorder, at any moment that was sampled
//! pinned = "32MiB"           # at the end: free bytes in pages that live blocks hold
//!
//! [[leaks]]                  # by function, file or module on the backtrace, a regular expression
//! match = "^parse"
//! max = "1k"
//!
//! [[modules]]                # blocks that a frame of this module asked for
//! module = "libparser"
//! leaked = 0
//! peak = "8MiB"
//!
//! [[marks]]                  # blocks allocated from a mark to the next, each time
//! match = "^request"
//! allocations = 120
//! ```

use std::path::Path;

use anyhow::Result;
use regex::Regex;
use serde::Deserialize;
use tracehound_query::{Filter, parse_size};

use crate::cli::Misuse;
use crate::cli::config::mistake;

/// All limits.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Live bytes.
    pub peak: Option<ByteSize>,
    /// Bytes that live at the end.
    pub leaked: Option<ByteSize>,
    /// Bytes that live at the end, suppressed ones included: of baselines alone.
    #[serde(skip)]
    pub leaked_in_all: Option<ByteSize>,
    /// It is of a baseline that is not complete: what leaks there is not known.
    #[serde(skip)]
    pub is_incomplete: bool,
    /// Part of the allocations that is temporary.
    pub temporary: Option<Percent>,
    /// Bytes of one block.
    pub largest: Option<ByteSize>,
    /// Blocks allocated.
    pub allocations: Option<u64>,
    /// Resident memory without the recorder.
    pub rss: Option<ByteSize>,
    /// Free bytes in pages that live blocks hold at the end.
    pub pinned: Option<ByteSize>,
    /// Bytes that live at the end, by backtrace.
    #[serde(default)]
    pub leaks: Vec<LeakBudget>,
    /// By module.
    #[serde(default)]
    pub modules: Vec<ModuleBudget>,
    /// By mark.
    #[serde(default)]
    pub marks: Vec<MarkBudget>,
}

/// Leaked bytes of matching backtraces.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeakBudget {
    /// What matches.
    #[serde(rename = "match")]
    pub pattern: Pattern,
    /// Bytes at most.
    pub max: ByteSize,
}

/// Limits of a module.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleBudget {
    /// Which modules.
    pub module: Pattern,
    /// Bytes that live at the end.
    pub leaked: Option<ByteSize>,
    /// Bytes that live at the peak of the whole program.
    pub peak: Option<ByteSize>,
}

/// Limits from a mark to the next one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarkBudget {
    /// Which marks, by their labels.
    #[serde(rename = "match")]
    pub pattern: Pattern,
    /// Blocks allocated at most.
    pub allocations: u64,
}

/// Bytes: a number, or a text such as `64k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Number")]
pub struct ByteSize(pub u64);

/// A percentage: a number, or a text such as `30%`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "Number")]
pub struct Percent(pub f64);

/// A regular expression.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern(pub Regex);

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Part(f64),
    Text(String),
}

impl TryFrom<Number> for ByteSize {
    type Error = String;

    fn try_from(number: Number) -> Result<Self, String> {
        match number {
            Number::Whole(bytes) => Ok(Self(bytes)),
            Number::Part(part) => Err(format!("{part} is no number of bytes")),
            Number::Text(text) => text.parse(),
        }
    }
}

impl std::str::FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_size(text).map(Self)
    }
}

impl TryFrom<Number> for Percent {
    type Error = String;

    fn try_from(number: Number) -> Result<Self, String> {
        match number {
            Number::Whole(whole) => whole.to_string().parse(),
            Number::Part(part) => part.to_string().parse(),
            Number::Text(text) => text.parse(),
        }
    }
}

impl std::str::FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
        number
            .ok()
            .filter(|percent| (0.0..=100.0).contains(percent))
            .map(Self)
            .ok_or_else(|| format!("`{text}` is no percentage from 0 to 100"))
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Filter::regex("match", &text).map(Self).map_err(|error| error.to_string())
    }
}

/// Reads a budget file.
///
/// # Errors
/// When it cannot be read, or says something that is not understood: with line and column.
pub fn read(path: &Path) -> Result<Budget> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| Misuse(format!("cannot read {name}: {error}")))?;
    toml::from_str(&text).map_err(|error| Misuse(format!("{name} is no budget: {}", mistake(&text, &error))).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_and_mistakes_named() {
        let budget: Budget = toml::from_str(
            "peak = '1MiB'\nleaked = 0\ntemporary = 12.5\n[[leaks]]\nmatch = '^a'\nmax = '1k'\n\
             [[modules]]\nmodule = 'libx'\nleaked = 3\n[[marks]]\nmatch = 'r'\nallocations = 7\n",
        )
        .unwrap();
        assert_eq!((budget.peak, budget.leaked), (Some(ByteSize(1 << 20)), Some(ByteSize(0))));
        assert_eq!(budget.temporary, Some(Percent(12.5)));
        assert_eq!((budget.leaks[0].max, budget.marks[0].allocations), (ByteSize(1024), 7));
        for bad in ["peek = 1", "peak = 'big'", "peak = -1", "temporary = 101", "[[leaks]]\nmatch = '('\nmax = 1"] {
            let error = toml::from_str::<Budget>(bad).unwrap_err().to_string();
            assert!(error.contains("line "), "{bad}: {error}");
        }
    }
}
