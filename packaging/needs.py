#!/usr/bin/env python3
"""What programs and libraries need of the system: needs.py [--at-most 2.17] FILE…

Prints the newest version of glibc whose names they ask for, and the libraries that they name. With --at-most it fails where
that is newer, or where anything but the C library is named: libgcc_s.so.1, which small images lack, is not in all systems.
"""

import argparse
import re
import subprocess
import sys

# glibc's own libraries.
C_LIBRARY = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2",
             "ld-linux-aarch64.so.1"}


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()


def is_static(file):
    """Whether the loader has nothing to do for a file."""
    return "Dynamic Section:" not in output("objdump", "-p", str(file))


def newest_glibc(*files):
    """The newest version of glibc that the files ask for, as numbers."""
    found = {(2, 0)}
    for file in files:
        if is_static(file):
            continue
        text = output("objdump", "-T", str(file))
        found.update(tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_(\d+(?:\.\d+)+)", text))
    return max(found)[:2]


def libraries(*files):
    """The libraries that the loader must find for the files."""
    return {name for file in files for name in re.findall(r"NEEDED +(\S+)", output("objdump", "-p", str(file)))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at-most", help="the newest version of glibc that may be asked for")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    status = 0
    for file in arguments.files:
        glibc, named = newest_glibc(file), libraries(file)
        needed = "nothing: static" if is_static(file) else f"glibc {glibc[0]}.{glibc[1]}; {' '.join(sorted(named))}"
        print(f"{file}: {needed}")
        if arguments.at_most and (glibc > tuple(map(int, arguments.at_most.split("."))) or named - C_LIBRARY):
            print(f"needs.py: {file} needs more than the C library of {arguments.at_most}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
