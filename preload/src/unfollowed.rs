//! Children that have no recording though children are followed: the recording of whoever makes them says so. Programs
//! whose loader would print an error about this library start without it.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::ffi::CString;

use tracehound_format::linked::NOTE_NAME;
use tracehound_shared::clock;
use tracehound_shared::gate::{self, Internal};
use tracehound_shared::session::{self, Session};
use tracehound_shared::sys;

#[cfg(not(linked))]
use crate::environment;
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

/// The C library is about to start a shell for the program, with the environment that the program has made.
#[cfg(not(linked))]
pub fn about_to_start_shell() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !start::ensure() || !start::follows_children() || gate::is_internal() || SAID.load(Ordering::Relaxed) {
        return;
    }
    let _internal = Internal::enter();
    let Some(session) = session::current().filter(|session| session.pid == sys::process_id()) else { return };
    if !environment::has_library() && !SAID.swap(true, Ordering::Relaxed) {
        let text = "the program has removed the recorder from LD_PRELOAD: what it starts by system and popen has no \
                    recording";
        session.remark(clock::now(), TOPIC, text.into());
    }
}

/// A program that a process is about to run, by exec or as a new child, as far as it has no recording.
pub struct Successor {
    /// Whether the program's loader can load this library; `true` where that is not known.
    pub can_load: bool,
    remark: Option<String>,
}

impl Successor {
    /// Of which nothing is known.
    pub const UNKNOWN: Self = Self { can_load: true, remark: None };

    /// The program at `path`.
    pub fn at(path: &CStr) -> Self {
        if recorder().is_none() {
            return Self::UNKNOWN;
        }
        let _internal = Internal::enter();
        let Some((why, program)) = Unfollowed::find(path) else { return Self::UNKNOWN };
        let [script, program] = [path, &program].map(|name| String::from_utf8_lossy(name.to_bytes()));
        let of_script = if script == program { String::new() } else { format!(", which runs {script}") };
        Self {
            can_load: !matches!(why, Unfollowed::Narrow | Unfollowed::Foreign),
            remark: Some(format!("{program}{of_script} {}", why.text())),
        }
    }

    /// Says in the recording that the program has none: it runs, or is about to.
    pub fn say(&mut self) {
        const MOST: u32 = 16;
        static SAID: AtomicU32 = AtomicU32::new(0);
        let (Some(text), Some(session)) = (&self.remark, recorder()) else { return };
        let _internal = Internal::enter();
        let number = SAID.fetch_add(1, Ordering::Relaxed);
        if number < MOST {
            session.remark(clock::now(), TOPIC, text.clone());
            return;
        }
        self.remark = None;
        if number == MOST {
            session.remark(clock::now(), TOPIC, "more programs have no recording: only the first 16 are named".into());
        } else {
            SAID.store(MOST + 1, Ordering::Relaxed);
        }
    }

    /// Says that the program does not run after all, if something was said of it.
    pub fn did_not_start(self, errno: c_int) {
        let (Some(text), Some(session)) = (&self.remark, recorder()) else { return };
        let _internal = Internal::enter();
        session.remark(clock::now(), TOPIC, format!("exec failed (error {errno}), so that this did not start: {text}"));
    }
}

/// The session whose recording says what becomes of the programs that this process starts.
fn recorder() -> Option<&'static Session> {
    let is_free =
        |session: &&Session| !session.confined.load(Ordering::SeqCst) && !session.filtered.load(Ordering::SeqCst);
    if !start::follows_children() || gate::is_internal() {
        return None;
    }
    session::current().filter(is_free)
}

/// Why a program has no recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unfollowed {
    /// It has no loader, and no recorder inside.
    Static,
    /// It is a 32-bit program.
    Narrow,
    /// It is for another processor: something that the kernel knows runs it.
    Foreign,
    /// It gains rights when it is started.
    Privileged,
}

impl Unfollowed {
    /// The program that the kernel runs for a file, which is another one for a script, if it will have no recording.
    fn find(path: &CStr) -> Option<(Self, CString)> {
        /// As many scripts as the kernel lets lead to one another.
        const SCRIPTS: usize = 5;
        let mut path = path.to_owned();
        for _ in 0..SCRIPTS {
            let mut start = [0; 4096];
            let start = sys::read_start(&path, &mut start).and_then(|len| start.get(..len)).unwrap_or_default();
            if let Some(interpreter) = interpreter(start) {
                path = CString::new(interpreter).ok()?;
                continue;
            }
            return Self::of_file(start, &path).map(|why| (why, path));
        }
        None
    }

    fn of_file(start: &[u8], path: &CStr) -> Option<Self> {
        // Such a program has no loader, but it is one.
        let is_loader = path.to_bytes().rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.starts_with(b"ld"));
        if let Some(why) = Self::of_header(start) {
            return Some(why);
        }
        if is_without_recorder(start) && !is_loader {
            return Some(Self::Static);
        }
        // One that may be run and not read is looked at, too.
        sys::gains_rights(path).then_some(Self::Privileged)
    }

    /// By the header of an ELF file.
    fn of_header(start: &[u8]) -> Option<Self> {
        const CLASS: usize = 4;
        const CLASS_32: u8 = 1;
        const MACHINE: usize = 18;
        const HOST: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        if !start.starts_with(b"\x7fELF") {
            return None;
        }
        let machine = start.get(MACHINE..MACHINE + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))?;
        match start.get(CLASS) {
            Some(&CLASS_32) => Some(Self::Narrow),
            _ => (machine != HOST).then_some(Self::Foreign),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Static => "is linked statically, without a recorder: it has no recording",
            Self::Narrow => "is a 32-bit program: it has no recording, and neither has what it starts",
            Self::Foreign => "is a program for another processor: it has no recording, and neither has what it starts",
            Self::Privileged => {
                "gains rights when it starts (setuid, setgid or capabilities), so that the loader preloads nothing: it \
                 has no recording, and neither has what it starts"
            }
        }
    }
}

/// The interpreter that a script's first line names.
fn interpreter(start: &[u8]) -> Option<&[u8]> {
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())
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
    use super::{Unfollowed, interpreter, is_without_recorder};

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

    #[test]
    fn programs_of_other_processors_are_known_by_their_headers() {
        let header = |class: u8, machine: u16| {
            let mut bytes = program(&[1, 3], b"");
            bytes[4] = class;
            bytes[18..20].copy_from_slice(&machine.to_le_bytes());
            bytes
        };
        let own = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        assert_eq!(Unfollowed::of_header(&header(2, own)), None);
        assert_eq!(Unfollowed::of_header(&header(1, 3)), Some(Unfollowed::Narrow));
        assert_eq!(Unfollowed::of_header(&header(1, own)), Some(Unfollowed::Narrow));
        assert_eq!(Unfollowed::of_header(&header(2, 243)), Some(Unfollowed::Foreign));
        for len in 0..20 {
            assert_eq!(Unfollowed::of_header(&header(1, 3)[..len]), None, "{len}");
        }
        assert_eq!(Unfollowed::of_header(b"MZ and much more than a header"), None);
    }

    #[test]
    fn interpreters_are_the_first_words_of_scripts() {
        assert_eq!(interpreter(b"#!/bin/sh\nls"), Some(&b"/bin/sh"[..]));
        assert_eq!(interpreter(b"#! \t/usr/bin/env python3 -E\n"), Some(&b"/usr/bin/env"[..]));
        assert_eq!(interpreter(b"#!\n"), None);
        assert_eq!(interpreter(b"#"), None);
        assert_eq!(interpreter(b"\x7fELF"), None);
    }
}
