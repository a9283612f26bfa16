//! `source`: a source file with sums per line.
//!
//! A recording names files, and a recording may come from anybody: only files that the recording's debug information
//! names, below folders that whoever started the server allowed, are ever read.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use axum::response::Response;
use tracehound_api::source::Source;
use tracehound_query::QueryError;
use tracehound_query::source::{self, SourceParams};

use super::shared::{Filters, Measure, Window, window};
use super::{Problems, RecordingId};
use crate::http::answer::{RecordingRequest, Result};
use crate::http::params::{self, Query};
use crate::http::problem::HttpProblem;

/// Largest file that is shown.
const MAX_BYTES: u64 = 8 << 20;

/// Which file.
#[derive(Debug, Clone, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Which {
    /// Path as a frame has it.
    file: String,
}

impl Query for Which {
    fn take(params: &mut params::Params) -> Result<Self> {
        Ok(Self { file: params.require("file")? })
    }
}

/// A source file that appears in backtraces, with sums per line: of the frames that all filters leave in the stacks. Of
/// frames that a transform makes one the outermost's line stays. `module` with the id of a module means its lines alone.
#[utoipa::path(
    get,
    path = "/api/v1/recordings/{id}/source",
    tag = "functions",
    params(RecordingId, Which, Filters, Measure, Window),
    responses((status = 200, body = Source), Problems)
)]
pub async fn source(asked: RecordingRequest) -> Result<Response> {
    let roots = asked.source_roots().to_vec();
    asked
        .answer(move |ask, (which, mut filters, measure, times): (Which, Filters, Measure, Window)| {
            let module = match filters.module.take_if(|text| text.bytes().all(|byte| byte.is_ascii_digit())) {
                None => None,
                Some(id) => {
                    let position = ask.trace.modules().iter().position(|module| Ok(module.id) == id.parse());
                    let position =
                        position.ok_or_else(|| HttpProblem::parameter("module", format!("there is no module {id}")))?;
                    Some(position as u32)
                }
            };
            let params = SourceParams {
                metric: measure.metric,
                unit: measure.unit,
                window: window(&times, &measure)?,
                filter: filters.of(ask.trace)?,
                file: which.file.clone(),
                module,
            };
            if !ask.symbolizer.knows_file(ask.trace, &which.file, ask.cancel).map_err(QueryError::from)? {
                return Err(HttpProblem::not_found(format!(
                    "no backtrace of this recording goes through {:?}",
                    which.file
                )));
            }
            let lines = source::lines(ask.trace, ask.symbols, &params, ask.cancel)?;
            let (text, note) = match read(&which.file, &roots) {
                Ok(text) => (Some(text), None),
                Err(note) => (None, Some(note)),
            };
            Ok(Source {
                schema: "heaptrace.source/1".into(),
                file: which.file,
                metric: measure.metric,
                unit: measure.unit,
                text,
                note,
                lines,
                exactness: ask.trace.exactness(),
            })
        })
        .await
}

/// The text of a file, or why it is not shown.
fn read(file: &str, roots: &[PathBuf]) -> std::result::Result<String, String> {
    let path = find(Path::new(file), roots).ok_or_else(|| {
        let names: Vec<_> = roots.iter().map(|root| root.display().to_string()).collect();
        format!("the file is not below {}; start the server with --source FOLDER to show it", names.join(", "))
    })?;
    let meta = path.metadata().map_err(|error| format!("the file cannot be read: {error}"))?;
    if meta.len() > MAX_BYTES {
        return Err(format!("the file has {} bytes; up to {MAX_BYTES} are shown", meta.len()));
    }
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    read.map_err(|error| format!("the file cannot be read: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The file below one of the roots: at its own path, or at a part of it, when it was compiled elsewhere.
fn find(file: &Path, roots: &[PathBuf]) -> Option<PathBuf> {
    let names: Vec<_> = file
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(Some(name)),
            Component::RootDir | Component::CurDir => None,
            // `..` could lead anywhere; the parts behind it are tried on their own.
            Component::ParentDir | Component::Prefix(_) => Some(None),
        })
        .collect();
    let behind_parents = names.iter().rposition(Option::is_none).map_or(0, |at| at + 1);
    let names: Vec<_> = names[behind_parents..].iter().copied().flatten().collect();
    for root in roots {
        let Ok(root) = root.canonicalize() else { continue };
        let whole = file.is_absolute().then(|| file.to_path_buf());
        let parts = (0..names.len()).map(|skip| names[skip..].iter().fold(root.clone(), |path, name| path.join(name)));
        // Symbolic links are followed first, so that none leads out of the root.
        let real = whole.into_iter().chain(parts).filter_map(|path| path.canonicalize().ok());
        if let Some(found) = real.into_iter().find(|path| path.starts_with(&root) && path.is_file()) {
            return Some(found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_below_the_roots_are_found() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("project");
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::write(root.join("src/main.c"), "int main;").unwrap();
        std::fs::write(temp.path().join("secret"), "key").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
        let roots = [root.clone()];
        let main = root.join("src/main.c").canonicalize().unwrap();
        for path in ["src/main.c", "./src/main.c", "/build/elsewhere/src/main.c", "/x/../src/main.c", "main.c"] {
            let expected = (path != "main.c").then(|| main.clone());
            assert_eq!(find(Path::new(path), &roots), expected, "{path}");
        }
        assert_eq!(find(&root.join("src/main.c"), &roots), Some(main));
        let secret = temp.path().join("secret");
        let outside = ["../secret", "link", "/etc/passwd", "src", "", "/", secret.to_str().unwrap()];
        for path in outside {
            assert_eq!(find(Path::new(path), &roots), None, "{path}");
        }
    }
}
