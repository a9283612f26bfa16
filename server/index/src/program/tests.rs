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
    assert_eq!(of(Some("new_allocator"), Some("/usr/include/c++/12/bits/new_allocator.h"), None), CodeKind::Library);
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
    assert_eq!(of("/h/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde-1.0.1/src/de.rs"), CodeKind::Package);
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
