//! Names of programs that are compiled here, with every kind of symbols that a file can have.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};
use tracehound_api::modules::Symbols as Quality;
use tracehound_format::meta::Segment;
use tracehound_index::cancel::Cancel;
use tracehound_index::facts::ModuleFacts;

use super::locate::{SymbolFile, locate, map};
use super::resolve::{OpenedSymbols, ResolvedFunctions};

const C: &str = "\
void sink(int);
static inline __attribute__((always_inline)) void innermost(int n) {
    sink(n + 1);
}
static inline __attribute__((always_inline)) void middle(int n) {
    innermost(n * 2);
}
__attribute__((noinline)) void outer(int n) {
    middle(n + 3);
    sink(0);
}
__attribute__((noinline)) void sink(int n) { __asm__ volatile(\"\" : : \"r\"(n)); }
int main(int argc, char **argv) { (void)argv; outer(argc); return 0; }
";

fn resolve(source: &SymbolFile, addresses: &[u64]) -> Vec<ResolvedFunctions> {
    OpenedSymbols::new(source).resolve(addresses, &Cancel::new()).unwrap()
}

fn run(program: &str, arguments: &[&str], dir: &Path) {
    let output = Command::new(program).args(arguments).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn compile(dir: &Path, arguments: &[&str]) -> PathBuf {
    std::fs::write(dir.join("a.c"), C).unwrap();
    run("gcc", &[&["-O2", "-Wl,--build-id=sha1", "-o", "program", "a.c"], arguments].concat(), dir);
    dir.join("program")
}

/// The module as a recorder would describe it.
fn recorded(path: &Path) -> ModuleFacts {
    let (bytes, _) = map(path).unwrap().unwrap();
    let elf = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
    use object::read::elf::ProgramHeader;
    let endian = elf.endian();
    let segments = elf.elf_program_headers().iter().filter(|header| header.p_type(endian) == object::elf::PT_LOAD);
    ModuleFacts {
        id: 0,
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        build_id: elf.build_id().unwrap().unwrap_or_default().to_vec(),
        bias: 0,
        segments: segments
            .map(|header| Segment {
                start: header.p_vaddr(endian),
                len: header.p_memsz(endian),
                vaddr: header.p_vaddr(endian),
                file_offset: header.p_offset(endian),
                flags: header.p_flags(endian).0,
            })
            .collect(),
        generation: 0,
        loaded_ns: 0,
        unloaded_ns: None,
    }
}

/// Start and size of a function.
fn symbol(path: &Path, name: &[u8]) -> (u64, u64) {
    let (bytes, _) = map(path).unwrap().unwrap();
    let elf = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
    let symbol = elf.symbols().find(|symbol| symbol.name_bytes() == Ok(name)).unwrap();
    (symbol.address(), symbol.size())
}

fn names(functions: &ResolvedFunctions) -> Vec<String> {
    functions
        .iter()
        .map(|function| {
            let file = function.file.as_deref().and_then(|file| file.rsplit('/').next()).unwrap_or("-");
            let line = function.line.map_or("-".into(), |line| line.to_string());
            let inlined = if function.inlined { " inlined" } else { "" };
            format!("{} {file}:{line}{inlined}", function.name.as_deref().unwrap_or("-"))
        })
        .collect()
}

/// All different stacks inside a function.
fn stacks(source: &SymbolFile, (start, size): (u64, u64)) -> Vec<Vec<String>> {
    let addresses: Vec<u64> = (start..start + size).collect();
    let mut stacks: Vec<_> = resolve(source, &addresses).iter().map(names).collect();
    stacks.dedup();
    stacks
}

#[test]
fn inlined_callers_come_innermost_first_each_with_its_line() {
    let temp = tempfile::tempdir().unwrap();
    let program = compile(temp.path(), &["-g"]);
    let located = locate(&recorded(&program));
    assert_eq!((located.quality, located.note), (Quality::Debug, None));
    let stacks = stacks(&located.source.unwrap(), symbol(&program, b"outer"));
    let expected = ["innermost a.c:3 inlined", "middle a.c:6 inlined", "outer a.c:9"].map(str::to_owned).to_vec();
    assert!(stacks.contains(&expected), "{stacks:?}");
    assert!(stacks.contains(&vec!["outer a.c:10".to_owned()]), "{stacks:?}");
}

#[test]
fn a_stripped_program_finds_its_debug_file_by_link() {
    let temp = tempfile::tempdir().unwrap();
    let program = compile(temp.path(), &["-g"]);
    let outer = symbol(&program, b"outer");
    let whole = stacks(&locate(&recorded(&program)).source.unwrap(), outer);
    run("objcopy", &["--only-keep-debug", "program", "program.debug"], temp.path());
    run("objcopy", &["--strip-all", "--add-gnu-debuglink=program.debug", "program"], temp.path());
    let located = locate(&recorded(&program));
    assert_eq!(located.quality, Quality::Debug);
    assert_eq!(stacks(&located.source.unwrap(), outer), whole);

    // Another program's debug information is worse than none.
    run("gcc", &["-O0", "-g", "-Wl,--build-id=sha1", "-o", "program.debug", "a.c"], temp.path());
    assert_eq!(locate(&recorded(&program)).quality, Quality::Table, "only the dynamic symbols are left");
}

#[test]
fn without_debug_information_functions_remain() {
    let temp = tempfile::tempdir().unwrap();
    let program = compile(temp.path(), &[]);
    let located = locate(&recorded(&program));
    assert_eq!(located.quality, Quality::Table);
    assert!(located.note.unwrap().contains("no debug information"));
    let outer = symbol(&program, b"outer");
    assert_eq!(stacks(&located.source.unwrap(), outer), [["outer -:-"]]);
}

#[test]
fn a_file_that_was_rebuilt_gives_no_names() {
    let temp = tempfile::tempdir().unwrap();
    let program = compile(temp.path(), &["-g"]);
    let before = recorded(&program);
    compile(temp.path(), &["-g", "-DCHANGED", "-O1"]);
    let located = locate(&before);
    assert_eq!((located.quality, located.source), (Quality::Mismatch, None));
    assert!(located.note.unwrap().contains("rebuilt or replaced"));
    std::fs::remove_file(&program).unwrap();
    assert_eq!(locate(&before).quality, Quality::Missing);
}

#[test]
fn without_build_ids_the_segments_must_agree() {
    let temp = tempfile::tempdir().unwrap();
    let program = compile(temp.path(), &["-g", "-Wl,--build-id=none"]);
    let mut module = recorded(&program);
    assert!(module.build_id.is_empty());
    let located = locate(&module);
    assert_eq!(located.quality, Quality::Debug);
    assert!(located.note.unwrap().contains("no build id"));
    module.segments.iter_mut().for_each(|segment| segment.vaddr += 0x1000);
    assert_eq!(locate(&module).quality, Quality::Mismatch);
}

#[test]
fn names_that_are_not_utf_8_survive() {
    let temp = tempfile::tempdir().unwrap();
    let program = compile(temp.path(), &[]);
    std::fs::write(temp.path().join("names"), b"outer \xff\xfeouter\n").unwrap();
    run("objcopy", &["--redefine-syms=names", "program"], temp.path());
    let outer = symbol(&program, b"\xff\xfeouter");
    let located = locate(&recorded(&program));
    assert_eq!(stacks(&located.source.unwrap(), outer), [["\u{fffd}\u{fffd}outer -:-"]]);
}

#[test]
fn devices_and_damaged_files_are_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    let program = compile(temp.path(), &["-g"]);
    let module = recorded(&program);
    for path in ["/dev/zero", "/proc/self/mem", "/etc", "/etc/passwd", ""] {
        let module = ModuleFacts { path: path.into(), ..module.clone() };
        assert_eq!(locate(&module).source, None, "{path}");
    }
    // Every section in turn is overwritten: names may be missing, nothing may fall over.
    let good = std::fs::read(&program).unwrap();
    let outer = symbol(&program, b"outer");
    let identity = [0; 5];
    for start in (0..good.len()).step_by(61) {
        let mut bad = good.clone();
        let end = (start + 40).min(bad.len());
        bad[start..end].fill(0xa7);
        let path = temp.path().join(format!("bad-{start}"));
        std::fs::write(&path, bad).unwrap();
        locate(&ModuleFacts { path: path.as_os_str().as_encoded_bytes().to_vec(), ..module.clone() });
        let source = SymbolFile::File { path, identity };
        assert_eq!(resolve(&source, &[outer.0, outer.0 + 1, u64::MAX]).len(), 3);
    }
}

#[test]
fn cpp_and_rust_names_are_demangled() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let cpp = "namespace app { template <class T> struct Pool { __attribute__((noinline)) T take(T n) { __asm__ volatile(\"\"); return n; } }; }
        int main(int argc, char **) { return app::Pool<int>().take(argc); }";
    std::fs::write(dir.join("b.cpp"), cpp).unwrap();
    run("g++", &["-g", "-O1", "-o", "cpp", "b.cpp"], dir);
    let source = locate(&recorded(&dir.join("cpp"))).source.unwrap();
    let found = stacks(&source, symbol(&dir.join("cpp"), b"_ZN3app4PoolIiE4takeEi"));
    assert!(found.iter().flatten().all(|frame| frame.starts_with("app::Pool<int>::take(int) b.cpp:1")), "{found:?}");

    let rust = "mod app { #[inline(never)] pub fn take<T: Copy>(n: T) -> T { std::hint::black_box(n) } }
        fn main() { app::take(7_u64); }";
    std::fs::write(dir.join("c.rs"), rust).unwrap();
    run("rustc", &["-g", "-O", "-o", "rust", "c.rs"], dir);
    let source = locate(&recorded(&dir.join("rust"))).source.unwrap();
    let (bytes, _) = map(&dir.join("rust")).unwrap().unwrap();
    let elf = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
    let mangled = elf.symbols().find(|symbol| symbol.name().is_ok_and(|name| name.contains("3app4take"))).unwrap();
    let found = stacks(&source, (mangled.address(), mangled.size()));
    let outer = |stack: &Vec<String>| stack.last().is_some_and(|frame| frame.starts_with("c::app::take"));
    assert!(found.iter().all(outer), "{found:?}");
}

#[test]
fn the_vdso_has_names() {
    let bytes = super::locate::vdso_bytes().unwrap();
    let elf = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
    let symbol = elf.dynamic_symbols().find(|symbol| symbol.name() == Ok("__vdso_gettimeofday")).unwrap();
    let build_id = elf.build_id().unwrap().unwrap_or_default().to_vec();
    let module = ModuleFacts { path: b"[vdso]".to_vec(), build_id, ..recorded(Path::new("/bin/true")) };
    let found = resolve(&locate(&module).source.unwrap(), &[symbol.address() + 1]);
    assert!(found[0][0].name.as_deref().unwrap().contains("gettimeofday"));
    let other = ModuleFacts { build_id: vec![1; 20], ..module };
    assert_eq!(locate(&other).quality, Quality::Mismatch);
}
