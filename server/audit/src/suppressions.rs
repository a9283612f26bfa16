//! Suppressions inside a program: the text that its `__lsan_default_suppressions` returns, read from the file.
//!
//! The function is not run. Compilers make of `return "…";` two instructions, the address of the text and a return;
//! anything else is not understood, which is said.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic, Register};
use object::{Object, ObjectSection, ObjectSymbol};
use tracehound_index::Trace;
use tracehound_index::facts::ModuleFacts;
use tracehound_query::suppress::{Suppression, SuppressionOrigin, parse};

const FUNCTION: &str = "__lsan_default_suppressions";
/// Longest text that is read.
const LONGEST: usize = 1 << 20;

/// Suppressions, and what could not be read, in words.
type FoundSuppressions = (Vec<Suppression>, Vec<String>);

/// A recording, and how many modules it had.
type SuppressionKey = ([u8; 16], usize);

/// The suppressions of all modules that have some, and what could not be read. Symbol tables can be long: recordings
/// that were asked about lately are remembered, until they have loaded more modules.
pub fn of_program(trace: &Trace) -> FoundSuppressions {
    const KNOWN: usize = 8;
    static LATELY: Mutex<Vec<(SuppressionKey, FoundSuppressions)>> = Mutex::new(Vec::new());
    let key: SuppressionKey = (trace.recording_id(), trace.modules().len());
    let lately = || LATELY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = lately().iter().find(|(known, _)| *known == key) {
        return found.clone();
    }
    let found = of_modules(trace);
    let mut lately = lately();
    lately.insert(0, (key, found.clone()));
    lately.truncate(KNOWN);
    found
}

fn of_modules(trace: &Trace) -> FoundSuppressions {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for module in trace.modules() {
        let path = String::from_utf8_lossy(&module.path).into_owned();
        match of_module(module) {
            Ok(None) => {}
            Ok(Some(text)) => match parse(&text, &SuppressionOrigin::Program(path.clone())) {
                Ok(list) => found.extend(list),
                Err(why) => problems.push(format!("{FUNCTION} of {path}: {why}")),
            },
            Err(why) => problems.push(format!("{FUNCTION} of {path}: {why}")),
        }
    }
    (found, problems)
}

/// The text of one module; nothing if it has no such function or its file is not the one that was recorded.
fn of_module(module: &ModuleFacts) -> Result<Option<String>, String> {
    use std::os::unix::ffi::OsStrExt;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(&module.path));
    // What is no plain file (a pipe, a device) could block us.
    if module.build_id.is_empty() || !path.metadata().is_ok_and(|meta| meta.is_file()) {
        return Ok(None);
    }
    let Ok(file) = std::fs::File::open(&path) else { return Ok(None) };
    // SAFETY: the mapping is read only; a file that shrinks under us is the risk that every reader of mapped
    // executables takes, the symboliser included.
    let Ok(map) = (unsafe { memmap2::Mmap::map(&file) }) else { return Ok(None) };
    let Ok(elf) = object::File::parse(&*map) else { return Ok(None) };
    if elf.build_id().ok().flatten() != Some(module.build_id.as_slice()) {
        return Ok(None);
    }
    let mut symbols = elf.symbols().chain(elf.dynamic_symbols());
    let Some(symbol) = symbols.find(|symbol| symbol.name() == Ok(FUNCTION) && symbol.is_definition()) else {
        return Ok(None);
    };
    if elf.architecture() != object::Architecture::X86_64 {
        return Err("only x86-64 code is understood".into());
    }
    let code = bytes_at(&elf, symbol.address(), 64).ok_or("its code is not in the file")?;
    let address = returned_address(code, symbol.address()).ok_or("it does more than return a text")?;
    let bytes = bytes_at(&elf, address, LONGEST).ok_or("its text is not in the file")?;
    let end = bytes.iter().position(|&byte| byte == 0).ok_or("its text has no end")?;
    Ok(Some(String::from_utf8_lossy(&bytes[..end]).into_owned()))
}

/// At most `len` bytes from an address on, as far as its section goes.
fn bytes_at<'a>(elf: &object::File<'a>, address: u64, len: usize) -> Option<&'a [u8]> {
    let inside = |section: &object::Section<'a, '_>| {
        address.checked_sub(section.address()).is_some_and(|offset| offset < section.size()) && section.address() != 0
    };
    let section = elf.sections().find(inside)?;
    let bytes = section.data().ok()?.get((address - section.address()) as usize..)?;
    Some(bytes.get(..len).unwrap_or(bytes))
}

/// The constant address that a function returns, if that is all that it does.
fn returned_address(code: &[u8], address: u64) -> Option<u64> {
    let mut returned = None;
    for instruction in &mut Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
        let into_rax = matches!(instruction.op0_register(), Register::RAX | Register::EAX);
        match instruction.mnemonic() {
            Mnemonic::Endbr64 | Mnemonic::Nop => {}
            // The frame of a function that was not optimised.
            Mnemonic::Push if instruction.op0_register() == Register::RBP => {}
            Mnemonic::Pop if instruction.op0_register() == Register::RBP => {}
            Mnemonic::Mov if instruction.op0_register() == Register::RBP => {}
            Mnemonic::Leave => {}
            Mnemonic::Lea if into_rax && instruction.is_ip_rel_memory_operand() => {
                returned = Some(instruction.ip_rel_memory_address());
            }
            Mnemonic::Mov if instruction.code() == Code::Mov_r32_imm32 && into_rax => {
                returned = Some(u64::from(instruction.immediate32()));
            }
            Mnemonic::Ret => return returned,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_returns_are_understood_and_nothing_else() {
        // lea rax, [rip + 0x10]; ret
        assert_eq!(returned_address(&[0x48, 0x8d, 0x05, 0x10, 0, 0, 0, 0xc3], 0x1000), Some(0x1017));
        // push rbp; mov rbp, rsp; lea rax, [rip + 0]; pop rbp; ret
        let framed = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x8d, 0x05, 0, 0, 0, 0, 0x5d, 0xc3];
        assert_eq!(returned_address(&framed, 0x2000), Some(0x200b));
        // mov eax, 0x402010; ret
        assert_eq!(returned_address(&[0xb8, 0x10, 0x20, 0x40, 0, 0xc3], 0x40_1000), Some(0x40_2010));
        // call; ret
        assert_eq!(returned_address(&[0xe8, 0, 0, 0, 0, 0xc3], 0x1000), None);
        assert_eq!(returned_address(&[0x48], 0), None);
        assert_eq!(returned_address(&[], 0), None);
    }
}
