//! Launch options: `NAME=value` strings, each ended by a zero, as in an environment; then a template for names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_format::options::{LaunchOptions, MAX_BUFFER, MIN_BUFFER, OutputNames, expand_output, parse_size};

fuzz_target!(|input: &[u8]| {
    let strings: Vec<&[u8]> = input.split(|&byte| byte == 0).collect();
    let get = |name: &str| strings.iter().find_map(|text| text.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    if let Ok(options) = LaunchOptions::parse(get) {
        assert!((MIN_BUFFER..=MAX_BUFFER).contains(&options.buffer_bytes));
        assert!(!options.output.contains(&0));
    }
    for text in &strings {
        let names =
            OutputNames { executable: text, pid: 1, unix_seconds: 2, counter: 3, host: b"host", recording_id: [7; 16] };
        let name = expand_output(text, names);
        assert!(name.len() <= text.len() * text.len().max(20));
        if let Ok(text) = std::str::from_utf8(text) {
            let _ = parse_size(text);
        }
    }
});
