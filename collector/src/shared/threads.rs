//! The list of all thread contexts. It only grows; contexts of ended threads are used again.

use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::sys;
use super::thread::{NO_CHUNK, ThreadContext, life};

/// See the module's description.
#[derive(Default)]
pub struct Threads {
    head: AtomicPtr<ThreadContext>,
    count: AtomicU32,
    free: AtomicU32,
    next_id: AtomicU32,
    /// Records lost by threads that found no memory for a context.
    pub homeless: AtomicU64,
}

impl Threads {
    /// A new recording-wide thread id, from 1.
    pub fn new_id(&self) -> u32 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Contexts made so far.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// A context for a new thread, alive but not yet filled in: `None` without memory.
    pub fn acquire(&self) -> Option<&'static ThreadContext> {
        if self.free.load(Ordering::Relaxed) > 0 {
            for context in self.iter() {
                if context.life.load(Ordering::Relaxed) == life::FREE
                    && context
                        .life
                        .compare_exchange(life::FREE, life::LIVE, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    self.free.fetch_sub(1, Ordering::Relaxed);
                    return Some(context);
                }
            }
        }
        let memory = sys::map_memory(size_of::<ThreadContext>()).ok()?.cast::<ThreadContext>();
        // SAFETY: a forked child must not find the parent's chunk in here; old kernels cannot do it, and there the
        // fork handler alone protects it.
        unsafe { sys::wipe_in_children(memory.cast(), size_of::<ThreadContext>()) };
        // SAFETY: fresh, zeroed, page-aligned memory, which makes a valid context, and is never unmapped.
        let context = unsafe { &*memory };
        context.active.store(NO_CHUNK, Ordering::Relaxed);
        context.life.store(life::LIVE, Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            context.next.store(head, Ordering::Relaxed);
            match self.head.compare_exchange_weak(head, memory, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        Some(context)
    }

    /// Gives the context of an ended thread back, for another one.
    pub fn release(&self, context: &ThreadContext) {
        context.id.store(0, Ordering::Release);
        context.os_thread.store(0, Ordering::Relaxed);
        context.active.store(NO_CHUNK, Ordering::Relaxed);
        context.life.store(life::FREE, Ordering::Release);
        self.free.fetch_add(1, Ordering::Relaxed);
    }

    /// All contexts, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &'static ThreadContext> {
        let mut at = self.head.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: contexts in the list are valid for ever.
            let context = unsafe { at.as_ref() }?;
            at = context.next.load(Ordering::Relaxed);
            Some(context)
        })
    }
}
