"""Objects of sizes that nothing else has, made in threads and in a child; what was made is reported, line by line."""
import json
import os
import sys
import threading

SMALL, LARGE = 391, 100_391  # sys.getsizeof, which is what is asked of the allocator


def make(count, size):
    return [bytes(size - 33) for _ in range(count)]


def print_made(name, blocks):
    print(json.dumps({"name": name, "count": len(blocks), "size": sys.getsizeof(blocks[0])}), flush=True)


kept = make(700, SMALL)
print_made("kept", kept)
large = make(3, LARGE)
print_made("large", large)

results = []
threads = [threading.Thread(target=lambda n: results.append(make(100, SMALL + 2 + n)), args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for blocks in results:
    print_made("thread", blocks)

dropped = make(500, SMALL + 8)
print_made("dropped", dropped)
del dropped

grown = bytearray(b"x" * 60)
for _ in range(200):
    grown += b"y"

child = os.fork()
if child == 0:
    lost = make(50, SMALL + 9)
    os._exit(0 if len(lost) == 50 else 1)
status = os.waitpid(child, 0)[1]
assert status == 0, status
