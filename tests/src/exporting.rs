//! Exports of recordings, and the programs that open them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

use crate::{Traced, compile, heaptrace, number, trace};

/// Every format of `heaptrace export`, by name.
pub const EXPORT_FORMATS: [&str; 10] =
    ["json", "folded", "speedscope", "pprof", "otlp", "heaptrack", "dhat", "massif", "firefox", "parquet"];

/// The recording that most tests export: made once.
#[must_use]
pub fn sample() -> &'static Traced {
    static SAMPLE: OnceLock<Traced> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let traced = trace(compile("exported.cpp", &["-O2"]), &[], &[]);
        assert!(traced.output.status.success(), "{}", traced.stderr());
        traced
    })
}

/// Exports a recording into its folder.
#[must_use]
pub fn export_of(recording: &Path, format: &str, name: &str) -> PathBuf {
    let out = recording.with_file_name(name);
    let output = Command::new(heaptrace())
        .args(["export", "--format", format])
        .arg(recording)
        .arg("-o")
        .arg(&out)
        .output()
        .expect("heaptrace can be started");
    assert!(output.status.success(), "export {format}: {}", String::from_utf8_lossy(&output.stderr));
    out
}

/// Exports that one.
#[must_use]
pub fn export(format: &str, name: &str) -> PathBuf {
    export_of(&sample().recording(), format, name)
}

/// Runs a client; what it prints.
pub fn run(program: impl AsRef<std::ffi::OsStr>, args: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let mut command = Command::new(program);
    args.iter().for_each(|arg| {
        command.arg(arg);
    });
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; tests/needs.sh installs it"));
    said(&command, &output)
}

/// What a client that succeeded has printed.
#[must_use]
pub fn said(command: &Command, output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out.into_owned()
}

/// A document on disk.
#[must_use]
pub fn read_json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Adds up a field of all items of a list.
#[must_use]
pub fn sum(items: &Value, field: &str) -> u64 {
    items.as_array().expect("a list").iter().map(|item| number(item, field)).sum()
}
