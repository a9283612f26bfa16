//! Loaded objects: register ∥ look up. A place in the table is one object's after another's.

use tracehound_shared::code::{LoadedModule, ModuleShape};
use tracehound_shared::sync::model::{check, find_mutant, shared, spawn};

const A: u64 = 0x10_0000;
const B: u64 = 0x20_0000;

fn replace_and_look_up() {
    let shape = shared(ModuleShape::default());
    shape.set(&LoadedModule::of_model(A));
    let reader = spawn(move || {
        if let Some(object) = shape.around(B + 0x10) {
            let found = (object.serial() << 12, object.bias, object.frame_header, object.start, object.end);
            assert_eq!(found, (B, B, B + 0x10, B, B + 0x1000), "parts of two objects");
        }
    });
    shape.set(&LoadedModule::of_model(B));
    reader.join().expect("a thread");
    assert!(shape.around(A).is_none() && shape.around(B).is_some());
}

#[test]
fn parts_of_two_objects_are_never_taken_for_one() {
    check("objects: replace ∥ look up", 2, replace_and_look_up);
}

#[test]
fn mutant_the_odd_version_is_not_released() {
    find_mutant("shape-fence", 2, replace_and_look_up).unwrap();
}
