//! Chunks taken from a thread while it records: publish ∥ seize.

use tracehound_shared::sync::model::{check, find_mutant, spawn};

use crate::stage::{self, numbers};

fn publish_and_seize() {
    let session = stage::session();
    let context = stage::thread(session);
    let thread = spawn(move || (2..=3).for_each(|number| stage::publish(context, number)));
    let mut seen = numbers(&stage::take(session, context));
    thread.join().expect("a thread");
    seen.append(&mut numbers(&stage::take(session, context)));
    assert_eq!(seen, [1, 2, 3], "every record arrives once, in order");
}

#[test]
fn nothing_is_lost_when_chunks_are_taken() {
    check("publish ∥ seize", 2, publish_and_seize);
}

#[test]
fn mutant_the_thread_does_not_announce_its_event() {
    find_mutant("light-barrier", 2, publish_and_seize).unwrap();
}

#[test]
fn mutant_the_writer_sees_the_mode_and_not_what_came_before() {
    find_mutant("mode-seen", 2, publish_and_seize).unwrap();
}

#[test]
fn mutant_the_thread_settles_before_it_is_done() {
    find_mutant("settle", 2, publish_and_seize).unwrap();
}
