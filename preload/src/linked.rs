//! The substitute for the dynamic loader where this code is linked into a program, as `libtracehound.a`: a table of the
//! functions behind the hooks, which the linker fills in.
//!
//! ```text
//! wrapped   gcc … --wrap=malloc     program ─▶ __wrap_malloc, the hook ─▶ __real_malloc
//! plain     the crate `tracehound`  program ─▶ its global allocator ─▶ crate::allocator ─▶ the allocator inside
//! ```
//! Such a program always has a recorder. It records when `heaptrace run` or any `TRACEHOUND_*` variable requests it,
//! and is dormant otherwise.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use tracehound_format::linked::{NOTE_NAME, NOTE_TYPE, NOTE_VERSION};
use tracehound_format::options::NAMES;
use tracehound_shared::log;

use crate::environment;

core::arch::global_asm!(
    // Older C libraries lack it.
    ".weak _dl_find_object",
    ".section .data.rel.ro.tracehound_find_object,\"aw\",@progbits",
    ".hidden tracehound_find_object",
    ".globl tracehound_find_object",
    ".p2align 3",
    "tracehound_find_object:",
    ".quad _dl_find_object",
    // A weak name, as the recorder has it, takes nothing out of libc.a.
    ".quad gnu_get_libc_version",
    ".text",
);

const _: () = assert!(matches!(NOTE_NAME.as_bytes(), b"Tracehound"));

unsafe extern "C" {
    /// Defined above: the address of the C library's function, or 0.
    static tracehound_find_object: usize;
    /// Of `preload/linked/archive.sh`: whether calls are wrapped, then a [`FunctionBehind`] for each name, then one without.
    static tracehound_behind: usize;
    /// The linker's: the borders of the section that the archive's maker has put all code into.
    static __start_tracehound_text: u8;
    static __stop_tracehound_text: u8;
}

#[repr(C)]
struct FunctionBehind {
    name: *const c_char,
    address: usize,
}

// Says of the program's file that a recorder is inside, whatever is stripped from it.
core::arch::global_asm!(
    ".section .note.tracehound,\"a\",@note",
    ".p2align 2",
    ".long {name_bytes}",
    ".long 4",
    ".long {kind}",
    ".asciz \"Tracehound\"",
    ".p2align 2",
    ".long {version}",
    ".text",
    name_bytes = const NOTE_NAME.len() + 1,
    kind = const NOTE_TYPE,
    version = const NOTE_VERSION,
);

/// The function `name` that would have been called without us; 0: none.
pub fn find_next(name: &CStr) -> usize {
    // SAFETY: the table follows the word, and ends with an entry without a name; names are terminated.
    unsafe {
        let mut at = (&raw const tracehound_behind).add(1).cast::<FunctionBehind>();
        while !(*at).name.is_null() {
            if CStr::from_ptr((*at).name) == name {
                return (*at).address;
            }
            at = at.add(1);
        }
    }
    0
}

/// Whether the library came into a process that ran already: what is linked in did not.
pub fn came_late() -> bool {
    false
}

/// The addresses of the recorder's code.
pub fn own_code() -> Range<u64> {
    &raw const __start_tracehound_text as u64..&raw const __stop_tracehound_text as u64
}

/// The path of the library by which a program that is started can be recorded, too; empty where none was given.
pub fn own_path() -> Option<Vec<u8>> {
    Some(environment::preloaded().map(<[u8]>::to_vec).unwrap_or_default())
}

/// Whether a recording of this run was requested: by `heaptrace run`, or by a variable of ours.
pub fn is_asked_for() -> bool {
    environment::preloaded().is_some()
        || NAMES.iter().any(|name| environment::get(name).is_some_and(|value| !value.is_empty()))
}

/// 1: [`keeps_out`] has found a reason.
static OUT: AtomicU32 = AtomicU32::new(0);

/// Whether the recorder keeps out of this process: then it leaves the environment alone, too.
pub fn is_out() -> bool {
    OUT.load(Ordering::Relaxed) != 0
}

/// Looks for a reason to keep out of this process altogether.
pub fn keeps_out() -> bool {
    let keeps_out = has_reason();
    OUT.store(u32::from(keeps_out), Ordering::Relaxed);
    keeps_out
}

/// Whether there is such a reason; reported where a recording was requested.
fn has_reason() -> bool {
    // SAFETY: getauxval reads the process's own auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        // The variables are those of somebody with fewer rights.
        return true;
    }
    let objects = ProcessObjects::look();
    // SAFETY: a word of ours.
    let is_wrapped = unsafe { (&raw const tracehound_behind).read() } != 0;
    if is_wrapped && objects.has_loader && !objects.has_library && is_asked_for() {
        log::init(tracehound_format::options::LogLevel::Warn);
        log::error(
            "libtracehound.a is for programs that are linked statically, and this one has libraries, whose calls it would \
             not see: record it by `heaptrace run`; the program runs unrecorded",
        );
    }
    objects.has_library || is_wrapped && objects.has_loader
}

/// Objects in the process.
#[derive(Default)]
struct ProcessObjects {
    /// The program has a dynamic loader.
    has_loader: bool,
    /// `libtracehound.so`, which records by itself.
    has_library: bool,
}

impl ProcessObjects {
    fn look() -> ProcessObjects {
        unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
            // SAFETY: the loader passes a valid info; `found` is the value below.
            let (info, found) = unsafe { (&*info, &mut *found.cast::<ProcessObjects>()) };
            if !info.dlpi_name.is_null() {
                // SAFETY: the loader's names are terminated.
                found.has_library |= environment::is_ours(unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes());
            }
            // SAFETY: the object has this many headers.
            found.has_loader |= (0..info.dlpi_phnum)
                .any(|at| unsafe { (*info.dlpi_phdr.add(usize::from(at))).p_type } == libc::PT_INTERP);
            0
        }
        let mut found = ProcessObjects::default();
        // SAFETY: the callback has the type that libc expects; the value lives until this returns.
        unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
        found
    }
}

/// What the collector's crates look up by name where there is a loader: glibc's function that finds objects without a lock.
///
/// # Safety
/// `name` must be a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(_: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: `name` is a terminated string: the contract of this function.
    if unsafe { CStr::from_ptr(name) } == c"_dl_find_object" {
        // SAFETY: a word of ours, which the linker has filled in.
        return unsafe { (&raw const tracehound_find_object).read() } as *mut c_void;
    }
    core::ptr::null_mut()
}

/// Nothing can be opened here: libunwind is not used.
#[unsafe(no_mangle)]
pub extern "C" fn dlopen(_: *const c_char, _: c_int) -> *mut c_void {
    core::ptr::null_mut()
}
