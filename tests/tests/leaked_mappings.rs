//! Mappings that are made again and again and never given back: no sum of blocks has them, and they are said all the same.

use tracehound_tests::{ask, compile, functions, trace};

#[test]
fn what_is_mapped_and_never_unmapped_is_said() {
    let traced = trace(compile("leaked_maps.c", &["-O1", "-pthread"]), &[], &[]);
    assert!(traced.output.status.success(), "{}", traced.stderr());
    let path = traced.recording();
    let leaks = traced.leaks();
    let mapped = leaks["still_mapped"].as_array().expect("a list");
    assert_eq!(mapped.len(), 1, "{mapped:#?}");
    assert_eq!((mapped[0]["bytes"].as_u64(), mapped[0]["count"].as_u64()), (Some(40 * (3 << 16)), Some(40)));
    assert_eq!(functions(&mapped[0]["stack"])[..3], ["map", "grow_index", "main"].map(String::from), "{mapped:#?}");
    assert!(mapped[0]["first_ns"].as_u64() < mapped[0]["last_ns"].as_u64());
    // In words, and on the first screen; a part of the recording has no such sum.
    let words = |args: &[&str]| String::from_utf8_lossy(&ask(args, &path).stdout).into_owned();
    const SAID: &str = "Beside the blocks, 7.50 MiB in 40 mappings were never unmapped";
    for command in ["leaks", "summary"] {
        let said = words(&[command]);
        assert!(said.contains(SAID) && said.contains("grow_index"), "{said}");
    }
    assert!(!words(&["leaks", "--focus", "main"]).contains(SAID));
    let hidden = words(&["leaks", "--suppress", "grow_index"]);
    assert!(!hidden.contains(SAID), "{hidden}");
}
