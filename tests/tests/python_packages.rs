//! Programs that use packages from PyPI: their output is what it is without the recorder, and where one keeps memory, the
//! function of the program that keeps it is named, not the package's that has allocated it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tracehound_tests::{heaptrace, json, number, root};

fn programs() -> PathBuf {
    root().join("tests/python/packages")
}

/// An interpreter that has the packages; installed once, into the target folder.
fn interpreter() -> PathBuf {
    static READY: OnceLock<PathBuf> = OnceLock::new();
    let ready = || {
        let output = Command::new(root().join("tests/python-packages.sh")).output().expect("the script can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    };
    READY.get_or_init(ready).clone()
}

fn run(mut command: Command, folder: &Path) -> Output {
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{command:?}: {:?} {}", output.status, String::from_utf8_lossy(&output.stderr));
    output
}

/// Runs these words with and without the recorder, and gives the recording.
fn same_output(words: &[&str], folder: &Path) -> PathBuf {
    let script = |command: &mut Command| {
        command.arg(interpreter()).args(words);
    };
    let mut plain = Command::new("env");
    script(&mut plain);
    let recording = folder.join("memory.dat");
    let mut traced = Command::new(heaptrace());
    traced.args(["run", "-o"]).arg(&recording).arg("--");
    script(&mut traced);
    let (plain, traced) = (run(plain, folder), run(traced, folder));
    let without_times = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(|line| line.split(" in ").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(without_times(&traced), without_times(&plain), "{words:?}");
    recording
}

/// The program keeps memory in this function, which is among the three that hold most at the peak.
fn keeps(program: &str, function: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = programs().join(program);
    let recording = same_output(&[path.to_str().unwrap()], folder.path());
    let summary = json(&["summary"], &recording);
    assert_eq!(summary["info"]["complete"], true, "{program}");
    let rows = summary["at_peak"]["rows"].as_array().unwrap();
    let named = rows.iter().take(3).find(|row| row["name"] == function);
    let named = named.unwrap_or_else(|| panic!("{program}: {function} is not among {rows:#?}"));
    assert_eq!(named["file"], path.to_str().unwrap());
    let source = std::fs::read_to_string(&path).unwrap();
    let head = source.lines().position(|line| line.starts_with(&format!("def {function}("))).unwrap() + 1;
    assert_eq!(number(named, "/line"), head as u64, "{program}");
    // And the line that allocates is that of its sites.
    let leak = source.lines().position(|line| line.ends_with("# the leak")).unwrap() as u64 + 1;
    let sites = json(&["sites", "--focus", &format!("^{function}$")], &recording);
    let sites = sites["sites"].as_array().unwrap();
    let largest = sites.iter().max_by_key(|site| number(site, "/at_peak/bytes")).unwrap();
    assert_eq!((&largest["function"], &largest["line"]), (&function.into(), &leak.into()), "{program}");
}

#[test]
fn numpy_and_pandas() {
    keeps("arrays.py", "remember_batch");
}

#[test]
fn requests_and_aiohttp() {
    keeps("web.py", "keep_body");
}

/// While a greenlet is switched to, the thread's state points to where Python's frames no longer are.
#[test]
fn gevent() {
    keeps("greenlets.py", "keep_message");
}

#[test]
fn fastapi() {
    keeps("fastapi_service.py", "open_session");
}

#[test]
fn django() {
    keeps("django_service.py", "keep_page");
}

#[test]
fn pytest() {
    let folder = tempfile::tempdir().unwrap();
    let tests = programs().join("test_sample.py");
    let words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", tests.to_str().unwrap()];
    let recording = same_output(&words, folder.path());
    assert_eq!(json(&["info"], &recording)["complete"], true);
}
