"""More stacks than the recorder remembers at a time, each reached by two ways through C: STACKS [SEED]."""

import ctypes
import random
import sys

from truth import libc, report, tell

libc.strndup.restype = ctypes.c_void_p
libc.strndup.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

TEXT = b"x" * 900_000
FUNCTIONS = 12
SITES = 4

sizes = iter(range(100_001, 900_000, 2))


def leaf(ways):
    for way in ways:
        size = next(sizes)
        arguments = (size,) if way is libc.malloc else (TEXT, size - 1)
        # One instruction calls both.
        tell("alloc", size, sys._getframe()); block = way(*arguments)
        libc.free(block)


def source(number):
    calls = "\n".join(f"    elif site == {site}:\n        call(path)" for site in range(SITES))
    return f"def step{number}(path):\n    call, site = path.pop()\n    if site < 0:\n        leaf(call)\n{calls}\n"


def outer(path):
    path.pop()[0](path)


def steps():
    made = {"leaf": leaf}
    for number in range(FUNCTIONS):
        exec(compile(source(number), f"steps{number}.py", "exec"), made)
    return [made[f"step{number}"] for number in range(FUNCTIONS)]


def path_of(rng, functions):
    ways = [libc.malloc, libc.strndup]
    rng.shuffle(ways)
    calls = [rng.choice(functions) for _ in range(rng.randrange(1, 14))]
    sites = [rng.randrange(SITES) for _ in calls]
    # The outermost call is last.
    return [(ways, -1)] + [(call, site) for call, site in zip(calls[1:], sites)] + [(calls[0], 0)]


def main():
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    functions = steps()
    paths = [path_of(rng, functions) for _ in range(int(sys.argv[1]))]
    for path in paths + paths:
        outer(list(path))
        if len(path) % 7 == 0:
            report()
    report()


main()
