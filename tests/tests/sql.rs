//! `heaptrace sql` on recordings of real programs: its answers are those of the other commands.

use std::process::Command;

use serde_json::Value;
use tracehound_tests::{compile, heaptrace, root, trace};

fn sql(files: &[&std::path::Path], statement: &str) -> Vec<Value> {
    let output = Command::new(heaptrace()).arg("sql").arg("--json").args(files).arg(statement).output().unwrap();
    assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "heaptrace.sql/1");
    assert_eq!(document["truncated"], false);
    let rows = document["rows"].as_array().expect("rows").clone();
    assert_eq!(document["row_count"], rows.len());
    rows
}

fn json(arguments: &[&str], file: &std::path::Path) -> Value {
    let output = Command::new(heaptrace()).args(arguments).arg("--json").arg(file).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn answers_are_those_of_the_other_commands() {
    let traced = trace(compile("peaks.c", &["-O1"]), &[], &[]);
    let file = &traced.recording();
    let info = json(&["info"], file);
    let row = &sql(&[file], "SELECT * FROM recordings")[0];
    for (column, pointer) in [
        ("allocated_bytes", "/allocations/bytes"),
        ("allocations", "/allocations/count"),
        ("peak_bytes", "/peak/bytes"),
        ("peak_ns", "/peak/at_ns"),
        ("leaked_bytes", "/leaked/bytes"),
        ("leaked_count", "/leaked/count"),
        ("temporary_count", "/temporary/count"),
        ("pid", "/process/pid"),
        ("end", "/end"),
    ] {
        assert_eq!(row[column], *info.pointer(pointer).expect(pointer), "{column}");
    }
    let sums = &sql(&[file], "SELECT count(*) n, sum(size) b, count(DISTINCT thread) t FROM allocations")[0];
    assert_eq!((&sums["n"], &sums["b"]), (&row["allocations"], &row["allocated_bytes"]));

    let top = json(&["top", "--metric", "peak", "-n", "20"], file);
    let functions =
        sql(&[file], "SELECT * FROM functions('peak') ORDER BY flat_bytes DESC, cum_bytes DESC, function LIMIT 5");
    for (own, other) in functions.iter().zip(top["rows"].as_array().unwrap()) {
        assert_eq!(
            (&own["function"], &own["flat_bytes"], &own["cum_bytes"]),
            (&other["name"], &other["flat"], &other["cum"])
        );
    }
    let leaks = json(&["leaks"], file);
    for site in leaks["sites"].as_array().unwrap().iter().take(5) {
        let number = site["id"].as_str().unwrap().trim_start_matches('s');
        let own = &sql(&[file], &format!("SELECT bytes, count, verdict, why FROM leaks() WHERE site = {number}"))[0];
        assert_eq!((&own["bytes"], &own["count"]), (&site["bytes"], &site["count"]));
        assert_eq!((&own["verdict"], &own["why"]), (&site["verdict"]["kind"], &site["verdict"]["why"]));
        // The backtrace, frame by frame.
        let stack = sql(
            &[file],
            &format!(
                "SELECT k.* FROM sites() s JOIN stacks k ON k.stack = s.stack WHERE s.site = {number} ORDER BY depth"
            ),
        );
        let frames = site["stack"].as_array().unwrap();
        assert_eq!(stack.len(), frames.len());
        for (own, frame) in stack.iter().zip(frames) {
            assert_eq!(
                (&own["function"], &own["line"], &own["module"]),
                (&frame["function"], &frame["line"], &frame["module"])
            );
        }
    }
    // Two recordings in one database.
    let both = sql(&[file, file], "SELECT recording, count(*) n FROM allocations GROUP BY recording");
    assert_eq!(both.len(), 2);
    assert_eq!(both[0]["n"], both[1]["n"]);
    let change = sql(&[file, file], "SELECT total(abs(change_bytes)) c, count(*) n FROM diff(1, 2, 'allocated')");
    assert_eq!(change[0]["c"], 0.0);
    assert_ne!(change[0]["n"], 0);
}

#[test]
fn output_is_quoted_and_errors_are_said_in_one_line() {
    let traced = trace("/bin/true", &["a,\"b\"\nc"], &[]);
    let ask = |arguments: &[&str]| {
        let (options, statement) = arguments.split_at(arguments.len() - 1);
        let output = Command::new(heaptrace())
            .arg("sql")
            .args(options)
            .arg(traced.recording())
            .args(statement)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, _) = ask(&["--csv", "SELECT 'a,\"b\"' AS \"x,y\", NULL AS n, 1.5 AS r, 'two\nlines' AS t"]);
    assert_eq!((code, out.as_str()), (Some(0), "\"x,y\",n,r,t\r\n\"a,\"\"b\"\"\",,1.5,\"two\nlines\"\r\n"));
    let (_, out, _) = ask(&["--json", "SELECT 1 AS a, 2 AS a, 'x' AS a"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["rows"][0], serde_json::json!({"a": 1, "a:2": 2, "a:3": "x"}));
    let (code, out, _) = ask(&["--csv", "SELECT label FROM marks"]);
    assert_eq!((code, out.as_str()), (Some(0), "label\r\n"), "no rows, and the names all the same");
    for (statement, expected) in [
        ("SELECT absent FROM allocations", "no such column: absent (line 1, column 8)"),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM functions('weight')", "a metric is one of live, peak"),
        ("SELECT * FROM sites('9x')", "9x"),
        ("SELECT * FROM diff(1, 7)", "there is no recording 7"),
        ("SELECT * FROM timeline(0)", "1 to 20000 parts"),
        ("DROP TABLE allocations", "only SELECT is possible"),
        ("INSERT INTO marks VALUES (1)", "only SELECT is possible"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
    ] {
        let (code, out, error) = ask(&[statement]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{statement}");
        assert!(error.contains(expected) && error.trim_end().lines().count() == 1, "{statement}: {error}");
    }
    // An error behind some rows: the document is closed and says so.
    let fifth_fails = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9) \
                       SELECT i, abs(i - 5 - 9223372036854775807 - 1) AS a FROM n";
    let (code, out, error) = ask(&["--json", fifth_fails]);
    let document: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    assert_eq!((code, document["rows"].as_array().map(Vec::len)), (Some(2), Some(4)), "{out}");
    assert!(document["error"].as_str().is_some_and(|text| text.contains("overflow")), "{out}");
    assert!(error.contains("overflow"), "{error}");
    let (code, out, _) = ask(&["--json", "SELECT absent FROM allocations"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "nothing is printed when no row was");
}

#[test]
fn the_guide_has_the_tables_as_they_are_and_its_examples_run() {
    let schema = Command::new(heaptrace()).args(["sql", "--schema"]).output().unwrap();
    let schema = String::from_utf8(schema.stdout).unwrap();
    let guide = std::fs::read_to_string(root().join("docs/guide/sql.md")).unwrap();
    assert!(guide.ends_with(&schema), "the end of docs/guide/sql.md is what `heaptrace sql --schema` prints");
    let traced = trace("/bin/true", &[], &[]);
    let file = &traced.recording();
    let examples: Vec<&str> = guide.split("```sql\n").skip(1).filter_map(|part| part.split("```").next()).collect();
    assert!(examples.len() >= 5);
    for example in examples {
        sql(&[file, file], example);
    }
    // Every table and every column that is documented is there.
    let mut table = String::new();
    let mut columns = 0;
    for line in schema.lines() {
        if let Some(name) = line.strip_prefix("### `") {
            table = name.trim_end_matches('`').split('(').next().unwrap().to_owned();
            let call = if name.contains('(') { format!("{table}()") } else { table.clone() };
            let two = if table == "diff" { "diff(1, 2)".to_owned() } else { call };
            sql(&[file, file], &format!("SELECT * FROM {two} LIMIT 3"));
            table = two;
        } else if let Some(rest) = line.strip_prefix("| `") {
            let column = rest.split('`').next().unwrap();
            sql(&[file, file], &format!("SELECT count({column}) FROM {table}"));
            columns += 1;
        }
    }
    assert!(columns > 100, "{columns}");
}
