//! Payloads of events blocks: what can be read is written and read again, and is the same.
//!
//! ```text
//! input = count: u16 | first tick: u64 | payload
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_format::columns::{Decoder, Encoder, RecordColumns};

fuzz_target!(|input: &[u8]| {
    let Some((count, rest)) = input.split_first_chunk::<2>() else { return };
    let Some((tick, payload)) = rest.split_first_chunk::<8>() else { return };
    let (count, tick) = (u32::from(u16::from_le_bytes(*count)), u64::from_le_bytes(*tick));
    let (mut decoder, mut columns) = (Decoder::new(), RecordColumns::default());
    if decoder.decode(payload, count, tick, &mut columns).is_err() {
        return;
    }
    assert_eq!(columns.len(), count as usize);
    let (mut encoded, mut again) = (Vec::new(), RecordColumns::default());
    Encoder::new().encode(&columns, tick, &mut encoded);
    decoder.decode(&encoded, count, tick, &mut again).expect("what was encoded decodes");
    assert_eq!(columns, again);
});
