//! speedscope's file format: one file with several profiles over one list of frames.
//! <https://www.speedscope.app/file-format-schema.json>

use std::collections::HashMap;
use std::io::Write;

use serde::Serialize;
use serde_json::json;
use tracehound_api::{Metric, Unit};

use super::samples::{display_name, frames, resolve_all, samples};
use super::{ExportInput, ExportScope, Result};

const PROFILES: [(Metric, Unit, &str); 5] = [
    (Metric::Peak, Unit::Bytes, "live at the peak"),
    (Metric::Leaked, Unit::Bytes, "leaked"),
    (Metric::Allocated, Unit::Bytes, "allocated"),
    (Metric::Allocated, Unit::Count, "allocations"),
    (Metric::Temporary, Unit::Count, "temporary allocations"),
];

#[derive(Serialize)]
struct SpeedscopeFrame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// Writes the file.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(source: ExportInput<'_>, scope: &ExportScope, out: &mut dyn Write) -> Result<()> {
    resolve_all(source)?;
    let columns = PROFILES.map(|(metric, unit, _)| (metric, unit));
    let samples = samples(source, scope, &columns)?;

    // Frames first: a line of a function is a frame of its own.
    let mut ids = HashMap::new();
    let mut stack = Vec::new();
    let mut stacks: Vec<Vec<u32>> = Vec::with_capacity(samples.len());
    write!(out, r#"{{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{{"frames":["#)?;
    for sample in &samples {
        source.cancel.check()?;
        frames(source, sample.node, &mut stack);
        let mut indices = Vec::with_capacity(stack.len());
        for frame in stack.iter().rev() {
            let next = ids.len() as u32;
            let id = *ids.entry((frame.function, frame.file, frame.line)).or_insert(next);
            if id == next {
                let file = frame.file.map(|file| source.symbols.file(file).to_string());
                let frame = SpeedscopeFrame { name: display_name(source, frame.function), file, line: frame.line };
                if next > 0 {
                    out.write_all(b",")?;
                }
                serde_json::to_writer(&mut *out, &frame).map_err(std::io::Error::from)?;
            }
            indices.push(id);
        }
        stacks.push(indices);
    }
    let process = source.trace.facts().process.as_ref();
    let name = process.map_or_else(String::new, |process| String::from_utf8_lossy(&process.executable).into_owned());
    write!(
        out,
        r#"]}},"name":{},"exporter":"heaptrace {}","activeProfileIndex":0,"profiles":["#,
        json!(name),
        env!("CARGO_PKG_VERSION")
    )?;
    for (column, (_, unit, name)) in PROFILES.into_iter().enumerate() {
        let used = || {
            samples
                .iter()
                .zip(&stacks)
                .map(|(sample, stack)| (sample.values[column], stack))
                .filter(|(value, _)| *value > 0)
        };
        let unit = if unit == Unit::Bytes { "bytes" } else { "none" };
        let total: i64 = used().map(|(value, _)| value).sum();
        if column > 0 {
            out.write_all(b",")?;
        }
        write!(
            out,
            r#"{{"type":"sampled","name":"{name}","unit":"{unit}","startValue":0,"endValue":{total},"samples":["#
        )?;
        for (i, (_, stack)) in used().enumerate() {
            write!(out, "{}{}", if i > 0 { "," } else { "" }, json!(stack))?;
        }
        out.write_all(br#"],"weights":["#)?;
        for (i, (value, _)) in used().enumerate() {
            write!(out, "{}{value}", if i > 0 { "," } else { "" })?;
        }
        out.write_all(b"]}")?;
    }
    out.write_all(b"]}\n")?;
    Ok(())
}
