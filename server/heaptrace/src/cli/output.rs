//! Output of exports: a file that appears when it is complete, or standard output.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;

use tracehound_format::header::MAGIC;

use super::{Misuse, terminal};

/// Modes of new files, less what the user's umask takes away.
const READABLE: u32 = 0o666;
const PRIVATE: u32 = 0o600;

/// An output being written.
pub enum OutputArgs {
    /// Standard output.
    Stdout(BufWriter<terminal::Stdout>),
    /// A file, under another name until it is complete.
    File(BufWriter<File>, OutputFiles),
    /// A file that is compressed on the way.
    Gzip(Box<BufWriter<GzEncoder<BufWriter<File>>>>, OutputFiles),
}

/// Names of a file being written.
pub struct OutputFiles {
    last: PathBuf,
    temporary: PathBuf,
    done: bool,
}

impl OutputFiles {
    fn refused(&self, error: &io::Error) -> io::Error {
        terminal::cannot_write(self.last.display(), error)
    }
}

impl Drop for OutputFiles {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

impl OutputArgs {
    /// Opens `path`, in the place of what is there if that is no recording, which cannot be made again; `-` is standard
    /// output.
    pub fn create(path: &Path) -> Result<Self> {
        spare_recording(path)?;
        Self::open(path, false, READABLE)
    }

    /// As [`Self::create`], compressing what goes to a path that ends in `.gz`.
    pub fn create_compressing(path: &Path) -> Result<Self> {
        spare_recording(path)?;
        Self::open(path, path.extension().is_some_and(|extension| extension == "gz"), READABLE)
    }

    /// As [`Self::create`], for what is a recording itself: for its owner alone, as a recorded one.
    pub fn create_recording(path: &Path) -> Result<Self> {
        Self::open(path, false, PRIVATE)
    }

    fn open(path: &Path, gzip: bool, mode: u32) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout(terminal::stdout()));
        }
        let mut temporary = path.as_os_str().to_owned();
        // Devices and pipes are written in place: they cannot be replaced.
        let in_place = fs::metadata(path).is_ok_and(|meta| !meta.is_file());
        if !in_place {
            temporary.push(format!(".{}.part", std::process::id()));
        }
        let names = OutputFiles { last: path.to_owned(), temporary: temporary.into(), done: in_place };
        let file = File::options().write(true).create(true).truncate(true).mode(mode).open(&names.temporary);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let file = BufWriter::with_capacity(1 << 16, file);
        Ok(if gzip {
            // The encoder clears a buffer behind each write: few large ones come to it.
            Self::Gzip(Box::new(BufWriter::with_capacity(1 << 16, GzEncoder::new(file, Compression::fast()))), names)
        } else {
            Self::File(file, names)
        })
    }

    /// Writes what is buffered, and gives the file its name.
    pub fn finish(self) -> Result<()> {
        let (mut file, mut names) = match self {
            Self::Stdout(mut out) => return Ok(out.flush()?),
            Self::File(file, names) => (file, names),
            Self::Gzip(out, names) => (out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?, names),
        };
        let named = |names: &OutputFiles| format!("cannot write {}", names.last.display());
        file.flush().with_context(|| named(&names))?;
        if !names.done {
            fs::rename(&names.temporary, &names.last).with_context(|| named(&names))?;
            names.done = true;
        }
        Ok(())
    }
}

/// Refuses a path that has a recording.
pub fn spare_recording(path: &Path) -> Result<()> {
    let mut start = [0; MAGIC.len()];
    let is_recording = fs::metadata(path).is_ok_and(|meta| meta.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == MAGIC;
    if is_recording { Err(is_a_recording(path)) } else { Ok(()) }
}

/// Refuses the file that a recording of another tool is read from.
pub fn spare_source(path: &Path, source: &Path) -> Result<()> {
    let same = fs::metadata(path).is_ok_and(|meta| meta.is_file())
        && fs::canonicalize(path).is_ok_and(|path| fs::canonicalize(source).is_ok_and(|source| path == source));
    if same { Err(is_a_recording(path)) } else { Ok(()) }
}

fn is_a_recording(path: &Path) -> anyhow::Error {
    Misuse(format!("{} is a recording; name another file", path.display())).into()
}

impl Write for OutputArgs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::File(out, names) => out.write(bytes).map_err(|error| names.refused(&error)),
            Self::Gzip(out, names) => out.write(bytes).map_err(|error| names.refused(&error)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::File(out, names) => out.flush().map_err(|error| names.refused(&error)),
            Self::Gzip(out, names) => out.flush().map_err(|error| names.refused(&error)),
        }
    }
}
