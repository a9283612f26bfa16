//! Allocators in a stripped program, with the test beside the code: what is built as a C library runs none of its own.
#![cfg(target_arch = "x86_64")]

#[path = "../src/statics/stripped.rs"]
mod stripped;

use tracehound_shared::elf_file::ElfFile;

#[test]
fn the_remark_names_them() {
    // This test program holds the texts: it names them.
    let file = ElfFile::open(c"/proc/self/exe").unwrap();
    assert!(stripped::remark(&file, b"").is_some_and(|text| text.contains("mimalloc")));
}
