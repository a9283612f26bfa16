//! One recording of this host on its way to a sink: how far it was shipped, what of it may be given back to the disk, and
//! when it is over.
//!
//! ```text
//! follow ──▶ whole blocks behind the acknowledged offset ──▶ acknowledged ──▶ hole, if the spool is over its quota
//!    └─ the process is gone ──▶ the rest, and what the side file has ──▶ finish ──▶ the files go
//! ```
//! The sink is the only memory: a collector that starts anew asks it how much it has. The front of a file and its last
//! shipped block are never given back: they say whose it is and where it goes on.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock, seek};
use tracehound_format::block::BlockKind;
use tracehound_format::header::FileHeader;
use tracehound_ingest::liveness::{RecordingLock, lock_of, process_of as process_of_header};
use tracehound_ingest::side_file::{SideFile, path_of};

use crate::collect::status::Behind;
use crate::labels::{Collected, FRONT, describe, hex, process_of};
use crate::otel::ContextLooks;
use crate::sink::ShippingTarget;
use crate::symbols::{SymbolKeeper, SymbolsUnderWay, noted_in, root_of};
use crate::{blocks, ending};

/// How long a file without a side file must have rested before it counts as finished: it may be being copied.
const REST: Duration = Duration::from_secs(2);

/// A local recording.
pub struct LocalRecording {
    /// Its file.
    pub path: PathBuf,
    file: File,
    recording_id: [u8; 16],
    /// What is known of it.
    pub about: Collected,
    described: bool,
    /// What its process publishes of itself.
    context: ContextLooks,
    /// Events that its recorder has dropped.
    lost_events: u64,
    /// A length that was seen before all of it was in the store, and when.
    waiting: Option<(u64, Instant)>,
    /// Acknowledged bytes.
    pub shipped: u64,
    asked: bool,
    last: Option<blocks::Placed>,
    holes: u64,
    keeper: SymbolKeeper,
    /// Root folder of its process.
    root: Option<Arc<OwnedFd>>,
    /// Symbols that are on their way into the store.
    keeping: Vec<SymbolsUnderWay>,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Something was shipped.
    Shipped(u64),
    /// There is nothing new.
    Waiting,
    /// All of it is in the sink, as one recording.
    Finished,
}

impl LocalRecording {
    /// Opens the recording at `path`; `None` if there is none (yet).
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(path: &Path, keeper: &SymbolKeeper) -> Result<Option<Self>> {
        // Whatever has the name of a recording is not waited for.
        let flags = rustix::fs::OFlags::RDWR
            | rustix::fs::OFlags::NONBLOCK
            | rustix::fs::OFlags::CLOEXEC
            | rustix::fs::OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty());
        let file = File::from(file.with_context(|| format!("cannot open {}", path.display()))?);
        if !file.metadata()?.is_file() {
            return Ok(None);
        }
        let mut head = [0; FileHeader::LEN];
        if file.read_exact_at(&mut head, 0).is_err() {
            return Ok(None);
        }
        let Ok(header) = FileHeader::decode(&head) else { return Ok(None) };
        let id = hex(header.recording_id);
        Ok(Some(Self {
            about: describe(&id, path, None),
            path: path.to_path_buf(),
            file,
            recording_id: header.recording_id,
            described: false,
            context: ContextLooks::default(),
            lost_events: 0,
            waiting: None,
            shipped: 0,
            asked: false,
            last: None,
            holes: 0,
            keeper: keeper.clone(),
            root: None,
            keeping: Vec::new(),
        }))
    }

    fn side(&self) -> Option<SideFile> {
        SideFile::open(&self.path, self.recording_id)
    }

    /// Whether the recorder may still write.
    fn is_alive(&self) -> bool {
        if let Some(side) = self.side() {
            return side.is_process_alive(&self.file);
        }
        match lock_of(&self.file) {
            RecordingLock::Held => true,
            RecordingLock::Free | RecordingLock::Unknown => {
                let changed = self.file.metadata().and_then(|meta| meta.modified());
                changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|rest| rest < REST))
            }
        }
    }

    /// Ships what is there, and finishes what is over.
    ///
    /// # Errors
    /// When the file cannot be read or the sink does not take it; the next step goes on.
    pub async fn step(&mut self, sink: &ShippingTarget) -> Result<Step> {
        let done = self.try_step(sink).await;
        if done.is_err() {
            // What was not acknowledged may have arrived all the same.
            self.asked = false;
        }
        done
    }

    async fn try_step(&mut self, sink: &ShippingTarget) -> Result<Step> {
        if !self.described
            && let Some(process) = process_of(&self.file)?
        {
            self.about = describe(&self.about.recording, &self.path, Some((&process, self.process())));
            self.described = true;
        }
        if self.described
            && self.context.is_due()
            && let Some(context) = self.process().and_then(crate::otel::context_of)
        {
            self.about.add_context(context);
            self.context.is_found();
        }
        if !self.asked {
            let there = sink.shipped(&self.about.recording).await?;
            if there.finished || there.sealed {
                if lock_of(&self.file) == RecordingLock::Held {
                    bail!("{}: it is finished in the store, but its process still writes it", self.path.display());
                }
                // An earlier run was stopped between the end of the recording and the end of its files.
                self.shipped = there.bytes;
                self.about.bytes = there.bytes;
                sink.finish(&self.about).await?;
                return Ok(Step::Finished);
            }
            if self.shipped != there.bytes {
                (self.shipped, self.last) = (there.bytes, None);
                // An earlier run may not have come to the symbols of what it shipped.
                let mut front = vec![0; self.shipped.min(FRONT) as usize];
                self.file.read_exact_at(&mut front, 0)?;
                self.look_into(&front);
            }
            self.asked = true;
        }
        // First the process, then the file: what a process wrote before it was gone is in the file now.
        let alive = self.is_alive();
        let mut sent = 0;
        loop {
            let len = self.file.metadata()?.len();
            self.wait_for(len);
            if self.shipped > len {
                bail!(
                    "{}: the store has {} bytes, the file has {len}: it is another recording, or was cut off",
                    self.path.display(),
                    self.shipped
                );
            }
            let piece = blocks::next(&self.file, self.shipped, false)?;
            if piece.bytes.is_empty() {
                break;
            }
            let bytes = piece.bytes.len() as u64;
            self.check_whole(self.shipped + bytes)?;
            self.look_into(&piece.bytes);
            sink.append(&self.about.recording, self.shipped, piece.bytes.into(), false).await?;
            self.shipped += bytes;
            self.last = piece.last.or(self.last);
            sent += bytes;
            if self.waiting.is_some_and(|(len, _)| len <= self.shipped) {
                self.waiting = None;
            }
        }
        // The store answers: what it did not take before is tried again.
        for under_way in std::mem::take(&mut self.keeping) {
            self.keeping.extend(self.keeper.look(under_way, self.root.clone()));
        }
        if alive {
            return Ok(if sent > 0 { Step::Shipped(sent) } else { Step::Waiting });
        }
        // With the files the last trace of the program may go.
        if !self.keeping.is_empty() {
            return Ok(Step::Waiting);
        }
        self.finish(sink).await
    }

    /// Bytes up to a length are there.
    fn wait_for(&mut self, len: u64) {
        if len > self.shipped && self.waiting.is_none() {
            self.waiting = Some((len, Instant::now()));
        }
    }

    /// How far the store is behind, and what is missing.
    pub fn behind(&mut self) -> Behind {
        if let Ok(meta) = self.file.metadata() {
            self.wait_for(meta.len());
        }
        Behind {
            bytes: self.unshipped(),
            time: self.waiting.map_or(Duration::ZERO, |(_, since)| since.elapsed()),
            lost_events: self.lost_events,
        }
    }

    /// Has the symbols of the files that blocks name brought into the store; and notes what is lost.
    fn look_into(&mut self, blocks: &[u8]) {
        let noted = noted_in(blocks);
        let modules = noted.modules;
        self.lost_events = self.lost_events.max(noted.lost_events.unwrap_or(0));
        if !modules.is_empty() {
            self.root = self.root.take().or_else(|| self.process().and_then(root_of));
            self.keeping.extend(self.keeper.keep(self.root.clone(), modules));
        }
    }

    /// Makes sure that the bytes from the shipped ones up to `to`, which were read, were those that were recorded: where
    /// a hole is now, they may have been zeros.
    fn check_whole(&self, to: u64) -> Result<()> {
        // A file system that knows nothing of holes says that the first one is at the end.
        let hole = seek(&self.file, SeekFrom::Hole(self.shipped)).unwrap_or(u64::MAX);
        if hole < to {
            bail!(
                "{}: bytes from {hole} on, which the store lacks, are not here any more: another collector has given them back, or has brought them to another store",
                self.path.display()
            );
        }
        Ok(())
    }

    async fn finish(&mut self, sink: &ShippingTarget) -> Result<Step> {
        // No recorder can take the name while we hold the lock.
        let locked = flock(&self.file, FlockOperation::NonBlockingLockShared);
        if locked == Err(rustix::io::Errno::WOULDBLOCK) {
            return Ok(Step::Waiting);
        }
        let last = match self.last {
            Some(last) => Some(last),
            None => blocks::ending_at(&self.file, self.shipped)?,
        };
        let has_end = last.is_some_and(|last| last.kind == BlockKind::End);
        let tail = if has_end { Vec::new() } else { ending::of_killed(&self.path, self.recording_id, last)? };
        let tail = if tail.is_empty() {
            // No side file: what lies behind the last whole block goes as it is.
            let mut rest = Vec::new();
            loop {
                let piece = blocks::next(&self.file, self.shipped + rest.len() as u64, true)?;
                if piece.bytes.is_empty() {
                    break rest;
                }
                rest.extend_from_slice(&piece.bytes);
            }
        } else {
            tail
        };
        self.check_whole(self.file.metadata()?.len())?;
        if !tail.is_empty() {
            let bytes = tail.len() as u64;
            self.lost_events = self.lost_events.max(noted_in(&tail).lost_events.unwrap_or(0));
            // In one piece, so that a collector that starts anew finds either none or all of it.
            sink.append(&self.about.recording, self.shipped, tail.into(), true).await?;
            self.shipped += bytes;
        }
        self.about.bytes = self.shipped;
        sink.finish(&self.about).await?;
        Ok(Step::Finished)
    }

    /// Deletes the files of a recording that is finished in the sink.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn remove(&self) -> Result<()> {
        let mut index = self.path.clone().into_os_string();
        index.push(".idx");
        let _ = std::fs::remove_dir_all(index);
        let mut note = self.path.clone().into_os_string();
        note.push(".shipped");
        for path in [path_of(&self.path), note.into(), self.path.clone()] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot delete {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Bytes on the disk, of the recording and its side file.
    pub fn allocated(&self) -> u64 {
        let of = |path: &Path| path.metadata().map_or(0, |meta| meta.blocks() * 512);
        of(&self.path) + of(&path_of(&self.path))
    }

    /// Bytes of the recording that the store has not acknowledged, as far as is known: they cannot be given back.
    pub fn unshipped(&self) -> u64 {
        // Before the store has answered once, what is a hole was shipped.
        self.file.metadata().map_or(0, |meta| meta.len().saturating_sub(self.shipped).min(meta.blocks() * 512))
    }

    /// Id of the process that writes it, if it runs and can be seen from here.
    pub fn process(&self) -> Option<u32> {
        let side = self.side().filter(|side| side.is_process_alive(&self.file))?;
        process_of_header(&side.header)
    }

    /// Gives back to the disk what is acknowledged: all but the front and the last shipped block. The length stays, and
    /// a note beside the file says where its front is. How many bytes that were.
    ///
    /// # Errors
    /// When the file system cannot make holes, or the note cannot be written.
    pub fn punch(&mut self, store: &str) -> Result<u64> {
        const PAGE: u64 = 4096;
        let Some(last) = self.last else { return Ok(0) };
        let (from, to) = (self.holes.max(FRONT), last.at / PAGE * PAGE);
        if to <= from {
            return Ok(0);
        }
        let mut note = self.path.clone().into_os_string();
        note.push(".shipped");
        let text = format!("{store}\nraw/{}.dat\n", self.about.recording);
        std::fs::write(&note, text).context("cannot write the note beside the recording")?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, from, to - from).context("this file system does not support holes")?;
        self.holes = to;
        Ok(to - from)
    }
}
