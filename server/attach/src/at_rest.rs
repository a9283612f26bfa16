//! Stops all threads at an instant in which none is in the allocator: then its heap can be read, and later events fit
//! the blocks that were read.

use std::time::Duration;

use crate::refusal::Result;
use crate::stop::{StoppedThread, stop_others};

/// How often threads that are in the way are given time.
const TRIES: u32 = 400;

/// Lets the threads that are in the way run, and only those, until none is; false if that does not happen.
pub fn bring_to_rest(
    pid: u32,
    threads: &mut Vec<StoppedThread>,
    mut is_in_the_way: impl FnMut(&StoppedThread) -> bool,
) -> Result<bool> {
    for tries in 0..TRIES {
        let (busy, resting): (Vec<_>, Vec<_>) =
            std::mem::take(threads).into_iter().partition(|thread| is_in_the_way(thread));
        *threads = resting;
        if busy.is_empty() {
            // One that was let go on may have made others.
            let known = threads.len();
            stop_others(pid, threads)?;
            if threads.len() == known {
                return Ok(true);
            }
            continue;
        }
        busy.iter().for_each(StoppedThread::go_on);
        // One of them may wait for another, and a call may take long.
        std::thread::sleep(Duration::from_micros(20 + u64::from(tries.min(50)) * 20));
        for thread in busy {
            match StoppedThread::interrupt(thread.tid)? {
                Some(()) => threads.push(thread),
                None => std::mem::forget(thread),
            }
        }
    }
    Ok(false)
}
