//! Random questions: windows, moments and filters, as the reference and the engine take them.

use proptest::prelude::*;
use tracehound_api::Metric;
use tracehound_index::layout::Granularity;
use tracehound_ingest::{IndexPlace, OpenOptions};
use tracehound_query::transform::read_all;
use tracehound_query::{Filter, LifetimeKind, TimeExpr, Window};

use crate::reference::{Keep, Reference};
use crate::symbols;

/// Small pages and buckets, so that short traces have many of both.
pub fn options(fine: (u64, u64, u64)) -> OpenOptions {
    // Few sizes get codes of their own, now and then none.
    let table_sizes = (fine.0 % 5) as u16;
    let fine = Granularity {
        page_events: fine.0,
        bucket_events: fine.1,
        chunk_events: fine.2,
        table_sizes,
        zone_rows: fine.1 % 6 + 1,
        // Now and then most frees are far from their allocations.
        reach: if fine.1.is_multiple_of(3) { fine.2 % 12 } else { u64::MAX },
    };
    // Now and then the table of live blocks moves to disk at once.
    let live_bytes = if fine.page_events.is_multiple_of(4) { 0 } else { OpenOptions::default().live_bytes };
    OpenOptions { index: IndexPlace::Auto, fine, live_bytes, ..OpenOptions::default() }
}

pub fn fine() -> impl Strategy<Value = (u64, u64, u64)> {
    (1_u64..20, 1_u64..40, 1_u64..60)
}

#[derive(Debug, Clone)]
pub struct Ask {
    pub from: u64,
    pub to: u64,
    pub at: Option<u64>,
    pub keep: Keep,
    pub filter: Filter,
    pub points: usize,
}

/// Some steps, one after the other.
fn transforms() -> impl Strategy<Value = Vec<(&'static str, Option<u32>)>> {
    let function = || (0_u32..symbols::FUNCTIONS).prop_map(Some);
    let step = prop_oneof![
        2 => (Just("merge-function"), function()),
        1 => (Just("drop-function"), function()),
        2 => (Just("collapse-function"), function()),
        2 => (Just("collapse-module"), (0_u32..2).prop_map(Some)),
        2 => (Just("collapse-recursion"), function()),
        1 => Just(("collapse-recursion", None)),
        2 => (Just("collapse-direct-recursion"), function()),
        1 => Just(("collapse-direct-recursion", None)),
        1 => (Just("focus-function"), function()),
        1 => (Just("focus-inverted"), function()),
    ];
    prop_oneof![2 => Just(Vec::new()), 3 => prop::collection::vec(step, 1..4)]
}

/// As the command line and URLs have it: a name, or what tells the function from others of its name.
fn line(&(kind, target): &(&str, Option<u32>)) -> String {
    match (kind, target) {
        (_, None) => kind.into(),
        ("collapse-module", Some(module)) => format!("{kind}:module{module}.so"),
        (_, Some(f)) if f % 2 == 0 => format!("{kind}:{}", symbols::name(f)),
        (_, Some(f)) => format!("{kind}:{}@{}@module{}.so", symbols::name(f), symbols::file(f), f % 2),
    }
}

fn keep() -> impl Strategy<Value = Keep> {
    let rare = |max: u64| prop_oneof![3 => Just(None), 1 => (0..max).prop_map(Some)];
    let text = || {
        prop_oneof![
            4 => Just(None),
            1 => (0_u32..symbols::FUNCTIONS).prop_map(|f| Some(symbols::name(f))),
            1 => (0_u32..3).prop_map(|f| Some(format!("src/{f}"))),
        ]
    };
    (
        (text(), text(), prop_oneof![5 => Just(None), 1 => Just(Some(0_u32)), 1 => Just(Some(1))]),
        (text(), text(), text(), transforms()),
        prop_oneof![4 => Just(None), 1 => (1_u32..5).prop_map(Some)],
        (rare(100), rare(1 << 33), rare(500), rare(2000)),
        (
            prop_oneof![
                5 => Just(None),
                1 => Just(Some("leaked")),
                1 => Just(Some("freed")),
                1 => Just(Some("temporary"))
            ],
            text(),
        ),
        // Slots lie 32 bytes apart, so that ranges cut blocks.
        prop_oneof![4 => Just(None), 1 => (0_u64..9000, 1_u64..3000).prop_map(|(at, len)| {
            Some((0x5555_0000_0000 + at, 0x5555_0000_0000 + at + len))
        })],
    )
        .prop_map(
            |(
                (focus, ignore, module),
                (hide, show, show_from, transforms),
                thread,
                (min_size, max_size, min_lifetime, max_lifetime),
                (lifetime, freed_by),
                address,
            )| Keep {
                focus,
                ignore,
                hide,
                show,
                show_from,
                transforms,
                module,
                thread,
                min_size: min_size.unwrap_or(0),
                max_size,
                min_lifetime: min_lifetime.unwrap_or(0),
                max_lifetime,
                lifetime,
                freed_by,
                address,
            },
        )
}

/// A window and an instant in parts of a thousand of the recording's length, a filter, and a number of points.
pub type Asked = ((u16, u16, Option<u16>), Keep, usize);

/// A few questions.
pub fn asks() -> impl Strategy<Value = Vec<Asked>> {
    let window = prop_oneof![
        1 => Just((0, 1000, None)),
        4 => (0_u16..1001, 0_u16..1001, prop_oneof![2 => Just(None), 1 => (0_u16..1001).prop_map(Some)])
            .prop_map(|(a, b, at)| (a.min(b), a.max(b), at)),
    ];
    prop::collection::vec((window, prop_oneof![2 => Just(Keep::default()), 3 => keep()], 1_usize..40), 1..5)
}

fn filter(keep: &Keep, truth: &Reference) -> Option<Filter> {
    let regex = |text: &Option<String>| text.as_ref().map(|t| Filter::regex("focus", &regex::escape(t)).unwrap());
    if let Some(thread) = keep.thread
        && !truth.allocs.iter().any(|b| b.thread == thread)
    {
        return None;
    }
    Some(Filter {
        context: None,
        freed_by: regex(&keep.freed_by),
        focus: keep.focus.iter().map(|focus| regex(&Some(focus.clone())).unwrap()).collect(),
        ignore: regex(&keep.ignore),
        hide: regex(&keep.hide),
        show: regex(&keep.show),
        show_from: regex(&keep.show_from),
        transforms: read_all(&keep.transforms.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap(),
        module: keep.module.map(|m| Filter::regex("module", &format!("module{m}\\.so$")).unwrap()),
        thread: keep.thread.map(|t| t.to_string().parse().unwrap()),
        min_size: (keep.min_size > 0).then_some(keep.min_size),
        max_size: keep.max_size,
        min_lifetime: (keep.min_lifetime > 0).then_some(keep.min_lifetime),
        max_lifetime: keep.max_lifetime,
        lifetime: keep.lifetime.map(|l| l.parse::<LifetimeKind>().unwrap()),
        address: keep.address.map(|(start, end)| format!("{start:#x}..{end:x}").parse().unwrap()),
    })
}

impl Ask {
    pub fn new(truth: &Reference, raw: &((u16, u16, Option<u16>), Keep, usize)) -> Option<Self> {
        let ((from, to, at), keep, points) = raw;
        let part = |p: u16| truth.duration * u64::from(p) / 1000;
        Some(Self {
            from: part(*from),
            to: part(*to),
            at: at.map(part),
            filter: filter(keep, truth)?,
            keep: keep.clone(),
            points: *points,
        })
    }

    pub fn window(&self) -> Window {
        let time = |ns| Some(TimeExpr::Ns(ns));
        Window { from: time(self.from), to: time(self.to), at: self.at.and_then(time) }
    }

    /// Allocations and frees before the moment of a metric.
    pub fn moment(&self, truth: &Reference, metric: Metric) -> u64 {
        match (metric, self.at) {
            (Metric::Peak, _) => truth.peak_of(self.from, self.to, &self.keep).3,
            (_, Some(at)) => truth.events_before(at + 1),
            (_, None) => truth.events_before(self.to),
        }
    }
}
