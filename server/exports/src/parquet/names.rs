//! Names of frames and stacks that are the same in every recording: hashes of their contents.

use sha2::{Digest, Sha256};
use tracehound_index::Trace;
use tracehound_index::facts::ModuleFacts;

use super::super::{ExportInput, Result};

/// The first bytes of a SHA-256.
pub(super) type Name = [u8; 16];

/// Names of frames and stacks, the same in every recording.
pub(super) struct FrameNames {
    /// By location.
    pub(super) frames: Vec<Name>,
    /// Which of them are hashes of functions, not of an address.
    pub(super) by_function: Vec<bool>,
    /// By node; the root's is all zeros.
    stacks: Vec<Name>,
}

impl FrameNames {
    pub(super) fn new(source: ExportInput<'_>) -> Result<Self> {
        let trace = source.trace;
        let numbered: Vec<u32> = (0..trace.location_count()).filter(|&location| is_numbered(trace, location)).collect();
        source.symbols.resolve(trace, &numbered, source.cancel)?;
        let mut frames: Vec<Name> =
            (0..trace.location_count()).map(|location| name_of_address(trace, location)).collect();
        let mut by_function = vec![false; frames.len()];
        for location in numbered {
            if let Some(name) = name_of_functions(source, location) {
                frames[location as usize] = name;
                by_function[location as usize] = true;
            }
        }
        let mut stacks: Vec<Name> = vec![[0; 16]; trace.node_count().max(1) as usize];
        let mut known = vec![false; stacks.len()];
        known[0] = true;
        let mut path = Vec::new();
        for node in 1..trace.node_count() {
            if node.is_multiple_of(1 << 16) {
                source.cancel.check()?;
            }
            path.extend(trace.stack(node).take_while(|&node| !known[node as usize]));
            while let Some(node) = path.pop() {
                let caller = stacks[trace.nodes().parent(node) as usize];
                stacks[node as usize] = match trace.node_location(node) {
                    Some(location) => name_of(&[&caller, &frames[location as usize]], 0),
                    None => caller,
                };
                known[node as usize] = true;
            }
        }
        Ok(Self { frames, by_function, stacks })
    }

    /// Of the stack that ends in a node.
    pub(super) fn stack(&self, node: u32) -> Name {
        self.stacks.get(node as usize).copied().unwrap_or_default()
    }
}

/// Whether a location's address means nothing in another recording: an instruction of an interpreted language, which this
/// recording has numbered, or generated code.
fn is_numbered(trace: &Trace, location: u32) -> bool {
    let module = place(trace, location).0;
    module.and_then(|module| trace.modules().get(module as usize)).is_none_or(ModuleFacts::is_interpreted)
}

/// A hash of a location's module and its address there.
fn name_of_address(trace: &Trace, location: u32) -> Name {
    let (module, offset) = place(trace, location);
    match module.and_then(|module| trace.modules().get(module as usize)) {
        Some(module) if !module.build_id.is_empty() => name_of(&[b"b", &module.build_id], offset),
        Some(module) => name_of(&[b"p", &module.path], offset),
        None => name_of(&[b"-"], offset),
    }
}

/// A hash of function, file and line of each level of a location; `None` if a function has no name.
fn name_of_functions(source: ExportInput<'_>, location: u32) -> Option<Name> {
    let mut levels = Vec::new();
    source.symbols.frames(source.trace, location, &mut levels);
    let mut texts = vec!["f".to_owned()];
    for level in &levels {
        texts.push(source.symbols.function(level.function).name.as_deref()?.to_owned());
        texts.push(level.file.map(|file| source.symbols.file(file).to_string()).unwrap_or_default());
        texts.push(level.line.unwrap_or_default().to_string());
    }
    let parts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    (!levels.is_empty()).then(|| name_of(&parts, 0))
}

pub(super) fn name_of(parts: &[&[u8]], number: u64) -> Name {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.update(number.to_le_bytes());
    let mut name = Name::default();
    name.copy_from_slice(&hash.finalize()[..16]);
    name
}

/// Module of a location, and the address of the call in its file; without a module the address as it was.
pub(super) fn place(trace: &Trace, location: u32) -> (Option<u32>, u64) {
    let found = trace.location(location);
    let call = found.pc.wrapping_sub(1);
    let module = found.module.and_then(|module| trace.modules().get(module as usize));
    let Some(module) = module else { return (None, call) };
    let segment = module.segments.iter().find(|segment| call.wrapping_sub(segment.start) < segment.len);
    (found.module, segment.map_or(call.wrapping_sub(module.bias), |s| call - s.start + s.file_offset))
}
