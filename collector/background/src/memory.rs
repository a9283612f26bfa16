//! Memory of the process as the kernel counts it.

use tracehound_format::meta::{MemoryDetail, MemorySample};

use tracehound_shared::sys;

/// Reads `/proc/thread-self/statm`, which is there when the first thread has gone, and `/proc/self/smaps_rollup`, each through one descriptor for the whole run: a later chroot or
/// setuid does not matter.
pub struct MemoryCounters {
    statm: i32,
    rollup: i32,
    page_bytes: u64,
}

impl MemoryCounters {
    /// Opens the file.
    pub fn new() -> Self {
        let open = |path| sys::open_at(libc::AT_FDCWD, path, libc::O_RDONLY, 0).map_or(-1, sys::move_high);
        let (statm, rollup) = (open(c"/proc/thread-self/statm"), open(c"/proc/self/smaps_rollup"));
        Self { statm, rollup, page_bytes: sys::page_bytes() as u64 }
    }

    /// Counts nothing.
    pub fn none() -> Self {
        Self { statm: -1, rollup: -1, page_bytes: 1 }
    }

    /// The descriptors in use; -1: none.
    pub fn descriptors(&self) -> [i32; 2] {
        [self.statm, self.rollup]
    }

    /// One sample, of which `recorder` bytes are the recorder's; `None` where the kernel gives no numbers.
    pub fn sample(&self, tick: u64, recorder: u64) -> Option<MemorySample> {
        if self.statm < 0 {
            return None;
        }
        let mut text = [0_u8; 128];
        let len = sys::read_at(self.statm, &mut text, 0).ok()?;
        parse(text.get(..len)?, self.page_bytes).map(|[virtual_size, rss, rss_shared]| MemorySample {
            tick,
            rss,
            rss_anonymous: rss.saturating_sub(rss_shared),
            rss_shared,
            virtual_size,
            recorder,
        })
    }
}

impl MemoryCounters {
    /// Memory by its kinds; `None` where the kernel gives no numbers. The kernel walks the page tables for it, which takes
    /// milliseconds for each gigabyte of the process.
    pub fn detail(&self, tick: u64) -> Option<MemoryDetail> {
        if self.rollup < 0 {
            return None;
        }
        let mut text = [0_u8; 4096];
        let len = sys::read_at(self.rollup, &mut text, 0).ok()?;
        parse_rollup(text.get(..len)?, tick)
    }
}

/// Lines of `Name:  number kB`. Kernels differ in their lines; all have the resident set.
fn parse_rollup(text: &[u8], tick: u64) -> Option<MemoryDetail> {
    let text = std::str::from_utf8(text).ok()?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
    };
    let or_none = |name: &str| of(name).unwrap_or(0);
    Some(MemoryDetail {
        tick,
        rss: of("Rss")?,
        pss: or_none("Pss"),
        shared_clean: or_none("Shared_Clean"),
        shared_dirty: or_none("Shared_Dirty"),
        private_clean: or_none("Private_Clean"),
        private_dirty: or_none("Private_Dirty"),
        anonymous: or_none("Anonymous"),
        lazy_free: or_none("LazyFree"),
        anonymous_huge: or_none("AnonHugePages"),
        swap: or_none("Swap"),
        locked: or_none("Locked"),
    })
}

impl Default for MemoryCounters {
    fn default() -> Self {
        Self::new()
    }
}

/// The first three numbers, in bytes.
fn parse(text: &[u8], page_bytes: u64) -> Option<[u64; 3]> {
    let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next = || Some(numbers.next()?.ok()?.saturating_mul(page_bytes));
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_rollup_is_understood() {
        let text = b"1000-2000 ---p 00000000 00:00 0    [rollup]\nRss:     1000 kB\nPss:  20 kB\nPss_Anon:  3 kB\nSwap:   7 kB\n";
        let detail = super::parse_rollup(text, 5).expect("it has an Rss");
        assert_eq!((detail.tick, detail.rss, detail.pss, detail.swap), (5, 1000 << 10, 20 << 10, 7 << 10));
        assert_eq!((detail.anonymous, detail.locked), (0, 0));
        assert_eq!(super::parse_rollup(b"Pss: 1 kB\n", 5), None);
        let here = super::MemoryCounters::new().detail(1).expect("this kernel tells");
        assert!(here.rss > 0 && here.anonymous > 0 && here.pss <= here.rss, "{here:?}");
    }

    #[test]
    fn statm_is_understood() {
        assert_eq!(super::parse(b"10 4 2 1 0 3 0\n", 4096), Some([40960, 16384, 8192]));
        assert_eq!(super::parse(b"10 4", 4096), None);
        assert_eq!(super::parse(b"x 4 2", 4096), None);
    }
}
