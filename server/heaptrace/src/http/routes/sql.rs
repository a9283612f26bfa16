//! `sql`: questions in SQL over one recording or several; `sql/schema`: what they can be about.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tracehound_api::sql::{SqlAnswer, SqlSchema};
use tracehound_index::Cancel;
use tracehound_sql::{Database, JsonRows, SqlError, SqlLimits, SqlRecording};

use super::Problems;
use crate::http::answer::{Result, SqlRequest, internal};
use crate::http::params::{self, FromText, Query, Within};
use crate::http::problem::HttpProblem;
use crate::http::served::{Served, Snapshot};

/// Time for an answer.
const LONGEST_QUERY: Duration = Duration::from_secs(30);
/// Rows of an answer.
const MAX_ROWS: u64 = 100_000;
/// Bytes of the rows of an answer.
const MAX_BYTES: u64 = 16 << 20;

/// Ids of recordings, each once.
#[derive(Debug, Clone, Default)]
pub struct RecordingIds(Vec<String>);

impl FromText for RecordingIds {
    fn from_text(text: &str) -> std::result::Result<Self, String> {
        let mut ids: Vec<String> = Vec::new();
        for id in text.split(',') {
            if id.is_empty() || ids.iter().any(|known| known == id) {
                return Err("ids of recordings with commas between, each once".into());
            }
            ids.push(id.to_owned());
        }
        Ok(Self(ids))
    }
}

/// What is asked, of which recordings.
#[derive(Debug, Clone, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SqlQuestion {
    /// One SELECT; `sql/schema` lists what it can be about.
    #[param(example = "SELECT function, flat_bytes FROM functions('peak') ORDER BY flat_bytes DESC LIMIT 10")]
    q: String,
    /// Ids of recordings with commas between, numbered from 1 in this order [default: all].
    #[param(value_type = Option<String>, example = "r1,r2")]
    recordings: RecordingIds,
    /// Most rows [default: 1000]. The rows are at most 16 MiB.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100000)]
    limit: Within<1, MAX_ROWS>,
}

impl Query for SqlQuestion {
    fn take(params: &mut params::Params) -> Result<Self> {
        Ok(Self {
            q: params.require("q")?,
            recordings: params.take("recordings")?.unwrap_or_default(),
            limit: params.take("limit")?.unwrap_or(Within(1000)),
        })
    }
}

/// Rows of an answer in SQL, as `heaptrace sql --json` prints them. Nothing but a SELECT is answered, and none that takes
/// longer than 30 seconds or more than 512 MiB of memory.
#[utoipa::path(
    get,
    path = "/api/v1/sql",
    tag = "sql",
    params(SqlQuestion),
    responses((status = 200, body = SqlAnswer), Problems)
)]
pub async fn sql(asked: SqlRequest) -> Result<Response> {
    let question: SqlQuestion = asked.query()?;
    let recordings = asked.recordings(&question.recordings.0)?;
    asked.answer(recordings, move |recordings, cancel| answer(&question, recordings, cancel)).await
}

/// The tables, functions and views that a question in SQL can be about, and examples.
#[utoipa::path(
    get,
    path = "/api/v1/sql/schema",
    tag = "sql",
    responses((status = 200, body = SqlSchema), Problems)
)]
pub async fn schema(uri: Uri) -> Result<Response> {
    params::read::<()>(uri.query())?;
    Ok(([("cache-control", "no-cache")], Json(tracehound_sql::description())).into_response())
}

fn answer(question: &SqlQuestion, recordings: Vec<(Arc<Served>, Snapshot)>, cancel: &Cancel) -> Result<Vec<u8>> {
    let recording = |(served, snapshot): (Arc<Served>, Snapshot)| {
        let (trace, symbols) = snapshot.shared()?;
        let path = served.path().display().to_string();
        Ok(SqlRecording { trace: Arc::clone(trace), symbols: Arc::clone(symbols) as _, path })
    };
    let recordings = recordings.into_iter().map(recording).collect::<Result<_>>()?;
    let database = Database::limited(recordings, cancel, SqlLimits::within(LONGEST_QUERY)).map_err(problem)?;
    let mut document = Vec::new();
    let mut rows = JsonRows::limited(&mut document, question.limit.0, MAX_BYTES);
    database.query(&question.q, &mut rows).map_err(problem)?;
    rows.finish(None).map_err(internal)?;
    Ok(document)
}

fn problem(error: SqlError) -> HttpProblem {
    match error {
        // Nobody is there to read it.
        SqlError::Cancelled => HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "the query was cancelled"),
        SqlError::Output(error) => internal(error),
        other => HttpProblem::parameter("q", other.to_string()),
    }
}
