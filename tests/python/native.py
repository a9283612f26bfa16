"""Calls that run without the interpreter's lock, callbacks from C, and an extension that keeps its own stack."""

import ctypes
import hashlib
import sys
import threading
import zlib

from truth import libc, report, tell

Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
libc.qsort.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, Callback]
sizes = iter(range(5_000_001, 6_000_000))


def compare(a, b):
    size = next(sizes); tell("alloc", size, sys._getframe()); libc.malloc(size)
    return 0


def from_c():
    array = (ctypes.c_int * 4)(4, 3, 2, 1)
    libc.qsort(array, 4, 4, Callback(compare))


def busy(stop):
    data = b"x" * 200_000
    while not stop.is_set():
        zlib.decompress(zlib.compress(data, 1))
        hashlib.sha256(data).digest()


stop = threading.Event()
others = [threading.Thread(target=busy, args=(stop,)) for _ in range(2)]
for other in others:
    other.start()
for _ in range(20):
    from_c()
stop.set()
for other in others:
    other.join()
report()
