//! Schedule of the writer's looks at the page tables of the process.

use std::sync::atomic::Ordering;

use tracehound_format::look::LookReason;
use tracehound_format::meta::{EndReason, Meta};
use tracehound_format::options::LookSchedule as When;

use super::RecordingWriter;
use crate::page_looks::LookRequest;
use tracehound_shared::session::Session;
use tracehound_shared::sys;

impl RecordingWriter {
    /// Looks where the resident set has changed or a look was requested.
    pub(super) fn page_looks(&mut self, now: u64) {
        let period = match self.session.options.pages {
            When::Off => return,
            When::Auto => 0,
            When::Every(ms) => u64::from(ms) * 1_000_000,
        };
        let wanted = self.session.looks.wanted.load(Ordering::Acquire);
        let pending = wanted != self.session.looks.done.load(Ordering::Relaxed);
        if pending {
            let requests = self.session.looks.take();
            // Requests that someone waits for are served at once, marks as far as there is time.
            let asked = |reason| matches!(reason, LookReason::Asked | LookReason::Stop);
            let must = requests.iter().any(|(reason, _)| asked(*reason));
            if must || self.looks.has_time(now) {
                for (reason, label) in distinct(requests) {
                    self.look(LookRequest { reason, label, most_reading: None });
                }
            }
            self.session.looks.done.store(wanted, Ordering::Release);
            sys::futex_wake(&self.session.looks.done, i32::MAX);
        } else if let Some(request) = self.looks.due(now, self.rss, self.recorder_bytes, period) {
            self.look(request);
        }
    }

    /// The look at the end, before the file has its end block. A process that is about to end waits only shortly for it.
    pub(super) fn last_look(&mut self, reason: EndReason) {
        let is_in_a_hurry = matches!(reason, EndReason::Exit | EndReason::Exec);
        if self.session.options.pages != When::Off && !(is_in_a_hurry && self.looks.is_slow()) {
            self.look(LookRequest { reason: LookReason::End, ..LookRequest::default() });
        }
    }

    /// Looks now; false where looks are off or the kernel gives no data.
    pub fn look_now(&mut self, label: Vec<u8>) -> bool {
        self.session.options.pages != When::Off
            && self.look(LookRequest { reason: LookReason::Asked, label, most_reading: None })
    }

    fn look(&mut self, request: LookRequest) -> bool {
        let session = self.session;
        let threads = stack_pointers(session);
        let is_asked = request.reason == LookReason::Asked;
        let looks = self.looks.look(request, self.facts.now, &threads, session.filtered.load(Ordering::SeqCst));
        let done = !looks.is_empty();
        if !done && self.looks.was_put_off {
            let text = "looks at the page tables are rarer than changes of the resident set: the program has so many mappings that to read their list takes much of the time that looks may take";
            session.remark((self.facts.now)(), "rare-looks", text.into());
        }
        if done && is_asked {
            self.memory_detail_of_look();
        }
        let several = looks.len() > 1;
        for look in looks {
            self.blocks.meta(look.tick, &Meta::PageLook(Box::new(look)));
            if several {
                self.blocks.flush_metas();
            }
        }
        done
    }
}

/// One request of each label.
fn distinct(requests: Vec<(LookReason, Vec<u8>)>) -> Vec<(LookReason, Vec<u8>)> {
    let mut kept: Vec<(LookReason, Vec<u8>)> = Vec::new();
    for request in requests {
        if kept.len() < 4 && !kept.contains(&request) {
            kept.push(request);
        }
    }
    kept
}

/// An address on the stack of each thread that has one, with the thread's id, by address.
fn stack_pointers(session: &Session) -> Vec<(usize, u32)> {
    let in_use = session.threads.iter().filter(|context| context.is_in_use());
    let mut found: Vec<(usize, u32)> = in_use
        .map(|context| (context.entry_sp.load(Ordering::Relaxed) as usize, context.id.load(Ordering::Relaxed)))
        .filter(|&(address, id)| address != 0 && id != 0)
        .collect();
    found.sort_unstable();
    found
}
