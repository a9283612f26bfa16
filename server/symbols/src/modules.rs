//! All modules that were ever loaded, and where their names come from.

use tracehound_api::modules::{Module, Modules, Symbols};
use tracehound_index::Trace;

/// Symbols of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSymbols {
    /// Where names come from.
    pub symbols: Symbols,
    /// Locations of the module that have a name.
    pub named: u64,
    /// Why there are none, in words.
    pub note: Option<String>,
}

/// Lists modules; `status` returns the status of the one at a position of [`Trace::modules`].
#[must_use]
pub fn run(trace: &Trace, status: &dyn Fn(u32) -> ModuleSymbols) -> Modules {
    let mut addresses = vec![0_u64; trace.modules().len()];
    for location in 0..trace.location_count() {
        if let Some(count) = trace.location(location).module.and_then(|m| addresses.get_mut(m as usize)) {
            *count += 1;
        }
    }
    let modules = (0_u32..)
        .zip(trace.modules())
        .map(|(position, module)| {
            let about = status(position);
            let start = module.segments.iter().map(|s| s.start).min().unwrap_or(module.bias);
            let end = module.segments.iter().map(|s| s.start.saturating_add(s.len)).max().unwrap_or(start);
            let hex: String = module.build_id.iter().map(|b| format!("{b:02x}")).collect();
            Module {
                id: module.id,
                path: String::from_utf8_lossy(&module.path).into_owned(),
                build_id: (!hex.is_empty()).then_some(hex),
                start: format!("{start:#x}"),
                size: end - start,
                loaded_ns: module.loaded_ns,
                unloaded_ns: module.unloaded_ns,
                symbols: about.symbols,
                addresses: addresses[position as usize],
                named: about.named,
                note: about.note,
            }
        })
        .collect();
    Modules { schema: "heaptrace.modules/1".into(), modules, exactness: trace.exactness() }
}
