//! The ELF objects of the process as records: which were loaded, which were unloaded.
//!
//! They are read from the table that threads update when they load and unload objects (`shared::code`), not from the
//! loader: a thread that waits for the writer may hold the loader's lock, and an object that was loaded and unloaded
//! between two reads would be missed.

use tracehound_format::attach::NAME_IN_PROCESS;
use tracehound_format::meta::{Meta, ModuleLoad, ModuleUnload, Segment};

use tracehound_shared::code;
use tracehound_shared::code::{LoadedModule, ModuleEvent};
use tracehound_shared::loader;

/// Ids of the objects that the recording lists and that are still loaded.
#[derive(Default)]
pub struct KnownModules {
    /// (serial, id)
    known: Vec<(u64, u32)>,
    next_id: u32,
    begun: bool,
}

impl KnownModules {
    /// Appends what was loaded and unloaded since the last call; at first all that is loaded.
    pub fn scan(&mut self, out: &mut Vec<Meta>) {
        let Some(modules) = code::modules() else { return };
        if !self.begun {
            self.begun = true;
            modules.tell_again();
        }
        modules.drain(|event| {
            match event {
                ModuleEvent::Loaded(module) => {
                    self.known.push((module.serial, self.next_id));
                    out.push(Meta::ModuleLoad(load(module, self.next_id)));
                    self.next_id += 1;
                }
                ModuleEvent::Unloaded { serial, tick } => {
                    if let Some(at) = self.known.iter().position(|known| known.0 == serial) {
                        let (_, id) = self.known.swap_remove(at);
                        out.push(Meta::ModuleUnload(ModuleUnload { id, tick }));
                    }
                }
            }
            true
        });
    }
}

fn load(module: &LoadedModule, id: u32) -> ModuleLoad {
    let path = match module.path() {
        name if name.starts_with(b"linux-vdso") || name.starts_with(b"linux-gate") => b"[vdso]".to_vec(),
        // The recorder that `heaptrace attach` loaded from a memory file: its path names a descriptor, which may soon
        // be another file's.
        name if is_recorder(module) && (name.starts_with(b"/proc/") || name == NAME_IN_PROCESS.as_bytes()) => {
            b"libtracehound.so".to_vec()
        }
        _ => loader::path_of(module),
    };
    let segment = |segment: &code::LoadedSegment| Segment {
        start: segment.start,
        len: segment.bytes,
        vaddr: segment.file_address,
        file_offset: segment.file_offset,
        flags: segment.flags,
    };
    ModuleLoad {
        id,
        tick: module.loaded_tick,
        path,
        build_id: module.build_id().to_vec(),
        bias: module.bias,
        segments: module.segments().iter().map(segment).collect(),
        generation: module.generation,
    }
}

/// Whether this code is in the module.
fn is_recorder(module: &LoadedModule) -> bool {
    (module.start..module.end).contains(&(is_recorder as *const () as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_modules_with_build_ids() {
        code::init(5);
        let mut modules = KnownModules::default();
        let mut metas = Vec::new();
        modules.scan(&mut metas);
        let loads: Vec<_> =
            metas.iter().filter_map(|meta| if let Meta::ModuleLoad(load) = meta { Some(load) } else { None }).collect();
        assert!(loads.len() > 2);
        let program = std::fs::read_link("/proc/self/exe").unwrap().into_os_string().into_encoded_bytes();
        let here = this_process_has_modules_with_build_ids as *const () as u64;
        let own = loads.iter().find(|load| load.path == program).unwrap();
        assert!(own.segments.iter().any(|s| s.flags & 1 != 0 && (s.start..s.start + s.len).contains(&here)));
        assert!(loads.iter().any(|load| load.path.ends_with(b"libc.so.6") && load.build_id.len() >= 16));
        let mut ids: Vec<u32> = loads.iter().map(|load| load.id).collect();
        ids.dedup();
        assert_eq!(ids.len(), loads.len());
        metas.clear();
        modules.scan(&mut metas);
        assert!(metas.is_empty());
    }
}
