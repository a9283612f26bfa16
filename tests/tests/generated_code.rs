//! `heaptrace run --names`: what a runtime generates has names, and they are in the recording; where frames of a runtime are
//! missing, the recording says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tracehound_tests::{
    compile, dump_by_head, dump_of_each_stack, dump_of_stacks_with_all_frames, heaptrace, json as ask, number,
};

/// Allocates in native code that JavaScript calls: compressed data, buffers.
const NODE: &str = "
const zlib = require('zlib');
function packNumbered(number) { return zlib.deflateSync(Buffer.alloc(5000, number)); }
function handleRequest(number) { return packNumbered(number).length + Buffer.allocUnsafeSlow(9000 + number).length; }
let sum = 0;
for (let number = 0; number < 1000; number++) sum += handleRequest(number);
console.log(sum > 0);
";

/// Records `command`, and takes the runtime's own file of names away.
fn record(folder: &TempDir, command: &[&str]) -> PathBuf {
    let path = folder.path().join("named.dat");
    let mut run = Command::new(heaptrace());
    run.args(["run", "--names", "-o"]).arg(&path).arg("--").args(command).current_dir(folder.path());
    // OpenSSL would read hundreds of certificates.
    run.env_remove("NODE_EXTRA_CA_CERTS");
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("--names sets"), "{said}");
    assert!(said.contains("pieces of generated code are in the recording"), "{said}");
    let pid = number(&ask(&["info"], &path), "/process/pid");
    // A runtime that has written a log may have written no map.
    let map = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    let _ = std::fs::remove_file(&map);
    assert!(!map.exists());
    path
}

/// As on another machine: nothing of the recording's index is there, and no file of the runtime's.
fn elsewhere(path: &Path, folder: &TempDir) -> PathBuf {
    let copy = folder.path().join("elsewhere.dat");
    std::fs::copy(path, &copy).unwrap();
    copy
}

/// Allocations whose stacks are as `is_wanted` says.
fn allocs(events: &[(Value, usize)], is_wanted: impl Fn(&Value) -> bool) -> usize {
    let wanted = events.iter().filter(|(event, _)| event["kind"] == "alloc" && is_wanted(&event["stack"]));
    wanted.map(|(_, count)| count).sum()
}

/// Frames of different stacks.
fn frames(events: &[(Value, usize)]) -> impl Iterator<Item = &Value> {
    events.iter().filter_map(|(event, _)| event["stack"].as_array()).flatten()
}

/// Of the stacks through generated code, how many have at least one frame in a language, and how many there are.
fn named(events: &[(Value, usize)], language: &str) -> (usize, usize) {
    let any = |stack: &Value, is_wanted: &dyn Fn(&Value) -> bool| {
        stack.as_array().is_some_and(|frames| frames.iter().any(is_wanted))
    };
    let is_generated = |stack: &Value| any(stack, &|frame| frame["module"].is_null());
    let is_named = |stack: &Value| any(stack, &|frame| frame["language"] == language && frame["function"].is_string());
    (allocs(events, |stack| is_generated(stack) && is_named(stack)), allocs(events, is_generated))
}

/// The names are behind the recording's end.
#[test]
fn the_next_recording_takes_the_place_of_one_with_names() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("app.js"), NODE).unwrap();
    let pid = |path: &Path| number(&ask(&["info"], path), "/process/pid");
    let first = pid(&record(&folder, &["node", "app.js"]));
    assert_ne!(first, pid(&record(&folder, &["node", "app.js"])));
    assert!(!folder.path().join("named.1.dat").exists());
}

#[test]
fn stacks_through_javascript_have_its_functions() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("app.js"), NODE).unwrap();
    let path = record(&folder, &["node", "app.js"]);
    let events = dump_of_each_stack(&elsewhere(&path, &folder));
    let (named, all) = named(&events, "javascript");
    println!("{named} of {all} stacks through generated code have a name");
    assert!(all > 1000 && named * 100 >= all * 95, "{named} of {all}");
    // Both functions of the program, by name and place, around its own allocations.
    let of_program = |stack: &Value| {
        let text = stack.to_string();
        text.contains("packNumbered") && text.contains("handleRequest") && text.contains("app.js")
    };
    let found = allocs(&events, of_program);
    assert!(found > 1000, "{found}");
    // A frame has the function, where it begins, and its language; what V8 made for itself is in none.
    let source = folder.path().canonicalize().unwrap().join("app.js");
    for (function, line) in [("packNumbered", 3), ("handleRequest", 4)] {
        let frame = frame_of(&events, function).unwrap_or_else(|| panic!("no frame is {function}"));
        assert_eq!((&frame["file"], &frame["line"]), (&json!(source), &json!(line)), "{frame}");
        assert_eq!(frame["language"], "javascript", "{frame}");
    }
    for frame in frames(&events).filter(|frame| frame["module"].is_null()) {
        let function = frame["function"].as_str().unwrap_or_default();
        assert!(!["JS:", "LazyCompile:", "Function:"].iter().any(|tag| function.starts_with(tag)), "{frame}");
        assert!(!function.starts_with("Builtin:") || frame["language"].is_null(), "{frame}");
    }
    // The answer to "who" is a function of the program's, and none of V8's or Node's.
    let sites = ask(&["sites"], &path);
    for site in &sites["sites"].as_array().unwrap()[..2] {
        let by = site["function"].as_str().unwrap_or_default();
        assert!(["packNumbered", "handleRequest"].contains(&by), "{site:#}");
    }
    let exported = export(&path, &folder, "folded");
    assert!(exported.contains("handleRequest;packNumbered;"), "{}", &exported[..exported.len().min(4000)]);
    // Other tools draw it by its language, and find its place.
    assert!(export(&path, &folder, "otlp").contains("v8js"));
    let speedscope: Value = serde_json::from_str(&export(&path, &folder, "speedscope")).unwrap();
    let frames = speedscope["shared"]["frames"].as_array().unwrap();
    let frame = frames.iter().find(|frame| frame["name"] == "packNumbered").unwrap();
    assert_eq!(frame["file"], json!(source), "{frame}");
}

/// The first frame of a function, in any event.
fn frame_of<'a>(events: &'a [(Value, usize)], function: &str) -> Option<&'a Value> {
    frames(events).find(|frame| frame["function"] == function)
}

/// A recording in another tool's format; what is no text stands for itself.
fn export(path: &Path, folder: &TempDir, format: &str) -> String {
    let mut export = Command::new(heaptrace());
    export.args(["export", "--format", format, "--metric", "allocated", "-o", "-"]).arg(path);
    let output = export.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Allocates in native code that compiled Java calls.
const JAVA: &str = "
import java.util.zip.Deflater;
public class Packs {
  static int packNumbered(int number) {
    Deflater deflater = new Deflater();
    byte[] text = new byte[2000], packed = new byte[3000];
    text[0] = (byte) number;
    deflater.setInput(text);
    deflater.finish();
    int size = deflater.deflate(packed);
    deflater.end();
    return size;
  }
  public static void main(String[] arguments) {
    int sum = 0;
    for (int number = 0; number < 20000; number++) sum += packNumbered(number);
    System.out.println(sum > 0);
  }
}
";

#[test]
fn stacks_through_java_have_its_methods() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("Packs.java"), JAVA).unwrap();
    let compiled = Command::new("javac").arg("Packs.java").current_dir(folder.path()).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    // The program waits while a method is compiled: beside other work, it might be over before the compiler's turn.
    let path = record(&folder, &["java", "-Xbatch", "-cp", ".", "Packs"]);
    let events = dump_of_each_stack(&elsewhere(&path, &folder));
    let of_deflater = |stack: &Value| stack.to_string().contains("deflateInit2_");
    let all = allocs(&events, of_deflater);
    let named = allocs(&events, |stack| of_deflater(stack) && stack.to_string().contains("packNumbered"));
    println!("{named} of {all} allocations below Deflater have the method that made it");
    assert!(all > 20_000 && named * 100 >= all * 95, "{named} of {all}");
    // What ran before the method was compiled has the interpreter's frames; no compiled method lacks its name.
    let has_nameless = |stack: &Value| stack.as_array().unwrap().iter().any(|frame| frame["function"].is_null());
    assert_eq!(allocs(&events, |stack| of_deflater(stack) && has_nameless(stack)), 0);
    let frame = frame_of(&events, "Packs.packNumbered(int)").expect("the method is named without its type");
    assert_eq!(frame["language"], "java", "{frame}");
    let library = frame_of(&events, "java.util.zip.Deflater.init(int, int, boolean)").expect("Deflater's constructor");
    assert_eq!(library["language"], "java", "{library}");
    // The interpreter and stubs are the JVM's own.
    let own =
        |frame: &&Value| ["Interpreter", "StubRoutines (1)"].contains(&frame["function"].as_str().unwrap_or_default());
    assert!(frames(&events).any(|frame| frame["function"] == "StubRoutines (1)"), "Java is called through a stub");
    for frame in frames(&events).filter(own) {
        assert!(frame["language"].is_null(), "{frame}");
    }
}

/// Calls JavaScript out of V8's own code, and that out of JavaScript.
const THROUGH_V8: &str = "
const kept = [];
function keepNumbered(number) { kept.push(Buffer.allocUnsafeSlow(number)); }
function eachNumbered(list) { list.forEach(function eachOne(number) { keepNumbered(number); }); }
function replaced(number) { 'x'.replace(/x/, function replacer() { keepNumbered(number); return 'y'; }); }
async function later(number) { await null; keepNumbered(number); }
eachNumbered([700010]);
replaced(700020);
process.nextTick(later, 700030);
setTimeout(function timed() { eachNumbered([700040]); }, 5);
";

/// The functions of the stack of the one allocation of a size, innermost first, with their languages.
fn stack_of(events: &[Value], size: u64) -> Vec<(String, Option<String>)> {
    let of_size = |event: &&Value| event["kind"] == "alloc" && event["size"] == size;
    let event = events.iter().find(of_size).unwrap_or_else(|| panic!("nothing has {size} bytes"));
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let frame = |frame: &Value| (text(&frame["function"]).unwrap_or_default(), text(&frame["language"]));
    event["stack"].as_array().expect("a stack").iter().map(frame).collect()
}

/// What is left out of `all` in `user`, in order; both have everything else.
fn left_out(all: &[(String, Option<String>)], user: &[(String, Option<String>)]) -> Vec<String> {
    let mut shown = user.iter().peekable();
    let out = all.iter().filter(|frame| shown.next_if_eq(frame).is_none()).map(|(name, _)| name.clone()).collect();
    assert_eq!(shown.next(), None, "{user:?} is in {all:?}");
    out
}

#[test]
fn v8s_own_frames_between_functions_are_shown_on_request() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("through.js"), THROUGH_V8).unwrap();
    let path = record(&folder, &["node", "through.js"]);
    let is_kept = |event: &Value| event["size"].as_u64().is_some_and(|size| (700_010..=700_040).contains(&size));
    let [user, all] = ["user", "all"].map(|frames| dump_by_head(&["--frames", frames], &path, is_kept));
    let is_of_v8 = |name: &str| name.starts_with("Builtins_") || name.contains("v8::internal::");
    for (size, chain) in [
        (700_010, &["keepNumbered", "eachOne", "eachNumbered"][..]),
        (700_020, &["keepNumbered", "replacer", "replaced"]),
        (700_030, &["keepNumbered", "later", "processTicksAndRejections"]),
        (700_040, &["keepNumbered", "eachOne", "eachNumbered", "timed", "listOnTimeout"]),
    ] {
        let (user, all) = (stack_of(&user, size), stack_of(&all, size));
        let out = left_out(&all, &user);
        assert!(!out.is_empty() && out.iter().all(|name| is_of_v8(name)), "{out:?}");
        // One function after the other, as they were written.
        let names: Vec<&str> = user.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.windows(chain.len()).any(|part| part == chain), "{names:?}");
        // What allocates below the innermost function stays, V8's own among it, and so does what called the outermost one.
        let script = |(_, language): &(String, Option<String>)| language.as_deref() == Some("javascript");
        let inside = |frames: &[(String, Option<String>)]| frames.iter().position(script);
        assert_eq!(inside(&user), inside(&all));
        assert!(user[..inside(&user).unwrap()].iter().any(|(name, _)| is_of_v8(name)), "{names:?}");
        let outside = |frames: &[(String, Option<String>)]| frames.iter().rev().position(script);
        assert_eq!(outside(&user), outside(&all));
    }
    // Exports, tables and flame graphs show the same.
    assert!(export(&path, &folder, "folded").contains("eachNumbered;eachOne;keepNumbered;"));
}

/// Allocates in native code below a method that the JVM itself calls: a class's own initialiser.
const THROUGH_JVM: &str = "
import java.util.zip.Deflater;
public class Through {
  static class Holder { static final Deflater kept = Through.make(); }
  static Deflater make() { return new Deflater(); }
  static long hold(int number) { Deflater deflater = make(); long size = deflater.getBytesRead(); deflater.end(); return size; }
  public static void main(String[] arguments) throws Exception {
    java.lang.reflect.Method method = Through.class.getDeclaredMethod(\"hold\", int.class);
    long sum = 0;
    for (int number = 0; number < 5000; number++) sum += (Long) method.invoke(null, number);
    System.out.println(sum + (Holder.kept == null ? 1 : 0));
  }
}
";

#[test]
fn the_jvms_own_frames_between_methods_are_shown_on_request() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("Through.java"), THROUGH_JVM).unwrap();
    let compiled = Command::new("javac").arg("Through.java").current_dir(folder.path()).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let path = record(&folder, &["java", "-cp", ".", "Through"]);
    let frame =
        |frame: &Value| (frame["function"].as_str().unwrap_or_default().to_owned(), frame["language"] == "java");
    let stack = |stack: &Value| -> Vec<(String, bool)> { stack.as_array().into_iter().flatten().map(frame).collect() };
    let pairs = dump_of_stacks_with_all_frames(&path);
    let (user, all): (Vec<_>, Vec<_>) = pairs.iter().map(|(user, all)| (stack(user), stack(all))).unzip();
    let mut out = std::collections::BTreeSet::new();
    for (user, all) in user.iter().zip(&all) {
        let ends = |stack: &[(String, bool)]| {
            (stack.iter().position(|(_, java)| *java), stack.iter().rev().position(|(_, java)| *java))
        };
        assert_eq!(ends(user), ends(all), "{all:?}");
        let mut shown = user.iter().peekable();
        out.extend(all.iter().filter(|frame| shown.next_if_eq(frame).is_none()).map(|(name, _)| name.clone()));
        assert_eq!(shown.next(), None, "{user:?} is in {all:?}");
    }
    let through_java = all.iter().filter(|stack| stack.iter().any(|(_, java)| *java)).count();
    let begins = all.iter().rev().take(3).collect::<Vec<_>>();
    assert!(
        out.contains("Interpreter"),
        "{out:?} of {} and {} stacks, {through_java} through Java: {begins:?}",
        user.len(),
        all.len()
    );
    assert!(!out.iter().any(|name| name.starts_with("Java_")), "methods in native code stay: {out:?}");
}

fn missing_frames(path: &Path) -> Vec<String> {
    let info = ask(&["info"], path);
    let remarks = info["remarks"].as_array().expect("remarks");
    let missing = remarks.iter().filter(|remark| remark["topic"] == "missing-frames");
    missing.map(|remark| remark["text"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn a_recording_says_which_frames_are_missing_and_how_to_get_them() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("app.js"), NODE).unwrap();
    std::fs::write(folder.path().join("Packs.java"), JAVA).unwrap();
    let compiled = Command::new("javac").arg("Packs.java").current_dir(folder.path()).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let plainly = |command: &[&str]| {
        let path = folder.path().join("plain.dat");
        let _ = std::fs::remove_file(&path);
        let mut run = Command::new(heaptrace());
        run.args(["run", "-o"]).arg(&path).arg("--").args(command).current_dir(folder.path());
        run.env_remove("NODE_EXTRA_CA_CERTS");
        assert!(run.output().unwrap().status.success(), "{command:?}");
        missing_frames(&path)
    };
    let is_of_v8 = |said: &[String]| {
        assert!(matches!(said, [one] if one.contains("through JavaScript") && one.contains("run --names")), "{said:?}");
    };
    is_of_v8(&plainly(&["node", "app.js"]));
    // Without its symbols it is known by what it exports, and on another machine by its name.
    let stripped = folder.path().join("node");
    let find = Command::new("sh").args(["-c", "readlink -f \"$(command -v node)\""]).output().unwrap();
    let node = String::from_utf8(find.stdout).unwrap();
    assert!(Command::new("strip").arg("-o").arg(&stripped).arg(node.trim()).status().unwrap().success());
    is_of_v8(&plainly(&["./node", "app.js"]));
    std::fs::remove_file(&stripped).unwrap();
    std::fs::rename(folder.path().join("plain.dat"), folder.path().join("away.dat")).unwrap();
    is_of_v8(&missing_frames(&folder.path().join("away.dat")));
    let java = plainly(&["java", "-cp", ".", "Packs"]);
    assert!(matches!(java.as_slice(), [one] if one.contains("-XX:+PreserveFramePointer")), "{java:?}");
    // Done as they say, there is nothing to say.
    assert_eq!(missing_frames(&record(&folder, &["node", "--no-turbo-inlining", "app.js"])), [""; 0]);
    assert_eq!(missing_frames(&record(&folder, &["java", "-cp", ".", "Packs"])), [""; 0]);
    // C programs have nothing of the kind.
    let program = compile("suppressed.c", &["-O1"]);
    assert_eq!(plainly(&[program.to_str().unwrap()]), [""; 0]);
}

/// A library in the place of HotSpot's build without generated code, and a program that allocates in it.
#[test]
fn a_recording_says_where_a_jvm_interprets_without_frames() {
    const JVM: &str = "
        #include <stdlib.h>
        void interpret(int number) { free(malloc(100 + number)); }
    ";
    const LAUNCHER: &str = "
        void interpret(int number);
        int main(void) { for (int number = 0; number < 1000; number++) interpret(number); }
    ";
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("lib/zero")).unwrap();
    std::fs::write(at("jvm.c"), JVM).unwrap();
    std::fs::write(at("launcher.c"), LAUNCHER).unwrap();
    let compiled = Command::new("sh")
        .args([
            "-ec",
            "cc -g -shared -fPIC -o lib/zero/libjvm.so jvm.c; cc -g -o launcher launcher.c \"$PWD/lib/zero/libjvm.so\"",
        ])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let path = at("zero.dat");
    let mut run = Command::new(heaptrace());
    run.args(["run", "-o"]).arg(&path).arg("--").arg(at("launcher"));
    assert!(run.output().unwrap().status.success());
    let said = missing_frames(&path);
    let begins = "libjvm.so: 1000 of ";
    assert!(matches!(said.as_slice(), [one] if one.starts_with(begins) && one.contains("java -server")), "{said:?}");
}

/// What V8 optimises has other functions inlined, of which nothing has the names.
#[test]
fn a_recording_says_where_optimised_javascript_hides_functions() {
    const HOT: &str = "
        function take(size) { return Buffer.allocUnsafeSlow(size); }
        function serve(number) { return take(70000 + number % 10).length; }
        let sum = 0;
        for (let number = 0; number < 200000; number++) sum += serve(number);
        console.log(sum > 0);
    ";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hot.js"), HOT).unwrap();
    let through = |path: &Path, function: &str| {
        let events = dump_of_each_stack(path);
        allocs(&events, |stack| stack.to_string().contains(&format!("\"{function}\"")))
    };
    let optimised = record(&folder, &["node", "hot.js"]);
    let said = missing_frames(&optimised);
    let of_it = |text: &str| text.contains("has optimised") && text.contains("--no-turbo-inlining");
    assert!(matches!(said.as_slice(), [one] if of_it(one)), "{said:?}");
    // The loop itself is optimised, so that all from then on have lost both functions. How many came before depends on when
    // V8's own threads got a processor.
    let named = through(&optimised, "take");
    assert!(named < 190_000, "{named} of 200,000 have all their functions");
    let whole = record(&folder, &["node", "--no-turbo-inlining", "hot.js"]);
    assert_eq!(missing_frames(&whole), [""; 0]);
    assert!(through(&whole, "take") >= 200_000 && through(&whole, "serve") >= 200_000);
}

/// Allocates in C code that Go calls, in goroutines.
const GO: &str = "
package main
/*
#include <stdlib.h>
void *kept[4096];
static __attribute__((noinline)) void keep_in_c(int number) { kept[number & 4095] = malloc(1000 + number); }
*/
import \"C\"
func keepNumbered(number int) { C.keep_in_c(C.int(number)) }
//go:noinline
func keepDirectly() { for number := 0; number < 100; number++ { C.malloc(500001) } }
func main() {
	keepDirectly()
	done := make(chan bool)
	for worker := 0; worker < 2; worker++ {
		go func() {
			for number := 0; number < 1000; number++ { keepNumbered(number) }
			done <- true
		}()
	}
	<-done
	<-done
}
";

#[test]
fn gos_functions_are_known_by_their_module() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("main.go"), GO).unwrap();
    // With debug information, and without: there names alone say what a function is.
    for (name, flags) in [("whole", "-ldflags="), ("bare", "-ldflags=-w")] {
        let mut build = Command::new("go");
        build.args(["build", flags, "-o", name, "main.go"]).current_dir(folder.path()).env("CGO_ENABLED", "1");
        let built = build.output().expect("go is installed by tests/needs.sh");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let path = folder.path().join(format!("{name}.dat"));
        let mut run = Command::new(heaptrace());
        run.args(["run", "-o"]).arg(&path).arg("--").arg(folder.path().join(name));
        assert!(run.output().unwrap().status.success());
        let events = dump_of_each_stack(&path);
        let go: Vec<_> = frames(&events)
            .filter(|frame| frame["function"].as_str().is_some_and(|f| f.starts_with("runtime.")))
            .collect();
        let through_go = allocs(&events, |stack| stack.to_string().contains("\"runtime."));
        assert!(through_go > 1000 && !go.is_empty(), "{name}: {through_go}");
        assert!(
            go.iter().all(|frame| frame["language"] == "go"),
            "{name}: {:?}",
            go.iter().find(|frame| frame["language"] != "go")
        );
        // What calls malloc of C by cgo is the function of Go's, and nothing that is between.
        let sites = ask(&["sites"], &path);
        assert_eq!(sites["sites"][0]["function"], "main.keepDirectly", "{:#}", sites["sites"][0]);
        let c = frame_of(&events, "keep_in_c").expect("C's function");
        assert_eq!(c["language"], if name == "whole" { json!("c") } else { json!(null) }, "{name}: {c}");
        assert_eq!(missing_frames(&path), [""; 0], "{name}");
    }
}
