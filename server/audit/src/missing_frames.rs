//! Remarks on frames that backtraces do not have: functions of a runtime that neither unwinders nor symbol tables know,
//! how many allocations it is, and how to get them.

use std::ops::Range;

use tracehound_api::Metric;
use tracehound_api::info::End;
use tracehound_index::facts::{ModuleFacts, is_interpreted};
use tracehound_index::symbols::{LocationId, RecordingSymbols};
use tracehound_index::{Cancel, Trace};
use tracehound_query::node_sums::{self, NodeSumsParams};

use super::Examined;

/// Topic of the remarks.
const MISSING: &str = "missing-frames";

/// A function of a runtime that frames are missing around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Landmark {
    /// Go's way to a stack for C code.
    GoSwitch,
    /// V8's interpreter, which stands for whatever function it runs.
    V8Interpreter,
    /// The start of a JVM.
    Jvm,
}

/// How names of symbols begin that are landmarks.
const LANDMARKS: [(&[u8], Landmark); 3] = [
    (b"runtime.asmcgocall", Landmark::GoSwitch),
    (b"Builtins_InterpreterEntryTrampoline", Landmark::V8Interpreter),
    (b"JNI_CreateJavaVM", Landmark::Jvm),
];

impl Landmark {
    pub(super) fn of_symbol(name: &[u8]) -> Option<Self> {
        LANDMARKS.iter().find(|(start, _)| name.starts_with(start)).map(|&(_, landmark)| landmark)
    }
}

/// Role of a place in the code for these remarks.
#[derive(Debug, Clone, Copy, Default)]
struct CodePlace {
    is_go_switch: bool,
    is_v8_interpreter: bool,
    /// In no module.
    is_generated: bool,
    /// In no module, and with a name.
    is_named: bool,
    /// A function of Python's whose name the recording does not have.
    is_unnamed_python: bool,
}

/// Allocations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    all: u64,
    /// Those whose backtraces end where C code got a stack of its own.
    go: u64,
    /// Those through functions of V8, or in a JVM through generated code; those among them without any name.
    through: u64,
    nameless: u64,
    /// Those whose outermost frame is generated code.
    cut: u64,
    /// Those through functions of Python's whose names the recording does not have.
    unnamed_python: u64,
}

/// One remark a runtime; none where frames are as they should be.
pub(super) fn remarks(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    objects: &[Examined],
) -> Vec<(&'static str, String)> {
    let with = |landmark: Landmark| objects.iter().find(|object| object.landmarks.iter().any(|of| of.0 == landmark));
    let (go, jvm) = (with(Landmark::GoSwitch), with(Landmark::Jvm));
    let v8 =
        with(Landmark::V8Interpreter).map(|object| object.name.clone()).or_else(|| v8_without_symbols(trace, objects));
    let is_known = go.or(jvm).is_some() || v8.is_some();
    let is_killed = trace.end() == End::Killed;
    let is_generated = |id: LocationId| {
        let location = trace.location(id);
        location.module.is_none() || is_killed && is_interpreted(location.pc)
    };
    let generates = || (0..trace.location_count()).any(is_generated);
    if !is_known && !generates() {
        return Vec::new();
    }
    // Not cancellable: a summary is computed as a whole.
    let Some(counts) = count(trace, symbols, objects, &Cancel::new()) else { return Vec::new() };
    let texts = [
        go.and_then(|object| of_go(&object.name, counts)),
        v8.and_then(|name| of_v8(&name, counts)),
        jvm.and_then(|object| of_jvm(&object.name, counts, trace.end() == End::Running)),
        if is_known { None } else { of_others(counts, is_killed) },
        of_python(counts),
    ];
    texts.into_iter().flatten().map(|text| (MISSING, text)).collect()
}

/// The object with V8 inside where its interpreter has no symbol, so that code which V8 has generated is all that is known
/// of JavaScript: one that exports V8's functions, or is called as Node is and is not on this machine.
fn v8_without_symbols(trace: &Trace, objects: &[Examined]) -> Option<String> {
    let is_examined = |name: &str| objects.iter().any(|object| object.name == name);
    let is_called = |name: &str| ["node", "nodejs"].contains(&name) || name.starts_with("libnode.so");
    let exports = objects.iter().find(|object| object.offers.contains(super::V8_FUNCTION.as_bytes()));
    let by_name = || trace.modules().iter().map(ModuleFacts::name).find(|name| is_called(name) && !is_examined(name));
    exports.map(|object| object.name.clone()).or_else(by_name)
}

fn count(trace: &Trace, symbols: &dyn RecordingSymbols, objects: &[Examined], cancel: &Cancel) -> Option<Counts> {
    let places = places(trace, symbols, objects, cancel)?;
    let params = NodeSumsParams { metric: Metric::Allocated, ..NodeSumsParams::default() };
    let sums = node_sums::run(trace, symbols, &params, cancel).ok()?;
    let mut counts = Counts::default();
    for sum in &sums.nodes {
        let count = sum.sum.amount().count;
        let mut through = CodePlace::default();
        let mut outermost = CodePlace::default();
        for node in trace.stack(sum.node) {
            let location = trace.node_location(node);
            outermost = location.and_then(|location| places.get(location as usize).copied()).unwrap_or_default();
            through.is_v8_interpreter |= outermost.is_v8_interpreter;
            through.is_generated |= outermost.is_generated;
            through.is_named |= outermost.is_named;
            through.is_unnamed_python |= outermost.is_unnamed_python;
        }
        let add = |to: &mut u64, holds: bool| *to += if holds { count } else { 0 };
        let is_through = through.is_v8_interpreter || through.is_generated;
        add(&mut counts.all, true);
        add(&mut counts.go, outermost.is_go_switch);
        add(&mut counts.through, is_through);
        add(&mut counts.nameless, is_through && !through.is_named);
        add(&mut counts.cut, outermost.is_generated);
        add(&mut counts.unnamed_python, through.is_unnamed_python);
    }
    Some(counts)
}

/// By location.
fn places(
    trace: &Trace,
    symbols: &dyn RecordingSymbols,
    objects: &[Examined],
    cancel: &Cancel,
) -> Option<Vec<CodePlace>> {
    let ranges = |landmark: Landmark| -> Vec<Range<u64>> {
        let of = |object: &Examined| {
            let here = object.landmarks.iter().filter(|of| of.0 == landmark);
            here.map(|(_, range)| object.bias.wrapping_add(range.start)..object.bias.wrapping_add(range.end))
                .collect::<Vec<_>>()
        };
        objects.iter().flat_map(of).collect()
    };
    let (go, v8) = (ranges(Landmark::GoSwitch), ranges(Landmark::V8Interpreter));
    let mut places = Vec::new();
    let mut nameless: Vec<LocationId> = Vec::new();
    for id in 0..trace.location_count() {
        let location = trace.location(id);
        let call = location.pc.wrapping_sub(1);
        let is_in = |ranges: &[Range<u64>]| ranges.iter().any(|range| range.contains(&call));
        let is_python = is_interpreted(location.pc);
        let is_generated = location.module.is_none() && !is_python;
        // All that a process met before its end have names.
        let is_unnamed_python = is_python && trace.end() == End::Killed;
        if is_generated || is_unnamed_python {
            nameless.push(id);
        }
        places.push(CodePlace {
            is_go_switch: is_in(&go),
            is_v8_interpreter: is_in(&v8),
            is_generated,
            is_named: false,
            is_unnamed_python,
        });
    }
    symbols.resolve(trace, &nameless, cancel).ok()?;
    let mut levels = Vec::new();
    for id in nameless {
        levels.clear();
        symbols.frames(trace, id, &mut levels);
        let has_name = levels.iter().any(|level| symbols.function(level.function).name.is_some());
        let place = &mut places[id as usize];
        place.is_named = has_name && place.is_generated;
        place.is_unnamed_python &= !has_name;
    }
    Some(places)
}

fn of_go(object: &str, counts: Counts) -> Option<String> {
    (counts.go > 0).then(|| {
        format!(
            "{object}: the backtraces of {} of {} end at runtime.asmcgocall, where C code that Go calls gets another \
             stack: the Go functions that called it are not shown. The outermost C function says which call it was; a \
             request context that the C code sets (tracehound_context_set) says whose.",
            counts.go,
            allocations(counts.all)
        )
    })
}

fn of_v8(object: &str, counts: Counts) -> Option<String> {
    (counts.nameless * 2 > counts.through).then(|| {
        format!(
            "{object}: {} of {} through JavaScript have none of its functions in their backtraces: V8 tells what its \
             code is called only when it is told to. `heaptrace run --names` does that (NODE_OPTIONS with \
             --interpreted-frames-native-stack --perf-basic-prof), and keeps the names in the recording.",
            counts.nameless,
            allocations(counts.through)
        )
    })
}

fn of_jvm(object: &str, counts: Counts, runs: bool) -> Option<String> {
    // A few that end there are ends of threads.
    let is_cut = counts.cut * 100 > counts.through;
    // A JVM writes names when it exits: before that nobody knows whether it will.
    let is_nameless = !runs && counts.nameless * 2 > counts.through;
    let what = match (is_cut, is_nameless) {
        (false, false) => return None,
        (true, _) => format!(
            "the backtraces of {} of {} through Java end in code that the JVM has compiled, which keeps no frame \
             pointers: callers are missing there, and others may lack frames",
            counts.cut,
            allocations(counts.through)
        ),
        (false, true) => {
            format!("{} of {} through Java have no method's name", counts.nameless, allocations(counts.through))
        }
    };
    let also =
        if is_cut && is_nameless { format!("; {} have no method's name", counts.nameless) } else { String::new() };
    Some(format!(
        "{object}: {what}{also}. `heaptrace run --names` has the JVM keep frame pointers, and say when it exits what its \
         code is called (JAVA_TOOL_OPTIONS with -XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions \
         -XX:+DumpPerfMapAtExit, JDK 17 or later)."
    ))
}

/// Where more than one allocation in a hundred is concerned: heuristic stacks elsewhere have a wrong frame now and then.
fn of_others(counts: Counts, is_killed: bool) -> Option<String> {
    let late = if is_killed { ", or has loaded in the last moment before it was killed" } else { "" };
    (counts.nameless * 100 > counts.all).then(|| {
        format!(
            "{} of {} have backtraces through code that the program has generated while it ran, or has loaded without the \
             loader{late}, and nothing says what it is called or how it is unwound: functions and their callers may be missing there. Some runtimes write the names into \
             a perf map, which is read, when they are told to: +JPperf true (Erlang), DOTNET_PerfMapEnabled=1 (.NET), \
             --yjit-perf (Ruby).",
            counts.nameless,
            allocations(counts.all)
        )
    })
}

/// Names are in the file some milliseconds after the function was met; a kill before that leaves the addresses.
fn of_python(counts: Counts) -> Option<String> {
    (counts.unnamed_python > 0).then(|| {
        format!(
            "{} of {} have backtraces through Python functions without names: they were met in the last moment before the \
             process was killed, and their names were not in the file yet.",
            counts.unnamed_python,
            allocations(counts.all)
        )
    })
}

fn allocations(count: u64) -> String {
    if count == 1 { "one allocation".into() } else { format!("{count} allocations") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_are_made_where_there_is_something_to_say() {
        let counts = |go, through, nameless, cut| Counts { all: 1000, go, through, nameless, cut, unnamed_python: 0 };
        assert_eq!(of_go("app", counts(0, 0, 0, 0)), None);
        assert!(
            of_go("app", counts(7, 0, 0, 0)).unwrap().starts_with("app: the backtraces of 7 of 1000 allocations end")
        );
        // Half of them have a name: somebody has said what there is.
        assert_eq!(of_v8("node", counts(0, 100, 50, 0)), None);
        assert!(of_v8("node", counts(0, 100, 51, 0)).unwrap().contains("51 of 100 allocations through JavaScript"));
        assert_eq!(of_v8("node", counts(0, 0, 0, 0)), None);
        assert_eq!(of_jvm("libjvm.so", counts(0, 100, 50, 1), false), None);
        assert_eq!(of_jvm("libjvm.so", counts(0, 0, 0, 0), false), None);
        let cut = of_jvm("libjvm.so", counts(0, 100, 0, 2), false).unwrap();
        assert!(cut.contains("of 2 of 100 allocations") && !cut.contains("method"), "{cut}");
        let both = of_jvm("libjvm.so", counts(0, 100, 100, 2), false).unwrap();
        assert!(both.contains("; 100 have no method's name"), "{both}");
        // While it runs, its names are still to come.
        assert_eq!(of_jvm("libjvm.so", counts(0, 100, 100, 0), true), None);
        assert!(!of_jvm("libjvm.so", counts(0, 100, 100, 2), true).unwrap().contains("method"));
        assert_eq!(of_others(counts(0, 500, 10, 500), false), None);
        assert!(of_others(counts(0, 500, 11, 500), false).unwrap().starts_with("11 of 1000 allocations"));
        let late = "has loaded in the last moment before it was killed";
        assert!(of_others(counts(0, 500, 11, 500), true).unwrap().contains(late));
        assert!(!of_others(counts(0, 500, 11, 500), false).unwrap().contains(late));
        assert_eq!(of_python(counts(0, 0, 0, 0)), None);
        let unnamed = of_python(Counts { unnamed_python: 10, ..counts(0, 0, 0, 0) }).unwrap();
        assert!(
            unnamed.starts_with("10 of 1000 allocations have backtraces through Python functions without"),
            "{unnamed}"
        );
        let nameless = of_jvm("libjvm.so", counts(0, 1, 1, 0), false).unwrap();
        assert!(nameless.contains("1 of one allocation through Java have no method's name"), "{nameless}");
    }
}
