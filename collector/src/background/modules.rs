//! The ELF objects in the process, as the loader knows them: which came, which went.

use core::ffi::{CStr, c_int, c_void};

use tracehound_format::meta::{Meta, ModuleLoad, ModuleUnload, Segment};

use crate::shared::{code, sys};

/// Remembers the objects that were there at the last look.
#[derive(Default)]
pub struct Modules {
    known: Vec<Known>,
    next_id: u32,
    counters: Option<(u64, u64)>,
    epoch: u32,
}

struct Known {
    id: u32,
    seen: Seen,
    generation: u32,
}

/// An object as one look finds it.
#[derive(PartialEq, Eq, Clone)]
struct Seen {
    bias: u64,
    path: Vec<u8>,
    build_id: Vec<u8>,
    segments: Vec<Segment>,
}

#[derive(Default)]
struct Look {
    counters: (u64, u64),
    only_counters: bool,
    objects: Vec<Seen>,
}

impl Modules {
    /// Whether objects have come or gone since the last [`scan`](Self::scan).
    pub fn changed(&self) -> bool {
        let mut look = Look { only_counters: true, ..Look::default() };
        iterate(&mut look);
        self.counters != Some(look.counters) || self.epoch != code::epoch()
    }

    /// Compares the process with the last look, and gives what came and went by `tick`.
    pub fn scan(&mut self, tick: u64, out: &mut Vec<Meta>) {
        self.epoch = code::epoch();
        let mut look = Look::default();
        iterate(&mut look);
        self.counters = Some(look.counters);
        for (first, object) in look.objects.iter_mut().enumerate() {
            if first == 0 && object.path.is_empty() {
                object.path = sys::read_link(c"/proc/self/exe").unwrap_or_default();
            } else if object.path.starts_with(b"linux-vdso") || object.path.starts_with(b"linux-gate") {
                object.path = b"[vdso]".to_vec();
            }
        }
        let generation_of = |seen: &Seen| code::generation_of(seen.segments.first().map_or(seen.bias, |s| s.start));
        self.known.retain(|known| {
            let stays = look.objects.contains(&known.seen) && known.generation == generation_of(&known.seen);
            if !stays {
                out.push(Meta::ModuleUnload(ModuleUnload { id: known.id, tick }));
            }
            stays
        });
        for seen in look.objects {
            if self.known.iter().any(|known| known.seen == seen) {
                continue;
            }
            let (id, generation) = (self.next_id, generation_of(&seen));
            self.next_id += 1;
            out.push(Meta::ModuleLoad(ModuleLoad {
                id,
                tick,
                path: seen.path.clone(),
                build_id: seen.build_id.clone(),
                bias: seen.bias,
                segments: seen.segments.clone(),
                generation,
            }));
            self.known.push(Known { id, seen, generation });
        }
    }
}

fn iterate(look: &mut Look) {
    // SAFETY: the callback gets `look` back and does not outlive this call.
    unsafe { libc::dl_iterate_phdr(Some(visit), core::ptr::from_mut(look).cast()) };
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, size: usize, look: *mut c_void) -> c_int {
    // SAFETY: `iterate` passes its `Look`; the loader passes a valid info.
    let (look, info) = unsafe { (&mut *look.cast::<Look>(), &*info) };
    if size >= size_of::<libc::dl_phdr_info>() {
        look.counters = (info.dlpi_adds, info.dlpi_subs);
    }
    if look.only_counters {
        return 1;
    }
    let path = if info.dlpi_name.is_null() {
        Vec::new()
    } else {
        // SAFETY: the loader's name is terminated and stays while its lock is held, which it is here.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes().to_vec()
    };
    let headers = if info.dlpi_phdr.is_null() {
        &[]
    } else {
        // SAFETY: the loader's program headers, `dlpi_phnum` of them.
        unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
    };
    let mut seen = Seen { bias: info.dlpi_addr, path, build_id: Vec::new(), segments: Vec::new() };
    for header in headers {
        if header.p_type == libc::PT_LOAD {
            seen.segments.push(Segment {
                start: info.dlpi_addr.wrapping_add(header.p_vaddr),
                len: header.p_memsz,
                vaddr: header.p_vaddr,
                file_offset: header.p_offset,
                flags: header.p_flags,
            });
        }
    }
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        // A note outside the loaded, readable segments is not in memory.
        let mapped = seen.segments.iter().any(|segment| {
            segment.flags & 4 != 0 && start >= segment.start && start + header.p_memsz <= segment.start + segment.len
        });
        if mapped && seen.build_id.is_empty() {
            // SAFETY: inside a loaded, readable segment; the loader's lock keeps the object loaded.
            let notes = unsafe { core::slice::from_raw_parts(start as *const u8, header.p_memsz as usize) };
            seen.build_id = build_id(notes).unwrap_or_default().to_vec();
        }
    }
    look.objects.push(seen);
    0
}

/// The GNU build id among ELF notes.
fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let word = |bytes: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.first_chunk::<4>().copied()?))
    };
    loop {
        let (name_len, len, kind) = (word(notes, 0)? as usize, word(notes, 4)? as usize, word(notes, 8)?);
        let name_end = 12_usize.checked_add(name_len)?;
        let body_at = name_end.checked_next_multiple_of(4)?;
        let body_end = body_at.checked_add(len)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..name_end)? == b"GNU\0" {
            return notes.get(body_at..body_end);
        }
        notes = notes.get(body_end.checked_next_multiple_of(4)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_modules_with_build_ids() {
        let mut modules = Modules::default();
        assert!(modules.changed());
        let mut metas = Vec::new();
        modules.scan(7, &mut metas);
        assert!(!modules.changed());
        let loads: Vec<_> =
            metas.iter().filter_map(|meta| if let Meta::ModuleLoad(load) = meta { Some(load) } else { None }).collect();
        assert!(loads.len() > 2);
        assert_eq!(loads[0].path, std::fs::read_link("/proc/self/exe").unwrap().into_os_string().into_encoded_bytes());
        let here = this_process_has_modules_with_build_ids as *const () as u64;
        assert!(loads[0].segments.iter().any(|s| s.flags & 1 != 0 && (s.start..s.start + s.len).contains(&here)));
        assert!(loads.iter().any(|load| load.path.ends_with(b"libc.so.6") && load.build_id.len() >= 16));
        metas.clear();
        modules.scan(8, &mut metas);
        assert!(metas.is_empty());
    }

    #[test]
    fn damaged_notes_are_no_build_id() {
        assert_eq!(build_id(&[]), None);
        assert_eq!(build_id(&[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, b'G', b'N', b'U', 0]), None);
        let good = [4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 0xab, 0xcd];
        assert_eq!(build_id(&good), Some(&[0xab, 0xcd][..]));
    }
}
