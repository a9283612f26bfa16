"""requests, from threads, against a server of aiohttp in the same process; the server keeps each body that it gets."""

import asyncio
import hashlib
import threading

import requests
from aiohttp import web

seen = {}
started = threading.Event()
address = []


def keep_body(number, body):
    seen[number] = bytearray(body) * 2  # the leak


async def upload(request):
    body = await request.read()
    keep_body(request.match_info["number"], body)
    return web.json_response({"bytes": len(body), "digest": hashlib.sha256(body).hexdigest()})


async def serve(stop):
    application = web.Application()
    application.router.add_post("/upload/{number}", upload)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address.append(site._server.sockets[0].getsockname()[1])
    started.set()
    while not stop.is_set():
        await asyncio.sleep(0.01)
    await runner.cleanup()


def client(first, answers):
    with requests.Session() as session:
        for number in range(first, first + 60):
            url = f"http://127.0.0.1:{address[0]}/upload/{number}"
            answer = session.post(url, data=bytes([number % 251]) * 20_000, timeout=60)
            answers[number] = answer.json()["digest"][:8]


stop = threading.Event()
server = threading.Thread(target=lambda: asyncio.run(serve(stop)))
server.start()
started.wait()
answers = {}
clients = [threading.Thread(target=client, args=(first, answers)) for first in (0, 100, 200)]
for thread in clients:
    thread.start()
for thread in clients:
    thread.join()
stop.set()
server.join()
digest = hashlib.sha256("".join(f"{number}{answers[number]}" for number in sorted(answers)).encode()).hexdigest()
print(len(answers), len(seen), digest)
