//! `export/{format}`: a recording in another tool's format, streamed as it is made.

use std::io::{self, Write};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use clap::ValueEnum;
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tracehound_index::Cancel;
use tracehound_query::filter::Selection;

use super::shared::{Filters, Measure, Window, window};
use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};
use crate::http::problem::HttpProblem;
use crate::http::served::Snapshot;
use tracehound_exports::{ExportError, ExportInput, ExportScope, Format, folded};

/// Which format.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "only its derived description is used")]
pub struct FormatName {
    /// `json`, `folded`, `speedscope`, `pprof`, `otlp`, `heaptrack`, `dhat`, `massif`, `firefox`, `parquet`.
    #[param(example = "pprof")]
    format: String,
}

/// The recording in another tool's format, as `heaptrace export` writes it.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/export/{format}",
    tag = "recordings",
    params(RecordingId, FormatName, Measure, Window, Filters),
    responses((status = 200, description = "The file.", content_type = "application/octet-stream"), Problems)
)]
pub async fn export(asked: RecordingRequest) -> Result<Response> {
    let name = asked.path("format");
    let formats = Format::value_variants();
    let Some(&format) = formats.iter().find(|format| format.name() == name) else {
        let known: Vec<_> = formats.iter().map(|format| format.name()).collect();
        return Err(HttpProblem::not_found(format!("there is no export format {name:?}; known: {}", known.join(", "))));
    };
    let (measure, times, filters): (Measure, Window, Filters) = asked.query()?;
    let (window, filter) = (window(&times, &measure)?, filters.filter()?);
    let of = folded::Of { metric: measure.metric, unit: measure.unit };
    let snapshot = asked.served.ready().await?;
    // What does not fit the recording is said before the answer begins.
    let trace = snapshot.parts()?.0;
    filter.need_module(trace)?;
    window.resolve(trace, &Selection::all(), &Cancel::new())?;
    let scope = ExportScope { window, filter };

    stream_of(asked, snapshot, format, scope, of).await
}

/// The export as it is made. Its first part is waited for: what does not fit the recording is an answer of its own.
pub async fn stream_of(
    asked: RecordingRequest,
    snapshot: Snapshot,
    format: Format,
    scope: ExportScope,
    of: folded::Of,
) -> Result<Response> {
    let file_name = format!("{}.{}", asked.served.file_stem(), format.extension());
    let (sender, mut receiver) = mpsc::channel::<tracehound_exports::Result<Bytes>>(4);
    let mut sink = BodyWriter { sender, buffer: Vec::with_capacity(CHUNK) };
    tokio::spawn(async move {
        let work = asked.compute_export(snapshot, move |ask| {
            let source = ExportInput { trace: ask.trace, symbols: ask.symbols, cancel: ask.cancel };
            let written = tracehound_exports::write(format, source, &scope, of, &mut sink);
            let written = written.and_then(|()| Ok(sink.flush()?));
            if let Err(error) = written {
                // The connection is cut, so that the client does not take a part for the whole.
                let _ = sink.sender.blocking_send(Err(error));
            }
            Ok(())
        });
        let _ = work.await;
    });
    let first = match receiver.recv().await {
        Some(Err(ExportError::Query(error))) => return Err(error.into()),
        first => first,
    };
    let rest = stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    // Fused: compression asks once more after the end, which an unfold answers with a panic.
    let chunks = stream::iter(first).chain(rest).map(|chunk| chunk.map_err(io::Error::other)).fuse();
    let mut response = Body::from_stream(chunks).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename=\"{file_name}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

const CHUNK: usize = 64 << 10;

/// Hands what is written to the connection, in chunks; waits when the client is slow, fails when it has gone.
struct BodyWriter {
    sender: mpsc::Sender<tracehound_exports::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK));
        if chunk.is_empty() {
            return Ok(());
        }
        self.sender.blocking_send(Ok(chunk.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
