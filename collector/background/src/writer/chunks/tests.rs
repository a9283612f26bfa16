//! Chunks that reach the writer late, out of order, or never.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tracehound_format::block::{BlockHeader, BlockKind, Codec};
use tracehound_format::header::FileHeader;
use tracehound_format::meta::{ClockSample, ClockSource, EndReason, Process};
use tracehound_format::options::{LaunchOptions, LookSchedule, OutputNames};
use tracehound_format::record::{Kind, RECORD_BYTES, Record};

use crate::file::RecordingFile;
use crate::output;
use crate::seize::hand_over;
use crate::writer::{OUTSIDE, ProcessFacts, RecordingWriter};
use tracehound_shared::call_tree::{CallTree, NodeId};
use tracehound_shared::chunk::Chunk;
use tracehound_shared::lock::Lock;
use tracehound_shared::pool::Pool;
use tracehound_shared::session::{self, LookRequests, Notes, Retired, Session, Switches};
use tracehound_shared::side_file::SideMemory;
use tracehound_shared::thread::{NO_CHUNK, ThreadContext, life};
use tracehound_shared::threads::ThreadTable;

const SLOTS: u32 = 16;

/// A writer over a session that nothing records into but the test, and one thread of that session.
struct Stage {
    session: &'static Session,
    writer: RecordingWriter,
    thread: &'static ThreadContext,
    id: u32,
    made: u64,
    folder: PathBuf,
}

impl Stage {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tracehound-chunks-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let template = folder.join("r.dat");
        let names = OutputNames {
            executable: b"test",
            pid: std::process::id(),
            unix_seconds: 0,
            counter: 0,
            host: b"host",
            recording_id: [7; 16],
        };
        let Ok(output) = output::create(template.as_os_str().as_bytes(), names) else {
            panic!("the folder can be written");
        };
        let side = SideMemory::in_private_memory(SLOTS).unwrap();
        // SAFETY: the chunks lie there, zeroed, and are never unmapped.
        let pool = unsafe { Pool::new(side.first_chunk(), side.header(), side.is_shared(), side.chunks()) };
        let session = Box::leak(Box::new(Session {
            number: session::new_number(),
            pid: std::process::id(),
            options: LaunchOptions {
                sample_memory_ms: 0,
                pages: LookSchedule::Off,
                compression: Codec::None,
                ..LaunchOptions::default()
            },
            recording_id: [7; 16],
            path: Vec::new(),
            forked_from: None,
            started_tick: 1,
            started_unix_ns: 0,
            tree: Box::leak(Box::new(CallTree::create(1 << 16).unwrap())),
            pool,
            threads: ThreadTable::default(),
            side,
            notes: Lock::new(Notes::default()),
            writer_alive: AtomicBool::new(true),
            writer_thread: AtomicU32::new(0),
            leftovers: Lock::new(Vec::new()),
            has_leftovers: AtomicBool::new(false),
            flush_wanted: AtomicU32::new(0),
            flush_done: AtomicU32::new(0),
            looks: LookRequests::new(),
            names_changed: AtomicBool::new(false),
            names_wanted: AtomicBool::new(false),
            marks: AtomicU64::new(0),
            main_gone: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            filtered: AtomicBool::new(false),
            confined: AtomicBool::new(false),
            retired: Retired::default(),
            switches: Switches::default(),
            existing_wanted: AtomicU64::new(0),
            unwinder_limit: |_, _| 0,
            drive: |_| {},
        }));
        let facts = ProcessFacts {
            process: process(),
            source: ClockSource::Monotonic,
            shift: 0,
            clock_note: String::new(),
            clock: || ClockSample { tick: now(), monotonic_ns: now(), realtime_ns: now() },
            now,
            attached: None,
        };
        let writer = RecordingWriter::new(session, facts, RecordingFile::new(output).unwrap()).unwrap();
        let thread = session.threads.acquire().unwrap();
        let id = session.threads.new_id();
        thread.os_thread.store(std::process::id(), Ordering::Relaxed);
        thread.started_tick.store(1, Ordering::Relaxed);
        thread.life.store(life::LIVE, Ordering::Release);
        thread.id.store(id, Ordering::Release);
        Self { session, writer, thread, id, made: 0, folder }
    }

    /// The thread takes a chunk and records `count` events in it. Those of its last chunk count as handed over.
    fn fill(&mut self, count: u32) -> (u32, Chunk) {
        self.thread.next_record.store(self.made, Ordering::Release);
        let (number, chunk) = self.session.pool.take(0, true).unwrap();
        chunk.open(self.id, std::process::id(), self.made);
        for index in 0..count {
            let address = (self.made + u64::from(index) + 1) << 4;
            chunk.put(index, Record::new(Kind::Malloc, now(), address, NodeId::ROOT.0, 16));
        }
        self.made += u64::from(count);
        self.thread.active.store(number, Ordering::Release);
        self.thread.cursor.store(chunk.first_address() + u64::from(count) * RECORD_BYTES as u64, Ordering::Relaxed);
        self.thread.limit.store(chunk.end_address(), Ordering::Relaxed);
        (number, chunk)
    }

    /// Ends the recording; gives the first record and the count of each block of events, and the records said to be lost.
    fn end(mut self) -> (Vec<(u64, u32)>, u64) {
        hand_over(self.thread, &self.session.pool);
        self.writer.finish(EndReason::Exit);
        assert_eq!(self.session.pool.free_bytes(), self.session.pool.bytes(), "every chunk has come back");
        let blocks = blocks(&self.folder.join("r.dat"));
        std::fs::remove_dir_all(&self.folder).unwrap();
        let lost = self.session.retired.lost.load(Ordering::Relaxed);
        let notes = blocks.iter().filter(|block| block.thread == OUTSIDE).map(|block| block.count).sum::<u32>();
        let own: Vec<_> = blocks.iter().filter(|b| b.thread == self.id).map(|b| (b.first_record, b.count)).collect();
        let gaps = own.windows(2).map(|pair| pair[1].0 - (pair[0].0 + u64::from(pair[0].1))).sum::<u64>()
            + own.first().map_or(0, |first| first.0);
        assert_eq!(gaps < lost, notes == 1, "what no gap shows is reported by a record");
        (own, lost)
    }
}

fn now() -> u64 {
    tracehound_shared::sys::clock(libc::CLOCK_MONOTONIC)
}

fn process() -> Process {
    Process {
        pid: std::process::id(),
        parent_pid: 0,
        executable: b"test".to_vec(),
        arguments: Vec::new(),
        directory: Vec::new(),
        started_unix_ns: 0,
        started_tick: 1,
        page_bytes: 4096,
        recorder: String::new(),
        options: Vec::new(),
        forked_from: None,
    }
}

fn blocks(path: &Path) -> Vec<BlockHeader> {
    let bytes = std::fs::read(path).unwrap();
    let mut at = FileHeader::LEN;
    let mut found = Vec::new();
    while let Some(head) = bytes.get(at..at + BlockHeader::LEN) {
        let header = BlockHeader::decode(head).unwrap();
        at += BlockHeader::LEN + header.stored_len as usize;
        if header.kind == BlockKind::Events {
            found.push(header);
        }
    }
    found
}

/// All records are in the blocks, each once and in order.
fn whole(blocks: &[(u64, u32)], records: u64) -> bool {
    let mut next = 0;
    blocks.iter().all(|&(first, count)| core::mem::replace(&mut next, first + u64::from(count)) == first)
        && next == records
}

#[test]
fn a_chunk_that_was_written_while_open_may_arrive_late() {
    let mut stage = Stage::new("late");
    let (first, chunk) = stage.fill(5);
    stage.writer.flush_everything(false).unwrap();
    assert_eq!(chunk.written(), 5);
    // It is full; its thread goes on in another, of which a flush sees a part, before it has sent the first.
    chunk.close(5);
    stage.fill(3);
    stage.writer.flush_everything(false).unwrap();
    stage.session.pool.send(first);
    stage.writer.flush_everything(false).unwrap();
    hand_over(stage.thread, &stage.session.pool);
    stage.fill(4);
    stage.writer.flush_everything(false).unwrap();
    let (blocks, lost) = stage.end();
    assert!(whole(&blocks, 12), "{blocks:?}");
    assert_eq!(lost, 0);
}

#[test]
fn a_chunk_that_arrives_during_a_flush_comes_before_the_open_one() {
    let mut stage = Stage::new("during");
    let (first, chunk) = stage.fill(5);
    chunk.close(5);
    stage.writer.announce_threads();
    stage.writer.take_full_chunks();
    // Sent after the flush has looked for full chunks, before it looks at the open one.
    stage.session.pool.send(first);
    stage.fill(3);
    stage.writer.announce_threads();
    stage.writer.write_thread(stage.id, true, false).unwrap();
    stage.writer.commit().unwrap();
    assert_eq!(stage.writer.records, 8, "the flush has written both");
    let (blocks, lost) = stage.end();
    assert!(whole(&blocks, 8), "{blocks:?}");
    assert_eq!(lost, 0);
}

#[test]
fn the_watermark_waits_for_a_chunk_that_its_thread_is_letting_go() {
    let mut stage = Stage::new("letting-go");
    stage.fill(3);
    stage.writer.flush_everything(false).unwrap();
    let before = stage.writer.watermark;
    assert!(before > 0, "everything was written");
    hand_over(stage.thread, &stage.session.pool);
    let (number, chunk) = stage.fill(5);
    // The thread has begun an event that finds no room, and is about to send the chunk: it has none at this moment.
    let held = stage.thread.lock_chunks();
    stage.thread.active.store(NO_CHUNK, Ordering::Release);
    chunk.close(5);
    stage.writer.flush_everything(false).unwrap();
    assert_eq!((stage.writer.records, stage.writer.watermark), (3, before), "five records are not in the file");
    stage.session.pool.send(number);
    stage.thread.next_record.store(stage.made, Ordering::Release);
    drop(held);
    stage.writer.flush_everything(false).unwrap();
    assert_eq!(stage.writer.records, 8);
    assert!(stage.writer.watermark > before);
    let (blocks, lost) = stage.end();
    assert!(whole(&blocks, 8), "{blocks:?}");
    assert_eq!(lost, 0);
}

#[test]
fn the_watermark_waits_for_records_behind_a_chunk_that_was_not_listed() {
    let mut stage = Stage::new("aside");
    let (number, chunk) = stage.fill(5);
    // A handler has put the chunk of the event that it interrupted aside, after the writer looked at those.
    chunk.close(5);
    stage.fill(2);
    stage.thread.next_record.store(5, Ordering::Release);
    stage.writer.flush_everything(false).unwrap();
    assert_eq!((stage.writer.records, stage.writer.watermark), (0, 1), "seven records are not in the file");
    stage.session.pool.send(number);
    stage.writer.flush_everything(false).unwrap();
    assert_eq!(stage.writer.records, 7);
    assert!(stage.writer.watermark > 1);
    let (blocks, lost) = stage.end();
    assert!(whole(&blocks, 7), "{blocks:?}");
    assert_eq!(lost, 0);
}

#[test]
fn chunks_that_arrive_in_another_order_are_put_in_order() {
    let mut stage = Stage::new("order");
    let (first, chunk) = stage.fill(5);
    chunk.close(5);
    let (second, chunk) = stage.fill(6);
    chunk.close(6);
    stage.fill(0);
    stage.session.pool.send(second);
    stage.writer.flush_everything(false).unwrap();
    assert_eq!(chunk.written(), 0, "it waits for the one before it");
    stage.session.pool.send(first);
    let (blocks, lost) = stage.end();
    assert!(whole(&blocks, 11), "{blocks:?}");
    assert_eq!(lost, 0);
}

#[test]
fn behind_a_chunk_that_never_comes_the_rest_is_written_at_the_end() {
    let mut stage = Stage::new("never");
    let (kept, chunk) = stage.fill(5);
    chunk.close(5);
    stage.session.pool.send(kept);
    let (gone, chunk) = stage.fill(6);
    chunk.close(6);
    let (behind, chunk) = stage.fill(7);
    chunk.close(7);
    stage.session.pool.send(behind);
    stage.fill(2);
    stage.writer.flush_everything(false).unwrap();
    // Back to the pool, so that every chunk is accounted for.
    stage.session.pool.chunk(gone).unwrap().wipe();
    stage.session.pool.give_back(gone);
    assert_eq!(stage.end(), (vec![(0, 5), (11, 9)], 6));
}

#[test]
fn a_last_chunk_that_never_comes_is_counted() {
    let mut stage = Stage::new("last");
    let (kept, chunk) = stage.fill(5);
    chunk.close(5);
    stage.session.pool.send(kept);
    let (gone, chunk) = stage.fill(6);
    chunk.close(6);
    stage.session.pool.chunk(gone).unwrap().wipe();
    stage.session.pool.give_back(gone);
    // It holds a chunk without a record now.
    stage.fill(0);
    assert_eq!(stage.end(), (vec![(0, 5)], 6));
}

#[test]
fn a_sort_reads_a_key_that_moves_once() {
    let mut reads = 0_u64;
    // Another answer to every question, as of threads that run.
    let mut moving = || {
        reads += 1;
        reads.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let mut threads: Vec<u64> = (0..500).collect();
    super::sort_by_moving_key(&mut threads, |_| moving());
    threads.sort_unstable();
    assert!(threads.into_iter().eq(0..500));
    assert_eq!(reads, 500);
}

/// Descriptors of the recording and of its side file, as another table than the calling thread's would hold them.
fn close_descriptors(stage: &mut Stage) {
    for (fd, _) in stage.writer.descriptors() {
        tracehound_shared::sys::close(fd);
    }
}

#[test]
fn another_thread_goes_on_when_the_writers_table_has_ended() {
    let mut stage = Stage::new("adopt");
    stage.fill(5);
    stage.writer.flush_everything(false).unwrap();
    stage.writer.file().table_is_private();
    close_descriptors(&mut stage);
    stage.writer.adopt();
    let (blocks, lost) = stage.end();
    assert!(whole(&blocks, 5), "{blocks:?}");
    assert_eq!(lost, 0);
}

#[test]
fn a_failure_of_the_writer_is_reported_by_the_end() {
    let mut stage = Stage::new("failed");
    stage.fill(5);
    stage.writer.flush_everything(false).unwrap();
    stage.writer.failed();
    let bytes = std::fs::read(stage.folder.join("r.dat")).unwrap();
    let says = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(says("recording stopped: the recorder's writer failed"));
    assert!(!stage.folder.join("r.dat.live").exists(), "nobody was killed");
    assert_eq!(stage.writer.ended, Some(EndReason::DiskFull));
    std::fs::remove_dir_all(&stage.folder).unwrap();
}
