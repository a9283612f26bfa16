//! Stores: a folder (`file:///…` or a path) or a bucket of one of three services (`buckets.rs`).
//!
//! ```text
//! raw/<id>/<from>-<to>.seg     bytes [from, to) of a recording that grows, sixteen hexadecimal digits each
//! raw/<id>/<from>-<to>.end     its end, where that was made from the side file of a killed process
//! raw/<id>.json                what is known of it (`heaptrace.collected/1`)
//! raw/<id>.dat                 the whole recording; the segments go when it is there
//! raw/<id>.dat.symbols         names of the code that it went through
//! symbols/<build id>.debug.zst what names need of a program or library, once
//! data/v1/<table>/service=…/version=…/day=…/recording=<id>/<table>.parquet
//! ```
//! The length of a recording in a store is computed from its objects, and stored nowhere else. So shipping can stop and
//! begin anew anywhere, and two collectors may ship the same.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};
use tokio::sync::Semaphore;

use crate::buckets;
use crate::labels::Collected;
use crate::refusals::words;
use crate::symbols::object_name;

/// Bytes of a part of an upload.
const PART: usize = 8 << 20;

/// How long a list that fails is asked for again.
const LIST_AGAIN: Duration = Duration::from_secs(15);

/// A store.
#[derive(Debug, Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Where its objects are files: the folder.
    pub folder: Option<std::path::PathBuf>,
    /// Limits how many whole objects are made of segments at the same time: each has parts of it in memory.
    finishing: Arc<Semaphore>,
}

/// Objects that are made of segments at the same time.
const FINISHING: usize = 2;

/// How much of a recording a store has.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Shipped {
    /// Bytes from its beginning.
    pub bytes: u64,
    /// Its end, made from the side file of a killed process, is among them: only finishing is left.
    #[serde(default)]
    pub sealed: bool,
    /// Nothing more will come.
    pub finished: bool,
}

impl Store {
    /// Opens a store; a folder is made if it is not there.
    ///
    /// # Errors
    /// When the URL is of no kind that is known, or the folder cannot be made.
    pub fn open(url: &str) -> Result<Self> {
        let finishing = Arc::new(Semaphore::new(FINISHING));
        if let Some((objects, prefix)) = buckets::open(url)? {
            return Ok(Self { objects, prefix, folder: None, finishing });
        }
        let folder = match url.split_once("://") {
            Some(("file", path)) => path,
            Some((other, _)) => bail!("a store is file:///FOLDER or {}, not {other}://", buckets::FORMS),
            None => url,
        };
        let make = || -> Result<_> {
            std::fs::create_dir_all(folder)?;
            Ok(std::fs::canonicalize(folder)?)
        };
        let folder = make().with_context(|| format!("cannot make the folder {folder}"))?;
        let objects = Arc::new(LocalFileSystem::new_with_prefix(&folder)?.with_fsync(true));
        Ok(Self { objects, prefix: Path::default(), folder: Some(folder), finishing })
    }

    /// Opens a store that is there, to be asked: a folder is not made.
    ///
    /// # Errors
    /// As for [`open`](Self::open), and when there is no such folder.
    pub fn open_existing(url: &str) -> Result<Self> {
        let folder = url.strip_prefix("file://").or_else(|| (!url.contains("://")).then_some(url));
        if let Some(folder) = folder.filter(|folder| !std::path::Path::new(folder).is_dir()) {
            bail!("there is no folder {folder}");
        }
        Self::open(url)
    }

    fn path(&self, name: &str) -> Result<Path> {
        let whole = format!("{}/{name}", self.prefix);
        Path::parse(whole.trim_start_matches('/')).with_context(|| format!("`{name}` is no name in a store"))
    }

    /// Names below a prefix with their lengths, in order.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let path = self.path(prefix)?;
        let began = Instant::now();
        let mut pause = Duration::from_millis(100);
        let all: Vec<ObjectMeta> = loop {
            match self.objects.list(Some(&path)).try_collect().await {
                Ok(all) => break all,
                // An answer that is cut off behind its head is not asked for again by the library.
                Err(object_store::Error::Generic { .. }) if began.elapsed() < LIST_AGAIN => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => return Err(words(error)).context("cannot list the store"),
            }
        };
        let skip = if self.prefix.as_ref().is_empty() { 0 } else { self.prefix.as_ref().len() + 1 };
        let mut names: Vec<(String, u64)> =
            all.into_iter().filter_map(|m| Some((m.location.as_ref().get(skip..)?.to_owned(), m.size))).collect();
        names.sort();
        Ok(names)
    }

    /// The length of an object; `None` if it is not there.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn length(&self, name: &str) -> Result<Option<u64>> {
        match self.objects.head(&self.path(name)?).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(words(error)).with_context(|| format!("cannot look at {name} in the store")),
        }
    }

    /// Writes an object: whole or not at all.
    ///
    /// # Errors
    /// When the store does not take it.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        self.put_payload(name, PutPayload::from_bytes(bytes)).await
    }

    async fn put_payload(&self, name: &str, payload: PutPayload) -> Result<()> {
        let done = self.objects.put(&self.path(name)?, payload).await;
        done.map(drop).map_err(words).with_context(|| format!("cannot write {name} into the store"))?;
        self.close_to_others(name)
    }

    /// Reads an object.
    ///
    /// # Errors
    /// When it is not there, or the store does not answer.
    pub async fn get(&self, name: &str) -> Result<Bytes> {
        let got = self.objects.get(&self.path(name)?).await;
        let got = got.map_err(words).with_context(|| format!("cannot read {name} in the store"))?;
        got.bytes().await.map_err(words).with_context(|| format!("cannot read {name} in the store"))
    }

    /// Copies an object into a file.
    ///
    /// # Errors
    /// When it is not there, the store does not answer, or the file cannot be written.
    pub async fn fetch(&self, name: &str, file: &mut std::fs::File) -> Result<u64> {
        use std::io::Write;
        let got = self.objects.get(&self.path(name)?).await;
        let mut stream = got.map_err(words).with_context(|| format!("cannot read {name} in the store"))?.into_stream();
        let mut bytes = 0;
        while let Some(part) =
            stream.try_next().await.map_err(words).with_context(|| format!("cannot read {name} in the store"))?
        {
            bytes += part.len() as u64;
            file.write_all(&part).with_context(|| format!("cannot write what {name} has"))?;
        }
        file.flush()?;
        Ok(bytes)
    }

    /// Deletes an object, if it is there.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn delete(&self, name: &str) -> Result<()> {
        match self.objects.delete(&self.path(name)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(words(error)).with_context(|| format!("cannot delete {name} in the store")),
        }
    }

    /// Writes what is in a file as an object: whole or not at all.
    ///
    /// # Errors
    /// When it cannot be read, or the store does not take it.
    pub async fn put_file(&self, name: &str, mut file: std::fs::File) -> Result<()> {
        let next = move || {
            let mut part = Vec::new();
            match file.by_ref().take(PART as u64).read_to_end(&mut part) {
                Ok(0) => None,
                Ok(_) => Some(Ok(Bytes::from(part))),
                Err(error) => Some(Err(error.into())),
            }
        };
        self.put_pieces(name, stream::iter(std::iter::from_fn(next)).boxed()).await
    }

    /// Writes an object of pieces, one behind the other: whole or not at all.
    async fn put_pieces(&self, name: &str, mut pieces: BoxStream<'_, Result<Bytes>>) -> Result<()> {
        // What is no longer than a part is written at once: one request in place of three.
        let (mut first, mut bytes, mut more) = (Vec::new(), 0, None);
        while let Some(piece) = pieces.try_next().await? {
            if bytes + piece.len() > PART {
                more = Some(piece);
                break;
            }
            bytes += piece.len();
            first.push(piece);
        }
        let Some(more) = more else { return self.put_payload(name, first.into_iter().collect()).await };
        let context = || format!("cannot write {name} into the store");
        let upload = self.objects.put_multipart(&self.path(name)?).await.map_err(words).with_context(context)?;
        let mut write = WriteMultipart::new_with_chunk_size(upload, PART);
        let filled = async {
            for piece in first.into_iter().chain([more]) {
                write.put(piece);
            }
            while let Some(piece) = pieces.try_next().await? {
                write.wait_for_capacity(1).await.map_err(words).with_context(context)?;
                write.put(piece);
            }
            anyhow::Ok(())
        };
        if let Err(error) = filled.await {
            // A bucket keeps the parts of an upload that nobody gives up, and bills them.
            let _ = write.abort().await;
            return Err(error);
        }
        write.finish().await.map(drop).map_err(words).with_context(context)?;
        self.close_to_others(name)
    }

    /// Gives a recording in a folder, and each part of one, the mode that recordings have: for their owner alone.
    fn close_to_others(&self, name: &str) -> Result<()> {
        let is_recorded = [".dat", ".seg", ".end"].iter().any(|end| name.ends_with(end));
        let Some(folder) = self.folder.as_ref().filter(|_| is_recorded && name.starts_with("raw/")) else {
            return Ok(());
        };
        use std::io::ErrorKind::{NotFound, PermissionDenied, Unsupported};
        match std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o600)) {
            // Another collector has put the whole in the place of its parts; and some file systems have no modes.
            Err(error) if matches!(error.kind(), NotFound | PermissionDenied | Unsupported) => Ok(()),
            other => other.with_context(|| format!("cannot set the mode of {name} in the store")),
        }
    }

    /// Whether the symbols of a build id are there.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn has_symbols(&self, build_id: &str) -> Result<bool> {
        Ok(self.length(&symbols_of(build_id)?).await?.is_some())
    }

    /// Puts the packed symbols of a build id there.
    ///
    /// # Errors
    /// When the store does not take them.
    pub async fn put_symbols(&self, build_id: &str, packed: std::fs::File) -> Result<()> {
        self.put_file(&symbols_of(build_id)?, packed).await
    }

    /// How much of a recording is there.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn shipped(&self, id: &str) -> Result<Shipped> {
        if let Some(bytes) = self.length(&format!("raw/{id}.dat")).await? {
            return Ok(Shipped { bytes, sealed: true, finished: true });
        }
        let chain = self.segments(id).await?;
        let sealed = chain.last().is_some_and(StoredSegment::is_end);
        Ok(Shipped { bytes: chain.last().map_or(0, |segment| segment.to), sealed, finished: false })
    }

    /// The segments that lie one behind the other from the beginning on.
    async fn segments(&self, id: &str) -> Result<Vec<StoredSegment>> {
        let all = self.list(&format!("raw/{id}")).await?;
        Ok(longest_chain(all.into_iter().filter_map(|(name, size)| StoredSegment::of(name, size)).collect()))
    }

    /// Puts bytes of a recording behind those that are there; `is_end`: they are its end.
    ///
    /// # Errors
    /// When the store does not take them.
    pub async fn append(&self, id: &str, at: u64, bytes: Bytes, is_end: bool) -> Result<()> {
        let to = at + bytes.len() as u64;
        let kind = if is_end { "end" } else { "seg" };
        self.put(&format!("raw/{id}/{at:016x}-{to:016x}.{kind}"), bytes).await
    }

    /// Makes one object of the segments. May be stopped anywhere and done again.
    ///
    /// # Errors
    /// When the store does not answer or take it, or there is nothing of the recording.
    pub async fn finish(&self, about: &Collected) -> Result<()> {
        let id = &about.recording;
        let whole = format!("raw/{id}.dat");
        if self.length(&whole).await?.is_none() {
            let chain = self.segments(id).await?;
            let Some(last) = chain.last() else { bail!("nothing of the recording {id} is in the store") };
            if last.to < about.bytes {
                bail!("the store has {} of {} bytes of the recording {id}", last.to, about.bytes);
            }
            let about = Collected { bytes: last.to, ..about.clone() };
            self.put(&format!("raw/{id}.json"), serde_json::to_vec_pretty(&about)?.into()).await?;
            let _one_of_few = self.finishing.acquire().await?;
            let names = chain.into_iter().map(|segment| segment.name);
            let pieces = stream::iter(names).then(move |name| async move { self.get(&name).await });
            self.put_pieces(&whole, pieces.boxed()).await?;
        }
        for (name, size) in self.list(&format!("raw/{id}")).await? {
            if StoredSegment::of(name.clone(), size).is_some() {
                self.delete(&name).await?;
            }
        }
        if let Some(folder) = &self.folder {
            sweep(&folder.join("raw"), id);
        }
        Ok(())
    }

    /// What is known of the recordings that are whole.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn collected(&self) -> Result<Vec<Collected>> {
        let mut all = Vec::new();
        for id in self.whole().await? {
            all.push(self.about(&id).await?);
        }
        Ok(all)
    }

    /// Ids of the recordings that are whole.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn whole(&self) -> Result<Vec<String>> {
        let names = self.list("raw").await?;
        let id = |(name, _): &(String, u64)| name.strip_prefix("raw/")?.strip_suffix(".json").map(str::to_owned);
        let is_whole = |id: &String| {
            let dat = format!("raw/{id}.dat");
            names.binary_search_by(|(name, _)| name.cmp(&dat)).is_ok()
        };
        Ok(names.iter().filter_map(id).filter(is_whole).collect())
    }

    /// What is known of a recording.
    ///
    /// # Errors
    /// When the store does not answer, or the object is none of ours.
    pub async fn about(&self, id: &str) -> Result<Collected> {
        let name = format!("raw/{id}.json");
        serde_json::from_slice(&self.get(&name).await?).with_context(|| format!("{name} in the store"))
    }
}

/// Name of the symbols of a build id.
fn symbols_of(build_id: &str) -> Result<String> {
    object_name(build_id).with_context(|| format!("{build_id:?} is no build id"))
}

/// Deletes what writers that were killed have left of a recording which is whole: files that were being written, which
/// have a number behind their name, and the folder of its segments.
fn sweep(raw: &std::path::Path, id: &str) {
    let _ = std::fs::remove_dir_all(raw.join(id));
    for entry in std::fs::read_dir(raw).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(id));
        let is_left = |rest: &str| rest.starts_with('.') && rest.contains('#');
        if rest.is_some_and(is_left) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Of segments that may overlap, because two collectors have shipped the same, those that reach farthest from the
/// beginning without a gap; to an end, if there is one.
fn longest_chain(mut all: Vec<StoredSegment>) -> Vec<StoredSegment> {
    all.sort_by_key(|segment| (segment.from, segment.to, segment.is_end()));
    // Which segment leads to a place; a segment's own place is before its end, so one pass in order finds all.
    let mut ways: BTreeMap<u64, Option<usize>> = BTreeMap::from([(0, None)]);
    let mut ends: Option<usize> = None;
    for (number, segment) in all.iter().enumerate() {
        if !ways.contains_key(&segment.from) {
            continue;
        }
        if segment.is_end() {
            ends = Some(number);
        } else {
            ways.entry(segment.to).or_insert(Some(number));
        }
    }
    let mut at = ends.or_else(|| ways.last_key_value().and_then(|(_, way)| *way));
    let mut chain = Vec::new();
    while let Some(number) = at {
        let Some(segment) = all.get(number) else { break };
        chain.push(segment.clone());
        at = ways.get(&segment.from).copied().flatten();
    }
    chain.reverse();
    chain
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct StoredSegment {
    name: String,
    from: u64,
    to: u64,
}

impl StoredSegment {
    /// By its name; `None` of another object, or of one that has not the length that it is to have.
    fn of(name: String, size: u64) -> Option<Self> {
        let last = name.rsplit('/').next()?;
        let (from, to) = last.strip_suffix(".seg").or_else(|| last.strip_suffix(".end"))?.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        (to.checked_sub(from)? == size && size > 0).then_some(Self { name, from, to })
    }

    /// Whether it is the end of a killed process's recording.
    fn is_end(&self) -> bool {
        self.name.ends_with(".end")
    }
}

/// Whether a text is the id of a recording.
pub fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_knows_how_much_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap()).unwrap();
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(store.shipped(id).await.unwrap(), Shipped::default());
        store.append(id, 0, Bytes::from_static(b"abc"), false).await.unwrap();
        // Two that ship the same, cut otherwise; and something behind a hole.
        store.append(id, 0, Bytes::from_static(b"abcde"), false).await.unwrap();
        store.append(id, 3, Bytes::from_static(b"de"), false).await.unwrap();
        store.append(id, 9, Bytes::from_static(b"z"), false).await.unwrap();
        assert_eq!(store.shipped(id).await.unwrap().bytes, 5);
        store.append(id, 5, Bytes::from_static(b"fg"), true).await.unwrap();
        assert!(store.shipped(id).await.unwrap().sealed);
        let about = Collected { recording: id.into(), ..Collected::default() };
        store.finish(&about).await.unwrap();
        assert_eq!(store.shipped(id).await.unwrap(), Shipped { bytes: 7, sealed: true, finished: true });
        assert_eq!(&store.get(&format!("raw/{id}.dat")).await.unwrap()[..], b"abcdefg");
        assert_eq!(store.list("raw").await.unwrap().len(), 2, "the segments are gone");
        assert_eq!(store.collected().await.unwrap()[0].bytes, 7);
        store.finish(&about).await.unwrap();
    }

    fn segment(from: u64, to: u64, kind: &str) -> StoredSegment {
        StoredSegment { name: format!("{from}-{to}.{kind}"), from, to }
    }

    #[test]
    fn segments_of_two_collectors_are_one_recording() {
        let chain = |list: &[(u64, u64, &str)]| -> Vec<(u64, u64)> {
            let all = list.iter().map(|&(from, to, kind)| segment(from, to, kind)).collect();
            longest_chain(all).iter().map(|segment| (segment.from, segment.to)).collect()
        };
        // The second was stopped behind a longer piece: the first one's go further.
        let two = [(0, 100, "seg"), (100, 200, "seg"), (100, 250, "seg"), (200, 300, "seg")];
        assert_eq!(chain(&two), [(0, 100), (100, 200), (200, 300)]);
        assert_eq!(chain(&[(0, 10, "seg"), (20, 30, "seg")]), [(0, 10)]);
        // An end counts, whatever was shipped beside it.
        assert_eq!(chain(&[(0, 10, "seg"), (10, 12, "end"), (10, 30, "seg")]), [(0, 10), (10, 12)]);
        assert_eq!(chain(&[(10, 12, "end")]), []);
    }

    #[tokio::test]
    async fn a_recording_of_which_something_lacks_is_not_finished() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap()).unwrap();
        let id = "0123456789abcdef0123456789abcdef";
        store.append(id, 0, Bytes::from_static(b"abc"), false).await.unwrap();
        let about = Collected { recording: id.into(), bytes: 4, ..Collected::default() };
        let said = store.finish(&about).await.unwrap_err().to_string();
        assert!(said.contains("3 of 4 bytes"), "{said}");
        // What a killed writer has left goes with the segments.
        let raw = folder.path().join("raw");
        std::fs::write(raw.join(format!("{id}.dat#1")), "x").unwrap();
        std::fs::write(raw.join(id).join("0-3.seg#1"), "x").unwrap();
        store.finish(&Collected { bytes: 3, ..about }).await.unwrap();
        let mut left: Vec<_> = std::fs::read_dir(&raw).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [format!("{id}.dat").as_str(), &format!("{id}.json")]);
    }

    #[test]
    fn other_stores_are_refused_by_name() {
        let said = Store::open("ftp://x/y").unwrap_err().to_string();
        assert!(said.contains("ftp://"), "{said}");
        assert!(is_id(&"0a".repeat(16)) && !is_id("../../../../etc/passwd____________") && !is_id(&"0A".repeat(16)));
    }
}
