//! Labels of a process: service, version, host, and the others of `TRACEHOUND_LABELS`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tracehound_format::block::{BlockHeader, BlockKind};
use tracehound_format::header::FileHeader;
use tracehound_format::meta::{self, Meta, Process};

/// `heaptrace.collected/1`: what is known of a recording in a store, beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// `heaptrace.collected/1`.
    pub schema: String,
    /// Its id, 32 hexadecimal digits.
    pub recording: String,
    /// Label `service`; else the program's name.
    pub service: String,
    /// Label `version`; else `unknown`.
    pub version: String,
    /// Host that it was collected on.
    pub host: String,
    /// Control group of the process, empty if it was gone.
    pub cgroup: String,
    /// `TRACEHOUND_LABELS`, and below them what the process published (`OTEL_CTX`).
    pub labels: BTreeMap<String, String>,
    /// Path of the program.
    pub executable: String,
    /// Process id, as the process saw it.
    pub pid: u32,
    /// When recording began, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// What its file was called.
    pub file: String,
    /// Length of the recording in the store.
    pub bytes: u64,
}

/// Most bytes of the front of a recording that are looked through.
pub const FRONT: u64 = 64 << 10;

/// The record of the process, which is the first of every recording; `None` if it is not there.
///
/// # Errors
/// When the file cannot be read.
pub fn process_of(file: &File) -> io::Result<Option<Process>> {
    let len = file.metadata()?.len().min(FRONT);
    let mut front = vec![0; len as usize];
    file.read_exact_at(&mut front, 0)?;
    let Some(rest) = front.get(FileHeader::LEN..) else { return Ok(None) };
    let Ok(header) = BlockHeader::decode(rest) else { return Ok(None) };
    let stored = rest.get(BlockHeader::LEN..BlockHeader::LEN + header.stored_len as usize);
    let (BlockKind::Meta, Some(stored)) = (header.kind, stored) else { return Ok(None) };
    let mut raw = Vec::new();
    // The first block is small and never compressed by zstd alone: what cannot be opened here has no labels.
    if header.open_payload(stored, &mut raw, tracehound_index::payload::unzstd).is_err() {
        return Ok(None);
    }
    let (Some(tag), Some(size)) = (raw.get(..2), raw.get(2..6)) else { return Ok(None) };
    let tag = u16::from_le_bytes([tag[0], tag[1]]);
    let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
    let body = raw.get(6..6 + size).and_then(|body| meta::decode_body(tag, body).ok().flatten());
    Ok(match body {
        Some(Meta::Process(process)) => Some(process),
        _ => None,
    })
}

/// What is known of a recording whose process is, or was, on this host.
///
/// `process` has its id in the namespace of the reader, if it runs.
pub fn describe(id: &str, path: &Path, process: Option<(&Process, Option<u32>)>) -> Collected {
    let running = process.and_then(|(_, running)| running);
    let process = process.map(|(process, _)| process);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let executable = process.map_or(String::new(), |process| text(&process.executable));
    let given = process.and_then(|process| process.options.iter().find_map(|o| o.strip_prefix("TRACEHOUND_LABELS=")));
    let labels: BTreeMap<String, String> = given
        .unwrap_or_default()
        .split(',')
        .filter_map(|label| label.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let program = executable.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("unknown").to_owned();
    Collected {
        schema: "heaptrace.collected/1".into(),
        recording: id.into(),
        service: labels.get("service").cloned().unwrap_or(program),
        version: labels.get("version").cloned().unwrap_or_else(|| "unknown".into()),
        host: labels.get("host").cloned().unwrap_or_else(host),
        cgroup: running.map_or(String::new(), cgroup),
        labels,
        executable,
        pid: process.map_or(0, |process| process.pid),
        started_unix_ns: process.map_or(0, |process| process.started_unix_ns),
        file: path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned()),
        bytes: 0,
    }
}

impl Collected {
    /// Adds what the process published of itself; what its operator set by `TRACEHOUND_LABELS` stays.
    pub fn add_context(&mut self, context: BTreeMap<String, String>) {
        let named = |label: &str, attribute: &str| {
            if self.labels.contains_key(label) { None } else { context.get(attribute).cloned() }
        };
        let (service, version, host) =
            (named("service", "service.name"), named("version", "service.version"), named("host", "host.name"));
        self.service = service.unwrap_or_else(|| self.service.clone());
        self.version = version.unwrap_or_else(|| self.version.clone());
        self.host = host.unwrap_or_else(|| self.host.clone());
        for (name, value) in context {
            self.labels.entry(name).or_insert(value);
        }
    }
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The control group of a process.
fn cgroup(pid: u32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned()
}

/// An id in hexadecimal digits.
pub fn hex(id: [u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
