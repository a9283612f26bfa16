//! 500 panics caught, ten in threads, and one last that ends the process with code 101; everything on the way is
//! dropped.

mod counted;

use std::hint::black_box;
use std::panic::{catch_unwind, set_hook};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Guard(#[allow(dead_code, reason = "held for its drop")] Box<[u8]>);

impl Drop for Guard {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, SeqCst);
    }
}

#[inline(never)]
fn guarded() -> Guard {
    Guard(black_box(vec![5; 1700].into_boxed_slice()))
}

#[inline(never)]
fn descend(depth: u32) -> u32 {
    let guard = guarded();
    if depth == 0 {
        panic!("at the bottom");
    }
    let below = descend(depth - 1);
    black_box(&guard);
    below + 1
}

fn main() {
    counted::say_counted_at_exit();
    set_hook(Box::new(|_| ()));
    let caught = (0..500).filter(|i| catch_unwind(|| descend(i % 20)).is_err()).count();
    let in_threads = (0..10).filter(|_| std::thread::spawn(|| descend(5)).join().is_err()).count();
    let expected = (0..500).map(|i| i % 20 + 1).sum::<usize>() + 60;
    println!("caught {caught} and {in_threads}, dropped {} of {expected}", DROPPED.load(SeqCst));
    println!("truth function guarded {} {}", expected + 3, (expected + 3) * 1700);
    println!("truth leaked guarded 0 0");
    descend(2);
}
