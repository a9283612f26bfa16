//! The schema of an index: every table with its columns, declared once. The files, what writes and what reads them, the
//! lengths in the manifest and the rows of tables that are read row by row all come from this list.
//!
//! A column is a file of numbers, framed as Arrow without compression, so that it is used where it is mapped. Columns
//! that are filled in later, and zone maps, are in [`super::files::Ledgers`].

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::column::{Column, ColumnWriter};

/// A row of a table whose columns are written together.
pub trait TableRow: Copy {
    /// Appends rows to the columns of their table.
    ///
    /// # Errors
    /// When the disk refuses.
    fn append(rows: &[Self], columns: &mut Writers) -> io::Result<()>;

    /// The row at a position, if there is one.
    fn get(columns: &Columns, at: usize) -> Option<Self>;
}

macro_rules! schema {
    (
        rows {$(
            $(#[$row_doc:meta])*
            $table:ident: $row:ident { $($(#[$field_doc:meta])* $row_column:ident => $field:ident: $field_type:ty,)+ }
        )+}
        columns {$(
            $(#[$table_doc:meta])*
            $plain:ident { $($(#[$doc:meta])* $column:ident: $type:ty,)+ }
        )+}
    ) => {
        $(
            $(#[$row_doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
            pub struct $row { $($(#[$field_doc])* pub $field: $field_type,)+ }

            impl TableRow for $row {
                fn append(rows: &[Self], columns: &mut Writers) -> io::Result<()> {
                    if !rows.is_empty() {
                        $(columns.$row_column.append(&rows.iter().map(|row| row.$field).collect::<Vec<_>>())?;)+
                    }
                    Ok(())
                }

                fn get(columns: &Columns, at: usize) -> Option<Self> {
                    Some(Self { $($field: *columns.$row_column.get(at)?,)+ })
                }
            }
        )+

        /// All append-only columns, for writing.
        #[derive(Debug)]
        pub struct Writers {
            $($($(#[$field_doc])* pub $row_column: ColumnWriter<$field_type>,)+)+
            $($($(#[$doc])* pub $column: ColumnWriter<$type>,)+)+
        }

        /// All append-only columns, for reading.
        #[derive(Debug, Default)]
        pub struct Columns {
            $($($(#[$field_doc])* pub $row_column: Column<$field_type>,)+)+
            $($($(#[$doc])* pub $column: Column<$type>,)+)+
        }

        /// Lengths of the tables.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub struct Lengths {
            $($(#[$row_doc])* pub $table: u64,)+
            $($(#[$table_doc])* pub $plain: u64,)+
        }

        impl Writers {
            /// Creates all files in `folder`.
            ///
            /// # Errors
            /// When one cannot be created.
            pub fn create(folder: &Path) -> io::Result<Self> {
                Ok(Self {
                    $($($row_column: ColumnWriter::create(&path(folder, stringify!($row_column)))?,)+)+
                    $($($column: ColumnWriter::create(&path(folder, stringify!($column)))?,)+)+
                })
            }

            /// Opens what an earlier run left, cut to `lengths`.
            ///
            /// # Errors
            /// When one is missing or too short.
            pub fn reopen(folder: &Path, lengths: &Lengths) -> io::Result<Self> {
                Ok(Self {
                    $($($row_column: ColumnWriter::reopen(&path(folder, stringify!($row_column)), lengths.$table)?,)+)+
                    $($($column: ColumnWriter::reopen(&path(folder, stringify!($column)), lengths.$plain)?,)+)+
                })
            }

            /// Frames all files for Arrow tools.
            ///
            /// # Errors
            /// When the disk refuses.
            pub fn finish(&mut self) -> io::Result<()> {
                $($(self.$row_column.finish()?;)+)+
                $($(self.$column.finish()?;)+)+
                Ok(())
            }

            /// Maps what has been written.
            ///
            /// # Errors
            /// When a mapping fails.
            pub fn view(&self) -> io::Result<Columns> {
                Ok(Columns {
                    $($($row_column: self.$row_column.view(self.$row_column.len())?,)+)+
                    $($($column: self.$column.view(self.$column.len())?,)+)+
                })
            }

            /// Lengths of the tables as they are.
            #[must_use]
            pub fn lengths(&self) -> Lengths {
                Lengths {
                    $($table: [$(self.$row_column.len()),+][0],)+
                    $($plain: [$(self.$column.len()),+][0],)+
                }
            }
        }

        impl Columns {
            /// Opens the finished columns of `folder`.
            ///
            /// # Errors
            /// When one is missing or too short.
            pub fn open(folder: &Path, lengths: &Lengths) -> io::Result<Self> {
                Ok(Self {
                    $($($row_column: Column::open(&path(folder, stringify!($row_column)), lengths.$table)?,)+)+
                    $($($column: Column::open(&path(folder, stringify!($column)), lengths.$plain)?,)+)+
                })
            }
        }
    };
}

schema! {
    rows {
        /// Pages: the state before the first event of each, and the extremes after each of its events.
        pages: EventPage {
            /// Time of its first event; times of rows are relative to it.
            page_time => time_ns: u64,
            /// Allocations before it.
            page_allocs => allocs: u64,
            /// Frees before it.
            page_frees => frees: u64,
            /// Bytes of all allocations before it.
            page_allocated => allocated: u64,
            /// Live bytes before it.
            page_live => live: u64,
            /// Smallest live bytes after one of its events.
            page_min_bytes => min_bytes: u64,
            /// Largest live bytes after one of its events.
            page_max_bytes => max_bytes: u64,
            /// Smallest number of live blocks.
            page_min_count => min_count: u64,
            /// Largest number of live blocks.
            page_max_count => max_count: u64,
        }
        /// Origins: call-tree node, thread and function of an event; every row of the index refers to one.
        origins: EventOrigin {
            /// Call-tree node of the caller; 0 = no stack.
            origin_node => node: u32,
            /// Position in the list of threads.
            origin_thread => thread: u32,
            /// Kind number.
            origin_kind => kind: u8,
            /// Site of an allocation; [`super::layout::NO_SITE`] for frees.
            origin_site => site: u32,
            /// Alignment that was asked for, as a power of two; 0 = none beyond what every block has, or not recorded.
            origin_alignment => alignment: u8,
        }
        /// Pairs of threads, of which one freed what the other allocated.
        pairs: ThreadPair {
            /// Who allocated.
            pair_bearer => bearer: u32,
            /// Who freed.
            pair_freer => freer: u32,
        }
        /// Call-tree nodes, the root included.
        nodes: StoredNode {
            /// Parent.
            node_parent => parent: u32,
            /// Location; [`super::nodes::NO_LOCATION`]: the node is not known.
            node_location => location: u32,
        }
        /// Locations.
        locations: StoredLocation {
            /// Return address.
            location_pc => pc: u64,
            /// Generation of the code there.
            location_generation => generation: u32,
        }
        /// Events that are neither an allocation nor the free of a seen block.
        others: OtherEvent {
            /// Allocations and frees before it.
            other_position => position: u64,
            /// When.
            other_time => t_ns: u64,
            /// Position in the list of threads.
            other_thread => thread: u32,
            /// Kind number.
            other_kind => kind: u8,
            /// Call-tree node.
            other_node => node: u32,
            /// Address, new break, ordinal of a mark, number of lost records.
            other_a => a: u64,
            /// Length, bytes moved, pid.
            other_b => b: u64,
            /// Old address, or `prot | flags << 32`.
            other_c => c: u64,
            /// Old length, or file descriptor.
            other_d => d: u64,
            /// Request context: 0 = none, else a position in `context_id` plus one.
            other_context => context: u32,
        }
        /// Memory samples: resident memory and the like at an instant.
        samples: MemoryReading {
            /// When.
            sample_time => t_ns: u64,
            /// Resident set.
            sample_rss => rss: u64,
            /// Of it anonymous.
            sample_anonymous => rss_anonymous: u64,
            /// Address space.
            sample_virtual => virtual_size: u64,
            /// Of the resident set the recorder's.
            sample_recorder => recorder: u64,
        }
        /// Allocations that are too large for their column.
        large: LargeBlock {
            /// Row.
            large_row => row: u64,
            /// Size.
            large_size => size: u64,
        }
        /// Allocations whose address does not fit its column.
        odd: OddAddress {
            /// Row.
            odd_row => row: u64,
            /// Address.
            odd_address => address: u64,
        }
        /// Reallocs whose old block was not seen.
        orphans: OrphanRealloc {
            /// Row.
            orphan_row => row: u64,
            /// Address of the old block; the largest number: not known.
            orphan_address => old_address: u64,
        }
        /// Temporary blocks that were freed after their bucket was closed.
        late: LateTemporary {
            /// Row.
            late_row => row: u64,
            /// Origin.
            late_origin => origin: u32,
            /// Size.
            late_size => size: u64,
        }
        /// Frees that are far from their allocation.
        far: FarFree {
            /// Ordinal.
            far_free => ordinal: u64,
            /// Row of the allocation.
            far_row => row: u64,
        }
    }
    columns {
        /// Allocations.
        allocs {
            /// Nanoseconds since their page's time.
            alloc_time: u32,
            /// Codes of sizes, see `layout::TABLE_SIZE`; the largest number = see `large_*`.
            alloc_size: u16,
            /// Origins.
            alloc_origin: u32,
            /// Low 32 bits of the address.
            alloc_address: u32,
            /// Next 16 bits; the largest number = see `odd_*`.
            alloc_address_high: u16,
        }
        /// Frees of seen allocations.
        frees {
            /// Nanoseconds since their page's time.
            free_time: u32,
            /// The row of the allocation, see [`super::links`].
            free_row: u32,
            /// Origins.
            free_origin: u32,
            /// Codes of sizes, so that time series need not look allocations up.
            free_size: u16,
        }
        /// Words of order bits.
        order {
            /// One bit an event: 0 allocation, 1 free.
            order: u64,
            /// Pages of 4,096 bytes with a live block: the fewest among the 64 events.
            occupied_min: u32,
            /// The most.
            occupied_max: u32,
            /// Behind the last of the events.
            occupied_last: u32,
        }
        /// Sites.
        sites {
            /// Call-tree nodes.
            site_node: u32,
        }
        /// Sizes that have a code.
        sizes {
            /// Sizes by code, from the first code that is not a size.
            size_table: u64,
        }
        /// Allocations whose request context is stored: all, or none as long as there is none.
        alloc_contexts {
            /// Request contexts: 0 = none, else positions in `context_id` plus one.
            alloc_context: u32,
        }
        /// Frees whose request context is stored.
        free_contexts {
            /// Request contexts, as above.
            free_context: u32,
        }
        /// Request contexts.
        contexts {
            /// The program's ids.
            context_id: u64,
        }
        /// Bytes of the records of interpreted functions.
        code_bytes {
            /// The records, as the recording has them.
            codes: u8,
        }
        /// Bytes of the lists of sums.
        sums {
            /// Lists of sums, see [`super::sums`].
            sums: u8,
        }
    }
}

/// Path of a column.
#[must_use]
pub fn path(folder: &Path, column: &str) -> PathBuf {
    folder.join(format!("{column}.arrow"))
}
