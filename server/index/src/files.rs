//! The files of an index folder: one list of columns, from which writers and readers are made.

use std::io;
use std::path::{Path, PathBuf};

use super::column::{Column, ColumnWriter};
use super::facts::{Lengths, RecordingFacts};
use super::ledger::LedgerView;
use super::sparse::Sparse;
use super::zones::Zones;

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident: $type:ty, $length:ident;)*) => {
        /// All append-only columns, for writing.
        #[derive(Debug)]
        pub struct Writers { $($(#[$doc])* pub $name: ColumnWriter<$type>,)* }

        /// All append-only columns, for reading.
        #[derive(Debug, Default)]
        pub struct Columns { $($(#[$doc])* pub $name: Column<$type>,)* }

        impl Writers {
            /// Creates all files in `folder`.
            ///
            /// # Errors
            /// When one cannot be created.
            pub fn create(folder: &Path) -> io::Result<Self> {
                Ok(Self { $($name: ColumnWriter::create(&path(folder, stringify!($name)))?,)* })
            }

            /// Opens what an earlier run left, cut to `lengths`.
            ///
            /// # Errors
            /// When one is missing or too short.
            pub fn reopen(folder: &Path, lengths: &Lengths) -> io::Result<Self> {
                Ok(Self { $($name: ColumnWriter::reopen(&path(folder, stringify!($name)), lengths.$length)?,)* })
            }

            /// Frames all files for Arrow tools.
            ///
            /// # Errors
            /// When the disk refuses.
            pub fn finish(&mut self) -> io::Result<()> {
                $(self.$name.finish()?;)*
                Ok(())
            }

            /// Maps what has been written.
            ///
            /// # Errors
            /// When a mapping fails.
            pub fn view(&self) -> io::Result<Columns> {
                Ok(Columns { $($name: self.$name.view(self.$name.len())?,)* })
            }
        }

        impl Columns {
            /// Opens the finished columns of `folder`.
            ///
            /// # Errors
            /// When one is missing or too short.
            pub fn open(folder: &Path, lengths: &Lengths) -> io::Result<Self> {
                Ok(Self { $($name: Column::open(&path(folder, stringify!($name)), lengths.$length)?,)* })
            }
        }
    };
}

columns! {
    /// Allocations: nanoseconds since their page's time.
    alloc_time: u32, allocs;
    /// Allocations: codes of sizes, see `layout::TABLE_SIZE`; the largest number = see `large_*`.
    alloc_size: u16, allocs;
    /// Allocations: origins.
    alloc_origin: u32, allocs;
    /// Allocations: low 32 bits of the address.
    alloc_address: u32, allocs;
    /// Allocations: next 16 bits; the largest number = see `odd_*`.
    alloc_address_high: u16, allocs;
    /// Frees: nanoseconds since their page's time.
    free_time: u32, frees;
    /// Frees: the row of the allocation, see `trace::links`.
    free_row: u32, frees;
    /// Frees: origins.
    free_origin: u32, frees;
    /// Frees: codes of sizes, so that time series need not look allocations up.
    free_size: u16, frees;
    /// One bit an event: 0 allocation, 1 free.
    order: u64, order;
    /// Pages: time of the first event.
    page_time: u64, pages;
    /// Pages: allocations before.
    page_allocs: u64, pages;
    /// Pages: frees before.
    page_frees: u64, pages;
    /// Pages: bytes of all allocations before.
    page_allocated: u64, pages;
    /// Pages: live bytes before.
    page_live: u64, pages;
    /// Pages: smallest live bytes.
    page_min_bytes: u64, pages;
    /// Pages: largest live bytes.
    page_max_bytes: u64, pages;
    /// Pages: smallest number of live blocks.
    page_min_count: u64, pages;
    /// Pages: largest number of live blocks.
    page_max_count: u64, pages;
    /// Origins: call-tree nodes.
    origin_node: u32, origins;
    /// Origins: positions in the list of threads.
    origin_thread: u32, origins;
    /// Origins: kind numbers.
    origin_kind: u8, origins;
    /// Origins: sites; the largest number = a free.
    origin_site: u32, origins;
    /// Sites: call-tree nodes.
    site_node: u32, sites;
    /// Pairs of threads: who bore.
    pair_bearer: u32, pairs;
    /// Pairs of threads: who freed.
    pair_freer: u32, pairs;
    /// Call-tree nodes: parents.
    node_parent: u32, nodes;
    /// Call-tree nodes: locations; the largest number = the node is not known.
    node_location: u32, nodes;
    /// Locations: return addresses.
    location_pc: u64, locations;
    /// Locations: generations of the code there.
    location_generation: u32, locations;
    /// Other events: allocations and frees before.
    other_position: u64, others;
    /// Other events: time.
    other_time: u64, others;
    /// Other events: positions in the list of threads.
    other_thread: u32, others;
    /// Other events: kind numbers.
    other_kind: u8, others;
    /// Other events: call-tree nodes.
    other_node: u32, others;
    /// Other events: see `ingest::chunk::Other`.
    other_a: u64, others;
    /// Other events: see `ingest::chunk::Other`.
    other_b: u64, others;
    /// Other events: see `ingest::chunk::Other`.
    other_c: u64, others;
    /// Other events: see `ingest::chunk::Other`.
    other_d: u64, others;
    /// Memory samples: time.
    sample_time: u64, samples;
    /// Memory samples: resident set.
    sample_rss: u64, samples;
    /// Memory samples: of it anonymous.
    sample_anonymous: u64, samples;
    /// Memory samples: address space.
    sample_virtual: u64, samples;
    /// Memory samples: of the resident set the recorder's.
    sample_recorder: u64, samples;
    /// Sizes by code, from the first code that is not a size.
    size_table: u64, sizes;
    /// Allocations that are too large for their column: rows.
    large_row: u64, large;
    /// Allocations that are too large for their column: sizes.
    large_size: u64, large;
    /// Allocations whose address does not fit: rows.
    odd_row: u64, odd;
    /// Allocations whose address does not fit: addresses.
    odd_address: u64, odd;
    /// Reallocs whose old block was not seen: rows.
    orphan_row: u64, orphans;
    /// Reallocs whose old block was not seen: its address.
    orphan_address: u64, orphans;
    /// Temporary blocks that were freed after their bucket was closed: rows.
    late_row: u64, late;
    /// Temporary blocks that were freed after their bucket was closed: origins.
    late_origin: u32, late;
    /// Temporary blocks that were freed after their bucket was closed: sizes.
    late_size: u64, late;
    /// Frees whose allocation is far: ordinals.
    far_free: u64, far;
    /// Frees whose allocation is far: rows.
    far_row: u64, far;
    /// Lists of sums, see `trace::sums`.
    sums: u8, sums;
}

/// Path of a column.
#[must_use]
pub fn path(folder: &Path, column: &str) -> PathBuf {
    folder.join(format!("{column}.arrow"))
}

/// Columns that are filled in as blocks are freed, and zones.
#[derive(Debug, Default)]
pub struct Ledgers {
    /// Allocations: the ordinal of the free, see `trace::links`; 0 = live.
    pub free: LedgerView<u32>,
    /// Allocations whose free is far: 1 + its ordinal.
    pub far: LedgerView<u64>,
    /// Allocations: class of the lifetime and whether it was temporary; 0 = live.
    pub lifetime_class: LedgerView<u8>,
    /// Allocations: what occurs in each run of them.
    pub alloc_zones: Zones,
    /// Frees: what occurs in each run of them.
    pub free_zones: Zones,
}

impl Ledgers {
    /// Opens the finished ledgers of `folder`.
    ///
    /// # Errors
    /// When one is missing or too short.
    pub fn open(folder: &Path, facts: &RecordingFacts) -> io::Result<Self> {
        let (allocs, frees, run) = (facts.lengths.allocs, facts.lengths.frees, facts.zone_rows);
        Ok(Self {
            free: LedgerView::open(&path(folder, "alloc_free"), allocs)?,
            far: Sparse::open(&path(folder, "alloc_far"), if facts.lengths.far == 0 { 0 } else { allocs })?,
            lifetime_class: LedgerView::open(&path(folder, "alloc_fate"), allocs)?,
            alloc_zones: Zones::open(&path(folder, "alloc_zone"), run, allocs)?,
            free_zones: Zones::open(&path(folder, "free_zone"), run, frees)?,
        })
    }
}

/// Version of the layout of an index; another one is rebuilt.
pub const LAYOUT: u32 = 6;

/// File that makes an index out of a folder: it is written last, and replaced in one step.
pub const MANIFEST: &str = "index.json";

/// What the manifest holds.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Manifest {
    /// [`LAYOUT`].
    pub layout: u32,
    /// Bytes of the recording that it stands for.
    pub file_bytes: u64,
    /// Time of the recording's last change, nanoseconds since 1970.
    pub modified_ns: u64,
    /// CRC-32 over the headers of its blocks.
    pub digest: u32,
    /// The recording will not change any more.
    pub is_final: bool,
    /// Everything but the columns.
    pub facts: RecordingFacts,
}

/// Reads the manifest of `folder`, if there is one of this layout.
#[must_use]
pub fn read_manifest(folder: &Path) -> Option<Manifest> {
    let text = std::fs::read(folder.join(MANIFEST)).ok()?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    (manifest.layout == LAYOUT).then_some(manifest)
}
