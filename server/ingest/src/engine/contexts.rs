//! Request contexts: ids of the program's own as dense numbers, for columns that are as long as the recording.

use std::collections::HashMap;

use super::PairingEngine;

/// Numbers of ids, 0 = no context. They are given out in the order of first appearance.
#[derive(Debug, Default)]
pub struct ContextNumbers {
    numbers: HashMap<u64, u32>,
}

impl ContextNumbers {
    /// Restores the numbering of an earlier run.
    pub fn restore(&mut self, ids: &[u64]) {
        self.numbers = (1..).zip(ids).map(|(number, &id)| (id, number)).collect();
    }

    /// Whether any event so far may have one.
    #[inline]
    #[must_use]
    pub fn are_used(&self) -> bool {
        !self.numbers.is_empty()
    }
}

impl PairingEngine {
    /// A thread's events behind this one belong to the context with this id.
    pub(super) fn change_context(&mut self, thread: u32, id: u64) {
        let number = if id == 0 {
            0
        } else {
            if !self.contexts.are_used() {
                // Earlier events of this batch had no context.
                self.chunk.alloc_context.resize(self.chunk.alloc_time.len(), 0);
                self.chunk.free_context.resize(self.chunk.free_time.len(), 0);
            }
            let next = self.contexts.numbers.len() as u32 + 1;
            let chunk = &mut self.chunk;
            *self.contexts.numbers.entry(id).or_insert_with(|| {
                chunk.contexts.push(id);
                next
            })
        };
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            thread.context = number;
        }
    }

    /// The context of a thread's next event.
    #[inline]
    pub(super) fn context_of(&self, thread: u32) -> u32 {
        self.threads.get(thread as usize).map_or(0, |thread| thread.context)
    }
}
