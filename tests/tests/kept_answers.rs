//! Answers that are kept beside the index (`*.kept`) change nothing, whatever is in their files.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tracehound_tests::ground_truth::Case;
use tracehound_tests::http_client::Server;
use tracehound_tests::{heaptrace, wait_for};

fn answer(arguments: &[&str], recording: &Path) -> String {
    let output = Command::new(heaptrace()).args(arguments).arg(recording).output().expect("heaptrace can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("JSON is UTF-8")
}

/// What is asked.
const QUESTIONS: [&[&str]; 6] = [
    &["leaks", "--json"],
    &["leaks", "--json", "--sites", "7"],
    &["leaks", "--json", "--suppress", "descend", "--show-suppressed", "--sites", "7"],
    &["leaks", "--json", "--from", "peak", "--sites", "7"],
    &["leaks", "--json", "--min-size", "33", "--sites", "7"],
    &["summary", "--json"],
];

fn answers(recording: &Path) -> Vec<String> {
    QUESTIONS.iter().map(|question| answer(question, recording)).collect()
}

fn kept_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read").flatten().map(|entry| entry.path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "kept"));
    let mut all: Vec<PathBuf> = own.chain(folders.iter().flat_map(|folder| kept_files(folder))).collect();
    all.sort();
    all
}

#[test]
fn what_is_kept_is_a_hint_and_no_more() {
    let run = Case::new("many_sites.c").run(true);
    let recording = run.recordings().remove(0);
    let made = answers(&recording);
    assert!(made[0].matches("\"verdict\"").count() >= 2048, "every site that leaks has its row");
    assert!(made[2..5].iter().all(|answer| *answer != made[1]), "suppressions, times and filters are honoured");
    let files = kept_files(run.folder.path());
    let names: Vec<_> = files.iter().filter_map(|file| file.file_stem()?.to_str()).collect();
    assert_eq!(names, ["freed-late", "growing", "verdicts"]);
    let inodes = || files.iter().map(|file| std::fs::metadata(file).expect("it is there").ino()).collect::<Vec<_>>();
    let written = inodes();
    assert_eq!(answers(&recording), made, "from the files");
    assert_eq!(inodes(), written, "nothing is judged, and written, a second time");

    // Each question by itself, with nothing that another one has kept.
    for (question, made) in QUESTIONS.iter().zip(&made) {
        for file in kept_files(run.folder.path()) {
            std::fs::remove_file(file).expect("it can be removed");
        }
        assert_eq!(answer(question, &recording), *made, "{question:?}");
    }
    assert_eq!(answers(&recording), made, "made anew");

    // As much as a gigabyte of zeros in a few kilobytes.
    let bomb = Command::new("sh").args(["-c", "head -c 3000000000 /dev/zero | zstd -q -c"]).output().map(|o| o.stdout);
    let bomb = bomb.ok().filter(|bytes| !bytes.is_empty()).unwrap_or_else(|| vec![0x28, 0xb5, 0x2f, 0xfd]);
    let good: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).expect("it can be read")).collect();
    for (at, file) in files.iter().enumerate() {
        let good_one = &good[at];
        let mut changed = good_one.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 0x10;
        let other = good[(at + 1) % good.len()].clone();
        let third = good_one[..good_one.len() / 3].to_vec();
        for hostile in [Vec::new(), b"no answer".to_vec(), third, changed, other, bomb.clone()] {
            std::fs::write(file, &hostile).expect("it can be written");
            assert_eq!(answer(QUESTIONS[0], &recording), made[0], "{} bytes of another content", hostile.len());
            assert_eq!(answer(QUESTIONS[5], &recording), made[5], "{} bytes of another content", hostile.len());
            // It is made anew.
            assert!(std::fs::read(file).expect("it can be read") == *good_one, "{}", file.display());
        }
    }
}

/// Where the server has an answer from, and the answer.
fn served(server: &Server, question: &str) -> (String, serde_json::Value) {
    let (head, document) = server.get_with_head(question);
    let origin = head.lines().find_map(|line| line.strip_prefix("server-timing: "));
    (origin.expect("the answer says where it is from").to_owned(), document)
}

#[test]
fn a_restarted_server_has_its_answers_at_once() {
    let run = Case::new("many_sites.c").run(true);
    let recording = run.recordings().remove(0);
    let questions =
        ["leaks?functions=19&limit=20", "leaks?min_size=33", "breakdown?by=function", "pins", "map", "churn"];
    let first = Server::of(&recording);
    let is_answer = |path: &PathBuf| path.to_string_lossy().contains("/answer-");
    let stored = || kept_files(run.folder.path()).into_iter().filter(is_answer).count();
    wait_for("what the overview asks for", Duration::from_secs(60), || stored() == 1);
    assert_eq!(served(&first, "leaks?limit=20&functions=20").0, "file", "nobody has asked for it before");
    let made = questions.map(|question| {
        let (origin, answer) = served(&first, question);
        assert_eq!(origin, "computed", "{question}");
        assert_eq!(served(&first, question), ("memory".to_owned(), answer.clone()), "{question}");
        answer
    });
    drop(first);
    let second = Server::of(&recording);
    for (question, made) in questions.iter().zip(&made) {
        assert_eq!(served(&second, question), ("file".to_owned(), made.clone()), "{question}");
    }
    assert_eq!(served(&second, "leaks?limit=20&functions=19").0, "file", "the order of parameters says nothing");
    assert_eq!(served(&second, "leaks?limit=21&functions=19").0, "computed", "another question");
    drop(second);

    // Names that came with the recording are other names.
    std::fs::write(format!("{}.symbols", recording.display()), b"no names").expect("it can be written");
    let third = Server::of(&recording);
    assert_eq!(served(&third, questions[0]), ("computed".to_owned(), made[0].clone()));
    drop(third);

    // Whatever is in the files.
    let documents = kept_files(run.folder.path());
    let documents: Vec<_> = documents.iter().filter(|path| is_answer(path)).collect();
    assert!(documents.len() > questions.len());
    let good = std::fs::read(documents[0]).expect("it can be read");
    for file in documents {
        let mut changed = good.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 0x10;
        std::fs::write(file, changed).expect("it can be written");
    }
    let fourth = Server::of(&recording);
    for (question, made) in questions.iter().zip(&made) {
        assert_eq!(served(&fourth, question), ("computed".to_owned(), made.clone()), "{question}");
    }
}
