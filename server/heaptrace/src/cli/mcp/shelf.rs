//! Recordings that the tools may open, by name: those named on the command line, and those in named folders. No other file
//! can be opened.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use tracehound_api::info::End;

use super::super::open::{self, OpenRecording};
use super::super::terminal::clean;

/// Most recordings that are kept open, with the names that were looked up.
const MOST_OPEN: usize = 8;

/// The recordings.
#[derive(Default)]
pub struct Shelf {
    roots: Vec<PathBuf>,
    open: HashMap<PathBuf, Held>,
    clock: u64,
}

struct Held {
    recording: Arc<OpenRecording>,
    /// Length and time of change when it was opened; none of one that runs, which is always looked at again.
    state: Option<(u64, SystemTime)>,
    used: u64,
}

impl Shelf {
    /// Files and folders that are there now; folders are looked through at every question.
    pub fn new(paths: &[PathBuf]) -> Result<Self> {
        for path in paths {
            path.metadata().with_context(|| format!("cannot read {}", path.display()))?;
        }
        Ok(Self { roots: paths.to_vec(), ..Self::default() })
    }

    /// Names and paths, in order. A name is the file's, with its folder where two are equal.
    pub fn names(&self) -> Vec<(String, PathBuf)> {
        let mut paths = Vec::new();
        for root in &self.roots {
            if root.is_dir() {
                let mut found: Vec<PathBuf> = std::fs::read_dir(root)
                    .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
                    .unwrap_or_default();
                found.retain(|path| path.extension().is_some_and(|end| end == "dat") && path.is_file());
                found.sort();
                paths.append(&mut found);
            } else {
                paths.push(root.clone());
            }
        }
        paths.dedup();
        let short = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut times: HashMap<String, usize> = HashMap::new();
        paths.iter().for_each(|path| *times.entry(short(path)).or_default() += 1);
        let name = |path: &Path| match short(path) {
            name if times.get(&name) == Some(&1) => name,
            _ => path.to_string_lossy().into_owned(),
        };
        paths.into_iter().map(|path| (name(&path), path)).collect()
    }

    /// The path of a name, or of its only beginning; without a name that of the only recording.
    fn find(&self, asked: Option<&str>) -> Result<PathBuf> {
        let names = self.names();
        let listed = || {
            let list: Vec<_> = names.iter().take(20).map(|(name, _)| clean(name).into_owned()).collect();
            let more = names.len().saturating_sub(list.len());
            if more > 0 { format!("{} and {more} more", list.join(", ")) } else { list.join(", ") }
        };
        let Some(asked) = asked else {
            return match names.as_slice() {
                [(_, path)] => Ok(path.clone()),
                [] => bail!("there is no recording yet"),
                _ => bail!("there are {} recordings, say which by \"recording\": {}", names.len(), listed()),
            };
        };
        let exact = names.iter().find(|(name, path)| name == asked || path.as_os_str() == asked);
        let mut begins = names.iter().filter(|(name, _)| name.starts_with(asked));
        match (exact, begins.next(), begins.next()) {
            (Some((_, path)), ..) | (None, Some((_, path)), None) => Ok(path.clone()),
            (None, Some(_), Some(_)) => bail!("several recordings begin with {asked:?}: {}", listed()),
            (None, None, _) => bail!("there is no recording {asked:?}; there are: {}", listed()),
        }
    }

    /// Opens a recording, or takes the one that is open if its file is the same.
    pub fn open(&mut self, asked: Option<&str>) -> Result<Arc<OpenRecording>> {
        let path = self.find(asked)?;
        self.open_path(&path)
    }

    /// Opens the recording at a path of [`Shelf::names`].
    pub fn open_path(&mut self, path: &Path) -> Result<Arc<OpenRecording>> {
        self.clock += 1;
        let state = path.metadata().ok().and_then(|data| Some((data.len(), data.modified().ok()?)));
        if let Some(held) = self.open.get_mut(path)
            && held.state.is_some()
            && held.state == state
        {
            held.used = self.clock;
            return Ok(Arc::clone(&held.recording));
        }
        let others: Vec<PathBuf> = self.names().into_iter().map(|(_, path)| path).collect();
        let recording = Arc::new(open::open_among(path, &others)?);
        let state = state.filter(|_| recording.trace.end() != End::Running);
        if self.open.len() >= MOST_OPEN
            && let Some(oldest) = self.open.iter().min_by_key(|(_, held)| held.used).map(|(path, _)| path.clone())
        {
            self.open.remove(&oldest);
        }
        let held = Held { recording: Arc::clone(&recording), state, used: self.clock };
        self.open.insert(path.to_path_buf(), held);
        Ok(recording)
    }
}
