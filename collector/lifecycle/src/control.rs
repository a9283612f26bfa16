//! Requests of `heaptrace ctl`, served by the writer's thread between two rounds: it never waits for a client.
//!
//! The socket and its folder are accessible to the user alone, and the recorder answers only that user and root. Its
//! descriptor is in the writer thread's own table: the program can neither see nor close it. A forked child does not
//! have its parent's socket, and an orderly end removes the name.

use core::sync::atomic::Ordering;
use std::ffi::{CStr, CString};

use tracehound_format::control::{self, CaptureState, MAX_MESSAGE, Reply, Request, Status};
use tracehound_format::meta::EndReason;

use super::{attached, capture_control};
use tracehound_background::writer::RecordingWriter;
use tracehound_shared::clock;
use tracehound_shared::gate::{self, Internal};
use tracehound_shared::lock::Lock;
use tracehound_shared::session::{self, Session};
use tracehound_shared::sys::{self, Errno};

/// Clients that are served at a time; others wait in the kernel's queue.
const MAX_CLIENTS: usize = 8;
/// A client that sends nothing for this long is dropped.
const PATIENCE_NS: u64 = 2_000_000_000;

struct Socket {
    listener: i32,
    path: CString,
    /// The user that made it.
    user: u32,
    clients: Vec<Client>,
}

struct Client {
    fd: i32,
    since_ns: u64,
    /// A request that could not be carried out yet.
    pending: Option<Request>,
}

static SOCKET: Lock<Option<Socket>> = Lock::new(None);

/// Opens the socket of this process. On the writer's thread, which must have left the program's descriptor table.
pub(super) fn open(session: &Session) {
    if session.filtered.load(Ordering::SeqCst) {
        let text = "heaptrace ctl cannot reach this process: a seccomp filter forbids its socket";
        return session.remark(clock::now(), "no-control", text.into());
    }
    match create() {
        Ok(socket) => *SOCKET.lock() = Some(socket),
        Err(error) => {
            let text = format!("heaptrace ctl cannot reach this process: its socket could not be made ({error})");
            session.remark(clock::now(), "no-control", text);
        }
    }
}

fn create() -> sys::Result<Socket> {
    let user = sys::user_id();
    let namespace = control::namespace_number(&sys::read_link(c"/proc/self/ns/pid").unwrap_or_default());
    let name = control::socket_name(namespace, sys::process_id());
    let mut last = Errno(libc::ENOENT);
    for folder in control::folders(user) {
        let folder_path = CString::new(folder.as_str()).map_err(|_| Errno(libc::EINVAL))?;
        let path = CString::new(format!("{folder}/{name}")).map_err(|_| Errno(libc::EINVAL))?;
        match sys::private_folder(&folder_path, user).and_then(|()| sys::listen_at(&path)) {
            Ok(listener) => {
                sweep(&folder, &folder_path, namespace);
                return Ok(Socket { listener, path, user, clients: Vec::new() });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Requests the closing of the socket, from a thread of the program.
pub fn close_from_program() {
    let Some(session) = session::current().filter(|session| session.pid == sys::process_id()) else { return };
    session.filtered.store(true, Ordering::SeqCst);
    let _internal = Internal::enter();
    for _ in 0..200 {
        if SOCKET.try_lock().is_some_and(|socket| socket.is_none()) {
            return;
        }
        session.pool.ring();
        sys::sleep(500_000);
    }
}

/// Removes the names of sockets whose processes were killed.
fn sweep(folder: &str, folder_path: &CStr, namespace: u64) {
    let own = format!("{namespace}-");
    let mut dead = Vec::new();
    let _ = sys::names_in(folder_path, &mut |name| {
        let pid = name.to_str().ok().and_then(|name| name.strip_prefix(own.as_str())?.parse().ok());
        dead.extend(pid.filter(|&pid| !sys::process_exists(pid)));
    });
    for pid in dead {
        if let Ok(path) = CString::new(format!("{folder}/{}", control::socket_name(namespace, pid))) {
            let _ = sys::unlink_at(libc::AT_FDCWD, &path);
        }
    }
}

/// Closes the socket and removes its name; true if there was one.
pub(super) fn close() -> bool {
    if let Some(socket) = SOCKET.lock().take() {
        let _ = sys::unlink_at(libc::AT_FDCWD, &socket.path);
        socket.clients.iter().for_each(|client| sys::close(client.fd));
        sys::close(socket.listener);
        return true;
    }
    false
}

/// In a forked child: forgets the socket, which is the parent's.
pub(super) fn forget() {
    // SAFETY: the child has one thread; the descriptors in the old value are not in its table.
    unsafe { SOCKET.abandon(None) }
}

/// Serves clients that have sent requests.
pub(super) fn attend(writer: &mut RecordingWriter, session: &'static Session) {
    if session.filtered.load(Ordering::Relaxed) {
        close();
        return;
    }
    let mut guard = SOCKET.lock();
    let Some(socket) = guard.as_mut() else { return };
    while socket.clients.len() < MAX_CLIENTS {
        let Some(fd) = sys::accept(socket.listener) else { break };
        if sys::peer_user(fd).is_ok_and(|user| user == socket.user || user == 0) {
            socket.clients.push(Client { fd, since_ns: sys::clock(libc::CLOCK_MONOTONIC), pending: None });
        } else {
            sys::close(fd);
        }
    }
    socket.clients.retain_mut(|client| {
        let stays = serve(client, writer, session);
        if !stays {
            sys::close(client.fd);
        }
        stays
    });
}

/// Whether a client waits for an answer: the next round should come soon.
pub(super) fn has_clients() -> bool {
    SOCKET.lock().as_ref().is_some_and(|socket| !socket.clients.is_empty())
}

/// One step for a client; false when the client is finished.
fn serve(client: &mut Client, writer: &mut RecordingWriter, session: &'static Session) -> bool {
    let overdue = sys::clock(libc::CLOCK_MONOTONIC).saturating_sub(client.since_ns) > PATIENCE_NS;
    let request = match client.pending.take() {
        Some(request) => request,
        None => {
            let mut message = vec![0; MAX_MESSAGE + 1];
            match sys::receive(client.fd, &mut message) {
                Ok(len @ 1..) => match control::decode(message.get(..len).unwrap_or_default()) {
                    Ok(request) => request,
                    Err(error) => {
                        answer(client.fd, &Reply::Refused(error.to_string()));
                        return false;
                    }
                },
                Err(Errno(libc::EAGAIN)) => return !overdue,
                _ => return false,
            }
        }
    };
    match carry_out(&request, writer, session) {
        Some(reply) => {
            answer(client.fd, &reply);
            false
        }
        None if overdue => {
            answer(client.fd, &Reply::Refused("a thread of the program is switching recording itself".into()));
            false
        }
        None => {
            client.pending = Some(request);
            true
        }
    }
}

fn answer(fd: i32, reply: &Reply) {
    if let Ok(bytes) = control::encode(reply) {
        let _ = sys::send(fd, &bytes);
    }
}

/// Carries out a request; `None`: not possible now, try again.
fn carry_out(request: &Request, writer: &mut RecordingWriter, session: &'static Session) -> Option<Reply> {
    let refused = |why: &str| Some(Reply::Refused(why.into()));
    let ended = state(session) == CaptureState::Ended;
    match request {
        Request::Status => {}
        _ if ended => return refused("the recording has ended and cannot be continued"),
        Request::End(why) => return end(why, writer, session),
        Request::Start => capture_control::from_outside(session, true)?,
        Request::Stop => capture_control::from_outside(session, false)?,
        Request::Mark(label) if label.len() > control::MAX_LABEL => {
            return refused(&format!("the label is longer than {} bytes", control::MAX_LABEL));
        }
        Request::Mark(label) => {
            if !capture_control::mark_from_outside(session, label) {
                return refused("recording is stopped: the mark would be in no capture");
            }
        }
        Request::Flush => {}
        Request::Look(label) => {
            let label = label.get(..label.len().min(control::MAX_LABEL)).unwrap_or_default();
            if !writer.look_now(label.to_vec()) {
                return refused(
                    "it does not look at pages: TRACEHOUND_PAGES is off, or the kernel does not support it",
                );
            }
        }
    }
    if *request != Request::Status {
        // The result of the request must be in the file when the answer comes.
        writer.flush_now();
    }
    Some(Reply::Done(status(writer, session)))
}

/// Finishes the recording for good, as for a full disk, and records the reason; `None`: not possible now, try again.
fn end(why: &[u8], writer: &mut RecordingWriter, session: &'static Session) -> Option<Reply> {
    capture_control::from_outside(session, false)?;
    if !session.paused.load(Ordering::SeqCst) {
        // An end of the program's own is under way.
        return None;
    }
    attached::settle(session, "end-threads");
    let why = String::from_utf8_lossy(why.get(..why.len().min(control::MAX_LABEL)).unwrap_or_default());
    let text = if why.is_empty() { "from outside".into() } else { format!("from outside: {why}") };
    session.remark(clock::now(), "ended", format!("recording was ended {text}"));
    writer.finish(EndReason::Stopped);
    session.end_recording();
    Some(Reply::Done(status(writer, session)))
}

fn state(session: &Session) -> CaptureState {
    match gate::state() {
        gate::PASS if session.paused.load(Ordering::SeqCst) => CaptureState::Paused,
        gate::PASS => CaptureState::Ended,
        _ => CaptureState::Recording,
    }
}

fn status(writer: &mut RecordingWriter, session: &Session) -> Status {
    let statistics = writer.statistics(clock::now());
    let now = clock::sample();
    Status {
        pid: session.pid,
        state: state(session),
        recording: writer.file().path().into_bytes(),
        recorder: env!("CARGO_PKG_VERSION").into(),
        started_unix_ns: session.started_unix_ns,
        elapsed_ns: now.realtime_ns.saturating_sub(session.started_unix_ns),
        records: statistics.records,
        file_bytes: writer.file_bytes(),
        lost: statistics.lost,
        wait_ns: statistics.wait_ns,
        marks: session.marks.load(Ordering::Relaxed),
        chunk_bytes: statistics.chunk_bytes,
    }
}
