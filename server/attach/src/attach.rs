//! Attach: all steps from an unrecorded process to a recorded one.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tracehound_format::attach::{
    AttachRequest, DORMANT, ENDED, HOOKED, HOOKS, NAME_IN_PROCESS, PREPARED, RECORDING, TEXT_BYTES, command,
};

use crate::block::LoadedLibrary;
use crate::borrow::{BorrowedThread, DATA_BYTES};
use crate::detach;
use crate::detours::{self, Detours, Hooked, Patch};
use crate::existing;
use crate::files::AttachFiles;
use crate::hand_over::{hand_over, memory_file};
use crate::memory::{ProcessMemory, living_thread};
use crate::objects::{ProcessObject, loader_order, mappings, objects, symbol_around, symbol_named};
use crate::refusal::{During, Refusal, Result, refuse};
use crate::safe_point::{OwnAllocator, StackJudge, defines_malloc, id_inside, no_thread};
use crate::seccomp::Allowed;
use crate::stop::{StoppedThread, all_threads};
use crate::target::{TargetProcess, examine};

/// How often all threads are stopped to find one that may be borrowed, or to find none in the way of a change.
const TRIES: u32 = 2_000;
/// Longest wait for the recorder's thread to open the recording.
const START: Duration = Duration::from_secs(30);

/// Longest wait for another process that detaches.
const OTHERS: Duration = Duration::from_secs(20);

/// Options of an attach.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    /// The library to bring in.
    pub library: PathBuf,
    /// Where the recording goes: a template as `TRACEHOUND_OUTPUT` is one.
    pub output: Vec<u8>,
    /// `TRACEHOUND_…=value`.
    pub variables: Vec<(String, Vec<u8>)>,
    /// In spite of a seccomp filter that cannot be read.
    pub force: bool,
    /// List the blocks that the heap holds at the start.
    pub existing: bool,
}

/// Figures of an attach.
#[derive(Debug, Clone, Copy, Default)]
pub struct Figures {
    /// Threads of the process.
    pub threads: usize,
    /// Times that all threads were stopped before one could be borrowed.
    pub tries: u32,
    /// How long all stood still, at most.
    pub stopped: Duration,
    /// How long one was borrowed.
    pub borrowed: Duration,
    /// Functions that lead to the recorder.
    pub functions: usize,
    /// Blocks that were there at the start, and their bytes; `None` if they are not listed.
    pub existing: Option<(u64, u64)>,
}

/// A process that records because it was attached to.
#[derive(Debug)]
pub struct Attachment {
    /// The process.
    pub pid: u32,
    /// The recording, absolute.
    pub path: PathBuf,
    /// How it went.
    pub figures: Figures,
    target: TargetProcess,
    library: LoadedLibrary,
}

/// The plan of an attach, in lines; nothing is changed.
pub fn plan(pid: u32, options: &AttachOptions) -> Result<Vec<String>> {
    let target = examine(pid, options.force)?;
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    let name = String::from_utf8_lossy(&target.executable).into_owned();
    let mut lines = vec![format!("process {pid}: {name}, {threads} threads, {}", target.libc.path)];
    match &target.library {
        None => {
            has_proc(pid)?;
            lines.push(format!("{} would be loaded by one of its threads", options.library.display()));
        }
        Some(library) if library.is_dormant(&target.memory) => {
            lines.push("it has a dormant recorder, which would begin: no function would be changed".into());
            return Ok(lines);
        }
        Some(library) => {
            is_unrecorded(pid, library, &target.memory)?;
            lines.push("the recorder is in it from an earlier attach and would be used again".into());
        }
    }
    let places = hooked_functions(&target);
    let count: usize = places.iter().map(|(_, names)| names.len()).sum();
    lines.push(format!("{count} functions would be redirected to the recorder while it is attached:"));
    lines.extend(places.into_iter().map(|(path, names)| format!("  {} of {path}", names.join(", "))));
    Ok(lines)
}

/// The functions that would be hooked, with the object that defines them: the first in the order of the loader.
fn hooked_functions(target: &TargetProcess) -> Vec<(&str, Vec<&'static str>)> {
    let mut left = HOOKED.to_vec();
    let mut places = Vec::new();
    for object in loader_order(&target.memory, &target.objects) {
        let symbols = object.symbols(&target.memory).unwrap_or_default();
        let here = |name: &&str| symbol_named(&symbols, name).is_some();
        let found: Vec<_> = left.iter().copied().filter(here).collect();
        if !found.is_empty() {
            left.retain(|name| !found.contains(name));
            places.push((object.path.as_str(), found));
        }
    }
    places
}

/// Loads the recorder into the process and starts recording.
pub fn attach(pid: u32, options: &AttachOptions, announce: impl FnOnce(&Path)) -> Result<Attachment> {
    let library = options.library.as_path();
    let mut target = examine(pid, options.force)?;
    let image = match &target.library {
        Some(found) => {
            tidy(&target, found)?;
            None
        }
        None => {
            has_proc(pid)?;
            Some(image_of(library)?)
        }
    };
    let mut files = AttachFiles::create(&options.output, pid, &target.executable)?;
    let list = if options.existing { Some(memory_file()?) } else { None };
    let mut figures = Figures::default();
    let (library, patches, moved) = {
        let thread = choose(&target, &mut figures)?;
        let started = Instant::now();
        let handed = HandedOver { files: &files, list: list.as_ref(), image: image.as_ref() };
        let prepared = prepare(&target, thread, handed, options)?;
        figures.borrowed = started.elapsed();
        prepared
    };
    target.library = Some(library.clone());
    figures.functions = moved.len();
    if !library.wait_for_thread(&target.memory, START) {
        let _ = detach::finish(&target, &library);
        return refuse(format!("the recorder in process {pid} does not begin"));
    }
    let changed = match &list {
        Some(list) => existing::begin(&target, &library, &patches, &moved, list, &mut figures),
        None => change(&target, &library, &patches, &moved, true, &mut figures),
    };
    if let Err(refusal) = changed {
        let _ = detach::finish(&target, &library);
        return Err(refusal);
    }
    files.keep();
    announce(&files.path);
    if library.state(&target.memory) != Some(RECORDING) {
        library.command(&target.memory, command::START)?;
    }
    if !library.wait_for(&target.memory, pid, RECORDING, START) {
        let _ = detach::finish(&target, &library);
        return refuse(format!("the recorder in process {pid} does not begin"));
    }
    Ok(Attachment { pid, path: files.path.clone(), figures, target, library })
}

impl Attachment {
    /// Whether the process still records.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.library.state(&self.target.memory) == Some(RECORDING)
    }

    /// Ends the recording and leaves the process as it was. If another detach is running, waits for it.
    pub fn detach(self) -> Result<detach::Detached> {
        let started = Instant::now();
        while self.library.state(&self.target.memory) == Some(ENDED) && started.elapsed() < OTHERS {
            std::thread::sleep(Duration::from_millis(5));
        }
        detach::finish(&self.target, &self.library)
    }
}

/// Restores what an earlier attach has left.
fn tidy(target: &TargetProcess, library: &LoadedLibrary) -> Result<()> {
    match library.state(&target.memory) {
        Some(DORMANT) => {
            // A forked child has its parent's changes in its copy of the code.
            detach::put_back(target, library)
        }
        Some(RECORDING) => is_unrecorded(target.pid, library, &target.memory),
        Some(PREPARED | ENDED) => detach::finish(target, library).map(|_| ()),
        _ => refuse("the recorder in the process is in no state that is known"),
    }
}

/// Refuses where the process has no `/proc`, from which it would load the library.
fn has_proc(pid: u32) -> Result<()> {
    if Path::new(&format!("/proc/{}/root/proc/self", living_thread(pid))).symlink_metadata().is_ok() {
        return Ok(());
    }
    refuse(format!("process {pid} has no /proc in its root directory, from which it could load the recorder"))
}

/// Refuses where an earlier attach records.
fn is_unrecorded(pid: u32, library: &LoadedLibrary, memory: &ProcessMemory) -> Result<()> {
    if library.state(memory) == Some(RECORDING) {
        return refuse(format!("process {pid} is recorded by an earlier attach: `heaptrace detach {pid}` ends that"));
    }
    Ok(())
}

/// The library in memory that has no name, to be handed to the process.
fn image_of(path: &Path) -> Result<File> {
    let bytes = std::fs::read(path).during(&path.display().to_string())?;
    let mut file = memory_file()?;
    file.write_all(&bytes).during("memory for the library")?;
    Ok(file)
}

/// Stops all threads until one may be borrowed, and lets the others go on.
pub(crate) fn choose(target: &TargetProcess, figures: &mut Figures) -> Result<StoppedThread> {
    let mut forbidden: Vec<_> = target.loader().map(|loader| loader.range.clone()).into_iter().collect();
    // Another library that defines malloc. Frames in an executable that does are looked at one by one.
    let mut own_allocator = None;
    for (number, object) in target.objects.iter().enumerate().filter(|(_, object)| object.range != target.libc.range) {
        let symbols = object.symbols(&target.memory).unwrap_or_default();
        if number == 0 {
            own_allocator = OwnAllocator::of(object, &symbols);
        } else if defines_malloc(object, &symbols) {
            forbidden.push(object.range.clone());
        }
    }
    let has_allocator = own_allocator.is_some();
    if let Some(library) = &target.library {
        forbidden.push(library.object.range.clone());
    }
    let (memory, libc) = (&target.memory, &target.libc);
    let mut judge = StackJudge::new(memory, &target.objects, libc, &target.libc_symbols, forbidden, own_allocator);
    for tries in 1..=TRIES {
        let started = Instant::now();
        let mut threads = all_threads(target.pid)?;
        figures.threads = threads.len();
        let chosen = judge.choose(&threads, |tid| id_inside(target.pid, tid)).map(|at| threads.swap_remove(at));
        drop(threads);
        figures.stopped = figures.stopped.max(started.elapsed());
        figures.tries = tries;
        if let Some(thread) = chosen {
            return Ok(thread);
        }
        // Another pause each time, so that it does not fall in step with the program.
        std::thread::sleep(Duration::from_micros(300 + u64::from(tries) * 7919 % 700));
    }
    no_thread(target.pid, has_allocator)
}

type Prepared = (LoadedLibrary, Vec<Patch>, Vec<std::ops::Range<u64>>);

/// Descriptors that are passed to the process.
#[derive(Clone, Copy)]
struct HandedOver<'a> {
    files: &'a AttachFiles,
    /// To be filled in with the blocks that the heap holds.
    list: Option<&'a File>,
    /// The library, unless it is there.
    image: Option<&'a File>,
}

/// The same as numbers of the process's.
#[derive(Debug, Clone, Copy)]
struct Received {
    recording: [i32; 3],
    list: Option<i32>,
    image: Option<i32>,
}

/// Work of the borrowed thread: receives the descriptors, loads the library, and calls it to set up the recording.
fn prepare(
    target: &TargetProcess,
    thread: StoppedThread,
    handed: HandedOver<'_>,
    options: &AttachOptions,
) -> Result<Prepared> {
    let memory = &target.memory;
    let mut thread = borrow(target, thread)?;
    if is_locked(target.pid, thread.data()) {
        thread.give_back();
        return locks_all(target.pid);
    }
    let HandedOver { files, list, image } = handed;
    let recording = [&files.file, &files.side_file, &files.directory];
    let given: Vec<i32> = recording.into_iter().chain(list).chain(image).map(AsRawFd::as_raw_fd).collect();
    let descriptors = hand_over(target.pid, memory, &mut thread, &given)?;
    let mut rest = descriptors.iter().copied();
    let mut next = || rest.next().unwrap_or(-1);
    let received =
        Received { recording: [next(), next(), next()], list: list.map(|_| next()), image: image.map(|_| next()) };
    let mut are_taken = false;
    let outcome = prepare_with(target, &mut thread, received, files, options, &mut are_taken);
    // Those of the recording are the recorder's then, under other numbers.
    let unused = if are_taken { received.image.into_iter().collect() } else { descriptors };
    for fd in unused {
        let _ = thread.system_call(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]);
    }
    thread.give_back();
    outcome
}

fn prepare_with(
    target: &TargetProcess,
    thread: &mut BorrowedThread<'_>,
    received: Received,
    files: &AttachFiles,
    options: &AttachOptions,
    are_taken: &mut bool,
) -> Result<Prepared> {
    let memory = &target.memory;
    let library = match (&target.library, received.image) {
        (Some(library), _) => library.clone(),
        (None, Some(fd)) => load(target, thread, fd)?,
        (None, None) => return refuse("the process did not get the library"),
    };
    thread.call(library.look, [0; 3])?;
    let objects = objects(memory, &mappings(target.pid)?);
    library.correct_targets(memory, &objects, &target.libc_symbols)?;
    let (functions, patches, moved) = if library.is_dormant(memory) {
        // The program's calls come to it by their names.
        Made::default()
    } else if let Some((patches, moved)) = known_detours(memory, &library) {
        (Vec::new(), patches, moved)
    } else {
        make_detours(target, &library, &objects, thread)?
    };
    library.check_patches(&patches)?;
    let request = request(received, &functions, files, options, target.allowed)?;
    if request.len() as u64 > DATA_BYTES {
        return refuse("the request is too long");
    }
    memory.write(thread.data(), &request)?;
    *are_taken = true;
    if thread.call(library.prepare, [thread.data(), 0, 0])? as i32 != 0 {
        return Err(Refusal(library.failure(memory)));
    }
    // Not before: a later attach that finds them passes no functions, since the recorder has those that it got with them.
    // Where it has none, it would call what the jumps lead away from, and come back to itself without end.
    library.set_patches(memory, &patches)?;
    Ok((library, patches, moved))
}

/// Refuses a process whose new mappings are locked.
pub(crate) fn locks_all<T>(pid: u32) -> Result<T> {
    refuse(format!(
        "process {pid} has the kernel lock all that it maps (mlockall with MCL_FUTURE): that would fill the memory that the \
         recorder only reserves"
    ))
}

/// Whether the mapping at an address is locked into memory.
pub(crate) fn is_locked(pid: u32, address: u64) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps", living_thread(pid))).unwrap_or_default();
    let mut is_here = false;
    for line in text.lines() {
        if let Some((start, end)) = line.split(' ').next().and_then(|range| range.split_once('-'))
            && let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
        {
            is_here = (start..end).contains(&address);
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_here) {
            return flags.split_whitespace().any(|flag| flag == "lo");
        }
    }
    false
}

/// Has the loader bring the library in.
fn load(target: &TargetProcess, thread: &mut BorrowedThread<'_>, fd: i32) -> Result<LoadedLibrary> {
    const NO_DELETE: u64 = 0x1000;
    const BY_LIBC: u64 = 0x8000_0000;
    let memory = &target.memory;
    let mode = libc::RTLD_NOW as u64 | NO_DELETE;
    let (open, mode) = match target.function("libdl", &["dlopen"]) {
        Some(open) => (open, mode),
        None => match target.function("libdl", &["__libc_dlopen_mode"]) {
            Some(open) => (open, mode | BY_LIBC),
            None => return refuse("the process has no dlopen"),
        },
    };
    let data = thread.data();
    // `self` is the first thread, which may have ended.
    let folder = if living_thread(target.pid) == target.pid { "self" } else { "thread-self" };
    let name = format!("/proc/{folder}/fd/{fd}\0");
    memory.write(data, name.as_bytes())?;
    let handle = thread.call(open, [data, mode, 0])?;
    if handle == 0 {
        let why = target.function("libdl", &["dlerror"]).and_then(|error| thread.call(error, [0; 3]).ok());
        let text = why.map(|at| memory.read_up_to(at, 300)).unwrap_or_default();
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        return refuse(format!("the process cannot load the library: {}", String::from_utf8_lossy(text)));
    }
    rename(memory, handle, name.as_bytes());
    let objects = objects(memory, &mappings(target.pid)?);
    let found = LoadedLibrary::find(memory, &objects)?;
    found.ok_or_else(|| Refusal("the library was loaded and cannot be found in the process".into()))
}

/// Gives the library another name in the loader's list. Debuggers open what they find there, and the descriptor with that
/// number is another one in them: a pipe, on which they would wait for ever.
fn rename(memory: &ProcessMemory, handle: u64, name: &[u8]) {
    let new = format!("{NAME_IN_PROCESS}\0");
    // `struct link_map`, which the C libraries give as a handle, begins with the base address and the name.
    let Some(at) = memory.word(handle + 8) else { return };
    if name.len() >= new.len() && memory.bytes(at, name.len()).as_deref() == Some(name) {
        // If that fails, the name stays.
        let _ = memory.write(at, new.as_bytes());
    }
}

/// The detours of an earlier attach, if they still fit.
fn known_detours(memory: &ProcessMemory, library: &LoadedLibrary) -> Option<(Vec<Patch>, Vec<std::ops::Range<u64>>)> {
    let patches = library.patches(memory);
    let (code, _) = library.code(memory);
    let fits = |patch: &Patch| memory.bytes(patch.at, patch.before.len()).as_ref() == Some(&patch.before);
    let targets: Vec<u64> = library.hooks(memory).iter().map(|hook| hook.target).filter(|&at| at != 0).collect();
    let jumps: Vec<&Patch> = patches.iter().filter(|patch| patch.before.len() == 5).collect();
    let same = targets.iter().all(|target| jumps.iter().any(|jump| jump.at == *target));
    if code == 0 || patches.is_empty() || !same || !patches.iter().all(fits) {
        return None;
    }
    // The moved instructions are at most this long.
    let moved = jumps.iter().map(|jump| jump.at..jump.at + 20).collect();
    Some((patches, moved))
}

type Made = (Vec<(usize, u64)>, Vec<Patch>, Vec<std::ops::Range<u64>>);

/// Makes code for all functions, and puts it into the process.
fn make_detours(
    target: &TargetProcess,
    library: &LoadedLibrary,
    objects: &[ProcessObject],
    thread: &mut BorrowedThread<'_>,
) -> Result<Made> {
    let memory = &target.memory;
    let hooks = library.hooks(memory);
    let (mut functions, mut patches, mut moved) = (Vec::new(), Vec::new(), Vec::new());
    for object in objects {
        let symbols = object.symbols(memory).unwrap_or_default();
        let mut hooked: Vec<Hooked> = Vec::new();
        for (index, hook) in hooks.iter().enumerate().filter(|(_, hook)| object.has_code_at(hook.target)) {
            // One address with two names: the first of them.
            if hooked.iter().any(|known| known.function == hook.target) {
                continue;
            }
            let len = symbol_around(&symbols, hook.target).map_or(0, |symbol| symbol.start + symbol.len - hook.target);
            hooked.push(Hooked {
                index,
                name: hook.name.clone(),
                function: hook.target,
                len,
                hook: hook.hook,
                spares_own_calls: hook.spares_own_calls,
            });
        }
        if hooked.is_empty() {
            continue;
        }
        let bytes = detours::code_bytes(hooked.len());
        let place = detours::free_place(&mappings(target.pid)?, object, bytes)?;
        let made: Detours = detours::make(memory, object, &hooked, place)?;
        let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
        let got = thread.system_call(libc::SYS_mmap, [place, bytes, protection, flags, u64::MAX, 0])?;
        if got != place {
            return refuse("the process gets no memory near the C library");
        }
        memory.write(place, &made.code)?;
        library.set_code(memory, place, bytes)?;
        functions.extend(made.functions);
        patches.extend(made.patches);
        moved.extend(made.moved);
    }
    // Without a hook of `free`, no block would end.
    let has = |name: &str| functions.iter().any(|(index, _)| hooks.get(*index).is_some_and(|hook| hook.name == name));
    if !has("malloc") || !has("free") {
        return refuse("the program's malloc and free are not where they can be hooked");
    }
    Ok((functions, patches, moved))
}

/// The bytes of an [`AttachRequest`].
fn request(
    received: Received,
    functions: &[(usize, u64)],
    files: &AttachFiles,
    options: &AttachOptions,
    allowed: Allowed,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size_of::<AttachRequest>());
    for fd in received.recording.into_iter().chain([received.list.unwrap_or(-1)]) {
        bytes.extend(fd.to_le_bytes());
    }
    bytes.extend(u64::from(allowed == Allowed::RecordingAlone).to_le_bytes());
    let mut table = [0_u64; HOOKS];
    for &(index, function) in functions {
        if let Some(place) = table.get_mut(index) {
            *place = function;
        }
    }
    bytes.extend(table.iter().flat_map(|word| word.to_le_bytes()));
    let mut text = |text: &[u8], what: &str| {
        if text.len() + 2 > TEXT_BYTES {
            return refuse(format!("{what} is too long"));
        }
        let end = bytes.len() + TEXT_BYTES;
        bytes.extend(text);
        bytes.resize(end, 0);
        Ok(())
    };
    text(files.path.as_os_str().as_bytes(), "the recording's path")?;
    let mut variables = Vec::new();
    for (name, value) in &options.variables {
        variables.extend([name.as_bytes(), b"=", value, b"\0"].concat());
    }
    text(&variables, "the text of all options")?;
    Ok(bytes)
}

/// Puts bytes into the process while all its threads stand still and none is in the middle of what changes.
pub(crate) fn change(
    target: &TargetProcess,
    library: &LoadedLibrary,
    patches: &[Patch],
    moved: &[std::ops::Range<u64>],
    forwards: bool,
    figures: &mut Figures,
) -> Result<()> {
    if patches.is_empty() {
        return Ok(());
    }
    for _ in 0..TRIES {
        let started = Instant::now();
        let threads = all_threads(target.pid)?;
        let is_in_the_way = |thread: &StoppedThread| is_inside(thread, &target.memory, moved);
        if forwards && threads.iter().any(is_in_the_way) {
            drop(threads);
            std::thread::sleep(Duration::from_micros(500));
            continue;
        }
        for patch in patches {
            target.memory.write(patch.at, if forwards { &patch.after } else { &patch.before })?;
        }
        drop(threads);
        figures.stopped = figures.stopped.max(started.elapsed());
        let _ = library;
        return Ok(());
    }
    refuse(format!("a thread of process {} was always in the first instructions of its allocator", target.pid))
}

/// Whether the thread, or a signal handler's caller below it, is behind the first byte of a range.
pub(crate) fn is_inside(thread: &StoppedThread, memory: &ProcessMemory, moved: &[std::ops::Range<u64>]) -> bool {
    const LOOKED_THROUGH: usize = 256 << 10;
    let Some(registers) = thread.registers() else { return false };
    let hits = |address: u64| moved.iter().any(|range| range.start < address && address < range.end);
    if hits(registers.rip) {
        return true;
    }
    let (low, high) = (moved.iter().map(|range| range.start).min(), moved.iter().map(|range| range.end).max());
    let (Some(low), Some(high)) = (low, high) else { return false };
    let stack = memory.read_up_to(registers.rsp & !7, LOOKED_THROUGH);
    let words = stack.chunks_exact(8).filter_map(|word| word.try_into().ok()).map(u64::from_le_bytes);
    words.filter(|word| (low..high).contains(word)).any(hits)
}

/// Takes a thread, to make calls.
pub(crate) fn borrow(target: &TargetProcess, thread: StoppedThread) -> Result<BorrowedThread<'_>> {
    let gadget = target.bytes_in_libc(&[0x0f, 0x05, 0xc3])?;
    // mov $15, %rax; syscall
    let sigreturn = target.bytes_in_libc(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05])?;
    let now = mappings(target.pid)?;
    let is_stack = |from: u64, to: u64| {
        now.iter().any(|mapping| mapping.writable && mapping.range.start <= from && to <= mapping.range.end)
    };
    let errno_location = target.function("libc", &["__errno_location"]);
    BorrowedThread::new(thread, &target.memory, gadget, sigreturn, errno_location, is_stack)
}
