//! Check that the beginning of a function can be replaced by a jump.
//!
//! The detour moves the first instructions elsewhere. That is correct unless control returns to them: by a branch of
//! the function itself into their middle, or by the return from a call among them. Both can be seen in the code.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

/// Bytes of the jump.
const JUMP: usize = 5;
/// Longest function that is looked through; branches of longer ones back to their first bytes are as good as unknown.
const MAX_BYTES: usize = 64 << 10;

/// Looks at the code of a function at `address`; says what is against a jump at its beginning.
pub fn check(code: &[u8], address: u64) -> Result<(), &'static str> {
    if code.first() == Some(&0xcc) {
        return Err("a debugger has a breakpoint there");
    }
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut moved_end = address;
    let mut instruction = Instruction::default();
    while moved_end < address + JUMP as u64 && decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return Err("its code is not understood");
        }
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return Err("it begins with a call");
        }
        moved_end = instruction.next_ip();
        if matches!(instruction.flow_control(), FlowControl::Return | FlowControl::UnconditionalBranch) {
            break;
        }
    }
    let mut decoder = Decoder::with_ip(64, code.get(..code.len().min(MAX_BYTES)).unwrap_or(code), address, 0);
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let is_near = matches!(instruction.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32);
        let target = instruction.near_branch_target();
        if is_near && instruction.ip() >= moved_end && target > address && target < moved_end {
            return Err("it jumps back into its first instructions");
        }
    }
    Ok(())
}
