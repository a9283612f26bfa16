//! Language of a function, derived from its file, its module or the form of its name.

use super::program::is_clone;

/// A language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceLanguage {
    /// C.
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// Python.
    Python,
    /// JavaScript, TypeScript among it.
    JavaScript,
    /// Java.
    Java,
    /// Go.
    Go,
}

/// Endings of source files.
const ENDINGS: [(SourceLanguage, &[&str]); 7] = [
    (SourceLanguage::C, &["c", "h"]),
    (
        SourceLanguage::Cpp,
        &["cc", "cpp", "cxx", "c++", "C", "hh", "hpp", "hxx", "h++", "ipp", "tcc", "inl", "cppm", "ixx"],
    ),
    (SourceLanguage::Rust, &["rs"]),
    (SourceLanguage::Python, &["py", "pyx"]),
    (SourceLanguage::JavaScript, &["js", "mjs", "cjs", "ts", "mts", "cts", "jsx", "tsx"]),
    (SourceLanguage::Java, &["java"]),
    (SourceLanguage::Go, &["go"]),
];

/// How V8 begins the names of what it compiles.
const V8: [&str; 6] = ["JS:", "LazyCompile:", "Script:", "Function:", "Eval:", "RegExp:"];

impl SourceLanguage {
    /// The language of a function with this name, whose code is in this file; `None` if it is not known.
    #[must_use]
    pub fn of(name: Option<&str>, file: Option<&str>) -> Option<Self> {
        let name = name.unwrap_or_default();
        let by_file = file.and_then(Self::of_file);
        // Headers belong to both, and the standard library of C++ has some without an ending.
        let is_header = file.is_some_and(|file| file.ends_with(".h") || !has_ending(file));
        match by_file {
            Some(Self::C) if is_header && is_cpp(name) => Some(Self::Cpp),
            Some(language) => Some(language),
            None => Self::of_name(name),
        }
    }

    /// The same in a module that Go's linker made, where a name is a package, a dot and the rest.
    #[must_use]
    pub fn in_go_module(name: Option<&str>, file: Option<&str>) -> Option<Self> {
        let by_name = || name.filter(|name| is_go(name)).map(|_| Self::Go);
        match file.and_then(Self::of_file) {
            // What cgo takes out of a comment of a file in Go.
            Some(Self::Go) if name.is_some_and(|name| !name.contains('.')) => Some(Self::C),
            Some(language) => Some(language),
            None => by_name().or_else(|| Self::of(name, file)),
        }
    }

    fn of_file(file: &str) -> Option<Self> {
        let ending = file.rsplit_once('.')?.1;
        ENDINGS.iter().find(|(_, endings)| endings.contains(&ending)).map(|&(language, _)| language)
    }

    fn of_name(name: &str) -> Option<Self> {
        if V8.iter().any(|prefix| name.starts_with(prefix)) {
            Some(Self::JavaScript)
        } else if name.starts_with("py::") && name.contains(".py") {
            Some(Self::Python)
        } else if is_java(name) {
            Some(Self::Java)
        } else if name.starts_with("runtime.") && is_go(name) {
            // Of Go's runtime, parts of which are written in assembler.
            Some(Self::Go)
        } else if is_cpp(name) {
            Some(Self::Cpp)
        } else if name.contains("::") {
            Some(Self::Rust)
        } else {
            None
        }
    }

    /// As documents have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "c++",
            Self::Rust => "rust",
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::Java => "java",
            Self::Go => "go",
        }
    }
}

fn has_ending(file: &str) -> bool {
    file.rsplit('/').next().is_some_and(|name| name.contains('.'))
}

/// Go's linker writes `net/http.(*conn).serve`: the path of a package, whose last part has no dot, and behind the first dot
/// what is in it. Parts that C compilers make of functions are called `f.cold`.
fn is_go(name: &str) -> bool {
    let types = name.find(['[', '(']).unwrap_or(name.len());
    let last = name[..types].rfind('/').map_or(0, |at| at + 1);
    let Some((package, inside)) = name[last..].split_once('.') else { return false };
    let is_package = |c: char| c.is_alphanumeric() || "_-%~:".contains(c);
    !package.is_empty() && package.chars().all(is_package) && !package.contains("::") && !is_clone(inside)
}

/// HotSpot writes methods as `byte[] D.deflate(byte[])`: a type, and behind it the class, a dot and the method.
fn is_java(name: &str) -> bool {
    let Some((head, _)) = name.strip_suffix(')').and_then(|name| name.split_once('(')) else { return false };
    let Some((result, method)) = head.rsplit_once(' ') else { return false };
    let is_name = |text: &str| {
        let letter = |c: char| c.is_alphanumeric() || "_$.<>/[]+-".contains(c);
        !text.is_empty() && text.chars().all(letter)
    };
    is_name(result) && is_name(method) && method.contains('.') && !method.starts_with('.') && !method.contains(">.")
}

/// Demangled names of C++ have their parameters, or an operator's name; Rust's have neither.
fn is_cpp(name: &str) -> bool {
    name.contains('(') && !name.contains("{closure") && !name.starts_with('<')
        || name.starts_with("operator ")
        || name.starts_with("std::") && name.contains('<') && !name.contains(" as ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_names_tell() {
        use SourceLanguage::{C, Cpp, JavaScript, Python, Rust};
        for (name, file, language) in [
            ("main", Some("src/a.c"), Some(C)),
            ("main", Some("src/a.rs"), Some(Rust)),
            ("f(int)", Some("a.h"), Some(Cpp)),
            ("f", Some("a.h"), Some(C)),
            ("std::vector<int>::push_back(int const&)", Some("/usr/include/c++/12/vector"), Some(Cpp)),
            ("C.f", Some("/app/a.py"), Some(Python)),
            ("operator new(unsigned long)", None, Some(Cpp)),
            ("alloc::raw_vec::finish_grow", None, Some(Rust)),
            ("<T as core::fmt::Debug>::fmt", None, Some(Rust)),
            ("JS:^handler z.js:4:17", None, Some(JavaScript)),
            ("byte[] D.deflate(byte[])", None, Some(SourceLanguage::Java)),
            ("void java.util.zip.Inflater.<init>(boolean)", None, Some(SourceLanguage::Java)),
            ("runtime.asmcgocall.abi0", Some("/usr/local/go/src/runtime/asm_amd64.s"), Some(SourceLanguage::Go)),
            ("runtime.cold", None, None),
            ("int f(int) [clone .cold]", None, Some(Cpp)),
            ("void std::sort<int*>(int*, int*)", None, Some(Cpp)),
            ("malloc", None, None),
            ("", None, None),
        ] {
            assert_eq!(SourceLanguage::of(Some(name), file), language, "{name} {file:?}");
        }
    }
    #[test]
    fn modules_of_go_have_other_names() {
        use SourceLanguage::{C, Cpp, Go};
        for (name, file, language) in [
            ("main.main", None, Some(Go)),
            ("net/http.(*conn).serve", None, Some(Go)),
            ("example.com/x/y%2ez.Map[go.shape.*example.com/x.T]", None, Some(Go)),
            ("main.(*T).Run.func1", Some("/src/main.go"), Some(Go)),
            ("type:.eq.main.T", None, Some(Go)),
            ("runtime.rt0_go.abi0", Some("/go/src/runtime/asm_amd64.s"), Some(Go)),
            // What cgo links in is in other languages.
            ("x_cgo_init", None, None),
            ("crosscall2", None, None),
            ("compress.part.0", None, None),
            ("wrap", Some("/src/wrap.c"), Some(C)),
            ("in_comment", Some("/src/main.go"), Some(C)),
            ("app::f(int, ...)", None, Some(Cpp)),
        ] {
            assert_eq!(SourceLanguage::in_go_module(Some(name), file), language, "{name}");
        }
        assert_eq!(SourceLanguage::in_go_module(None, None), None);
    }
}
