//! A fork while others record: publish ∥ fork. The child has its parent's call tree as it was at one instant, whoever was
//! in the middle of what; of its parent's threads it has zeroes.

use core::sync::atomic::Ordering;

use tracehound_record::publish;
use tracehound_shared::call_tree::{CallTree, NodeId};
use tracehound_shared::session::Session;
use tracehound_shared::sync::model::{check, find_mutant, shared, spawn};
use tracehound_shared::thread::ThreadContext;

use crate::stage::{self, numbers};

fn frames(tree: &CallTree) -> [NodeId; 2] {
    let outer = tree.intern(NodeId::ROOT, 0x1000, 7);
    [outer, tree.intern(outer, 0x2000, 7)]
}

/// What the child does with its copy of the tree: the nodes that were there are the parent's, and new ones come behind.
fn in_child(parent: &'static CallTree, child: &'static CallTree) {
    let inherited = child.len();
    let ids = frames(child);
    let [outer, inner] = ids.map(|id| child.get(id.0).expect("an id is a node"));
    assert_eq!((outer.parent, outer.pc, inner.parent, inner.pc), (0, 0x1000, ids[0].0, 0x2000));
    let new = child.intern(ids[1], 0x3000, 7);
    assert!(new.0 >= inherited && new.0 < child.len(), "a new node has a new id");
    assert_eq!(frames(child), ids, "they are found again");
    for id in 1..child.len() {
        let node = child.get(id).expect("an id below the length is a node");
        assert!(node.parent < id && node.generation == 7, "a node is whole: {node:?}");
        assert!(id >= inherited || Some(node) == parent.get(id), "what was inherited is the parent's");
    }
}

fn publish_and_fork() {
    let session: &'static Session = stage::session();
    let (parent, context) = (session.tree, stage::thread(session));
    let thread = spawn(move || {
        let ids = frames(parent);
        stage::publish(context, 2);
        ids
    });
    // The child may be made at any moment between here and the thread's end.
    let _ = parent.len();
    let child = shared(parent.forked());
    // A handler of the child completes an event of its parent's thread: the context is zeroed.
    let zeroed = shared(ThreadContext::default());
    publish::one(zeroed, stage::record(9));
    publish::several(zeroed, &[stage::record(8), stage::record(9)], true);
    assert_eq!((zeroed.cursor.load(Ordering::Relaxed), zeroed.lost.load(Ordering::Relaxed)), (0, 0));
    let ids = thread.join().expect("a thread");
    assert_eq!(frames(parent), ids, "the parent goes on as if nothing had been");
    in_child(parent, child);
    assert_eq!(numbers(&stage::take(session, context)), [1, 2], "the parent's records are the parent's alone");
}

#[test]
fn a_child_finds_a_whole_tree_and_writes_into_no_chunk_of_its_parent() {
    check("publish ∥ fork", 3, publish_and_fork);
}

#[test]
fn mutant_a_node_is_claimed_in_two_steps() {
    find_mutant("claim-pair", 3, publish_and_fork).unwrap();
}
