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

use core::sync::atomic::Ordering;
use loom::sync::atomic as modelled;

mod atomics;

pub use atomics::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, claim_pair};

/// Stack of a thread of the model.
const STACK_WORDS: usize = 32 << 10;

/// Where a value lies: region and offset in it; for statics no region and the address.
type Location = (Option<usize>, usize);

/// What a model has at a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ModelShape {
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
    wanted: Rc<BTreeSet<(Location, ModelShape)>>,
    /// Met first by another thread than the first one.
    found: BTreeSet<(Location, ModelShape)>,
    has_threads: bool,
    executions: u64,
}

// loom runs all threads of a model on one thread of the system, hence all see these.
thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
    static LAST_FAILURE: RefCell<String> = const { RefCell::new(String::new()) };
    static STATICS: RefCell<HashMap<usize, (ModelShape, u64)>> = RefCell::default();
    static MUTANT: Cell<&'static str> = const { Cell::new("") };
    static MEMORY: RefCell<ModelMemory> = const { RefCell::new(ModelMemory { block: 0, used: 0 }) };
}

/// Whether the ordering of this name is weakened.
pub fn is_mutant(name: &str) -> bool {
    MUTANT.get() == name
}

/// The ordering of [`super::order`]: `weak` if the ordering of this name is weakened.
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

/// Fails the execution unless something holds.
pub fn require(holds: bool, what: &'static str) {
    if !holds {
        LAST_FAILURE.with_borrow_mut(|last| *last = what.into());
        resume_unwind(Box::new(what));
    }
}

/// Memory that is used again in every execution.
struct ModelMemory {
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
            let body = body.clone();
            builder.check(move || {
                begin();
                // On a stack that has room for a failure, too.
                let thread = loom::thread::Builder::new().stack_size(STACK_WORDS).spawn(body.clone());
                let _ = thread.map(|thread| thread.join());
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
            if !is_cell && is_static(at) {
                restore(at);
            }
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
    let at = memory(size_of::<T>()).cast::<T>();
    // SAFETY: a page or more of the model's memory, which is nobody else's to the end of the execution.
    unsafe {
        at.write(value);
        &*at
    }
}

/// Starts a thread of the model.
pub fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> loom::thread::JoinHandle<R> {
    if !WORLD.with_borrow_mut(|world| core::mem::replace(&mut world.has_threads, true)) {
        make_wanted(|_| true);
    }
    let thread = loom::thread::Builder::new().stack_size(STACK_WORDS).spawn(body);
    thread.unwrap_or_else(|_| std::process::abort())
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
                ModelShape::Bool => (*(at as *const AtomicBool)).make(),
                ModelShape::U32 => (*(at as *const AtomicU32)).make(),
                ModelShape::U64 => (*(at as *const AtomicU64)).make(),
                ModelShape::Usize => (*(at as *const AtomicUsize)).make(),
                ModelShape::Cell => drop(cell(at, true)),
            }
        }
    }
}

/// Whether a static of this program lies there.
fn is_static(at: usize) -> bool {
    unsafe extern "C" {
        static __data_start: u8;
        static _end: u8;
    }
    ((&raw const __data_start) as usize..(&raw const _end) as usize).contains(&at)
}

/// Gives a static the value that it had before the first execution.
fn restore(at: usize) {
    let Some((shape, raw)) = STATICS.with_borrow(|statics| statics.get(&at).copied()) else { return };
    // SAFETY: a static of this type, which no thread uses between executions.
    unsafe {
        match shape {
            ModelShape::Bool => (at as *mut bool).write(raw != 0),
            ModelShape::U32 => (at as *mut u32).write(raw as u32),
            ModelShape::U64 | ModelShape::Usize => (at as *mut u64).write(raw),
            ModelShape::Cell => {}
        }
    }
}

fn place(world: &World, at: usize) -> Location {
    let region = world.regions.iter().rposition(|(start, bytes)| (*start..start + bytes).contains(&at));
    (region, at - region.and_then(|number| world.regions.get(number)).map_or(0, |(start, _)| *start))
}

/// The object at `at`, made if there is none for the value `raw` that memory holds.
fn object<T: 'static>(at: usize, raw: u64, shape: ModelShape, early: bool, make: impl FnOnce() -> T) -> Rc<T> {
    let key = (at, shape == ModelShape::Cell);
    let known = WORLD.with_borrow(|world| match world.objects.get(&key) {
        Some((value, object)) if *value == raw => Rc::clone(object).downcast::<T>().ok(),
        _ => None,
    });
    if let Some(object) = known {
        return object;
    }
    if shape != ModelShape::Cell && is_static(at) {
        STATICS.with_borrow_mut(|statics| _ = statics.entry(at).or_insert((shape, raw)));
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
    object(at, 0, ModelShape::Cell, early, || loom::cell::UnsafeCell::new(()))
}

/// See [`super::assert_exclusive`].
pub fn exclusive(at: usize) {
    cell(at, false).with_mut(|_| ());
}

/// See [`super::assert_unwritten`].
pub fn read(at: usize) {
    cell(at, false).with(|_| ());
}

/// Lets other threads run.
pub fn pause() {
    loom::thread::yield_now();
}

/// A copy of what lies in memory now, as a forked child gets it: of every value the last one that was stored.
pub fn snapshot(from: *const u8, bytes: usize) -> *mut u8 {
    let to = memory(bytes);
    let range = from as usize..from as usize + bytes;
    let inside = |(at, is_cell): &(usize, bool)| !is_cell && range.contains(at);
    let mut values: Vec<_> = WORLD.with_borrow(|world| {
        world
            .objects
            .iter()
            .filter(|(key, _)| inside(key))
            .map(|((at, _), (_, object))| (*at, Rc::clone(object)))
            .collect()
    });
    values.sort_unstable_by_key(|(at, _)| *at);
    // Tells the checker what is read, so that it tries every order of this and the stores of other threads.
    loom::stop_exploring();
    for (_, object) in values {
        if let Some(object) = object.downcast_ref::<modelled::AtomicU32>() {
            object.load(Ordering::Relaxed);
        } else if let Some(object) = object.downcast_ref::<modelled::AtomicU64>() {
            object.load(Ordering::Relaxed);
        }
    }
    loom::explore();
    // SAFETY: memory of the model, where it was asked for; nobody writes meanwhile, since threads of a model take turns.
    unsafe { core::ptr::copy_nonoverlapping(from, to, bytes) };
    to
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
