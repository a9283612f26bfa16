//! Slot of one call-tree node, claimed by one atomic store of the node's whole identity (pc, parent, generation).

use crate::sync::atomic::{AtomicU32, AtomicU64};

/// One node.
#[repr(C, align(16))]
pub struct NodeSlot {
    pub pc: AtomicU64,
    /// `generation << 32 | parent`
    pub place: AtomicU64,
    pub children: [AtomicU32; 4],
}

/// Stores `(pc, place)` in an unclaimed slot as one unit; false if the slot is already taken.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
pub fn claim_identity(slot: &NodeSlot, pc: u64, place: u64) -> bool {
    let taken: u8;
    // SAFETY: `slot` is valid for writes and 16-byte aligned; its first 16 bytes are `pc` and `place`. Every
    // x86-64 CPU that glibc supports has cmpxchg16b. rbx belongs to the compiler, hence the
    // exchange around it and registers chosen by hand.
    unsafe {
        core::arch::asm!(
            "xchg rbx, rsi",
            "lock cmpxchg16b [rdi]",
            "sete r8b",
            "mov rbx, rsi",
            in("rdi") slot,
            inout("rsi") pc => _,
            out("r8b") taken,
            in("rcx") place,
            inout("rax") 0u64 => _,
            inout("rdx") 0u64 => _,
            options(nostack),
        );
    }
    taken != 0
}

/// Stores `(pc, place)` in an unclaimed slot as one unit; false if the slot is already taken.
#[cfg(all(target_arch = "aarch64", not(loom), not(miri)))]
pub fn claim_identity(slot: &NodeSlot, pc: u64, place: u64) -> bool {
    let taken: u64;
    // SAFETY: `slot` is valid for writes and 16-byte aligned; its first 16 bytes are `pc` and `place`. The
    // pair is loaded and stored exclusively, so no thread reads one half without the other.
    unsafe {
        core::arch::asm!(
            "2:",
            "ldaxp {old}, {rest}, [{slot}]",
            "orr {old}, {old}, {rest}",
            "cbnz {old}, 3f",
            "stlxp {fail:w}, {pc}, {place}, [{slot}]",
            "cbnz {fail:w}, 2b",
            "mov {taken}, #1",
            "b 4f",
            "3:",
            "clrex",
            "mov {taken}, #0",
            "4:",
            slot = in(reg) slot,
            pc = in(reg) pc,
            place = in(reg) place,
            old = out(reg) _,
            rest = out(reg) _,
            fail = out(reg) _,
            taken = out(reg) taken,
            options(nostack),
        );
    }
    taken != 0
}

/// Stores `(pc, place)` in an unclaimed slot as one unit; false if the slot is already taken.
#[cfg(loom)]
pub fn claim_identity(slot: &NodeSlot, pc: u64, place: u64) -> bool {
    crate::sync::model::claim_pair(&slot.pc, &slot.place, (pc, place))
}

/// Stores `(pc, place)` in an unclaimed slot as one unit; false if the slot is already taken. Miri interprets no assembly:
/// under a lock, and `pc` last, which readers look at first.
#[cfg(miri)]
pub fn claim_identity(slot: &NodeSlot, pc: u64, place: u64) -> bool {
    use crate::sync::atomic::Ordering;
    static CLAIMING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _claiming = CLAIMING.lock();
    let is_free = slot.pc.load(Ordering::Relaxed) == 0 && slot.place.load(Ordering::Relaxed) == 0;
    if is_free {
        slot.place.store(place, Ordering::Relaxed);
        slot.pc.store(pc, Ordering::Release);
    }
    is_free
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::atomic::Ordering;

    #[test]
    fn a_slot_is_claimed_once() {
        let slot =
            NodeSlot { pc: AtomicU64::new(0), place: AtomicU64::new(0), children: [const { AtomicU32::new(0) }; 4] };
        assert!(claim_identity(&slot, 0x1234, 7));
        assert!(!claim_identity(&slot, 0x5678, 9));
        assert!(!claim_identity(&slot, 0x1234, 7), "not even by the same");
        assert_eq!((slot.pc.load(Ordering::Relaxed), slot.place.load(Ordering::Relaxed)), (0x1234, 7));
    }
}
