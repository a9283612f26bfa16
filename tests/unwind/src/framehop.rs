//! framehop as an oracle: its own reading of the same unwind information, over copies of the files.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use object::{Object, ObjectSection};

#[derive(Clone)]
struct Bytes(Arc<[u8]>);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

struct Oracle {
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
}

thread_local! {
    static ORACLE: RefCell<Option<Oracle>> = const { RefCell::new(None) };
}

impl Oracle {
    /// Knows what is mapped now.
    fn new() -> Oracle {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the process's own mappings");
        let mut files = BTreeMap::<&str, (u64, u64)>::new();
        for line in maps.lines() {
            let mut fields = line.split_whitespace();
            let (Some(range), Some(offset), Some(path)) = (fields.next(), fields.nth(1), fields.nth(2)) else {
                continue;
            };
            let hex = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
            let (start, end) = range.split_once('-').expect("a range");
            if path.starts_with('/') {
                let file = files.entry(path).or_insert((hex(start) - hex(offset), 0));
                file.1 = hex(end);
            }
        }
        let mut unwinder = UnwinderX86_64::new();
        for (path, (base, end)) in files {
            let Ok(data) = std::fs::read(path) else { continue };
            let Ok(file) = object::File::parse(&*data) else { continue };
            let range = |name: &str| {
                let section = file.section_by_name(name)?;
                Some(section.address()..section.address() + section.size())
            };
            let bytes = |name: &str| Some(Bytes(file.section_by_name(name)?.data().ok()?.into()));
            let sections = ExplicitModuleSectionInfo {
                base_svma: 0,
                text_svma: range(".text"),
                eh_frame_svma: range(".eh_frame"),
                eh_frame: bytes(".eh_frame"),
                eh_frame_hdr_svma: range(".eh_frame_hdr"),
                eh_frame_hdr: bytes(".eh_frame_hdr"),
                got_svma: range(".got"),
                text: None,
                stubs_svma: None,
                stub_helper_svma: None,
                unwind_info: None,
                debug_frame: None,
                text_segment_svma: None,
                text_segment: None,
            };
            unwinder.add_module(Module::new(path.to_string(), base..end, base, sections));
        }
        Oracle { unwinder, cache: CacheX86_64::new() }
    }
}

/// The PCs of the stack from this state outwards.
///
/// # Safety
/// The state must be that of a function on the running thread that has not returned.
pub unsafe fn backtrace(pc: u64, sp: u64, fp: u64, mut each: impl FnMut(u64)) {
    ORACLE.with_borrow_mut(|oracle| {
        let oracle = oracle.get_or_insert_with(Oracle::new);
        let mut read = |address: u64| {
            if !address.is_multiple_of(8) || address < sp {
                return Err(());
            }
            // SAFETY: framehop asks for words of the stack that its rules lead to; the tests that ask it have sound
            // information only.
            Ok(unsafe { *(address as *const u64) })
        };
        let registers = UnwindRegsX86_64::new(pc, sp, fp);
        let mut frames = oracle.unwinder.iter_frames(pc, registers, &mut oracle.cache, &mut read);
        while let Ok(Some(frame)) = frames.next() {
            each(frame.address());
        }
    });
}
