//! What recording costs, in figures that a busy machine does not change: instructions by callgrind, bytes of stack,
//! bytes of the page. `tests/costs.json` holds them with a tolerance; `COSTS=write` writes what was measured there.
//!
//! A figure that is far below its golden fails, too: write the better one down, so that it is kept.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tracehound_tests::{compile, library, plain, root, trace};

const PAIRS: u64 = 20_000;

/// What a program runs under.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Under {
    Nothing,
    Recorder,
    /// `TRACEHOUND_START=off`.
    RecorderAsleep,
}

/// Instructions of the program's first thread under callgrind.
fn instructions(program: &Path, args: &[&str], under: Under) -> u64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--separate-threads=yes", "--trace-children=yes"]);
    command.arg(format!("--callgrind-out-file={}/callgrind.%p", folder.path().display()));
    // The variable is set inside, so that valgrind's own launcher is not recorded.
    command.arg("/usr/bin/env");
    if under == Under::RecorderAsleep {
        command.arg("TRACEHOUND_START=off");
    }
    if under != Under::Nothing {
        command.arg(format!("LD_PRELOAD={}", library().display()));
        command.arg(format!("TRACEHOUND_OUTPUT={}", folder.path().join("memory-%p.dat").display()));
        // Valgrind's launcher, which runs between env and the program, hands the recorder on.
        command.arg("TRACEHOUND_CHILDREN=1");
    }
    let output = command.arg(program).args(args).output().expect("valgrind can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder.path()).expect("the counts").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("callgrind.") && name.ends_with("-01") {
            let text = std::fs::read_to_string(entry.path()).expect("a count");
            let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse::<u64>().ok());
            found.push(total.expect("a total"));
        }
    }
    assert_eq!(found.len(), 1, "one process, one first thread");
    found[0]
}

/// Instructions that recording, or a recorder asleep, adds to one malloc and free whose stack is known.
fn pair(shape: &str, under: Under) -> f64 {
    let program = compile("../overhead/programs/stacks.c", &["-O2"]);
    let of = |under| {
        let count = |pairs: u64| instructions(&program, &[shape, &pairs.to_string()], under);
        (count(2 * PAIRS) - count(PAIRS)) as f64 / PAIRS as f64
    };
    of(under) - of(Under::Nothing)
}

/// Instructions that recording adds to a program that does nothing.
fn start() -> f64 {
    let program = Path::new("/usr/bin/true");
    instructions(program, &[], Under::Recorder) as f64 - instructions(program, &[], Under::Nothing) as f64
}

/// Bytes of stack that recording adds below malloc and free.
fn stack() -> f64 {
    let program = compile("stack_use.c", &["-O2"]);
    let said = |stdout: &[u8]| -> f64 { String::from_utf8_lossy(stdout).trim().parse().expect("a number of bytes") };
    said(&trace(&program, &[], &[]).output.stdout) - said(&plain(&program, &[], &[]).stdout)
}

/// Bytes of the page's scripts and styles as they are sent: those that its document names, which its first view needs,
/// or all of them.
fn page(all: bool) -> f64 {
    let folder = root().join("web/dist/assets");
    let files = std::fs::read_dir(&folder).expect("the page is built: `make web`").flatten();
    let document = std::fs::read_to_string(root().join("web/dist/index.html")).expect("the page is built");
    let is_named = |path: &Path| document.contains(path.file_name().and_then(|name| name.to_str()).unwrap_or("?"));
    let compressed = |path: &Path| {
        let output = Command::new("gzip").args(["-9", "-n", "-c"]).arg(path).output().expect("gzip is installed");
        assert!(output.status.success());
        output.stdout.len()
    };
    let of_page = |path: &Path| path.extension().is_some_and(|e| e == "js" || e == "css");
    files
        .map(|entry| entry.path())
        .filter(|path| of_page(path) && (all || is_named(path)))
        .map(|path| compressed(&path) as f64)
        .sum()
}

#[test]
fn costs_are_what_is_written_down() {
    let path = root().join("tests/costs.json");
    let text = std::fs::read_to_string(&path).expect("tests/costs.json");
    let mut goldens: serde_json::Map<String, Value> = serde_json::from_str(&text).expect("JSON");
    let measured = [
        ("instructions of a known pair, depth 10", pair("reenter10", Under::Recorder)),
        ("instructions of a known pair, depth 50", pair("reenter50", Under::Recorder)),
        ("instructions of a pair that passes through", pair("reenter10", Under::RecorderAsleep)),
        ("instructions of a start", start()),
        ("bytes of stack of a known pair", stack()),
        ("bytes of the page before its first view, compressed", page(false)),
        ("bytes of the page, compressed", page(true)),
    ];
    let write = std::env::var_os("COSTS").is_some_and(|value| value == "write");
    let mut wrong = Vec::new();
    assert_eq!(goldens.len(), measured.len(), "a golden for each figure");
    for (name, figure) in measured {
        let golden = goldens.get_mut(name).unwrap_or_else(|| panic!("{name} is not in {}", path.display()));
        let value = golden["value"].as_f64().expect("a number");
        let tolerance = golden["tolerance_percent"].as_f64().expect("a number");
        println!("{name}: {figure:.0}, golden {value:.0}, tolerance {tolerance} %");
        if write {
            golden["value"] = Value::from(figure.round() as u64);
        } else if (figure - value).abs() > value * tolerance / 100.0 {
            wrong.push(format!("{name}: {figure:.0}, and not {value:.0} to {tolerance} %"));
        }
    }
    if write {
        let text = serde_json::to_string_pretty(&goldens).expect("JSON") + "\n";
        std::fs::write(&path, text).expect("tests/costs.json can be written");
    }
    assert!(wrong.is_empty(), "{}\nif that is meant: COSTS=write, and say in the commit why", wrong.join("\n"));
}
