//! Check that the process that writes a recording still runs: by the recording's lock first, then by the process id.
//!
//! A process id means something only in its own pid namespace, and in a container it is the same at every start. The
//! recorder holds an exclusive `flock` on the recording while it writes; the kernel takes that back with the process,
//! whatever namespaces it and the reader are in. Where that lock says nothing (a file system without locks, a copy, an
//! overlay's lower file, a recorder that shares its descriptors with the program) the process is looked for by its id,
//! start time, pid namespace and boot.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tracehound_format::live::{Ending, LiveHeader};

/// State of a recording's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingLock {
    /// A process has it exclusively: the recorder.
    Held,
    /// Nobody has it exclusively.
    Free,
    /// The file system has no locks.
    Unknown,
}

/// Tests the lock of `recording`. The test takes a shared lock and releases it at once: other readers do not notice, and a
/// recorder that wants the lock at this moment tries again.
#[must_use]
pub fn lock_of(recording: &File) -> RecordingLock {
    match flock(recording, FlockOperation::NonBlockingLockShared) {
        Ok(()) => match flock(recording, FlockOperation::Unlock) {
            Ok(()) => RecordingLock::Free,
            Err(_) => RecordingLock::Unknown,
        },
        Err(Errno::WOULDBLOCK) => RecordingLock::Held,
        Err(_) => RecordingLock::Unknown,
    }
}

/// Whether the process of a side file with this header writes `recording`, which lies beside it.
#[must_use]
pub fn is_alive(header: &LiveHeader, recording: &File) -> bool {
    if header.finished || header.ending.0 != Ending::None {
        return false;
    }
    match lock_of(recording) {
        RecordingLock::Held => true,
        RecordingLock::Free if header.locked && is_its_file(header, recording) => false,
        RecordingLock::Free | RecordingLock::Unknown => is_process_there(header),
    }
}

/// Whether `recording` is the very file that the process has open: only then do its locks show here.
fn is_its_file(header: &LiveHeader, recording: &File) -> bool {
    recording.metadata().is_ok_and(|file| (file.dev(), file.ino()) == header.recording_file)
}

fn is_process_there(header: &LiveHeader) -> bool {
    process_of(header).is_some()
}

/// Id of the process of a side file with this header in our own namespace, if it runs and can be seen from here.
#[must_use]
pub fn process_of(header: &LiveHeader) -> Option<u32> {
    if header.boot_id != [0; 16] && boot_id().is_some_and(|boot| boot != header.boot_id) {
        return None;
    }
    let namespace = |process: &str| std::fs::metadata(format!("/proc/{process}/ns/pid")).ok().map(|meta| meta.ino());
    if header.pid_namespace == 0 || namespace("self") == Some(header.pid_namespace) {
        return (start_time(header.pid) == Some(header.process_start)).then_some(header.pid);
    }
    // Its id is of another namespace. Processes of an inner namespace are visible here, with ids of our namespace.
    let mut pids =
        std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|&pid| {
        start_time(pid) == Some(header.process_start)
            && innermost_pid(pid) == Some(header.pid)
            && namespace(&pid.to_string()).is_none_or(|found| found == header.pid_namespace)
    })
}

/// Id of a process in the innermost of its namespaces.
fn innermost_pid(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

/// The kernel's boot id.
fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()?;
    Some(id.to_be_bytes())
}

/// Start time of a process in clock ticks since boot, if it runs: field 22 of its `stat`, counted behind the name,
/// which may hold anything.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let behind = stat.iter().rposition(|&b| b == b')')?;
    let text = std::str::from_utf8(stat.get(behind + 2..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(recording: &File) -> LiveHeader {
        let meta = recording.metadata().unwrap();
        LiveHeader {
            version: tracehound_format::live::VERSION,
            pid: std::process::id(),
            recording_id: [0; 16],
            process_start: start_time(std::process::id()).unwrap(),
            chunk_bytes: 0,
            chunk_count: 0,
            chunks_offset: 0,
            nodes_offset: 0,
            nodes_capacity: 0,
            finished: false,
            ending: (Ending::None, 0, 0),
            locked: true,
            pid_namespace: std::fs::metadata("/proc/self/ns/pid").unwrap().ino(),
            recording_file: (meta.dev(), meta.ino()),
            boot_id: boot_id().unwrap(),
        }
    }

    #[test]
    fn we_run_and_nobody_has_pid_zero() {
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(start_time(0), None);
        assert_eq!(innermost_pid(std::process::id()).map(|_| ()), Some(()));
    }

    #[test]
    fn a_lock_decides_whatever_the_pid_says() {
        let writer = tempfile::NamedTempFile::new().unwrap();
        let reader = File::open(writer.path()).unwrap();
        let ours = header(&reader);
        assert!(!is_alive(&ours, &reader), "the pid is taken, the lock is free");
        flock(writer.as_file(), FlockOperation::NonBlockingLockExclusive).unwrap();
        let strange = LiveHeader { pid: 0, process_start: 1, pid_namespace: 1, boot_id: [1; 16], ..ours };
        assert!(is_alive(&strange, &reader));
        assert!(!is_alive(&LiveHeader { finished: true, ..ours }, &reader));
        let second = File::open(writer.path()).unwrap();
        assert_eq!((lock_of(&reader), lock_of(&second)), (RecordingLock::Held, RecordingLock::Held));
        drop(writer.reopen().unwrap());
        assert_eq!(lock_of(&reader), RecordingLock::Held, "another descriptor's end changes nothing");
        flock(writer.as_file(), FlockOperation::Unlock).unwrap();
        assert!(!is_alive(&strange, &reader));
    }

    #[test]
    fn two_readers_and_a_recorder_do_not_disturb_each_other() {
        let writer = tempfile::NamedTempFile::new().unwrap();
        let readers = [File::open(writer.path()).unwrap(), File::open(writer.path()).unwrap()];
        flock(&readers[0], FlockOperation::NonBlockingLockShared).unwrap();
        assert_eq!(lock_of(&readers[1]), RecordingLock::Free);
        flock(&readers[0], FlockOperation::Unlock).unwrap();
        assert_eq!(lock_of(&readers[1]), RecordingLock::Free);
        flock(writer.as_file(), FlockOperation::NonBlockingLockExclusive).unwrap();
    }

    #[test]
    fn without_a_lock_the_process_is_looked_for() {
        let file = tempfile::tempfile().unwrap();
        let ours = LiveHeader { locked: false, ..header(&file) };
        assert!(is_alive(&ours, &file));
        assert!(is_alive(&LiveHeader { locked: true, recording_file: (1, 1), ..ours }, &file), "a copy");
        assert!(!is_alive(&LiveHeader { boot_id: [1; 16], ..ours }, &file), "before a restart of the machine");
        assert!(!is_alive(&LiveHeader { process_start: ours.process_start + 1, ..ours }, &file));
        assert!(!is_alive(&LiveHeader { pid_namespace: 1, ..ours }, &file), "the pid counts elsewhere");
        assert!(is_alive(&LiveHeader { pid_namespace: 0, boot_id: [0; 16], ..ours }, &file), "an older recorder");
        assert_eq!(process_of(&ours), Some(std::process::id()));
        assert_eq!(process_of(&LiveHeader { pid: 0, ..ours }), None);
    }
}
