//! Runs the call frame instructions of an entry up to one PC (DWARF 5, 6.4.2 and 6.4.3).

use super::bytes::Bytes;
use super::entry::Fde;

/// DWARF numbers of the x86-64 registers (System V ABI, figure 3.36).
#[cfg(target_arch = "x86_64")]
#[allow(missing_docs, reason = "the registers' names say it")]
pub mod register {
    pub const RBX: u64 = 3;
    pub const RBP: u64 = 6;
    pub const RSP: u64 = 7;
    pub const RETURN: u64 = 16;
    pub const PC: u64 = 16;
    pub const COUNT: usize = 17;
}

/// DWARF numbers of the aarch64 registers (DWARF for the Arm 64-bit Architecture, 4.1), by what they are to unwinding: x29,
/// sp, and x30, which has the return address.
#[cfg(target_arch = "aarch64")]
#[allow(missing_docs, reason = "the line above says it")]
pub mod register {
    pub const RBP: u64 = 29;
    pub const RETURN: u64 = 30;
    pub const RSP: u64 = 31;
    pub const PC: u64 = 32;
    pub const COUNT: usize = 33;
}

/// How to compute the canonical frame address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cfa {
    /// A register plus an offset.
    Register {
        /// DWARF number.
        register: u64,
        /// In bytes.
        offset: i64,
    },
    /// The value of an expression.
    Expression(Expression),
}

/// How to recover one register of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// No instruction named it.
    Unset,
    /// It cannot be recovered; for the return address: there is no caller.
    Undefined,
    /// It still has the caller's value.
    Same,
    /// Saved at CFA + offset.
    Offset(i64),
    /// Is CFA + offset.
    ValueOffset(i64),
    /// Is in another register.
    Register(u64),
    /// Saved at the address the expression computes.
    Expression(Expression),
    /// Is the value of the expression.
    ValueExpression(Expression),
}

/// Address of an expression's length, a ULEB128 that the expression follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expression {
    /// Address of the length.
    pub at: u64,
}

impl Expression {
    /// The expression's operations, in the memory that holds them.
    pub fn code(self, window: Bytes) -> Option<Bytes> {
        let mut cursor = window;
        cursor.split(self.at.checked_sub(window.position())?)?;
        let length = cursor.uleb()?;
        cursor.split(length)
    }
}

/// A row of the unwind table; implementations keep as many registers as their reader needs.
pub trait CfiRow: Copy {
    /// Nothing known yet.
    fn new() -> Self;
    /// The slot of the CFA.
    fn cfa(&mut self) -> &mut Cfa;
    /// The slot of a register, if this kind of row keeps it.
    fn recovery(&mut self, register: u64) -> Option<&mut Recovery>;
}

/// What the fast rules need: CFA, rbp and the return address.
#[derive(Clone, Copy, Debug)]
pub struct ShortRow {
    /// The canonical frame address.
    pub cfa: Cfa,
    /// The caller's rbp.
    pub rbp: Recovery,
    /// The return address.
    pub return_address: Recovery,
}

impl CfiRow for ShortRow {
    fn new() -> Self {
        ShortRow { cfa: NO_CFA, rbp: Recovery::Unset, return_address: Recovery::Unset }
    }

    fn cfa(&mut self) -> &mut Cfa {
        &mut self.cfa
    }

    fn recovery(&mut self, register: u64) -> Option<&mut Recovery> {
        match register {
            register::RBP => Some(&mut self.rbp),
            register::RETURN => Some(&mut self.return_address),
            _ => None,
        }
    }
}

/// All general registers and the return address.
#[derive(Clone, Copy, Debug)]
pub struct FullRow {
    /// The canonical frame address.
    pub cfa: Cfa,
    /// By DWARF number.
    pub registers: [Recovery; register::COUNT],
}

impl CfiRow for FullRow {
    fn new() -> Self {
        FullRow { cfa: NO_CFA, registers: [Recovery::Unset; register::COUNT] }
    }

    fn cfa(&mut self) -> &mut Cfa {
        &mut self.cfa
    }

    fn recovery(&mut self, register: u64) -> Option<&mut Recovery> {
        self.registers.get_mut(usize::try_from(register).ok()?)
    }
}

/// A register that no code has: readers refuse a row without any CFA instruction.
const NO_CFA: Cfa = Cfa::Register { register: u64::MAX, offset: 0 };

/// The row of `entry` that holds for `pc`; `None` if the instructions make no sense or nest
/// `DW_CFA_remember_state` deeper than `DEPTH`.
pub fn row_at<R: CfiRow, const DEPTH: usize>(entry: &Fde, pc: u64) -> Option<R> {
    let mut row = R::new();
    let mut initial = row;
    let mut remembered = [row; DEPTH];
    let mut depth = 0;
    let mut location = entry.begin;
    for part in [entry.initial_instructions, entry.instructions] {
        let mut code = part;
        while !code.is_empty() {
            let opcode = code.u8()?;
            let low = u64::from(opcode & 0x3f);
            let set = |row: &mut R, register: u64, rule: Recovery| {
                if let Some(slot) = row.recovery(register) {
                    *slot = rule;
                }
            };
            let scaled = |value: u64| (value as i64).wrapping_mul(entry.data_alignment);
            let scaled_signed = |value: i64| value.wrapping_mul(entry.data_alignment);
            let mut advance = None;
            match (opcode >> 6, opcode) {
                (1, _) => advance = Some(low),
                (2, _) => {
                    let offset = scaled(code.uleb()?);
                    set(&mut row, low, Recovery::Offset(offset));
                }
                (3, _) => restore(&mut row, &mut initial, low),
                (_, 0x00) => {}
                (_, 0x01) => {
                    let (text_base, data_base) = entry.section.bases();
                    location = code.based_pointer(entry.address_encoding, text_base, data_base)?;
                    if location > pc {
                        return Some(row);
                    }
                }
                (_, 0x02) => advance = Some(u64::from(code.u8()?)),
                (_, 0x03) => advance = Some(u64::from(code.u16()?)),
                (_, 0x04) => advance = Some(u64::from(code.u32()?)),
                (_, 0x05) => {
                    let register = code.uleb()?;
                    let offset = scaled(code.uleb()?);
                    set(&mut row, register, Recovery::Offset(offset));
                }
                (_, 0x06) => restore(&mut row, &mut initial, code.uleb()?),
                (_, 0x07) => set(&mut row, code.uleb()?, Recovery::Undefined),
                (_, 0x08) => set(&mut row, code.uleb()?, Recovery::Same),
                (_, 0x09) => {
                    let register = code.uleb()?;
                    let from = code.uleb()?;
                    set(&mut row, register, Recovery::Register(from));
                }
                (_, 0x0a) => {
                    *remembered.get_mut(depth)? = row;
                    depth += 1;
                }
                (_, 0x0b) => {
                    depth = depth.checked_sub(1)?;
                    row = *remembered.get(depth)?;
                }
                (_, 0x0c) => {
                    let register = code.uleb()?;
                    let offset = code.uleb()? as i64;
                    *row.cfa() = Cfa::Register { register, offset };
                }
                (_, 0x0d) => {
                    let register = code.uleb()?;
                    let Cfa::Register { offset, .. } = *row.cfa() else { return None };
                    *row.cfa() = Cfa::Register { register, offset };
                }
                (_, 0x0e) => {
                    let offset = code.uleb()? as i64;
                    let Cfa::Register { register, .. } = *row.cfa() else { return None };
                    *row.cfa() = Cfa::Register { register, offset };
                }
                (_, 0x0f) => {
                    let expression = expression(&mut code)?;
                    *row.cfa() = Cfa::Expression(expression);
                }
                (_, 0x10) => {
                    let register = code.uleb()?;
                    let expression = expression(&mut code)?;
                    set(&mut row, register, Recovery::Expression(expression));
                }
                (_, 0x11) => {
                    let register = code.uleb()?;
                    let offset = scaled_signed(code.sleb()?);
                    set(&mut row, register, Recovery::Offset(offset));
                }
                (_, 0x12) => {
                    let register = code.uleb()?;
                    let offset = scaled_signed(code.sleb()?);
                    *row.cfa() = Cfa::Register { register, offset };
                }
                (_, 0x13) => {
                    let offset = scaled_signed(code.sleb()?);
                    let Cfa::Register { register, .. } = *row.cfa() else { return None };
                    *row.cfa() = Cfa::Register { register, offset };
                }
                (_, 0x14) => {
                    let register = code.uleb()?;
                    let offset = scaled(code.uleb()?);
                    set(&mut row, register, Recovery::ValueOffset(offset));
                }
                (_, 0x15) => {
                    let register = code.uleb()?;
                    let offset = scaled_signed(code.sleb()?);
                    set(&mut row, register, Recovery::ValueOffset(offset));
                }
                (_, 0x16) => {
                    let register = code.uleb()?;
                    let expression = expression(&mut code)?;
                    set(&mut row, register, Recovery::ValueExpression(expression));
                }
                // The signing of return addresses begins or ends: what is read is stripped of signatures in any case.
                (_, 0x2c | 0x2d) if cfg!(target_arch = "aarch64") => {}
                // GNU_args_size: how much the call pushed, which unwinding does not need.
                (_, 0x2e) => {
                    code.uleb()?;
                }
                (_, 0x2f) => {
                    let register = code.uleb()?;
                    let offset = (code.uleb()? as i64).wrapping_neg().wrapping_mul(entry.data_alignment);
                    set(&mut row, register, Recovery::Offset(offset));
                }
                _ => return None,
            }
            if let Some(delta) = advance {
                location = location.wrapping_add(delta.wrapping_mul(entry.code_alignment));
                if location > pc {
                    return Some(row);
                }
            }
        }
        initial = row;
    }
    Some(row)
}

fn restore<R: CfiRow>(row: &mut R, initial: &mut R, register: u64) {
    if let (Some(slot), Some(first)) = (row.recovery(register), initial.recovery(register)) {
        *slot = *first;
    }
}

fn expression(code: &mut Bytes) -> Option<Expression> {
    let at = code.position();
    let length = code.uleb()?;
    code.split(length)?;
    Some(Expression { at })
}
