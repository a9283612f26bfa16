//! Symbols of the programs that are recorded, once for each build id in the store, taken while their files can be read:
//! those of a container are gone with it.
//!
//! ```text
//! follow ──▶ modules of the blocks that are shipped ──▶ their files, through /proc/PID/root ──▶ symbols/<build id>.debug.zst
//!                                     pack ◀── names of one recording ◀─┘
//! ```
//! The root folder of a process is held open from the first look on, so that its mounts stay as long as they are needed.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracehound_format::block::{BlockHeader, BlockKind, SYNC};
use tracehound_format::meta::{Frames, Meta, decode_body};
use tracehound_symbols::symbol_copy::{self, SymbolCopy};

use crate::collect::status::CollectorStatus;
use crate::sink::ShippingTarget;

/// Names of objects that begin so are the recorder's own: no backtrace shows them.
const RECORDER: &[u8] = b"libtracehound";

/// A file of a process, by what was recorded of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModuleFile {
    /// Path as the process sees it.
    pub path: PathBuf,
    /// Its build id.
    pub build_id: Vec<u8>,
}

/// Name in a store of the symbols of a build id; `None` if it is too short to be one, or too long.
pub fn object_name(build_id: &str) -> Option<String> {
    let is_hex = build_id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (is_hex && build_id.len().is_multiple_of(2) && (8..=128).contains(&build_id.len()))
        .then(|| format!("symbols/{build_id}.debug.zst"))
}

/// What blocks of a recording say that is not about events.
#[derive(Default)]
pub struct Noted {
    /// The files of loaded code.
    pub modules: Vec<ModuleFile>,
    /// Events that the recorder has dropped so far, if they say it.
    pub lost_events: Option<u64>,
}

/// What the records about the recording itself say in these blocks.
pub fn noted_in(bytes: &[u8]) -> Noted {
    let (mut found, mut at, mut raw) = (Noted::default(), 0, Vec::new());
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= BlockHeader::LEN) {
        let header = BlockHeader::decode(rest).ok();
        let block =
            header.and_then(|h| Some((h, rest.get(BlockHeader::LEN..BlockHeader::LEN + h.stored_len as usize)?)));
        let Some((header, stored)) = block else {
            // The file's own header, or damage.
            match rest.get(1..).and_then(|rest| rest.windows(SYNC.len()).position(|bytes| bytes == SYNC)) {
                Some(next) => at += 1 + next,
                None => break,
            }
            continue;
        };
        at += BlockHeader::LEN + stored.len();
        if header.kind != BlockKind::Meta
            || header.open_payload(stored, &mut raw, tracehound_index::payload::unzstd).is_err()
        {
            continue;
        }
        for (tag, body) in Frames::new(&raw).flatten() {
            let load = match decode_body(tag, body) {
                Ok(Some(Meta::ModuleLoad(load))) => load,
                Ok(Some(Meta::Statistics(figures))) => {
                    found.lost_events = found.lost_events.max(Some(figures.lost));
                    continue;
                }
                _ => continue,
            };
            let name = load.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            if load.path.starts_with(b"/") && object_name(&hex(&load.build_id)).is_some() && !name.starts_with(RECORDER)
            {
                let path = PathBuf::from(std::ffi::OsStr::from_bytes(&load.path));
                found.modules.push(ModuleFile { path, build_id: load.build_id });
            }
        }
    }
    found
}

fn hex(bytes: &[u8]) -> String {
    tracehound_symbols::hex(bytes)
}

/// The root folder of a process, held open; `None` without the right to it.
pub fn root_of(pid: u32) -> Option<Arc<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty()).ok().map(Arc::new)
}

/// Opens a file inside a root folder, out of which no link leads.
fn open_in(root: Option<&OwnedFd>, path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let Some(root) = root else { return rustix::fs::open(path, flags, Mode::empty()).ok().map(File::from) };
    match openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        // A kernel or a filter that does not know the call: build ids tell whose a file is.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            openat(root, path.strip_prefix("/").unwrap_or(path), flags, Mode::empty()).ok().map(File::from)
        }
        other => other.ok().map(File::from),
    }
}

struct SymbolJob {
    root: Option<Arc<OwnedFd>>,
    modules: Vec<ModuleFile>,
    /// It is not tried again.
    is_last: bool,
    /// Whether all went well.
    done: oneshot::Sender<bool>,
}

/// Symbols that are on their way into a store.
pub struct SymbolsUnderWay {
    answer: oneshot::Receiver<bool>,
    modules: Vec<ModuleFile>,
    attempts: u32,
}

/// How often symbols are tried that a store does not take while it takes the recording.
const ATTEMPTS: u32 = 3;

/// Brings symbols into a store, one file after the other, beside the shipping.
#[derive(Debug, Clone)]
pub struct SymbolKeeper {
    queue: Option<mpsc::UnboundedSender<SymbolJob>>,
    worker: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl SymbolKeeper {
    /// A keeper for a store or another collector; one that does nothing unless `wanted`.
    pub fn start(sink: &ShippingTarget, wanted: bool, status: Arc<CollectorStatus>) -> Self {
        if !wanted {
            return Self { queue: None, worker: Arc::default() };
        }
        let (queue, mut jobs) = mpsc::unbounded_channel::<SymbolJob>();
        let sink = sink.clone();
        let worker = tokio::spawn(async move {
            let mut known = HashSet::new();
            while let Some(job) = jobs.recv().await {
                let mut all = true;
                for module in job.modules {
                    if known.contains(&module.build_id) {
                        continue;
                    }
                    match keep(&sink, job.root.clone(), &module).await {
                        Ok(Some(bytes)) => {
                            status.symbols_kept(bytes);
                            known.insert(module.build_id);
                        }
                        Ok(None) => {}
                        Err(error) => {
                            all = false;
                            let why = format!("no symbols of {}: {error:#}", module.path.display());
                            if job.is_last { status.error(&why) } else { status.retried(&why) }
                        }
                    }
                }
                let _ = job.done.send(all);
            }
        });
        Self { queue: Some(queue), worker: Arc::new(Mutex::new(Some(worker))) }
    }

    /// Brings the symbols of these files into the store; `None` if nothing is to be done.
    pub fn keep(&self, root: Option<Arc<OwnedFd>>, modules: Vec<ModuleFile>) -> Option<SymbolsUnderWay> {
        self.attempt(root, modules, 1)
    }

    fn attempt(&self, root: Option<Arc<OwnedFd>>, modules: Vec<ModuleFile>, attempts: u32) -> Option<SymbolsUnderWay> {
        let queue = self.queue.as_ref().filter(|_| !modules.is_empty() && attempts <= ATTEMPTS)?;
        let (done, answer) = oneshot::channel();
        let job = SymbolJob { root, modules: modules.clone(), is_last: attempts == ATTEMPTS, done };
        queue.send(job).ok()?;
        Some(SymbolsUnderWay { answer, modules, attempts })
    }

    /// What has become of symbols: `None` when they are there or were given up, else they are on their way, perhaps again.
    pub fn look(&self, mut under_way: SymbolsUnderWay, root: Option<Arc<OwnedFd>>) -> Option<SymbolsUnderWay> {
        match under_way.answer.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => Some(under_way),
            Ok(false) => self.attempt(root, under_way.modules, under_way.attempts + 1),
            Ok(true) | Err(oneshot::error::TryRecvError::Closed) => None,
        }
    }

    /// Waits for what is under way, a minute at most.
    pub async fn finish(mut self) {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.queue = None;
        if let Some(worker) = worker {
            let _ = tokio::time::timeout(Duration::from_secs(60), worker).await;
        }
    }
}

/// Brings the symbols of a file into the store unless they are there; how many bytes they are, `None` if there are none.
async fn keep(sink: &ShippingTarget, root: Option<Arc<OwnedFd>>, module: &ModuleFile) -> Result<Option<u64>> {
    let id = hex(&module.build_id);
    if sink.has_symbols(&id).await? {
        return Ok(Some(0));
    }
    let wanted = module.clone();
    let made = tokio::task::spawn_blocking(move || pack(root.as_deref(), &wanted)).await;
    let Some((packed, supplement)) = made.context("the file could not be read")?? else { return Ok(None) };
    let mut bytes = packed.metadata()?.len();
    sink.put_symbols(&id, packed).await?;
    if let Some((id, packed)) = supplement
        && !sink.has_symbols(&id).await?
    {
        bytes += packed.metadata()?.len();
        sink.put_symbols(&id, packed).await?;
    }
    Ok(Some(bytes))
}

type PackedSymbols = (File, Option<(String, File)>);

/// The symbols of a file and, where dwz has moved a part of them, of that one, packed.
fn pack(root: Option<&OwnedFd>, module: &ModuleFile) -> Result<Option<PackedSymbols>> {
    let inside = |path: &Path| open_in(root, path);
    let outside = |path: &Path| open_in(None, path);
    let find = |path: &Path, build_id: &[u8]| {
        let found = symbol_copy::find(path, build_id, &inside);
        found.or_else(|| root.and_then(|_| symbol_copy::find(path, build_id, &outside)))
    };
    let Some(copy) = find(&module.path, &module.build_id) else { return Ok(None) };
    let packed = |copy: &SymbolCopy| -> Result<File> {
        let mut file = tempfile::tempfile().context("cannot make a file to work in")?;
        copy.pack(&mut file).context("cannot copy the symbols")?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    };
    let other =
        copy.supplement(&module.path).and_then(|(path, build_id)| Some((hex(&build_id), find(&path, &build_id)?)));
    let other = match other.filter(|(id, _)| object_name(id).is_some()) {
        Some((id, copy)) => Some((id, packed(&copy)?)),
        None => None,
    };
    Ok(Some((packed(&copy)?, other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_are_checked() {
        assert_eq!(object_name("00ff00ff").as_deref(), Some("symbols/00ff00ff.debug.zst"));
        for wrong in ["", "00ff", "../../etc", "00FF00FF", "00ff00f"] {
            assert_eq!(object_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn links_do_not_lead_out_of_a_root() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("inside"), "in").unwrap();
        std::os::unix::fs::symlink("/inside", folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink("../../../../../../etc/passwd", folder.path().join("out")).unwrap();
        let root = OwnedFd::from(File::open(folder.path()).unwrap());
        assert!(open_in(Some(&root), Path::new("/link")).is_some());
        assert!(open_in(Some(&root), Path::new("/out")).is_none());
        assert!(open_in(Some(&root), Path::new("/etc/passwd")).is_none());
    }
}
