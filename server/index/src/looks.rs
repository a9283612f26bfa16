//! Looks at the page tables: the index has their offsets in the recording; their pages are read when a query needs
//! them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use tracehound_format::block::{BlockHeader, BlockKind};
use tracehound_format::look::{KernelCounters, MappingClass, PageRun};
use tracehound_format::meta::{Frames, Meta, PageLook, decode_body};

use super::Trace;
use super::facts::LookFacts;

/// A mapping of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookedMapping {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// What it is.
    pub class: MappingClass,
    /// 1 = read, 2 = write, 4 = execute.
    pub protection: u8,
    /// As the kernel calls it; empty: nothing.
    pub name: String,
    /// A recorded thread whose stack it is; 0: none.
    pub thread: u32,
    /// Its pages are known.
    pub seen: bool,
}

impl LookedMapping {
    /// Address behind it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// What is in memory, page by page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageMap {
    /// When.
    pub t_ns: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The kernel's counters before.
    pub before: KernelCounters,
    /// And after.
    pub after: KernelCounters,
    /// The control group's figures, if they were looked at.
    pub cgroup: Vec<(String, u64)>,
    /// Mappings by address.
    pub mappings: Vec<LookedMapping>,
    /// Runs of pages by address; positions are those of `mappings`.
    pub runs: Vec<PageRun>,
}

/// Blocks that may lie between two records of one look.
const MOST_BLOCKS_BETWEEN: u32 = 4096;

impl Trace {
    /// The looks in the order of time.
    #[must_use]
    pub fn looks(&self) -> &[LookFacts] {
        &self.facts.looks
    }

    /// The look that is nearest to a moment.
    #[must_use]
    pub fn look_near(&self, t_ns: u64) -> Option<&LookFacts> {
        let looks = self.looks();
        let after = looks.partition_point(|look| look.t_ns <= t_ns);
        let candidates = [after.checked_sub(1).and_then(|at| looks.get(at)), looks.get(after)];
        candidates.into_iter().flatten().min_by_key(|look| look.t_ns.abs_diff(t_ns))
    }

    /// Reads a look.
    ///
    /// # Errors
    /// When the recording cannot be read, or the look is damaged.
    pub fn page_map(&self, look: &LookFacts) -> io::Result<PageMap> {
        let file = File::open(self.path())?;
        let mut map = PageMap { t_ns: look.t_ns, ..PageMap::default() };
        let (mut at, mut part) = (look.block_at, 0);
        for _ in 0..MOST_BLOCKS_BETWEEN {
            let (records, next) = records(&file, at, look.tick)?;
            for record in records {
                if record.part != part {
                    return Err(damaged());
                }
                part += 1;
                let last = record.last;
                map.add(record)?;
                if last {
                    return Ok(map);
                }
            }
            at = next;
        }
        Err(damaged())
    }
}

fn unzstd(stored: &[u8], len: usize, raw: &mut Vec<u8>) -> Result<(), String> {
    *raw = zstd::bulk::decompress(stored, len).map_err(|error| error.to_string())?;
    Ok(())
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a look at the page tables is damaged or incomplete")
}

/// The records of the look with that tick in the block at an offset, and the offset behind the block.
fn records(file: &File, at: u64, tick: u64) -> io::Result<(Vec<PageLook>, u64)> {
    let mut bytes = [0; BlockHeader::LEN];
    file.read_exact_at(&mut bytes, at)?;
    let header = BlockHeader::decode(&bytes).map_err(|_| damaged())?;
    let payload_at = at + BlockHeader::LEN as u64;
    let next = payload_at + u64::from(header.stored_len);
    if !matches!(header.kind, BlockKind::Meta) {
        return Ok((Vec::new(), next));
    }
    let (mut stored, mut raw) = (vec![0; header.stored_len as usize], Vec::new());
    file.read_exact_at(&mut stored, payload_at)?;
    header.open_payload(&stored, &mut raw, unzstd).map_err(|_| damaged())?;
    let mut found = Vec::new();
    for frame in Frames::new(&raw) {
        let (tag, body) = frame.map_err(|_| damaged())?;
        if let Ok(Some(Meta::PageLook(look))) = decode_body(tag, body)
            && look.tick == tick
        {
            found.push(*look);
        }
    }
    Ok((found, next))
}

impl PageMap {
    fn add(&mut self, look: PageLook) -> io::Result<()> {
        let first = self.mappings.len();
        let runs = look.page_runs().map_err(|_| damaged())?;
        self.runs.extend(runs.into_iter().map(|run| PageRun { mapping: first + run.mapping, ..run }));
        for ((start, len), mapping) in look.ranges().zip(&look.mappings) {
            let name = (mapping.name as usize).checked_sub(1).and_then(|at| look.names.get(at));
            self.mappings.push(LookedMapping {
                start,
                len,
                class: mapping.class,
                protection: mapping.protection,
                name: name.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default(),
                thread: mapping.thread,
                seen: mapping.seen,
            });
        }
        self.page_bytes = u64::from(look.page_bytes.max(1));
        (self.before, self.after) = (look.before, look.after);
        self.cgroup.extend(look.cgroup);
        Ok(())
    }

    /// The resident set by the pages that were seen.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.runs.iter().filter(|run| run.state.is_resident()).map(|run| run.len).sum()
    }
}
