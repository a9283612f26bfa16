//! Which C library the process has, and which names that has.
//!
//! The recorder is built for glibc 2.17 and looks up what is newer. A look-up that fails makes glibc allocate its error
//! message, which a program with a `malloc` of its own would see; so it is only made where the name is there.
//!
//! The same library is loaded by musl: `docs/decisions/0039-musl.md`.

use core::ffi::{CStr, c_char};

// Musl lacks it, and its loader refuses a library that needs what is not there. A weak name is 0 then.
core::arch::global_asm!(
    ".weak gnu_get_libc_version",
    ".section .data.rel.ro.tracehound_libc_version,\"aw\",@progbits",
    ".hidden tracehound_libc_version",
    ".globl tracehound_libc_version",
    ".p2align 3",
    "tracehound_libc_version:",
    ".quad gnu_get_libc_version",
    ".text",
);

unsafe extern "C" {
    /// Defined above: glibc's function, or none.
    static tracehound_libc_version: Option<unsafe extern "C" fn() -> *const c_char>;
}

/// glibc's function that says which one it is.
#[inline(always)]
fn version() -> Option<unsafe extern "C" fn() -> *const c_char> {
    // SAFETY: a constant of ours, which the loader has filled in. Read each time, as the compiler does not know that.
    unsafe { (&raw const tracehound_libc_version).read_volatile() }
}

/// Whether the C library is glibc; if not, it is musl.
pub fn is_glibc() -> bool {
    version().is_some()
}

/// Names that the recorder looks up, and the 2.x of glibc that had them first.
const SINCE: [(&CStr, u32); 5] =
    [(c"reallocarray", 26), (c"stat", 33), (c"fstatat", 33), (c"execveat", 34), (c"_dl_find_object", 35)];

/// Whether the C library is known not to have `name`.
pub fn lacks(name: &CStr) -> bool {
    SINCE.iter().any(|&(newer, since)| newer == name && minor() < since)
}

/// The 36 of glibc 2.36; of anything newer than 2.x more than any of those. 0 where it is not glibc.
fn minor() -> u32 {
    // SAFETY: gives a constant, terminated text.
    version().map_or(0, |version| minor_of(unsafe { CStr::from_ptr(version()) }.to_bytes()))
}

fn minor_of(version: &[u8]) -> u32 {
    let Some(minor) = version.strip_prefix(b"2.") else { return u32::MAX };
    let digits = minor.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u32, digit| number.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_glibc() {
        assert!(is_glibc() && minor() >= 17);
    }

    #[test]
    fn versions_are_numbers() {
        assert_eq!([minor_of(b"2.17"), minor_of(b"2.36.9000"), minor_of(b"2.")], [17, 36, 0]);
        assert_eq!(minor_of(b"3.0"), u32::MAX);
    }

    #[test]
    fn the_library_of_this_process_has_what_it_says() {
        for (name, _) in SINCE {
            // SAFETY: a terminated name.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(lacks(name), found.is_null(), "{name:?}");
        }
    }
}
