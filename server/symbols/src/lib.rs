//! Names for the addresses of a recording: functions, files, lines, inlined callers.
//!
//! Names are looked up when a query first needs them, in parallel, and kept: in memory as dense ids, on disk beside
//! the index. Nothing is symbolised in the traced process, so a recording holds addresses, modules and build ids only.

pub mod bundle;
pub mod cache;
mod code_log;
mod demangle;
mod function_die;
mod generated;
mod locate;
mod modules;
mod object_file;
mod perf_map;
mod qualified;
mod resolve;
pub mod search_paths;
mod state;
pub mod symbol_copy;
mod table;
#[cfg(test)]
mod tests;
mod units;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use modules::ModuleSymbols;
use tracehound_api::modules::Modules;
use tracehound_index::Trace;
use tracehound_index::cancel::{Cancel, Cancelled};
use tracehound_index::facts::ModuleFacts;
use tracehound_index::folder::candidates;
use tracehound_index::program::CodeKind;
use tracehound_index::symbols::{FileId, FunctionFacts, FunctionId, LocationId, RecordingSymbols, SymbolFrame};

pub use bundle::{Bundle, Named};
pub use code_log::CodeLogs;
use locate::SymbolFile;
pub use locate::{hex, map};
use perf_map::PerfMap;
use state::{CallSite, Symbolization, method_call, place};

/// Addresses of one file that are looked up together: the file's key, the file, the addresses.
type Job<'a> = (Arc<[u8]>, &'a resolve::OpenedSymbols, Vec<u64>);

/// Locations that are looked up together where one is asked for.
const NEIGHBOURS: u32 = 1 << 14;

thread_local! {
    /// A panic on this thread is expected and caught: nothing is to be printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics that are caught in here from being printed. Called once, at the start of the program.
pub fn install_panic_hook() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !QUIET.get() {
            usual(info);
        }
    }));
}

static SHOW_ALL: AtomicBool = AtomicBool::new(false);

/// From here on, names that are made show an interpreter's own frames around the program's functions, too. Called once, at
/// the start of the program.
pub fn show_all_frames() {
    SHOW_ALL.store(true, Ordering::Relaxed);
}

/// Whether this machine has debug information of a module.
pub fn has_debug_information(module: &ModuleFacts) -> bool {
    locate::locate(module).quality == tracehound_api::modules::Symbols::Debug
}

/// Names for a recording; those of earlier runs lie in the folder of its index.
pub fn for_recording(trace: &Trace) -> Symbolizer {
    let folders = candidates(trace.path(), trace.recording_id());
    let cache = folders.into_iter().find(|folder| folder.is_dir()).map(|folder| folder.join("symbols.bin"));
    let symbolizer = Symbolizer::new(cache);
    let process = trace.facts().process.as_ref();
    let (pid, started) = process.map_or((0, 0), |process| (process.pid, process.started_unix_ns));
    let mut state = symbolizer.write();
    state.bundled = bundle::load(trace.path());
    state.jit = PerfMap::of_process(search_paths::chosen().perf_map.as_deref(), pid, started);
    drop(state);
    symbolizer
}

/// Names for one recording.
pub struct Symbolizer {
    identity: u64,
    /// Backtraces have an interpreter's own frames around the program's functions, too.
    shows_all: bool,
    cache_file: Option<PathBuf>,
    state: RwLock<Symbolization>,
    /// Held while names are looked up, so that two queries do not do the same work. The holder waits only for threads
    /// of its own: a work-stealing pool could hand it a job that wants this very lock.
    working: Mutex<()>,
}

impl Symbolizer {
    /// Names for one recording; those of earlier runs are read from `cache_file`, and new ones added to it.
    pub fn new(cache_file: Option<PathBuf>) -> Self {
        static IDENTITIES: AtomicU64 = AtomicU64::new(1);
        let names = cache_file.as_deref().map(|path| cache::load(path, cache::Versions::Current)).unwrap_or_default();
        let known = names.values().map(BTreeMap::len).sum();
        Self {
            identity: IDENTITIES.fetch_add(1, Ordering::Relaxed),
            shows_all: SHOW_ALL.load(Ordering::Relaxed),
            cache_file,
            state: RwLock::new(Symbolization::new(names, known)),
            working: Mutex::new(()),
        }
    }

    /// All modules, with what is known about their names.
    ///
    /// # Errors
    /// When cancelled.
    pub fn modules(&self, trace: &Trace, cancel: &Cancel) -> Result<Modules, Cancelled> {
        self.resolve_all(trace, cancel)?;
        let mut named = vec![0_u64; trace.modules().len()];
        let mut levels = Vec::new();
        for location in 0..trace.location_count() {
            levels.clear();
            self.frames(trace, location, &mut levels);
            let has_name = levels.iter().any(|level| self.function(level.function).name.is_some());
            let module = trace.location(location).module.and_then(|position| named.get_mut(position as usize));
            if let (true, Some(count)) = (has_name, module) {
                *count += 1;
            }
        }
        let status = |position: u32| {
            let known = self.read().modules.get(&position).map(|known| Arc::clone(&known.located));
            // A module that no backtrace goes through was not looked at so far.
            let located = known.unwrap_or_else(|| {
                let module = &trace.modules()[position as usize];
                self.write().admit(position, module, locate::locate(module))
            });
            let named = named[position as usize];
            ModuleSymbols { symbols: located.quality, named, note: located.note.clone() }
        };
        Ok(modules::run(trace, &status))
    }

    /// Whether any backtrace goes through a source file of this path.
    ///
    /// # Errors
    /// When cancelled.
    pub fn knows_file(&self, trace: &Trace, file: &str, cancel: &Cancel) -> Result<bool, Cancelled> {
        self.resolve_all(trace, cancel)?;
        Ok(self.read().file_ids.contains_key(file))
    }

    /// Everything that is known about a recording's places in the code.
    ///
    /// # Errors
    /// When cancelled.
    pub fn bundle(&self, trace: &Trace, cancel: &Cancel) -> Result<Bundle, Cancelled> {
        self.bundle_of(trace, (0..trace.location_count()).collect(), cancel)
    }

    /// The same of code that lies in no file: what a JIT compiler made.
    ///
    /// # Errors
    /// When cancelled.
    pub fn bundle_of_generated_code(&self, trace: &Trace, cancel: &Cancel) -> Result<Bundle, Cancelled> {
        let is_generated = |location: &LocationId| matches!(place(trace, *location), CallSite::Nowhere(_));
        self.bundle_of(trace, (0..trace.location_count()).filter(is_generated).collect(), cancel)
    }

    /// Knows the pieces of code of these logs, whose names are better than those of a perf map: it has no times, and what
    /// was dropped is not in it.
    pub fn know_generated_code(&self, logs: &CodeLogs) {
        self.write().logged = PerfMap::of_pieces(&logs.pieces);
    }

    fn bundle_of(&self, trace: &Trace, locations: Vec<LocationId>, cancel: &Cancel) -> Result<Bundle, Cancelled> {
        self.resolve(trace, &locations, cancel)?;
        let mut bundle = Bundle::default();
        let mut levels = Vec::new();
        for location in locations {
            let place = place(trace, location);
            if matches!(place, CallSite::Nowhere(address) if method_call(trace, address).is_some()) {
                // Its name is in the recording itself.
                continue;
            }
            if let CallSite::Nowhere(address) = place
                && let Some(text) = self.read().generated_text(address)
            {
                // As it is in the perf map: the reader of the bundle parses it.
                bundle.add(None, address, vec![Named { name: Some(text), ..Named::default() }]);
                continue;
            }
            levels.clear();
            self.frames(trace, location, &mut levels);
            let named = levels.iter().map(|level| {
                let function = self.function(level.function);
                Named {
                    declared: function.file.map(|file| (self.file(file), function.line.unwrap_or(0))),
                    name: function.name,
                    file: level.file.map(|file| self.file(file)),
                    line: level.line,
                    inlined: level.inlined,
                    start: self.read().starts.get(&level.function).copied(),
                }
            });
            let mut named: Vec<Named> = named.collect();
            if named.iter().all(|named| named.name.is_none() && named.file.is_none()) {
                named.clear();
            }
            match place {
                CallSite::Nowhere(address) => bundle.add(None, address, named),
                // Their names are in the recording itself.
                CallSite::Source(..) => {}
                CallSite::In(position, address) => {
                    let Some(module) = trace.modules().get(position as usize) else { continue };
                    bundle.add(Some((&module.build_id, &module.path)), address, named);
                }
            }
        }
        Ok(bundle)
    }

    /// Of everything that names are made from: files of modules, names that came with the recording, names of generated
    /// code. As long as it is the same, so are the names, in this build of the program.
    pub fn fingerprint(&self, trace: &Trace) -> u64 {
        let positions = 0..trace.modules().len() as u32;
        let missing = {
            let state = self.read();
            positions.filter(|position| !state.modules.contains_key(position)).collect()
        };
        self.locate_these(trace, missing);
        let mut hasher = DefaultHasher::new();
        self.shows_all.hash(&mut hasher);
        for path in [trace.path().to_owned(), bundle::path_beside(trace.path())] {
            let facts = std::fs::metadata(path).ok();
            facts
                .map(|facts| (facts.dev(), facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
                .hash(&mut hasher);
        }
        self.read().hash_sources(&mut hasher);
        hasher.finish()
    }

    fn resolve_all(&self, trace: &Trace, cancel: &Cancel) -> Result<(), Cancelled> {
        let all: Vec<LocationId> = (0..trace.location_count()).collect();
        self.resolve(trace, &all, cancel)
    }

    /// Writes the names that were looked up beside the index. An error is ignored: the next run looks the names up again.
    pub fn save(&self) {
        let mut state = self.write();
        if let Some(path) = &self.cache_file
            && state.known > state.saved
            && cache::save(path, &state.names).is_ok()
        {
            state.saved = state.known;
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Symbolization> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Symbolization> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> MutexGuard<'_, ()> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locate_modules(&self, trace: &Trace, places: &[(LocationId, CallSite)]) {
        let mut missing: Vec<u32> = {
            let state = self.read();
            let ids = places.iter().filter_map(|(_, place)| match place {
                CallSite::In(id, _) if !state.modules.contains_key(id) => Some(*id),
                _ => None,
            });
            ids.collect()
        };
        missing.sort_unstable();
        missing.dedup();
        self.locate_these(trace, missing);
    }

    /// Looks for the files of modules by their positions.
    fn locate_these(&self, trace: &Trace, positions: Vec<u32>) {
        let module = |position: u32| Some((position, trace.modules().get(position as usize)?));
        let modules: Vec<(u32, &ModuleFacts)> = positions.into_iter().filter_map(module).collect();
        let located = in_parallel(modules.len(), |i| locate::locate(modules[i].1));
        let mut state = self.write();
        for ((position, module), located) in modules.into_iter().zip(located) {
            state.admit(position, module, located);
        }
    }

    /// Looks up what is not known yet, file by file.
    fn look_up(&self, places: &[(LocationId, CallSite)], cancel: &Cancel) -> Result<(), Cancelled> {
        let mut wanted: HashMap<Arc<[u8]>, (SymbolFile, Vec<u64>)> = HashMap::new();
        {
            let state = self.read();
            for &(_, place) in places {
                let CallSite::In(id, address) = place else { continue };
                let Some(module) = state.modules.get(&id) else { continue };
                let Some(source) = &module.located.source else { continue };
                let known = state.names.get(&*module.key).is_some_and(|names| names.contains_key(&address));
                if !known {
                    let entry = wanted.entry(Arc::clone(&module.key));
                    entry.or_insert_with(|| (source.clone(), Vec::new())).1.push(address);
                }
            }
        }
        let files: Vec<(Arc<[u8]>, SymbolFile, Vec<u64>)> =
            wanted.into_iter().map(|(key, (source, addresses))| (key, source, addresses)).collect();
        let opened = in_parallel(files.len(), |i| cancel.check().map(|()| resolve::OpenedSymbols::new(&files[i].1)));
        let opened = opened.into_iter().collect::<Result<Vec<_>, _>>()?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut jobs: Vec<Job<'_>> = Vec::new();
        for ((key, _, mut addresses), opened) in files.into_iter().zip(&opened) {
            // Neighbours share compilation units, which are parsed on first use: each job gets neighbours, and no file
            // is parsed by more jobs than can run at once.
            addresses.sort_unstable();
            addresses.dedup();
            let part = addresses.len().div_ceil(threads).max(resolve::BATCH);
            jobs.extend(addresses.chunks(part).map(|part| (Arc::clone(&key), opened, part.to_vec())));
        }
        // Large jobs first, or the last one to be taken might be the longest.
        jobs.sort_by_key(|(.., addresses)| std::cmp::Reverse(addresses.len()));
        let found = in_parallel(jobs.len(), |i| jobs[i].1.resolve(&jobs[i].2, cancel));
        let mut state = self.write();
        let mut cancelled = Ok(());
        for ((key, _, addresses), found) in jobs.into_iter().zip(found) {
            match found {
                Ok(found) => {
                    let names = state.names.entry(key.to_vec()).or_default();
                    let before = names.len();
                    names.extend(addresses.into_iter().zip(found));
                    let added = names.len() - before;
                    state.known += added;
                }
                Err(Cancelled) => cancelled = Err(Cancelled),
            }
        }
        cancelled
    }
}

impl Drop for Symbolizer {
    fn drop(&mut self) {
        self.save();
    }
}

impl RecordingSymbols for Symbolizer {
    fn identity(&self) -> u64 {
        self.identity << 1 | u64::from(!self.folds_interpreters())
    }

    fn folds_interpreters(&self) -> bool {
        !self.shows_all
    }

    fn resolve(&self, trace: &Trace, locations: &[LocationId], cancel: &Cancel) -> Result<(), Cancelled> {
        let modules = trace.modules().len();
        let unknown = |locations: &[LocationId]| -> Vec<LocationId> {
            let state = self.read();
            locations.iter().copied().filter(|&location| !state.is_known(location, modules)).collect()
        };
        let candidates = unknown(locations);
        if candidates.is_empty() {
            return Ok(());
        }
        let _working = self.work();
        // Another thread may have looked them up meanwhile.
        let places: Vec<_> =
            unknown(&candidates).into_iter().map(|location| (location, place(trace, location))).collect();
        self.locate_modules(trace, &places);
        self.look_up(&places, cancel)?;
        let mut state = self.write();
        // What is known of modules may have changed.
        state.nameless.clear();
        for (location, place) in places {
            state.settle(trace, location, place);
            if matches!(place, CallSite::Nowhere(_)) {
                state.nowhere.insert(location, modules);
            }
        }
        // Geometric, so that a growing recording does not write its names again and again.
        let due = state.known > state.saved * 3 / 2 + 1000;
        drop(state);
        if due {
            self.save();
        }
        Ok(())
    }

    fn frames(&self, trace: &Trace, location: LocationId, out: &mut Vec<SymbolFrame>) {
        if !self.read().is_known(location, trace.modules().len()) {
            // Neighbours are looked up together, since files are read once for all of them. The flag is a new one, so
            // this is never cancelled.
            let first = location / NEIGHBOURS * NEIGHBOURS;
            let mut some: Vec<LocationId> = (first..trace.location_count().min(first + NEIGHBOURS)).collect();
            if !some.contains(&location) {
                some.push(location);
            }
            let _ = self.resolve(trace, &some, &Cancel::new());
        }
        let state = self.read();
        if let Some(Some(frames)) = state.locations.get(location as usize) {
            out.extend_from_slice(frames);
        }
    }

    fn function(&self, id: FunctionId) -> FunctionFacts {
        let state = self.read();
        state.functions.get(id as usize).cloned().unwrap_or_else(|| FunctionFacts {
            name: None,
            fallback: "?".into(),
            module: None,
            file: None,
            line: None,
            kind: CodeKind::Nameless,
            language: None,
        })
    }

    fn kind(&self, id: FunctionId) -> CodeKind {
        self.read().functions.get(id as usize).map_or(CodeKind::Nameless, |function| function.kind)
    }

    fn inlines_silently(&self, location: LocationId) -> bool {
        self.read().inlining.contains(&location)
    }

    fn file(&self, id: FileId) -> Arc<str> {
        self.read().files.get(id as usize).cloned().unwrap_or_else(|| "?".into())
    }
}

/// Runs `job(0..count)` on as many threads as there are processors; the answers are in order.
fn in_parallel<T: Send>(count: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(count);
    if threads <= 1 {
        return (0..count).map(job).collect();
    }
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return done;
            }
            done.push((i, job(i)));
        }
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    all.sort_unstable_by_key(|&(i, _)| i);
    all.into_iter().map(|(_, value)| value).collect()
}
