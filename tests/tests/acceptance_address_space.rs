//! The address space: every change the program asks for is an event, to the byte; failures are not.

use tracehound_tests::ground_truth::{Case, agrees};
use tracehound_tests::{dump_with, number};

#[test]
fn maps_unmaps_and_remaps() {
    agrees("maps.c", &[]);
}

#[test]
fn what_a_remap_leaves_mapped_stays() {
    agrees("remaps_kept.c", &[]);
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
fn what_was_mapped_before_is_reported_and_is_no_event_of_the_program() {
    let run = agrees("mapped_before.c", &[]);
    let existing: Vec<(u64, u64)> = dump_with(&["--existing"], &run.recording)
        .iter()
        .filter(|event| event["kind"] == "existing")
        .map(|event| {
            let address = event["address"].as_str().expect("an address").trim_start_matches("0x");
            (u64::from_str_radix(address, 16).expect("hexadecimal"), number(event, "/size"))
        })
        .collect();
    let holds = |address: u64| existing.iter().any(|&(start, len)| (start..start + len).contains(&address));
    let mut places = 0;
    let said = std::fs::read_to_string(run.traced.folder.path().join("places")).expect("the program says where");
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [word @ ("mapped" | "recorder"), name, address] = words[..] else { continue };
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).expect("hexadecimal");
        assert_eq!(holds(address), word == "mapped", "{name} at {address:#x}: {existing:x?}");
        places += 1;
    }
    assert_eq!(places, 5, "{said}");
    let sum: u64 = existing.iter().map(|&(_, len)| len).sum();
    assert!((2 << 20..256 << 20).contains(&sum), "{sum} bytes were mapped before: {existing:x?}");
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
