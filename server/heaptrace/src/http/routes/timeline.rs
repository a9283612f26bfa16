//! `timeline`: time series over a window.

use tracehound_api::timeline::{SeriesName, Timeline};
use tracehound_query::timeline::{self, TimelineParams};

use super::shared::{Filters, Window, wire};
use crate::http::params::{FromText, Within, parameters};
use crate::http::route::recording_route;

/// Time series, separated by commas.
#[derive(Debug, Clone)]
pub struct SeriesNames(Vec<SeriesName>);

impl FromText for SeriesNames {
    fn from_text(text: &str) -> std::result::Result<Self, String> {
        text.split(',').map(|name| wire(name.trim())).collect::<std::result::Result<_, _>>().map(Self)
    }
}

parameters! {
    /// Which time series, how fine.
    Curves {
        /// Time series, separated by commas.
        #[param(value_type = Option<String>, example = "live_bytes,alloc_rate,rss")]
        series: SeriesNames = SeriesNames(vec![SeriesName::LiveBytes, SeriesName::AllocRate, SeriesName::Rss]),
        /// Columns of time.
        #[param(value_type = Option<u32>, minimum = 1, maximum = 4000)]
        points: Within<1, 4000> = Within(600),
    }
}

recording_route! {
    /// Live bytes, rates, resident memory over time; smallest, largest and last value of each column.
    timeline at "/api/v1/recordings/{id}/timeline", tag "time", answers Timeline:
    |ask, curves: Curves, window: Window, filters: Filters| {
        let params = TimelineParams {
            series: curves.series.0,
            window: window.window()?,
            filter: filters.of(ask.trace)?,
            points: curves.points.0 as usize,
        };
        Ok(timeline::run(ask.trace, ask.symbols, &params, ask.cancel)?)
    }
}
