//! The program's function of a backtrace: the frame that is reported as the allocating function. Standard libraries,
//! functions that only pass memory on, installed packages and code without a name are left out, as long as the stack has a
//! better frame further out.
//!
//! ```text
//! malloc ← sqlite3MemMalloc ← 0xa7504 ← sqlite3DbMallocRawNN ← sqlite3BtreeInsert ← …
//!            wrapper           nameless   wrapper                the program's function
//! ```

/// How CPython calls the code that it makes for each function where perf is to see them (`-X perf`), in perf maps; the
/// function and its file follow. Where a recording has Python's functions themselves, it is the interpreter's own.
pub const PYTHON_TRAMPOLINE: &str = "py::";

/// What kind of code a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodeKind {
    /// The program's own, or a library's that is no standard library.
    Program,
    /// Of a package that an installer of its language has put there: numpy, Django, express, serde.
    Package,
    /// Of the runtime that carries out a program: V8 and Node around JavaScript, Go's scheduler around C.
    Runtime,
    /// Code without a name.
    Nameless,
    /// It hands out memory under another name.
    Wrapper,
    /// It came with the compiler or the C library.
    Library,
}

/// The best frame of a stack so far, kind by kind. `T` identifies a frame.
#[derive(Debug, Clone, Copy)]
pub struct BestFrame<T> {
    program: Option<T>,
    package: Option<T>,
    runtime: Option<T>,
    nameless: Option<T>,
    wrapper: Option<T>,
}

impl<T: Copy> Default for BestFrame<T> {
    fn default() -> Self {
        Self { program: None, package: None, runtime: None, nameless: None, wrapper: None }
    }
}

impl<T: Copy> BestFrame<T> {
    /// The frame further in, if it is of this kind, is better than all further out.
    pub fn put_inner(&mut self, kind: CodeKind, frame: T) {
        if let Some(place) = self.of(kind) {
            *place = Some(frame);
        }
    }

    /// The frame further out is the best one of its kind, if there was none.
    pub fn put_outer(&mut self, kind: CodeKind, frame: T) {
        if let Some(place @ None) = self.of(kind) {
            *place = Some(frame);
        }
    }

    const fn of(&mut self, kind: CodeKind) -> Option<&mut Option<T>> {
        match kind {
            CodeKind::Program => Some(&mut self.program),
            CodeKind::Package => Some(&mut self.package),
            CodeKind::Runtime => Some(&mut self.runtime),
            CodeKind::Nameless => Some(&mut self.nameless),
            CodeKind::Wrapper => Some(&mut self.wrapper),
            CodeKind::Library => None,
        }
    }

    /// The program's function; `None` if all frames are of standard libraries.
    #[must_use]
    pub fn best(self) -> Option<T> {
        self.program.or(self.package).or(self.runtime).or(self.nameless).or(self.wrapper)
    }

    /// No frame further out can be better.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        self.program.is_some()
    }
}

/// Which frame of a stack, innermost first, is the program's function; `None` if all are of standard libraries.
#[must_use]
pub fn program_frame(kinds: impl IntoIterator<Item = CodeKind>) -> Option<usize> {
    let mut found = BestFrame::default();
    for (at, kind) in kinds.into_iter().enumerate() {
        found.put_outer(kind, at);
        if found.is_final() {
            break;
        }
    }
    found.best()
}

/// Sources of standard libraries.
const SOURCES: [&str; 6] = ["/rustc/", "/rust/deps/", "/usr/include/", "/usr/lib/", "./csu/", "../sysdeps/"];
/// Folders that installers put packages into: pip, npm, Cargo, Go.
const PACKAGES: [&str; 5] =
    ["/site-packages/", "/dist-packages/", "/node_modules/", "/registry/src/index.crates.io-", "/pkg/mod/"];
/// Rust's standard library as `rustup component add rust-src` puts it into somebody's home.
const RUST_SOURCES: &str = "/rustlib/src/rust/library/";
const MODULES: [&str; 5] = ["libc.so", "ld-linux", "libstdc++.so", "libgcc_s.so", "libpthread.so"];
/// Namespaces of standard libraries, for code whose source is not known.
const CPP: [&str; 2] = ["std::", "__gnu_cxx::"];
const RUST: [&str; 4] = ["alloc::", "core::", "std::", "hashbrown::"];

/// What calls `main`, where its source is not known.
const STARTS: [&str; 4] = ["_start", "__libc_start_main", "__libc_start_main_impl", "__libc_start_call_main"];

/// How names of wrappers end, after [`MODIFIERS`] were taken off: in lower case, words joined.
const SUFFIXES: [&str; 7] = ["alloc", "allocate", "memalign", "strdup", "strndup", "memdup", "operatornew"];

/// What names of functions that release memory end with.
const RELEASING: [&str; 3] = ["dealloc", "deallocate", "unalloc"];

/// Words behind the one that says that memory is handed out: `DbMallocRawNN`, `AlignedAllocWithRetry`, `zmalloc_usable`.
const MODIFIERS: [&str; 62] = [
    "abort",
    "align",
    "aligned",
    "and",
    "array",
    "at",
    "backing",
    "base",
    "bounded",
    "brotli",
    "bytes",
    "checked",
    "clear",
    "debug",
    "default",
    "die",
    "exit",
    "extended",
    "ext",
    "external",
    "fail",
    "fast",
    "finish",
    "flags",
    "for",
    "free",
    "from",
    "heap",
    "hook",
    "impl",
    "inner",
    "internal",
    "least",
    "locked",
    "n",
    "nn",
    "no",
    "nothrow",
    "null",
    "num",
    "object",
    "or",
    "raw",
    "retry",
    "root",
    "safe",
    "size",
    "sized",
    "slow",
    "store",
    "throw",
    "track",
    "try",
    "uninitialized",
    "unlocked",
    "unsafe",
    "usable",
    "with",
    "x",
    "zero",
    "zeroed",
    "zlib",
];

/// Functions that hand out memory and whose last word does not say so.
const ALLOCATORS: [&str; 7] =
    ["mallocx", "rallocx", "mallocarray", "reallocarray", "recallocarray", "reallocf", "mallocator"];

/// Functions, with their scope in front, that hand out memory and do not say so as others do; by how they begin.
const FAMILIES: [&str; 13] = [
    // Rust.
    "__rust_",
    "__rustc::",
    "__rdl_",
    "__rg_",
    // GLib.
    "g_slice_",
    "g_strdup",
    "g_try_",
    // OpenSSL's stacks, tables and buffers, which are to it what containers are to C++.
    "OPENSSL_sk_",
    "OPENSSL_LH_",
    "BUF_MEM_",
    // CPython.
    "PyMem_",
    "_PyMem_",
    "gc_alloc",
];

/// Constructors of plain memory: strings, tuples, buffers, whose callers are meant.
const CONSTRUCTORS: [&str; 23] = [
    // Redis' strings.
    "sdsnew",
    "sdsnewlen",
    "_sdsnewlen",
    "sdstrynewlen",
    "sdsempty",
    "sdsdup",
    "sdsMakeRoomFor",
    "_sdsMakeRoomFor",
    "sdsMakeRoomForNonGreedy",
    "sdsResize",
    // CPython's objects; those that end with `_New` besides.
    "PyType_GenericNew",
    "PyBytes_FromStringAndSize",
    "_PyBytes_FromSize",
    "_PyBytes_Resize",
    "resize_compact",
    "unicode_resize",
    "PyUnicode_Resize",
    "new_keys_object",
    "dictresize",
    "set_table_resize",
    // SQLite's texts.
    "sqlite3DbSpanDup",
    "sqlite3_mprintf",
    "sqlite3_vmprintf",
];

/// How names of constructors end, in this spelling.
const CONSTRUCTOR_SUFFIXES: [&str; 4] = ["_New", "_NewVar", "_GC_New", "_GC_NewVar"];

impl CodeKind {
    /// Of a standard library or a runtime, or a wrapper.
    #[must_use]
    pub const fn is_library(self) -> bool {
        matches!(self, Self::Library | Self::Runtime | Self::Wrapper)
    }

    /// The kind of a function, by its name, the file that it is declared in and its module's file name.
    #[must_use]
    pub fn of(function: Option<&str>, file: Option<&str>, module: Option<&str>) -> Self {
        let in_sources = |file: &str| {
            let is_standard = SOURCES.iter().any(|source| file.starts_with(source)) || file.contains("/lib/python3");
            is_standard && !is_installed(file) || file.contains(RUST_SOURCES) || file.starts_with("<frozen ")
        };
        let is_library = module.is_some_and(|module| MODULES.iter().any(|library| module.starts_with(library)))
            || file.is_some_and(in_sources)
            || file.is_none() && function.is_some_and(|name| STARTS.contains(&name) || in_standard_library(name));
        match function {
            _ if is_library => Self::Library,
            None => Self::Nameless,
            Some(name) if is_wrapper(name) => Self::Wrapper,
            Some(_) if file.is_some_and(|file| is_installed(file) || is_command(file)) => Self::Package,
            Some(_) => Self::Program,
        }
    }

    /// The same, of a function in an executable or library of Node's: all of it is the runtime's.
    #[must_use]
    pub const fn in_node(self) -> Self {
        if matches!(self, Self::Program) { Self::Runtime } else { self }
    }

    /// The same, of a function with this name that Go's linker has put in: what cgo generates for calls of C passes memory on.
    #[must_use]
    pub fn in_go(self, name: Option<&str>) -> Self {
        match name {
            Some(name) if self == Self::Program && (name.contains("_Cfunc_") || name.contains("_cgo_")) => {
                Self::Wrapper
            }
            Some(name) if self == Self::Program && name.starts_with("runtime.") => Self::Runtime,
            _ => self,
        }
    }

    /// The same, of a function in the module with this path: extension modules are parts of packages.
    #[must_use]
    pub fn in_module(self, path: &str) -> Self {
        if self == Self::Program && is_installed(path) { Self::Package } else { self }
    }
}

/// Whether a path is below a folder that packages are installed in.
fn is_installed(path: &str) -> bool {
    PACKAGES.iter().any(|folder| path.contains(folder))
}

/// Whether a file is a command that came with a package, such as `bin/pytest`.
fn is_command(file: &str) -> bool {
    file.rsplit_once("/bin/").is_some_and(|(_, name)| !name.contains(['/', '.']))
}

/// By its name alone: whether it only passes on what its callers ask for.
fn is_wrapper(name: &str) -> bool {
    let path = path(name);
    let base = base(path);
    if FAMILIES.iter().any(|family| path.starts_with(family))
        || ALLOCATORS.contains(&base)
        || CONSTRUCTORS.contains(&base)
        || CONSTRUCTOR_SUFFIXES.iter().any(|suffix| base.ends_with(suffix))
    {
        return true;
    }
    let mut words = words(base);
    while words.len() > 1 && words.last().is_some_and(|word| MODIFIERS.contains(&word.as_str())) {
        words.pop();
    }
    let joined = words.concat();
    SUFFIXES.iter().any(|suffix| joined.ends_with(suffix)) && !RELEASING.iter().any(|suffix| joined.ends_with(suffix))
}

/// The words of an identifier in lower case, without digits: of `AlignedAllocWithRetry`, of `zmalloc_usable`.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut previous_is_lower = false;
    for c in name.chars() {
        let starts = !c.is_alphanumeric() || c.is_uppercase() && previous_is_lower;
        if starts && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if c.is_alphabetic()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        previous_is_lower = c.is_lowercase() || c.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// By its name alone: whether it belongs to a standard library.
fn in_standard_library(name: &str) -> bool {
    // C++ names end with their parameters; Rust's do not.
    if name.trim_end_matches(" const").ends_with(')') {
        return CPP.iter().any(|space| path(name).starts_with(space));
    }
    let path = name.trim_start_matches('<');
    RUST.iter().chain(&CPP).any(|space| path.starts_with(space))
}

/// Whether a function of a module is V8's: of its namespace, or one of those that it is built with, which have symbols.
pub(crate) fn is_of_v8(name: &str) -> bool {
    name.starts_with("Builtins_") || path(name).starts_with("v8::")
}

/// Of a name what is before the parameters, without what templates return; all of it where brackets mislead.
fn path(name: &str) -> &str {
    let name = name.find(" [clone ").map_or(name, |at| &name[..at]);
    let (mut depth, mut start) = (0_i32, 0);
    for (i, c) in name.char_indices() {
        let operator = || name[..i].ends_with("operator");
        match c {
            '<' | '>' if depth == 0 && name[..i].trim_end_matches(['<', '>', '-']).ends_with("operator") => {}
            '<' | '{' | '[' => depth += 1,
            '>' | '}' | ']' => depth -= 1,
            ' ' if depth == 0 && !operator() => start = i + 1,
            '(' if depth == 0 && !operator() && !name[i..].starts_with("(anonymous namespace)") => {
                return &name[start.min(i)..i];
            }
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
    }
    if depth == 0 { &name[start.min(name.len())..] } else { name }
}

/// The last part of a path, without what its templates were made for and what compilers put behind it.
fn base(path: &str) -> &str {
    let (mut depth, mut start, mut end) = (0_i32, 0, path.len());
    for (i, c) in path.char_indices() {
        match c {
            '<' | '{' | '(' | '[' => {
                if depth == 0 && i > start {
                    end = i;
                }
                depth += 1;
            }
            '>' | '}' | ')' | ']' => depth -= 1,
            ':' if depth == 0 => (start, end) = (i + 1, path.len()),
            '.' if depth == 0 && i > start && is_clone(&path[i + 1..]) => end = end.min(i),
            _ => {}
        }
    }
    path.get(start..end).unwrap_or(path)
}

/// Whether a suffix of a name says that this is a part or a copy of the function.
pub(crate) fn is_clone(suffix: &str) -> bool {
    suffix.starts_with(|c: char| c.is_ascii_digit())
        || ["cold", "part.", "isra.", "constprop.", "lto_priv."].iter().any(|known| suffix.starts_with(known))
}

#[cfg(test)]
mod tests;
