//! A report: the page and its answers for one window and filter, in one HTML file that opens from a disk, without a
//! server and without a network.
//!
//! ```text
//! <style>           the page's
//! <script json>     answers: gzip, then base64    docs/http-api.md names what is in it
//! <script module>   the page; it takes its answers from there
//! ```
//! The file forbids itself every connection, and any script but the page's, whose hash it names.
//! It is capped in size: detail is taken away in steps until it fits, and the report says what was taken.

mod answers;
mod paths;

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use sha2::{Digest, Sha256};
use tracehound_index::{Cancel, Trace};
use tracehound_query::info::rfc3339;
use tracehound_query::{Filter, Window};

use super::ExportError;
use crate::markup::Escaped;
use answers::Detail;
use tracehound_page::Dist;
use tracehound_symbols::Symbolizer;

/// What a report is about.
pub struct ReportScope<'a> {
    /// The recording.
    pub trace: &'a Trace,
    /// Its names.
    pub symbols: &'a Symbolizer,
    /// Stops from outside.
    pub cancel: &'a Cancel,
    /// When.
    pub window: Window,
    /// Of what.
    pub filter: Filter,
    /// The filter as it was asked for: names as in URLs, and texts.
    pub filter_texts: Vec<(&'static str, String)>,
    /// The file is at most this large.
    pub max_bytes: u64,
    /// Leaves only the last part of every path, and of the command line only the program.
    pub strip_paths: bool,
}

/// A finished report.
pub struct FinishedReport {
    /// The file.
    pub html: String,
    /// What was left out so that it fits; empty: nothing.
    pub left_out: Vec<String>,
    /// Paths of this machine that are in it.
    pub paths: usize,
    /// One of them.
    pub example: Option<String>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A question cannot be answered.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The page is not in this binary.
    #[error("this heaptrace was built without its page, which a report is made of; build the page first (make build)")]
    NoPage,
    /// It does not fit.
    #[error("the smallest report has {smallest} bytes, more than the {allowed} that are allowed")]
    TooLarge {
        /// Bytes of the smallest report.
        smallest: u64,
        /// Bytes that were allowed.
        allowed: u64,
    },
}

impl From<tracehound_query::QueryError> for ReportError {
    fn from(error: tracehound_query::QueryError) -> Self {
        Self::Export(error.into())
    }
}

/// Makes a report.
///
/// # Errors
/// When a question does not fit the recording, the page is missing, the cap is too low, or cancelled.
pub fn make(asked: &ReportScope<'_>) -> Result<FinishedReport, ReportError> {
    let page = PageFiles::load()?;
    let mut smallest = u64::MAX;
    for detail in Detail::STEPS {
        let mut document = describe(asked, &detail)?;
        if asked.strip_paths {
            paths::strip(&mut document);
        }
        let found = paths::find(&document);
        let html = page.with(&document)?;
        smallest = html.len() as u64;
        if smallest <= asked.max_bytes {
            let left_out = detail.left_out();
            return Ok(FinishedReport { html, left_out, paths: found.count, example: found.example });
        }
    }
    Err(ReportError::TooLarge { smallest, allowed: asked.max_bytes })
}

/// What the page reads.
fn describe(asked: &ReportScope<'_>, detail: &Detail) -> Result<serde_json::Value, ReportError> {
    let trace = asked.trace;
    let selection = asked.filter.select(trace, asked.symbols, asked.cancel)?;
    let window = asked.window.resolve(trace, &selection, asked.cancel)?;
    let name = trace.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let process = trace.facts().process.as_ref();
    let title = process.map_or_else(
        || name.clone(),
        |process| {
            let path = String::from_utf8_lossy(&process.executable);
            format!("{} ({})", path.rsplit('/').next().unwrap_or(&path), process.pid)
        },
    );
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let filters: serde_json::Map<_, _> =
        asked.filter_texts.iter().map(|(name, text)| ((*name).to_owned(), json!(text))).collect();
    Ok(json!({
        "schema": "heaptrace.report/1",
        "made_at": rfc3339(now),
        "name": name,
        "title": title,
        "from_ns": window.from_ns,
        "to_ns": window.to_ns,
        "filters": filters,
        "left_out": detail.left_out(),
        "stripped": asked.strip_paths,
        "answers": answers::all(asked, detail)?,
    }))
}

/// The page's own files.
struct PageFiles {
    style: String,
    script: String,
}

impl PageFiles {
    fn load() -> Result<Self, ReportError> {
        let of = |extension: &str| {
            let file = Dist::get(&format!("report/page{extension}")).ok_or(ReportError::NoPage)?;
            Ok::<_, ReportError>(String::from_utf8_lossy(&file.data).into_owned())
        };
        // Built as one script: several would refer to one another by address, and there is none in a file.
        Ok(Self { style: in_style(&of(".css")?), script: in_script(&of(".js")?) })
    }

    fn with(&self, document: &serde_json::Value) -> Result<String, ReportError> {
        let io = |error: std::io::Error| ReportError::Export(error.into());
        // As a whole: the encoder clears its buffer behind each write, and there is one for each comma.
        let text = serde_json::to_vec(document).map_err(|error| io(error.into()))?;
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&text).map_err(io)?;
        let data = BASE64.encode(gzip.finish().map_err(io)?);
        let hash = BASE64.encode(Sha256::digest(self.script.as_bytes()));
        let title = document["title"].as_str().unwrap_or_default();
        let mut html = String::with_capacity(self.script.len() + self.style.len() + data.len() + 2048);
        let _ = write!(
            html,
            r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title} · heaptrace report</title>
<style>{style}</style>
</head>
<body>
<div id="root"></div>
<noscript>This report needs JavaScript. It asks no server for anything.</noscript>
<script type="application/json" id="heaptrace-report">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"#,
            title = Escaped(title),
            style = self.style,
            script = self.script,
        );
        Ok(html)
    }
}

/// A script as an element's content: nothing in it ends the element, or begins a comment. Both can only stand in
/// strings and regular expressions, where a backslash more changes nothing.
fn in_script(script: &str) -> String {
    script
        .replace("\r\n", "\n")
        .replace("</script", "<\\/script")
        .replace("</SCRIPT", "<\\/SCRIPT")
        .replace("<!--", "<\\!--")
}

/// A style sheet as an element's content.
fn in_style(style: &str) -> String {
    style.replace("</style", "<\\/style")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_page_ends_its_element() {
        assert_eq!(in_script("a='</script>';b=/<!--/"), "a='<\\/script>';b=/<\\!--/");
    }

    #[test]
    fn the_page_is_one_script() {
        // Without a built page there is nothing to look at; with one it must stay a single file.
        if Dist::get("index.html").is_some() {
            let page = PageFiles::load().unwrap();
            assert!(!page.script.to_lowercase().contains("</script"));
            let html = page.with(&json!({"title": "a<b"})).unwrap();
            assert!(html.contains("<title>a&lt;b · heaptrace report</title>"));
            assert_eq!(html.matches("</script>").count(), 2);
        } else {
            assert!(matches!(PageFiles::load(), Err(ReportError::NoPage)));
        }
    }
}
