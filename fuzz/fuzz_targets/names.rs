//! Files of names (`tracehound_symbols::cache`), the checksum put right: what can be read is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_symbols::cache;

fuzz_target!(|input: &[u8]| {
    let Some((version, input)) = input.split_first() else { return };
    let mut bytes = b"THSYMB\n".to_vec();
    bytes.push(1 + version % 2);
    bytes.extend_from_slice(input);
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    if let Some(modules) = cache::decode(&bytes, cache::Versions::All) {
        assert_eq!(cache::decode(&cache::encode(&modules), cache::Versions::Current), Some(modules));
    }
});
