//! Named threads, scoped threads, channels and thread-local values in Rust.

mod counted;

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::mpsc::channel;
use std::thread;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(3333));
}

#[inline(never)]
fn message(size: usize) -> Box<[u8]> {
    black_box(vec![7; size].into_boxed_slice())
}

fn main() {
    counted::say_counted_at_exit();
    let (sender, receiver) = channel::<Box<[u8]>>();
    let mut handles = Vec::new();
    for number in 0..6 {
        let sender = sender.clone();
        let worker = move || {
            for _ in 0..500 {
                sender.send(message(1500)).unwrap();
            }
            SCRATCH.with_borrow_mut(|scratch| scratch.push(1));
        };
        handles.push(thread::Builder::new().name(format!("worker {number}")).spawn(worker).unwrap());
    }
    drop(sender);
    let sum: usize = receiver.iter().map(|block| block.len()).sum();
    for handle in handles {
        handle.join().unwrap();
    }
    thread::scope(|scope| {
        // A scope waits for its closures, not for its threads, which would still free what std keeps of them while the
        // truth is printed. Who joins waits for both.
        let handles: [_; 4] = std::array::from_fn(|_| scope.spawn(|| assert_eq!(message(1600)[5], 7)));
        for handle in handles {
            handle.join().unwrap();
        }
    });
    println!("received {sum} bytes");
    println!("truth function message 3004 {}", 3000 * 1500 + 4 * 1600);
    println!("truth size 3333 6");
    println!("truth leaked message 0 0");
}
