//! Names and values of settings: glibc, tcmalloc and mimalloc ignore those that they do not know without a word, and a replay
//! would have the figures of a program without them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::allocators::Family;
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

/// Refuses settings whose names are not in the library of tcmalloc or mimalloc, which reads them from the environment.
///
/// # Errors
/// For a setting that it does not know.
pub fn check_library(family: Family, library: &Path, settings: &BTreeMap<String, String>) -> Result<()> {
    let Some(prefix) = family.prefix().filter(|_| !settings.is_empty()) else { return Ok(()) };
    let Ok(bytes) = std::fs::read(library) else { return Ok(()) };
    // tcmalloc has the whole name in its data; mimalloc puts it together from small letters.
    let is_whole = family == Family::Tcmalloc;
    for name in settings.keys() {
        let variable = name.chars().all(|c| !c.is_ascii_lowercase());
        let own = match name.strip_prefix(prefix).filter(|_| variable) {
            Some(rest) => rest,
            // Another variable of the environment is not the allocator's.
            None if variable => continue,
            None => name,
        };
        let wanted = if is_whole { format!("{prefix}{}", own.to_uppercase()) } else { own.to_lowercase() };
        if has_text(&bytes, wanted.as_bytes()) {
            continue;
        }
        let known = if is_whole { variables(&bytes, prefix) } else { BTreeSet::new() };
        let known: Vec<String> = known.iter().map(|name| name[prefix.len()..].to_lowercase()).collect();
        let known = if known.is_empty() { String::new() } else { format!("; it has {}", known.join(", ")) };
        let why = format!("--set {name}: {} has no such setting{known}", library.display());
        return Err(Misuse(why).into());
    }
    Ok(())
}

/// Whether a text is among the constants of a file: one that ends there, and is whole or the end of a longer name, which
/// linkers store once.
fn has_text(bytes: &[u8], text: &[u8]) -> bool {
    let mut ends = places(bytes, text).filter(|at| bytes.get(at + text.len()) == Some(&0));
    ends.any(|at| at == 0 || matches!(bytes[at - 1], 0 | b'_'))
}

/// Where a text is in a file.
fn places<'a>(bytes: &'a [u8], text: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    bytes.windows(text.len().max(1)).enumerate().filter(move |(_, part)| *part == text).map(|(at, _)| at)
}

/// Names of variables with a prefix, among the constants of a file.
fn variables(bytes: &[u8], prefix: &str) -> BTreeSet<String> {
    let is_of_name = |byte: &&u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || **byte == b'_';
    let starts = places(bytes, prefix.as_bytes());
    let names = starts.filter_map(|at| {
        let name: Vec<u8> = bytes[at..].iter().take_while(is_of_name).copied().collect();
        (bytes.get(at + name.len()) == Some(&0)).then(|| String::from_utf8_lossy(&name).into_owned())
    });
    names.filter(|name| name.len() > prefix.len()).collect()
}

/// Names of what a loader lists, without their prefix: lines such as `glibc.malloc.check: 0 (min: 0, max: 3)`.
fn listed(loader: &str) -> Option<Vec<String>> {
    let output = Command::new(loader).arg("--list-tunables").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| Some(line.strip_prefix(PREFIX)?.split_once(':')?.0.to_owned()));
    Some(names.collect()).filter(|names: &Vec<String>| !names.is_empty())
}
