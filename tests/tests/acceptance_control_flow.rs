//! Control flow that leaves functions other than by return: the program does what it would, and stacks stay right.

use serde_json::Value;
use tracehound_tests::ground_truth::{Case, agrees};
use tracehound_tests::{compile, dump, dump_where, functions, number, trace};

#[test]
fn exceptions_destroy_every_object() {
    let run = agrees("exceptions.cpp", &[]);
    // Nothing is left of the exceptions: what lives belongs to the C++ runtime itself.
    assert!(run.ledger.live().count() <= 1, "{:?}", run.ledger.live().collect::<Vec<_>>());
}

#[test]
fn exceptions_in_optimised_code() {
    Case::compiled("exceptions.cpp", &["-O3", "-fomit-frame-pointer"]).agrees();
}

#[test]
fn cancelled_and_exiting_threads_clean_up() {
    agrees("cancel.c", &[]);
    Case::compiled("cancel.c", &["-O1", "-fexceptions"]).agrees();
}

#[test]
fn longjmp_out_of_deep_recursion() {
    agrees("longjmp.c", &[]);
}

/// A thread whose event was left by a jump records on, also from the frame that the event was called by and deeper ones.
#[test]
fn handlers_that_leave_changes_of_the_address_space() {
    let program = compile("jumps_out_of_maps.c", &["-O1"]);
    for (call, stack) in ["mmap", "sbrk", "mremap"].into_iter().flat_map(|call| ["0", "1"].map(|stack| (call, stack))) {
        for _ in 0..3 {
            let run = trace(&program, &[call, stack], &[]);
            assert_eq!(run.output.status.code(), Some(3), "{call} {stack}: {}", run.stderr());
            let is_counted = |event: &Value| event["kind"] == "alloc" && event["size"] == 20001;
            let counted = dump_where(&run.recording(), is_counted);
            assert_eq!(counted.len(), 1000, "{call} {stack}: {:#}", run.info());
            let freed = dump_where(&run.recording(), |event| event["kind"] == "free" && event["size"] == 20001);
            assert_eq!(freed.len(), 500, "{call} {stack}");
            for event in counted {
                let stack = functions(&event["stack"]);
                assert!(stack.iter().any(|name| name == "main"), "{call}: {stack:?}");
            }
        }
    }
}

#[test]
fn coroutines_by_ucontext() {
    agrees("ucontext.c", &[]);
}

#[test]
fn coroutines_by_hand_made_assembly() {
    agrees("coroutine_asm.c", &[]);
}

/// The caller's stack pointer is no multiple of 16, as it should be.
#[test]
fn callers_with_an_odd_stack() {
    let run = trace(compile("odd_stack.c", &["-O1"]), &[], &[]);
    assert!(run.output.status.success(), "{}", run.stderr());
    let info = run.info();
    assert_eq!((&info["complete"], number(&info, "/events/lost")), (&true.into(), 0));
    let mine = |event: &&Value| event["kind"] == "alloc" && event["stack"][1]["function"] == "main";
    let sizes: Vec<u64> = dump(&run.recording()).iter().filter(mine).map(|event| number(event, "/size")).collect();
    assert_eq!(sizes.len(), 2000, "malloc and calloc, a thousand of each");
    assert_eq!(sizes.iter().sum::<u64>(), (0..1000).map(|number| 100 + number + 300).sum::<u64>());
}

#[test]
fn coroutines_of_cpp20() {
    Case::compiled("coroutines20.cpp", &["-O2", "-std=c++20"]).agrees();
}

#[test]
fn handlers_on_an_alternate_stack() {
    agrees("altstack.c", &[]);
}

/// The interrupted stack pointer lies in no mapped memory then: all frames are found nevertheless.
#[test]
fn a_handler_of_a_stack_overflow_sees_the_stack_that_overflowed() {
    let run = Case::new("altstack.c").args(&["overflow"]).any_stderr().agrees();
    let said = run.traced.stderr.trim().strip_prefix("deepest ").and_then(|depth| depth.parse::<usize>().ok());
    let deepest = said.unwrap_or_else(|| panic!("it said {}", run.traced.stderr));
    assert!(deepest > 100, "{deepest}");
    for block in run.ledger.blocks.iter().filter(|block| block.size == 811) {
        let frames = run.ledger.stacks[block.stack].count("overflow");
        // The frame that finds no room may already have been entered, and depths begin with 0.
        assert!((deepest + 1..=deepest + 2).contains(&frames), "{frames} frames at depth {deepest}");
    }
}

#[test]
fn signals_between_and_within_allocations() {
    agrees("signals.c", &[]);
}

#[test]
fn frames_of_every_shape_at_every_optimisation() {
    for flags in [
        &["-O0"][..],
        &["-O1"],
        &["-O2"],
        &["-O3", "-fomit-frame-pointer"],
        &["-O2", "-fno-omit-frame-pointer"],
        &["-Os"],
        &["-O2", "-fno-plt", "-no-pie"],
        &["-O2", "-fcf-protection=full", "-fstack-clash-protection"],
        &["-O2", "-static-libgcc", "-Wl,-z,now"],
    ] {
        Case::compiled("frames.c", flags).agrees();
    }
}

#[test]
fn panics_in_rust_drop_everything() {
    agrees("rust_panic.rs", &[]);
}

#[test]
fn an_aborting_panic_in_rust() {
    let case = Case::compiled("rust_panic.rs", &["-O", "-Cpanic=abort"]).ends("killed");
    case.unharmed();
}
