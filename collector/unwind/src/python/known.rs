//! Python stacks that were seen before: their words in sequence, found by a hash of all words.
//!
//! ```text
//! heads[hash]  stack number + 1            what was met last with this head
//! stack        hash of all words, first word, count, next with the same head
//! words        FrameWord, FrameWord, …     innermost first
//! ```
//! When the memory is used up, all entries are dropped, and the next memory is larger, up to a limit.

use super::frames::{FrameReader, FrameWord, MOST_FRAMES, are_marked, identity_of};
use crate::Array;
use tracehound_shared::python::{ObjectMemory, PythonInterpreter, PythonLayout};

/// Words of the first memory and of the largest.
const FIRST_WORDS: usize = 8 << 10;
const MOST_WORDS: usize = 512 << 10;
/// A stack for so many words.
const WORDS_PER_STACK: usize = 8;

#[repr(C)]
#[derive(Clone, Copy)]
struct StackEntry {
    hash: u64,
    first: u32,
    count: u32,
    /// Number + 1 of the next stack with the same head.
    next: u32,
}

/// See the module's text.
pub struct KnownStacks {
    memory: Option<KnownMemory>,
    stacks: usize,
    words: usize,
    /// How often everything was forgotten: numbers of stacks and words are of one such time.
    pub forgotten: u32,
}

struct KnownMemory {
    heads: Array<u32>,
    stacks: Array<StackEntry>,
    words: Array<FrameWord>,
}

impl KnownMemory {
    fn with_words(words: usize) -> Option<KnownMemory> {
        let stacks = words / WORDS_PER_STACK;
        let (heads, stacks, words) = (Array::new(stacks * 2), Array::new(stacks), Array::new(words));
        match (heads, stacks, words) {
            (Some(heads), Some(stacks), Some(words)) => Some(KnownMemory { heads, stacks, words }),
            (heads, stacks, words) => {
                // SAFETY: nobody uses them.
                unsafe {
                    heads.into_iter().for_each(|mut array| array.release());
                    stacks.into_iter().for_each(|mut array| array.release());
                    words.into_iter().for_each(|mut array| array.release());
                }
                None
            }
        }
    }

    /// The head of a hash.
    #[inline(always)]
    fn head(&self, hash: u64) -> *mut u32 {
        // A power of two is not promised: arrays are whole pages.
        let index = ((hash >> 32) * self.heads.len() as u64) >> 32;
        self.heads.as_ptr().wrapping_add(index as usize)
    }

    /// # Safety
    /// `first` and `count` must be of words in use.
    unsafe fn words(&self, first: usize, count: usize) -> &[FrameWord] {
        // SAFETY: the words are in use, hence written and inside the array: the contract of `words`.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().add(first), count) }
    }

    /// The number of the stack with these words, which have this hash.
    fn find(&self, hash: u64, words: &[FrameWord]) -> Option<u32> {
        // SAFETY: numbers lead to stacks in use, and these to words in use.
        unsafe {
            let mut number = *self.head(hash);
            while number != 0 {
                let entry = *self.stacks.as_ptr().add(number as usize - 1);
                if entry.hash == hash && self.words(entry.first as usize, entry.count as usize) == words {
                    return Some(number - 1);
                }
                number = entry.next;
            }
        }
        None
    }

    /// # Safety
    /// Nothing may be used afterwards.
    unsafe fn release(&mut self) {
        // SAFETY: the caller uses nothing afterwards: the contract of `release`.
        unsafe {
            self.heads.release();
            self.stacks.release();
            self.words.release();
        }
    }
}

impl KnownStacks {
    pub const fn new() -> KnownStacks {
        KnownStacks { memory: None, stacks: 0, words: 0, forgotten: 0 }
    }

    /// Compares the words of the stack that are numbered from `first` with the frames of the calling thread, from the
    /// word at `from` on, which is that of `frame`.
    ///
    /// # Safety
    /// `frame` must be 0 or the frame of the calling thread at that place of its chain; the words must be of a stack that
    /// was learnt since everything was forgotten last.
    #[inline(always)]
    pub unsafe fn compare(&self, first: u32, from: u32, count: u32, layout: &PythonLayout, frame: u64) -> Compared {
        // SAFETY: the caller keeps the contract of `compare`, which covers this call; `are_marked` chooses the reader.
        unsafe {
            if are_marked(layout) {
                self.compare_by(FrameReader::<true>::new(layout), first, from, count, layout, frame)
            } else {
                self.compare_by(FrameReader::<false>::new(layout), first, from, count, layout, frame)
            }
        }
    }

    /// # Safety
    /// As for [`compare`](Self::compare).
    #[inline(always)]
    unsafe fn compare_by<const MARKED: bool>(
        &self,
        reader: FrameReader<MARKED>,
        first: u32,
        from: u32,
        count: u32,
        layout: &PythonLayout,
        frame: u64,
    ) -> Compared {
        let Some(memory) = &self.memory else { return Compared::Leaves { place: from, frame, word: 0 } };
        let mut frame = frame;
        // SAFETY: the words are in use, and `frame` is 0 or the calling thread's: the contract of `compare`. A frame is
        // looked at after the one within it, which leads to it.
        unsafe {
            let start = memory.words.as_ptr().add(first as usize).cast_const();
            let (mut at, end) = (start.add(from as usize), start.add(count as usize));
            while frame != 0 {
                let next = if at == end { None } else { reader.next_if_unchanged(&*at, frame) };
                match next {
                    Some(previous) => frame = previous,
                    None => {
                        let word = identity_of(layout, frame);
                        return Compared::Leaves { place: at.offset_from(start) as u32, frame, word };
                    }
                }
                at = at.add(1);
            }
            if at == end {
                Compared::Unchanged
            } else {
                Compared::Leaves { place: at.offset_from(start) as u32, frame, word: 0 }
            }
        }
    }

    /// Reads the stack whose innermost frame is `top`, and gives its number: that of the same stack, if it was seen before.
    /// `None` when it is not as it must be, or there is no memory.
    ///
    /// # Safety
    /// `top` must be the innermost frame of the calling thread.
    pub unsafe fn learn(&mut self, interpreter: &PythonInterpreter, top: u64) -> Option<u32> {
        loop {
            let room = self.memory.as_ref().map_or(0, |memory| {
                let stacks = memory.stacks.len().min(memory.heads.len()).saturating_sub(self.stacks);
                if stacks == 0 { 0 } else { memory.words.len().saturating_sub(self.words) }
            });
            // SAFETY: `top` is the innermost frame of the calling thread: the contract of `learn`. The memory has
            // `room` words behind those in use.
            match unsafe { self.read(interpreter.layout, top, room) } {
                ReadStack::Whole { count, hash } => return self.find_or_put(count, hash),
                ReadStack::NoRoom => self.make_room()?,
                ReadStack::Broken => return None,
            }
        }
    }

    /// Reads the chain into the free words.
    unsafe fn read(&mut self, layout: &PythonLayout, top: u64, room: usize) -> ReadStack {
        let mut memory = ObjectMemory::for_backtrace();
        let (mut frame, mut count, mut hash) = (top, 0, 0);
        while frame != 0 {
            if count >= room {
                return ReadStack::NoRoom;
            }
            let Some((word, previous)) = FrameWord::read(layout, &mut memory, frame) else { return ReadStack::Broken };
            let Some(own) = &self.memory else { return ReadStack::NoRoom };
            // SAFETY: `count` is below the room behind the words in use.
            unsafe { own.words.as_ptr().add(self.words + count).write(word) };
            hash = word.mixed_into(hash);
            count += 1;
            if count >= MOST_FRAMES {
                return ReadStack::Broken;
            }
            frame = previous;
        }
        ReadStack::Whole { count, hash }
    }

    /// The number of the stack whose words have just been read, behind those in use.
    fn find_or_put(&mut self, count: usize, hash: u64) -> Option<u32> {
        let memory = self.memory.as_ref()?;
        // SAFETY: the words have just been written.
        let words = unsafe { memory.words(self.words, count) };
        if let Some(number) = memory.find(hash, words) {
            return Some(number);
        }
        let number = u32::try_from(self.stacks).ok()?;
        let entry = |next| StackEntry { hash, first: self.words as u32, count: count as u32, next };
        // SAFETY: there is room for a stack.
        unsafe {
            let head = memory.head(hash);
            memory.stacks.as_ptr().add(self.stacks).write(entry(*head));
            *head = number + 1;
        }
        self.stacks += 1;
        self.words += count;
        Some(number)
    }

    /// Forgets all, for memory that is larger unless it is the largest.
    fn make_room(&mut self) -> Option<()> {
        let words = match &mut self.memory {
            None => FIRST_WORDS,
            Some(memory) if memory.words.len() < MOST_WORDS => memory.words.len() * 4,
            Some(_) if self.words == 0 => return None,
            Some(_) => {
                self.forget();
                return Some(());
            }
        };
        self.forget();
        if let Some(mut memory) = self.memory.take() {
            // SAFETY: it has just been taken out.
            unsafe { memory.release() };
        }
        self.memory = KnownMemory::with_words(words);
        self.memory.is_some().then_some(())
    }

    /// The first word of a stack, and how many there are.
    ///
    /// # Safety
    /// The stack must have been learnt since everything was forgotten last.
    pub unsafe fn extent(&self, number: u32) -> (u32, u32) {
        let Some(memory) = &self.memory else { return (0, 0) };
        // SAFETY: the stack was learnt since everything was forgotten last, so its entry is there: the contract of
        // `extent`.
        let entry = unsafe { *memory.stacks.as_ptr().add(number as usize) };
        (entry.first, entry.count)
    }

    /// The frames of a stack, innermost first.
    ///
    /// # Safety
    /// As for [`extent`](Self::extent).
    pub unsafe fn frames(&self, number: u32) -> &[FrameWord] {
        let Some(memory) = &self.memory else { return &[] };
        // SAFETY: the stack was learnt since everything was forgotten last, so its words are in use: the contract of
        // `frames`.
        unsafe {
            let (first, count) = self.extent(number);
            memory.words(first as usize, count as usize)
        }
    }

    pub fn forget(&mut self) {
        if let Some(memory) = &self.memory
            && self.stacks > 0
        {
            // SAFETY: the whole array.
            unsafe { core::ptr::write_bytes(memory.heads.as_ptr(), 0, memory.heads.len()) };
        }
        (self.stacks, self.words) = (0, 0);
        self.forgotten = self.forgotten.wrapping_add(1);
    }

    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        if let Some(mut memory) = self.memory.take() {
            // SAFETY: it has just been taken out.
            unsafe { memory.release() };
        }
    }

    pub fn bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.heads.bytes() + memory.stacks.bytes() + memory.words.bytes())
    }
}

/// What [`KnownStacks::compare`] finds.
pub enum Compared {
    /// All words are unchanged, and there are no more frames.
    Unchanged,
    /// The first place at which the stack is another one.
    Leaves {
        /// Its number, from the innermost frame.
        place: u32,
        /// The frame there; 0: the stack has ended.
        frame: u64,
        /// Its [`identity_of`], or 0.
        word: u64,
    },
}

enum ReadStack {
    /// So many frames, and the hash of all.
    Whole {
        count: usize,
        hash: u64,
    },
    NoRoom,
    /// Not as it must be.
    Broken,
}
