//! Tables of the process: recordings, threads, modules, marks, samples, mappings, remarks.

use rusqlite::types::Value;
use tracehound_index::events::What;
use tracehound_query::{QueryError, info};

use super::allocations::signed;
use super::rows::{Question, SqlRow, SqlRows};

/// A list of values of any kinds.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$(Value::from($value)),*] };
}
pub(super) use row;

/// Hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn list(rows: Vec<SqlRow>) -> Result<SqlRows, QueryError> {
    Ok(Box::new(rows.into_iter()))
}

/// See [`super::schema::RECORDINGS`].
pub fn recordings(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let trace = &question.recording.trace;
    let about = info::run(trace);
    let (process, facts) = (&about.process, trace.facts());
    let end = serde_json::to_value(about.end).ok().and_then(|end| end.as_str().map(str::to_owned));
    list(vec![row![
        question.recording.path.clone(),
        hex(&trace.recording_id()),
        process.pid,
        process.parent_pid,
        process.executable.clone(),
        serde_json::to_string(&process.arguments).unwrap_or_default(),
        process.started_at.clone(),
        signed(process.duration_ns),
        about.complete,
        end,
        signed(about.events.lost),
        signed(trace.alloc_count()),
        signed(facts.allocated_bytes),
        signed(trace.free_count()),
        signed(facts.peak.bytes),
        signed(facts.peak.count),
        signed(facts.peak.at_ns),
        signed(about.leaked.bytes),
        signed(about.leaked.count),
        signed(facts.temporary.0),
        facts.peak_rss.map(|peak| signed(peak.bytes)),
    ]])
}

/// See [`super::schema::THREADS`].
pub fn threads(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let active = question.recording.trace.threads().iter().filter(|thread| thread.active);
    let row = |thread: &tracehound_index::facts::ThreadFacts| {
        let ended = thread.ended_ns.map(signed);
        row![thread.id, thread.os_thread, thread.name.clone(), signed(thread.started_ns), ended]
    };
    list(active.map(row).collect())
}

/// See [`super::schema::MODULES`].
pub fn modules(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let row = |module: &tracehound_index::facts::ModuleFacts| {
        row![
            module.id,
            String::from_utf8_lossy(&module.path).into_owned(),
            module.name(),
            (!module.build_id.is_empty()).then(|| hex(&module.build_id)),
            signed(module.bias),
            signed(module.loaded_ns),
            module.unloaded_ns.map(signed),
        ]
    };
    list(question.recording.trace.modules().iter().map(row).collect())
}

/// See [`super::schema::MARKS`].
pub fn marks(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let marks = question.recording.trace.marks();
    list(marks.iter().map(|mark| row![signed(mark.t_ns), mark.label.clone(), mark.thread]).collect())
}

/// See [`super::schema::CAPTURES`].
pub fn captures(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let captures = &question.recording.trace.facts().captures;
    list(captures.iter().map(|capture| row![signed(capture.from_ns), signed(capture.to_ns)]).collect())
}

/// See [`super::schema::REMARKS`].
pub fn remarks(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let remarks = &question.recording.trace.facts().remarks;
    let row =
        |remark: &tracehound_api::info::Remark| row![signed(remark.t_ns), remark.topic.clone(), remark.text.clone()];
    list(remarks.iter().map(row).collect())
}

/// See [`super::schema::SAMPLES`].
pub fn samples(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let trace = std::sync::Arc::clone(&question.recording.trace);
    let count = trace.columns().sample_time.len();
    let row = move |at: usize| {
        let c = trace.columns();
        let value = |column: &[u64]| column.get(at).map(|&value| signed(value));
        row![
            value(&c.sample_time),
            value(&c.sample_rss),
            value(&c.sample_anonymous),
            value(&c.sample_virtual),
            value(&c.sample_recorder),
        ]
    };
    Ok(Box::new((0..count).map(row)))
}

/// See [`super::schema::MAPPINGS`].
pub fn mappings(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    const NONE: Option<i64> = None;
    let row = |event: tracehound_index::TraceEvent| {
        let (kind, address, bytes, old) = match event.what {
            What::Map { address, len, .. } => ("map", address, signed(len), None),
            What::Existing { address, len } => ("existing", address, signed(len), None),
            What::Unmap { address, len } => ("unmap", address, signed(len), None),
            What::Remap { old_address, old_len, address, len } => {
                ("remap", address, signed(len), Some((old_address, old_len)))
            }
            What::Brk { address, delta } => ("brk", address, delta, None),
            _ => return None,
        };
        Some(row![
            signed(event.t_ns),
            event.thread,
            kind.to_owned(),
            signed(address),
            bytes,
            old.map_or(NONE, |(address, _)| Some(signed(address))),
            old.map_or(NONE, |(_, bytes)| Some(signed(bytes))),
            (event.node != 0).then_some(event.node),
        ])
    };
    list(question.recording.trace.other_events().filter_map(row).collect())
}
