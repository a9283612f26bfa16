//! Order of sites by the name of the program's function that allocates.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tracehound_index::symbols::{FunctionId, RecordingSymbols};
use tracehound_index::{Cancel, Trace};

use super::Result;
use super::own_frames::OwnFrames;

/// Sites between two looks at the cancel flag.
const CHECK: u32 = 1 << 12;

/// By site: the rank of its function's name among all of them, equal for equal names; what has no frame comes last.
///
/// # Errors
/// When cancelled.
pub fn name_ranks(trace: &Trace, symbols: &dyn RecordingSymbols, cancel: &Cancel) -> Result<Vec<u32>> {
    let mut functions: Vec<Option<FunctionId>> = Vec::with_capacity(trace.site_count() as usize);
    let mut names: FxHashMap<FunctionId, Arc<str>> = FxHashMap::default();
    let own_frames = OwnFrames::new(trace, symbols);
    for site in 0..trace.site_count() {
        if site.is_multiple_of(CHECK) {
            cancel.check()?;
        }
        let function = own_frames.of_site(site).map(|own| own.level.function);
        if let Some(function) = function {
            names.entry(function).or_insert_with(|| Arc::clone(symbols.function(function).display()));
        }
        functions.push(function);
    }
    let mut sorted: Vec<&Arc<str>> = names.values().collect();
    sorted.sort_unstable();
    sorted.dedup();
    let rank = |name: &Arc<str>| sorted.binary_search(&name).map_or(u32::MAX, |rank| rank as u32);
    let ranks: FxHashMap<FunctionId, u32> = names.iter().map(|(&function, name)| (function, rank(name))).collect();
    let of = |function: Option<FunctionId>| function.and_then(|f| ranks.get(&f).copied()).unwrap_or(u32::MAX);
    Ok(functions.into_iter().map(of).collect())
}
