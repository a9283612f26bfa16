//! Whether the file of a recording is still the one that was read: a program that runs again with the same output replaces it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tracehound_api::info::FileState;
use tracehound_format::header::FileHeader;

/// Which recording a file was, and how long.
#[derive(Debug, Clone)]
pub struct OpenedFile {
    header: Vec<u8>,
    len: u64,
}

impl OpenedFile {
    /// Of the file at a path.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        // A pipe would be waited for.
        if !path.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut header = Vec::new();
        // The header has a random number of each recording's own.
        file.take(FileHeader::LEN as u64).read_to_end(&mut header)?;
        Ok(Self { header, len })
    }

    /// What has become of it. A file may grow.
    pub fn state(&self, path: &Path) -> FileState {
        match Self::of(path) {
            Ok(now) if now.header.starts_with(&self.header) && now.len >= self.len => FileState::AsRead,
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileState::Removed,
            _ => FileState::Changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_grow_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.dat");
        let file = |id: u8, len: usize| {
            let mut bytes = FileHeader::new([id; 16]).encode().to_vec();
            bytes.resize(len, 0);
            bytes
        };
        std::fs::write(&path, file(1, 1000)).unwrap();
        let known = OpenedFile::of(&path).unwrap();
        assert_eq!(known.state(&path), FileState::AsRead);
        std::fs::write(&path, file(1, 2000)).unwrap();
        assert_eq!(known.state(&path), FileState::AsRead);
        std::fs::write(&path, file(1, 999)).unwrap();
        assert_eq!(known.state(&path), FileState::Changed);
        std::fs::write(&path, file(2, 5000)).unwrap();
        assert_eq!(known.state(&path), FileState::Changed);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(known.state(&path), FileState::Removed);
        std::fs::create_dir(&path).unwrap();
        assert_eq!(known.state(&path), FileState::Changed);
    }
}
