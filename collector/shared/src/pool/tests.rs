//! The pool: sizes, division, exhaustion, and threads that take and send at once.

use super::*;

const SLOTS: u32 = 20;

fn pool(slots: u32) -> Pool {
    let memory = sys::map_memory(slots as usize * SLOT_BYTES).expect("memory");
    // SAFETY: that many slots, zeroed, never unmapped.
    unsafe { Pool::new(memory, core::ptr::null_mut(), false, slots) }
}

/// Size of the chunks of a slot, as a reader of the side file finds it.
fn said(pool: &Pool, slot: u32) -> u32 {
    use tracehound_format::live::chunk_offset;
    // SAFETY: the header of the slot's first chunk.
    unsafe { pool.slot(slot).add(chunk_offset::BYTES).cast::<u32>().read() }
}

fn take_all(pool: &Pool, class: u32) -> Vec<(u32, Chunk)> {
    core::iter::from_fn(|| pool.take(class, true)).collect()
}

fn give_all_back(pool: &Pool, chunks: impl IntoIterator<Item = (u32, Chunk)>) {
    for (number, chunk) in chunks {
        chunk.wipe();
        pool.give_back(number);
    }
}

#[test]
fn every_class_uses_all_memory_and_slots_are_divided_anew() {
    let pool = pool(SLOTS);
    for class in [0, 4, 2, 1, 3, 0] {
        let chunks = take_all(&pool, class);
        assert_eq!(chunks.len() as u32, SLOTS * (STEPS >> class), "class {class}");
        let mut places: Vec<u64> = chunks.iter().map(|(_, chunk)| chunk.first_address()).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] == u64::from(bytes_of(class))));
        assert!(chunks.iter().all(|(_, chunk)| chunk.bytes() == bytes_of(class)));
        assert!((0..SLOTS).all(|slot| said(&pool, slot) == bytes_of(class)));
        assert_eq!(pool.free_bytes(), 0);
        for (_, chunk) in &chunks {
            chunk.open(7, 8, 9);
            chunk.close(chunk.room());
        }
        give_all_back(&pool, chunks);
        assert_eq!(pool.free_bytes(), pool.bytes());
    }
}

#[test]
fn what_was_used_is_zero_in_chunks_of_another_size() {
    use tracehound_format::record::{Kind, Record};
    let pool = pool(1);
    let small = take_all(&pool, 0);
    for (number, chunk) in &small {
        chunk.open(*number + 1, 2, 3);
        (0..chunk.room()).for_each(|index| chunk.put(index, Record::new(Kind::Malloc, 5, 16, 1, 1)));
        chunk.close(chunk.room());
        chunk.set_written(4);
        pool.send(*number);
    }
    while let Some(number) = pool.receive() {
        pool.chunk(number).expect("a chunk").wipe();
        pool.give_back(number);
    }
    let (_, large) = pool.take(LARGEST, true).expect("the slot is whole again");
    assert_eq!(large.bytes() as usize, SLOT_BYTES);
    assert!((0..large.room()).all(|index| large.record(index).is_none()));
    assert_eq!((large.written(), large.used(), large.first_record(), large.thread()), (0, 0, 0, 0));
}

#[test]
fn a_chunk_of_another_size_is_better_than_none() {
    let pool = pool(2);
    let small = take_all(&pool, 0);
    let (some, rest) = small.split_at(3);
    give_all_back(&pool, some.iter().copied());
    let found = take_all(&pool, LARGEST);
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|(_, chunk)| chunk.bytes() == bytes_of(0)));
    give_all_back(&pool, found);
    give_all_back(&pool, rest.iter().copied());
    assert_eq!(take_all(&pool, LARGEST).len(), 2, "whole again");
}

#[test]
fn chunks_arrive_in_the_order_in_which_they_were_sent() {
    let pool = pool(2);
    let numbers: Vec<u32> = take_all(&pool, 1).into_iter().map(|(number, _)| number).collect();
    let (first, second) = numbers.split_at(5);
    first.iter().for_each(|&number| pool.send(number));
    assert_eq!(pool.receive(), Some(first[0]));
    second.iter().for_each(|&number| pool.send(number));
    let received: Vec<u32> = core::iter::from_fn(|| pool.receive()).collect();
    assert_eq!(received, numbers[1..]);
    assert_eq!(pool.queued.load(Ordering::Relaxed), 0);
}

#[test]
fn a_part_of_the_memory_for_everybody() {
    let pool = pool(512);
    assert_eq!([0, 1, 100, 256].map(|threads| pool.fair_class(threads)), [LARGEST; 4]);
    assert_eq!([257, 512, 1000, 2048, 4096, 10_000, u32::MAX].map(|t| pool.fair_class(t)), [3, 3, 2, 1, 0, 0, 0]);
}

/// A thread that has lost its processor in the middle of giving chunks back has counted them and shows none. Thousands that
/// look for them must leave it a processor.
#[test]
fn chunks_that_are_counted_and_not_yet_shown_are_waited_for_asleep() {
    const WAIT: std::time::Duration = std::time::Duration::from_millis(30);
    let pool = pool(1);
    let taken = take_all(&pool, LARGEST);
    pool.free.fetch_add(STEPS, Ordering::SeqCst);
    assert!(pool.take(0, true).is_none());
    let start = std::time::Instant::now();
    pool.wait(WAIT.as_nanos() as u64);
    assert!(start.elapsed() >= WAIT, "slept {:?}", start.elapsed());
    pool.free.fetch_sub(STEPS, Ordering::SeqCst);
    // One that is shown is not waited for.
    taken.iter().for_each(|(number, _)| pool.give_back(*number));
    let start = std::time::Instant::now();
    pool.wait(10_000_000_000);
    assert!(start.elapsed() < WAIT * 10, "slept {:?}", start.elapsed());
}

#[test]
fn threads_take_and_send_while_the_writer_gives_back() {
    const THREADS: u32 = 6;
    const EACH: u32 = 20_000;
    let pool = pool(4);
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pool, done) = (&pool, &done);
            scope.spawn(move || {
                let mut sent = 0;
                while sent < EACH {
                    let Some((number, chunk)) = pool.take((thread + sent) % CLASSES, true) else {
                        pool.wait(1_000_000);
                        continue;
                    };
                    // Nobody else has it: its header is as a wiped chunk's.
                    assert_eq!((chunk.thread(), chunk.used()), (0, 0));
                    chunk.open(thread + 1, 0, u64::from(sent));
                    chunk.close(0);
                    assert_eq!(chunk.thread(), thread + 1);
                    pool.send(number);
                    sent += 1;
                }
                done.fetch_add(1, Ordering::Release);
            });
        }
        let mut next = [0_u64; THREADS as usize];
        loop {
            let finished = done.load(Ordering::Acquire) == THREADS;
            while let Some(number) = pool.receive() {
                let chunk = pool.chunk(number).expect("a chunk");
                let expected = &mut next[chunk.thread() as usize - 1];
                assert_eq!(chunk.first_record(), *expected, "a thread's chunks arrive in order");
                *expected += 1;
                chunk.wipe();
                pool.give_back(number);
            }
            if finished {
                break;
            }
            std::thread::yield_now();
        }
        assert_eq!(next, [u64::from(EACH); THREADS as usize]);
    });
    assert_eq!(pool.free_bytes(), pool.bytes());
    assert_eq!(take_all(&pool, LARGEST).len(), 4);
}
