//! A proxy between a client of HTTP and its server, which does to some requests what networks and services do.
//!
//! It speaks as much HTTP as that takes: a request is a head and `Content-Length` bytes, each has a connection of its own
//! to the server, and an answer ends with it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// Half of its body arrives, then the connection is gone.
    CutRequest,
    /// The server does what was asked, and half of its answer arrives.
    CutAnswer,
    /// The service says that it is too busy (503), and does nothing.
    Busy,
    /// The service says that it failed (500), and does nothing.
    Failed,
    /// The service says that the credentials have expired (403).
    Expired,
}

/// A schedule: the fault of the request with this number, by its first line.
type Schedule = Box<dyn Fn(u64, &str) -> Fault + Send>;

/// A running proxy.
pub struct FaultProxy {
    /// Where it listens.
    pub address: String,
    plan: Arc<Mutex<Plan>>,
}

struct Plan {
    schedule: Schedule,
    /// What happened to each request.
    done: Vec<(String, Fault)>,
}

impl FaultProxy {
    /// A proxy for the server at `server`, without a fault until one is set.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("an address").to_string();
        let plan = Arc::new(Mutex::new(Plan { schedule: Box::new(|_, _| Fault::Pass), done: Vec::new() }));
        let (server, of_thread) = (server.to_owned(), Arc::clone(&plan));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (server, plan) = (server.clone(), Arc::clone(&of_thread));
                // An error is what this is about: the connection ends.
                std::thread::spawn(move || drop(serve(client, &server, &plan)));
            }
        });
        Self { address, plan }
    }

    /// From now on requests have the faults that `schedule` says.
    pub fn schedule(&self, schedule: impl Fn(u64, &str) -> Fault + Send + 'static) {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).schedule = Box::new(schedule);
    }

    /// The first lines of all requests until now, and what happened to them.
    #[must_use]
    pub fn done(&self) -> Vec<(String, Fault)> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).done.clone()
    }
}

fn serve(mut client: TcpStream, server: &str, plan: &Mutex<Plan>) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let line = text.lines().next().unwrap_or_default().to_owned();
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    if text.to_ascii_lowercase().contains("\r\nexpect: 100-continue") {
        client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body)?;
    let fault = {
        let mut plan = plan.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = (plan.schedule)(plan.done.len() as u64, &line);
        plan.done.push((line, fault));
        fault
    };
    let refusal = |status: &str, code: &str| {
        let said = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>by the test</Message></Error>");
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{said}", said.len())
    };
    match fault {
        Fault::Busy => return client.write_all(refusal("503 Slow Down", "SlowDown").as_bytes()),
        Fault::Failed => return client.write_all(refusal("500 Internal Server Error", "InternalError").as_bytes()),
        Fault::Expired => return client.write_all(refusal("403 Forbidden", "ExpiredToken").as_bytes()),
        Fault::Pass | Fault::CutRequest | Fault::CutAnswer => {}
    }
    let mut upstream = TcpStream::connect(server)?;
    upstream.set_read_timeout(Some(Duration::from_secs(60)))?;
    // The connection ends behind the answer, and so the answer's length needs not be understood.
    let rest = text.split_once("\r\n").map_or("", |(_, rest)| rest);
    let first = text.lines().next().unwrap_or_default();
    upstream.write_all(format!("{first}\r\nConnection: close\r\n{rest}").as_bytes())?;
    if fault == Fault::CutRequest {
        upstream.write_all(&body[..body.len() / 2])?;
        upstream.shutdown(Shutdown::Both)?;
        return client.shutdown(Shutdown::Both);
    }
    upstream.write_all(&body)?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer)?;
    let sent = if fault == Fault::CutAnswer { answer.len() / 2 } else { answer.len() };
    client.write_all(&answer[..sent])?;
    client.shutdown(Shutdown::Both)
}
