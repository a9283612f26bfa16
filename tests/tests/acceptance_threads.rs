//! Threads: short, many, named, on small stacks, before main and after it.

use tracehound_tests::ground_truth::{Case, agrees};
use tracehound_tests::number;

#[test]
fn thousands_of_short_threads() {
    agrees("threads_short.c", &[]);
}

#[test]
fn names_by_pthread_and_prctl_outlive_their_threads() {
    agrees("thread_names.c", &[]);
}

#[test]
fn destructors_of_thread_specific_data() {
    agrees("key_destructors.c", &[]);
}

#[test]
fn destructors_of_thread_local_objects() {
    agrees("tls_destructors.cpp", &[]);
}

#[test]
fn before_main_and_after_it() {
    agrees("edges.c", &[]);
}

#[test]
fn in_an_ifunc_resolver() {
    agrees("ifunc.c", &[]);
    Case::compiled("ifunc.c", &["-O1", "-Wl,-z,lazy"]).agrees();
}

#[test]
fn blocks_freed_by_other_threads() {
    agrees("cross_free.c", &[]);
}

#[test]
fn the_first_thread_leaves_before_the_others() {
    agrees("first_leaves.c", &[]);
}

#[test]
fn the_smallest_stacks() {
    agrees("small_stacks.c", &[]);
}

#[test]
fn threads_in_rust() {
    agrees("rust_threads.rs", &[]);
}

#[test]
fn a_pool_of_openmp() {
    Case::compiled("openmp.c", &["-O1", "-fopenmp"]).agrees();
}

#[test]
fn forty_eight_threads_stay_within_the_buffer() {
    const BUFFER: u64 = 2 << 20;
    let run = Case::new("threads_48.c").option("BUFFER", &BUFFER.to_string()).agrees();
    let peak = |folder: &std::path::Path| -> u64 {
        let text = std::fs::read_to_string(folder.join("peak")).expect("the program says how large it became");
        text.trim().parse::<u64>().expect("a number") * 1024
    };
    let (plain, traced) = (peak(run.plain.folder.path()), peak(run.traced.folder.path()));
    let chunks = number(&run.info, "/recorder/chunk_memory_bytes");
    assert!(chunks <= BUFFER, "chunk memory of {chunks} bytes, {BUFFER} were allowed");
    assert!(traced <= plain + BUFFER + (48 << 20), "{plain} bytes resident without the recorder, {traced} with it");
}
