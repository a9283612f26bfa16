// The leaking program of the literature: func1 pushes a 1 MiB box and calls func2, which pushes another.
// Runs for the number of milliseconds in its argument.
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

#[inline(never)]
fn func2(kept: &mut Vec<Box<[u8]>>) {
    kept.push(vec![2; MIB].into_boxed_slice());
}

#[inline(never)]
fn func1(kept: &mut Vec<Box<[u8]>>) {
    kept.push(vec![1; MIB].into_boxed_slice());
    func2(kept);
}

fn main() {
    let run_for = std::env::args().nth(1).and_then(|ms| ms.parse().ok()).unwrap_or(3000);
    let start = Instant::now();
    let mut kept = Vec::with_capacity(1 << 16);
    while start.elapsed() < Duration::from_millis(run_for) {
        func1(&mut kept);
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("pushed {} boxes of 1 MiB", kept.len());
    std::mem::forget(kept);
}
