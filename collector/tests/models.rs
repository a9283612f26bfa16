//! Models of the lock-free core, checked by loom: every order in which threads may run, within a bound of preemptions, and
//! every value that the memory model lets them read. The code is the collector's own, compiled with `--cfg loom`.
//! See docs/proving.md. Without that flag there is nothing here.
#![cfg(loom)]

#[path = "models/call_tree.rs"]
mod call_tree;
#[path = "models/contexts.rs"]
mod contexts;
#[path = "models/generations.rs"]
mod generations;
#[path = "models/publish.rs"]
mod publish;
#[path = "models/shapes.rs"]
mod shapes;
