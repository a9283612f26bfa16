//! Folded stacks: `main;parse;push 4096`, root first, one line a backtrace.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use tracehound_api::{Metric, Unit};

use super::samples::{DistinctNames, frames, resolve_all, samples};
use super::{ExportInput, ExportScope, Result};

/// The one value that a line has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Of {
    /// What is measured.
    pub metric: Metric,
    /// What is added up.
    pub unit: Unit,
}

/// Writes the lines in the order of their stacks. Different call sites in the same functions are one line.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(source: ExportInput<'_>, scope: &ExportScope, of: Of, out: &mut dyn Write) -> Result<()> {
    resolve_all(source)?;
    let distinct = DistinctNames::new(source);
    let mut names = HashMap::new();
    let mut lines: BTreeMap<String, i64> = BTreeMap::new();
    let mut stack = Vec::new();
    for sample in samples(source, scope, &[(of.metric, of.unit)])? {
        source.cancel.check()?;
        frames(source, sample.node, &mut stack);
        let mut line = String::new();
        for frame in stack.iter().rev() {
            let name: &String = names.entry(frame.function).or_insert_with(|| safe(&distinct.get(frame.function)));
            if !line.is_empty() {
                line.push(';');
            }
            line.push_str(name);
        }
        if line.is_empty() {
            line.push_str("[no stack]");
        }
        *lines.entry(line).or_default() += sample.values[0];
    }
    for (line, value) in lines {
        writeln!(out, "{line} {value}")?;
    }
    Ok(())
}

/// The separators of the format cannot be in a name; readers split at the last space, so spaces may.
fn safe(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn separators_leave_names() {
        assert_eq!(super::safe("a;b\nc d"), "a:b\u{fffd}c d");
    }
}
