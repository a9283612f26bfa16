//! Starts, names and ends of threads, and the cleanup after threads that ended without a call of ours.

use std::sync::atomic::Ordering;

use tracehound_format::meta::{Meta, ThreadEnd, ThreadName, ThreadStart};

use super::RecordingWriter;
use crate::seize::hand_over;
use tracehound_shared::session::Session;
use tracehound_shared::sys;
use tracehound_shared::thread::{IN_REAL, MODE, NO_CHUNK, ThreadContext, life};

impl RecordingWriter {
    /// Starts, names and ends of threads.
    pub(super) fn announce_threads(&mut self) {
        let names_changed = self.session.names_changed.swap(false, Ordering::AcqRel);
        for context in self.session.threads.iter() {
            let life = context.life.load(Ordering::Acquire);
            let id = context.id.load(Ordering::Acquire);
            if life == life::FREE || id == 0 {
                continue;
            }
            let state = self.threads.entry(id).or_default();
            if state.context.is_none()
                && context.active.load(Ordering::Acquire) == NO_CHUNK
                && state.queue.is_empty()
                && life != life::ENDED
            {
                // Attached, but without an event so far.
                continue;
            }
            state.context = Some(context);
            if names_changed && life == life::LIVE {
                read_name(context);
            }
            let changes = context.name_changes.load(Ordering::Acquire);
            if !state.announced {
                state.announced = true;
                state.name_changes = changes;
                state.bound = context.started_tick.load(Ordering::Relaxed);
                let tick = context.started_tick.load(Ordering::Relaxed);
                let os_thread = context.os_thread.load(Ordering::Relaxed);
                let start = ThreadStart { thread: id, os_thread, tick, name: context.get_name() };
                self.blocks.meta(tick, &Meta::ThreadStart(start));
            } else if changes != state.name_changes {
                state.name_changes = changes;
                let tick = (self.facts.now)();
                let name = ThreadName { thread: id, tick, name: context.get_name() };
                self.blocks.meta(tick, &Meta::ThreadName(name));
            }
        }
    }

    /// Gives contexts of threads back that have ended and whose records are all written.
    pub(super) fn forget_ended_threads(&mut self, last: bool) {
        for context in self.session.threads.iter() {
            let id = context.id.load(Ordering::Relaxed);
            if context.life.load(Ordering::Acquire) != life::ENDED {
                continue;
            }
            let Some(state) = self.threads.get(&id) else { continue };
            let everything = context.next_record.load(Ordering::Acquire);
            if !state.queue.is_empty() || state.next_record < everything {
                continue;
            }
            let tick = context.ended_tick.load(Ordering::Relaxed);
            if state.announced {
                self.blocks.meta(tick, &Meta::ThreadEnd(ThreadEnd { thread: id, tick }));
            }
            self.threads.remove(&id);
            if !last {
                self.session.threads.release(context);
            }
        }
    }

    /// Takes over from threads in this state of life that do not exist any more: those that had announced their end,
    /// and those that ended without it.
    pub(super) fn reap_exited_threads(&self, state: u32) {
        for context in self.session.threads.iter() {
            let os_thread = context.os_thread.load(Ordering::Relaxed);
            if context.life.load(Ordering::Acquire) == state
                && context.id.load(Ordering::Acquire) != 0
                && os_thread != 0
                && !sys::thread_exists(self.session.pid, os_thread)
            {
                reap(context, self.session, (self.facts.now)());
            }
        }
    }
}

/// Takes over what a thread that is gone has left: no other thread accesses its context any more.
fn reap(context: &ThreadContext, session: &Session, tick: u64) {
    let held = context.lock_chunks();
    hand_over(context, &session.pool);
    let events = context.state.load(Ordering::Relaxed) & !MODE;
    context.state.store(events | IN_REAL, Ordering::Relaxed);
    drop(held);
    session.retire(context);
    if context.ended_tick.load(Ordering::Relaxed) == 0 {
        context.ended_tick.store(tick, Ordering::Relaxed);
    }
    context.life.store(life::ENDED, Ordering::Release);
}

/// Looks up the name of a thread that was named by another thread.
fn read_name(context: &ThreadContext) {
    let thread = context.os_thread.load(Ordering::Relaxed);
    let Ok(path) = std::ffi::CString::new(format!("/proc/self/task/{thread}/comm")) else { return };
    let Ok(text) = sys::read_file(libc::AT_FDCWD, &path) else { return };
    let mut name = [0_u8; 16];
    for (to, from) in name.iter_mut().take(15).zip(text.iter().take_while(|&&byte| byte != b'\n')) {
        *to = *from;
    }
    if name.iter().take_while(|&&byte| byte != 0).copied().collect::<Vec<_>>() != context.get_name() {
        context.set_name(name);
    }
}
