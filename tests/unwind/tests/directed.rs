//! Constructed cases, each for one thing that random trees would meet rarely or never.

mod support;

fn holds(program: &str, case: &str) {
    let output = support::run(program, &[case, "."], &[]);
    assert!(output.status.success(), "{}", support::said(&output));
}

macro_rules! cases {
    ($program:literal: $($name:ident = $case:literal),* $(,)?) => {
        $(#[test] fn $name() { holds($program, $case); })*
    };
}

cases! { "directed":
    rbp_at_the_top = "rbp-at-the-top",
    rbp_at_the_top_far = "rbp-at-the-top-far",
    rbp_without_join_far = "rbp-without-join-far",
    many_callers_far = "many-callers-far",
    forgotten_far = "forgotten-far",
    rbp_kept_inside = "rbp-kept-inside",
    rbp_saved_inside = "rbp-saved-inside",
    rooms_a_mebibyte_apart = "rooms-a-mebibyte-apart",
    rbp_without_join = "rbp-without-join",
    rbp_through_a_realigned_frame = "rbp-through-a-realigned-frame",
    realigned_rbp = "realigned-rbp",
    many_callers = "many-callers",
    outermost_frames = "outermost-frames",
    lying_frames = "lying-frames",
    bad_rbp = "bad-rbp",
    cut_frames = "cut-frames",
    passing_stacks = "passing-stacks",
    lying_general = "lying-general",
    signal_checks = "signal-checks",
    no_information = "no-information",
    epilogues = "epilogues",
    general = "general",
    restorer_without_information = "restorer-without-information",
    deep = "deep",
    deeper_than_memory = "deeper-than-memory",
    forgetting = "forgetting",
    destroy_gives_everything_back = "destroy-gives-everything-back",
    jumps_out_of_handlers = "jumps-out-of-handlers",
    small_signal_stack = "small-signal-stack",
    overflowed_stack = "overflowed-stack",
    signatures_of_two_calls = "signatures-of-two-calls",
    signatures_with_rbp = "signatures-with-rbp",
    signatures_of_a_shorter_stack = "signatures-of-a-shorter-stack",
}

cases! { "loading":
    same_library_again = "same-library-again",
    other_library_in_its_place = "other-library-in-its-place",
    library_known_by_paths_alone = "library-known-by-paths-alone",
    twin_library_in_its_place = "twin-library-in-its-place",
    unnamed_library_in_its_place = "unnamed-library-in-its-place",
    libraries_of_the_c_library = "libraries-of-the-c-library",
    loading_beside_other_threads = "loading-beside-other-threads",
    compiled_at_run_time = "compiled-at-run-time",
    damaged_registration = "damaged-registration",
    information_on_disk = "information-on-disk",
    code_in_place_of_a_library = "code-in-place-of-a-library",
}
