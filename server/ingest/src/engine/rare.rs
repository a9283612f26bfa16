//! Rare cases of the pairing: addresses that are handed out while their old block is there, halves of reallocs that
//! lost each other, and events that are neither allocations nor frees.

use tracehound_format::record::{Kind, RequestDetails};

use super::{MergedEvent, PairingEngine};
use crate::live_map::LiveBlock;
use tracehound_index::schema::OtherEvent;

impl PairingEngine {
    /// A block is allocated at the address of a live block, whose free was not seen.
    #[cold]
    pub(super) fn overwrite(&mut self, ns: u64, key: u64, old: LiveBlock, thread: u32) {
        self.totals.counts.overwritten += 1;
        let origin = self.origins.intern(0, thread, Kind::Lost as u8, &mut self.chunk);
        self.free(ns, key, old, origin, true);
    }

    /// Puts back details that were taken from a deferred record.
    #[cold]
    pub(super) fn give_back(&mut self, thread: u32, details: RequestDetails) {
        if !details.is_empty()
            && let Some(thread) = self.threads.get_mut(thread as usize)
        {
            thread.details = details;
            self.carries += 1;
        }
    }

    fn die_as_free(&mut self, ns: u64, key: u64, live: LiveBlock, origin: u32) {
        let from = self.origins.list().get(origin as usize).copied();
        let (node, thread) = from.map_or((0, 0), |o| (o.node, o.thread));
        let origin = self.origins.intern(node, thread, Kind::ReallocFree as u8, &mut self.chunk);
        self.totals.counts.free += 1;
        self.free(ns, key, live, origin, true);
    }

    /// The record behind a first half is not its second half: a handler's that comes between, or records are missing, and the old
    /// block has ended.
    #[cold]
    pub(super) fn drop_half(&mut self, event: &MergedEvent) {
        let carries_on = event.kind == Kind::SizeHigh as u8;
        let Some(thread) = self.threads.get_mut(event.thread as usize) else { return };
        if let Some(half) = thread.half_realloc.as_mut().filter(|half| half.between > 0) {
            half.between -= 1;
            return;
        }
        if carries_on || thread.half_realloc.is_none() {
            return;
        }
        let Some(half) = thread.take_half() else { return };
        self.halves -= 1;
        let ns = self.clock.convert(event.tick);
        if let Some(live) = half.live {
            self.die_as_free(ns, half.address, live, half.origin);
        } else if !half.split {
            self.totals.counts.free += 1;
            let kind = Kind::ReallocFree as u8;
            let event = MergedEvent { address: half.address, origin: half.origin, kind, ..*event };
            if !half.existing {
                self.unmatched(ns, &event);
            }
        }
    }

    /// The address of a block that is being moved was handed out again: the old block counts as freed now.
    #[cold]
    pub(super) fn split_half(&mut self, ns: u64, key: u64) {
        let moved = self.threads.iter_mut().flat_map(super::PairingThread::halves).find_map(|half| {
            let live = half.live.take_if(|_| half.address == key)?;
            half.split = true;
            Some((live, half.origin))
        });
        if let Some((live, origin)) = moved {
            self.die_as_free(ns, key, live, origin);
        }
    }

    /// A free of a block whose allocation was not seen.
    #[cold]
    pub(super) fn unmatched(&mut self, ns: u64, event: &MergedEvent) {
        self.totals.counts.unmatched += 1;
        self.push_other(ns, event, event.address, 0, 0, 0);
    }

    pub(super) fn push_other(&mut self, ns: u64, event: &MergedEvent, a: u64, b: u64, c: u64, d: u64) {
        let node = self.origins.list().get(event.origin as usize).map_or(0, |o| o.node);
        self.totals.last_ns = self.totals.last_ns.max(ns);
        self.chunk.others.push(OtherEvent {
            position: self.totals.allocs + self.totals.frees,
            t_ns: ns,
            thread: event.thread,
            kind: event.kind,
            node,
            a,
            b,
            c,
            d,
            context: self.context_of(event.thread),
        });
    }

    #[cold]
    pub(super) fn other(&mut self, event: &MergedEvent) {
        let ns = self.clock.convert(event.tick);
        let index = event.thread as usize;
        let Some(kind) = Kind::from_u8(event.kind) else {
            self.totals.counts.unknown += 1;
            return;
        };
        match kind {
            Kind::SizeHigh => {
                let Some(thread) = self.threads.get_mut(index) else { return };
                let details = RequestDetails::from_word(event.address);
                self.carries += u32::from(thread.details.is_empty() && !details.is_empty());
                self.carries -= u32::from(!thread.details.is_empty() && details.is_empty());
                thread.details = details;
            }
            Kind::Context => self.change_context(event.thread, event.address),
            Kind::MapDetail => {
                if let Some(thread) = self.threads.get_mut(index) {
                    thread.map_detail = Some((event.address, event.size));
                }
            }
            Kind::Mmap | Kind::MapExisting => {
                self.totals.counts.map += u64::from(kind == Kind::Mmap);
                let (len, _) = self.full_size(event);
                let detail = self.threads.get_mut(index).and_then(|t| t.map_detail.take());
                let (protection, fd) = detail.map_or((0, u64::from(u32::MAX)), |(p, fd)| (p, u64::from(fd)));
                self.push_other(ns, event, event.address, len, protection, fd);
            }
            Kind::ExistingBlock => self.list_existing(ns, event),
            Kind::Munmap => {
                self.totals.counts.unmap += 1;
                let (len, _) = self.full_size(event);
                self.push_other(ns, event, event.address, len, 0, 0);
            }
            Kind::MremapFrom => {
                let (len, _) = self.full_size(event);
                if let Some(thread) = self.threads.get_mut(index) {
                    thread.half_remap = Some((event.address, len));
                }
            }
            Kind::MremapTo => {
                self.totals.counts.remap += 1;
                let (len, _) = self.full_size(event);
                let half = self.threads.get_mut(index).and_then(|t| t.half_remap.take());
                let (old, old_len) = half.unwrap_or((0, 0));
                self.push_other(ns, event, event.address, len, old, old_len);
            }
            Kind::Brk => {
                self.totals.counts.brk += 1;
                let (low, details) = self.full_size(event);
                let high_given = details.size_high() != 0;
                // Without an upper half the 32 bits are the whole number, sign included.
                let moved = if high_given { low } else { i64::from(low as u32 as i32) as u64 };
                self.push_other(ns, event, event.address, moved, 0, 0);
            }
            Kind::Lost => {
                self.totals.lost += event.address;
                self.push_other(ns, event, event.address, 0, 0, 0);
            }
            Kind::CaptureStart | Kind::CaptureStop => {
                self.totals.switches.push((ns, kind == Kind::CaptureStart));
                self.push_other(ns, event, event.address, 0, 0, 0);
            }
            _ => self.push_other(ns, event, event.address, u64::from(event.size), 0, 0),
        }
    }
}
