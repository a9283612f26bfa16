//! One word for one thing: words that were replaced do not come back, and a type name has one definition.
//!
//! `docs/ARCHITECTURE.md` has the glossary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tracehound_tests::root;

/// Replaced words, and the words used instead.
const REPLACED: [(&str, &str); 35] = [
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
    ("unborn", "not yet allocated"),
    ("forests", "verified chains"),
    ("foreseen", "predicted"),
    ("foretold", "predicted"),
    ("told", "reported, stated, known"),
    ("stands", "is, comes, is based on"),
    ("lay", "was, insert"),
];
/// Ordinary English with one of them.
const PHRASES: [&[&str]; 7] = [
    &["told", "apart"],
    &["told", "to"],
    &["until", "told"],
    &["stands", "for"],
    &["stands", "in", "for"],
    &["stands", "out"],
    &["lay", "out"],
];

/// Names that are fixed: keys of JSON, fields of the format, values of a parameter, a file of the index.
const FIXED: [&str; 8] =
    ["alloc_fate", "born_ns", "died_ns", "born_first_ns", "born_last_ns", "guessed_stacks", "born", "died"];
/// Where values of the parameter `sort` are read, written and described.
const SORT_VALUES: [&str; 6] = [
    "server/heaptrace/src/http/routes/allocations.rs",
    "server/query/src/allocations.rs",
    "docs/http-api.md",
    "web/src/features/allocations/allocations-view.tsx",
    "web/tests/",
    "web/e2e/",
];

fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().expect("git is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names in UTF-8");
    let wanted = |name: &&str| {
        // The page's types are generated, and repeat the interface.
        extensions.iter().any(|extension| name.ends_with(extension))
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

/// A word of a text, and the line and the identifier that it is in.
struct Word<'a> {
    line: usize,
    identifier: &'a str,
    word: String,
}

fn words_of_text(text: &str) -> Vec<Word<'_>> {
    let identifiers = text.lines().enumerate().flat_map(|(number, line)| {
        let parts = line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|part| !part.is_empty());
        parts.map(move |identifier| (number + 1, identifier))
    });
    let split = |(line, identifier)| {
        let parts = words(identifier).into_iter().filter(|word| !word.is_empty());
        parts.map(move |word| Word { line, identifier, word })
    };
    identifiers.flat_map(split).collect()
}

/// Whether the word at `at` is part of ordinary English; a phrase may go on in the next line.
fn is_in_a_phrase(text: &[Word<'_>], at: usize) -> bool {
    let is_there = |phrase: &[&str], first: usize| {
        text.get(first..first + phrase.len())
            .is_some_and(|there| there.iter().zip(phrase).all(|(there, word)| there.word == *word))
    };
    PHRASES.iter().any(|phrase| {
        let mut starts = (0..phrase.len()).filter(|&place| phrase[place] == text[at].word && place <= at);
        starts.any(|place| is_there(phrase, at - place))
    })
}

/// The replaced words of a text, as lines of a message.
fn replaced_in(name: &str, text: &str) -> Vec<String> {
    let has_sort_values = SORT_VALUES.iter().any(|place| name.starts_with(place));
    let is_fixed = |identifier: &str| FIXED.contains(&identifier) && (identifier.contains('_') || has_sort_values);
    let text = words_of_text(text);
    let mut wrong = Vec::new();
    for (at, Word { line, identifier, word }) in text.iter().enumerate() {
        let Some((old, new)) = REPLACED.iter().find(|(old, _)| old == word) else { continue };
        if !is_fixed(identifier) && !is_in_a_phrase(&text, at) {
            wrong.push(format!("{name}:{line}: {identifier}: not “{old}” but “{new}”"));
        }
    }
    wrong
}

#[test]
fn phrases_of_ordinary_english_are_allowed() {
    for text in ["kinds_are_told_apart", "is told to stop", "nothing until told.", "it stands\n/// for 0", "lay out"] {
        assert_eq!(replaced_in("a.rs", text), [""; 0], "{text}");
    }
    for text in
        ["fn told(", "told by it", "told_frames", "stands", "stands in a table", "Compared::Stands", "lay_reads"]
    {
        assert_eq!(replaced_in("a.c", text).len(), 1, "{text}");
    }
}

#[test]
fn replaced_words_stay_away() {
    let read_by_people = [".rs", ".ts", ".tsx", ".css", ".md", ".c", ".h", ".cpp", ".hpp", ".S", ".py", ".sh", ".mjs"];
    let in_file = |path: PathBuf| replaced_in(&path.to_string_lossy(), &read(&path));
    let wrong: Vec<_> = files(&read_by_people).into_iter().flat_map(in_file).collect();
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
