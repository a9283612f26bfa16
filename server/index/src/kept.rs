//! Cached results: computed once, then kept in memory with the snapshot and in a file beside the columns.
//!
//! The file is only a cache: a file of another recording, state or version is ignored, and so is a write that fails.

use std::any::Any;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Trace;
use super::files::LAYOUT;
use tracehound_api::info::End;

/// The longest answer that is read, in bytes.
const MOST: usize = 256 << 20;

/// Cached results in memory, by name.
#[derive(Debug, Default)]
pub struct KeptAnswers(Mutex<HashMap<&'static str, Arc<dyn Any + Send + Sync>>>);

/// Kind of a cached result.
#[derive(Debug, Clone, Copy)]
pub struct KeptKind {
    /// Name of the file, without its ending.
    pub name: &'static str,
    /// Version of the code that computes it; a result of another version is computed again.
    pub version: u32,
}

/// What can be kept.
pub trait KeptAnswer: Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> KeptAnswer for T {}

/// Identity that a file must have to be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(super) struct KeptKey {
    name: String,
    layout: u32,
    version: u32,
    recording: [u8; 16],
    allocs: u64,
    frees: u64,
    duration_ns: u64,
    ended: bool,
}

impl Trace {
    /// The cached result of a kind; `make` computes it if it is not there.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn kept<T: KeptAnswer, E>(&self, kind: KeptKind, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        match self.find_kept(kind) {
            Some(known) => Ok(known),
            None => Ok(self.keep(kind, make()?)),
        }
    }

    /// The cached result of a kind, if it is there.
    #[must_use]
    pub fn find_kept<T: KeptAnswer>(&self, kind: KeptKind) -> Option<Arc<T>> {
        let known = self.answers().get(kind.name).and_then(|known| Arc::clone(known).downcast().ok());
        known.or_else(|| {
            let answer = Arc::new(self.read_kept::<T>(kind)?);
            self.answers().insert(kind.name, Arc::clone(&answer) as _);
            Some(answer)
        })
    }

    /// As [`Self::find_kept`], but the file is read again: another process may have stored a newer result.
    #[must_use]
    pub fn reread_kept<T: KeptAnswer>(&self, kind: KeptKind) -> Option<Arc<T>> {
        let Some(answer) = self.read_kept::<T>(kind) else {
            return self.find_kept(kind);
        };
        let answer = Arc::new(answer);
        self.answers().insert(kind.name, Arc::clone(&answer) as _);
        Some(answer)
    }

    /// Stores a result in place of one that is there.
    pub fn keep<T: KeptAnswer>(&self, kind: KeptKind, answer: T) -> Arc<T> {
        // A running recording soon has another result.
        if self.end() != End::Running {
            let _ = self.write_kept(kind, &answer);
        }
        let answer = Arc::new(answer);
        self.answers().insert(kind.name, Arc::clone(&answer) as _);
        answer
    }

    /// What is found out of this snapshot and kept in memory alone. `make` makes it anew if nothing of the name is there, or
    /// something that does not fit any more.
    pub fn remembered<T: Send + Sync + 'static>(
        &self,
        name: &'static str,
        fits: impl FnOnce(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut answers = self.answers();
        let known = answers.get(name).and_then(|known| Arc::clone(known).downcast::<T>().ok());
        known.filter(|known| fits(known)).unwrap_or_else(|| {
            let made = Arc::new(make());
            answers.insert(name, Arc::clone(&made) as _);
            made
        })
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<&'static str, Arc<dyn Any + Send + Sync>>> {
        self.answers.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn kept_key(&self, kind: KeptKind) -> KeptKey {
        KeptKey {
            name: kind.name.to_owned(),
            layout: LAYOUT,
            version: kind.version,
            recording: self.recording_id(),
            allocs: self.alloc_count(),
            frees: self.free_count(),
            duration_ns: self.duration_ns(),
            ended: self.end() == End::Exit,
        }
    }

    fn kept_path(&self, kind: KeptKind) -> PathBuf {
        self.folder().join(format!("{}.kept", kind.name))
    }

    fn read_kept<T: KeptAnswer>(&self, kind: KeptKind) -> Option<T> {
        read_file(&self.kept_path(kind), &self.kept_key(kind))
    }

    fn write_kept<T: KeptAnswer>(&self, kind: KeptKind, answer: &T) -> io::Result<()> {
        write_file(&self.kept_path(kind), &self.kept_key(kind), answer)
    }
}

/// What is in a file, if its key is this one.
pub(super) fn read_file<K: DeserializeOwned + PartialEq, T: DeserializeOwned>(path: &Path, key: &K) -> Option<T> {
    let file = std::fs::File::open(path).ok()?;
    let mut bytes = Vec::new();
    // The checksum at the end is read as well.
    let read = zstd::Decoder::new(file).ok()?.take(MOST as u64 + 1).read_to_end(&mut bytes).ok()?;
    if read > MOST {
        return None;
    }
    let config = bincode::config::standard().with_limit::<MOST>();
    let (found, len) = bincode::serde::decode_from_slice::<K, _>(&bytes, config).ok()?;
    if found != *key {
        return None;
    }
    bincode::serde::decode_from_slice(&bytes[len..], config).ok().map(|(answer, _)| answer)
}

/// Writes a file in one step.
pub(super) fn write_file<K: Serialize, T: Serialize>(path: &Path, key: &K, answer: &T) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    let mut encoder = zstd::Encoder::new(io::BufWriter::new(file.as_file_mut()), 1)?;
    encoder.include_checksum(true)?;
    let config = bincode::config::standard();
    bincode::serde::encode_into_std_write(key, &mut encoder, config).map_err(io::Error::other)?;
    bincode::serde::encode_into_std_write(answer, &mut encoder, config).map_err(io::Error::other)?;
    encoder.finish()?.flush()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
