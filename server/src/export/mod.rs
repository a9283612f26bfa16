//! Other formats: what heaptrace knows, for other tools and for people without heaptrace.

pub mod svg;
