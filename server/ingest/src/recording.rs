//! A recording that may still grow: its index is built or taken up, and follows the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tracehound_format::FormatError;
use tracehound_format::header::FileHeader;

use super::OnProgress;
use super::checkpoint::OnSaved;
use super::growth::Growth;
use super::lineage::Kin;
use tracehound_index::files::{Ledgers, read_manifest};
use tracehound_index::folder::{Folder, candidates};
use tracehound_index::layout::Granularity;
use tracehound_index::schema::Columns;
use tracehound_index::{Cancel, Parts, Tail, Trace};

/// Where the index is to lie.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum IndexPlace {
    /// Beside the recording (`….idx`), else in the user's cache folder.
    #[default]
    Auto,
    /// In this folder.
    In(PathBuf),
}

/// How to open a recording.
#[derive(Clone)]
pub struct OpenOptions {
    /// Where the index is to lie.
    pub index: IndexPlace,
    /// Stops indexing; what was done is kept and taken up the next time.
    pub cancel: Cancel,
    /// Called a few times a second while the index is built.
    pub progress: Option<OnProgress>,
    /// Build the index anew even if there is one.
    pub rebuild: bool,
    /// Bytes of memory for the table of live blocks; a larger one moves to disk.
    pub live_bytes: u64,
    /// How fine the index is; an index that is there is taken as it is.
    pub fine: Granularity,
    /// How much time passes at most, while the index is built, until it is saved such that a later run can go on.
    pub save_every: Duration,
    /// Called whenever that was done.
    pub saved: Option<OnSaved>,
    /// Other recordings that are at hand: a forked process's parent may be among them.
    pub others: Vec<PathBuf>,
    /// Ids of the recordings for whose sake this one is opened: children of its process, their children, and so on.
    pub descendants: Vec<[u8; 16]>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let cancel = Cancel::new();
        Self {
            index: IndexPlace::Auto,
            cancel,
            progress: None,
            rebuild: false,
            live_bytes: 256 << 20,
            fine: Granularity::default(),
            save_every: Duration::from_secs(2),
            saved: None,
            others: Vec::new(),
            descendants: Vec::new(),
        }
    }
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("index", &self.index)
            .field("rebuild", &self.rebuild)
            .finish_non_exhaustive()
    }
}

/// Error when a recording cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The recording.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file is no recording, or one that this version does not understand.
    #[error("cannot open {path}: {error}")]
    Format {
        /// The recording.
        path: PathBuf,
        /// What is wrong.
        error: FormatError,
    },
    /// The index cannot be built.
    #[error("cannot index {path}: {error}")]
    Index {
        /// The recording.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Stopped from outside.
    #[error("indexing {path} was stopped; the next run continues from there")]
    Cancelled {
        /// The recording.
        path: PathBuf,
    },
}

/// A recording and its index, following the file while the process runs.
#[derive(Debug)]
pub struct Recording {
    trace: Arc<Trace>,
    /// `None` once nothing more will come.
    growth: Option<Box<Growth>>,
}

impl Recording {
    /// Opens a recording as it is now; builds its index, or continues the index that is there.
    ///
    /// # Errors
    /// When it cannot be read or is no recording, when the index cannot be written anywhere, or when cancelled.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        let read = |error| OpenError::Read { path: path.to_path_buf(), error };
        // To open a pipe would wait for somebody who writes into it.
        let metadata = std::fs::metadata(path).map_err(read)?;
        if metadata.is_dir() {
            return Err(read(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        if !metadata.is_file() {
            return Err(read(io::Error::other("it is a pipe or a device, and no file")));
        }
        let file = File::open(path).map_err(read)?;
        let mut header = vec![0; (FileHeader::LEN as u64).min(metadata.len()) as usize];
        file.read_exact_at(&mut header, 0).map_err(read)?;
        let header =
            FileHeader::decode(&header).map_err(|error| OpenError::Format { path: path.to_path_buf(), error })?;
        let places = match &options.index {
            IndexPlace::Auto => candidates(path, header.recording_id),
            IndexPlace::In(folder) => vec![folder.clone()],
        };
        let id = header.recording_id;
        let mut opened = Self::open_in(path, &file, id, &places, options.clone());
        for at in 1..places.len() {
            match &opened {
                // A recording that has filled its disk is read, too.
                Err(OpenError::Index { error, .. }) if is_full(error) => {
                    let _ = Folder::discard_unfinished(&places[at - 1]);
                    match Self::open_in(path, &file, id, &places[at..], options.clone()) {
                        // That the other place cannot be written either says less than why it was needed.
                        Err(OpenError::Index { error, .. }) if !is_full(&error) => break,
                        other => opened = other,
                    }
                }
                _ => break,
            }
        }
        opened
    }

    /// As [`Self::open`], with the index in the first of these places that can be written.
    fn open_in(
        path: &Path,
        file: &File,
        id: [u8; 16],
        places: &[PathBuf],
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let index = |error| OpenError::Index { path: path.to_path_buf(), error };
        let kin = Kin::new(path, id, &options);
        if !options.rebuild {
            for place in places {
                if let Some(trace) = open_finished(path, file, place, id, &kin).map_err(index)? {
                    return Ok(Self { trace: Arc::new(trace), growth: None });
                }
            }
        }
        let folder = Folder::claim(places).map_err(index)?;
        let file = file.try_clone().map_err(index)?;
        let mut growth = Growth::start(path, file, id, folder, kin, options).map_err(index)?;
        let trace = growth.advance()?;
        let more = trace.facts().running;
        Ok(Self { trace: Arc::new(trace), growth: more.then(|| Box::new(growth)) })
    }

    /// Removes an unfinished index of a cancelled run from its usual places: the next run begins anew.
    ///
    /// # Errors
    /// When the recording cannot be read, or the disk refuses.
    pub fn discard_unfinished(path: &Path) -> io::Result<()> {
        let mut header = vec![0; FileHeader::LEN];
        File::open(path)?.read_exact_at(&mut header, 0)?;
        let header = FileHeader::decode(&header).map_err(io::Error::other)?;
        candidates(path, header.recording_id).iter().try_for_each(|place| Folder::discard_unfinished(place))
    }

    /// The latest snapshot.
    #[must_use]
    pub fn trace(&self) -> Arc<Trace> {
        Arc::clone(&self.trace)
    }

    /// The process runs, and more may come.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.growth.is_some()
    }

    /// Indexes what was added since; returns whether there is a new snapshot.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn refresh(&mut self) -> Result<bool, OpenError> {
        let Some(growth) = &mut self.growth else { return Ok(false) };
        if !growth.has_news() {
            return Ok(false);
        }
        let trace = growth.advance()?;
        if !trace.facts().running {
            self.growth = None;
        }
        self.trace = Arc::new(trace);
        Ok(true)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(growth) = &self.growth {
            // Saves the next run some work; without it the index is built anew.
            let _ = growth.save();
        }
    }
}

/// Whether a disk, a quota or a limit on files leaves no room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

pub(super) fn modified_ns(file: &File) -> u64 {
    let ns = file.metadata().map(|m| i128::from(m.mtime()) * 1_000_000_000 + i128::from(m.mtime_nsec()));
    ns.ok().and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0)
}

/// Opens the index in `folder` if it is that of the present content of the recording.
fn open_finished(path: &Path, file: &File, folder: &Path, id: [u8; 16], kin: &Kin) -> io::Result<Option<Trace>> {
    let Some(manifest) = read_manifest(folder) else { return Ok(None) };
    let len = file.metadata()?.len();
    if !manifest.is_final || manifest.facts.recording_id != id || manifest.file_bytes != len {
        return Ok(None);
    }
    // The digest proves nothing about a recording with damage, which may have changed since.
    let is_touched = manifest.modified_ns != modified_ns(file);
    if is_touched && (manifest.facts.damaged_blocks > 0 || !super::scan::has_digest(file, len, manifest.digest)?) {
        return Ok(None);
    }
    let facts = manifest.facts;
    if facts.inherited.as_ref().is_some_and(|inherited| !kin.is_current(inherited)) {
        return Ok(None);
    }
    let (Ok(columns), Ok(ledgers)) = (Columns::open(folder, &facts.lengths), Ledgers::open(folder, &facts)) else {
        return Ok(None);
    };
    let (path, folder) = (path.to_path_buf(), folder.to_path_buf());
    let parts = Parts { path, folder, facts, columns, ledgers, tail: Tail::default(), revision: 1, keep: None };
    Ok(Some(Trace::assemble(parts)))
}
