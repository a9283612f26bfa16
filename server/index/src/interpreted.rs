//! Functions of interpreted languages: their instructions have addresses of no module, see `Code` in docs/FORMAT.md.

use tracehound_format::meta::{Code, Frames, Meta, decode_body};
use tracehound_format::varint::{Reader, unzigzag};

use super::Trace;
use super::facts::ModuleFacts;

/// Where a call is, in the language that the user wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceCall<'a> {
    /// The function.
    pub code: &'a Code,
    /// Line of the call; 0: it is not known.
    pub line: u32,
}

/// The language of a call that means generated code at one address during one interval. Its function is the runtime's name,
/// or several names, one a line, if it is not certain which of them was there.
pub const GENERATED: &str = "generated";

/// The language of methods of Java that were interpreted.
pub const JAVA: &str = "java";

/// All calls of a recording in interpreted languages, by address.
#[derive(Debug, Default)]
pub struct InterpretedCodes(Vec<Code>);

/// The records in the bytes of their column.
#[must_use]
pub fn codes_of(bytes: &[u8]) -> Vec<Code> {
    let code = |(tag, body)| match decode_body(tag, body) {
        Ok(Some(Meta::Code(code))) => Some(code),
        _ => None,
    };
    Frames::new(bytes).flatten().filter_map(code).collect()
}

impl InterpretedCodes {
    /// The calls in the bytes of their column.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut codes = codes_of(bytes);
        codes.sort_by_key(|code| code.address);
        Self(codes)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The call at an address.
    #[must_use]
    pub fn call_at(&self, address: u64) -> Option<SourceCall<'_>> {
        let behind = self.0.partition_point(|code| code.address <= address);
        let code = self.0.get(behind.checked_sub(1)?)?;
        let place = address - code.address;
        (place < u64::from(code.len)).then(|| SourceCall { code, line: line_at(code, place) })
    }
}

/// The modules that run Python's functions.
#[derive(Debug, Default)]
pub struct InterpreterCode {
    /// By position among the modules.
    modules: Vec<bool>,
}

impl InterpreterCode {
    pub(crate) fn find(trace: &Trace) -> Self {
        if trace.interpreted().is_empty() {
            return Self::default();
        }
        let module = |node: u32| trace.node_location(node).and_then(|location| trace.location(location).module);
        let is_python: Vec<bool> = trace.modules().iter().map(ModuleFacts::is_interpreted).collect();
        let runs_python = |node: u32| module(node).is_some_and(|module| is_python.get(module as usize) == Some(&true));
        let mut modules = vec![false; trace.modules().len()];
        for node in (1..trace.node_count()).filter(|&node| runs_python(node)) {
            let caller = trace.nodes().parent(node);
            let place = module(caller).filter(|_| !runs_python(caller)).and_then(|m| modules.get_mut(m as usize));
            if let Some(place) = place {
                *place = true;
            }
        }
        Self { modules }
    }

    /// Whether the module at a position is an interpreter.
    #[must_use]
    pub fn has_module(&self, position: u32) -> bool {
        self.modules.get(position as usize) == Some(&true)
    }
}

fn line_at(code: &Code, place: u64) -> u32 {
    let mut pairs = Reader::new(&code.lines);
    let (mut at, mut line) = (0_u64, i64::from(code.first_line));
    while let (Some(places), Some(change)) = (pairs.next_u64(), pairs.next_u64()) {
        at = at.saturating_add(places);
        if at > place {
            break;
        }
        line = line.saturating_add(unzigzag(change));
    }
    u32::try_from(line).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracehound_format::meta::encode;

    #[test]
    fn calls_are_found_by_address() {
        let code = |address, lines: &[u8]| Code {
            address,
            len: 10,
            language: "python".into(),
            function: b"f".to_vec(),
            file: b"a.py".to_vec(),
            first_line: 7,
            lines: lines.to_vec(),
        };
        let mut bytes = Vec::new();
        // From place 2 on one line further, from 5 on two back.
        encode(&Meta::Code(code(2000, &[2, 2, 3, 3])), &mut bytes).unwrap();
        encode(&Meta::Code(code(1000, &[])), &mut bytes).unwrap();
        let codes = InterpretedCodes::new(&bytes);
        let lines: Vec<_> = (1999..2011).map(|at| codes.call_at(at).map(|call| call.line)).collect();
        let some = |line| Some(line);
        assert_eq!(lines[..8], [None, some(7), some(7), some(8), some(8), some(8), some(6), some(6)]);
        assert_eq!(lines[10..], [some(6), None]);
        assert_eq!(codes.call_at(1009).map(|call| call.line), Some(7));
        assert_eq!(codes.call_at(0), None);
    }
}
