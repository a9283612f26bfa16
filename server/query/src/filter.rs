//! The filter language, the same in all queries, and its evaluation on a recording.
//!
//! ```text
//! focus            keep backtraces in which some function or source file matches; of several patterns each must
//! ignore           drop backtraces in which one matches
//! module           keep backtraces in which some frame lies in a module whose path or file name matches
//! show_from        keep backtraces with a match and cut off what is above the first one
//! hide, show       take matching (all other) functions out of the backtraces; nothing is dropped
//! transforms       see `transform.rs`; behind those above, one after the other
//! thread           blocks that this thread allocated
//! context          blocks that were allocated in these request contexts
//! freed_by         blocks whose free has a backtrace in which some function or source file matches
//! address          blocks that reach into a range of addresses
//! sizes, lifetimes inclusive bounds; a block that still lives has lived until the end of the recording
//! ```
//! A pattern with an `@` is tried on `name@file:line@module` as well, so that it can mean one of two functions of a
//! name.

use std::str::FromStr;
use std::sync::Arc;

use regex::Regex;

use super::filter_functions::{FilterFunctions, MatchingRows, PathRows};
use super::sparse_selection::SparseSelection;
use super::stack_view::StackView;
use super::transform::{Transform, TransformKind, TransformTarget};
use super::{QueryError, Result};
use tracehound_index::facts::ModuleFacts;
use tracehound_index::frame_tree::FrameTree;
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

/// What to keep. Nothing given: everything.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Keep backtraces with a function that matches, for each of these.
    pub focus: Vec<Regex>,
    /// Drop backtraces with a matching function.
    pub ignore: Option<Regex>,
    /// Take matching functions out.
    pub hide: Option<Regex>,
    /// Take functions out that do not match.
    pub show: Option<Regex>,
    /// Cut off what is above the first match; drop backtraces without one.
    pub show_from: Option<Regex>,
    /// What else is done to the backtraces, in this order.
    pub transforms: Vec<Transform>,
    /// Keep backtraces with a frame in a matching module.
    pub module: Option<Regex>,
    /// Blocks of these threads.
    pub thread: Option<ThreadFilter>,
    /// Blocks of these request contexts.
    pub context: Option<ContextFilter>,
    /// Keep blocks that were freed with a matching function on the backtrace.
    pub freed_by: Option<Regex>,
    /// Smallest size.
    pub min_size: Option<u64>,
    /// Largest size.
    pub max_size: Option<u64>,
    /// Shortest life, nanoseconds.
    pub min_lifetime: Option<u64>,
    /// Longest life, nanoseconds.
    pub max_lifetime: Option<u64>,
    /// How the block ended.
    pub lifetime: Option<LifetimeKind>,
    /// Blocks that reach into these addresses.
    pub address: Option<AddressRange>,
}

/// A range of addresses that is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    /// The first.
    pub start: u64,
    /// The one behind the last.
    pub end: u64,
}

impl AddressRange {
    /// All addresses.
    pub const ALL: Self = Self { start: 0, end: u64::MAX };

    /// Whether a block reaches into the range; one of no bytes takes a place, too.
    #[inline]
    #[must_use]
    pub const fn meets(self, address: u64, size: u64) -> bool {
        let bytes = if size == 0 { 1 } else { size };
        address < self.end && address.saturating_add(bytes) > self.start
    }
}

impl FromStr for AddressRange {
    type Err = String;

    /// Reads `0x7f0012340000..0x7f0012350000`, hexadecimal with or without `0x`, the end not included.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let read = |part: &str| u64::from_str_radix(part.trim().trim_start_matches("0x"), 16).ok();
        let parts = text.split_once("..").and_then(|(start, end)| Some((read(start)?, read(end)?)));
        match parts {
            Some((start, end)) if start < end => Ok(Self { start, end }),
            _ => Err(format!("`{text}` is no range of addresses such as `0x7f0012340000..0x7f0012350000`")),
        }
    }
}

/// Threads by id or by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadFilter(String);

impl FromStr for ThreadFilter {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        Ok(Self(text.into()))
    }
}

/// Request contexts by id, or by their names.
#[derive(Debug, Clone)]
pub enum ContextFilter {
    /// The one with this id; 0: blocks without any.
    Id(u64),
    /// Those whose name matches.
    Named(Regex),
}

impl ContextFilter {
    /// Reads an id or a regular expression.
    ///
    /// # Errors
    /// When it is neither.
    pub fn new(text: &str) -> Result<Self> {
        match text.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) => Filter::regex("context", text).map(Self::Named),
        }
    }

    /// Which numbers of contexts are meant.
    fn numbers(&self, trace: &Trace) -> Result<Vec<bool>> {
        let passes = |id: u64| match self {
            Self::Id(wanted) => id == *wanted,
            Self::Named(regex) => trace.context_name(id).is_some_and(|name| regex.is_match(name)),
        };
        let numbers: Vec<bool> = std::iter::once(matches!(self, Self::Id(0)))
            .chain(trace.context_ids().iter().map(|&id| passes(id)))
            .collect();
        if numbers.contains(&true) {
            return Ok(numbers);
        }
        Err(QueryError::bad(
            "context",
            match self {
                Self::Id(id) => format!("no event belongs to a request context with the id {id}"),
                Self::Named(regex) => format!("no request context has a name that matches `{regex}`"),
            },
        ))
    }
}

/// How a block ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifetimeKind {
    /// It lives at the end of the recording.
    Leaked,
    /// It was temporary.
    Temporary,
    /// It was freed.
    Freed,
}

impl FromStr for LifetimeKind {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "leaked" => Ok(Self::Leaked),
            "temporary" => Ok(Self::Temporary),
            "freed" => Ok(Self::Freed),
            _ => Err(format!("`{text}` is none of `leaked`, `temporary`, `freed`")),
        }
    }
}

impl Filter {
    /// A regular expression of the filter language.
    ///
    /// # Errors
    /// When it cannot be understood or is too large.
    pub fn regex(parameter: &str, text: &str) -> Result<Regex> {
        let built = regex::RegexBuilder::new(text).size_limit(1 << 20).build();
        built.map_err(|e| {
            // Its text is a drawing of several lines, of which the last one says what is wrong.
            let text = e.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            QueryError::bad(parameter, format!("this is no regular expression: {why}"))
        })
    }

    /// Whether nothing is left out and nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.selects_everything() && self.hide.is_none() && self.show.is_none() && self.transforms.is_empty()
    }

    /// Refuses a pattern that means no module of the recording, for answers that have no room for a remark.
    ///
    /// # Errors
    /// When the filter is about modules and the recording has none of them.
    pub fn need_module(&self, trace: &Trace) -> Result<()> {
        match self.missing_module(trace) {
            None => Ok(()),
            Some(why) => Err(QueryError::bad("module", why + &some_modules(trace))),
        }
    }

    fn missing_module(&self, trace: &Trace) -> Option<String> {
        let module = self.module.as_ref()?;
        let is_there = trace.modules().iter().any(|it| is_meant(it, module));
        (!is_there).then(|| format!("no module matches `{module}`"))
    }

    /// Whether frames are taken out of backtraces.
    #[must_use]
    pub fn changes_stacks(&self) -> bool {
        [&self.hide, &self.show, &self.show_from].iter().any(|regex| regex.is_some()) || !self.transforms.is_empty()
    }

    /// Which parts of the filter mean a module that the recording does not have, in words, with modules that it has.
    #[must_use]
    pub fn missing_modules(&self, trace: &Trace) -> Vec<String> {
        let modules = trace.modules();
        let mut missing: Vec<String> = Vec::new();
        missing.extend(self.missing_module(trace));
        for transform in &self.transforms {
            if let (TransformTarget::Named(name), TransformKind::CollapseModule) = (&transform.target, transform.kind)
                && !modules.iter().any(|it| is_called(it, name))
            {
                missing.push(format!("no module has the name `{name}`"));
            }
        }
        if !missing.is_empty() {
            let known = some_modules(trace);
            missing.iter_mut().for_each(|why| why.push_str(&known));
        }
        missing
    }

    fn selects_everything(&self) -> bool {
        let rows = [self.min_size, self.max_size, self.min_lifetime, self.max_lifetime];
        let stacks = [&self.ignore, &self.show_from, &self.module];
        self.thread.is_none()
            && self.context.is_none()
            && self.freed_by.is_none()
            && self.lifetime.is_none()
            && self.address.is_none()
            && rows.iter().all(Option::is_none)
            && self.focus.is_empty()
            && stacks.iter().all(|r| r.is_none())
            && !self.transforms.iter().any(|transform| transform.kind.drops())
    }

    /// What the filter selects in a recording.
    ///
    /// # Errors
    /// When a thread is unknown, when addresses are meant and the recording has none, or cancelled.
    pub fn select(&self, trace: &Trace, symbols: &dyn RecordingSymbols, cancel: &Cancel) -> Result<Selection> {
        if self.address.is_some() {
            crate::need_addresses(trace)?;
        }
        let mut selection = Selection {
            min_size: self.min_size.unwrap_or(0),
            max_size: self.max_size.unwrap_or(u64::MAX),
            min_lifetime: self.min_lifetime.unwrap_or(0),
            max_lifetime: self.max_lifetime.unwrap_or(u64::MAX),
            lifetime: self.lifetime,
            address: self.address,
            ..Selection::default()
        };
        if let Some(thread) = &self.thread {
            selection.threads = Some(thread.positions(trace)?);
        }
        if let Some(context) = &self.context {
            selection.contexts = Some(context.numbers(trace)?.into());
        }
        if let Some(freed_by) = &self.freed_by {
            let tree = trace.frame_tree(symbols, cancel)?;
            let hits = FilterFunctions::new(trace, &tree, symbols).on_path(freed_by);
            let passes = |origin: u32| hits.0[tree.of_node(trace.origin(origin).node) as usize];
            selection.free_origins = Some((0..trace.origin_count()).map(passes).collect());
        }
        if !self.focus.is_empty() || self.ignore.is_some() || self.show_from.is_some() {
            let tree = trace.frame_tree(symbols, cancel)?;
            let functions = FilterFunctions::new(trace, &tree, symbols);
            let on_path = |regex: &Regex| functions.on_path(regex);
            let focus: Vec<Arc<PathRows>> = self.focus.iter().map(on_path).collect();
            let (ignore, from) = (self.ignore.as_ref().map(on_path), self.show_from.as_ref().map(on_path));
            let passes = |site: u32| {
                let row = tree.of_node(trace.site_node(site).unwrap_or(0)) as usize;
                let hit = |set: &Option<Arc<PathRows>>, missing| set.as_ref().map_or(missing, |s| s.0[row]);
                focus.iter().all(|set| set.0[row]) && !hit(&ignore, false) && hit(&from, true)
            };
            selection.keep_sites(trace, passes);
        }
        if self.transforms.iter().any(|transform| transform.kind.drops()) {
            let tree = trace.frame_tree(symbols, cancel)?;
            if let Some(view) = self.view(trace, &tree, symbols) {
                let row = |site: u32| tree.of_node(trace.site_node(site).unwrap_or(0)) as usize;
                selection.keep_sites(trace, |site| view.ends_as.get(row(site)).is_some_and(Option::is_some));
            }
        }
        if let Some(module) = &self.module {
            let matching: Vec<bool> = trace.modules().iter().map(|it| is_meant(it, module)).collect();
            let in_module: Vec<bool> = (0..trace.location_count())
                .map(|l| trace.location(l).module.is_some_and(|m| matching.get(m as usize) == Some(&true)))
                .collect();
            let passes = |site: u32| {
                let mut nodes = trace.stack(trace.site_node(site).unwrap_or(0));
                nodes.any(|n| trace.node_location(n).is_some_and(|l| in_module.get(l as usize) == Some(&true)))
            };
            selection.keep_sites(trace, passes);
        }
        Ok(selection)
    }

    /// How the filter changes backtraces; `None` when it does not. The last views are kept with the tree.
    #[must_use]
    pub fn view(&self, trace: &Trace, tree: &FrameTree, symbols: &dyn RecordingSymbols) -> Option<Arc<StackView>> {
        if !self.changes_stacks() {
            return None;
        }
        let patterns = [&self.hide, &self.show, &self.show_from].map(|regex| regex.as_ref().map(Regex::as_str));
        let key = format!("{patterns:?} {:?}", self.transforms);
        Some(tree.kept(&key, KEPT_VIEWS, || self.make_view(trace, tree, symbols)))
    }

    fn make_view(&self, trace: &Trace, tree: &FrameTree, symbols: &dyn RecordingSymbols) -> StackView {
        let functions = FilterFunctions::new(trace, tree, symbols);
        let of = |regex: &Option<Regex>| regex.as_ref().map(|re| functions.matching(re));
        let (hide, show, starts) = (of(&self.hide), of(&self.show), of(&self.show_from));
        let view = if hide.is_some() || show.is_some() || starts.is_some() {
            let is_out =
                |row: usize| hide.as_ref().is_some_and(|h| h.0[row]) || show.as_ref().is_some_and(|s| !s.0[row]);
            let taken_out = (0..tree.shape().len()).map(is_out).collect();
            StackView::filtered(tree, &ViewRules { taken_out, starts })
        } else {
            StackView::plain(tree)
        };
        let transformed = |view: StackView, transform: &Transform| {
            let meant = match (&transform.target, transform.kind) {
                (TransformTarget::Named(name), TransformKind::CollapseModule) => functions.of_module(name),
                (TransformTarget::Named(name), _) => functions.called(name),
                (TransformTarget::Row(_) | TransformTarget::All, _) => Vec::new(),
            };
            view.transformed(transform, &|function| meant.get(function as usize) == Some(&true))
        };
        self.transforms.iter().fold(view, transformed)
    }
}

/// Whether a pattern means a module: by its path, or by the file name that tables show.
fn is_meant(module: &ModuleFacts, pattern: &Regex) -> bool {
    pattern.is_match(&String::from_utf8_lossy(&module.path)) || pattern.is_match(&module.name())
}

/// Whether a name is that of a module: its file name, or its path.
pub(crate) fn is_called(module: &ModuleFacts, name: &str) -> bool {
    module.name() == name || module.path == name.as_bytes()
}

/// Names of the first modules, in the order in which they were loaded.
fn some_modules(trace: &Trace) -> String {
    const SHOWN: usize = 6;
    let mut seen = std::collections::HashSet::new();
    let names = trace.modules().iter().map(ModuleFacts::name).filter(|name| seen.insert(name.clone()));
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => " (there are none)".into(),
        len if len > SHOWN => format!(" (there are {} and {} more)", names[..SHOWN].join(", "), len - SHOWN),
        _ => format!(" (there are {})", names.join(", ")),
    }
}

/// Views of a tree that are kept: each is about as large as the tree.
const KEPT_VIEWS: usize = 2;

impl ThreadFilter {
    /// Which positions of the list of threads are meant.
    fn positions(&self, trace: &Trace) -> Result<Vec<bool>> {
        let id = self.0.parse::<u32>().ok();
        let by = |test: &dyn Fn(&tracehound_index::facts::ThreadFacts) -> bool| -> Vec<bool> {
            trace.threads().iter().map(test).collect()
        };
        let mut positions = by(&|t| Some(t.id) == id);
        if !positions.contains(&true) {
            positions = by(&|t| t.name == self.0);
        }
        if positions.contains(&true) {
            Ok(positions)
        } else {
            let why = format!("no thread has the id or the name `{}`", self.0);
            Err(QueryError::bad("thread", why))
        }
    }
}

/// Frame-tree rows that `hide`, `show` and `show_from` are about.
#[derive(Debug, Clone)]
pub struct ViewRules {
    /// Rows whose function is taken out.
    pub taken_out: Vec<bool>,
    /// Rows at which a backtrace may start; `None`: at the root.
    pub starts: Option<Arc<MatchingRows>>,
}

/// What a filter selects: sites, threads, rows.
#[derive(Debug, Clone)]
pub struct Selection {
    /// By site; `None`: all.
    pub sites: Option<Vec<bool>>,
    /// By position of the allocating thread; `None`: all.
    pub threads: Option<Vec<bool>>,
    /// By number of the request context of the allocation; `None`: all.
    pub contexts: Option<Arc<[bool]>>,
    /// By origin of the free, for blocks that must have one; `None`: all.
    pub free_origins: Option<Arc<[bool]>>,
    /// Smallest size.
    pub min_size: u64,
    /// Largest size.
    pub max_size: u64,
    /// Shortest life.
    pub min_lifetime: u64,
    /// Longest life.
    pub max_lifetime: u64,
    /// How the block ended.
    pub lifetime: Option<LifetimeKind>,
    /// Where the block lies; `None`: anywhere.
    pub address: Option<AddressRange>,
    /// The blocks that pass, where they were found ahead of time; everything above must stay as it is then.
    pub few: Option<Arc<SparseSelection>>,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            sites: None,
            threads: None,
            contexts: None,
            free_origins: None,
            min_size: 0,
            max_size: u64::MAX,
            min_lifetime: 0,
            max_lifetime: u64::MAX,
            lifetime: None,
            address: None,
            few: None,
        }
    }
}

impl Selection {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// One site.
    #[must_use]
    pub fn and_site(mut self, trace: &Trace, site: u32) -> Self {
        self.keep_sites(trace, |s| s == site);
        self
    }

    /// The same, of these sites alone.
    #[must_use]
    pub fn and_sites(mut self, trace: &Trace, sites: &[u32]) -> Self {
        let wanted: std::collections::HashSet<u32> = sites.iter().copied().collect();
        self.keep_sites(trace, |site| wanted.contains(&site));
        self
    }

    /// The same, of sites that pass a test.
    #[must_use]
    pub fn and_sites_with(mut self, trace: &Trace, passes: impl FnMut(u32) -> bool) -> Self {
        self.keep_sites(trace, passes);
        self
    }

    fn keep_sites(&mut self, trace: &Trace, mut passes: impl FnMut(u32) -> bool) {
        let old = self.sites.take();
        self.few = None;
        let kept = |site: u32| old.as_ref().is_none_or(|o| o.get(site as usize) == Some(&true));
        self.sites = Some((0..trace.site_count()).map(|site| kept(site) && passes(site)).collect());
    }

    /// Whether a site passes.
    #[inline]
    #[must_use]
    pub fn has_site(&self, site: u32) -> bool {
        self.sites.as_ref().is_none_or(|s| s.get(site as usize) == Some(&true))
    }

    /// Whether the thread at a position passes.
    #[inline]
    #[must_use]
    pub fn has_thread(&self, position: u32) -> bool {
        self.threads.as_ref().is_none_or(|t| t.get(position as usize) == Some(&true))
    }

    /// Whether a block that was allocated in the context with this number passes.
    #[inline]
    #[must_use]
    pub fn has_context(&self, number: u32) -> bool {
        self.contexts.as_ref().is_none_or(|contexts| contexts.get(number as usize) == Some(&true))
    }

    /// Whether all rows of a site and thread that pass do pass.
    #[must_use]
    pub const fn is_about_origins(&self) -> bool {
        self.contexts.is_none()
            && self.free_origins.is_none()
            && self.address.is_none()
            && self.min_size == 0
            && self.max_size == u64::MAX
            && self.min_lifetime == 0
            && self.max_lifetime == u64::MAX
            && self.lifetime.is_none()
    }

    /// Whether everything passes.
    #[must_use]
    pub const fn is_everything(&self) -> bool {
        self.sites.is_none() && self.threads.is_none() && self.is_about_origins()
    }
}
