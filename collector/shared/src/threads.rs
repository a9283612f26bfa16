//! The set of all thread contexts, in slabs that double. A context of an ended thread is used again; a bit map says
//! which are in use, so that a new thread finds a free context without reading the others, and the writer skips those
//! that are free. A slab is one mapping: a thread that begins makes no other, and the kernel's lock of the address
//! space, for which a thousand threads that begin at once would queue, is not needed.
//!
//! ```text
//! slab n    64 << n contexts: 1 << n words of bits │ the contexts │ a block for the unwinder of each
//! ```

use crate::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::sys;
use super::thread::{NO_CHUNK, ThreadContext, life};

/// Contexts of the first slab, and bits of a word.
const FIRST: usize = 64;
/// Memory that a thread's unwinder begins with. Nothing is touched before it is used.
pub const UNWINDER_BYTES: usize = 40 << 10;
/// Slabs: more contexts than a kernel has thread ids.
const SLABS: usize = 20;

/// See the module's description.
#[derive(Default)]
pub struct ThreadTable {
    slabs: [AtomicPtr<u8>; SLABS],
    /// No context from this index on has been in use.
    made: AtomicU32,
    alive: AtomicU32,
    next_id: AtomicU32,
    /// Events lost by threads that found no memory for a context.
    pub contexts_unavailable: AtomicU64,
    /// Events dropped by threads that have ended since, and that no record counts.
    pub unreported: AtomicU64,
}

/// A slab in mapped memory.
#[derive(Clone, Copy)]
struct Slab {
    base: *mut u8,
    number: usize,
}

impl Slab {
    /// Bytes before the contexts.
    const fn head(number: usize) -> usize {
        (size_of::<AtomicU64>() << number).next_multiple_of(align_of::<ThreadContext>())
    }

    /// Bytes of words and contexts.
    const fn bytes(number: usize) -> usize {
        (Self::head(number) + ((size_of::<ThreadContext>() * FIRST) << number)).next_multiple_of(4096)
    }

    /// Bytes of all.
    const fn mapped(number: usize) -> usize {
        Self::bytes(number) + ((UNWINDER_BYTES * FIRST) << number)
    }

    /// Number of a context in this slab, if it is one of it.
    fn index_of(self, context: &ThreadContext) -> Option<usize> {
        let contexts = self.base as usize + Self::head(self.number);
        let index = (core::ptr::from_ref(context) as usize).checked_sub(contexts)? / size_of::<ThreadContext>();
        (index < FIRST << self.number).then_some(index)
    }

    fn words(self) -> impl Iterator<Item = (usize, &'static AtomicU64)> {
        // SAFETY: the words lie at the slab's start, aligned, zeroed at first; a slab is never unmapped.
        (0..1_usize << self.number).map(move |word| (word, unsafe { &*self.base.cast::<AtomicU64>().add(word) }))
    }

    fn context(self, word: usize, bit: u32) -> &'static ThreadContext {
        // SAFETY: the slab has room for a context for each bit of its words, zeroed, which makes a valid context.
        unsafe { &*self.base.add(Self::head(self.number)).cast::<ThreadContext>().add(word * FIRST + bit as usize) }
    }
}

impl ThreadTable {
    /// A new recording-wide thread id, from 1.
    pub fn new_id(&self) -> u32 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Contexts made so far.
    pub fn count(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    /// Contexts in use.
    pub fn alive(&self) -> u32 {
        self.alive.load(Ordering::Relaxed)
    }

    /// The block for the unwinder of a context; null for a context that is not of this set.
    pub fn block(&self, context: &ThreadContext) -> *mut u8 {
        let block = |slab: Slab| {
            let at = Slab::bytes(slab.number) + slab.index_of(context)? * UNWINDER_BYTES;
            // SAFETY: the slab has a block for each of its contexts.
            Some(unsafe { slab.base.add(at) })
        };
        self.slabs().find_map(block).unwrap_or_default()
    }

    /// Bytes of all contexts.
    pub fn bytes(&self) -> u64 {
        self.slabs().map(|slab| Slab::bytes(slab.number) as u64).sum()
    }

    fn slabs(&self) -> impl Iterator<Item = Slab> {
        let slab = |(number, base): (usize, &AtomicPtr<u8>)| {
            let base = base.load(Ordering::Acquire);
            (!base.is_null()).then_some(Slab { base, number })
        };
        self.slabs.iter().enumerate().filter_map(slab)
    }

    /// A context for a new thread, alive but not yet filled in: `None` without memory.
    pub fn acquire(&self) -> Option<&'static ThreadContext> {
        for (number, place) in self.slabs.iter().enumerate() {
            let mut base = place.load(Ordering::Acquire);
            if base.is_null() {
                base = make_slab(place, number)?;
            }
            if let Some((word, bit, context)) = take_free(Slab { base, number }) {
                // Slab `n` begins after all contexts of the slabs before it.
                let index = ((FIRST << number) - FIRST + word * FIRST) as u32 + bit;
                self.made.fetch_max(index + 1, Ordering::Relaxed);
                // In time, by one thread: were the slab full, all that begin at once would make the next one.
                if word * FIRST + bit as usize == (FIRST << number) / 2
                    && let Some(next) = self.slabs.get(number + 1).filter(|next| next.load(Ordering::Relaxed).is_null())
                {
                    make_slab(next, number + 1);
                }
                self.alive.fetch_add(1, Ordering::Relaxed);
                context.active.store(NO_CHUNK, Ordering::Relaxed);
                context.life.store(life::LIVE, Ordering::Release);
                return Some(context);
            }
        }
        None
    }

    /// Gives the context of an ended thread back, for another one.
    pub fn release(&self, context: &ThreadContext) {
        context.id.store(0, Ordering::Release);
        context.os_thread.store(0, Ordering::Relaxed);
        context.active.store(NO_CHUNK, Ordering::Relaxed);
        context.life.store(life::FREE, Ordering::Release);
        let place = self.slabs().find_map(|slab| Some((slab, slab.index_of(context)?)));
        if let Some((slab, index)) = place
            && let Some((_, word)) = slab.words().nth(index / FIRST)
        {
            word.fetch_and(!(1 << (index % FIRST)), Ordering::AcqRel);
            self.alive.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// All contexts that were ever in use.
    pub fn all(&self) -> impl Iterator<Item = &'static ThreadContext> {
        let contexts = self.slabs().flat_map(|slab| {
            (0..1_usize << slab.number).flat_map(move |word| (0..FIRST as u32).map(move |bit| slab.context(word, bit)))
        });
        contexts.take(self.count() as usize)
    }

    /// Gives the memory of all contexts back.
    ///
    /// # Safety
    /// No thread may have a context any more.
    pub unsafe fn unmap(&self) {
        for slab in self.slabs() {
            // SAFETY: a mapping of ours; the caller vouches for the rest.
            unsafe { sys::unmap(slab.base, Slab::mapped(slab.number)) };
        }
        self.slabs.iter().for_each(|slab| slab.store(core::ptr::null_mut(), Ordering::Release));
    }

    /// All contexts in use.
    pub fn iter(&self) -> impl Iterator<Item = &'static ThreadContext> {
        self.slabs().flat_map(|slab| {
            slab.words().flat_map(move |(word, bits)| {
                let mut left = bits.load(Ordering::Acquire);
                core::iter::from_fn(move || {
                    let bit = left.checked_ilog2()?;
                    left &= !(1 << bit);
                    Some(slab.context(word, bit))
                })
            })
        })
    }
}

/// Takes the first free context of a slab.
fn take_free(slab: Slab) -> Option<(usize, u32, &'static ThreadContext)> {
    for (word, bits) in slab.words() {
        let mut before = bits.load(Ordering::Relaxed);
        while before != u64::MAX {
            let bit = before.trailing_ones();
            match bits.compare_exchange_weak(before, before | 1 << bit, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some((word, bit, slab.context(word, bit))),
                Err(now) => before = now,
            }
        }
    }
    None
}

#[cold]
fn make_slab(place: &AtomicPtr<u8>, number: usize) -> Option<*mut u8> {
    let bytes = Slab::mapped(number);
    let memory = sys::map_memory(bytes).ok()?;
    // SAFETY: fresh memory. A forked child must not find the parent's chunks in here; old kernels cannot do it, and
    // there the fork handler alone protects it. The blocks stay: a handler may fork in the middle of a walk.
    unsafe { sys::wipe_in_children(memory, Slab::bytes(number)) };
    match place.compare_exchange(core::ptr::null_mut(), memory, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(memory),
        Err(other) => {
            // SAFETY: nobody has seen this one.
            unsafe { sys::unmap(memory, bytes) };
            Some(other)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(context: &ThreadContext) -> usize {
        core::ptr::from_ref(context) as usize
    }

    #[test]
    fn contexts_are_used_again_and_listed_while_in_use() {
        let threads = ThreadTable::default();
        let all: Vec<_> = (0..1000).map(|_| threads.acquire().expect("memory")).collect();
        let mut places: Vec<_> = all.iter().map(|context| place(context)).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0] + size_of::<ThreadContext>() <= pair[1]), "no two overlap");
        assert_eq!((threads.iter().count(), threads.count(), threads.alive()), (1000, 1000, 1000));
        let mut blocks: Vec<_> = all.iter().map(|context| threads.block(context) as usize).collect();
        blocks.sort_unstable();
        assert!(blocks.windows(2).all(|pair| pair[0] + UNWINDER_BYTES <= pair[1]), "nor two blocks");
        let within = |at: &usize| {
            threads.slabs().any(|slab| {
                let (start, end) = (slab.base as usize, slab.base as usize + Slab::mapped(slab.number));
                (start + Slab::bytes(slab.number)..=end - UNWINDER_BYTES).contains(at)
            })
        };
        assert!(blocks.iter().all(within));
        let bytes = threads.bytes();
        all.iter().skip(10).for_each(|context| threads.release(context));
        let mut left: Vec<_> = threads.iter().map(place).collect();
        left.sort_unstable();
        let mut kept: Vec<_> = all.iter().take(10).map(|context| place(context)).collect();
        kept.sort_unstable();
        assert_eq!(left, kept);
        assert!((0..990).all(|_| threads.acquire().is_some_and(|context| places.contains(&place(context)))));
        assert_eq!((threads.bytes(), threads.count(), threads.alive()), (bytes, 1000, 1000));
    }

    #[test]
    fn threads_that_register_at_once_get_contexts_of_their_own() {
        const THREADS: usize = 8;
        const EACH: usize = 500;
        let threads = ThreadTable::default();
        let start = std::sync::Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for round in 0..EACH {
                        let context = threads.acquire().expect("memory");
                        assert_eq!(context.os_thread.swap(1, Ordering::AcqRel), 0, "nobody else has it");
                        if round % 4 != 0 {
                            threads.release(context);
                        }
                    }
                });
            }
        });
        assert_eq!(threads.iter().count(), THREADS * EACH / 4);
        assert_eq!(threads.alive() as usize, THREADS * EACH / 4);
    }
}
