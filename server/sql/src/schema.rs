//! The tables: their columns, parameters and what they mean. SQLite's declarations and the guide are made from it.

use std::ffi::CString;

/// A table, or a function that returns one.
#[derive(Debug)]
pub struct SqlTable {
    /// Its name.
    pub name: &'static str,
    /// What a row is, one sentence.
    pub about: &'static str,
    /// Its columns; those of all tables but `recordings` and `diff` have `recording` in front.
    pub columns: &'static [SqlColumn],
    /// Parameters, in their order; a table without any is no function.
    pub parameters: &'static [SqlColumn],
}

/// A column or a parameter.
#[derive(Debug)]
pub struct SqlColumn {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: SqlType,
    /// What it holds.
    pub about: &'static str,
}

/// Types of columns. Any may be NULL where something is not known or does not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlType {
    /// 64 bits, signed: counts, bytes, nanoseconds, addresses, 0 and 1.
    Integer,
    /// 64-bit float.
    Real,
    /// UTF-8.
    Text,
}

impl SqlType {
    /// As SQL has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Integer => "INTEGER",
            Self::Real => "REAL",
            Self::Text => "TEXT",
        }
    }
}

/// A view over tables.
#[derive(Debug)]
pub struct SqlView {
    /// Its name.
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    /// What it is made of.
    pub query: &'static str,
}

const fn integer(name: &'static str, about: &'static str) -> SqlColumn {
    SqlColumn { name, kind: SqlType::Integer, about }
}

const fn real(name: &'static str, about: &'static str) -> SqlColumn {
    SqlColumn { name, kind: SqlType::Real, about }
}

const fn text(name: &'static str, about: &'static str) -> SqlColumn {
    SqlColumn { name, kind: SqlType::Text, about }
}

const RECORDING: SqlColumn =
    integer("recording", "number of the recording, from 1 in the order in which they are named");
const THREAD: SqlColumn = integer("thread", "number in the recording, from 1");
const OS_THREAD: SqlColumn = integer("os_thread", "the kernel's id");
const THREAD_NAME: SqlColumn = text("name", "last known name");
const THREAD_STARTED: SqlColumn = integer("started_ns", "first event");
const THREAD_ENDED: SqlColumn = integer("ended_ns", "end; NULL: not seen");
const FROM: SqlColumn = text("from_time", "start of the window: `1.5s`, `50%`, `peak`, a mark's label, or nanoseconds");
const TO: SqlColumn = text("to_time", "end of the window");
const AT: SqlColumn = text("at_time", "a moment");
const GROUPED_BY: SqlColumn = text(
    "grouped_by",
    "what a row is: `function` (default), `program` (the program's function of each backtrace), `file`, `module`, \
     `thread`, `site`",
);
const METRIC: SqlColumn =
    text("metric", "`live` (default), `peak`, `leaked`, `allocated`, `freed`, `grown`, `temporary`");

/// Views.
pub const VIEWS: &[SqlView] = &[
    SqlView { name: "blocks", about: "another name of `allocations`", query: "SELECT * FROM allocations" },
    SqlView {
        name: "frees",
        about: "one row a block that was freed",
        query: "SELECT recording, row, address, size, died_ns, lifetime_ns, free_thread AS thread, free_stack AS stack, \
                thread AS alloc_thread, stack AS alloc_stack, site, temporary FROM allocations WHERE died_ns IS NOT NULL",
    },
];

/// Blocks.
pub const ALLOCATIONS: SqlTable = SqlTable {
    name: "allocations",
    about: "One row a block, in the order of allocation. Conditions on `recording`, `row`, `born_ns`, `thread`, `site` \
            and `size` leave out whole parts of the index; others look at every row.",
    columns: BLOCK_COLUMNS,
    parameters: &[],
};

/// Blocks that are live at a moment.
pub const LIVE: SqlTable = SqlTable {
    name: "live",
    about: "The blocks that are live at a moment (default: at the end).",
    columns: BLOCK_COLUMNS,
    parameters: &[AT],
};

const BLOCK_COLUMNS: &[SqlColumn] = &[
    RECORDING,
    integer("row", "position among all allocations of the recording, from 0"),
    integer("address", "where"),
    integer("size", "requested bytes"),
    integer("born_ns", "when it was allocated, since the start of the recording"),
    integer("died_ns", "when it was freed; NULL: never"),
    integer("lifetime_ns", "from its allocation to its free; NULL: never freed"),
    integer("thread", "the thread that allocated it, see `threads`"),
    integer("free_thread", "the thread that freed it"),
    integer("site", "where in the code it was allocated, see `sites`"),
    integer("stack", "backtrace of the allocation, see `stacks`"),
    integer("free_stack", "backtrace of the free"),
    text("function", "the function that was called: `malloc`, `realloc`, …"),
    integer("previous", "row of the block that realloc made it from"),
    integer("temporary", "1: freed within one later allocation of the same thread"),
    integer("alignment", "the alignment that was asked for, in bytes; NULL: no more than the 16 of every block"),
];

/// All tables that are made of rows from existing queries.
pub const TABLES: &[&SqlTable] = &[
    &RECORDINGS,
    &ALLOCATIONS,
    &LIVE,
    &SITES,
    &FUNCTIONS,
    &LEAKS,
    &TIMELINE,
    &FLAME,
    &LIFETIMES,
    &DIFF,
    &THREADS,
    &THREAD_SUMS,
    &MODULES,
    &MARKS,
    &CAPTURES,
    &SAMPLES,
    &MAPPINGS,
    &STACKS,
    &FRAMES,
    &REMARKS,
];

/// Recordings.
pub const RECORDINGS: SqlTable = SqlTable {
    name: "recordings",
    about: "One row a recording.",
    columns: &[
        RECORDING,
        text("path", "as it was given"),
        text("id", "32 hexadecimal digits, the recording's own"),
        integer("pid", "process"),
        integer("parent_pid", "its parent"),
        text("executable", "path of the program"),
        text("arguments", "as a JSON list"),
        text("started_at", "RFC 3339"),
        integer("duration_ns", "length"),
        integer("complete", "1: nothing is known to be missing"),
        text("end", "`exit`, `exec`, `killed`, `stopped`, `detached`, `running`, `disk_full`, `unknown`"),
        integer("lost", "events known to be missing"),
        integer("allocations", "blocks allocated"),
        integer("allocated_bytes", "their bytes"),
        integer("frees", "blocks freed"),
        integer("peak_bytes", "most live bytes"),
        integer("peak_count", "live blocks then"),
        integer("peak_ns", "when"),
        integer("leaked_bytes", "live at the end"),
        integer("leaked_count", "blocks of them"),
        integer("temporary_count", "temporary blocks"),
        integer("peak_rss_bytes", "largest resident set that was sampled"),
    ],
    parameters: &[],
};

/// Sites.
pub const SITES: SqlTable = SqlTable {
    name: "sites",
    about: "One row an allocating backtrace, with what it allocated in the window.",
    columns: &[
        RECORDING,
        integer("site", "number; other commands write it as `s12`"),
        integer("stack", "its backtrace, see `stacks`"),
        text("function", "the program's function in it"),
        text("file", "source file of the call"),
        integer("line", "line of the call"),
        text("module", "file name of the module"),
        text("called_from", "the nearest function above it that is no library's"),
        integer("allocated_bytes", "allocated in the window"),
        integer("allocated_count", "blocks of them"),
        integer("freed_bytes", "freed in the window"),
        integer("freed_count", "blocks of them"),
        integer("live_bytes", "live at the end of the window"),
        integer("live_count", "blocks of them"),
        integer("leaked_bytes", "allocated in the window and never freed"),
        integer("leaked_count", "blocks of them"),
        integer("peak_bytes", "live when live bytes were highest in the window"),
        integer("peak_count", "blocks of them"),
        integer("temporary_bytes", "temporary"),
        integer("temporary_count", "blocks of them"),
        integer("lifetime_p50_ns", "median lifetime"),
        integer("lifetime_p90_ns", "nine of ten were freed before"),
    ],
    parameters: &[FROM, TO],
};

/// Functions.
pub const FUNCTIONS: SqlTable = SqlTable {
    name: "functions",
    about: "One row a function on a backtrace, with what it (flat) and what it called (cumulative) allocated; or one row a \
            file, a module, a thread, with its name as `function`.",
    columns: &[
        RECORDING,
        text("function", "name, or `0x…` without a symbol"),
        text("file", "source file of its declaration"),
        integer("line", "line of its declaration"),
        text("module", "file name of the module"),
        integer("library", "1: of a standard library or an allocator's wrapper"),
        integer("flat_bytes", "allocated by itself"),
        integer("flat_count", "blocks of them"),
        integer("cum_bytes", "allocated by it and what it called"),
        integer("cum_count", "blocks of them"),
    ],
    parameters: &[METRIC, FROM, TO, AT, GROUPED_BY],
};

/// Sums of threads.
pub const THREAD_SUMS: SqlTable = SqlTable {
    name: "thread_sums",
    about: "One row a thread that made an event, with what it allocated and freed in the window.",
    columns: &[
        RECORDING,
        THREAD,
        OS_THREAD,
        THREAD_NAME,
        THREAD_STARTED,
        THREAD_ENDED,
        integer("allocated_bytes", "allocated in the window"),
        integer("allocated_count", "blocks of them"),
        integer("freed_bytes", "freed by it in the window, whoever had allocated them"),
        integer("freed_count", "blocks of them"),
        integer("live_bytes", "of those that it allocated, live at the end of the window"),
        integer("live_count", "blocks of them"),
        integer("leaked_bytes", "allocated in the window and never freed"),
        integer("leaked_count", "blocks of them"),
        integer("temporary_bytes", "temporary"),
        integer("temporary_count", "blocks of them"),
    ],
    parameters: &[FROM, TO],
};

/// Leaks.
pub const LEAKS: SqlTable = SqlTable {
    name: "leaks",
    about: "One row a site with blocks that were never freed, with a verdict on its history.",
    columns: &[
        RECORDING,
        integer("site", "see `sites`"),
        text("function", "the program's function in its backtrace"),
        text("file", "source file of the call"),
        integer("line", "line of the call"),
        text("module", "file name of the module"),
        integer("bytes", "live at the end"),
        integer("count", "blocks of them"),
        integer("first_ns", "when the oldest of them was allocated"),
        integer("last_ns", "when the youngest of them was allocated"),
        text("verdict", "`growing`, `bounded`, `one_time`, `unclear`"),
        text("shape", "the curve of its live bytes"),
        real("bytes_per_second", "how fast it grows"),
        real("bytes_per_second_low", "low end of the interval"),
        real("bytes_per_second_high", "high end of the interval"),
        real("confidence", "0 to 1"),
        text("why", "the reason in words"),
        integer("freed_at_exit", "1: freed by the program while it ended, hence no leak"),
    ],
    parameters: &[FROM, TO],
};

/// Time series.
pub const TIMELINE: SqlTable = SqlTable {
    name: "timeline",
    about: "Equal parts of the recording's time.",
    columns: &[
        RECORDING,
        integer("t_ns", "start of the part"),
        integer("live_bytes", "live bytes at its end"),
        integer("live_bytes_min", "lowest within"),
        integer("live_bytes_max", "highest within"),
        integer("live_count", "live blocks at its end"),
        real("alloc_rate", "allocations a second"),
        real("free_rate", "frees a second"),
        integer("rss_bytes", "resident set, as sampled"),
        integer("occupied_bytes", "bytes of pages that hold a live block, at the end of the part"),
    ],
    parameters: &[integer("points", "how many parts (default 1000, at most 20000)"), FROM, TO],
};

/// Flame graph.
pub const FLAME: SqlTable = SqlTable {
    name: "flame",
    about: "The tree of functions, in pre-order: the root first, parents before children.",
    columns: &[
        RECORDING,
        integer("id", "number of the row, from 0"),
        integer("parent", "row of the caller; NULL for the root"),
        integer("depth", "0 for the root"),
        text("function", "name; NULL for the root"),
        text("file", "source file of its declaration"),
        integer("line", "line of its declaration"),
        text("module", "file name of the module"),
        integer("self_bytes", "allocated by it directly"),
        integer("total_bytes", "with what it called"),
        integer("folded", "functions that this row stands for because the tree is too large; 0 for others"),
    ],
    parameters: &[METRIC, AT, FROM, TO],
};

/// Lifetimes.
pub const LIFETIMES: SqlTable = SqlTable {
    name: "lifetimes",
    about: "Blocks by class of lifetime; what still lives counts until the end of the recording.",
    columns: &[
        RECORDING,
        integer("from_ns", "shortest lifetime of the class; the next row's ends it"),
        integer("count", "blocks"),
        integer("bytes", "their bytes"),
        integer("live_count", "blocks of them that still live"),
    ],
    parameters: &[FROM, TO],
};

/// Difference.
pub const DIFF: SqlTable = SqlTable {
    name: "diff",
    about: "Two recordings by backtrace, joined by the names of functions, largest change first.",
    columns: &[
        text("function", "the program's function in the backtrace"),
        text("file", "source file of the call"),
        integer("line", "line of the call"),
        text("module", "file name of the module"),
        text("stack", "the whole backtrace, leaf first, separated by `;`"),
        integer("before_bytes", "in the first recording"),
        integer("before_count", "blocks of them"),
        integer("after_bytes", "in the second"),
        integer("after_count", "blocks of them"),
        integer("change_bytes", "second minus first"),
        integer("change_count", "blocks of them"),
    ],
    parameters: &[
        integer("a", "number of the first recording (default 1)"),
        integer("b", "number of the second (default 2)"),
        METRIC,
    ],
};

/// Threads.
pub const THREADS: SqlTable = SqlTable {
    name: "threads",
    about: "One row a thread that made an event.",
    columns: &[RECORDING, THREAD, OS_THREAD, THREAD_NAME, THREAD_STARTED, THREAD_ENDED],
    parameters: &[],
};

/// Modules.
pub const MODULES: SqlTable = SqlTable {
    name: "modules",
    about: "One row an ELF object that was loaded.",
    columns: &[
        RECORDING,
        integer("module", "number"),
        text("path", "as the loader knows it"),
        text("name", "file name"),
        text("build_id", "hexadecimal digits"),
        integer("bias", "load address less the file's"),
        integer("loaded_ns", "loaded"),
        integer("unloaded_ns", "unloaded; NULL: never"),
    ],
    parameters: &[],
};

/// Marks.
pub const MARKS: SqlTable = SqlTable {
    name: "marks",
    about: "Labels that were set with `tracehound_mark` or `heaptrace ctl`.",
    columns: &[
        RECORDING,
        integer("t_ns", "when"),
        text("label", "label"),
        integer("thread", "thread that set it; 0: from outside"),
    ],
    parameters: &[],
};

/// Captures.
pub const CAPTURES: SqlTable = SqlTable {
    name: "captures",
    about: "Periods in which recording was on.",
    columns: &[RECORDING, integer("from_ns", "switched on"), integer("to_ns", "switched off")],
    parameters: &[],
};

/// Samples.
pub const SAMPLES: SqlTable = SqlTable {
    name: "samples",
    about: "Memory of the process as the kernel gave it, every few milliseconds.",
    columns: &[
        RECORDING,
        integer("t_ns", "when"),
        integer("rss_bytes", "resident set"),
        integer("anonymous_bytes", "of it anonymous"),
        integer("virtual_bytes", "address space"),
        integer("recorder_bytes", "of the resident set the recorder's"),
    ],
    parameters: &[],
};

/// Mappings.
pub const MAPPINGS: SqlTable = SqlTable {
    name: "mappings",
    about: "One row an event of the address space, in the order of time.",
    columns: &[
        RECORDING,
        integer("t_ns", "when"),
        integer("thread", "thread"),
        text("kind", "`map`, `unmap`, `remap`, `brk`, `existing`"),
        integer("address", "where"),
        integer("bytes", "how much; of `brk` the change, which may be negative"),
        integer("old_address", "of `remap`: where it was"),
        integer("old_bytes", "of `remap`: how much it was"),
        integer("stack", "backtrace, see `stacks`"),
    ],
    parameters: &[],
};

/// Stacks.
pub const STACKS: SqlTable = SqlTable {
    name: "stacks",
    about: "One row a frame of a backtrace; `depth` 0 called the allocating function. A condition on `stack` is quick.",
    columns: &[
        RECORDING,
        integer("stack", "backtrace"),
        integer("depth", "from 0, inlined functions are frames of their own"),
        integer("frame", "the place in the code, see `frames`"),
        text("function", "name; NULL without a symbol"),
        text("file", "source file of the call"),
        integer("line", "line of the call"),
        text("module", "file name of the module"),
        integer("inlined", "1: inlined into the next frame"),
        integer("library", "1: not the program's own code"),
        integer("address", "return address"),
    ],
    parameters: &[],
};

/// Frames.
pub const FRAMES: SqlTable = SqlTable {
    name: "frames",
    about: "One row a function at a place in the code; `level` 0 is innermost, the others inlined it.",
    columns: &[
        RECORDING,
        integer("frame", "the place"),
        integer("level", "from 0"),
        text("function", "name; NULL without a symbol"),
        text("file", "source file of the call"),
        integer("line", "line of the call"),
        text("module", "file name of the module"),
        text("build_id", "of the module, hexadecimal digits"),
        integer("offset", "return address in the module's file"),
        integer("inlined", "1: inlined into the next level"),
    ],
    parameters: &[],
};

/// Remarks.
pub const REMARKS: SqlTable = SqlTable {
    name: "remarks",
    about: "What the recorder wants to be known.",
    columns: &[RECORDING, integer("t_ns", "when"), text("topic", "short stable name"), text("text", "one sentence")],
    parameters: &[],
};

impl SqlTable {
    /// The declaration that SQLite is given. Parameters are hidden columns.
    #[must_use]
    pub fn declaration(&self) -> CString {
        let column = |column: &SqlColumn, hidden: &str| format!("\"{}\" {}{hidden}", column.name, column.kind.name());
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|own| column(own, ""))
            .chain(self.parameters.iter().map(|own| column(own, " HIDDEN")))
            .collect();
        // Names and types are literals above, without zeros.
        CString::new(format!("CREATE TABLE x({})", columns.join(","))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use tracehound_api::info::End;

    use super::*;

    #[test]
    fn every_end_of_a_recording_is_listed() {
        let column = RECORDINGS.columns.iter().find(|column| column.name == "end").unwrap();
        let listed: Vec<&str> = column.about.split(", ").map(|value| value.trim_matches('`')).collect();
        let all = [End::Running, End::Exit, End::Exec, End::Killed, End::Stopped, End::Detached, End::DiskFull];
        for end in all.into_iter().chain([End::Unknown]) {
            let name = serde_json::to_value(end).unwrap();
            assert!(listed.iter().any(|value| name == *value), "{name} is not in {listed:?}");
        }
        assert_eq!(listed.len(), all.len() + 1);
    }
}
