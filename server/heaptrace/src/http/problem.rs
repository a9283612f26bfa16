//! Errors as RFC 9457 problem documents.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tracehound_api::problem::Problem as Document;

/// An error on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProblem {
    status: StatusCode,
    detail: String,
    parameter: Option<String>,
}

impl HttpProblem {
    /// What happened here and what to do, in a sentence.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), parameter: None }
    }

    /// A parameter that cannot be understood, or that the route does not know.
    pub fn parameter(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, detail: detail.into(), parameter: Some(name.into()) }
    }

    /// Something that does not exist.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Its status code.
    #[cfg(test)]
    pub const fn status(&self) -> StatusCode {
        self.status
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let document = Document {
            kind: "about:blank".into(),
            title: self.status.canonical_reason().unwrap_or("Error").into(),
            status: self.status.as_u16(),
            detail: self.detail,
            parameter: self.parameter,
        };
        // Strings and a number always serialise.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        (self.status, headers, body).into_response()
    }
}
