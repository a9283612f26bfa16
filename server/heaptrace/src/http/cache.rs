//! Finished answers by (recording, revision, question), as bytes ready to send; the oldest go when they get too many.

use std::sync::{Mutex, PoisonError};

use axum::body::Bytes;
use lru::LruCache;

/// A question about a state of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// Number of the recording.
    pub recording: usize,
    /// State of its data, and of the data of another recording that it is compared with.
    pub revision: (u64, u64),
    /// Path and query.
    pub text: String,
}

/// Answers up to a number of bytes.
pub struct Cache {
    inner: Mutex<Inner>,
    limit: usize,
}

struct Inner {
    answers: LruCache<CacheKey, Bytes>,
    bytes: usize,
}

impl Cache {
    /// A cache that holds up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { inner: Mutex::new(Inner { answers: LruCache::unbounded(), bytes: 0 }), limit }
    }

    /// The answer, if it is there.
    pub fn get(&self, question: &CacheKey) -> Option<Bytes> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).answers.get(question).cloned()
    }

    /// Keeps an answer, unless it alone would take a quarter of the room.
    pub fn put(&self, question: CacheKey, answer: Bytes) {
        if answer.len() > self.limit / 4 {
            return;
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.bytes += answer.len();
        if let Some(old) = inner.answers.put(question, answer) {
            inner.bytes -= old.len();
        }
        while inner.bytes > self.limit {
            let Some((_, oldest)) = inner.answers.pop_lru() else { break };
            inner.bytes -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(text: &str) -> CacheKey {
        CacheKey { recording: 0, revision: (1, 0), text: text.into() }
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let cache = Cache::new(40);
        for name in ["a", "b", "c", "d"] {
            cache.put(question(name), Bytes::from_static(&[0; 10]));
        }
        assert!(cache.get(&question("a")).is_some());
        cache.put(question("e"), Bytes::from_static(&[0; 10]));
        let there: Vec<_> =
            ["a", "b", "c", "d", "e"].into_iter().filter(|q| cache.get(&question(q)).is_some()).collect();
        assert_eq!(there, ["a", "c", "d", "e"]);
        cache.put(question("a"), Bytes::from_static(&[1; 5]));
        assert_eq!(cache.inner.lock().unwrap().bytes, 35);
        cache.put(question("huge"), Bytes::from_static(&[0; 11]));
        assert!(cache.get(&question("huge")).is_none());
    }

    #[test]
    fn another_revision_is_another_question() {
        let cache = Cache::new(100);
        cache.put(question("a"), Bytes::from_static(b"1"));
        assert!(cache.get(&CacheKey { revision: (2, 0), ..question("a") }).is_none());
    }
}
