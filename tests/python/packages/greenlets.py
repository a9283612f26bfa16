"""gevent: greenlets that sleep and talk over sockets in one thread; the server keeps each message that it gets."""

import gevent
from gevent import monkey, pool, server

monkey.patch_all()

import hashlib
import socket
import time

seen = {}


def keep_message(number, message):
    seen[number] = bytearray(message) * 3  # the leak


def serve(connection, _):
    with connection.makefile("rb") as stream:
        for number, line in enumerate(stream):
            keep_message((connection.fileno(), number), line * 100)
            connection.sendall(hashlib.sha256(line).hexdigest().encode() + b"\n")


def wait_deep(depth, seconds):
    block = bytes(1000 + depth)
    if depth:
        return wait_deep(depth - 1, seconds) + len(block) - len(block)
    time.sleep(seconds)
    return 1


def client(address, number):
    with socket.create_connection(address) as connection, connection.makefile("rb") as stream:
        answers = []
        for turn in range(20):
            connection.sendall(b"%d from %d\n" % (turn, number))
            answers.append(stream.readline())
            wait_deep((number + turn) % 17, 0.0001 * (number % 3))
        return hashlib.sha256(b"".join(answers)).hexdigest()


listener = server.StreamServer(("127.0.0.1", 0), serve)
listener.start()
address = ("127.0.0.1", listener.server_port)
digests = pool.Pool(30).map(lambda number: client(address, number), range(60))
listener.stop()
print(len(digests), hashlib.sha256("".join(digests).encode()).hexdigest())
gevent.wait(timeout=1)
