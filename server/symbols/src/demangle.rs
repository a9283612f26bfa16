//! Demangles C++ and Rust names. Only names that are mangled are touched: C functions may be called `f` or `St`, which
//! as fragments of C++ mangling would read `float` and `std`.

use std::borrow::Cow;
use std::fmt::Write;

/// Longest name that is worth having; templates can make names that grow without end.
const LONGEST: usize = 1 << 16;

/// Suffixes that compilers put behind the names of functions that they split, copy or rename.
const CLONES: [&str; 11] = [
    ".cold",
    ".part.",
    ".isra.",
    ".constprop.",
    ".lto_priv.",
    ".llvm.",
    ".clone.",
    ".localalias",
    ".warm",
    ".hot",
    ".__uniq.",
];

/// The displayed name of a symbol.
pub fn demangle(raw: &str) -> Cow<'_, str> {
    // A hash that ThinLTO added; it means nothing to anybody.
    let raw = raw.find(".llvm.").map_or(raw, |at| &raw[..at]);
    let mangled = raw.strip_prefix('_').filter(|rest| rest.starts_with("_Z")).unwrap_or(raw);
    if !mangled.starts_with("_Z") && !mangled.starts_with("_R") {
        return Cow::Borrowed(raw);
    }
    if let Ok(name) = rustc_demangle::try_demangle(mangled) {
        return bounded(|out| write!(out, "{name:#}")).map_or(Cow::Borrowed(raw), Cow::Owned);
    }
    cpp(mangled).map_or(Cow::Borrowed(raw), Cow::Owned)
}

/// Whether a symbol's name is one that [`demangle`] may change.
pub fn is_mangled(raw: &str) -> bool {
    ["_Z", "__Z", "_R"].iter().any(|prefix| raw.starts_with(prefix))
}

/// A symbol's name without what compilers put behind the names of parts and copies of functions.
pub fn without_clone_suffix(raw: &str) -> &str {
    // GNU C's nested functions have a bare number.
    let number = raw.rfind('.').filter(|&at| at > 0 && raw[at + 1..].bytes().all(|b| b.is_ascii_digit()));
    let named = CLONES.iter().filter_map(|suffix| raw.find(suffix)).min();
    let end = named.into_iter().chain(number).min().filter(|&at| at > 0);
    end.map_or(raw, |end| &raw[..end])
}

fn cpp(mangled: &str) -> Option<String> {
    if mangled.is_ascii() {
        return itanium(mangled);
    }
    // The parser knows ASCII identifiers only. What is not ASCII gets a stand-in of the same length in bytes, which
    // begins with a letter that is nowhere else in the answer: one letter for each length.
    let mut runs: Vec<&str> = mangled.split(|c: char| c.is_ascii()).filter(|run| !run.is_empty()).collect();
    runs.sort_unstable_by_key(|run| (run.len(), *run));
    runs.dedup();
    let blank: String = mangled.chars().flat_map(|c| std::iter::repeat_n(ascii_or(c, '_'), c.len_utf8())).collect();
    let blank = itanium(&blank)?;
    let mut free = ('A'..='Z').chain('a'..='z').filter(|&c| !blank.contains(c));
    let mut stand_ins: Vec<(String, &str)> = Vec::with_capacity(runs.len());
    for same_length in runs.chunk_by(|a, b| a.len() == b.len()) {
        let mark = free.next()?;
        for (number, run) in same_length.iter().enumerate() {
            stand_ins.push((stand_in(mark, number, run.len())?, run));
        }
    }
    let mut replaced = String::with_capacity(mangled.len());
    let mut rest = mangled;
    while let Some(at) = rest.find(|c: char| !c.is_ascii()) {
        let len = rest[at..].find(|c: char| c.is_ascii()).unwrap_or(rest.len() - at);
        replaced.push_str(&rest[..at]);
        replaced.push_str(&stand_ins.iter().find(|(_, run)| *run == &rest[at..at + len])?.0);
        rest = &rest[at + len..];
    }
    replaced.push_str(rest);
    let answer = itanium(&replaced)?;
    let mut out = String::with_capacity(answer.len());
    let mut rest = &answer[..];
    while let Some(first) = rest.chars().next() {
        let (name, text) = stand_ins
            .iter()
            .find(|(name, _)| rest.starts_with(name.as_str()))
            .map_or_else(|| (first.len_utf8(), &rest[..first.len_utf8()]), |(name, run)| (name.len(), *run));
        out.push_str(text);
        rest = &rest[name..];
    }
    Some(out)
}

const fn ascii_or(c: char, other: char) -> char {
    if c.is_ascii() { c } else { other }
}

/// An identifier of `len` bytes that begins with `mark`; another one for each number.
fn stand_in(mark: char, mut number: usize, len: usize) -> Option<String> {
    const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut name = String::from(mark);
    for _ in 1..len {
        name.push(char::from(DIGITS[number % DIGITS.len()]));
        number /= DIGITS.len();
    }
    (number == 0).then_some(name)
}

fn itanium(mangled: &str) -> Option<String> {
    let symbol = cpp_demangle::Symbol::new(mangled).ok()?;
    let options = cpp_demangle::DemangleOptions::new();
    bounded(|out| {
        struct Sink<'a>(&'a mut Bounded);
        impl cpp_demangle::DemangleWrite for Sink<'_> {
            fn write_string(&mut self, text: &str) -> std::fmt::Result {
                self.0.write_str(text)
            }
        }
        symbol.structured_demangle(&mut Sink(out), &options)
    })
    .map(as_others_spell)
}

/// A demangled name in the spelling of binutils: numbers with a suffix in place of a cast, and
/// nothing where a pack of parameters is empty.
fn as_others_spell(name: String) -> String {
    let mut name = name;
    for (cast, suffix) in [("(unsigned long)", "ul"), ("(unsigned int)", "u"), ("(long)", "l"), ("(int)", "")] {
        let mut from = 0;
        while let Some(at) = name[from..].find(cast).map(|at| from + at) {
            let number = &name[at + cast.len()..];
            let digits =
                number.len() - number.trim_start_matches('-').trim_start_matches(|c: char| c.is_ascii_digit()).len();
            from = at;
            if digits > 0 {
                name.replace_range(at..at + cast.len() + digits, &format!("{}{suffix}", &number[..digits]));
            } else {
                from += cast.len();
            }
        }
    }
    for (odd, plain) in [(", >", ">"), (", &&)", ")"), (", &)", ")"), ("(&&)", "()"), ("(&)", "()")] {
        if name.contains(odd) {
            name = name.replace(odd, plain);
        }
    }
    name
}

/// A text that refuses to become too long.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

fn bounded(write: impl FnOnce(&mut Bounded) -> std::fmt::Result) -> Option<String> {
    let mut out = Bounded(String::new());
    write(&mut out).ok()?;
    Some(out.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_names_stay_as_they_are() {
        for name in ["f", "v", "d", "s", "h", "w", "a", "b", "St", "PKc", "i", "Dn", "main", "R", "ZN3app4takeEi", "_x"]
        {
            assert_eq!(demangle(name), name);
        }
        assert_eq!(demangle("init.constprop.0"), "init.constprop.0");
        assert_eq!(demangle("init.llvm.123456"), "init");
        // They begin as mangled names do, and are none.
        assert_eq!(demangle("_Reset"), "_Reset");
        assert_eq!(demangle("_Zip"), "_Zip");
    }

    #[test]
    fn mangled_names_are_read() {
        for (raw, name) in [
            ("_ZN3app4PoolIiE4takeEi", "app::Pool<int>::take(int)"),
            ("__ZN3app4PoolIiE4takeEi", "app::Pool<int>::take(int)"),
            ("_ZZ4mainENKUliE1_clEi", "main::{lambda(int)#3}::operator()(int) const"),
            ("_Z1fv.cold", "f() [clone .cold]"),
            ("_Z1fILm3ELj4ELi5EEvv", "void f<3ul, 4u, 5>()"),
            ("_Z1fIiJEEvT_DpOT0_", "void f<int>(int)"),
            ("_Z1fv.part.0", "f() [clone .part.0]"),
            ("_Z1fv.llvm.1234", "f()"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.77", "core::fmt::Formatter::pad"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        ] {
            assert_eq!(demangle(raw), name, "{raw}");
        }
    }

    #[test]
    fn identifiers_may_be_of_any_script() {
        for (raw, name) in [
            ("_Z16рекурсияi", "рекурсия(int)"),
            ("_ZN7größe9测试空1fEv", "größe::测试空::f()"),
            ("_ZN9ünïcöd3ö0Ea5ö1Ü", "ünïcöd::ö0(signed char, ö1Ü)"),
            ("_Z2öI4äöEvT_", "void ö<äö>(äö)"),
        ] {
            assert_eq!(demangle(raw), name, "{raw}");
        }
    }

    #[test]
    fn names_cannot_grow_without_end() {
        // Each parameter is a pair of the one before: the text doubles with each.
        let mut raw = String::from("_Z1fI1aE4pairI1a1aE");
        for i in 0..40 {
            let digit = |i: usize| char::from_digit(i as u32 % 36, 36).unwrap_or('0').to_ascii_uppercase();
            raw.push_str(&format!("4pairIS{0}_S{0}_E", digit(i)));
        }
        assert!(demangle(&raw).len() <= LONGEST);
    }

    #[test]
    fn clone_suffixes_are_found() {
        for (raw, base) in [
            ("init", "init"),
            ("init.part.0", "init"),
            ("init.constprop.0.isra.0", "init"),
            ("main.cold", "main"),
            ("inner.0", "inner"),
            ("_Z1fv.isra.3", "_Z1fv"),
            (".L1", ".L1"),
            ("a.b", "a.b"),
        ] {
            assert_eq!(without_clone_suffix(raw), base);
        }
    }
}
