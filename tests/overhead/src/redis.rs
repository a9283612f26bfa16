//! mini-redis from crates.io, built on its own with its own lock, and a load of 128 clients on the loopback interface.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::Places;
use crate::process::{Cost, Running, output_of, peak_kib, signal};

const VERSION: &str = "0.4.1";
const CLIENTS: usize = 128;
/// Threads that share the clients between them: each sends for all of its clients, then reads for all.
const DRIVERS: usize = 2;
const KEYS: u64 = 4096;
const LIMIT: Duration = Duration::from_secs(300);

/// What one run of the server printed.
#[derive(Debug)]
pub struct Served {
    /// Of the server's process tree, from start to end.
    pub cost: Cost,
    /// The most memory that the server held.
    pub peak_kib: Option<u64>,
    /// Operations a second as the clients saw them.
    pub throughput: f64,
}

/// The server's binary; the first call fetches and builds it.
pub fn build(places: &Places) -> Result<PathBuf> {
    let root = places.work.join("mini-redis");
    let server = root.join("bin/mini-redis-server");
    if !server.exists() {
        eprintln!("   building mini-redis {VERSION}");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["install", "mini-redis", "--version", VERSION, "--locked", "--quiet", "--root"]).arg(&root);
        command.env("CARGO_TARGET_DIR", places.work.join("mini-redis-build"));
        output_of(&mut command).context("mini-redis cannot be built")?;
    }
    Ok(server)
}

/// Starts `command` (which runs `server` in the end), lets the clients make `operations` of them, and ends it.
pub fn serve(mut command: Command, server: &Path, operations: u64, folder: &Path) -> Result<Served> {
    let port = free_port()?;
    command.arg("--port").arg(port.to_string());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let running = Running::start(command, folder)?;
    let loaded = wait_for(address).and_then(|()| load(address, operations));
    let pid = find(running.pid(), server).unwrap_or(running.pid());
    let peak_kib = peak_kib(pid);
    // It stops by itself on the signal of Ctrl-C.
    signal(pid, libc::SIGINT);
    let (cost, _) = running.finish(LIMIT)?;
    let seconds = loaded?.as_secs_f64();
    Ok(Served { cost, peak_kib, throughput: operations as f64 / seconds })
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr().context("a port has no number")?.port())
}

fn wait_for(address: SocketAddr) -> Result<()> {
    let start = Instant::now();
    while TcpStream::connect(address).is_err() {
        ensure!(start.elapsed() < Duration::from_secs(30), "the server does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The process at or directly below `pid` that runs `server`: a recorder may have started it from a script.
fn find(pid: libc::pid_t, server: &Path) -> Option<libc::pid_t> {
    let runs = |pid: libc::pid_t| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == server);
    if runs(pid) {
        return Some(pid);
    }
    let below = |other: libc::pid_t| {
        let stat = std::fs::read_to_string(format!("/proc/{other}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<libc::pid_t>().ok()
    };
    let others = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = others.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|&other| below(other) == Some(pid) && runs(other))
}

/// All clients at once; how long they took for `operations`.
fn load(address: SocketAddr, operations: u64) -> Result<Duration> {
    let mut filler = Client::connect(address)?;
    for key in 0..KEYS {
        filler.send(key, true)?;
        filler.receive(key, true)?;
    }
    let start = Instant::now();
    let turns = operations.div_ceil(CLIENTS as u64);
    std::thread::scope(|scope| {
        let drivers: Vec<_> =
            (0..DRIVERS as u64).map(|driver| scope.spawn(move || drive(address, driver, turns))).collect();
        drivers.into_iter().try_for_each(|driver| driver.join().unwrap_or_else(|_| bail!("a client panicked")))
    })?;
    Ok(start.elapsed())
}

fn drive(address: SocketAddr, driver: u64, turns: u64) -> Result<()> {
    let mut clients = (0..CLIENTS / DRIVERS).map(|_| Client::connect(address)).collect::<Result<Vec<_>>>()?;
    let mut dice = driver + 1;
    let mut asked = vec![(0, false); clients.len()];
    for _ in 0..turns {
        for (client, question) in clients.iter_mut().zip(&mut asked) {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *question = ((dice >> 33) % KEYS, dice >> 60 & 1 == 0);
            client.send(question.0, question.1)?;
        }
        for (client, question) in clients.iter_mut().zip(&asked) {
            client.receive(question.0, question.1)?;
        }
    }
    Ok(())
}

/// One connection.
struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    wanted: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).context("the server takes no more clients")?;
        stream.set_nodelay(true).context("a connection cannot be set up")?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).context("a connection cannot be set up")?;
        Ok(Self { stream, request: Vec::new(), wanted: Vec::new(), answer: Vec::new() })
    }

    fn send(&mut self, key: u64, set: bool) -> Result<()> {
        self.request.clear();
        let name = format!("key:{key:012}");
        if set {
            write!(self.request, "*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n", name.len())?;
            bulk(&mut self.request, key);
        } else {
            write!(self.request, "*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len())?;
        }
        self.stream.write_all(&self.request).context("the server hung up")
    }

    /// Every key always has the same value, so the answer is known.
    fn receive(&mut self, key: u64, set: bool) -> Result<()> {
        self.wanted.clear();
        if set {
            self.wanted.extend_from_slice(b"+OK\r\n");
        } else {
            bulk(&mut self.wanted, key);
        }
        self.answer.resize(self.wanted.len(), 0);
        self.stream.read_exact(&mut self.answer).context("the server hung up")?;
        ensure!(self.answer == self.wanted, "the server answered wrongly");
        Ok(())
    }
}

/// A key's value as a bulk string: 16 to 1,039 bytes.
fn bulk(out: &mut Vec<u8>, key: u64) {
    let len = 16 + key % 1024;
    out.extend_from_slice(format!("${len}\r\n").as_bytes());
    out.extend((0..len).map(|i| b'a' + ((key + i) % 26) as u8));
    out.extend_from_slice(b"\r\n");
}
