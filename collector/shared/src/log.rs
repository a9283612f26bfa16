//! Messages for the user: one line each on stderr, and only while stderr is what it was at the start.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tracehound_format::options::LogLevel;

use super::sys;

static LEVEL: AtomicU32 = AtomicU32::new(2);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Sets the level of messages, and stores the identity of stderr.
pub fn init(level: LogLevel) {
    let number = match level {
        LogLevel::Off => 0,
        LogLevel::Error => 1,
        LogLevel::Warn => 2,
        LogLevel::Info => 3,
    };
    LEVEL.store(number, Ordering::Relaxed);
    if let Ok(identity) = sys::identity(2) {
        DEVICE.store(identity.device, Ordering::Relaxed);
        INODE.store(identity.inode, Ordering::Relaxed);
    }
}

fn say(level: u32, text: &str) {
    if speaks(level) {
        sys::write_once(2, format!("tracehound: {text}\n").as_bytes());
    }
}

/// Whether a message of this level is to be written.
fn speaks(level: u32) -> bool {
    if LEVEL.load(Ordering::Relaxed) < level {
        return false;
    }
    // A daemon may have closed stderr and opened a file of its own under its number.
    match sys::identity(2) {
        Ok(now) => now.device == DEVICE.load(Ordering::Relaxed) && now.inode == INODE.load(Ordering::Relaxed),
        // A sandbox may forbid the question; only a closed stderr is a reason to be silent.
        Err(sys::Errno(error)) => error != libc::EBADF,
    }
}

/// Recording is not possible, or stopped.
#[cold]
pub fn error(text: &str) {
    say(1, text);
}

/// [`error`] without memory: for a thread that may have been interrupted in the recorder's own allocator. What is longer
/// than a few hundred bytes is cut off.
#[cold]
pub fn error_line(text: core::fmt::Arguments<'_>) {
    struct Line {
        bytes: [u8; 600],
        len: usize,
    }
    impl core::fmt::Write for Line {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            // One byte is kept for the end of the line.
            let room = (self.bytes.len() - 1).saturating_sub(self.len);
            let taken = text.len().min(room);
            if let (Some(to), Some(from)) =
                (self.bytes.get_mut(self.len..self.len + taken), text.as_bytes().get(..taken))
            {
                to.copy_from_slice(from);
                self.len += taken;
            }
            Ok(())
        }
    }
    let mut line = Line { bytes: [0; 600], len: 0 };
    if !speaks(1) || core::fmt::Write::write_fmt(&mut line, format_args!("tracehound: {text}")).is_err() {
        return;
    }
    if let Some(end) = line.bytes.get_mut(line.len) {
        *end = b'\n';
    }
    sys::write_once(2, line.bytes.get(..=line.len).unwrap_or_default());
}

/// Something is worth knowing.
#[cold]
pub fn warn(text: &str) {
    say(2, text);
}

/// Progress.
#[cold]
pub fn info(text: &str) {
    say(3, text);
}
