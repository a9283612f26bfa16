//! From addresses of one file to functions, lines and inlined callers.
//!
//! blazesym does the work. It gives up on a symbol whose name is not UTF-8, and on a file whose debug information is
//! damaged; then the plain symbol table answers, read here. A file that makes it panic costs that file's names only.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source as BlazeSource};
use blazesym::symbolize::{CodeInfo, Input, Reason, Symbolized, Symbolizer};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, SymbolKind};

use super::locate::{self, Source};

/// One function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Demangled; `None` where only the line is known.
    pub name: Option<Arc<str>>,
    /// Source file, as the debug information has it.
    pub file: Option<Arc<str>>,
    /// Line of the call.
    pub line: Option<u32>,
    /// It was inlined into the next one.
    pub inlined: bool,
}

/// The functions at an address, innermost first; empty if nothing is known.
pub type Functions = Box<[Function]>;

/// Addresses that one job should look up. Opening a file costs as much as some thousand addresses of it.
pub const BATCH: usize = 4096;

/// Looks `addresses` (as in the file, sorted) up; the answer has their order.
pub fn resolve(source: &Source, addresses: &[u64]) -> Vec<Functions> {
    match source {
        Source::Vdso => {
            let bytes = locate::vdso_bytes().unwrap_or_default();
            let table = SymbolTable::parse(&bytes);
            addresses.iter().map(|&address| table.functions(address)).collect()
        }
        Source::File { path, .. } => resolve_in_file(path, addresses),
    }
}

fn resolve_in_file(path: &Path, addresses: &[u64]) -> Vec<Functions> {
    let answer = quietly(|| with_debug_information(path, addresses, true))
        .or_else(|| quietly(|| with_debug_information(path, addresses, false)));
    let mut answer = answer.unwrap_or_else(|| vec![None; addresses.len()]);
    if answer.iter().any(Option::is_none) {
        let map = locate::map(path).ok().flatten();
        let table = SymbolTable::parse(map.as_ref().map_or(&[], |(map, _)| map));
        for (functions, &address) in answer.iter_mut().zip(addresses) {
            functions.get_or_insert_with(|| table.functions(address));
        }
    }
    answer.into_iter().map(Option::unwrap_or_default).collect()
}

/// `None` at an address where blazesym met an error; `None` altogether if it cannot use the file.
fn with_debug_information(path: &Path, addresses: &[u64], debug: bool) -> Option<Vec<Option<Functions>>> {
    let symbolizer = Symbolizer::builder().enable_auto_reload(false).build();
    let mut elf = Elf::new(path);
    elf.debug_syms = debug;
    let found = symbolizer.symbolize(&BlazeSource::Elf(elf), Input::VirtOffset(addresses)).ok()?;
    let mut strings = Strings::default();
    let functions = found.into_iter().map(|found| match found {
        Symbolized::Unknown(Reason::IgnoredError) => None,
        Symbolized::Unknown(_) => Some(Functions::default()),
        Symbolized::Sym(symbol) if symbol.name.is_empty() => None,
        Symbolized::Sym(symbol) => {
            // Outermost first, each with the line inside it.
            let outer = [(&symbol.name, symbol.code_info.as_deref())];
            let inner = symbol.inlined.iter().map(|inlined| (&inlined.name, inlined.code_info.as_ref()));
            let count = symbol.inlined.len();
            let mut functions: Vec<Function> = outer
                .into_iter()
                .chain(inner)
                .enumerate()
                .map(|(i, (name, code))| Function {
                    name: (!name.is_empty()).then(|| strings.intern(name)),
                    file: code.map(|code| strings.intern(&path_of(code))),
                    line: code.and_then(|code| code.line).filter(|&line| line > 0),
                    inlined: i > 0,
                })
                .collect();
            debug_assert_eq!(functions.len(), count + 1);
            functions.reverse();
            Some(functions.into_boxed_slice())
        }
    });
    Some(functions.collect())
}

fn path_of(code: &CodeInfo<'_>) -> String {
    // Collecting components drops `.` and doubled slashes but keeps `..`, which may lead through symbolic links.
    let path: std::path::PathBuf = code.to_path().components().collect();
    path.to_string_lossy().into_owned()
}

/// Runs `f`; a panic in it is `None`, without a message on standard error.
fn quietly<T>(f: impl FnOnce() -> Option<T>) -> Option<T> {
    super::QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    super::QUIET.set(false);
    result.ok().flatten()
}

/// Equal strings are kept once.
#[derive(Default)]
struct Strings(HashMap<Box<str>, Arc<str>>);

impl Strings {
    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.0.insert(text.into(), Arc::clone(&new));
        new
    }
}

/// The functions of an ELF file's symbol tables: (start, end, name), by start.
struct SymbolTable<'a>(Vec<(u64, u64, &'a [u8])>);

impl<'a> SymbolTable<'a> {
    fn parse(bytes: &'a [u8]) -> Self {
        let Ok(elf) = ElfFile64::<Endianness>::parse(bytes) else { return Self(Vec::new()) };
        let mut symbols: Vec<(u64, u64, &[u8])> = elf
            .symbols()
            .chain(elf.dynamic_symbols())
            .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text && symbol.size() > 0)
            .filter_map(|symbol| {
                let name = symbol.name_bytes().ok().filter(|name| !name.is_empty())?;
                Some((symbol.address(), symbol.address().checked_add(symbol.size())?, name))
            })
            .collect();
        symbols.sort_by_key(|&(start, ..)| start);
        Self(symbols)
    }

    fn functions(&self, address: u64) -> Functions {
        let after = self.0.partition_point(|&(start, ..)| start <= address);
        let containing = self.0[..after].iter().rev().take(16).find(|&&(_, end, _)| address < end);
        containing.map_or_else(Functions::default, |&(.., name)| {
            let name = Some(String::from_utf8_lossy(name).into());
            [Function { name, file: None, line: None, inlined: false }].into()
        })
    }
}
