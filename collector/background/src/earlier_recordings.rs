//! Recordings whose name this process would use: decides which of them may be replaced.
//!
//! In a container every start has the same pid and therefore the same name, and the user needs the recording of the
//! process that was killed. Only a complete recording is replaced: one that has an end block, is not locked, is
//! writable, and was last written before this process and the recorded processes that started it began.

use std::ffi::{CStr, CString};

use tracehound_format::block::{BlockHeader, BlockKind, MAX_PAYLOAD, find_sync};

use tracehound_shared::sys::{self, FileIdentity};

/// Whether the file `name` in `directory` may be replaced. The caller holds the name of its side file.
pub fn is_replaceable(directory: i32, name: &CString) -> bool {
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let Ok(old) = sys::open_at(directory, name, flags, 0) else { return false };
    // Closing it gives the lock back, after the caller has looked; nobody else takes a name whose side file is taken.
    let result = is_finished_recording(old) && sys::lock_file(old).is_ok() && is_older_than_run(old);
    sys::close(old);
    result
}

/// Whether the file is empty or a recording with an end block: nothing else is ever replaced.
fn is_finished_recording(fd: i32) -> bool {
    const WRITABLE: u32 = 0o222;
    let Ok(stat) = sys::stat(fd) else { return false };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_mode & WRITABLE == 0 {
        return false;
    }
    let mut magic = [0; 8];
    match sys::read_at(fd, &mut magic, 0) {
        Ok(0) => stat.st_size == 0,
        Ok(8) => magic == tracehound_format::header::MAGIC && has_end(fd, stat.st_size as u64),
        _ => false,
    }
}

/// Whether the last block of a recording of `len` bytes is an end block, apart from what was added later: names, and
/// metadata with the names of generated code.
fn has_end(fd: i32, len: u64) -> bool {
    /// More than are ever added.
    const ADDED: usize = 1000;
    const TRAILER: u64 = BlockHeader::LEN as u64 + 8;
    let mut end = len;
    if let Some(at) = len.checked_sub(TRAILER)
        && header_at(fd, at).is_some_and(|trailer| trailer.kind == BlockKind::Names && trailer.stored_len == 8)
    {
        let mut offset = [0; 8];
        if sys::read_at(fd, &mut offset, at + BlockHeader::LEN as u64) == Ok(8) {
            end = u64::from_le_bytes(offset).min(len);
        }
    }
    for _ in 0..ADDED {
        match last_block(fd, end) {
            Some((at, BlockKind::Meta)) => end = at,
            Some((_, kind)) => return kind == BlockKind::End,
            None => return false,
        }
    }
    false
}

fn header_at(fd: i32, at: u64) -> Option<BlockHeader> {
    let mut bytes = [0; BlockHeader::LEN];
    if sys::read_at(fd, &mut bytes, at) == Ok(bytes.len()) { BlockHeader::decode(&bytes).ok() } else { None }
}

/// Where the block begins that ends at `end`, and what it is.
fn last_block(fd: i32, end: u64) -> Option<(u64, BlockKind)> {
    const WINDOW: u64 = 1 << 16;
    let mut window = vec![0; WINDOW as usize];
    let lowest = end.saturating_sub((MAX_PAYLOAD + BlockHeader::LEN) as u64);
    let mut to = end;
    while to > lowest {
        // The windows overlap by a header, so that none is cut.
        let from = to.saturating_sub(WINDOW).max(lowest);
        let window = window.get_mut(..(to - from) as usize).unwrap_or_default();
        if sys::read_at(fd, window, from) != Ok(window.len()) {
            return None;
        }
        let mut at = 0;
        while let Some(found) = window.get(at..).and_then(find_sync) {
            let block = from + (at + found) as u64;
            if let Some(header) = header_at(fd, block)
                && block + BlockHeader::LEN as u64 + u64::from(header.stored_len) == end
            {
                return Some((block, header.kind));
            }
            at += found + 1;
        }
        to = if from == lowest { lowest } else { from + BlockHeader::LEN as u64 };
    }
    None
}

/// Whether the file was last written before this run began: an earlier image of the process, before an exec, and its
/// relatives have written theirs since.
fn is_older_than_run(fd: i32) -> bool {
    let Ok(stat) = sys::stat(fd) else { return false };
    let written_ns = stat.st_mtime as u64 * 1_000_000_000 + stat.st_mtime_nsec;
    let boot_ns = sys::clock(libc::CLOCK_REALTIME).saturating_sub(sys::clock(libc::CLOCK_BOOTTIME));
    let is_before = |start: u64| written_ns < boot_ns + start * (1_000_000_000 / ticks_per_second());
    // Ancestors are asked only where it matters.
    is_before(process_start()) && is_before(run_start())
}

fn ticks_per_second() -> u64 {
    // SAFETY: getauxval reads the process's own auxiliary vector.
    unsafe { libc::getauxval(libc::AT_CLKTCK) }.max(1)
}

/// Start of the run that this process is a part of, in clock ticks since boot: that of its first ancestor with a recorder,
/// else its own. Ancestors between them may have none.
fn run_start() -> u64 {
    /// More than there are; the parents of processes make no loop, but they are read one after the other.
    const MOST_ANCESTORS: u32 = 256;
    let mut start = process_start();
    let mut next = sys::parent_id();
    for _ in 0..MOST_ANCESTORS {
        // 1 ends the chain, and 0 is a parent in an outer namespace.
        if next <= 1 {
            break;
        }
        let Ok(stat) = CString::new(format!("/proc/{next}/stat")) else { break };
        let Some((parent, began)) = parent_and_start(&stat) else { break };
        if has_recorder(next) {
            start = start.min(began);
        }
        next = parent;
    }
    start
}

/// Whether a process has the recorder in memory; not known of another user's.
fn has_recorder(process: u32) -> bool {
    const LIBRARY: &[u8] = b"libtracehound";
    let Ok(maps) = CString::new(format!("/proc/{process}/maps")) else { return false };
    let maps = sys::read_file(libc::AT_FDCWD, &maps).unwrap_or_default();
    let file = |line: &[u8]| line.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.starts_with(LIBRARY));
    maps.split(|&byte| byte == b'\n').any(file)
}

/// Start of this process in clock ticks since boot; 0 when `/proc` is not there. `/proc/self` is this process in the
/// `/proc` of an outer pid namespace, too.
pub fn process_start() -> u64 {
    parent_and_start(c"/proc/self/stat").map_or(0, |(_, start)| start)
}

/// The parent of a process, and its start in clock ticks since boot, by its `stat` in `/proc`.
fn parent_and_start(stat: &CStr) -> Option<(u32, u64)> {
    let text = sys::read_file(libc::AT_FDCWD, stat).ok()?;
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 1;
    let text = std::str::from_utf8(text.get(after_name..)?).ok()?;
    // Fields 4 and 22, counted from 1; the name is field 2.
    let mut fields = text.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

/// The pid namespace of this process, by the inode of `/proc/self/ns/pid`; 0 when `/proc` is not there.
pub fn pid_namespace() -> u64 {
    let Ok(fd) = sys::open_at(libc::AT_FDCWD, c"/proc/self/ns/pid", libc::O_PATH, 0) else { return 0 };
    let inode = sys::identity(fd).map_or(0, |FileIdentity { inode, .. }| inode);
    sys::close(fd);
    inode
}

/// The kernel's boot id; zeros when it cannot be read.
pub fn boot_id() -> [u8; 16] {
    let text = sys::read_file(libc::AT_FDCWD, c"/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut digits = text.iter().filter_map(|&byte| (byte as char).to_digit(16));
    let mut id = [0; 16];
    for byte in &mut id {
        let (Some(high), Some(low)) = (digits.next(), digits.next()) else { return [0; 16] };
        *byte = (high << 4 | low) as u8;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracehound_format::block::Codec;
    use tracehound_format::header::FileHeader;

    fn block(kind: BlockKind, payload: &[u8]) -> Vec<u8> {
        let header = BlockHeader {
            kind,
            codec: Codec::None,
            thread: 0,
            block_number: 0,
            first_record: 0,
            first_tick: 0,
            last_tick: 0,
            count: 0,
            raw_len: payload.len() as u32,
            stored_len: payload.len() as u32,
            payload_crc: crc32fast::hash(payload),
        };
        [&header.encode()[..], payload].concat()
    }

    fn ends(blocks: &[Vec<u8>]) -> bool {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let path = std::env::temp_dir().join(format!("tracehound-earlier-{:?}", std::thread::current().id()));
        let mut file = std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        let all = [FileHeader::new([7; 16]).encode().to_vec(), blocks.concat()].concat();
        file.write_all(&all).unwrap();
        std::fs::remove_file(&path).unwrap();
        is_finished_recording(file.as_raw_fd())
    }

    #[test]
    fn only_a_last_block_that_is_an_end_is_an_end() {
        let events = block(BlockKind::Events, &[1; 300]);
        let end = block(BlockKind::End, &[2; 40]);
        assert!(ends(&[events.clone(), end.clone()]));
        assert!(ends(&[events.clone(), block(BlockKind::End, &vec![3; 200_000])]), "a long directory");
        assert!(!ends(&[]));
        assert!(!ends(std::slice::from_ref(&events)));
        assert!(!ends(&[events.clone(), end.clone(), events.clone()]), "it went on");
        assert!(!ends(&[events.clone(), end.clone(), vec![0; 9]]), "rubbish behind it");
        assert!(!ends(&[events.clone(), end[..end.len() - 1].to_vec()]), "cut");
        for pad in 65_400..65_600 {
            assert!(ends(&[events.clone(), block(BlockKind::End, &vec![0xf5; pad])]), "a header across two windows");
        }
    }

    #[test]
    fn names_behind_the_end_do_not_hide_it() {
        let end = block(BlockKind::End, &[2; 40]);
        let names_at = (FileHeader::LEN + end.len()) as u64;
        let names = [block(BlockKind::Names, &[5; 90]), block(BlockKind::Names, &names_at.to_le_bytes())].concat();
        assert!(ends(&[end.clone(), names.clone()]));
        let events = block(BlockKind::Events, &[2; 40]);
        assert!(!ends(&[events.clone(), names]));
        // Names of generated code are metadata, and names of functions are behind them.
        let generated = block(BlockKind::Meta, &[4; 70]);
        let names_at = names_at + 2 * generated.len() as u64;
        let names = [block(BlockKind::Names, &[5; 90]), block(BlockKind::Names, &names_at.to_le_bytes())].concat();
        assert!(ends(&[end.clone(), generated.clone(), generated.clone()]));
        assert!(ends(&[end.clone(), generated.clone(), generated.clone(), names]));
        assert!(!ends(&[end, events.clone(), generated.clone()]), "it went on");
        assert!(!ends(&[events, generated.clone()]) && !ends(&[generated]));
    }

    #[test]
    fn this_process_is_known() {
        assert!(process_start() > 0);
        assert_eq!(parent_and_start(c"/proc/self/stat").unwrap().0, std::os::unix::process::parent_id());
        // No ancestor of a test has a recorder.
        assert_eq!(run_start(), process_start());
        assert!(pid_namespace() > 0);
        assert_ne!(boot_id(), [0; 16]);
    }
}
