//! Messages for the user: one line each on stderr, and only while stderr is what it was at the start.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tracehound_format::options::LogLevel;

use super::sys;

static LEVEL: AtomicU32 = AtomicU32::new(2);
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

/// Sets how much is said, and remembers what stderr is.
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
    if LEVEL.load(Ordering::Relaxed) < level {
        return;
    }
    // A daemon may have closed stderr and opened a file of its own under its number.
    let same = match sys::identity(2) {
        Ok(now) => now.device == DEVICE.load(Ordering::Relaxed) && now.inode == INODE.load(Ordering::Relaxed),
        // A sandbox may forbid the question; only a closed stderr is a reason to be silent.
        Err(sys::Errno(error)) => error != libc::EBADF,
    };
    if same {
        sys::write_once(2, format!("tracehound: {text}\n").as_bytes());
    }
}

/// Recording is not possible, or stopped.
#[cold]
pub fn error(text: &str) {
    say(1, text);
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
