//! A collector as a service: TLS, its figures, profiles for scrapers, and what processes publish of themselves.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tracehound_tests::fleet::{Fleet, free_address, running};
use tracehound_tests::process::Running;
use tracehound_tests::{clients, compile, heaptrace, number, pprof_rules, root, wait_for};

const TOKEN: &str = "a secret of sixteen";

/// What is at a path of a collector, if it is there.
fn http(address: &str, path: &str) -> Option<Vec<u8>> {
    let (status, body) = http_any(address, path)?;
    (status == 200).then_some(body)
}

/// The same with the status of the answer.
fn http_any(address: &str, path: &str) -> Option<(u16, Vec<u8>)> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let status = std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()?;
    Some((status, answer[end + 4..].to_vec()))
}

/// A figure of `/metrics`.
fn metric(address: &str, name: &str) -> Option<f64> {
    let text = String::from_utf8(http(address, "/metrics")?).expect("UTF-8");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("tracehound_collect_{name} ")))?;
    Some(line.parse().expect("a number"))
}

fn status(address: &str) -> Value {
    serde_json::from_slice(&http(address, "/v1/status").expect("a collector")).expect("JSON")
}

fn openssl(folder: &Path, arguments: &str) {
    let arguments = arguments.split_ascii_whitespace();
    let output = Command::new("openssl").current_dir(folder).args(arguments).output().expect("openssl is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A certificate for 127.0.0.1 (`cert.pem`, `key.pem`), and that of its issuer (`ca.pem`), in a folder.
fn certificates(folder: &Path) {
    openssl(folder, "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=issuer -days 2");
    openssl(folder, "req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=collector");
    std::fs::write(folder.join("extensions"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl(
        folder,
        "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 -extfile extensions",
    );
}

#[test]
fn collectors_talk_by_tls() {
    let fleet = Fleet::default();
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let (address, ca) = (free_address(), folder.path().join("ca.pem"));
    let mut command = Command::new(heaptrace());
    command.args(["collect", "--listen", &address, "--store", &fleet.store, "--tls-cert"]);
    command.arg(folder.path().join("cert.pem")).arg("--tls-key").arg(folder.path().join("key.pem"));
    let _collector = running({
        command.env("HEAPTRACE_TOKEN", TOKEN);
        command
    });
    let url = format!("https://{address}");
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let ask = |url: &str, token: &str, ca: Option<&Path>| {
        let mut command = Command::new(heaptrace());
        command.args(["collect", "status", url]).env("HEAPTRACE_TOKEN", token).env_remove("HEAPTRACE_CA");
        if let Some(ca) = ca {
            command.arg("--ca").arg(ca);
        }
        command.output().expect("heaptrace can be started")
    };
    wait_for("the collector", Duration::from_secs(30), || ask(&url, TOKEN, Some(&ca)).status.success());

    // A spool of another host, and a program by itself.
    let program = compile("planted.c", &["-O1", "-g"]);
    assert!(fleet.traced(&program, "service=other").arg("none").status().expect("it starts").success());
    let mut other = Command::new(heaptrace());
    other.args(["collect", "--once", "--store", &url, "--spool"]).arg(fleet.spool()).arg("--ca").arg(&ca);
    let output = other.env("HEAPTRACE_TOKEN", TOKEN).output().expect("heaptrace can be started");
    assert!(output.status.success(), "{}", said(&output));
    let mut alone = Command::new(heaptrace());
    alone.args(["run", "-o"]).arg(folder.path().join("alone-%p")).arg("--").arg(&program).arg("leak");
    alone.env("TRACEHOUND_COLLECTOR", &url).env("HEAPTRACE_TOKEN", TOKEN).env("HEAPTRACE_CA", &ca);
    let output = alone.output().expect("heaptrace can be started");
    assert!(output.status.success() && said(&output).contains(&format!("sent to {url}")), "{}", said(&output));
    assert_eq!(fleet.recordings().len(), 2);

    // Who does not know the issuer sends nothing; who has another token, or does not speak TLS, gets nothing.
    let output = ask(&url, TOKEN, None);
    assert!(!output.status.success() && said(&output).contains("certificate"), "{}", said(&output));
    assert!(said(&output).lines().count() == 1, "{}", said(&output));
    let output = ask(&url, "another of sixteen", Some(&ca));
    assert!(!output.status.success() && said(&output).contains("the token is missing or wrong"), "{}", said(&output));
    assert!(!ask(&format!("http://{address}"), TOKEN, None).status.success());
    // Whoever connects and says nothing holds nobody up.
    let silent: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(&address).expect("it listens")).collect();
    assert!(ask(&url, TOKEN, Some(&ca)).status.success());
    drop(silent);

    // What does not fit is said in a sentence.
    for (certificate, key, why) in [
        ("cert.pem", "ca.key", "do not fit"),
        ("key.pem", "key.pem", "has no certificate"),
        ("nothing.pem", "key.pem", "cannot read the certificate"),
        ("cert.pem", "cert.pem", "cannot read the key"),
    ] {
        let mut command = Command::new(heaptrace());
        command.args(["collect", "--listen", &free_address(), "--store", &fleet.store, "--tls-cert"]);
        command.arg(folder.path().join(certificate)).arg("--tls-key").arg(folder.path().join(key));
        let output = command.output().expect("heaptrace can be started");
        assert!(!output.status.success() && said(&output).contains(why), "{certificate}, {key}: {}", said(&output));
    }
}

/// A program that has ended waits for a collector that is being restarted, and says so.
#[test]
fn a_collector_that_is_away_is_waited_for_aloud() {
    let fleet = Fleet::default();
    let address = free_address();
    let mut alone = Command::new(heaptrace());
    alone.args(["run", "-o"]).arg(fleet.spool().join("alone-%p.dat")).arg("--").arg(compile("five.c", &[]));
    alone.env("TRACEHOUND_COLLECTOR", &address).stderr(Stdio::piped());
    let mut alone = alone.spawn().expect("heaptrace can be started");
    let mut lines = BufReader::new(alone.stderr.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("it says more").expect("text");
    while !next().contains("; trying again for 30 s") {}
    let other = fleet.spool().join("other");
    std::fs::create_dir(&other).expect("a folder");
    let _collector = running(Fleet::collector(&other, &fleet.store, &["--listen", &address]));
    while !next().contains(&format!("sent to {address}")) {}
    assert!(alone.wait().expect("it ends").success());
}

/// What `gzip` has packed.
fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip").arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gzip");
    let (mut input, bytes) = (child.stdin.take().expect("a pipe"), bytes.to_vec());
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && writer.join().expect("it ends").is_ok());
    output.stdout
}

/// A collector of a spool that answers at an address, and a program that allocates until it is dropped.
fn collector_and_program(fleet: &Fleet, store: &str, service: &str, rest: &str) -> (String, Running, Running) {
    let address = free_address();
    let mut command = Fleet::collector(&fleet.spool(), store, &["--listen", &address, "--interval", "50"]);
    command.stderr(Stdio::null());
    let collector = running(command);
    let mut program = fleet.traced(&compile("counted_blocks.c", &["-O1"]), &format!("service={service},version=3"));
    program.arg(fleet.spool().join("done")).args(["0", rest]);
    let program = running(program);
    wait_for("the collector", Duration::from_secs(30), || http(&address, "/metrics").is_some());
    (address, collector, program)
}

#[test]
fn rates_lags_and_losses_are_shown() {
    let fleet = Fleet::default();
    let (address, collector, program) = collector_and_program(&fleet, &fleet.store, "live", "200");
    let rate = || metric(&address, "shipped_bytes_per_second").unwrap_or(0.0);
    wait_for("a rate", Duration::from_secs(60), || rate() > 0.0);
    let page = String::from_utf8(http(&address, "/").expect("a page")).unwrap();
    assert!(page.contains("/s") && page.contains("lag "), "{page}");
    assert_eq!(metric(&address, "lost_events_total"), Some(0.0));
    let document = status(&address);
    assert_eq!(document["recordings"].as_object().expect("recordings").len(), 1, "{document}");
    drop(program);
    wait_for("the whole recording", Duration::from_secs(60), || {
        metric(&address, "packed_recordings_total") == Some(1.0) && metric(&address, "lag_bytes") == Some(0.0)
    });
    assert_eq!(metric(&address, "lag_seconds"), Some(0.0));
    drop(collector);

    // A store that is away: the lag grows.
    let nowhere = format!("http://{}", free_address());
    let (address, _collector, program) = collector_and_program(&fleet, &nowhere, "live", "200");
    let lag = || metric(&address, "lag_seconds").unwrap_or(0.0);
    wait_for("a lag", Duration::from_secs(60), || lag() > 1.5);
    let bytes = metric(&address, "lag_bytes").expect("a figure");
    assert!(bytes > 0.0, "{bytes}");
    wait_for("a larger lag", Duration::from_secs(60), || metric(&address, "lag_bytes").is_some_and(|now| now > bytes));
    let document = status(&address);
    let (_, known) = document["recordings"].as_object().expect("recordings").iter().next().expect("one");
    assert_eq!((&known["state"], &known["service"]), (&"waiting".into(), &"live".into()), "{document}");
    assert!(known["lag_seconds"].as_f64().is_some_and(|lag| lag > 1.5), "{document}");
    assert_eq!(metric(&address, "waiting_recordings"), Some(1.0));

    // A recording that somebody takes away before it was shipped is lost.
    drop(program);
    let recordings: Vec<PathBuf> = std::fs::read_dir(fleet.spool()).unwrap().map(|e| e.unwrap().path()).collect();
    recordings.iter().filter(|path| path.is_file()).for_each(|path| std::fs::remove_file(path).unwrap());
    wait_for("the loss", Duration::from_secs(60), || metric(&address, "lost_recordings_total") == Some(1.0));
}

#[test]
fn events_that_a_recorder_dropped_are_counted() {
    let fleet = Fleet::default();
    let address = free_address();
    let _collector = running(fleet.collect(&["--listen", &address, "--interval", "50"]));
    wait_for("the collector", Duration::from_secs(30), || http(&address, "/metrics").is_some());
    let mut program = fleet.traced(&compile("churn.c", &["-O1"]), "service=hasty");
    let program = program.arg("3000").env("TRACEHOUND_BUFFER", "1M").env("TRACEHOUND_ON_FULL", "drop");
    assert!(program.status().expect("it starts").success());
    wait_for("its tables", Duration::from_secs(120), || metric(&address, "packed_recordings_total") == Some(1.0));
    let stored = fleet.recordings();
    let info = tracehound_tests::json(&["info"], &stored[0]);
    assert_eq!(metric(&address, "lost_events_total"), Some(number(&info, "/events/lost") as f64), "{info}");
    assert!(number(&info, "/events/lost") > 0, "the program was to be faster than the recorder: {info}");
}

#[test]
fn scrapers_get_profiles() {
    let fleet = Fleet::default();
    let program = compile("planted.c", &["-O1", "-g"]);
    assert!(fleet.traced(&program, "service=shop,version=1").arg("leak").status().expect("it starts").success());
    fleet.collect_all(&[]);
    let leaked = number(&tracehound_tests::json(&["info"], &fleet.recordings()[0]), "/leaked/bytes");
    let id = fleet.recordings()[0].file_stem().expect("a name").to_string_lossy().into_owned();
    let (address, _collector, _program) = collector_and_program(&fleet, &fleet.store, "live", "2000");

    // One that is in the store, by its id and by its service.
    for asked in [format!("recording={id}"), "service=shop".into(), "service=shop&version=1&gc=1".into()] {
        let profile = http(&address, &format!("/debug/pprof/heap?{asked}")).expect("a profile");
        let totals = pprof_rules::totals(&unpacked(&profile));
        assert_eq!(totals.get("inuse_space"), Some(&leaked), "{asked}: {totals:?}");
    }
    // One that grows.
    let grown = || {
        let profile = unpacked(&http(&address, "/debug/pprof/allocs?service=live")?);
        // It may be asked for before the first allocation is in the store.
        let totals = pprof_rules::has_samples(&profile).then(|| pprof_rules::totals(&profile))?;
        totals.get("alloc_space").copied().filter(|bytes| *bytes > 0)
    };
    wait_for("a profile of a program that runs", Duration::from_secs(60), || grown().is_some());
    let first = grown().expect("bytes");
    wait_for("more of it", Duration::from_secs(60), || grown().is_some_and(|now| now > first));

    for (path, wanted, words) in [
        ("/debug/pprof/heap", 400, "there are"),
        ("/debug/pprof/goroutine?service=shop", 404, "known: heap, allocs"),
        ("/debug/pprof/heap?service=none", 404, "no such recording"),
        ("/debug/pprof/heap?recording=../../etc/passwd", 400, "32 hexadecimal digits"),
        ("/debug/pprof/heap?service=shop&seconds=0", 400, "seconds"),
        ("/debug/pprof/heap?nothing=1", 400, "nothing"),
    ] {
        let (status, body) = http_any(&address, path).expect("an answer");
        let body = String::from_utf8_lossy(&body);
        assert!(status == wanted && body.contains(words), "{path}: {status} {body}");
    }
}

#[test]
fn labels_are_what_the_process_publishes() {
    let python = clients().join("python/bin/python");
    let script = root().join("tests/clients/otel_resource.py");
    let context = |attributes: &[&str]| {
        let output = Command::new(&python).arg(&script).args(attributes).output().expect("Python is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let long = "x".repeat(300);
    let whole = context(&[
        "service.name=published",
        "service.version=4.2",
        "host.name=node-7",
        "deployment.environment=test",
        &format!("long={long}"),
    ]);
    let program = compile("otel_context.c", &["-O1"]);
    let collected = |message: &[u8], labels: &str| -> Value {
        let fleet = Fleet::default();
        let file = fleet.spool().join("message");
        std::fs::write(&file, message).unwrap();
        let mut command = fleet.traced(&program, labels);
        command.arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "published\n");
        let address = free_address();
        let _collector = running(fleet.collect(&["--listen", &address, "--interval", "50", "--no-tables"]));
        let is_seen = || http(&address, "/v1/status").is_some_and(|text| text.windows(9).any(|w| w == b"following"));
        wait_for("the collector to see it", Duration::from_secs(30), is_seen);
        drop(child.stdin.take());
        assert!(child.wait().expect("it ends").success());
        wait_for("the recording", Duration::from_secs(60), || metric(&address, "stored_recordings_total") == Some(1.0));
        let about = std::fs::read(fleet.recordings()[0].with_extension("json")).unwrap();
        serde_json::from_slice(&about).expect("JSON")
    };
    let about = collected(&whole, "");
    let names =
        |about: &Value| ["service", "version", "host"].map(|name| about[name].as_str().unwrap_or("").to_owned());
    assert_eq!(names(&about), ["published", "4.2", "node-7"], "{about}");
    assert_eq!(about["labels"]["deployment.environment"], "test", "{about}");
    assert_eq!(about["labels"]["long"], Value::Null, "{about}");
    assert!(about["cgroup"].as_str().is_some_and(|group| group.starts_with('/')), "{about}");
    // What its operator says goes first.
    let about = collected(&whole, "service=mine,version=5");
    assert_eq!(names(&about), ["mine", "5", "node-7"], "{about}");
    // What is damaged, or empty, names nothing.
    for message in [&whole[..1], &[0xff; 64][..]] {
        let about = collected(message, "");
        let [service, version, _] = names(&about);
        assert!(service.starts_with("otel_context") && version == "unknown", "{about}");
    }
}
