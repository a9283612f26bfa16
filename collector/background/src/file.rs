//! The recording's file: appends at a known length, reserves disk space for the end block, and truncates the file after
//! an incomplete write.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::ffi::CString;

use super::output::{self, Output};
use tracehound_shared::side_file;
use tracehound_shared::sys::{self, Errno, FileIdentity};

/// Disk space that is kept for the end block.
const RESERVE: u64 = 64 << 10;
const MOST_AHEAD: u64 = 4 << 20;

/// Counts completed writes, so that a waiting thread can see that the disk makes progress.
pub static WRITES: AtomicU64 = AtomicU64::new(0);

/// CLOCK_MONOTONIC nanoseconds from which on nothing more is written; 0: no limit. Set while a thread of the program
/// writes the end itself, because the recorder has no thread.
static DEADLINE: AtomicU64 = AtomicU64::new(0);
/// A write came after it.
static LATE: AtomicBool = AtomicBool::new(false);

/// Refuses writes from this time on; 0: never. Returns whether one was refused before.
pub fn write_until(time: u64) -> bool {
    DEADLINE.store(time, Ordering::Relaxed);
    LATE.swap(false, Ordering::Relaxed)
}

fn is_in_time() -> sys::Result<()> {
    let deadline = DEADLINE.load(Ordering::Relaxed);
    if deadline == 0 || sys::clock(libc::CLOCK_MONOTONIC) < deadline {
        return Ok(());
    }
    LATE.store(true, Ordering::Relaxed);
    Err(Errno(libc::ETIMEDOUT))
}

/// See the module's description.
pub struct RecordingFile {
    output: Output,
    identity: FileIdentity,
    side_identity: FileIdentity,
    len: u64,
    reserved: u64,
    can_reserve: bool,
    private_table: bool,
}

impl RecordingFile {
    /// Takes the open files over.
    ///
    /// # Errors
    /// When a descriptor is none.
    pub fn new(output: Output) -> sys::Result<Self> {
        let identity = sys::identity(output.file)?;
        let side_identity = sys::identity(output.side_file)?;
        Ok(Self { output, identity, side_identity, len: 0, reserved: 0, can_reserve: true, private_table: false })
    }

    /// Path of the recording.
    pub fn path(&self) -> String {
        String::from_utf8_lossy(self.output.path.to_bytes()).into_owned()
    }

    /// Bytes in the file.
    pub fn length(&self) -> u64 {
        self.len
    }

    /// Descriptors in use, with their files' identities.
    pub fn descriptors(&self) -> Vec<(i32, FileIdentity)> {
        let mut all = vec![(self.output.file, self.identity), (self.output.side_file, self.side_identity)];
        if let Ok(directory) = sys::identity(self.output.directory) {
            all.push((self.output.directory, directory));
        }
        all
    }

    /// Notes that the calling thread's descriptor table is its own: nobody else closes our descriptors. Returns
    /// whether the recording is locked: it stays locked then.
    pub fn table_is_private(&mut self) -> bool {
        self.private_table = true;
        self.output.locked
    }

    /// Notes that the table of the descriptors is gone, and with it the lock; false when the table was the program's,
    /// which stays.
    pub fn lose_table(&mut self) -> bool {
        let lost = core::mem::take(&mut self.private_table);
        self.output.locked &= !lost;
        lost
    }

    /// Opens the files that are not open any more.
    ///
    /// # Errors
    /// When the files are not where they were.
    pub fn reopen(&mut self) -> sys::Result<()> {
        self.check_descriptors()?;
        if sys::identity(self.output.directory).is_err() {
            let path = self.output.path.to_bytes();
            let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0).max(1);
            let directory = CString::new(path.get(..end).unwrap_or(b"/")).map_err(|_| Errno(libc::EINVAL))?;
            let flags = libc::O_PATH | libc::O_DIRECTORY;
            self.output.directory = sys::move_high(sys::open_at(libc::AT_FDCWD, &directory, flags, 0)?);
        }
        self.output.locked = self.output.locked || output::lock(self.output.file);
        Ok(())
    }

    /// In a table shared with the program, makes sure that our descriptors are still ours; opens the files again if
    /// the program has closed them.
    fn check_descriptors(&mut self) -> sys::Result<()> {
        if self.private_table {
            return Ok(());
        }
        let checked = |fd: &mut i32, identity: FileIdentity, path: &CString| {
            if sys::identity(*fd) == Ok(identity) {
                return Ok(());
            }
            let again = sys::open_at(libc::AT_FDCWD, path, libc::O_RDWR | libc::O_NOFOLLOW, 0)?;
            if sys::identity(again) != Ok(identity) {
                sys::close(again);
                return Err(Errno(libc::EBADF));
            }
            *fd = sys::move_high(again);
            Ok(())
        };
        let before = self.output.file;
        checked(&mut self.output.file, self.identity, &self.output.path)?;
        if self.output.file != before {
            self.output.locked = output::lock(self.output.file);
        }
        checked(&mut self.output.side_file, self.side_identity, &self.output.side_path)
    }

    /// Appends `pieces`; on an error nothing of them stays.
    ///
    /// # Errors
    /// Of the write.
    pub fn append(&mut self, pieces: &[&[u8]]) -> sys::Result<()> {
        self.check_descriptors()?;
        is_in_time()?;
        let total: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.reserve(total);
        let mut at = self.len;
        for piece in pieces {
            if let Err(error) = is_in_time().and_then(|()| sys::write_all_at(self.output.file, piece, at)) {
                let _ = sys::truncate(self.output.file, self.len);
                return Err(error);
            }
            at += piece.len() as u64;
            WRITES.fetch_add(1, Ordering::Relaxed);
        }
        self.len = at;
        Ok(())
    }

    /// Keeps disk space reserved ahead, so that the end block finds room on a full disk. When no more can be reserved, the
    /// reserve itself is used up; truncating the block that does not fit makes room for the end then.
    fn reserve(&mut self, bytes: u64) {
        if !self.can_reserve || self.len + bytes + RESERVE <= self.reserved {
            return;
        }
        let enough = bytes + RESERVE;
        for len in [enough + self.len.min(MOST_AHEAD), enough] {
            if sys::allocate(self.output.file, true, self.len, len).is_ok() {
                self.reserved = self.len + len;
                return;
            }
        }
        self.can_reserve = false;
    }

    /// Appends the end block, using the reserve.
    ///
    /// # Errors
    /// Of the write.
    pub fn append_last(&mut self, pieces: &[&[u8]]) -> sys::Result<()> {
        self.can_reserve = false;
        self.append(pieces)
    }

    /// Truncates the file to `len`, to continue from there.
    pub fn cut(&mut self, len: u64) {
        let _ = sys::truncate(self.output.file, len);
        self.len = len;
        self.can_reserve = true;
        self.reserved = 0;
    }

    /// Gives reserved space back.
    pub fn trim(&mut self) {
        let _ = sys::truncate(self.output.file, self.len);
    }

    /// Reserves disk space for more of the side file.
    ///
    /// # Errors
    /// When there is none.
    pub fn back_side_file(&mut self, from: u64, bytes: u64) -> sys::Result<()> {
        self.check_descriptors()?;
        side_file::back(self.output.side_file, from, bytes)
    }

    /// Makes a new side file under the old name, empty.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new_side_file(&mut self) -> sys::Result<i32> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        let fd = sys::open_at(self.output.directory, &self.output.side_name, flags, 0o600)?;
        let fd = sys::move_high(fd);
        sys::close(self.output.side_file);
        self.output.side_file = fd;
        self.side_identity = sys::identity(fd)?;
        Ok(fd)
    }

    /// Removes the side file.
    pub fn remove_side_file(&self) {
        let by_directory = sys::identity(self.output.directory).is_ok()
            && sys::unlink_at(self.output.directory, &self.output.side_name).is_ok();
        if !by_directory {
            let _ = sys::unlink_at(libc::AT_FDCWD, &self.output.side_path);
        }
    }

    /// Removes both files: nothing was recorded.
    pub fn remove_all(&self) {
        self.remove_side_file();
        let _ = sys::unlink_at(self.output.directory, &self.output.name);
    }

    /// Closes all descriptors.
    pub fn close(&mut self) {
        if self.check_descriptors().is_ok() {
            sys::close(self.output.file);
            sys::close(self.output.side_file);
            sys::close(self.output.directory);
        }
    }
}
