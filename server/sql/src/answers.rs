//! Functions that return the answers of the query crate as tables.

use rusqlite::types::Value;
use tracehound_api::timeline::{Series, SeriesName};
use tracehound_api::{Amount, Unit};
use tracehound_query::flamegraph::FlamegraphParams;
use tracehound_query::functions::FunctionsParams;
use tracehound_query::leaks::LeaksParams;
use tracehound_query::lifetimes::LifetimesParams;
use tracehound_query::sites::SitesParams;
use tracehound_query::threads::ThreadsParams;
use tracehound_query::timeline::{MAX_POINTS, TimelineParams};
use tracehound_query::{
    QueryError, Window, flamegraph, functions as function_sums, leaks as leak_sites, lifetimes as lives, parse_site,
    sites as site_sums, stacks, threads, timeline as curves,
};

use super::allocations::signed;
use super::process::row;
use super::rows::{Question, SqlRow, SqlRows};

fn list(rows: Vec<SqlRow>) -> Result<SqlRows, QueryError> {
    Ok(Box::new(rows.into_iter()))
}

fn amount(amount: Amount) -> [Value; 2] {
    [signed(amount.bytes).into(), signed(amount.count).into()]
}

/// See [`super::schema::SITES`].
pub fn sites(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let recording = question.recording;
    let (trace, symbols) = (&recording.trace, recording.symbols.as_ref());
    let params = SitesParams { window: question.arguments.window(0, 1)?, limit: None, ..SitesParams::default() };
    let answer = site_sums::run(trace, symbols, &params, question.cancel)?;
    let mut rows = Vec::with_capacity(answer.sites.len());
    for site in answer.sites {
        let number = parse_site("site", &site.id)?;
        let mut row = row![
            number,
            trace.site_node(number),
            site.function.or(site.offset),
            site.file,
            site.line,
            site.module,
            site.called_from,
        ];
        for sum in [site.allocated, site.freed, site.live, site.leaked, site.at_peak, site.temporary] {
            row.extend(amount(sum));
        }
        let lived = site.allocated.count > 0;
        row.push(lived.then(|| signed(site.lifetimes.p50_ns)).into());
        row.push(lived.then(|| signed(site.lifetimes.p90_ns)).into());
        rows.push(row);
    }
    list(rows)
}

/// See [`super::schema::FUNCTIONS`].
pub fn functions(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let recording = question.recording;
    let arguments = &question.arguments;
    let params = FunctionsParams {
        metric: arguments.metric(0)?,
        unit: Unit::Bytes,
        window: Window { at: arguments.time(3, "at_time")?, ..arguments.window(1, 2)? },
        by: arguments.group(4)?,
        limit: None,
        ..FunctionsParams::default()
    };
    let answer = function_sums::run(&recording.trace, recording.symbols.as_ref(), &params, question.cancel)?;
    let row = |function: tracehound_api::functions::FunctionRow| {
        row![
            function.name,
            function.file,
            function.line,
            function.module,
            function.library,
            function.flat,
            function.flat_other,
            function.cum,
            function.cum_other,
        ]
    };
    list(answer.rows.into_iter().map(row).collect())
}

/// See [`super::schema::THREAD_SUMS`].
pub fn thread_sums(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let recording = question.recording;
    let params = ThreadsParams { window: question.arguments.window(0, 1)?, ..ThreadsParams::default() };
    let answer = threads::run(&recording.trace, recording.symbols.as_ref(), &params, question.cancel)?;
    let row = |thread: tracehound_api::threads::Thread| {
        let ended = thread.ended_ns.map(signed);
        let mut row = row![thread.id, thread.os_thread, thread.name, signed(thread.started_ns), ended];
        for sum in [thread.allocated, thread.freed, thread.live, thread.leaked, thread.temporary] {
            row.extend(amount(sum));
        }
        row
    };
    list(answer.threads.into_iter().map(row).collect())
}

/// See [`super::schema::LEAKS`].
pub fn leaks(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let recording = question.recording;
    let (trace, symbols) = (&recording.trace, recording.symbols.as_ref());
    let params = LeaksParams { window: question.arguments.window(0, 1)?, limit: None, ..LeaksParams::default() };
    let answer = leak_sites::run(trace, symbols, &params, question.cancel)?;
    let name = |value: serde_json::Result<serde_json::Value>| value.ok().and_then(|v| v.as_str().map(str::to_owned));
    let mut rows = Vec::new();
    for (leak, at_exit) in answer
        .sites
        .into_iter()
        .map(|leak| (leak, false))
        .chain(answer.freed_at_exit.into_iter().map(|leak| (leak, true)))
    {
        let number = parse_site("site", &leak.id)?;
        let by = stacks::allocated_by(trace, symbols, trace.site_node(number).unwrap_or(0));
        let verdict = leak.verdict;
        rows.push(row![
            number,
            by.as_ref().and_then(|frame| frame.function.clone().or_else(|| frame.offset.clone())),
            by.as_ref().and_then(|frame| frame.file.clone()),
            by.as_ref().and_then(|frame| frame.line),
            by.as_ref().and_then(|frame| frame.module.clone()),
            signed(leak.bytes),
            signed(leak.count),
            signed(leak.first_ns),
            signed(leak.last_ns),
            name(serde_json::to_value(verdict.kind)),
            name(serde_json::to_value(verdict.shape)),
            verdict.bytes_per_second,
            verdict.bytes_per_second_low,
            verdict.bytes_per_second_high,
            verdict.confidence,
            verdict.why,
            at_exit || verdict.freed_at_exit,
        ]);
    }
    list(rows)
}

/// See [`super::schema::TIMELINE`].
pub fn timeline(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let recording = question.recording;
    let points = match question.arguments.number(0, "points")? {
        None => 1000,
        Some(points) => usize::try_from(points)
            .ok()
            .filter(|points| (1..=MAX_POINTS).contains(points))
            .ok_or_else(|| QueryError::bad("points", format!("1 to {MAX_POINTS} parts can be asked for")))?,
    };
    let series = vec![
        SeriesName::LiveBytes,
        SeriesName::LiveCount,
        SeriesName::AllocRate,
        SeriesName::FreeRate,
        SeriesName::Rss,
        SeriesName::OccupiedBytes,
    ];
    let params =
        TimelineParams { series, window: question.arguments.window(1, 2)?, points, ..TimelineParams::default() };
    let answer = curves::run(&recording.trace, recording.symbols.as_ref(), &params, question.cancel)?;
    let find = |name| answer.series.iter().find(|series| series.name == name);
    let value = |name, pick: fn(&Series) -> &Vec<Option<f64>>, at: usize| {
        find(name).and_then(|series| pick(series).get(at).copied().flatten())
    };
    // Sums of bytes and blocks are whole.
    let whole = |value: Option<f64>| value.map(|value| value.round() as i64);
    let row = |(at, &t_ns): (usize, &u64)| {
        row![
            signed(t_ns),
            whole(value(SeriesName::LiveBytes, |s| &s.last, at)),
            whole(value(SeriesName::LiveBytes, |s| &s.min, at)),
            whole(value(SeriesName::LiveBytes, |s| &s.max, at)),
            whole(value(SeriesName::LiveCount, |s| &s.last, at)),
            value(SeriesName::AllocRate, |s| &s.last, at),
            value(SeriesName::FreeRate, |s| &s.last, at),
            whole(value(SeriesName::Rss, |s| &s.last, at)),
            whole(value(SeriesName::OccupiedBytes, |s| &s.last, at)),
        ]
    };
    list(answer.t_ns.iter().enumerate().map(row).collect())
}

/// See [`super::schema::FLAME`].
pub fn flame(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    /// Rows of the tree; the narrowest beyond these are folded, and say so.
    const MOST: usize = 1 << 20;
    let recording = question.recording;
    let arguments = &question.arguments;
    let params = FlamegraphParams {
        metric: arguments.metric(0)?,
        window: Window { at: arguments.time(1, "at_time")?, ..arguments.window(2, 3)? },
        min_px: 0.0,
        max_nodes: MOST,
        ..FlamegraphParams::default()
    };
    let answer = flamegraph::run(&recording.trace, recording.symbols.as_ref(), &params, question.cancel)?;
    let rows = &answer.rows;
    let mut depths = vec![0_i64; rows.parent.len()];
    let mut list_of_rows = Vec::with_capacity(depths.len());
    for (at, &parent) in rows.parent.iter().enumerate() {
        if at > 0 {
            depths[at] = depths.get(parent as usize).map_or(0, |depth| depth + 1);
        }
        let frame = rows.frame.get(at).copied().flatten().and_then(|frame| answer.frames.get(frame as usize));
        list_of_rows.push(row![
            at as i64,
            (at > 0).then_some(parent),
            depths[at],
            frame.map(|frame| frame.name.clone()),
            frame.and_then(|frame| frame.file.clone()),
            frame.and_then(|frame| frame.line),
            frame.and_then(|frame| frame.module.clone()),
            rows.own.get(at).copied(),
            rows.value.get(at).copied(),
            rows.folded.get(at).copied(),
        ]);
    }
    list(list_of_rows)
}

/// See [`super::schema::LIFETIMES`].
pub fn lifetimes(question: &Question<'_>) -> Result<SqlRows, QueryError> {
    let recording = question.recording;
    let params = LifetimesParams { window: question.arguments.window(0, 1)?, ..LifetimesParams::default() };
    let answer = lives::run(&recording.trace, recording.symbols.as_ref(), &params, question.cancel)?;
    let histogram = &answer.histogram;
    let of = |column: &[u64], at: usize| column.get(at).map(|&value| signed(value));
    let row = |(at, &from): (usize, &u64)| {
        row![signed(from), of(&histogram.count, at), of(&histogram.bytes, at), of(&histogram.live_count, at),]
    };
    list(histogram.lower.iter().enumerate().map(row).collect())
}
