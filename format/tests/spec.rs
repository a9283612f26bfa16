//! Every worked example of docs/FORMAT.md is decoded here and must say what the text says.
//!
//! Examples are fenced blocks that start with ```` ```hex NAME ````; bytes in hexadecimal, comments after `#`.

use std::collections::BTreeMap;

use tracehound_format::block::{BlockHeader, BlockKind, Codec};
use tracehound_format::columns::{Decoder, Encoder, RecordColumns};
use tracehound_format::header::FileHeader;
use tracehound_format::live::{node_from_slot, node_slot};
use tracehound_format::look;
use tracehound_format::meta::{self, Clock, ClockSource, Frames, Meta, ThreadName, decode_body, encode};
use tracehound_format::nodes::{self, Node};
use tracehound_format::record::{Kind, Record};
use tracehound_format::varint::{Reader, put, unzigzag};

fn examples() -> BTreeMap<String, Vec<u8>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FORMAT.md");
    let text = std::fs::read_to_string(path).expect("docs/FORMAT.md exists");
    let mut found = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```hex ") else { continue };
        let bytes = lines
            .by_ref()
            .take_while(|line| !line.starts_with("```"))
            .flat_map(|line| line.split('#').next().unwrap_or("").split_whitespace())
            .map(|byte| u8::from_str_radix(byte, 16).unwrap_or_else(|_| panic!("{name}: {byte} is no byte")))
            .collect();
        assert!(found.insert(name.trim().to_owned(), bytes).is_none(), "two examples are called {name}");
    }
    found
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
}

fn sample_nodes() -> [Node; 3] {
    [
        Node { parent: 0, pc: 0x401136, generation: 0 },
        Node { parent: 1, pc: 0x401150, generation: 0 },
        Node { parent: 1, pc: 0x7f0000001000, generation: 2 },
    ]
}

fn sample_events() -> RecordColumns {
    let mut columns = RecordColumns::default();
    columns.push(Record::new(Kind::Malloc, 1000, 0x5555_0000_12a0, 2, 24));
    columns.push(Record::new(Kind::Malloc, 1010, 0x5555_0000_12c0, 2, 24));
    columns.push(Record::new(Kind::Free, 1025, 0x5555_0000_12a0, 3, 0));
    columns
}

#[test]
fn every_example_says_what_the_text_says() {
    let examples = examples();
    let mut left: Vec<&str> = examples.keys().map(String::as_str).collect();
    let mut take = |name: &str| -> Vec<u8> {
        left.retain(|&other| other != name);
        examples.get(name).unwrap_or_else(|| panic!("docs/FORMAT.md has no example {name}")).clone()
    };

    let mut varint = Vec::new();
    put(&mut varint, 300);
    assert_eq!(take("varint-300"), varint);
    let mut reader = Reader::new(&[5]);
    assert_eq!(reader.next_u64().map(unzigzag), Some(-3));

    assert_eq!(FileHeader::decode(&take("file-header")), Ok(FileHeader::new(*b"0123456789abcdef")));

    let record = Record::new(Kind::Malloc, 1000, 0x5555_0000_12a0, 2, 24);
    assert_eq!(words(&take("record")), record.to_words());

    let mut payload = Vec::new();
    nodes::encode(1, &sample_nodes(), &mut payload);
    assert_eq!(take("nodes-payload"), payload);
    assert_eq!(nodes::decode(1, 3, &payload).as_deref(), Ok(&sample_nodes()[..]));

    let mut payload = Vec::new();
    Encoder::new().encode(&sample_events(), 1000, &mut payload);
    assert_eq!(take("events-payload"), payload, "{payload:02x?}");
    let mut back = RecordColumns::default();
    Decoder::new().decode(&payload, 3, 1000, &mut back).expect("the example decodes");
    assert_eq!(back, sample_events());

    let mut frames = Vec::new();
    encode(&Meta::ThreadName(ThreadName { thread: 1, tick: 5, name: b"w".to_vec() }), &mut frames).expect("it encodes");
    assert_eq!(take("meta-frame"), frames);
    let clock = take("meta-clock");
    let (tag, body) = Frames::new(&clock).next().expect("one frame").expect("a whole frame");
    let expected =
        Meta::Clock(Clock { source: ClockSource::Tsc, shift: 4, millihertz: 162_500_000_000, note: "tsc".into() });
    assert_eq!(decode_body(tag, body), Ok(Some(expected)));

    let block = take("events-block");
    let header = BlockHeader::decode(&block).expect("a block header");
    assert_eq!((header.kind, header.codec, header.thread), (BlockKind::Events, Codec::None, 1));
    assert_eq!((header.first_record, header.first_tick, header.last_tick, header.count), (0, 1000, 1025, 3));
    let mut raw = Vec::new();
    header.open_payload(&block[BlockHeader::LEN..], &mut raw, |_, _, _| Err("no zstd".into())).expect("it opens");
    assert_eq!(raw, payload);

    let slot = take("node-slot");
    let node = sample_nodes()[2];
    assert_eq!(words(&slot), node_slot(node));
    assert_eq!(node_from_slot([words(&slot)[0], words(&slot)[1]]), Some(node));

    assert_eq!(left, [""; 0], "examples that no test decodes");
}

/// The rows of the table below each heading of level four: first and second column.
fn tables() -> BTreeMap<String, Vec<(String, String)>> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FORMAT.md")).expect("it exists");
    let mut found = BTreeMap::<String, Vec<(String, String)>>::new();
    let mut heading = None;
    for line in text.lines() {
        if line.starts_with('#') {
            heading = line.strip_prefix("#### ").map(str::to_owned);
        } else if let (Some(heading), Some(row)) = (&heading, line.strip_prefix("| ")) {
            let mut cells = row.split(" | ").map(|cell| cell.trim_matches(['`', ' ', '|']).to_owned());
            let row = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
            found.entry(heading.clone()).or_default().push(row);
        }
    }
    for rows in found.values_mut() {
        rows.remove(0);
    }
    found
}

fn owned<T: std::fmt::Display>(rows: Vec<(&'static str, T)>) -> Vec<(String, String)> {
    rows.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
}

fn numbered(variants: Vec<(&'static str, u32)>) -> Vec<(String, String)> {
    variants.into_iter().map(|(name, number)| (number.to_string(), name.to_owned())).collect()
}

#[test]
fn every_metadata_record_is_specified_field_by_field() {
    let mut tables = tables();
    let mut take = |heading: &str| tables.remove(heading).unwrap_or_else(|| panic!("docs/FORMAT.md lacks {heading}"));
    for (tag, name, fields) in meta::records() {
        assert_eq!(take(&format!("{tag} {name}")), owned(fields), "{name}");
    }
    assert_eq!(take("Segment, inside other records"), owned(meta::Segment::fields()));
    assert_eq!(take("MemoryPart, inside other records"), owned(meta::MemoryPart::fields()));
    assert_eq!(take("ClockSource, inside other records"), numbered(meta::ClockSource::variants()));
    assert_eq!(take("EndReason, inside other records"), numbered(meta::EndReason::variants()));
    assert_eq!(take("LookMapping, inside other records"), owned(look::LookMapping::fields()));
    assert_eq!(take("KernelCounters, inside other records"), owned(look::KernelCounters::fields()));
    assert_eq!(take("LookReason, inside other records"), numbered(look::LookReason::variants()));
    assert_eq!(take("MappingClass, inside other records"), numbered(look::MappingClass::variants()));
    assert!(tables.is_empty(), "tables of records that do not exist: {:?}", tables.keys());
}
