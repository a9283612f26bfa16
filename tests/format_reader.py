#!/usr/bin/env python3
"""A reader of recordings written from docs/FORMAT.md alone, as somebody else would write it: an outside oracle.

    format_reader.py FILE      one JSON object for each record, thread by thread, in the order of the records

Reads recordings that were made with TRACEHOUND_COMPRESSION=none; anything that breaks the specification is an error.
"""

import json
import struct
import sys
import zlib

ALLOCS = set(range(1, 13)) | {25, 27}
FREES = set(range(16, 23)) | {24, 26}
META, NODES, EVENTS, END = 1, 2, 3, 4


class Bytes:
    """Bytes that are read front to back."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if self.at + count > len(self.data):
            raise ValueError("bytes are missing")
        self.at += count
        return self.data[self.at - count : self.at]

    def done(self):
        return self.at == len(self.data)

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def integer(self):
        """An integer of the metadata encoding (section 4.3)."""
        first = self.take(1)[0]
        if first <= 250:
            return first
        width = {251: 2, 252: 4, 253: 8}[first]
        return int.from_bytes(self.take(width), "little")


def unzigzag(value):
    return (value >> 1) ^ -(value & 1)


def read_fields(data, fields):
    """The fields of a metadata record: pairs of name and reader."""
    data = Bytes(data)
    record = {name: read(data) for name, read in fields}
    if not data.done():
        raise ValueError("bytes are left over in a metadata record")
    return record


def text(data):
    return data.take(data.integer()).decode()


def blob(data):
    return bytes(data.take(data.integer()))


def byte(data):
    return data.take(1)[0]


def segments(data):
    return [[data.integer() for _ in range(5)] for _ in range(data.integer())]


# Four of the records of section 4.3; the others are skipped by their length, as a reader may.
RECORDS = {
    2: ("Clock", [("source", Bytes.integer), ("shift", byte), ("millihertz", Bytes.integer), ("note", text)]),
    4: (
        "ModuleLoad",
        [
            ("id", Bytes.integer),
            ("tick", Bytes.integer),
            ("path", blob),
            ("build_id", blob),
            ("bias", Bytes.integer),
            ("segments", segments),
            ("generation", Bytes.integer),
        ],
    ),
    6: (
        "ThreadStart",
        [("thread", Bytes.integer), ("os_thread", Bytes.integer), ("tick", Bytes.integer), ("name", blob)],
    ),
    11: ("Watermark", [("tick", Bytes.integer)]),
}


def frames(payload):
    data = Bytes(payload)
    while not data.done():
        tag, length = struct.unpack("<HI", data.take(6))
        yield tag, data.take(length)


def decode_nodes(payload, first, count, nodes):
    data, pc = Bytes(payload), 0
    for number in range(first, first + count):
        parent = number - unzigzag(data.varint())
        pc = (pc + unzigzag(data.varint())) % 2**64
        nodes[number] = (parent, pc, data.varint())
    if not data.done():
        raise ValueError("bytes are left over in a block of nodes")


def context(previous, before):
    mixed = (previous * 0x9E3779B1 ^ before * 0x85EBCA6B) & 0xFFFFFFFF
    return (mixed ^ mixed >> 15) & 0x3FFF


def node_slot(node):
    return (node * 0x9E3779B1 & 0xFFFFFFFF) >> 16 & 0xFFF


def size_class(size):
    return min((size + 23) >> 4, 255)


def decode_events(payload, count, first_tick):
    data = Bytes(payload)
    layout, shift = data.take(2)
    if layout != 1:
        raise ValueError(f"layout {layout}")
    lengths = [data.varint() for _ in range(5)]
    nodes, kinds, ticks, sizes, addresses = (Bytes(data.take(length)) for length in lengths)
    next_node, last_kind, last_size = {}, {}, {}
    allocs, free = [], {}  # allocations: [address, class, next older free allocation]; free: class -> the allocation freed last
    previous = before = last_freed = 0
    alloc_address = free_address = other_address = 0
    tick = first_tick

    def step(base):
        return (base + (unzigzag(addresses.varint()) << shift)) % 2**64

    for _ in range(count):
        coded, place, kind_coded = nodes.varint(), context(previous, before), False
        if coded:
            next_node[place] = previous + unzigzag((coded - 1) >> 1)
            kind_coded = (coded - 1) & 1
        node = next_node.get(place, 0)
        before, previous = previous, node
        slot = node_slot(node)
        if kind_coded:
            last_kind[slot] = kinds.take(1)[0]
        kind = last_kind.get(slot, 0)
        tick = (tick + unzigzag(ticks.varint())) % 2**64
        size = 0
        if kind not in FREES:
            coded = sizes.varint()
            if coded:
                last_size[slot] = coded - 1
            size = last_size.get(slot, 0)
        coded = addresses.varint()
        if kind in ALLOCS:
            this_class = size_class(size)
            if coded == 0:
                reused = allocs[free[this_class]]
                address, free[this_class] = reused[0], reused[2]
            elif coded == 1:
                address = step(alloc_address)
            else:
                address = (alloc_address + (unzigzag(coded - 2) << shift)) % 2**64
            allocs.append([address, this_class, None])
            alloc_address = address
        elif kind in FREES:
            if coded:
                last_freed += unzigzag(coded - 1)
                alloc = allocs[last_freed]
                alloc[2] = free.get(alloc[1])
                free[alloc[1]] = last_freed
                address = alloc[0]
            else:
                address = free_address = step(free_address)
        else:
            address = other_address = (other_address + (unzigzag(coded) << shift)) % 2**64
        yield kind, tick, address, node, size
    for column in (nodes, kinds, ticks, sizes, addresses, data):
        if not column.done():
            raise ValueError("bytes are left over in a block of events")


def blocks(data):
    """The blocks of a file: kind, header fields and payload."""
    if data[:8] != bytes.fromhex("8954484f554e440a") or zlib.crc32(data[:60]) != struct.unpack_from("<I", data, 60)[0]:
        raise ValueError("no recording")
    at = struct.unpack_from("<I", data, 12)[0]
    while at < len(data):
        header = data[at : at + 64]
        if header[:8] != bytes.fromhex("f55448424c4b0d0a"):
            raise ValueError(f"no block at {at}")
        kind, codec, _, thread, _, first, low, _, count, raw, stored, crc, own = struct.unpack("<BBHIIQQQIIIII", header[8:])
        payload = data[at + 64 : at + 64 + stored]
        if zlib.crc32(header[:60]) != own or zlib.crc32(payload) != crc or codec != 0 or raw != stored:
            raise ValueError(f"the block at {at} is damaged or compressed")
        yield kind, thread, first, low, count, payload
        at += 64 + stored


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    nodes, events, metas, ended, numbers = {}, [], {}, False, {}
    for kind, thread, first, low, count, payload in blocks(data):
        if kind in (META, END):
            ended |= kind == END
            for tag, body in frames(payload):
                name, fields = RECORDS.get(tag, (None, None))
                if name:
                    metas.setdefault(name, []).append(read_fields(body, fields))
        elif kind == NODES:
            decode_nodes(payload, first, count, nodes)
        elif kind == EVENTS:
            if numbers.get(thread, 0) != first:
                raise ValueError(f"records of thread {thread} are missing")
            numbers[thread] = first + count
            events.extend((thread, *event) for event in decode_events(payload, count, low))
    high = {}
    for thread, kind, tick, address, node, size in events:
        if kind == 48:  # the upper half of the next record's size
            high[thread] = (address & 0xFFFFFFFF) << 32
            continue
        stack = []
        while node:
            node, pc, _ = nodes[node]
            stack.append(f"{pc:#x}")
        size |= high.pop(thread, 0)
        print(json.dumps({"thread": thread, "kind": kind, "tick": tick, "address": f"{address:#x}", "size": size, "stack": stack}))
    starts = [start["thread"] for start in metas.get("ThreadStart", [])]
    loads = [load["tick"] for load in metas.get("ModuleLoad", [])]
    print(json.dumps({"clock": metas["Clock"][0], "threads": len(starts), "loads": loads, "ended": ended}))


main()
