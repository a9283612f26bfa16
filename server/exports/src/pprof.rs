//! pprof's `profile.proto`, gzipped, with the four values that heap profiles of Go have and four more: at the peak, and
//! temporary. Samples have labels: the allocating thread (`thread`, `thread_id`) and the size of the blocks (`bytes`).
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>
//!
//! Protocol buffers allow the fields of a message in any order, so samples are written as they come and tables behind
//! them. Ids of mappings, functions and locations are numbered in the order in which they are written, from 1, and there
//! is a period: Parca refuses a profile whose ids have holes, and answers no more after one without a period type.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use tracehound_api::Metric;
use tracehound_index::facts::{ModuleFacts, ThreadFacts};
use tracehound_index::symbols::{FileId, FunctionId, LocationId, SymbolFrame};
use tracehound_query::classes::{self, Class};

use super::protobuf::Message;
use super::samples::resolve_all;
use super::{ExportInput, ExportScope, Result};

/// Names and units of a sample's values, in the order of [`values`].
pub(super) const VALUES: [(&str, &str); 8] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
    ("temporary_objects", "count"),
    ("temporary_space", "bytes"),
];

/// What is shown first.
pub(super) const fn default_type(metric: Metric) -> &'static str {
    match metric {
        Metric::Allocated | Metric::Freed => "alloc_space",
        Metric::Peak => "peak_space",
        Metric::Temporary => "temporary_objects",
        Metric::Live | Metric::Leaked | Metric::Grown => "inuse_space",
    }
}

/// Field numbers of `Profile`.
mod profile {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const MAPPING: u64 = 3;
    pub const LOCATION: u64 = 4;
    pub const FUNCTION: u64 = 5;
    pub const STRING_TABLE: u64 = 6;
    pub const TIME_NANOS: u64 = 9;
    pub const DURATION_NANOS: u64 = 10;
    pub const PERIOD_TYPE: u64 = 11;
    pub const PERIOD: u64 = 12;
    pub const COMMENT: u64 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u64 = 14;
}

/// Equal strings are one entry of the table; entry 0 is the empty one.
#[derive(Default)]
struct StringTable {
    ids: HashMap<String, u64>,
    new: Message,
}

impl StringTable {
    fn id(&mut self, text: &str) -> u64 {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = self.ids.len() as u64;
        self.new.bytes(profile::STRING_TABLE, text.as_bytes());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// What time a profile is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProfileTime {
    /// From the program's start, as long as it was recorded.
    Recording,
    /// The end of the recording.
    End,
}

/// Writes the profile; `metric` chooses what pprof shows first.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(source: ExportInput<'_>, scope: &ExportScope, metric: Metric, out: &mut dyn Write) -> Result<()> {
    write_of(source, scope, metric, ProfileTime::Recording, out)
}

/// The same as a profile of one moment, the end of the recording, without a duration: as heap profiles of Go, of which
/// servers of profiles make a series.
///
/// # Errors
/// As [`write`].
pub fn write_moment(source: ExportInput<'_>, scope: &ExportScope, metric: Metric, out: &mut dyn Write) -> Result<()> {
    write_of(source, scope, metric, ProfileTime::End, out)
}

fn write_of(
    source: ExportInput<'_>,
    scope: &ExportScope,
    metric: Metric,
    time: ProfileTime,
    out: &mut dyn Write,
) -> Result<()> {
    resolve_all(source)?;
    let trace = source.trace;
    let mut out = GzEncoder::new(out, Compression::fast());
    let mut strings = StringTable::default();
    strings.id("");

    let mut head = Message::default();
    for (name, unit) in VALUES {
        let (name, unit) = (strings.id(name), strings.id(unit));
        head.message(profile::SAMPLE_TYPE, |value_type| {
            value_type.number(1, name);
            value_type.number(2, unit);
        });
    }
    // Every byte counts, as with `runtime.MemProfileRate` = 1 of Go.
    let (space, bytes) = (strings.id("space"), strings.id("bytes"));
    head.message(profile::PERIOD_TYPE, |value_type| {
        value_type.number(1, space);
        value_type.number(2, bytes);
    });
    head.number(profile::PERIOD, 1);
    head.number(profile::DEFAULT_SAMPLE_TYPE, strings.id(default_type(metric)));
    let exactness = trace.exactness();
    let comment = format!(
        "heaptrace {}: every allocation, {} events, {} lost",
        env!("CARGO_PKG_VERSION"),
        exactness.events,
        exactness.lost_events
    );
    head.packed(profile::COMMENT, [strings.id(&comment)].into_iter());
    let started = trace.facts().process.as_ref().map_or(0, |process| process.started_unix_ns);
    match time {
        ProfileTime::Recording => {
            head.number(profile::TIME_NANOS, started);
            head.number(profile::DURATION_NANOS, trace.duration_ns());
        }
        ProfileTime::End => head.number(profile::TIME_NANOS, started.saturating_add(trace.duration_ns())),
    }
    for (position, module) in trace.modules().iter().enumerate() {
        mapping(position, module, &mut strings, &mut head);
    }
    out.write_all(&head.0)?;

    let thread_names: Vec<String> = trace.threads().iter().map(thread_name).collect();
    let (thread_key, thread_id_key) = (strings.id("thread"), strings.id("thread_id"));
    let (bytes_key, bytes_unit) = (strings.id("bytes"), strings.id("bytes"));
    let classes = classes::run(trace, source.symbols, &scope.window, &scope.filter, source.cancel)?;
    // Numbers of the locations that were written; 0 is none yet.
    let mut numbers: Vec<u64> = vec![0; trace.location_count() as usize];
    let mut written = 0;
    let mut functions: HashMap<FunctionIn, u64> = HashMap::new();
    for class in classes {
        let class = class?;
        source.cancel.check()?;
        let mut message = Message::default();
        let locations: Vec<LocationId> =
            trace.shown_stack(source.symbols, class.node).filter_map(|node| trace.node_location(node)).collect();
        for &id in &locations {
            if let Some(number) = numbers.get_mut(id as usize)
                && *number == 0
            {
                written += 1;
                *number = written;
                location(source, (id, written), &mut functions, &mut strings, &mut message);
            }
        }
        message.message(profile::SAMPLE, |out| {
            out.packed(1, locations.iter().map(|&id| numbers.get(id as usize).copied().unwrap_or(0)));
            out.packed(2, values(&class).into_iter());
            let name = thread_names.get(class.thread as usize).map_or("", String::as_str);
            let name = strings.id(name);
            out.message(3, |label| {
                label.number(1, thread_key);
                label.number(2, name);
            });
            out.message(3, |label| {
                label.number(1, thread_id_key);
                label.number(3, u64::from(trace.thread_id(class.thread)));
            });
            // As in heap profiles of Go: `-tagfocus=bytes=1kb:` works.
            out.message(3, |label| {
                label.number(1, bytes_key);
                label.number(3, class.size);
                label.number(4, bytes_unit);
            });
        });
        out.write_all(&message.0)?;
        out.write_all(&std::mem::take(&mut strings.new.0))?;
    }
    out.write_all(&strings.new.0)?;
    out.finish()?;
    Ok(())
}

pub(super) fn values(class: &Class) -> [u64; 8] {
    let Class { allocated, live, peak, temporary, .. } = class;
    [allocated.count, allocated.bytes, live.count, live.bytes, peak.count, peak.bytes, temporary.count, temporary.bytes]
}

/// A thread's name; without one its id.
pub(super) fn thread_name(thread: &ThreadFacts) -> String {
    if thread.name.is_empty() { format!("thread {}", thread.id) } else { thread.name.clone() }
}

fn mapping(position: usize, module: &ModuleFacts, strings: &mut StringTable, out: &mut Message) {
    let code = module.segments.iter().find(|segment| segment.flags & 1 != 0).or(module.segments.first());
    let file = strings.id(&String::from_utf8_lossy(&module.path));
    let build_id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let build_id = strings.id(&build_id);
    out.message(profile::MAPPING, |mapping| {
        mapping.number(1, position as u64 + 1);
        if let Some(code) = code {
            mapping.number(2, code.start);
            mapping.number(3, code.start.saturating_add(code.len));
            mapping.number(4, code.file_offset);
        }
        mapping.number(5, file);
        mapping.number(6, build_id);
        // Names were looked up here; pprof need not do it again. Lines and inlined functions: where there are any.
        (7..=10).for_each(|field| mapping.number(field, 1));
    });
}

/// A function, and the file of its calls: a line counts in the file of its function.
type FunctionIn = (FunctionId, Option<FileId>);

/// A location under its number, and the functions in it that were not written before.
fn location(
    source: ExportInput<'_>,
    (id, number): (LocationId, u64),
    functions: &mut HashMap<FunctionIn, u64>,
    strings: &mut StringTable,
    out: &mut Message,
) {
    let place = source.trace.location(id);
    let mut levels: Vec<SymbolFrame> = Vec::new();
    source.symbols.frames(source.trace, id, &mut levels);
    for level in &levels {
        let next = functions.len() as u64 + 1;
        let known = *functions.entry((level.function, level.file)).or_insert(next);
        if known == next {
            let function = source.symbols.function(level.function);
            let declared = level.file.is_none() || level.file == function.file;
            let start = if declared { function.line.map_or(0, u64::from) } else { 0 };
            let file = level.file.or(function.file).map_or(0, |file| strings.id(&source.symbols.file(file)));
            let name = strings.id(function.display());
            out.message(profile::FUNCTION, |message| {
                message.number(1, known);
                message.number(2, name);
                message.number(3, name);
                message.number(4, file);
                message.number(5, start);
            });
        }
    }
    out.message(profile::LOCATION, |message| {
        message.number(1, number);
        message.number(2, place.module.map_or(0, |module| u64::from(module) + 1));
        // The call itself, not the instruction behind it.
        message.number(3, place.pc.wrapping_sub(1));
        for level in &levels {
            message.message(4, |line| {
                line.number(1, functions.get(&(level.function, level.file)).copied().unwrap_or(0));
                line.number(2, level.line.map_or(0, u64::from));
            });
        }
    });
}
