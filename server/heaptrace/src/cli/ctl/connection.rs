//! Connection to the recorder of a process: finds its socket, and checks that this process listens on it.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};
use tracehound_format::control::{self, MAX_MESSAGE, Reply, Request};

/// How long an answer may take: a writer that waits for a slow disk answers when the disk has.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a program that has the recorder loaded may take until it listens.
const START_TIME: Duration = Duration::from_secs(5);
/// How long a process may take until it has become the program.
const EXEC_TIME: Duration = Duration::from_millis(500);

/// What `/proc` says about a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Target {
    /// Its id in its own pid namespace.
    inner_pid: u32,
    /// Real, effective, saved and file-system user.
    users: Vec<u32>,
}

/// Sends a request to the recorder of process `pid` and returns its reply.
pub fn ask(pid: u32, request: &Request) -> Result<Reply> {
    let message = control::encode(request)?;
    let socket = find(pid)?;
    if is_stopped(pid) {
        bail!("process {pid} is stopped, and its recorder with it: continue it first (`kill -CONT {pid}`)");
    }
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    let gone = || format!("the recorder of process {pid} is gone");
    send(&socket, &message, SendFlags::NOSIGNAL).with_context(gone)?;
    let mut buffer = vec![0_u8; MAX_MESSAGE + 1];
    let (len, _) = match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
        Err(Errno::AGAIN) => {
            bail!("the recorder of process {pid} does not answer: it waits for its disk, or is stopped")
        }
        other => other.with_context(gone)?,
    };
    if len == 0 {
        bail!("process {pid} does not answer to this user");
    }
    Ok(control::decode(&buffer[..len])?)
}

/// A connection to the recorder of process `pid`. One that has just been started may not listen yet.
fn find(pid: u32) -> Result<OwnedFd> {
    let start = Instant::now();
    loop {
        if let Some(socket) = look(pid)? {
            return Ok(socket);
        }
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        // An attach brings it in as a file in memory.
        let names: [&[u8]; 2] = [b"libtracehound", b"memfd:tracehound"];
        let loaded = names.iter().any(|name| maps.windows(name.len()).any(|window| window == *name));
        if start.elapsed() > if loaded { START_TIME } else { EXEC_TIME } {
            let why =
                if loaded { "its recording has ended, or never began" } else { "libtracehound.so is not loaded in it" };
            bail!("process {pid} has no recorder that listens: {why}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The same, as it is now; `None` when nobody listens.
fn look(pid: u32) -> Result<Option<OwnedFd>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| no_process(pid))?;
    let target = parse_status(&status, pid);
    let own_namespace = fs::read_link("/proc/self/ns/pid").ok();
    // Without permission to read the link, our own namespace is the most likely one.
    let namespace = fs::read_link(format!("/proc/{pid}/ns/pid")).ok().or(own_namespace).unwrap_or_default();
    let namespace = control::namespace_number(namespace.as_os_str().as_encoded_bytes());
    let name = control::socket_name(namespace, target.inner_pid);
    let mut users = target.users.clone();
    users.extend([rustix::process::geteuid().as_raw(), rustix::process::getuid().as_raw(), 0]);
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut denied = None;
    for user in users {
        for folder in control::folders(user) {
            for root in [String::new(), format!("/proc/{pid}/root")] {
                let path = PathBuf::from(format!("{root}{folder}/{name}"));
                if seen.contains(&path) {
                    continue;
                }
                match try_connect(&path, pid) {
                    Ok(socket) => return Ok(Some(socket)),
                    Err(Errno::ACCESS | Errno::PERM) if root.is_empty() && target.users.contains(&user) => {
                        denied = Some(user);
                    }
                    // A name on which nobody listens may be that of a recorder that is about to listen: it stays. Names
                    // of processes that were killed are removed by the next recorder.
                    Err(_) => {}
                }
                seen.push(path);
            }
        }
    }
    match denied {
        Some(user) => bail!("process {pid} belongs to user {user}: only that user and root may talk to its recorder"),
        None => Ok(None),
    }
}

/// Whether the process does not run: by SIGSTOP, or in a debugger.
fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or_default().trim_start();
    state.starts_with(['T', 't'])
}

fn no_process(pid: u32) -> anyhow::Error {
    anyhow::anyhow!("there is no process {pid}")
}

/// Connects, and makes sure that it is process `pid` that listens there.
fn try_connect(path: &Path, pid: u32) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &address)?;
    let peer = sockopt::socket_peercred(&socket)?;
    if peer.pid.as_raw_pid().cast_unsigned() == pid { Ok(socket) } else { Err(Errno::NOENT) }
}

fn parse_status(text: &str, pid: u32) -> Target {
    let numbers = |key: &str| -> Vec<u32> {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    Target { inner_pid: numbers("NSpid:").last().copied().unwrap_or(pid), users: numbers("Uid:") }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt as _;

    use super::*;

    #[test]
    fn the_innermost_id_and_all_users_count() {
        let text = "Name:\tx\nUid:\t1000\t0\t0\t0\nNSpid:\t4711\t12\n";
        assert_eq!(parse_status(text, 4711), Target { inner_pid: 12, users: vec![1000, 0, 0, 0] });
        assert_eq!(parse_status("", 5).inner_pid, 5);
    }

    #[test]
    fn a_process_without_a_recorder_is_said_to_have_none() {
        let error = ask(std::process::id(), &Request::Status).unwrap_err().to_string();
        assert!(error.contains("no recorder"), "{error}");
        assert!(ask(u32::MAX, &Request::Status).unwrap_err().to_string().contains("there is no process"));
        // The same process, whose recorder has made its socket and does not listen yet.
        let pid = std::process::id();
        let folders = control::folders(rustix::process::geteuid().as_raw());
        let make = |folder: &&String| {
            let _ = fs::DirBuilder::new().mode(0o700).create(folder);
            Path::new(folder.as_str()).is_dir()
        };
        let folder = folders.iter().find(make).expect("a folder for sockets");
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let namespace = control::namespace_number(namespace.as_os_str().as_encoded_bytes());
        let path = PathBuf::from(format!("{folder}/{}", control::socket_name(namespace, pid)));
        let _ = fs::remove_file(&path);
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let asking = std::thread::spawn(move || find(pid).is_ok());
        std::thread::sleep(Duration::from_millis(100));
        let is_there = path.exists();
        rustix::net::listen(&socket, 1).unwrap();
        let found = asking.join().unwrap();
        let _ = fs::remove_file(&path);
        assert!(is_there && found);
    }
}
