//! The dynamic loader, and the files that it has loaded.
//!
//! The kernel starts a program's loader. A user can start it, too, with the program as its argument (`ld.so ./program`, as
//! wrappers of relocatable programs do). Then the kernel knows nothing of the program: its name for the process's file is
//! that of the loader, and `AT_BASE` is 0. What lies where is asked of the list of mappings then.

use core::ffi::{c_int, c_void};

use crate::code::LoadedModule;
use crate::elf_file::ElfFile;
use crate::{libc_version, maps_text, sys};

// Weak, as musl has no such name.
core::arch::global_asm!(
    ".weak _r_debug",
    ".section .data.rel.ro.tracehound_r_debug,\"aw\",@progbits",
    ".hidden tracehound_r_debug",
    ".globl tracehound_r_debug",
    ".p2align 3",
    "tracehound_r_debug:",
    ".quad _r_debug",
    ".text",
);

/// What glibc's loader keeps for debuggers, `struct r_debug` of `link.h`.
#[repr(C)]
struct DebuggerInterface {
    version: c_int,
    list: u64,
    changed: u64,
    state: c_int,
    loader_base: u64,
}

unsafe extern "C" {
    /// Defined above.
    static tracehound_r_debug: *const DebuggerInterface;
}

/// Where the kernel mapped the loader of the program; 0 if the program has none, or if the loader was started by itself.
fn by_kernel() -> u64 {
    // SAFETY: getauxval reads the process's own auxiliary vector.
    unsafe { libc::getauxval(libc::AT_BASE) }
}

/// Where glibc's loader is mapped, headers first; 0 if there is none, as in a static program, or if it is musl's, which is
/// its C library.
pub fn base() -> u64 {
    if !libc_version::is_glibc() {
        return 0;
    }
    match by_kernel() {
        // SAFETY: a constant of ours, which the loader has filled in; its structure is the loader's, mapped for ever.
        0 => unsafe { (&raw const tracehound_r_debug).read_volatile().as_ref().map_or(0, |debug| debug.loader_base) },
        base => base,
    }
}

/// An address in the program's own object: the loader names it first.
pub fn inside_program() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, headers: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid info, `headers` is the number below.
        unsafe { *headers.cast::<u64>() = (*info).dlpi_phdr as u64 };
        1
    }
    let mut headers = 0_u64;
    // SAFETY: the callback has the type that the loader expects; the number lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut headers).cast()) };
    headers
}

/// Path of the program's file; empty if the kernel does not say it. Takes the loader's lock.
pub fn program_path() -> Vec<u8> {
    program_path_at(inside_program)
}

/// The same, with an address in the program.
fn program_path_at(address: impl FnOnce() -> u64) -> Vec<u8> {
    let by_link = || {
        // The link of the process is gone with its first thread.
        let link = sys::read_link(c"/proc/thread-self/exe").or_else(|_| sys::read_link(c"/proc/self/exe"));
        link.unwrap_or_default()
    };
    match by_kernel() {
        0 => mapped_at(address()).unwrap_or_else(by_link),
        _ => by_link(),
    }
}

/// Path of the file that an object was loaded from, without the loader's lock. The loader has it as the program wrote it, which is relative to a folder
/// that may not be the process's any more; the kernel's is absolute.
pub fn path_of(module: &LoadedModule) -> Vec<u8> {
    let name = module.path();
    if name.is_empty() {
        return program_path_at(|| module.start);
    }
    if name.starts_with(b"/") && !module.path_was_cut {
        return name.to_vec();
    }
    // The object may be gone, and another one in its place.
    let is_its_own = |path: &Vec<u8>| ElfFile::open_bytes(path).is_some_and(|file| file.is_loaded_as(module));
    let mapped = mapped_at(module.start).filter(is_its_own);
    let found = mapped.or_else(|| below_working_directory(name).filter(is_its_own));
    found.unwrap_or_else(|| name.to_vec())
}

/// A relative path, made absolute; a bare name is not a path.
fn below_working_directory(name: &[u8]) -> Option<Vec<u8>> {
    if !name.contains(&b'/') {
        return None;
    }
    let mut path = sys::working_directory().ok()?;
    path.push(b'/');
    path.extend_from_slice(name.strip_prefix(b"./").unwrap_or(name));
    Some(path)
}

/// Path of the file that is mapped at an address, as the kernel writes it.
fn mapped_at(address: u64) -> Option<Vec<u8>> {
    let text = sys::read_file(libc::AT_FDCWD, c"/proc/thread-self/maps").ok()?;
    let line = maps_text::lines(&text).find(|line| line.range.contains(&(address as usize)))?;
    (line.has_file && line.path.starts_with(b"/")).then(|| line.file_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_its_loader_are_those_of_this_process() {
        let program = std::fs::read_link("/proc/self/exe").unwrap().into_os_string().into_encoded_bytes();
        assert_eq!(program_path(), program);
        assert_eq!(mapped_at(inside_program()), Some(program));
        assert_eq!(base(), by_kernel());
        // SAFETY: as in `base`.
        let debug = unsafe { tracehound_r_debug.as_ref() }.unwrap();
        assert_eq!(debug.loader_base, base());
        assert_eq!(mapped_at(0), None);
    }
}
