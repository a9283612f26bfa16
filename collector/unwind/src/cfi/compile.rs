//! Turns a row of unwind information into a [`Rule`].

use super::super::rule::{Rule, RuleKind};
use super::bytes::Bytes;
use super::entry::Fde;
#[cfg(target_arch = "x86_64")]
use super::expression::{Machine, evaluate};
#[cfg(target_arch = "x86_64")]
use super::program::Expression;
use super::program::{Cfa, Recovery, ShortRow, register, row_at};

/// `DW_OP_breg7 (rsp) 160, DW_OP_deref`: the CFA of glibc's signal frame, rsp as the ucontext holds it.
#[cfg(target_arch = "x86_64")]
const SIGNAL_CFA: [u8; 4] = [0x77, 0xa0, 0x01, 0x06];
#[cfg(target_arch = "x86_64")]
const BREG_RBP: u8 = 0x76;
#[cfg(target_arch = "x86_64")]
const DEREF: u8 = 0x06;

/// The rule for `pc`, an address inside the calling (or interrupted) instruction that `entry` covers.
/// `window` is the readable memory that holds the expressions of `entry`.
pub fn compile(entry: &Fde, window: Bytes, pc: u64) -> Rule {
    if entry.return_register != register::RETURN {
        return Rule::GENERAL;
    }
    match row_at::<ShortRow, 8>(entry, pc) {
        Some(row) => from_row(&row, entry.signal, window, pc).unwrap_or(Rule::GENERAL),
        None => Rule::GENERAL,
    }
}

#[cfg(target_arch = "x86_64")]
fn from_row(row: &ShortRow, signal: bool, window: Bytes, pc: u64) -> Option<Rule> {
    if signal {
        let Cfa::Expression(cfa) = row.cfa else { return None };
        return is_bytes(cfa, window, &SIGNAL_CFA).then_some(Rule::SIGNAL);
    }
    match row.return_address {
        Recovery::Undefined => return Some(Rule::END),
        Recovery::Offset(-8) => {}
        _ => return None,
    }
    if let Cfa::Expression(cfa) = row.cfa
        && let Some(offset) = rbp_deref(cfa, window)
    {
        let Recovery::Expression(rbp) = row.rbp else { return None };
        return is_bytes(rbp, window, &[BREG_RBP, 0]).then(|| Rule::pack(RuleKind::Drap, offset.wrapping_neg(), 0));
    }
    let m = match row.rbp {
        Recovery::Unset | Recovery::Same | Recovery::Undefined => 0,
        // At CFA - 8 lies the return address.
        Recovery::Offset(offset) if offset < -8 => offset.wrapping_neg(),
        _ => return None,
    };
    match row.cfa {
        Cfa::Register { register: register::RSP, offset } => Some(Rule::pack(RuleKind::Sp, offset, m)),
        Cfa::Register { register: register::RBP, offset } => Some(Rule::pack(RuleKind::Frame, offset, m)),
        Cfa::Register { .. } => None,
        Cfa::Expression(cfa) => Some(Rule::pack(RuleKind::Sp, distance_from_rsp(cfa, window, pc)?, m)),
    }
}

/// Of a frame whose return address is still in x30, as behind the frame of a signal, the general unwinder has the registers.
#[cfg(target_arch = "aarch64")]
fn from_row(row: &ShortRow, signal: bool, _: Bytes, _: u64) -> Option<Rule> {
    let r = match row.return_address {
        _ if signal => return None,
        Recovery::Undefined => return Some(Rule::END),
        Recovery::Offset(offset) => offset.checked_neg()?,
        _ => return None,
    };
    let keeps_x29 = match row.rbp {
        Recovery::Unset | Recovery::Same | Recovery::Undefined => false,
        Recovery::Offset(offset) if offset.checked_neg()?.checked_sub(8)? == r => true,
        _ => return None,
    };
    match row.cfa {
        // A place below the stack pointer keeps nothing.
        Cfa::Register { register: register::RSP, offset } if r <= offset - if keeps_x29 { 8 } else { 0 } => {
            Some(Rule::pack(RuleKind::Sp, offset, r, keeps_x29))
        }
        Cfa::Register { register: register::RBP, offset } => Some(Rule::pack(RuleKind::Frame, offset, r, keeps_x29)),
        _ => None,
    }
}

#[cfg(target_arch = "x86_64")]
fn is_bytes(expression: Expression, window: Bytes, expected: &[u8]) -> bool {
    let Some(mut code) = expression.code(window) else { return false };
    expected.iter().all(|byte| code.u8() == Some(*byte)) && code.is_empty()
}

/// `offset` of the expression `*(rbp + offset)`.
#[cfg(target_arch = "x86_64")]
fn rbp_deref(expression: Expression, window: Bytes) -> Option<i64> {
    let mut code = expression.code(window)?;
    if code.u8()? != BREG_RBP {
        return None;
    }
    let offset = code.sleb()?;
    (code.u8()? == DEREF && code.is_empty()).then_some(offset)
}

/// The constant `CFA - rsp` of an expression that uses rsp, rip and constants only, as PLT entries have:
/// computed for values of rsp that differ in all their parts, it must come out the same.
#[cfg(target_arch = "x86_64")]
fn distance_from_rsp(expression: Expression, window: Bytes, pc: u64) -> Option<i64> {
    struct Flat {
        rsp: u64,
        rip: u64,
    }
    impl Machine for Flat {
        fn register(&self, number: u64) -> Option<u64> {
            match number {
                register::RSP => Some(self.rsp),
                register::RETURN => Some(self.rip),
                _ => None,
            }
        }

        fn load(&mut self, _: u64, _: u8) -> Option<u64> {
            None
        }
    }
    let code = expression.code(window)?;
    let distance = |rsp: u64| {
        let cfa = evaluate(code, None, &mut Flat { rsp, rip: pc })?;
        Some(cfa.wrapping_sub(rsp) as i64)
    };
    let first = distance(0x1000)?;
    let constant = distance(0x7ffd_1234_5678)? == first && distance(0x5555_aaaa_9990)? == first;
    constant.then_some(first)
}
