//! Launch options: the `TRACEHOUND_*` variables, parsed without touching the environment or any allocator but the
//! caller's.

use std::fmt;

use crate::block::Codec;

/// What the recorder does at the start of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartMode {
    /// It records.
    On,
    /// It has its files and its thread, and records nothing until told.
    Paused,
    /// It has neither, and does nothing until told.
    Off,
}

/// What a recorder does when all chunks are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFull {
    /// The application waits; nothing is lost.
    Wait,
    /// Events are dropped and every gap is recorded with its count.
    Drop,
}

/// Which unwinder takes backtraces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnwinderChoice {
    /// The best available.
    Auto,
    /// Verified chains with cached rules.
    Cached,
    /// libunwind.
    Libunwind,
    /// Frame pointers.
    FramePointer,
}

/// Who serves the application's allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocatorChoice {
    /// The next allocator in link order, as without us.
    System,
    /// The bundled jemalloc.
    Jemalloc,
}

/// When the recorder looks at the page tables of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookSchedule {
    /// When the resident set has changed, at marks, when asked, at stops and at the end.
    Auto,
    /// Never.
    Off,
    /// At those moments, and at least every so many milliseconds.
    Every(u32),
}

/// Level of messages on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What stopped recording.
    Error,
    /// What makes the recording incomplete.
    Warn,
    /// Where the recording is, too.
    Info,
}

/// Launch options with their defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchOptions {
    /// `TRACEHOUND_OUTPUT`: path template, see [`expand_output`].
    pub output: Vec<u8>,
    /// `TRACEHOUND_START`: record from the start.
    pub start: StartMode,
    /// `TRACEHOUND_CHILDREN`: follow fork and exec.
    pub children: bool,
    /// `TRACEHOUND_FREE_STACKS`: backtraces on frees.
    pub free_stacks: bool,
    /// `TRACEHOUND_MAPPINGS`: record mmap, munmap, mremap, brk.
    pub mappings: bool,
    /// `TRACEHOUND_ALLOCATOR`.
    pub allocator: AllocatorChoice,
    /// `TRACEHOUND_UNWINDER`.
    pub unwinder: UnwinderChoice,
    /// `TRACEHOUND_COMPRESSION`.
    pub compression: Codec,
    /// `TRACEHOUND_BUFFER`: upper bound of chunk memory, bytes.
    pub buffer_bytes: u64,
    /// `TRACEHOUND_ON_FULL`.
    pub on_full: OnFull,
    /// `TRACEHOUND_SAMPLE_MEMORY_MS`: period of memory samples; 0 = never.
    pub sample_memory_ms: u32,
    /// `TRACEHOUND_PAGES`: when to look at the page tables.
    pub pages: LookSchedule,
    /// `TRACEHOUND_TOGGLE_SIGNAL`: signal number that toggles recording.
    pub toggle_signal: Option<i32>,
    /// `TRACEHOUND_LOG`.
    pub log: LogLevel,
    /// `TRACEHOUND_INTERPRETER`: backtraces have the frames of an interpreted language.
    pub interpreter: bool,
    /// `TRACEHOUND_LABELS`: what the process is called by, `service=api,version=1.2`; kept for who collects.
    pub labels: Vec<u8>,
    /// `TRACEHOUND_COLLECTOR`: who collects the recording; nothing in the traced process uses a network.
    pub collector: Vec<u8>,
    /// `TRACEHOUND_PYTHON_OBJECTS`: each object of Python's own allocator is an allocation.
    pub python_objects: bool,
}

impl Default for LaunchOptions {
    fn default() -> Self {
        Self {
            output: b"memory-%e-%p.dat".to_vec(),
            start: StartMode::On,
            children: false,
            free_stacks: true,
            mappings: true,
            allocator: AllocatorChoice::System,
            unwinder: UnwinderChoice::Auto,
            compression: Codec::Lz4,
            buffer_bytes: 32 << 20,
            on_full: OnFull::Wait,
            sample_memory_ms: 10,
            pages: LookSchedule::Auto,
            toggle_signal: None,
            log: LogLevel::Warn,
            interpreter: true,
            labels: Vec::new(),
            collector: Vec::new(),
            python_objects: false,
        }
    }
}

/// A variable that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOption {
    /// Name of the variable.
    pub name: &'static str,
    /// Its value, lossily as text.
    pub value: String,
    /// What would have been accepted.
    pub accepted: &'static str,
}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?} is not understood; accepted: {}", self.name, self.value, self.accepted)
    }
}

impl std::error::Error for BadOption {}

/// Names of all variables, for `heaptrace run` and the child's environment.
pub const NAMES: [&str; 18] = [
    "TRACEHOUND_OUTPUT",
    "TRACEHOUND_START",
    "TRACEHOUND_CHILDREN",
    "TRACEHOUND_FREE_STACKS",
    "TRACEHOUND_MAPPINGS",
    "TRACEHOUND_ALLOCATOR",
    "TRACEHOUND_UNWINDER",
    "TRACEHOUND_COMPRESSION",
    "TRACEHOUND_BUFFER",
    "TRACEHOUND_ON_FULL",
    "TRACEHOUND_SAMPLE_MEMORY_MS",
    "TRACEHOUND_PAGES",
    "TRACEHOUND_TOGGLE_SIGNAL",
    "TRACEHOUND_LOG",
    "TRACEHOUND_INTERPRETER",
    "TRACEHOUND_LABELS",
    "TRACEHOUND_COLLECTOR",
    "TRACEHOUND_PYTHON_OBJECTS",
];

/// Smallest chunk memory that works: a chunk for the program and a few on their way to the file.
pub const MIN_BUFFER: u64 = 1 << 20;
/// Largest chunk memory that is accepted.
pub const MAX_BUFFER: u64 = 16 << 30;

impl LaunchOptions {
    /// Reads the options through `get`, which looks a variable up; an empty value counts as unset.
    ///
    /// # Errors
    /// The first variable that cannot be understood.
    pub fn parse<'a>(get: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Self, BadOption> {
        let mut options = Self::default();
        for name in NAMES {
            if let Some(value) = get(name).filter(|value| !value.is_empty()) {
                options.set(name, value).map_err(|accepted| BadOption {
                    name,
                    value: String::from_utf8_lossy(value).into_owned(),
                    accepted,
                })?;
            }
        }
        Ok(options)
    }

    /// Whether nothing is set up until somebody asks for it. A signal's handler can switch what is there, and make nothing:
    /// with `TRACEHOUND_TOGGLE_SIGNAL` the recorder is only paused.
    #[must_use]
    pub fn is_dormant(&self) -> bool {
        self.start == StartMode::Off && self.toggle_signal.is_none()
    }

    fn set(&mut self, name: &str, value: &[u8]) -> Result<(), &'static str> {
        let text = std::str::from_utf8(value).unwrap_or("");
        match name {
            "TRACEHOUND_OUTPUT" => {
                if value.contains(&0) {
                    return Err("a path");
                }
                self.output = value.to_vec();
            }
            "TRACEHOUND_START" => {
                self.start = match (text, switch(text)) {
                    ("paused", _) => StartMode::Paused,
                    (_, Ok(true)) => StartMode::On,
                    (_, Ok(false)) => StartMode::Off,
                    (_, Err(_)) => return Err("1 or on, 0 or off, paused"),
                }
            }
            "TRACEHOUND_CHILDREN" => self.children = switch(text)?,
            "TRACEHOUND_FREE_STACKS" => self.free_stacks = switch(text)?,
            "TRACEHOUND_MAPPINGS" => self.mappings = switch(text)?,
            "TRACEHOUND_ALLOCATOR" => {
                self.allocator = match text {
                    "system" => AllocatorChoice::System,
                    "jemalloc" => AllocatorChoice::Jemalloc,
                    _ => return Err("system, jemalloc"),
                }
            }
            "TRACEHOUND_UNWINDER" => {
                self.unwinder = match text {
                    "auto" => UnwinderChoice::Auto,
                    "cached" => UnwinderChoice::Cached,
                    "libunwind" => UnwinderChoice::Libunwind,
                    "frame-pointer" => UnwinderChoice::FramePointer,
                    _ => return Err("auto, cached, libunwind, frame-pointer"),
                }
            }
            "TRACEHOUND_COMPRESSION" => {
                self.compression = match text {
                    "lz4" => Codec::Lz4,
                    "zstd" => Codec::Zstd,
                    "none" => Codec::None,
                    _ => return Err("lz4, zstd, none"),
                }
            }
            "TRACEHOUND_BUFFER" => {
                self.buffer_bytes = parse_size(text)
                    .filter(|bytes| (MIN_BUFFER..=MAX_BUFFER).contains(bytes))
                    .ok_or("a size from 1M to 16G, such as 64M")?;
            }
            "TRACEHOUND_ON_FULL" => {
                self.on_full = match text {
                    "wait" => OnFull::Wait,
                    "drop" => OnFull::Drop,
                    _ => return Err("wait, drop"),
                }
            }
            "TRACEHOUND_SAMPLE_MEMORY_MS" => {
                self.sample_memory_ms = text
                    .parse()
                    .ok()
                    .filter(|&ms: &u32| ms <= 3_600_000)
                    .ok_or("milliseconds from 0 (never) to 3600000")?;
            }
            "TRACEHOUND_PAGES" => {
                self.pages = match text {
                    "auto" => LookSchedule::Auto,
                    "off" => LookSchedule::Off,
                    other => LookSchedule::Every(
                        (other.parse().ok())
                            .filter(|ms: &u32| (1..=3_600_000).contains(ms))
                            .ok_or("auto, off, or milliseconds from 1 to 3600000")?,
                    ),
                }
            }
            "TRACEHOUND_TOGGLE_SIGNAL" => self.toggle_signal = toggle_signal(text)?,
            "TRACEHOUND_INTERPRETER" => {
                self.interpreter = match text {
                    "auto" => true,
                    "off" => false,
                    _ => return Err("auto, off"),
                }
            }
            "TRACEHOUND_LABELS" => {
                if !text.split(',').all(|label| label.split_once('=').is_some_and(|(name, _)| !name.is_empty())) {
                    return Err("labels such as service=api,version=1.2");
                }
                self.labels = value.to_vec();
            }
            "TRACEHOUND_COLLECTOR" => self.collector = value.to_vec(),
            "TRACEHOUND_PYTHON_OBJECTS" => self.python_objects = switch(text)?,
            "TRACEHOUND_LOG" => {
                self.log = match text {
                    "off" => LogLevel::Off,
                    "error" => LogLevel::Error,
                    "warn" => LogLevel::Warn,
                    "info" => LogLevel::Info,
                    _ => return Err("off, error, warn, info"),
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "on" | "yes" | "true" => Ok(true),
        "0" | "off" | "no" | "false" => Ok(false),
        _ => Err("1 or on, 0 or off"),
    }
}

fn toggle_signal(text: &str) -> Result<Option<i32>, &'static str> {
    const ACCEPTED: &str = "none, or a signal that programs leave alone: USR1, USR2, WINCH, URG, IO, PWR, or 34 to 64";
    Ok(Some(match text.strip_prefix("SIG").unwrap_or(text) {
        "none" => return Ok(None),
        "USR1" | "10" => 10,
        "USR2" | "12" => 12,
        "URG" | "23" => 23,
        "WINCH" | "28" => 28,
        "IO" | "29" => 29,
        "PWR" | "30" => 30,
        other => other.parse().ok().filter(|n| (34..=64).contains(n)).ok_or(ACCEPTED)?,
    }))
}

/// A size in bytes with an optional binary unit: `4096`, `64k`, `64K`, `1MiB`, `2G`. `None` if it is no size.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..)?.to_ascii_lowercase();
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Values of the placeholders of an output template.
#[derive(Debug, Clone, Copy)]
pub struct OutputNames<'a> {
    /// `%e`: file name of the executable.
    pub executable: &'a [u8],
    /// `%p`.
    pub pid: u32,
    /// `%t`: seconds since 1970.
    pub unix_seconds: u64,
    /// `%n`: a counter that makes the name new.
    pub counter: u32,
    /// `%h`: name of the host, that of a container where there is one.
    pub host: &'a [u8],
    /// `%i`: its first four bytes, as eight hexadecimal digits.
    pub recording_id: [u8; 16],
}

/// Fills `%e`, `%p`, `%t`, `%n`, `%h`, `%i` and `%%` in; other `%` stay as they are. Slashes in the names of executable
/// and host become `_`.
#[must_use]
pub fn expand_output(template: &[u8], names: OutputNames<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(template.len() + 32);
    let put_name = |out: &mut Vec<u8>, name: &[u8]| out.extend(name.iter().map(|&b| if b == b'/' { b'_' } else { b }));
    let mut rest = template;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match tail.first() {
            Some(b'e') => put_name(&mut out, names.executable),
            Some(b'h') => put_name(&mut out, names.host),
            Some(b'i') => {
                let [a, b, c, d, ..] = names.recording_id;
                out.extend_from_slice(format!("{:08x}", u32::from_be_bytes([a, b, c, d])).as_bytes());
            }
            Some(b'p') => out.extend_from_slice(names.pid.to_string().as_bytes()),
            Some(b't') => out.extend_from_slice(names.unix_seconds.to_string().as_bytes()),
            Some(b'n') => out.extend_from_slice(names.counter.to_string().as_bytes()),
            Some(b'%') => out.push(b'%'),
            _ => {
                out.push(b'%');
                continue;
            }
        }
        rest = tail.get(1..).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &'static str)]) -> Result<LaunchOptions, BadOption> {
        LaunchOptions::parse(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_bytes()))
    }

    #[test]
    fn nothing_set_means_defaults() {
        assert_eq!(parse(&[]), Ok(LaunchOptions::default()));
        assert_eq!(parse(&[("TRACEHOUND_LOG", "")]), Ok(LaunchOptions::default()));
    }

    #[test]
    fn values_are_understood() {
        let options = parse(&[
            ("TRACEHOUND_BUFFER", "64M"),
            ("TRACEHOUND_START", "off"),
            ("TRACEHOUND_TOGGLE_SIGNAL", "SIGUSR1"),
            ("TRACEHOUND_UNWINDER", "frame-pointer"),
            ("TRACEHOUND_PAGES", "250"),
        ])
        .unwrap();
        assert_eq!(options.buffer_bytes, 64 << 20);
        assert_eq!(options.start, StartMode::Off);
        assert!(!options.is_dormant(), "a signal switches what is there");
        assert!(parse(&[("TRACEHOUND_START", "0")]).unwrap().is_dormant());
        assert_eq!(options.pages, LookSchedule::Every(250));
        assert_eq!(options.toggle_signal, Some(10));
        assert_eq!(options.unwinder, UnwinderChoice::FramePointer);
    }

    #[test]
    fn nonsense_is_named_with_what_is_accepted() {
        for (name, value) in [
            ("TRACEHOUND_BUFFER", "lots"),
            ("TRACEHOUND_BUFFER", "4k"),
            ("TRACEHOUND_BUFFER", "99999999999999T"),
            ("TRACEHOUND_ON_FULL", "maybe"),
            ("TRACEHOUND_TOGGLE_SIGNAL", "KILL"),
            ("TRACEHOUND_SAMPLE_MEMORY_MS", "-1"),
            ("TRACEHOUND_PAGES", "0"),
        ] {
            let bad = parse(&[(name, value)]).unwrap_err();
            assert_eq!((bad.name, bad.value.as_str()), (name, value));
            assert!(bad.to_string().contains(bad.accepted));
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("12", 12), ("64k", 65536), ("1MiB", 1 << 20), ("2G", 2 << 30)] {
            assert_eq!(parse_size(text), Some(bytes));
        }
        for text in ["", "k", "1x", "-1", "1.5M", "99999999999T"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn templates() {
        let mut recording_id = [0; 16];
        recording_id[..5].copy_from_slice(&[0x0a, 0xb1, 2, 3, 4]);
        let names =
            OutputNames { executable: b"a/b", pid: 7, unix_seconds: 9, counter: 2, host: b"web/1", recording_id };
        assert_eq!(expand_output(b"m-%e-%p-%t-%n.%%%x%", names), b"m-a_b-7-9-2.%%x%");
        assert_eq!(expand_output(b"%h/%i%%i.dat", names), b"web_1/0ab10203%i.dat");
    }
}
