//! How much memory all forests of the process may take together.
//!
//! Every thread may have [`PER_THREAD`] bytes without asking. What goes beyond is taken from one account:
//! [`SHARED`] bytes plus [`PER_NODE`] bytes for each node of the call tree. A thread that gets nothing forgets
//! its records and begins again; its stacks stay exact.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::shared::call_tree::CallTree;

const PER_THREAD: usize = 768 << 10;
const SHARED: usize = 12 << 20;
const PER_NODE: usize = 24;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Changes a forest's size: `held` is what the account gave it so far, `bytes` what it wants to occupy.
/// Answers what it holds then; `None` if there is not enough.
pub fn resize(held: usize, bytes: usize, tree: &CallTree) -> Option<usize> {
    let wanted = bytes.saturating_sub(PER_THREAD);
    let more = wanted.saturating_sub(held);
    let limit = SHARED + PER_NODE * tree.len() as usize;
    let enough = |taken: usize| taken.checked_add(more).filter(|taken| more == 0 || *taken <= limit);
    TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).ok()?;
    Some(held + more)
}

/// Returns what [`resize`] gave.
pub fn give_back(held: usize) {
    TAKEN.fetch_sub(held, Ordering::Relaxed);
}
