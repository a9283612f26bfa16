//! A traced redis-server of its own, and load for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::process::Running;
use crate::{library, wait_for};

/// A running server; it ends with this value.
#[derive(Debug)]
pub struct Redis {
    /// Its folder, with the recording.
    pub folder: TempDir,
    /// The server.
    pub server: Running,
    socket: String,
}

impl Redis {
    /// Starts a traced server and waits for its first answer.
    #[must_use]
    pub fn start(variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let socket = folder.path().join("redis.sock").to_str().expect("a plain path").to_owned();
        let server = Command::new("/usr/bin/redis-server")
            .args(["--port", "0", "--unixsocket", &socket, "--save", "", "--daemonize", "no"])
            .current_dir(folder.path())
            .env("LD_PRELOAD", library())
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let redis = Self { folder, server: Running(server), socket };
        wait_for("the answer of redis", Duration::from_secs(30), || redis.ask(&["ping"]) == "PONG");
        redis
    }

    /// What `redis-cli` prints.
    #[must_use]
    pub fn ask(&self, args: &[&str]) -> String {
        let output = Command::new("/usr/bin/redis-cli")
            .args(["-s", &self.socket])
            .args(args)
            .output()
            .expect("redis-cli is installed");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Runs `redis-benchmark` with so many requests of each of some kinds.
    pub fn load(&self, requests: u32) {
        let load = Command::new("/usr/bin/timeout")
            .args(["600", "/usr/bin/redis-benchmark", "-s", &self.socket, "-n", &requests.to_string()])
            .args(["-c", "20", "-q", "-r", "2000", "-t", "set,get,lpush,lpop,hset,incr"])
            .output()
            .expect("redis-benchmark is installed");
        assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    }

    /// Ends the server and gives its recording.
    #[must_use]
    pub fn stop(&mut self) -> PathBuf {
        let _ = self.ask(&["shutdown", "nosave"]);
        let status = self.server.wait().expect("the server can be waited for");
        assert!(status.success(), "{status}");
        self.recording()
    }

    /// The recording.
    #[must_use]
    pub fn recording(&self) -> PathBuf {
        let entries = std::fs::read_dir(self.folder.path()).expect("the folder can be read");
        let paths = entries.map(|entry| entry.expect("the folder can be read").path());
        let is_recording = |path: &Path| path.extension().is_some_and(|extension| extension == "dat");
        paths.into_iter().find(|path| is_recording(path)).expect("there is a recording")
    }
}
