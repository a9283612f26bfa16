//! Records in a chunk: publish ∥ read, as the writer reads an active chunk while its thread fills it.

use tracehound_format::record::{Kind, Record};
use tracehound_record::publish;
use tracehound_shared::chunk::Chunk;
use tracehound_shared::sync::model::{check, find_mutant, memory, shared, spawn};
use tracehound_shared::thread::ThreadContext;

use core::sync::atomic::Ordering;

fn record(number: u64) -> Record {
    Record::new(Kind::Malloc, 100 + number, 0x1000 * number, number as u32, 16 * number as u32)
}

fn world() -> (&'static ThreadContext, Chunk) {
    // SAFETY: aligned, zeroed, mapped to the end of the execution.
    let chunk = unsafe { Chunk::at(memory(64 << 10), 64 << 10) };
    chunk.open(1, 2, 0);
    let context = shared(ThreadContext::default());
    context.id.store(1, Ordering::Relaxed);
    context.cursor.store(chunk.first_address(), Ordering::Relaxed);
    context.limit.store(chunk.end_address(), Ordering::Relaxed);
    (context, chunk)
}

fn publish_and_read() {
    let (context, chunk) = world();
    let thread = spawn(move || {
        publish::one(context, record(1));
        publish::several(context, &[record(2), record(3)], false);
    });
    let mut seen = 0;
    while let Some(found) = chunk.record(seen) {
        seen += 1;
        assert_eq!(found.to_words(), record(u64::from(seen)).to_words(), "a record that is seen is whole");
    }
    // Of records that belong together a reader sees none or, behind the first, all.
    assert_ne!(seen, 2, "a part of what belongs together");
    thread.join().expect("a thread");
    assert!((0..3).all(|index| chunk.record(index).is_some()));
}

#[test]
fn a_record_that_is_seen_is_whole() {
    check("publish ∥ read", 3, publish_and_read);
}

#[test]
fn mutant_the_first_word_is_not_released() {
    find_mutant("publish-first-word", 3, publish_and_read).unwrap();
}
