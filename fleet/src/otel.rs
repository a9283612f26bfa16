//! What a process publishes of itself: OpenTelemetry's process context, a mapping with the name `OTEL_CTX` whose first
//! 32 bytes say where a message of protocol buffers lies in the process.
//!
//! ```text
//! 0  "OTEL_CTX"    8  version (2)    12  bytes of the message    16  when it was published (0: being changed)
//! 24 address of the message: ProcessContext { Resource resource = 1; repeated KeyValue extra_attributes = 2; }
//! ```
//! All of it comes from a process that may be hostile.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Longest message.
const LONGEST: usize = 64 << 10;
/// Most attributes, and most bytes of one's name and value.
const MOST: usize = 64;
const LONGEST_TEXT: usize = 256;
/// Mappings that are looked through.
const MAPPINGS: usize = 100_000;
/// The longest pause between two looks at a process.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// When a process is looked at: often in the beginning, until it has published something.
#[derive(Debug, Default)]
pub struct ContextLooks {
    found: bool,
    last: Option<(Instant, Duration)>,
}

impl ContextLooks {
    /// Whether it is time, which begins the next pause.
    pub fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let pause = match self.last {
            _ if self.found => return false,
            None => Duration::from_millis(500),
            Some((last, pause)) if now.duration_since(last) >= pause => (2 * pause).min(LONGEST_PAUSE),
            Some(_) => return false,
        };
        self.last = Some((now, pause));
        true
    }

    /// It has published something: there are no more looks.
    pub const fn is_found(&mut self) {
        self.found = true;
    }
}

/// The attributes of texts that a process published; `None` if it published nothing, or we may not read it.
pub fn context_of(pid: u32) -> Option<BTreeMap<String, String>> {
    let maps = BufReader::new(File::open(format!("/proc/{pid}/maps")).ok()?);
    let at = maps.split(b'\n').take(MAPPINGS).map_while(Result::ok).find_map(|line| start_of(&line))?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let header = header_at(&memory, at)?;
    let mut message = vec![0; header.len];
    memory.read_exact_at(&mut message, header.address).ok()?;
    // It may have been changed meanwhile.
    (header_at(&memory, at)? == header).then(|| attributes(&message)).filter(|found| !found.is_empty())
}

/// Where a mapping begins, if it has the name.
fn start_of(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?;
    let name = line.splitn(6, ' ').nth(5)?.trim();
    let is_it = name.starts_with("/memfd:OTEL_CTX") || name == "[anon:OTEL_CTX]" || name == "[anon_shmem:OTEL_CTX]";
    u64::from_str_radix(line.split_once('-')?.0, 16).ok().filter(|_| is_it)
}

#[derive(PartialEq, Eq)]
struct ContextHeader {
    published: u64,
    address: u64,
    len: usize,
}

fn header_at(memory: &File, at: u64) -> Option<ContextHeader> {
    let mut bytes = [0; 32];
    memory.read_exact_at(&mut bytes, at).ok()?;
    let word = |from: usize| Some(u32::from_le_bytes(bytes.get(from..from + 4)?.try_into().ok()?));
    let long = |from: usize| Some(u64::from_le_bytes(bytes.get(from..from + 8)?.try_into().ok()?));
    let header = ContextHeader { published: long(16)?, address: long(24)?, len: word(12)? as usize };
    let is_whole = bytes.starts_with(b"OTEL_CTX") && word(8)? == 2 && header.published != 0;
    (is_whole && (1..=LONGEST).contains(&header.len)).then_some(header)
}

/// The attributes of a `ProcessContext` whose values are texts.
fn attributes(message: &[u8]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (number, field) in fields(message) {
        // Those of the resource, and the extra ones.
        let pairs = match number {
            1 => fields(field).filter(|&(number, _)| number == 1).map(|(_, pair)| pair).collect(),
            2 => vec![field],
            _ => Vec::new(),
        };
        for pair in pairs {
            let of = |wanted| move |(number, field)| (number == wanted).then_some(field);
            let text =
                |field: &[u8]| Some(std::str::from_utf8(field).ok()?.to_owned()).filter(|t| t.len() <= LONGEST_TEXT);
            let key = fields(pair).find_map(of(1)).and_then(text);
            let value = fields(pair).find_map(of(2)).and_then(|value| fields(value).find_map(of(1))).and_then(text);
            if let (Some(key), Some(value)) = (key, value)
                && found.len() < MOST
            {
                found.insert(key, value);
            }
        }
    }
    found
}

/// The fields of a message that have a length; the others are passed over. What is damaged ends it.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let tag = number(&mut rest)?;
            let len = match tag & 7 {
                0 => {
                    number(&mut rest)?;
                    continue;
                }
                1 => 8,
                2 => usize::try_from(number(&mut rest)?).ok()?,
                5 => 4,
                _ => return None,
            };
            let (field, behind) = rest.split_at_checked(len)?;
            rest = behind;
            if tag & 7 == 2 {
                return Some((tag >> 3, field));
            }
        }
    })
}

/// A number of variable length.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    fn pair(key: &str, value: &str) -> Vec<u8> {
        [field(1, key.as_bytes()), field(2, &field(1, value.as_bytes()))].concat()
    }

    #[test]
    fn attributes_are_those_of_the_message() {
        let resource = [field(1, &pair("service.name", "shop")), vec![0x10, 3], field(1, &pair("host.name", "h"))];
        let message = [field(1, &resource.concat()), field(2, &pair("extra", "e"))].concat();
        let wanted = [("extra", "e"), ("host.name", "h"), ("service.name", "shop")];
        let wanted: BTreeMap<String, String> = wanted.map(|(name, value)| (name.into(), value.into())).into();
        assert_eq!(attributes(&message), wanted);
        // Whatever is cut off gives less, and nothing worse.
        for len in 0..message.len() {
            assert!(attributes(&message[..len]).iter().all(|(name, value)| wanted.get(name) == Some(value)));
        }
        assert!(attributes(&[0xff; 64]).is_empty());
        assert!(attributes(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).is_empty());
    }

    #[test]
    fn the_mapping_is_found_by_its_name() {
        let line = |name: &str| format!("7f12a0000000-7f12a0001000 r--p 00000000 00:01 1025    {name}");
        for name in ["/memfd:OTEL_CTX (deleted)", "[anon:OTEL_CTX]", "[anon_shmem:OTEL_CTX]"] {
            assert_eq!(start_of(line(name).as_bytes()), Some(0x7f12_a000_0000), "{name}");
        }
        for name in ["/tmp/OTEL_CTX", "[heap]", "", "[anon:other]"] {
            assert_eq!(start_of(line(name).as_bytes()), None, "{name}");
        }
    }
}
