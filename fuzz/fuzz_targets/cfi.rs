//! Unwind information as objects bring it: `.eh_frame`, its sorted table, and `.debug_frame`, compiled to rules.
//!
//! ```text
//! input = choice: u8 | pc: u32 | section
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_unwind::cfi::bytes::Bytes;
use tracehound_unwind::cfi::compile::compile;
use tracehound_unwind::cfi::entry::{Fde, Parsed, Section, parse, record};
use tracehound_unwind::cfi::index;
use tracehound_unwind::cfi::program::{FullRow, row_at};

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else { return };
    let Some((pc, section)) = rest.split_first_chunk::<4>() else { return };
    // A copy of its own, so that a read past its end is seen.
    let section = section.to_vec();
    let start = section.as_ptr() as u64;
    let end = start + section.len() as u64;
    // SAFETY: the vector lives to the end of this function and is not changed.
    let window = unsafe { Bytes::new(start, end, 0) };
    let distance = u64::from(u32::from_le_bytes(*pc));
    if choice & 1 != 0 {
        let near = start.wrapping_add(distance).wrapping_sub(1 << 31);
        let segment = |address: u64| (start..end).contains(&address).then_some(window);
        if let Some((entry, window)) = index::lookup(start, near, segment) {
            assert!(near.wrapping_sub(entry.begin) < entry.length, "the entry covers the address");
            rules(&entry, window, near);
        }
    }
    let kind = match choice & 6 {
        0 => Section::EhFrame,
        2 => Section::Registered { text_base: distance, data_base: distance << 1 },
        _ => Section::DebugFrame { start, load_bias: distance },
    };
    let mut cursor = window;
    while !cursor.is_empty() {
        let at = cursor.position();
        if record(&mut cursor).is_none() {
            break;
        }
        assert!(cursor.position() > at, "every record takes bytes");
        if let Some(Parsed::Entry(entry)) = parse(window, at, kind) {
            for inside in [0, 1, entry.length / 2, entry.length.wrapping_sub(1), distance] {
                rules(&entry, window, entry.begin.wrapping_add(inside));
            }
        }
    }
    let _ = index::scan(window, window, distance, kind);
});

fn rules(entry: &Fde, window: Bytes, pc: u64) {
    let _ = compile(entry, window, pc);
    let _ = row_at::<FullRow, 8>(entry, pc);
}
