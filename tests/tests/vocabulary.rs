//! One word for one thing: words that were replaced do not come back, and a type name has one definition.
//!
//! `docs/ARCHITECTURE.md` has the glossary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tracehound_tests::root;

/// Replaced words, and what stands for them.
const REPLACED: [(&str, &str); 28] = [
    ("bear", "allocate"),
    ("bears", "allocates"),
    ("bearing", "allocating"),
    ("bore", "allocated"),
    ("birth", "alloc, allocation"),
    ("births", "allocs, allocations"),
    ("rebirth", "realloc"),
    ("born", "allocated"),
    ("reborn", "reallocated"),
    ("death", "free"),
    ("deaths", "frees"),
    ("died", "freed"),
    ("dying", "free"),
    ("bury", "reap"),
    ("fate", "outcome, lifetime class"),
    ("fates", "outcomes, lifetime classes"),
    ("heritage", "inherited"),
    ("homeless", "contexts_unavailable"),
    ("foresee", "prefetch"),
    ("belief", "rule source"),
    ("forest", "verified chains"),
    ("stretch", "range, interval"),
    ("stretches", "ranges, intervals"),
    ("passage", "scan, pass"),
    ("guess", "heuristic, prediction"),
    ("guesses", "heuristics, predictions"),
    ("guessed", "heuristic, predicted"),
    ("plantable", "insertable"),
];

/// Names that are fixed: keys of JSON, fields of the format, values of a parameter, a file of the index.
const FIXED: [&str; 8] =
    ["alloc_fate", "born_ns", "died_ns", "born_first_ns", "born_last_ns", "guessed_stacks", "born", "died"];
/// Where values of the parameter `sort` are read, written and described.
const SORT_VALUES: [&str; 10] = [
    "server/heaptrace/src/http/routes/allocations.rs",
    "server/query/src/allocations.rs",
    "web/src/features/compare/compare-view.tsx",
    "docs/http-api.md",
    "web/src/features/allocations/allocations-view.tsx",
    "web/src/lib/",
    "web/tests/",
    "web/e2e/",
    "server/query/tests/",
    "server/heaptrace/tests/",
];

fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().expect("git is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names in UTF-8");
    let wanted = |name: &&str| {
        // Programs under test speak for themselves; generated files repeat the interface.
        extensions.iter().any(|extension| name.ends_with(extension))
            && !name.starts_with("tests/programs/")
            && !name.ends_with("schema.ts")
            && *name != "tests/tests/vocabulary.rs"
    };
    names.split_terminator('\0').filter(wanted).map(PathBuf::from).filter(|path| root().join(path).is_file()).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The words of an identifier: `DeathZone`, `death_zone` and `DEATH_ZONE` have two.
fn words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for letter in identifier.chars() {
        if letter == '_' || (lower && letter.is_uppercase()) {
            words.push(String::new());
        }
        if letter != '_' {
            words.last_mut().expect("there is one").extend(letter.to_lowercase());
        }
        lower = letter.is_lowercase();
    }
    words
}

#[test]
fn words_of_an_identifier() {
    assert_eq!(words("DeathZone"), ["death", "zone"]);
    assert_eq!(words("row_of_death"), ["row", "of", "death"]);
    assert_eq!(words("MAX_BIRTHS"), ["max", "births"]);
    assert_eq!(words("guess"), ["guess"]);
}

#[test]
fn replaced_words_stay_away() {
    let mut wrong = Vec::new();
    for path in files(&[".rs", ".ts", ".tsx", ".css", ".md"]) {
        let name = path.to_string_lossy().into_owned();
        for (number, line) in read(&path).lines().enumerate() {
            for identifier in line.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
                let fixed = FIXED.contains(&identifier)
                    && (identifier.contains('_') || SORT_VALUES.iter().any(|place| name.starts_with(place)));
                if fixed {
                    continue;
                }
                for word in words(identifier) {
                    if let Some((old, new)) = REPLACED.iter().find(|(old, _)| *old == word) {
                        wrong.push(format!("{name}:{}: {identifier}: not “{old}” but “{new}”", number + 1));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} places:\n{}", wrong.len(), wrong.join("\n"));
}

/// What of a Rust file comes before its unit tests.
fn without_tests(text: &str) -> &str {
    let at = ["#[cfg(test)]", "#[cfg(all(test,"].iter().filter_map(|mark| text.find(mark)).min();
    &text[..at.unwrap_or(text.len())]
}

#[test]
fn a_type_name_has_one_definition() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files(&[".rs"]) {
        let name = path.to_string_lossy().into_owned();
        let in_crates = ["collector/", "preload/", "format/", "server/", "fleet/", "replay/", "bindings/"];
        let is_source = in_crates.iter().any(|folder| name.starts_with(folder)) && name.contains("/src/");
        if !is_source || name.ends_with("tests.rs") {
            continue;
        }
        for line in without_tests(&read(&path)).lines() {
            let mut parts = line.split_whitespace().skip_while(|part| part.starts_with("pub"));
            let Some("struct" | "enum" | "trait" | "union") = parts.next() else { continue };
            let Some(rest) = parts.next() else { continue };
            let type_name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            // The file format's records and the interface's answers have the same name for the same thing.
            if type_name.is_empty() {
                continue;
            }
            found.entry(type_name).or_default().push(name.clone());
        }
    }
    let layers = ["format/src/meta.rs", "server/api/src/"];
    let same_thing = |places: &[String]| {
        places.len() == 2 && layers.iter().all(|layer| places.iter().any(|place| place.starts_with(layer)))
    };
    let twice: Vec<_> = found.iter().filter(|(_, places)| places.len() > 1 && !same_thing(places)).collect();
    assert!(found.len() > 300, "only {} types were found", found.len());
    assert!(twice.is_empty(), "{twice:#?}");
}

#[test]
fn a_type_name_of_the_page_has_one_definition() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files(&[".ts", ".tsx"]) {
        let name = path.to_string_lossy().into_owned();
        if !name.starts_with("web/src/") {
            continue;
        }
        for line in read(&path).lines() {
            let line = line.strip_prefix("export ").unwrap_or(line);
            let Some(rest) = line.strip_prefix("interface ").or_else(|| line.strip_prefix("type ")) else { continue };
            let type_name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            found.entry(type_name).or_default().push(name.clone());
        }
    }
    assert!(found.len() > 100, "only {} types were found", found.len());
    let twice: Vec<_> = found.iter().filter(|(_, places)| places.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:#?}");
}
