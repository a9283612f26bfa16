//! `leaks`: what lives at the end, with a verdict on each site.

use tracehound_api::leaks::Leaks;
use tracehound_query::Filter;
use tracehound_query::leaks::{self, LeaksParams};
use tracehound_query::suppress::{self, Suppression, SuppressionOrigin};

use super::shared::{Filters, Window};
use crate::http::answer::{Ask, Result, internal};
use crate::http::params::{self, Within, parameters};
use crate::http::route::recording_route;
use crate::http::stored::StoredAnswer;
use tracehound_audit::suppressions;

parameters! {
    /// How many.
    Limit {
        /// Sites at most, largest first.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 10000)]
        limit: Within<1, 10_000> = Within(200),
        /// Functions at most, largest first; 0: sites only.
        #[param(value_type = Option<u32>, minimum = 0, maximum = 10000)]
        functions: Within<0, 10_000> = Within(0),
    }
}

parameters! {
    /// Which sites are added up apart, as `heaptrace leaks` does it.
    Suppress {
        /// Sites that have a function, file or module that matches this regular expression.
        suppress: Option<String> = None,
        /// Those that the program itself names (`__lsan_default_suppressions`).
        program_suppressions: bool = true,
        /// Those of the files that the server was started with (`heaptrace server --suppressions FILE`).
        file_suppressions: bool = true,
        /// What libc and ld.so keep by design.
        builtin_suppressions: bool = false,
        /// List them, too.
        show_suppressed: bool = false,
    }
}

impl Suppress {
    fn list(&self, ask: &Ask<'_>) -> Result<Vec<Suppression>> {
        let mut list = Vec::new();
        if let Some(pattern) = &self.suppress {
            list.push(Suppression::new(Filter::regex("suppress", pattern)?, SuppressionOrigin::Option));
        }
        if self.file_suppressions {
            list.extend_from_slice(ask.suppressions);
        }
        if self.builtin_suppressions {
            list.extend(suppress::built_in());
        }
        if self.program_suppressions {
            list.extend(suppressions::of_program(ask.trace).0);
        }
        Ok(list)
    }
}

/// What the overview of the page asks for (`web/src/features/overview`).
const OVERVIEW: &str = "functions=20&limit=20";

/// Computes and stores what the page's first screen will ask for.
///
/// # Errors
/// When cancelled.
pub fn store_for_overview(ask: &Ask<'_>) -> Result<()> {
    let stored = StoredAnswer::of(ask, &format!("leaks?{OVERVIEW}"));
    if stored.is_wanted() && stored.read(ask).is_none() {
        let (times, filters, limit, hide) = params::read(Some(OVERVIEW))?;
        stored.write(ask, &serde_json::to_vec(&list(ask, &times, &filters, &limit, &hide)?).map_err(internal)?);
    }
    Ok(())
}

fn list(ask: &Ask<'_>, times: &Window, filters: &Filters, limit: &Limit, hide: &Suppress) -> Result<Leaks> {
    let params = LeaksParams {
        window: times.window()?,
        filter: filters.of(ask.trace)?,
        suppress: hide.list(ask)?,
        show_suppressed: hide.show_suppressed,
        limit: Some(limit.limit.0 as usize),
        functions: limit.functions.0 as usize,
    };
    Ok(leaks::run(ask.trace, ask.symbols, &params, ask.cancel)?)
}

recording_route! {
    /// Blocks allocated in the window that live at the end, by allocating backtrace.
    leaks at "/api/v1/recordings/{id}/leaks", tag "leaks", answers stored Leaks:
    |ask, times: Window, filters: Filters, limit: Limit, hide: Suppress| {
        list(ask, &times, &filters, &limit, &hide)
    }
}
