//! Words of another process's memory, read in pieces.

use std::time::Instant;

use crate::memory::ProcessMemory;
use crate::objects::ProcessMapping;

/// Bytes that are read at once.
const PIECE: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// Words between two looks at the clock.
const CHECK: u32 = 1 << 14;

/// Where words come from.
pub trait WordSource {
    /// As many of `len` bytes from `at` as there are.
    fn read_up_to(&self, at: u64, len: usize) -> Vec<u8>;
}

impl WordSource for ProcessMemory {
    fn read_up_to(&self, at: u64, len: usize) -> Vec<u8> {
        Self::read_up_to(self, at, len)
    }
}

/// See the module's description.
pub struct WordReader<'a> {
    source: &'a dyn WordSource,
    mappings: &'a [ProcessMapping],
    deadline: Instant,
    late: bool,
    until_check: u32,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> WordReader<'a> {
    pub fn new(source: &'a dyn WordSource, mappings: &'a [ProcessMapping], deadline: Instant) -> Self {
        Self { source, mappings, deadline, late: false, until_check: CHECK, start: 0, bytes: Vec::new() }
    }

    /// Whether time is over: nothing is read any more.
    pub const fn is_late(&self) -> bool {
        self.late
    }

    /// The word at `at`; `None` where there is no memory, and when time is over.
    pub fn word(&mut self, at: u64) -> Option<u64> {
        self.until_check = self.until_check.checked_sub(1).unwrap_or(CHECK);
        if self.until_check == 0 && Instant::now() > self.deadline {
            self.late = true;
        }
        if self.late {
            return None;
        }
        if let Some(word) = self.held(at) {
            return Some(word);
        }
        self.start = at & !(PAGE - 1);
        self.bytes = self.source.read_up_to(self.start, PIECE as usize);
        self.held(at)
    }

    fn held(&self, at: u64) -> Option<u64> {
        let from = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }

    /// The mapping that may be written and that `at` lies in.
    pub fn writable(&self, at: u64) -> Option<&'a ProcessMapping> {
        let until = self.mappings.partition_point(|mapping| mapping.range.start <= at);
        let mapping = self.mappings.get(until.checked_sub(1)?)?;
        (mapping.writable && at < mapping.range.end).then_some(mapping)
    }

    /// Whether a chunk may begin at `at`.
    pub fn may_be_chunk(&self, at: u64) -> bool {
        at.is_multiple_of(16) && self.writable(at).is_some()
    }

    /// How far what may be written goes on from `at`, over mappings that follow each other.
    pub fn writable_end(&self, at: u64) -> Option<u64> {
        let mut end = self.writable(at)?.range.end;
        while let Some(next) = self.writable(end) {
            end = next.range.end;
        }
        Some(end)
    }
}
