//! A condition that goes down to the index gives what SQLite alone gives: `+size` means the same to it and does not go
//! down. And sums agree with the totals that the recording was made with.

use std::io::BufWriter;
use std::ops::ControlFlow;
use std::sync::Arc;

use tracehound_index::symbols::Addresses;
use tracehound_index::{Cancel, Trace};
use tracehound_ingest::{OpenOptions, Recording};
use tracehound_recordings::{Generated, Shape, generate};
use tracehound_sql::{Database, RowSink, SqlError, SqlRecording, Value};

#[derive(Default)]
struct AllRows(Vec<Vec<Value>>);

impl RowSink for AllRows {
    fn columns(&mut self, _: &[String]) -> std::io::Result<()> {
        Ok(())
    }

    fn row(&mut self, values: &[Value]) -> std::io::Result<ControlFlow<()>> {
        self.0.push(values.to_vec());
        Ok(ControlFlow::Continue(()))
    }
}

struct Generator(u64);

impl Generator {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

fn made(folder: &std::path::Path, seed: u64) -> (Generated, Arc<Trace>) {
    let path = folder.join(format!("memory-{seed}.dat"));
    let file = BufWriter::new(std::fs::File::create(&path).unwrap());
    let shape = Shape { events: 60_000, live: 2_000, nodes: 300, sites: 80, seed, ..Shape::default() };
    let generated = generate(file, &shape).unwrap();
    (generated, Recording::open(&path, OpenOptions::default()).unwrap().trace())
}

fn database(traces: &[Arc<Trace>], cancel: &Cancel) -> Database {
    let recording = |trace: &Arc<Trace>| SqlRecording {
        trace: Arc::clone(trace),
        symbols: Arc::new(Addresses::new(trace)),
        path: trace.path().display().to_string(),
    };
    Database::new(traces.iter().map(recording).collect(), cancel).unwrap()
}

fn ask(database: &Database, sql: &str) -> Vec<Vec<Value>> {
    let mut rows = AllRows::default();
    database.query(sql, &mut rows).unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.0
}

#[test]
fn conditions_that_go_down_pass_what_sqlite_passes() {
    let folder = tempfile::tempdir().unwrap();
    let traces = [made(folder.path(), 1).1, made(folder.path(), 2).1];
    let database = database(&traces, &Cancel::new());
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    println!("seed {seed}");
    let mut random = Generator(u64::from(seed));
    let duration = traces[0].duration_ns();
    let mut passed = 0;
    for _ in 0..120 {
        let mut quick = Vec::new();
        for _ in 0..=random.below(3) {
            let (column, limit) = match random.below(6) {
                0 => ("recording", 4),
                1 => ("row", 40_000),
                2 => ("born_ns", duration),
                3 => ("thread", 6),
                4 => ("site", 90),
                _ => ("size", 3_000),
            };
            let operator = random.pick(&["=", "<", "<=", ">", ">=", "<>"]);
            // Bounds between two numbers, below all, and of another type.
            let value = match random.below(8) {
                0 => format!("{}.5", random.below(limit)),
                1 => format!("-{}", random.below(10)),
                2 => format!("'{}'", random.below(limit)),
                _ => random.below(limit).to_string(),
            };
            quick.push(format!("{column} {operator} {value}"));
        }
        let slow: Vec<String> = quick.iter().map(|condition| format!("+{condition}")).collect();
        // With one recording at a time named in front, and all of a moment.
        let table = random.pick(&["allocations", "allocations", "live('50%')", "live('peak')", "blocks"]);
        let sums = "count(*), sum(size), sum(row), min(born_ns), max(died_ns), sum(thread), sum(temporary)";
        let of = |conditions: &[String]| format!("SELECT {sums} FROM {table} WHERE {}", conditions.join(" AND "));
        let (quick, slow) = (of(&quick), of(&slow));
        // `+thread = '3'` compares without the column's affinity: as texts. What SQLite says of a text is its own affair.
        if quick.contains('\'') && !quick.contains("live('") || quick.matches('\'').count() > 2 {
            ask(&database, &quick);
            continue;
        }
        let found = ask(&database, &quick);
        assert_eq!(found, ask(&database, &slow), "{quick}");
        passed += u64::from(found[0][0] != Value::Integer(0));
    }
    assert!(passed > 20, "most questions are about something: {passed}");
}

#[test]
fn totals_are_those_that_the_recording_was_made_with() {
    let folder = tempfile::tempdir().unwrap();
    let (generated, trace) = made(folder.path(), 3);
    let database = database(&[trace], &Cancel::new());
    let one = |sql: &str| match ask(&database, sql).remove(0).remove(0) {
        Value::Integer(number) => number.cast_unsigned(),
        other => panic!("{sql}: {other:?}"),
    };
    assert_eq!(one("SELECT count(*) FROM allocations"), generated.allocs);
    assert_eq!(one("SELECT sum(size) FROM allocations"), generated.allocated);
    assert_eq!(one("SELECT count(*) FROM frees"), generated.frees);
    assert_eq!(one("SELECT sum(size) FROM live()"), generated.live);
    assert_eq!(one("SELECT sum(size) FROM allocations WHERE died_ns IS NULL"), generated.live);
    assert_eq!(one("SELECT sum(size) FROM live('peak')"), generated.peak);
    assert_eq!(one("SELECT sum(peak_bytes) FROM sites()"), generated.peak);
    assert_eq!(one("SELECT total_bytes FROM flame('allocated') WHERE parent IS NULL"), generated.allocated);
    assert_eq!(one("SELECT sum(self_bytes) FROM flame('allocated')"), generated.allocated);
    assert_eq!(one("SELECT sum(flat_bytes) FROM functions('leaked')"), generated.live);
    assert_eq!(one("SELECT sum(bytes) FROM leaks()"), generated.live);
    assert_eq!(one("SELECT max(live_bytes_max) FROM timeline(7)"), generated.peak);
    assert_eq!(one("SELECT sum(count) FROM lifetimes()"), generated.allocs);
    // By site, thread and place a join finds every block again.
    let joined = "SELECT count(*) FROM allocations a JOIN sites() s ON s.site = a.site \
                  JOIN threads t ON t.thread = a.thread JOIN stacks k ON k.stack = a.stack AND k.depth = 0 \
                  JOIN frames f ON f.frame = k.frame AND f.level = 0 WHERE a.row < 2000";
    assert_eq!(one(joined), 2000);
    assert_eq!(one("SELECT sum(allocated_count) FROM sites()"), generated.allocs);
}

#[test]
fn a_question_is_cancelled_in_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    let trace = made(folder.path(), 4).1;
    let cancel = Cancel::new();
    let database = database(&[trace], &cancel);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(300));
            cancel.cancel();
        });
        // A product of all blocks with themselves would take hours.
        let error = database.query("SELECT sum(a.size + b.size) FROM blocks a, blocks b", &mut AllRows::default());
        assert!(matches!(error, Err(SqlError::Cancelled)), "{error:?}");
    });
}

#[test]
fn nothing_but_reading_is_possible() {
    let folder = tempfile::tempdir().unwrap();
    let database = database(&[made(folder.path(), 5).1], &Cancel::new());
    let target = folder.path().join("written.db");
    for statement in [
        "DELETE FROM allocations",
        "UPDATE threads SET name = 'x'",
        "INSERT INTO marks VALUES (1, 2, 'x', 3)",
        "CREATE TABLE mine (a)",
        "CREATE TEMP TABLE mine (a)",
        "CREATE VIEW mine AS SELECT 1",
        "DROP VIEW blocks",
        &format!("ATTACH '{}' AS other", target.display()),
        &format!("VACUUM INTO '{}'", target.display()),
        "PRAGMA journal_mode = WAL",
        "PRAGMA writable_schema = 1",
        "SELECT load_extension('libc.so.6')",
        "BEGIN",
        "SELECT 1; DELETE FROM allocations",
        "",
        "-- nothing",
    ] {
        let mut rows = AllRows::default();
        let answer = database.query(statement, &mut rows);
        assert!(answer.is_err() && rows.0.is_empty(), "{statement}: {:?}", rows.0);
    }
    assert!(!target.exists());
}
