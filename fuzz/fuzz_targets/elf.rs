//! ELF objects: the headers where the loader mapped them, the file's sections, its functions, its build id, and the
//! allocators that its functions make it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tracehound_shared::code::elf::{Image, build_id};
use tracehound_shared::elf_file::ElfFile;
use tracehound_shared::symbols::functions;
use tracehound_format::allocators::{Finder, is_interesting};

#[repr(align(4096))]
struct Page([u8; 4096]);

fuzz_target!(|input: &[u8]| {
    let mut page = Box::new(Page([0; 4096]));
    let len = input.len().min(4096);
    page.0[..len].copy_from_slice(&input[..len]);
    // SAFETY: the page lives to the end of this function and is not changed.
    if let Some(image) = unsafe { Image::at(page.0.as_ptr() as u64) } {
        for header in image.headers() {
            let _ = image.segment(image.bias.wrapping_add(header.address));
        }
        let _ = image.end();
    }
    if let Some(id) = build_id(input) {
        assert!(id.len() <= input.len());
    }
    let (_kept, path) = tracehound_fuzz::memory_file(input);
    let Some(file) = ElfFile::open(&path) else { return };
    for name in [&b".debug_frame\0"[..], b".eh_frame\0", b".text\0"] {
        if let Some(section) = file.section_named(name) {
            let mut bytes = [0; 64];
            let _ = file.read(&mut bytes, section.offset);
        }
    }
    let mut finder = Finder::default();
    functions(&file, &is_interesting, &mut |name, symbol| {
        finder.symbol(name, symbol.start, symbol.end, symbol.global);
    });
    let _ = finder.finish().families();
    let mut longest = 0;
    functions(&file, &|name| name.len() < 64, &mut |name, _| longest = longest.max(name.len()));
    assert!(longest <= input.len());
});
