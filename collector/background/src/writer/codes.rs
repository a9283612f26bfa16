//! Functions that no file names, before the call-tree nodes that name them: Python's code objects and interpreted methods of
//! Java.

use tracehound_format::meta::{Code, Meta};

use super::RecordingWriter;
use crate::{java_methods, python_lines};
use tracehound_shared::hotspot::{JAVA_ADDRESSES, method_texts, version};
use tracehound_shared::python::{CODE_ADDRESSES, code_texts};

impl RecordingWriter {
    /// Writes the functions that were first met since the last call.
    pub(super) fn put_codes(&mut self) {
        let Self { blocks, codes_written, methods_written, session, .. } = self;
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
        method_texts(methods_written, |text| {
            let (first_line, lines) = java_methods::runs(text.lines, version(), text.code_bytes);
            let code = Code {
                address: JAVA_ADDRESSES + text.base,
                len: text.code_bytes + 1,
                language: "java".into(),
                function: java_methods::name(text.class, text.name, text.descriptor),
                file: java_methods::file(text.class, text.file),
                first_line,
                lines,
            };
            blocks.meta(session.started_tick, &Meta::Code(code));
        });
    }
}
