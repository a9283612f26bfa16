//! Entries to which an allocator inside the program is redirected: one small entry for each slot.
//!
//! An entry hands its slot and the caller's state to the slot's body, in the registers that functions with up to three
//! arguments do not use. Functions with more find them on the stack.
//!
//! ```text
//! narrow   body(a, b, c, slot, stack, frame)
//! wide     body(a, b, c, d, e, f, stack, frame, slot)
//! ```

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tracehound_format::record::Kind;

/// Entries for functions with up to three arguments.
pub const NARROW: usize = 256;
/// Entries for functions with up to six.
pub const WIDE: usize = 48;
/// Arguments that a narrow entry hands on.
pub const NARROW_ARGUMENTS: u8 = 3;

const SLOT_BYTES: usize = 32;
const ENTRY_BYTES: usize = 32;

/// What an entry leads to.
#[repr(C)]
pub struct EntryTarget {
    /// The body, called by the entry; see the module's description.
    pub body: AtomicUsize,
    /// The function itself, past its changed beginning.
    pub real: AtomicUsize,
    /// See [`Kind`].
    pub kind: AtomicU8,
    unused: [u8; 15],
}

const _: () = assert!(size_of::<EntryTarget>() == SLOT_BYTES && core::mem::offset_of!(EntryTarget, body) == 0);

static SLOTS: [EntryTarget; NARROW + WIDE] = [const {
    EntryTarget { body: AtomicUsize::new(0), real: AtomicUsize::new(0), kind: AtomicU8::new(0), unused: [0; 15] }
}; NARROW + WIDE];

core::arch::global_asm!(
    ".text",
    ".p2align 5",
    ".hidden tracehound_static_entries",
    ".globl tracehound_static_entries",
    ".type tracehound_static_entries,@function",
    "tracehound_static_entries:",
    ".cfi_startproc",
    ".set .Ltracehound_slot, 0",
    ".rept {narrow}",
    ".p2align 5",
    "endbr64",
    "lea rcx, [rip + {slots} + .Ltracehound_slot]",
    "mov r8, rsp",
    "mov r9, rbp",
    "jmp qword ptr [rcx]",
    ".set .Ltracehound_slot, .Ltracehound_slot + {slot_bytes}",
    ".endr",
    ".rept {wide}",
    ".p2align 5",
    "endbr64",
    "lea r11, [rip + {slots} + .Ltracehound_slot]",
    "mov rax, rsp",
    "push r11",
    ".cfi_adjust_cfa_offset 8",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    "push rax",
    ".cfi_adjust_cfa_offset 8",
    "call qword ptr [r11]",
    "add rsp, 24",
    ".cfi_adjust_cfa_offset -24",
    "ret",
    ".set .Ltracehound_slot, .Ltracehound_slot + {slot_bytes}",
    ".endr",
    ".p2align 5",
    ".cfi_endproc",
    ".size tracehound_static_entries, . - tracehound_static_entries",
    narrow = const NARROW,
    wide = const WIDE,
    slots = sym SLOTS,
    slot_bytes = const SLOT_BYTES,
);

unsafe extern "C" {
    static tracehound_static_entries: u8;
}

impl EntryTarget {
    /// Calls the function; arguments that it does not take do no harm.
    ///
    /// # Safety
    /// As for the function.
    #[inline(always)]
    pub unsafe fn call(&self, arguments: [usize; 6]) -> usize {
        type Function = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: the slot was filled with a function that takes no more than these integers, before its entry was
        // reachable.
        unsafe {
            let function = core::mem::transmute::<usize, Function>(self.real.load(Ordering::Relaxed));
            function(a, b, c, d, e, f)
        }
    }

    /// What an allocation or a free through the function is recorded as.
    #[inline(always)]
    pub fn kind(&self) -> Kind {
        Kind::from_u8(self.kind.load(Ordering::Relaxed)).unwrap_or(Kind::OtherAlloc)
    }
}

/// Hands out slots with their entries.
#[derive(Default)]
pub struct FreeSlots {
    narrow: usize,
    wide: usize,
}

impl FreeSlots {
    /// A slot for a function with so many arguments, and the address of its entry; `None` when there are no more.
    pub fn take(&mut self, arguments: u8) -> Option<(&'static EntryTarget, usize)> {
        let number = if arguments <= NARROW_ARGUMENTS {
            let number = self.narrow;
            self.narrow += 1;
            (number < NARROW).then_some(number)?
        } else {
            let number = self.wide;
            self.wide += 1;
            NARROW + (number < WIDE).then_some(number)?
        };
        Some((SLOTS.get(number)?, &raw const tracehound_static_entries as usize + number * ENTRY_BYTES))
    }
}
