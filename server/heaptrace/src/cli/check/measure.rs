//! Figures that limits are compared with, and the evidence for each.

use anyhow::Result;
use serde::Serialize;
use tracehound_api::info::Info;
use tracehound_api::leaks::LeakSite;
use tracehound_api::pins::{PinGroup, PinRow};
use tracehound_api::{Frame, Metric};
use tracehound_index::What;
use tracehound_query::node_sums::{self, NodeSum};
use tracehound_query::pins::{self, PinsParams};
use tracehound_query::suppress::Suppression;
use tracehound_query::{Filter, Window, info, leaks, parse_site, stacks};

use super::budget::{Budget, ByteSize};
use crate::cli::open::OpenRecording;
use crate::cli::units::{bytes, count, duration, percent, plural};
use crate::cli::{interrupt, misuse};

/// Backtraces shown for a figure.
const SHOWN: usize = 5;

/// A recording's figures, compared with the limits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckReport {
    /// `heaptrace.check/1`.
    pub schema: &'static str,
    /// The recording, as it was named.
    pub file: String,
    /// Path of the program.
    pub executable: String,
    /// What libc and ld.so keep by design was among the suppressions.
    pub builtin_suppressions: bool,
    /// All checks passed.
    pub passed: bool,
    /// The recording has ended in an orderly way and nothing is known to be missing; else peak and allocations are lower
    /// bounds, and leaked is what was live at the last event.
    pub complete: bool,
    /// What is missing, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// What a later run can be compared with.
    pub measured: Measured,
    /// One for each limit.
    pub checks: Vec<LimitCheck>,
}

/// The figures that a baseline has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Measured {
    /// Live bytes at the peak.
    pub peak_bytes: u64,
    /// Bytes that live at the end, without suppressed ones.
    pub leaked_bytes: u64,
    /// Suppressed ones.
    pub suppressed_bytes: u64,
    /// Blocks allocated.
    pub allocations: u64,
    /// Temporary ones of them.
    pub temporary: u64,
}

/// One limit and its figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LimitCheck {
    /// Stable name, `peak`, `leaked`, `leaks:^parse`.
    pub name: String,
    /// It is kept.
    pub passed: bool,
    /// The limit; percentages in hundredths of a percent.
    pub limit: u64,
    /// The figure.
    pub measured: u64,
    /// Unit of both.
    pub unit: LimitUnit,
    /// Where the limit comes from: `--max-peak`, `heap.toml`, the baseline's name.
    pub source: String,
    /// Both in words.
    pub why: String,
    /// Who makes up the figure; for failed checks.
    pub evidence: Vec<Evidence>,
}

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitUnit {
    /// Bytes.
    Bytes,
    /// Blocks.
    Count,
    /// Hundredths of a percent.
    BasisPoints,
}

/// One backtrace with its part of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evidence {
    /// Bytes or blocks, as in the check.
    pub value: u64,
    /// In words: amounts, verdicts, times.
    pub note: String,
    /// Leaf first.
    pub stack: Vec<Frame>,
}

/// A limit that is still to be compared.
pub struct Limit<T> {
    /// What it is.
    pub max: T,
    /// Where it comes from.
    pub source: String,
}

impl LimitUnit {
    /// A number in words.
    pub fn text(self, value: u64) -> String {
        match self {
            Self::Bytes => bytes(value),
            Self::Count => count(value),
            Self::BasisPoints => percent(value.cast_signed(), 10_000),
        }
    }

    /// The same where rounding would hide a difference.
    fn exact_text(self, value: u64) -> String {
        match self {
            Self::Bytes => format!("{value} B"),
            Self::Count | Self::BasisPoints => self.text(value),
        }
    }
}

/// Blocks that a process allocated itself: not those that it inherited when it was forked.
const fn own_allocations(info: &Info) -> u64 {
    let inherited = match &info.inherited {
        Some(inherited) => inherited.count,
        None => 0,
    };
    info.allocations.count.saturating_sub(inherited)
}

/// A recording being checked.
pub struct Subject<'a> {
    opened: &'a OpenRecording,
    builtin_suppressions: bool,
    leaks: tracehound_api::leaks::Leaks,
    info: Info,
}

impl<'a> Subject<'a> {
    /// Looks at a recording; whether the built-in suppressions are among them is noted in its report.
    pub fn new(opened: &'a OpenRecording, suppress: Vec<Suppression>, builtin_suppressions: bool) -> Result<Self> {
        let params = leaks::LeaksParams { suppress, ..leaks::LeaksParams::default() };
        let leaks = leaks::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse)?;
        Ok(Self { opened, builtin_suppressions, leaks, info: info::run(&opened.trace) })
    }

    /// Path of the program.
    pub fn executable(&self) -> &str {
        &self.info.process.executable
    }

    /// Whether the recording has ended in an orderly way, and nothing is known to be missing.
    pub const fn is_complete(&self) -> bool {
        self.info.complete
    }

    /// The figures that baselines have.
    pub fn measured(&self) -> Measured {
        Measured {
            peak_bytes: self.info.peak.bytes,
            leaked_bytes: self.leaks.leaked.bytes,
            suppressed_bytes: self.leaks.suppressed.bytes,
            allocations: own_allocations(&self.info),
            temporary: self.info.temporary.count,
        }
    }

    /// Compares everything.
    pub fn report(&self, limits: &[(Budget, String)]) -> Result<CheckReport> {
        let mut checks = Vec::new();
        for (budget, source) in limits {
            self.simple(budget, source, &mut checks)?;
            self.by_leak(budget, source, &mut checks);
            self.by_module(budget, source, &mut checks)?;
            self.by_mark(budget, source, &mut checks)?;
        }
        Ok(CheckReport {
            schema: "heaptrace.check/1",
            file: self.opened.path.clone(),
            executable: self.executable().to_owned(),
            builtin_suppressions: self.builtin_suppressions,
            passed: checks.iter().all(|check| check.passed),
            complete: self.info.complete,
            missing: self.opened.shortfall(),
            measured: self.measured(),
            checks,
        })
    }

    /// What is known of blocks that no event frees: behind the end of a recording that breaks off some may be freed.
    const fn not_freed(&self) -> &'static str {
        if self.info.complete { "were never freed" } else { "were live at its last event" }
    }

    fn simple(&self, budget: &Budget, source: &str, checks: &mut Vec<LimitCheck>) -> Result<()> {
        let m = self.measured();
        if let Some(max) = budget.peak {
            let limit = Limit { max: max.0, source: source.to_owned() };
            let when = format!(" at {}", duration(self.info.peak.at_ns));
            let check =
                compare("peak", m.peak_bytes, LimitUnit::Bytes, &limit, &format!("live bytes reached # of @{when}"));
            checks.push(self.with(check, || self.sums(Metric::Peak, LimitUnit::Bytes, &Filter::default()))?);
        }
        self.leaked(budget, source, checks)?;
        if let Some(max) = budget.temporary {
            let measured = (u128::from(m.temporary) * 10_000).checked_div(u128::from(m.allocations)).unwrap_or(0);
            let limit = Limit { max: (max.0 * 100.0).round() as u64, source: source.to_owned() };
            let words = format!(
                "# of all allocations were temporary ({} of {}), of @",
                count(m.temporary),
                count(m.allocations)
            );
            let check = compare("temporary", measured as u64, LimitUnit::BasisPoints, &limit, &words);
            checks.push(self.with(check, || self.sums(Metric::Temporary, LimitUnit::Count, &Filter::default()))?);
        }
        if let Some(max) = budget.allocations {
            let limit = Limit { max, source: source.to_owned() };
            let check =
                compare("allocations", m.allocations, LimitUnit::Count, &limit, "# blocks were allocated, of @");
            // What was inherited is at 0.
            let from = self.info.inherited.map(|_| tracehound_query::TimeExpr::Ns(1));
            let own = Window { from, ..Window::default() };
            checks.push(
                self.with(check, || {
                    self.sums_in(Metric::Allocated, LimitUnit::Count, &Filter::default(), own.clone())
                })?,
            );
        }
        if let Some(max) = budget.largest {
            let limit = Limit { max: max.0, source: source.to_owned() };
            checks.push(self.largest(&limit)?);
        }
        if let Some(max) = budget.rss {
            checks.push(self.rss(&Limit { max: max.0, source: source.to_owned() }));
        }
        if let Some(max) = budget.pinned {
            checks.push(self.pinned(&Limit { max: max.0, source: source.to_owned() })?);
        }
        Ok(())
    }

    fn leaked(&self, budget: &Budget, source: &str, checks: &mut Vec<LimitCheck>) -> Result<()> {
        let m = self.measured();
        let limit = |max: ByteSize| Limit { max: max.0, source: source.to_owned() };
        if let (true, true, Some(max)) =
            (budget.is_incomplete, self.info.complete, budget.leaked.or(budget.leaked_in_all))
        {
            let why = "the baseline is not complete: what was live at its last event is no limit of leaks; \
                       make it anew from a program that ends";
            checks.push(unknown("leaked", LimitUnit::Bytes, &limit(max), why.into()));
            return Ok(());
        }
        if let Some(max) = budget.leaked {
            let words = format!("# {}, of @", self.not_freed());
            let check = compare("leaked", m.leaked_bytes, LimitUnit::Bytes, &limit(max), &words);
            checks.push(self.with(check, || Ok(self.leaking(|_| true)))?);
        }
        if let Some(max) = budget.leaked_in_all {
            let words = format!("# {}, suppressed ones included, of @", self.not_freed());
            let all = m.leaked_bytes.saturating_add(m.suppressed_bytes);
            let check = compare("leaked", all, LimitUnit::Bytes, &limit(max), &words);
            checks.push(self.with(check, || self.sums(Metric::Leaked, LimitUnit::Bytes, &Filter::default()))?);
        }
        Ok(())
    }

    fn rss(&self, limit: &Limit<u64>) -> LimitCheck {
        let Some(peak) = info::peak_rss(&self.opened.trace) else {
            let why = "resident memory was never sampled, so there is nothing to compare";
            return unknown("rss", LimitUnit::Bytes, limit, why.into());
        };
        let words = format!("resident memory without the recorder reached # of @ at {}", duration(peak.at_ns));
        compare("rss", peak.bytes.saturating_sub(peak.recorder_bytes), LimitUnit::Bytes, limit, &words)
    }

    fn pinned(&self, limit: &Limit<u64>) -> Result<LimitCheck> {
        let params = PinsParams { by: PinGroup::Site, limit: Some(10), ..PinsParams::default() };
        let trace = &self.opened.trace;
        let pins = pins::run(trace, &self.opened.symbols, &params, interrupt::flag()).map_err(misuse)?;
        let held = pins.pages.bytes.saturating_sub(pins.pages.live_bytes);
        let words = format!("live blocks hold # of free bytes in {} pages, of @", count(pins.pages.count));
        let check = compare("pinned", held, LimitUnit::Bytes, limit, &words);
        self.with(check, || {
            let site = |row: &PinRow| row.id.as_ref().and_then(|id| id.strip_prefix('s')?.parse().ok());
            let evidence = |row: &PinRow| Evidence {
                value: row.given_back_bytes,
                note: format!("given back without {} in {} blocks", bytes(row.own_bytes), count(row.blocks)),
                stack: site(row)
                    .and_then(|site| trace.site_node(site))
                    .map(|node| stacks::frames(trace, &self.opened.symbols, node))
                    .unwrap_or_default(),
            };
            Ok(pins.rows.iter().map(evidence).collect())
        })
    }

    fn largest(&self, limit: &Limit<u64>) -> Result<LimitCheck> {
        let trace = &self.opened.trace;
        let mut largest: Option<(u64, u64)> = None;
        for row in 0..trace.alloc_count() {
            if row.is_multiple_of(1 << 18) {
                interrupt::flag().check().map_err(|cancelled| misuse(cancelled.into()))?;
            }
            let size = trace.size_of(row);
            if largest.is_none_or(|(most, _)| size > most) {
                largest = Some((size, row));
            }
        }
        let (size, row) = largest.unwrap_or_default();
        let check = compare("largest", size, LimitUnit::Bytes, limit, "the largest block has #, of @");
        self.with(check, || {
            let site = trace.site_amount(row).0;
            let note = format!("{}, allocated at {}", bytes(size), duration(trace.born_ns(row)));
            Ok(vec![Evidence { value: size, note, stack: self.stack(trace.site_node(site).unwrap_or(0)) }])
        })
    }

    fn by_leak(&self, budget: &Budget, source: &str, checks: &mut Vec<LimitCheck>) {
        for leak in &budget.leaks {
            let regex = &leak.pattern.0;
            let hit = |text: &Option<String>| text.as_ref().is_some_and(|text| regex.is_match(text));
            let matches = |stack: &[Frame]| {
                stack.iter().any(|frame| hit(&frame.function) || hit(&frame.file) || hit(&frame.module))
            };
            let sites = self.leaks.sites.iter().filter(|site| matches(&site.stack));
            let limit = Limit { max: leak.max.0, source: source.to_owned() };
            let words = format!("# that `{regex}` allocated {}, of @", self.not_freed());
            let name = format!("leaks:{regex}");
            let mut check = compare(&name, sites.map(|site| site.bytes).sum(), LimitUnit::Bytes, &limit, &words);
            if !check.passed {
                check.evidence = self.leaking(|site| matches(&site.stack));
            }
            checks.push(check);
        }
    }

    fn by_module(&self, budget: &Budget, source: &str, checks: &mut Vec<LimitCheck>) -> Result<()> {
        for module in &budget.modules {
            let regex = &module.module.0;
            let filter = Filter { module: Some(regex.clone()), ..Filter::default() };
            self.opened.tell_missing_modules(&filter);
            if let Some(max) = module.leaked {
                let selected = filter.select(&self.opened.trace, &self.opened.symbols, interrupt::flag());
                let selected = selected.map_err(misuse)?.sites;
                let inside = |site: &LeakSite| {
                    let number = parse_site("site", &site.id).ok();
                    selected.as_ref().is_none_or(|sites| number.is_some_and(|it| sites.get(it as usize) == Some(&true)))
                };
                let limit = Limit { max: max.0, source: source.to_owned() };
                let sites = self.leaks.sites.iter().filter(|site| inside(site));
                let words = format!("# that module `{regex}` asked for {}, of @", self.not_freed());
                let name = format!("module-leaked:{regex}");
                let check = compare(&name, sites.map(|site| site.bytes).sum(), LimitUnit::Bytes, &limit, &words);
                checks.push(self.with(check, || Ok(self.leaking(inside)))?);
            }
            if let Some(max) = module.peak {
                let sums = self.node_sums(Metric::Peak, &filter)?;
                let total: i64 = sums.iter().map(|sum| sum.sum.bytes).sum();
                let limit = Limit { max: max.0, source: source.to_owned() };
                let words = format!("# were live at once of module `{regex}`, of @");
                let name = format!("module-peak:{regex}");
                let check = compare(&name, total.max(0).cast_unsigned(), LimitUnit::Bytes, &limit, &words);
                checks.push(self.with(check, || self.sums(Metric::Peak, LimitUnit::Bytes, &filter))?);
            }
        }
        Ok(())
    }

    fn by_mark(&self, budget: &Budget, source: &str, checks: &mut Vec<LimitCheck>) -> Result<()> {
        let trace = &self.opened.trace;
        for limit_of_mark in &budget.marks {
            let regex = &limit_of_mark.pattern.0;
            let limit = Limit { max: limit_of_mark.allocations, source: source.to_owned() };
            let name = format!("mark:{regex}");
            // In the order of events, which is finer than that of times.
            let mut worst: Option<(u64, u64, u64, String)> = None;
            let (mut current, mut seen): (Option<(u64, u64, String)>, u64) = (None, 0);
            let mut close = |current: &mut Option<(u64, u64, String)>, until_ns: u64, seen: &mut u64| {
                if let Some((from_ns, allocs, label)) = current.take() {
                    *seen += 1;
                    if worst.as_ref().is_none_or(|worst| allocs > worst.0) {
                        worst = Some((allocs, from_ns, until_ns, label));
                    }
                }
            };
            for (i, event) in (0_u64..).zip(trace.events(trace.everything())) {
                if i.is_multiple_of(1 << 16) {
                    interrupt::flag().check().map_err(|cancelled| misuse(cancelled.into()))?;
                }
                match event.what {
                    What::Mark { label } => {
                        close(&mut current, event.t_ns, &mut seen);
                        let label = label.unwrap_or_default();
                        current = regex.is_match(&label).then_some((event.t_ns, 0, label));
                    }
                    What::Alloc { .. } | What::Realloc { .. } => {
                        if let Some((_, allocs, _)) = &mut current {
                            *allocs += 1;
                        }
                    }
                    _ => {}
                }
            }
            close(&mut current, trace.duration_ns(), &mut seen);
            let Some((allocs, from_ns, until_ns, label)) = worst else {
                let why = format!("no mark matches `{regex}`, so there is nothing to count");
                checks.push(unknown(&name, LimitUnit::Count, &limit, why));
                continue;
            };
            let words = format!(
                "# blocks were allocated after the mark “{label}” at {}, the most of {}, of @",
                duration(from_ns),
                count(seen)
            );
            let check = compare(&name, allocs, LimitUnit::Count, &limit, &words);
            checks.push(self.with(check, || {
                let time = |ns: u64| Some(tracehound_query::TimeExpr::Ns(ns));
                let window = Window { from: time(from_ns), to: time(until_ns), at: None };
                self.sums_in(Metric::Allocated, LimitUnit::Count, &Filter::default(), window)
            })?);
        }
        Ok(())
    }

    fn with(&self, mut check: LimitCheck, evidence: impl FnOnce() -> Result<Vec<Evidence>>) -> Result<LimitCheck> {
        if !check.passed {
            check.evidence = evidence()?;
        }
        Ok(check)
    }

    fn leaking(&self, matches: impl Fn(&LeakSite) -> bool) -> Vec<Evidence> {
        let sites = self.leaks.sites.iter().filter(|site| matches(site)).take(SHOWN);
        sites
            .map(|site| Evidence {
                value: site.bytes,
                note: format!("{} in {}; {}", bytes(site.bytes), plural(site.count, "block"), site.verdict.why),
                stack: site.stack.clone(),
            })
            .collect()
    }

    fn sums(&self, metric: Metric, unit: LimitUnit, filter: &Filter) -> Result<Vec<Evidence>> {
        self.sums_in(metric, unit, filter, Window::default())
    }

    fn node_sums(&self, metric: Metric, filter: &Filter) -> Result<Vec<NodeSum>> {
        let params = node_sums::NodeSumsParams { metric, window: Window::default(), filter: filter.clone() };
        let sums = node_sums::run(&self.opened.trace, &self.opened.symbols, &params, interrupt::flag());
        Ok(sums.map_err(misuse)?.nodes)
    }

    fn sums_in(&self, metric: Metric, unit: LimitUnit, filter: &Filter, window: Window) -> Result<Vec<Evidence>> {
        let params = node_sums::NodeSumsParams { metric, window, filter: filter.clone() };
        let sums = node_sums::run(&self.opened.trace, &self.opened.symbols, &params, interrupt::flag());
        let mut nodes = sums.map_err(misuse)?.nodes;
        let value = |sum: &NodeSum| if unit == LimitUnit::Bytes { sum.sum.bytes } else { sum.sum.count };
        nodes.sort_by_key(|sum| (std::cmp::Reverse(value(sum)), sum.site));
        let evidence = |sum: &NodeSum| {
            let amount = sum.sum.amount();
            let note = format!("{} in {}", bytes(amount.bytes), plural(amount.count, "block"));
            Evidence { value: value(sum).max(0).cast_unsigned(), note, stack: self.stack(sum.node) }
        };
        Ok(nodes.iter().take(SHOWN).map(evidence).collect())
    }

    fn stack(&self, node: u32) -> Vec<Frame> {
        stacks::frames(&self.opened.trace, &self.opened.symbols, node)
    }
}

/// A limit whose figure is not known is not kept: what was never measured would let everything pass.
fn unknown(name: &str, unit: LimitUnit, limit: &Limit<u64>, why: String) -> LimitCheck {
    let (name, source) = (name.to_owned(), limit.source.clone());
    LimitCheck { name, passed: false, limit: limit.max, measured: 0, unit, source, why, evidence: Vec::new() }
}

/// `words` with `#` for the figure and `@` for the limit.
fn compare(name: &str, measured: u64, unit: LimitUnit, limit: &Limit<u64>, words: &str) -> LimitCheck {
    let passed = measured <= limit.max;
    let (mut found, mut most) = (unit.text(measured), unit.text(limit.max));
    if !passed && found == most {
        (found, most) = (unit.exact_text(measured), unit.exact_text(limit.max));
    }
    let allowed = format!("{most} allowed");
    // The label of a mark may hold the signs: the first and the last are ours.
    let why = match words.rsplit_once('@') {
        Some((before, after)) => format!("{}{allowed}{after}", before.replacen('#', &found, 1)),
        None => words.replacen('#', &found, 1),
    };
    let (name, source) = (name.to_owned(), limit.source.clone());
    LimitCheck { name, passed, limit: limit.max, measured, unit, source, why, evidence: Vec::new() }
}
