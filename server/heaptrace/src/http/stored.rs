//! Answers of earlier runs of the server, from beside the index: the first visit after a start need not wait.
//!
//! What is stored are the bytes of an answer, under a key that names all that it depends on: the question, this very
//! program, the files that names come from, the suppressions that the server was started with. Recordings with few sites
//! have none: their answers take no time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use axum::http::Uri;
use tracehound_query::leaks;

use super::answer::Ask;

/// Where the answer to a question lies.
pub struct StoredAnswer(Option<Vec<u8>>);

impl StoredAnswer {
    /// Of a question to a recording.
    pub fn of(ask: &Ask<'_>, question: &str) -> Self {
        let program = program().filter(|_| leaks::are_worth_keeping(ask.trace));
        Self(program.map(|program| {
            let mut hasher = DefaultHasher::new();
            for suppression in ask.suppressions {
                (&suppression.pattern, suppression.origin.to_string()).hash(&mut hasher);
            }
            let names = ask.symbolizer.fingerprint(ask.trace);
            format!("{program:x}\n{names:x}\n{:x}\n{question}", hasher.finish()).into_bytes()
        }))
    }

    /// Whether an answer would be stored.
    pub const fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// The answer, if it was stored.
    pub fn read(&self, ask: &Ask<'_>) -> Option<Vec<u8>> {
        ask.trace.document(self.0.as_ref()?)
    }

    /// Stores the answer.
    pub fn write(&self, ask: &Ask<'_>, answer: &[u8]) {
        if let Some(key) = &self.0 {
            ask.trace.keep_document(key, answer);
        }
    }
}

/// The question of a request: the last part of its path, and its parameters in one order.
pub fn question(uri: &Uri) -> String {
    let name = uri.path().rsplit('/').next().unwrap_or_default();
    let mut parameters: Vec<&str> =
        uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty()).collect();
    parameters.sort_unstable();
    format!("{name}?{}", parameters.join("&"))
}

/// Hash of the file that this program is in, as it was when it was started.
fn program() -> Option<u64> {
    static PROGRAM: OnceLock<Option<u64>> = OnceLock::new();
    *PROGRAM.get_or_init(|| {
        let facts = std::fs::metadata("/proc/self/exe").ok()?;
        let mut hasher = DefaultHasher::new();
        (facts.dev(), facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()).hash(&mut hasher);
        Some(hasher.finish())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_parameters_is_no_part_of_a_question() {
        let of = |text: &str| question(&text.parse().expect("a URI"));
        assert_eq!(of("/api/v1/recordings/r1/leaks?limit=2&functions=1"), "leaks?functions=1&limit=2");
        assert_eq!(of("/api/v1/recordings/r7/leaks?functions=1&limit=2"), "leaks?functions=1&limit=2");
        assert_eq!(of("/api/v1/recordings/r7/leaks"), "leaks?");
        assert_ne!(of("/r/leaks?limit=2"), of("/r/leaks?limit=3"));
    }
}
