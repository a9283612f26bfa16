//! Finds the recordings that a run has made: files that match the output template, are new, and name the process.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tracehound_format::header::FileHeader;

/// A recording that a run has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// Modified, nanoseconds since 1970.
    modified: i128,
}

/// Files made from `template` since `since_unix_ns`, oldest first.
pub fn made(template: &Path, since_unix_ns: i128) -> Vec<Made> {
    let mut found = vec![PathBuf::new()];
    for part in template.components() {
        let part = part.as_os_str();
        if !part.as_bytes().contains(&b'%') {
            for path in &mut found {
                path.push(part);
            }
            continue;
        }
        let pattern = pieces(part.as_bytes());
        found = found
            .iter()
            .flat_map(|dir| fs::read_dir(if dir.as_os_str().is_empty() { Path::new(".") } else { dir }))
            .flatten()
            .flatten()
            .filter(|entry| matches(&pattern, entry.file_name().as_bytes()))
            .map(|entry| entry.path())
            .collect();
    }
    let mut made: Vec<Made> = found.into_iter().filter_map(|path| recording(path, since_unix_ns)).collect();
    made.sort_by(|a, b| (a.modified, &a.path).cmp(&(b.modified, &b.path)));
    made
}

fn recording(path: PathBuf, since_unix_ns: i128) -> Option<Made> {
    let meta = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
    let modified = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    // The kernel stamps files by a coarse clock, up to one tick behind.
    if modified < since_unix_ns - 20_000_000 {
        return None;
    }
    let mut front = [0; FileHeader::LEN];
    File::open(&path).ok()?.read_exact(&mut front).ok()?;
    FileHeader::decode(&front).ok()?;
    Some(Made { path, bytes: meta.len(), modified })
}

/// The fixed pieces between the placeholders of a template.
fn pieces(template: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = vec![Vec::new()];
    let mut rest = template;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, tail.first()) {
            (b'%', Some(b'e' | b'p' | b't' | b'n')) => pieces.push(Vec::new()),
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
            ("plain.dat", "plain.dat", true),
            ("plain.dat", "plain.datx", false),
            ("odd%", "odd%", true),
        ] {
            assert_eq!(matches(&pieces(template.as_bytes()), name.as_bytes()), expected, "{template} {name}");
        }
    }

    #[test]
    fn only_new_recordings_count() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("run-7");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("m-1.dat"), FileHeader::new([1; 16]).encode()).unwrap();
        fs::write(dir.join("m-2.dat"), b"something else that is long enough to have a header, but has none of ours")
            .unwrap();
        let made_of = |since| made(&temp.path().join("run-%p/m-%p.dat"), since);
        let found = made_of(0);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, dir.join("m-1.dat"));
        assert_eq!(made_of(i128::MAX / 2), []);
    }
}
