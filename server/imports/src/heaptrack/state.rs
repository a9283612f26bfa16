//! State of an import: what each kind of line adds to the recording that is being made.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use tracehound_format::meta::{EndReason, MemorySample, Meta, ModuleLoad, Remark, Segment};
use tracehound_format::record::Kind;

use super::super::writer::ImportWriter;
use super::super::{ImportError, Imported};
use super::lines::Fields;
use tracehound_symbols::{Bundle, Named};

/// Address space of each module, so that places in the code can be numbered.
const MODULE_BYTES: u64 = 1 << 40;
/// Modules that have a place there.
const MODULES: u64 = 1 << 16;

/// A kind of allocation, and its blocks that live.
struct AllocationKind {
    size: u64,
    node: u32,
    live: Vec<u64>,
}

/// What has been read.
pub(super) struct ImportState<W: Write> {
    writer: ImportWriter<W>,
    bundle: Bundle,
    version: u64,
    strings: Vec<Arc<str>>,
    /// By the string of its path: its number among the modules.
    modules: HashMap<u64, u64>,
    /// Address of each place in the code.
    places: Vec<u64>,
    /// Node of each backtrace.
    traces: Vec<u32>,
    kinds: Vec<AllocationKind>,
    next_address: u64,
    free_addresses: Vec<u64>,
    t_ns: u64,
    /// Kind of the last line that counts.
    last: u8,
    page: u64,
    command: Vec<u8>,
    started: bool,
    done: Imported,
}

/// What is wrong with a line, or with the files.
pub(super) enum LineError {
    Means(&'static str),
    Other(ImportError),
}

impl From<std::io::Error> for LineError {
    fn from(error: std::io::Error) -> Self {
        Self::Other(error.into())
    }
}

pub(super) type LineResult = Result<(), LineError>;

impl<W: Write> ImportState<W> {
    pub(super) fn new(writer: ImportWriter<W>, version: u64) -> Self {
        Self {
            writer,
            bundle: Bundle::default(),
            version,
            strings: Vec::new(),
            modules: HashMap::new(),
            places: Vec::new(),
            traces: Vec::new(),
            kinds: Vec::new(),
            next_address: 0x10_0000,
            free_addresses: Vec::new(),
            t_ns: 0,
            last: 0,
            page: 4096,
            command: Vec::new(),
            started: false,
            done: Imported::default(),
        }
    }

    pub(super) fn line(&mut self, line: &[u8]) -> LineResult {
        let mut fields = Fields(&line[1..]);
        self.last = line[0];
        match line[0] {
            b's' => self.string(fields),
            b'i' => self.place(&mut fields),
            b't' => self.backtrace(&mut fields),
            b'a' => self.kind(&mut fields),
            b'+' => self.alloc(&mut fields),
            b'-' => self.free(&mut fields),
            b'c' => {
                let ms = fields.number().ok_or(LineError::Means("a time is missing"))?;
                self.t_ns = self.t_ns.max(ms.saturating_mul(1_000_000));
                Ok(())
            }
            b'R' => {
                let pages = fields.number().ok_or(LineError::Means("a number of pages is missing"))?;
                self.resident(pages);
                Ok(())
            }
            b'X' => {
                self.command = line[1..].trim_ascii().to_vec();
                Ok(())
            }
            b'I' => {
                self.page = fields.number().filter(|page| (1..=1 << 30).contains(page)).unwrap_or(4096);
                Ok(())
            }
            b'x' | b'm' => {
                let why =
                    "this is raw data of heaptrack: run heaptrack_interpret on it first (heaptrack does so itself)";
                Err(LineError::Other(ImportError::Format(why.into())))
            }
            // A is "attached to a running program", S a suppression.
            _ => {
                self.done.skipped += u64::from(!matches!(line[0], b'A' | b'S' | b'v'));
                Ok(())
            }
        }
    }

    fn string(&mut self, mut fields: Fields<'_>) -> LineResult {
        let mut text = fields.0;
        if self.version >= 3 {
            let len = fields.number().ok_or(LineError::Means("a string has no length"))?;
            text = fields.0.strip_prefix(b" ").unwrap_or_default();
            text = &text[..text.len().min(usize::try_from(len).unwrap_or(usize::MAX))];
        } else {
            text = text.strip_prefix(b" ").unwrap_or(text);
        }
        self.strings.push(String::from_utf8_lossy(text).into());
        Ok(())
    }

    /// A string by its number, which counts from 1; 0 is none.
    fn text(&self, number: u64) -> Result<Option<Arc<str>>, LineError> {
        let Some(index) = number.checked_sub(1) else { return Ok(None) };
        let text = usize::try_from(index).ok().and_then(|index| self.strings.get(index));
        text.cloned().map(Some).ok_or(LineError::Means("it refers to a string that does not exist"))
    }

    fn start(&mut self) {
        if !std::mem::replace(&mut self.started, true) {
            let words: Vec<Vec<u8>> =
                self.command.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect();
            let executable = words.first().cloned().unwrap_or_default();
            let page = u32::try_from(self.page).unwrap_or(4096);
            let tool = format!("heaptrack, format {}", self.version);
            self.writer.start(&executable, words, page, &tool);
            let tick = self.writer.tick(0);
            let text = "imported from heaptrack: no threads, no addresses (those shown number the blocks), and times in steps of heaptrack's clock, about 10 ms, so shorter lifetimes mean nothing; of equal blocks it is not known which one was freed";
            self.writer.meta(Meta::Remark(Remark { tick, topic: "imported".into(), text: text.into() }));
        }
    }

    fn place(&mut self, fields: &mut Fields<'_>) -> LineResult {
        self.start();
        let address = fields.number().ok_or(LineError::Means("a place in the code has no address"))?;
        let module = fields.number().unwrap_or(0);
        let path = self.text(module)?.unwrap_or_else(|| "[unknown]".into());
        let number = match self.modules.get(&module) {
            Some(&number) => number,
            None => self.module(module, &path)?,
        };
        let mut functions = Vec::new();
        while let Some(name) = fields.number() {
            let (file, line) = (fields.number().unwrap_or(0), fields.number().unwrap_or(0));
            functions.push(Named {
                name: self.text(name)?,
                file: self.text(file)?,
                line: u32::try_from(line).ok().filter(|&line| line > 0),
                inlined: true,
                ..Named::default()
            });
        }
        // All but the last were inlined into it.
        if let Some(last) = functions.last_mut() {
            last.inlined = false;
        } else {
            let name = format!("{address:#x}");
            functions.push(Named { name: Some(name.into()), ..Named::default() });
        }
        let offset = self.places.len() as u64 * 16;
        if offset >= MODULE_BYTES {
            return Err(LineError::Means("there are too many places in the code"));
        }
        self.bundle.add(Some((&[], path.as_bytes())), offset, functions);
        self.places.push((number + 1) * MODULE_BYTES + offset + 1);
        Ok(())
    }

    fn module(&mut self, string: u64, path: &str) -> Result<u64, LineError> {
        let number = self.modules.len() as u64;
        if number >= MODULES {
            return Err(LineError::Means("there are too many modules"));
        }
        let start = (number + 1) * MODULE_BYTES;
        let segment = Segment { start, len: MODULE_BYTES, vaddr: 0, file_offset: 0, flags: 5 };
        let tick = self.writer.tick(0);
        self.writer.meta(Meta::ModuleLoad(ModuleLoad {
            id: number as u32,
            tick,
            path: path.as_bytes().to_vec(),
            build_id: Vec::new(),
            bias: start,
            segments: vec![segment],
            generation: 0,
        }));
        self.modules.insert(string, number);
        Ok(number)
    }

    fn backtrace(&mut self, fields: &mut Fields<'_>) -> LineResult {
        let (Some(place), Some(parent)) = (fields.number(), fields.number()) else {
            return Err(LineError::Means("a backtrace has two numbers"));
        };
        let known = |list: &[u32], number: u64| match number.checked_sub(1) {
            None => Some(0),
            Some(index) => list.get(usize::try_from(index).ok()?).copied(),
        };
        let parent =
            known(&self.traces, parent).ok_or(LineError::Means("it refers to a backtrace that does not exist"))?;
        let place = match place.checked_sub(1) {
            // Nowhere: the backtrace is its caller's.
            None => None,
            Some(index) => {
                let place = usize::try_from(index).ok().and_then(|index| self.places.get(index));
                Some(*place.ok_or(LineError::Means("it refers to a code location that does not exist"))?)
            }
        };
        self.start();
        let node = place.map_or(parent, |pc| self.writer.node(parent, pc));
        self.traces.push(node);
        Ok(())
    }

    fn kind(&mut self, fields: &mut Fields<'_>) -> LineResult {
        let (Some(size), Some(trace)) = (fields.number(), fields.number()) else {
            return Err(LineError::Means("a kind of allocation has two numbers"));
        };
        let node = match trace.checked_sub(1) {
            None => 0,
            Some(index) => {
                let node = usize::try_from(index).ok().and_then(|index| self.traces.get(index));
                *node.ok_or(LineError::Means("it refers to a backtrace that does not exist"))?
            }
        };
        self.kinds.push(AllocationKind { size, node, live: Vec::new() });
        Ok(())
    }

    fn alloc(&mut self, fields: &mut Fields<'_>) -> LineResult {
        self.start();
        let index = fields.number().and_then(|index| usize::try_from(index).ok());
        let kind = index.and_then(|index| self.kinds.get_mut(index));
        let kind = kind.ok_or(LineError::Means("it refers to a kind of allocation that does not exist"))?;
        let address = self.free_addresses.pop().unwrap_or_else(|| {
            self.next_address += 16;
            self.next_address
        });
        kind.live.push(address);
        self.done.allocs += 1;
        self.writer.event(Kind::Malloc, self.t_ns, address, kind.node, kind.size)?;
        Ok(())
    }

    fn free(&mut self, fields: &mut Fields<'_>) -> LineResult {
        self.start();
        let index = fields.number().and_then(|index| usize::try_from(index).ok());
        let kind = index.and_then(|index| self.kinds.get_mut(index));
        let kind = kind.ok_or(LineError::Means("it refers to a kind of allocation that does not exist"))?;
        let Some(address) = kind.live.pop() else {
            self.done.unmatched += 1;
            return Ok(());
        };
        self.done.frees += 1;
        self.free_addresses.push(address);
        self.writer.event(Kind::Free, self.t_ns, address, 0, 0)?;
        Ok(())
    }

    fn resident(&mut self, pages: u64) {
        self.start();
        let tick = self.writer.tick(self.t_ns);
        let rss = pages.saturating_mul(self.page);
        self.writer.meta(Meta::MemorySample(MemorySample {
            tick,
            rss,
            rss_anonymous: rss,
            rss_shared: 0,
            virtual_size: 0,
            recorder: 0,
        }));
    }

    /// Ends the recording. `is_whole`: the file has its last lines.
    pub(super) fn finish(mut self, is_whole: bool) -> Result<(Imported, Bundle), ImportError> {
        self.start();
        // heaptrack in the program writes the time and the resident set last of all; what it still had in its buffer is
        // lost in a program that was killed.
        let end = match self.last {
            _ if !is_whole => None,
            b'c' | b'R' => Some(EndReason::Exit),
            _ => Some(EndReason::Killed),
        };
        self.done.end = end;
        let text = match end {
            None => Some("the file that was imported is cut: its last lines are missing"),
            Some(EndReason::Killed) => Some(
                "the program was killed: what heaptrack had not written by then is missing, and nobody knows how much that is",
            ),
            _ => None,
        };
        if let Some(text) = text {
            let tick = self.writer.tick(self.t_ns);
            self.writer.meta(Meta::Remark(Remark { tick, topic: "imported".into(), text: text.into() }));
        }
        self.done.bytes = self.writer.finish(self.t_ns, end)?;
        Ok((self.done, self.bundle))
    }
}
