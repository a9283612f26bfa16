//! Parquet: a folder of tables that DuckDB, pyarrow, pandas, polars and Spark read; or, as one file, the first of them.
//!
//! ```text
//! allocations   one row a block, by allocation      → stack, free_stack, thread, free_thread
//! sites         one row an allocating stack with its sums
//! site_minutes  one row an allocating stack and minute of the clock in which it had an event: allocated, freed, live, lowest
//! stacks        stack → names, the same in another build; frames, a list, the first called the allocating function
//! frames        (frame, level) → build id, offset, function, file, line; level 0 is innermost, the others inlined it
//! threads, modules, marks, timeline
//! ```
//! Stacks and frames are named by what they are, not by where this recording has them: a frame is the SHA-256 of build
//! id and offset in the file (path and offset, without a build id), a stack that of its caller's stack and its frame,
//! the first 16 bytes of each. So recordings of many processes and machines can be joined.
//! All integers are signed, of 64 bits, since not every reader has unsigned ones.
//! Every file's metadata has the recording's `info` document under `heaptrace.info`.

mod blocks;
mod code;
mod columns;
mod minutes;
mod names;
mod process;
mod table;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use parquet::errors::ParquetError;
use tracehound_index::Trace;

use super::samples::resolve_all;
use super::{ExportError, ExportInput, ExportScope, Result};
use names::FrameNames;

impl From<ParquetError> for ExportError {
    fn from(error: ParquetError) -> Self {
        Self::Output(std::io::Error::other(error))
    }
}

/// Which tables are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    /// All of them.
    All,
    /// All but `allocations`, which is as long as the recording.
    Sums,
}

/// What the stacks of a recording are called in the tables.
pub struct StackNames(FrameNames);

impl StackNames {
    /// Names all stacks.
    ///
    /// # Errors
    /// When cancelled.
    pub fn new(source: ExportInput<'_>) -> Result<Self> {
        FrameNames::new(source).map(Self)
    }

    /// The stack of a site.
    #[must_use]
    pub fn of_site(&self, trace: &Trace, site: u32) -> Option<[u8; 16]> {
        Some(self.0.stack(trace.site_node(site)?))
    }
}

/// Writes all tables into `folder`, which is made if it is not there.
///
/// # Errors
/// When the scope does not fit the recording, the folder cannot be written, or cancelled.
pub fn write_folder(source: ExportInput<'_>, scope: &ExportScope, folder: &Path) -> Result<()> {
    write_tables(source, scope, Tables::All, folder)
}

/// Writes tables into `folder`, which is made if it is not there.
///
/// # Errors
/// As of [`write_folder`].
pub fn write_tables(source: ExportInput<'_>, scope: &ExportScope, tables: Tables, folder: &Path) -> Result<()> {
    let named = |what: &str, path: &Path, error: &io::Error| {
        ExportError::Output(io::Error::new(error.kind(), format!("cannot {what} {}: {error}", path.display())))
    };
    std::fs::create_dir_all(folder).map_err(|error| named("make the folder", folder, &error))?;
    resolve_all(source)?;
    let names = FrameNames::new(source)?;
    let table = |name: &str, write: &dyn Fn(&mut dyn Write) -> Result<()>| -> Result<()> {
        // A file appears under its name when it is complete.
        let path = folder.join(format!("{name}.parquet"));
        let part = folder.join(format!(".{name}.parquet.part"));
        let file = File::create(&part).map_err(|error| named("write", &path, &error))?;
        let mut file = BufWriter::with_capacity(1 << 16, file);
        let done = write(&mut file).and_then(|()| Ok(file.flush()?));
        if let Err(error) = done {
            let _ = std::fs::remove_file(&part);
            return Err(match error {
                ExportError::Output(error) => named("write", &path, &error),
                other => other,
            });
        }
        std::fs::rename(&part, &path).map_err(|error| named("write", &path, &error))
    };
    if tables == Tables::All {
        table("allocations", &|out| blocks::allocations(source, scope, &names, out))?;
    }
    table("sites", &|out| blocks::sites(source, scope, &names, out))?;
    table("site_minutes", &|out| minutes::site_minutes(source, scope, &names, out))?;
    table("stacks", &|out| code::stacks(source, &names, out))?;
    table("frames", &|out| code::frames(source, &names, out))?;
    table("threads", &|out| process::threads(source, out))?;
    table("modules", &|out| code::modules(source, out))?;
    table("marks", &|out| process::marks(source, out))?;
    table("timeline", &|out| process::timeline(source, scope, out))
}

/// Writes the table of allocations as one file.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(source: ExportInput<'_>, scope: &ExportScope, out: &mut dyn Write) -> Result<()> {
    let names = FrameNames::new(source)?;
    blocks::allocations(source, scope, &names, out)
}
