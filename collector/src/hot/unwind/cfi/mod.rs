//! Unwind information (DWARF call frame information, CFI): reads it in place, allocates nothing, and believes
//! none of it: every offset is checked against the memory it may point into.

pub mod bytes;
pub mod compile;
pub mod entry;
pub mod expression;
pub mod index;
pub mod program;
