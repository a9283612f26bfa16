//! The recorders that are compared, and how each is put before a program.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Places;

const TCMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4";

/// What a workload runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// Nothing.
    Plain,
    /// `libtracehound.so`, everything recorded into a file.
    Tracehound,
    /// The same with `TRACEHOUND_START=off`: every call passes through, nothing is recorded.
    Asleep,
    /// `heaptrack --raw`: no times, threads or stacks of frees.
    Heaptrack,
    /// gperftools' allocator, not recording: what its heap profiler is to be compared with.
    Tcmalloc,
    /// gperftools' heap profiler: sums per call stack, no events.
    TcmallocHeap,
}

impl Tool {
    /// What is installed, and what is missing with the Debian package that brings it.
    pub fn installed(places: &Places) -> (Vec<Self>, Vec<String>) {
        let mut tools = vec![Self::Plain];
        let mut missing = Vec::new();
        if library(places).exists() {
            tools.extend([Self::Tracehound, Self::Asleep]);
        } else {
            missing.push(format!("{} (make build)", library(places).display()));
        }
        if Path::new("/usr/bin/heaptrack").exists() {
            tools.push(Self::Heaptrack);
        } else {
            missing.push("heaptrack (Debian: heaptrack)".to_owned());
        }
        if Path::new(TCMALLOC).exists() {
            tools.extend([Self::Tcmalloc, Self::TcmallocHeap]);
        } else {
            missing.push("gperftools' heap profiler (Debian: libgoogle-perftools4)".to_owned());
        }
        (tools, missing)
    }

    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tracehound => "tracehound",
            Self::Asleep => "tracehound, asleep",
            Self::Heaptrack => "heaptrack --raw",
            Self::Tcmalloc => "tcmalloc",
            Self::TcmallocHeap => "tcmalloc HEAPPROFILE",
        }
    }

    /// How many of `rounds` this tool takes part in: the slow need no precision.
    #[must_use]
    pub const fn rounds(self, rounds: usize) -> usize {
        match self {
            Self::Plain | Self::Tracehound | Self::Asleep => rounds,
            Self::Heaptrack => rounds.div_ceil(2),
            Self::Tcmalloc | Self::TcmallocHeap => 1,
        }
    }

    /// Whether this tool, or the one it is compared with, needs microseconds for a pair: it gets less work.
    #[must_use]
    pub const fn is_slow(self) -> bool {
        matches!(self, Self::Tcmalloc | Self::TcmallocHeap)
    }

    /// What this tool's cost is added to.
    #[must_use]
    pub const fn base(self) -> Self {
        match self {
            Self::TcmallocHeap => Self::Tcmalloc,
            _ => Self::Plain,
        }
    }

    /// `program` under this tool, its files in `folder`.
    pub fn command(self, program: &Path, places: &Places, folder: &Path) -> Command {
        let mut command = match self {
            Self::Heaptrack => {
                let mut command = Command::new("/usr/bin/heaptrack");
                command.arg("--raw").arg("-o").arg(folder.join("heaptrack")).arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.env_remove("LD_PRELOAD");
        match self {
            Self::Plain | Self::Heaptrack => {}
            Self::Tracehound => {
                command.env("LD_PRELOAD", library(places)).env("TRACEHOUND_OUTPUT", recording(folder));
            }
            Self::Asleep => {
                command.env("LD_PRELOAD", library(places)).env("TRACEHOUND_START", "off");
            }
            Self::Tcmalloc => {
                command.env("LD_PRELOAD", TCMALLOC);
            }
            Self::TcmallocHeap => {
                command.env("LD_PRELOAD", TCMALLOC).env("HEAPPROFILE", folder.join("tcmalloc"));
            }
        }
        command
    }

    /// Bytes that the tool left in `folder` for the events; `None` for tools that write none.
    pub fn recorded_bytes(self, folder: &Path) -> Option<u64> {
        let prefix = match self {
            Self::Tracehound => "memory.dat",
            Self::Heaptrack => "heaptrack.",
            _ => return None,
        };
        let entries = std::fs::read_dir(folder).ok()?;
        let sizes = entries
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .filter_map(|entry| entry.metadata().ok())
            .map(|meta| meta.len());
        Some(sizes.sum())
    }
}

/// The recorder.
#[must_use]
pub fn library(places: &Places) -> PathBuf {
    places.release.join("libtracehound.so")
}

/// The recording of a traced run in `folder`.
#[must_use]
pub fn recording(folder: &Path) -> PathBuf {
    folder.join("memory.dat")
}
