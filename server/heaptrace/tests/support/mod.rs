//! Recordings made by hand, and a server to ask about them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tracehound_format::block::{BlockHeader, BlockKind, Codec};
use tracehound_format::columns::{Encoder, RecordColumns};
use tracehound_format::header::FileHeader;
use tracehound_format::meta::{
    Clock, ClockSource, Directory, End, EndReason, Meta, ModuleLoad, Process, Segment, Statistics, ThreadStart, encode,
};
use tracehound_format::nodes::{self, Node};
use tracehound_format::record::{Kind, Record};

/// A recording being put together: one thread, ticks are nanoseconds.
pub struct Maker {
    bytes: Vec<u8>,
    offsets: Vec<u64>,
    modules: Vec<ModuleLoad>,
    nodes: Vec<Node>,
    events: RecordColumns,
    /// Blocks of events before `events`.
    full: Vec<RecordColumns>,
    options: Vec<String>,
}

/// When it begins, in ticks: events' times are counted from here.
const START: u64 = 1_000_000;

impl Maker {
    /// An empty recording.
    pub fn new() -> Self {
        Self {
            bytes: FileHeader::new([9; 16]).encode().to_vec(),
            offsets: Vec::new(),
            modules: Vec::new(),
            nodes: Vec::new(),
            events: RecordColumns::default(),
            full: Vec::new(),
            options: Vec::new(),
        }
    }

    /// A module whose code is mapped where its file says, moved by `bias`.
    pub fn module(&mut self, path: &str, build_id: &[u8], bias: u64, segments: Vec<Segment>) {
        let id = self.modules.len() as u32;
        let (path, build_id) = (path.into(), build_id.to_vec());
        self.modules.push(ModuleLoad { id, tick: START, path, build_id, bias, segments, generation: 0 });
    }

    /// A call-tree node; returns its id.
    pub fn node(&mut self, parent: u32, pc: u64) -> u32 {
        self.nodes.push(Node { parent, pc, generation: 0 });
        self.nodes.len() as u32
    }

    /// An event, `at` nanoseconds after the start.
    pub fn event(&mut self, kind: Kind, at: u64, address: u64, node: u32, size: u32) {
        self.events.push(Record::new(kind, START + at, address, node, size));
    }

    /// Ends a block of the file: what follows is in the next one.
    pub fn end_block(&mut self) {
        self.full.push(std::mem::take(&mut self.events));
    }

    fn block(
        &mut self,
        kind: BlockKind,
        thread: u32,
        first_record: u64,
        count: u32,
        ticks: (u64, u64),
        payload: &[u8],
    ) {
        self.offsets.push(self.bytes.len() as u64);
        let header = BlockHeader {
            kind,
            codec: Codec::None,
            thread,
            block_number: self.offsets.len() as u32 - 1,
            first_record,
            first_tick: ticks.0,
            last_tick: ticks.1,
            count,
            raw_len: payload.len() as u32,
            stored_len: payload.len() as u32,
            payload_crc: crc32fast::hash(payload),
        };
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(payload);
    }

    /// Writes the recording, which lasts `duration` nanoseconds.
    pub fn write(mut self, path: &Path, duration: u64) {
        let process = Process {
            pid: 4711,
            parent_pid: 1,
            executable: b"/opt/app".to_vec(),
            arguments: vec![b"app".to_vec(), b"--port".to_vec(), b"80".to_vec()],
            directory: b"/".to_vec(),
            started_unix_ns: 1_700_000_000_000_000_000,
            started_tick: START,
            page_bytes: 4096,
            recorder: "0.1.0".into(),
            options: self.options.clone(),
            forked_from: None,
        };
        let clock =
            Clock { source: ClockSource::Monotonic, shift: 0, millihertz: 1_000_000_000_000, note: String::new() };
        let thread = ThreadStart { thread: 1, os_thread: 4711, tick: START, name: b"app".to_vec() };
        let mut metas = vec![Meta::Process(process), Meta::Clock(clock), Meta::ThreadStart(thread)];
        metas.extend(self.modules.iter().cloned().map(Meta::ModuleLoad));
        let mut payload = Vec::new();
        metas.iter().for_each(|meta| encode(meta, &mut payload).unwrap());
        self.block(BlockKind::Meta, 0, 0, metas.len() as u32, (START, START), &payload);

        let all_nodes = std::mem::take(&mut self.nodes);
        payload.clear();
        nodes::encode(1, &all_nodes, &mut payload);
        self.block(BlockKind::Nodes, 0, 1, all_nodes.len() as u32, (START, START), &payload);
        self.end_block();
        let mut records = 0;
        for events in std::mem::take(&mut self.full) {
            let oldest = events.ticks.iter().copied().min().unwrap_or(START);
            let newest = events.ticks.iter().copied().max().unwrap_or(START);
            payload.clear();
            Encoder::new().encode(&events, oldest, &mut payload);
            self.block(BlockKind::Events, 1, records, events.kinds.len() as u32, (oldest, newest), &payload);
            records += events.kinds.len() as u64;
        }

        let statistics =
            Statistics { tick: START + duration, records, nodes: all_nodes.len() as u64, ..Statistics::default() };
        let end = End { reason: EndReason::Exit, tick: START + duration, statistics, error: None };
        let mut offsets = self.offsets.clone();
        offsets.push(self.bytes.len() as u64);
        let differences = offsets.iter().scan(0, |last, &offset| Some(offset - std::mem::replace(last, offset)));
        let directory = Directory { offsets: differences.collect() };
        payload.clear();
        encode(&Meta::End(end), &mut payload).unwrap();
        encode(&Meta::Directory(directory), &mut payload).unwrap();
        self.block(BlockKind::End, 0, 0, 2, (START + duration, START + duration), &payload);
        std::fs::write(path, &self.bytes).unwrap();
    }
}

/// A small recording with everything: 100 blocks of 64 bytes by one site, of which 90 are freed; a realloc; a mapping;
/// a module that is not on this machine; one address in no module. Lasts a millisecond.
pub fn sample(path: &Path) {
    let mut maker = Maker::new();
    let segment = Segment { start: 0x40_0000, len: 0x1_0000, vaddr: 0, file_offset: 0, flags: 5 };
    maker.module("/opt/missing/app", &[0xab; 20], 0x40_0000, vec![segment]);
    let main = maker.node(0, 0x40_1000);
    let work = maker.node(main, 0x40_2000);
    let odd = maker.node(main, 0x7000_0000_1234);
    for i in 0..100 {
        maker.event(Kind::Malloc, 1000 + i * 10, 0x10_0000 + i * 64, work, 64);
    }
    for i in 0..90 {
        maker.event(Kind::Free, 5000 + i * 10, 0x10_0000 + i * 64, main, 0);
    }
    maker.event(Kind::Malloc, 10_000, 0x20_0000, odd, 1000);
    maker.event(Kind::ReallocFrom, 11_000, 0x20_0000, odd, 0);
    maker.event(Kind::ReallocTo, 11_010, 0x30_0000, odd, 5000);
    maker.event(Kind::Mmap, 12_000, 0x7f00_0000_0000, work, 8192);
    maker.event(Kind::Munmap, 13_000, 0x7f00_0000_0000, work, 8192);
    maker.write(path, 1_000_000);
}

/// A folder with `app.dat`, the sample.
pub fn folder_with_sample() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    sample(&folder.path().join("app.dat"));
    folder
}

/// `heaptrace` with arguments, to its end, in a folder; without colours and without variables of the recorder.
pub fn heaptrace(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heaptrace"));
    command
        .current_dir(folder)
        .args(arguments)
        .env_remove("HEAPTRACE_TOKEN")
        .env("XDG_CACHE_HOME", folder.join("cache"));
    command
}

/// A running `heaptrace server`.
pub struct Server {
    child: Child,
    /// What it printed: `http://127.0.0.1:PORT/`, with the token if there is one.
    pub url: String,
    /// `127.0.0.1:PORT`.
    pub host: String,
}

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Server {
    /// Starts one on a free port and waits for its first line.
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        let arguments = [&["server"], arguments].concat();
        let mut child = command(folder, &arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect(&line).to_owned();
        let host = url["http://".len()..].split('/').next().unwrap().to_owned();
        Self { child, url, host }
    }

    /// One request over a connection of its own. `Host` and `Connection` are added unless given.
    pub fn request(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut request = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request.push_str(&format!("Host: {}\r\n", self.host));
        }
        headers.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
        stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        parse(&bytes)
    }

    pub fn get(&self, target: &str) -> Answer {
        self.request("GET", target, &[])
    }

    /// A JSON document that must be there.
    pub fn json(&self, target: &str) -> Value {
        let answer = self.get(target);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        answer.json()
    }

    /// Asks it to end by a signal, and returns how it did.
    pub fn stop(mut self, signal: i32) -> std::process::ExitStatus {
        // SAFETY: kill(2) takes no pointers, and the child has not been waited for.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("an answer has a head");
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok()).unwrap();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut body = bytes[end + 4..].to_vec();
    if headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
        body = unchunk(&body);
    }
    Answer { status, headers, body }
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap().trim(), 16).unwrap();
        if len == 0 {
            break;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + len]);
        rest = &rest[end + 2 + len + 2..];
    }
    body
}

/// Path of a file of the source tree.
pub fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
