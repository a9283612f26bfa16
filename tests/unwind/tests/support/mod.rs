//! Builds the C and C++ programs of these tests and runs them against the probe library.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// One layout of the call tree's functions each.
const TREE_FLAGS: &[&str] = &[
    "-O0",
    "-O1",
    "-O2",
    "-O3",
    "-Os",
    "-Og",
    "-O0 -fomit-frame-pointer",
    "-O1 -fno-omit-frame-pointer",
    "-O2 -fno-omit-frame-pointer",
    "-O3 -fno-omit-frame-pointer",
    "-Os -fno-omit-frame-pointer",
    "-O2 -mno-accumulate-outgoing-args",
    "-O2 -maccumulate-outgoing-args",
    "-O2 -fno-shrink-wrap -fno-optimize-sibling-calls",
    "-O2 -fcf-protection=none",
    "-O2 -fstack-protector-all",
    "-O2 -fstack-clash-protection",
    "-O2 -mno-red-zone",
    "-O3 -mavx2",
];

/// Frame pointers everywhere, for the engine that knows nothing else.
const FRAME_POINTER_FLAGS: &[&str] =
    &["-O0", "-O1 -fno-omit-frame-pointer", "-O2 -fno-omit-frame-pointer", "-Os -fno-omit-frame-pointer"];

/// The program `directed`: one file for each subject.
const DIRECTED: &[&str] = &[
    "directed",
    "directed_frame_pointer",
    "directed_damaged_information",
    "directed_signals",
    "directed_memory",
    "directed_signatures",
];

/// Where the programs are, built.
pub fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build)
}

/// The folder of the probe library that this test was built with.
pub fn probe_folder() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let deps = test.parent().expect("a folder");
    assert!(deps.join("libtracehound_unwind_probe.so").exists(), "the probe library is beside the tests");
    deps.to_path_buf()
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

fn build() -> PathBuf {
    // Each state of the sources has a folder of its own, so that runs side by side do not disturb each other.
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("unwind-{}", stamp()));
    if out.join("complete").exists() {
        return out;
    }
    fs::create_dir_all(&out).expect("a folder for the programs");
    let mut jobs = Vec::new();
    let mut tree = |name: &str, flags: &[&str], more: &str| -> String {
        let mut objects = String::new();
        for (number, flags) in flags.iter().enumerate() {
            let object = format!("{name}_{number}.o");
            jobs.push(format!("gcc {flags} {more} -DTAG=v{number} -c {{src}}/tree.c -o {object}"));
            objects += &object;
            objects.push(' ');
        }
        objects
    };
    let all = tree("tree", TREE_FLAGS, "");
    let plain = tree("plain", TREE_FLAGS, "-DNOT_REALIGNED");
    let framed = tree("framed", FRAME_POINTER_FLAGS, "-fno-optimize-sibling-calls");
    for source in ["odd", "directed"] {
        jobs.push(format!("gcc -c {{src}}/{source}.S -o {source}_asm.o"));
    }
    for source in ["differential", "loading"].iter().chain(DIRECTED) {
        jobs.push(format!("g++ -std=c++17 -Wall -Wextra -Werror -O2 -c {{src}}/{source}.cpp -o {source}.o"));
    }
    jobs.push("g++ -std=c++17 -O2 -fno-omit-frame-pointer -fno-optimize-sibling-calls -c {src}/differential.cpp -o differential_framed.o".into());
    for frame in ["88", "b8", "128"] {
        jobs.push(format!("gcc -shared -fPIC -O2 -DFRAME=0x{frame} {{src}}/library.c -o frame{frame}.so"));
    }
    jobs.push("gcc -shared -fPIC -O2 -DFRAME=0x88 -DTWIN {src}/library.c -o twin88.so".into());
    for frame in ["88", "b8"] {
        jobs.push(format!(
            "gcc -shared -fPIC -O2 -DFRAME=0x{frame} -Wl,--build-id=none {{src}}/library.c -o unnamed{frame}.so"
        ));
    }
    jobs.push("gcc -shared -fPIC -O2 -g -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-exceptions -fno-optimize-sibling-calls {src}/hidden.c -o hidden.so".into());
    in_parallel(&out, &jobs);
    let link = format!("-L{} -ltracehound_unwind_probe -lgcc_s -ldl -lpthread", probe_folder().display());
    let directed: String = DIRECTED.iter().map(|source| format!("{source}.o ")).collect();
    in_parallel(
        &out,
        &[
            format!("g++ -o differential differential.o odd_asm.o {all} {link}"),
            format!("g++ -o differential_plain differential.o odd_asm.o {plain} {link}"),
            format!("g++ -o differential_framed differential_framed.o odd_asm.o {framed} {link}"),
            format!("g++ -o directed {directed}directed_asm.o odd_asm.o {link}"),
            format!("g++ -o loading loading.o {link}"),
        ],
    );
    fs::write(out.join("complete"), "").expect("a file can be written");
    out
}

/// Changes whenever a source or a flag does.
fn stamp() -> String {
    let mut hasher = DefaultHasher::new();
    (include_str!("mod.rs"), probe_folder()).hash(&mut hasher);
    let mut files: Vec<PathBuf> =
        fs::read_dir(sources()).expect("the sources").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    for file in files {
        fs::read(file).expect("a source").hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

fn in_parallel(folder: &Path, commands: &[String]) {
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || {
                for command in commands.iter().skip(worker).step_by(workers) {
                    let command = command.replace("{src}", &sources().display().to_string());
                    let mut words = command.split_whitespace();
                    let output = Command::new(words.next().expect("a command"))
                        .args(words)
                        .current_dir(folder)
                        .output()
                        .expect("a C compiler (apt-get install gcc g++)");
                    assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
                }
            });
        }
    });
}

/// Runs a program against the probe library in `probe`, for so much CPU time at most, rounded up to seconds; a machine
/// that is busy otherwise gets ten times as long.
pub fn run_for(
    patience: Duration,
    probe: &Path,
    program: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Output {
    // A walk that never ends must not take the machine's memory with it.
    let limits = format!("ulimit -v 8000000; ulimit -t {}; exec \"$0\" \"$@\"", patience.as_secs() + 1);
    let mut child = Command::new("sh")
        .args(["-c", &limits])
        .arg(programs().join(program))
        .args(arguments)
        .envs(environment.iter().copied())
        .env("LD_LIBRARY_PATH", probe)
        .current_dir(programs())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let begun = Instant::now();
    loop {
        if child.try_wait().expect("the child can be waited for").is_some() || begun.elapsed() > 10 * patience {
            let _ = child.kill();
            return child.wait_with_output().expect("its output");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a program against the library that this test was built with.
#[allow(dead_code, reason = "not every test binary that includes this module runs its own library")]
pub fn run(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    run_for(Duration::from_secs(120), &probe_folder(), program, arguments, environment)
}

/// What a program said, for a failed test.
#[allow(dead_code, reason = "not every test binary that includes this module prints it")]
pub fn said(output: &Output) -> String {
    format!("{}\n{}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
