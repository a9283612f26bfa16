//! Protocol of `heaptrace ctl` and a running recorder: one request and one reply, each one message on a
//! sequenced-packet Unix socket. Socket and folder are accessible to their owner alone.
//!
//! ```text
//! message   "thct"  version u8  body (bincode 2, standard configuration)
//! folder    /run/user/<user>/tracehound, else /tmp/tracehound-<user>
//! name      <number of the pid namespace>-<process id in it>
//! ```
//! Each side asks the kernel for the other side's process and user; nothing in a message is trusted.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{FormatError, Result};

const MAGIC: &[u8; 4] = b"thct";
/// Version of the messages.
pub const VERSION: u8 = 1;
const HEADER: usize = 5;
/// Longest label of a mark.
pub const MAX_LABEL: usize = 4096;
/// Longest message.
pub const MAX_MESSAGE: usize = 32 << 10;

/// A request to a recorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Its status.
    Status,
    /// Record from now on.
    Start,
    /// Record nothing from now on.
    Stop,
    /// Set a mark with this label.
    Mark(Vec<u8>),
    /// Write everything that was recorded so far to the file.
    Flush,
    /// Look at the page tables now, and call the look so.
    Look(Vec<u8>),
    /// Finish the recording for good, for this reason; the program goes on.
    End(Vec<u8>),
}

/// Whether calls are being recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CaptureState {
    /// They are.
    Recording,
    /// They are not, until a start.
    Paused,
    /// The recording has ended and will not go on.
    Ended,
}

/// Status of a recorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Process id, as the process itself sees it.
    pub pid: u32,
    /// See [`CaptureState`].
    pub state: CaptureState,
    /// Path of the recording.
    pub recording: Vec<u8>,
    /// Version of the recorder.
    pub recorder: String,
    /// Start of the recording, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Nanoseconds since then.
    pub elapsed_ns: u64,
    /// Records in the file.
    pub records: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Events dropped.
    pub lost: u64,
    /// Nanoseconds that threads of the program have waited for the writer.
    pub wait_ns: u64,
    /// Marks set.
    pub marks: u64,
    /// Memory for events on their way to the file, bytes.
    pub chunk_bytes: u64,
}

/// Reply of a recorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Done; with the status after it.
    Done(Status),
    /// Not done, with the reason, in a sentence.
    Refused(String),
}

/// Folders for the sockets of a user's processes, the better one first.
#[must_use]
pub fn folders(user: u32) -> [String; 2] {
    [format!("/run/user/{user}/tracehound"), format!("/tmp/tracehound-{user}")]
}

/// Name of the socket of a process, by its id in its pid namespace.
#[must_use]
pub fn socket_name(pid_namespace: u64, pid: u32) -> String {
    format!("{pid_namespace}-{pid}")
}

/// The number in a link such as `/proc/self/ns/pid`, `pid:[4026531836]`; 0 when there is none.
#[must_use]
pub fn namespace_number(link: &[u8]) -> u64 {
    let digits = link.iter().skip_while(|byte| !byte.is_ascii_digit()).take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u64, byte| number.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')))
}

/// Bytes of a message.
///
/// # Errors
/// When it would be longer than [`MAX_MESSAGE`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(VERSION);
    bincode::serde::encode_into_std_write(message, &mut bytes, bincode::config::standard())
        .map_err(|error| FormatError::malformed("a control message", error.to_string()))?;
    if bytes.len() > MAX_MESSAGE {
        return Err(FormatError::malformed("a control message", format!("it has {} bytes", bytes.len())));
    }
    Ok(bytes)
}

/// Reads a message.
///
/// # Errors
/// When it is none, of another version, malformed or too long.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let malformed = |why: &str| FormatError::malformed("a control message", why);
    if bytes.len() > MAX_MESSAGE {
        return Err(malformed("it is too long"));
    }
    let (header, body) = bytes.split_at_checked(HEADER).ok_or_else(|| malformed("it is cut off"))?;
    let version = header.strip_prefix(MAGIC).and_then(<[u8]>::first).ok_or_else(|| malformed("it is none"))?;
    if *version != VERSION {
        return Err(malformed(&format!("it is of version {version}, this program speaks version {VERSION}")));
    }
    let config = bincode::config::standard().with_limit::<MAX_MESSAGE>();
    let (message, used) =
        bincode::serde::decode_from_slice(body, config).map_err(|error| malformed(&error.to_string()))?;
    if used == body.len() { Ok(message) } else { Err(malformed(&format!("{} bytes are left over", body.len() - used))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status() -> Status {
        Status {
            pid: 7,
            state: CaptureState::Paused,
            recording: b"/tmp/memory-app-7.dat".to_vec(),
            recorder: "0.1.0".into(),
            started_unix_ns: 1,
            elapsed_ns: 2,
            records: 3,
            file_bytes: 4,
            lost: 5,
            wait_ns: 6,
            marks: 7,
            chunk_bytes: 8,
        }
    }

    #[test]
    fn messages_come_back() {
        for request in [
            Request::Status,
            Request::Start,
            Request::Stop,
            Request::Mark(vec![b'x'; MAX_LABEL]),
            Request::Flush,
            Request::Look(b"now".to_vec()),
            Request::End(b"enough".to_vec()),
        ] {
            assert_eq!(decode::<Request>(&encode(&request).unwrap()), Ok(request));
        }
        for reply in [Reply::Done(status()), Reply::Refused("because".into())] {
            assert_eq!(decode::<Reply>(&encode(&reply).unwrap()), Ok(reply));
        }
    }

    #[test]
    fn the_bytes_are_pinned() {
        assert_eq!(encode(&Request::Mark(b"ab".to_vec())).unwrap(), b"thct\x01\x03\x02ab");
    }

    #[test]
    fn other_versions_and_long_messages_are_refused() {
        let mut bytes = encode(&Request::Status).unwrap();
        bytes[4] = 2;
        assert!(decode::<Request>(&bytes).unwrap_err().to_string().contains("version 2"));
        assert!(decode::<Request>(b"thct").is_err());
        assert!(encode(&Request::Mark(vec![0; MAX_MESSAGE])).is_err());
        assert!(decode::<Request>(&vec![0; MAX_MESSAGE + 1]).is_err());
    }

    #[test]
    fn sockets_have_their_places() {
        assert_eq!(namespace_number(b"pid:[4026531836]"), 4_026_531_836);
        assert_eq!(namespace_number(b""), 0);
        assert_eq!(socket_name(7, 8), "7-8");
        assert_eq!(folders(1000), ["/run/user/1000/tracehound", "/tmp/tracehound-1000"]);
    }

    proptest! {
        #[test]
        fn hostile_messages_are_no_trouble(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), honest in any::<bool>()) {
            if honest {
                bytes.splice(0..bytes.len().min(HEADER), *b"thct\x01");
            }
            let _ = decode::<Request>(&bytes);
            let _ = decode::<Reply>(&bytes);
        }
    }
}
