//! Children that have no recording though children are followed: the recording of whoever makes them says so.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tracehound_format::linked::NOTE_NAME;
use tracehound_shared::clock;
use tracehound_shared::gate::{self, Internal};
use tracehound_shared::session::{self, Session};
use tracehound_shared::sys;

use crate::start;

const TOPIC: &str = "unfollowed-child";

/// The program makes a child past `fork`: no handler of forks runs, and nothing records the child.
pub fn child_without_handlers() {
    static SAID: AtomicBool = AtomicBool::new(false);
    // A handler of signals may call this in the middle of the recorder's own code, which a remark would enter again.
    if !start::ensure() || !start::follows_children() || gate::is_internal() || SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let _internal = Internal::enter();
    if let Some(session) = session::current().filter(|session| session.pid == sys::process_id()) {
        let text = "the program makes children by _Fork, clone or system calls of its own: they have no recordings";
        session.remark(clock::now(), TOPIC, text.into());
    }
}

/// A process is about to run the program at `path`, by exec or as a new child.
pub fn about_to_run(path: &CStr) {
    /// Programs that are said.
    const MOST: u32 = 16;
    static SAID: AtomicU32 = AtomicU32::new(0);
    let is_free =
        |session: &&Session| !session.confined.load(Ordering::SeqCst) && !session.filtered.load(Ordering::SeqCst);
    if !start::follows_children() || gate::is_internal() || SAID.load(Ordering::Relaxed) >= MOST {
        return;
    }
    let Some(session) = session::current().filter(is_free) else { return };
    let _internal = Internal::enter();
    let mut start = [0; 4096];
    let start = sys::read_start(path, &mut start).and_then(|len| start.get(..len)).unwrap_or_default();
    // Such a program has no loader, but it is one.
    let is_loader = path.to_bytes().rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.starts_with(b"ld"));
    if is_without_recorder(start) && !is_loader {
        SAID.fetch_add(1, Ordering::Relaxed);
        let path = String::from_utf8_lossy(path.to_bytes());
        let text = format!("{path} is linked statically, without a recorder: it has no recording");
        session.remark(clock::now(), TOPIC, text);
    }
}

/// Whether a file that begins so is a program of this machine without a loader and without `libtracehound.a` inside.
fn is_without_recorder(start: &[u8]) -> bool {
    const MAGIC: &[u8] = b"\x7fELF\x02\x01";
    const TABLE: usize = 32;
    const ENTRY_SIZE: usize = 54;
    const ENTRY_COUNT: usize = 56;
    /// Of a 64-bit program.
    const ENTRY: usize = 56;
    const INTERPRETER: u32 = 3;
    let number = |at: usize| start.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let table = start.get(TABLE..TABLE + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let (Some(table), Some(size), Some(count)) = (table, number(ENTRY_SIZE), number(ENTRY_COUNT)) else { return false };
    // The file may say anything.
    let range = usize::try_from(table).ok().and_then(|from| Some(from..from.checked_add(usize::from(count) * ENTRY)?));
    let is_program = start.starts_with(MAGIC) && usize::from(size) == ENTRY && count > 0;
    let Some(entries) = range.and_then(|range| start.get(range)).filter(|_| is_program) else { return false };
    let mut kinds =
        entries.chunks_exact(ENTRY).map(|entry| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]));
    let name = NOTE_NAME.as_bytes();
    kinds.all(|kind| kind != INTERPRETER) && !start.windows(name.len()).any(|bytes| bytes == name)
}

#[cfg(test)]
mod tests {
    use super::is_without_recorder;

    fn program(kinds: &[u32], behind: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = kinds.len() as u8;
        for kind in kinds {
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0; 52]);
        }
        bytes.extend(behind);
        bytes
    }

    #[test]
    fn programs_are_known_by_their_first_bytes() {
        assert!(is_without_recorder(&program(&[1, 4], b"")));
        assert!(!is_without_recorder(&program(&[1, 3, 4], b"")));
        assert!(!is_without_recorder(&program(&[1, 4], b"....Tracehound\0")));
        for len in 0..program(&[1], b"").len() {
            assert!(!is_without_recorder(&program(&[1], b"")[..len]), "{len}");
        }
        let mut far = program(&[1], b"");
        far[32..40].fill(0xff);
        assert!(!is_without_recorder(&far));
        assert!(!is_without_recorder(b"#!/bin/sh\n"));
    }
}
