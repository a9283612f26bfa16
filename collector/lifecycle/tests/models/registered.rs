//! Unwind information that the program registers: register, deregister ∥ look up, and the cache of rules over it.

use tracehound_shared::sync::model::{check, find_mutant, spawn};
use tracehound_unwind::rule::{Rule, RuleKind};
use tracehound_unwind::{Registration, frames_deregistered, frames_registered, rule_of};

/// Where the code is said to lie: nowhere, since nobody runs it.
const CODE: u64 = 0x10_0000;

/// A section of one common entry and one entry for 4 KiB of code, whose frames are `frame` bytes large.
#[repr(C, align(16))]
struct Section([u8; 64]);

impl Section {
    fn new(frame: u8) -> Section {
        let mut bytes = [0; 64];
        // Length, id, version, no augmentation, factors 1 and -8, return address in 16, CFA = rsp + frame, ra at CFA - 8.
        let common = [20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, frame, 0x90, 1, 0, 0, 0, 0, 0, 0];
        bytes[..24].copy_from_slice(&common);
        // Length, distance to the common entry, absolute start and length.
        bytes[24..32].copy_from_slice(&[20, 0, 0, 0, 28, 0, 0, 0]);
        bytes[32..40].copy_from_slice(&CODE.to_le_bytes());
        bytes[40..48].copy_from_slice(&0x1000_u64.to_le_bytes());
        Section(bytes)
    }

    fn register(&self) {
        let registration = Registration { begin: self.0.as_ptr(), is_table: false, text_base: 0, data_base: 0 };
        // SAFETY: a section that ends with zeroes.
        unsafe { frames_registered(registration) };
    }

    fn deregister(&self) {
        frames_deregistered(self.0.as_ptr());
    }
}

fn frame_of(rule: Rule) -> Option<u64> {
    (rule.kind() != RuleKind::Unknown && rule.kind() != RuleKind::Missing).then(|| rule.n())
}

/// Other code comes to a place: whoever looks meanwhile finds what was, what is, or nothing; and afterwards what is.
fn replace_and_look_up() {
    static OLD: std::sync::LazyLock<Section> = std::sync::LazyLock::new(|| Section::new(16));
    static NEW: std::sync::LazyLock<Section> = std::sync::LazyLock::new(|| Section::new(64));
    let (old, new) = (&*OLD, &*NEW);
    // What an execution before this one has left.
    old.deregister();
    new.deregister();
    old.register();
    let (pc, before) = (CODE + 0x11, rule_of(CODE + 0x21));
    assert_eq!(frame_of(before), Some(16), "{before:?}");
    let reader = spawn(move || {
        let found = rule_of(pc);
        assert!(matches!(frame_of(found), None | Some(16 | 64)), "parts of two sections: {found:?}");
    });
    old.deregister();
    new.register();
    reader.join().expect("a thread");
    assert_eq!(frame_of(rule_of(pc)), Some(64), "what was there before is forgotten");
    new.deregister();
    assert_eq!(frame_of(rule_of(pc)), None, "nothing is there");
}

#[test]
fn a_look_up_finds_what_was_or_what_is() {
    check("registered frames: replace ∥ look up", 1, replace_and_look_up);
}

#[test]
fn mutant_a_rule_is_stored_behind_the_back_of_who_forgets_it() {
    find_mutant("rule-stored", 1, replace_and_look_up).unwrap();
}

#[test]
fn mutant_a_rule_is_older_than_its_epoch() {
    find_mutant("rule-epoch", 1, replace_and_look_up).unwrap();
}
