//! Recordings of a store into a folder of this machine, once: what `heaptrace` does with a URL in place of a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::store::{Store, is_id};

/// Options of `fetch`.
#[derive(Debug, clap::Args)]
pub struct FetchArgs {
    /// A store, or a recording in one: URL/raw/ID.dat
    #[arg(value_name = "URL")]
    url: String,
    /// Where copies are kept [default: heaptrace/store in the cache folder]
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
}

/// Prints the path of each recording here, a line each.
pub async fn run(args: FetchArgs) -> Result<ExitCode> {
    for path in files(&args.url, args.cache.as_deref()).await? {
        crate::print(&format!("{}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Files of this machine with the recordings that a URL names: one, or all whole ones of a store.
///
/// # Errors
/// When the store does not answer, or has no such recording.
pub async fn files(url: &str, cache: Option<&Path>) -> Result<Vec<PathBuf>> {
    let (url, one) = match url.rsplit_once("/raw/") {
        Some((url, name)) => match name.strip_suffix(".dat").filter(|id| is_id(id)) {
            Some(id) => (url, Some(id.to_owned())),
            None => bail!("{name:?} is no recording in a store: a recording is raw/ID.dat"),
        },
        None => (url, None),
    };
    let store = Store::open(url)?;
    let ids: Vec<String> = match one {
        Some(id) => vec![id],
        None => store.collected().await?.into_iter().map(|about| about.recording).collect(),
    };
    if ids.is_empty() {
        bail!("there is no whole recording in {url}");
    }
    let mut files = Vec::with_capacity(ids.len());
    for id in ids {
        files.push(local(&store, url, &id, cache).await?);
    }
    Ok(files)
}

/// The recording as a file of this machine.
async fn local(store: &Store, url: &str, id: &str, cache: Option<&Path>) -> Result<PathBuf> {
    let name = format!("raw/{id}.dat");
    let Some(bytes) = store.length(&name).await? else { bail!("there is no recording {id} in {url}") };
    if let Some(folder) = &store.folder {
        return Ok(folder.join(name));
    }
    let home = || {
        let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
        cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
    };
    let folder = match cache {
        Some(folder) => folder.to_path_buf(),
        None => home().context("there is no cache folder: HOME is not set")?.join("heaptrace/store"),
    };
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // The id is random: no other store has another recording by it.
    let path = folder.join(format!("{id}.dat"));
    let names = format!("{name}.symbols");
    if let Some(bytes) = store.length(&names).await? {
        copy(store, &names, bytes, &folder.join(format!("{id}.dat.symbols"))).await?;
    }
    copy(store, &name, bytes, &path).await?;
    Ok(path)
}

/// Copies an object of so many bytes into a file, unless that is there.
async fn copy(store: &Store, name: &str, bytes: u64, path: &Path) -> Result<()> {
    if path.metadata().is_ok_and(|meta| meta.len() == bytes) {
        return Ok(());
    }
    let folder = path.parent().context("a folder")?;
    let mut part = tempfile::NamedTempFile::new_in(folder).context("cannot write into the cache folder")?;
    let got = store.fetch(name, part.as_file_mut()).await?;
    if got != bytes {
        bail!("{name}: {got} bytes came of {bytes}");
    }
    part.persist(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}
