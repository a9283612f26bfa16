//! Generations of code: register ∥ look up.

use tracehound_shared::code::Generations;
use tracehound_shared::sync::model::{check, find_mutant, shared, spawn};

/// Code goes from A; other code comes to a part of it; elsewhere nothing ever changes.
fn unload_and_look_up() {
    let generations = shared(Generations::new());
    let reader = spawn(move || {
        let inside = generations.of(0x2000);
        assert!(inside <= 2, "{inside} was never given out");
        assert_eq!(generations.of(0x9000), 0, "nothing has changed there");
    });
    generations.unload(&(0x1000..0x5000), 7);
    generations.load(&(0x1000..0x3000), 8);
    reader.join().expect("a thread");
    assert!(generations.of(0x4000) == 1 && generations.of(0x2000) == 2);
}

/// A place in the table is used for one range after another.
fn reuse_and_look_up() {
    let generations = shared(Generations::new());
    generations.unload(&(0x1000..0x2000), 0);
    let reader = spawn(move || {
        assert_eq!(generations.of(0x5000), 0, "lies between the ranges, in none");
        let inside = generations.of(0x2800);
        assert!(inside == 0 || inside == 2, "{inside} was never this code's");
    });
    // Hides the first one, whose place it takes.
    generations.unload(&(0x0000..0x3000), 0);
    generations.unload(&(0x8000..0x9000), 0);
    reader.join().expect("a thread");
}

#[test]
fn a_look_up_finds_what_was_or_what_is() {
    check("generations: unload, load ∥ look up", 3, unload_and_look_up);
}

#[test]
fn a_place_that_is_used_again_is_never_seen_in_part() {
    check("generations: reuse ∥ look up", 3, reuse_and_look_up);
}

#[test]
fn mutant_the_odd_version_is_not_released() {
    find_mutant("generation-fence", 3, reuse_and_look_up).unwrap();
}
