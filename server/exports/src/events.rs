//! Allocations and frees of a scope in time order: the input of formats that keep single events.

use tracehound_index::Cancel;
use tracehound_query::filter::Selection;

use super::{ExportInput, ExportScope, Result};

/// Events between two looks at the cancel flag.
const CHECK: u64 = 1 << 14;

/// One block's allocation or free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapEvent {
    /// When.
    pub t_ns: u64,
    /// The block.
    pub row: u64,
    /// An allocation; else a free.
    pub allocated: bool,
    /// Requested bytes.
    pub size: u64,
    /// Site that allocated it.
    pub site: u32,
}

/// Passes every allocation in the scope's window of a block that passes its filter, and every free of such a block, to
/// `each`. The two halves of a realloc come one after the other, the free first.
///
/// # Errors
/// When the scope does not fit the recording, what `each` fails with, or cancelled.
pub fn each(source: ExportInput<'_>, scope: &ExportScope, mut each: impl FnMut(HeapEvent) -> Result<()>) -> Result<()> {
    let trace = source.trace;
    let selection = select(source, scope, source.cancel)?;
    let window = scope.window.resolve(trace, &selection, source.cancel)?;
    let test = selection.rows(trace);
    let (all, first) = (test.passes_all(), window.span.from.allocs);
    for (i, step) in (0_u64..).zip(trace.steps(window.span)) {
        if i.is_multiple_of(CHECK) {
            source.cancel.check()?;
        }
        if step.row >= first && (all || test.passes(step.row)) {
            let (site, amount) = trace.site_amount(step.row);
            each(HeapEvent { t_ns: step.t_ns, row: step.row, allocated: step.allocated, size: amount.bytes, site })?;
        }
    }
    Ok(())
}

/// What the scope's filter selects.
///
/// # Errors
/// When the filter does not fit the recording, or cancelled.
pub fn select(source: ExportInput<'_>, scope: &ExportScope, cancel: &Cancel) -> Result<Selection> {
    Ok(scope.filter.select(source.trace, source.symbols, cancel)?)
}

/// `text` on one line: readers of line-based formats end a name at a newline. Backslashes stay as they are, so that
/// this is for eyes; control characters become `\n`, `\t`, `\u{1b}`.
pub fn one_line(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_stay_lines() {
        assert_eq!(super::one_line("operator\n\"new\"; \\x"), "operator\\n\"new\"; \\x");
        assert_eq!(super::one_line("größe"), "größe");
    }
}
