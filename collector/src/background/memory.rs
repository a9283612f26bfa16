//! Memory of the process as the kernel counts it.

use tracehound_format::meta::MemorySample;

use crate::shared::sys;

/// Reads `/proc/self/statm`, through one descriptor for the whole run: a later chroot or setuid does not matter.
pub struct MemoryCounters {
    statm: i32,
    page_bytes: u64,
}

impl MemoryCounters {
    /// Opens the file.
    pub fn new() -> Self {
        let statm = sys::open_at(libc::AT_FDCWD, c"/proc/self/statm", libc::O_RDONLY, 0).map_or(-1, sys::move_high);
        // SAFETY: getauxval reads the process's own auxiliary vector.
        Self { statm, page_bytes: unsafe { libc::getauxval(libc::AT_PAGESZ) }.max(1) }
    }

    /// Counts nothing.
    pub fn none() -> Self {
        Self { statm: -1, page_bytes: 1 }
    }

    /// The descriptor in use; -1: none.
    pub fn descriptor(&self) -> i32 {
        self.statm
    }

    /// One sample, of which `recorder` bytes are ours; `None` where the kernel does not tell.
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
    fn statm_is_understood() {
        assert_eq!(super::parse(b"10 4 2 1 0 3 0\n", 4096), Some([40960, 16384, 8192]));
        assert_eq!(super::parse(b"10 4", 4096), None);
        assert_eq!(super::parse(b"x 4 2", 4096), None);
    }
}
