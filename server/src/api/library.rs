//! Which code is not the program's own: what came with the compiler or the C library, and functions that only pass on
//! what their callers ask for. Whoever is named as the one who allocated is the innermost function that is neither.
//!
//! The page has the same rule (`web/src/lib/library.ts`); both are held to `web/tests/unit/library-frames.json`.

const SOURCES: [&str; 5] = ["/rustc/", "/usr/include/", "/usr/lib/", "./csu/", "../sysdeps/"];
/// The standard library's sources as `rustup component add rust-src` puts them into somebody's home.
const RUST_SOURCES: &str = "/rustlib/src/rust/library/";
const MODULES: [&str; 5] = ["libc.so", "ld-linux", "libstdc++.so", "libgcc_s.so", "libpthread.so"];
/// Namespaces of standard libraries, for code whose source is not known.
const CPP: [&str; 2] = ["std::", "__gnu_cxx::"];
const RUST: [&str; 4] = ["alloc::", "core::", "std::", "hashbrown::"];
/// How names begin of functions that hand out memory under another name, wherever they are defined.
const WRAPPERS: [&str; 31] = [
    "operator new",
    "malloc",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "strdup",
    "strndup",
    "xmalloc",
    "xcalloc",
    "xrealloc",
    "xstrdup",
    "zmalloc",
    "zcalloc",
    "zrealloc",
    "ztrymalloc",
    "ztrycalloc",
    "ztryrealloc",
    "g_malloc",
    "g_realloc",
    "g_try_malloc",
    "g_slice_alloc",
    "g_strdup",
    "PyMem_",
    "_PyMem_",
    "PyObject_Malloc",
    "_PyObject_Malloc",
    "__rust_alloc",
    "__rust_realloc",
    "__rdl_",
];

/// Whether a frame is not the program's own.
#[must_use]
pub fn is_library(function: Option<&str>, file: Option<&str>, module: Option<&str>) -> bool {
    if function.is_some_and(|name| WRAPPERS.iter().any(|wrapper| name.starts_with(wrapper))) {
        return true;
    }
    match file {
        Some(file) if SOURCES.iter().any(|source| file.starts_with(source)) || file.contains(RUST_SOURCES) => {
            return true;
        }
        None if function.is_some_and(in_standard_library) => return true,
        _ => {}
    }
    module.is_some_and(|module| MODULES.iter().any(|library| module.starts_with(library)))
}

/// By its name alone.
fn in_standard_library(name: &str) -> bool {
    // C++ names end with their parameters; Rust's do not.
    if name.trim_end_matches(" const").ends_with(')') {
        return CPP.iter().any(|space| cpp_path(name).starts_with(space));
    }
    let path = name.trim_start_matches('<');
    RUST.iter().chain(&CPP).any(|space| path.starts_with(space))
}

/// Of a C++ name what stands before the parameters, without what templates return; all of it where brackets mislead.
fn cpp_path(name: &str) -> &str {
    let (mut depth, mut start) = (0_i32, 0);
    for (i, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ' ' if depth == 0 => start = i + 1,
            '(' if depth == 0 => return &name[start..i],
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Case {
        function: Option<String>,
        file: Option<String>,
        module: Option<String>,
        library: bool,
    }

    #[test]
    fn the_page_and_the_server_agree() {
        let cases = include_str!("../../../web/tests/unit/library-frames.json");
        let cases: Vec<Case> = serde_json::from_str(cases).expect("the cases");
        assert!(cases.len() > 10);
        for Case { function, file, module, library } in cases {
            let found = is_library(function.as_deref(), file.as_deref(), module.as_deref());
            assert_eq!(found, library, "{function:?} {file:?} {module:?}");
        }
    }
}
