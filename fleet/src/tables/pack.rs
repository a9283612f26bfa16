//! Tables of a recording into the store, when all of it is there.

use std::io::{Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracehound_exports::{ExportInput, ExportScope, parquet};
use tracehound_index::{Cancel, Trace};
use tracehound_ingest::{IndexPlace, OpenOptions, Recording};
use tracehound_query::leaks;
use tracehound_symbols::bundle::path_beside;
use tracehound_symbols::search_paths::{self, SearchPaths};
use tracehound_symbols::symbol_copy;

use super::{RECORDINGS, ROOT, partition, write};
use crate::collect::status::{CollectorStatus, RecordingState};
use crate::labels::Collected;
use crate::sink::ShippingTarget;
use crate::store::Store;
use crate::symbols::object_name;

/// What is packed.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Anything at all.
    pub tables: bool,
    /// The table of all blocks, too.
    pub allocations: bool,
}

/// Packs recordings one after the other, beside the shipping.
#[derive(Debug, Clone)]
pub struct Packer {
    /// What is to be packed; `None`: nothing more will come.
    queue: Option<mpsc::UnboundedSender<Option<Collected>>>,
    worker: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Packer {
    /// A packer for a store; another collector packs what is sent to it.
    pub fn start(sink: &ShippingTarget, options: Options, status: Arc<CollectorStatus>) -> Self {
        let ShippingTarget::Store(store) = sink.clone() else { return Self { queue: None, worker: Arc::default() } };
        if !options.tables {
            return Self { queue: None, worker: Arc::default() };
        }
        let (queue, mut jobs) = mpsc::unbounded_channel::<Option<Collected>>();
        let worker = tokio::spawn(async move {
            while let Some(Some(about)) = jobs.recv().await {
                match pack(&store, &about, options).await {
                    Ok(lost_events) => {
                        status.recording(&about, about.bytes, RecordingState::Packed);
                        status.lost_events(&about.recording, lost_events);
                    }
                    Err(error) => status.error(&format!(
                        "no tables of {}: {error:#}; `heaptrace fleet pack` tries again",
                        about.recording
                    )),
                }
            }
        });
        Self { queue: Some(queue), worker: Arc::new(Mutex::new(Some(worker))) }
    }

    /// Packs a recording in its turn.
    pub fn pack(&self, about: Collected) {
        if let Some(queue) = &self.queue {
            let _ = queue.send(Some(about));
        }
    }

    /// Waits until all that came so far are packed, a minute at most: `fleet pack` does what is left.
    pub async fn finish(self) {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(queue), Some(worker)) = (self.queue, worker) {
            let _ = queue.send(None);
            let _ = tokio::time::timeout(std::time::Duration::from_secs(60), worker).await;
        }
    }
}

/// Writes the tables of a recording into the store. May be stopped anywhere and done again: a recording counts when its
/// row in `recordings` is there, which is written last. How many events it lacks.
///
/// # Errors
/// When the recording cannot be read, or the store does not take the tables.
pub async fn pack(store: &Store, about: &Collected, options: Options) -> Result<u64> {
    let work = tempfile::tempdir().context("cannot make a folder to work in")?;
    let raw = format!("raw/{}.dat", about.recording);
    let path = match &store.folder {
        Some(folder) => folder.join(&raw),
        None => {
            let path = work.path().join("recording.dat");
            let mut file = std::fs::File::create(&path).context("cannot write a copy of the recording")?;
            store.fetch(&raw, &mut file).await?;
            path
        }
    };
    let (folder, about) = (work.path().join("tables"), about.clone());
    let names = work.path().join("names");
    let done = {
        let (folder, names, store) = (folder.clone(), names.clone(), store.clone());
        tokio::task::spawn_blocking(move || make(&store, &path, &folder, &names, &about, options))
    };
    let (prefix, lost_events) = done.await.context("the tables could not be made")??;
    if let Ok(names) = std::fs::read(path_beside(&names)) {
        store.put(&format!("{raw}.symbols"), names.into()).await?;
    }
    let mut names: Vec<String> = std::fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".parquet").map(str::to_owned))
        .collect();
    names.sort_by_key(|name| name == RECORDINGS);
    for name in names {
        let bytes = std::fs::read(folder.join(format!("{name}.parquet")))?;
        store.put(&format!("{ROOT}/{name}/{prefix}/{name}.parquet"), bytes.into()).await?;
    }
    Ok(lost_events)
}

/// Most bytes of symbols that are kept unpacked between two recordings.
const MOST_UNPACKED: u64 = 1 << 30;

/// The folder that symbols are unpacked into, which names are looked up in from now on.
fn symbol_folder() -> Result<&'static Path> {
    static FOLDER: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().ok()?;
        let debug_dir = vec![folder.path().to_path_buf()];
        search_paths::choose(SearchPaths { debug_dir, ..SearchPaths::default() });
        Some(folder)
    });
    folder.as_ref().map(tempfile::TempDir::path).context("cannot make a folder for symbols")
}

/// Brings here the symbols of modules that this machine has no debug information of, as far as the store has them.
///
/// # Errors
/// When the store does not answer, or they cannot be unpacked.
pub fn fetch_symbols(store: &Store, trace: &Trace) -> Result<()> {
    static UNPACKED: Mutex<u64> = Mutex::new(0);
    let folder = symbol_folder()?;
    let mut unpacked = UNPACKED.lock().unwrap_or_else(PoisonError::into_inner);
    if *unpacked > MOST_UNPACKED {
        let _ = std::fs::remove_dir_all(folder.join(".build-id"));
        *unpacked = 0;
    }
    let mut used = vec![false; trace.modules().len()];
    for location in 0..trace.location_count() {
        if let Some(used) = trace.location(location).module.and_then(|position| used.get_mut(position as usize)) {
            *used = true;
        }
    }
    let runtime = tokio::runtime::Handle::current();
    let used = trace.modules().iter().zip(used).filter(|(_, used)| *used).map(|(module, _)| module);
    for module in used.filter(|module| !tracehound_symbols::has_debug_information(module)) {
        let Some(name) = object_name(&tracehound_symbols::hex(&module.build_id)) else { continue };
        let Some(path) = symbol_copy::place_in(folder, &module.build_id).filter(|path| !path.exists()) else {
            continue;
        };
        if runtime.block_on(store.length(&name))?.is_none() {
            continue;
        }
        let mut packed = tempfile::tempfile().context("cannot make a file to work in")?;
        runtime.block_on(store.fetch(&name, &mut packed))?;
        packed.seek(SeekFrom::Start(0))?;
        let parent = path.parent().context("a folder")?;
        std::fs::create_dir_all(parent)?;
        let mut file = tempfile::NamedTempFile::new_in(parent)?;
        symbol_copy::unpack(packed, file.as_file_mut()).with_context(|| format!("{name} cannot be unpacked"))?;
        *unpacked += file.as_file().metadata()?.blocks() * 512;
        file.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Makes the tables in a folder, and the names of the recording beside the path `names`; the partition that they belong
/// to, and how many events are lost. On a thread that may wait.
fn make(
    store: &Store,
    path: &Path,
    folder: &Path,
    names: &Path,
    about: &Collected,
    options: Options,
) -> Result<(String, u64)> {
    let cancel = Cancel::new();
    let index = IndexPlace::In(folder.with_file_name("index"));
    let recording = Recording::open(path, OpenOptions { index, ..OpenOptions::default() })?;
    let trace = recording.trace();
    fetch_symbols(store, &trace)?;
    let symbols = tracehound_symbols::for_recording(&trace);
    let bundle = symbols.bundle(&trace, &cancel)?;
    if bundle.counts().0 > 0 {
        bundle.write_beside(names).context("cannot write the names")?;
    }
    let source = ExportInput { trace: &trace, symbols: &symbols, cancel: &cancel };
    let tables = if options.allocations { parquet::Tables::All } else { parquet::Tables::Sums };
    parquet::write_tables(source, &ExportScope::default(), tables, folder)?;
    let leaks = leaks::run(&trace, &symbols, &leaks::LeaksParams::default(), &cancel)?;
    let names = parquet::StackNames::new(source)?;
    let stack = |id: &str| names.of_site(&trace, id.strip_prefix('s')?.parse().ok()?);
    std::fs::write(folder.join("verdicts.parquet"), write::verdicts(&leaks, &stack)?)?;
    let info = tracehound_audit::info(&trace, &symbols);
    std::fs::write(folder.join("recordings.parquet"), write::recordings(about, &info)?)?;
    let day = info.process.started_at.get(..10).unwrap_or("1970-01-01");
    let folder = format!(
        "{}/{}/{}/{}",
        partition("service", &about.service),
        partition("version", &about.version),
        partition("day", day),
        partition("recording", &about.recording)
    );
    Ok((folder, info.exactness.lost_events))
}
