//! Look-ups in the dynamic loader: the next definition of a symbol, and where this library is loaded. And the hooks of
//! the loader's functions: `dlopen`, `dlmopen`.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tracehound_shared::code::{self, DynamicSymbols};
use tracehound_shared::gate::Internal;
use tracehound_shared::libc_version;
use tracehound_shared::session;
use tracehound_shared::sys;

use crate::entry::passes_on;
use crate::environment;
use crate::start;

mod deep_binding;
mod musl;

static ANCHOR: u8 = 0;

unsafe extern "C" {
    /// The linker's: this library's first byte in memory. Hidden, so that it is no other object's.
    static __ehdr_start: u8;
}

/// The function `name` that would have been called without us; 0: none.
pub fn find_next(name: &CStr) -> usize {
    if !libc_version::is_glibc() {
        return musl::find_next(name);
    }
    if libc_version::lacks(name) {
        return 0;
    }
    // SAFETY: the name is terminated; the search begins behind this library, as the call comes from it.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize }
}

/// Whether the library came into a process that ran already: then libc comes before it in the loader's list. A preloaded
/// library comes right behind the program.
pub fn came_late() -> bool {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid info; `found` is the array below.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<[usize; 4]>()) };
        let [ours, libcs, late, _] = found;
        let loads = (0..info.dlpi_phnum).any(|at| {
            // SAFETY: the object has this many headers.
            let header = unsafe { &*info.dlpi_phdr.add(usize::from(at)) };
            let start = (info.dlpi_addr + header.p_vaddr) as usize;
            let holds = |address: usize| address.wrapping_sub(start) < header.p_memsz as usize;
            if header.p_type == libc::PT_LOAD && holds(*libcs) {
                *late = 1;
            }
            header.p_type == libc::PT_LOAD && holds(*ours)
        });
        c_int::from(loads)
    }
    let mut found = [&raw const ANCHOR as usize, libc::getauxval as *const () as usize, 0, 0];
    // SAFETY: the callback has the type that the loader expects; the array lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found[2] != 0
}

/// The addresses of this library's code and data.
pub fn own_code() -> Range<u64> {
    static END: AtomicU64 = AtomicU64::new(0);
    let start = &raw const __ehdr_start as u64;
    let mut end = END.load(Ordering::Relaxed);
    if end == 0 && start != 0 {
        // SAFETY: a page of this library, which stays mapped.
        end = unsafe { code::image_end(start) }.unwrap_or(start + 1);
        END.store(end, Ordering::Relaxed);
    }
    start..end
}

/// The path by which a program that is started gets this library, too. Absolute, as long as the working directory is the
/// one at the start.
pub fn own_path() -> Option<Vec<u8>> {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = own_path as *const () as *const c_void;
    // SAFETY: an address of this library, and a place for the answer, which names it by a terminated string.
    let path = unsafe {
        if libc::dladdr(here, info.as_mut_ptr()) == 0 || info.assume_init_ref().dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.assume_init_ref().dli_fname).to_bytes()
    };
    let mut absolute = Vec::new();
    if path.contains(&b'/') && path.first() != Some(&b'/') {
        absolute = sys::working_directory().unwrap_or_default();
        absolute.push(b'/');
    }
    absolute.extend_from_slice(path);
    Some(absolute)
}

static DLOPEN: AtomicUsize = AtomicUsize::new(0);
static DLMOPEN: AtomicUsize = AtomicUsize::new(0);

/// Address of the next function of this name, to be jumped to; kept in `place`.
fn next_address(place: &AtomicUsize, name: &CStr) -> usize {
    let known = place.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let address = find_next(name);
    place.store(address, Ordering::Relaxed);
    address
}

passes_on!(
    /// `dlopen(3)`, only looked at on the way.
    dlopen, look_at_dlopen
);
passes_on!(
    /// `dlmopen(3)`, only looked at on the way.
    dlmopen, look_at_dlmopen
);

/// Gives the address to jump to.
unsafe extern "C" fn look_at_dlmopen(namespace: libc::c_long, path: *const c_char, _: c_int) -> usize {
    start::ensure();
    if namespace != 0 && !path.is_null() {
        // SAFETY: the program passes a terminated string.
        let path = unsafe { CStr::from_ptr(path) };
        remark(
            "dlmopen",
            |path| format!("{path} was opened by dlmopen: what it allocates in its namespace is not seen"),
            path,
        );
    }
    next_address(&DLMOPEN, c"dlmopen")
}

/// Adds a remark about something that the program opened.
fn remark(topic: &'static str, text: impl FnOnce(&str) -> String, path: &CStr) {
    if let Some(session) = session::current().filter(|session| session.pid == sys::process_id()) {
        let errno = start::errno();
        let _internal = Internal::enter();
        let text = text(&path.to_string_lossy());
        session.remark(tracehound_shared::clock::now(), topic, text);
        start::set_errno(errno);
    }
}

/// Gives the address to jump to.
unsafe extern "C" fn look_at_dlopen(path: *const c_char, flags: c_int) -> usize {
    start::ensure();
    if flags & libc::RTLD_DEEPBIND != 0 && !path.is_null() && libc_version::is_glibc() {
        // SAFETY: the program passes a terminated string.
        let path = unsafe { CStr::from_ptr(path) };
        if deep_binding::can_open(path) {
            return deep_binding::open as *const () as usize;
        }
        let text =
            |path: &str| format!("{path} was opened with RTLD_DEEPBIND: its calls of malloc may bypass the recorder");
        remark("deepbind", text, path);
    }
    if !libc_version::is_glibc() {
        return musl::open as *const () as usize;
    }
    next_address(&DLOPEN, c"dlopen")
}

/// Remarks on it when the program's own calls of malloc do not come to this library first.
pub fn look_at_first_malloc() {
    if valgrind_replaces_malloc(environment::get("LD_PRELOAD").unwrap_or_default()) {
        let text = |_: &str| "valgrind's tool replaces malloc, the recorder's too: nothing of that is recorded".into();
        remark("first-malloc", text, c"valgrind");
    }
    // SAFETY: a constant, terminated name, which every process has.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    if first.is_null() || core::ptr::eq(first, crate::hooks::malloc as *const () as *const c_void) {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if crate::statics::has_said_of(first as u64) {
        return;
    }
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address of a loaded object, and a place for the answer, which names it by a terminated string.
    let path = unsafe {
        if libc::dladdr(first, info.as_mut_ptr()) == 0 || info.assume_init_ref().dli_fname.is_null() {
            return;
        }
        let base = info.assume_init_ref().dli_fbase as u64;
        // In a position-dependent executable the address of another object's function may be its own PLT entry.
        if DynamicSymbols::of(base).is_some_and(|symbols| symbols.find(b"malloc").is_none()) {
            return;
        }
        CStr::from_ptr(info.assume_init_ref().dli_fname)
    };
    let text = |path: &str| format!("{path} defines malloc: only its calls of the next allocator are recorded");
    remark("first-malloc", text, path);
}

/// Whether a tool of valgrind's is preloaded that replaces malloc in all objects: memcheck, massif and others, which have a
/// library of their own beside the one of all tools.
fn valgrind_replaces_malloc(preloaded: &[u8]) -> bool {
    const TOOL: &[u8] = b"/vgpreload_";
    let libraries = preloaded.split(|&byte| matches!(byte, b':' | b' '));
    let tools = libraries.filter_map(|path| {
        path.windows(TOOL.len()).position(|at| at == TOOL).and_then(|at| path.get(at + TOOL.len()..))
    });
    tools.into_iter().any(|tool| !tool.starts_with(b"core"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valgrinds_tools_are_told_apart() {
        let core = b"/usr/libexec/valgrind/vgpreload_core-amd64-linux.so";
        assert!(!valgrind_replaces_malloc(b"") && !valgrind_replaces_malloc(b"/lib/libtracehound.so"));
        assert!(!valgrind_replaces_malloc(core));
        let memcheck = b":/usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so:/x/libtracehound.so";
        assert!(valgrind_replaces_malloc(&[&core[..], memcheck].concat()));
    }
}
