//! Detours of functions to hooks: a jump at the beginning of each, and code of ours by which it can still be called.
//!
//! ```text
//! function     jmp ──▶ relay ──▶ hook ──▶ (the recorder's) ──▶ first instructions, moved ──▶ jmp ──▶ function, behind them
//! libc's own   call function     becomes     call first instructions, moved
//! ```
//! Calls that an allocator's library makes directly to its own functions are no calls of the program's: with a preloaded
//! library they would not be seen, and here they are led past the jump.

use std::collections::BTreeMap;
use std::ops::Range;

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionBlock,
    OpKind,
};

use crate::memory::ProcessMemory;
use crate::objects::{ProcessMapping, ProcessObject};
use crate::refusal::{Refusal, Result, refuse};

/// Bytes of the jump.
const JUMP: u64 = 5;
/// Bytes of the code for one function: the relay, and the moved instructions.
const SLOT: u64 = 96;
const RELAY: u64 = 16;
/// How far a jump reaches.
const REACH: u64 = 0x7fff_0000;
/// Longest function whose branches are looked through.
const LONGEST: usize = 64 << 10;

/// A function that is to be led to a hook.
#[derive(Debug, Clone)]
pub struct Hooked {
    /// Its place in the block.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Address.
    pub function: u64,
    /// Bytes, as far as they are known.
    pub len: u64,
    /// Where it is to lead.
    pub hook: u64,
    /// Direct calls from its own library go past the jump.
    pub spares_own_calls: bool,
}

/// Bytes that change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// First address.
    pub at: u64,
    /// Bytes that are there, at most eight.
    pub before: Vec<u8>,
    /// What is put there.
    pub after: Vec<u8>,
}

/// All that changes for some functions of one object.
#[derive(Debug, Default)]
pub struct Detours {
    /// Code of ours, to be put at the place that was asked for.
    pub code: Vec<u8>,
    /// What changes in the process.
    pub patches: Vec<Patch>,
    /// By which address each function can still be called, by its place in the block.
    pub functions: Vec<(usize, u64)>,
    /// Instructions that no thread may be in the middle of.
    pub moved: Vec<Range<u64>>,
}

/// Bytes of code that so many functions need.
#[must_use]
pub fn code_bytes(functions: usize) -> u64 {
    (functions as u64 * SLOT).next_multiple_of(4096)
}

/// A free range of `bytes` in reach of all of `object`.
pub fn free_place(mappings: &[ProcessMapping], object: &ProcessObject, bytes: u64) -> Result<u64> {
    const LOWEST: u64 = 1 << 20;
    const HIGHEST: u64 = 0x7fff_ffff_f000;
    let reaches = |at: u64| {
        let (low, high) = (at.min(object.range.start), (at + bytes).max(object.range.end));
        high - low < REACH && at >= LOWEST && at + bytes < HIGHEST
    };
    let starts = mappings.iter().map(|mapping| mapping.range.start).chain([HIGHEST]);
    let ends = [LOWEST].into_iter().chain(mappings.iter().map(|mapping| mapping.range.end));
    // At the upper end of a gap: what grows there, grows downwards from it.
    let gaps = ends.zip(starts).filter(|(end, start)| *start >= end + bytes);
    let near = |at: &u64| at.abs_diff(object.range.start);
    gaps.flat_map(|(end, start)| [start - bytes, end])
        .filter(|at| reaches(*at))
        .min_by_key(near)
        .ok_or_else(|| Refusal(format!("there is no free memory within 2 GiB of {}", object.path)))
}

/// Makes the detours of functions of one object, with the code at `place`. Nothing is changed yet.
pub fn make(memory: &ProcessMemory, object: &ProcessObject, hooked: &[Hooked], place: u64) -> Result<Detours> {
    let mut detours = Detours::default();
    let mut ways = BTreeMap::new();
    for (number, function) in hooked.iter().enumerate() {
        let slot = place + number as u64 * SLOT;
        let code = memory.bytes(function.function, (function.len as usize).clamp(32, LONGEST));
        let Some(code) = code else { return refuse(format!("the code of {} cannot be read", function.name)) };
        let cannot = |why: &str| Refusal(format!("{} cannot be hooked: {why}", function.name));
        let (moved_end, moved) = move_beginning(&code, function.function, slot + RELAY).map_err(|why| cannot(&why))?;
        if moved.len() as u64 > SLOT - RELAY {
            return Err(cannot("its beginning is too long"));
        }
        let before = memory.bytes(function.function, JUMP as usize).ok_or_else(|| cannot("it cannot be read"))?;
        detours.code.extend(relay(function.hook));
        detours.code.extend(moved);
        detours.code.resize((number as u64 + 1) as usize * SLOT as usize, 0xcc);
        let mut after = vec![0xe9];
        after.extend(distance(function.function + JUMP, slot).to_le_bytes());
        detours.patches.push(Patch { at: function.function, before, after });
        detours.functions.push((function.index, slot + RELAY));
        detours.moved.push(function.function..moved_end);
        if function.spares_own_calls {
            ways.insert(function.function, slot + RELAY);
        }
    }
    // In the program itself, direct calls are the program's.
    if !object.has_interpreter || object.name().starts_with("libc") {
        for range in &object.code {
            detours.patches.extend(own_calls(memory, range, &ways)?);
        }
    }
    Ok(detours)
}

fn distance(from: u64, to: u64) -> i32 {
    to.wrapping_sub(from) as i64 as i32
}

/// `jmp [rip]`, and the address behind it.
fn relay(hook: u64) -> Vec<u8> {
    let mut code = vec![0xff, 0x25, 0, 0, 0, 0];
    code.extend(hook.to_le_bytes());
    code.resize(RELAY as usize, 0xcc);
    code
}

/// The first instructions of a function as they read at `to`, with a jump behind them to the rest; and where that begins.
fn move_beginning(code: &[u8], address: u64, to: u64) -> core::result::Result<(u64, Vec<u8>), String> {
    if code.first() == Some(&0xcc) {
        return Err("a debugger has a breakpoint there".into());
    }
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut moved = Vec::new();
    while decoder.ip() < address + JUMP && decoder.can_decode() {
        let instruction = decoder.decode();
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => return Err("it begins with a call".into()),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
                if instruction.next_ip() < address + JUMP =>
            {
                return Err("it is too short".into());
            }
            _ if instruction.is_invalid() => return Err("its code is not understood".into()),
            _ => moved.push(instruction),
        }
    }
    let end = decoder.ip();
    if end < address + JUMP {
        return Err("it is too short".into());
    }
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let target = instruction.near_branch_target();
        if is_near_branch(&instruction) && target > address && target < end {
            return Err("it jumps back into its first instructions".into());
        }
    }
    let inside = |instruction: &Instruction| {
        let target = instruction.near_branch_target();
        is_near_branch(instruction) && target > address && target < end
    };
    if moved.iter().any(inside) {
        return Err("its first instructions jump among themselves".into());
    }
    let back = Instruction::with_branch(Code::Jmp_rel32_64, end).map_err(|error| error.to_string())?;
    moved.push(back);
    let block = InstructionBlock::new(&moved, to);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).map_err(|error| error.to_string())?;
    Ok((end, encoded.code_buffer))
}

fn is_near_branch(instruction: &Instruction) -> bool {
    matches!(instruction.op0_kind(), OpKind::NearBranch64)
}

/// Direct calls and jumps in `range` to a function of `ways`, to be led to the address that belongs to it.
fn own_calls(memory: &ProcessMemory, range: &Range<u64>, ways: &BTreeMap<u64, u64>) -> Result<Vec<Patch>> {
    const DISPLACEMENT: usize = 4;
    let Some(code) = memory.bytes(range.start, (range.end - range.start) as usize) else {
        return refuse("the code of the C library cannot be read");
    };
    let mut patches = Vec::new();
    let mut decoder = Decoder::with_ip(64, &code, range.start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if !is_near_branch(&instruction) {
            continue;
        }
        let Some(&way) = ways.get(&instruction.near_branch_target()) else { continue };
        let offsets = decoder.get_constant_offsets(&instruction);
        if offsets.immediate_size() != DISPLACEMENT {
            // A short jump: both lie together, in a function that is hooked.
            continue;
        }
        let at = instruction.ip() + offsets.immediate_offset() as u64;
        let from = (at - range.start) as usize;
        let before = code.get(from..from + DISPLACEMENT).unwrap_or_default().to_vec();
        let after = distance(instruction.next_ip(), way).to_le_bytes().to_vec();
        patches.push(Patch { at, before, after });
    }
    Ok(patches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_moved_with_their_distances() {
        // endbr64; lea rax, [rip + 0x10]; ret
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8d, 0x05, 0x10, 0, 0, 0, 0xc3, 0, 0, 0, 0];
        let (end, moved) = move_beginning(&code, 0x1000, 0x9000).unwrap();
        assert_eq!(end, 0x100b);
        // The same address is meant: 0x101b.
        assert_eq!(moved[..11], [0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8d, 0x05, 0x10, 0x80, 0xff, 0xff]);
        assert_eq!(moved[11], 0xe9);
        assert!(move_beginning(&[0xc3, 0, 0, 0, 0, 0, 0, 0], 0x1000, 0x9000).is_err(), "ret");
        assert!(move_beginning(&[0xe8, 0, 0, 0, 0, 0xc3], 0x1000, 0x9000).is_err(), "call");
        // xor eax, eax; xor eax, eax; xor eax, eax; jmp to the second.
        assert!(move_beginning(&[0x31, 0xc0, 0x31, 0xc0, 0x31, 0xc0, 0xeb, 0xfa], 0x1000, 0x9000).is_err(), "loop");
    }
}
