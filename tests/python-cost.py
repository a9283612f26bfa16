#!/usr/bin/env python3
"""What recording a Python program costs, beside memray: CPU time in interleaved rounds.

python-cost.py [--rounds N] [--interpreter PYTHON] [--library libtracehound.so] [WORK …]

memray is installed from PyPI into target/memray. `added` is the CPU time of the whole process tree over that of the same
program without a profiler, less the same difference of a program that does nothing. Events are those of the
recording where every object is one.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEMRAY = "memray==1.20.0"
# Name, what it does, argument, script.
WORK = {
    "documents": ("JSON, built, written and read", 1, "overhead/programs/json_work.py"),
    "deep": ("50 calls deep, 2,500 stacks", 15000, "python/cost/deep.py"),
    "fib": ("calls alone", 27, "python/cost/fib.py"),
}
OBJECTS = {"TRACEHOUND_PYTHON_OBJECTS": "1"}
OFF = {"TRACEHOUND_INTERPRETER": "off"}
MALLOC = {"PYTHONMALLOC": "malloc"}


def modes(python, library):
    """By name: the command before the script, its environment, and what it is compared with."""
    traced = {"LD_PRELOAD": library, "TRACEHOUND_OUTPUT": "recording.dat"}
    memray = [python, "-m", "memray", "run", "-q", "-f", "-o", "memray.bin"]
    every = "--trace-python-allocators"
    return {
        "plain": ([python], {}, None),
        "plain, malloc": ([python], MALLOC, None),
        "tracehound": ([python], traced, "plain"),
        "memray": (memray, {}, "plain"),
        "memray --native": ([*memray, "--native"], {}, "plain"),
        "tracehound, objects": ([python], traced | OBJECTS, "plain"),
        "the same without Python frames": ([python], traced | OBJECTS | OFF, "plain"),
        f"memray {every}": ([*memray, every], {}, "plain"),
        f"memray {every} --native": ([*memray, every, "--native"], {}, "plain"),
        "tracehound, malloc": ([python], traced | MALLOC, "plain, malloc"),
        "the same without Python frames, malloc": ([python], traced | MALLOC | OFF, "plain, malloc"),
    }


def cpu(command, environment, folder):
    """CPU seconds of a command and all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=os.environ | environment, cwd=folder, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr.decode(errors='replace')[-2000:]}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def events(folder):
    """Events of the recording that lies in the folder."""
    heaptrace = ROOT / "target/release/heaptrace"
    said = subprocess.run([heaptrace, "info", "--json", folder / "recording.dat"], capture_output=True, check=True)
    counts = json.loads(said.stdout)["events"]
    return sum(counts[kind] for kind in ("alloc", "free", "realloc"))


def clear(folder):
    subprocess.run(["find", folder, "-mindepth", "1", "-delete"], check=True)


def measure(work, chosen, rounds):
    """By mode: the CPU times of a script's rounds, and of one that does nothing; and the events of modes that count them."""
    script = [str(ROOT / "tests" / WORK[work][2]), str(WORK[work][1])]
    times, empty, counts = ({name: [] for name in chosen} for _ in range(3))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        nothing = folder.parent / f"{folder.name}-nothing.py"
        nothing.write_text("")
        for _ in range(rounds):
            for name, (command, environment, _) in chosen.items():
                times[name].append(cpu([*command, *script], environment, folder))
                if name.startswith("tracehound") and not counts[name]:
                    counts[name].append(events(folder))
                clear(folder)
                empty[name].append(cpu([*command, str(nothing)], environment, folder))
                clear(folder)
        nothing.unlink()
    return times, empty, counts


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--interpreter", default="/usr/bin/python3")
    options.add_argument("--library", default=str(ROOT / "target/release/libtracehound.so"))
    options.add_argument("--modes", default="", help="only modes whose names contain this")
    options.add_argument("work", nargs="*", choices=[[], *WORK], default=[])
    chosen = options.parse_args()

    folder = ROOT / "target/memray"
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([chosen.interpreter, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", MEMRAY], check=True)
    for work in chosen.work or WORK:
        rows = modes(str(python), chosen.library)
        rows = {name: row for name, row in rows.items() if row[2] is None or chosen.modes in name}
        times, empty, counts = measure(work, rows, chosen.rounds)
        typical = {name: statistics.median(values) for name, values in times.items()}
        start = {name: statistics.median(values) for name, values in empty.items()}
        print(f"{work}: {WORK[work][0]}; CPU seconds, medians of {chosen.rounds} interleaved rounds")
        print(f"{'':40}{'CPU s':>8}{'start':>8}{'added':>8}{'events':>12}{'ns/event':>10}")
        every = counts.get("tracehound, objects") or []
        for name, (_, _, plain) in rows.items():
            line = f"{name:40}{typical[name]:8.2f}{start[name]:8.2f}"
            if plain:
                added = typical[name] - typical[plain] - (start[name] - start[plain])
                line += f"{added:8.2f}"
                count = counts[name] or (every if "object" in name or "allocators" in name or "same" in name else [])
                if count:
                    line += f"{count[0]:12,}{added * 1e9 / count[0]:10.0f}"
            print(line, flush=True)


main()
