//! `live`: server-sent events about indexing and about the growth of a running recording.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tracehound_api::live::Live;

use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};

/// Shortest time between two events.
const PERIOD: Duration = Duration::from_millis(250);

/// The state of a recording: once at the start, then whenever it changes, at most four times a second.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/live",
    tag = "recordings",
    params(RecordingId),
    responses((status = 200, description = "Each `data:` is a `Live` document.", content_type = "text/event-stream", body = Live), Problems)
)]
pub async fn live(asked: RecordingRequest) -> Result<Response> {
    asked.query::<()>()?;
    let (mut states, watching) = asked.served.watch();
    states.mark_changed();
    let events = stream::unfold((states, watching, false), |(mut states, watching, sent)| async move {
        if sent {
            tokio::time::sleep(PERIOD).await;
        }
        states.changed().await.ok()?;
        let snapshot = states.borrow_and_update().clone();
        if snapshot.is_over() {
            return None;
        }
        // Numbers, strings and enumerations always serialise.
        let event = Event::default().json_data(snapshot.live()).unwrap_or_default();
        Some((Ok::<_, Infallible>(event), (states, watching, true)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response())
}
