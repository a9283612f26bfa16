//! The data set in a store: the tables of `heaptrace export --format parquet` without the blocks, and two of its own.
//!
//! ```text
//! data/v1/<table>/service=…/version=…/day=…/recording=<id>/<table>.parquet          one recording, as it came
//! data/v1/<table>/service=…/version=…/day=…/compact-<number>.parquet                many, with a column `recording`
//! data/v1/_state/service=…/version=…/day=….json                                     which of both counts
//! ```
//! A name of a folder is `key=value`, as Hive has it, so that DuckDB, Spark and others see the four as columns.

pub mod compact;
pub mod pack;
pub mod read;
pub mod write;

/// The tables of the set, `recordings` last: a recording counts when it is there.
pub const TABLES: [&str; 9] =
    ["sites", "site_minutes", "verdicts", "stacks", "frames", "threads", "modules", "marks", "timeline"];
/// Those that recordings may lack which were packed before there was such a table.
pub const ADDED: [&str; 1] = ["site_minutes"];
/// The table that has a row for each recording.
pub const RECORDINGS: &str = "recordings";
/// Where the set begins.
pub const ROOT: &str = "data/v1";

/// `key=value` with what a path cannot hold as `%XX`, as Hive writes it.
pub fn partition(key: &str, value: &str) -> String {
    let mut out = format!("{key}=");
    for byte in value.bytes().take(100) {
        if byte.is_ascii_alphanumeric() || b"-_.+@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    // Not a name of its own: an empty value, or dots alone.
    if out[key.len() + 1..].bytes().all(|byte| byte == b'.') {
        out.push('_');
    }
    out
}

/// The value of a partition.
pub fn value_of<'a>(path: &'a str, key: &str) -> Option<&'a str> {
    path.split('/').find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
}

/// A value as it was before [`partition`].
pub fn unescape(value: &str) -> String {
    let bytes = value.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let code =
            value.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_names_of_folders_and_come_back() {
        for value in ["api", "a/b", "../..", "ü %41", "1.2.3-rc+4"] {
            let folder = partition("service", value);
            assert!(!folder.contains('/') && folder != "service=..", "{folder}");
            assert_eq!(unescape(value_of(&format!("x/{folder}/y"), "service").unwrap()), value);
        }
        assert_eq!(partition("version", ""), "version=_");
        assert_eq!(partition("version", ".."), "version=.._");
    }
}
