//! Questions to `heaptrace` in a folder, by command and by HTTP, without the defaults and caches of whoever runs the
//! tests.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::heaptrace;

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(heaptrace());
    command.args(args).current_dir(folder);
    command.env("XDG_CONFIG_HOME", folder.join("none")).env("XDG_CACHE_HOME", folder.join("cache"));
    command
}

/// What `heaptrace` says when it is called in `folder`.
#[must_use]
pub fn ask(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("heaptrace can be started")
}

/// The document that it prints.
#[must_use]
pub fn json(folder: &Path, args: &[&str]) -> Value {
    let output = ask(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

/// `heaptrace server` on one recording, ended when this is dropped.
pub struct Server(Child, String);

impl Server {
    /// Starts it in `folder` on the recording `r.dat`, and waits until it listens.
    #[must_use]
    pub fn start(folder: &Path) -> Self {
        Self::of(&folder.join("r.dat"))
    }

    /// Starts it on a recording, in whose folder it is, and waits until it listens.
    #[must_use]
    pub fn of(recording: &Path) -> Self {
        let folder = recording.parent().expect("a recording lies in a folder");
        Self::opening(folder, recording.file_name().expect("a recording has a name"))
    }

    /// Starts it in a folder on what is named: a recording, or the URL of a store; and waits until it listens.
    #[must_use]
    pub fn opening(folder: &Path, what: &OsStr) -> Self {
        let mut command = command(folder, &["server", "--port", "0"]);
        command.arg(what).stdout(Stdio::piped());
        let mut server = Self(command.spawn().expect("heaptrace can be started"), String::new());
        let mut line = String::new();
        let out = server.0.stdout.as_mut().expect("it is a pipe");
        BufReader::new(out).read_line(&mut line).expect("it says where it listens");
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://")).expect("an address");
        server.1 = url.split('/').next().expect("a host").to_owned();
        server
    }

    /// A document about the recording.
    #[must_use]
    pub fn get(&self, target: &str) -> Value {
        self.get_with_head(target).1
    }

    /// The same, with the head of the answer.
    #[must_use]
    pub fn get_with_head(&self, target: &str) -> (String, Value) {
        let mut stream = TcpStream::connect(&self.1).expect("it listens");
        let target = format!("/api/v1/recordings/r1/{target}");
        write!(stream, "GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.1).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let document = serde_json::from_str(body).unwrap_or_else(|error| panic!("{target}: {error}: {answer}"));
        (head.to_owned(), document)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
