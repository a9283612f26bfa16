//! Stores: a folder (`file:///…` or a path) or a bucket (`s3://bucket/prefix`, with the usual AWS_* variables).
//!
//! ```text
//! raw/<id>/<from>-<to>.seg     bytes [from, to) of a recording that grows, sixteen hexadecimal digits each
//! raw/<id>/<from>-<to>.end     its end, where that was made from the side file of a killed process
//! raw/<id>.json                what is known of it (`heaptrace.collected/1`)
//! raw/<id>.dat                 the whole recording; the segments go when it is there
//! data/v1/<table>/service=…/version=…/day=…/recording=<id>/<table>.parquet
//! ```
//! The length of a recording in a store is what its objects say; nobody remembers it. So shipping can stop and begin
//! anew anywhere, and two may ship the same.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};

use crate::labels::Collected;

/// A store.
#[derive(Debug, Clone)]
pub struct Store {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Where its objects are files: the folder.
    pub folder: Option<std::path::PathBuf>,
}

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
        if let Some(rest) = url.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let s3 = AmazonS3Builder::from_env().with_bucket_name(bucket).build();
            let objects = Arc::new(s3.with_context(|| format!("cannot open {url}"))?);
            return Ok(Self { objects, prefix: Path::parse(prefix.trim_matches('/'))?, folder: None });
        }
        let folder = match url.split_once("://") {
            Some(("file", path)) => path,
            Some((other, _)) => bail!("a store is file:///FOLDER or s3://BUCKET/PREFIX, not {other}://"),
            None => url,
        };
        let make = || -> Result<_> {
            std::fs::create_dir_all(folder)?;
            Ok(std::fs::canonicalize(folder)?)
        };
        let folder = make().with_context(|| format!("cannot make the folder {folder}"))?;
        let objects = Arc::new(LocalFileSystem::new_with_prefix(&folder)?.with_fsync(true));
        Ok(Self { objects, prefix: Path::default(), folder: Some(folder) })
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
        let all: Vec<ObjectMeta> =
            self.objects.list(Some(&path)).try_collect().await.context("cannot list the store")?;
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
            Err(error) => Err(error).with_context(|| format!("cannot look at {name} in the store")),
        }
    }

    /// Writes an object: whole or not at all.
    ///
    /// # Errors
    /// When the store does not take it.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let done = self.objects.put(&self.path(name)?, PutPayload::from_bytes(bytes)).await;
        done.map(drop).with_context(|| format!("cannot write {name} into the store"))
    }

    /// Reads an object.
    ///
    /// # Errors
    /// When it is not there, or the store does not answer.
    pub async fn get(&self, name: &str) -> Result<Bytes> {
        let got = self.objects.get(&self.path(name)?).await;
        let got = got.with_context(|| format!("cannot read {name} in the store"))?;
        got.bytes().await.with_context(|| format!("cannot read {name} in the store"))
    }

    /// Copies an object into a file.
    ///
    /// # Errors
    /// When it is not there, the store does not answer, or the file cannot be written.
    pub async fn fetch(&self, name: &str, file: &mut std::fs::File) -> Result<u64> {
        use std::io::Write;
        let got = self.objects.get(&self.path(name)?).await;
        let mut stream = got.with_context(|| format!("cannot read {name} in the store"))?.into_stream();
        let mut bytes = 0;
        while let Some(part) = stream.try_next().await.with_context(|| format!("cannot read {name} in the store"))? {
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
            Err(error) => Err(error).with_context(|| format!("cannot delete {name} in the store")),
        }
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
        let sealed = chain.last().is_some_and(|segment| segment.name.ends_with(".end"));
        Ok(Shipped { bytes: chain.last().map_or(0, |segment| segment.to), sealed, finished: false })
    }

    /// The segments that lie one behind the other from the beginning on.
    async fn segments(&self, id: &str) -> Result<Vec<StoredSegment>> {
        let mut all: Vec<StoredSegment> = self
            .list(&format!("raw/{id}"))
            .await?
            .into_iter()
            .filter_map(|(name, size)| StoredSegment::of(name, size))
            .collect();
        // Of those that begin at one place an end, else the longest.
        all.sort_by_key(|segment| (segment.from, segment.name.ends_with(".end"), segment.to));
        let mut chain: Vec<StoredSegment> = Vec::new();
        for segment in all {
            if let Some(last) = chain.last_mut()
                && last.from == segment.from
            {
                *last = segment;
            } else if chain.last().map_or(0, |last| last.to) == segment.from {
                chain.push(segment);
            }
        }
        Ok(chain)
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
            let about = Collected { bytes: last.to, ..about.clone() };
            self.put(&format!("raw/{id}.json"), serde_json::to_vec_pretty(&about)?.into()).await?;
            let upload = self.objects.put_multipart(&self.path(&whole)?).await;
            let upload = upload.with_context(|| format!("cannot write {whole} into the store"))?;
            let mut write = WriteMultipart::new_with_chunk_size(upload, 8 << 20);
            for segment in &chain {
                write.wait_for_capacity(2).await?;
                write.put(self.get(&segment.name).await?);
            }
            write.finish().await.with_context(|| format!("cannot write {whole} into the store"))?;
        }
        for (name, size) in self.list(&format!("raw/{id}")).await? {
            if StoredSegment::of(name.clone(), size).is_some() {
                self.delete(&name).await?;
            }
        }
        Ok(())
    }

    /// What is known of the recordings that are whole.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn collected(&self) -> Result<Vec<Collected>> {
        let names = self.list("raw").await?;
        let mut all = Vec::new();
        for (name, _) in &names {
            let Some(id) = name.strip_prefix("raw/").and_then(|name| name.strip_suffix(".json")) else { continue };
            let dat = format!("raw/{id}.dat");
            if names.binary_search_by(|(name, _)| name.cmp(&dat)).is_ok() {
                let about = self.get(name).await?;
                all.push(serde_json::from_slice(&about).with_context(|| format!("{name} in the store"))?);
            }
        }
        Ok(all)
    }
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

    #[test]
    fn other_stores_are_refused_by_name() {
        let said = Store::open("ftp://x/y").unwrap_err().to_string();
        assert!(said.contains("ftp://"), "{said}");
        assert!(is_id(&"0a".repeat(16)) && !is_id("../../../../etc/passwd____________") && !is_id(&"0A".repeat(16)));
    }
}
