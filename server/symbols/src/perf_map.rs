//! Perf maps: names of code that a JIT compiler made, as node (`--perf-basic-prof`) and the JVM write them.
//!
//! ```text
//! START SIZE NAME        hexadecimal, one line a function
//! ```
//! There are no times: where several functions were at an address one behind the other, each may be meant.
//! <https://github.com/torvalds/linux/blob/master/tools/perf/Documentation/jit-interface.txt>

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracehound_format::meta::GeneratedCode;

/// Functions by address.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub struct PerfMap {
    /// Start, end, name; sorted by start.
    ranges: Vec<(u64, u64, Arc<str>)>,
    /// By range: the largest end of it and of those before.
    ends: Vec<u64>,
}

/// Functions at one address that are told apart; more are as uncertain as these.
const MOST_FUNCTIONS: usize = 64;
/// Largest map that is read.
const LARGEST: u64 = 1 << 30;

impl PerfMap {
    /// The map of a process: the one that the user names, else the one where perf looks for it, if it is the user's own
    /// and was written after the process had started.
    pub fn of_process(named: Option<&Path>, pid: u32, started_unix_ns: u64) -> Self {
        if let Some(path) = named {
            return Self::read(path).unwrap_or_else(|error| {
                eprintln!("heaptrace: --perf-map: cannot read {}: {error}", path.display());
                Self::default()
            });
        }
        let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        let trusted = std::fs::symlink_metadata(&path).is_ok_and(|meta| {
            let written = u128::from(meta.mtime().max(0).cast_unsigned()) * 1_000_000_000 + 999_999_999;
            let own = meta.uid() == rustix::process::geteuid().as_raw() && meta.is_file();
            // Numbers of processes recur; the file of an older one says nothing.
            own && written >= u128::from(started_unix_ns)
        });
        if pid != 0 && trusted { Self::read(&path).unwrap_or_default() } else { Self::default() }
    }

    fn read(path: &Path) -> std::io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        if !meta.is_file() || meta.len() > LARGEST {
            return Err(std::io::Error::other("it is no file, or too large"));
        }
        Ok(Self::parse(&String::from_utf8_lossy(&std::fs::read(path)?)))
    }

    /// Lines that are no entry are left out.
    fn parse(text: &str) -> Self {
        let entry = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(parts.next()?.trim_start_matches("0x"), 16).ok();
            let (start, size) = (number()?, number()?);
            let name = parts.next()?.trim();
            (size > 0 && !name.is_empty()).then(|| (start, start.saturating_add(size), Arc::from(name)))
        };
        Self::of_ranges(text.lines().filter_map(entry).collect())
    }

    /// The same of pieces of code that have times.
    pub fn of_pieces(pieces: &[GeneratedCode]) -> Self {
        let mut names: HashMap<&[u8], Arc<str>> = HashMap::new();
        let range =
            |piece: &'_ GeneratedCode, name: Arc<str>| (piece.start, piece.start.saturating_add(piece.len), name);
        let mut ranges = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let name = names.entry(&piece.name).or_insert_with(|| String::from_utf8_lossy(&piece.name).into());
            ranges.push(range(piece, Arc::clone(name)));
        }
        Self::of_ranges(ranges)
    }

    fn of_ranges(mut ranges: Vec<(u64, u64, Arc<str>)>) -> Self {
        ranges.sort_by_key(|range| range.0);
        let ends = ranges.iter().scan(0, |end, range| {
            *end = range.1.max(*end);
            Some(*end)
        });
        let ends = ends.collect();
        Self { ranges, ends }
    }

    /// The function at an address; a line for each where there were several.
    pub fn find(&self, address: u64) -> Option<Arc<str>> {
        let behind = self.ranges.partition_point(|range| range.0 <= address);
        let before = self.ranges[..behind].iter().zip(&self.ends[..behind]).rev();
        let mut found: Vec<&Arc<str>> = Vec::new();
        for (range, _) in before.take_while(|&(_, &end)| address < end) {
            if address < range.1 && !found.contains(&&range.2) && found.len() < MOST_FUNCTIONS {
                found.push(&range.2);
            }
        }
        match *found {
            [] => None,
            [one] => Some(Arc::clone(one)),
            [..] => Some(found.iter().rev().map(|name| &***name).collect::<Vec<_>>().join("\n").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_ranges() {
        let map =
            PerfMap::parse("1000 10 first\n2000 20 LazyCompile:*second a.js:3\nnonsense\n1000 8 newer\n3000 0 none\n");
        let find = |address| map.find(address).map(|text| text.to_string());
        assert_eq!(find(0x1000).as_deref(), Some("first\nnewer"));
        assert_eq!(find(0x1009).as_deref(), Some("first"));
        assert_eq!(find(0x201f).as_deref(), Some("LazyCompile:*second a.js:3"));
        for address in [0, 0xfff, 0x1010, 0x2020, 0x3000, u64::MAX] {
            assert_eq!(find(address), None, "{address:#x}");
        }
    }
}
