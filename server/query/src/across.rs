//! Names of functions across recordings. Addresses and lines differ from one build to the next, so names and
//! modules tell functions apart; where several functions of a recording share both, their files do, and their order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::Result;
use super::diff::{BacktraceIdentity, Side};
use tracehound_index::Cancel;
use tracehound_index::symbols::{FunctionId, LocationId};

/// The functions of several recordings that share their names with others.
pub struct Across {
    /// By side: what is put behind the name of a function, if it shares it with others.
    labels: Vec<HashMap<FunctionId, String>>,
}

/// A name and a module.
type Called = (Arc<str>, Option<u32>);

/// Functions of one side that share a name and a module, each with the place of its declaration.
type Namesakes = Vec<(Option<Arc<str>>, Option<u32>, FunctionId)>;

impl Across {
    /// Compares all functions of the sides.
    ///
    /// # Errors
    /// When cancelled.
    pub fn new(sides: &[Side<'_>], cancel: &Cancel) -> Result<Self> {
        let mut all: Vec<HashMap<Called, Namesakes>> = Vec::with_capacity(sides.len());
        let mut shared: HashSet<(Arc<str>, Option<String>)> = HashSet::new();
        for side in sides {
            let named = namesakes(*side, cancel)?;
            let several = named.iter().filter(|(_, functions)| functions.len() > 1);
            shared.extend(several.map(|((name, module), _)| (Arc::clone(name), side.module(*module))));
            all.push(named);
        }
        let mut labels = Vec::with_capacity(sides.len());
        for (side, named) in sides.iter().zip(all) {
            let is_shared = |(name, module): &Called| shared.contains(&(Arc::clone(name), side.module(*module)));
            let of_side = named.into_iter().filter(|(called, _)| is_shared(called));
            labels.push(of_side.flat_map(|(_, functions)| tell_apart(functions)).collect());
        }
        Ok(Self { labels })
    }

    /// Suffix that distinguishes a function of a side from others of its name; empty if there are none.
    #[must_use]
    pub fn label(&self, side: usize, function: FunctionId) -> &str {
        self.labels.get(side).and_then(|labels| labels.get(&function)).map_or("", String::as_str)
    }

    /// Identity of a backtrace of a side.
    #[must_use]
    pub fn path(&self, at: usize, side: Side<'_>, node: u32) -> BacktraceIdentity {
        let mut levels = Vec::new();
        for location in side.trace.stack(node).filter_map(|node| side.trace.node_location(node)) {
            side.symbols.frames(side.trace, location, &mut levels);
        }
        let called = levels.iter().map(|level| {
            let function = side.symbols.function(level.function);
            // Code without a name cannot be told apart by its addresses, which differ.
            let name = function.name.map(|name| format!("{name}{}", self.label(at, level.function)));
            (name, side.module(function.module))
        });
        called.collect()
    }
}

impl Side<'_> {
    /// File name of a module.
    fn module(&self, module: Option<u32>) -> Option<String> {
        module.and_then(|m| self.trace.modules().get(m as usize)).map(|m| m.name())
    }
}

fn namesakes(side: Side<'_>, cancel: &Cancel) -> Result<HashMap<Called, Namesakes>> {
    let all: Vec<LocationId> = (0..side.trace.location_count()).collect();
    side.symbols.resolve(side.trace, &all, cancel)?;
    let mut seen = HashSet::new();
    let mut levels = Vec::new();
    let mut named: HashMap<Called, Namesakes> = HashMap::new();
    for location in all {
        levels.clear();
        side.symbols.frames(side.trace, location, &mut levels);
        for level in levels.iter().filter(|level| seen.insert(level.function)) {
            let function = side.symbols.function(level.function);
            let Some(name) = function.name.clone() else { continue };
            let (file, line) = function.place(level);
            let file = file.map(|file| side.symbols.file(file));
            named.entry((name, function.module)).or_default().push((file, line, level.function));
        }
    }
    Ok(named)
}

/// The last folders and the name of each file, as far as they differ; for several functions in a file their order.
fn tell_apart(mut functions: Namesakes) -> Vec<(FunctionId, String)> {
    functions.sort();
    let mut in_file: BTreeMap<Option<Arc<str>>, Vec<FunctionId>> = BTreeMap::new();
    for (file, _, id) in functions {
        in_file.entry(file).or_default().push(id);
    }
    let files: Vec<Option<Arc<str>>> = in_file.keys().cloned().collect();
    let mut labels = Vec::new();
    for (file, ids) in in_file {
        let file = file.map_or_else(String::new, |file| distinct_end(&file, &files));
        for (number, id) in ids.into_iter().enumerate() {
            let order = if number == 0 { String::new() } else { format!("#{number}") };
            labels.push((id, format!("\0{file}{order}")));
        }
    }
    labels
}

/// The shortest end of a path that no other path has.
fn distinct_end(path: &str, all: &[Option<Arc<str>>]) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let ends_with = |other: &str, end: &[&str]| other.split('/').rev().zip(end.iter().rev()).all(|(a, b)| a == *b);
    for count in 1..parts.len() {
        let end = &parts[parts.len() - count..];
        if !all.iter().flatten().any(|other| **other != *path && ends_with(other, end)) {
            return end.join("/");
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_as_little_as_does() {
        let all = ["/x/a/init.c", "/x/b/init.c", "/x/b/other.c"].map(|path| Some(Arc::from(path)));
        assert_eq!(distinct_end("/x/a/init.c", &all), "a/init.c");
        assert_eq!(distinct_end("/x/b/init.c", &all), "b/init.c");
        assert_eq!(distinct_end("/x/b/other.c", &all), "other.c");
        let functions = vec![
            (Some(Arc::from("/x/a.c")), Some(30), 7),
            (Some(Arc::from("/x/a.c")), Some(4), 8),
            (Some(Arc::from("/x/b.c")), Some(1), 9),
            (None, None, 10),
        ];
        let labels: HashMap<_, _> = tell_apart(functions).into_iter().collect();
        assert_eq!((&*labels[&8], &*labels[&7], &*labels[&9], &*labels[&10]), ("\0a.c", "\0a.c#1", "\0b.c", "\0"));
    }
}
