//! Live bytes over time by function, module, thread, site or language: a few layers and the rest, which add up to the
//! live bytes at every moment.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::amounts::{Signed, SumKey, SumQuery};
use super::filter::Filter;
use super::own_frames::OwnFrames;
use super::window::Window;
use super::{QueryError, Result, site_handle, trend};
use tracehound_api::Frame;
use tracehound_api::breakdown::{Breakdown, BreakdownGroup, BreakdownRow};
use tracehound_index::symbols::{FileId, FunctionId, RecordingSymbols};
use tracehound_index::{Cancel, Trace};

/// Parameters of the query.
#[derive(Debug, Clone)]
pub struct BreakdownParams {
    /// Window of time.
    pub window: Window,
    /// Which blocks count.
    pub filter: Filter,
    /// What a layer is.
    pub by: BreakdownGroup,
    /// Number of moments.
    pub points: usize,
    /// Layers beside the rest.
    pub top: usize,
    /// Amounts (layers by moments, 16 bytes each) that are held at once, [`MAX_AMOUNTS`] unless a test asks for less; of
    /// more, what is large is decided at some of the moments.
    pub max_amounts: usize,
}

/// Most moments of one answer.
pub const MAX_POINTS: usize = 2000;
/// What [`BreakdownParams::max_amounts`] should be: 64 MiB.
pub const MAX_AMOUNTS: usize = 4 << 20;
/// Moments at which it is decided which layers are large where there are very many.
const LOOKS: usize = 24;

/// Splits live bytes into layers.
///
/// # Errors
/// When a parameter does not fit the recording, or cancelled.
pub fn run(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    params: &BreakdownParams,
    cancel: &Cancel,
) -> Result<Breakdown> {
    if params.points == 0 || params.points > MAX_POINTS {
        return Err(QueryError::bad("points", format!("1 to {MAX_POINTS} moments can be asked for")));
    }
    let selection = params.filter.select(trace, symbols, cancel)?;
    let window = params.window.resolve(trace, &selection, cancel)?;
    let key = if params.by == BreakdownGroup::Thread { SumKey::Thread } else { SumKey::Site };
    let question = SumQuery { trace, selection: &selection, key, cancel };
    let layers = Layers::of(trace, symbols, params.by, cancel)?;

    let points = (params.points as u64).min((window.to_ns - window.from_ns).max(1)) as usize;
    let moments = trend::moments(trace, &window, points);
    let places: Vec<_> = moments.iter().map(|moment| moment.1).collect();
    let every = layers.heads.len().saturating_mul(points) <= params.max_amounts;
    let step = if every { 1 } else { points.div_ceil(LOOKS) };
    let looks: Vec<_> = places.iter().rev().step_by(step).rev().copied().collect();
    let seen = trend::live_by_group(&question, &layers.of_key, layers.heads.len(), &looks)?;
    let largest = |layer: usize| seen.iter().map(|live| live[layer].bytes).max().unwrap_or(0);
    let mut order: Vec<usize> = (0..layers.heads.len()).filter(|&layer| largest(layer) > 0).collect();
    order.sort_by_key(|&layer| (std::cmp::Reverse(largest(layer)), layer));
    let others = order.split_off(params.top.min(order.len()));

    let place_of: HashMap<usize, u32> = order.iter().copied().zip(0..).collect();
    let rest = order.len() as u32;
    let group_of = |layer: usize| place_of.get(&layer).copied().unwrap_or(rest) as usize;
    let columns = if every {
        let folded = |live: &Vec<Signed>| {
            let mut sums = vec![Signed::default(); order.len() + 1];
            for (layer, amount) in live.iter().enumerate() {
                let sum = &mut sums[group_of(layer)];
                sum.count += amount.count;
                sum.bytes += amount.bytes;
            }
            sums
        };
        seen.iter().map(folded).collect()
    } else {
        let of_key: Vec<u32> = layers.of_key.iter().map(|&layer| group_of(layer as usize) as u32).collect();
        trend::live_by_group(&question, &of_key, order.len() + 1, &places)?
    };
    let mut curves = trend::transposed(&columns, order.len() + 1);
    let bytes = |curve: Vec<Signed>| curve.into_iter().map(|live| live.bytes).collect::<Vec<i64>>();
    let rest = bytes(curves.pop().unwrap_or_default());
    // Of very many layers, one that was live only between two of the chosen moments is in the rest, and was not counted.
    let rest_rows = (others.len() as u64).max(u64::from(rest.iter().any(|&bytes| bytes != 0)));
    let rows: Vec<BreakdownRow> =
        order.iter().zip(curves).map(|(&layer, curve)| layers.row(layer, bytes(curve))).collect();
    let total = (0..points).map(|at| rest[at] + rows.iter().map(|row| row.bytes[at]).sum::<i64>()).collect();
    Ok(Breakdown {
        schema: "heaptrace.breakdown/1".into(),
        by: params.by,
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        t_ns: moments.iter().map(|moment| moment.0).collect(),
        total,
        rows,
        rest,
        rest_rows,
        exactness: trace.exactness(),
    })
}

/// What a layer is called, and where it is.
#[derive(Debug, Clone, Default)]
struct LayerHead {
    id: String,
    name: String,
    module: Option<String>,
    file: Option<String>,
    line: Option<u32>,
}

/// All layers, and the layer of each site or thread.
struct Layers {
    of_key: Vec<u32>,
    heads: Vec<LayerHead>,
}

impl Layers {
    fn of(trace: &Trace, symbols: &dyn RecordingSymbols, by: BreakdownGroup, cancel: &Cancel) -> Result<Self> {
        if by == BreakdownGroup::Thread {
            let head = |thread: &tracehound_index::facts::ThreadFacts| LayerHead {
                id: thread.id.to_string(),
                name: if thread.name.is_empty() { format!("thread {}", thread.id) } else { thread.name.clone() },
                ..LayerHead::default()
            };
            let heads: Vec<LayerHead> = trace.threads().iter().map(head).collect();
            return Ok(Self { of_key: (0..heads.len() as u32).collect(), heads });
        }
        let mut layers = Self { of_key: Vec::new(), heads: Vec::new() };
        let mut known: HashMap<LayerKey, u32> = HashMap::new();
        // Texts are made once for each function and file, not for each site, unless each site is a layer.
        let mut of_place: FxHashMap<Option<(FunctionId, Option<FileId>)>, u32> = FxHashMap::default();
        let own_frames = OwnFrames::new(trace, symbols);
        for site in 0..trace.site_count() {
            if site % 4096 == 0 {
                cancel.check()?;
            }
            let own = own_frames.of_site(site);
            let mut layer = || {
                let (key, head) = layer_of(by, site, own.map(|own| own.texts(trace, symbols)));
                *known.entry(key).or_insert_with(|| {
                    layers.heads.push(head);
                    layers.heads.len() as u32 - 1
                })
            };
            let layer = match by {
                BreakdownGroup::Site => layer(),
                _ => *of_place.entry(own.map(|own| own.place())).or_insert_with(layer),
            };
            layers.of_key.push(layer);
        }
        Ok(layers)
    }

    fn row(&self, layer: usize, bytes: Vec<i64>) -> BreakdownRow {
        let LayerHead { id, name, module, file, line } = self.heads.get(layer).cloned().unwrap_or_default();
        BreakdownRow { id, name, module, file, line, bytes }
    }
}

/// Key of a layer: two sites with the same key are one layer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum LayerKey {
    Site(u32),
    Name(String),
    /// Module, name, and file of the declaration: a function of another file is another one.
    Function(Option<String>, String, Option<String>),
}

fn layer_of(by: BreakdownGroup, site: u32, frame: Option<Frame>) -> (LayerKey, LayerHead) {
    let Some(frame) = frame else {
        let name = "(no backtrace)".to_owned();
        return (LayerKey::Name(name.clone()), LayerHead { id: name.clone(), name, ..LayerHead::default() });
    };
    let of_name =
        |name: String| (LayerKey::Name(name.clone()), LayerHead { id: name.clone(), name, ..LayerHead::default() });
    let name = frame.function.or(frame.offset).unwrap_or(frame.address);
    match by {
        BreakdownGroup::Module | BreakdownGroup::Thread => {
            of_name(frame.module.unwrap_or_else(|| "(no module)".to_owned()))
        }
        BreakdownGroup::Language => of_name(frame.language.unwrap_or_else(|| "(unknown)".to_owned())),
        BreakdownGroup::Function => {
            let key = LayerKey::Function(frame.module.clone(), name.clone(), frame.file.clone());
            (key, LayerHead { id: name.clone(), name, module: frame.module, file: frame.file, line: frame.line })
        }
        BreakdownGroup::Site => {
            let head =
                LayerHead { id: site_handle(site), name, module: frame.module, file: frame.file, line: frame.line };
            (LayerKey::Site(site), head)
        }
    }
}
