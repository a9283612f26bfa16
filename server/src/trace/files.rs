//! The files of an index folder: one list of columns, from which writers and readers are made.

use std::io;
use std::path::{Path, PathBuf};

use super::column::{Column, Writer};
use super::facts::{Facts, Lengths};
use super::ledger::LedgerView;
use super::sparse::Sparse;
use super::zones::Zones;

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident: $type:ty, $length:ident;)*) => {
        /// All append-only columns, for writing.
        #[derive(Debug)]
        pub struct Writers { $($(#[$doc])* pub $name: Writer<$type>,)* }

        /// All append-only columns, for reading.
        #[derive(Debug, Default)]
        pub struct Columns { $($(#[$doc])* pub $name: Column<$type>,)* }

        impl Writers {
            /// Creates all files in `folder`.
            ///
            /// # Errors
            /// When one cannot be created.
            pub fn create(folder: &Path) -> io::Result<Self> {
                Ok(Self { $($name: Writer::create(&path(folder, stringify!($name)))?,)* })
            }

            /// Opens what an earlier run left, cut to `lengths`.
            ///
            /// # Errors
            /// When one is missing or too short.
            pub fn reopen(folder: &Path, lengths: &Lengths) -> io::Result<Self> {
                Ok(Self { $($name: Writer::reopen(&path(folder, stringify!($name)), lengths.$length)?,)* })
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
    /// Births: nanoseconds since their page's time.
    birth_time: u32, births;
    /// Births: codes of sizes, see `layout::TABLE_SIZE`; the largest number = see `large_*`.
    birth_size: u16, births;
    /// Births: origins.
    birth_origin: u32, births;
    /// Births: low 32 bits of the address.
    birth_address: u32, births;
    /// Births: next 16 bits; the largest number = see `odd_*`.
    birth_address_high: u16, births;
    /// Deaths: nanoseconds since their page's time.
    death_time: u32, deaths;
    /// Deaths: the row of the birth, see `trace::links`.
    death_row: u32, deaths;
    /// Deaths: origins.
    death_origin: u32, deaths;
    /// Deaths: codes of sizes, so that curves need not look births up.
    death_size: u16, deaths;
    /// One bit an event: 0 birth, 1 death.
    order: u64, order;
    /// Pages: time of the first event.
    page_time: u64, pages;
    /// Pages: births before.
    page_births: u64, pages;
    /// Pages: deaths before.
    page_deaths: u64, pages;
    /// Pages: bytes of all births before.
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
    /// Origins: sites; the largest number = a death.
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
    /// Other events: births and deaths before.
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
    /// Births that are too large for their column: rows.
    large_row: u64, large;
    /// Births that are too large for their column: sizes.
    large_size: u64, large;
    /// Births whose address does not fit: rows.
    odd_row: u64, odd;
    /// Births whose address does not fit: addresses.
    odd_address: u64, odd;
    /// Reallocs whose old block was not seen: rows.
    orphan_row: u64, orphans;
    /// Reallocs whose old block was not seen: its address.
    orphan_address: u64, orphans;
    /// Temporary blocks that died after their bucket was closed: rows.
    late_row: u64, late;
    /// Temporary blocks that died after their bucket was closed: origins.
    late_origin: u32, late;
    /// Temporary blocks that died after their bucket was closed: sizes.
    late_size: u64, late;
    /// Deaths whose birth is far: ordinals.
    far_death: u64, far;
    /// Deaths whose birth is far: rows.
    far_row: u64, far;
    /// Lists of sums, see `trace::sums`.
    sums: u8, sums;
}

/// Path of a column.
#[must_use]
pub fn path(folder: &Path, column: &str) -> PathBuf {
    folder.join(format!("{column}.arrow"))
}

/// Columns that are filled in as blocks die, and zones.
#[derive(Debug, Default)]
pub struct Ledgers {
    /// Births: the ordinal of the death, see `trace::links`; 0 = live.
    pub death: LedgerView<u32>,
    /// Births whose death is far: 1 + its ordinal.
    pub far: LedgerView<u64>,
    /// Births: class of the lifetime and whether it was temporary; 0 = live.
    pub fate: LedgerView<u8>,
    /// Births: what occurs in each run of them.
    pub birth_zones: Zones,
    /// Deaths: what occurs in each run of them.
    pub death_zones: Zones,
}

impl Ledgers {
    /// Opens the finished ledgers of `folder`.
    ///
    /// # Errors
    /// When one is missing or too short.
    pub fn open(folder: &Path, facts: &Facts) -> io::Result<Self> {
        let (births, deaths, run) = (facts.lengths.births, facts.lengths.deaths, facts.zone_rows);
        Ok(Self {
            death: LedgerView::open(&path(folder, "birth_death"), births)?,
            far: Sparse::open(&path(folder, "birth_far"), if facts.lengths.far == 0 { 0 } else { births })?,
            fate: LedgerView::open(&path(folder, "birth_fate"), births)?,
            birth_zones: Zones::open(&path(folder, "birth_zone"), run, births)?,
            death_zones: Zones::open(&path(folder, "death_zone"), run, deaths)?,
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
    pub facts: Facts,
}

/// Reads the manifest of `folder`, if there is one of this layout.
#[must_use]
pub fn read_manifest(folder: &Path) -> Option<Manifest> {
    let text = std::fs::read(folder.join(MANIFEST)).ok()?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    (manifest.layout == LAYOUT).then_some(manifest)
}
