//! The process-wide cache of rules: 32,768 words, direct-mapped, read with one relaxed load.
//!
//! ```text
//! word   | pc >> 15: 32 bits | rule: 32 bits |        index = low 15 bits of pc, mixed with the upper ones
//! ```
//! The PC is packed into 47 bits, where it has more.
//!
//! A word is one atomic, so no reader sees half of it. The index and the tag together give the PC back, which lets
//! [`forget`] drop the rules of a range of code.

use core::ops::Range;
use tracehound_shared::sync::atomic::{AtomicU64, Ordering, fence};
use tracehound_shared::sync::order;

use super::address;
use super::cfi::compile;
use super::go_switch;
use super::hotspot;
use super::lookup::{LocatedFde, is_sigreturn, is_synthetic_return_address, locate, passes_result_to_exit};
use super::rule::{Rule, RuleKind};
use tracehound_shared::code::{self, Regions};

/// Few in a model.
const BITS: u32 = if cfg!(loom) { 2 } else { 15 };
const SIZE: usize = 1 << BITS;
const MASK: u64 = SIZE as u64 - 1;

static RULES: [AtomicU64; SIZE] = [const { AtomicU64::new(0) }; SIZE];
static FILLED: Regions = Regions::new();

/// The rule for a frame whose `pc` is a return address (or an interrupted address plus one).
#[inline(always)]
pub fn rule_of(pc: u64) -> Rule {
    let packed = address::pack(pc);
    let word = RULES[slot_of(packed)].load(Ordering::Relaxed);
    if word >> 32 == packed >> BITS { Rule(word as u32) } else { fill(pc) }
}

/// Drops the rules of the code in `range`. The epoch must have moved before.
pub fn forget(range: &Range<u64>) {
    fence(Ordering::SeqCst);
    if !FILLED.may_hold(range) {
        return;
    }
    for (slot, word) in RULES.iter().enumerate() {
        let value = word.load(Ordering::Relaxed);
        if value != 0 && range.contains(&(address::unpack(pc_of(slot, value)) - 1)) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

#[inline(always)]
fn slot_of(pc: u64) -> usize {
    ((pc ^ (pc >> BITS) ^ (pc >> 26)) & MASK) as usize
}

fn pc_of(slot: usize, word: u64) -> u64 {
    let upper = word >> 32 << BITS;
    upper | ((slot as u64 ^ (upper >> BITS) ^ (upper >> 26)) & MASK)
}

#[cold]
#[inline(never)]
fn fill(pc: u64) -> Rule {
    if hotspot::covers(pc) {
        // HotSpot replaces its code without notice.
        return hotspot::rule_of_code(pc);
    }
    let epoch = code::epoch();
    // Information read below is at least as new as the epoch: unloading moves the epoch after the code is gone.
    fence(order!("rule-epoch": Acquire, not Release));
    let rule = compute(pc);
    if rule.kind() == RuleKind::Unknown && hotspot::is_found_for(pc) {
        return hotspot::rule_of_code(pc);
    }
    let packed = address::pack(pc);
    if pc != 0 && packed >> 47 == 0 && rule.kind() != RuleKind::Missing {
        let word = (packed >> BITS) << 32 | u64::from(rule.0);
        let slot = &RULES[slot_of(packed)];
        FILLED.add(pc.wrapping_sub(1));
        slot.store(word, Ordering::Relaxed);
        // A thread that changes code moves the epoch first and drops rules afterwards: either it sees this rule, or this
        // thread sees the new epoch.
        fence(order!("rule-stored": SeqCst, not Acquire));
        if code::epoch() != epoch {
            let _ = slot.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
    rule
}

/// Computes the rule from the unwind information around `pc`.
pub fn compute(pc: u64) -> Rule {
    let inside = pc.wrapping_sub(1);
    if cfg!(target_arch = "aarch64") && is_sigreturn(pc) {
        return Rule::SIGNAL;
    }
    match locate(inside) {
        Some(LocatedFde { entry, window }) => compile::compile(&entry, window, inside),
        None if is_sigreturn(pc) => Rule::SIGNAL,
        None if is_synthetic_return_address(pc) || passes_result_to_exit(pc) => Rule::END,
        // An interrupted instruction: the return address may still be in x30.
        None if cfg!(target_arch = "aarch64") && pc & 3 != 0 => Rule::GENERAL,
        None => go_switch::rule_at(pc).unwrap_or(Rule::UNKNOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_and_tag_give_the_pc_back() {
        for pc in [1, 0x7fff, 0x8000, 0x5555_1234_5678, 0x7fff_ffff_ffff, 0x7f12_3456_789a] {
            let word = (pc >> BITS) << 32 | 1;
            assert_eq!(pc_of(slot_of(pc), word), pc, "{pc:#x}");
        }
    }
}
