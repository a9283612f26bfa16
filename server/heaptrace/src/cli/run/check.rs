//! Looks at a program before it is started: can a library be preloaded into it at all?
//!
//! Where the answer is no, the program would run unrecorded and nobody would know; so it is refused, in a sentence.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};
use tracehound_format::allocators::Finder;

/// A program that can be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// What to start.
    pub path: PathBuf,
    /// It is a script for this shell: the work is probably done by what it starts.
    pub shell_script: bool,
    /// What will not be seen of it, in sentences.
    pub unseen: Vec<String>,
}

/// A program that nothing can be preloaded into, and that has no recorder inside.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} is linked statically: there is no loader that could preload {}; link it dynamically, or with the recorder inside:",
    .0.display(),
    super::library::NAME
)]
pub struct LinkedStatically(PathBuf);

/// How many `#!` lines lead to one another before the kernel gives up.
const MAX_SCRIPTS: u32 = 5;

/// Finds `command` as a shell would and checks it.
pub fn check(command: &OsStr) -> Result<Program> {
    let path = find(command)?;
    let mut shell_script = false;
    check_file(&path, 0, &mut shell_script)?;
    check_sanitizer(&path)?;
    let unseen = if shell_script { Vec::new() } else { unseen(&path) };
    Ok(Program { path, shell_script, unseen })
}

/// What the recorder will not see of a program that it can be preloaded into.
fn unseen(path: &Path) -> Vec<String> {
    let Ok(Some((bytes, _))) = tracehound_symbols::map(path) else { return Vec::new() };
    let Ok(elf) = ElfFile64::<Endianness>::parse(&bytes[..]) else { return Vec::new() };
    let mut finder = Finder::default();
    for symbol in elf.symbols().chain(elf.dynamic_symbols()).filter(|symbol| !symbol.is_undefined()) {
        if let Ok(name) = symbol.name_bytes() {
            finder.symbol(name, symbol.address(), symbol.address() + symbol.size(), symbol.is_global());
        }
    }
    let name = path.display();
    let mut list = Vec::new();
    if finder.finish().functions.is_empty() && elf.symbols().next().is_none() {
        let families: Vec<_> = tracehound_audit::texts_inside(&elf).iter().map(|family| family.name()).collect();
        if !families.is_empty() {
            list.push(format!(
                "{name} seems to have {} inside, and its symbols were stripped: blocks from it will not be recorded; a build \
                 with symbols is recorded whole",
                families.join(" and ")
            ));
        }
    }
    if elf.section_by_name(".go.buildinfo").is_some() {
        list.push(format!("{name} is a Go program: of its memory only what C code allocates will be recorded"));
    }
    list
}

/// Refuses a program whose allocator is a sanitizer's: it ends, by itself or by a fault, if another library comes first.
fn check_sanitizer(path: &Path) -> Result<()> {
    const ENTRIES: [(&[u8], &str); 5] = [
        (b"__asan_init", "address"),
        (b"__hwasan_init", "hwaddress"),
        (b"__lsan_init", "leak"),
        (b"__msan_init", "memory"),
        (b"__tsan_init", "thread"),
    ];
    let Ok(Some((bytes, _))) = tracehound_symbols::map(path) else { return Ok(()) };
    let Ok(elf) = ElfFile64::<Endianness>::parse(&bytes[..]) else { return Ok(()) };
    let named = |symbol: object::read::elf::ElfSymbol<'_, '_, _>| symbol.name_bytes().ok().map(<[u8]>::to_vec);
    let names: Vec<Vec<u8>> = elf.dynamic_symbols().filter_map(named).collect();
    match ENTRIES.iter().find(|(entry, _)| names.iter().any(|name| name == entry)) {
        None => Ok(()),
        Some((_, kind)) => bail!(
            "{} was built with -fsanitize={kind}: the sanitizer brings its own allocator, and ends the program when a library \
             is preloaded; a build without it can be recorded",
            path.display()
        ),
    }
}

/// The file behind a command: itself if it has a slash, else the first executable of that name in PATH.
fn find(command: &OsStr) -> Result<PathBuf> {
    if command.is_empty() {
        bail!("the name of the program is empty");
    }
    if command.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(command));
    }
    // What execvp(3) uses when PATH is not set.
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    for dir in std::env::split_paths(&path) {
        let candidate = if dir.as_os_str().is_empty() { Path::new("./").join(command) } else { dir.join(command) };
        if fs::metadata(&candidate).is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0) {
            return Ok(candidate);
        }
    }
    bail!("{}: there is no such program in PATH", command.display());
}

fn check_file(path: &Path, depth: u32, shell_script: &mut bool) -> Result<()> {
    let name = path.display();
    let meta = fs::metadata(path).with_context(|| format!("cannot start {name}"))?;
    if meta.is_dir() {
        bail!("cannot start {name}: it is a directory");
    }
    if meta.mode() & 0o111 == 0 {
        bail!("cannot start {name}: it is not executable (chmod +x would make it so)");
    }
    let file = match File::open(path) {
        Ok(file) => file,
        // One may be allowed to execute what one may not read; then there is nothing to look at.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return check_privilege(path, &meta),
        Err(error) => return Err(error).with_context(|| format!("cannot start {name}")),
    };
    let mut front = Vec::new();
    (&file).take(4096).read_to_end(&mut front).with_context(|| format!("cannot read {name}"))?;
    if let Some(line) = front.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        return check_script(path, line, depth, shell_script);
    }
    if !front.starts_with(b"\x7fELF") {
        bail!("{name} is neither a program nor a script with a #! line");
    }
    check_privilege(path, &meta)?;
    check_elf(path, &file, &front)
}

fn check_script(path: &Path, line: &[u8], depth: u32, shell_script: &mut bool) -> Result<()> {
    let name = path.display();
    if depth >= MAX_SCRIPTS {
        bail!("{name}: more than {MAX_SCRIPTS} #! lines lead to one another");
    }
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(interpreter) = words.next() else { bail!("{name}: its #! line names no interpreter") };
    let mut interpreter = PathBuf::from(OsString::from_vec(interpreter.to_vec()));
    check_file(&interpreter, depth + 1, shell_script).with_context(|| format!("{name} is a script"))?;
    if interpreter.file_name() == Some(OsStr::new("env")) {
        // env execs what it is given, so that is what will be recorded (or not).
        let program = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
        if let Some(program) = program {
            interpreter = find(OsStr::from_bytes(program)).with_context(|| format!("{name} is a script"))?;
            check_file(&interpreter, depth + 1, shell_script).with_context(|| format!("{name} is a script"))?;
        }
    }
    let shells = ["sh", "bash", "dash", "zsh", "ksh", "busybox"];
    if depth == 0 && shells.iter().any(|shell| interpreter.file_name() == Some(OsStr::new(shell))) {
        *shell_script = true;
    }
    Ok(())
}

/// The loader ignores LD_PRELOAD in a program that gains rights by being started.
fn check_privilege(path: &Path, meta: &Metadata) -> Result<()> {
    let name = path.display();
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let gains = |bit: &str| {
        format!(
            "{name} is {bit}: the loader does not preload anything into a program that gains rights; record a copy of it \
             (cp drops the bit), or run heaptrace as the user that it becomes"
        )
    };
    if meta.mode() & 0o4000 != 0 && meta.uid() != user.as_raw() {
        bail!(gains("setuid"));
    }
    // Without the group's execute bit, setgid marks files for mandatory locking.
    if meta.mode() & 0o2010 == 0o2010 && meta.gid() != group.as_raw() {
        bail!(gains("setgid"));
    }
    let mut capability = [0_u8; 64];
    if !user.is_root() && rustix::fs::getxattr(path, "security.capability", &mut capability).is_ok_and(|len| len > 0) {
        bail!(gains("given capabilities"));
    }
    Ok(())
}

fn check_elf(path: &Path, file: &File, front: &[u8]) -> Result<()> {
    let name = path.display();
    let Some(header) = front.first_chunk::<64>() else { bail!("{name} is cut off: it has no complete ELF header") };
    let (class, data) = (header[4], header[5]);
    let u16_at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let u64_at = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let machine = if data == 2 { u16_at(18).swap_bytes() } else { u16_at(18) };
    if class != 2 && matches!(machine, EM_386 | EM_X86_64 | EM_ARM) {
        bail!("{name} is a 32-bit program; heaptrace records 64-bit programs");
    }
    if machine != HOST {
        bail!(
            "{name} is a program for {}; this heaptrace records programs for {}",
            machine_name(machine),
            machine_name(HOST)
        );
    }

    // Program headers: at most 65535 of 56 bytes.
    let (offset, size, count) = (u64_at(header, 32), usize::from(u16_at(54)), usize::from(u16_at(56)));
    let mut table = vec![0; size * count];
    if size < 56 || file.read_exact_at(&mut table, offset).is_err() {
        bail!("{name} is cut off: it has no complete table of program headers");
    }
    const PT_INTERP: u32 = 3;
    let segment_type = |entry: &[u8]| entry.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let Some(entry) = table.chunks_exact(size).find(|entry| segment_type(entry) == PT_INTERP) else {
        if is_loader(path) || has_recorder(path) {
            return Ok(());
        }
        return Err(LinkedStatically(path.to_owned()).into());
    };
    let mut loader = vec![0; usize::try_from(u64_at(entry, 32).min(4096)).unwrap_or(4096)];
    file.read_exact_at(&mut loader, u64_at(entry, 8)).with_context(|| format!("{name} is cut off"))?;
    let loader = String::from_utf8_lossy(&loader);
    let loader = loader.trim_end_matches('\0');
    if loader.contains("ld-musl") {
        super::musl::check(path, &super::library::find()?)?;
    }
    Ok(())
}

/// Whether the recorder was linked into the program.
fn has_recorder(path: &Path) -> bool {
    let Ok(Some((bytes, _))) = tracehound_symbols::map(path) else { return false };
    ElfFile64::<Endianness>::parse(&bytes[..]).is_ok_and(|elf| tracehound_audit::has_recorder(&elf))
}

/// `ld-linux-x86-64.so.2 ./program`: the loader itself has no loader, and preloads.
fn is_loader(path: &Path) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    [path, &real].iter().any(|path| {
        path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-") || name.as_bytes().starts_with(b"ld."))
    })
}

const EM_386: u16 = 3;
const EM_ARM: u16 = 40;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
#[cfg(target_arch = "x86_64")]
const HOST: u16 = EM_X86_64;
#[cfg(target_arch = "aarch64")]
const HOST: u16 = EM_AARCH64;

fn machine_name(machine: u16) -> String {
    match machine {
        EM_386 => "32-bit x86".into(),
        20 => "PowerPC".into(),
        21 => "64-bit PowerPC".into(),
        22 => "IBM Z".into(),
        EM_ARM => "32-bit Arm".into(),
        EM_X86_64 => "x86-64".into(),
        EM_AARCH64 => "64-bit Arm".into(),
        243 => "RISC-V".into(),
        258 => "LoongArch".into(),
        other => format!("processor number {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(dir: &Path, name: &str, mode: u32, bytes: &[u8]) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// An ELF header with one program header of the given type.
    fn elf(class: u8, machine: u16, segment_type: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&segment_type.to_le_bytes());
        bytes
    }

    #[track_caller]
    fn refused(path: &Path, words: &str) {
        let error = format!("{:#}", check(path.as_os_str()).unwrap_err());
        assert!(error.contains(words), "{error:?} does not say {words:?}");
        assert!(error.contains(path.file_name().unwrap().to_str().unwrap()), "{error:?} does not name the file");
    }

    #[test]
    fn what_cannot_be_recorded_is_refused_with_the_reason() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        const PT_LOAD: u32 = 1;
        refused(&file(dir, "static", 0o755, &elf(2, HOST, PT_LOAD)), "linked statically");
        refused(&file(dir, "small", 0o755, &elf(1, EM_386, PT_LOAD)), "32-bit");
        refused(&file(dir, "foreign", 0o755, &elf(2, 243, PT_LOAD)), "RISC-V");
        refused(&file(dir, "cut", 0o755, b"\x7fELF\x02\x01"), "cut off");
        refused(&file(dir, "text", 0o755, b"hello"), "neither a program nor a script");
        refused(&file(dir, "plain", 0o644, &elf(2, HOST, PT_LOAD)), "not executable");
        refused(&file(dir, "orphan", 0o755, b"#!/nonexistent/interpreter\n"), "/nonexistent/interpreter");
        refused(dir, "directory");
        refused(&dir.join("missing"), "No such file");
        let script = file(dir, "script", 0o755, format!("#! {}\n", dir.join("static").display()).as_bytes());
        refused(&script, "linked statically");
    }

    #[test]
    fn circular_scripts_end() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("circle");
        let line = format!("#!{}\n", path.display());
        refused(&file(temp.path(), "circle", 0o755, line.as_bytes()), "lead to one another");
    }

    #[test]
    fn what_a_shell_finds_is_found() {
        let sh = check(OsStr::new("sh")).unwrap();
        assert!(sh.path.is_absolute() && !sh.shell_script);
        let temp = tempfile::tempdir().unwrap();
        let script = file(temp.path(), "script", 0o755, b"#!/usr/bin/env sh\nexit 0\n");
        assert!(check(script.as_os_str()).unwrap().shell_script);
        assert!(check(OsStr::new("no-such-program-anywhere")).unwrap_err().to_string().contains("PATH"));
    }
}
