//! Where a recording goes: expands the output template, creates the file and its side file, and never takes a name that
//! a living recording, or an earlier one of this process, has.

use std::ffi::CString;

use tracehound_format::options::{OutputNames, expand_output};

use crate::shared::sys::{self, Errno};

/// A recording's files, created and open in the program's descriptor table.
pub struct Output {
    /// Path of the recording, absolute.
    pub path: CString,
    /// Path of the side file, absolute.
    pub side_path: CString,
    /// Name of the recording in its directory.
    pub name: CString,
    /// Name of the side file in its directory.
    pub side_name: CString,
    /// The recording, locked.
    pub file: i32,
    /// The side file, empty.
    pub side_file: i32,
    /// The directory.
    pub directory: i32,
}

/// Why there is no recording: what was tried, and the error.
pub struct Failure {
    /// Path.
    pub path: Vec<u8>,
    /// Error.
    pub error: Errno,
}

/// Creates both files for `template`.
///
/// # Errors
/// When the directory is missing or cannot be written to.
pub fn create(template: &[u8], executable: &[u8], pid: u32, unix_seconds: u64) -> Result<Output, Failure> {
    let base = sys::working_directory().unwrap_or_default();
    let counts = uses_counter(template);
    let mut last = Failure { path: template.to_vec(), error: Errno(libc::EEXIST) };
    for attempt in 0..10_000 {
        let names = OutputNames { executable, pid, unix_seconds, counter: attempt };
        let mut path = expand_output(template, names);
        if attempt > 0 && !counts {
            path = with_suffix(&path, attempt);
        }
        if path.first() != Some(&b'/') {
            let mut absolute = base.clone();
            absolute.push(b'/');
            absolute.extend_from_slice(&path);
            path = absolute;
        }
        match create_at(&path, pid) {
            Ok(Some(output)) => return Ok(output),
            Ok(None) => last.path = path,
            Err(error) => return Err(Failure { path, error }),
        }
    }
    Err(last)
}

fn uses_counter(template: &[u8]) -> bool {
    let mut rest = template;
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        match rest.get(at + 1) {
            Some(b'n') => return true,
            _ => rest = rest.get(at + 2..).unwrap_or_default(),
        }
    }
    false
}

/// `dir/name.dat` becomes `dir/name.1.dat`.
fn with_suffix(path: &[u8], number: u32) -> Vec<u8> {
    let stem = path.strip_suffix(b".dat");
    let mut out = stem.unwrap_or(path).to_vec();
    out.extend_from_slice(format!(".{number}").as_bytes());
    if stem.is_some() {
        out.extend_from_slice(b".dat");
    }
    out
}

/// `Ok(None)`: the name is taken.
fn create_at(path: &[u8], pid: u32) -> Result<Option<Output>, Errno> {
    let invalid = |_| Errno(libc::EINVAL);
    let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(0) => (&b"/"[..], path.get(1..).unwrap_or_default()),
        Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
        None => return Err(Errno(libc::EINVAL)),
    };
    let c_dir = CString::new(dir).map_err(invalid)?;
    let c_name = CString::new(name).map_err(invalid)?;
    let side_name = CString::new([name, b".live"].concat()).map_err(invalid)?;
    let side_path = CString::new([path, b".live"].concat()).map_err(invalid)?;
    let path = CString::new(path).map_err(invalid)?;
    let directory = sys::move_high(sys::open_at(libc::AT_FDCWD, &c_dir, libc::O_PATH | libc::O_DIRECTORY, 0)?);
    let result = claim(directory, &c_name, pid).and_then(|file| {
        let Some(file) = file else { return Ok(None) };
        // The recording is ours, hence a side file under its name is a dead process's.
        let _ = sys::unlink_at(directory, &side_name);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        match sys::open_at(directory, &side_name, flags, 0o600) {
            Ok(side) => Ok(Some((file, sys::move_high(side)))),
            Err(error) => {
                sys::close(file);
                Err(error)
            }
        }
    });
    match result {
        Ok(Some((file, side_file))) => {
            Ok(Some(Output { path, side_path, name: c_name, side_name, file, side_file, directory }))
        }
        other => {
            sys::close(directory);
            other.map(|_| None)
        }
    }
}

/// Creates and locks the recording; `Ok(None)` when its name is taken.
fn claim(directory: i32, name: &CString, pid: u32) -> Result<Option<i32>, Errno> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    match sys::open_at(directory, name, flags, 0o600) {
        Ok(file) => return locked(file),
        Err(Errno(libc::EEXIST)) => {}
        Err(error) => return Err(error),
    }
    // Something has the name: an old recording makes room, a living one and one of this very process do not.
    let Ok(old) = sys::open_at(directory, name, libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0) else {
        return Ok(None);
    };
    let replaceable = is_recording(old) && sys::lock_file(old).is_ok() && is_older_than(old, pid);
    if replaceable {
        let _ = sys::unlink_at(directory, name);
    }
    sys::close(old);
    if !replaceable {
        return Ok(None);
    }
    match sys::open_at(directory, name, flags, 0o600) {
        Ok(file) => locked(file),
        Err(Errno(libc::EEXIST)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn locked(file: i32) -> Result<Option<i32>, Errno> {
    let file = sys::move_high(file);
    // A file system without locks: then only the name protects the recording.
    let _ = sys::lock_file(file);
    Ok(Some(file))
}

/// Whether the file is empty or begins like a recording: nothing else is ever replaced.
fn is_recording(fd: i32) -> bool {
    let mut magic = [0; 8];
    match sys::read_at(fd, &mut magic, 0) {
        Ok(0) => sys::stat(fd).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG),
        Ok(8) => magic == tracehound_format::header::MAGIC,
        _ => false,
    }
}

/// Whether the file was last written before this process began: an earlier image of the process, before an exec, and
/// its relatives have written theirs since.
fn is_older_than(fd: i32, pid: u32) -> bool {
    let Ok(stat) = sys::stat(fd) else { return false };
    let written_ns = stat.st_mtime as u64 * 1_000_000_000 + stat.st_mtime_nsec as u64;
    let since_boot_ns = process_start(pid) * (1_000_000_000 / ticks_per_second());
    let boot_ns = sys::clock(libc::CLOCK_REALTIME).saturating_sub(sys::clock(libc::CLOCK_BOOTTIME));
    written_ns < boot_ns + since_boot_ns
}

fn ticks_per_second() -> u64 {
    // SAFETY: getauxval reads the process's own auxiliary vector.
    unsafe { libc::getauxval(libc::AT_CLKTCK) }.max(1)
}

/// Start of the process in clock ticks since boot; 0 when `/proc` is not there.
pub fn process_start(pid: u32) -> u64 {
    let Ok(path) = CString::new(format!("/proc/{pid}/stat")) else { return 0 };
    let Ok(text) = sys::read_file(libc::AT_FDCWD, &path) else { return 0 };
    let Some(after_name) = text.iter().rposition(|&byte| byte == b')') else { return 0 };
    // Field 22, counted from 1; the name is field 2.
    let fields = text.get(after_name + 1..).unwrap_or_default().split(|&byte| byte == b' ').filter(|f| !f.is_empty());
    fields.clone().nth(19).and_then(|field| std::str::from_utf8(field).ok()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_go_before_the_extension() {
        assert_eq!(with_suffix(b"/a/m.dat", 2), b"/a/m.2.dat");
        assert_eq!(with_suffix(b"/a/m", 2), b"/a/m.2");
    }

    #[test]
    fn counters_are_seen() {
        assert!(uses_counter(b"m-%n.dat"));
        assert!(!uses_counter(b"m-%%n-%e.dat"));
        assert!(!uses_counter(b"m%"));
    }

    #[test]
    fn a_recording_of_this_process_keeps_its_name() {
        let dir = std::env::temp_dir().join(format!("tracehound-output-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let template = dir.join("r.dat").into_os_string().into_encoded_bytes();
        let pid = std::process::id();
        let first = create(&template, b"x", pid, 0).ok().unwrap();
        assert!(first.path.to_bytes().ends_with(b"/r.dat"));
        sys::write_all_at(first.file, &tracehound_format::header::MAGIC, 0).unwrap();
        let second = create(&template, b"x", pid, 0).ok().unwrap();
        assert!(second.path.to_bytes().ends_with(b"/r.1.dat"));
        std::fs::write(dir.join("text.dat"), "not ours").unwrap();
        let other = dir.join("text.dat").into_os_string().into_encoded_bytes();
        assert!(create(&other, b"x", pid, 0).ok().unwrap().path.to_bytes().ends_with(b"/text.1.dat"));
        assert_eq!(std::fs::read(dir.join("text.dat")).unwrap(), b"not ours");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
