//! Compilation units and their entries (DIEs), found by reference from anywhere: in the same unit, in another one, in
//! dwz's supplementary file.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, DwoId, Unit, UnitHeader, UnitOffset, UnitRef};

use super::object_file::R;

/// One `.debug_info` section.
pub struct DebugInfo<'d, 'c> {
    dwarf: &'d Dwarf<R<'c>>,
    headers: OnceCell<Vec<(usize, UnitHeader<R<'c>>)>>,
    units: RefCell<HashMap<usize, Option<Rc<UnitInfo<'d, 'c>>>>>,
}

/// One unit.
pub struct UnitInfo<'d, 'c> {
    /// The sections that it lies in.
    pub dwarf: &'d Dwarf<R<'c>>,
    /// The unit.
    pub unit: Unit<R<'c>>,
    /// Entries that others may be inside of, in the order of their offsets, each with the position of its own.
    scopes: OnceCell<Vec<DieScope>>,
}

struct DieScope {
    offset: UnitOffset,
    /// Offset of the first entry behind the scope's own.
    end: UnitOffset,
    parent: Option<u32>,
}

/// An entry.
#[derive(Clone)]
pub struct Die<'d, 'c> {
    /// Its unit.
    pub unit: Rc<UnitInfo<'d, 'c>>,
    /// Where it is in its unit.
    pub offset: UnitOffset,
}

/// An entry with its attributes.
pub type DieEntry<'c> = gimli::DebuggingInformationEntry<R<'c>>;

impl<'d, 'c> DebugInfo<'d, 'c> {
    /// The section of `dwarf`.
    pub fn new(dwarf: &'d Dwarf<R<'c>>) -> Self {
        Self { dwarf, headers: OnceCell::new(), units: RefCell::default() }
    }

    /// Whether it is the section of `dwarf`.
    pub fn is_of(&self, dwarf: &Dwarf<R<'_>>) -> bool {
        std::ptr::addr_eq(std::ptr::from_ref(self.dwarf), std::ptr::from_ref(dwarf))
    }

    /// The unit that an offset lies in.
    pub fn unit_of(&self, offset: DebugInfoOffset) -> Option<Rc<UnitInfo<'d, 'c>>> {
        let headers = self.headers();
        let (_, header) = headers.get(headers.partition_point(|&(start, _)| start <= offset.0).checked_sub(1)?)?;
        offset.to_unit_offset(header)?;
        self.unit(*header)
    }

    /// The unit with a header.
    pub fn unit(&self, header: UnitHeader<R<'c>>) -> Option<Rc<UnitInfo<'d, 'c>>> {
        let at = header.debug_info_offset()?.0;
        if let Some(known) = self.units.borrow().get(&at) {
            return known.clone();
        }
        let unit = self.dwarf.unit(header).ok();
        let unit = unit.map(|unit| Rc::new(UnitInfo { dwarf: self.dwarf, unit, scopes: OnceCell::new() }));
        self.units.borrow_mut().insert(at, unit.clone());
        unit
    }

    /// The unit that stands for a split one.
    pub fn skeleton(&self, id: DwoId) -> Option<Rc<UnitInfo<'d, 'c>>> {
        self.headers().iter().filter_map(|(_, header)| self.unit(*header)).find(|unit| unit.unit.dwo_id == Some(id))
    }

    fn headers(&self) -> &[(usize, UnitHeader<R<'c>>)] {
        self.headers.get_or_init(|| {
            let mut headers = Vec::new();
            let mut units = self.dwarf.units();
            while let Ok(Some(header)) = units.next() {
                headers.extend(header.debug_info_offset().map(|offset| (offset.0, header)));
            }
            headers
        })
    }
}

impl<'d, 'c> UnitInfo<'d, 'c> {
    /// The unit with its sections.
    pub fn reference(&self) -> UnitRef<'_, R<'c>> {
        UnitRef::new(self.dwarf, &self.unit)
    }

    /// A text attribute; `None` if it is none.
    pub fn text(&self, value: AttributeValue<R<'c>>) -> Option<String> {
        let text = self.reference().attr_string(value).ok()?;
        Some(String::from_utf8_lossy(text.slice()).into_owned())
    }

    /// Path of a source file, by its number in the unit's line table.
    pub fn file(&self, index: u64) -> Option<String> {
        let header = self.unit.line_program.as_ref()?.header();
        // Before version 5 files were counted from one.
        let file = header.file(index).filter(|_| index > 0 || header.version() >= 5)?;
        let text =
            |value| Some(String::from_utf8_lossy(self.reference().attr_string(value).ok()?.slice()).into_owned());
        let mut path = std::path::PathBuf::new();
        path.extend(self.unit.comp_dir.map(|dir| String::from_utf8_lossy(dir.slice()).into_owned()));
        if file.directory_index() != 0 {
            path.extend(file.directory(header).and_then(text));
        }
        path.push(text(file.path_name())?);
        Some(super::resolve::plain_path(&path))
    }

    fn scopes(&self) -> &[DieScope] {
        self.scopes.get_or_init(|| self.find_scopes().unwrap_or_default())
    }

    fn find_scopes(&self) -> gimli::Result<Vec<DieScope>> {
        let mut scopes: Vec<DieScope> = Vec::new();
        // Scopes that are open, with their depth.
        let mut open: Vec<(u32, isize)> = Vec::new();
        let mut entries = self.unit.entries_raw(None)?;
        while !entries.is_empty() {
            let (offset, depth) = (entries.next_offset(), entries.next_depth());
            while let Some((at, _)) = open.pop_if(|&mut (_, own)| depth <= own) {
                scopes[at as usize].end = offset;
            }
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            entries.skip_attributes(abbreviation.attributes())?;
            if abbreviation.has_children() && is_scope(abbreviation.tag()) {
                scopes.push(DieScope { offset, end: UnitOffset(usize::MAX), parent: open.last().map(|open| open.0) });
                open.push((scopes.len() as u32 - 1, depth));
            }
        }
        Ok(scopes)
    }
}

const fn is_scope(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_interface_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_subprogram
            | gimli::DW_TAG_lexical_block
            | gimli::DW_TAG_module
    )
}

impl<'d, 'c> Die<'d, 'c> {
    /// The entry itself.
    pub fn entry(&self) -> Option<DieEntry<'c>> {
        self.unit.unit.entry(self.offset).ok()
    }

    /// The namespace, class, function or block that it lies in.
    pub fn scope(&self) -> Option<Self> {
        let scopes = self.unit.scopes();
        let mut at = scopes.partition_point(|scope| scope.offset < self.offset).checked_sub(1);
        while let Some(scope) = at.and_then(|at| scopes.get(at)) {
            if self.offset < scope.end {
                return Some(Self { unit: Rc::clone(&self.unit), offset: scope.offset });
            }
            at = scope.parent.map(|parent| parent as usize);
        }
        None
    }

    /// The entries right below it.
    pub fn children(&self) -> Vec<(Self, DieEntry<'c>)> {
        let mut children = Vec::new();
        self.each_below(&mut |depth, die, entry| {
            if depth == 1 {
                children.push((die, entry.clone()));
            }
            depth < 1
        });
        children
    }

    /// Calls `visit(depth, die, entry)` for the entries below it, which are at depth 1 and deeper, as far as it returns
    /// true for those that they are in.
    pub fn each_below(&self, visit: &mut dyn FnMut(isize, Self, &DieEntry<'c>) -> bool) {
        let Ok(mut entries) = self.unit.unit.entries_at_offset(self.offset) else { return };
        let Ok(Some(own)) = entries.next_dfs().map(|entry| entry.map(|entry| entry.depth())) else { return };
        let mut closed = isize::MAX;
        while let Ok(Some(entry)) = entries.next_dfs() {
            let depth = entry.depth() - own;
            if depth <= 0 {
                return;
            }
            if depth > closed {
                continue;
            }
            let die = Self { unit: Rc::clone(&self.unit), offset: entry.offset() };
            closed = if visit(depth, die, entry) { isize::MAX } else { depth };
        }
    }
}
