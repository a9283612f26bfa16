//! Atomics of the model checker loom, by address.
//!
//! loom's atomics are handles of objects in its own memory, while ours lie in mappings, in statics and in zeroed pages.
//! So the types here have the layout of core's, and every operation looks up the loom object of its address, made with
//! the value that memory holds. A store also goes to memory: where a value is moved, or memory is used for something
//! else, memory and object differ, and the object is made anew.
//!
//! loom wants an object to be made before the threads that use it. Which addresses a model uses is found by running it:
//! [`check`] runs a model again until no address was met by a thread before the first one had seen it. For that, memory
//! that a model shares between threads must be announced by [`region`]; statics need not.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use core::sync::atomic::{self as real, Ordering};
use loom::sync::atomic as modelled;

/// Where a value lies: region and offset in it; for statics no region and the address.
type Place = (Option<usize>, usize);

/// What a model has at a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Shape {
    Bool,
    U32,
    U64,
    Usize,
    Cell,
}

#[derive(Default)]
struct World {
    objects: HashMap<(usize, bool), (u64, Rc<dyn Any>)>,
    regions: Vec<(usize, usize)>,
    /// To be made before the first thread is.
    wanted: Rc<BTreeSet<(Place, Shape)>>,
    /// Met first by another thread than the first one.
    found: BTreeSet<(Place, Shape)>,
    has_threads: bool,
    executions: u64,
}

// loom runs all threads of a model on one thread of the system, hence all see these.
thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
    static LAST_FAILURE: RefCell<String> = const { RefCell::new(String::new()) };
    static MUTANT: Cell<&'static str> = const { Cell::new("") };
    static MEMORY: RefCell<Memory> = const { RefCell::new(Memory { block: 0, used: 0 }) };
}

/// Whether the ordering of this name is weakened.
pub fn is_mutant(name: &str) -> bool {
    MUTANT.get() == name
}

/// What [`super::order`] says.
pub fn order(name: &str, order: Ordering, weak: Ordering) -> Ordering {
    if is_mutant(name) { weak } else { order }
}

/// Checks that `model` fails when the ordering of this name is weakened.
///
/// # Errors
/// When it does not.
pub fn find_mutant(
    mutant: &'static str,
    preemptions: usize,
    model: impl Fn() + Sync + Send + Clone + 'static,
) -> Result<(), String> {
    MUTANT.set(mutant);
    let found = catch_unwind(AssertUnwindSafe(|| check(mutant, preemptions, model))).is_err();
    MUTANT.set("");
    if found { Ok(()) } else { Err(format!("no execution of the model shows that {mutant} is needed")) }
}

/// Memory that is used again in every execution.
struct Memory {
    block: usize,
    used: usize,
}

/// Zeroed memory to the end of the execution, that threads share; a whole number of pages.
///
/// # Panics
/// When a model asks for more than there is.
pub fn memory(bytes: usize) -> *mut u8 {
    const ALL: usize = 64 << 20;
    let bytes = bytes.next_multiple_of(4096);
    if bytes > ALL / 2 {
        // A reservation for the whole process, which a static remembers.
        let layout = std::alloc::Layout::from_size_align(bytes, 4096).unwrap_or(std::alloc::Layout::new::<u64>());
        // SAFETY: the layout is not empty.
        return unsafe { std::alloc::alloc_zeroed(layout) };
    }
    let at = MEMORY.with_borrow_mut(|memory| {
        if memory.block == 0 {
            let layout = std::alloc::Layout::from_size_align(ALL, 4096).unwrap_or(std::alloc::Layout::new::<u8>());
            // SAFETY: the layout is not empty.
            memory.block = unsafe { std::alloc::alloc_zeroed(layout) } as usize;
        }
        let at = memory.block + memory.used;
        memory.used += bytes;
        (memory.used <= ALL).then_some(at)
    });
    let Some(at) = at else { std::process::abort() };
    let at = at as *mut u8;
    // SAFETY: inside the block, and handed out once in an execution.
    region(unsafe { core::slice::from_raw_parts(at, bytes) });
    at
}

/// Checks every execution of `model` with at most `preemptions` of a thread, and prints how many there were.
///
/// # Panics
/// When an execution fails.
pub fn check(name: &str, preemptions: usize, model: impl Fn() + Sync + Send + Clone + 'static) {
    begin();
    WORLD.with_borrow_mut(|world| *world = World::default());
    let mut limit = 64;
    for round in 1_u32.. {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 20_000;
        // The first rounds only look for addresses.
        builder.max_permutations = (limit < 1 << 16).then_some(limit);
        let body = model.clone();
        // What fails while addresses are looked for means nothing.
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(|failure| LAST_FAILURE.with_borrow_mut(|last| *last = failure.to_string())));
        let result = catch_unwind(AssertUnwindSafe(|| {
            builder.check(move || {
                begin();
                body();
            });
        }));
        std::panic::set_hook(loud);
        let (found, executions) = WORLD.with_borrow_mut(|world| {
            let mut wanted = (*world.wanted).clone();
            let found = world.found.len();
            wanted.append(&mut world.found);
            world.wanted = Rc::new(wanted);
            (found, core::mem::take(&mut world.executions))
        });
        if found == 0 {
            if let Err(failure) = result {
                let why = LAST_FAILURE.take();
                println!("model {name}: execution {executions} (of round {round}) fails: {why}");
                resume_unwind(failure);
            }
            if builder.max_permutations.is_none() || executions < limit as u64 {
                println!("model {name}: {executions} executions, at most {preemptions} preemptions");
                return;
            }
            limit = 1 << 16;
        } else if limit < 1 << 12 {
            limit *= 2;
        }
    }
}

/// A new execution begins.
fn begin() {
    WORLD.with_borrow_mut(|world| {
        let used = MEMORY.with_borrow_mut(|memory| memory.block..memory.block + core::mem::take(&mut memory.used));
        for ((at, is_cell), _) in world.objects.drain() {
            // What the last execution has stored there. Objects of 4 bytes have a neighbour of their own, or nothing.
            if !is_cell && used.contains(&at) {
                // SAFETY: memory of this module's, which nobody has now; a value is aligned to its size.
                unsafe { ((at & !7) as *mut u64).write(0) };
            }
        }
        world.regions.clear();
        world.has_threads = false;
        world.executions += 1;
    });
}

/// Announces memory that threads share, from here to the end of the execution.
pub fn region<T: ?Sized>(memory: &T) {
    let (at, bytes) = (core::ptr::from_ref(memory).cast::<u8>() as usize, size_of_val(memory));
    let has_threads = WORLD.with_borrow_mut(|world| {
        world.regions.push((at, bytes));
        world.has_threads
    });
    if has_threads {
        let number = WORLD.with_borrow(|world| world.regions.len() - 1);
        make_wanted(|place| place == Some(number));
    }
}

/// A value that lives to the end of the execution and that threads share.
pub fn shared<T>(value: T) -> &'static T {
    let value: &'static T = Box::leak(Box::new(value));
    region(value);
    value
}

/// Starts a thread of the model.
pub fn spawn<R: 'static>(body: impl FnOnce() -> R + 'static) -> loom::thread::JoinHandle<R> {
    if !WORLD.with_borrow_mut(|world| core::mem::replace(&mut world.has_threads, true)) {
        make_wanted(|_| true);
    }
    loom::thread::spawn(body)
}

fn make_wanted(filter: impl Fn(Option<usize>) -> bool) {
    let (wanted, regions) = WORLD.with_borrow(|world| (Rc::clone(&world.wanted), world.regions.clone()));
    for &((region, offset), shape) in wanted.iter().filter(|((region, _), _)| filter(*region)) {
        let start = match region {
            None => 0,
            Some(number) => match regions.get(number) {
                Some((start, bytes)) if offset < *bytes => *start,
                _ => continue,
            },
        };
        let at = start + offset;
        // SAFETY: a static, or memory that the model has announced in this execution, of a type that an earlier
        // execution of the same model had there.
        unsafe {
            match shape {
                Shape::Bool => drop((*(at as *const AtomicBool)).object(true)),
                Shape::U32 => drop((*(at as *const AtomicU32)).object(true)),
                Shape::U64 => drop((*(at as *const AtomicU64)).object(true)),
                Shape::Usize => drop((*(at as *const AtomicUsize)).object(true)),
                Shape::Cell => drop(cell(at, true)),
            }
        }
    }
}

fn place(world: &World, at: usize) -> Place {
    let region = world.regions.iter().rposition(|(start, bytes)| (*start..start + bytes).contains(&at));
    (region, at - region.and_then(|number| world.regions.get(number)).map_or(0, |(start, _)| *start))
}

/// The object at `at`, made if there is none for the value `raw` that memory holds.
fn object<T: 'static>(at: usize, raw: u64, shape: Shape, early: bool, make: impl FnOnce() -> T) -> Rc<T> {
    let key = (at, shape == Shape::Cell);
    let known = WORLD.with_borrow(|world| match world.objects.get(&key) {
        Some((value, object)) if *value == raw => Rc::clone(object).downcast::<T>().ok(),
        _ => None,
    });
    if let Some(object) = known {
        return object;
    }
    let made = Rc::new(make());
    WORLD.with_borrow_mut(|world| {
        if !early && world.has_threads && !world.objects.contains_key(&key) {
            let place = place(world, at);
            if !world.wanted.contains(&(place, shape)) {
                world.found.insert((place, shape));
            }
        }
        world.objects.insert(key, (raw, Rc::clone(&made) as Rc<dyn Any>));
    });
    made
}

fn stored(at: usize, raw: u64) {
    WORLD.with_borrow_mut(|world| {
        if let Some((value, _)) = world.objects.get_mut(&(at, false)) {
            *value = raw;
        }
    });
}

fn cell(at: usize, early: bool) -> Rc<loom::cell::UnsafeCell<()>> {
    object(at, 0, Shape::Cell, early, || loom::cell::UnsafeCell::new(()))
}

/// See [`super::assert_exclusive`].
pub fn exclusive(at: usize) {
    cell(at, false).with_mut(|_| ());
}

/// See [`super::assert_unwritten`].
pub fn read(at: usize) {
    cell(at, false).with(|_| ());
}

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

            fn object(&self, early: bool) -> Rc<modelled::$object> {
                let raw = self.0.load(Ordering::Relaxed);
                object(self.at(), $to(raw), Shape::$shape, early, || modelled::$object::new(raw))
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

// SAFETY: as core's: the pointer alone is shared.
unsafe impl<T> Send for AtomicPtr<T> {}
// SAFETY: as above.
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
    loom::stop_exploring();
    let free = first.fetch_add(0, Ordering::AcqRel) == 0;
    if free {
        second.store(values.1, Ordering::Relaxed);
        first.swap(values.0, Ordering::AcqRel);
    }
    loom::explore();
    free
}

/// Lets other threads run.
pub fn pause() {
    loom::thread::yield_now();
}

/// The calling thread's own value, made by `make` the first time.
pub fn of_thread<T: 'static>(make: impl FnOnce() -> T) -> &'static T {
    loom::thread_local! {
        static OWN: RefCell<Option<&'static dyn Any>> = RefCell::new(None);
    }
    OWN.with(|own| {
        let known = own.borrow().and_then(|known| known.downcast_ref::<T>());
        known.unwrap_or_else(|| {
            let made: &'static T = Box::leak(Box::new(make()));
            *own.borrow_mut() = Some(made);
            made
        })
    })
}

/// A queue between threads: what is taken happens after it was put, and nothing else is promised.
pub struct Queue<T> {
    slots: loom::sync::Mutex<std::collections::VecDeque<T>>,
    capacity: usize,
}

impl<T> Queue<T> {
    /// An empty queue with room for `capacity` values.
    pub fn new(capacity: usize) -> Self {
        Self { slots: loom::sync::Mutex::new(std::collections::VecDeque::new()), capacity }
    }

    fn slots(&self) -> impl core::ops::DerefMut<Target = std::collections::VecDeque<T>> + '_ {
        self.slots.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Puts a value in.
    ///
    /// # Errors
    /// The value, if there is no room.
    pub fn push(&self, value: T) -> Result<(), T> {
        let mut slots = self.slots();
        if slots.len() == self.capacity {
            return Err(value);
        }
        slots.push_back(value);
        Ok(())
    }

    /// Takes the oldest value.
    pub fn pop(&self) -> Option<T> {
        self.slots().pop_front()
    }

    /// Values inside.
    pub fn len(&self) -> usize {
        self.slots().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
