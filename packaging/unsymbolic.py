#!/usr/bin/env python3
"""Takes the flags of -Bsymbolic out of shared libraries: unsymbolic.py FILE…

The linker has bound the library's references to itself by then. The flags would have the loader search the library first
for every name that it looks up for the library, dlsym(RTLD_DEFAULT, …) included, by which heaptrace attach finds the C
library's functions.
"""

import struct
import sys

DT_NULL, DT_SYMBOLIC, DT_FLAGS = 0, 16, 30
DF_SYMBOLIC = 2
# A tag that loaders pass over.
DT_IGNORED = 0x6FFFFEF0
PT_DYNAMIC = 2


def unsymbolic(path):
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        if data[:6] != b"\x7fELF\x02\x01":
            sys.exit(f"unsymbolic.py: {path} is no 64-bit ELF file")
        headers, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
        for number in range(count):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, headers + number * size)
            if kind != PT_DYNAMIC:
                continue
            for at in range(offset, offset + length, 16):
                tag, value = struct.unpack_from("<QQ", data, at)
                if tag == DT_NULL:
                    break
                if tag == DT_SYMBOLIC:
                    struct.pack_into("<Q", data, at, DT_IGNORED)
                elif tag == DT_FLAGS:
                    struct.pack_into("<Q", data, at + 8, value & ~DF_SYMBOLIC)
        file.seek(0)
        file.write(data)


for name in sys.argv[1:]:
    unsymbolic(name)
