//! The library's shared block ([`tracehound_format::attach`]) in the process, read and written from outside.

use std::mem::offset_of;
use std::time::{Duration, Instant};

use tracehound_format::attach::{
    self, AttachBlock, AttachHook, AttachPatch, BLOCK, LOOK, MAGIC, PATCHES, PREPARE, VERSION, WAKE,
};

use crate::detours::Patch;
use crate::memory::ProcessMemory;
use crate::objects::{DynamicSymbol, ProcessObject, loader_order, symbol_named};
use crate::refusal::{Refusal, Result, refuse};
use crate::safe_point::id_outside;

/// The library in the process.
#[derive(Debug, Clone)]
pub struct LoadedLibrary {
    /// Where it lies.
    pub object: ProcessObject,
    /// The block.
    block: u64,
    /// See [`LOOK`].
    pub look: u64,
    /// See [`PREPARE`].
    pub prepare: u64,
    /// See [`WAKE`].
    pub wake: u64,
}

/// One hook of the block.
#[derive(Debug, Clone)]
pub struct HookEntry {
    /// Its name.
    pub name: String,
    /// The hook.
    pub hook: u64,
    /// The function.
    pub target: u64,
    /// Direct calls from its own library are not the program's.
    pub spares_own_calls: bool,
}

/// Layout of the slots that threads have for the recorder.
#[derive(Debug, Clone, Copy)]
pub struct SlotLayout {
    /// From the thread pointer to the slot.
    pub offset: u64,
    /// Offset of a word in the slot, see [`tracehound_format::attach::AttachBlock`].
    pub internal: u64,
    /// Offset of a word in the slot.
    pub stack: u64,
    /// Offset of a word in the context.
    pub inner: u64,
    /// Bits of the context's first word.
    pub mode_mask: u64,
}

impl LoadedLibrary {
    /// Finds the library among the objects of a process.
    pub fn find(memory: &ProcessMemory, objects: &[ProcessObject]) -> Result<Option<Self>> {
        for object in objects {
            // Its file is called as it likes, and the one in memory has no name.
            if !object.path.contains("tracehound") {
                continue;
            }
            let Ok(symbols) = object.symbols(memory) else { continue };
            if let Some(found) = Self::of(memory, object, &symbols)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn of(memory: &ProcessMemory, object: &ProcessObject, symbols: &[DynamicSymbol]) -> Result<Option<Self>> {
        let address = |name| symbol_named(symbols, name).map(|symbol| symbol.start);
        let (Some(block), Some(look), Some(prepare)) = (address(BLOCK), address(LOOK), address(PREPARE)) else {
            return if address("tracehound_start").is_some() {
                refuse("the process has a recorder of an older version in it")
            } else {
                Ok(None)
            };
        };
        let version = memory.half(block + offset_of!(AttachBlock, version) as u64);
        if memory.word(block) != Some(MAGIC) || version != Some(VERSION) {
            return refuse("the process has a recorder of another version in it");
        }
        let wake = address(WAKE).unwrap_or(0);
        Ok(Some(Self { object: object.clone(), block, look, prepare, wake }))
    }

    fn half(&self, memory: &ProcessMemory, offset: usize) -> u32 {
        memory.half(self.block + offset as u64).unwrap_or(0)
    }

    fn word(&self, memory: &ProcessMemory, offset: usize) -> u64 {
        memory.word(self.block + offset as u64).unwrap_or(0)
    }

    /// State of the attach; see [`attach`].
    pub fn state(&self, memory: &ProcessMemory) -> Option<u32> {
        memory.half(self.block + offset_of!(AttachBlock, state) as u64)
    }

    /// Whether it came with the program, and is dormant.
    pub fn is_dormant(&self, memory: &ProcessMemory) -> bool {
        self.half(memory, offset_of!(AttachBlock, dormant)) != 0
    }

    /// Whether it came into the process late.
    pub fn is_late(&self, memory: &ProcessMemory) -> bool {
        self.half(memory, offset_of!(AttachBlock, late)) != 0
    }

    /// Whether an attach has brought it in: the program itself would have opened a file.
    pub fn was_handed_over(&self) -> bool {
        self.object.path.contains("memfd:")
    }

    /// Replaces addresses that are no function's beginning: where an executable with fixed addresses takes the address of
    /// malloc, the loader gives the place in it by which it calls malloc, and other libraries do not call by that. `known` are
    /// symbols of the C library.
    pub fn correct_targets(
        &self,
        memory: &ProcessMemory,
        objects: &[ProcessObject],
        known: &[DynamicSymbol],
    ) -> Result<()> {
        // Almost always all are, and the symbols of the other objects need not be read while a thread is borrowed.
        let is_known = |at: u64| known.binary_search_by_key(&at, |symbol| symbol.start).is_ok();
        if self.hooks(memory).iter().all(|hook| hook.target == 0 || is_known(hook.target)) {
            return Ok(());
        }
        let order = loader_order(memory, objects);
        let defined: Vec<(&ProcessObject, Vec<DynamicSymbol>)> = order
            .into_iter()
            .filter(|object| object.range != self.object.range)
            .map(|object| (object, object.symbols(memory).unwrap_or_default()))
            .collect();
        for (number, hook) in (0_u64..).zip(self.hooks(memory)) {
            let is_defined_there = |(object, symbols): &(&ProcessObject, Vec<DynamicSymbol>)| {
                object.has_code_at(hook.target) && symbols.iter().any(|symbol| symbol.start == hook.target)
            };
            if hook.target == 0 || defined.iter().any(is_defined_there) {
                continue;
            }
            let first = defined.iter().find_map(|(_, symbols)| symbol_named(symbols, &hook.name));
            let Some(first) = first.filter(|symbol| symbol.start != hook.target) else { continue };
            let at = offset_of!(AttachBlock, hooks) as u64 + number * size_of::<AttachHook>() as u64;
            memory.write(self.block + at + offset_of!(AttachHook, target) as u64, &first.start.to_le_bytes())?;
            if hook.name == "malloc" {
                memory.write(self.block + offset_of!(AttachBlock, malloc) as u64, &first.start.to_le_bytes())?;
            }
        }
        Ok(())
    }

    /// The function that serves the program's calls of malloc; 0: not known.
    pub fn malloc(&self, memory: &ProcessMemory) -> u64 {
        self.word(memory, offset_of!(AttachBlock, malloc))
    }

    /// The recorder's thread; 0: none.
    pub fn writer(&self, memory: &ProcessMemory) -> u32 {
        self.half(memory, offset_of!(AttachBlock, writer))
    }

    /// Code of ours in the process: first address and bytes.
    pub fn code(&self, memory: &ProcessMemory) -> (u64, u64) {
        let at = offset_of!(AttachBlock, code);
        (self.word(memory, at), self.word(memory, at + 8))
    }

    /// Stores where our code is.
    pub fn set_code(&self, memory: &ProcessMemory, at: u64, bytes: u64) -> Result<()> {
        let place = self.block + offset_of!(AttachBlock, code) as u64;
        memory.write(place, &[at.to_le_bytes(), bytes.to_le_bytes()].concat())
    }

    /// Sends a command to the recorder's thread.
    pub fn command(&self, memory: &ProcessMemory, command: u32) -> Result<()> {
        memory.write(self.block + offset_of!(AttachBlock, command) as u64, &command.to_le_bytes())
    }

    /// Waits until its thread has had its first turn, before which nobody knows the thread's number; false when the time is over,
    /// or the process is gone.
    pub fn wait_for_thread(&self, memory: &ProcessMemory, limit: Duration) -> bool {
        let started = Instant::now();
        while self.writer(memory) == 0 {
            if started.elapsed() > limit || self.state(memory).is_none() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Waits until its thread has come to `state`; false when the time is over, or the process or the thread is gone.
    pub fn wait_for(&self, memory: &ProcessMemory, pid: u32, state: u32, limit: Duration) -> bool {
        let started = Instant::now();
        loop {
            match self.state(memory) {
                Some(found) if found == state => return true,
                Some(_) => {}
                None => return false,
            }
            // Of a thread that has not had its first turn nobody knows the number.
            let writer = self.writer(memory);
            let is_there = writer == 0 || id_outside(pid, writer).is_some();
            if started.elapsed() > limit || (!is_there && self.state(memory) != Some(state)) {
                return self.state(memory) == Some(state);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Why the last request failed.
    pub fn failure(&self, memory: &ProcessMemory) -> String {
        let bytes = memory.read_up_to(self.block + offset_of!(AttachBlock, failure) as u64, 256);
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// The functions that it hooks, once they have been looked up.
    pub fn hooks(&self, memory: &ProcessMemory) -> Vec<HookEntry> {
        let count = self.half(memory, offset_of!(AttachBlock, hook_count)) as usize;
        let at = |index: usize| offset_of!(AttachBlock, hooks) + index * size_of::<AttachHook>();
        (0..count.min(attach::HOOKS))
            .map(|index| {
                let name = memory.read_up_to(self.block + at(index) as u64, 24);
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                HookEntry {
                    name: String::from_utf8_lossy(name).into_owned(),
                    hook: self.word(memory, at(index) + offset_of!(AttachHook, hook)),
                    target: self.word(memory, at(index) + offset_of!(AttachHook, target)),
                    spares_own_calls: self.word(memory, at(index) + offset_of!(AttachHook, spares_own_calls)) != 0,
                }
            })
            .collect()
    }

    /// Layout of the threads' slots.
    pub fn slots(&self, memory: &ProcessMemory) -> SlotLayout {
        SlotLayout {
            offset: self.word(memory, offset_of!(AttachBlock, slot_offset)),
            internal: u64::from(self.half(memory, offset_of!(AttachBlock, slot_internal))),
            stack: u64::from(self.half(memory, offset_of!(AttachBlock, slot_stack))),
            inner: u64::from(self.half(memory, offset_of!(AttachBlock, context_inner))),
            mode_mask: u64::from(self.half(memory, offset_of!(AttachBlock, mode_mask))),
        }
    }

    /// The changes that belong to an attach.
    pub fn patches(&self, memory: &ProcessMemory) -> Vec<Patch> {
        let count = self.word(memory, offset_of!(AttachBlock, patch_count)) as usize;
        let at = |index: usize| offset_of!(AttachBlock, patches) + index * size_of::<AttachPatch>();
        (0..count.min(PATCHES))
            .map(|index| {
                let field = |offset| self.word(memory, at(index) + offset).to_le_bytes();
                let len = (self.word(memory, at(index) + offset_of!(AttachPatch, len)) as usize).min(8);
                let cut = |bytes: [u8; 8]| bytes.get(..len).unwrap_or_default().to_vec();
                Patch {
                    at: self.word(memory, at(index) + offset_of!(AttachPatch, at)),
                    before: cut(field(offset_of!(AttachPatch, before))),
                    after: cut(field(offset_of!(AttachPatch, after))),
                }
            })
            .collect()
    }

    /// Refuses more changes than there is room for.
    pub fn check_patches(&self, patches: &[Patch]) -> Result<()> {
        if patches.len() > PATCHES {
            return Err(Refusal(format!("{} places would have to be changed, which is too many", patches.len())));
        }
        Ok(())
    }

    /// Stores the changes in the process: a detach reads them there.
    pub fn set_patches(&self, memory: &ProcessMemory, patches: &[Patch]) -> Result<()> {
        self.check_patches(patches)?;
        let mut bytes = Vec::new();
        for patch in patches {
            let word = |bytes: &[u8]| {
                let mut word = [0; 8];
                word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                word
            };
            for field in [patch.at.to_le_bytes(), word(&patch.before), word(&patch.after)] {
                bytes.extend(field);
            }
            bytes.extend((patch.before.len() as u64).to_le_bytes());
        }
        memory.write(self.block + offset_of!(AttachBlock, patches) as u64, &bytes)?;
        let count = (patches.len() as u64).to_le_bytes();
        memory.write(self.block + offset_of!(AttachBlock, patch_count) as u64, &count)
    }
}

const _: () = assert!(size_of::<AttachPatch>() == 32 && offset_of!(AttachPatch, len) == 24);
const _: () = assert!(offset_of!(AttachPatch, before) == 8 && offset_of!(AttachPatch, after) == 16);
