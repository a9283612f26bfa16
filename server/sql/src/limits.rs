//! Limits of a query that comes from a client: time and memory.
//!
//! Time is checked periodically from outside, memory where it is allocated. Both checks can be late by one step: SQLite
//! sorts its rows in memory in one step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::limits::Limit;
use rusqlite::types::Value;
use rusqlite::{Connection, InterruptHandle, Result};
use tracehound_index::Cancel;

use super::rows::SqlRow;

/// Limits of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqlLimits {
    /// Longest wait for the answer.
    pub time: Duration,
    /// Bytes of SQLite's own memory, of all questions that this process is asked together. They stay in memory, and are
    /// never written into a file instead.
    pub sqlite_bytes: u64,
    /// Bytes of rows that functions have returned and that are kept for the next look.
    pub kept_bytes: u64,
    /// Bytes of a value, and of a row of the answer.
    pub row_bytes: i32,
    /// Bytes of the statement.
    pub statement_bytes: i32,
    /// Bytes of the pattern of LIKE and GLOB, which are tried at every place of a text.
    pub pattern_bytes: i32,
}

impl SqlLimits {
    /// Limits for people and programs that share a machine, with this time.
    #[must_use]
    pub const fn within(time: Duration) -> Self {
        Self {
            time,
            sqlite_bytes: 512 << 20,
            kept_bytes: 512 << 20,
            row_bytes: 1 << 20,
            statement_bytes: 32 << 10,
            pattern_bytes: 512,
        }
    }

    /// Applies the limits to SQLite.
    pub(crate) fn apply(&self, connection: &Connection) -> Result<()> {
        let heap = self.sqlite_bytes;
        // SQLite has one limit for the process: the smallest that anybody asked for.
        connection.execute_batch(&format!("PRAGMA temp_store = MEMORY; PRAGMA hard_heap_limit = {heap}"))?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, self.row_bytes)?;
        connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, self.statement_bytes)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, self.pattern_bytes)?;
        Ok(())
    }
}

/// Time limit of a query, checked on a thread of its own.
pub(crate) struct QuestionClock<'a> {
    /// When it is to be over.
    pub time: Duration,
    /// Set from outside, or when the time is over: queries look at it.
    pub cancel: &'a Cancel,
    /// SQLite looks at this one.
    pub interrupt: InterruptHandle,
    /// Whether the time was over.
    pub is_late: &'a AtomicBool,
}

impl QuestionClock<'_> {
    /// Time between two looks.
    const PERIOD: Duration = Duration::from_millis(50);

    /// Runs until the other end of `answered` is dropped.
    pub fn run(&self, answered: &Receiver<()>) {
        let started = Instant::now();
        while answered.recv_timeout(Self::PERIOD) == Err(RecvTimeoutError::Timeout) {
            if started.elapsed() >= self.time && !self.cancel.is_cancelled() {
                self.is_late.store(true, Ordering::Relaxed);
                self.cancel.cancel();
            }
            // Repeated, because SQLite clears the interrupt when it begins a statement.
            if self.cancel.is_cancelled() {
                self.interrupt.interrupt();
            }
        }
    }
}

/// Budget of memory for cached rows, shared by all tables of a database.
#[derive(Debug)]
pub(crate) struct KeptRoom {
    used: AtomicU64,
    most: u64,
}

impl KeptRoom {
    /// Room for so many bytes.
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), most })
    }

    /// How many bytes there are.
    pub const fn most(&self) -> u64 {
        self.most
    }
}

/// A part of the room, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct KeptPart {
    room: Arc<KeptRoom>,
    bytes: u64,
}

impl KeptPart {
    /// An empty part.
    pub fn of(room: &Arc<KeptRoom>) -> Self {
        Self { room: Arc::clone(room), bytes: 0 }
    }

    /// Takes room for one more row; `false`: there is none.
    pub fn take(&mut self, row: &SqlRow) -> bool {
        let texts = row.iter().map(|value| match value {
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
            Value::Null | Value::Integer(_) | Value::Real(_) => 0,
        });
        // The row, its place among others and its key.
        let own = size_of::<SqlRow>() + size_of::<(i64, Vec<u32>)>() + size_of::<u32>();
        let bytes = (own + row.capacity() * size_of::<Value>() + texts.sum::<usize>()) as u64;
        let used = self.room.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.bytes += bytes;
        used <= self.room.most
    }
}

impl Drop for KeptPart {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back() {
        let room = KeptRoom::new(1000);
        let row = vec![Value::Text("x".repeat(600))];
        let mut first = KeptPart::of(&room);
        assert!(first.take(&row));
        let mut second = KeptPart::of(&room);
        assert!(!second.take(&row));
        drop(second);
        assert!(!KeptPart::of(&room).take(&row));
        drop(first);
        assert!(KeptPart::of(&room).take(&row));
        assert_eq!(room.used.load(Ordering::Relaxed), 0);
    }
}
