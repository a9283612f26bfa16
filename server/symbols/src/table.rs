//! The symbol tables of an ELF file: which symbols an address lies in.

use std::cell::OnceCell;
use std::collections::HashSet;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, SymbolIndex, SymbolKind, SymbolScope};

/// A function as a symbol table has it.
#[derive(Debug, Clone, Copy)]
pub struct TableSymbol<'a> {
    /// Address of its first byte.
    pub start: u64,
    end: u64,
    /// As it is in the table, without the version.
    pub name: &'a [u8],
    /// Of a local symbol: the source file that the table names before it, without folders.
    pub file: Option<&'a [u8]>,
    local: bool,
    /// Rank among several names of a function: the smallest is shown.
    rank: (bool, bool, usize, usize),
}

impl TableSymbol<'_> {
    /// Whether the table says where the function ends.
    pub const fn is_sized(&self) -> bool {
        !self.rank.0
    }
}

/// Functions by start; of those with the same start the best name comes first.
pub struct SymbolTable<'a> {
    symbols: Vec<TableSymbol<'a>>,
    /// Names that several local functions have.
    repeated: OnceCell<HashSet<&'a [u8]>>,
}

impl<'a> SymbolTable<'a> {
    /// The tables of a file, and of the one that it contains.
    pub fn parse(bytes: &'a [u8], mini: &'a [u8]) -> Self {
        let mut symbols = Vec::new();
        for bytes in [bytes, mini] {
            read(bytes, &mut symbols);
        }
        symbols.sort_by_key(|symbol| (symbol.start, symbol.rank));
        symbols.dedup_by_key(|symbol| (symbol.start, symbol.end, symbol.name));
        // Functions without a size, as assemblers make them, reach up to the next one; `end` is their section's then.
        for at in 0..symbols.len() {
            let TableSymbol { start, rank: (unsized_, ..), .. } = symbols[at];
            if unsized_ && let Some(next) = symbols[at..].iter().map(|next| next.start).find(|&next| next > start) {
                symbols[at].end = symbols[at].end.min(next);
            }
        }
        Self { symbols, repeated: OnceCell::new() }
    }

    /// Symbols that an address lies in and that begin at the same place, the best name first; empty if there is none.
    pub fn at(&self, address: u64) -> &[TableSymbol<'a>] {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        // A function may lie inside another one, though not deeply.
        let Some(back) = self.symbols[..after].iter().rev().take(16).position(|symbol| address < symbol.end) else {
            return &[];
        };
        let last = after - 1 - back;
        let start = self.symbols[last].start;
        let first = self.symbols[..=last].partition_point(|symbol| symbol.start < start);
        &self.symbols[first..=last]
    }

    /// Whether a symbol is one of several local functions of that name.
    pub fn is_repeated(&self, symbol: &TableSymbol<'_>) -> bool {
        symbol.local && self.repeated.get_or_init(|| self.find_repeated()).contains(symbol.name)
    }

    fn find_repeated(&self) -> HashSet<&'a [u8]> {
        let mut seen: std::collections::HashMap<&[u8], u64> = std::collections::HashMap::new();
        let mut repeated = HashSet::new();
        for symbol in self.symbols.iter().filter(|symbol| symbol.local) {
            if *seen.entry(symbol.name).or_insert(symbol.start) != symbol.start {
                repeated.insert(symbol.name);
            }
        }
        repeated
    }
}

fn read<'a>(bytes: &'a [u8], symbols: &mut Vec<TableSymbol<'a>>) {
    let Ok(elf) = ElfFile64::<Endianness>::parse(bytes) else { return };
    let mut file = None;
    let mut last = SymbolIndex(0);
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        if symbol.index().0 < last.0 {
            file = None;
        }
        last = symbol.index();
        if symbol.kind() == SymbolKind::File {
            file = symbol.name_bytes().ok().filter(|name| !name.is_empty());
            continue;
        }
        if !symbol.is_definition() || symbol.kind() != SymbolKind::Text {
            continue;
        }
        let Some(name) = symbol.name_bytes().ok().map(without_version).filter(|name| !name.is_empty()) else {
            continue;
        };
        let (start, size) = (symbol.address(), symbol.size());
        let end = match size {
            0 => symbol.section_index().and_then(|index| elf.section_by_index(index).ok()).map(|section| {
                use object::ObjectSection;
                section.address().saturating_add(section.size())
            }),
            size => start.checked_add(size),
        };
        let Some(end) = end.filter(|&end| end > start) else { continue };
        let local = symbol.scope() == SymbolScope::Compilation;
        let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
        let rank = (size == 0, local, underscores, name.len());
        symbols.push(TableSymbol { start, end, name, file: file.filter(|_| local), local, rank });
    }
}

/// `memcpy@@GLIBC_2.14` without what follows the name.
fn without_version(name: &[u8]) -> &[u8] {
    match name.iter().position(|&byte| byte == b'@') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}
