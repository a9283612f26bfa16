//! The atomics of the model: layout of core's, behaviour of loom's.

use std::rc::Rc;

use core::sync::atomic::{self as real, Ordering};
use loom::sync::atomic as modelled;

use super::{ModelShape, is_mutant, object, stored};

/// loom treats sequentially consistent accesses as acquiring and releasing ones; fences it has right.
fn fenced<R>(order: Ordering, before: bool, after: bool, operation: impl FnOnce() -> R) -> R {
    let strict = order == Ordering::SeqCst;
    if strict && before {
        modelled::fence(Ordering::SeqCst);
    }
    let result = operation();
    if strict && after {
        modelled::fence(Ordering::SeqCst);
    }
    result
}

fn plain(order: Ordering, strict: Ordering) -> Ordering {
    if order == Ordering::SeqCst { strict } else { order }
}

macro_rules! atomic {
    ($name:ident, $value:ty, $real:ident, $object:ident, $shape:ident, $to:expr) => {
        /// As core's, in a model.
        #[repr(transparent)]
        #[derive(Default, Debug)]
        pub struct $name(real::$real);

        impl $name {
            /// A new value.
            pub const fn new(value: $value) -> Self {
                Self(real::$real::new(value))
            }

            fn at(&self) -> usize {
                core::ptr::from_ref(self) as usize
            }

            /// Makes the object before it is used.
            pub(super) fn make(&self) {
                drop(self.object(true));
            }

            fn object(&self, early: bool) -> Rc<modelled::$object> {
                let raw = self.0.load(Ordering::Relaxed);
                object(self.at(), $to(raw), ModelShape::$shape, early, || modelled::$object::new(raw))
            }

            fn wrote(&self, value: $value) {
                self.0.store(value, Ordering::Relaxed);
                stored(self.at(), $to(value));
            }

            /// Where it lies.
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }

            /// The value, which nobody else has.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// Loads.
            pub fn load(&self, order: Ordering) -> $value {
                let object = self.object(false);
                fenced(order, true, false, || object.load(plain(order, Ordering::Acquire)))
            }

            /// Stores.
            pub fn store(&self, value: $value, order: Ordering) {
                let object = self.object(false);
                fenced(order, false, true, || {
                    object.store(value, plain(order, Ordering::Release));
                    self.wrote(value);
                });
            }

            /// Stores and answers what was there.
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                let object = self.object(false);
                fenced(order, true, true, || {
                    let old = object.swap(value, plain(order, Ordering::AcqRel));
                    self.wrote(value);
                    old
                })
            }

            /// Stores `new` if `current` is there.
            ///
            /// # Errors
            /// What is there instead.
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let object = self.object(false);
                fenced(success, true, true, || {
                    let (success, failure) = (plain(success, Ordering::AcqRel), plain(failure, Ordering::Acquire));
                    let result = object.compare_exchange(current, new, success, failure);
                    if result.is_ok() {
                        self.wrote(new);
                    }
                    result
                })
            }

            /// Stores `new` if `current` is there.
            ///
            /// # Errors
            /// What is there instead.
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $value:ty, $($operation:ident $apply:expr),* $(,)?) => {
        impl $name {
            $(
                /// Changes the value and answers what was there.
                pub fn $operation(&self, operand: $value, order: Ordering) -> $value {
                    let object = self.object(false);
                    fenced(order, true, true, || {
                        let old = object.$operation(operand, plain(order, Ordering::AcqRel));
                        let apply: fn($value, $value) -> $value = $apply;
                        self.wrote(apply(old, operand));
                        old
                    })
                }
            )*

            /// Changes the value by a function.
            ///
            /// # Errors
            /// What is there, if the function refuses.
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut value = self.load(fetch);
                while let Some(next) = change(value) {
                    match self.compare_exchange(value, next, set, fetch) {
                        Ok(old) => return Ok(old),
                        Err(other) => value = other,
                    }
                }
                Err(value)
            }
        }
    };
}

atomic!(AtomicBool, bool, AtomicBool, AtomicBool, Bool, u64::from);
atomic!(AtomicU32, u32, AtomicU32, AtomicU32, U32, u64::from);
atomic!(AtomicU64, u64, AtomicU64, AtomicU64, U64, core::convert::identity);
atomic!(AtomicUsize, usize, AtomicUsize, AtomicUsize, Usize, |value: usize| value as u64);
arithmetic!(AtomicBool, bool, fetch_or | a, b | a | b, fetch_and | a, b | a & b);
arithmetic!(AtomicU32, u32, fetch_add u32::wrapping_add, fetch_sub u32::wrapping_sub, fetch_or |a, b| a | b,
    fetch_and |a, b| a & b, fetch_max core::cmp::Ord::max, fetch_min core::cmp::Ord::min);
arithmetic!(AtomicU64, u64, fetch_add u64::wrapping_add, fetch_sub u64::wrapping_sub, fetch_or |a, b| a | b,
    fetch_and |a, b| a & b, fetch_max core::cmp::Ord::max, fetch_min core::cmp::Ord::min);
arithmetic!(AtomicUsize, usize, fetch_add usize::wrapping_add, fetch_sub usize::wrapping_sub,
    fetch_max core::cmp::Ord::max);

/// As core's, in a model.
#[repr(transparent)]
#[derive(Debug)]
pub struct AtomicPtr<T>(AtomicUsize, core::marker::PhantomData<*mut T>);

// SAFETY: threads share the address alone, which is atomic; what it leads to is reached by unsafe code only.
unsafe impl<T> Send for AtomicPtr<T> {}
// SAFETY: threads share the address alone, which is atomic; what it leads to is reached by unsafe code only.
unsafe impl<T> Sync for AtomicPtr<T> {}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(core::ptr::null_mut())
    }
}

impl<T> AtomicPtr<T> {
    /// A new pointer; in a constant it can only be null.
    pub const fn new(pointer: *mut T) -> Self {
        // SAFETY: a pointer and an AtomicUsize have the same size, and this type is never read but as bytes of it.
        let bits = unsafe { core::mem::transmute::<*mut T, AtomicUsize>(pointer) };
        Self(bits, core::marker::PhantomData)
    }

    /// Loads.
    pub fn load(&self, order: Ordering) -> *mut T {
        self.0.load(order) as *mut T
    }

    /// Stores.
    pub fn store(&self, pointer: *mut T, order: Ordering) {
        self.0.store(pointer as usize, order);
    }

    /// Stores and answers what was there.
    pub fn swap(&self, pointer: *mut T, order: Ordering) -> *mut T {
        self.0.swap(pointer as usize, order) as *mut T
    }

    /// Stores `new` if `current` is there.
    ///
    /// # Errors
    /// What is there instead.
    pub fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        let result = self.0.compare_exchange(current as usize, new as usize, success, failure);
        result.map(|old| old as *mut T).map_err(|old| old as *mut T)
    }

    /// Stores `new` if `current` is there.
    ///
    /// # Errors
    /// What is there instead.
    pub fn compare_exchange_weak(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.compare_exchange(current, new, success, failure)
    }
}

/// Stores two values as one unit where `first` is 0; false where it is not. As an instruction that exchanges 16 bytes:
/// no thread runs in between, and the values are read one by one.
pub fn claim_pair(first: &AtomicU64, second: &AtomicU64, values: (u64, u64)) -> bool {
    if is_mutant("claim-pair") {
        let free = first.compare_exchange(0, values.0, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if free {
            second.store(values.1, Ordering::Relaxed);
        }
        return free;
    }
    loom::stop_exploring();
    let free = first.fetch_add(0, Ordering::AcqRel) == 0;
    if free {
        second.store(values.1, Ordering::Relaxed);
        first.swap(values.0, Ordering::AcqRel);
    }
    loom::explore();
    free
}
