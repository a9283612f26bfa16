//! Perf maps: names of code that a JIT compiler made, as node (`--perf-basic-prof`) and the JVM write them.
//!
//! ```text
//! START SIZE NAME        hexadecimal, one line a function; later lines replace earlier ones where they overlap
//! ```
//! <https://github.com/torvalds/linux/blob/master/tools/perf/Documentation/jit-interface.txt>

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Functions by address.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PerfMap {
    /// Start, end, name; sorted by start, which later lines win.
    ranges: Vec<(u64, u64, Arc<str>)>,
}

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
        // Stable: of equal starts the later line comes behind, and is found first.
        let mut ranges: Vec<(u64, u64, Arc<str>)> = text.lines().filter_map(entry).collect();
        ranges.sort_by_key(|range| range.0);
        Self { ranges }
    }

    /// The function at an address.
    pub fn find(&self, address: u64) -> Option<&Arc<str>> {
        let behind = self.ranges.partition_point(|range| range.0 <= address);
        // Code is rarely nested: a few entries back is enough to step over ones that were thrown away.
        let near = self.ranges[..behind].iter().rev().take(16);
        near.into_iter().find(|range| address < range.1).map(|range| &range.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_ranges() {
        let map =
            PerfMap::parse("1000 10 first\n2000 20 LazyCompile:*second a.js:3\nnonsense\n1000 8 newer\n3000 0 none\n");
        assert_eq!(map.find(0x1000).map(AsRef::as_ref), Some("newer"));
        assert_eq!(map.find(0x1009).map(AsRef::as_ref), Some("first"));
        assert_eq!(map.find(0x201f).map(AsRef::as_ref), Some("LazyCompile:*second a.js:3"));
        for address in [0, 0xfff, 0x1010, 0x2020, 0x3000, u64::MAX] {
            assert_eq!(map.find(address), None, "{address:#x}");
        }
    }
}
