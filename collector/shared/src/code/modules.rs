//! The loaded objects, as a table that any thread may read without a lock.
//!
//! ```text
//!         update                 update                acknowledge
//! FREE ─────────────▶ LOADED ─────────────▶ GONE ─────────────────▶ FREE
//! ```
//!
//! *Update* runs with the loader's own lock held (inside `dl_iterate_phdr`), so there is one at a time. The writer
//! *acknowledges* modules that are gone once it has stored them in the recording; until then they keep their place, so
//! that none is missed, however briefly it was loaded.
//!
//! What unwinding needs of an object lies in its [`ModuleShape`], which any thread may read at any time: all of it is atomic,
//! and a version, which is odd while the shape is written, shows whether what was read belongs together.

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::cell::UnsafeCell;
use core::ops::Range;

use super::module::{LoadedModule, LoadedObject, each_loaded};
use super::shape::{ModuleShape, Object};
use crate::sys;

const MAX_MODULES: usize = 8192;

const FREE: u32 = 0;
const LOADED: u32 = 1;
const GONE: u32 = 2;

struct ModuleSlot {
    state: AtomicU32,
    /// The update that saw it last.
    seen: AtomicU64,
    /// Whether its loading has been handed to [`LoadedModules::drain`]'s reader.
    reported: AtomicBool,
    unloaded_tick: AtomicU64,
    module: UnsafeCell<LoadedModule>,
}

/// The table of all objects.
pub struct LoadedModules {
    slots: *mut ModuleSlot,
    /// One shape for each slot, at the same index.
    shapes: *mut ModuleShape,
    used: AtomicU32,
    updates: AtomicU64,
    serials: AtomicU64,
    lost: AtomicU64,
}

// SAFETY: a slot's module is written while its state is FREE, by the one updater; everything else is atomic.
unsafe impl Send for LoadedModules {}
// SAFETY: a slot's module is written while its state is FREE, by the one updater; everything else is atomic.
unsafe impl Sync for LoadedModules {}

/// What happened to an object.
#[derive(Clone, Copy, Debug)]
pub enum ModuleEvent<'a> {
    /// It was loaded.
    Loaded(&'a LoadedModule),
    /// The object with this serial was unloaded, at this tick.
    Unloaded {
        /// [`LoadedModule::serial`].
        serial: u64,
        /// Clock ticks when it was missed first.
        tick: u64,
    },
}

/// A change that an update found, in the order in which it must take effect.
pub enum ModuleChange {
    /// The object's code is not there any more.
    Unloaded {
        /// Where it was.
        range: Range<u64>,
        /// What it was; 0 for what cannot be recognised.
        identity: u64,
    },
    /// New code is there.
    Loaded {
        /// Where it is.
        range: Range<u64>,
        /// What it is.
        identity: u64,
    },
}

impl LoadedModules {
    /// An empty table; `None` when there is no address space for it.
    pub fn create() -> Option<LoadedModules> {
        Some(LoadedModules {
            slots: sys::map_memory(MAX_MODULES * size_of::<ModuleSlot>()).ok()?.cast(),
            shapes: sys::map_memory(MAX_MODULES * size_of::<ModuleShape>()).ok()?.cast(),
            used: AtomicU32::new(0),
            updates: AtomicU64::new(0),
            serials: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    fn slots(&self) -> &[ModuleSlot] {
        let used = (self.used.load(Ordering::Acquire) as usize).min(MAX_MODULES);
        // SAFETY: the mapping holds MAX_MODULES zeroed or initialised slots, for ever.
        unsafe { core::slice::from_raw_parts(self.slots, used) }
    }

    fn shapes(&self) -> &'static [ModuleShape] {
        let used = (self.used.load(Ordering::Acquire) as usize).min(MAX_MODULES);
        // SAFETY: the mapping holds MAX_MODULES shapes, zeroed at first, which is a valid one, and is never unmapped.
        unsafe { core::slice::from_raw_parts(self.shapes, used) }
    }

    fn shape(&self, slot: &ModuleSlot) -> &'static ModuleShape {
        // SAFETY: `slot` is one of the table, and shapes run in step with slots.
        unsafe { &*self.shapes.offset(core::ptr::from_ref(slot).offset_from(self.slots)) }
    }

    /// Compares the table with the loader's list. Calls `change` for every change before the table shows it; for a loaded
    /// object `change` returns its generation.
    pub fn update(&self, tick: u64, mut change: impl FnMut(ModuleChange) -> u32) {
        let update = self.updates.fetch_add(1, Ordering::Relaxed) + 1;
        // What is loaded already is marked first, so that unloading takes effect before loading.
        each_loaded(&mut |object| {
            if let Some(slot) = self.find(object) {
                slot.seen.store(update, Ordering::Relaxed);
            }
        });
        for slot in self.slots() {
            if slot.state.load(Ordering::Acquire) == LOADED && slot.seen.load(Ordering::Relaxed) != update {
                // SAFETY: modules do not change while their slot is not FREE.
                let module = unsafe { &*slot.module.get() };
                change(ModuleChange::Unloaded { range: module.range(), identity: module.identity.lasting() });
                self.shape(slot).clear();
                slot.unloaded_tick.store(tick.max(1), Ordering::Relaxed);
                slot.state.store(GONE, Ordering::Release);
            }
        }
        each_loaded(&mut |object| {
            if self.find(object).is_some() {
                return;
            }
            let Some(slot) = self.free_slot() else {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            };
            // SAFETY: the slot is FREE, and updates come one at a time.
            let module = unsafe { &mut *slot.module.get() };
            *module = LoadedModule::EMPTY;
            object.describe(module);
            module.serial = self.serials.fetch_add(1, Ordering::Relaxed) + 1;
            module.loaded_tick = tick;
            module.generation =
                change(ModuleChange::Loaded { range: module.range(), identity: module.identity.lasting() });
            slot.seen.store(update, Ordering::Relaxed);
            slot.reported.store(false, Ordering::Relaxed);
            slot.unloaded_tick.store(0, Ordering::Relaxed);
            self.shape(slot).set(module);
            slot.state.store(LOADED, Ordering::Release);
            if let Some(session) = crate::session::current() {
                session.hurry();
            }
        });
    }

    fn find(&self, object: &LoadedObject) -> Option<&ModuleSlot> {
        let range = object.range();
        self.slots().iter().find(|slot| {
            if slot.state.load(Ordering::Acquire) != LOADED {
                return false;
            }
            // SAFETY: modules do not change while their slot is not FREE, and only the updater frees LOADED ones.
            let module = unsafe { &*slot.module.get() };
            module.range() == range && module.bias == object.bias && module.identity == object.identity()
        })
    }

    fn free_slot(&self) -> Option<&ModuleSlot> {
        let free = |slot: &&ModuleSlot| slot.state.load(Ordering::Acquire) == FREE;
        if let Some(slot) = self.slots().iter().find(free) {
            return Some(slot);
        }
        let used = self.used.load(Ordering::Relaxed);
        if used as usize >= MAX_MODULES {
            return None;
        }
        self.used.store(used + 1, Ordering::Release);
        self.slots().last()
    }

    /// Passes all changes since the last call to `sink`; a change for which it returns false is passed again next
    /// time. Only one thread may call this: the one that stores the recording.
    pub fn drain(&self, mut sink: impl FnMut(ModuleEvent<'_>) -> bool) {
        for slot in self.slots() {
            let state = slot.state.load(Ordering::Acquire);
            if state == FREE {
                continue;
            }
            // SAFETY: modules do not change while their slot is not FREE, and only this thread frees slots.
            let module = unsafe { &*slot.module.get() };
            if !slot.reported.load(Ordering::Relaxed) {
                if !sink(ModuleEvent::Loaded(module)) {
                    return;
                }
                slot.reported.store(true, Ordering::Relaxed);
            }
            if state == GONE {
                let tick = slot.unloaded_tick.load(Ordering::Relaxed);
                if !sink(ModuleEvent::Unloaded { serial: module.serial, tick }) {
                    return;
                }
                slot.state.store(FREE, Ordering::Release);
            }
        }
    }

    /// Makes the next [`drain`](Self::drain) begin with all that is loaded: for a new recording.
    pub fn tell_again(&self) {
        for slot in self.slots() {
            slot.reported.store(false, Ordering::Relaxed);
        }
    }

    /// Objects that were not stored because the table was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The loaded object one of whose segments holds `pc`. Never a wrong one, whatever is loaded and unloaded meanwhile.
    pub fn around(&self, pc: u64) -> Option<Object> {
        self.shapes().iter().find_map(|shape| shape.around(pc))
    }

    /// Hands the object that was given this [serial](Module::serial) to `work`. Only the thread that calls
    /// [`drain`](Self::drain) may call this.
    pub fn with_serial<T>(&self, serial: u64, work: impl FnOnce(&LoadedModule) -> T) -> Option<T> {
        let slot = self.slots().iter().find(|slot| {
            slot.state.load(Ordering::Acquire) != FREE
                // SAFETY: modules do not change while their slot is not FREE, and only this thread frees slots.
                && unsafe { &*slot.module.get() }.serial == serial
        })?;
        // SAFETY: modules do not change while their slot is not FREE, and only this thread frees slots.
        Some(work(unsafe { &*slot.module.get() }))
    }

    /// Calls `each` for every object that is loaded. Only the thread that calls [`drain`](Self::drain) may call this.
    pub fn each(&self, mut each: impl FnMut(&LoadedModule)) {
        for slot in self.slots().iter().filter(|slot| slot.state.load(Ordering::Acquire) == LOADED) {
            // SAFETY: modules do not change while their slot is not FREE, and only this thread frees slots.
            each(unsafe { &*slot.module.get() });
        }
    }

    /// The module around `address`, which must lie in an object that stays loaded while the answer is in use.
    ///
    /// # Safety
    /// No such object may be unloaded meanwhile: its slot would be used again.
    pub unsafe fn module_around(&self, address: u64) -> Option<&LoadedModule> {
        let serial = self.around(address)?.serial();
        let mut loaded = self.slots().iter().filter(|slot| slot.state.load(Ordering::Acquire) == LOADED);
        loaded.find_map(|slot| {
            // SAFETY: plain numbers in mapped memory; a slot that is being filled by another thread does not have this
            // serial, which is given once.
            let found = unsafe { (&raw const (*slot.module.get()).serial).read_volatile() };
            // SAFETY: the caller keeps this one's slot LOADED.
            (found == serial).then(|| unsafe { &*slot.module.get() })
        })
    }
}
