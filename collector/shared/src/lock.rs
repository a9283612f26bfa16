//! A small lock on a futex, for cold paths. Never taken while an event is being recorded on the fast path.

use crate::sync::atomic::{AtomicU32, Ordering};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use super::sys;
use crate::sync::assert_exclusive;

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED_FOR: u32 = 2;

/// A value behind a lock.
pub struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// An open lock.
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> LockGuard<'_, T> {
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.word.swap(WAITED_FOR, Ordering::Acquire) != FREE {
                sys::futex_wait(&self.word, WAITED_FOR, 1_000_000_000);
            }
        }
        assert_exclusive(&self.value);
        LockGuard { lock: self }
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok().then(|| {
            assert_exclusive(&self.value);
            LockGuard { lock: self }
        })
    }

    /// Opens the lock even if another thread holds it, without reading the value.
    ///
    /// # Safety
    /// The lock must be held, by code that will not continue: of a thread that does not exist in a forked child, or of the
    /// calling thread, where a jump has left it. The value may be half changed and must be replaced.
    pub unsafe fn abandon(&self, fresh: T) {
        // SAFETY: nobody uses the value: the lock is held by code that does not continue, by the contract of `abandon`. The
        // old value is left alone: its owner is gone in the middle of a change.
        unsafe { self.value.get().write(fresh) };
        self.word.store(FREE, Ordering::Release);
    }
}

/// The lock, held.
pub struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists once.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists once.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        if self.lock.word.swap(FREE, Ordering::Release) == WAITED_FOR {
            sys::futex_wake(&self.lock.word, 1);
        }
    }
}
