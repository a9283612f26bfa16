//! Finished documents, kept beside the index for the next run: `answer-HASH.kept`.
//!
//! A document belongs to a key, which names everything that it depends on beside the recording; another key is another
//! document. They take a limited room, and the oldest go first.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Trace;
use super::kept::{self, KeptKey, KeptKind};
use tracehound_api::info::End;

const DOCUMENT: KeptKind = KeptKind { name: "answer", version: 1 };
/// Beginning of the files' names.
const PREFIX: &str = "answer-";
/// Bytes of all files of a recording.
const ROOM: u64 = 64 << 20;
/// The longest document that is kept, in bytes before compression.
const LONGEST: usize = 32 << 20;

impl Trace {
    /// The document with a key, if it is there.
    #[must_use]
    pub fn document(&self, key: &[u8]) -> Option<Vec<u8>> {
        kept::read_file(&self.document_path(key), &self.document_key(key))
    }

    /// Keeps a document, in place of another one with the key. A running recording has none, and a write that fails is no
    /// error: the document is made again.
    pub fn keep_document(&self, key: &[u8], document: &[u8]) {
        if self.end() == End::Running || document.len() > LONGEST {
            return;
        }
        let path = self.document_path(key);
        if kept::write_file(&path, &self.document_key(key), &document).is_ok() {
            make_room(self.folder(), ROOM);
        }
    }

    fn document_key(&self, key: &[u8]) -> (KeptKey, Vec<u8>) {
        (self.kept_key(DOCUMENT), key.to_vec())
    }

    fn document_path(&self, key: &[u8]) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        self.folder().join(format!("{PREFIX}{:016x}.kept", hasher.finish()))
    }
}

/// Removes the oldest documents until the others take at most `room` bytes.
fn make_room(folder: &Path, room: u64) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut documents: Vec<(SystemTime, u64, PathBuf)> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)))
        .filter_map(|entry| {
            let facts = entry.metadata().ok()?;
            Some((facts.modified().ok()?, facts.len(), entry.path()))
        })
        .collect();
    documents.sort_unstable_by(|a, b| b.cmp(a));
    let mut taken = 0;
    for (_, len, path) in documents {
        taken += len;
        if taken > room {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_oldest_documents_go_first_and_nothing_else_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, age: u64| {
            let path = folder.path().join(name);
            std::fs::write(&path, [0; 100]).expect("it can be written");
            let file = std::fs::File::options().write(true).open(path).expect("it is there");
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).expect("times can be set");
        };
        for (name, age) in [("answer-1.kept", 30), ("answer-2.kept", 10), ("answer-3.kept", 20), ("verdicts.kept", 99)]
        {
            write(name, age);
        }
        make_room(folder.path(), 200);
        let mut left: Vec<String> = std::fs::read_dir(folder.path())
            .expect("it can be read")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        assert_eq!(left, ["answer-2.kept", "answer-3.kept", "verdicts.kept"]);
    }
}
