//! Unwind information (DWARF call frame information, CFI): reads it in place, allocates nothing, and treats it as
//! untrusted: every offset is checked against the memory that it may point into.

pub mod bytes;
pub mod compile;
pub mod entry;
pub mod expression;
pub mod index;
pub mod program;

use super::rule::Rule;
use bytes::Bytes;
use entry::{Parsed, Section};

/// The rule of `pc` by a section's `bytes` alone, for tests that feed it with anything: `.eh_frame`, as if it were at
/// `address`, or `.debug_frame`, loaded `address` above the file's addresses. `None` if no entry covers `pc`.
pub fn rule_in(bytes: &[u8], is_debug: bool, address: u64, pc: u64) -> Option<Rule> {
    let start = bytes.as_ptr() as u64;
    let delta = if is_debug { 0 } else { address.wrapping_sub(start) };
    // SAFETY: the slice, which stays while the rule is made.
    let window = unsafe { Bytes::new(start, start + bytes.len() as u64, delta) };
    let section = if is_debug { Section::DebugFrame { start, load_bias: address } } else { Section::EhFrame };
    let mut cursor = window;
    while !cursor.is_empty() {
        let at = cursor.position();
        entry::record(&mut cursor)?;
        if let Some(Parsed::Entry(entry)) = entry::parse(window, at, section)
            && pc.wrapping_sub(entry.begin) < entry.length
        {
            return Some(compile::compile(&entry, window, pc));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::RuleKind;

    /// One function of 32 bytes at 0x1000, whose frame has 24 bytes after its first byte.
    fn debug_frame() -> Vec<u8> {
        let common = [4, 0, 8, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1];
        let mut section = Vec::new();
        section.extend((common.len() as u32 + 4).to_le_bytes());
        section.extend(u32::MAX.to_le_bytes());
        section.extend(common);
        let rules = [0x40 | 1, 0x0e, 32];
        section.extend((4 + 16 + rules.len() as u32).to_le_bytes());
        section.extend(0_u32.to_le_bytes());
        section.extend(0x1000_u64.to_le_bytes());
        section.extend(32_u64.to_le_bytes());
        section.extend(rules);
        section
    }

    #[test]
    fn bytes_become_rules() {
        let section = debug_frame();
        assert_eq!(rule_in(&section, true, 0x40_0000, 0x40_1000), Some(Rule::pack(RuleKind::Sp, 8, 0)));
        assert_eq!(rule_in(&section, true, 0x40_0000, 0x40_1001), Some(Rule::pack(RuleKind::Sp, 32, 0)));
        assert_eq!(rule_in(&section, true, 0x40_0000, 0x40_1020), None);
        for len in 0..section.len() {
            let _ = rule_in(&section[..len], true, 0x40_0000, 0x40_1001);
        }
    }
}
