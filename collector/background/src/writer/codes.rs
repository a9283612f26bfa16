//! Functions of an interpreted language, before the call-tree nodes that name them.

use tracehound_format::meta::{Code, Meta};

use super::RecordingWriter;
use crate::python_lines;
use tracehound_shared::python::{CODE_ADDRESSES, code_texts};

impl RecordingWriter {
    /// Writes the functions that were first met since the last call.
    pub(super) fn put_codes(&mut self) {
        let Self { blocks, codes_written, session, .. } = self;
        code_texts(codes_written, |text| {
            let code = Code {
                address: CODE_ADDRESSES + text.base,
                len: text.units + 1,
                language: "python".into(),
                function: text.name.to_vec(),
                file: text.file.to_vec(),
                first_line: text.first_line,
                lines: python_lines::runs(text.minor, text.first_line, text.lines),
            };
            blocks.meta(session.started_tick, &Meta::Code(code));
        });
    }
}
