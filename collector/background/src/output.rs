//! Output files of a recording: expands the output template, creates the file and its side file, and never uses the
//! name of a recording that is being written, that has no end, or that is an earlier one of this process.

use std::ffi::CString;

use tracehound_format::options::{OutputNames, expand_output};

use super::earlier_recordings;
use tracehound_shared::sys::{self, Errno};

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
    /// The recording.
    pub file: i32,
    /// The side file, empty.
    pub side_file: i32,
    /// The directory.
    pub directory: i32,
    /// The recording is locked; false where the file system has no locks.
    pub locked: bool,
}

/// Why no recording could be created: the path, and the error.
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
pub fn create(template: &[u8], names: OutputNames<'_>) -> Result<Output, Failure> {
    let base = sys::working_directory().unwrap_or_default();
    let counts = uses_counter(template);
    let mut last = Failure { path: template.to_vec(), error: Errno(libc::EEXIST) };
    for attempt in 0..10_000 {
        let mut path = expand_output(template, OutputNames { counter: attempt, ..names });
        if attempt > 0 && !counts {
            path = with_suffix(&path, attempt);
        }
        if path.first() != Some(&b'/') {
            let mut absolute = base.clone();
            absolute.push(b'/');
            absolute.extend_from_slice(&path);
            path = absolute;
        }
        match create_at(&path) {
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
///
/// The side file comes first. It is made only where there is none, and nobody removes one but the process that made it,
/// so whoever makes it has the name, on file systems without locks, too. What a killed process left keeps its name.
fn create_at(path: &[u8]) -> Result<Option<Output>, Errno> {
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
    let side_file = match create_new(directory, &side_name) {
        Ok(Some(side_file)) => side_file,
        other => {
            sys::close(directory);
            return other.map(|_| None);
        }
    };
    match claim(directory, &c_name) {
        Ok(Some(file)) => {
            let locked = lock(file);
            Ok(Some(Output { path, side_path, name: c_name, side_name, file, side_file, directory, locked }))
        }
        other => {
            let _ = sys::unlink_at(directory, &side_name);
            sys::close(side_file);
            sys::close(directory);
            other.map(|_| None)
        }
    }
}

/// Creates the recording; `Ok(None)` when its name is taken.
fn claim(directory: i32, name: &CString) -> Result<Option<i32>, Errno> {
    if let Some(file) = create_new(directory, name)? {
        return Ok(Some(file));
    }
    refuse_what_is_no_file(directory, name)?;
    if !earlier_recordings::is_replaceable(directory, name) || sys::unlink_at(directory, name).is_err() {
        return Ok(None);
    }
    create_new(directory, name)
}

/// A folder or a device is not meant as a recording's name, and another name beside it is not either.
fn refuse_what_is_no_file(directory: i32, name: &CString) -> Result<(), Errno> {
    let Ok(there) = sys::open_at(directory, name, libc::O_PATH | libc::O_NOFOLLOW, 0) else { return Ok(()) };
    let kind = sys::stat(there).map(|stat| stat.st_mode & libc::S_IFMT);
    sys::close(there);
    match kind {
        Ok(libc::S_IFDIR) => Err(Errno(libc::EISDIR)),
        Ok(libc::S_IFCHR | libc::S_IFBLK | libc::S_IFIFO | libc::S_IFSOCK) => Err(Errno(libc::ENOTSUP)),
        _ => Ok(()),
    }
}

/// Creates a file; `Ok(None)` when there is one.
fn create_new(directory: i32, name: &CString) -> Result<Option<i32>, Errno> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    match sys::open_at(directory, name, flags, 0o600) {
        Ok(file) => Ok(Some(sys::move_high(file))),
        Err(Errno(libc::EEXIST)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Takes the recording's lock, which tells readers that its process lives. False where the file system has no locks.
pub fn lock(file: i32) -> bool {
    // A reader that checks whether the process lives holds the lock for a moment.
    for _ in 0..50 {
        match sys::lock_file(file) {
            Ok(()) => return true,
            Err(Errno(libc::EAGAIN)) => sys::sleep(1_000_000),
            Err(_) => return false,
        }
    }
    false
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

    fn names() -> OutputNames<'static> {
        OutputNames { executable: b"x", pid: 1, unix_seconds: 0, counter: 0, host: b"h", recording_id: [0; 16] }
    }

    /// Creates a recording of this template in `folder`, and gives its file name.
    fn name_of(folder: &std::path::Path, template: &str) -> String {
        let template = folder.join(template).into_os_string().into_encoded_bytes();
        let output = create(&template, names()).ok().unwrap();
        assert!(output.locked);
        output.name.into_string().unwrap()
    }

    #[test]
    fn a_name_that_is_taken_stays() {
        let dir = std::env::temp_dir().join(format!("tracehound-output-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(name_of(&dir, "r.dat"), "r.dat");
        assert_eq!(name_of(&dir, "r.dat"), "r.1.dat");
        assert_eq!(name_of(&dir, "r-%n.dat"), "r-0.dat");
        assert_eq!(name_of(&dir, "r-%n.dat"), "r-1.dat");
        std::fs::write(dir.join("text.dat"), "not ours").unwrap();
        assert_eq!(name_of(&dir, "text.dat"), "text.1.dat");
        assert_eq!(std::fs::read(dir.join("text.dat")).unwrap(), b"not ours");
        assert!(!dir.join("text.dat.live").exists());
        // The side file alone, as when someone has removed the recording of a living process.
        std::fs::write(dir.join("alone.dat.live"), "chunks").unwrap();
        assert_eq!(name_of(&dir, "alone.dat"), "alone.1.dat");
        assert_eq!(std::fs::read(dir.join("alone.dat.live")).unwrap(), b"chunks");
        assert!(!dir.join("alone.dat").exists());
        let no_file = |template: &str| {
            let template = dir.join(template).into_os_string().into_encoded_bytes();
            create(&template, names()).err().map(|failure| failure.error)
        };
        std::fs::create_dir(dir.join("folder")).unwrap();
        assert_eq!(no_file("folder"), Some(Errno(libc::EISDIR)));
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
        assert_eq!(no_file("socket"), Some(Errno(libc::ENOTSUP)));
        assert!(!dir.join("folder.live").exists() && !dir.join("socket.live").exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_finished_recording_makes_room_unless_it_is_of_this_process() {
        use tracehound_format::block::{BlockHeader, BlockKind, Codec};
        let dir = std::env::temp_dir().join(format!("tracehound-finished-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let block = |kind| {
            let (codec, thread, block_number, payload_crc) = (Codec::None, 0, 0, 0);
            let (first_record, first_tick, last_tick) = (0, 0, 0);
            let (count, raw_len, stored_len) = (0, 0, 0);
            let header = BlockHeader {
                kind,
                codec,
                thread,
                block_number,
                first_record,
                first_tick,
                last_tick,
                count,
                raw_len,
                stored_len,
                payload_crc,
            };
            [&tracehound_format::header::FileHeader::new([1; 16]).encode()[..], &header.encode()].concat()
        };
        let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        let put = |name: &str, bytes: &[u8], is_old: bool| {
            std::fs::write(dir.join(name), bytes).unwrap();
            if is_old {
                std::fs::File::options().write(true).open(dir.join(name)).unwrap().set_modified(hour_ago).unwrap();
            }
        };
        put("end.dat", &block(BlockKind::End), true);
        assert_eq!(name_of(&dir, "end.dat"), "end.dat");
        put("own.dat", &block(BlockKind::End), false);
        assert_eq!(name_of(&dir, "own.dat"), "own.1.dat");
        put("killed.dat", &block(BlockKind::Events), true);
        assert_eq!(name_of(&dir, "killed.dat"), "killed.1.dat");
        put("side.dat", &block(BlockKind::End), true);
        put("side.dat.live", b"", true);
        assert_eq!(name_of(&dir, "side.dat"), "side.1.dat");
        put("kept.dat", &block(BlockKind::End), true);
        let read_only = std::os::unix::fs::PermissionsExt::from_mode(0o444);
        std::fs::set_permissions(dir.join("kept.dat"), read_only).unwrap();
        assert_eq!(name_of(&dir, "kept.dat"), "kept.1.dat");
        put("empty.dat", b"", true);
        assert_eq!(name_of(&dir, "empty.dat"), "empty.dat");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
