//! The address space: every change the program asks for is an event, to the byte; failures are not.

use tracehound_tests::ground_truth::{Case, agrees};
use tracehound_tests::number;

#[test]
fn maps_unmaps_and_remaps() {
    agrees("maps.c", &[]);
}

#[test]
fn the_program_break() {
    agrees("breaks.c", &[]);
}

#[test]
fn sixty_thousand_mappings() {
    agrees("many_maps.c", &[]);
}

#[test]
fn mappings_are_left_out_if_asked() {
    let case = Case::new("maps.c").option("MAPPINGS", "0");
    let (_, traced) = case.unharmed();
    let info = case.sound(&traced.recordings()[0], "exit");
    for kind in ["map", "unmap", "remap", "brk"] {
        assert_eq!(number(&info, &format!("/events/{kind}")), 0, "{kind}");
    }
}
