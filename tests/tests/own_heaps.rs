//! What a runtime lays out in a heap of its own is in no recording as allocations, and the recording says so.

use serde_json::Value;
use tracehound_tests::{compile, trace};

/// Texts of the remarks on such heaps.
fn said(info: &Value) -> Vec<String> {
    let remarks = info["remarks"].as_array().expect("remarks");
    let heaps = remarks.iter().filter(|remark| remark["topic"] == "own-heap");
    heaps.map(|remark| remark["text"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn each_runtime_with_a_heap_of_its_own_is_named_with_what_helps() {
    for (function, words) in [
        ("JNI_CreateJavaVM", ["Java heap", "native memory is"]),
        ("PyObject_Malloc", ["Python", "--python-objects"]),
        ("_ZN2v87Isolate3NewERKNS0_12CreateParamsE", ["V8", "not recorded"]),
        ("runtime.mallocgc", ["Go's heap", "only what C code allocates"]),
        ("_emalloc", ["PHP", "USE_ZEND_ALLOC=0"]),
        ("rb_newobj_of", ["Ruby", "heap pages"]),
    ] {
        for flags in [&["-O1", "-rdynamic"][..], &["-O1"]] {
            let define = format!("-DFUNCTION=\"{function}\"");
            let run = trace(compile("own_heap.c", &[flags, &[define.as_str()]].concat()), &[], &[]);
            assert!(run.output.status.success(), "{}", run.stderr());
            let said = said(&run.info());
            let is_it = |text: &str| words.iter().all(|word| text.contains(word));
            assert!(matches!(said.as_slice(), [one] if is_it(one)), "{function}: {said:?}");
        }
    }
    let plain = trace(compile("own_heap.c", &["-O1", "-DFUNCTION=\"lay_out\""]), &[], &[]);
    assert_eq!(said(&plain.info()), [""; 0]);
}
