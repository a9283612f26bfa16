//! `allocations`: every block, in pages.

use tracehound_api::allocations::Allocations;
use tracehound_query::allocations::{self, AllocationSort, AllocationsParams};
use tracehound_query::parse_site;
use tracehound_query::sorting::SortKeys;

use super::shared::{Filters, Window};
use crate::http::params::{Within, parameters};
use crate::http::route::recording_route;
use crate::query_params;

parameters! {
    /// Which blocks, in which order.
    Rows {
        /// Blocks that live at this instant, in place of blocks allocated in a window.
        at: Option<String> = None,
        /// Only blocks of this site, `s12`.
        site: Option<String> = None,
        /// Only blocks whose allocating function of the program, or its file or module, matches this regular expression.
        search: Option<String> = None,
        /// Columns of the order, the first decides: `born`, `died`, `size`, `lifetime`, `address`, `thread`, `free_thread`, `function`, smallest, earliest and A first; `-` turns one round.
        #[param(value_type = Option<String>, example = "size,-lifetime")]
        sort: SortKeys<AllocationSort> = SortKeys::default(),
        /// All of the order turned round: largest or latest first.
        descending: bool = false,
        /// Blocks at most.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
        limit: Within<1, 1000> = Within(100),
        /// `next_cursor` of the page before.
        cursor: Option<String> = None,
        /// Blocks left out first, in place of a cursor.
        #[param(value_type = Option<u64>, minimum = 0)]
        offset: Within<0, { 1 << 53 }> = Within(0),
    }
}

recording_route! {
    /// Blocks with their lives and both backtraces.
    allocations at "/api/v1/recordings/{id}/allocations", tag "allocations", answers Allocations:
    |ask, times: Window, filters: Filters, rows: Rows| {
        let params = AllocationsParams {
            window: query_params::window(times.from.as_deref(), times.to.as_deref(), rows.at.as_deref())?,
            filter: filters.of(ask.trace)?,
            site: rows.site.map(|site| parse_site("site", &site)).transpose()?,
            search: rows.search,
            sort: rows.sort,
            descending: rows.descending,
            cursor: rows.cursor,
            offset: rows.offset.0,
            limit: rows.limit.0 as usize,
        };
        Ok(allocations::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}

#[cfg(test)]
mod tests {
    use super::AllocationSort;
    use crate::http::params::FromText;

    #[test]
    fn orders_that_are_named_are_accepted() {
        let error = AllocationSort::from_text("freed").unwrap_err();
        let named: Vec<&str> = error.split('`').skip(1).step_by(2).collect();
        assert_eq!(named, ["born", "died", "size", "lifetime", "address", "thread", "free_thread", "function"]);
        assert!(named.iter().all(|name| AllocationSort::from_text(name).is_ok()));
    }
}
