//! The files of an index folder besides the append-only columns of [`super::schema`]: ledgers, zones, the manifest.

use std::io;
use std::path::Path;

use super::facts::RecordingFacts;
use super::ledger::LedgerView;
use super::schema::path;
use super::sparse::Sparse;
use super::zones::Zones;

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
pub const LAYOUT: u32 = 11;

/// File that makes an index out of a folder: it is written last, and replaced in one step.
pub const MANIFEST: &str = "index.json";

/// What the manifest holds.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Manifest {
    /// [`LAYOUT`].
    pub layout: u32,
    /// Bytes of the recording that was indexed.
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
