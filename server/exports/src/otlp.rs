//! OpenTelemetry profiles: `ProfilesData` of `opentelemetry/proto/profiles/v1development/profiles.proto`, as of release
//! 1.9 of the protocol, which its collector takes as `ExportProfilesServiceRequest`: both messages have the same fields.
//! <https://github.com/open-telemetry/opentelemetry-proto>
//!
//! A profile there has one kind of value, so there are eight, one for each value that [`super::pprof`] gives a sample;
//! they share one dictionary. Classes of blocks are many: each [`PART`] of them makes eight profiles and a piece of the
//! dictionary, which readers put together by the rules of protocol buffers: an embedded message that comes several times
//! is merged, and its lists are joined. Entry 0 of every table stands for nothing.

use std::collections::HashMap;
use std::io::Write;

use tracehound_api::Metric;
use tracehound_index::Trace;
use tracehound_index::facts::ModuleFacts;
use tracehound_index::language::SourceLanguage;
use tracehound_index::symbols::{FileId, FunctionId, LocationId, SymbolFrame};
use tracehound_query::classes::{self, Class};

use super::pprof::{VALUES, default_type, thread_name, values};
use super::protobuf::Message;
use super::samples::resolve_all;
use super::{ExportInput, ExportScope, Result};

/// Version of the messages, as in the name of their package.
pub const VERSION: &str = "v1development";
/// Classes whose samples are held in memory.
const PART: usize = 1 << 16;

/// Field numbers of `ProfilesDictionary`.
mod dictionary {
    pub const MAPPING: u64 = 1;
    pub const LOCATION: u64 = 2;
    pub const FUNCTION: u64 = 3;
    pub const LINK: u64 = 4;
    pub const STRING: u64 = 5;
    pub const ATTRIBUTE: u64 = 6;
    pub const STACK: u64 = 7;
}

/// Value of an attribute.
#[derive(Clone, PartialEq, Eq, Hash)]
enum AttributeValue {
    Text(String),
    Number(u64),
}

impl AttributeValue {
    /// `AnyValue`.
    fn write(&self, out: &mut Message) {
        match self {
            Self::Text(text) => out.bytes(1, text.as_bytes()),
            // A member of a oneof is written even if it is zero.
            Self::Number(number) => out.member(3, *number),
        }
    }
}

/// The tables; what is new in them is written behind each part.
struct Dictionary {
    new: Message,
    strings: HashMap<String, u64>,
    attributes: HashMap<(&'static str, AttributeValue), u64>,
    functions: HashMap<(FunctionId, Option<FileId>), u64>,
    /// By location; 0 is none yet.
    locations: Vec<u64>,
    location_count: u64,
    /// By node of the call tree.
    stacks: HashMap<u32, u64>,
}

impl Dictionary {
    fn new(trace: &Trace) -> Self {
        let mut this = Self {
            new: Message::default(),
            strings: HashMap::new(),
            attributes: HashMap::new(),
            functions: HashMap::new(),
            locations: vec![0; trace.location_count() as usize],
            location_count: 0,
            stacks: HashMap::new(),
        };
        this.string("");
        for table in [
            dictionary::MAPPING,
            dictionary::LOCATION,
            dictionary::FUNCTION,
            dictionary::LINK,
            dictionary::ATTRIBUTE,
            dictionary::STACK,
        ] {
            this.new.bytes(table, &[]);
        }
        for module in trace.modules() {
            this.mapping(module);
        }
        this
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(&index) = self.strings.get(text) {
            return index;
        }
        let index = self.strings.len() as u64;
        self.new.bytes(dictionary::STRING, text.as_bytes());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn attribute(&mut self, key: &'static str, value: AttributeValue) -> u64 {
        self.attribute_in(key, value, "")
    }

    fn attribute_in(&mut self, key: &'static str, value: AttributeValue, unit: &str) -> u64 {
        if let Some(&index) = self.attributes.get(&(key, value.clone())) {
            return index;
        }
        let index = self.attributes.len() as u64 + 1;
        let (name, unit) = (self.string(key), self.string(unit));
        self.new.message(dictionary::ATTRIBUTE, |attribute| {
            attribute.number(1, name);
            attribute.message(2, |any| value.write(any));
            attribute.number(3, unit);
        });
        self.attributes.insert((key, value), index);
        index
    }

    /// Modules have the numbers of their positions, from 1.
    fn mapping(&mut self, module: &ModuleFacts) {
        let code = module.segments.iter().find(|segment| segment.flags & 1 != 0).or(module.segments.first());
        let file = self.string(&String::from_utf8_lossy(&module.path));
        let build_id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let build_id = (!build_id.is_empty())
            .then(|| self.attribute("process.executable.build_id.gnu", AttributeValue::Text(build_id)));
        self.new.message(dictionary::MAPPING, |mapping| {
            if let Some(code) = code {
                mapping.number(1, code.start);
                mapping.number(2, code.start.saturating_add(code.len));
                mapping.number(3, code.file_offset);
            }
            mapping.number(4, file);
            mapping.packed(5, build_id.into_iter());
        });
    }

    fn location(&mut self, source: ExportInput<'_>, id: LocationId) -> u64 {
        if let Some(&known) = self.locations.get(id as usize)
            && known != 0
        {
            return known;
        }
        let place = source.trace.location(id);
        let mut levels: Vec<SymbolFrame> = Vec::new();
        source.symbols.frames(source.trace, id, &mut levels);
        let functions: Vec<u64> = levels.iter().map(|level| self.function(source, level)).collect();
        let language = levels.first().and_then(|level| source.symbols.function(level.function).language);
        let frame_type = self.attribute("profile.frame.type", AttributeValue::Text(frame_type(language).into()));
        self.new.message(dictionary::LOCATION, |message| {
            message.number(1, place.module.map_or(0, |module| u64::from(module) + 1));
            // The call itself, not the instruction behind it.
            message.number(2, place.pc.wrapping_sub(1));
            for (level, &function) in levels.iter().zip(&functions) {
                message.message(3, |line| {
                    line.number(1, function);
                    line.number(2, level.line.map_or(0, u64::from));
                });
            }
            message.packed(4, [frame_type].into_iter());
        });
        self.location_count += 1;
        if let Some(place) = self.locations.get_mut(id as usize) {
            *place = self.location_count;
        }
        self.location_count
    }

    fn function(&mut self, source: ExportInput<'_>, level: &SymbolFrame) -> u64 {
        if let Some(&known) = self.functions.get(&(level.function, level.file)) {
            return known;
        }
        let function = source.symbols.function(level.function);
        let declared = level.file.is_none() || level.file == function.file;
        let start = if declared { function.line.map_or(0, u64::from) } else { 0 };
        let file = level.file.or(function.file).map_or(0, |file| self.string(&source.symbols.file(file)));
        let name = self.string(function.display());
        self.new.message(dictionary::FUNCTION, |message| {
            message.number(1, name);
            message.number(3, file);
            message.number(4, start);
        });
        let index = self.functions.len() as u64 + 1;
        self.functions.insert((level.function, level.file), index);
        index
    }

    fn stack(&mut self, source: ExportInput<'_>, node: u32) -> u64 {
        if let Some(&known) = self.stacks.get(&node) {
            return known;
        }
        let trace = source.trace;
        let ids: Vec<LocationId> =
            trace.shown_stack(source.symbols, node).filter_map(|node| trace.node_location(node)).collect();
        let locations: Vec<u64> = ids.into_iter().map(|id| self.location(source, id)).collect();
        self.new.message(dictionary::STACK, |stack| stack.packed(1, locations.into_iter()));
        let index = self.stacks.len() as u64 + 1;
        self.stacks.insert(node, index);
        index
    }
}

/// `profile.frame.type` of OpenTelemetry's semantic conventions.
const fn frame_type(language: Option<SourceLanguage>) -> &'static str {
    match language {
        Some(SourceLanguage::Python) => "cpython",
        Some(SourceLanguage::JavaScript) => "v8js",
        Some(SourceLanguage::Java) => "jvm",
        Some(SourceLanguage::Go) => "go",
        Some(SourceLanguage::Rust) => "rust",
        Some(SourceLanguage::C | SourceLanguage::Cpp) | None => "native",
    }
}

/// Writes the profiles; those of `metric` come first, and the one that shows it is the first of all.
///
/// # Errors
/// When the scope does not fit the recording, the output refuses, or cancelled.
pub fn write(source: ExportInput<'_>, scope: &ExportScope, metric: Metric, out: &mut dyn Write) -> Result<()> {
    resolve_all(source)?;
    let trace = source.trace;
    let mut tables = Dictionary::new(trace);
    let threads: Vec<[u64; 2]> = trace
        .threads()
        .iter()
        .map(|thread| {
            let id = tables.attribute("thread.id", AttributeValue::Number(u64::from(thread.id)));
            [id, tables.attribute("thread.name", AttributeValue::Text(thread_name(thread)))]
        })
        .collect();
    let mut order: Vec<usize> = (0..VALUES.len()).collect();
    let first = VALUES.iter().position(|(name, _)| *name == default_type(metric)).unwrap_or_default();
    order.sort_by_key(|&value| (value != first, value / 2 != first / 2));

    let mut part = OtlpPart::default();
    let mut parts = 0;
    for class in classes::run(trace, source.symbols, &scope.window, &scope.filter, source.cancel)? {
        let class = class?;
        source.cancel.check()?;
        part.add(source, &class, &threads, &mut tables);
        if part.classes == PART {
            out.write_all(&std::mem::take(&mut part).finish(trace, &order, parts, &mut tables).0)?;
            parts += 1;
        }
    }
    // Where nothing was allocated there are profiles without samples.
    if parts == 0 || part.classes > 0 {
        out.write_all(&part.finish(trace, &order, parts, &mut tables).0)?;
    }
    Ok(())
}

/// Samples of the profiles, and how many classes they are of.
#[derive(Default)]
struct OtlpPart {
    samples: [Message; VALUES.len()],
    classes: usize,
}

impl OtlpPart {
    fn add(&mut self, source: ExportInput<'_>, class: &Class, threads: &[[u64; 2]], tables: &mut Dictionary) {
        let stack = tables.stack(source, class.node);
        let bytes = tables.attribute_in("heaptrace.block.size", AttributeValue::Number(class.size), "By");
        let thread = threads.get(class.thread as usize).into_iter().flatten().copied();
        let attributes: Vec<u64> = thread.chain([bytes]).collect();
        for (samples, value) in self.samples.iter_mut().zip(values(class)) {
            if value > 0 {
                samples.message(2, |sample| {
                    sample.number(1, stack);
                    sample.packed(2, attributes.iter().copied());
                    sample.packed(4, [value].into_iter());
                });
            }
        }
        self.classes += 1;
    }

    /// `ProfilesData` of this part.
    fn finish(self, trace: &Trace, order: &[usize], part: u32, tables: &mut Dictionary) -> Message {
        let mut profiles = Message::default();
        profiles.message(1, |scope| {
            scope.bytes(1, b"heaptrace");
            scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
        });
        for &value in order {
            if let (Some((name, unit)), Some(samples)) = (VALUES.get(value), self.samples.get(value)) {
                let unit = if *unit == "bytes" { "By" } else { "{block}" };
                let ends = (tables.string(name), tables.string(unit), tables.string("space"), tables.string("By"));
                profiles.message(2, |profile| write_profile(profile, trace, ends, samples, (value, part)));
            }
        }
        let mut all = Message::default();
        all.message(1, |resource_profiles| {
            resource_profiles.message(1, |resource| write_resource(resource, trace));
            resource_profiles.bytes(2, &profiles.0);
        });
        all.bytes(2, &std::mem::take(&mut tables.new).0);
        all
    }
}

fn write_profile(
    profile: &mut Message,
    trace: &Trace,
    (name, unit, space, bytes): (u64, u64, u64, u64),
    samples: &Message,
    (value, part): (usize, u32),
) {
    profile.message(1, |value_type| {
        value_type.number(1, name);
        value_type.number(2, unit);
    });
    profile.0.extend_from_slice(&samples.0);
    profile.fixed64(3, trace.facts().process.as_ref().map_or(0, |process| process.started_unix_ns));
    profile.number(4, trace.duration_ns());
    // Every byte counts.
    profile.message(5, |value_type| {
        value_type.number(1, space);
        value_type.number(2, bytes);
    });
    profile.number(6, 1);
    let mut id = trace.recording_id();
    for (byte, number) in id.iter_mut().zip([value as u8 + 1].into_iter().chain(part.to_le_bytes())) {
        *byte ^= number;
    }
    profile.bytes(7, &id);
}

/// What the profiles are about, by the semantic conventions.
fn write_resource(resource: &mut Message, trace: &Trace) {
    let text = |bytes: &[u8]| AttributeValue::Text(String::from_utf8_lossy(bytes).into_owned());
    let mut attributes = vec![("telemetry.sdk.name", AttributeValue::Text("heaptrace".into()))];
    if let Some(process) = &trace.facts().process {
        let name = process.executable.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        attributes.extend([
            ("service.name", text(name)),
            ("process.pid", AttributeValue::Number(u64::from(process.pid))),
            ("process.executable.name", text(name)),
            ("process.executable.path", text(&process.executable)),
        ]);
    }
    for (key, value) in attributes {
        resource.message(1, |attribute| {
            attribute.bytes(1, key.as_bytes());
            attribute.message(2, |any| value.write(any));
        });
    }
}
