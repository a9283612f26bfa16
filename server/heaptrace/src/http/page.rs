//! The page: the files of `web/dist`, inside the binary.
//!
//! Files below `assets/` have a hash of their content in the name and are kept by browsers for good; everything else
//! is asked for again and answered 304 while it is the same. Paths that are no file are views of the page.

use std::borrow::Cow;
use std::fmt::Write as _;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use rust_embed::EmbeddedFile;

use super::problem::HttpProblem;
use tracehound_page::Dist;

const INDEX: &str = "index.html";

/// Answers everything that is not the API.
pub async fn page(uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().trim_start_matches('/');
    if path == "api" || path.starts_with("api/") {
        return HttpProblem::not_found(format!("there is nothing at /{path}; see /api/v1/openapi.json"))
            .into_response();
    }
    if let Some(file) = Dist::get(path) {
        return send(path, file, &headers);
    }
    // Views are paths without an extension; a missing file is an error, or a broken build would look like a page.
    let is_file = path.rsplit('/').next().is_some_and(|name| name.contains('.'));
    match Dist::get(INDEX) {
        _ if is_file => HttpProblem::not_found(format!("there is no file /{path}")).into_response(),
        Some(index) => send(INDEX, index, &headers),
        None => (StatusCode::OK, Html(NOT_BUILT)).into_response(),
    }
}

fn send(path: &str, file: EmbeddedFile, headers: &HeaderMap) -> Response {
    let hash = file.metadata.sha256_hash();
    let mut tag = String::from("\"");
    for byte in &hash[..16] {
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    let cache = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let known = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| {
        value.to_str().is_ok_and(|value| value.split(',').any(|known| known.trim().trim_start_matches("W/") == tag))
    });
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let body = match file.data {
            Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            Cow::Owned(bytes) => bytes.into(),
        };
        let mut response = Body::from(body).into_response();
        if let Ok(kind) = HeaderValue::from_str(file.metadata.mimetype()) {
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        response
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

const NOT_BUILT: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>heaptrace: the page is not built</title>
<main>
<h1>This heaptrace was built without its page</h1>
<p>Run <code>make build</code> in the source tree: it builds the page (with npm) and then this program with the page inside.</p>
<p>The data is here all the same: <a href="/api/v1/recordings">recordings</a>, <a href="/api/v1/openapi.json">description of the interface</a>.
On the command line, <code>heaptrace info</code>, <code>leaks</code>, <code>top</code> and <code>flamegraph</code> answer without a page.</p>
</main>
</html>
"#;
