//! The HTTP interface as a client sees it.

mod support;

use serde_json::{Value, json};
use support::{Server, folder_with_sample, heaptrace, in_tree, sample};
use tracehound_api::sql::{SqlAnswer, SqlSchema};

const ID: &str = "/api/v1/recordings/r1";

#[test]
fn the_committed_description_is_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let printed = heaptrace(folder.path(), &["openapi"]);
    let committed = std::fs::read(in_tree("web/openapi.json")).unwrap();
    assert!(printed.stdout == committed, "web/openapi.json is out of date: heaptrace openapi > web/openapi.json");
    sample(&folder.path().join("app.dat"));
    let server = Server::start(folder.path(), &["app.dat"]);
    let served = server.json("/api/v1/openapi.json");
    assert_eq!(served, serde_json::from_slice::<Value>(&committed).unwrap());
}

/// Every route of the description with its parameters.
fn routes(server: &Server) -> Vec<(String, Vec<String>)> {
    let description = server.json("/api/v1/openapi.json");
    let paths = description["paths"].as_object().unwrap();
    // Two commands are posted, and answer nothing.
    let questions = paths.iter().filter(|(_, item)| item.get("get").is_some());
    let route = |(path, item): (&String, &Value)| {
        let parameters = item["get"]["parameters"].as_array().cloned().unwrap_or_default();
        let queries = parameters.iter().filter(|parameter| parameter["in"] == "query");
        let names = queries.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect();
        let path = path.replace("{id}", "r1").replace("{site}", "s0").replace("{format}", "json");
        (path, names)
    };
    questions.map(route).collect()
}

#[test]
fn every_route_answers_knows_its_parameters_and_no_others() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    let routes = routes(&server);
    assert!(routes.len() >= 17, "{routes:?}");
    for (path, names) in routes {
        let nonsense = server.get(&format!("{path}?nonsense=1"));
        assert_eq!(nonsense.status, 400, "{path}: {}", nonsense.text());
        // A stream, and a file.
        if path.ends_with("/live") || path.ends_with("/report") {
            continue;
        }
        // What these are about must be named.
        let is_open = path.ends_with("/source") || path.ends_with("/sql");
        if !is_open {
            assert_eq!(nonsense.json()["parameter"], "nonsense", "{path}");
            let plain = server.get(&path);
            assert_eq!(plain.status, 200, "{path}: {}", plain.text());
            let document = plain.json();
            assert!(document["schema"].as_str().unwrap().starts_with("heaptrace."), "{path}");
        }
        for name in names {
            // Whatever it means: it is known, which an empty value tells.
            let answer = server.get(&format!("{path}?{name}="));
            assert!(answer.status == 200 || is_open, "{path} {name}: {}", answer.text());
            assert!(!answer.text().contains("there is no parameter"), "{path} {name}: {}", answer.text());
        }
    }
}

#[test]
fn numbers_agree_between_documents_and_with_the_command_line() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    let info = server.json(ID);
    assert_eq!(info["allocations"], json!({"bytes": 100 * 64 + 1000 + 5000, "count": 102}));
    assert_eq!(info["leaked"], json!({"bytes": 10 * 64 + 5000, "count": 11}));
    assert_eq!(info["peak"]["bytes"], 100 * 64);
    let leaks = server.json(&format!("{ID}/leaks"));
    assert_eq!(leaks["leaked"], info["leaked"]);
    let flame = server.json(&format!("{ID}/flamegraph?metric=leaked"));
    assert_eq!(flame["total"], info["leaked"]["bytes"]);
    let functions = server.json(&format!("{ID}/functions?metric=allocated&unit=count"));
    assert_eq!(functions["total"], info["allocations"]["count"]);
    let printed =
        |arguments: &[&str]| -> Value { serde_json::from_slice(&heaptrace(folder.path(), arguments).stdout).unwrap() };
    assert_eq!(printed(&["info", "--json", "app.dat"]), info);
    assert_eq!(printed(&["leaks", "--json", "app.dat"]), leaks);
}

/// The sample's blocks of 64 bytes are most before the larger ones come.
#[test]
fn under_a_filter_the_peak_is_its_own() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    let total = |document: &serde_json::Value| {
        (document["total"].as_i64(), document["at_ns"].as_u64(), document["peak_of"].as_str().map(str::to_owned))
    };
    for (filter, bytes, at_ns, of) in [("", 6400, 1990, "heap"), ("&min_size=900", 5000, 11_010, "filter")] {
        let expected = (Some(bytes), Some(at_ns), Some(of.to_owned()));
        for answer in ["flamegraph?metric=peak", "functions?metric=peak", "flamegraph?at=peak", "functions?at=peak"] {
            assert_eq!(total(&server.json(&format!("{ID}/{answer}{filter}"))), expected, "{answer}{filter}");
        }
        let curve = server.json(&format!("{ID}/timeline?series=live_bytes{filter}"));
        assert_eq!((curve["peak"]["bytes"].as_i64(), curve["peak"]["at_ns"].as_u64()), (Some(bytes), Some(at_ns)));
        assert_eq!(curve["peak_of"], of);
        let highest =
            curve["series"][0]["max"].as_array().unwrap().iter().filter_map(|v| v.as_f64()).fold(0.0, f64::max);
        assert_eq!(highest as i64, bytes);
    }
    // What is live at the end is at no peak.
    assert_eq!(server.json(&format!("{ID}/functions"))["peak_of"], serde_json::Value::Null);
}

#[test]
fn leaks_that_a_file_names_are_left_out() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    let all = server.json(&format!("{ID}/leaks"));
    // The sample's module; it has no names of functions.
    std::fs::write(folder.path().join("known.supp"), "# known\nleak:app\n").unwrap();
    let server = Server::start(folder.path(), &["app.dat", "--suppressions", "known.supp"]);
    let rest = server.json(&format!("{ID}/leaks"));
    let of = |leaks: &Value, sum: &str| leaks[sum]["bytes"].as_u64().unwrap();
    assert!(of(&rest, "suppressed") > 0, "{rest:#}");
    assert_eq!(of(&rest, "leaked") + of(&rest, "suppressed"), of(&all, "leaked"));
    assert_eq!(rest["suppressions"][0]["origin"], "known.supp");
    let listed = server.json(&format!("{ID}/leaks?file_suppressions=false"));
    assert_eq!(of(&listed, "leaked"), of(&all, "leaked"));

    std::fs::write(folder.path().join("wrong.supp"), "leak known\n").unwrap();
    for (file, why) in [("wrong.supp", "wrong.supp, line 1"), ("missing.supp", "cannot read missing.supp")] {
        let refused = heaptrace(folder.path(), &["server", "app.dat", "--suppressions", file]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
}

#[test]
fn problems_are_documents_that_name_the_parameter() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    for (target, status, parameter, words) in [
        ("/api/v1/recordings/r9", 404, Value::Null, "no recording \"r9\""),
        ("/api/v1/nothing", 404, Value::Null, "nothing at"),
        ("/api/v1/recordings/r1/sites/s999", 404, Value::Null, "s999"),
        ("/api/v1/recordings/r1/sites/x", 404, Value::Null, "\"x\""),
        ("/api/v1/recordings/r1/export/tar", 404, Value::Null, "known: json"),
        ("/api/v1/recordings/r1/functions?metric=love", 400, json!("metric"), "`live`"),
        ("/api/v1/recordings/r1/functions?limit=0", 400, json!("limit"), "1 to 10000"),
        ("/api/v1/recordings/r1/functions?focus=(", 400, json!("focus"), "regular expression"),
        ("/api/v1/recordings/r1/timeline?from=noon", 400, json!("from"), "`noon`"),
        ("/api/v1/recordings/r1/timeline?from=1ms&to=1us", 400, json!("to"), "before"),
        ("/api/v1/recordings/r1/functions?at=1us&from=0", 400, json!("at"), "excludes"),
        ("/api/v1/recordings/r1/functions?at=1us&metric=peak", 400, json!("at"), "metric `live`"),
        ("/api/v1/recordings/r1/export/dhat?at=1us", 400, json!("at"), "dhat is of a window"),
        ("/api/v1/recordings/r1/functions?by=site&by=file", 400, json!("by"), "twice"),
        ("/api/v1/recordings/r1/source", 400, json!("file"), "missing"),
        ("/api/v1/recordings/r1/source?file=/etc/passwd", 404, Value::Null, "no backtrace"),
        ("/api/v1/recordings/r1/allocations?cursor=junk", 400, json!("cursor"), ""),
        ("/api/v1/recordings/r1/flamegraph?root=99999", 400, json!("root"), "99999"),
        ("/api/v1/recordings/r1/pins?unit=3k", 400, json!("unit"), "`slab`"),
        ("/api/v1/recordings/r1/flamegraph?pin_unit=2M", 400, json!("pin_unit"), "`pinned=true`"),
        ("/api/v1/recordings/r1/export/pprof?thread=nosuch", 400, json!("thread"), "nosuch"),
        ("/api/v1/recordings/r1/export/folded?context=nosuch", 400, json!("context"), "nosuch"),
        (
            "/api/v1/recordings/r1/functions?module=nosuch",
            400,
            json!("module"),
            "no module matches `nosuch` (there are `app`)",
        ),
        ("/api/v1/recordings/r1/source?file=a.c&module=nosuch", 400, json!("module"), "no module matches"),
        ("/api/v1/recordings/r1/leaks?module=nosuch", 400, json!("module"), "no module matches"),
        ("/api/v1/recordings/r1/diff?module=nosuch", 400, json!("module"), "no module matches"),
        ("/api/v1/recordings/r1/export/folded?module=nosuch", 400, json!("module"), "no module matches"),
        ("/api/v1/recordings/r1/report?module=nosuch", 400, json!("module"), "no module matches"),
        ("/api/v1/recordings/r1/export/json?focus=main", 400, json!("format"), "json has every block"),
        ("/assets/missing.js", 404, Value::Null, "no file"),
    ] {
        let answer = server.get(target);
        assert_eq!(answer.status, status, "{target}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{target}");
        let document = answer.json();
        assert_eq!(document["status"], status, "{target}");
        assert_eq!(document["parameter"], parameter, "{target}: {document}");
        assert!(document["detail"].as_str().unwrap().contains(words), "{target}: {document}");
    }
}

#[test]
fn other_hosts_origins_and_methods_are_refused_before_anything_else() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    let status = |headers: &[(&str, &str)]| server.request("GET", "/api/v1/recordings", headers).status;
    assert_eq!(status(&[]), 200);
    assert_eq!(status(&[("Host", "evil.example")]), 403);
    assert_eq!(status(&[("Origin", "http://evil.example")]), 403);
    assert_eq!(status(&[("Host", "evil.example"), ("Origin", "http://evil.example")]), 403);
    let same = format!("http://{}", server.host);
    assert_eq!(status(&[("Origin", &same), ("Sec-Fetch-Site", "same-origin")]), 200);
    assert_eq!(status(&[("Sec-Fetch-Site", "cross-site")]), 403);
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(server.request(method, "/api/v1/recordings", &[]).status, 405, "{method}");
    }
    let refused = server.request("GET", "/", &[("Host", "evil.example")]);
    assert_eq!(refused.status, 403, "the page, too");
    for answer in [refused, server.get("/"), server.get("/api/v1/recordings")] {
        assert!(answer.header("content-security-policy").unwrap().contains("default-src 'none'"), "{answer:?}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

#[test]
fn a_token_opens_everything_and_nothing_opens_without() {
    let folder = folder_with_sample();
    let token = "correct-horse-battery";
    let server = Server::start(folder.path(), &["app.dat", "--token", token, "--bind", "127.0.0.2"]);
    assert!(server.url.ends_with(&format!("/?token={token}")), "{}", server.url);
    for target in ["/", "/api/v1/recordings", "/api/v1/openapi.json", "/assets/x.js"] {
        assert_eq!(server.get(target).status, 401, "{target}");
    }
    let bearer = format!("Bearer {token}");
    assert_eq!(server.request("GET", "/api/v1/recordings", &[("Authorization", &bearer)]).status, 200);
    assert_eq!(
        server.request("GET", "/api/v1/recordings", &[("Authorization", "Bearer correct-horse-batterz")]).status,
        401
    );
    let redirect = server.get(&format!("/r1/leaks?token={token}&from=1s"));
    assert_eq!((redirect.status, redirect.header("location")), (303, Some("/r1/leaks?from=1s")));
    let cookie = redirect.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(server.request("GET", "/api/v1/recordings", &[("Cookie", cookie)]).status, 200);
    assert_eq!(server.get(&format!("/api/v1/recordings?token={token}")).status, 200);

    let refused = heaptrace(folder.path(), &["server", "app.dat", "--bind", "0.0.0.0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--token"));
}

#[test]
fn answers_are_tagged_and_compressed() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    let target = format!("{ID}/leaks");
    let first = server.get(&target);
    let tag = first.header("etag").unwrap().to_owned();
    let again = server.request("GET", &target, &[("If-None-Match", &tag)]);
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_ne!(server.get(&format!("{ID}/leaks?limit=1")).header("etag"), Some(tag.as_str()));
    let compressed = server.request("GET", &target, &[("Accept-Encoding", "gzip")]);
    assert_eq!(compressed.header("content-encoding"), Some("gzip"));
    assert!(compressed.body.len() < first.body.len());
    let head = server.request("HEAD", &target, &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn the_state_of_a_recording_is_sent_as_events() {
    use std::io::{BufRead, BufReader, Write};
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    let mut stream = std::net::TcpStream::connect(&server.host).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    write!(stream, "GET {ID}/live HTTP/1.1\r\nHost: {}\r\n\r\n", server.host).unwrap();
    let lines = BufReader::new(&stream).lines().map(Result::unwrap);
    let data = lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    let ready = data.map(|data| serde_json::from_str::<Value>(&data).unwrap()).find(|live| live["state"] != "indexing");
    let live = ready.unwrap();
    assert_eq!((&live["schema"], &live["state"]), (&json!("heaptrace.live/1"), &json!("ready")));
    assert_eq!(live["live_bytes"], 10 * 64 + 5000);
    // An open stream does not keep the server from ending.
    let started = std::time::Instant::now();
    assert!(server.stop(libc::SIGINT).success());
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
}

#[test]
fn a_recording_that_cannot_be_opened_does_not_hide_the_others() {
    let folder = folder_with_sample();
    std::fs::write(folder.path().join("letter.dat"), "Dear reader, this is no recording.").unwrap();
    let server = Server::start(folder.path(), &["letter.dat", "app.dat", "missing.dat"]);
    assert_eq!(server.json("/api/v1/recordings/r2")["complete"], true);
    let answer = server.get(&format!("{ID}/leaks"));
    assert_eq!(answer.status, 409);
    assert!(answer.json()["detail"].as_str().unwrap().contains("letter.dat"));
    assert!(server.get("/api/v1/recordings/r3").json()["detail"].as_str().unwrap().contains("missing.dat"));
    let states: Vec<_> = server.json("/api/v1/recordings")["recordings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["state"].clone())
        .collect();
    assert_eq!(states, ["failed", "ready", "failed"]);
}

#[test]
fn a_port_in_use_is_said_or_avoided() {
    let folder = folder_with_sample();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = heaptrace(folder.path(), &["server", "app.dat", "--port", &port]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(&format!("port {port} is in use")));
    let (first, second) = (Server::start(folder.path(), &["app.dat"]), Server::start(folder.path(), &["app.dat"]));
    assert_ne!(first.host, second.host);
}

#[test]
fn two_recordings_can_be_compared() {
    let folder = folder_with_sample();
    std::fs::copy(folder.path().join("app.dat"), folder.path().join("b.dat")).unwrap();
    let server = Server::start(folder.path(), &["app.dat", "b.dat"]);
    let instants = server.json(&format!("{ID}/diff?from=3us&to=end"));
    assert_eq!(instants["total_before"]["count"], 100);
    assert_eq!(instants["total_after"]["count"], 11);
    let others = server.json(&format!("{ID}/diff?other=r2&at=3us"));
    assert_eq!(others["total_before"]["count"], 100);
    assert_eq!(others["total_after"]["count"], 11);
    assert_eq!(server.get(&format!("{ID}/diff?other=r2&from=0")).status, 400);
    assert_eq!(server.get(&format!("{ID}/diff?other=r7")).status, 404);
}

/// What was allocated in two windows that meet is all that was; scaled, both sides have the second one's total.
#[test]
fn two_windows_of_a_recording_can_be_compared() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    let windows = "before=..10us&after=10us..end&metric=allocated";
    let everything = &server.json(ID)["allocations"];
    for unit in ["bytes", "count"] {
        let diff = server.json(&format!("{ID}/diff?{windows}&unit={unit}"));
        let totals = |diff: &Value| {
            ["total_before", "total_after"].map(|side| diff[side][unit].as_u64().expect("a sum of blocks"))
        };
        let [before, after] = totals(&diff);
        assert!(before > 0 && after > 0, "{diff}");
        assert_eq!(Some(before + after), everything[unit].as_u64());
        assert_eq!((&diff["before"], &diff["scaled_by"]), (&json!("..10us"), &Value::Null));
        let scaled = server.json(&format!("{ID}/diff?{windows}&unit={unit}&normalize=true"));
        assert_eq!(totals(&scaled), [after, after]);
        let graph = server.json(&format!("{ID}/diff/flamegraph?{windows}&unit={unit}"));
        assert_eq!([&graph["total_before"], &graph["total_after"]], [&json!(before), &json!(after)]);
        let graph = server.json(&format!("{ID}/diff/flamegraph?{windows}&unit={unit}&normalize=true"));
        assert_eq!([&graph["total_before"], &graph["rows"]["before"][0]], [&json!(after); 2]);
        assert_eq!(graph["scaled_by"].as_f64(), Some(after as f64 / before as f64));
    }
    for wrong in ["before=..1us", "before=..1us&after=1us", "before=..1us&after=1us..&from=0", "before=x..&after=..2us"]
    {
        let refused = server.get(&format!("{ID}/diff?{wrong}"));
        assert_eq!(refused.status, 400, "{wrong}: {}", refused.text());
    }
}

#[test]
fn a_difference_is_a_flame_graph_as_well() {
    let folder = folder_with_sample();
    std::fs::copy(folder.path().join("app.dat"), folder.path().join("b.dat")).unwrap();
    let server = Server::start(folder.path(), &["app.dat", "b.dat"]);
    let column = |graph: &Value, name: &str| -> Vec<u64> {
        graph["rows"][name].as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).collect()
    };
    let diff = server.json(&format!("{ID}/diff?other=r2&at=3us"));
    let pages = |recording: &str, at: &str| {
        let graph = server.json(&format!("/api/v1/recordings/{recording}/flamegraph?metric=live&pinned=true&at={at}"));
        assert_eq!((&graph["pinned"], &graph["pin_unit"]), (&json!(true), &json!("4k")));
        graph["total"].clone()
    };
    let huge = server.json(&format!("{ID}/flamegraph?metric=live&at=3us&pinned=true&pin_unit=2M"));
    let pins = server.json(&format!("{ID}/pins?at=3us&unit=2M"));
    assert_eq!(
        (&pins["unit"], &pins["page_bytes"], &pins["unit_basis"]),
        (&json!("2M"), &json!(2 << 20), &json!("modelled"))
    );
    assert_eq!((&huge["pin_unit"], &huge["total"]), (&json!("2M"), &pins["pages"]["bytes"]));
    let pinned = server.json(&format!("{ID}/diff/flamegraph?other=r2&at=3us&pinned=true"));
    assert_eq!((&pinned["pinned"], &pinned["total_before"]), (&json!(true), &pages("r1", "3us")));
    assert_eq!(pinned["total_after"], pages("r2", "end"));
    assert!(pinned["total_after"].as_u64().is_some_and(|bytes| bytes > 0 && bytes % 4096 == 0), "{pinned}");
    for (widths, inverted) in [("larger", false), ("change", false), ("larger", true), ("change", true)] {
        let asked = format!("{ID}/diff/flamegraph?other=r2&at=3us&width_of={widths}&inverted={inverted}");
        let graph = server.json(&asked);
        assert_eq!(graph["inverted"], inverted);
        assert_eq!(graph["total_before"], diff["total_before"]["bytes"]);
        assert_eq!(graph["total_after"], diff["total_after"]["bytes"]);
        let (parent, width) = (column(&graph, "parent"), column(&graph, "width"));
        let (before, after) = (column(&graph, "before"), column(&graph, "after"));
        assert!(parent.len() > 2, "{graph}");
        if widths == "larger" {
            for (side, own) in [(&before, "own_before"), (&after, "own_after")] {
                let mut sums = column(&graph, own);
                for row in (1..parent.len()).rev() {
                    sums[parent[row] as usize] += sums[row];
                }
                assert_eq!(&sums, side);
            }
            assert!(width.iter().zip(before.iter().zip(&after)).all(|(w, (b, a))| w >= b.max(a)));
        }
        // Every row can be zoomed to, and is the same there.
        for (row, id) in column(&graph, "id").into_iter().enumerate() {
            let zoomed = server.json(&format!("{asked}&root={id}"));
            assert_eq!((column(&zoomed, "before")[0], column(&zoomed, "after")[0]), (before[row], after[row]));
            assert_eq!(zoomed["ancestors"].as_array().unwrap().is_empty(), row == 0);
        }
        // Upside down, the first level is of the functions that allocate: what they hold themselves, the other way up.
        if inverted {
            let straight = server.json(&asked.replace("inverted=true", "inverted=false"));
            assert_eq!(column(&straight, "width")[0], width[0]);
            let sums = |graph: &Value, values: &str, keep: &dyn Fn(usize) -> bool| {
                let mut sums = std::collections::BTreeMap::new();
                for (row, value) in column(graph, values).into_iter().enumerate().filter(|&(row, _)| keep(row)) {
                    let frame = graph["rows"]["frame"][row].as_u64().unwrap();
                    *sums.entry(graph["frames"][frame as usize]["name"].to_string()).or_insert(0) += value;
                }
                sums.retain(|_, sum| *sum > 0);
                sums
            };
            let first_level = |row: usize| row > 0 && parent[row] == 0;
            if widths == "larger" {
                assert_eq!(sums(&graph, "after", &first_level), sums(&straight, "own_after", &|row| row > 0));
            }
        }
    }
    assert_eq!(server.get(&format!("{ID}/diff/flamegraph?root=5")).status, 400);
    assert_eq!(server.get(&format!("{ID}/diff/flamegraph?other=r2&metric=grown")).status, 400);
}

#[test]
fn a_report_is_a_file_that_asks_for_nothing() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    let answer = server.get(&format!("{ID}/report?strip_paths=true"));
    if answer.status == 409 {
        assert!(answer.json()["detail"].as_str().unwrap().contains("make build"));
        return;
    }
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.header("content-disposition").unwrap().contains("app.html"), "{answer:?}");
    let html = answer.text();
    assert!(html.contains("default-src 'none'") && !html.contains("connect-src"));
    let written = heaptrace(folder.path(), &["report", "app.dat", "-o", "out.html"]);
    assert!(written.status.success());
    assert!(String::from_utf8_lossy(&written.stderr).contains("paths of this machine"));
    assert_eq!(server.get(&format!("{ID}/report?max_file_size=1k")).status, 400);
}

#[test]
fn exports_are_streamed_as_files() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    for (format, name) in [
        ("json", "app.json"),
        ("folded", "app.folded.txt"),
        ("speedscope", "app.speedscope.json"),
        ("pprof", "app.pb.gz"),
    ] {
        let answer = server.get(&format!("{ID}/export/{format}?metric=leaked"));
        assert_eq!(answer.status, 200, "{format}: {}", answer.text());
        assert!(answer.header("content-disposition").unwrap().contains(name), "{answer:?}");
        let arguments = ["export", "--format", format, "--metric", "leaked", "app.dat", "-o", "-"];
        assert!(answer.body == heaptrace(folder.path(), &arguments).stdout, "{format} differs from the command line's");
    }
}

/// The address of a question in SQL.
fn in_sql(statement: &str, rest: &str) -> String {
    let statement: String = form_urlencoded::byte_serialize(statement.as_bytes()).collect();
    format!("/api/v1/sql?q={statement}{rest}")
}

#[test]
fn answers_in_sql_are_those_of_the_command() {
    let folder = folder_with_sample();
    std::fs::copy(folder.path().join("app.dat"), folder.path().join("b.dat")).unwrap();
    let server = Server::start(folder.path(), &["app.dat", "b.dat"]);
    let typed = "SELECT recording, sum(size) AS a, 1 AS a, 0.5 AS r, NULL AS n, x'00ff' AS b, 'ä\"' AS t \
                 FROM allocations GROUP BY recording";
    for (statement, chosen, files) in [
        ("SELECT * FROM recordings", "", &["app.dat", "b.dat"][..]),
        (typed, "&recordings=r2,r1", &["b.dat", "app.dat"]),
        ("SELECT * FROM functions('peak') ORDER BY flat_bytes DESC", "&recordings=r2", &["b.dat"]),
        ("SELECT label FROM marks", "&recordings=r1&limit=5", &["app.dat"]),
    ] {
        let answer = server.get(&in_sql(statement, chosen));
        assert_eq!(answer.status, 200, "{statement}: {}", answer.text());
        let printed = heaptrace(folder.path(), &[&["sql", "--json"], files, &[statement]].concat());
        assert_eq!(answer.text(), String::from_utf8(printed.stdout).unwrap(), "{statement}");
        let document: SqlAnswer = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((document.row_count, document.truncated), (document.rows.len() as u64, false), "{statement}");
        assert!(document.rows.iter().all(|row| row.len() == document.columns.len()), "{statement}");
    }
    let again = server.get(&in_sql("SELECT 1", ""));
    let tag = again.header("etag").unwrap();
    assert_eq!(server.request("GET", &in_sql("SELECT 1", ""), &[("If-None-Match", tag)]).status, 304);
}

#[test]
fn an_answer_in_sql_says_that_it_is_cut() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    let count = |target: &str| {
        let answer = server.json(target);
        let rows = answer["rows"].as_array().unwrap().len() as u64;
        assert_eq!(answer["row_count"], rows);
        (rows, answer["truncated"] == true)
    };
    let blocks = |rest| count(&in_sql("SELECT row FROM allocations", rest));
    assert_eq!(blocks("&limit=3"), (3, true));
    assert_eq!(blocks("&limit=102"), (102, false));
    assert_eq!(blocks(""), (102, false));
    let numbers = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000)";
    assert_eq!(count(&in_sql(&format!("{numbers} SELECT i FROM n"), "")), (1000, true));
    // Each row has 400,000 bytes.
    let large = format!("{numbers} SELECT hex(zeroblob(200000)) FROM n");
    assert_eq!(count(&in_sql(&large, "")), (41, true));
}

#[test]
fn whatever_is_no_select_is_refused() {
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    let target = folder.path().join("written.db");
    let (attach, vacuum) =
        (format!("ATTACH '{}' AS x", target.display()), format!("VACUUM INTO '{}'", target.display()));
    for (statement, words) in [
        (attach.as_str(), "only SELECT"),
        (&vacuum, "only SELECT"),
        ("ATTACH 'file:/etc/passwd?mode=ro' AS x", "only SELECT"),
        ("INSERT INTO threads VALUES (1)", "only SELECT"),
        ("DELETE FROM allocations", "only SELECT"),
        ("CREATE TABLE mine (a)", "only SELECT"),
        ("PRAGMA hard_heap_limit = 0", "only SELECT"),
        ("PRAGMA writable_schema = 1", "only SELECT"),
        ("SELECT * FROM pragma_temp_store", "only SELECT"),
        ("SELECT load_extension('libc.so.6')", "load_extension"),
        ("SELECT readfile('/etc/passwd')", "no such function: readfile"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("-- nothing", "no statement"),
        ("SELECT row,\n  absent FROM allocations", "no such column: absent (line 2, column 3)"),
        ("SELECT * FROM functions('weight')", "a metric is one of"),
        ("SELECT zeroblob(1000000000)", "too big"),
    ] {
        let answer = server.get(&in_sql(statement, ""));
        assert_eq!(answer.status, 400, "{statement}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{statement}");
        let problem = answer.json();
        assert_eq!(problem["parameter"], "q", "{statement}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{statement}: {problem}");
    }
    assert!(!target.exists());
    for (target, status, parameter) in [
        ("/api/v1/sql", 400, json!("q")),
        ("/api/v1/sql?q=SELECT+1&limit=0", 400, json!("limit")),
        ("/api/v1/sql?q=SELECT+1&limit=100001", 400, json!("limit")),
        ("/api/v1/sql?q=SELECT+1&recordings=r1,r1", 400, json!("recordings")),
        ("/api/v1/sql?q=SELECT+1&recordings=r9", 404, Value::Null),
        ("/api/v1/sql?q=SELECT+1&q=SELECT+2", 400, json!("q")),
    ] {
        let answer = server.get(target);
        assert_eq!((answer.status, &answer.json()["parameter"]), (status, &parameter), "{target}: {}", answer.text());
    }
}

#[test]
fn a_client_that_goes_away_ends_its_question_in_sql() {
    use std::io::Write;
    let folder = folder_with_sample();
    let server = Server::start(folder.path(), &["app.dat"]);
    assert_eq!(server.get(&in_sql("SELECT 1", "")).status, 200);
    // As many as may be at work at once, each of which would take all of its 30 seconds.
    let endless = in_sql("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n", "");
    for _ in 0..4 {
        let mut stream = std::net::TcpStream::connect(&server.host).unwrap();
        write!(stream, "GET {endless} HTTP/1.1\r\nHost: {}\r\n\r\n", server.host).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let started = std::time::Instant::now();
    assert_eq!(server.get(&in_sql("SELECT 2", "")).status, 200);
    assert!(started.elapsed() < std::time::Duration::from_secs(15), "{:?}", started.elapsed());
}

#[test]
fn everything_that_can_be_asked_in_sql_is_listed_and_answers() {
    let folder = folder_with_sample();
    std::fs::copy(folder.path().join("app.dat"), folder.path().join("b.dat")).unwrap();
    let server = Server::start(folder.path(), &["app.dat", "b.dat"]);
    let schema: SqlSchema = serde_json::from_value(server.json("/api/v1/sql/schema")).unwrap();
    assert!(schema.tables.len() > 15 && schema.examples.len() >= 5);
    for table in &schema.tables {
        let call = if table.parameters.is_empty() { table.name.clone() } else { format!("{}()", table.name) };
        let answer = server.json(&in_sql(&format!("SELECT * FROM {call}"), "&limit=1"));
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        assert!(table.query.is_some() || answer["columns"] == json!(names), "{}: {}", table.name, answer["columns"]);
    }
    for example in &schema.examples {
        let chosen = if example.recordings == 1 { "&recordings=r1" } else { "&recordings=r1,r2" };
        let answer = server.get(&in_sql(&example.query, chosen));
        assert_eq!(answer.status, 200, "{}: {}", example.title, answer.text());
    }
}
