//! Shape of a loaded object: its segments and where its unwind information begins, for readers without a lock.
//!
//! A shape is written by one thread at a time and read by any. Readers look at the version before and after; it is odd
//! while the shape is written, and another one afterwards. What was read is used only if the version stayed the same, so
//! parts of two objects are never taken for one.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::order;
use core::ops::Range;

use super::elf::{self, Image};
use super::module::{LoadedModule, LoadedSegment, MAX_SEGMENTS};

const PAGE: u64 = 4096;

/// See the module's description. Zeroed memory is an empty shape.
#[derive(Default)]
pub struct ModuleShape {
    version: AtomicU32,
    segment_count: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
    serial: AtomicU64,
    bias: AtomicU64,
    frame_header: AtomicU64,
    segments: [SegmentShape; MAX_SEGMENTS],
}

/// A segment: where it begins, what of it is mapped, what of it comes from the file.
#[derive(Default)]
struct SegmentShape {
    start: AtomicU64,
    end: AtomicU64,
    /// 0 where it cannot be read.
    file_end: AtomicU64,
}

/// A loaded object, as far as unwinding cares. It stays valid while one of its functions is on the caller's stack.
#[derive(Clone, Copy)]
pub struct Object {
    layout: ModuleLayout,
    serial: u64,
    /// Run-time address minus address in the file.
    pub bias: u64,
    /// Address of `.eh_frame_hdr`; 0 if the object has none.
    pub frame_header: u64,
    /// First address of the object's mapping.
    pub start: u64,
    /// Address after its last one. There may be other objects between the two.
    pub end: u64,
}

#[derive(Clone, Copy)]
enum ModuleLayout {
    /// The shape, and its version when the object was found.
    Table(&'static ModuleShape, u32),
    /// The headers in the object itself.
    Headers(Image),
}

impl ModuleShape {
    /// Makes this the shape of `module`. One thread at a time.
    pub fn set(&self, module: &LoadedModule) {
        self.write(|| {
            self.start.store(module.start, Ordering::Relaxed);
            self.end.store(module.end, Ordering::Relaxed);
            self.serial.store(module.serial, Ordering::Relaxed);
            self.bias.store(module.bias, Ordering::Relaxed);
            self.frame_header.store(module.frame_header, Ordering::Relaxed);
            for (part, segment) in self.segments.iter().zip(module.segments()) {
                part.set(segment);
            }
            self.segment_count.store(module.segments().len() as u32, Ordering::Relaxed);
        });
    }

    /// Makes this the shape of no object. One thread at a time.
    pub fn clear(&self) {
        self.write(|| {
            self.start.store(0, Ordering::Relaxed);
            self.end.store(0, Ordering::Relaxed);
            self.segment_count.store(0, Ordering::Relaxed);
        });
    }

    fn write(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // A reader that sees one of the stores below sees the odd version, too.
        fence(order!("shape-fence": Release, not Acquire));
        change();
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Runs `look` on a shape that does not change meanwhile; `None` if it did.
    fn read<T>(&self, version: u32, look: impl FnOnce(&ModuleShape) -> Option<T>) -> Option<T> {
        let found = look(self);
        fence(Ordering::Acquire);
        found.filter(|_| self.version.load(Ordering::Relaxed) == version)
    }

    /// The object, if one of its segments holds `pc`.
    pub fn around(&'static self, pc: u64) -> Option<Object> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            // While it is written, the object is being loaded or unloaded: nobody is in its code.
            if version & 1 != 0 || !self.range().contains(&pc) {
                return None;
            }
            let object = self.read(version, |shape| {
                let holds = |part: &SegmentShape| (part.start.load(Ordering::Relaxed)..part.mapped_end()).contains(&pc);
                let found = shape.parts().iter().any(holds);
                Some(found.then(|| Object {
                    layout: ModuleLayout::Table(self, version),
                    serial: shape.serial.load(Ordering::Relaxed),
                    bias: shape.bias.load(Ordering::Relaxed),
                    frame_header: shape.frame_header.load(Ordering::Relaxed),
                    start: shape.start.load(Ordering::Relaxed),
                    end: shape.end.load(Ordering::Relaxed),
                }))
            });
            if let Some(object) = object {
                return object;
            }
        }
    }

    fn range(&self) -> Range<u64> {
        self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)
    }

    fn parts(&self) -> &[SegmentShape] {
        let count = self.segment_count.load(Ordering::Relaxed) as usize;
        self.segments.get(..count).unwrap_or(&self.segments)
    }
}

impl SegmentShape {
    fn set(&self, segment: &LoadedSegment) {
        let readable = segment.flags & elf::READABLE != 0;
        let file_end = if readable { segment.start.wrapping_add(segment.file_bytes) } else { 0 };
        self.start.store(segment.start, Ordering::Relaxed);
        self.end.store(segment.start.wrapping_add(segment.bytes), Ordering::Relaxed);
        self.file_end.store(file_end, Ordering::Relaxed);
    }

    /// What is mapped is whole pages.
    fn mapped_end(&self) -> u64 {
        self.end.load(Ordering::Relaxed).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
    }
}

impl Object {
    /// An object that is not in the table, such as one of another namespace, by its headers in memory.
    pub(super) fn of_image(image: Image, start: u64, end: u64) -> Object {
        let frame_header = image.frame_header();
        Object { layout: ModuleLayout::Headers(image), serial: 0, bias: image.bias, frame_header, start, end }
    }

    /// [`LoadedModule::serial`]; 0 for an object that is not in the table.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The readable segment of the object, as far as it comes from the file, that holds `address`.
    pub fn segment(&self, address: u64) -> Option<(u64, u64)> {
        let (shape, version) = match self.layout {
            ModuleLayout::Table(shape, version) => (shape, version),
            ModuleLayout::Headers(image) => return image.segment(address),
        };
        shape.read(version, |shape| {
            let ends =
                |part: &SegmentShape| (part.start.load(Ordering::Relaxed), part.file_end.load(Ordering::Relaxed));
            shape.parts().iter().map(ends).find(|(start, end)| (*start..*end).contains(&address))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::atomic::AtomicBool;

    fn shape() -> &'static ModuleShape {
        Box::leak(Box::default())
    }

    /// A module with a hole between its two segments, and numbers that follow from where it begins.
    fn module(start: u64) -> LoadedModule {
        let mut module = LoadedModule::EMPTY;
        module.start = start;
        module.end = start + 0x5000;
        module.bias = start;
        module.serial = start >> 12;
        module.frame_header = start + 0x10;
        for at in [0, 0x4000] {
            let segment = LoadedSegment {
                start: start + at,
                bytes: 0xf00,
                file_bytes: 0x800,
                flags: 4,
                ..LoadedSegment::default()
            };
            module.push(segment);
        }
        module
    }

    #[test]
    fn a_hole_between_segments_belongs_to_nobody() {
        let shape = shape();
        assert!(shape.around(0).is_none());
        shape.set(&module(0x10_0000));
        let object = shape.around(0x10_0fff).unwrap();
        assert!(
            shape.around(0x10_4000).is_some() && shape.around(0x10_1000).is_none() && shape.around(0x10_5000).is_none()
        );
        assert_eq!((object.serial(), object.frame_header), (0x100, 0x10_0010));
        assert_eq!(object.segment(0x10_0010), Some((0x10_0000, 0x10_0800)));
        assert_eq!(object.segment(0x10_4000), Some((0x10_4000, 0x10_4800)));
        assert_eq!(object.segment(0x10_0900), None, "not from the file");
        // Another object has come to where its second segment was.
        shape.set(&module(0x10_4000));
        assert_eq!(object.segment(0x10_4000), None, "another version");
        shape.clear();
        assert!(shape.around(0x10_0fff).is_none());
        assert_eq!(object.segment(0x10_0010), None, "another version");
    }

    #[test]
    fn readers_never_see_parts_of_two_objects() {
        let shape = shape();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut found = 0_u64;
                    while !done.load(Ordering::Relaxed) || found == 0 {
                        for start in [0x10_0000, 0x10_4000, 0x20_0000] {
                            let Some(object) = shape.around(start) else { continue };
                            found += 1;
                            let first = object.serial() << 12;
                            assert!(object.bias == first && object.frame_header == first + 0x10);
                            assert!(start == first || start == first + 0x4000, "{start:#x} is not in {first:#x}");
                            if let Some(segment) = object.segment(start) {
                                assert_eq!(segment, (start, start + 0x800));
                            }
                        }
                    }
                });
            }
            for round in 0..40_000_u64 {
                shape.set(&module([0x10_0000, 0x20_0000, 0x10_4000, 0xc_0000][round as usize % 4]));
                if round % 3 == 0 {
                    shape.clear();
                }
            }
            shape.set(&module(0x10_0000));
            done.store(true, Ordering::Relaxed);
        });
    }
}
