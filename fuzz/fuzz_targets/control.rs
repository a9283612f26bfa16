//! Messages between `heaptrace ctl` and a recorder: what can be read is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_format::control::{Reply, Request, decode, encode, namespace_number};

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = decode::<Request>(input) {
        let bytes = encode(&request).expect("what fitted fits");
        assert_eq!(decode::<Request>(&bytes), Ok(request));
    }
    if let Ok(reply) = decode::<Reply>(input) {
        let bytes = encode(&reply).expect("what fitted fits");
        assert_eq!(decode::<Reply>(&bytes), Ok(reply));
    }
    let _ = namespace_number(input);
});
