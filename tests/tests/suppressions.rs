//! Suppressions in LeakSanitizer's syntax: from the program itself, from a file, built in; what they hide is counted.

use std::process::Command;

use serde_json::{Value, json};
use tracehound_tests::http_client::Server;
use tracehound_tests::{Traced, ask, compile, functions, heaptrace, json, number, trace};

fn leaks(traced: &Traced, args: &[&str]) -> Value {
    json(&[&["leaks"], args].concat(), &traced.recording())
}

#[test]
fn a_program_brings_its_own() {
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-no-pie", "-fno-pie"]] {
        let traced = trace(compile("suppressed.c", flags), &[], &[]);
        let found = leaks(&traced, &["--show-suppressed"]);
        assert_eq!(found["leaked"], json!({"bytes": 30, "count": 1}), "{flags:?}");
        assert_eq!(found["suppressed"], json!({"bytes": 1000, "count": 1}));
        let used = &found["suppressions"][0];
        assert_eq!((&used["pattern"], &used["count"], &used["sites"]), (&json!("^known_leak$"), &json!(1), &json!(1)));
        assert!(used["origin"].as_str().expect("a path").contains("suppressed"), "{used}");
        assert_eq!(functions(&found["suppressed_sites"][0]["stack"])[0], "known_leak");
        let all = leaks(&traced, &["--no-program-suppressions"]);
        assert_eq!(all["leaked"], traced.info()["leaked"]);
        assert_eq!(all["suppressed"]["count"], 0);
    }
}

#[test]
fn a_report_leaves_out_what_the_command_does() {
    let traced = trace(compile("suppressed.c", &["-O0"]), &[], &[]);
    let path = traced.folder.path().join("report.html");
    let written = Command::new(heaptrace()).arg("report").arg(traced.recording()).arg("-o").arg(&path).output();
    assert!(written.is_ok_and(|output| output.status.success()));
    // The answers: gzip in base64.
    let unpack = "import base64, gzip, re, sys; text = open(sys.argv[1]).read();
found = re.search(r'<script[^>]*json[^>]*>([A-Za-z0-9+/=\\s]+)</script>', text);
sys.stdout.buffer.write(gzip.decompress(base64.b64decode(found.group(1))))";
    let unpacked = Command::new("python3").args(["-c", unpack]).arg(&path).output().expect("python3");
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    let report: Value = serde_json::from_slice(&unpacked.stdout).expect("the answers are JSON");
    let answers = report["answers"].as_array().expect("answers");
    let body = &answers.iter().find(|answer| answer["document"] == "leaks").expect("leaks are in it")["body"];
    let answer = leaks(&traced, &[]);
    for part in ["leaked", "suppressed", "suppressions"] {
        assert_eq!(body[part], answer[part], "{part}");
    }
    assert_eq!((number(body, "/leaked/bytes"), number(body, "/suppressed/bytes")), (30, 1000));
    assert!(body["sites"].as_array().expect("sites").iter().all(|site| functions(&site["stack"])[0] != "known_leak"));
}

#[test]
fn files_are_read_and_mistakes_named() {
    let traced = trace(compile("suppressed.c", &["-O0"]), &[], &[]);
    let path = traced.folder.path().join("list.supp");
    let file = path.to_str().expect("a plain path");
    std::fs::write(&path, "# ours\nleak:real_l*k\n").expect("the folder can be written");
    let found = leaks(&traced, &["--suppressions", file, "--no-program-suppressions"]);
    assert_eq!((number(&found, "/leaked/bytes"), number(&found, "/suppressed/bytes")), (1000, 30));
    assert_eq!(found["suppressions"][0]["origin"], file);
    let both = leaks(&traced, &["--suppressions", file]);
    assert_eq!((number(&both, "/leaked/bytes"), number(&both, "/suppressed/bytes")), (0, 1030));
    let text = String::from_utf8(ask(&["leaks", "--suppressions", file], &traced.recording()).stdout).expect("UTF-8");
    assert!(
        text.contains("30 B in 1 block by real_l*k") && text.contains("1000 B in 1 block by ^known_leak$"),
        "{text}"
    );

    std::fs::write(&path, "leak:x\nrace:y\n").expect("the folder can be written");
    let refused = ask(&["leaks", "--suppressions", file], &traced.recording());
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("line 2"), "{refused:?}");
}

#[test]
fn what_libc_keeps_can_be_left_out() {
    let traced = trace(compile("threads_short.c", &["-O1"]), &[], &[]);
    let (all, less) = (leaks(&traced, &[]), leaks(&traced, &["--builtin-suppressions"]));
    let sum = |document: &Value| number(document, "/leaked/bytes") + number(document, "/suppressed/bytes");
    assert_eq!(sum(&all), sum(&less));
    for used in less["suppressions"].as_array().expect("a list") {
        assert_eq!(used["origin"], "built in");
    }
    // The dynamic thread vectors of threads whose stacks the C library keeps for the next ones.
    assert!(number(&less, "/suppressed/count") > 0, "{less}");
}

#[test]
fn what_a_program_leaks_in_libc_is_not_left_out() {
    for (what, leak) in [("threads", "handle_request"), ("streams", "log_line"), ("converters", "convert")] {
        let traced = trace(compile("leaks_in_libc.c", &["-O0", "-pthread"]), &[what], &[]);
        assert!(traced.output.status.success(), "{}", traced.stderr());
        let less = leaks(&traced, &["--builtin-suppressions"]);
        let sites = less["sites"].as_array().expect("sites");
        let of_program = |site: &&Value| functions(&site["stack"]).iter().any(|name| name == leak);
        let found: u64 = sites.iter().filter(of_program).map(|site| number(site, "/count")).sum();
        assert!(found >= 200, "{what}: {less:#}");
        let check = ask(&["check", "--max-leaked", "2k"], &traced.recording());
        assert_eq!(check.status.code(), Some(1), "{what}: {}", String::from_utf8_lossy(&check.stdout));
    }
    // A few of them are by design.
    let traced = trace(compile("leaks_in_libc.c", &["-O0", "-pthread"]), &["few"], &[]);
    let less = leaks(&traced, &["--builtin-suppressions"]);
    assert!(number(&less, "/suppressed/count") >= 4, "{less:#}");
}

#[test]
fn the_server_says_what_the_command_says() {
    let traced = trace(compile("suppressed.c", &["-O0"]), &[], &[]);
    let server = Server::of(&traced.recording());
    for (query, args) in [
        ("", &[][..]),
        ("?show_suppressed=true", &["--show-suppressed"]),
        ("?program_suppressions=false", &["--no-program-suppressions"]),
        ("?suppress=real_leak", &["--suppress", "real_leak"]),
        ("?builtin_suppressions=true&show_suppressed=1", &["--builtin-suppressions", "--show-suppressed"]),
    ] {
        assert_eq!(server.get(&format!("leaks{query}")), leaks(&traced, args), "{query}");
    }
}

/// Without names nothing tells libstdc++'s reserve for exceptions from a block of the program's: it counts until there are
/// names.
#[test]
fn a_reserve_without_a_name_counts_and_names_bring_it_back() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let source = "#include <stdexcept>\n#include <cstdlib>\nint main(int n, char **) {\n\
                  try { if (n > 1) throw std::runtime_error(\"x\"); } catch (std::exception &) { return 1; }\n\
                  void *volatile own = std::malloc(72704); own = nullptr;\n}\n";
    std::fs::write(folder.path().join("app.cpp"), source).expect("the folder can be written");
    let done = |program: &str, args: &[&str]| {
        let status = Command::new(program).args(args).current_dir(folder.path()).status();
        assert!(status.is_ok_and(|status| status.success()), "{program} {args:?}");
    };
    done("g++", &["-O1", "-g", "-static-libstdc++", "-Wl,--build-id", "-o", "whole", "app.cpp"]);
    std::fs::create_dir(folder.path().join("debug")).expect("the folder can be written");
    for (name, strip) in [("bare", "--strip-all"), ("named", "--strip-debug")] {
        done("strip", &[strip, "-o", name, "whole"]);
        std::fs::copy(folder.path().join("whole"), folder.path().join("debug").join(name)).expect("it can be copied");
    }
    let left = |program: &str, options: &[&str]| {
        let traced = trace(folder.path().join(program), &[], &[]);
        let found = json(&[options, &["leaks", "--builtin-suppressions"]].concat(), &traced.recording());
        [number(&found, "/leaked/count"), number(&found, "/suppressed/count")]
    };
    let debug = folder.path().join("debug");
    assert_eq!(left("whole", &[]), [1, 1]);
    assert_eq!(left("named", &[]), [1, 1]);
    assert_eq!(left("bare", &[]), [2, 0]);
    assert_eq!(left("bare", &["--debug-dir", debug.to_str().expect("a plain path")]), [1, 1]);
}
