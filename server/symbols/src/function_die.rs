//! A function's entry in debug information: as a whole, or inlined into another one. The name that
//! linkers know it by, or a name made of the scopes that it lies in; the place where it is declared.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{AttributeValue, Dwarf, UnitOffset, UnitRef};

use super::demangle::demangle;
use super::object_file::R;
use super::units::{DebugInfo, Die, DieEntry, UnitInfo};

/// References that are followed from one entry to the one that it completes; a circle must end.
const MOST_STEPS: usize = 16;

/// Description of a function.
#[derive(Debug, Default)]
pub struct Described {
    /// The mangled name, where debug information has it.
    pub linkage: Option<String>,
    /// The name without its scope.
    pub plain: Option<String>,
    /// Demangled, or made of the scopes; what the function is called where no symbol table is asked.
    pub full: Option<String>,
    /// Source file and line of the declaration: for members of a class, and inline functions, of the definition.
    pub declared: Option<(String, u32)>,
}

/// The functions of a file.
pub struct FunctionDies<'d, 'c> {
    main: DebugInfo<'d, 'c>,
    supplement: Option<DebugInfo<'d, 'c>>,
    split: RefCell<Vec<Rc<DebugInfo<'d, 'c>>>>,
    described: RefCell<HashMap<DieKey, Rc<Described>>>,
    pub(super) lambdas: RefCell<HashMap<DieKey, Rc<HashMap<UnitOffset, u32>>>>,
}

/// An entry: its sections, its unit, its place there.
pub(super) type DieKey = (usize, usize, usize);

pub(super) fn key(die: &Die<'_, '_>) -> DieKey {
    let unit = die.unit.unit.header.debug_info_offset().map_or(usize::MAX, |offset| offset.0);
    (std::ptr::from_ref(die.unit.dwarf).addr(), unit, die.offset.0)
}

/// Merged attributes of the entries from a function's own to its first declaration.
struct Chain<'d, 'c> {
    linkage: Option<String>,
    plain: Option<String>,
    declared: Option<(String, u32)>,
    external: bool,
    /// The first declaration, which lies in the function's scope.
    origin: Die<'d, 'c>,
}

impl<'d, 'c> FunctionDies<'d, 'c> {
    /// The functions of the file with these sections.
    pub fn new(dwarf: &'d Dwarf<R<'c>>) -> Self {
        Self {
            main: DebugInfo::new(dwarf),
            supplement: dwarf.sup().map(DebugInfo::new),
            split: RefCell::default(),
            described: RefCell::default(),
            lambdas: RefCell::default(),
        }
    }

    /// The function whose entry lies at `offset` of a unit.
    pub fn describe(&self, unit: UnitRef<'d, R<'c>>, offset: UnitOffset) -> Option<Rc<Described>> {
        let own = if self.main.is_of(unit.dwarf) {
            self.main.unit(unit.header)
        } else {
            let mut split = self.split.borrow_mut();
            let known = split.iter().find(|space| space.is_of(unit.dwarf)).cloned();
            let space = known.unwrap_or_else(|| {
                let space = Rc::new(DebugInfo::new(unit.dwarf));
                split.push(Rc::clone(&space));
                space
            });
            space.unit(unit.header)
        };
        Some(self.describe_die(&Die { unit: own?, offset }, 0))
    }

    pub(super) fn describe_die(&self, die: &Die<'d, 'c>, depth: usize) -> Rc<Described> {
        if let Some(known) = self.described.borrow().get(&key(die)) {
            return Rc::clone(known);
        }
        let described = Rc::new(self.chain(die).map(|chain| self.finish(chain, depth)).unwrap_or_default());
        self.described.borrow_mut().insert(key(die), Rc::clone(&described));
        described
    }

    fn finish(&self, chain: Chain<'d, 'c>, depth: usize) -> Described {
        let full = match &chain.linkage {
            Some(linkage) => Some(demangle(linkage).into_owned()),
            None => chain.plain.as_ref().map(|plain| {
                // What has external linkage and no name for the linker has its own name there, as in C.
                let as_in_c = chain.external || !self.is_cpp(&chain.origin.unit);
                if as_in_c { plain.clone() } else { self.qualified(&chain.origin, plain, depth) }
            }),
        };
        Described { linkage: chain.linkage, plain: chain.plain, full, declared: chain.declared }
    }

    fn chain(&self, die: &Die<'d, 'c>) -> Option<Chain<'d, 'c>> {
        let mut chain = Chain { linkage: None, plain: None, declared: None, external: false, origin: die.clone() };
        let mut at = Some(die.clone());
        for _ in 0..MOST_STEPS {
            let Some(die) = at.take() else { break };
            let entry = die.entry()?;
            let (mut file, mut line) = (None, None);
            for attribute in entry.attrs() {
                let value = attribute.value();
                match attribute.name() {
                    gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name if chain.linkage.is_none() => {
                        chain.linkage = die.unit.text(value);
                    }
                    gimli::DW_AT_name if chain.plain.is_none() => chain.plain = die.unit.text(value),
                    gimli::DW_AT_external => chain.external |= value == AttributeValue::Flag(true),
                    gimli::DW_AT_decl_file => file = number(&value),
                    gimli::DW_AT_decl_line => line = number(&value),
                    gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => at = self.follow(&die, &value),
                    _ => {}
                }
            }
            if chain.declared.is_none() && line.is_some() {
                // A definition that repeats only what differs from its declaration has the declaration's file.
                let of_origin = || at.as_ref().and_then(|die| Some((die.clone(), decl_file(&die.entry()?)?)));
                let (unit, file) = match file {
                    Some(file) => (Rc::clone(&die.unit), Some(file)),
                    None => of_origin().map_or((Rc::clone(&die.unit), None), |(die, file)| (die.unit, Some(file))),
                };
                chain.declared = self.place(&unit, file, line);
            }
            chain.origin = die;
        }
        if chain.declared.is_none() {
            // What the compiler made, or the body of a lambda: where its class is.
            chain.declared = chain.origin.scope().and_then(|scope| self.class_place(&scope));
        }
        Some(chain)
    }

    fn class_place(&self, scope: &Die<'d, 'c>) -> Option<(String, u32)> {
        let entry = scope.entry().filter(|entry| is_class(entry.tag()))?;
        self.place(&scope.unit, decl_file(&entry), entry.attr_value(gimli::DW_AT_decl_line).as_ref().and_then(number))
    }

    /// A source file and line, by the numbers that an entry has for them.
    fn place(&self, unit: &UnitInfo<'d, 'c>, file: Option<u64>, line: Option<u64>) -> Option<(String, u32)> {
        let line = u32::try_from(line?).ok().filter(|&line| line > 0)?;
        let split = !self.main.is_of(unit.dwarf) && !self.supplement.as_ref().is_some_and(|s| s.is_of(unit.dwarf));
        // The line table, and with it the names of files, stays with the unit that stands for a split one.
        let skeleton = unit.unit.dwo_id.filter(|_| split).and_then(|id| self.main.skeleton(id));
        let file = skeleton.as_deref().unwrap_or(unit).file(file?).or_else(|| unit.file(file?))?;
        Some((file, line))
    }

    /// The entry that a reference leads to.
    pub(super) fn follow(&self, from: &Die<'d, 'c>, value: &AttributeValue<R<'c>>) -> Option<Die<'d, 'c>> {
        let in_space = |space: &DebugInfo<'d, 'c>, offset: gimli::DebugInfoOffset| {
            let unit = space.unit_of(offset)?;
            let offset = offset.to_unit_offset(&unit.unit.header)?;
            Some(Die { unit, offset })
        };
        match *value {
            AttributeValue::UnitRef(offset) => Some(Die { unit: Rc::clone(&from.unit), offset }),
            AttributeValue::DebugInfoRef(offset) => {
                let supplement = self.supplement.iter().find(|space| space.is_of(from.unit.dwarf));
                match supplement {
                    Some(space) => in_space(space, offset),
                    None if self.main.is_of(from.unit.dwarf) => in_space(&self.main, offset),
                    None => {
                        let split = self.split.borrow().iter().find(|s| s.is_of(from.unit.dwarf)).cloned();
                        in_space(&*split?, offset)
                    }
                }
            }
            AttributeValue::DebugInfoRefSup(offset) => in_space(self.supplement.as_ref()?, offset),
            _ => None,
        }
    }

    fn is_cpp(&self, unit: &Rc<UnitInfo<'d, 'c>>) -> bool {
        let root = unit.unit.entries().next_dfs().ok().flatten().and_then(|e| e.attr_value(gimli::DW_AT_language));
        matches!(
            root,
            Some(AttributeValue::Language(
                gimli::DW_LANG_C_plus_plus
                    | gimli::DW_LANG_C_plus_plus_03
                    | gimli::DW_LANG_C_plus_plus_11
                    | gimli::DW_LANG_C_plus_plus_14
                    | gimli::DW_LANG_C_plus_plus_17
                    | gimli::DW_LANG_C_plus_plus_20
            ))
        )
    }
}

fn decl_file(entry: &DieEntry<'_>) -> Option<u64> {
    entry.attr_value(gimli::DW_AT_decl_file).as_ref().and_then(number)
}

fn number(value: &AttributeValue<R<'_>>) -> Option<u64> {
    match *value {
        AttributeValue::FileIndex(index) => Some(index),
        ref other => other.udata_value(),
    }
}

/// A class, under any of its names.
pub(super) const fn is_class(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_class_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_interface_type
    )
}
