//! The calls themselves: every function of the malloc family keeps its meaning, and each call is one event.

use std::collections::BTreeMap;

use tracehound_tests::ground_truth::{Case, agrees};
use tracehound_tests::valgrind::{self, Usage};
use tracehound_tests::{compile, dump, number};

#[test]
fn every_allocating_function_is_recorded_under_its_name() {
    let run = agrees("family.c", &[]);
    assert_eq!(number(&run.info, "/events/realloc"), 2);
    assert_eq!(number(&run.info, "/events/alloc"), 10);
    // What was asked for, beyond what every block has; glibc takes 24 for 32.
    let alignments: BTreeMap<String, u64> = dump(&run.recording)
        .iter()
        .filter_map(|event| Some((event["function"].as_str()?.to_owned(), event["alignment"].as_u64()?)))
        .collect();
    let expected =
        [("aligned_alloc", 64), ("memalign", 32), ("posix_memalign", 256), ("pvalloc", 4096), ("valloc", 4096)];
    assert_eq!(alignments, expected.map(|(function, bytes)| (function.to_owned(), bytes)).into());
}

#[test]
fn errno_is_left_as_the_c_library_left_it() {
    agrees("errno_kept.c", &[]);
}

#[test]
fn the_heap_looks_as_it_would_without_us() {
    agrees("layout.c", &[]);
}

#[test]
fn sizes_are_exact_beyond_32_bits() {
    agrees("sizes.c", &[]);
}

#[test]
fn a_realloc_chain_is_counted_link_by_link() {
    agrees("realloc_chain.c", &[]);
}

#[test]
fn a_stack_of_200_frames_is_whole() {
    agrees("depth.c", &["200"]);
}

#[test]
fn a_stack_of_5000_frames_is_whole() {
    let run = agrees("depth.c", &["5000"]);
    assert!(number(&run.info, "/max_depth") > 5000);
}

#[test]
fn every_compression_and_unwinder_tells_the_same() {
    for (name, value) in [
        ("COMPRESSION", "none"),
        ("COMPRESSION", "zstd"),
        ("UNWINDER", "cached"),
        ("UNWINDER", "libunwind"),
        ("MAPPINGS", "0"),
        ("SAMPLE_MEMORY_MS", "0"),
        ("SAMPLE_MEMORY_MS", "1"),
        ("BUFFER", "1M"),
    ] {
        let run = Case::new("realloc_chain.c").option(name, value).agrees();
        let by_libunwind = number(&run.info, "/recorder/stacks/libunwind");
        assert_eq!(by_libunwind > 0, value == "libunwind", "{name}={value}: {:#}", run.info);
        let by_rules = number(&run.info, "/recorder/stacks/paths") + number(&run.info, "/recorder/stacks/cfi");
        assert!(by_rules > 0 || value == "libunwind", "{name}={value}: {:#}", run.info);
    }
}

// The C library keeps none, so what called main stays unknown.
#[test]
fn frame_pointers_suffice_for_a_program_that_keeps_them() {
    Case::compiled("depth.c", &["-O1", "-fno-omit-frame-pointer"])
        .option("UNWINDER", "frame-pointer")
        .cut_stacks()
        .agrees();
}

#[test]
fn frees_without_stacks_are_frees_all_the_same() {
    let run = Case::new("layout.c").option("FREE_STACKS", "0").agrees();
    assert!(run.ledger.frees.iter().all(|&free| run.ledger.stacks[free].frames.is_empty()));
}

#[test]
fn the_bundled_allocator_serves_the_program_if_asked() {
    Case::new("family.c").option("ALLOCATOR", "jemalloc").agrees();
    Case::new("realloc_chain.c").option("ALLOCATOR", "jemalloc").agrees();
}

#[test]
fn collections_in_rust() {
    agrees("collections.rs", &[]);
}

#[test]
fn collections_in_unoptimised_rust() {
    Case::compiled("collections.rs", &["-Copt-level=0"]).agrees();
}

/// There rustc leaves `main` itself without unwind information, and no frame pointer leads out of it.
#[test]
fn collections_in_rust_that_aborts_on_panics() {
    Case::compiled("collections.rs", &["-O", "-Cpanic=abort"]).agrees();
    Case::compiled("collections.rs", &["-Copt-level=0", "-Cpanic=abort"]).agrees();
}

#[test]
fn futures_in_rust() {
    agrees("rust_futures.rs", &[]);
}

#[test]
fn every_operator_new_and_the_containers() {
    agrees("cpp_new.cpp", &[]);
}

#[test]
fn a_program_with_its_own_operator_new() {
    agrees("cpp_replaced.cpp", &[]);
}

#[test]
fn valgrind_counts_the_same_of_whole_processes() {
    // None with threads: the loader's table of thread-local storage has one more entry with us.
    for source in [
        "realloc_chain.c",
        "edges.c",
        "frames.c",
        "longjmp.c",
        "spawn.c",
        "exceptions.cpp",
        "collections.rs",
        "rust_futures.rs",
    ] {
        let ours = agrees(source, &[]).info;
        let program = compile(source, &[if source.ends_with(".rs") { "-O" } else { "-O1" }]);
        let reallocs = number(&ours, "/events/realloc");
        let ours = Usage {
            allocs: number(&ours, "/allocations/count"),
            frees: number(&ours, "/events/free") + reallocs,
            bytes: number(&ours, "/allocations/bytes"),
        };
        assert_eq!(ours, valgrind::usage(program, &[], &[]), "{source}");
    }
}

#[test]
fn a_child_whose_thread_local_variables_are_the_programs_own() {
    let run = agrees("clone_storage.c", &[]);
    assert_eq!(run.plain.printed(), "the child has ended with 5, by signal 0\n".repeat(2));
}
