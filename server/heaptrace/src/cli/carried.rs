//! The libraries that this program carries inside, so that one file is all that must be brought to a machine: what `make dist`
//! builds has them, what `make build` builds has none. A program can load only a file, so they are written to a folder that
//! is kept, once for each build of heaptrace.

use std::ffi::OsString;
use std::fs::{DirBuilder, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::StatVfsMountFlags;

use super::run::library;

/// File name and content of each.
pub const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/carried.rs"));
/// The C header among them.
pub const HEADER: &str = "tracehound.h";

/// The library to be preloaded, in the first folder where it can be kept; `None`: this program carries none.
///
/// # Errors
/// Where no folder can be used, with what is wrong with each.
pub fn kept_library() -> Result<Option<PathBuf>> {
    if FILES.is_empty() {
        return Ok(None);
    }
    let user = rustix::process::geteuid().as_raw();
    let mut refused = Vec::new();
    for folder in folders(user, |name| std::env::var_os(name)) {
        match keep(&folder, user, FILES) {
            Ok(kept) => return Ok(Some(kept.join(library::NAME))),
            Err(error) => refused.push(format!("{}: {error:#}", folder.display())),
        }
    }
    bail!(
        "{} is inside this program and must be in a file to be loaded, but no folder can keep it ({}); write it to one by \
         `heaptrace libraries FOLDER` and set {}=FOLDER/{}",
        library::NAME,
        refused.join("; "),
        library::VARIABLE,
        library::NAME
    );
}

/// Writes all of them into a folder; the paths that they have there.
///
/// # Errors
/// If one cannot be written.
pub fn write(folder: &Path) -> Result<Vec<PathBuf>> {
    write_all(folder, FILES)
}

/// Where they may be kept, the best first. Programs that root starts may become other users, who cannot look into root's home.
fn folders(user: u32, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let mut folders = Vec::new();
    if user == 0 {
        folders.push(PathBuf::from("/var/cache/tracehound"));
    }
    let of_user = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    folders.extend(of_user.map(|cache| cache.join("tracehound")));
    folders.push(std::env::temp_dir().join(format!("tracehound-{user}")));
    folders
}

/// The folder of these files below `folder`, which are written if they are not there.
fn keep(folder: &Path, user: u32, files: &[(&str, &[u8])]) -> Result<PathBuf> {
    if library::unloadable(folder) {
        bail!("LD_PRELOAD cannot hold a space or a colon");
    }
    let kept = folder.join(build_of(files));
    for part in [folder, &kept] {
        if let Some(above) = part.parent() {
            std::fs::create_dir_all(above)?;
        }
        match DirBuilder::new().mode(0o755).create(part) {
            // Whatever the umask is: programs that run as other users load the library.
            Ok(()) => std::fs::set_permissions(part, Permissions::from_mode(0o755))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
        let found = part.symlink_metadata()?;
        if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
            bail!("{} is no folder of this user's alone", part.display());
        }
    }
    if rustix::fs::statvfs(&kept)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        bail!("code cannot be loaded from there (mounted noexec)");
    }
    write_all(&kept, files)?;
    Ok(kept)
}

/// A folder's name that other builds do not have.
fn build_of(files: &[(&str, &[u8])]) -> String {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hasher.finish())
}

fn write_all(folder: &Path, files: &[(&str, &[u8])]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for (name, content) in files {
        let path = folder.join(name);
        if std::fs::read(&path).ok().as_deref() != Some(content) {
            replace(&path, content)?;
        }
        paths.push(path);
    }
    Ok(paths)
}

/// Writes a file that everybody can load, under another name first: processes that have the old one loaded keep it.
///
/// # Errors
/// If it cannot be written, with its path.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(content)?;
        file.as_file().set_permissions(Permissions::from_mode(0o755))?;
        file.persist(path).map_err(|error| error.error)
    });
    written.map(drop).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &[(&str, &[u8])] = &[(library::NAME, b"loaded"), (HEADER, b"included")];

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn they_are_written_once_and_again_when_they_are_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("a/cache");
        let kept = keep(&cache, me(), SOME).unwrap();
        assert_eq!(kept.parent(), Some(&*cache));
        let library = kept.join(library::NAME);
        let first = library.metadata().unwrap();
        assert_eq!((std::fs::read(&library).unwrap(), first.mode() & 0o777), (b"loaded".to_vec(), 0o755));
        keep(&cache, me(), SOME).unwrap();
        assert_eq!(library.metadata().unwrap().ino(), first.ino(), "it is not written again");
        std::fs::write(&library, "half").unwrap();
        keep(&cache, me(), SOME).unwrap();
        assert_eq!(std::fs::read(&library).unwrap(), b"loaded");
        assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 2, "nothing else is left");
        assert_ne!(build_of(SOME), build_of(&SOME[..1]));
    }

    #[test]
    fn folders_that_others_can_write_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let real = folder.path().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        for refused in [open, link, folder.path().join("with space")] {
            assert!(keep(&refused, me(), SOME).is_err(), "{}", refused.display());
        }
        assert!(keep(&real, me() + 1, SOME).is_err(), "another user's");
        assert!(keep(Path::new("/proc/none"), me(), SOME).is_err());
    }

    #[test]
    fn root_keeps_them_where_others_can_read() {
        let variable = |name: &str| (name == "HOME").then(|| "/home/me".into());
        assert_eq!(folders(0, variable)[0], Path::new("/var/cache/tracehound"));
        assert_eq!(folders(1000, variable)[0], Path::new("/home/me/.cache/tracehound"));
        assert!(folders(1000, |_| Some("relative".into()))[0].is_absolute());
    }
}
