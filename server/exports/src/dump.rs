//! `heaptrace dump`: every event as a line of JSON, in time order. Everything else that heaptrace says about a
//! recording can be rebuilt from these lines.
//!
//! A frame's JSON is made once for each place in the code and copied from then on.

use std::io::Write;

use serde_json::json;
use tracehound_index::{TraceEvent, What};
use tracehound_query::stacks;

use super::samples::PlainFrame;
use super::{ExportInput, Result};

/// How to write the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpOptions<'a> {
    /// What each line says that it is of: the recording's file, where there are several.
    pub file: Option<&'a str>,
    /// With functions, files and lines; without, a stack is a list of addresses.
    pub symbols: bool,
    /// With what had been mapped before recording began, which is no event.
    pub existing: bool,
}

/// Events between two looks at the cancel flag.
const CHECK: u64 = 1 << 14;

/// Writes all events.
///
/// # Errors
/// When the output refuses, or cancelled.
pub fn write(source: ExportInput<'_>, options: DumpOptions<'_>, out: &mut dyn Write) -> Result<()> {
    let trace = source.trace;
    let mut stacks = StackLines::new(source, options.symbols)?;
    let start = options.file.map_or_else(|| "{".to_owned(), |file| format!(r#"{{"file":{},"#, json!(file)));
    let mut line = Vec::with_capacity(4096);
    for (i, event) in (0_u64..).zip(trace.events(trace.everything())) {
        if i.is_multiple_of(CHECK) {
            source.cancel.check()?;
        }
        if !options.existing && matches!(event.what, What::Existing { .. }) {
            continue;
        }
        line.clear();
        write!(line, r#"{start}"t_ns":{},"thread":{}"#, event.t_ns, event.thread)?;
        what(&event, trace, &mut line)?;
        if event.context != 0 {
            write!(line, r#","context":{}"#, event.context)?;
        }
        if event.has_stack() {
            line.extend_from_slice(br#","stack":["#);
            stacks.append(event.node, &mut line)?;
            line.push(b']');
        }
        line.extend_from_slice(b"}\n");
        out.write_all(&line)?;
    }
    Ok(())
}

trait HasStack {
    fn has_stack(&self) -> bool;
}

impl HasStack for TraceEvent {
    /// Calls of the program have a stack, if only an empty one; what happened to it has none.
    fn has_stack(&self) -> bool {
        match self.what {
            What::Alloc { .. }
            | What::Free { .. }
            | What::Realloc { .. }
            | What::Map { .. }
            | What::Unmap { .. }
            | What::Remap { .. }
            | What::Brk { .. } => true,
            What::Mark { .. } | What::Fork { .. } => self.node != 0,
            _ => false,
        }
    }
}

/// The fields between the thread and the stack.
fn what(event: &TraceEvent, trace: &tracehound_index::Trace, line: &mut Vec<u8>) -> std::io::Result<()> {
    match &event.what {
        What::Alloc { function, address, size, row } => {
            write!(line, r#","kind":"alloc","function":"{function}","address":"{address:#x}","size":{size}"#)?;
            match trace.alignment_of(*row) {
                Some(alignment) => write!(line, r#","alignment":{alignment}"#),
                None => Ok(()),
            }
        }
        What::Free { function, address, row, existing } => {
            write!(line, r#","kind":"free","function":"{function}","address":"{address:#x}""#)?;
            match (row, existing) {
                (Some(row), _) => write!(line, r#","size":{}"#, trace.size_of(*row)),
                (None, Some(size)) => write!(line, r#","size":{size},"existing":true"#),
                (None, None) => line.write_all(br#","unmatched":true"#),
            }
        }
        What::Realloc { function, old_address, address, size, old_row, .. } => {
            write!(line, r#","kind":"realloc","function":"{function}""#)?;
            match old_address {
                Some(old) => write!(line, r#","old_address":"{old:#x}""#)?,
                None => line.write_all(br#","old_address":null"#)?,
            }
            if let Some(row) = old_row {
                write!(line, r#","old_size":{}"#, trace.size_of(*row))?;
            }
            write!(line, r#","address":"{address:#x}","size":{size}"#)
        }
        What::Map { address, len, protection, flags, fd } => {
            write!(line, r#","kind":"map","function":"mmap","address":"{address:#x}","size":{len}"#)?;
            write!(line, r#","protection":{protection},"flags":{flags}"#)?;
            fd.map_or(Ok(()), |fd| write!(line, r#","fd":{fd}"#))
        }
        What::Existing { address, len } => {
            write!(line, r#","kind":"existing","address":"{address:#x}","size":{len}"#)
        }
        What::ExistingBlock { address, size } => {
            write!(line, r#","kind":"existing","address":"{address:#x}","size":{size}"#)
        }
        What::Unmap { address, len } => {
            write!(line, r#","kind":"unmap","function":"munmap","address":"{address:#x}","size":{len}"#)
        }
        What::Remap { old_address, old_len, address, len } => {
            write!(
                line,
                r#","kind":"remap","function":"mremap","old_address":"{old_address:#x}","old_size":{old_len}"#
            )?;
            write!(line, r#","address":"{address:#x}","size":{len}"#)
        }
        What::Brk { address, delta } => {
            write!(line, r#","kind":"brk","function":"brk","address":"{address:#x}","delta":{delta}"#)
        }
        What::Mark { label } => write!(line, r#","kind":"mark","label":{}"#, json!(label)),
        What::ThreadStart { name } => write!(line, r#","kind":"thread","action":"start","name":{}"#, json!(name)),
        What::ThreadEnd => line.write_all(br#","kind":"thread","action":"end""#),
        What::Fork { child } => write!(line, r#","kind":"fork","child":{child}"#),
        What::Lost { count } => write!(line, r#","kind":"lost","count":{count}"#),
        What::Overwritten { address, row } => {
            write!(line, r#","kind":"overwritten","address":"{address:#x}","size":{}"#, trace.size_of(*row))
        }
        What::CaptureStart => line.write_all(br#","kind":"capture","action":"start""#),
        What::CaptureStop => line.write_all(br#","kind":"capture","action":"stop""#),
    }
}

/// The JSON of backtraces' frames.
struct StackLines<'a> {
    source: ExportInput<'a>,
    symbols: bool,
    /// By location: its frames, separated by commas.
    known: Vec<Option<Box<[u8]>>>,
}

impl<'a> StackLines<'a> {
    fn new(source: ExportInput<'a>, symbols: bool) -> Result<Self> {
        if symbols {
            super::samples::resolve_all(source)?;
        }
        Ok(Self { source, symbols, known: vec![None; source.trace.location_count() as usize] })
    }

    fn append(&mut self, node: u32, line: &mut Vec<u8>) -> Result<()> {
        let trace = self.source.trace;
        let mut first = true;
        for node in trace.shown_stack(self.source.symbols, node) {
            let Some(location) = trace.node_location(node) else { continue };
            if !std::mem::take(&mut first) {
                line.push(b',');
            }
            let Some(known) = self.known.get_mut(location as usize) else { continue };
            if let Some(json) = known {
                line.extend_from_slice(json);
                continue;
            }
            let start = line.len();
            if self.symbols {
                let mut levels = Vec::new();
                self.source.symbols.frames(trace, location, &mut levels);
                let pc = trace.location(location).pc;
                for (i, level) in levels.iter().enumerate() {
                    if i > 0 {
                        line.push(b',');
                    }
                    // A line for every event: what the address and the module say already is left out.
                    let frame = stacks::frame(trace, self.source.symbols, level, pc);
                    let frame = PlainFrame { offset: None, ..PlainFrame::from(&frame) };
                    serde_json::to_writer(&mut *line, &frame).map_err(std::io::Error::from)?;
                }
            } else {
                write!(line, r#""{:#x}""#, trace.location(location).pc)?;
            }
            *known = Some(line[start..].into());
        }
        Ok(())
    }
}
