//! Arguments that several commands share.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use tracehound_api::{Metric, Unit};

use super::misuse;
use crate::query_params::{self, filter_texts};

/// The recordings, and how to print what they say.
#[derive(Debug, Clone, Args)]
pub struct Files {
    /// Recordings: finished, running, cut off or damaged
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Print one JSON document, with a stable schema
    #[arg(long)]
    pub json: bool,
}

impl Files {
    /// Rows to be shown of as many as `asked`, see [`row_limit`].
    pub fn row_limit(&self, asked: Option<usize>, default: usize) -> Option<usize> {
        row_limit(asked, self.json, default)
    }
}

/// Rows to be shown where `asked` says how many: 0 stands for all; nothing for `default`, in a document for all.
pub fn row_limit(asked: Option<usize>, json: bool, default: usize) -> Option<usize> {
    match asked {
        None => (!json).then_some(default),
        Some(rows) => (rows > 0).then_some(rows),
    }
}

/// A window of time.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Time (1.5s, 200ms, start, peak, end, 50%, capture:N, or a mark's label)")]
pub struct WindowArgs {
    /// Only what happened from here on
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Only what happened before this
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// Only the N-th period between a start and a stop of recording, from 1
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
    pub capture: Option<u32>,
}

impl WindowArgs {
    /// The window, which may be one instant.
    fn with(&self, at: Option<&str>) -> Result<tracehound_query::Window> {
        let capture = self.capture.map(|n| format!("capture:{n}"));
        let end = |end: &Option<String>| capture.clone().or_else(|| end.clone());
        query_params::window(end(&self.from).as_deref(), end(&self.to).as_deref(), at).map_err(misuse)
    }

    /// The window as it was asked for.
    pub fn resolve(&self) -> Result<tracehound_query::Window> {
        self.with(None)
    }
}

/// What is measured, in which unit, when.
#[derive(Debug, Clone, Args)]
pub struct Measure {
    /// What is measured: live, peak, leaked, allocated, freed, grown, temporary
    #[arg(long, value_name = "METRIC", default_value = "live", value_parser = wire::<Metric>(METRICS), hide_possible_values = true)]
    pub metric: Metric,
    /// What is added up: bytes, count
    #[arg(long, value_name = "UNIT", default_value = "bytes", value_parser = wire::<Unit>(UNITS), hide_possible_values = true)]
    pub unit: Unit,
    /// Add up blocks in place of bytes, as --unit count
    #[arg(long)]
    pub count: bool,
    /// What is live at one instant; with --metric live
    #[arg(long, value_name = "TIME", conflicts_with_all = ["from", "to", "capture"])]
    pub at: Option<String>,
    #[command(flatten)]
    pub window: WindowArgs,
}

impl Measure {
    /// The unit, however it was asked for.
    pub const fn unit(&self) -> Unit {
        if self.count { Unit::Count } else { self.unit }
    }

    /// The window, or the instant.
    pub fn window(&self) -> Result<tracehound_query::Window> {
        let window = self.window.with(self.at.as_deref())?;
        query_params::instant_is_for(self.metric, &window).map_err(misuse)?;
        Ok(window)
    }
}

/// Names of [`Metric`].
pub const METRICS: &[&str] = &["live", "peak", "leaked", "allocated", "freed", "grown", "temporary"];
/// Names of [`tracehound_api::pins::PinUnit`].
pub const PIN_UNITS: &[&str] = &["4k", "2M", "slab"];
/// Names of [`Unit`].
pub const UNITS: &[&str] = &["bytes", "count"];

/// Reads an enumeration by its names on the wire, of which `names` are proposed.
pub fn wire<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: for<'de> Deserialize<'de> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|text| {
        T::deserialize(text.as_str().into_deserializer()).map_err(|error: serde::de::value::Error| error)
    })
}

/// Which blocks count, and which frames are shown. The names are pprof's.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters (RE is a regular expression)")]
pub struct Filters {
    /// Only blocks whose stack has a matching function or file (or name@file:line@module); several must all match
    #[arg(long, value_name = "RE")]
    pub focus: Vec<String>,
    /// Only blocks whose stack has none that matches
    #[arg(long, value_name = "RE")]
    pub ignore: Option<String>,
    /// Leave matching functions out of the stacks
    #[arg(long, value_name = "RE")]
    pub hide: Option<String>,
    /// Leave only matching functions in the stacks
    #[arg(long, value_name = "RE")]
    pub show: Option<String>,
    /// Leave out frames above the outermost match, and blocks without a match
    #[arg(long, value_name = "RE")]
    pub show_from: Option<String>,
    /// Change the stacks, in the order given: merge-function:NAME, drop-function:NAME, collapse-function:NAME,
    /// collapse-module:NAME, collapse-recursion[:NAME], collapse-direct-recursion[:NAME], focus-function:NAME,
    /// focus-inverted:NAME; names are exact
    #[arg(long, value_name = "KIND:NAME")]
    pub transform: Vec<String>,
    /// Only blocks whose stack has a frame in a module whose path or file name matches
    #[arg(long, value_name = "RE")]
    pub module: Option<String>,
    /// Only blocks that this thread allocated
    #[arg(long, value_name = "NAME|ID")]
    pub thread: Option<String>,
    /// Only blocks that were allocated in this request context, or in those whose name matches
    #[arg(long, value_name = "RE|ID")]
    pub context: Option<String>,
    /// Only blocks whose freeing stack has a matching function or source file
    #[arg(long, value_name = "RE")]
    pub freed_by: Option<String>,
    /// Only blocks of at least this size
    #[arg(long, value_name = "SIZE")]
    pub min_size: Option<String>,
    /// Only blocks of at most this size
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<String>,
    /// Only blocks that lived at least this long
    #[arg(long, value_name = "TIME")]
    pub min_lifetime: Option<String>,
    /// Only blocks that lived at most this long
    #[arg(long, value_name = "TIME")]
    pub max_lifetime: Option<String>,
    /// Only blocks of this class: leaked, temporary, freed
    #[arg(long, value_name = "CLASS", value_parser = PossibleValuesParser::new(["leaked", "temporary", "freed"]), hide_possible_values = true)]
    pub lifetime: Option<String>,
    /// Only blocks that overlap these addresses (hexadecimal, the end not included)
    #[arg(long, value_name = "A..B")]
    pub address: Option<String>,
}
filter_texts!(Filters, texts);
