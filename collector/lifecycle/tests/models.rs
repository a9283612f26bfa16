//! Models of the lock-free core, checked by loom: every order in which threads may run, within a bound of preemptions, and
//! every value that the memory model lets them read. The code is the collector's own, compiled with `--cfg loom`.
//! See docs/proving.md. Without that flag there is nothing here.
#![cfg(loom)]

#[path = "models/call_tree.rs"]
mod call_tree;
#[path = "models/contexts.rs"]
mod contexts;
#[path = "models/fork.rs"]
mod fork;
#[path = "models/gate.rs"]
mod gate;
#[path = "models/generations.rs"]
mod generations;
#[path = "models/hand_over.rs"]
mod hand_over;
#[path = "models/pool.rs"]
mod pool;
#[path = "models/publish.rs"]
mod publish;
#[path = "models/registered.rs"]
mod registered;
#[path = "models/seize.rs"]
mod seize;
#[path = "models/shapes.rs"]
mod shapes;
#[path = "models/stage.rs"]
mod stage;
