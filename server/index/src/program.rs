//! The program's function of a backtrace: the frame that is reported as the allocating function. Standard libraries,
//! functions that only pass memory on, installed packages and code without a name are left out, as long as the stack has a
//! better frame further out.
//!
//! ```text
//! malloc ← sqlite3MemMalloc ← 0xa7504 ← sqlite3DbMallocRawNN ← sqlite3BtreeInsert ← …
//!            wrapper           nameless   wrapper                the program's function
//! ```

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

    /// The same, of a function with this name in an executable or library of Node's: all of it is the runtime's.
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
            Some(name) if self == Self::Program && (name.starts_with("runtime.") || name == "runtime/cgo") => {
                Self::Runtime
            }
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
mod tests {
    use super::*;

    fn kind(name: &str) -> CodeKind {
        CodeKind::of(Some(name), Some("src/a.c"), Some("app"))
    }

    #[test]
    fn wrappers_are_known_by_their_names() {
        for name in [
            // What programs in the field call theirs.
            "my_alloc",
            "xmalloc",
            "xcalloc",
            "xrealloc",
            "xstrdup",
            "xstrndup",
            "xmemdup",
            "zmalloc",
            "zcalloc_num",
            "ztrymalloc_usable",
            "ztrymalloc_usable_internal",
            "zstrdup",
            "_sdsnewlen",
            "sdsnewlen",
            "sdsdup",
            "sqlite3Malloc",
            "sqlite3MemMalloc",
            "sqlite3DbMallocRawNN",
            "sqlite3DbMallocRaw",
            "sqlite3MallocZero",
            "sqlite3DbReallocOrFree",
            "sqlite3DbStrDup",
            "sqlite3_malloc64",
            "pcache1Alloc",
            "dbMallocRawFinish",
            "CRYPTO_zalloc",
            "CRYPTO_malloc",
            "CRYPTO_strdup",
            "uprv_malloc",
            "uv__malloc",
            "ares_malloc",
            "v8::internal::AlignedAllocWithRetry(unsigned long, unsigned long)",
            "v8::internal::AllocAtLeastWithRetry(unsigned long)",
            "OPENSSL_sk_dup",
            "OPENSSL_LH_insert",
            "BUF_MEM_grow_clean",
            "new_keys_object",
            "dictresize",
            "node::NodeArrayBufferAllocator::AllocateUninitialized(unsigned long)",
            "char* node::UncheckedMalloc<char>(unsigned long)",
            "node::AllocForZlib(void*, unsigned, unsigned)",
            "PyUnicode_New",
            "gc_alloc",
            "_PyObject_NewVar",
            "_PyObject_GC_New",
            "PyType_GenericAlloc",
            "_PyType_AllocNoTrack",
            "_PyMem_RawMalloc",
            "PyObject_Malloc",
            "g_malloc0_n",
            "g_strdup_printf",
            "g_slice_new",
            "g_memdup2",
            "palloc0",
            "ngx_pcalloc",
            "MemoryContextAllocExtended",
            "luaM_realloc_",
            "operator new(unsigned long)",
            "icu::UMemory::operator new(unsigned long)",
            "operator new[](unsigned long)",
            "__rust_alloc",
            "__rustc::__rust_alloc",
            "app::Pool<int>::allocate(unsigned long) const",
            "(anonymous namespace)::grab::my_alloc(int)",
            "my_alloc.part.0",
            "my_alloc(int) [clone .cold]",
            "void* app::take_alloc<std::vector<int, std::allocator<int> > >(int)",
            "mallocator",
            "mallocx",
            "malloc_usable",
            "do_alloc2",
        ] {
            assert_eq!(kind(name), CodeKind::Wrapper, "{name}");
        }
    }

    #[test]
    fn what_the_program_does_is_no_wrapper() {
        for name in [
            "main",
            "realloc_leak",
            "malloc_stats_loop",
            "calloc_things",
            "posix_memalign_test",
            "sqlite3BtreeInsert",
            "allocate_table_rows",
            "allocations",
            "list_dealloc",
            "newline",
            "renew",
            "main::{lambda(int)#3}::operator()(int) const",
            "alloc_test_run",
            "parse",
            "tree_new",
            "malformed",
            "app::Allocator::Allocator(int)",
            "std_like",
            "b",
            "PyList_Append",
            "strduplicate",
            "a::b<alloc>::run(alloc)",
            "app::operator<<(app::Out&, int)",
            "app::operator()(int)",
            "f(void (*)(int))",
            "рекурсия(int)",
            "New",
        ] {
            assert_eq!(kind(name), CodeKind::Program, "{name}");
        }
    }

    #[test]
    fn standard_libraries_are_known_by_file_module_or_name() {
        let of = |function, file, module| CodeKind::of(function, file, module);
        assert_eq!(of(Some("std::vector<int>::push_back(int)"), None, Some("app")), CodeKind::Library);
        assert_eq!(of(Some("void* std::f<int>(int) const"), None, Some("app")), CodeKind::Library);
        assert_eq!(of(Some("<alloc::vec::Vec<T> as core::clone::Clone>::clone"), None, Some("app")), CodeKind::Library);
        assert_eq!(of(Some("hashbrown::raw::RawTable<T>::reserve"), None, None), CodeKind::Library);
        assert_eq!(
            of(Some("new_allocator"), Some("/usr/include/c++/12/bits/new_allocator.h"), None),
            CodeKind::Library
        );
        assert_eq!(
            of(Some("f"), Some("/home/u/.rustup/lib/rustlib/src/rust/library/alloc/src/vec.rs"), None),
            CodeKind::Library
        );
        assert_eq!(of(None, None, Some("libc.so.6")), CodeKind::Library);
        assert_eq!(of(None, None, Some("app")), CodeKind::Nameless);
        assert_eq!(of(None, None, None), CodeKind::Nameless);
        // The program's own functions may take or return what is the library's.
        assert_eq!(of(Some("app::f(std::vector<int>)"), None, Some("app")), CodeKind::Program);
        assert_eq!(of(Some("std::vector<int> app::f<int>(int)"), None, Some("app")), CodeKind::Program);
        assert_eq!(of(Some("(anonymous namespace)::f()"), None, Some("app")), CodeKind::Program);
        assert_eq!(of(Some("std::run"), Some("src/std.rs"), Some("app")), CodeKind::Program);
    }

    #[test]
    fn packages_are_known_by_where_they_are() {
        let of = |file| CodeKind::of(Some("f"), Some(file), Some("python"));
        assert_eq!(of("/v/lib/python3.11/site-packages/pandas/core/frame.py"), CodeKind::Package);
        assert_eq!(of("/usr/lib/python3/dist-packages/apt/cache.py"), CodeKind::Package);
        assert_eq!(of("/srv/app/node_modules/express/lib/router.js"), CodeKind::Package);
        assert_eq!(of("/v/bin/pytest"), CodeKind::Package);
        assert_eq!(
            of("/h/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde-1.0.1/src/de.rs"),
            CodeKind::Package
        );
        assert_eq!(of("/h/go/pkg/mod/github.com/mattn/go-sqlite3@v1.14.0/sqlite3.go"), CodeKind::Package);
        assert_eq!(of("/rust/deps/hashbrown-0.15.5/src/raw/mod.rs"), CodeKind::Library);
        assert_eq!(of("/srv/bin/service.py"), CodeKind::Program);
        assert_eq!(of("/usr/local/lib/python3.13/json/decoder.py"), CodeKind::Library);
        assert_eq!(of("/srv/app/main.py"), CodeKind::Program);
        let extension = "/v/lib/python3.11/site-packages/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so";
        assert_eq!(CodeKind::Program.in_module(extension), CodeKind::Package);
        assert_eq!(CodeKind::Wrapper.in_module(extension), CodeKind::Wrapper);
        assert_eq!(CodeKind::Program.in_module("/srv/app/own.cpython-311-x86_64-linux-gnu.so"), CodeKind::Program);
    }

    #[test]
    fn runtimes_are_no_program() {
        assert_eq!(kind("node::Buffer::New(unsigned long)").in_node(), CodeKind::Runtime);
        assert_eq!(kind("main").in_node(), CodeKind::Runtime);
        assert_eq!(kind("uv__malloc").in_node(), CodeKind::Wrapper);
        for (name, kind_there) in [
            ("runtime.asmcgocall.abi0", CodeKind::Runtime),
            ("runtime.cgocall", CodeKind::Runtime),
            ("main._Cfunc__CMalloc", CodeKind::Wrapper),
            ("main._cgo_cmalloc", CodeKind::Wrapper),
            ("_cgo_1f2e_Cfunc__Cmalloc", CodeKind::Wrapper),
            ("main.leak", CodeKind::Program),
            ("example.com/app/runtime.Leak", CodeKind::Program),
        ] {
            assert_eq!(kind(name).in_go(Some(name)), kind_there, "{name}");
        }
        let start = |file| CodeKind::of(Some("_start"), file, Some("python3.12"));
        assert_eq!((start(None), start(Some("boot.c"))), (CodeKind::Library, CodeKind::Program));
    }

    #[test]
    fn v8_is_known_by_its_names() {
        for (name, is_of_v8) in [
            ("Builtins_ArrayForEach", true),
            ("v8::Function::Call(v8::Local<v8::Context>, int)", true),
            ("v8::internal::MaybeHandle<int> v8::internal::(anonymous namespace)::Invoke<false>(int)", true),
            // What takes or returns what is V8's, or has a name like it.
            ("node::fs::Open(v8::FunctionCallbackInfo<v8::Value> const&)", false),
            ("v8::MaybeLocal<v8::Value> node::InternalMakeCallback(int)", false),
            ("v8impl::(anonymous namespace)::FunctionCallbackWrapper::Invoke(int)", false),
            ("app::v8::run(int)", false),
            ("my_Builtins_", false),
        ] {
            assert_eq!(super::is_of_v8(name), is_of_v8, "{name}");
        }
    }

    #[test]
    fn the_best_frame_is_found() {
        use CodeKind::{Library, Nameless, Package, Program, Runtime, Wrapper};
        for (kinds, at) in [
            (&[Wrapper, Nameless, Runtime, Runtime, Package, Runtime][..], Some(4)),
            (&[Wrapper, Nameless, Runtime, Runtime], Some(2)),
            (&[Library, Package, Nameless, Program, Program], Some(3)),
            (&[Nameless, Wrapper, Package, Library, Package], Some(2)),
            (&[Library, Wrapper, Nameless, Wrapper, Program, Program], Some(4)),
            (&[Program], Some(0)),
            (&[Library, Wrapper, Nameless, Nameless, Library], Some(2)),
            (&[Wrapper, Library], Some(0)),
            (&[Library, Library], None),
            (&[], None),
        ] {
            assert_eq!(program_frame(kinds.iter().copied()), at, "{kinds:?}");
        }
    }
}
