//! Small C programs under the recorder, and what their recordings hold, read with the format crate alone.

mod files;
mod kill;
mod limits;
mod mappings;
mod processes;
mod recording;
mod run;
mod threads;
