//! Request contexts: the request that an event belongs to, as set by the program.

use super::Trace;

/// A request context's number in an index: 0 = none, else its position in the list of ids plus one.
pub type ContextNumber = u32;

impl Trace {
    /// Ids of the contexts that events belong to, by number minus one.
    #[must_use]
    pub fn context_ids(&self) -> &[u64] {
        &self.columns().context_id
    }

    /// The id behind a number; 0 for none.
    #[must_use]
    pub fn context_id(&self, number: ContextNumber) -> u64 {
        let at = (number as usize).checked_sub(1);
        at.and_then(|at| self.context_ids().get(at)).copied().unwrap_or(0)
    }

    /// The name that the program has given to a context.
    #[must_use]
    pub fn context_name(&self, id: u64) -> Option<&str> {
        let names = &self.facts().context_names;
        let at = names.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        names.get(at).map(|(_, name)| name.as_str())
    }

    /// The context in which a block was allocated.
    #[inline]
    #[must_use]
    pub fn context_of_alloc(&self, row: u64) -> ContextNumber {
        self.columns().alloc_context.get(row as usize).copied().unwrap_or(0)
    }

    /// The context in which a free happened.
    #[inline]
    #[must_use]
    pub fn context_of_free(&self, ordinal: u64) -> ContextNumber {
        self.columns().free_context.get(ordinal as usize).copied().unwrap_or(0)
    }
}
