//! The environment as the process got it: our options in it, and our entry in `LD_PRELOAD`.

use core::ffi::{CStr, c_char};

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
    static __libc_stack_end: *mut usize;
}

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// The entries, as pointers to their first bytes. libc's own list if it has one yet, else the kernel's.
fn entries() -> *mut *mut c_char {
    // SAFETY: plain reads; nobody else runs while the library is initialised.
    unsafe {
        if !environ.is_null() {
            return environ;
        }
        // ld.so keeps the initial stack pointer: argument count, arguments, null, environment, null.
        let stack = __libc_stack_end;
        if stack.is_null() {
            return core::ptr::null_mut();
        }
        let count = *stack;
        stack.add(1 + count + 1).cast()
    }
}

/// Calls `each` with every entry.
fn for_each(mut each: impl FnMut(*mut *mut c_char, &'static [u8])) {
    let mut at = entries();
    if at.is_null() {
        return;
    }
    // SAFETY: the list ends with a null pointer, its strings with a zero.
    unsafe {
        while !(*at).is_null() {
            each(at, CStr::from_ptr(*at).to_bytes());
            at = at.add(1);
        }
    }
}

/// Value of a variable; the first entry counts, as in `getenv`.
pub fn get(name: &str) -> Option<&'static [u8]> {
    let mut found = None;
    for_each(|_, entry| {
        if found.is_none()
            && let Some(value) = entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
        {
            found = Some(value);
        }
    });
    found
}

/// Whether one entry of an `LD_PRELOAD` value is this library.
pub fn is_ours(path: &[u8]) -> bool {
    path.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name == b"libtracehound.so")
}

/// Takes this library out of `LD_PRELOAD`, in place: what the program starts runs without us, and the program itself
/// sees the environment that it would have without us. Other entries stay.
pub fn leave_preload() {
    let mut place = None;
    for_each(|at, entry| {
        if entry.starts_with(PRELOAD) && place.is_none() {
            place = Some((at, entry));
        }
    });
    let Some((at, entry)) = place else { return };
    let Some(rest) = without_us(entry.get(PRELOAD.len()..).unwrap_or_default()) else { return };
    // SAFETY: the entry is a writable string of the process's own; what replaces it is shorter. The list has a null
    // pointer at its end.
    unsafe {
        if rest.is_empty() {
            let mut to = at;
            while !(*to).is_null() {
                *to = *to.add(1);
                to = to.add(1);
            }
        } else {
            let text = (*at).cast::<u8>().add(PRELOAD.len());
            core::ptr::copy_nonoverlapping(rest.as_ptr(), text, rest.len());
            *text.add(rest.len()) = 0;
        }
    }
}

/// The value without this library; `None` when it is not in there. Entries are separated by spaces or colons.
fn without_us(value: &[u8]) -> Option<Vec<u8>> {
    let separator = |byte: &u8| matches!(byte, b' ' | b':');
    let kept: Vec<&[u8]> = value.split(separator).filter(|path| !path.is_empty() && !is_ours(path)).collect();
    let all = value.split(separator).filter(|path| !path.is_empty()).count();
    (kept.len() != all).then(|| kept.join(&b':'))
}
