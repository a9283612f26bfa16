//! The pool of chunks: take ∥ take in several sizes, send ∥ receive ∥ give back.

use tracehound_shared::chunk::{Chunk, LARGEST};
use tracehound_shared::pool::Pool;
use tracehound_shared::sync::model::{check, find_mutant, shared, spawn};

use crate::stage::{pool, receive, record};

fn one_slot() -> &'static Pool {
    shared(pool(1).1)
}

/// Takes a chunk, which nobody else has, and which is as a wiped one.
fn take(pool: &Pool, class: u32, thread: u32) -> Option<(u32, Chunk)> {
    let (number, chunk) = pool.take(class, true)?;
    let clean = (chunk.thread(), chunk.used(), chunk.written(), chunk.first_record());
    assert_eq!(clean, (0, 0, 0, 0), "a chunk that is taken is free");
    assert!(chunk.record(0).is_none(), "and empty");
    chunk.open(thread, 1, 0);
    chunk.put(0, record(u64::from(thread)));
    Some((number, chunk))
}

/// Two threads take of a slot that is whole, each in its size.
fn divide() {
    let pool = one_slot();
    let other = spawn(move || take(pool, LARGEST - 1, 1));
    let own = take(pool, LARGEST - 1, 2);
    let other = other.join().expect("a thread");
    let places: Vec<_> = [own, other].into_iter().flatten().map(|(_, chunk)| chunk).collect();
    assert_eq!(places.len(), 2, "there is one for each");
    assert_eq!(places[0].first_address().abs_diff(places[1].first_address()), 32 << 10, "they do not overlap");
    assert_eq!((places[0].thread(), places[1].thread()), (2, 1));
    assert_eq!(pool.free_bytes(), 0);
}

/// One thread sends what it took; the writer gives it back; the other thread waits for it, in another size.
fn hand_on() {
    let pool = one_slot();
    let (first, chunk) = take(pool, LARGEST, 1).expect("it is free");
    let sender = spawn(move || {
        chunk.put(1, record(5));
        chunk.close(2);
        pool.send(first);
        // Whether it is back by now is chance.
        take(pool, LARGEST - 2, 2).map(|(number, chunk)| {
            chunk.close(1);
            pool.send(number);
        })
    });
    let mut found = receive(pool);
    let again = sender.join().expect("a thread").is_some();
    found.append(&mut receive(pool));
    let expected = [1, 5, 2].map(|number| record(number).to_words());
    let found: Vec<_> = found.iter().map(|found| found.to_words()).collect();
    assert_eq!(found, expected[..2 + usize::from(again)], "what was sent arrives, in order");
    assert_eq!(pool.free_bytes(), pool.bytes(), "all is back");
    assert!(take(pool, LARGEST, 3).is_some(), "and whole again");
}

/// Two threads send; the writer finds both.
fn send_at_once() {
    let pool = one_slot();
    let [own, other] = [1, 2].map(|thread| {
        let (number, chunk) = take(pool, LARGEST - 1, thread).expect("there is one for each");
        chunk.close(1);
        number
    });
    let thread = spawn(move || pool.send(other));
    pool.send(own);
    let mut found = receive(pool);
    thread.join().expect("a thread");
    found.append(&mut receive(pool));
    let mut found: Vec<_> = found.iter().map(|found| found.to_words()).collect();
    found.sort_unstable();
    assert_eq!(found, [1, 2].map(|number| record(number).to_words()));
    assert_eq!(pool.free_bytes(), pool.bytes(), "all is back");
}

#[test]
fn a_slot_is_divided_once() {
    check("pool: take ∥ take", 3, divide);
}

#[test]
fn a_chunk_that_comes_back_is_clean() {
    check("pool: send, take ∥ receive, give back", 3, hand_on);
}

#[test]
fn chunks_that_are_sent_at_once_both_arrive() {
    check("pool: send ∥ send, receive", 3, send_at_once);
}

#[test]
fn mutant_a_chunk_is_sent_before_it_is_closed() {
    find_mutant("pool-send", 3, hand_on).unwrap();
}

#[test]
fn mutant_the_writer_takes_what_it_does_not_see() {
    find_mutant("pool-receive", 3, hand_on).unwrap();
}
