//! Control: start and stop act at once, marks have their labels, pools are allocators.

use tracehound_tests::ground_truth::Case;

#[test]
fn start_and_stop_by_the_api() {
    let run = Case::new("controlled.c").agrees();
    let captures = run.info["captures"].as_array().map_or(0, Vec::len);
    assert_eq!(captures, 2, "{:#}", run.info);
    let labels: Vec<&str> =
        run.info["marks"].as_array().into_iter().flatten().filter_map(|mark| mark["label"].as_str()).collect();
    assert_eq!(labels, ["after the first", "after the second"]);
}

#[test]
fn off_at_the_start() {
    Case::new("controlled.c").args(&["off"]).option("START", "off").agrees();
}

#[test]
fn toggled_by_a_signal() {
    Case::new("toggled.c").option("TOGGLE_SIGNAL", "USR1").agrees();
}

#[test]
fn pools_are_recorded_block_by_block() {
    Case::new("pools.c").agrees();
}
