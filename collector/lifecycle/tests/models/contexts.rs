//! Thread contexts: acquire ∥ acquire ∥ release, and who goes through the list meanwhile.

use core::sync::atomic::Ordering;

use tracehound_shared::sync::model::{check, shared, spawn};
use tracehound_shared::threads::ThreadTable;

fn acquire_and_release() {
    let threads = shared(ThreadTable::default());
    let free = threads.acquire().expect("memory");
    free.id.store(9, Ordering::Release);
    let live = move |id: u32| {
        let context = threads.acquire().expect("memory");
        // Nobody else has it: what is written stays.
        assert_ne!(context.id.load(Ordering::Relaxed), 3 - id, "two threads have one context");
        context.id.store(id, Ordering::Release);
        assert_eq!(context.id.load(Ordering::Relaxed), id);
        context
    };
    let other = spawn(move || core::ptr::from_ref(live(1)) as usize);
    threads.release(free);
    let own = core::ptr::from_ref(live(2)) as usize;
    let other = other.join().expect("a thread");
    assert_ne!(own, other, "two threads have one context");
    let listed: Vec<usize> = threads.iter().map(|context| core::ptr::from_ref(context) as usize).collect();
    assert!(listed.contains(&own) && listed.contains(&other), "contexts stay in the list");
}

#[test]
fn a_context_has_one_thread() {
    check("contexts: acquire ∥ release, acquire", 2, acquire_and_release);
}
