//! Real programs, which nobody wrote for us: unchanged output and exit code, sound recordings.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tracehound_tests::ground_truth::{Case, Outcome};
use tracehound_tests::redis::Redis;
use tracehound_tests::{json, number, wait_for};

/// Runs the program plain and traced in folders of their own; all recordings must be sound.
fn unchanged(case: &Case) -> Outcome {
    let (_, traced) = case.unharmed();
    sound(&traced);
    traced
}

fn sound(traced: &Outcome) {
    let recordings = traced.recordings();
    assert!(!recordings.is_empty(), "nothing was recorded: {}", traced.stderr);
    for recording in &recordings {
        let info = json(&["info"], recording);
        assert!(info["end"] == "exit" || info["end"] == "exec", "{info:#}");
        assert_eq!(info["complete"], true, "{info:#}");
        assert_eq!(number(&info, "/events/lost"), 0, "{info:#}");
        assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{info:#}");
        // Tens of thousands of sites make a long document; the figures of small recordings must do.
        if recording.metadata().is_ok_and(|m| m.len() < 100_000) {
            let leaks = json(&["leaks"], recording);
            assert_eq!(leaks["leaked"], info["leaked"], "{}", recording.display());
        }
    }
}

fn sh(script: &str) -> Case {
    Case::command("/bin/sh").args(&["-c", script])
}

fn bash(script: &str) -> Case {
    Case::command("/bin/bash").args(&["-c", script])
}

#[test]
fn bash_with_subshells_and_pipes() {
    unchanged(&bash("(exit 3)"));
    unchanged(&bash("x=$(echo a | tr a b); (cd /; pwd); for i in 1 2 3; do (exit $i); echo $x $i $?; done; exit 5"));
    unchanged(&bash("seq 2000 | sort -r | awk '{s+=$1} END {print s}' | cat; wait; echo ${PIPESTATUS[@]}"));
    unchanged(&bash(
        "f() { local a=(1 2 3); echo ${#a[@]}; return 4; }; f; cat <(echo one) <(echo two); exec sh -c 'exit 7'",
    ));
    unchanged(&bash("trap 'echo trapped; exit 9' TERM; kill -TERM $$; sleep 5"));
}

#[test]
fn shells_and_small_tools() {
    unchanged(&sh("(exit 3); echo $?; ldd /bin/ls >/dev/null; echo $?; timeout 5 true; echo $?"));
    unchanged(&Case::command("/usr/bin/timeout").args(&["5", "true"]));
    unchanged(&Case::command("/usr/bin/env").args(&["sh", "-c", "echo hello; exit 2"]));
    unchanged(&bash("ldd /bin/ls | sed 's/(0x.*//'; ldd /nonexistent; echo $?"));
    unchanged(&Case::command("/usr/bin/xargs").args(&["-n1", "echo"]));
    unchanged(&Case::command("/usr/bin/find").args(&["/usr/share/doc/bash", "-type", "f"]));
    unchanged(&sh(
        "echo text > f; tar cf f.tar f && gzip -c f.tar | gunzip | tar tf -; sha256sum f; diff f /dev/null; echo $?",
    ));
}

/// Its processes are forked from one that must be alone, and allocate with an allocator that holds its locks over a fork.
#[test]
fn chromium_and_all_its_processes() {
    let script = "chromium --headless --no-sandbox --disable-gpu --user-data-dir=$PWD/profile --dump-dom \
                  'data:text/html,<title>a</title>' 2>/dev/null";
    let (plain, traced) = sh(script).option("CHILDREN", "1").any_stderr().unharmed();
    assert!(plain.printed().contains("<title>a</title>"), "{}{}", plain.stdout, plain.stderr);
    let executables =
        traced.recordings().into_iter().map(|path| json(&["info"], &path)["process"]["executable"].clone());
    let browsers = executables.filter(|path| path.as_str().is_some_and(|path| path.ends_with("/chromium"))).count();
    assert!(browsers >= 4, "{browsers} of {:?}", traced.recordings());
}

#[test]
fn git() {
    let script = "git init -q -b main . && git config user.email a@b && git config user.name n && \
        seq 3000 > numbers && git add numbers && git commit -qm one && seq 1500 4500 > numbers && git diff --stat && \
        git commit -qam two && git log --format=%s && git gc -q && git fsck && git clone -q . ../clone-$$ && \
        git -C ../clone-$$ rev-list --count HEAD; rm -rf ../clone-$$";
    unchanged(
        &bash(script).option("CHILDREN", "1").variable("GIT_CONFIG_NOSYSTEM", "1").variable("HOME", "/nonexistent"),
    );
    unchanged(&Case::command("/usr/bin/git").args(&["--version"]));
}

fn real_python() -> PathBuf {
    let ask = "import sys, os; print(os.path.realpath(sys.executable))";
    let output = Command::new("python3").args(["-c", ask]).output().expect("python3 is installed");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

#[test]
fn python() {
    let script = "import json, re, threading, subprocess, multiprocessing, sqlite3, zlib, ctypes
def work(n): return sum(len(json.dumps(list(range(i)))) for i in range(n))
if __name__ == '__main__':
    threads = [threading.Thread(target=work, args=(60,)) for _ in range(4)]
    [t.start() for t in threads]; [t.join() for t in threads]
    print(work(100), len(zlib.compress(b'x' * 100000)))
    print(subprocess.run(['sh', '-c', 'echo child; exit 3'], capture_output=True))
    with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(work, [10, 20, 30]))
    print(sqlite3.connect(':memory:').execute('select 1 + 1').fetchall())
    raise SystemExit(7)
";
    for malloc in ["pymalloc", "malloc"] {
        unchanged(&Case::command(real_python()).args(&["-c", script]).variable("PYTHONMALLOC", malloc));
    }
    unchanged(&Case::command(real_python()).args(&["-c", "raise ValueError('a message')"]));
}

#[test]
fn node() {
    let script = "const text = JSON.stringify(Array.from({length: 20000}, (_, i) => ({i, s: String(i)})));
console.log(text.length, JSON.parse(text).length);
const {Worker} = require('worker_threads');
const worker = new Worker('require(\"worker_threads\").parentPort.postMessage(40 + 2)', {eval: true});
worker.on('message', m => { console.log(m, require('zlib').gzipSync(text).length > 0); process.exitCode = 4; });";
    unchanged(&Case::command("/usr/bin/node").args(&["-e", script]));
}

#[test]
fn java() {
    unchanged(&Case::command("/usr/bin/java").args(&["-version"]));
    let class = "class Small { public static void main(String[] a) throws Exception {
    var map = new java.util.TreeMap<Integer, String>();
    for (int i = 0; i < 50000; i++) map.put(i * 7919 % 50021, \"v\" + i);
    var threads = new Thread[4];
    for (int t = 0; t < 4; t++) { threads[t] = new Thread(() -> new byte[1 << 20].clone()); threads[t].start(); }
    for (var t : threads) t.join();
    System.out.println(map.size() + \" \" + map.firstEntry());
    try { Object o = null; o.hashCode(); } catch (NullPointerException e) { System.out.println(\"caught\"); }
    System.exit(6); } }";
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let source = folder.path().join("Small.java");
    std::fs::write(&source, class).expect("a temporary file can be written");
    let compiled =
        Command::new("javac").arg("-d").arg(folder.path()).arg(&source).output().expect("javac is installed");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let path = folder.path().to_str().expect("a plain path");
    unchanged(&Case::command("/usr/bin/java").args(&["-Xmx256m", "-cp", path, "Small"]));
}

#[test]
fn gcc() {
    let script = "printf '#include <stdio.h>\\n#include <stdlib.h>\\nint main(void){puts(\"hi\");return 3;}\\n' > a.c; \
        printf '#include <map>\\n#include <string>\\nint main(){std::map<std::string,int> m;m[\"a\"]=1;return m.size();}\\n' > b.cpp; \
        gcc -O2 -g -Wall a.c -o a && ./a; echo $?; g++ -O1 -c b.cpp && cksum < b.o; gcc nothing.c; echo $?";
    unchanged(&bash(script));
    unchanged(&bash(script).option("CHILDREN", "1"));
}

#[test]
fn sqlite() {
    let script = "create table t(a integer primary key, b text); with recursive n(i) as (select 1 union all \
        select i + 1 from n where i < 20000) insert into t select i, hex(i * 7919) from n; create index x on t(b); \
        select count(*), max(b), sum(length(b)) from t; select b, count(*) from t group by substr(b, 1, 2) limit 3;";
    unchanged(&Case::command("/usr/bin/sqlite3").args(&[":memory:", script]));
    unchanged(&Case::command("/usr/bin/sqlite3").args(&["file.db", script]));
}

#[test]
fn perl_and_xz() {
    let script = "my %h; $h{$_ * 7919 % 10007} .= chr(65 + $_ % 26) x 50 for 1..20000; my $n = keys %h; \
        my $pid = fork(); if (!$pid) { exit 3 } waitpid($pid, 0); print $n, ' ', $? >> 8, ' ', `echo sub`; exit 5";
    unchanged(&Case::command("/usr/bin/perl").args(&["-e", script]));
    unchanged(&bash("seq 100000 > n; xz -k -T2 n; xz -dc n.xz | cmp - n; echo $?; xz -t n.xz; xz -dc < n.xz | wc -l"));
    unchanged(&Case::command("/usr/bin/xz").args(&["--version"]));
}

#[test]
fn make_with_two_jobs() {
    let makefile = "all: $(addprefix o,1 2 3 4 5 6)\\no%%:\\n\\t@sleep 0.0$*; echo made > $@\\n\\t@test -s $@\\n";
    let script = format!("printf '{makefile}' > Makefile; make -j2 2>&1; echo $?; ls o*; make nothing; exit $?");
    unchanged(&bash(&script));
    unchanged(&bash(&script).option("CHILDREN", "1"));
    unchanged(&Case::command("/usr/bin/make").args(&["--version"]));
}

#[test]
fn programs_that_say_their_version() {
    unchanged(&Case::command("/usr/bin/gdb").args(&["--version"]));
    unchanged(&Case::command(find("cargo")).args(&["--version"]));
    unchanged(&Case::command(find("rustc")).args(&["-vV"]));
}

/// The path of a program, as a shell finds it.
fn find(program: &str) -> PathBuf {
    let paths = std::env::var_os("PATH").expect("there is a PATH");
    let found = std::env::split_paths(&paths).map(|folder| folder.join(program)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{program} is not installed"))
}

#[test]
fn redis_under_its_benchmark() {
    let mut redis = Redis::start(&[]);
    redis.load(3000);
    assert_eq!(redis.ask(&["set", "key", "value"]), "OK");
    assert_eq!(redis.ask(&["get", "key"]), "value");
    // A child by fork writes the file while the server goes on.
    assert_eq!(redis.ask(&["bgsave"]), "Background saving started");
    wait_for("the saving", Duration::from_secs(30), || redis.folder.path().join("dump.rdb").exists());
    let recording = redis.stop();
    let name = recording.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    assert!(name.starts_with("memory-redis-server-"), "{name}: a link's name is what was started");
    let info = json(&["info"], &recording);
    assert_eq!(info["end"], "exit", "{info:#}");
    assert_eq!(info["complete"], true, "{info:#}");
    assert_eq!(number(&info, "/events/lost"), 0);
    assert_eq!(number(&info, "/recorder/unmatched_frees"), 0);
    assert!(number(&info, "/allocations/count") > 10_000, "{info:#}");
}
