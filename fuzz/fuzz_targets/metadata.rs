//! Metadata records: what can be read is written and read again, and is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_format::meta::{Frames, decode_body, encode};

fuzz_target!(|input: &[u8]| {
    for (tag, body) in Frames::new(input).flatten() {
        let Ok(Some(meta)) = decode_body(tag, body) else { continue };
        let mut bytes = Vec::new();
        if encode(&meta, &mut bytes).is_err() {
            continue;
        }
        let mut frames = Frames::new(&bytes);
        let (again_tag, again_body) = frames.next().expect("one frame").expect("a whole frame");
        assert_eq!((again_tag, frames.next().is_none()), (tag, true));
        let again = decode_body(again_tag, again_body).expect("what was encoded decodes").expect("a known tag");
        assert_eq!(format!("{meta:?}"), format!("{again:?}"));
    }
});
