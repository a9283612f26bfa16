//! General unwinder: any register, any expression. For the few hand-written functions whose frames are not a
//! function of (pc, sp, rbp) alone.
//!
//! It begins in the recorder's own frame, where the callee-saved registers are known, and unwinds through the
//! recorder's frames to the hook's caller. Every load is checked first, so it costs around a microsecond a frame; its
//! results are not cached.

#[cfg(target_arch = "aarch64")]
use super::aarch64::{self as epilogue, HereAarch64 as Here, current, is_callee_saved};
use super::address::{is_in_user_space, strip};
use super::cfi::expression::{Machine, evaluate};
use super::cfi::program::{Cfa, FullRow, Recovery, register, row_at};
#[cfg(target_arch = "x86_64")]
use super::epilogue;
use super::go_switch;
use super::hotspot;
use super::lookup::{LocatedFde, follows_call, is_registered, locate};
use super::rule::{Rule, RuleKind};
use super::rule_cache::rule_of;
use super::step::{SAYS_SIZE, keeps_frame_pointers};
use super::verified_chains::ucontext;
use super::{Caller, FRAME_POINTERS, HEURISTIC, JAVA, REGISTERED, SLOW, TRUNCATED};
use crate::room::is_on_stack_of_ours;
use tracehound_shared::code::has_object;
use tracehound_shared::sys::is_readable;

/// Frames of our own between here and the hook's caller, at most.
const MAX_OWN_FRAMES: usize = 64;
/// Frames until a stack that leads in circles is given up.
const MAX_FRAMES: usize = 1 << 20;

/// The registers of a frame; those whose value is lost are marked unknown.
#[derive(Clone, Copy, Debug)]
struct Registers {
    values: [u64; register::COUNT],
    known: u64,
    /// The stack pointer is no more than a lower bound, because a frame was left by its frame pointer, which does not give
    /// how large it is.
    sp_is_bound: bool,
    /// The last page that was found readable.
    page: u64,
}

/// A frame as the general unwinder reports it.
#[derive(Clone, Copy, Debug)]
pub struct GeneralFrame {
    pub pc: u64,
    /// Flags of [`Captured`](super::Captured) that this frame brings.
    pub flags: u8,
}

/// Unwinds from here; passes the frames from `caller` outwards to `each`, innermost first, until it returns
/// false. Returns the flags of the end, or `None` if `caller` was not found.
///
/// # Safety
/// `caller` must be the state of a function that has not returned, further out on the running thread's stack.
#[inline(never)]
pub unsafe fn unwind(caller: Caller, mut each: impl FnMut(GeneralFrame) -> bool) -> Option<u8> {
    let mut here = Here::new();
    // SAFETY: writes the values that `here` has room for.
    unsafe { current(&raw mut here) };
    let mut registers = here.registers();
    let mut own_frames = 0;
    while registers.pc() != caller.pc || registers.sp() != caller.sp {
        own_frames += 1;
        if own_frames > MAX_OWN_FRAMES || registers.sp() > caller.sp && !is_on_stack_of_ours(registers.sp()) {
            return None;
        }
        let located = locate(registers.pc().wrapping_sub(1))?;
        registers = registers.step(&located)?;
    }
    let mut left_at = 0;
    for _ in 0..MAX_FRAMES {
        let pc = registers.pc();
        if pc == 0 {
            return Some(0);
        }
        if rule_of(pc).is_go_switch() {
            // Each time the thread's stack must have been left further out; otherwise frame pointers lead in circles.
            if registers.sp() <= left_at {
                return Some(TRUNCATED);
            }
            left_at = registers.sp();
        }
        let (outer, flags) = registers.out();
        if !each(GeneralFrame { pc, flags: flags | SLOW }) {
            return Some(TRUNCATED);
        }
        match outer {
            Outer::Frame(outer) => registers = outer,
            Outer::End => return Some(0),
            Outer::Lost => return Some(TRUNCATED),
        }
    }
    Some(TRUNCATED)
}

enum Outer {
    Frame(Registers),
    End,
    Lost,
}

impl Registers {
    fn nothing() -> Registers {
        Registers { values: [0; register::COUNT], known: 0, sp_is_bound: false, page: 1 }
    }

    fn get(&self, register: u64) -> Option<u64> {
        let index = usize::try_from(register).ok()?;
        let value = *self.values.get(index)?;
        (self.known >> index & 1 != 0).then_some(value)
    }

    fn set(&mut self, register: u64, value: u64) {
        let index = register as usize;
        if let Some(slot) = self.values.get_mut(index) {
            *slot = value;
            self.known |= 1 << index;
        }
    }

    fn pc(&self) -> u64 {
        self.get(register::PC).unwrap_or(0)
    }

    fn sp(&self) -> u64 {
        self.get(register::RSP).unwrap_or(0)
    }

    /// The caller's registers, by the best rule source available, and the flags of that source.
    fn out(&mut self) -> (Outer, u8) {
        let inside = self.pc().wrapping_sub(1);
        let rule = rule_of(self.pc());
        if rule.is_go_switch() {
            return match self.on_goroutine(rule) {
                Some(outer) => (Outer::Frame(outer), 0),
                None => (Outer::Lost, 0),
            };
        }
        match rule.kind() {
            RuleKind::End => return (Outer::End, 0),
            RuleKind::Signal => {
                return match self.interrupted() {
                    Some(outer) => (Outer::Frame(outer), 0),
                    None => (Outer::Lost, 0),
                };
            }
            _ => {}
        }
        let (outer, flags) = match locate(inside) {
            Some(located) => (self.step(&located), if is_registered(inside) { REGISTERED } else { 0 }),
            None if hotspot::covers(self.pc()) => (self.by_rule(), JAVA),
            None if self.was_interrupted() => (self.by_link_register(), HEURISTIC),
            None => (self.by_epilogue(), HEURISTIC),
        };
        match outer {
            Some(outer) => (Outer::Frame(outer), flags),
            None => self.heuristic(),
        }
    }

    /// The caller's registers by unwind information.
    fn step(&mut self, located: &LocatedFde) -> Option<Registers> {
        let LocatedFde { entry, window } = located;
        let row: FullRow = row_at::<FullRow, 4>(entry, self.pc().wrapping_sub(1))?;
        let cfa = match row.cfa {
            // A function that saves x29 makes it point to the saved value.
            Cfa::Register { register: register::RSP, .. } if self.sp_is_bound => {
                let Recovery::Offset(offset) = row.registers[register::RBP as usize] else { return None };
                self.get(register::RBP)?.wrapping_sub(offset as u64)
            }
            Cfa::Register { register, offset } => self.get(register)?.wrapping_add(offset as u64),
            Cfa::Expression(expression) => evaluate(expression.code(*window)?, None, self)?,
        };
        // The call from this frame has overwritten the register.
        let is_kept = !matches!(row.registers[register::RETURN as usize], Recovery::Unset | Recovery::Same);
        if cfg!(target_arch = "aarch64") && !is_kept && !self.was_interrupted() {
            return None;
        }
        let mut outer = Registers::nothing();
        outer.page = self.page;
        for (number, recovery) in row.registers.iter().enumerate() {
            let number = number as u64;
            let value = match *recovery {
                Recovery::Unset if is_callee_saved(number) => self.get(number),
                Recovery::Unset | Recovery::Undefined => None,
                Recovery::Same => self.get(number),
                Recovery::Offset(offset) => Some(self.load(cfa.wrapping_add(offset as u64), 8)?),
                Recovery::ValueOffset(offset) => Some(cfa.wrapping_add(offset as u64)),
                Recovery::Register(from) => self.get(from),
                Recovery::Expression(expression) => {
                    let address = evaluate(expression.code(*window)?, Some(cfa), self)?;
                    Some(self.load(address, 8)?)
                }
                Recovery::ValueExpression(expression) => Some(evaluate(expression.code(*window)?, Some(cfa), self)?),
            };
            if let Some(value) = value {
                outer.set(number, value);
            }
        }
        if matches!(row.registers[register::RSP as usize], Recovery::Unset) {
            outer.set(register::RSP, cfa);
        }
        let mut pc = strip(outer.get(entry.return_register)?);
        outer.set(entry.return_register, pc);
        if entry.signal {
            pc = pc.wrapping_add(1);
        } else if self.leads_inwards(outer.sp()) && !is_on_stack_of_ours(self.sp()) {
            return None;
        }
        outer.set(register::PC, pc);
        Some(outer)
    }

    /// Whether a frame cannot be called from one with this stack pointer. An interrupted function may have put nothing on
    /// the stack, where a call puts nothing there either.
    fn leads_inwards(&self, outer_sp: u64) -> bool {
        outer_sp < self.sp() || outer_sp == self.sp() && !self.was_interrupted()
    }

    /// Whether the frame was interrupted by a signal, as far as the PC shows it: a return address is a multiple of four on
    /// aarch64.
    fn was_interrupted(&self) -> bool {
        cfg!(target_arch = "aarch64") && self.pc() & 3 != 0
    }

    /// The caller's registers as if an interrupted function had put nothing on the stack, as the jumps of a procedure
    /// linkage table do.
    fn by_link_register(&self) -> Option<Registers> {
        let pc = strip(self.get(register::RETURN)?);
        let mut outer = *self;
        outer.set(register::PC, follows_call(pc).then_some(pc)?);
        Some(outer)
    }

    /// The registers that a signal frame without usable unwind information has saved.
    fn interrupted(&mut self) -> Option<Registers> {
        /// DWARF numbers in the order of the ucontext.
        #[cfg(target_arch = "aarch64")]
        const ORDER: [u64; 32] = {
            let mut order = [0; 32];
            let mut number = 0;
            while number < order.len() {
                order[number] = number as u64;
                number += 1;
            }
            order
        };
        /// DWARF numbers in the order of the ucontext: r8 to r15, then rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp.
        #[cfg(target_arch = "x86_64")]
        const ORDER: [u64; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7];
        let mut outer = Registers::nothing();
        for (index, register) in ORDER.iter().enumerate() {
            let slot = self.sp().wrapping_add(ucontext::REGISTERS + 8 * index as u64);
            let value = self.load(slot, 8)?;
            outer.set(*register, value);
        }
        let pc = self.load(self.sp().wrapping_add(ucontext::RIP), 8)?;
        outer.set(register::PC, pc.wrapping_add(1));
        outer.page = self.page;
        Some(outer)
    }

    /// The caller's registers by the rule of code in HotSpot's code cache.
    fn by_rule(&mut self) -> Option<Registers> {
        let rule = hotspot::rule_of_code(self.pc());
        let (cfa, return_slot) = match rule.kind() {
            RuleKind::Sp => (self.sp().wrapping_add(rule.n()), None),
            RuleKind::Frame => (self.get(register::RBP)?.wrapping_add(rule.n()), None),
            RuleKind::Drap => {
                let rbp = self.get(register::RBP)?;
                let cfa = self.load(rbp.wrapping_sub(rule.n()), 8)?;
                (cfa, Some((rule.drap_return_slot(rbp, cfa), rbp)))
            }
            _ => return None,
        };
        let (return_slot, rbp_slot) =
            return_slot.unwrap_or_else(|| (rule.return_slot(cfa), cfa.wrapping_sub(rule.m())));
        if cfa & 7 != 0 || self.leads_inwards(cfa) {
            return None;
        }
        let mut outer = Registers::nothing();
        let pc = self.load(return_slot, 8)?;
        outer.set(
            register::PC,
            (hotspot::covers(pc) || has_object(pc.wrapping_sub(1)) && follows_call(pc)).then_some(pc)?,
        );
        outer.set(register::RBP, self.load(rbp_slot, 8)?);
        outer.set(register::RSP, cfa);
        outer.page = self.page;
        Some(outer)
    }

    /// The registers of the caller on a goroutine's stack.
    fn on_goroutine(&mut self, rule: Rule) -> Option<Registers> {
        let (sp, rbp) = (self.sp(), self.get(register::RBP)?);
        let (pc, sp, rbp) = go_switch::caller_of(rule, sp, rbp, |address| self.load(address, 8))?;
        let mut outer = Registers::nothing();
        outer.set(register::PC, pc);
        outer.set(register::RSP, sp);
        outer.set(register::RBP, rbp);
        outer.page = self.page;
        Some(outer)
    }

    /// The caller's registers by the epilogue of the code.
    fn by_epilogue(&mut self) -> Option<Registers> {
        let rule = epilogue::rule_at(self.pc()).filter(|rule| rule.kind() == RuleKind::Sp)?;
        let cfa = self.sp().wrapping_add(rule.n());
        let pc = self.load(cfa.wrapping_sub(8), 8)?;
        let mut outer = Registers::nothing();
        outer.set(register::RSP, cfa);
        outer.set(register::PC, follows_call(pc).then_some(pc)?);
        let rbp = if rule.m() == 0 { self.get(register::RBP) } else { self.load(cfa.wrapping_sub(rule.m()), 8) };
        if let Some(rbp) = rbp {
            outer.set(register::RBP, rbp);
        }
        outer.page = self.page;
        Some(outer)
    }

    /// The caller's registers as if the function kept a frame pointer.
    fn heuristic(&mut self) -> (Outer, u8) {
        let mut follow = || {
            let rbp = self.get(register::RBP)?;
            if rbp == 0 {
                return Some(Outer::End);
            }
            if rbp & 7 != 0 || rbp < self.sp() {
                return None;
            }
            let mut outer = Registers::nothing();
            outer.set(register::RBP, self.load(rbp, 8)?);
            outer.set(register::RSP, rbp.wrapping_add(16));
            let pc = strip(self.load(rbp.wrapping_add(8), 8)?);
            outer.set(register::RETURN, is_in_user_space(pc).then_some(pc)?);
            outer.set(register::PC, pc);
            outer.sp_is_bound = !SAYS_SIZE;
            outer.page = self.page;
            Some(Outer::Frame(outer))
        };
        let outer = follow().unwrap_or(Outer::Lost);
        let keeps = match &outer {
            Outer::Frame(outer) => keeps_frame_pointers(self.pc(), Some(outer.pc())),
            Outer::End => keeps_frame_pointers(self.pc(), None),
            Outer::Lost => false,
        };
        (outer, if keeps { FRAME_POINTERS } else { HEURISTIC })
    }
}

impl Machine for Registers {
    fn register(&self, register: u64) -> Option<u64> {
        self.get(register)
    }

    fn load(&mut self, address: u64, size: u8) -> Option<u64> {
        const PAGE: u64 = 4096;
        let last = address.checked_add(u64::from(size).checked_sub(1)?)?;
        for page in [address & !(PAGE - 1), last & !(PAGE - 1)] {
            if page != self.page {
                if !is_readable(page) {
                    return None;
                }
                self.page = page;
            }
        }
        // SAFETY: both pages the value may touch are readable, and the stack they belong to is the thread's own
        // business: nobody unmaps it meanwhile.
        unsafe {
            Some(match size {
                1 => u64::from((address as *const u8).read_volatile()),
                2 => u64::from((address as *const u16).read_unaligned()),
                4 => u64::from((address as *const u32).read_unaligned()),
                8 => (address as *const u64).read_unaligned(),
                _ => return None,
            })
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn is_callee_saved(number: u64) -> bool {
    matches!(number, register::RBX | register::RBP | 12..=15)
}

/// rbx, rbp, r12 to r15, then rsp and rip as they will be when [`current`] has returned.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct Here {
    saved: [u64; 8],
}

#[cfg(target_arch = "x86_64")]
impl Here {
    const ORDER: [u64; 8] = [register::RBX, register::RBP, 12, 13, 14, 15, register::RSP, register::PC];

    const fn new() -> Here {
        Here { saved: [0; 8] }
    }
}

impl Here {
    fn registers(&self) -> Registers {
        let mut registers = Registers::nothing();
        for (register, value) in Self::ORDER.iter().zip(self.saved) {
            registers.set(*register, value);
        }
        registers
    }
}

/// # Safety
/// `here` must be valid for writes.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn current(here: *mut Here) {
    core::arch::naked_asm!(
        "mov [rdi], rbx",
        "mov [rdi + 8], rbp",
        "mov [rdi + 16], r12",
        "mov [rdi + 24], r13",
        "mov [rdi + 32], r14",
        "mov [rdi + 40], r15",
        "lea rax, [rsp + 8]",
        "mov [rdi + 48], rax",
        "mov rax, [rsp]",
        "mov [rdi + 56], rax",
        "ret",
    )
}
