//! Frames that are left out where only the program's functions are shown: the runtime's own between functions in the language
//! that it runs. What a function of the program calls in native code, down to the allocator, always stays.
//!
//! | runtime | left out | where |
//! |---|---|---|
//! | Python | the modules that run Python's functions, its trampolines for perf | around Python's functions, and outside of them |
//! | V8 | functions of `v8::`, built-in functions, code without a language | between two functions in JavaScript |
//! | the JVM | `libjvm.so`, code without a language: stubs, the interpreter | between two methods |
//!
//! What is V8's is known by its name. Functions of native modules and libraries stay wherever they are, and so does code that
//! nobody has a name for.

use std::collections::HashSet;

use super::Trace;
use super::cancel::Cancel;
use super::facts::ModuleFacts;
use super::language::SourceLanguage;
use super::program;
use super::symbols::{LocationId, RecordingSymbols, SymbolFrame};

/// Role of a frame in the runtime of the program's language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeRole {
    /// A function in the language.
    Function,
    /// The runtime's own, left out of stacks in which a function is further inside.
    Own,
    /// Neither: always shown.
    Other,
}

/// By node of the call tree: its role. Empty where all are others.
#[derive(Debug, Default)]
pub struct FoldedFrames(Vec<RuntimeRole>);

impl FoldedFrames {
    pub(crate) fn find(trace: &Trace, symbols: &dyn RecordingSymbols) -> Self {
        let mut roles = Vec::new();
        if !trace.interpreted().is_empty() {
            roles = python_roles(trace, symbols);
        }
        if let Some(generated) = generated_roles(trace, symbols) {
            roles.resize(generated.len(), RuntimeRole::Other);
            for (role, other) in roles.iter_mut().zip(generated) {
                if *role == RuntimeRole::Other {
                    *role = other;
                }
            }
        }
        Self(roles)
    }

    /// The role of a node.
    #[inline]
    #[must_use]
    pub fn role(&self, node: u32) -> RuntimeRole {
        self.0.get(node as usize).copied().unwrap_or(RuntimeRole::Other)
    }

    /// Whether no frame is left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn python_roles(trace: &Trace, symbols: &dyn RecordingSymbols) -> Vec<RuntimeRole> {
    let is_python: Vec<bool> = trace.modules().iter().map(ModuleFacts::is_interpreted).collect();
    let generated = generated_locations(trace);
    make_ready(trace, symbols, &generated);
    let mut names = PlaceNames { trace, symbols, levels: Vec::new() };
    let trampolines: HashSet<LocationId> = generated.into_iter().filter(|&id| names.is_pythons_own(id)).collect();
    let role = |node: u32| {
        let location = trace.node_location(node);
        match location.and_then(|location| trace.location(location).module) {
            None if location.is_some_and(|location| trampolines.contains(&location)) => RuntimeRole::Own,
            Some(module) if is_python.get(module as usize) == Some(&true) => RuntimeRole::Function,
            Some(module) if trace.interpreter().has_module(module) => RuntimeRole::Own,
            _ => RuntimeRole::Other,
        }
    };
    (0..trace.node_count()).map(role).collect()
}

/// Places in no module.
fn generated_locations(trace: &Trace) -> Vec<LocationId> {
    (0..trace.location_count()).filter(|&id| trace.location(id).module.is_none()).collect()
}

/// `None` in recordings without functions that were generated.
fn generated_roles(trace: &Trace, symbols: &dyn RecordingSymbols) -> Option<Vec<RuntimeRole>> {
    let generated = generated_locations(trace);
    make_ready(trace, symbols, &generated);
    let mut names = PlaceNames { trace, symbols, levels: Vec::new() };
    let mut roles = vec![RuntimeRole::Other; trace.location_count() as usize];
    for id in generated {
        roles[id as usize] = names.role(id);
    }
    if !roles.contains(&RuntimeRole::Function) {
        return None;
    }

    let role = |roles: &[RuntimeRole], node: u32| {
        let location = trace.node_location(node);
        location.and_then(|id| roles.get(id as usize).copied()).unwrap_or(RuntimeRole::Other)
    };
    let is_function = |node: u32| role(&roles, node) == RuntimeRole::Function;
    let inside = calling(trace, is_function);
    let outside = called_by(trace, is_function);
    // Names of modules' functions are made for those alone that may be between two.
    let is_between = |node: u32| inside[node as usize] && outside[node as usize];
    let mut of_modules: Vec<LocationId> = (1..trace.node_count())
        .filter(|&node| is_between(node))
        .filter_map(|node| trace.node_location(node))
        .filter(|&id| trace.location(id).module.is_some())
        .collect();
    of_modules.sort_unstable();
    of_modules.dedup();
    make_ready(trace, symbols, &of_modules);
    for id in of_modules {
        roles[id as usize] = names.role(id);
    }
    let of_node = |node: u32| match role(&roles, node) {
        RuntimeRole::Own if !is_between(node) => RuntimeRole::Other,
        role => role,
    };
    Some((0..trace.node_count()).map(of_node).collect())
}

/// By node: whether it is an outer caller, at any distance, of such a node.
fn calling(trace: &Trace, is_such: impl Fn(u32) -> bool) -> Vec<bool> {
    let mut marks = vec![false; trace.node_count().max(1) as usize];
    // A parent may have any number, but most have a smaller one. Each path is followed up to the first marked node.
    for node in (1..trace.node_count()).filter(|&node| is_such(node)) {
        for outer in trace.stack(trace.nodes().parent(node)) {
            match marks.get_mut(outer as usize) {
                Some(mark) if !*mark => *mark = true,
                _ => break,
            }
        }
    }
    marks
}

/// By node: whether such a node is an outer caller of it, at any distance.
fn called_by(trace: &Trace, is_such: impl Fn(u32) -> bool) -> Vec<bool> {
    let mut known: Vec<Option<bool>> = vec![None; trace.node_count().max(1) as usize];
    known[0] = Some(false);
    let mut path = Vec::new();
    for node in 1..trace.node_count() {
        let mut at = node;
        let mut is_below = loop {
            match known.get(at as usize).copied() {
                Some(Some(is_below)) => break is_below || at != 0 && is_such(at),
                Some(None) => path.push(at),
                None => break false,
            }
            at = trace.nodes().parent(at);
        };
        while let Some(node) = path.pop() {
            known[node as usize] = Some(is_below);
            is_below |= is_such(node);
        }
    }
    known.into_iter().map(|is_below| is_below == Some(true)).collect()
}

/// Resolves names that every stack needs. Not cancellable.
fn make_ready(trace: &Trace, symbols: &dyn RecordingSymbols, locations: &[LocationId]) {
    let _ = symbols.resolve(trace, locations, &Cancel::new());
}

struct PlaceNames<'a> {
    trace: &'a Trace,
    symbols: &'a dyn RecordingSymbols,
    levels: Vec<SymbolFrame>,
}

impl PlaceNames<'_> {
    /// Whether a place in no module is code that Python makes for perf to see its functions by.
    fn is_pythons_own(&mut self, id: LocationId) -> bool {
        self.levels.clear();
        self.symbols.frames(self.trace, id, &mut self.levels);
        let is_own = |level: &SymbolFrame| {
            let function = self.symbols.function(level.function);
            function.language.is_none()
                && function.name.is_some_and(|name| name.starts_with(program::PYTHON_TRAMPOLINE))
        };
        !self.levels.is_empty() && self.levels.iter().all(is_own)
    }

    fn role(&mut self, id: LocationId) -> RuntimeRole {
        let module = self.trace.location(id).module;
        let module = module.and_then(|position| self.trace.modules().get(position as usize));
        if module.is_some_and(ModuleFacts::is_jvm) {
            return RuntimeRole::Own;
        }
        self.levels.clear();
        self.symbols.frames(self.trace, id, &mut self.levels);
        let mut is_own = !self.levels.is_empty();
        for level in &self.levels {
            let function = self.symbols.function(level.function);
            is_own &= match (&function.name, module) {
                (None, _) => false,
                (Some(name), Some(_)) => program::is_of_v8(name),
                (Some(_), None) => match function.language {
                    Some(SourceLanguage::JavaScript | SourceLanguage::Java) => return RuntimeRole::Function,
                    Some(_) => false,
                    None => function.kind.is_library(),
                },
            };
        }
        if is_own { RuntimeRole::Own } else { RuntimeRole::Other }
    }
}
