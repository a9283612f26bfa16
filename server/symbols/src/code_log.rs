//! Reads the logs that runtimes write for `heaptrace run --names`: pieces of generated code with the times at which they
//! were put at their addresses.
//!
//! ```text
//! jit-PID.dump   perf's jitdump: node --perf-prof; CLOCK_MONOTONIC, nanoseconds
//! pidPID.log     HotSpot's -XX:+LogCompilation; the start on the wall clock and seconds since then, milliseconds both
//! ```
//! <https://github.com/torvalds/linux/blob/master/tools/perf/Documentation/jitdump-specification.txt>

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tracehound_format::meta::GeneratedCode;
use tracehound_index::Trace;
use tracehound_index::symbols::LocationId;

use super::state::{CallSite, place};

/// Largest log that is read.
const LARGEST: u64 = 4 << 30;
/// V8 reads the time of a piece after it has put the piece there, and before it runs it: for how long before that time the
/// piece may be there.
const THERE_BEFORE_NS: u64 = 5_000;
/// Assumed error of a time of the monotonic clock.
const MONOTONIC_ERROR_NS: u64 = 100;
/// The JVM's start and each time are whole milliseconds.
const MILLISECONDS_WITHIN_NS: u64 = 5_000_000;

/// The logs of one process.
#[derive(Debug, Default)]
pub struct CodeLogs {
    /// All pieces of code that they have.
    pub pieces: Vec<GeneratedCode>,
    /// The files that were written for this alone: what the user has asked the runtime for is not among them.
    pub files: Vec<PathBuf>,
}

impl CodeLogs {
    /// Reads the logs of a recording's process: that of node in the folder where the process began, that of the JVM in
    /// `folder`. `node_options` is what the user has in `NODE_OPTIONS`.
    #[must_use]
    pub fn of(trace: &Trace, folder: &Path, node_options: &str) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let Some(process) = &trace.facts().process else { return Self::default() };
        let directory = Path::new(std::ffi::OsStr::from_bytes(&process.directory));
        let clock_error = trace.facts().clock_quality.as_ref().map_or(0, |quality| quality.error_ns);
        let mut logs = Self::default();
        let is_dump_option = |word: &[u8]| word.starts_with(b"--perf-prof") || word.starts_with(b"--perf_prof");
        let asks_for_dump = process.arguments.iter().any(|argument| is_dump_option(argument))
            || node_options.split_whitespace().any(|word| is_dump_option(word.as_bytes()));
        let dump = directory.join(format!("jit-{}.dump", process.pid));
        let log = folder.join(format!("pid{}.log", process.pid));
        for (path, is_dump) in [(dump, true), (log, false)] {
            let Some(bytes) = read(&path, process.started_unix_ns) else { continue };
            let mut pieces = if is_dump {
                jitdump(&bytes, process.pid).unwrap_or_default()
            } else {
                compilations(&String::from_utf8_lossy(&bytes), wall_since_monotonic_ns()).unwrap_or_default()
            };
            pieces.iter_mut().for_each(|piece| piece.within_ns += 2 * clock_error);
            logs.pieces.extend(pieces);
            if !is_dump || !asks_for_dump {
                logs.files.push(path);
            }
        }
        // V8 writes another log beside its dump. With options of the user's, such as --prof, it has what they ask for.
        let rest = format!("-{}-v8.log", process.pid);
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_log = name.starts_with("isolate-0x") && name.ends_with(&rest);
            if is_log && read(&path, process.started_unix_ns).is_some_and(|log| is_of_no_use(&log)) {
                logs.files.push(path);
            }
        }
        logs
    }

    /// The pieces that share a return address of the recording with another piece.
    #[must_use]
    pub fn replaced(&self, trace: &Trace) -> Vec<&GeneratedCode> {
        let generated = |location: LocationId| match place(trace, location) {
            CallSite::Nowhere(address) => Some(address),
            _ => None,
        };
        let mut addresses: Vec<u64> = (0..trace.location_count()).filter_map(generated).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let inside = |piece: &GeneratedCode| {
            let first = addresses.partition_point(|&address| address < piece.start);
            let end = piece.start.saturating_add(piece.len);
            first..addresses.partition_point(|&address| address < end).max(first)
        };
        let mut names: Vec<Option<&[u8]>> = vec![None; addresses.len()];
        let mut several = vec![false; addresses.len()];
        for piece in &self.pieces {
            for at in inside(piece) {
                let name = names[at].get_or_insert(&piece.name);
                several[at] |= *name != &*piece.name;
            }
        }
        self.pieces.iter().filter(|piece| inside(piece).any(|at| several[at])).collect()
    }
}

/// Whether a log of V8 has only what it writes whenever it writes a log.
fn is_of_no_use(log: &[u8]) -> bool {
    const ALWAYS: [&[u8]; 6] = [b"v8-version", b"v8-platform", b"heap-capacity", b"heap-available", b"new", b"delete"];
    let first = |line: &'_ [u8]| line.split(|&byte| byte == b',').next().map(<[u8]>::to_vec);
    let mut lines = log.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.all(|line| first(line).is_some_and(|word| ALWAYS.contains(&&*word)))
}

/// Whether the user owns a file, and it was written after the process started.
fn is_own(path: &Path, started_unix_ns: u64) -> bool {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return false };
    let written = u128::from(meta.mtime().max(0).cast_unsigned()) * 1_000_000_000 + 999_999_999;
    let is_users = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
    is_users && written >= u128::from(started_unix_ns) && meta.len() <= LARGEST
}

/// The bytes of such a file.
fn read(path: &Path, started_unix_ns: u64) -> Option<Vec<u8>> {
    is_own(path, started_unix_ns).then(|| std::fs::read(path).ok())?
}

/// Nanoseconds between the wall clock's zero and the monotonic clock's.
fn wall_since_monotonic_ns() -> i128 {
    use rustix::time::{ClockId, clock_gettime};
    let ns = |clock| {
        let time = clock_gettime(clock);
        i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
    };
    ns(ClockId::Realtime) - ns(ClockId::Monotonic)
}

/// The pieces of a jitdump of this process; `None` if it is none, or has times of another clock.
fn jitdump(bytes: &[u8], pid: u32) -> Option<Vec<GeneratedCode>> {
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let long = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    const MAGIC: u32 = 0x4a69_5444;
    let is_known = word(0)? == MAGIC && word(20)? == pid && long(32)? & 1 == 0;
    let mut at = is_known.then_some(word(8)? as usize)?;
    let mut pieces = Vec::new();
    let mut by_index: HashMap<u64, (Vec<u8>, u64)> = HashMap::new();
    // A record that is cut off is the last one.
    while let (Some(kind), Some(len), Some(from_ns)) = (word(at), word(at + 4), long(at + 8)) {
        let len = len as usize;
        if len < 16 || bytes.len() - at < len {
            break;
        }
        let mut add = |start: u64, len: u64, name: Vec<u8>| {
            if len > 0 && !name.is_empty() {
                pieces.push(since(from_ns, start, len, name));
            }
        };
        match kind {
            // Code was made: pid, tid, virtual address, address, size, number, name.
            0 if len >= 56 => {
                let (Some(start), Some(size), Some(index)) = (long(at + 32), long(at + 40), long(at + 48)) else {
                    break;
                };
                let name = bytes.get(at + 56..at + len)?.split(|&byte| byte == 0).next().unwrap_or_default();
                by_index.insert(index, (name.to_vec(), size));
                add(start, size, name.to_vec());
            }
            // Code was moved: pid, tid, virtual address, from, to, size, number.
            1 if len >= 64 => {
                let (Some(start), Some(index)) = (long(at + 40), long(at + 56)) else { break };
                if let Some((name, size)) = by_index.get(&index) {
                    add(start, *size, name.clone());
                }
            }
            _ => {}
        }
        at += len;
    }
    Some(pieces)
}

/// A piece whose record in V8's log has this time.
fn since(logged_ns: u64, start: u64, len: u64, name: Vec<u8>) -> GeneratedCode {
    let from_ns = logged_ns.saturating_sub(THERE_BEFORE_NS / 2);
    GeneratedCode { from_ns, within_ns: THERE_BEFORE_NS / 2 + MONOTONIC_ERROR_NS, start, len, name }
}

/// The compiled methods of HotSpot's log.
fn compilations(text: &str, wall_since_monotonic_ns: i128) -> Option<Vec<GeneratedCode>> {
    let head = text.lines().find(|line| line.starts_with("<hotspot_log "))?;
    let began_ms: i128 = attribute(head, "time_ms")?.parse().ok()?;
    let began_ns = began_ms * 1_000_000 - wall_since_monotonic_ns;
    let piece = |line: &str| {
        let number = |name| u64::from_str_radix(attribute(line, name)?.trim_start_matches("0x"), 16).ok();
        let (start, len) = (number("address")?, attribute(line, "size")?.parse().ok()?);
        let name = method(&unescaped(attribute(line, "method")?))?.into_bytes();
        let seconds: f64 = attribute(line, "stamp")?.parse().ok()?;
        let from_ns = u64::try_from(began_ns + (seconds * 1e9) as i128).ok()?;
        Some(GeneratedCode { from_ns, within_ns: MILLISECONDS_WITHIN_NS, start, len, name })
    };
    Some(text.lines().filter(|line| line.starts_with("<nmethod ")).filter_map(piece).collect())
}

/// `name='…'` of a line.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let text = line.match_indices(name).find_map(|(at, _)| {
        let is_word = line[..at].ends_with(' ');
        line[at + name.len()..].strip_prefix("='").filter(|_| is_word)
    })?;
    text.split_once('\'').map(|(text, _)| text)
}

fn unescaped(text: &str) -> String {
    let plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
    plain.replace("&amp;", "&")
}

/// `java.lang.String hashCode ()I` as perf maps have it: `int java.lang.String.hashCode()`.
fn method(text: &str) -> Option<String> {
    let mut parts = text.rsplitn(3, ' ');
    let (signature, name, class) = (parts.next()?, parts.next()?, parts.next()?);
    let mut rest = signature.strip_prefix('(')?;
    let mut parameters = Vec::new();
    while !rest.starts_with(')') {
        let (name, behind) = type_name(rest)?;
        parameters.push(name);
        rest = behind;
    }
    let (result, "") = type_name(&rest[1..])? else { return None };
    Some(format!("{result} {class}.{name}({})", parameters.join(", ")))
}

/// The first type of a descriptor, and the rest of the text.
fn type_name(text: &str) -> Option<(String, &str)> {
    let inner = text.trim_start_matches('[');
    let (name, rest) = match inner.strip_prefix('L') {
        Some(class) => {
            let (class, rest) = class.split_once(';')?;
            (class.replace('/', "."), rest)
        }
        None => {
            let mut letters = inner.chars();
            let name = match letters.next()? {
                'B' => "byte",
                'C' => "char",
                'D' => "double",
                'F' => "float",
                'I' => "int",
                'J' => "long",
                'S' => "short",
                'V' => "void",
                'Z' => "boolean",
                _ => return None,
            };
            (name.to_owned(), letters.as_str())
        }
    };
    Some((name + &"[]".repeat(text.len() - inner.len()), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &(16 + body.len() as u32).to_le_bytes(), &time.to_le_bytes(), body].concat()
    }

    fn longs(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn a_jitdump_has_code_that_is_made_and_moved() {
        let mut bytes: Vec<u8> = [0x4a69_5444_u32, 1, 40, 62, 0, 7].into_iter().flat_map(u32::to_le_bytes).collect();
        bytes.extend(longs(&[0, 0]));
        bytes.extend(record(0, 100, &[longs(&[0, 0x1000, 0x1000, 16, 3]), b"JS:~a x.js:1:1\0code".to_vec()].concat()));
        bytes.extend(record(4, 100, &[]));
        bytes.extend(record(1, 200, &longs(&[0, 0, 0x1000, 0x2000, 16, 3])));
        let piece = |from_ns, start| {
            let name = b"JS:~a x.js:1:1".to_vec();
            since(from_ns, start, 16, name)
        };
        assert_eq!(jitdump(&bytes, 7), Some(vec![piece(100, 0x1000), piece(200, 0x2000)]));
        assert_eq!(jitdump(&bytes, 8), None, "another process's");
        for len in 0..bytes.len() {
            let cut = jitdump(&bytes[..len], 7).unwrap_or_default();
            assert!(cut.len() <= 2, "{len}");
        }
    }

    #[test]
    fn a_log_with_a_profile_is_of_use() {
        assert!(is_of_no_use(b"v8-version,11,3\nnew,MemoryChunk,0x1,2\ndelete,MemoryChunk,0x1\n"));
        assert!(!is_of_no_use(b"v8-version,11,3\nprofiler,begin,1000\n"));
        assert!(!is_of_no_use(b"newer,1\n"));
    }

    #[test]
    fn methods_are_named_as_in_perf_maps() {
        for (text, name) in [
            ("java.lang.String hashCode ()I", "int java.lang.String.hashCode()"),
            ("D deflate ([BI)[[B", "byte[][] D.deflate(byte[], int)"),
            ("a.B <init> (Ljava/lang/Object;J)V", "void a.B.<init>(java.lang.Object, long)"),
        ] {
            assert_eq!(method(text).as_deref(), Some(name));
        }
        for text in ["", "x", "a b", "a b (", "a b (Q)V", "a b ()", "a b ()II"] {
            assert_eq!(method(text), None, "{text}");
        }
    }

    #[test]
    fn compilations_have_address_and_time() {
        let text = "<?xml?>\n<hotspot_log version='160 1' process='9' time_ms='1700000000500'>\n\
                    <nmethod compile_id='1' entry='0x20' size='760' address='0x00007f0000000010' relocation_offset='1' \
                    method='java.lang.Object &lt;init&gt; ()V' bytes='1' stamp='0.250'/>\n<nmethod stamp='x'/>\n";
        let pieces = compilations(text, 1_700_000_000_000_000_000).unwrap();
        assert_eq!(pieces.len(), 1);
        assert_eq!((pieces[0].from_ns, pieces[0].start, pieces[0].len), (750_000_000, 0x7f00_0000_0010, 760));
        assert_eq!(pieces[0].name, b"void java.lang.Object.<init>()");
        assert_eq!(compilations("nothing", 0), None);
    }
}
