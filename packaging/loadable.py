#!/usr/bin/env python3
"""Takes out of shared libraries what is wrong for some loader: loadable.py FILE…

- The flags of -Bsymbolic. The linker has bound the library's references to itself by then. The flags would have the loader
  search the library first for every name that it looks up for the library, dlsym(RTLD_DEFAULT, …) included, by which
  heaptrace attach finds the C library's functions.
- glibc's loader as a library that must be found. In a process of glibc it is there always; musl has another one, which
  knows the names of glibc's other libraries and takes them for its own.
- Names that musl lacks are weak, as they were in the source: some linkers forget it.
"""

import struct
import sys

DT_NULL, DT_NEEDED, DT_STRTAB, DT_SYMBOLIC, DT_FLAGS = 0, 1, 5, 16, 30
DF_SYMBOLIC = 2
# A tag that loaders pass over.
DT_IGNORED = 0x6FFFFEF0
PT_LOAD, PT_DYNAMIC = 1, 2
SHT_DYNSYM = 11
STB_WEAK = 2
WEAK = {b"gnu_get_libc_version", b"__libc_stack_end"}
LOADERS = (b"ld-linux-x86-64.so.2", b"ld-linux-aarch64.so.1")


def loadable(path):
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        if data[:6] != b"\x7fELF\x02\x01":
            sys.exit(f"loadable.py: {path} is no 64-bit ELF file")
        headers, size, count = *struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54)
        segments = [struct.unpack_from("<IIQQQQ", data, headers + number * size) for number in range(count)]
        loads = [(address, offset, length) for kind, _, offset, address, _, length in segments if kind == PT_LOAD]

        def text(address):
            offset = next(offset + address - start for start, offset, length in loads if start <= address < start + length)
            return bytes(data[offset:data.index(0, offset)])

        for kind, _, offset, _, _, length in segments:
            if kind != PT_DYNAMIC:
                continue
            places = [at for at in range(offset, offset + length, 16)]
            entries = [struct.unpack_from("<QQ", data, at) for at in places]
            strings = next(value for tag, value in entries if tag == DT_STRTAB)
            for at, (tag, value) in zip(places, entries):
                if tag == DT_NULL:
                    break
                if tag == DT_SYMBOLIC or tag == DT_NEEDED and text(strings + value) in LOADERS:
                    struct.pack_into("<Q", data, at, DT_IGNORED)
                elif tag == DT_FLAGS:
                    struct.pack_into("<Q", data, at + 8, value & ~DF_SYMBOLIC)
        table, size, count = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58)
        sections = [struct.unpack_from("<IIQQQQI", data, table + number * size) for number in range(count)]
        for _, kind, _, _, offset, length, strings in sections:
            if kind != SHT_DYNSYM:
                continue
            names = sections[strings][4]
            for at in range(offset, offset + length, 24):
                name, info, _, section = struct.unpack_from("<IBBH", data, at)
                if section == 0 and bytes(data[names + name:data.index(0, names + name)]) in WEAK:
                    data[at + 4] = STB_WEAK << 4 | info & 15
        file.seek(0)
        file.write(data)


for name in sys.argv[1:]:
    loadable(name)
