//! DWARF expressions, evaluated on a machine whose registers and memory the input gives.
//!
//! ```text
//! input = first value: u64 | code
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_unwind::cfi::bytes::Bytes;
use tracehound_unwind::cfi::expression::{Machine, evaluate};

struct Some17 {
    seed: u64,
    loads: u32,
}

impl Machine for Some17 {
    fn register(&self, register: u64) -> Option<u64> {
        (register < 17).then(|| self.seed.rotate_left(register as u32))
    }

    fn load(&mut self, address: u64, size: u8) -> Option<u64> {
        assert!(matches!(size, 1 | 2 | 4 | 8), "a size that is no size");
        self.loads += 1;
        assert!(self.loads <= 1000, "more loads than operations");
        address.is_multiple_of(3).then_some(address ^ self.seed)
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((first, code)) = input.split_first_chunk::<8>() else { return };
    let code = code.to_vec();
    let (start, seed) = (code.as_ptr() as u64, u64::from_le_bytes(*first));
    for first in [None, Some(seed)] {
        // SAFETY: the vector lives to the end of this function and is not changed.
        let code = unsafe { Bytes::new(start, start + code.len() as u64, 0) };
        let _ = evaluate(code, first, &mut Some17 { seed, loads: 0 });
    }
});
