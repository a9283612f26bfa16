#!/usr/bin/env python3
"""Attaches to servers under load: no request may fail, and how long requests take is printed second by second.

    tests/attach-load.py [redis] [nginx] [postgres] [python] [node] [java]      (no names: all that are installed)

Four connections ask without a pause; answers are compared. Three seconds plain, `heaptrace attach --for 3s`, three seconds
after the detach. Needs `make build`, or HEAPTRACE=FILE. Fails when an answer is wrong or missing, or an attach does not come about.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAPTRACE = Path(os.environ.get("HEAPTRACE", ROOT / "target/release/heaptrace"))
CONNECTIONS = 4
BEFORE, RECORDED, AFTER = 3.0, 3.0, 3.0
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").exists() else []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, process):
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError("the server does not listen")


def http(connection, number):
    """One request over a connection that stays; true if the answer is what it should be."""
    connection.sendall(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % (number % 100))
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return False
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        part = connection.recv(65536)
        if not part:
            return False
        body += part
    return head.startswith(b"HTTP/1.1 200") and body.startswith(b"ok %d " % (number % 100)) and len(body) == length


def resp(connection, number):
    """SET and GET of one key, whose answers come together."""
    key, value = b"key:%d" % (number % 1000), b"%0200d" % number
    name = b"%d:%s" % (threading.get_ident(), key)
    connection.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n"
                       % (len(name), name, len(value), value, len(name), name))
    wanted = b"+OK\r\n$%d\r\n%s\r\n" % (len(value), value)
    data = b""
    while len(data) < len(wanted):
        part = connection.recv(65536)
        if not part:
            return False
        data += part
    return data == wanted


class Load:
    """Asks without a pause, and remembers when each answer came and how long it took."""

    def __init__(self, port, ask):
        self.port, self.ask, self.stops = port, ask, False
        self.answers, self.errors = [], []
        self.threads = [threading.Thread(target=self.work) for _ in range(CONNECTIONS)]
        for thread in self.threads:
            thread.start()

    def work(self):
        answers = []
        try:
            with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
                connection.settimeout(30)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                number = 0
                while not self.stops:
                    began = time.monotonic()
                    if not self.ask(connection, number):
                        self.errors.append("a wrong answer")
                        break
                    answers.append((time.monotonic(), time.monotonic() - began))
                    number += 1
        except OSError as error:
            self.errors.append(repr(error))
        self.answers.extend(answers)

    def stop(self):
        self.stops = True
        for thread in self.threads:
            thread.join()
        return self.answers, self.errors


class Bench:
    """The same by pgbench: each transaction with its time."""

    def __init__(self, folder, options, seconds, environment):
        self.folder = folder
        command = ["pgbench", *options, "-n", "-S", "-c", str(CONNECTIONS), "-T", str(seconds), "-l", "--log-prefix=log", "bench"]
        self.offset = time.monotonic() - time.time()
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)

    def stop(self):
        said, _ = self.process.communicate()
        errors = [] if self.process.returncode == 0 and b"failed transactions: 0" in said else [said.decode()]
        answers = []
        for log in Path(self.folder).glob("log.*"):
            for line in log.read_text().splitlines():
                fields = line.split()
                answers.append((int(fields[4]) + int(fields[5]) / 1e6 + self.offset, int(fields[2]) / 1e6))
        return answers, errors


@contextlib.contextmanager
def started(command, folder, port=None, **more):
    with open(os.path.join(folder, "log"), "wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **more)
        try:
            if port:
                wait_for(port, process)
            yield process
        finally:
            process.terminate()
            process.wait(60)


@contextlib.contextmanager
def redis(folder):
    port = free_port()
    with started(["redis-server", "--port", str(port), "--save", ""], folder, port) as process:
        yield process.pid, lambda: Load(port, resp)


@contextlib.contextmanager
def nginx(folder):
    port = free_port()
    for number in range(100):
        Path(folder, str(number)).write_text(f"ok {number} " + "x" * 2000)
    Path(folder, "conf").write_text(
        f"daemon off; master_process off; error_log stderr; pid {folder}/pid; events {{}}\n"
        f"http {{ access_log off; keepalive_requests 100000000; gzip off; client_body_temp_path {folder}/b;\n"
        f"proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n")
    with started(["nginx", "-c", f"{folder}/conf", "-e", "stderr"], folder, port) as process:
        yield process.pid, lambda: Load(port, http)


@contextlib.contextmanager
def postgres(folder):
    """One of the processes that serve pgbench's connections is attached to."""
    port, tools = free_port(), POSTGRES[-1]
    user = {"user": "postgres"} if os.getuid() == 0 else {}
    if user:
        shutil.chown(folder, "postgres")
    data, options = f"{folder}/data", ["-h", folder, "-p", str(port)]
    environment = {**os.environ, "PGUSER": "postgres"}
    subprocess.run([f"{tools}/initdb", "-D", data, "-U", "postgres", "-A", "trust"], check=True, cwd=folder,
                   stdout=subprocess.DEVNULL, **user)
    server = [f"{tools}/postgres", "-D", data, "-p", str(port), "-k", folder, "-h", ""]
    with started(server, folder, **user) as process:
        for _ in range(100):
            if subprocess.run(["createdb", *options, "bench"], env=environment, stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.1)
        subprocess.run(["pgbench", *options, "-i", "-q", "-s", "2", "bench"], env=environment, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def serving():
            for _ in range(100):
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                for child in children:
                    if b"bench" in Path(f"/proc/{child}/cmdline").read_bytes():
                        return int(child)
                time.sleep(0.05)
            raise RuntimeError("pgbench has no connection")

        yield serving, lambda: Bench(folder, options, int(BEFORE + RECORDED + AFTER + 1), environment)


PYTHON = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_GET(self):
        rows = json.loads(json.dumps([{"row": i, "text": "x" * 20} for i in range(50)]))
        body = f"ok {self.path[1:]} {len(rows)}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
NODE = """
require('http').createServer((request, response) => {
  const rows = JSON.parse(JSON.stringify(Array.from({length: 50}, (_, row) => ({row, text: 'x'.repeat(20)}))));
  const body = Buffer.from(`ok ${request.url.slice(1)} ${rows.length}`);
  response.writeHead(200, {'Content-Length': body.length});
  response.end(body);
}).listen(+process.argv[2], '127.0.0.1');
"""
JAVA = """
import com.sun.net.httpserver.*;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import java.util.zip.*;
public class Server {
  public static void main(String[] args) throws Exception {
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 0);
    server.createContext("/", exchange -> {
      Deflater deflater = new Deflater();
      byte[] text = new byte[2000], packed = new byte[3000];
      deflater.setInput(text);
      deflater.finish();
      int size = deflater.deflate(packed);
      deflater.end();
      byte[] body = ("ok " + exchange.getRequestURI().getPath().substring(1) + " " + size).getBytes();
      exchange.sendResponseHeaders(200, body.length);
      exchange.getResponseBody().write(body);
      exchange.close();
    });
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.start();
  }
}
"""


def scripted(command, name, source):
    @contextlib.contextmanager
    def server(folder):
        port, file = free_port(), Path(folder, name)
        file.write_text(source)
        with started([*command, str(file), str(port)], folder, port) as process:
            yield process.pid, lambda: Load(port, http)
    return server


SERVERS = {
    "redis": ("redis-server", redis),
    "nginx": ("nginx", nginx),
    "postgres": (str(POSTGRES[-1] / "postgres") if POSTGRES else "postgres", postgres),
    "python": ("/usr/bin/python3", scripted(["/usr/bin/python3"], "server.py", PYTHON)),
    "node": ("node", scripted(["node"], "server.js", NODE)),
    "java": ("java", scripted(["java", "-Dsun.net.httpserver.nodelay=true"], "Server.java", JAVA)),
}


def p99(answers, begin, end):
    """99th percentile and longest of the answers that came between two instants, in milliseconds."""
    times = sorted(took for at, took in answers if begin <= at < end)
    return (f"{times[len(times) * 99 // 100] * 1e3:8.2f} {times[-1] * 1e3:8.1f}") if times else f"{'none':>17}"


def measure(name, server):
    """One server: a row of the table; false when something went wrong."""
    with tempfile.TemporaryDirectory() as folder, server(folder) as (pid, load):
        os.chmod(folder, 0o755)
        running = load()
        time.sleep(BEFORE)
        pid = pid() if callable(pid) else pid
        path = str(Path(folder, "attached.dat"))
        asked = time.monotonic()
        with tempfile.TemporaryDirectory() as own:
            path = str(Path(own, "attached.dat"))
            attach = subprocess.Popen([HEAPTRACE, "attach", str(pid), "--for", f"{RECORDED:.0f}s", "-o", path],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            lines = [attach.stdout.readline(), attach.stdout.readline()]
            recording = time.monotonic()
            said = attach.communicate()[1]
            ended = time.monotonic()
            time.sleep(AFTER)
            answers, errors = running.stop()
            if attach.returncode or lines[1] != "recording\n":
                errors.append(said.strip())
            info = subprocess.run([HEAPTRACE, "info", path], capture_output=True, text=True)
            if not errors and info.returncode:
                errors.append(info.stderr)
    row = [p99(answers, asked - 2, asked), p99(answers, asked, asked + 1), p99(answers, recording, ended - 1),
           p99(answers, ended - 1, ended), p99(answers, ended + 0.5, ended + AFTER)]
    print(f"{name:<9} {len(answers):>8} {len(errors):>6} {(recording - asked) * 1e3:>9.0f}  " + "  ".join(row), flush=True)
    for error in errors:
        print(f"    {error}")
    return not errors


def main():
    names = sys.argv[1:] or [name for name, (program, _) in SERVERS.items() if shutil.which(program)]
    unknown = [name for name in names if name not in SERVERS]
    if unknown:
        sys.exit(f"attach-load.py: no server {' '.join(unknown)}; there are {', '.join(SERVERS)}")
    print("milliseconds, 99th percentile and longest")
    columns = ["before", "second of attach", "recorded", "second of detach", "after"]
    print(f"{'server':<9} {'answers':>8} {'errors':>6} {'attach ms':>9}  " + "  ".join(f"{column:>17}" for column in columns))
    return 0 if all([measure(name, SERVERS[name][1]) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
