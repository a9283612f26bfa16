//! Python stacks that were seen before, as a tree of frames: a node is a frame with all frames outside of it, so equal
//! stacks are the same node.
//!
//! ```text
//! heads[outer node, word]   node        the one that was inserted last with this head
//! node                      word, outer node, next node with the same head, address of its instruction; node 0: no frame
//! last                      words and nodes of the stack that was read last
//! ```
//! A stack is read from the innermost frame outwards. The frames that it has in common with the last one, counted from the
//! outermost, have their nodes already; only those within are looked up. When the memory is used up, all entries are
//! dropped, and the next memory is larger, up to a limit.

use super::frames::{FrameReader, FrameWord, MOST_FRAMES, are_marked};
use crate::Array;
use tracehound_shared::python::{ObjectMemory, PythonInterpreter, PythonLayout};
use tracehound_shared::sync::atomic::{Ordering, compiler_fence};

/// Nodes of the first memory and of the largest, which is more than a stack can have.
const FIRST_NODES: usize = 8 << 10;
const MOST_NODES: usize = 256 << 10;
/// Frames that there is room for at first.
const FIRST_FRAMES: usize = 256;

#[repr(C)]
#[derive(Clone, Copy)]
struct FrameNode {
    word: FrameWord,
    outer: u32,
    next: u32,
    /// The address that stands for its instruction in the call tree; 0: nobody has asked yet.
    address: u64,
}

struct KnownMemory {
    heads: Array<u32>,
    nodes: Array<FrameNode>,
    /// Nodes in use, node 0 included.
    used: usize,
}

/// See the module's text.
pub struct KnownStacks {
    memory: KnownMemory,
    last: LastRead,
    /// How often everything was forgotten: numbers of nodes are of one such time.
    pub forgotten: u32,
}

/// The stack that was read last, and room for the next one.
struct LastRead {
    /// Words, innermost first, of the last one and of the next one: which is which changes with each, by one store.
    words: [Array<FrameWord>; 2],
    /// Which of them has the last one.
    side: WordsSide,
    /// Nodes, outermost first.
    nodes: Array<u32>,
    /// 0: none.
    count: usize,
}

/// One of two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordsSide {
    First,
    Second,
}

impl WordsSide {
    fn other(self) -> WordsSide {
        match self {
            WordsSide::First => WordsSide::Second,
            WordsSide::Second => WordsSide::First,
        }
    }

    fn of<T>(self, [first, second]: &[T; 2]) -> &T {
        match self {
            WordsSide::First => first,
            WordsSide::Second => second,
        }
    }

    fn of_mut<T>(self, [first, second]: &mut [T; 2]) -> &mut T {
        match self {
            WordsSide::First => first,
            WordsSide::Second => second,
        }
    }
}

impl KnownMemory {
    /// Memory for `count` nodes, of which none is used, instead of what there is; `None`: there is none now.
    fn renew(&mut self, count: usize) -> Option<()> {
        self.used = 1;
        // SAFETY: no node is in use.
        unsafe { self.release() };
        // SAFETY: nothing points into an empty array.
        unsafe {
            self.nodes.grow(count)?;
            self.heads.grow(count)
        }
    }

    /// The node of a frame with these frames outside; `None`: there is no room for it.
    #[inline]
    fn inside(&mut self, outer: u32, word: FrameWord) -> Option<u32> {
        if self.heads.is_empty() {
            return None;
        }
        let hash = word.mixed_into(u64::from(outer).wrapping_mul(0xA24B_AED4_963E_E407));
        // A power of two is not promised: arrays are whole pages.
        let index = ((hash >> 32) * self.heads.len() as u64) >> 32;
        // SAFETY: the index is below the number of heads. Heads and nodes lead to nodes in use.
        unsafe {
            let head = self.heads.as_ptr().add(index as usize);
            let mut number = *head;
            while number != 0 {
                let node = &*self.nodes.as_ptr().add(number as usize);
                if node.outer == outer && node.word == word {
                    return Some(number);
                }
                number = node.next;
            }
            if self.used >= self.nodes.len().min(MOST_NODES) {
                return None;
            }
            let number = self.used as u32;
            self.nodes.as_ptr().add(self.used).write(FrameNode { word, outer, next: *head, address: 0 });
            self.used += 1;
            // Before the head: nodes that a head leads to are always in use, as `forget` takes for granted.
            compiler_fence(Ordering::SeqCst);
            *head = number;
            Some(number)
        }
    }

    /// # Safety
    /// Nothing may be used afterwards.
    unsafe fn release(&mut self) {
        // SAFETY: the caller uses nothing afterwards: the contract of `release`.
        unsafe {
            self.heads.release();
            self.nodes.release();
        }
    }
}

impl LastRead {
    /// Where the words of the next stack are written, and how many there is room for: more than `count`.
    fn room_behind(&mut self, count: usize) -> Option<(*mut FrameWord, usize)> {
        let Self { words, side, nodes, .. } = self;
        let words = side.other().of_mut(words);
        if words.len() <= count {
            grow(words, count)?;
        }
        if nodes.len() < words.len() {
            grow(nodes, words.len())?;
        }
        Some((words.as_ptr(), words.len()))
    }

    /// The words of the last stack.
    fn last_words(&self) -> &[FrameWord] {
        // SAFETY: so many words were written.
        unsafe { self.side.of(&self.words).elements(self.count) }
    }

    /// Frames, from the outermost one on, that the last stack and the next one with `count` frames have in common.
    fn common(&self, count: usize) -> usize {
        // SAFETY: so many words were written.
        let next = unsafe { self.side.other().of(&self.words).elements(count) };
        self.last_words().iter().rev().zip(next.iter().rev()).take_while(|(one, other)| one == other).count()
    }
}

/// The node outside. A call of its own, so that the compiler does not make one load of both cases.
#[cold]
#[inline(never)]
fn elsewhere(node: &FrameNode) -> u32 {
    node.outer
}

fn grow<T>(array: &mut Array<T>, count: usize) -> Option<()> {
    // SAFETY: no pointer into the array is held.
    unsafe { array.grow(FIRST_FRAMES.max(count * 2)) }
}

impl KnownStacks {
    pub const fn new() -> KnownStacks {
        let words = [const { Array::EMPTY }; 2];
        KnownStacks {
            memory: KnownMemory { heads: Array::EMPTY, nodes: Array::EMPTY, used: 1 },
            last: LastRead { words, side: WordsSide::First, nodes: Array::EMPTY, count: 0 },
            forgotten: 0,
        }
    }

    /// Whether the stack `number` is that of the calling thread, whose innermost frame is `top`.
    ///
    /// # Safety
    /// `top` must be the innermost frame of the calling thread, and the stack must have been learnt since everything was
    /// forgotten last.
    #[inline(always)]
    pub unsafe fn is_unchanged(&self, number: u32, layout: &PythonLayout, top: u64) -> bool {
        // SAFETY: the caller keeps the contract of `is_unchanged`, which covers this call; `are_marked` chooses the reader.
        unsafe {
            if are_marked(layout) {
                self.is_unchanged_by(FrameReader::<true>::new(layout), number, top)
            } else {
                self.is_unchanged_by(FrameReader::<false>::new(layout), number, top)
            }
        }
    }

    /// # Safety
    /// As for [`is_unchanged`](Self::is_unchanged).
    #[inline(always)]
    unsafe fn is_unchanged_by<const MARKED: bool>(&self, reader: FrameReader<MARKED>, number: u32, top: u64) -> bool {
        let nodes = self.memory.nodes.as_ptr().cast_const();
        if nodes.is_null() {
            return false;
        }
        let (mut number, mut frame) = (number, top);
        while frame != 0 && number != 0 {
            // SAFETY: the stack was learnt since everything was forgotten last, so its nodes are in use. `frame` is the
            // calling thread's: a frame is looked at after the one within it, which leads to it.
            unsafe {
                let node = &*nodes.add(number as usize);
                match reader.next_if_unchanged(&node.word, frame) {
                    Some(previous) => frame = previous,
                    None => return false,
                }
                // Nodes that were inserted together are one behind the other. The processor predicts the branch, and
                // need not wait for `outer` before it loads the next node.
                number -= 1;
                if node.outer != number {
                    number = elsewhere(node);
                }
            }
        }
        frame == 0 && number == 0
    }

    /// Reads the stack whose innermost frame is `top`, and gives its number: that of the same stack, if it was seen before.
    /// `None` when it is not as it must be, or there is no memory. [`last_frames`](Self::last_frames) has its frames then.
    ///
    /// # Safety
    /// `top` must be the innermost frame of the calling thread.
    pub unsafe fn learn(&mut self, interpreter: &PythonInterpreter, top: u64) -> Option<u32> {
        // SAFETY: `top` is the innermost frame of the calling thread: the contract of `learn`.
        let count = unsafe { self.read(interpreter.layout, top) }?;
        loop {
            if let Some(number) = self.find_or_insert(count) {
                return Some(number);
            }
            self.make_room()?;
        }
    }

    /// Reads the chain into the words of the next stack, and gives their number.
    ///
    /// # Safety
    /// `top` must be the innermost frame of the calling thread.
    unsafe fn read(&mut self, layout: &PythonLayout, top: u64) -> Option<usize> {
        let mut memory = ObjectMemory::for_backtrace();
        if memory.is_careful() || !are_marked(layout) {
            // SAFETY: the memory is careful, or `read_by` follows the chain from `top` on, the innermost frame of the calling
            // thread: the contract of `read`.
            return self.read_by(top, |frame| unsafe { FrameWord::read(layout, &mut memory, frame) });
        }
        let reader = FrameReader::<true>::new(layout);
        // SAFETY: the layout is proved, and `read_by` follows the chain from `top` on, the innermost frame of the calling
        // thread: the contract of `read`.
        self.read_by(top, |frame| unsafe { reader.read(frame) })
    }

    #[inline(always)]
    fn read_by(&mut self, top: u64, mut word_of: impl FnMut(u64) -> Option<(FrameWord, u64)>) -> Option<usize> {
        let (mut frame, mut count) = (top, 0);
        while count < MOST_FRAMES {
            let (words, room) = self.last.room_behind(count)?;
            while count < room {
                if frame == 0 {
                    return Some(count);
                }
                let (word, previous) = word_of(frame)?;
                // SAFETY: below the room.
                unsafe { words.add(count).write(word) };
                count += 1;
                frame = previous;
            }
        }
        None
    }

    /// The number of the stack whose `count` words have just been read; `None`: there is no room for it.
    fn find_or_insert(&mut self, count: usize) -> Option<u32> {
        let last = &mut self.last;
        let common = last.common(count);
        // Until it is whole there is no last stack.
        last.count = 0;
        let memory = &mut self.memory;
        let (nodes, words) = (last.nodes.as_ptr(), last.side.other().of(&last.words).as_ptr());
        // SAFETY: both arrays have room for `count` elements; the nodes of the common frames are those of the last stack.
        unsafe {
            let mut number = if common > 0 { *nodes.add(common - 1) } else { 0 };
            for index in common..count {
                number = memory.inside(number, *words.add(count - 1 - index))?;
                nodes.add(index).write(number);
            }
            last.side = last.side.other();
            last.count = count;
            Some(number)
        }
    }

    /// Forgets all, for memory that is larger unless it is the largest.
    fn make_room(&mut self) -> Option<()> {
        let count = match self.memory.nodes.len() {
            0 => FIRST_NODES,
            len if len < MOST_NODES => len * 4,
            _ if self.memory.used == 1 => return None,
            _ => {
                self.forget();
                return Some(());
            }
        };
        self.forget();
        self.memory.renew(count.min(MOST_NODES))
    }

    /// The frames of the stack that was learnt last, innermost first.
    pub fn last_frames(&self) -> &[FrameWord] {
        self.last.last_words()
    }

    /// The word of that stack's frame with `left` frames from this one on outwards; `None` for 0.
    pub fn last_word(&self, left: usize) -> Option<FrameWord> {
        let frames = self.last_frames();
        frames.get(frames.len().checked_sub(left)?).copied()
    }

    /// The address that represents a frame of the stack that was learnt last in the call tree; the frame has `left` frames
    /// from this one on outwards. `None` when it is none of the program's code.
    ///
    /// # Safety
    /// The frames of that stack must exist.
    pub unsafe fn address(
        &mut self,
        interpreter: &PythonInterpreter,
        memory: &mut ObjectMemory,
        left: usize,
    ) -> Option<u64> {
        if left == 0 || left > self.last.count {
            return None;
        }
        let (numbers, nodes) = (self.last.nodes.as_ptr(), self.memory.nodes.as_ptr());
        // SAFETY: below the number of frames, whose nodes are in use. The frame exists: the contract of `address`.
        unsafe {
            let number = *numbers.add(left - 1);
            let node = &mut *nodes.add(number as usize);
            if node.address == 0 {
                node.address = node.word.address(interpreter, memory)?;
            }
            Some(node.address)
        }
    }

    pub fn forget(&mut self) {
        self.last.count = 0;
        let memory = &mut self.memory;
        if memory.used > 1 {
            // SAFETY: the whole array.
            unsafe { core::ptr::write_bytes(memory.heads.as_ptr(), 0, memory.heads.len()) };
            // Afterwards: if a jump out of a signal handler comes between, the next call finds that this is not done.
            compiler_fence(Ordering::SeqCst);
            memory.used = 1;
        }
        self.forgotten = self.forgotten.wrapping_add(1);
    }

    /// # Safety
    /// Nothing may be used afterwards.
    pub unsafe fn release(&mut self) {
        let last = &mut self.last;
        last.count = 0;
        // SAFETY: the caller uses nothing afterwards: the contract of `release`.
        unsafe {
            self.memory.release();
            last.words.iter_mut().for_each(|array| array.release());
            last.nodes.release();
        }
    }

    pub fn bytes(&self) -> usize {
        let LastRead { words, nodes, .. } = &self.last;
        self.memory.heads.bytes()
            + self.memory.nodes.bytes()
            + words.iter().map(Array::bytes).sum::<usize>()
            + nodes.bytes()
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::stepping::after_each_instruction;

    #[test]
    fn arrays_are_whole_between_any_two_instructions() {
        let mut stacks = KnownStacks::new();
        let known = &raw mut stacks;
        let is_whole = || {
            // SAFETY: reads what the interrupted code has stored, as the next event does after a jump.
            let known = unsafe { &*known };
            let [first, second] = &known.last.words;
            let is_shared = !first.is_empty() && first.as_ptr() == second.as_ptr();
            let words_are_there = !is_shared && first.is_there() && second.is_there();
            words_are_there
                && known.last.nodes.is_there()
                && known.memory.heads.is_there()
                && known.memory.nodes.is_there()
        };
        // SAFETY: the only use of the stacks, beside `is_whole`. Words that are zero are valid.
        let found = after_each_instruction(is_whole, || unsafe {
            for count in [1, 2] {
                (*known).last.room_behind(FIRST_FRAMES * count).unwrap();
                (*known).make_room().unwrap();
                (*known).find_or_insert(count).unwrap();
            }
        });
        assert_eq!(found.failing, None, "of {} instructions", found.instructions);
        assert!(found.instructions > 1000, "{}", found.instructions);
        // SAFETY: not used afterwards.
        unsafe { stacks.release() };
    }
}
