//! From addresses of one file to functions, lines and inlined callers.
//!
//! `addr2line` finds which functions an address lies in; what they are called and where they are declared is read from
//! their entries ([`super::function_die`]). What debug information does not name, the symbol tables do, and where it is
//! damaged they answer alone. A file that makes a parser panic costs that file's names only.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{Dwarf, UnitRef};
use tracehound_index::cancel::{Cancel, Cancelled};

use super::demangle::{demangle, is_mangled, without_clone_suffix};
use super::function_die::{Described, FunctionDies};
use super::locate::{self, SymbolFile};
use super::object_file::{ObjectFile, R};
use super::search_paths::chosen;
use super::table::{SymbolTable, TableSymbol};

/// One function at an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedFunction {
    /// Demangled; `None` where only the line is known.
    pub name: Option<Arc<str>>,
    /// Source file of the call, as the debug information has it.
    pub file: Option<Arc<str>>,
    /// Line of the call.
    pub line: Option<u32>,
    /// It was inlined into the next one.
    pub inlined: bool,
    /// Source file and line of its declaration; line 0: not known.
    pub declared: Option<(Arc<str>, u32)>,
    /// Its first address, where nothing else tells it from others of its name.
    pub start: Option<u64>,
}

/// The functions at an address, innermost first; empty if nothing is known.
pub type ResolvedFunctions = Box<[ResolvedFunction]>;

/// Addresses that one job should look up at least. Reading what a file has costs as much as some thousand addresses.
pub const BATCH: usize = 4096;

/// Addresses between two looks at the cancel flag.
const CHECK: usize = 256;

/// A source of names that was opened.
pub struct OpenedSymbols(Option<Contents>);

enum Contents {
    File(ObjectFile),
    Vdso(Vec<u8>),
}

impl OpenedSymbols {
    /// Opens a source; one that cannot be read has no names.
    pub fn new(source: &SymbolFile) -> Self {
        Self(match source {
            SymbolFile::Vdso => locate::vdso_bytes().map(Contents::Vdso),
            SymbolFile::File { path, .. } => quietly(|| ObjectFile::open(path)).map(Contents::File),
        })
    }

    /// Looks `addresses` (as in the file, sorted) up; the answer has their order.
    ///
    /// # Errors
    /// When cancelled.
    pub fn resolve(&self, addresses: &[u64], cancel: &Cancel) -> Result<Vec<ResolvedFunctions>, Cancelled> {
        let (table, file) = match &self.0 {
            None => return Ok(vec![ResolvedFunctions::default(); addresses.len()]),
            Some(Contents::Vdso(bytes)) => (SymbolTable::parse(bytes, &[]), None),
            Some(Contents::File(file)) => (SymbolTable::parse(file.bytes(), file.mini_debug_info()), Some(file)),
        };
        let mut strings = InternedStrings::default();
        let found = file.and_then(|file| quietly(|| Some(with_debug_information(file, &table, addresses, cancel))));
        let found = found.transpose()?.unwrap_or_else(|| vec![None; addresses.len()]);
        let by_table = |(functions, &address): (Option<ResolvedFunctions>, &u64)| {
            functions.unwrap_or_else(|| from_table(&table, address, &mut strings))
        };
        Ok(found.into_iter().zip(addresses).map(by_table).collect())
    }
}

/// The functions by the symbol tables alone.
fn from_table(table: &SymbolTable<'_>, address: u64, strings: &mut InternedStrings) -> ResolvedFunctions {
    let Some(symbol) = table.at(address).first() else { return ResolvedFunctions::default() };
    let repeated = table.is_repeated(symbol);
    let file = symbol.file.filter(|_| repeated).map(|file| strings.intern(&String::from_utf8_lossy(file)));
    let name = strings.of_symbol(symbol, || Some(demangle(&String::from_utf8_lossy(symbol.name)).into_owned()));
    [ResolvedFunction { name, file, start: repeated.then_some(symbol.start), ..ResolvedFunction::default() }].into()
}

/// `None` at an address that the debug information says nothing about, or something that cannot be read.
fn with_debug_information(
    file: &ObjectFile,
    table: &SymbolTable<'_>,
    addresses: &[u64],
    cancel: &Cancel,
) -> Result<Vec<Option<ResolvedFunctions>>, Cancelled> {
    let package = file.package();
    let split = if file.has_split_units() { split_units(file, package.as_ref(), addresses) } else { HashMap::new() };
    let Some((context, dwarf)) = context(file) else { return Ok(vec![None; addresses.len()]) };
    let dies = FunctionDies::new(&dwarf);
    let lookup = Lookup { context: &context, dies, table, split: &split, package: package.as_ref() };
    let mut strings = InternedStrings::default();
    let mut found = Vec::with_capacity(addresses.len());
    for (i, &address) in addresses.iter().enumerate() {
        if i % CHECK == 0 {
            cancel.check()?;
        }
        found.push(lookup.functions(address, &mut strings).ok().flatten());
    }
    Ok(found)
}

type Sections<'c> = Arc<Dwarf<R<'c>>>;

fn context(file: &ObjectFile) -> Option<(Context<R<'_>>, Sections<'_>)> {
    let mut dwarf = file.dwarf();
    dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
    let dwarf = Arc::new(dwarf);
    if let Ok(context) = Context::from_arc_dwarf(Arc::clone(&dwarf)) {
        return Some((context, dwarf));
    }
    // A damaged index of addresses is no loss: the units have the same data.
    let dwarf = Arc::new(Dwarf { debug_aranges: gimli::DebugAranges::default(), ..file.dwarf() });
    Some((Context::from_arc_dwarf(Arc::clone(&dwarf)).ok()?, dwarf))
}

/// Opens the files of `-gsplit-dwarf` that have the units of these addresses, by the number that the units go by.
fn split_units(
    file: &ObjectFile,
    package: Option<&gimli::DwarfPackage<R<'_>>>,
    addresses: &[u64],
) -> HashMap<u64, ObjectFile> {
    let mut files = HashMap::new();
    let Some((context, _)) = context(file) else { return files };
    let mut seen = std::collections::HashSet::new();
    for &address in addresses {
        for (load, _) in context.preload_units(address) {
            let packed = || package.and_then(|package| package.find_cu(load.dwo_id, &load.parent).ok().flatten());
            if !seen.insert(load.dwo_id.0) || packed().is_some() {
                continue;
            }
            let text = |text: Option<R<'_>>| text.map(|text| String::from_utf8_lossy(text.slice()).into_owned());
            let path: PathBuf = [text(load.comp_dir), text(load.path)].into_iter().flatten().collect();
            // Beside the program as well: what was built elsewhere was brought along, if at all.
            let beside = || Some(file.path().with_file_name(path.file_name()?));
            let candidates = [Some(chosen().local(&path)), beside()];
            let unit = candidates.into_iter().flatten().find_map(|path| ObjectFile::open_alone(&path));
            files.extend(unit.map(|unit| (load.dwo_id.0, unit)));
        }
    }
    files
}

/// How addresses of one file are looked up.
struct Lookup<'d, 'c, 't> {
    context: &'d Context<R<'c>>,
    dies: FunctionDies<'d, 'c>,
    table: &'d SymbolTable<'t>,
    split: &'c HashMap<u64, ObjectFile>,
    package: Option<&'d gimli::DwarfPackage<R<'c>>>,
}

impl<'d, 'c: 'd> Lookup<'d, 'c, '_> {
    fn functions(&self, address: u64, strings: &mut InternedStrings) -> gimli::Result<Option<ResolvedFunctions>> {
        let mut frames = self.finish(self.context.find_frames(address))?;
        let mut functions = Vec::new();
        let mut outermost = None;
        let mut unit = None;
        while let Some(frame) = frames.next()? {
            let described = frame.dw_die_offset.and_then(|offset| {
                let unit: &Option<UnitRef<'d, R<'c>>> = unit.get_or_insert_with(|| self.unit(address));
                self.dies.describe((*unit)?, offset)
            });
            let location = frame.location;
            let file = location.as_ref().and_then(|at| at.file).map(|file| plain_path(Path::new(file)));
            let file = file.map(|file| strings.intern(&file));
            let declared = described.as_ref().and_then(|of| match &of.declared {
                Some((file, line)) => Some((strings.intern(file), *line)),
                // With lines alone, functions have a name and no place, and share names such as `new`. Their own file
                // is known all the same: it is that of their lines.
                None => file.clone().filter(|_| of.linkage.is_none() && of.plain.is_some()).map(|file| (file, 0)),
            });
            functions.push(ResolvedFunction {
                name: described.as_ref().and_then(|of| of.full.as_deref()).map(|name| strings.intern(name)),
                file,
                line: location.and_then(|at| at.line).filter(|&line| line > 0),
                inlined: true,
                declared,
                start: None,
            });
            outermost = described;
        }
        let Some(function) = functions.last_mut() else { return Ok(None) };
        function.inlined = false;
        // How far a symbol without a size reaches is a heuristic; debug information is exact.
        let symbol = self.table.at(address).first();
        if let Some(symbol) = symbol.filter(|symbol| outermost.is_none() || symbol.is_sized()) {
            let name = || name_by_table(outermost.as_deref(), self.table.at(address));
            if let Some(name) = strings.of_symbol(symbol, name) {
                let in_source = outermost.as_ref().and_then(|of| of.plain.as_deref()) == Some(&*name);
                if function.declared.as_ref().is_some_and(|&(_, line)| line == 0) && !in_source {
                    // A mangled name identifies the function by itself.
                    function.declared = None;
                }
                function.name = Some(name);
            }
            if function.declared.is_none() && self.table.is_repeated(symbol) {
                function.declared = self.first_line(symbol, strings);
                function.start = function.declared.is_none().then_some(symbol.start);
            }
        }
        Ok(Some(functions.into_boxed_slice()))
    }

    fn unit(&self, address: u64) -> Option<UnitRef<'d, R<'c>>> {
        let unit = self.finish(self.context.find_dwarf_and_unit(address))?;
        Some(unit)
    }

    /// Where the code of a function begins, which is all that there is without entries for functions.
    fn first_line(&self, symbol: &TableSymbol<'_>, strings: &mut InternedStrings) -> Option<(Arc<str>, u32)> {
        let location = self.context.find_location(symbol.start).ok()??;
        Some((strings.intern(&plain_path(Path::new(location.file?))), location.line?))
    }

    /// Goes on with a look-up that wants split units.
    fn finish<L: LookupContinuation<Buf = R<'c>>>(&self, mut result: LookupResult<L>) -> L::Output {
        loop {
            match result {
                LookupResult::Output(output) => return output,
                LookupResult::Load { load, continuation } => result = continuation.resume(self.load(&load)),
            }
        }
    }

    fn load(&self, wanted: &SplitDwarfLoad<R<'c>>) -> Option<Arc<Dwarf<R<'c>>>> {
        if let Some(packed) = self.package.and_then(|p| p.find_cu(wanted.dwo_id, &wanted.parent).ok().flatten()) {
            return Some(Arc::new(packed));
        }
        let mut dwarf = self.split.get(&wanted.dwo_id.0)?.split_dwarf();
        let header = dwarf.units().next().ok()??;
        if dwarf.unit(header).ok()?.dwo_id != Some(wanted.dwo_id) {
            return None;
        }
        dwarf.make_dwo(&wanted.parent);
        Some(Arc::new(dwarf))
    }
}

/// The name that symbol tables have for a function that debug information has no mangled name for: lambdas, members of
/// local classes, C++ functions of internal linkage; of C functions the name in the source.
fn name_by_table(described: Option<&Described>, symbols: &[TableSymbol<'_>]) -> Option<String> {
    let known = described.filter(|of| of.linkage.is_some() || of.plain.is_some());
    let text = |symbol: &TableSymbol<'_>| String::from_utf8_lossy(symbol.name).into_owned();
    let Some(known) = known else { return symbols.first().map(|symbol| demangle(&text(symbol)).into_owned()) };
    if known.linkage.is_some() {
        return None;
    }
    let names: Vec<String> = symbols.iter().map(text).collect();
    // Parts and copies that the compiler made of a function are that function.
    let bases: Vec<&str> = names.iter().map(|name| without_clone_suffix(name)).collect();
    if bases.iter().any(|base| known.plain.as_deref() == Some(base)) {
        return known.plain.clone();
    }
    let best = bases.iter().find(|base| is_mangled(base)).or(bases.first())?;
    Some(demangle(best).into_owned())
}

/// A path without `.` and doubled slashes, but with `..`, which may lead through symbolic links.
pub fn plain_path(path: &Path) -> String {
    let path: PathBuf = path.components().collect();
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
struct InternedStrings {
    known: HashMap<Arc<str>, Arc<str>>,
    /// Names that symbols gave, by where these begin: many addresses lie in one function.
    of_symbols: HashMap<u64, Option<Arc<str>>>,
}

impl InternedStrings {
    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.known.insert(Arc::clone(&new), Arc::clone(&new));
        new
    }

    fn of_symbol(&mut self, symbol: &TableSymbol<'_>, name: impl FnOnce() -> Option<String>) -> Option<Arc<str>> {
        if let Some(known) = self.of_symbols.get(&symbol.start) {
            return known.clone();
        }
        let name = name().map(|name| self.intern(&name));
        self.of_symbols.insert(symbol.start, name.clone());
        name
    }
}
