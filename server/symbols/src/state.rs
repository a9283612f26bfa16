//! Names of a recording so far: modules with their files, functions and files as dense ids, frames by
//! location.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::path::Component;
use std::sync::Arc;

use tracehound_index::Trace;
use tracehound_index::facts::ModuleFacts;
use tracehound_index::interpreted::{GENERATED, JAVA, SourceCall};
use tracehound_index::language::SourceLanguage;
use tracehound_index::program::{CodeKind, PYTHON_TRAMPOLINE};
use tracehound_index::symbols::{FileId, FunctionFacts, FunctionId, LocationId, SymbolFrame};

use super::generated::{GeneratedFunction, GeneratedPlace};
use super::locate::{Runtime, SymbolFile, SymbolFiles};
use super::perf_map::PerfMap;
use super::resolve::{self, ResolvedFunctions};
use super::{bundle, cache};

#[derive(Default)]
pub(super) struct Symbolization {
    /// By position among the recording's modules.
    pub(super) modules: HashMap<u32, ResolvedNames>,
    /// By (path, build id): the first position, which functions name; a library that was loaded twice is one library.
    first_positions: HashMap<(Vec<u8>, Vec<u8>), u32>,
    pub(super) locations: Vec<Option<Box<[SymbolFrame]>>>,
    /// Locations in no module, with the number of modules there were: one that is read later may hold them.
    pub(super) nowhere: HashMap<LocationId, usize>,
    /// Locations in code that may have functions inlined which nothing names.
    pub(super) inlining: HashSet<LocationId>,
    pub(super) functions: Vec<FunctionFacts>,
    function_ids: HashMap<FunctionKey, FunctionId>,
    /// Kind and language of functions without a name and a file, by module; of the look-ups at hand.
    pub(super) nameless: HashMap<Option<u32>, (CodeKind, Option<SourceLanguage>)>,
    /// First addresses of functions that nothing else tells apart.
    pub(super) starts: HashMap<FunctionId, u64>,
    pub(super) files: Vec<Arc<str>>,
    pub(super) file_ids: HashMap<Arc<str>, FileId>,
    pub(super) names: cache::CachedModules,
    /// Names that came with the recording, for what this machine does not have.
    pub(super) bundled: cache::CachedModules,
    /// Names of code that the process made itself.
    pub(super) jit: PerfMap,
    /// The same from logs, with the names of code that was discarded.
    pub(super) logged: PerfMap,
    /// Addresses in `names`, and how many of them the cache on disk has.
    pub(super) known: usize,
    pub(super) saved: usize,
}

pub(super) struct ResolvedNames {
    /// File name of the module.
    name: Arc<str>,
    bundle_key: Vec<u8>,
    first_position: u32,
    pub(super) located: Arc<SymbolFiles>,
    pub(super) key: Arc<[u8]>,
}

#[derive(PartialEq, Eq, Hash)]
enum FunctionKey {
    Named(Option<u32>, Arc<str>, Declaration),
    Unknown(Option<u32>, u64),
}

/// Distinguishes functions of the same name in the same module.
#[derive(PartialEq, Eq, Hash)]
enum Declaration {
    /// Where it is declared; the path without `..`, since one file may be named from several folders.
    Declared(String, u32),
    /// Its first address.
    Start(u64),
    /// The file of its calls, where names came from elsewhere and say no more.
    Calls(FileId),
    /// Where it begins, for generated code: a file of few lines has many functions.
    Generated(GeneratedPlace),
    /// The name is enough.
    Unknown,
}

/// Where a location's call is: position of the module and address in its file, or the bare address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallSite {
    In(u32, u64),
    Nowhere(u64),
    /// A call in an interpreted language: its module, and its address.
    Source(u32, u64),
}

impl Symbolization {
    /// Knows what the cache on disk has: `known` addresses.
    pub(super) fn new(names: cache::CachedModules, known: usize) -> Self {
        Self { names, known, saved: known, ..Self::default() }
    }

    pub(super) fn is_known(&self, location: LocationId, modules: usize) -> bool {
        let there = self.locations.get(location as usize).is_some_and(Option::is_some);
        there && (self.nowhere.is_empty() || self.nowhere.get(&location).is_none_or(|&then| then >= modules))
    }

    /// Hashes where the names of modules and of generated code come from.
    pub(super) fn hash_sources(&self, hasher: &mut impl Hasher) {
        // The note says what is wrong with a file that names were not read from: that it is missing, or another one.
        let mut modules: Vec<(u32, &[u8], Option<&str>)> = Vec::new();
        for (&position, module) in &self.modules {
            modules.push((position, &module.key, module.located.note.as_deref()));
        }
        modules.sort_unstable();
        modules.hash(hasher);
        self.jit.hash(hasher);
        self.logged.hash(hasher);
    }

    pub(super) fn admit(&mut self, position: u32, module: &ModuleFacts, located: SymbolFiles) -> Arc<SymbolFiles> {
        let first = self.first_positions.entry((module.path.clone(), module.build_id.clone()));
        let first_position = *first.or_insert(position);
        let key = cache_key(module, &located);
        let bundle_key = bundle::key(&module.build_id, &module.path);
        let located = Arc::new(located);
        let entry = self.modules.entry(position);
        let name = module.name().into();
        Arc::clone(&entry.or_insert(ResolvedNames { name, bundle_key, first_position, located, key }).located)
    }

    /// Turns what was looked up for a place into the frames of a location.
    pub(super) fn settle(&mut self, trace: &Trace, location: LocationId, place: CallSite) {
        // Where names came with the recording, which may know less of them.
        let mut came_along = false;
        let (module, address, functions) = match place {
            CallSite::Nowhere(pc) if let Some(call) = method_call(trace, pc) => {
                let frame = self.method_frame(call);
                self.place_frames(location, vec![frame]);
                return;
            }
            CallSite::Nowhere(pc) => match version_text(trace, pc).or_else(|| self.generated_text(pc)) {
                Some(text) => {
                    if GeneratedFunction::may_have_inlined(&text) {
                        self.inlining.insert(location);
                    }
                    let is_trampoline = text.starts_with(PYTHON_TRAMPOLINE) && !trace.interpreted().is_empty();
                    let function = match is_trampoline {
                        true => GeneratedFunction::of_runtime(text),
                        false => GeneratedFunction::of_lines(&text, has_jvm(trace)),
                    };
                    let frame = self.generated_frame(&function);
                    self.place_frames(location, vec![frame]);
                    return;
                }
                None => (None, pc, self.bundled_of_no_module(pc).cloned()),
            },
            CallSite::Source(module, address) => {
                let call = trace.interpreted().call_at(address).map(source_function);
                (Some(module), address, call.map(|function| ResolvedFunctions::from([function])))
            }
            CallSite::In(id, address) => match self.modules.get(&id) {
                Some(module) => {
                    let of = |names: &cache::CachedModules, key: &[u8]| {
                        let functions = names.get(key).and_then(|names| names.get(&address)).cloned();
                        functions.filter(|functions| !functions.is_empty())
                    };
                    let own = of(&self.names, &module.key);
                    came_along = own.is_none();
                    let functions = own.or_else(|| of(&self.bundled, &module.bundle_key));
                    (Some(module.first_position), address, functions)
                }
                None => (Some(id), address, None),
            },
        };
        let functions: ResolvedFunctions = functions.unwrap_or_default();
        let mut frames: Vec<SymbolFrame> = Vec::with_capacity(functions.len().max(1));
        for function in &functions {
            let file = function.file.as_ref().map(|file| self.file_id(file));
            let id = self.function_id(trace, module, address, function, file.filter(|_| came_along));
            frames.push(SymbolFrame { function: id, file, line: function.line, inlined: function.inlined });
        }
        if frames.is_empty() {
            let function = self.function_id(trace, module, address, &resolve::ResolvedFunction::default(), None);
            frames.push(SymbolFrame { function, file: None, line: None, inlined: false });
        }
        self.place_frames(location, frames);
    }

    fn place_frames(&mut self, location: LocationId, frames: Vec<SymbolFrame>) {
        let index = location as usize;
        if self.locations.len() <= index {
            self.locations.resize(index + 1, None);
        }
        self.locations[index] = Some(frames.into_boxed_slice());
    }

    fn bundled_of_no_module(&self, address: u64) -> Option<&ResolvedFunctions> {
        self.bundled.get(bundle::NO_MODULE)?.get(&address)
    }

    /// What a perf map says of an address, as it is in the map; `None` if none says anything.
    pub(super) fn generated_text(&self, address: u64) -> Option<Arc<str>> {
        if let Some(text) = self.logged.find(address).or_else(|| self.jit.find(address)) {
            return Some(text);
        }
        // Names of other code that came along have files and lines of their own.
        match self.bundled_of_no_module(address).map(AsRef::as_ref) {
            Some([function]) if function.file.is_none() && function.declared.is_none() => function.name.clone(),
            _ => None,
        }
    }

    /// The frame of a generated function. A perf map has no lines of calls: the function's stands for them.
    fn generated_frame(&mut self, generated: &GeneratedFunction) -> SymbolFrame {
        let file = generated.place.as_ref().map(|place| self.file_id(&place.file));
        let line = generated.place.as_ref().and_then(|place| place.line);
        let origin = generated.place.clone().map_or(Declaration::Unknown, Declaration::Generated);
        let key = FunctionKey::Named(None, Arc::clone(&generated.name), origin);
        let next = self.functions.len() as FunctionId;
        let function = *self.function_ids.entry(key).or_insert(next);
        if function == next {
            self.functions.push(FunctionFacts {
                name: Some(Arc::clone(&generated.name)),
                fallback: Arc::clone(&generated.name),
                module: None,
                file,
                line,
                kind: generated.kind,
                language: generated.language,
            });
        }
        SymbolFrame { function, file, line, inlined: false }
    }

    /// The frame of an interpreted method. It is the function that it is where it was compiled.
    fn method_frame(&mut self, call: SourceCall<'_>) -> SymbolFrame {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut frame = self.generated_frame(&GeneratedFunction::of_method(text(&call.code.function)));
        let line = |line: u32| Some(line).filter(|&line| line > 0);
        if !call.code.file.is_empty() {
            let file = self.file_id(&text(&call.code.file).into());
            (frame.file, frame.line) = (Some(file), line(call.line));
            // Where it was compiled, nothing says where its source is.
            if let Some(function) = self.functions.get_mut(frame.function as usize).filter(|facts| facts.file.is_none())
            {
                (function.file, function.line) = (Some(file), line(call.code.first_line));
            }
        }
        frame
    }

    /// Kind and language of a function of a module.
    fn code_of(
        &self,
        trace: &Trace,
        module: Option<u32>,
        name: Option<&str>,
        file: Option<&str>,
    ) -> (CodeKind, Option<SourceLanguage>) {
        let located = module.and_then(|module| self.modules.get(&module));
        let recorded = module.and_then(|module| trace.modules().get(module as usize));
        let path = recorded.map_or("".into(), |module| String::from_utf8_lossy(&module.path));
        let is_interpreter = module.is_some_and(|module| trace.interpreter().has_module(module));
        let is_of = |runtime| located.is_some_and(|known| known.located.runtime == Some(runtime));
        let kind = match CodeKind::of(name, file, located.map(|known| &*known.name)).in_module(&path) {
            CodeKind::Program if is_interpreter => CodeKind::Library,
            kind if is_of(Runtime::Node) => kind.in_node(),
            kind if is_of(Runtime::Go) => kind.in_go(name),
            kind => kind,
        };
        let language = if recorded.is_some_and(ModuleFacts::is_interpreted) {
            Some(SourceLanguage::Python)
        } else if is_of(Runtime::Go) {
            SourceLanguage::in_go_module(name, file)
        } else {
            SourceLanguage::of(name, file)
        };
        (kind, language)
    }

    /// The id of a function at an address. `calls` is the file of its calls, if that is to tell it from others.
    fn function_id(
        &mut self,
        trace: &Trace,
        module: Option<u32>,
        address: u64,
        function: &resolve::ResolvedFunction,
        calls: Option<FileId>,
    ) -> FunctionId {
        let origin = match (&function.declared, function.start, calls) {
            (Some((file, line)), ..) => Declaration::Declared(without_parents(file), *line),
            (None, Some(start), _) => Declaration::Start(start),
            (None, None, Some(file)) => Declaration::Calls(file),
            (None, None, None) => Declaration::Unknown,
        };
        let key = match &function.name {
            Some(name) => FunctionKey::Named(module, Arc::clone(name), origin),
            None => FunctionKey::Unknown(module, address),
        };
        let next = self.functions.len() as FunctionId;
        let id = *self.function_ids.entry(key).or_insert(next);
        if id == next {
            let name = function.name.clone();
            let fallback = name.clone().unwrap_or_else(|| format!("{:#x}", address.wrapping_add(1)).into());
            let declared = function.declared.as_ref();
            let file = declared.map(|(file, _)| file).or(function.file.as_ref());
            let (kind, language) = match (&name, file) {
                // Of code without names there can be very much.
                (None, None) => match self.nameless.get(&module) {
                    Some(&known) => known,
                    None => {
                        let found = self.code_of(trace, module, None, None);
                        self.nameless.insert(module, found);
                        found
                    }
                },
                _ => self.code_of(trace, module, name.as_deref(), file.map(|file| &**file)),
            };
            let line = declared.map(|&(_, line)| line).filter(|&line| line > 0);
            let file = declared.map(|(file, _)| self.file_id(file));
            self.starts.extend(function.start.map(|start| (id, start)));
            self.functions.push(FunctionFacts { name, fallback, module, file, line, kind, language });
        }
        id
    }

    fn file_id(&mut self, file: &Arc<str>) -> FileId {
        let next = self.files.len() as FileId;
        let id = *self.file_ids.entry(Arc::clone(file)).or_insert(next);
        if id == next {
            self.files.push(Arc::clone(file));
        }
        id
    }
}

/// Whether a JVM is in the process, whose own generated code has names that others' functions could have, too.
fn has_jvm(trace: &Trace) -> bool {
    trace.modules().iter().any(ModuleFacts::is_jvm)
}

/// A call in an interpreted language as other calls are.
fn source_function(call: SourceCall<'_>) -> resolve::ResolvedFunction {
    let text = |bytes: &[u8]| -> Arc<str> { String::from_utf8_lossy(bytes).into() };
    let file = text(&call.code.file);
    resolve::ResolvedFunction {
        name: Some(text(&call.code.function)),
        line: Some(call.line),
        declared: Some((Arc::clone(&file), call.code.first_line)),
        file: Some(file),
        ..resolve::ResolvedFunction::default()
    }
}

/// A path without `..` where that is known without asking the file system.
fn without_parents(path: &str) -> String {
    let mut plain = std::path::PathBuf::new();
    for component in std::path::Path::new(path).components() {
        let is_name = |path: &std::path::Path| matches!(path.components().next_back(), Some(Component::Normal(_)));
        if component != Component::ParentDir || !is_name(&plain) {
            plain.push(component);
        } else {
            plain.pop();
        }
    }
    plain.to_string_lossy().into_owned()
}

/// What must be the same for names to be the same: the recorded file, and the file that they were read from.
fn cache_key(module: &ModuleFacts, located: &SymbolFiles) -> Arc<[u8]> {
    let mut key = module.build_id.clone();
    key.push(0);
    key.extend_from_slice(&module.path);
    key.push(0);
    match &located.source {
        None => {}
        Some(SymbolFile::Vdso) => key.push(1),
        Some(SymbolFile::File { path, identity }) => {
            key.extend_from_slice(path.as_os_str().as_encoded_bytes());
            key.extend(identity.iter().flat_map(|word| word.to_le_bytes()));
        }
    }
    key.into()
}

/// The call at a return address, if it is one in an interpreted method of Java.
pub(super) fn method_call(trace: &Trace, address: u64) -> Option<SourceCall<'_>> {
    trace.interpreted().call_at(address).filter(|call| call.code.language == JAVA)
}

/// What was at a return address during one interval, if several pieces of code were there one after the other.
pub(super) fn version_text(trace: &Trace, address: u64) -> Option<Arc<str>> {
    let call = trace.interpreted().call_at(address).filter(|call| call.code.language == GENERATED)?;
    (!call.code.function.is_empty()).then(|| String::from_utf8_lossy(&call.code.function).into())
}

/// Where the call of a location is: just before the return address, in the file of the module that contains it.
pub(super) fn place(trace: &Trace, location: LocationId) -> CallSite {
    let found = trace.location(location);
    let address = found.pc.wrapping_sub(1);
    let module = found.module.and_then(|position| Some((position, trace.modules().get(position as usize)?)));
    let segment = module.and_then(|(position, module)| {
        let segment = module.segments.iter().find(|segment| address.wrapping_sub(segment.start) < segment.len)?;
        Some((position, segment))
    });
    match segment {
        Some((position, _)) if trace.modules().get(position as usize).is_some_and(ModuleFacts::is_interpreted) => {
            CallSite::Source(position, address)
        }
        Some((position, segment)) => CallSite::In(position, (address - segment.start).wrapping_add(segment.vaddr)),
        None => CallSite::Nowhere(address),
    }
}
