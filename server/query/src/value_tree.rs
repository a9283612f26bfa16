//! The tree of functions with values, as a filter's view has it.

use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use super::amounts::{Signed, parts};
use super::filter::Filter;
use super::place_set::PlaceSet;
pub use super::stack_view::RowId;
use super::stack_view::StackView;
use super::{QueryError, Result};
use tracehound_index::frame_tree::{FrameId, FrameTree, TreeShape};
use tracehound_index::pre_order::TreePlace;
use tracehound_index::symbols::RecordingSymbols;
use tracehound_index::{Cancel, Trace};

/// Where sites end in a tree: looked up once for each tree, and used by every answer about it.
#[derive(Debug)]
pub struct SiteEnds {
    /// Places of the rows that are the innermost of some site.
    ends: Arc<PlaceSet>,
    /// By site: the number of its row among these; none has the largest number.
    of_site: Vec<u32>,
}

impl SiteEnds {
    fn new(trace: &Trace, tree: &FrameTree, view: Option<&StackView>) -> Self {
        let shape = view.map_or_else(|| tree.shape(), |view| &view.shape);
        let order = shape.pre_order();
        let place_of = |site: u32| -> Option<TreePlace> {
            let frame = tree.of_node(trace.site_node(site).unwrap_or(0));
            let row = view.map_or(Some(frame), |view| view.ends_as.get(frame as usize).copied().flatten())?;
            order.place.get(row as usize).copied()
        };
        let places: Vec<Option<TreePlace>> = (0..trace.site_count()).map(place_of).collect();
        let mut ends = PlaceSet::new(shape.len());
        places.iter().flatten().for_each(|&place| ends.insert(place));
        ends.finish();
        let number = |place: &Option<TreePlace>| place.map_or(u32::MAX, |place| ends.count_before(place) as u32);
        let of_site = places.iter().map(number).collect();
        Self { ends: Arc::new(ends), of_site }
    }

    /// By number of a row: what the sites that end in it have. They lie anywhere: each part of the rows, which its caches
    /// hold, is for one thread, which looks through all sites.
    fn sums(&self, by_site: &[Signed], cancel: &Cancel) -> Result<Vec<Signed>> {
        /// Sites between two looks at the cancel flag.
        const CHECK: usize = 1 << 16;
        let mut own = vec![Signed::default(); self.ends.len()];
        let len = own.len().div_ceil(parts(own.len()).min(rayon::current_num_threads())).max(1);
        own.par_chunks_mut(len).enumerate().try_for_each(|(part, own)| {
            let first = (part * len) as u32;
            for (of_site, by_site) in self.of_site.chunks(CHECK).zip(by_site.chunks(CHECK)) {
                cancel.check()?;
                for (&number, sum) in of_site.iter().zip(by_site).filter(|(_, sum)| !sum.is_zero()) {
                    // A site that the view leaves out has the largest number.
                    if let Some(own) = own.get_mut(number.wrapping_sub(first) as usize) {
                        own.count += sum.count;
                        own.bytes += sum.bytes;
                    }
                }
            }
            Ok::<(), QueryError>(())
        })?;
        Ok(own)
    }
}

/// The tree: parents stand before their children.
#[derive(Debug, Default)]
pub struct ValueTree {
    /// The rows; without a filter's view they are the frame tree's, which is not copied.
    pub shape: Arc<TreeShape>,
    /// Places of the rows that may have something of their own.
    pub ends: Arc<PlaceSet>,
    /// What was allocated by the function of each of these rows itself, in the order of their places.
    pub sums: Vec<Signed>,
    own: OnceLock<Vec<Signed>>,
    /// How a filter shows the frame tree; `None`: as it is.
    view: Option<Arc<StackView>>,
}

impl ValueTree {
    /// Puts sums of sites on the tree. Blocks without a backtrace are the root's own.
    ///
    /// # Errors
    /// When cancelled.
    pub fn of_sites(
        trace: &Trace,
        tree: &FrameTree,
        symbols: &dyn RecordingSymbols,
        filter: &Filter,
        by_site: &[Signed],
        cancel: &Cancel,
    ) -> Result<Self> {
        cancel.check()?;
        let view = filter.view(trace, tree, symbols);
        let sites = match &view {
            None => tree.kept("", 1, || SiteEnds::new(trace, tree, None)),
            Some(view) => Arc::clone(view.sites.get_or_init(|| Arc::new(SiteEnds::new(trace, tree, Some(view))))),
        };
        let sums = sites.sums(by_site, cancel)?;
        let shape = Arc::clone(view.as_ref().map_or_else(|| tree.shape(), |view| &view.shape));
        Ok(Self { shape, ends: Arc::clone(&sites.ends), sums, own: OnceLock::new(), view })
    }

    /// Puts what rows of the frame tree have on the tree.
    #[must_use]
    pub fn of_rows(
        trace: &Trace,
        tree: &FrameTree,
        symbols: &dyn RecordingSymbols,
        filter: &Filter,
        rows: impl IntoIterator<Item = (FrameId, Signed)>,
    ) -> Self {
        let view = filter.view(trace, tree, symbols);
        let shape = Arc::clone(view.as_ref().map_or_else(|| tree.shape(), |view| &view.shape));
        let order = shape.pre_order();
        let place_of = |(frame, sum): (FrameId, Signed)| {
            let row = match &view {
                None => Some(frame),
                Some(view) => view.ends_as.get(frame as usize).copied().flatten(),
            };
            Some((*order.place.get(row? as usize)?, sum))
        };
        let placed: Vec<(TreePlace, Signed)> = rows.into_iter().filter_map(place_of).collect();
        let mut ends = PlaceSet::new(shape.len());
        placed.iter().for_each(|&(place, _)| ends.insert(place));
        ends.finish();
        let mut sums = vec![Signed::default(); ends.len()];
        for (place, sum) in placed {
            let own = &mut sums[ends.count_before(place)];
            own.count += sum.count;
            own.bytes += sum.bytes;
        }
        Self { shape, ends: Arc::new(ends), sums, own: OnceLock::new(), view }
    }

    /// The rows that may have something of their own, and what.
    pub fn owners(&self) -> impl Iterator<Item = (RowId, &Signed)> {
        let order = self.shape.pre_order();
        self.ends.iter().map(|place| order.row[place as usize]).zip(&self.sums)
    }

    /// By row: what was allocated by the function itself. The first call makes the list.
    #[must_use]
    pub fn own(&self) -> &[Signed] {
        self.own.get_or_init(|| {
            let mut own = vec![Signed::default(); self.shape.len()];
            self.owners().for_each(|(row, sum)| own[row as usize] = *sum);
            own
        })
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.len()
    }

    /// Without any row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shape.is_empty()
    }

    /// Stable id of a row: the first row of the frame tree that is shown as it.
    #[must_use]
    pub fn id(&self, row: RowId) -> FrameId {
        self.view.as_ref().map_or(row, |view| view.first[row as usize])
    }

    /// The row that shows a row of the frame tree.
    #[must_use]
    pub fn row_of(&self, frame: FrameId) -> Option<RowId> {
        match &self.view {
            None => ((frame as usize) < self.len()).then_some(frame),
            Some(view) => view.shown_as.get(frame as usize).copied().flatten(),
        }
    }

    /// A row and its callers, without the root.
    pub fn path(&self, row: RowId) -> impl Iterator<Item = RowId> + '_ {
        self.shape.path(row)
    }

    /// Own and descendants' sums.
    #[must_use]
    pub fn totals(&self) -> Vec<Signed> {
        let mut totals = self.own().to_vec();
        for row in (1..totals.len()).rev() {
            let sum = totals[row];
            let above = &mut totals[self.shape.parent[row] as usize];
            above.count += sum.count;
            above.bytes += sum.bytes;
        }
        totals
    }
}
