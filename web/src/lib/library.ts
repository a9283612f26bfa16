// Which code is not the program's own: what came with the compiler or the C library, and functions that only pass on
// what their callers ask for. The server has the same rule (`server/src/api/library.rs`); both are held to
// `tests/unit/library-frames.json`.
import type { Frame } from "../api/types.ts";

const SOURCES = ["/rustc/", "/usr/include/", "/usr/lib/", "./csu/", "../sysdeps/"];
/** The standard library's sources as `rustup component add rust-src` puts them into somebody's home. */
const RUST_SOURCES = "/rustlib/src/rust/library/";
const MODULES = ["libc.so", "ld-linux", "libstdc++.so", "libgcc_s.so", "libpthread.so"];
/** Namespaces of standard libraries, for code whose source is not known. */
const CPP = ["std::", "__gnu_cxx::"];
const RUST = ["alloc::", "core::", "std::", "hashbrown::"];
/** How names begin of functions that hand out memory under another name, wherever they are defined. */
const WRAPPERS = [
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

const startsWithAny = (text: string, starts: readonly string[]) => starts.some((start) => text.startsWith(start));

/** Whether a frame is not the program's own. */
export function isLibrary({ function: name, file, module }: Pick<Frame, "function" | "file" | "module">): boolean {
  if (name && startsWithAny(name, WRAPPERS)) return true;
  if (file && (startsWithAny(file, SOURCES) || file.includes(RUST_SOURCES))) return true;
  if (!file && name && inStandardLibrary(name)) return true;
  return !!module && startsWithAny(module, MODULES);
}

/** By its name alone. */
function inStandardLibrary(name: string): boolean {
  // C++ names end with their parameters; Rust's do not.
  if (/\)( const)*$/.test(name)) return startsWithAny(cppPath(name), CPP);
  return startsWithAny(name.replace(/^<+/, ""), [...RUST, ...CPP]);
}

/** Of a C++ name what stands before the parameters, without what templates return; all of it where brackets mislead. */
function cppPath(name: string): string {
  let depth = 0;
  let start = 0;
  for (let i = 0; i < name.length; i += 1) {
    const c = name.charAt(i);
    if (c === "<") depth += 1;
    else if (c === ">") depth -= 1;
    else if (c === " " && depth === 0) start = i + 1;
    else if (c === "(" && depth === 0) return name.slice(start, i);
  }
  return name;
}
