//! The call tree: insert ∥ insert ∥ read.

use core::ptr::NonNull;

use tracehound_shared::call_tree::{CallTree, NodeId};
use tracehound_shared::sync::model::{check, find_mutant, memory, shared, spawn};

const NODES: usize = 8;

fn tree() -> &'static CallTree {
    let bytes = CallTree::NODES_OFFSET + NODES * CallTree::NODE_BYTES;
    let memory = NonNull::new(memory(bytes)).expect("memory");
    // SAFETY: zeroed, page-aligned, the tree's alone to the end of the execution.
    shared(unsafe { CallTree::create_in(memory, bytes) }.expect("room for some nodes"))
}

/// What a writer does: every id below the length is a whole node.
fn read(tree: &CallTree) {
    for id in 1..tree.len() {
        let node = tree.get(id).expect("an id below the length is a node");
        assert!(node.pc == 0x1000 || node.pc == 0x2000, "{node:?}");
        assert!(node.parent < id, "a parent is older than its child");
        assert_eq!(node.generation, 7);
    }
}

fn inserts() {
    let tree = tree();
    let insert = move || {
        let outer = tree.intern(NodeId::ROOT, 0x1000, 7);
        (outer, tree.intern(outer, 0x2000, 7))
    };
    let other = spawn(insert);
    let own = insert();
    let other = other.join().expect("a thread");
    assert_eq!(own, other, "both agree on the ids");
    read(tree);
}

fn insert_and_read() {
    let tree = tree();
    let writer = spawn(move || read(tree));
    let outer = tree.intern(NodeId::ROOT, 0x1000, 7);
    tree.intern(outer, 0x2000, 7);
    writer.join().expect("a thread");
}

#[test]
fn threads_that_insert_the_same_frames_agree() {
    check("call tree: insert ∥ insert", 2, inserts);
}

#[test]
fn a_reader_sees_whole_nodes() {
    check("call tree: insert ∥ read", 3, insert_and_read);
}

#[test]
fn mutant_the_length_is_not_released() {
    find_mutant("tree-length", 3, insert_and_read).unwrap();
}

#[test]
fn mutant_the_link_is_not_released() {
    find_mutant("tree-link", 2, inserts).unwrap();
}
