//! Checks a process before any change to it, and gives the reason if an attach must be refused.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tracehound_format::attach::FORKED_MEANWHILE;

use crate::block::LoadedLibrary;
use crate::memory::{ProcessMemory, living_thread};
use crate::objects::{DynamicSymbol, ProcessObject, mappings, objects, symbol_named};
use crate::refusal::{Refusal, Result, not_permitted, refuse};
use crate::seccomp::{self, Allowed};

/// A process that can be attached to, as far as can be seen from outside.
#[derive(Debug)]
pub struct TargetProcess {
    /// Its id.
    pub pid: u32,
    /// Its executable's path.
    pub executable: Vec<u8>,
    /// Its memory.
    pub memory: ProcessMemory,
    /// The objects in it.
    pub objects: Vec<ProcessObject>,
    /// Which of them is the C library.
    pub libc: ProcessObject,
    /// What that defines.
    pub libc_symbols: Vec<DynamicSymbol>,
    /// The recorder, if it is in the process.
    pub library: Option<LoadedLibrary>,
    /// What its seccomp filters let the recorder do.
    pub allowed: Allowed,
}

/// A field of `/proc/PID/status`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim())
}

/// Looks at a process without touching it. `force`: attach in spite of a seccomp filter that cannot be read.
pub fn examine(pid: u32, force: bool) -> Result<TargetProcess> {
    let target = look_at(pid, force)?;
    let has_begun = |library: &&LoadedLibrary| !library.is_late(&target.memory) && !library.is_dormant(&target.memory);
    if let Some(library) = target.library.as_ref().filter(has_begun) {
        if library.was_handed_over() {
            return refuse(FORKED_MEANWHILE);
        }
        return refuse(format!(
            "process {pid} was started with the recorder: `heaptrace ctl {pid} start` and `stop` switch it"
        ));
    }
    has_room(pid)?;
    Ok(target)
}

/// Least memory that limits may leave: as the recorder itself has it.
const LEAST_ROOM: u64 = 256 << 20;

/// Refuses a process whose limits on memory leave too little for the recorder, before anything is in it.
fn has_room(pid: u32) -> Result<()> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", living_thread(pid))).unwrap_or_default();
    let (limits, status) = (read("limits"), read("status"));
    let left = |limit: &str, used: &str| {
        let soft: u64 =
            limits.lines().find_map(|line| line.strip_prefix(limit))?.split_whitespace().next()?.parse().ok()?;
        let kib: u64 = field(&status, used)?.trim_end_matches(" kB").parse().ok()?;
        Some(soft.saturating_sub(kib << 10))
    };
    let least = [left("Max address space", "VmSize"), left("Max data size", "VmData")].into_iter().flatten().min();
    match least.filter(|least| *least < LEAST_ROOM) {
        Some(least) => refuse(format!(
            "limits leave process {pid} {} MiB of memory (ulimit -v, ulimit -d), of which the recorder would take more than a third",
            least >> 20
        )),
        None => Ok(()),
    }
}

/// The same of a process that may have been started with the recorder.
pub fn look_at(pid: u32, force: bool) -> Result<TargetProcess> {
    if pid == std::process::id() {
        return refuse("this is heaptrace's own process");
    }
    // In a process namespace of its own, with the /proc of another, the number would be another process's.
    if std::fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() != std::process::id().to_string().as_str()) {
        return refuse("/proc is that of another process namespace, whose ids are not those that heaptrace can use");
    }
    let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", living_thread(pid))) else {
        return refuse(format!("there is no process {pid}"));
    };
    if let Some(group) = field(&status, "Tgid").filter(|group| *group != pid.to_string()) {
        return refuse(format!("{pid} is a thread of process {group}"));
    }
    match field(&status, "State").and_then(|state| state.chars().next()) {
        Some('Z' | 'X') => return refuse(format!("process {pid} has ended")),
        Some('T') => return refuse(format!("process {pid} is stopped: continue it first (`kill -CONT {pid}`)")),
        _ => {}
    }
    if let Some(tracer) = field(&status, "TracerPid").filter(|tracer| *tracer != "0") {
        return refuse(format!("process {pid} is traced by process {tracer} (a debugger, or strace)"));
    }
    if field(&status, "VmSize").is_none() {
        // A process that has been killed gives its memory back before it is a zombie.
        return refuse(match is_kernel_thread(pid) {
            true => format!("{pid} is a thread of the kernel"),
            false => format!("process {pid} has ended"),
        });
    }
    let memory = ProcessMemory::open(pid)?;
    let mappings = mappings(pid)?;
    check_machine(pid)?;
    let objects = objects(&memory, &mappings);
    check_sanitizer(pid, &memory, &objects)?;
    let library = LoadedLibrary::find(&memory, &objects)?;
    let libc = libc(pid, &objects)?;
    let libc_symbols = libc.symbols(&memory)?;
    let is_filtered = !force && seccomp::has_filter(pid);
    let allowed = if is_filtered { seccomp::check(pid)? } else { Allowed::Everything };
    let executable = executable(pid, &objects, &libc);
    Ok(TargetProcess { pid, executable, memory, objects, libc, libc_symbols, library, allowed })
}

/// Whether the kernel runs a thread without a program, by the flags in its `stat`.
fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u32 = 0x0020_0000;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Field 9, counted from 1; the name is field 2 and may have anything in it.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let flags = after_name.split_ascii_whitespace().nth(6).and_then(|field| field.parse().ok());
    flags.is_some_and(|flags: u32| flags & PF_KTHREAD != 0)
}

/// The program's path. Where the user started the loader with the program as its argument, the kernel knows the loader alone:
/// the program is the object beside the C library that asks for a loader.
fn executable(pid: u32, objects: &[ProcessObject], libc: &ProcessObject) -> Vec<u8> {
    let link = std::fs::read_link(format!("/proc/{}/exe", living_thread(pid))).unwrap_or_default();
    let link = link.into_os_string().into_encoded_bytes();
    let by_kernel = objects.iter().find(|object| object.path.as_bytes() == link);
    if by_kernel.is_some_and(|object| !object.has_interpreter) {
        let program = objects.iter().find(|object| object.has_interpreter && object.path != libc.path);
        return program.map_or(link, |program| program.path.clone().into_bytes());
    }
    link
}

fn check_machine(pid: u32) -> Result<()> {
    const X86_64: [u8; 2] = [62, 0];
    let file = File::open(format!("/proc/{}/exe", living_thread(pid))).map_err(|_| not_permitted(pid))?;
    let mut header = [0; 20];
    if file.read_exact_at(&mut header, 0).is_err() || header[..4] != *b"\x7fELF" {
        return refuse(format!("the executable of process {pid} cannot be read"));
    }
    if header[4] != 2 {
        return refuse(format!("process {pid} is a 32-bit program"));
    }
    if header[18..] != X86_64 || !cfg!(target_arch = "x86_64") {
        return refuse(format!("process {pid} runs on a kind of processor that attach does not know"));
    }
    Ok(())
}

fn check_sanitizer(pid: u32, memory: &ProcessMemory, objects: &[ProcessObject]) -> Result<()> {
    const LIBRARIES: [&str; 5] = ["libasan", "libtsan", "libmsan", "liblsan", "libhwasan"];
    const INIT: [&str; 5] = ["__asan_init", "__tsan_init", "__msan_init", "__lsan_init", "__hwasan_init"];
    let by_file = |object: &&ProcessObject| LIBRARIES.iter().any(|name| object.name().starts_with(name));
    let inside = |object: &ProcessObject| {
        let symbols = object.symbols(memory).unwrap_or_default();
        INIT.iter().any(|name| symbol_named(&symbols, name).is_some())
    };
    if objects.iter().any(|object| by_file(&object)) || objects.first().is_some_and(inside) {
        return refuse(format!("process {pid} runs with a sanitizer, which tracks every block itself"));
    }
    Ok(())
}

fn libc(pid: u32, objects: &[ProcessObject]) -> Result<ProcessObject> {
    let is_libc = |name: &str| name == "libc.so.6" || name.starts_with("libc-2.");
    if let Some(found) = objects.iter().find(|object| is_libc(object.name())) {
        return Ok(found.clone());
    }
    // Debian has musl's only file under another name.
    let is_musl = |object: &ProcessObject| object.name().contains("ld-musl") || object.path.ends_with("-musl/libc.so");
    if objects.iter().any(is_musl) {
        return refuse(format!("process {pid} uses musl, which attach does not know yet"));
    }
    if objects.iter().any(|object| object.has_interpreter) {
        return refuse(format!("process {pid} has no C library yet, or one that attach does not know"));
    }
    refuse(format!("process {pid} is statically linked: it has no loader that could load the recorder"))
}

impl TargetProcess {
    /// The dynamic loader.
    #[must_use]
    pub fn loader(&self) -> Option<&ProcessObject> {
        self.objects.iter().find(|object| object.name().starts_with("ld-") || object.name() == "ld.so")
    }

    /// A function of the C library or of another object, by the first of the names that is there.
    pub fn function(&self, object: &str, names: &[&str]) -> Option<u64> {
        let in_libc = names.iter().find_map(|name| symbol_named(&self.libc_symbols, name));
        if let Some(found) = in_libc {
            return Some(found.start);
        }
        let object = self.objects.iter().find(|candidate| candidate.name().starts_with(object))?;
        let symbols = object.symbols(&self.memory).ok()?;
        names.iter().find_map(|name| symbol_named(&symbols, name)).map(|symbol| symbol.start)
    }

    /// The first place of some bytes in the C library's code.
    pub fn bytes_in_libc(&self, wanted: &[u8]) -> Result<u64> {
        for range in &self.libc.code {
            let code = self.memory.read_up_to(range.start, (range.end - range.start) as usize);
            if let Some(at) = code.windows(wanted.len()).position(|bytes| bytes == wanted) {
                return Ok(range.start + at as u64);
            }
        }
        Err(Refusal("the C library has no instructions by which a system call could be made".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_kernel_are_known() {
        assert!(!is_kernel_thread(std::process::id()));
        assert!(!is_kernel_thread(u32::MAX), "a process that has ended");
        // In a container there are none to see.
        if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
            assert!(is_kernel_thread(2));
        }
    }
}
