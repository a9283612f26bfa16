//! Search paths of symbols in addition to the program's own: from the command line, for the whole run.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Places to look in.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Symbols")]
pub struct SearchPaths {
    /// Look for the program and its libraries below this folder, as in a copy of the machine that it ran on
    #[arg(long, global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub sysroot: Option<PathBuf>,
    /// Look for debug files in this folder, too: by build id (.build-id/ab/cdef.debug), by path, by name; may be
    /// repeated
    #[arg(long, global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub debug_dir: Vec<PathBuf>,
    /// Fetch missing debug files with debuginfod-find, from the servers in DEBUGINFOD_URLS
    #[arg(long, global = true)]
    pub debuginfod: bool,
    /// A perf map with the names of code that a JIT compiler made [default: /tmp/perf-PID.map, if it is yours]
    #[arg(long, global = true, value_name = "FILE")]
    pub perf_map: Option<PathBuf>,
}

static CHOSEN: OnceLock<SearchPaths> = OnceLock::new();

/// Sets the places; only the first call counts.
pub fn choose(elsewhere: SearchPaths) {
    let _ = CHOSEN.set(elsewhere);
}

/// The places that were set.
pub fn chosen() -> &'static SearchPaths {
    CHOSEN.get_or_init(SearchPaths::default)
}

impl SearchPaths {
    /// `path` as it is on this machine: below the sysroot if the file is there.
    pub fn local(&self, path: &Path) -> PathBuf {
        let below = self.sysroot.as_ref().map(|root| root.join(path.strip_prefix("/").unwrap_or(path)));
        below.filter(|path| path.is_file()).unwrap_or_else(|| path.to_path_buf())
    }

    /// Folders that may have debug files, the user's first.
    pub fn debug_dirs(&self) -> Vec<PathBuf> {
        let system = ["usr/lib/debug", "usr/local/lib/debug"];
        let root = self.sysroot.iter().flat_map(|root| system.iter().map(move |dir| root.join(dir)));
        let own = system.iter().map(|dir| Path::new("/").join(dir));
        self.debug_dir.iter().cloned().chain(root).chain(own).collect()
    }

    /// Files that may be the debug file of the module at `path`, by path and by name, in the user's folders.
    pub fn by_path(&self, path: &Path) -> Vec<PathBuf> {
        let relative = path.strip_prefix("/").unwrap_or(path);
        let Some(name) = path.file_name() else { return Vec::new() };
        let debug = |path: PathBuf| {
            let mut name = path.into_os_string();
            name.push(".debug");
            PathBuf::from(name)
        };
        let in_dir =
            |dir: &PathBuf| [debug(dir.join(relative)), dir.join(relative), debug(dir.join(name)), dir.join(name)];
        self.debug_dir.iter().flat_map(in_dir).collect()
    }

    /// The debug file of a build id, fetched if that was asked for; the path of the client's copy.
    pub fn fetched(&self, build_id: &str) -> Option<PathBuf> {
        if !self.debuginfod || build_id.len() < 8 {
            return None;
        }
        let output = std::process::Command::new("debuginfod-find")
            .args(["debuginfo", build_id])
            .stdin(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .output();
        match output {
            Ok(output) if output.status.success() => {
                Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()))
            }
            Ok(_) => None,
            Err(error) => {
                static SAID: std::sync::Once = std::sync::Once::new();
                SAID.call_once(|| {
                    eprintln!("heaptrace: --debuginfod: cannot run debuginfod-find ({error}); install elfutils' debuginfod client");
                });
                None
            }
        }
    }
}
