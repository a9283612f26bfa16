//! Remarks on what a recording could not see, from the files of its modules: allocators whose functions bypass the
//! recorder, and heaps that managed languages lay out in memory of their own.
//!
//! Looks only at files that are still the recorded ones; how many are not is a remark, too.

mod missing_frames;
pub mod suppressions;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use memchr::memmem;
use object::elf::{NoteType, ProgramHeader64};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SymbolKind};
use tracehound_api::info::{Info, Remark};
use tracehound_format::allocators::{self, Allocators, Family, Finder};
use tracehound_format::linked;
use tracehound_index::Trace;
use tracehound_index::facts::ModuleFacts;
use tracehound_index::symbols::RecordingSymbols;
use tracehound_query::info;

use missing_frames::Landmark;
use tracehound_symbols::map;

/// Topic of what the recorder itself says about allocators in the executable.
const SAID: &str = "static-allocator";
/// Topic of what is found here.
const UNSEEN: &str = "unhooked-allocator";
/// Topic of heaps that are no allocator's.
const OWN_HEAP: &str = "own-heap";
/// Names that a remark lists.
const NAMES_SHOWN: usize = 6;

/// A function that programs call to use V8.
const V8_FUNCTION: &str = "_ZN2v87Isolate3NewERKNS0_12CreateParamsE";

/// Functions by which a runtime with a heap of its own is known, and what is to be said about it.
const RUNTIMES: [(&str, &str); 6] = [
    ("JNI_CreateJavaVM", "the Java heap is mapped as a whole: its objects are in no recording, native memory is"),
    (
        "PyObject_Malloc",
        "Python lays small objects out in arenas of its own, which are recorded as mappings; with `heaptrace run \
         --python-objects` (TRACEHOUND_PYTHON_OBJECTS=1) every object is an allocation",
    ),
    (V8_FUNCTION, "V8 maps its JavaScript heap itself: objects in it are not recorded"),
    ("runtime.mallocgc", "Go's heap is mapped by its runtime: only what C code allocates is recorded"),
    (
        "_emalloc",
        "PHP lays its values out in a heap of its own, which is recorded as mappings; with USE_ZEND_ALLOC=0 in the \
         environment each is an allocation",
    ),
    ("rb_newobj_of", "Ruby lays objects out in heap pages: the pages are recorded, the objects in them are not"),
];

/// The document of `info`, with remarks from the modules' files. Names of generated code are looked up in recordings that
/// have some.
pub fn info(trace: &Trace, symbols: &dyn RecordingSymbols) -> Info {
    let mut info = info::run(trace);
    let t_ns = info.process.duration_ns;
    let said = info.remarks.iter().any(|remark| remark.topic == SAID);
    let (objects, missing) = examine(&trace.facts().modules);
    let mut found = remarks(&objects, missing, said);
    if has_python_objects(&info) {
        found.retain(|(topic, text)| *topic != OWN_HEAP || !text.contains("--python-objects"));
    }
    found.extend(missing_frames::remarks(trace, symbols, &objects));
    info.remarks.extend(found.into_iter().map(|(topic, text)| Remark { t_ns, topic: topic.into(), text }));
    info
}

/// Whether each object of Python's is an allocation: the recorder hooks its allocator, or Python uses malloc.
fn has_python_objects(info: &Info) -> bool {
    let said = |topic: &str| info.remarks.iter().any(|remark| remark.topic == topic);
    let wanted = info.recorder.options.iter().any(|option| option.starts_with("TRACEHOUND_PYTHON_OBJECTS="));
    said("python-malloc") || wanted && !said("python-objects")
}

/// One file.
#[derive(Debug, Default)]
struct Examined {
    name: String,
    is_program: bool,
    /// Functions that other objects can use.
    offers: BTreeSet<Vec<u8>>,
    /// Functions that it takes from others.
    takes: BTreeSet<Vec<u8>>,
    /// Allocators that are inside, whoever may use them.
    inside: Vec<Family>,
    /// The same, known by their messages only.
    inside_by_text: Vec<Family>,
    runtimes: Vec<&'static str>,
    others: BTreeSet<&'static str>,
    /// Functions of runtimes, by address as in the file.
    landmarks: Vec<(Landmark, Range<u64>)>,
    /// Where it was loaded, less the addresses in the file.
    bias: u64,
}

/// What is in the files that are there, and how many are not.
fn examine(modules: &[ModuleFacts]) -> (Vec<Examined>, u64) {
    let mut seen = BTreeSet::new();
    let (mut objects, mut missing) = (Vec::new(), 0_u64);
    for module in modules.iter().filter(|module| is_of_interest(&module.path) && !module.is_interpreted()) {
        if seen.insert(&module.path) {
            match look_at(module) {
                Some(object) => {
                    objects.push(Examined { is_program: module.id == 0, bias: module.bias, ..object });
                }
                None => missing += 1,
            }
        }
    }
    (objects, missing)
}

fn remarks(objects: &[Examined], missing: u64, said_by_recorder: bool) -> Vec<(&'static str, String)> {
    let mut list = Vec::new();
    for object in objects {
        let hooked = object.is_program && said_by_recorder;
        list.extend(bypassing_calls(object, objects).filter(|_| !hooked));
        list.extend(calls_of_libc(object));
        let exports_malloc = object.offers.contains(&b"malloc"[..]);
        if !hooked && !exports_malloc {
            let place = if object.is_program { "the program" } else { object.name.as_str() };
            for family in &object.inside {
                let text = format!("{} is inside {place}: blocks from it are not recorded.", family.name());
                list.push((UNSEEN, text));
            }
            for family in object.inside_by_text.iter().filter(|family| !object.inside.contains(family)) {
                let text = format!(
                    "{} seems to be inside {place}, without its symbols: blocks from it are not recorded.",
                    family.name()
                );
                list.push((UNSEEN, text));
            }
            for other in &object.others {
                list.push((UNSEEN, format!("{other} is inside {place}: blocks from it are not recorded.")));
            }
        }
        list.extend(object.runtimes.iter().map(|text| (OWN_HEAP, format!("{}: {text}.", object.name))));
    }
    if missing > 0 {
        let files = if missing == 1 { "one module".into() } else { format!("{missing} modules") };
        list.push((
            "unexamined",
            format!("The files of {files} are not on this machine as recorded, and were not searched for allocators."),
        ));
    }
    list
}

/// Functions that `object` offers beside the C library's names and that others call.
fn bypassing_calls<'a>(
    object: &'a Examined,
    all: &'a [Examined],
) -> impl Iterator<Item = (&'static str, String)> + use<'a> {
    let mut users: BTreeMap<Family, (BTreeSet<&str>, BTreeSet<String>)> = BTreeMap::new();
    for other in all.iter().filter(|other| !std::ptr::eq(*other, object)) {
        for name in other.takes.iter().filter(|name| object.offers.contains(*name)) {
            if let Some(family) = allocators::beside_standard(name) {
                let (by, names) = users.entry(family).or_default();
                by.insert(&other.name);
                names.insert(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    users.into_values().map(|(by, names)| {
        let more = names.len().saturating_sub(NAMES_SHOWN);
        let mut names = names.into_iter().take(NAMES_SHOWN).collect::<Vec<_>>().join(", ");
        if more > 0 {
            names += &format!(" and {more} more");
        }
        let by = by.into_iter().collect::<Vec<_>>().join(", ");
        (UNSEEN, format!("{by} calls {names} of {}: what these give and take is not recorded.", object.name))
    })
}

/// Functions of glibc's allocator that `object` calls by glibc's own names.
fn calls_of_libc(object: &Examined) -> Option<(&'static str, String)> {
    const NAMES: [&str; 7] = ["malloc", "calloc", "realloc", "memalign", "valloc", "pvalloc", "free"];
    let own = NAMES.map(|name| format!("__libc_{name}"));
    let names: Vec<String> = own.into_iter().filter(|name| object.takes.contains(name.as_bytes())).collect();
    let (who, names) = (&object.name, (!names.is_empty()).then(|| names.join(", "))?);
    Some((UNSEEN, format!("{who} calls {names} of glibc: what these give and take is not recorded.")))
}

/// The loader, the C library, the vdso and the recorder itself need no look.
fn is_of_interest(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let known: [&[u8]; 6] = [b"[", b"ld-", b"libc.so", b"libc-", b"libtracehound", b"libm.so"];
    !name.is_empty() && !known.iter().any(|start| name.starts_with(start))
}

/// `None` when the file is not there any more, or another one.
fn look_at(module: &ModuleFacts) -> Option<Examined> {
    let path = Path::new(OsStr::from_bytes(&module.path));
    let (bytes, _) = map(path).ok()??;
    let elf = ElfFile64::<Endianness>::parse(&bytes[..]).ok()?;
    if elf.build_id().ok().flatten().unwrap_or_default() != module.build_id {
        return None;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut object = Examined { name, ..Examined::default() };
    let mut finder = Finder::default();
    let is_function =
        |kind: SymbolKind| matches!(kind, SymbolKind::Text | SymbolKind::Unknown) || kind == SymbolKind::Label;
    for symbol in elf.dynamic_symbols().filter(|symbol| is_function(symbol.kind())) {
        let Ok(name) = symbol.name_bytes() else { continue };
        if symbol.is_undefined() {
            object.takes.insert(name.to_vec());
        } else {
            object.offers.insert(name.to_vec());
        }
    }
    let dynamic = elf.dynamic_symbols().filter(|symbol| !symbol.is_undefined());
    let full = elf.symbols().filter(|symbol| !symbol.is_undefined());
    for symbol in full.chain(dynamic).filter(|symbol| is_function(symbol.kind())) {
        let Ok(name) = symbol.name_bytes() else { continue };
        finder.symbol(name, symbol.address(), symbol.address() + symbol.size(), symbol.is_global());
        let runtime = RUNTIMES.iter().find(|(known, _)| known.as_bytes() == name);
        if let Some((_, text)) = runtime.filter(|(_, text)| !object.runtimes.contains(text)) {
            object.runtimes.push(text);
        }
        let landmark = Landmark::of_symbol(name);
        let range = symbol.address()..symbol.address().saturating_add(symbol.size());
        object.landmarks.extend(landmark.map(|landmark| (landmark, range)));
        let other = allocators::NOT_HOOKED.iter().find(|(known, _)| known.as_bytes() == name);
        object.others.extend(other.map(|(_, what)| *what));
    }
    let Allocators { functions, .. } = finder.finish();
    // The program's `malloc` is wrapped where the recorder was linked in, whoever defines it.
    let own = has_recorder(&elf);
    let wrapped = |family| own && functions.iter().any(|found| found.family == family && found.name == b"malloc");
    let is_unseen = |family: &Family| *family != Family::Standard && !wrapped(*family);
    object.inside = functions.iter().map(|found| found.family).filter(is_unseen).collect();
    object.inside.sort_unstable();
    object.inside.dedup();
    if elf.section_by_name(".go.buildinfo").is_some() && object.runtimes.is_empty() {
        object.runtimes.push(RUNTIMES[3].1);
    }
    object.inside_by_text = texts_inside(&elf);
    if object.offers.contains(&b"Py_GetVersion"[..]) {
        // CPython 3.13 and later contain it. The recorder has a remark where PYTHONMALLOC selects it.
        object.inside.retain(|family| *family != Family::Mimalloc);
        object.inside_by_text.retain(|family| *family != Family::Mimalloc);
    }
    Some(object)
}

/// Whether the recorder was linked into the program: `libtracehound.a` leaves a note in its file.
pub fn has_recorder(elf: &ElfFile64<'_, Endianness>) -> bool {
    let is_ours = |header: &ProgramHeader64<Endianness>| {
        let Ok(Some(mut notes)) = header.notes(elf.endian(), elf.data()) else { return false };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == linked::NOTE_NAME.as_bytes() && note.n_type(elf.endian()) == NoteType(linked::NOTE_TYPE) {
                return true;
            }
        }
        false
    };
    elf.elf_program_headers().iter().any(is_ours)
}

/// The families whose messages are among the file's constants. A recorder that was linked in brings jemalloc's along, which
/// says nothing of the program.
pub fn texts_inside(elf: &ElfFile64<'_, Endianness>) -> Vec<Family> {
    let own = has_recorder(elf);
    let constants: Vec<&[u8]> = elf
        .sections()
        .filter(|section| section.name().is_ok_and(|name| name.starts_with(".rodata")))
        .filter_map(|section| section.data().ok())
        .collect();
    let holds = |family: &Family| {
        family.text_inside().is_some_and(|text| {
            let finder = memmem::Finder::new(text);
            constants.iter().any(|bytes| finder.find(bytes).is_some())
        })
    };
    Family::WITH_TEXT.into_iter().filter(|family| !(own && *family == Family::Jemalloc) && holds(family)).collect()
}
