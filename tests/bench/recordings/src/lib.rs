//! Recordings without a program: [`Writer`] puts blocks into a file one by one, [`generate`] makes a whole recording of
//! any size and shape.
#![forbid(unsafe_code)]

mod generate;
mod side_file;
mod writer;

pub use generate::{Generated, Shape, generate};
pub use side_file::{LiveChunk, side_file};
pub use writer::Writer;
