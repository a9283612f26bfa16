//! For tests: executes code instruction by instruction, and checks what is in memory after each of them, where a signal
//! handler of the program may come, and may not return.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// What was found.
pub struct Stepped {
    /// Instructions that were executed.
    pub instructions: u64,
    /// Number of the first one after which the check failed.
    pub failing: Option<u64>,
}

struct StepCheck<'a> {
    holds: &'a dyn Fn() -> bool,
    stepped: Stepped,
}

/// What the handler asks: of the thread that holds [`TURN`].
static WATCH: AtomicPtr<StepCheck<'static>> = AtomicPtr::new(core::ptr::null_mut());
static TURN: Mutex<()> = Mutex::new(());

extern "C" fn on_step(_: c_int) {
    // SAFETY: null, or what the interrupted thread has stored and does not touch while it works.
    if let Some(watch) = unsafe { WATCH.load(Ordering::Relaxed).as_mut() } {
        watch.stepped.instructions += 1;
        if watch.stepped.failing.is_none() && !(watch.holds)() {
            watch.stepped.failing = Some(watch.stepped.instructions);
        }
    }
}

/// Calls `work`, and `holds` after each of its instructions. `work` must not block signals: the processor's trap is one.
pub fn after_each_instruction(holds: impl Fn() -> bool, work: impl FnOnce()) -> Stepped {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut watch = StepCheck { holds: &holds, stepped: Stepped { instructions: 0, failing: None } };
    WATCH.store((&raw mut watch).cast(), Ordering::Relaxed);
    // SAFETY: a zeroed action is valid; the handler calls nothing that a handler may not. The trap flag is taken back before
    // this function returns.
    unsafe {
        let (mut action, mut before) = (core::mem::zeroed::<libc::sigaction>(), core::mem::zeroed());
        action.sa_sigaction = on_step as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, &raw mut before), 0);
        core::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        work();
        core::arch::asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq");
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const before, core::ptr::null_mut()), 0);
    }
    WATCH.store(core::ptr::null_mut(), Ordering::Relaxed);
    watch.stepped
}
