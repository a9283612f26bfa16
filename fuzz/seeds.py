#!/usr/bin/env python3
"""Makes the first inputs of the fuzz targets from real recordings and objects.

usage: seeds.py CORPUS RECORDING...

CORPUS gets a folder for each target. Of every RECORDING (and its `.live` beside it, if there is one) the file, its
blocks, and the payloads of its blocks become inputs; of small ELF files the file, the unwind sections and the tables.
What is longer than LONGEST bytes is left out or cut: a short input is changed more often.
"""

import glob
import hashlib
import os
import struct
import subprocess
import sys
import tempfile

LONGEST = 48 << 10
HEADER = 64
CHUNK_HEADER = 64
META, NODES, EVENTS, END = 1, 2, 3, 4


def put(corpus, target, data):
    """Writes an input under a name that its content gives it."""
    if data and len(data) <= LONGEST:
        folder = os.path.join(corpus, target)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, hashlib.sha1(data).hexdigest()[:16]), "wb") as out:
            out.write(data)


def unlz4(stored):
    """Decompresses an LZ4 block."""
    out, at = bytearray(), 0

    def length(first, at):
        total = first
        while first == 15 and at < len(stored):
            byte = stored[at]
            at += 1
            total += byte
            if byte != 255:
                break
        return total, at

    while at < len(stored):
        token = stored[at]
        literals, at = length(token >> 4, at + 1)
        out += stored[at : at + literals]
        at += literals
        if at >= len(stored):
            break
        offset = stored[at] | stored[at + 1] << 8
        match, at = length(token & 15, at + 2)
        for _ in range(match + 4):
            out.append(out[-offset])
    return bytes(out)


def blocks(data):
    """Offset, header fields and stored payload of each block."""
    at = HEADER
    while at + HEADER <= len(data):
        kind, codec = data[at + 8], data[at + 9]
        first_tick, = struct.unpack_from("<Q", data, at + 28)
        count, _, stored_len = struct.unpack_from("<III", data, at + 44)
        end = at + HEADER + stored_len
        yield at, kind, codec, first_tick, count, data[at + HEADER : end]
        at = end


def recording(corpus, path):
    with open(path, "rb") as file:
        data = file.read()
    put(corpus, "block", data)
    put(corpus, "recording", struct.pack("<I", len(data)) + data)
    put(corpus, "recording", struct.pack("<I", len(data) * 2 // 3) + data[: len(data) * 2 // 3])
    for at, kind, codec, tick, count, stored in blocks(data):
        put(corpus, "block", data[:HEADER] + data[at : at + HEADER + len(stored)])
        if codec == 2:
            continue
        raw = unlz4(stored) if codec == 1 else stored
        if kind == EVENTS:
            put(corpus, "columns", struct.pack("<HQ", count & 0xFFFF, tick) + raw)
        elif kind in (META, END):
            put(corpus, "metadata", raw)
            frame = 0
            while frame + 6 <= len(raw):
                length, = struct.unpack_from("<I", raw, frame + 2)
                put(corpus, "metadata", raw[frame : frame + 6 + length])
                frame += 6 + length
    live = path + ".live"
    if os.path.exists(live):
        side(corpus, data, live)


def side(corpus, data, path):
    """A side file, with the few chunks and nodes that are in use moved together."""
    with open(path, "rb") as file:
        header = bytearray(file.read(4096))
        chunk_bytes, chunks = struct.unpack_from("<II", header, 40)
        at, nodes_at, _ = struct.unpack_from("<QQQ", header, 48)
        body, kept = bytearray(), 0
        small = 4096
        for number in range(chunks):
            file.seek(at + number * chunk_bytes)
            chunk = file.read(small)
            if chunk[:4] != bytes(4) and kept < 3:
                body += chunk
                kept += 1
        file.seek(nodes_at)
        nodes = file.read(16 * 512)
    struct.pack_into("<II", header, 40, small, kept)
    struct.pack_into("<QQQ", header, 48, 4096, 4096 + len(body), len(nodes) // 16)
    whole = bytes(header + body + nodes)
    put(corpus, "side_file", whole)
    put(corpus, "recording", struct.pack("<I", len(data)) + data + whole)


def objects(corpus, folder):
    """Small ELF files: what the compiler makes of a few lines, and the smallest libraries of the system."""
    source = os.path.join(folder, "small.c")
    with open(source, "w", encoding="utf-8") as out:
        out.write("int leaf(int a) { return a * 3; }\nint malloc_like(int a) { return leaf(a) + leaf(a + 1); }\n")
        out.write("void *je_malloc(unsigned long n) { static char room[64]; return n < 64 ? room : 0; }\n")
    ways = {
        "eh": ["-O2"],
        "debug": ["-g", "-fno-asynchronous-unwind-tables"],
        "frame": ["-O0", "-fno-omit-frame-pointer"],
        "holes": ["-O1", "-Wl,-z,separate-code,-z,max-page-size=0x1000"],
    }
    files = sorted(glob.glob("/lib/x86_64-linux-gnu/*.so*"), key=os.path.getsize)[:3]
    for name, flags in ways.items():
        made = os.path.join(folder, name + ".so")
        subprocess.run(["cc", "-shared", "-fPIC", *flags, "-o", made, source], check=True)
        files.append(made)
    for path in files:
        with open(path, "rb") as file:
            data = file.read()
        put(corpus, "elf", data)
        for section in (".eh_frame", ".debug_frame", ".note.gnu.build-id"):
            out = os.path.join(folder, "section")
            if os.path.exists(out):
                os.remove(out)
            subprocess.run(["objcopy", "-O", "binary", "--only-section=" + section, "--set-section-flags",
                            section + "=alloc", path, out], check=False, stderr=subprocess.DEVNULL)
            if os.path.exists(out) and os.path.getsize(out) > 0:
                with open(out, "rb") as file:
                    found = file.read()[:2048]
                if section == ".note.gnu.build-id":
                    put(corpus, "elf", found)
                else:
                    choice = 0 if section == ".eh_frame" else 2
                    put(corpus, "cfi", bytes([choice]) + struct.pack("<I", 0x20) + found)
        header = os.path.join(folder, "header")
        subprocess.run(["objcopy", "-O", "binary", "--only-section=.eh_frame_hdr", "--only-section=.eh_frame", path,
                        header], check=False, stderr=subprocess.DEVNULL)
        if os.path.exists(header):
            with open(header, "rb") as file:
                put(corpus, "cfi", bytes([1]) + struct.pack("<I", (1 << 31) + 0x40) + file.read()[:4096])


def by_hand(corpus):
    """Inputs of the kinds that no recording holds."""
    first = struct.pack("<Q", 0x7FFC12345678)
    for code in ("77a00106", "76780670003122", "7708373f1a3b2a332422", "34311c1f19", "31280100 00 35", "2ffdff",
                 "0aff00 0bfeff 1e", "105510 7f 22 9403"):
        put(corpus, "expression", first + bytes.fromhex(code.replace(" ", "")))

    def step(code, yes, no, k):
        return struct.pack("<HBBI", code, yes, no, k)

    call = struct.pack("<I6Q", 202, 0, 128, 0, 0, 0, 0)
    allow, kill = step(0x06, 0, 0, 0x7FFF0000), step(0x06, 0, 0, 0)
    put(corpus, "bpf", call + step(0x20, 0, 0, 4) + step(0x15, 1, 0, 0xC000003E) + kill + step(0x20, 0, 0, 0)
        + step(0x15, 0, 1, 202) + allow + kill)
    put(corpus, "bpf", call + step(0x20, 0, 0, 24) + step(0x02, 0, 0, 3) + step(0x61, 0, 0, 3) + step(0x7C, 0, 0, 1)
        + step(0x07, 0, 0, 0) + step(0x3C, 0, 0, 7) + step(0x16, 0, 0, 0))
    body = b"X app -v\nI 1000 10\ns 4 main\ns 3 app\ns 5 a\nb c\ni 1000 2 1 3 7\ni 2000 2\nt 1 0\nt 2 1\na 0 0\na 10 1\na 40 2\n"
    for version in (1, 2, 3):
        text = b"v 10400 %d\n" % version + body + b"c 5\n+ 1\n+ 2\n- 1\nR 5\n+ 1\nc 9\n- 2\n- 2\nA\nS x\n"
        put(corpus, "heaptrack", text)
    put(corpus, "options", b"TRACEHOUND_BUFFER=64M\0TRACEHOUND_START=off\0TRACEHOUND_TOGGLE_SIGNAL=SIGUSR1\0"
        b"TRACEHOUND_UNWINDER=frame-pointer\0TRACEHOUND_ON_FULL=drop\0TRACEHOUND_SAMPLE_MEMORY_MS=100\0TRACEHOUND_PAGES=500\0"
        b"TRACEHOUND_COMPRESSION=zstd\0TRACEHOUND_OUTPUT=/tmp/%e-%p-%t-%n%%.dat\0TRACEHOUND_LOG=info\0")
    for kind in range(6):
        put(corpus, "control", b"thct\x01" + bytes([kind]) + b"\x03abc")
    put(corpus, "control", b"thct\x01\x00\x07\x01\x04/a.b\x030.1\x01\x02\x03\x04\x05\x06\x07\x08")
    put(corpus, "names", bytes([2, 4]) + b"main" + bytes([3]) + b"a.c" + bytes([1, 3]) + b"key"
        + bytes([2, 0x30, 1, 1, 2, 17, 0, 5, 2, 1, 0, 3, 1, 0, 2, 0, 0]))


def main():
    corpus, recordings = sys.argv[1], sys.argv[2:]
    for path in recordings:
        recording(corpus, path)
    with tempfile.TemporaryDirectory() as folder:
        objects(corpus, folder)
    by_hand(corpus)
    for target in sorted(os.listdir(corpus)):
        count = len(os.listdir(os.path.join(corpus, target)))
        print(f"{target}: {count} seeds")


if __name__ == "__main__":
    main()
