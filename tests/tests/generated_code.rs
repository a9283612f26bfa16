//! `heaptrace run --names`: what a runtime generates has names, and they are in the recording.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tracehound_tests::{dump, heaptrace, json, number};

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
    let pid = number(&json(&["info"], &path), "/process/pid");
    std::fs::remove_file(format!("/tmp/perf-{pid}.map")).unwrap();
    path
}

/// As on another machine: nothing of the recording's index is there, and no file of the runtime's.
fn elsewhere(path: &Path, folder: &TempDir) -> PathBuf {
    let copy = folder.path().join("elsewhere.dat");
    std::fs::copy(path, &copy).unwrap();
    copy
}

/// Of the stacks through generated code, how many have at least one named frame of the program's, and how many there are.
fn named(events: &[Value], is_named: impl Fn(&str) -> bool) -> (usize, usize) {
    let stacks = events.iter().filter(|event| event["kind"] == "alloc").filter_map(|event| event["stack"].as_array());
    let generated = stacks.filter(|stack| stack.iter().any(|frame| frame["module"].is_null()));
    let (mut named, mut all) = (0, 0);
    for stack in generated {
        all += 1;
        named += usize::from(stack.iter().any(|frame| frame["function"].as_str().is_some_and(&is_named)));
    }
    (named, all)
}

#[test]
fn stacks_through_javascript_have_its_functions() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("app.js"), NODE).unwrap();
    let path = record(&folder, &["node", "app.js"]);
    let events = dump(&elsewhere(&path, &folder));
    let (named, all) = named(&events, |function| function.starts_with("JS:"));
    println!("{named} of {all} stacks through generated code have a name");
    assert!(all > 1000 && named * 100 >= all * 95, "{named} of {all}");
    // Both functions of the program, by name and place, around its own allocations.
    let of_program = |stack: &Value| {
        let text = stack.to_string();
        text.contains("packNumbered") && text.contains("handleRequest") && text.contains("app.js")
    };
    let found = events.iter().filter(|event| event["kind"] == "alloc" && of_program(&event["stack"])).count();
    assert!(found > 1000, "{found}");
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
    let path = record(&folder, &["java", "-cp", ".", "Packs"]);
    let events = dump(&elsewhere(&path, &folder));
    let of_deflater = |event: &&Value| event["kind"] == "alloc" && event["stack"].to_string().contains("deflateInit2_");
    let all = events.iter().filter(of_deflater).count();
    let named = events.iter().filter(of_deflater).filter(|event| event["stack"].to_string().contains("packNumbered"));
    let named = named.count();
    println!("{named} of {all} allocations below Deflater have the method that made it");
    // What was interpreted before it was compiled has the interpreter's frames.
    assert!(all > 20_000 && named * 100 >= all * 85, "{named} of {all}");
}
