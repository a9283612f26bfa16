//! Loading of unwind information from objects' files: on the recorder's own thread, and in its constructor.

use tracehound_shared::sync::atomic::{AtomicBool, Ordering};

use tracehound_shared::clock;
use tracehound_shared::code::{self, LoadedModule};
use tracehound_shared::elf_file::{COMPRESSED, ElfFile};
use tracehound_shared::session;
use tracehound_unwind::file_sections::{self, SectionCopy};

const MAX_SECTION_BYTES: u64 = 64 << 20;

/// Requests the unwind information in the files of the program, and of objects without a table of unwind information, so
/// that it is there when the first stacks are taken; then calls [`serve`].
pub fn begin() {
    if let Some(modules) = code::modules() {
        modules.each(|module| {
            if module.path().is_empty() || module.frame_header == 0 {
                file_sections::want(module.serial);
            }
        });
    }
    serve();
}

/// Loads what was requested. Only the thread that writes the recording may call this, or one that does its work.
pub fn serve() {
    while file_sections::is_waiting()
        && let Some(request) = file_sections::next_wanted()
    {
        let Some(modules) = code::modules() else { return };
        let loaded = modules.with_serial(request.serial(), |module| {
            let (eh_frame, debug_frame) = load(module);
            (module.range(), module.bias, eh_frame, debug_frame)
        });
        let (range, bias, eh_frame, debug_frame) = loaded.unwrap_or((0..0, 0, None, None));
        request.fulfil(&range, bias, eh_frame, debug_frame);
    }
    static REMARKED: AtomicBool = AtomicBool::new(false);
    if file_sections::refused() > 0 && !REMARKED.swap(true, Ordering::Relaxed) {
        remark(
            "more objects than there is room for have unwind information in their files only: their stacks are \
                heuristic"
                .into(),
        );
    }
}

fn load(module: &LoadedModule) -> (Option<SectionCopy>, Option<SectionCopy>) {
    let Some(file) = ElfFile::of_module(module) else { return (None, None) };
    let eh_frame = if module.frame_header == 0 { read(module, &file, b".eh_frame\0") } else { None };
    (eh_frame, read(module, &file, b".debug_frame\0"))
}

fn read(module: &LoadedModule, file: &ElfFile, name: &[u8]) -> Option<SectionCopy> {
    let section = file.section_named(name).filter(|section| section.bytes > 0)?;
    let refused = |why: &str| {
        let (path, name) = (String::from_utf8_lossy(module.path()), String::from_utf8_lossy(name));
        let (path, name) = (if path.is_empty() { "the program" } else { &path }, name.trim_end_matches('\0'));
        remark(format!("{path}: {name} {why}: stacks may be heuristic there"));
    };
    if section.flags & COMPRESSED != 0 {
        refused("is compressed and is not read");
        return None;
    }
    if section.bytes > MAX_SECTION_BYTES {
        refused(&format!("has {} MiB and is not read", section.bytes >> 20));
        return None;
    }
    let Some(mut copy) = SectionCopy::new(section.bytes as usize, module.bias.wrapping_add(section.address)) else {
        refused("could not be read, for want of memory");
        return None;
    };
    if file.read_exactly(copy.bytes(), section.offset).is_none() {
        copy.discard();
        refused("could not be read");
        return None;
    }
    Some(copy)
}

fn remark(text: String) {
    if let Some(session) = session::current() {
        session.remark(clock::now(), "unwind-information", text);
    }
}
