"""What the scripts here have in common: blocks of unique sizes from libc, and the stack that Python itself says there is."""

import ctypes
import json
import sys

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

events = []


def stack(frame):
    """The frames from `frame` outwards: file, line, qualified name (before 3.11: name)."""
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append([code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)])
        frame = frame.f_back
    return frames


def tell(kind, size, frame):
    events.append({"kind": kind, "size": size, "stack": stack(frame)})


def report():
    """Prints everything, one JSON object a line."""
    sys.stdout.write("".join(json.dumps(event) + "\n" for event in events))
    sys.stdout.flush()
    events.clear()
