//! Blocks that the program's heap held when recording began, from the list that `heaptrace attach --existing` made.

use std::sync::atomic::Ordering;

use tracehound_format::attach::{BLOCK_LIST_MAGIC, BLOCK_LIST_TEXT};
use tracehound_format::meta::{Meta, Remark};
use tracehound_format::record::{Kind, Record};

use tracehound_shared::sys;

use super::{OUTSIDE, RecordingWriter};

/// Entries that are read at once.
const AT_ONCE: usize = 16 << 10;
const WORD: usize = size_of::<u64>();

impl RecordingWriter {
    /// Sets a list whose blocks the next round records. The descriptor is the writer's from here on.
    pub fn list_blocks(&mut self, fd: i32) {
        sys::close(core::mem::replace(&mut self.block_list, fd));
    }

    /// Writes the blocks of the list, if there is one.
    pub(super) fn put_block_list(&mut self) -> sys::Result<()> {
        let fd = core::mem::replace(&mut self.block_list, -1);
        if fd == -1 {
            return Ok(());
        }
        let outcome = self.put_blocks_of(fd);
        sys::close(fd);
        outcome
    }

    fn put_blocks_of(&mut self, fd: i32) -> sys::Result<()> {
        let mut head = [0; 2 * WORD];
        let taken = sys::read_at(fd, &mut head, 0)?;
        let (magic, text_bytes) = (word(&head, 0), word(&head, 1));
        if taken != head.len() || magic != BLOCK_LIST_MAGIC || text_bytes > BLOCK_LIST_TEXT {
            return Ok(());
        }
        let mut text = vec![0; text_bytes as usize];
        let len = sys::read_at(fd, &mut text, head.len() as u64)?;
        text.truncate(len);
        // All threads were stopped at the start: none of their events is earlier than that.
        let started = self.session.switches.started.load(Ordering::SeqCst);
        let tick = started.max(self.watermark + 1);
        let mut at = head.len() as u64 + text_bytes.next_multiple_of(WORD as u64);
        let mut bytes = vec![0; AT_ONCE * 2 * WORD];
        loop {
            let len = sys::read_at(fd, &mut bytes, at)?;
            let entries = bytes.get(..len).unwrap_or_default().chunks_exact(2 * WORD);
            let mut records = Vec::with_capacity(AT_ONCE);
            let count = entries.len();
            for entry in entries {
                let (address, size) = (word(entry, 0), word(entry, 1));
                if size >> 32 != 0 {
                    records.push(Record::new(Kind::SizeHigh, tick, size >> 32, 0, 0));
                }
                records.push(Record::new(Kind::ExistingBlock, tick, address, 0, size as u32));
            }
            if count == 0 {
                break;
            }
            at += (count * 2 * WORD) as u64;
            self.batch.clear();
            self.batch.add_loose(records);
            let mut first = self.outside;
            self.put_events(OUTSIDE, &mut first)?;
            self.outside = first;
            self.session.pool.beat();
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        self.blocks.meta(tick, &Meta::Remark(Remark { tick, topic: "existing".into(), text }));
        Ok(())
    }
}

fn word(bytes: &[u8], number: usize) -> u64 {
    let place = bytes.get(number * WORD..).and_then(|rest| rest.first_chunk());
    place.map_or(0, |word| u64::from_le_bytes(*word))
}
