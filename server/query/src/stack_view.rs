//! The tree of functions under a filter: maps each row of the frame tree to the row of the view that is shown for it
//! and that gets its allocations. Made by `hide`, `show` and `show_from`, then by the transforms, each a pass over all
//! rows.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use super::filter::ViewRules;
use super::transform::{Transform, TransformKind, TransformTarget};
use super::value_tree::SiteEnds;
use tracehound_index::frame_tree::{FrameId, FrameTree, NO_FUNCTION, TreeRow, TreeShape};
use tracehound_index::symbols::{FunctionId, SymbolFrame};

/// Index of a row of a view; 0 is the root.
pub type RowId = u32;

/// See the module's text. Parents stand before their children.
#[derive(Debug)]
pub struct StackView {
    /// The rows.
    pub shape: Arc<TreeShape>,
    /// By row: the first row of the frame tree that is shown as it.
    pub first: Vec<FrameId>,
    /// By row of the frame tree: the row that shows it; `None`: no row does.
    pub shown_as: Vec<Option<RowId>>,
    /// By row of the frame tree: the row that has allocated what the function there has; `None`: it does not count.
    pub ends_as: Vec<Option<RowId>>,
    /// Where sites end in the view.
    pub sites: OnceLock<Arc<SiteEnds>>,
}

/// Whether a function is a transform's target.
pub type IsMeant<'a> = dyn Fn(FunctionId) -> bool + 'a;

impl StackView {
    /// The frame tree as it is.
    #[must_use]
    pub fn plain(tree: &FrameTree) -> Self {
        let rows = tree.shape().len() as RowId;
        let all: Vec<Option<RowId>> = (0..rows).map(Some).collect();
        Self {
            shape: Arc::clone(tree.shape()),
            first: (0..rows).collect(),
            shown_as: all.clone(),
            ends_as: all,
            sites: OnceLock::new(),
        }
    }

    /// The view without what the rules take out, from where backtraces may start.
    #[must_use]
    pub fn filtered(tree: &FrameTree, rules: &ViewRules) -> Self {
        Self::plain(tree).rebuilt(|made, above, row| match above {
            None if !rules.starts.as_ref().is_none_or(|starts| starts.0[row] && row != 0) => None,
            above if rules.taken_out[row] => Some(above.unwrap_or(0)),
            above => Some(made.child(above.unwrap_or(0), row)),
        })
    }

    /// The view after one more transform. `means` says which functions the target is.
    #[must_use]
    pub fn transformed(self, transform: &Transform, means: &IsMeant<'_>) -> Self {
        let shape = Arc::clone(&self.shape);
        let is_all = transform.target == TransformTarget::All;
        let is_meant = |f: FunctionId| f != NO_FUNCTION && (is_all || means(f));
        let meant: Vec<bool> = shape.frame.iter().map(|frame| is_meant(frame.function)).collect();
        let parent = |row: usize| shape.parent[row] as usize;
        let wanted = match transform.target {
            TransformTarget::Row(id) => self.shown_as.get(id as usize).copied().flatten(),
            TransformTarget::Named(_) | TransformTarget::All => None,
        };
        match transform.kind {
            TransformKind::MergeFunction => {
                self.rebuilt(|made, above, row| if meant[row] { above } else { made.child_of(above, row) })
            }
            TransformKind::CollapseModule => {
                self.rebuilt(
                    |made, above, row| {
                        if meant[row] && meant[parent(row)] { above } else { made.child_of(above, row) }
                    },
                )
            }
            TransformKind::CollapseDirectRecursion => self.rebuilt(|made, above, row| {
                let again = meant[row] && shape.frame[parent(row)].function == shape.frame[row].function;
                if again { above } else { made.child_of(above, row) }
            }),
            TransformKind::CollapseRecursion => self.rebuilt(|made, above, row| {
                let again = above.filter(|_| meant[row]).and_then(|above| made.caller(above, row));
                again.or_else(|| made.child_of(above, row))
            }),
            TransformKind::FocusFunction => self.rebuilt(|made, above, row| match above {
                None if !meant[row] => None,
                above => Some(made.child(above.unwrap_or(0), row)),
            }),
            TransformKind::FocusSubtree => self.rebuilt(|made, above, row| match above {
                None if wanted != Some(row as RowId) => None,
                above => Some(made.child(above.unwrap_or(0), row)),
            }),
            TransformKind::MergeNode => {
                self.rebuilt(
                    |made, above, row| {
                        if row != 0 && wanted == Some(row as RowId) { above } else { made.child_of(above, row) }
                    },
                )
            }
            TransformKind::DropFunction => {
                let mut passes = vec![true; shape.len()];
                for row in 0..shape.len() {
                    passes[row] = passes[parent(row)] && !meant[row];
                }
                self.moved(Some, |row| passes[row as usize].then_some(row))
            }
            TransformKind::CollapseFunction => {
                let mut outermost: Vec<RowId> = (0..shape.len() as RowId).collect();
                for row in 1..shape.len() {
                    let above = outermost[parent(row)];
                    if meant[above as usize] {
                        outermost[row] = above;
                    }
                }
                let image = |row: RowId| Some(outermost[row as usize]);
                self.moved(image, image)
            }
            TransformKind::FocusInverted => {
                let mut innermost: Vec<Option<RowId>> = vec![None; shape.len()];
                for row in 1..shape.len() {
                    innermost[row] = if meant[row] { Some(row as RowId) } else { innermost[parent(row)] };
                }
                // Frames between two of them stay: they are callers of the inner one.
                self.moved(Some, |row| innermost[row as usize])
            }
        }
    }

    /// The same rows; rows of the frame tree are shown by others.
    fn moved(mut self, shown: impl Fn(RowId) -> Option<RowId>, ends: impl Fn(RowId) -> Option<RowId>) -> Self {
        for row in &mut self.shown_as {
            *row = row.and_then(&shown);
        }
        for row in &mut self.ends_as {
            *row = row.and_then(&ends);
        }
        self
    }

    /// Rebuilt rows: for each row of this view, parents first, `image` returns the new row that shows it, given its
    /// caller's. The root shows itself unless `image` returns another.
    fn rebuilt(self, mut image: impl FnMut(&mut GrowingView<'_>, Option<RowId>, usize) -> Option<RowId>) -> Self {
        let mut made = GrowingView::new(&self.shape);
        let mut images: Vec<Option<RowId>> = Vec::with_capacity(self.shape.len());
        for row in 0..self.shape.len() {
            let above = if row == 0 { None } else { images[self.shape.parent[row] as usize] };
            let shown = image(&mut made, above, row);
            images.push(shown);
        }
        let through = |row: Option<RowId>| row.and_then(|row| images[row as usize]);
        let GrowingView { shape, first, .. } = made;
        let mut first: Vec<FrameId> = first.into_iter().map(|row| self.first[row as usize]).collect();
        let shown_as: Vec<Option<RowId>> = self.shown_as.into_iter().map(through).collect();
        // The row that a new one was made for may be shown by another since a collapse.
        for (row, shown) in shown_as.iter().enumerate().rev() {
            if let Some(shown) = shown.filter(|&shown| shown != 0) {
                first[shown as usize] = row as FrameId;
            }
        }
        let ends_as = self.ends_as.into_iter().map(through).collect();
        Self { shape: Arc::new(shape), first, shown_as, ends_as, sites: OnceLock::new() }
    }
}

/// A view in the making: calls of one function from one row are one row.
struct GrowingView<'a> {
    from: &'a TreeShape,
    shape: TreeShape,
    /// The row of `from` that each row was made for.
    first: Vec<RowId>,
    /// By row: what finds its children.
    links: Vec<ChildLinks>,
    /// Children of the rows with many.
    many: FxHashMap<(RowId, FunctionId), RowId>,
}

/// A row in the list of its caller's children, and the list of its own; in one structure, because a row is looked at as
/// a whole.
#[derive(Debug, Clone, Copy)]
struct ChildLinks {
    function: FunctionId,
    /// The child of its caller that was made before it.
    before: RowId,
    /// Its last child, and how many there are.
    last: RowId,
    count: u32,
    /// The row of the tree before whose children all of them were, or [`SEVERAL`].
    of: RowId,
}

/// Children of several rows have become one row's: some may be calls of one function.
const SEVERAL: RowId = RowId::MAX;

impl ChildLinks {
    const fn new(function: FunctionId, before: RowId) -> Self {
        Self { function, before, last: 0, count: 0, of: 0 }
    }
}

/// Rows with more children have them in a table: most have one or two, for which a table of the whole tree, which no
/// cache holds, is slow.
const FEW: u32 = 8;

impl<'a> GrowingView<'a> {
    fn new(from: &'a TreeShape) -> Self {
        let mut shape = TreeShape::default();
        let nobody = SymbolFrame { function: NO_FUNCTION, file: None, line: None, inlined: false };
        shape.push(TreeRow { parent: 0, frame: nobody, recursive: false });
        let links = vec![ChildLinks::new(NO_FUNCTION, 0)];
        Self { from, shape, first: vec![0], links, many: FxHashMap::default() }
    }

    /// The row below `parent` for a row's function; the root for the root.
    fn child(&mut self, parent: RowId, row: usize) -> RowId {
        if row == 0 {
            return 0;
        }
        let frame = self.from.frame[row];
        // Children of one row are calls of different functions: only where rows have become one is there one to be found.
        if self.has_several(parent, self.from.parent[row])
            && let Some(known) = self.known_child(parent, frame.function)
        {
            return known;
        }
        let recursive = self.caller(parent, row).is_some();
        let made = self.shape.push(TreeRow { parent, frame, recursive });
        self.first.push(row as RowId);
        let above = &mut self.links[parent as usize];
        let before = std::mem::replace(&mut above.last, made);
        above.count += 1;
        let ChildLinks { count, of, .. } = *above;
        self.links.push(ChildLinks::new(frame.function, before));
        if of == SEVERAL && count == FEW + 1 {
            self.put_into_table(parent);
        } else if of == SEVERAL && count > FEW {
            self.many.insert((parent, frame.function), made);
        }
        made
    }

    /// Whether the children of `parent`, with those of row `of` of the tree before, are or were of several rows.
    fn has_several(&mut self, parent: RowId, of: RowId) -> bool {
        let links = &mut self.links[parent as usize];
        if links.count == 0 {
            links.of = of;
        }
        if links.of != of && links.of != SEVERAL {
            links.of = SEVERAL;
            if links.count > FEW {
                self.put_into_table(parent);
            }
        }
        self.links[parent as usize].of == SEVERAL
    }

    fn put_into_table(&mut self, parent: RowId) {
        let all: Vec<_> = self.listed_children(parent).collect();
        self.many.extend(all.into_iter().map(|(child, function)| ((parent, function), child)));
    }

    fn known_child(&self, parent: RowId, function: FunctionId) -> Option<RowId> {
        if self.links[parent as usize].count > FEW {
            return self.many.get(&(parent, function)).copied();
        }
        self.listed_children(parent).find(|&(_, its)| its == function).map(|(child, _)| child)
    }

    /// The children of a row, and their functions.
    fn listed_children(&self, parent: RowId) -> impl Iterator<Item = (RowId, FunctionId)> + '_ {
        let ChildLinks { last, count, .. } = self.links[parent as usize];
        let mut child = last;
        (0..count).map(move |_| {
            let ChildLinks { function, before, .. } = self.links[child as usize];
            (std::mem::replace(&mut child, before), function)
        })
    }

    /// The same, unless its caller is not shown.
    fn child_of(&mut self, above: Option<RowId>, row: usize) -> Option<RowId> {
        if row == 0 { Some(0) } else { above.map(|above| self.child(above, row)) }
    }

    /// `above` or the next caller of it that is a row's function.
    fn caller(&self, above: RowId, row: usize) -> Option<RowId> {
        let function = self.from.frame[row].function;
        // A view has no caller that the backtrace itself has not.
        if !self.from.recursive[row] {
            return None;
        }
        self.shape.path(above).find(|&caller| self.shape.frame[caller as usize].function == function)
    }
}
