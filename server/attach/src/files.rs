//! The recording's files, opened here and passed to the process: its own permissions and user do not matter.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tracehound_format::options::{OutputNames, expand_output};

use crate::refusal::{Refusal, Result};

/// A recording's files, empty. Removed again unless they are [kept](AttachFiles::keep).
#[derive(Debug)]
pub struct AttachFiles {
    /// Path of the recording, absolute.
    pub path: PathBuf,
    /// The recording.
    pub file: File,
    /// The side file.
    pub side_file: File,
    /// Their folder.
    pub directory: File,
    kept: bool,
}

/// Path of the side file.
#[must_use]
pub fn side_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".live");
    name.into()
}

fn create(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

impl AttachFiles {
    /// Creates both files by a template as `TRACEHOUND_OUTPUT` is one. No file that exists is touched: a number is added
    /// to a name that is taken.
    pub fn create(template: &[u8], pid: u32, executable: &[u8]) -> Result<Self> {
        let name = executable.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut recording_id = [0; 16];
        let random = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut recording_id));
        random.map_err(|error| Refusal(format!("/dev/urandom: {error}")))?;
        let names = |counter| OutputNames {
            executable: name,
            pid,
            unix_seconds: now.as_secs(),
            counter,
            host: host.trim_ascii_end(),
            recording_id,
        };
        for counter in 0..10_000 {
            let mut text = expand_output(template, names(counter));
            if counter > 0 && !template.windows(2).any(|pair| pair == b"%n") {
                let stem = text.strip_suffix(b".dat").unwrap_or(&text).to_vec();
                text = [stem, format!(".{counter}.dat").into_bytes()].concat();
            }
            let given = PathBuf::from(std::ffi::OsStr::from_bytes(&text));
            let failed = |error: &dyn std::fmt::Display| Refusal(format!("{}: {error}", given.display()));
            if counter == 0 && std::fs::metadata(&given).is_ok_and(|there| !there.is_file()) {
                return Err(failed(&"it is there, and is no file"));
            }
            let path = std::path::absolute(&given).map_err(|error| failed(&error))?;
            let folder = path.parent().unwrap_or(Path::new("/"));
            let directory = File::open(folder).map_err(|error| failed(&error))?;
            let side_file = match create(&side_path(&path)) {
                Ok(side_file) => side_file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed(&error)),
            };
            match create(&path) {
                Ok(file) => return Ok(Self { path, file, side_file, directory, kept: false }),
                Err(error) => {
                    let _ = std::fs::remove_file(side_path(&path));
                    if error.kind() != io::ErrorKind::AlreadyExists {
                        return Err(failed(&error));
                    }
                }
            }
        }
        Err(Refusal(format!("{}: the name is taken", String::from_utf8_lossy(template))))
    }

    /// Keeps the files.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for AttachFiles {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_file(side_path(&self.path));
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
