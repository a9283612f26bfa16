//! Names and values of glibc's settings: glibc ignores those that it does not know without a word, and a replay would have the
//! figures of a program without them.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::Result;

use crate::cli::Misuse;

const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
const PREFIX: &str = "glibc.malloc.";

/// Refuses settings that this system's glibc does not know. Variables of the environment (in capitals) are not checked, nor is
/// anything where the loader cannot list its settings (before glibc 2.33).
///
/// # Errors
/// For a setting that is not known, or whose value is no number.
pub fn check(settings: &BTreeMap<String, String>) -> Result<()> {
    let mut own = settings.iter().filter(|(name, _)| name.chars().any(|c| c.is_ascii_lowercase())).peekable();
    let Some(mut known) = own.peek().and_then(|_| LOADERS.iter().find_map(|loader| listed(loader))) else {
        return Ok(());
    };
    for (name, value) in own {
        if !known.contains(name) {
            known.sort();
            let all = known.join(", ");
            return Err(Misuse(format!("--set {name}: glibc has no such setting of malloc; it has {all}")).into());
        }
        let hexadecimal = value.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
        if hexadecimal.unwrap_or_else(|| value.parse()).is_err() {
            return Err(Misuse(format!("--set {name}={value}: glibc takes a number")).into());
        }
    }
    Ok(())
}

/// Names of what a loader lists, without their prefix: lines such as `glibc.malloc.check: 0 (min: 0, max: 3)`.
fn listed(loader: &str) -> Option<Vec<String>> {
    let output = Command::new(loader).arg("--list-tunables").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| Some(line.strip_prefix(PREFIX)?.split_once(':')?.0.to_owned()));
    Some(names.collect()).filter(|names: &Vec<String>| !names.is_empty())
}
