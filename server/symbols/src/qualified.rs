//! Names of C++ functions that no linker sees: what is inlined everywhere and has internal linkage, members of local
//! classes, lambdas. They are made of scopes and parameter types, spelled as demanglers spell them, so that a function
//! has one name whether it was inlined or not.

use std::collections::HashMap;
use std::rc::Rc;

use gimli::{AttributeValue, UnitOffset};

use super::function_die::{FunctionDies, is_class, key};
use super::units::{Die, DieEntry};

/// Scopes in scopes, types of types: deeper ones are damaged or of no use.
const DEEPEST: usize = 24;

impl<'d, 'c> FunctionDies<'d, 'c> {
    /// The name of the function whose entry is `die`.
    pub(super) fn qualified(&self, die: &Die<'d, 'c>, plain: &str, depth: usize) -> String {
        let mut name = self.scope_of(die, depth);
        name.push_str(plain);
        if let Some(parameters) = self.parameters(die, depth) {
            name.push_str(&parameters);
            if self.is_const_member(die) {
                name.push_str(" const");
            }
        }
        name
    }

    /// The scope in front of a name: `a::B::`, or nothing.
    fn scope_of(&self, die: &Die<'d, 'c>, depth: usize) -> String {
        if depth >= DEEPEST {
            return String::new();
        }
        let Some((scope, entry)) = self.enclosing(die) else { return String::new() };
        let name = match entry.tag() {
            gimli::DW_TAG_subprogram => self.describe_die(&scope, depth + 1).full.clone(),
            gimli::DW_TAG_namespace | gimli::DW_TAG_module => {
                let name = self.name(&scope, &entry).unwrap_or_else(|| "(anonymous namespace)".into());
                Some(self.scope_of(&scope, depth + 1) + &name)
            }
            _ => Some(self.class_name(&scope, &entry, depth + 1)),
        };
        name.map_or_else(String::new, |name| name + "::")
    }

    /// The scope of an entry, blocks aside.
    fn enclosing(&self, die: &Die<'d, 'c>) -> Option<(Die<'d, 'c>, DieEntry<'c>)> {
        let mut scope = die.scope()?;
        for _ in 0..DEEPEST {
            let entry = scope.entry()?;
            if entry.tag() != gimli::DW_TAG_lexical_block {
                return Some((scope, entry));
            }
            scope = scope.scope()?;
        }
        None
    }

    fn name(&self, die: &Die<'d, 'c>, entry: &DieEntry<'c>) -> Option<String> {
        entry.attr_value(gimli::DW_AT_name).and_then(|value| die.unit.text(value))
    }

    fn class_name(&self, die: &Die<'d, 'c>, entry: &DieEntry<'c>, depth: usize) -> String {
        // A class that is completed elsewhere lies where it was announced.
        if let Some(first) = entry.attr_value(gimli::DW_AT_specification).and_then(|value| self.follow(die, &value))
            && depth < DEEPEST
            && let Some(entry) = first.entry()
        {
            return self.class_name(&first, &entry, depth + 1);
        }
        let scope = self.scope_of(die, depth);
        match self.name(die, entry).filter(|name| !name.starts_with("<lambda")) {
            Some(name) => scope + &name,
            None => match self.call_operator(die) {
                Some(operator) => {
                    let parameters = self.parameters(&operator, depth + 1).unwrap_or_else(|| "()".into());
                    format!("{scope}{{lambda{parameters}#{}}}", self.lambda_number(die, depth))
                }
                None => format!("{scope}{{unnamed type}}"),
            },
        }
    }

    /// `operator()` of a class.
    fn call_operator(&self, class: &Die<'d, 'c>) -> Option<Die<'d, 'c>> {
        let is_operator = |die: &Die<'d, 'c>, entry: &DieEntry<'c>| {
            let name = self.name(die, entry);
            entry.tag() == gimli::DW_TAG_subprogram && name.is_some_and(|name| name.starts_with("operator()"))
        };
        class.children().into_iter().find(|(die, entry)| is_operator(die, entry)).map(|(die, _)| die)
    }

    /// Which of the lambdas of its scope one is. GCC counts all of a scope, from version 13 on those with the same
    /// parameters.
    fn lambda_number(&self, class: &Die<'d, 'c>, depth: usize) -> u32 {
        let Some((scope, _)) = self.enclosing(class).filter(|_| depth < DEEPEST) else { return 1 };
        let known = self.lambdas.borrow().get(&key(&scope)).cloned();
        let numbers = known.unwrap_or_else(|| {
            let numbers = Rc::new(self.count_lambdas(&scope, depth));
            self.lambdas.borrow_mut().insert(key(&scope), Rc::clone(&numbers));
            numbers
        });
        numbers.get(&class.offset).copied().unwrap_or(1)
    }

    fn count_lambdas(&self, scope: &Die<'d, 'c>, depth: usize) -> HashMap<UnitOffset, u32> {
        let mut lambdas = Vec::new();
        scope.each_below(&mut |_, die, entry| {
            if is_class(entry.tag()) {
                let name = self.name(&die, entry);
                if name.is_none_or(|name| name.starts_with("<lambda")) {
                    let at = |attribute| entry.attr_value(attribute).and_then(|value| value.udata_value()).unwrap_or(0);
                    lambdas.push((at(gimli::DW_AT_decl_line), at(gimli::DW_AT_decl_column), die));
                }
            }
            entry.tag() == gimli::DW_TAG_lexical_block
        });
        lambdas.retain(|(.., die)| self.call_operator(die).is_some());
        lambdas.sort_by_key(|&(line, column, ref die)| (line, column, die.offset));
        let by_parameters = self.gcc_version(scope).is_some_and(|version| version >= 13);
        let mut counts: HashMap<Option<String>, u32> = HashMap::new();
        let number = |(.., die): (u64, u64, Die<'d, 'c>)| {
            let operator = self.call_operator(&die).filter(|_| by_parameters);
            let count = counts.entry(operator.and_then(|die| self.parameters(&die, depth + 1))).or_default();
            *count += 1;
            (die.offset, *count)
        };
        lambdas.into_iter().map(number).collect()
    }

    fn gcc_version(&self, die: &Die<'d, 'c>) -> Option<u32> {
        let mut entries = die.unit.unit.entries();
        let root = entries.next_dfs().ok()??;
        let producer = die.unit.text(root.attr_value(gimli::DW_AT_producer)?)?;
        // `GNU C++17 12.2.0 -mtune=…`
        let version = producer.strip_prefix("GNU ")?.split(' ').nth(1)?;
        version.split('.').next()?.parse().ok()
    }

    /// `(int, char const*)`; `None` if a type cannot be spelled.
    fn parameters(&self, function: &Die<'d, 'c>, depth: usize) -> Option<String> {
        let mut types = Vec::new();
        for (die, entry) in function.children() {
            match entry.tag() {
                gimli::DW_TAG_formal_parameter if !is_artificial(&entry) => {
                    let of = self.type_of(&die, &entry)?;
                    // The constness of the parameter itself is not part of the type.
                    types.push(self.type_name(&self.without_const(of), depth + 1)?);
                }
                gimli::DW_TAG_unspecified_parameters => types.push("...".into()),
                _ => {}
            }
        }
        Some(format!("({})", types.join(", ")))
    }

    fn is_const_member(&self, function: &Die<'d, 'c>) -> bool {
        let first = function.children().into_iter().find(|(_, e)| e.tag() == gimli::DW_TAG_formal_parameter);
        let Some((die, entry)) = first.filter(|(_, entry)| is_artificial(entry)) else { return false };
        let pointee = self.type_of(&die, &entry).map(|this| self.without_const(this)).and_then(|pointer| {
            let entry = pointer.entry().filter(|entry| entry.tag() == gimli::DW_TAG_pointer_type)?;
            self.type_of(&pointer, &entry)
        });
        pointee.and_then(|die| die.entry()).is_some_and(|entry| entry.tag() == gimli::DW_TAG_const_type)
    }

    fn type_of(&self, die: &Die<'d, 'c>, entry: &DieEntry<'c>) -> Option<Die<'d, 'c>> {
        entry.attr_value(gimli::DW_AT_type).and_then(|value| self.follow(die, &value))
    }

    fn without_const(&self, die: Die<'d, 'c>) -> Die<'d, 'c> {
        let is_const = |entry: &DieEntry<'c>| entry.tag() == gimli::DW_TAG_const_type;
        die.entry().filter(is_const).and_then(|entry| self.type_of(&die, &entry)).unwrap_or(die)
    }

    fn type_name(&self, die: &Die<'d, 'c>, depth: usize) -> Option<String> {
        if depth >= DEEPEST {
            return None;
        }
        let entry = die.entry()?;
        let inner = || match entry.attr_value(gimli::DW_AT_type) {
            None => Some("void".to_owned()),
            Some(value) => self.type_name(&self.follow(die, &value)?, depth + 1),
        };
        let with = |sign: &str| {
            let name = inner()?;
            // `void (int)` becomes `void (*)(int)`.
            Some(match self.type_of(die, &entry).and_then(|of| of.entry()).map(|of| of.tag()) {
                Some(gimli::DW_TAG_subroutine_type) => name.replacen(" (", &format!(" ({sign})("), 1),
                _ => name + sign,
            })
        };
        match entry.tag() {
            gimli::DW_TAG_base_type => self.name(die, &entry).map(|name| base_type(&name).to_owned()),
            gimli::DW_TAG_pointer_type => with("*"),
            gimli::DW_TAG_reference_type => with("&"),
            gimli::DW_TAG_rvalue_reference_type => with("&&"),
            gimli::DW_TAG_const_type => inner().map(|name| name + " const"),
            gimli::DW_TAG_volatile_type => inner().map(|name| name + " volatile"),
            gimli::DW_TAG_restrict_type => inner(),
            gimli::DW_TAG_typedef | gimli::DW_TAG_template_alias => {
                let unnamed = self.type_of(die, &entry).and_then(|of| of.entry()).is_some_and(|of| {
                    (is_class(of.tag()) || of.tag() == gimli::DW_TAG_enumeration_type)
                        && !of.has_attr(gimli::DW_AT_name)
                });
                if unnamed { self.name(die, &entry).map(|name| self.scope_of(die, depth) + &name) } else { inner() }
            }
            gimli::DW_TAG_enumeration_type => self.name(die, &entry).map(|name| self.scope_of(die, depth) + &name),
            tag if is_class(tag) => Some(self.class_name(die, &entry, depth)),
            gimli::DW_TAG_subroutine_type => Some(format!("{} {}", inner()?, self.parameters(die, depth + 1)?)),
            gimli::DW_TAG_unspecified_type => self.name(die, &entry),
            _ => None,
        }
    }
}

fn is_artificial(entry: &DieEntry<'_>) -> bool {
    entry.attr_value(gimli::DW_AT_artificial) == Some(AttributeValue::Flag(true))
}

/// The demanglers' word for a type that GCC calls by another one.
fn base_type(name: &str) -> &str {
    match name {
        "long int" => "long",
        "long unsigned int" => "unsigned long",
        "short int" => "short",
        "short unsigned int" => "unsigned short",
        "long long int" => "long long",
        "long long unsigned int" => "unsigned long long",
        "__int128 unsigned" => "unsigned __int128",
        name => name,
    }
}
