//! zstd compression in the recorder's own memory.
//!
//! libzstd is C and would call `malloc`, which is the program's here. A static context does not allocate: it works in a
//! buffer that the caller passes. The functions are declared here because `zstd-sys` hides them behind its feature for
//! experimental functions; the C header calls static contexts stable in use but not in size.

use core::ffi::{c_int, c_void};

// The C library itself.
use zstd_sys as _;

unsafe extern "C" {
    fn ZSTD_estimateCCtxSize(level: c_int) -> usize;
    fn ZSTD_initStaticCCtx(workspace: *mut c_void, bytes: usize) -> *mut c_void;
    fn ZSTD_compressCCtx(
        context: *mut c_void,
        to: *mut c_void,
        room: usize,
        from: *const c_void,
        bytes: usize,
        level: c_int,
    ) -> usize;
    fn ZSTD_compressBound(bytes: usize) -> usize;
    fn ZSTD_isError(code: usize) -> u32;
}

/// The columns are small and the writer has little time: higher levels take four times as long for a tenth less.
const LEVEL: c_int = 1;

/// A compressor. Reuse one for many blocks.
pub struct Zstd {
    context: *mut c_void,
    /// Where the context lives; eight-byte aligned, as it must be.
    _workspace: Vec<u64>,
}

// SAFETY: the context belongs to this value alone.
unsafe impl Send for Zstd {}

impl Zstd {
    /// A compressor; `None` when the library refuses the buffer.
    pub fn new() -> Option<Self> {
        // SAFETY: a computation.
        let bytes = unsafe { ZSTD_estimateCCtxSize(LEVEL) };
        let mut workspace = vec![0_u64; bytes.div_ceil(8)];
        // SAFETY: the buffer is aligned, as long as promised, and lives as long as the context.
        let context = unsafe { ZSTD_initStaticCCtx(workspace.as_mut_ptr().cast(), workspace.len() * 8) };
        (!context.is_null()).then_some(Self { context, _workspace: workspace })
    }

    /// Compresses `raw` into `out` (cleared first); false when that failed or did not pay.
    pub fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        // SAFETY: a computation.
        out.resize(unsafe { ZSTD_compressBound(raw.len()) }, 0);
        // SAFETY: both slices are valid for their lengths; the context is alive.
        let len = unsafe {
            let to = out.as_mut_ptr().cast();
            let len = ZSTD_compressCCtx(self.context, to, out.len(), raw.as_ptr().cast(), raw.len(), LEVEL);
            if ZSTD_isError(len) != 0 { usize::MAX } else { len }
        };
        if len >= raw.len() {
            return false;
        }
        out.truncate(len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_zstd_frames() {
        let mut zstd = Zstd::new().unwrap();
        let raw = b"one two three four five, one two three four five. ".repeat(5000);
        let mut stored = Vec::new();
        for _ in 0..3 {
            assert!(zstd.compress(&raw, &mut stored));
            assert!(stored.len() < raw.len() / 10);
            assert_eq!(stored[..4], [0x28, 0xb5, 0x2f, 0xfd]);
        }
        assert!(!zstd.compress(b"ab", &mut stored), "too short to pay");
        assert!(!zstd.compress(b"", &mut stored));
    }
}
