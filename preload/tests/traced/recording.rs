//! Reads a recording strictly: every block must decode, be numbered without gaps, and come after the nodes that it
//! uses. Merges the side file of a killed process.

use std::collections::HashMap;
use std::path::Path;

use tracehound_format::block::{BlockHeader, BlockKind};
use tracehound_format::columns::{Decoder, RecordColumns};
use tracehound_format::header::FileHeader;
use tracehound_format::live::{self, LiveHeader};
use tracehound_format::meta::{self, End, Meta};
use tracehound_format::nodes::{self, Node};
use tracehound_format::record::{Kind, Record};

/// Everything in a recording.
#[derive(Default)]
pub struct Recording {
    /// The side file's or the file header's id.
    pub id: [u8; 16],
    /// Records with their threads, by tick.
    pub events: Vec<(u32, Record)>,
    /// Records of what had been mapped before recording began.
    pub existing: Vec<Record>,
    /// All metadata records in file order.
    pub metas: Vec<Meta>,
    /// Call-tree nodes.
    pub nodes: HashMap<u32, Node>,
    /// The end block's record, if there is one.
    pub end: Option<End>,
    next_record: HashMap<u32, u64>,
}

/// Sums over a recording's heap events.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Heap {
    /// Blocks allocated, and their bytes.
    pub allocs: (u64, u64),
    /// Blocks that were freed, reallocs included.
    pub frees: u64,
    /// Blocks alive at the end, and their bytes.
    pub live: (u64, u64),
    /// Frees of blocks that were not alive.
    pub unmatched: u64,
}

impl Recording {
    /// Reads the recording at `path` and, if it is there, its side file.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut recording =
            Self { id: FileHeader::decode(&bytes).expect("a file header").recording_id, ..Self::default() };
        let watermark = recording.blocks(&bytes[FileHeader::LEN..]);
        let mut side = path.as_os_str().to_owned();
        side.push(".live");
        if let Ok(side) = std::fs::read(side) {
            assert!(recording.end.is_none(), "a finished recording leaves no side file");
            recording.merge(&side);
        }
        let late = recording.events.iter().filter(|(_, record)| record.tick < recording.started_tick()).count();
        assert_eq!(late, 0, "records from before the start");
        assert!(watermark <= recording.events.iter().map(|(_, r)| r.tick).max().unwrap_or(u64::MAX).max(watermark));
        recording.set_existing_aside();
        recording.events.sort_by_key(|(_, record)| record.tick);
        recording
    }

    /// What was there before is no event, and the thread under which it is listed is none if it did nothing else.
    fn set_existing_aside(&mut self) {
        let mut high = None;
        let mut events = Vec::with_capacity(self.events.len());
        for (thread, record) in self.events.drain(..) {
            if record.kind == Kind::MapExisting as u8 {
                self.existing.extend(high.take());
                self.existing.push(record);
                continue;
            }
            events.extend(high.take().map(|record| (0, record)));
            if thread == 0 && record.kind == Kind::SizeHigh as u8 {
                high = Some(record);
            } else {
                events.push((thread, record));
            }
        }
        events.extend(high.map(|record| (0, record)));
        self.events = events;
        if self.events.iter().all(|&(thread, _)| thread != 0) {
            self.next_record.remove(&0);
        }
    }

    fn blocks(&mut self, mut rest: &[u8]) -> u64 {
        let (mut decoder, mut columns, mut raw) = (Decoder::new(), RecordColumns::default(), Vec::new());
        let (mut number, mut watermark) = (0, 0);
        while let Ok(header) = BlockHeader::decode(rest) {
            assert_eq!(header.block_number, number);
            number += 1;
            let Some(stored) = rest.get(BlockHeader::LEN..BlockHeader::LEN + header.stored_len as usize) else { break };
            rest = &rest[BlockHeader::LEN + stored.len()..];
            let zstd = |stored: &[u8], len: usize, raw: &mut Vec<u8>| {
                *raw = zstd::bulk::decompress(stored, len).map_err(|e| e.to_string())?;
                Ok(())
            };
            header.open_payload(stored, &mut raw, zstd).expect("an intact payload");
            match header.kind {
                BlockKind::Meta | BlockKind::End => {
                    for frame in meta::Frames::new(&raw) {
                        let (tag, body) = frame.expect("a frame");
                        let meta = meta::decode_body(tag, body).expect("a body").expect("a known tag");
                        match &meta {
                            Meta::Watermark(mark) => {
                                assert!(mark.tick > watermark, "watermarks grow");
                                watermark = mark.tick;
                            }
                            Meta::End(end) => self.end = Some(end.clone()),
                            _ => {}
                        }
                        self.metas.push(meta);
                    }
                }
                BlockKind::Nodes => {
                    let first = header.first_record as u32;
                    let nodes = nodes::decode(first, header.count, &raw).expect("nodes");
                    self.nodes.extend(nodes.into_iter().zip(first..).map(|(node, id)| (id, node)));
                }
                BlockKind::Events => {
                    decoder.decode(&raw, header.count, header.first_tick, &mut columns).expect("events");
                    let next = self.next_record.entry(header.thread).or_default();
                    assert_eq!(*next, header.first_record, "a gap in thread {}", header.thread);
                    *next += u64::from(header.count);
                    for i in 0..columns.len() {
                        let record = columns.get(i).expect("in range");
                        assert!(
                            record.tick > watermark,
                            "a record of thread {} that watermark {watermark} said was written: {record:?}, {}",
                            header.thread,
                            self.history(),
                        );
                        self.push(header.thread, record);
                    }
                }
                BlockKind::Names => panic!("a recorder writes no names"),
                BlockKind::Unknown(kind) => panic!("block kind {kind}"),
            }
            if header.kind == BlockKind::End {
                assert!(rest.is_empty(), "{} bytes behind the end", rest.len());
            }
        }
        watermark
    }

    /// What was read so far, in a few words.
    fn history(&self) -> String {
        let marks = self.metas.iter().filter(|meta| matches!(meta, Meta::Watermark(_))).count();
        let process = self.metas.iter().find(|meta| matches!(meta, Meta::Process(_)));
        let (last, count) = (self.events.iter().rev().take(3).collect::<Vec<_>>(), self.events.len());
        format!("after {marks} watermarks and {count} records, the last {last:?}, of {process:?}")
    }

    fn push(&mut self, thread: u32, record: Record) {
        assert!(record.node == 0 || self.nodes.contains_key(&record.node), "no node for {record:?}");
        self.events.push((thread, record));
    }

    fn merge(&mut self, side: &[u8]) {
        let header = LiveHeader::decode(side, side.len() as u64).expect("a side file");
        assert_eq!(header.recording_id, self.id);
        assert!(!header.finished);
        let words = |at: usize| u64::from_le_bytes(side[at..at + 8].try_into().unwrap());
        for id in 1..header.nodes_capacity {
            let at = header.nodes_offset as usize + id as usize * live::NODE_SLOT_BYTES;
            if let Some(node) = live::node_from_slot([words(at), words(at + 8)]) {
                self.nodes.entry(id as u32).or_insert(node);
            }
        }
        let mut chunks: Vec<(u32, u64, usize)> = (0..header.chunk_count as usize)
            .map(|i| header.chunks_offset as usize + i * header.chunk_bytes as usize)
            .filter(|&at| words(at) as u32 != 0)
            .map(|at| (words(at + live::chunk_offset::THREAD) as u32, words(at + live::chunk_offset::FIRST_RECORD), at))
            .collect();
        chunks.sort_unstable();
        for (thread, first, at) in chunks {
            let room = (header.chunk_bytes as usize - live::CHUNK_HEADER_BYTES) / 24;
            let records: Vec<Record> = (0..room)
                .map(|i| at + live::CHUNK_HEADER_BYTES + i * 24)
                .map_while(|at| Record::from_words([words(at), words(at + 8), words(at + 16)]))
                .collect();
            let have = self.next_record.get(&thread).copied().unwrap_or(0);
            assert!(have >= first || records.is_empty(), "a gap before a chunk of thread {thread}: {have} {first}");
            for record in records.into_iter().skip((have - first.min(have)) as usize) {
                *self.next_record.entry(thread).or_default() += 1;
                self.push(thread, record);
            }
        }
    }

    /// Time 0.
    pub fn started_tick(&self) -> u64 {
        match self.metas.first() {
            Some(Meta::Process(process)) => process.started_tick,
            Some(other) => panic!("the first record is {other:?}"),
            None => 0,
        }
    }

    /// How often events of a kind were recorded.
    pub fn count(&self, kind: Kind) -> usize {
        self.events.iter().filter(|(_, record)| record.kind == kind as u8).count()
    }

    /// Threads that made an event.
    pub fn threads(&self) -> usize {
        self.next_record.len()
    }

    /// Allocations, frees and what is left, in the order of the ticks.
    pub fn heap(&self) -> Heap {
        self.heap_without(None)
    }

    /// The same without blocks that were allocated as `left_out`, such as the loader's for new threads, which are
    /// `calloc`s.
    pub fn heap_without(&self, left_out: Option<Kind>) -> Heap {
        self.heap_from(HashMap::new(), left_out, u64::MAX).0
    }

    /// Blocks, by address with their sizes, that were alive when `tick` was over.
    pub fn live_at(&self, tick: u64) -> HashMap<u64, u64> {
        self.heap_from(HashMap::new(), None, tick).1
    }

    /// Allocations, frees and what is left, where these blocks were inherited.
    pub fn heap_with(&self, inherited: HashMap<u64, u64>) -> Heap {
        self.heap_from(inherited, None, u64::MAX).0
    }

    fn heap_from(&self, inherited: HashMap<u64, u64>, left_out: Option<Kind>, until: u64) -> (Heap, HashMap<u64, u64>) {
        let (mut heap, mut live, mut high) = (Heap::default(), inherited, 0_u64);
        let mut others = std::collections::HashSet::new();
        for (_, record) in self.events.iter().take_while(|(_, record)| record.tick <= until) {
            let Some(kind) = Kind::from_u8(record.kind) else { continue };
            if kind == Kind::SizeHigh {
                high = record.address << 32;
                continue;
            }
            let size = high | u64::from(record.size);
            high = 0;
            if Some(kind) == left_out {
                others.insert(record.address);
            } else if (kind.is_free() || kind.is_realloc_from()) && others.remove(&record.address) {
            } else if kind.is_alloc() || kind.is_realloc_to() {
                heap.allocs = (heap.allocs.0 + 1, heap.allocs.1 + size);
                live.insert(record.address, size);
            } else if kind.is_free() || kind.is_realloc_from() {
                heap.frees += 1;
                heap.unmatched += u64::from(live.remove(&record.address).is_none());
            }
        }
        heap.live = (live.len() as u64, live.values().sum());
        (heap, live)
    }

    /// Return addresses of a record's stack, innermost first.
    pub fn stack(&self, record: &Record) -> Vec<u64> {
        let mut stack = Vec::new();
        let mut id = record.node;
        while let Some(node) = self.nodes.get(&id) {
            stack.push(node.pc);
            id = node.parent;
        }
        stack
    }
}
