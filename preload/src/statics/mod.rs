//! Allocators inside the program itself: found by the names of their functions and hooked where these begin.
//!
//! A call within one object does not use the symbol, so a preloaded library never sees it. Therefore the functions
//! themselves are patched: the `detour` crate moves their first instructions elsewhere and puts a jump to the hook in
//! their place. That happens once, when the process has a single thread that is not in these instructions, and it is
//! all or nothing: half an allocator would be worse than none. If it fails, the recording says so.

mod bodies;
mod entry;
mod prologue;
mod stripped;

use core::sync::atomic::Ordering;
use std::panic::catch_unwind;
use std::sync::OnceLock;

use detour::{RawDetour, Threads, Transaction};
use tracehound_format::allocators::{self, Allocators, CallShape, Family, Finder, FoundFunction};
use tracehound_shared::clock;
use tracehound_shared::code::{self, LoadedModule};
use tracehound_shared::elf_file::ElfFile;
use tracehound_shared::loader;
use tracehound_shared::log;
use tracehound_shared::session;
use tracehound_shared::symbols::{self, SymbolTableKind};
use tracehound_shared::sys;

use crate::environment;
use entry::FreeSlots;

/// What the self-audit calls it.
const TOPIC: &str = "static-allocator";

/// What was said about the program's allocators; a followed child of fork has them, too.
static SAID: OnceLock<Option<String>> = OnceLock::new();

/// Looks for allocators in the program and hooks what there is, the first time; says in the recording what came of it.
pub fn install() {
    let said = SAID.get_or_init(|| {
        // Neither the detour nor the disassembler is ours: should one of them panic, the program goes on.
        let outcome = catch_unwind(|| {
            let module = executable()?;
            let file = ElfFile::of_module(module)?;
            let (found, table) = look_for(&file);
            if !found.functions.is_empty() {
                return Some(hook(module, found));
            }
            let python_malloc = environment::get("PYTHONMALLOC").unwrap_or_default();
            let unnamed = (table != SymbolTableKind::Full).then(|| stripped::remark(&file, python_malloc)).flatten();
            unnamed.map(Outcome::Unnamed)
        });
        match outcome {
            Ok(outcome) => outcome.map(Outcome::log),
            Err(_) => Some(
                Outcome::Not("the program's own allocator is not recorded: its code cannot be analysed".into()).log(),
            ),
        }
    });
    if let (Some(text), Some(session)) = (said, session::current()) {
        session.remark(clock::now(), TOPIC, text.clone());
    }
}

/// Whether an address is in the program's own object, whose allocator has a remark of its own.
pub fn has_said_of(address: u64) -> bool {
    SAID.get().is_some_and(Option::is_some)
        && executable().is_some_and(|module| (module.start..module.end).contains(&address))
}

enum Outcome {
    /// All of it is recorded.
    Hooked(String),
    /// It is not, or not all of it.
    Not(String),
    /// There seems to be one, without names.
    Unnamed(String),
}

impl Outcome {
    fn log(self) -> String {
        match self {
            // `heaptrace run` has said it before the start.
            Self::Hooked(text) | Self::Unnamed(text) => {
                log::info(&text);
                text
            }
            Self::Not(text) => {
                log::warn(&text);
                text
            }
        }
    }
}

/// The program's own object.
fn executable() -> Option<&'static LoadedModule> {
    // SAFETY: the program's own object is never unloaded.
    unsafe { code::modules()?.module_around(loader::inside_program()) }
}

/// The allocators in the program's file, and how much its table of symbols says.
fn look_for(file: &ElfFile) -> (Allocators, SymbolTableKind) {
    let mut finder = Finder::default();
    let table = symbols::functions(file, &allocators::is_interesting, &mut |name, symbol| {
        finder.symbol(name, symbol.start, symbol.end, symbol.global);
    });
    (finder.finish(), table)
}

fn hook(module: &LoadedModule, found: Allocators) -> Outcome {
    let families = Family::list(&found.families());
    let not = |why: &str| Outcome::Not(format!("{families}, inside the program, is not recorded: {why}"));
    if found.sanitizer {
        return not("the program was built with a sanitizer, which tracks every block itself");
    }
    if !is_single_threaded() {
        return not("the program had threads before the recorder could change its code");
    }
    let mut slots = FreeSlots::default();
    let mut detours = Vec::new();
    let mut left_out = Vec::new();
    for found in &found.functions {
        match prepare(module, found, &mut slots) {
            Ok(detour) => detours.push(detour),
            Err(why) => {
                let name = String::from_utf8_lossy(&found.name).into_owned();
                if ends_blocks(found.function.shape) {
                    forget(detours);
                    return not(&format!("{name} cannot be hooked ({why}), so frees would not be recorded"));
                }
                left_out.push(format!("{name} ({why})"));
            }
        }
    }
    let own = code::object_at(hook as *const () as u64).map_or(0..0, |object| object.start..object.end);
    let moved = |at: u64| at.wrapping_add(module.bias);
    bodies::set_inside(found.inside.iter().map(|&(start, end)| (moved(start), moved(end))).collect(), own);
    let mut transaction = Transaction::new();
    for (detour, _) in &detours {
        transaction.enable(detour);
    }
    // SAFETY: there is no other thread, and this one is in none of these functions' first instructions: it may be in
    // the middle of one of them, behind a call, and no call was among what is moved.
    if let Err(error) = unsafe { transaction.commit(Threads::None) } {
        forget(detours);
        return not(&format!("its code cannot be changed ({error})"));
    }
    let count = detours.len();
    seal(&detours);
    forget(detours);
    if left_out.is_empty() {
        Outcome::Hooked(format!(
            "{families}, inside the program, is recorded: {count} functions hooked where they begin"
        ))
    } else {
        Outcome::Not(format!(
            "{families}, inside the program, is recorded, but for blocks from {}",
            left_out.join(", ")
        ))
    }
}

/// Whether a block may end or move in such a function: without it, blocks would seem to live on.
const fn ends_blocks(shape: CallShape) -> bool {
    !matches!(
        shape,
        CallShape::Alloc(_)
            | CallShape::AllocOfProduct(_)
            | CallShape::PosixMemalign
            | CallShape::Copy(_)
            | CallShape::CopyAtMost(_)
            | CallShape::Books
    )
}

/// A detour with the address that it changes.
type Prepared = (RawDetour, u64);

/// Makes the detour of one function, without changing anything yet.
fn prepare(module: &LoadedModule, found: &FoundFunction, slots: &mut FreeSlots) -> Result<Prepared, String> {
    const EXECUTE: u32 = 1;
    let start = module.bias.wrapping_add(found.start);
    let end = module.bias.wrapping_add(found.end);
    let segment = module.segments().iter().find(|segment| {
        segment.flags & EXECUTE != 0 && start >= segment.start && start - segment.start < segment.file_bytes
    });
    let Some(segment) = segment else { return Err("it is not in the program's code".into()) };
    let segment_end = segment.start + segment.file_bytes;
    // A function without a size: its beginning must do.
    let end = if end > start { end.min(segment_end) } else { (start + 32).min(segment_end) };
    // SAFETY: inside a segment of code that is mapped from the file and stays loaded with the program.
    let code = unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) };
    prologue::check(code, start)?;
    let body = bodies::body_of(&found.function).ok_or("its arguments are unknown")?;
    let (slot, entry) = slots.take(found.function.arguments).ok_or("there are too many such functions")?;
    slot.body.store(body, Ordering::Relaxed);
    slot.kind.store(found.function.kind as u8, Ordering::Relaxed);
    // SAFETY: the function takes and returns integers, at most as many as the slot's entry hands on.
    let detour =
        unsafe { RawDetour::new(start as *const (), entry as *const ()) }.map_err(|error| error.to_string())?;
    slot.real.store(detour.trampoline() as usize, Ordering::Release);
    Ok((detour, start))
}

/// Keeps the detours for ever: dropping one would undo it, or take the moved instructions away.
fn forget(detours: Vec<Prepared>) {
    detours.into_iter().for_each(|(detour, _)| core::mem::forget(detour));
}

/// Takes the right to write from the memory that holds the moved instructions and the long jumps.
fn seal(detours: &[Prepared]) {
    const JUMP: u8 = 0xe9;
    let page = sys::page_bytes() as u64;
    let mut pages = Vec::new();
    for (detour, start) in detours {
        pages.push(detour.trampoline() as u64 & !(page - 1));
        // SAFETY: the five bytes of the jump that has just been put there, or what the function began with.
        let jump = unsafe { core::ptr::read_unaligned(*start as *const [u8; 5]) };
        if let [JUMP, distance @ ..] = jump {
            let to = start.wrapping_add(5).wrapping_add_signed(i64::from(i32::from_le_bytes(distance)));
            pages.push(to & !(page - 1));
        }
    }
    pages.sort_unstable();
    pages.dedup();
    let own = code::object_at(seal as *const () as u64).map_or(0..0, |object| object.start..object.end);
    for at in pages.into_iter().filter(|at| !own.contains(at)) {
        // SAFETY: pages that the detour crate mapped for this purpose and, having no more detours to make, does not
        // write to again.
        unsafe { sys::protect(at as *mut u8, page as usize, true) };
    }
}

/// Whether the calling thread is the process's only one.
fn is_single_threaded() -> bool {
    let Ok(status) = sys::read_file(libc::AT_FDCWD, c"/proc/self/stat") else { return false };
    let Some(at) = status.iter().rposition(|&byte| byte == b')') else { return false };
    // Field 20: the number of threads; the name in parentheses is field 2.
    let mut fields = status.get(at + 2..).unwrap_or_default().split(|&byte| byte == b' ');
    fields.nth(17) == Some(b"1")
}
