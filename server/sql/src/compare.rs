//! Two recordings side by side.

use rusqlite::types::Value;
use tracehound_api::Frame;
use tracehound_query::diff::{DiffParams, Side, run};
use tracehound_query::{QueryError, Window};

use super::SqlRecording;
use super::allocations::signed;
use super::process::row;
use super::rows::{Question, SqlRows};

/// See [`super::schema::DIFF`].
pub fn diff(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let arguments = &question.arguments;
    let side = |at: usize, name: &str, without: i64| -> Result<&SqlRecording, QueryError> {
        let number = arguments.number(at, name)?.unwrap_or(without);
        let found = usize::try_from(number - 1).ok().and_then(|at| question.all.get(at));
        found.ok_or_else(|| {
            QueryError::bad(name, format!("there is no recording {number}; there are {}", question.all.len()))
        })
    };
    let (before, after) = (side(0, "a", 1)?, side(1, "b", 2)?);
    let params = DiffParams { metric: arguments.metric(2)?, limit: None, ..DiffParams::default() };
    let window = Window::default();
    let of = |recording: &SqlRecording| -> (std::sync::Arc<_>, std::sync::Arc<_>) {
        (recording.trace.clone(), recording.symbols.clone())
    };
    let ((trace_a, symbols_a), (trace_b, symbols_b)) = (of(before), of(after));
    let answer = run(
        Side { trace: &trace_a, symbols: symbols_a.as_ref(), window: &window, label: &before.path },
        Side { trace: &trace_b, symbols: symbols_b.as_ref(), window: &window, label: &after.path },
        &params,
        question.cancel,
    )?;
    let name = |frame: &Frame| frame.function.clone().or_else(|| frame.offset.clone()).unwrap_or_else(|| "?".into());
    let row = move |row: tracehound_api::diff::DiffRow| {
        let by = row.stack.iter().find(|frame| !frame.library).or(row.stack.first());
        let stack: Vec<String> = row.stack.iter().map(name).collect();
        row![
            by.map(name),
            by.and_then(|frame| frame.file.clone()),
            by.and_then(|frame| frame.line),
            by.and_then(|frame| frame.module.clone()),
            stack.join(";"),
            signed(row.before.bytes),
            signed(row.before.count),
            signed(row.after.bytes),
            signed(row.after.count),
            signed(row.after.bytes) - signed(row.before.bytes),
            signed(row.after.count) - signed(row.before.count),
        ]
    };
    Ok(Box::new(answer.rows.into_iter().map(row)))
}
