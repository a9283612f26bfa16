//! Collections, strings, reference counts and boxes of every alignment.

mod counted;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hint::black_box;
use std::rc::Rc;

#[repr(align(512))]
struct Wide([u8; 700]);

#[inline(never)]
fn boxed(size: usize) -> Box<[u8]> {
    black_box(vec![1; size].into_boxed_slice())
}

#[inline(never)]
fn zeroed(size: usize) -> Vec<u8> {
    black_box(vec![0; size])
}

#[inline(never)]
fn wide() -> Box<Wide> {
    black_box(Box::new(Wide([3; 700])))
}

#[inline(never)]
fn leaking() {
    for _ in 0..10 {
        std::mem::forget(black_box(boxed(4321)));
    }
}

fn main() {
    counted::say_counted_at_exit();
    let mut vector = Vec::new();
    let mut map = HashMap::new();
    let mut tree = BTreeMap::new();
    let mut queue = VecDeque::new();
    for i in 0..5000u32 {
        vector.push(i);
        map.insert(i, i.to_string());
        tree.insert(i.wrapping_mul(2_654_435_761), Rc::new(i));
        queue.push_back(Rc::clone(&tree[&i.wrapping_mul(2_654_435_761)]));
        if i % 3 == 0 {
            queue.pop_front();
            map.remove(&(i / 2));
        }
    }
    let mut text = String::new();
    for word in map.values().take(100) {
        text.push_str(word);
    }
    for _ in 0..100 {
        assert_eq!(wide().0[699], 3);
        assert_eq!(zeroed(2222)[2221], 0);
    }
    leaking();
    println!("{} {} {} {}", vector.len(), map.len(), tree.len(), queue.len());
    println!("truth function wide 100 {}", 100 * size_of::<Wide>());
    println!("truth function zeroed 100 222200");
    println!("truth leaked leaking 10 43210");
    println!("truth callers 4321 boxed leaking");
}
