//! The allocators that are at hand, and how their settings are spelt.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use object::{Object, ObjectSymbol};

use super::tunables;
use crate::cli::Misuse;

/// An allocator to be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub family: Family,
    /// The library to be loaded; none for the system's.
    pub library: Option<PathBuf>,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
}

/// Allocators whose settings are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// The C library's.
    System,
    /// jemalloc.
    Jemalloc,
    /// gperftools' tcmalloc.
    Tcmalloc,
    /// mimalloc.
    Mimalloc,
    /// Another one.
    Other,
}

const FOLDERS: [&str; 7] = [
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/opt/lib",
];

impl Family {
    /// By its name.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "system" | "glibc" => Self::System,
            "jemalloc" => Self::Jemalloc,
            "tcmalloc" => Self::Tcmalloc,
            "mimalloc" => Self::Mimalloc,
            _ => return None,
        })
    }

    /// Files that it may be in, the likeliest first.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::Jemalloc => &["libjemalloc.so.2", "libjemalloc.so"],
            Self::Tcmalloc => {
                &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so", "libtcmalloc.so"]
            }
            Self::Mimalloc => &["libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0", "libmimalloc.so"],
            Self::System | Self::Other => &[],
        }
    }

    /// Of a file's name.
    pub fn of_file(name: &str) -> Self {
        let known = [("jemalloc", Self::Jemalloc), ("tcmalloc", Self::Tcmalloc), ("mimalloc", Self::Mimalloc)];
        known.into_iter().find(|(part, _)| name.contains(part)).map_or(Self::Other, |(_, family)| family)
    }

    /// What the variables of its settings begin with.
    pub const fn prefix(self) -> Option<&'static str> {
        match self {
            Self::Tcmalloc => Some("TCMALLOC_"),
            Self::Mimalloc => Some("MIMALLOC_"),
            Self::System | Self::Jemalloc | Self::Other => None,
        }
    }

    /// Where it is installed.
    pub fn installed(self) -> Option<PathBuf> {
        let files = self.files().iter();
        files.flat_map(|file| FOLDERS.map(|folder| Path::new(folder).join(file))).find(|path| path.exists())
    }
}

impl Candidate {
    /// The candidate of this name: an allocator, or the path of a library.
    ///
    /// # Errors
    /// When it is not there, is no allocator, or does not know a setting, where that is known.
    pub fn named(name: &str, settings: &BTreeMap<String, String>) -> Result<Self> {
        let settings = settings.clone();
        if Family::named(name) == Some(Family::System) {
            tunables::check(&settings)?;
        }
        if let Some(family) = Family::named(name) {
            let library = match family {
                Family::System => None,
                other => Some(other.installed().ok_or_else(|| {
                    Misuse(format!("--allocator {name}: it is not installed; give the path of its library"))
                })?),
            };
            if let Some(library) = &library {
                tunables::check_library(family, library, &settings)?;
            }
            return Ok(Self { family, library, settings });
        }
        let path = std::path::absolute(name)?;
        if !name.contains('/') || !path.is_file() {
            let known = "system, jemalloc, tcmalloc, mimalloc, or the path of a library";
            return Err(Misuse(format!("--allocator {name}: there is none; accepted: {known}")).into());
        }
        if let Err(why) = allocates(&path) {
            return Err(Misuse(format!("--allocator {name}: {why}")).into());
        }
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let family = Family::of_file(&file);
        tunables::check_library(family, &path, &settings)?;
        Ok(Self { family, library: Some(path), settings })
    }

    /// Candidates where none were given: everything that is installed, with the settings that help most often.
    pub fn usual(has_threads: bool) -> Vec<Self> {
        let with = |family: Family, settings: &[(&str, &str)]| {
            let library = family.installed();
            (family == Family::System || library.is_some()).then(|| Self {
                family,
                library,
                settings: settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            })
        };
        let mut all = vec![with(Family::System, &[])];
        if has_threads {
            all.push(with(Family::System, &[("arena_max", "1")]));
            all.push(with(Family::System, &[("arena_max", "2")]));
        }
        all.push(with(Family::Jemalloc, &[]));
        all.push(with(Family::Jemalloc, &[("dirty_decay_ms", "0"), ("muzzy_decay_ms", "0")]));
        all.push(with(Family::Tcmalloc, &[]));
        all.push(with(Family::Mimalloc, &[]));
        all.into_iter().flatten().collect()
    }

    /// The environment that makes a program use it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        if let Some(library) = &self.library {
            variables.push(("LD_PRELOAD".to_owned(), library.to_string_lossy().into_owned()));
        }
        let (direct, own): (Vec<_>, Vec<_>) =
            self.settings.iter().partition(|(name, _)| name.chars().all(|c| !c.is_ascii_lowercase()));
        variables.extend(direct.into_iter().map(|(name, value)| (name.clone(), value.clone())));
        let joined = |prefix: &str, between: &str| {
            own.iter().map(|(name, value)| format!("{prefix}{name}{between}{value}")).collect::<Vec<_>>()
        };
        match self.family {
            _ if own.is_empty() => {}
            Family::System => variables.push(("GLIBC_TUNABLES".into(), joined("glibc.malloc.", "=").join(":"))),
            Family::Jemalloc => variables.push(("MALLOC_CONF".into(), joined("", ":").join(","))),
            Family::Tcmalloc | Family::Mimalloc | Family::Other => {
                let prefix = self.family.prefix().unwrap_or_default();
                variables.extend(
                    own.iter().map(|(name, value)| (format!("{prefix}{}", name.to_uppercase()), (*value).clone())),
                );
            }
        }
        variables
    }
}

/// Programs that preload an allocator get a part of its functions from it.
fn allocates(path: &Path) -> Result<(), String> {
    const FUNCTIONS: [&str; 6] = ["malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign"];
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let file = object::File::parse(&*bytes).map_err(|error| format!("it is no library: {error}"))?;
    let is_one = |name: object::Result<&str>| name.is_ok_and(|name| FUNCTIONS.contains(&name));
    if file.dynamic_symbols().any(|symbol| symbol.is_definition() && is_one(symbol.name())) {
        return Ok(());
    }
    Err("it is no allocator: it defines no malloc, nor another of its functions".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_spelt_as_each_allocator_wants() {
        let of = |family, settings: &[(&str, &str)]| {
            let settings = settings.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            Candidate { family, library: None, settings }.environment()
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            of(Family::System, &[("arena_max", "1"), ("tcache_count", "0")]),
            [pair("GLIBC_TUNABLES", "glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0")]
        );
        assert_eq!(
            of(Family::Jemalloc, &[("dirty_decay_ms", "0"), ("narenas", "1")]),
            [pair("MALLOC_CONF", "dirty_decay_ms:0,narenas:1")]
        );
        assert_eq!(of(Family::Mimalloc, &[("purge_delay", "0")]), [pair("MIMALLOC_PURGE_DELAY", "0")]);
        assert_eq!(of(Family::System, &[("MALLOC_ARENA_MAX", "1")]), [pair("MALLOC_ARENA_MAX", "1")]);
        assert_eq!(Family::of_file("libtcmalloc_minimal.so.4"), Family::Tcmalloc);
    }
}
