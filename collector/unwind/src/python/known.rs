//! Python's stacks that were seen before: their words, one behind the other, found by the innermost frame.
//!
//! ```text
//! heads[key]   stack number + 1            what was met last with this key
//! stack        first word, count, key, next with the same head
//! words        FrameWord, FrameWord, …     innermost first
//! ```
//! When the memory is used up, everything is forgotten, and the next memory is larger, up to a limit.

use super::frames::{FrameWord, MOST_FRAMES, key_of};
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
    key: u64,
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

    /// The head of a key.
    #[inline(always)]
    fn head(&self, key: u64) -> *mut u32 {
        // A power of two is not promised: arrays are whole pages.
        let index = ((key >> 32) * self.heads.len() as u64) >> 32;
        self.heads.as_ptr().wrapping_add(index as usize)
    }

    /// # Safety
    /// Nothing may be used afterwards.
    unsafe fn release(&mut self) {
        // SAFETY: passed on.
        unsafe {
            self.heads.release();
            self.stacks.release();
            self.words.release();
        }
    }
}

impl KnownStacks {
    pub const fn new() -> KnownStacks {
        KnownStacks { memory: None, stacks: 0, words: 0 }
    }

    /// The number of the stack whose innermost frame is `top`, if it was seen before.
    ///
    /// # Safety
    /// `top` must be the innermost frame of the calling thread.
    #[inline]
    pub unsafe fn recall(&self, layout: &PythonLayout, top: u64) -> Option<u32> {
        let memory = self.memory.as_ref()?;
        // SAFETY: numbers lead to stacks in use, and these to words in use; frames are looked at after what led to
        // them was right.
        unsafe {
            let key = key_of(layout, top);
            let mut number = *memory.head(key);
            while number != 0 {
                let entry = *memory.stacks.as_ptr().add(number as usize - 1);
                if entry.key == key && Self::stands(memory, entry, layout, top) {
                    return Some(number - 1);
                }
                number = entry.next;
            }
        }
        None
    }

    #[inline(always)]
    unsafe fn stands(memory: &KnownMemory, entry: StackEntry, layout: &PythonLayout, top: u64) -> bool {
        let mut expected = top;
        // SAFETY: as above.
        unsafe {
            let mut at = memory.words.as_ptr().add(entry.first as usize).cast_const();
            let end = at.add(entry.count as usize);
            while at != end {
                let word = *at;
                if word.frame() != expected {
                    return false;
                }
                match word.stands(layout) {
                    Some(previous) => expected = previous,
                    None => return false,
                }
                at = at.add(1);
            }
        }
        expected == 0
    }

    /// Reads the stack whose innermost frame is `top` and remembers it. `None` when it is not as it must be, or there is no
    /// memory.
    ///
    /// # Safety
    /// As for [`recall`](Self::recall).
    #[cold]
    pub unsafe fn learn(&mut self, interpreter: &PythonInterpreter, top: u64) -> Option<u32> {
        loop {
            let room = self.memory.as_ref().map_or(0, |memory| {
                let stacks = memory.stacks.len().min(memory.heads.len()).saturating_sub(self.stacks);
                if stacks == 0 { 0 } else { memory.words.len().saturating_sub(self.words) }
            });
            // SAFETY: passed on.
            match unsafe { self.read(interpreter.layout, top, room) } {
                ReadStack::Whole(count) => return self.put(interpreter.layout, top, count),
                ReadStack::NoRoom => self.make_room()?,
                ReadStack::Broken => return None,
            }
        }
    }

    /// Reads the chain into the free words.
    unsafe fn read(&mut self, layout: &PythonLayout, top: u64, room: usize) -> ReadStack {
        let mut memory = ObjectMemory::for_backtrace();
        let (mut frame, mut count) = (top, 0);
        while frame != 0 {
            if count >= room {
                return ReadStack::NoRoom;
            }
            let Some((word, previous)) = FrameWord::read(layout, &mut memory, frame) else { return ReadStack::Broken };
            let Some(own) = &self.memory else { return ReadStack::NoRoom };
            // SAFETY: `count` is below the room behind the words in use.
            unsafe { own.words.as_ptr().add(self.words + count).write(word) };
            count += 1;
            if count >= MOST_FRAMES {
                return ReadStack::Broken;
            }
            frame = previous;
        }
        ReadStack::Whole(count)
    }

    fn put(&mut self, layout: &PythonLayout, top: u64, count: usize) -> Option<u32> {
        let memory = self.memory.as_ref()?;
        let number = u32::try_from(self.stacks).ok()?;
        // SAFETY: there is room for a stack; the frame has just been read.
        unsafe {
            let key = key_of(layout, top);
            let head = memory.head(key);
            let (first, count) = (self.words as u32, count as u32);
            memory.stacks.as_ptr().add(self.stacks).write(StackEntry { key, first, count, next: *head });
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

    /// The frames of a stack, innermost first.
    ///
    /// # Safety
    /// The stack must have been recalled or learnt since the last change.
    pub unsafe fn frames(&self, number: u32) -> &[FrameWord] {
        let Some(memory) = &self.memory else { return &[] };
        // SAFETY: passed on.
        unsafe {
            let entry = *memory.stacks.as_ptr().add(number as usize);
            core::slice::from_raw_parts(memory.words.as_ptr().add(entry.first as usize), entry.count as usize)
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

enum ReadStack {
    /// So many frames.
    Whole(usize),
    NoRoom,
    /// Not as it must be.
    Broken,
}
