//! Folder of an index: beside its recording, else in the user's cache; locked by the one process that builds it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::files::{MANIFEST, Manifest, read_manifest};

/// A folder that this process may write.
#[derive(Debug)]
pub struct Folder {
    /// Its path.
    pub path: PathBuf,
    /// It is removed at the end: another process builds the lasting one.
    is_temporary: bool,
    _lock: File,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Where the index of `recording` may lie, best first.
#[must_use]
pub fn candidates(recording: &Path, id: [u8; 16]) -> Vec<PathBuf> {
    let mut beside = recording.as_os_str().to_owned();
    beside.push(".idx");
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let mut all = vec![PathBuf::from(beside)];
    all.extend(cache_home().map(|c| c.join("tracehound").join(format!("{hex}.idx"))));
    all
}

fn cache_home() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl Folder {
    /// The first of `places` that can be written and that no other process is building, else a temporary folder.
    ///
    /// # Errors
    /// When there is none at all; the last place's error.
    pub fn claim(places: &[PathBuf]) -> io::Result<Self> {
        for place in places {
            match Self::lock(place, false) {
                Ok(folder) => return Ok(folder),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {}
            }
        }
        let mut last = io::Error::other("there is no folder for the index");
        let beside = places.iter().filter_map(|p| p.parent()).map(Path::to_path_buf);
        for parent in beside.chain([std::env::temp_dir()]) {
            let made = make(&parent).and_then(|()| tempfile::Builder::new().prefix(".tracehound-").tempdir_in(&parent));
            match made.and_then(|folder| Self::lock(&folder.keep(), true)) {
                Ok(folder) => return Ok(folder),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn lock(path: &Path, is_temporary: bool) -> io::Result<Self> {
        make(path)?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path: path.to_path_buf(), is_temporary, _lock: lock })
    }

    /// Removes an index that is not finished and that nobody is building.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn discard_unfinished(place: &Path) -> io::Result<()> {
        if !place.is_dir() {
            return Ok(());
        }
        let folder = match Self::lock(place, false) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            locked => locked?,
        };
        if read_manifest(place).is_some_and(|manifest| manifest.is_final) {
            return Ok(());
        }
        // Without the manifest it is no index, even if other files cannot be removed.
        folder.invalidate()?;
        std::fs::remove_dir_all(place)
    }

    /// Puts the manifest in place, in one step.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn commit(&self, manifest: &Manifest, extra: &impl serde::Serialize) -> io::Result<()> {
        let write = |name: &str, bytes: &[u8]| -> io::Result<()> {
            let temporary = self.path.join(format!("{name}.new"));
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            io::Write::write_all(&mut file, bytes)?;
            std::fs::rename(&temporary, self.path.join(name))
        };
        write(RESUME, &serde_json::to_vec(extra)?)?;
        write(MANIFEST, &serde_json::to_vec(manifest)?)
    }

    /// Removes the manifest, so that the folder holds no index.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn invalidate(&self) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(MANIFEST)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }
}

/// File with what a later run needs to go on.
pub const RESUME: &str = "resume.json";
