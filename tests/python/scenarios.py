"""Allocates and frees in all the ways in which Python can come to call C."""

import asyncio
import atexit
import contextlib
import functools
import gc
import sys
import threading

from truth import libc, report, tell

sizes = iter(range(1_000_001, 2_000_000))


def take():
    size = next(sizes); tell("alloc", size, sys._getframe()); block = libc.malloc(size)
    return block, size


def give(block, size):
    tell("free", size, sys._getframe()); libc.free(block)


def both():
    give(*take())


class Thing:
    def method(self):
        both()

    @classmethod
    def of_class(cls):
        both()

    @staticmethod
    def of_nobody():
        both()

    @property
    def value(self):
        return take()

    def __del__(self):
        both()

    def __getattr__(self, name):
        both()
        return name

    def __lt__(self, other):
        both()
        return id(self) < id(other)

    class Inner:
        both()


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments, **options):
        both()
        return function(
            *arguments,
            **options,
        )

    return wrapper


@decorated
def plain(n):
    both()
    return n


def generator(n):
    for i in range(n):
        both()
        yield i
    yield from (plain(i) for i in range(2))


async def coroutine(n):
    both()
    await asyncio.sleep(0)
    both()
    if n:
        await coroutine(n - 1)
    async for value in agenerator():
        both()


async def agenerator():
    both()
    yield 1
    await asyncio.sleep(0)
    both()


def recursion(n):
    return recursion(n - 1) if n else both()


@contextlib.contextmanager
def manager():
    both()
    try:
        yield
    finally:
        both()


class Made:
    """Made so often that its constructor is called without a call of C."""

    def __init__(self, n):
        self.block = both() or n


def constructors():
    return [Made(i).block for i in range(40)]


def handler():
    try:
        try:
            {}["missing"]
        except KeyError:
            both()
            raise ValueError from None
        finally:
            both()
    except ValueError as error:
        both()
        return error


def with_trace():
    def trace(frame, event, argument):
        if frame.f_code.co_name == "traced":
            both()
        return trace

    def traced():
        x = 1
        return x

    before = sys.gettrace()
    sys.settrace(trace)
    traced()
    sys.settrace(before)


def in_cycle():
    thing = Thing()
    thing.own = thing
    del thing
    gc.collect()


def threads():
    workers = [threading.Thread(target=recursion, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def all_of_them():
    both()
    thing = Thing()
    thing.method(), Thing.of_class(), Thing.of_nobody(), thing.value, thing.missing
    sorted([Thing(), Thing(), Thing()])
    plain(1)
    list(generator(3))
    sum(generator(2))
    [both() for _ in range(2)]
    {plain(i): both() for i in range(2)}
    list(map(plain, range(3)))
    sorted(range(3), key=lambda n: both() or n)
    functools.reduce(lambda a, b: both() or b, range(3))
    functools.partial(both)()
    exec("def made():\n    both()\nmade()\n", {"both": both})
    eval("both()")
    exec(compile("\n\n\nboth()", "made-up.py", "exec"), {"both": both})
    with manager():
        both()
    handler()
    constructors()
    with_trace()
    in_cycle()
    asyncio.run(coroutine(2))
    (lambda: (
        both(),
        plain(
            2
        ),
    ))()
    recursion(5)


for _ in range(3):
    all_of_them()
threads()
sys.setrecursionlimit(5000)
recursion(900)
atexit.register(report)
atexit.register(all_of_them)
