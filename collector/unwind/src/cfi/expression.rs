//! DWARF expressions as unwind tables use them (DWARF 5, 2.5): arithmetic on registers, constants and memory.

use super::bytes::Bytes;

/// What an expression may look at.
pub trait Machine {
    /// A register's value; `None` if it is not known in this frame.
    fn register(&self, register: u64) -> Option<u64>;
    /// `size` bytes at `address`, zero-extended; `None` if they must not be read.
    fn load(&mut self, address: u64, size: u8) -> Option<u64>;
}

/// Deepest stack of values: far more than any compiler or hand-written table needs.
const DEPTH: usize = 16;
/// Operations until an expression that jumps backwards is given up.
const FUEL: u32 = 1000;

struct Values {
    values: [u64; DEPTH],
    len: usize,
}

impl Values {
    fn push(&mut self, value: u64) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }

    fn pick(&self, index: usize) -> Option<u64> {
        self.values.get(self.len.checked_sub(index + 1)?).copied()
    }
}

/// The value of the expression `code` with `first` already pushed (the CFA, for register rules).
pub fn evaluate(code: Bytes, first: Option<u64>, machine: &mut impl Machine) -> Option<u64> {
    let mut stack = Values { values: [0; DEPTH], len: 0 };
    if let Some(value) = first {
        stack.push(value)?;
    }
    let mut at = code;
    for _ in 0..FUEL {
        if at.is_empty() {
            return stack.pop();
        }
        let op = at.u8()?;
        match op {
            0x03 | 0x0e | 0x0f => stack.push(at.u64()?)?,
            0x06 => {
                let address = stack.pop()?;
                stack.push(machine.load(address, 8)?)?;
            }
            0x08 => stack.push(u64::from(at.u8()?))?,
            0x09 => stack.push(at.u8()? as i8 as u64)?,
            0x0a => stack.push(u64::from(at.u16()?))?,
            0x0b => stack.push(at.u16()? as i16 as u64)?,
            0x0c => stack.push(u64::from(at.u32()?))?,
            0x0d => stack.push(at.u32()? as i32 as u64)?,
            0x10 => stack.push(at.uleb()?)?,
            0x11 => stack.push(at.sleb()? as u64)?,
            0x12 => stack.push(stack.pick(0)?)?,
            0x13 => drop(stack.pop()?),
            0x14 => stack.push(stack.pick(1)?)?,
            0x15 => {
                let index = usize::from(at.u8()?);
                stack.push(stack.pick(index)?)?;
            }
            0x16 => {
                let (top, next) = (stack.pop()?, stack.pop()?);
                stack.push(top)?;
                stack.push(next)?;
            }
            0x17 => {
                let (top, second, third) = (stack.pop()?, stack.pop()?, stack.pop()?);
                stack.push(top)?;
                stack.push(third)?;
                stack.push(second)?;
            }
            0x19 => {
                let value = stack.pop()? as i64;
                stack.push(value.unsigned_abs())?;
            }
            0x1f => {
                let value = stack.pop()?;
                stack.push(value.wrapping_neg())?;
            }
            0x20 => {
                let value = stack.pop()?;
                stack.push(!value)?;
            }
            0x23 => {
                let (value, addend) = (stack.pop()?, at.uleb()?);
                stack.push(value.wrapping_add(addend))?;
            }
            0x1a..=0x27 | 0x29..=0x2e => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                stack.push(binary(op, left, right)?)?;
            }
            0x28 => {
                let offset = at.u16()? as i16;
                if stack.pop()? != 0 {
                    at = jump(code, at, offset)?;
                }
            }
            0x2f => {
                let offset = at.u16()? as i16;
                at = jump(code, at, offset)?;
            }
            0x30..=0x4f => stack.push(u64::from(op - 0x30))?,
            0x70..=0x8f => {
                let offset = at.sleb()? as u64;
                stack.push(machine.register(u64::from(op - 0x70))?.wrapping_add(offset))?;
            }
            0x92 => {
                let (register, offset) = (at.uleb()?, at.sleb()? as u64);
                stack.push(machine.register(register)?.wrapping_add(offset))?;
            }
            0x94 => {
                let size = at.u8()?;
                let address = stack.pop()?;
                stack.push(machine.load(address, matches!(size, 1 | 2 | 4 | 8).then_some(size)?)?)?;
            }
            0x96 => {}
            _ => return None,
        }
    }
    None
}

fn jump(code: Bytes, at: Bytes, offset: i16) -> Option<Bytes> {
    let target = at.position().wrapping_add(offset as u64);
    let mut whole = code;
    whole.split(target.checked_sub(code.position())?)?;
    Some(whole)
}

fn binary(op: u8, left: u64, right: u64) -> Option<u64> {
    let (signed_left, signed_right) = (left as i64, right as i64);
    Some(match op {
        0x1a => left & right,
        0x1b => signed_left.checked_div(signed_right)? as u64,
        0x1c => left.wrapping_sub(right),
        0x1d => left.checked_rem(right)?,
        0x1e => left.wrapping_mul(right),
        0x21 => left | right,
        0x22 => left.wrapping_add(right),
        0x24 => {
            if right < 64 {
                left << right
            } else {
                0
            }
        }
        0x25 => {
            if right < 64 {
                left >> right
            } else {
                0
            }
        }
        0x26 => (signed_left >> right.min(63)) as u64,
        0x27 => left ^ right,
        0x29 => u64::from(left == right),
        0x2a => u64::from(signed_left >= signed_right),
        0x2b => u64::from(signed_left > signed_right),
        0x2c => u64::from(signed_left <= signed_right),
        0x2d => u64::from(signed_left < signed_right),
        0x2e => u64::from(left != right),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Machine for Fake {
        fn register(&self, register: u64) -> Option<u64> {
            (register == 7).then_some(0x1000)
        }

        fn load(&mut self, address: u64, size: u8) -> Option<u64> {
            (size == 8).then_some(address * 2)
        }
    }

    fn value(code: &[u8]) -> Option<u64> {
        let start = code.as_ptr() as u64;
        // SAFETY: `code` is borrowed for the whole evaluation.
        evaluate(unsafe { Bytes::new(start, start + code.len() as u64, 0) }, None, &mut Fake)
    }

    #[test]
    fn operations() {
        assert_eq!(value(&[0x77, 0xa0, 0x01, 0x06]), Some(0x2140), "glibc's signal frame: *(rsp + 160)");
        assert_eq!(value(&[0x34, 0x31, 0x1c, 0x1f, 0x19]), Some(3), "|-(4 - 1)|");
        assert_eq!(value(&[0x31, 0x32, 0x33, 0x17, 0x1c, 0x1c]), Some(4), "rot makes 3 1 2: 3 - (1 - 2)");
        assert_eq!(value(&[0x31, 0x28, 0x01, 0x00, 0x00, 0x35]), Some(5), "a branch over a bad operation");
        assert_eq!(value(&[0x2f, 0xfd, 0xff]), None, "runs out of fuel");
        assert_eq!(value(&[0x31, 0x30, 0x1b]), None, "division by zero");
        assert_eq!(value(&[0x22]), None, "empty stack");
        assert_eq!(value(&[0x70, 0x00]), None, "unknown register");
        assert_eq!(value(&[0x2f, 0x10, 0x00]), None, "jump out of the expression");
        let signed = [0x11, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f, 0x11, 0x7f, 0x1b];
        assert_eq!(value(&signed), None, "overflow of a signed division");
    }

    #[test]
    fn the_plt_entry_of_x86_64() {
        // rsp + 8 + ((((rip & 15) >= 11) << 3)
        let code = [0x77, 0x08, 0x37, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(value(&code), Some(0x1008));
    }
}
