//! Which names the C library of the process has.
//!
//! The recorder is built for glibc 2.17 and looks up what is newer. A look-up that fails makes glibc allocate its error
//! message, which a program with a `malloc` of its own would see; so it is only made where the name is there.

use core::ffi::CStr;

/// Names that the recorder looks up, and the 2.x of glibc that had them first.
const SINCE: [(&CStr, u32); 3] = [(c"reallocarray", 26), (c"execveat", 34), (c"_dl_find_object", 35)];

/// Whether the C library is known not to have `name`.
pub fn lacks(name: &CStr) -> bool {
    SINCE.iter().any(|&(newer, since)| newer == name && minor() < since)
}

/// The 36 of glibc 2.36; of anything newer than 2.x more than any of those.
fn minor() -> u32 {
    // SAFETY: gives a constant, terminated text.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    minor_of(version.to_bytes())
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
