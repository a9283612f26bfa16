//! Figures of an earlier run, as limits of this one: of a recording, of evidence, of `heaptrace info --json`.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use tracehound_query::suppress::Suppression;

use super::budget::{Budget, ByteSize, Percent};
use super::measure::{Measured, Subject};
use super::{CheckArgs, CheckReport};
use crate::cli::terminal::clean;
use crate::cli::{Misuse, open};

/// What an earlier run had.
pub struct Baseline {
    name: String,
    measured: Measured,
    /// Whether its leaked bytes leave out what this check leaves out.
    suppressed_alike: bool,
    /// What it says of leaks is known: its recording has an orderly end.
    complete: bool,
    /// File name of the program; none if that is not known.
    program: Option<String>,
}

impl Baseline {
    /// Reads it from a recording, or from a document.
    ///
    /// # Errors
    /// When it cannot be read, or is neither: an error of usage, since nothing was compared.
    pub fn read(path: &Path, args: &CheckArgs, suppress: &[Suppression]) -> Result<Self> {
        let read = || match document(path)? {
            Some(document) => Self::of_document(path, &document, args),
            None => Self::of_recording(path, args, suppress),
        };
        read().map_err(|error| Misuse(format!("{error:#}")).into())
    }

    fn of_recording(path: &Path, args: &CheckArgs, suppress: &[Suppression]) -> Result<Self> {
        let opened = open::open(path)?;
        let mut suppress = suppress.to_vec();
        suppress.extend(args.suppressions.of_program(&opened));
        let subject = Subject::new(&opened, suppress, !args.no_builtin_suppressions)?;
        let program = file_name(subject.executable());
        let (name, measured) = (path.display().to_string(), subject.measured());
        Ok(Self { name, measured, suppressed_alike: true, complete: subject.is_complete(), program })
    }

    fn of_document(path: &Path, document: &Value, args: &CheckArgs) -> Result<Self> {
        let name = path.display().to_string();
        let number = |pointer: &str| {
            let value = document.pointer(pointer).and_then(Value::as_u64);
            value.ok_or_else(|| anyhow::anyhow!("{name} is no baseline: it has no number at {pointer}"))
        };
        let inherited = || document.pointer("/inherited/count").and_then(Value::as_u64).unwrap_or(0);
        let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).and_then(file_name);
        let complete = document["complete"].as_bool().unwrap_or(true);
        match document["schema"].as_str() {
            Some("heaptrace.check/1") => {
                let measured = Measured {
                    peak_bytes: number("/measured/peak_bytes")?,
                    leaked_bytes: number("/measured/leaked_bytes")?,
                    suppressed_bytes: number("/measured/suppressed_bytes")?,
                    allocations: number("/measured/allocations")?,
                    temporary: number("/measured/temporary")?,
                };
                let built_in = document["builtin_suppressions"].as_bool().unwrap_or(true);
                let suppressed_alike = built_in != args.no_builtin_suppressions;
                Ok(Self { measured, suppressed_alike, complete, program: text("/executable"), name })
            }
            Some("heaptrace.info/1") => {
                // It knows no suppressions: what is leaked is all that is.
                let measured = Measured {
                    peak_bytes: number("/peak/bytes")?,
                    leaked_bytes: number("/leaked/bytes")?,
                    suppressed_bytes: 0,
                    allocations: number("/allocations/count")?.saturating_sub(inherited()),
                    temporary: number("/temporary/count")?,
                };
                Ok(Self { measured, suppressed_alike: false, complete, program: text("/process/executable"), name })
            }
            Some("heaptrace.list/1") => anyhow::bail!(
                "{name} is no baseline: it is of several recordings; write the evidence of each into a file of its own"
            ),
            Some(other) => {
                anyhow::bail!("{name} is no baseline: its schema is {other}, not heaptrace.check/1 or heaptrace.info/1")
            }
            None => anyhow::bail!("{name} is no baseline: it has no schema"),
        }
    }

    /// Its figures as limits, with what is tolerated.
    pub fn budget(&self, tolerance: Percent) -> Budget {
        let before = &self.measured;
        let tolerated = |value: u64| {
            let more = (value as f64 * tolerance.0 / 100.0).ceil() as u64;
            value.saturating_add(more)
        };
        let share = if before.allocations == 0 {
            0.0
        } else {
            before.temporary as f64 * 100.0 / before.allocations as f64 * (1.0 + tolerance.0 / 100.0)
        };
        if *before == (Measured { peak_bytes: 0, leaked_bytes: 0, suppressed_bytes: 0, allocations: 0, temporary: 0 }) {
            crate::tell!("heaptrace: the baseline {} has no allocations", clean(&self.name));
        }
        let all = before.leaked_bytes.saturating_add(before.suppressed_bytes);
        let (leaked, leaked_in_all) = if self.suppressed_alike {
            (Some(ByteSize(tolerated(before.leaked_bytes))), None)
        } else {
            (None, Some(ByteSize(tolerated(all))))
        };
        Budget {
            peak: Some(ByteSize(tolerated(before.peak_bytes))),
            leaked,
            leaked_in_all,
            is_incomplete: !self.complete,
            allocations: Some(tolerated(before.allocations)),
            temporary: Some(Percent(share.min(100.0))),
            ..Budget::default()
        }
    }

    /// How reports call it.
    pub fn source(&self) -> String {
        let remark = if self.complete { "" } else { ", which is not complete" };
        format!("baseline {}{remark}", self.name)
    }

    /// Tells where a recording is of another program: a wrong file, or a program that was renamed.
    pub fn tell_of_another(&self, report: &CheckReport) {
        if let (Some(before), Some(now)) = (&self.program, file_name(&report.executable))
            && *before != now
        {
            let (name, file) = (clean(&self.name), clean(&report.file));
            let (before, now) = (clean(before), clean(&now));
            crate::tell!("heaptrace: the baseline {name} is of {before}, and {file} is of {now}");
        }
    }
}

/// Folders differ from build to build.
fn file_name(path: &str) -> Option<String> {
    Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned())
}

/// The JSON document in a file; nothing if the file is none.
fn document(path: &Path) -> Result<Option<Value>> {
    let name = path.display();
    let cannot_read = |error: std::io::Error| anyhow::anyhow!("cannot read {name}: {error}");
    if !std::fs::metadata(path).map_err(cannot_read)?.is_file() {
        return Ok(None);
    }
    let mut file = BufReader::new(File::open(path).map_err(cannot_read)?);
    let mut text = vec![0; 1];
    if file.read(&mut text).map_err(cannot_read)? == 0 || text[0] != b'{' {
        return Ok(None);
    }
    file.read_to_end(&mut text).map_err(cannot_read)?;
    let document = serde_json::from_slice(&text);
    document.map(Some).map_err(|error| anyhow::anyhow!("{name} is no baseline: it is no JSON: {error}"))
}
