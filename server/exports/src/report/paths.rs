//! Paths of the machine inside a report: finds them for the warning, or takes all but their last part away.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;

/// Paths in a document.
pub struct FoundPaths {
    /// Different ones.
    pub count: usize,
    /// The longest, as an example.
    pub example: Option<String>,
}

/// An absolute path: at the start of a text, or after a character that paths are set apart by.
static PATH: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(^|[\s=:,;"'(])(/[^\s=:,;"')]+)"#).expect("the pattern is right"));

/// Looks for paths.
pub fn find(document: &Value) -> FoundPaths {
    let mut paths = BTreeSet::new();
    collect("", document, &mut paths);
    let example = paths.iter().max_by_key(|path| path.len()).cloned();
    FoundPaths { count: paths.len(), example }
}

fn collect(field: &str, value: &Value, paths: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if may_hold_paths(field, text) => {
            paths.extend(PATH.captures_iter(text).map(|found| found[2].to_owned()));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(field, value, paths)),
        Value::Object(fields) => fields.iter().for_each(|(field, value)| collect(field, value, paths)),
        _ => {}
    }
}

/// Names of functions may hold anything, but begin with a slash only where a source file stands for the function.
fn may_hold_paths(field: &str, text: &str) -> bool {
    text.starts_with('/') || (text.contains('/') && !matches!(field, "name" | "function"))
}

/// Leaves the last part of every path, and of command lines the program.
pub fn strip(document: &mut Value) {
    strip_field("", document);
}

fn strip_field(field: &str, value: &mut Value) {
    match value {
        Value::String(text) if may_hold_paths(field, text) => {
            let last = |found: &Captures<'_>| {
                let last = found[2].trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                format!("{}{last}", &found[1])
            };
            *text = PATH.replace_all(text, last).into_owned();
        }
        Value::Array(values) => {
            if field == "arguments" {
                values.truncate(1);
            }
            values.iter_mut().for_each(|value| strip_field(field, value));
        }
        Value::Object(fields) => fields.iter_mut().for_each(|(field, value)| strip_field(field, value)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_found_and_stripped() {
        let mut document = json!({"process": {"executable": "/home/me/app", "arguments": ["/home/me/app", "--key=1"]},
            "options": ["OUT=/home/me/out.dat"], "why": "cannot read '/root/x' (/root/y)",
            "frames": [{"file": "/home/me/src/a.c", "name": "operator/ (/x)"}], "relative": "src/b.c"});
        let found = find(&document);
        assert_eq!((found.count, found.example.as_deref()), (5, Some("/home/me/src/a.c")));
        strip(&mut document);
        assert_eq!(find(&document).count, 0);
        assert_eq!(
            document,
            json!({"process": {"executable": "app", "arguments": ["app"]},
                "options": ["OUT=out.dat"], "why": "cannot read 'x' (y)",
                "frames": [{"file": "a.c", "name": "operator/ (/x)"}], "relative": "src/b.c"})
        );
    }
}
