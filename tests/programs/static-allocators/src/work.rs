//! What an ordinary Rust program does with its allocator: grows, sorts, shares, sends to threads and forgets.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;
use std::thread;

#[repr(align(256))]
struct Wide([u8; 512]);

#[inline(never)]
fn leaked_box(number: usize) {
    std::mem::forget(std::hint::black_box(vec![number as u8; 3331].into_boxed_slice()));
}

#[inline(never)]
fn grown(steps: usize) -> Vec<u64> {
    let mut list = Vec::new();
    for i in 0..steps {
        list.push(i as u64);
    }
    list
}

pub fn work() {
    for i in 0..7 {
        leaked_box(i);
    }
    println!("truth leaked leaked_box 7 {}", 7 * 3331);
    let sum: u64 = grown(50_000).iter().sum();
    let words: BTreeMap<String, usize> = (0..2000).map(|i| (format!("word {i}"), i)).collect();
    let lengths: HashMap<usize, Vec<u8>> = (0..500).map(|i| (i, vec![0; i])).collect();
    let wide: Vec<Box<Wide>> = (0..50).map(|i| Box::new(Wide([i as u8; 512]))).collect();
    let (send, receive) = mpsc::channel::<Vec<u8>>();
    let makers: Vec<_> = (0..4)
        .map(|thread| {
            let send = send.clone();
            thread::spawn(move || (0..2000).for_each(|i| send.send(vec![thread; i % 300 + 1]).unwrap()))
        })
        .collect();
    drop(send);
    let received: usize = receive.iter().map(|block| block.len()).sum();
    makers.into_iter().for_each(|maker| maker.join().unwrap());
    let at = wide.iter().map(|wide| wide.0[0] as usize).sum::<usize>();
    println!("{sum} {} {} {at} {received}", words.len(), lengths.values().map(Vec::len).sum::<usize>());
}
