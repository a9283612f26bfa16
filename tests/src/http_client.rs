//! Questions to `heaptrace` in a folder, without the defaults and caches of whoever runs the tests.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::heaptrace;

/// What `heaptrace` says when it is called in `folder`.
#[must_use]
pub fn ask(folder: &Path, args: &[&str]) -> Output {
    Command::new(heaptrace())
        .args(args)
        .current_dir(folder)
        .env("XDG_CONFIG_HOME", folder.join("none"))
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .output()
        .expect("heaptrace can be started")
}

/// The document that it prints.
#[must_use]
pub fn json(folder: &Path, args: &[&str]) -> Value {
    let output = ask(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}
