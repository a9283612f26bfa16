//! Frames of metadata records: tag, length, body. The bytes are pinned by tests.

use crate::meta::Meta;
use crate::wire::{Input, Wire};
use crate::{FormatError, Result};

/// Bytes that a record may have.
const LIMIT: usize = 16 << 20;
const FRAME_HEADER: usize = 6;

macro_rules! records {
    ($($tag:literal => $variant:ident),* $(,)?) => {
        /// Appends `meta` as one frame. A record over the size limit is refused.
        ///
        /// # Errors
        /// When the record is over the limit.
        pub fn encode(meta: &Meta, out: &mut Vec<u8>) -> Result<()> {
            match meta { $(Meta::$variant(record) => put($tag, record, out),)* }
        }

        /// Reads the body of a frame; `None` for a tag that this version does not know.
        ///
        /// # Errors
        /// When the body is malformed or has bytes left over.
        pub fn decode_body(tag: u16, body: &[u8]) -> Result<Option<Meta>> {
            Ok(Some(match tag {
                $($tag => Meta::$variant(get(body)?),)*
                _ => return Ok(None),
            }))
        }

        /// All records by tag: tag, name, and the names and types of the fields, as docs/FORMAT.md lists them.
        #[must_use]
        pub fn records() -> Vec<(u16, &'static str, Vec<(&'static str, String)>)> {
            vec![$(($tag, stringify!($variant), crate::meta::$variant::fields())),*]
        }
    };
}

records! {
    1 => Process, 2 => Clock, 3 => ClockSample, 4 => ModuleLoad, 5 => ModuleUnload, 6 => ThreadStart, 7 => ThreadName,
    8 => ThreadEnd, 9 => MemorySample, 10 => Mark, 11 => Watermark, 12 => Statistics, 13 => Remark, 14 => End,
    15 => Directory, 16 => MemoryDetail, 17 => RecorderMemory, 18 => StackCounts, 19 => GaveUp, 20 => Forked,
    21 => ForkedFrom, 22 => PageLook, 30 => ContextName, 31 => Code, 32 => Attached,
    33 => GeneratedCode,
}

fn put<T: Wire>(tag: u16, record: &T, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&tag.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    record.put(out);
    let len = out.len() - start - FRAME_HEADER;
    if len > LIMIT {
        out.truncate(start);
        return Err(FormatError::malformed("a metadata record", format!("it has {len} bytes")));
    }
    if let Some(place) = out.get_mut(start + 2..start + FRAME_HEADER) {
        place.copy_from_slice(&(len as u32).to_le_bytes());
    }
    Ok(())
}

fn get<T: Wire>(body: &[u8]) -> Result<T> {
    if body.len() > LIMIT {
        return Err(FormatError::malformed("a metadata record", format!("it has {} bytes", body.len())));
    }
    let mut input = Input::new(body);
    let record = T::get(&mut input)?;
    if input.len() == 0 {
        Ok(record)
    } else {
        Err(FormatError::malformed("a metadata record", format!("{} bytes are left over", input.len())))
    }
}

/// Walks the frames of a meta block's payload: `(tag, body)`.
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Starts at the front of `payload`.
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<(u16, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let cut = |needed, have| FormatError::Truncated { what: "a metadata record", needed, have };
        let Some((head, tail)) = self.rest.split_at_checked(FRAME_HEADER) else {
            let have = self.rest.len();
            self.rest = &[];
            return Some(Err(cut(FRAME_HEADER, have)));
        };
        let tag = u16::from_le_bytes([head[0], head[1]]);
        let len = u32::from_le_bytes([head[2], head[3], head[4], head[5]]) as usize;
        let Some((body, rest)) = tail.split_at_checked(len) else {
            self.rest = &[];
            return Some(Err(cut(len, tail.len())));
        };
        self.rest = rest;
        Some(Ok((tag, body)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::{KernelCounters, LookMapping, LookReason, MappingClass};
    use crate::meta::*;
    use proptest::prelude::*;

    fn bytes_of(meta: &Meta) -> Vec<u8> {
        let mut out = Vec::new();
        encode(meta, &mut out).unwrap();
        out
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
    }

    /// One of each kind with its exact bytes: what a released version wrote must stay readable for ever.
    fn golden() -> Vec<(Meta, &'static str)> {
        vec![
            (
                Meta::Process(Process {
                    pid: 300,
                    parent_pid: 1,
                    executable: b"/bin/a".to_vec(),
                    arguments: vec![b"a".to_vec(), b"-v".to_vec()],
                    directory: b"/".to_vec(),
                    started_unix_ns: 1_700_000_000_000_000_000,
                    started_tick: 70_000,
                    page_bytes: 4096,
                    recorder: "0.1.0".into(),
                    options: vec!["X=1".into()],
                    forked_from: None,
                }),
                "01 00 30 00 00 00 fb 2c 01 01 06 2f 62 69 6e 2f 61 02 01 61 02 2d 76 01 2f fd 00 00 2a 36 fe 9c 97 17 \
                 fc 70 11 01 00 fb 00 10 05 30 2e 31 2e 30 01 03 58 3d 31 00",
            ),
            (
                Meta::Clock(Clock {
                    source: ClockSource::Tsc,
                    shift: 4,
                    millihertz: 162_500_000_000,
                    note: "tsc".into(),
                }),
                "02 00 0f 00 00 00 00 04 fd 00 39 c1 d5 25 00 00 00 03 74 73 63",
            ),
            (
                Meta::ClockSample(ClockSample { tick: 1, monotonic_ns: 2, realtime_ns: 251 }),
                "03 00 05 00 00 00 01 02 fb fb 00",
            ),
            (
                Meta::ModuleLoad(ModuleLoad {
                    id: 0,
                    tick: 9,
                    path: b"/lib/x".to_vec(),
                    build_id: vec![0xab, 0xcd],
                    bias: 0x1000,
                    segments: vec![Segment { start: 0x1000, len: 16, vaddr: 0, file_offset: 0, flags: 5 }],
                    generation: 0,
                }),
                "04 00 18 00 00 00 00 09 06 2f 6c 69 62 2f 78 02 ab cd fb 00 10 01 fb 00 10 10 00 00 05 00",
            ),
            (Meta::ModuleUnload(ModuleUnload { id: 4, tick: 250 }), "05 00 02 00 00 00 04 fa"),
            (
                Meta::ThreadStart(ThreadStart { thread: 1, os_thread: 300, tick: 5, name: b"main".to_vec() }),
                "06 00 0a 00 00 00 01 fb 2c 01 05 04 6d 61 69 6e",
            ),
            (Meta::ThreadName(ThreadName { thread: 1, tick: 5, name: b"w".to_vec() }), "07 00 04 00 00 00 01 05 01 77"),
            (Meta::ThreadEnd(ThreadEnd { thread: 1, tick: 5 }), "08 00 02 00 00 00 01 05"),
            (
                Meta::MemorySample(MemorySample {
                    tick: 1,
                    rss: 2,
                    rss_anonymous: 3,
                    rss_shared: 4,
                    virtual_size: 5,
                    recorder: 6,
                }),
                "09 00 06 00 00 00 01 02 03 04 05 06",
            ),
            (
                Meta::Mark(Mark { ordinal: 0, thread: 1, tick: 2, label: b"warm".to_vec() }),
                "0a 00 08 00 00 00 00 01 02 04 77 61 72 6d",
            ),
            (Meta::Watermark(Watermark { tick: 255 }), "0b 00 03 00 00 00 fb ff 00"),
            (
                Meta::Statistics(Statistics { tick: 1, records: 2, ..Statistics::default() }),
                "0c 00 0c 00 00 00 01 02 00 00 00 00 00 00 00 00 00 00",
            ),
            (
                Meta::Remark(Remark { tick: 1, topic: "t".into(), text: "x y".into() }),
                "0d 00 07 00 00 00 01 01 74 03 78 20 79",
            ),
            (
                Meta::End(End { reason: EndReason::Exit, tick: 1, statistics: Statistics::default(), error: None }),
                "0e 00 0f 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00",
            ),
            (Meta::Directory(Directory { offsets: vec![64, 200] }), "0f 00 03 00 00 00 02 40 c8"),
            (
                Meta::MemoryDetail(MemoryDetail {
                    tick: 1,
                    rss: 2,
                    pss: 3,
                    shared_clean: 4,
                    shared_dirty: 5,
                    private_clean: 6,
                    private_dirty: 7,
                    anonymous: 8,
                    lazy_free: 9,
                    anonymous_huge: 10,
                    swap: 11,
                    locked: 251,
                }),
                "10 00 0e 00 00 00 01 02 03 04 05 06 07 08 09 0a 0b fb fb 00",
            ),
            (
                Meta::RecorderMemory(RecorderMemory {
                    tick: 1,
                    parts: vec![MemoryPart { name: "w".into(), bytes: 2, limit: 3 }],
                }),
                "11 00 06 00 00 00 01 01 01 77 02 03",
            ),
            (
                Meta::StackCounts(StackCounts {
                    tick: 1,
                    paths: 2,
                    chains: 3,
                    cfi: 4,
                    general: 5,
                    frame_chain: 6,
                    libunwind: 7,
                    nested: 8,
                    missing: 9,
                    registered: 10,
                    frame_pointers: 11,
                    heuristic: 12,
                    truncated: 13,
                }),
                "12 00 0d 00 00 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d",
            ),
            (
                Meta::GaveUp(GaveUp {
                    tick: 1,
                    what: "w".into(),
                    waited_ns: 2,
                    threads: 3,
                    missing: 4,
                    uncertain: true,
                }),
                "13 00 07 00 00 00 01 01 77 02 03 04 01",
            ),
            (Meta::Forked(Forked { tick: 1, after: 2, child: 300 }), "14 00 05 00 00 00 01 02 fb 2c 01"),
            (
                Meta::ForkedFrom(ForkedFrom {
                    recording_id: [0xab; 16],
                    path: b"/m".to_vec(),
                    tick: 300,
                    nodes: 2,
                    recording: true,
                }),
                "15 00 18 00 00 00 ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab 02 2f 6d fb 2c 01 02 01",
            ),
            (
                Meta::PageLook(Box::new(PageLook {
                    tick: 1,
                    until: 2,
                    reason: LookReason::Asked,
                    label: b"l".to_vec(),
                    part: 0,
                    last: true,
                    page_bytes: 4096,
                    before: KernelCounters { anonymous: 1, file: 2, shared: 3, swap: 4, page_tables: 5 },
                    after: KernelCounters::default(),
                    cgroup: vec![("current".into(), 9)],
                    names: vec![b"[heap]".to_vec()],
                    mappings: vec![LookMapping {
                        gap: 300,
                        pages: 2,
                        class: MappingClass::Break,
                        protection: 3,
                        name: 1,
                        thread: 0,
                        seen: true,
                    }],
                    runs: vec![2 << 3 | 1],
                })),
                "16 00 32 00 00 00 01 02 02 01 6c 00 01 fb 00 10 01 02 03 04 05 00 00 00 00 00 01 07 63 75 72 72 65 6e \
                 74 09 01 06 5b 68 65 61 70 5d 01 fb 2c 01 02 01 03 01 00 01 01 11",
            ),
            (
                Meta::ContextName(ContextName { id: 300, tick: 5, name: b"GET /".to_vec() }),
                "1e 00 0a 00 00 00 fb 2c 01 05 05 47 45 54 20 2f",
            ),
            (
                Meta::Code(Code {
                    address: 1 << 60,
                    len: 4,
                    language: "python".into(),
                    function: b"C.f".to_vec(),
                    file: b"a.py".to_vec(),
                    first_line: 7,
                    lines: vec![1, 2],
                }),
                "1f 00 1e 00 00 00 fd 00 00 00 00 00 00 00 10 04 06 70 79 74 68 6f 6e 03 43 2e 66 04 61 2e 70 79 07 02 \
                 01 02",
            ),
            (Meta::Attached(Attached { tick: 300 }), "20 00 03 00 00 00 fb 2c 01"),
            (
                Meta::GeneratedCode(GeneratedCode {
                    from_ns: 300,
                    within_ns: 5,
                    start: 4096,
                    len: 16,
                    name: b"JS:f".to_vec(),
                }),
                "21 00 0d 00 00 00 fb 2c 01 05 fb 00 10 10 04 4a 53 3a 66",
            ),
        ]
    }

    #[test]
    fn bytes_are_pinned() {
        for (meta, expected) in golden() {
            let bytes = bytes_of(&meta);
            assert_eq!(hex(&bytes), expected.split_whitespace().collect::<Vec<_>>().join(" "), "{meta:?}");
            let (tag, body) = Frames::new(&bytes).next().unwrap().unwrap();
            assert_eq!(decode_body(tag, body).unwrap(), Some(meta));
        }
    }

    #[test]
    fn unknown_tags_are_told_apart() {
        assert_eq!(decode_body(999, &[1, 2, 3]), Ok(None));
    }

    #[test]
    fn a_hostile_length_is_an_error_and_reserves_nothing() {
        // A thread name that claims 2^62 bytes.
        let body = [1, 5, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0x40];
        assert!(decode_body(7, &body).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(tag in 0_u16..40, bytes: Vec<u8>) {
            let _ = decode_body(tag, &bytes);
            for frame in Frames::new(&bytes) { let _ = frame; }
        }
    }
}
