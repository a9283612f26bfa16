//! The parts of the server's `symbolize` that read or write files of names.

#[path = "../../server/src/symbolize/bundle.rs"]
#[allow(dead_code, reason = "only what the importer and the target `names` need is used")]
mod bundle;
#[path = "../../server/src/symbolize/cache.rs"]
#[allow(dead_code, reason = "only what the importer and the target `names` need is used")]
pub mod cache;

pub use bundle::{Bundle, Named};

/// The types of the server's `symbolize::resolve` that a file of names holds.
pub mod resolve {
    use std::sync::Arc;

    /// One function at an address.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct ResolvedFunction {
        /// Its name.
        pub name: Option<Arc<str>>,
        /// Source file.
        pub file: Option<Arc<str>>,
        /// Line.
        pub line: Option<u32>,
        /// It was inlined into the next one.
        pub inlined: bool,
        /// Where it is declared.
        pub declared: Option<(Arc<str>, u32)>,
        /// Its first address.
        pub start: Option<u64>,
    }

    /// The functions at an address.
    pub type ResolvedFunctions = Box<[ResolvedFunction]>;
}
