//! Questions of others end where their limits are, and say at which. SQLite has one limit of memory for the process, so
//! all tests here have the same, and run one by one: what one has filled another would find full.

use std::io::BufWriter;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracehound_index::Cancel;
use tracehound_index::symbols::Addresses;
use tracehound_ingest::{OpenOptions, Recording};
use tracehound_recordings::{Shape, generate};
use tracehound_sql::{Database, RowSink, SqlError, SqlLimits, SqlRecording, Value};

const LIMITS: SqlLimits =
    SqlLimits { sqlite_bytes: 64 << 20, kept_bytes: 32 << 20, ..SqlLimits::within(Duration::from_secs(60)) };

/// Until it is dropped, no other test here runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct CountedRows {
    rows: u64,
    first: Option<Value>,
    most: Option<u64>,
}

impl RowSink for CountedRows {
    fn columns(&mut self, _: &[String]) -> std::io::Result<()> {
        Ok(())
    }

    fn row(&mut self, values: &[Value]) -> std::io::Result<ControlFlow<()>> {
        if self.most.is_some_and(|most| self.rows >= most) {
            return Ok(ControlFlow::Break(()));
        }
        self.rows += 1;
        self.first.get_or_insert_with(|| values[0].clone());
        Ok(ControlFlow::Continue(()))
    }
}

/// A recording, asked with limits, or without any.
fn database(limits: Option<SqlLimits>, cancel: &Cancel) -> Database {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory-1.dat");
    let file = BufWriter::new(std::fs::File::create(&path).unwrap());
    let shape = Shape { events: 60_000, live: 2_000, nodes: 300, sites: 80, seed: 1, ..Shape::default() };
    generate(file, &shape).unwrap();
    let trace = Recording::open(&path, OpenOptions::default()).unwrap().trace();
    let symbols = Arc::new(Addresses::new(&trace));
    let recordings = vec![SqlRecording { trace, symbols, path: "memory-1.dat".into() }];
    match limits {
        Some(limits) => Database::limited(recordings, cancel, limits).unwrap(),
        None => Database::new(recordings, cancel).unwrap(),
    }
}

fn refusal(limits: SqlLimits, sql: &str) -> SqlError {
    let answer = database(Some(limits), &Cancel::new()).query(sql, &mut CountedRows::default());
    answer.expect_err(sql)
}

/// More pairs than anybody waits for.
const HOURS: &str = "SELECT sum(a.size + b.size) FROM blocks a, blocks b";

#[test]
fn time_is_limited() {
    let _alone = alone();
    let limits = SqlLimits { time: Duration::from_millis(200), ..LIMITS };
    // Rows of ours, and steps of SQLite alone.
    for sql in [HOURS, "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"] {
        let started = Instant::now();
        let error = refusal(limits, sql);
        assert!(matches!(error, SqlError::TooLong(_)), "{error:?}");
        assert!(error.to_string().contains("no answer within 0.2 s"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    }
}

#[test]
fn whoever_cancels_is_not_answered_that_the_time_is_over() {
    let _alone = alone();
    let cancel = Cancel::new();
    let database = database(Some(LIMITS), &cancel);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            cancel.cancel();
        });
        let answer = database.query(HOURS, &mut CountedRows::default());
        assert!(matches!(answer, Err(SqlError::Cancelled)), "{answer:?}");
    });
}

#[test]
fn memory_is_limited() {
    let _alone = alone();
    let many = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000)";
    for sql in [
        format!("{many} SELECT count(DISTINCT hex(randomblob(100000))) FROM n"),
        format!("{many} SELECT i FROM n ORDER BY hex(randomblob(100000))"),
    ] {
        let error = refusal(LIMITS, &sql);
        assert!(matches!(error, SqlError::TooMuchMemory(_)), "{error:?}");
        assert!(error.to_string().contains("64 MiB"), "{error}");
    }
    for (sql, expected) in [
        ("SELECT zeroblob(2000000)", "too big"),
        ("SELECT zeroblob(600000), zeroblob(600000)", "a row of the answer has more than 1024 KiB"),
        (&format!("SELECT 'x' LIKE '{}'", "%a".repeat(400)), "pattern too complex"),
        (&format!("SELECT 1 -- {}", "x".repeat(40_000)), "statement too long"),
    ] {
        let error = refusal(LIMITS, sql).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_functions_return_gives_way_and_is_limited() {
    let _alone = alone();
    let of = |limits| {
        let mut rows = CountedRows::default();
        let sql = "WITH n(i) AS (VALUES (20000), (19999), (19998), (19997), (19996), (19995))
                   SELECT sum(t.live_bytes) + count(*) FROM n, timeline(n.i) t";
        database(limits, &Cancel::new()).query(sql, &mut rows).map(|()| rows.first)
    };
    let expected = of(None).unwrap();
    assert!(matches!(expected, Some(Value::Integer(sum)) if sum > 100_000), "{expected:?}");
    assert_eq!(of(Some(LIMITS)).unwrap(), expected);
    let error = of(Some(SqlLimits { kept_bytes: 1 << 20, ..LIMITS })).unwrap_err();
    assert!(error.to_string().contains("takes more than 1 MiB at once"), "{error}");
}

#[test]
fn a_sink_that_wants_no_more_ends_the_question() {
    let _alone = alone();
    let mut rows = CountedRows { most: Some(5), ..CountedRows::default() };
    // All rows would take hours.
    let answer = database(Some(LIMITS), &Cancel::new()).query("SELECT a.row FROM blocks a, blocks b", &mut rows);
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(rows.rows, 5);
}

#[test]
fn an_error_says_where_it_is() {
    let _alone = alone();
    for (sql, expected) in [
        ("SELECT absent FROM threads", "no such column: absent (line 1, column 8)"),
        ("SELECT name,\n  größe FROM threads", "no such column: größe (line 2, column 3)"),
        ("-- first\n;;\nSELECT 'ä', absent FROM threads", "no such column: absent (line 3, column 13)"),
        ("SELEC 1", "near \"SELEC\": syntax error (line 1, column 1)"),
    ] {
        assert_eq!(refusal(LIMITS, sql).to_string(), expected);
    }
}
