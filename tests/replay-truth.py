#!/usr/bin/env python3
"""How far off `heaptrace replay` is: real programs, each run for real as replay says, beside what replay predicted.

    tests/replay-truth.py [--runs N] [--markdown] [--keep DIR] [cache] [jq] [sqlite] [perl] [node] [redis] [python] [gdb]
                          [xmllint] [cc1plus] [tclsh] [mawk] [zstd] [git] [java] [decay]

Each program is recorded N times (3) and replayed with every allocator that is installed (tests/needs.sh installs them). Then
it runs N times without the recorder with the environment of each row's command, sampled every 2 ms from outside: memory
without a file (resident less shared of /proc/PID/statm), at most, and at the end: the kernel stops the process where it
exits, with its memory as it was. An error is the distance of what replay says of all recordings together to the real runs'
median; a range that holds the median is not off. Needs `make build`; ends with 1 where a row
is off by more than a tenth, by more than real runs differ, and by more than 2 MiB.
"""

import argparse
import contextlib
import ctypes
import json
import os
import random
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
LEAST = 2 * MIB


def compiled(work, source, *flags):
    """The path of a program of tests/programs."""
    out = work / Path(source).stem
    compiler = "g++" if source.endswith("cpp") else "gcc"
    include = f"-I{ROOT / 'preload/include'}"
    subprocess.run([compiler, "-O1", "-g", "-pthread", include, *flags, ROOT / "tests/programs" / source, "-o", out], check=True)
    return str(out)


def records(work, count):
    """A document of records with nested parts: shape as from an interface of a shop."""
    rng = random.Random(7)
    rows = [
        {"id": n, "user": f"user{rng.randrange(5000)}", "tags": [f"t{rng.randrange(40)}" for _ in range(rng.randrange(6))],
         "text": "x" * rng.randrange(20, 200), "total": rng.random() * 1000}
        for n in range(count)
    ]
    path = work / "records.json"
    path.write_text(json.dumps(rows))
    return str(path)


def xml(work, count):
    """A document of elements with attributes and text."""
    rng = random.Random(11)
    rows = "".join(
        f'<item id="{n}" kind="k{rng.randrange(50)}"><name>n{rng.randrange(9999)}</name><text>{"y" * rng.randrange(10, 300)}</text></item>'
        for n in range(count)
    )
    path = work / "items.xml"
    path.write_text(f"<items>{rows}</items>")
    return str(path)


def sql(work):
    path = work / "load.sql"
    path.write_text(
        "CREATE TABLE a(id INTEGER PRIMARY KEY, k TEXT, v BLOB);\n"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<120000)\n"
        "INSERT INTO a SELECT i, 'key' || (i*7919 % 120000), zeroblob(50 + i % 350) FROM n;\n"
        "CREATE INDEX by_k ON a(k);\nDELETE FROM a WHERE id % 3 <> 0;\n"
        "SELECT count(*), sum(length(v)) FROM a JOIN (SELECT k AS other FROM a ORDER BY k DESC) ON k = other;\n"
    )
    return str(path)


PERL = """my %h; srand(5);
for my $i (1..120000) { $h{"key$i"} = [map { "v" x (1 + int(rand(60))) } 1..3]; }
for my $i (1..120000) { delete $h{"key$i"} if $i % 5; }
for my $i (1..40000) { $h{"more$i"} = "w" x int(rand(900)); }
print scalar(keys %h), "\\n";"""

TCL = """for {set i 0} {$i < 150000} {incr i} {dict set d key$i [string repeat v [expr {$i * 7919 % 90}]]}
for {set i 0} {$i < 150000} {incr i} {if {$i % 4} {dict unset d key$i}}
for {set i 0} {$i < 60000} {incr i} {lappend l [string repeat w [expr {$i % 400}]]}
puts [llength $l]
"""

AWK = """BEGIN {
    for (i = 0; i < 150000; i++) a["k" i] = sprintf("%*s", i % 120, "x")
    for (i = 0; i < 150000; i++) if (i % 5) delete a["k" i]
    for (i = 0; i < 50000; i++) b[i] = sprintf("%*s", i % 500, "y")
    print length(a), length(b)
}"""

NODE = """let kept = [];
for (let i = 0; i < 60000; i++) { kept.push(Buffer.alloc(600 + (i * 7919) % 5000, 1)); if (kept.length > 20000) kept.splice(0, 10000); }
console.log(kept.length);"""

PYTHON = """import json, sys
rows = json.load(open(sys.argv[1]))
by = {}
for row in rows: by.setdefault(row["user"], []).append(row)
text = json.dumps(by, indent=1)
del rows
print(len(text), len([key for key in by if len(by[key]) > 3]))"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def redis_load(port):
    """Fills the server with small values, deletes nine of ten, fills it with larger ones: fragmentation. Ends the server."""
    for _ in range(600):
        with contextlib.suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port), 30)
            break
        time.sleep(0.05)
    answers = connection.makefile("rb")

    def ask(commands):
        for begin in range(0, len(commands), 500):
            part = commands[begin : begin + 500]
            connection.sendall(b"".join(
                b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words) for words in part))
            for _ in part:
                line = answers.readline()
                if line[:1] not in (b"+", b":"):
                    raise RuntimeError(f"redis answers {line}")

    rng = random.Random(3)
    ask([(b"SET", b"key:%d" % n, b"v" * rng.randrange(16, 400)) for n in range(120000)])
    ask([(b"DEL", b"key:%d" % n) for n in range(120000) if n % 10])
    ask([(b"SET", b"big:%d" % n, b"w" * rng.randrange(400, 1200)) for n in range(20000)])
    time.sleep(0.3)
    connection.sendall(b"SHUTDOWN NOSAVE\r\n")
    answers.read()


def script(work, name, text):
    path = work / name
    path.write_text(text)
    return str(path)


def programs(work):
    """Name, command, variables and, where the program is a server, what to do to it: for all whose program is here."""
    python = "/usr/bin/python3"
    data = records(work, 30000)
    port = free_port()
    redis = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(work)]
    # Without it redis moves its values about, in a way that depends on what jemalloc says of itself.
    redis += ["--activedefrag", "no"]
    gdb = ["gdb", "-batch", "-nx", "-iex", "set debuginfod enabled off", "-ex", "maint expand-symtabs", "-ex", "info types basic_",
           str(work / "block_cache")]
    compiler, multiarch = (
        subprocess.run(["g++", option], capture_output=True, text=True, check=True).stdout.strip()
        for option in ("-print-prog-name=cc1plus", "-print-multiarch")
    )
    cc1plus = [compiler, "-quiet", "-O1", "-imultiarch", multiarch, "-D_GNU_SOURCE", f"-I{ROOT / 'preload/include'}",
               ROOT / "tests/programs/block_cache.cpp", "-o", os.devnull]
    all_of_them = [
        ("cache", [compiled(work, "block_cache.cpp"), "8", "60000", "96"], {}, None),
        ("jq", ["jq", "group_by(.user) | map({user: .[0].user, total: (map(.total) | add)}) | length", data], {}, None),
        ("sqlite", ["sqlite3", ":memory:", f".read {sql(work)}"], {}, None),
        ("perl", ["perl", "-e", PERL], {}, None),
        ("node", ["node", "-e", NODE], {}, None),
        ("redis", redis, {}, lambda: redis_load(port)),
        ("python", [python, "-c", PYTHON, data], {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}, None),
        ("gdb", gdb, {}, None),
        ("xmllint", ["xmllint", "--xpath", "count(//item[@kind='k7'])", xml(work, 60000)], {}, None),
        ("cc1plus", [str(word) for word in cc1plus], {}, None),
        ("tclsh", ["tclsh", script(work, "load.tcl", TCL)], {}, None),
        ("mawk", ["mawk", AWK], {}, None),
        ("zstd", ["zstd", "-q", "-f", "-T2", "-19", "-o", os.devnull, data], {}, None),
        ("git", ["git", "-C", str(ROOT), "log", "--stat", "-n", "150"], {"GIT_PAGER": "cat"}, None),
        ("java", ["java", "-version"], {}, None),
        ("decay", [compiled(work, "idle_decay.c")], {}, None),
    ]
    return [program for program in all_of_them if shutil.which(program[1][0])]


def anonymous(pid):
    """Bytes in memory without a file; 0 when the process has given its memory back."""
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            _, resident, shared, *_ = file.read().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * PAGE


LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_CONT, PTRACE_SEIZE, PTRACE_O_TRACEEXIT, PTRACE_EVENT_EXIT = 7, 0x4206, 0x40, 6


def ptrace(request, pid, data):
    """The first thread of a process that has ended by itself is no error."""
    if LIBC.ptrace(ctypes.c_long(request), ctypes.c_long(pid), ctypes.c_void_p(0), ctypes.c_void_p(data)) < 0:
        number = ctypes.get_errno()
        if number != 3:
            raise OSError(number, os.strerror(number))


def wait_sampling(process):
    """Most memory without a file of a process, and that at its exit, in bytes; sets its returncode."""
    ptrace(PTRACE_SEIZE, process.pid, PTRACE_O_TRACEEXIT)
    most = last = 0
    while True:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
        if pid and os.WIFSTOPPED(status):
            is_exit = status >> 8 == signal.SIGTRAP | PTRACE_EVENT_EXIT << 8
            if is_exit:
                last = anonymous(pid) or last
                most = max(most, last)
            # A signal that stopped it is delivered; other stops of a tracer are none of the program's.
            ptrace(PTRACE_CONT, pid, 0 if status >> 16 else os.WSTOPSIG(status))
            continue
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return most, last
        now = anonymous(process.pid)
        if now:
            most, last = max(most, now), now
        time.sleep(0.002)


def run_for_real(command, variables, load):
    """Most and last memory without a file of one run, in bytes."""
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_CONF")}
    process = subprocess.Popen(command, env=environment | variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    loader = None
    if load:
        loader = subprocess.Popen([sys.executable, __file__, "--load", command[command.index("--port") + 1]])
    most, last = wait_sampling(process)
    if process.returncode not in (0, 1) or (loader and loader.wait()):
        raise RuntimeError(f"{shlex.join(command)} ended with {process.returncode}")
    return most, last


def record(work, name, number, command, variables, load):
    recording = work / f"memory-{name}-{number}.dat"
    process = subprocess.Popen([RELEASE / "heaptrace", "run", "-o", recording, "--", *command], env=os.environ | variables,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if load:
        load()
    if process.wait():
        raise RuntimeError(f"{name} could not be recorded: {process.returncode}")
    return recording


def environment_of(command):
    """The variables that stand before a command, as in a shell."""
    variables = {}
    for word in shlex.split(command):
        name, equals, value = word.partition("=")
        if not equals or not name.replace("_", "").isalnum():
            break
        variables[name] = value
    return variables


def distance(predicted, real):
    """How far a range lies from a figure, as a part of it; 0 where it holds it."""
    low, high = predicted
    nearest = min(max(real, low), high)
    return (nearest - real) / real


def settings_of(row):
    return " ".join([row["allocator"], *(f"{name}={value}" for name, value in sorted(row["settings"].items()))])


def measure(work, program, runs):
    name, command, variables, load = program
    recordings = [record(work, name, number, command, variables, load) for number in range(runs)]
    output = subprocess.run([RELEASE / "heaptrace", "replay", "--together", "--json", *recordings], capture_output=True, check=False)
    if output.returncode:
        raise RuntimeError(f"{name}: {output.stderr.decode()}")
    replay = json.loads(output.stdout)
    rows = []
    for row in replay["rows"]:
        if row.get("failed"):
            rows.append({"program": name, "setting": settings_of(row), "failed": row["failed"]})
            continue
        if not row["command"]:
            rows.append({"program": name, "setting": settings_of(row), "failed": "its own allocator cannot be replaced"})
            continue
        real = [run_for_real(command, variables | environment_of(row["command"]), load) for _ in range(runs)]
        entry = {"program": name, "setting": settings_of(row)}
        for which, key in ((0, "peak"), (1, "end")):
            figures = [one[which] for one in real]
            middle = statistics.median(figures)
            error = distance(row[f"{key}_bytes"], middle)
            spread = (max(figures) - min(figures)) / middle
            entry[key] = {"predicted": row[f"{key}_bytes"], "real": middle, "error": error, "spread": spread,
                          "held": abs(error) <= max(0.10, spread) or abs(error) * middle <= LEAST}
        rows.append(entry)
        print(f"{name} · {entry['setting']}", file=sys.stderr)
    return {"program": name, "recorded": replay["recorded"], "self_check": replay["self_check"], "rows": rows}


def ranking(rows):
    """Pairs of rows of one program that differ in reality by more than a tenth, and how many of them replay has right."""
    pairs = right = 0
    wrong = []
    for at, one in enumerate(rows):
        for other in rows[at + 1 :]:
            if "failed" in one or "failed" in other:
                continue
            one_peak, other_peak = one["peak"]["real"], other["peak"]["real"]
            if abs(one_peak - other_peak) <= 0.1 * min(one_peak, other_peak):
                continue
            pairs += 1
            middles = [sum(row["peak"]["predicted"]) for row in (one, other)]
            if (middles[0] < middles[1]) == (one_peak < other_peak):
                right += 1
            else:
                wrong.append(f"{one['setting']} and {other['setting']}")
    return pairs, right, wrong


def mib(value):
    return f"{value / MIB:.1f}"


def span(bounds):
    low, high = mib(bounds[0]), mib(bounds[1])
    return low if low == high else f"{low} – {high}"


def show(results, markdown):
    header = ["program", "allocator", "predicted peak", "real", "error", "predicted end", "real", "error"]
    lines = []
    for result in results:
        for row in result["rows"]:
            if "failed" in row:
                lines.append([row["program"], row["setting"], row["failed"], "", "", "", "", ""])
                continue
            cells = [row["program"], row["setting"]]
            for key in ("peak", "end"):
                part = row[key]
                mark = "" if part["held"] else " !"
                cells += [span(part["predicted"]), f"{mib(part['real'])} ± {part['spread'] * 50:.0f} %", f"{part['error'] * 100:+.1f} %{mark}"]
            lines.append(cells)
    if markdown:
        print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
        for line in lines:
            print("| " + " | ".join(line) + " |")
    else:
        widths = [max(len(line[column]) for line in [header, *lines]) for column in range(len(header))]
        for line in [header, *lines]:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="keep programs, data and recordings in this folder")
    parser.add_argument("--load", type=int, help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.load:
        redis_load(args.load)
        return 0
    with contextlib.ExitStack() as stack:
        work = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.mkdir(parents=True, exist_ok=True)
        known = programs(work)
        unknown = set(args.names) - {name for name, *_ in known}
        if unknown:
            parser.error(f"not known, or not installed: {', '.join(sorted(unknown))}")
        results = [measure(work, program, args.runs) for program in known if not args.names or program[0] in args.names]
    if args.json:
        print(json.dumps(results, indent=1))
        return 0
    show(results, args.markdown)
    print()
    missed = False
    for key in ("peak", "end"):
        parts = [row[key] for result in results for row in result["rows"] if key in row]
        if parts:
            errors = [abs(part["error"]) * 100 for part in parts]
            print(f"{key}: mean error {statistics.mean(errors):.1f} %, largest {max(errors):.1f} %, "
                  f"{sum(part['held'] for part in parts)} of {len(parts)} within a tenth, what real runs differ by, or 2 MiB")
            middles = [abs(sum(part["predicted"]) / 2 - part["real"]) / part["real"] * 100 for part in parts]
            print(f"  from the middle of each range: mean error {statistics.mean(middles):.1f} %, largest {max(middles):.1f} %")
            missed |= not all(part["held"] for part in parts)
    for result in results:
        pairs, right, wrong = ranking(result["rows"])
        check = result["self_check"]
        check = f"{check['error'] * 100:+.1f} %" if check else "not possible"
        print(f"{result['program']}: recorded with {result['recorded']['allocator']}, self-check {check}; "
              f"{right} of {pairs} pairs that differ by more than a tenth are ranked right"
              + (f"; not {'; '.join(wrong)}" if wrong else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
