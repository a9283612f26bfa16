//! Finds the recordings that a run has made: files that match the output template, are new, and name the process.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tracehound_format::block::{BlockHeader, SYNC};
use tracehound_format::header::FileHeader;
use tracehound_format::meta::{EndReason, Frames, Meta, decode_body};

/// A recording that a run has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// Modified, nanoseconds since 1970.
    modified: i128,
    /// Process and its parent; `None` where the recording does not say.
    process: Option<(u32, u32)>,
}

impl Made {
    /// Whether it is the recording of this process.
    pub fn is_of(&self, pid: u32) -> bool {
        self.process.is_some_and(|(process, _)| process == pid)
    }
}

/// Recordings made from `template` since `since_unix_ns` by process `pid` or a process that descends from it, oldest
/// first.
pub fn made(template: &Path, since_unix_ns: i128, pid: u32) -> Vec<Made> {
    let mut found = vec![PathBuf::new()];
    let last = template.components().next_back();
    for part in template.components() {
        let is_file = Some(part) == last;
        let part = part.as_os_str().as_bytes();
        if !is_file && !part.contains(&b'%') {
            for path in &mut found {
                path.push(OsStr::from_bytes(part));
            }
            continue;
        }
        let pattern = pieces(part);
        let fits = |name: &[u8]| {
            matches(&pattern, name) || is_file && without_number(name).is_some_and(|name| matches(&pattern, &name))
        };
        found = found
            .iter()
            .flat_map(|dir| fs::read_dir(if dir.as_os_str().is_empty() { Path::new(".") } else { dir }))
            .flatten()
            .flatten()
            .filter(|entry| fits(entry.file_name().as_bytes()))
            .map(|entry| entry.path())
            .collect();
    }
    let mut made: Vec<Made> = found.into_iter().filter_map(|path| recording(path, since_unix_ns)).collect();
    made.sort_by(|a, b| (a.modified, &a.path).cmp(&(b.modified, &b.path)));
    let mut first = survivors(template);
    first.push(pid);
    let family = family(first, &made);
    made.retain(|one| one.process.is_none_or(|(process, _)| family.contains(&process)));
    made
}

/// Running processes that were started later than this one with this template in their environment: daemons, which have left their
/// parents.
pub fn survivors(template: &Path) -> Vec<u32> {
    let variable = [b"TRACEHOUND_OUTPUT=", template.as_os_str().as_bytes()].concat();
    let (this, own) = (std::process::id(), started("self"));
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_it = |process: &u32| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|one| one == variable)
    };
    let others = processes.filter(|&process| process != this && started(&process.to_string()) >= own);
    others.filter(has_it).collect()
}

/// When a process was started, in the kernel's ticks; the 22nd word of its line, whose second may have any characters.
fn started(process: &str) -> Option<u64> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    line.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// These processes and everything below them, as far as recordings tell.
fn family(first: Vec<u32>, made: &[Made]) -> HashSet<u32> {
    let mut family = HashSet::from_iter(first);
    loop {
        let known = family.len();
        let processes = made.iter().filter_map(|one| one.process);
        let children: Vec<u32> = processes.filter(|(_, parent)| family.contains(parent)).map(|(pid, _)| pid).collect();
        family.extend(children);
        if family.len() == known {
            return family;
        }
    }
}

fn recording(path: PathBuf, since_unix_ns: i128) -> Option<Made> {
    let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
    let modified = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    // The kernel stamps files by a coarse clock, up to one tick behind.
    if modified < since_unix_ns - 20_000_000 {
        return None;
    }
    let mut front = Vec::new();
    File::open(&path).ok()?.take(1 << 20).read_to_end(&mut front).ok()?;
    FileHeader::decode(&front).ok()?;
    Some(Made { path, bytes: meta.len(), modified, process: process(&front) })
}

/// The first record of a recording says whose it is.
fn process(front: &[u8]) -> Option<(u32, u32)> {
    match first_record(front.get(FileHeader::LEN..)?)? {
        Meta::Process(process) => Some((process.pid, process.parent_pid)),
        _ => None,
    }
}

/// The first record of a block of metadata.
fn first_record(block: &[u8]) -> Option<Meta> {
    let header = BlockHeader::decode(block).ok()?;
    let stored = block.get(BlockHeader::LEN..)?.get(..header.stored_len as usize)?;
    let mut raw = Vec::new();
    header.open_payload(stored, &mut raw, tracehound_index::payload::unzstd).ok()?;
    let (tag, body) = Frames::new(&raw).next()?.ok()?;
    decode_body(tag, body).ok()?
}

/// Whether a recording says at its end that the program became another one. Of a file with very much behind its end block,
/// false.
pub fn ends_by_exec(path: &Path) -> bool {
    const TAIL: u64 = 4 << 20;
    let end = || {
        let mut file = File::open(path).ok()?;
        let len = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(TAIL))).ok()?;
        let mut tail = Vec::new();
        file.take(TAIL).read_to_end(&mut tail).ok()?;
        let blocks = tail.windows(SYNC.len()).enumerate().rev().filter(|(_, bytes)| *bytes == SYNC);
        blocks.filter_map(|(at, _)| first_record(&tail[at..])).find_map(|record| match record {
            Meta::End(end) => Some(end.reason),
            _ => None,
        })
    };
    end() == Some(EndReason::Exec)
}

/// A name that was taken gets a number: `name.dat` becomes `name.1.dat`. This takes it off again.
fn without_number(name: &[u8]) -> Option<Vec<u8>> {
    let (stem, suffix) = match name.strip_suffix(b".dat") {
        Some(stem) => (stem, &b".dat"[..]),
        None => (name, &b""[..]),
    };
    let dot = stem.iter().rposition(|&byte| byte == b'.')?;
    let digits = &stem[dot + 1..];
    let numbered = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    numbered.then(|| [&stem[..dot], suffix].concat())
}

/// The fixed pieces between the placeholders of a template.
fn pieces(template: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = vec![Vec::new()];
    let mut rest = template;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, tail.first()) {
            (b'%', Some(b'e' | b'p' | b't' | b'n' | b'h' | b'i')) => pieces.push(Vec::new()),
            (b'%', Some(b'%')) => pieces.last_mut().expect("there is always a piece").push(b'%'),
            _ => {
                pieces.last_mut().expect("there is always a piece").push(byte);
                continue;
            }
        }
        rest = &tail[1..];
    }
    pieces
}

/// The pieces occur in `name` in this order, the first at its start, the last at its end.
fn matches(pieces: &[Vec<u8>], name: &[u8]) -> bool {
    let [first, middle @ .., last] = pieces else { return pieces.first().is_some_and(|piece| piece == name) };
    let Some(mut rest) = name.strip_prefix(first.as_slice()).and_then(|rest| rest.strip_suffix(last.as_slice())) else {
        return false;
    };
    middle.iter().all(|piece| {
        let at = if piece.is_empty() { Some(0) } else { rest.windows(piece.len()).position(|window| window == piece) };
        at.is_some_and(|at| {
            rest = &rest[at + piece.len()..];
            true
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_match_their_expansions() {
        for (template, name, expected) in [
            ("memory-%e-%p.dat", "memory-app-12.dat", true),
            ("memory-%e-%p.dat", "memory-app.dat", false),
            ("memory-%e-%p.dat", "memory-app-12.dat.live", false),
            ("100%%-%p", "100%-7", true),
            ("%p%n.dat", "77.dat", true),
            ("%e-%h-%i.dat", "app-web1-0ab10203.dat", true),
            ("plain.dat", "plain.dat", true),
            ("plain.dat", "plain.datx", false),
            ("odd%", "odd%", true),
        ] {
            assert_eq!(matches(&pieces(template.as_bytes()), name.as_bytes()), expected, "{template} {name}");
        }
    }

    #[test]
    fn numbers_of_taken_names_are_taken_off() {
        for (name, plain) in [
            ("m.1.dat", Some("m.dat")),
            ("m.dat", None),
            ("m.x.dat", None),
            ("m.12", Some("m")),
            ("a.b.3.dat", Some("a.b.dat")),
        ] {
            assert_eq!(without_number(name.as_bytes()).as_deref(), plain.map(str::as_bytes), "{name}");
        }
    }

    #[test]
    fn a_family_is_closed_under_children() {
        let one = |pid, parent| Made { path: PathBuf::new(), bytes: 0, modified: 0, process: Some((pid, parent)) };
        let made = [one(30, 20), one(20, 10), one(99, 98), one(10, 1)];
        assert_eq!(family(vec![10], &made), HashSet::from([10, 20, 30]));
    }

    #[test]
    fn only_new_recordings_count() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("run-7");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("m-1.dat"), FileHeader::new([1; 16]).encode()).unwrap();
        fs::write(dir.join("m-2.dat"), b"something else that is long enough to have a header, but has none of ours")
            .unwrap();
        let made_of = |since| made(&temp.path().join("run-%p/m-%p.dat"), since, 1);
        let found = made_of(0);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, dir.join("m-1.dat"));
        assert_eq!(made_of(i128::MAX / 2), []);
    }
}
