//! `heaptrace push`: a server of profiles has what the recording has, with its labels, at its time; and what it answers is
//! said.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;
use tracehound_tests::exporting::{export_of, run};
use tracehound_tests::fleet::{Fleet, running};
use tracehound_tests::{clients, compile, heaptrace, json, number, pprof_rules, root};

/// A request as it arrived.
struct Arrived {
    line: String,
    /// Names in lower case.
    headers: BTreeMap<String, String>,
    body: Value,
}

/// A server that gives these answers, one after the other; its address, and what arrives.
fn server(answers: &'static [(&'static str, &'static str)]) -> (String, Receiver<Arrived>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (arrived, requests) = channel();
    std::thread::spawn(move || {
        for (status, said) in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let mut headers = BTreeMap::new();
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).unwrap();
                let Some((name, value)) = header.trim_end().split_once(": ") else { break };
                headers.insert(name.to_ascii_lowercase(), value.to_owned());
            }
            let mut body = vec![0; headers["content-length"].parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            let body = serde_json::from_slice(&body).unwrap();
            arrived.send(Arrived { line: line.trim_end().to_owned(), headers, body }).unwrap();
            let length = said.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{said}");
            reader.get_mut().write_all(head.as_bytes()).unwrap();
        }
    });
    (address, requests)
}

fn push(arguments: &[&str], recording: &Path) -> (Output, String) {
    let mut command = Command::new(heaptrace());
    command.arg("push").args(arguments).arg(recording).env("HEAPTRACE_PUSH_TOKEN", "a secret");
    let output = command.output().expect("heaptrace can be started");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, said)
}

/// A recording with labels.
fn recorded() -> (Fleet, PathBuf) {
    let fleet = Fleet::default();
    let program = compile("planted.c", &["-O1", "-g"]);
    let labels = "service=shop,version=1.2,k8s.pod=front,empty=,__name__=cpu";
    assert!(fleet.traced(&program, labels).arg("leak").status().expect("it starts").success());
    let mut files = std::fs::read_dir(fleet.spool()).unwrap().map(|entry| entry.unwrap().path());
    let recording = files.find(|path| path.extension().is_some_and(|end| end == "dat")).expect("a recording");
    (fleet, recording)
}

/// What is left of a text of base64 behind base64 and gzip.
fn unpacked(text: &str) -> Vec<u8> {
    let mut command = Command::new("sh");
    command.args(["-c", "base64 -d | gzip -dc"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("sh is there");
    let mut input = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "it is base64 of gzip");
    output.stdout
}

fn pairs(labels: &Value) -> Vec<(&str, &str)> {
    let labels = labels.as_array().expect("labels");
    labels
        .iter()
        .map(|label| (label["name"].as_str().expect("a name"), label["value"].as_str().expect("a value")))
        .collect()
}

/// The profile is that of an export, at the end of the recording.
fn assert_profile(sample: &Value, recording: &Path) {
    let profile = unpacked(sample["rawProfile"].as_str().expect("a profile"));
    let totals = pprof_rules::totals(&profile);
    let exported = std::fs::read(export_of(recording, "pprof", "pushed.pb.gz")).unwrap();
    let mut gzip = Command::new("gzip").arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    gzip.stdin.take().unwrap().write_all(&exported).unwrap();
    let exported = gzip.wait_with_output().unwrap().stdout;
    assert_eq!(totals, pprof_rules::totals(&exported));
    let info = json(&["info"], recording);
    assert_eq!(totals["inuse_space"], number(&info, "/leaked/bytes"), "{totals:?}");
    assert!(totals["inuse_space"] > 0);
    let (time, duration) = pprof_rules::time_and_duration(&exported);
    assert!(duration > 0 && time > 0);
    assert_eq!(pprof_rules::time_and_duration(&profile), (time + duration, 0), "the end, as one moment");
}

#[test]
fn parca_has_the_profile_after_it_was_too_busy() {
    let (_fleet, recording) = recorded();
    let (address, requests) = server(&[("503 Service Unavailable", "not ready"), ("200 OK", "{}")]);
    let url = format!("http://{address}/profiles/");
    let (output, said) = push(&["parca", &url, "--label", "env=live", "--label", "version="], &recording);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("says 503 Service Unavailable: not ready; trying again in 1 s (attempt 2 of 4)"), "{said}");
    assert!(said.contains("sent ") && said.contains("service_name=shop"), "{said}");
    let (first, second) = (requests.recv().unwrap(), requests.recv().unwrap());
    assert_eq!(first.body, second.body);
    assert_eq!(second.line, "POST /profiles/api/profiles/writeraw HTTP/1.1");
    assert_eq!(second.headers["authorization"], "Bearer a secret");
    assert_eq!(second.headers["content-type"], "application/json");
    let [series] = second.body["series"].as_array().unwrap().as_slice() else { panic!("{}", second.body) };
    let labels = pairs(&series["labels"]["labels"]);
    assert_eq!(labels, [("__name__", "memory"), ("env", "live"), ("k8s_pod", "front"), ("service_name", "shop")]);
    let [sample] = series["samples"].as_array().unwrap().as_slice() else { panic!("one profile") };
    assert_profile(sample, &recording);
}

#[test]
fn pyroscope_has_the_profile_of_a_tenant() {
    let (_fleet, recording) = recorded();
    let (address, requests) = server(&[("200 OK", "{}")]);
    let (output, said) = push(&["pyroscope", &format!("http://{address}"), "--tenant", "team-a"], &recording);
    assert!(output.status.success(), "{said}");
    let request = requests.recv().unwrap();
    assert_eq!(request.line, "POST /push.v1.PusherService/Push HTTP/1.1");
    assert_eq!(request.headers["x-scope-orgid"], "team-a");
    let [series] = request.body["series"].as_array().unwrap().as_slice() else { panic!("{}", request.body) };
    assert_eq!(
        pairs(&series["labels"]),
        [
            ("__name__", "memory"),
            ("__delta__", "false"),
            ("k8s_pod", "front"),
            ("service_name", "shop"),
            ("version", "1.2")
        ]
    );
    let [sample] = series["samples"].as_array().unwrap().as_slice() else { panic!("one profile") };
    assert_profile(sample, &recording);
}

/// The server that is made of what Pyroscope's own API declares and of pprof's parser; Go builds it.
fn profiles() -> PathBuf {
    let program = clients().join("bin/profiles");
    let mut command = Command::new("go");
    command.args(["build", "-o"]).arg(&program).arg(".").current_dir(root().join("tests/clients/profiles"));
    let output = command.output().expect("go is installed by tests/needs.sh");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

#[test]
fn what_pyroscope_declares_takes_it_and_pprofs_parser_opens_it() {
    let (_fleet, recording) = recorded();
    let program = profiles();
    let mut server = running({
        let mut command = Command::new(&program);
        command.stdout(Stdio::piped());
        command
    });
    let mut said = BufReader::new(server.stdout.take().expect("what it prints"));
    let mut line = || {
        let mut line = String::new();
        said.read_line(&mut line).expect("it prints");
        line
    };
    let url = format!("http://{}", line().trim());
    let (output, pushed) = push(&["pyroscope", &url], &recording);
    assert!(output.status.success(), "{pushed}");
    let arrived: Value = serde_json::from_str(&line()).expect("JSON");
    let labels = &arrived["labels"];
    assert_eq!((&labels["service_name"], &labels["__delta__"]), (&"shop".into(), &"false".into()), "{arrived}");
    let info = json(&["info"], &recording);
    for (kind, path) in [("inuse_space", "/leaked/bytes"), ("alloc_space", "/allocations/bytes")] {
        assert_eq!(number(&arrived["totals"], &format!("/{kind}")), number(&info, path), "{kind}: {arrived}");
    }
    let names = arrived["names"].as_array().expect("names");
    assert!(names.contains(&"session_open".into()) && arrived["period_type"] == "space/bytes", "{arrived}");
    // What is exported to a file, too.
    let exported = export_of(&recording, "pprof", "parsed.pb.gz");
    let of_file: Value = serde_json::from_str(&run(&program, &[&exported])).expect("JSON");
    assert_eq!((&of_file["totals"], &of_file["samples"]), (&arrived["totals"], &arrived["samples"]));
}

#[test]
fn what_a_server_refuses_is_said() {
    let (_fleet, recording) = recorded();
    // What it refuses is not sent again, and a password is not printed.
    let (address, requests) = server(&[("401 Unauthorized", "who are you?\u{1b}[31m")]);
    let (output, said) = push(&["parca", &format!("http://me:hidden@{address}")], &recording);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("was not sent") && said.contains("says 401 Unauthorized (HEAPTRACE_PUSH_TOKEN"), "{said}");
    assert!(!said.contains("hidden") && !said.contains('\u{1b}') && !said.contains("a secret"), "{said}");
    assert_eq!(requests.iter().count(), 1);

    let (address, requests) = server(&[("500 Internal Server Error", ""), ("502 Bad Gateway", "")]);
    let (output, said) = push(&["pyroscope", &format!("http://{address}"), "--attempts", "2"], &recording);
    assert!(
        !output.status.success() && said.contains("says 502 Bad Gateway") && said.contains("tried 2 times"),
        "{said}"
    );
    assert_eq!(requests.iter().count(), 2);

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (output, said) = push(&["parca", &format!("http://{nobody}"), "--attempts", "1"], &recording);
    assert!(!output.status.success() && said.contains("no answer from") && said.contains("tried once"), "{said}");

    // An answer that does not come.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let (output, said) = push(&["parca", &url, "--attempts", "1", "--timeout", "1"], &recording);
    assert!(!output.status.success() && said.contains("in time"), "{said}");

    // Nothing is asked where the question is wrong.
    for (arguments, why) in [
        (&["parca", "localhost:7070"][..], "http://"),
        (&["grafana", "http://localhost"], "parca"),
        (&["parca", "http://localhost", "--label", "a-b=c"], "no name of a label"),
    ] {
        let (output, said) = push(arguments, &recording);
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
    }
    let (output, said) = push(&["parca", "http://localhost"], Path::new("/nowhere.dat"));
    assert!(!output.status.success() && said.contains("no profile of /nowhere.dat"), "{said}");
}
