//! Threads: short, many, named, on small stacks, before main and after it.

use std::sync::atomic::{AtomicBool, Ordering};

use tracehound_tests::ground_truth::{Case, agrees};
use tracehound_tests::{compile, number, trace};

#[test]
fn thousands_of_short_threads() {
    agrees("threads_short.c", &[]);
}

#[test]
fn names_by_pthread_and_prctl_outlive_their_threads() {
    agrees("thread_names.c", &[]);
}

/// Chromium's zygote aborts if it is not alone.
#[test]
fn a_program_that_counts_its_threads_counts_its_own() {
    let run = Case::new("counts_threads.c").args(&["fork"]).option("CHILDREN", "1").agrees();
    assert!(run.plain.printed().contains("with three: 4 4 4, a folder of this name 3\n"), "{}", run.plain.printed());
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
fn the_first_thread_leaves_before_the_writer_has_looked_around() {
    // While others want the processors, the writer's first look is often a look at a process whose first thread is gone.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for _ in 0..12 {
            let traced = trace(compile("first_leaves.c", &["-O1", "-pthread"]), &[], &[]);
            let dump = traced.dump();
            let named = dump.iter().filter(|line| line.to_string().contains("\"after_first\"")).count();
            if named < 501 {
                done.store(true, Ordering::Relaxed);
            }
            assert!(named >= 501, "{named} of 501 allocations have the name of their function");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_smallest_stacks() {
    agrees("small_stacks.c", &[]);
}

#[test]
fn stacks_with_room_for_the_allocator_and_little_more() {
    Case::compiled("tiny_stacks.c", &["-O1", "-Wl,-z,now"]).agrees();
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
