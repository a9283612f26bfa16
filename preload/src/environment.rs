//! The environment as the process got it: our options in it, and our entry in `LD_PRELOAD`.

use core::ffi::{CStr, c_char};
use std::ffi::CString;
use std::sync::OnceLock;

use tracehound_format::options::NAMES;
use tracehound_shared::lock::Lock;
use tracehound_shared::sys;

use crate::loader;

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

// Only glibc has it: a weak name is 0 where it is missing.
#[cfg(not(linked))]
core::arch::global_asm!(
    ".weak __libc_stack_end",
    ".section .data.rel.ro.tracehound_stack_end,\"aw\",@progbits",
    ".hidden tracehound_stack_end",
    ".globl tracehound_stack_end",
    ".p2align 3",
    "tracehound_stack_end:",
    ".quad __libc_stack_end",
    ".text",
);

/// The place of glibc's variable that holds the initial stack pointer; null without one.
#[cfg(not(linked))]
fn stack_end() -> *const *mut usize {
    unsafe extern "C" {
        /// Defined above.
        static tracehound_stack_end: *const *mut usize;
    }
    // SAFETY: a constant of ours, which the loader has filled in. Read each time, as the compiler does not know that.
    unsafe { (&raw const tracehound_stack_end).read_volatile() }
}

#[cfg(linked)]
fn stack_end() -> *const *mut usize {
    unsafe extern "C" {
        static __libc_stack_end: *mut usize;
    }
    &raw const __libc_stack_end
}

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// The entries, as pointers to their first bytes. libc's own list if it has one yet, else the kernel's.
fn entries() -> *mut *mut c_char {
    // SAFETY: plain reads; nobody else runs while the library is initialised.
    unsafe {
        if !environ.is_null() {
            return environ;
        }
        // ld.so keeps the initial stack pointer: argument count, arguments, null, environment, null. musl has set `environ`
        // before anything of ours runs.
        let stack = stack_end().as_ref().copied().unwrap_or_default();
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

/// Whether this library is in `LD_PRELOAD` of the program's environment.
#[cfg(not(linked))]
pub fn has_library() -> bool {
    // SAFETY: a plain read. What had no list at the start has the kernel's, and later none.
    if unsafe { environ.is_null() } {
        return false;
    }
    let mut found = false;
    for_each(|_, entry| found |= entry.strip_prefix(PRELOAD).is_some_and(|value| without_us(value).is_some()));
    found
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

/// The entry of `LD_PRELOAD` that is this library.
#[cfg(linked)]
pub fn preloaded() -> Option<&'static [u8]> {
    let separator = |byte: &u8| matches!(byte, b' ' | b':');
    get("LD_PRELOAD")?.split(separator).find(|path| is_ours(path))
}

/// Removes our variables: other programs with a recorder inside, which this one starts, run without it.
#[cfg(linked)]
pub fn leave_variables() {
    let is_ours = |entry: &[u8]| {
        let name = entry.split(|&byte| byte == b'=').next().unwrap_or_default();
        NAMES.iter().any(|ours| ours.as_bytes() == name)
    };
    let mut at = entries();
    if at.is_null() {
        return;
    }
    let mut to = at;
    // SAFETY: the list ends with a null pointer, its strings with a zero; what is kept moves to the front.
    unsafe {
        while !(*at).is_null() {
            if !is_ours(CStr::from_ptr(*at).to_bytes()) {
                *to = *at;
                to = to.add(1);
            }
            at = at.add(1);
        }
        *to = core::ptr::null_mut();
    }
}

/// Removes this library from `LD_PRELOAD`, in place: programs that this one starts run without us, and the program itself
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

/// This library's path and our variables, as they were at the start: what a followed program needs.
struct Own {
    /// Empty: there is none to be preloaded.
    path: Vec<u8>,
    variables: Vec<CString>,
}

/// Set once: a forked child, whose other threads are gone, must find no lock here.
static OWN: OnceLock<Own> = OnceLock::new();

/// Environments made for vfork children, which share our memory until they have become another program; with the time at
/// which they were made.
static LENT: Lock<Vec<(u64, Environment)>> = Lock::new(Vec::new());
const LENT_NS: u64 = 10_000_000_000;

/// Remembers what a followed program needs. The working directory must still be the one at the start.
pub fn remember() {
    let Some(path) = loader::own_path() else { return };
    let variables = NAMES.iter().filter_map(|name| {
        let value = get(name)?;
        CString::new([name.as_bytes(), b"=", value].concat()).ok()
    });
    let _ = OWN.set(Own { path, variables: variables.collect() });
}

/// An environment for exec: the list, and the strings in it that are ours.
pub struct Environment {
    list: Vec<*const c_char>,
    _strings: Vec<CString>,
}

// SAFETY: the pointers lead to the strings beside them and to the program's own.
unsafe impl Send for Environment {}

impl Environment {
    /// The list, ended by a null pointer.
    pub fn list(&self) -> *const *const c_char {
        self.list.as_ptr()
    }

    /// Keeps it for a vfork child that is about to exec.
    pub fn lend(self) -> *const *const c_char {
        let list = self.list();
        let now = sys::clock(libc::CLOCK_MONOTONIC);
        match LENT.try_lock() {
            Some(mut lent) => {
                lent.retain(|(since, _)| now.saturating_sub(*since) < LENT_NS);
                lent.push((now, self));
            }
            // Another thread holds the lock for its child; or its holder was killed or forked meanwhile, and never
            // releases it.
            None => core::mem::forget(self),
        }
        list
    }
}

/// `given` without this library in `LD_PRELOAD`, for a program that cannot load it; `None` when it is not in there.
///
/// # Safety
/// `given` must be null or a list of terminated strings that ends with a null pointer.
pub unsafe fn with_no_library(given: *const *const c_char) -> Option<Environment> {
    let (mut list, mut strings) = (Vec::new(), Vec::new());
    let (mut at, mut changed) = (given, false);
    // SAFETY: as `given` is.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            if !crate::seccomp::is_readable((*at).addr(), 1) {
                return None;
            }
            let value = CStr::from_ptr(*at).to_bytes().strip_prefix(PRELOAD);
            match value.and_then(without_us) {
                None => list.push(*at),
                Some(rest) => {
                    changed = true;
                    if !rest.is_empty() {
                        strings.push(CString::new([PRELOAD, &rest].concat()).ok()?);
                        list.push(strings.last()?.as_ptr());
                    }
                }
            }
            at = at.add(1);
        }
    }
    list.push(core::ptr::null());
    changed.then_some(Environment { list, _strings: strings })
}

/// `given` with what a followed program needs; `None` when it is all there.
///
/// # Safety
/// `given` must be null or a list of terminated strings that ends with a null pointer.
pub unsafe fn with_us(given: *const *const c_char) -> Option<Environment> {
    let own = OWN.get()?;
    let (mut list, mut strings) = (Vec::new(), Vec::new());
    let (mut missing, mut has_preload) = (own.variables.iter().map(Some).collect::<Vec<_>>(), own.path.is_empty());
    let mut changed = false;
    let mut at = given;
    // SAFETY: `given` is null or a list of terminated strings that ends with a null pointer: the contract of `with_us`.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            if !crate::seccomp::is_readable((*at).addr(), 1) {
                // The kernel refuses the list.
                return None;
            }
            let entry = CStr::from_ptr(*at).to_bytes();
            if let Some(value) = entry.strip_prefix(PRELOAD).filter(|_| !own.path.is_empty()) {
                has_preload = true;
                if without_us(value).is_none() {
                    let separator: &[u8] = if value.is_empty() { b"" } else { b":" };
                    strings.extend(CString::new([PRELOAD, &own.path, separator, value].concat()));
                    list.push(strings.last()?.as_ptr());
                    changed = true;
                    at = at.add(1);
                    continue;
                }
            }
            for place in &mut missing {
                let name = place.map(|text| text.to_bytes().split_inclusive(|&byte| byte == b'=').next());
                if name.flatten().is_some_and(|name| entry.starts_with(name)) {
                    *place = None;
                }
            }
            list.push(*at);
            at = at.add(1);
        }
    }
    if !has_preload {
        strings.extend(CString::new([PRELOAD, &own.path[..]].concat()));
        list.push(strings.last()?.as_ptr());
        changed = true;
    }
    for text in missing.into_iter().flatten() {
        strings.push(text.clone());
        list.push(strings.last()?.as_ptr());
        changed = true;
    }
    list.push(core::ptr::null());
    changed.then_some(Environment { list, _strings: strings })
}
