"""A service on asyncio: requests that wait for each other's turns, and keep and free blocks of known sizes."""

import asyncio
import ctypes
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bindings/python"))

import tracehound
from truth import libc

sums = {}


def keep(id, size):
    libc.malloc(size)
    count, total = sums.get(id, (0, 0))
    sums[id] = (count + 1, total + size)


async def part(id, size):
    await asyncio.sleep(0)
    assert tracehound.current() == id
    keep(id, size)


async def handle(id):
    for turn in range(5):
        keep(id, 1_000_000 + id * 100 + turn)
        await asyncio.sleep(0)
    await asyncio.gather(*(part(id, 2_000_000 + id * 100 + n) for n in range(3)))
    try:
        await asyncio.wait_for(asyncio.sleep(10), 0.001)
    except asyncio.TimeoutError:
        keep(id, 3_000_000 + id)
    return id


async def main():
    tracehound.install()
    requests = [tracehound.follow(handle(id), id, f"GET /items/{id}") for id in range(1, 41)]
    answers = await asyncio.gather(*(asyncio.ensure_future(run(request)) for request in requests))
    assert answers == list(range(1, 41)) and tracehound.current() == 0
    with tracehound.request(50, "start-up"):
        with tracehound.request(51):
            keep(51, 4_000_000)
        keep(50, 4_000_001)


async def run(request):
    return await request


asyncio.run(main())
print(json.dumps(sums))
