//! exec: finishes the recording of this image before the call, and resumes it if exec fails.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;

use tracehound_lifecycle::Finish;
use tracehound_shared::gate::Internal;
use tracehound_shared::sys;

use crate::environment;
use crate::limits;
use crate::next;
use crate::seccomp;
use crate::start;
use crate::unfollowed::Successor;

/// A terminated text of the program's.
pub type Text = *const c_char;
/// A list of texts that ends with a null pointer.
pub type List = *const *const c_char;

unsafe extern "C" {
    static environ: List;
}

/// What a call of exec names.
#[derive(Clone, Copy)]
enum ExecName {
    /// A file: by its path, or by a name that may be looked for in `PATH`.
    File(Text, bool),
    /// The file of a descriptor, or one below its folder.
    Opened(c_int, Text),
}

/// What exec would run.
enum ExecTarget<'a> {
    /// Nothing: exec fails.
    Nothing,
    /// The program at this path.
    At(&'a CStr),
    /// That is not known.
    Unknown,
}

const PATH_BYTES: usize = 4096;

/// Runs `exec` with the environment that the new program is to have. Before, the recording is finished, unless this is a
/// vfork child that shares the memory of a parent which goes on; should exec fail, it goes on.
unsafe fn around(named: ExecName, environment: List, exec: impl FnOnce(List) -> c_int) -> c_int {
    start::ensure();
    let recorded = start::recorded_pid();
    let is_recorded = recorded != 0 && recorded == sys::process_id();
    if recorded != 0 && !is_list(environment) {
        // The kernel refuses it.
        return exec(environment);
    }
    let mut successor = Successor::UNKNOWN;
    // Without a recording no system call of ours: the program may have forbidden it.
    if is_recorded || recorded != 0 && start::follows_children() {
        let mut buffer = [0; PATH_BYTES];
        // SAFETY: the program's arguments.
        match unsafe { find(named, &mut buffer) } {
            ExecTarget::Nothing if is_recorded => return exec(environment),
            ExecTarget::At(path) => successor = Successor::at(path),
            _ => {}
        }
        // The process has no recording any more when it has become the program.
        successor.say();
    }
    let finished = is_recorded && tracehound_lifecycle::finish(Finish::Exec);
    limits::before_exec();
    let own = {
        let _internal = Internal::enter();
        // SAFETY: the program's list.
        if start::follows_children() { unsafe { environment_for(successor.can_load, environment) } } else { None }
    };
    let result = match own {
        None => exec(environment),
        // Another process with our memory: what it uses must outlive its exec.
        Some(own) if recorded != 0 && !is_recorded => exec(own.lend()),
        Some(own) => {
            let result = exec(own.list());
            let _internal = Internal::enter();
            drop(own);
            result
        }
    };
    let errno = start::errno();
    limits::after_failed_exec();
    start::set_errno(errno);
    if finished {
        tracehound_lifecycle::resume();
    }
    successor.did_not_start(errno);
    start::set_errno(errno);
    result
}

/// The environment that a followed program is to have, if it is not the given one.
unsafe fn environment_for(can_load: bool, given: List) -> Option<environment::Environment> {
    // SAFETY: the program's list.
    unsafe { if can_load { environment::with_us(given) } else { environment::with_no_library(given) } }
}

/// What exec would run; `buffer` is for its path.
unsafe fn find(named: ExecName, buffer: &mut [u8; PATH_BYTES]) -> ExecTarget<'_> {
    let (file, search) = match named {
        ExecName::File(file, search) => (file, search),
        // SAFETY: the program's arguments.
        ExecName::Opened(fd, path) => return unsafe { find_opened(fd, path, buffer) },
    };
    if file.is_null() || !seccomp::is_readable(file.addr(), 1) || tracehound_lifecycle::is_confined() {
        return ExecTarget::Unknown;
    }
    // SAFETY: it can be read, and the program passes a terminated string.
    let file = unsafe { CStr::from_ptr(file) };
    if !search || file.to_bytes().contains(&b'/') {
        return if sys::is_executable(file) { at(file, buffer) } else { ExecTarget::Nothing };
    }
    let path = crate::environment::get("PATH").unwrap_or(b"/bin:/usr/bin");
    for directory in path.split(|&byte| byte == b':') {
        let directory = if directory.is_empty() { &b"."[..] } else { directory };
        let name = file.to_bytes_with_nul();
        let len = directory.len() + 1 + name.len();
        let Some(place) = buffer.get_mut(..len) else { return ExecTarget::Unknown };
        let Some((head, tail)) = place.split_at_mut_checked(directory.len()) else { return ExecTarget::Unknown };
        head.copy_from_slice(directory);
        if let Some((slash, rest)) = tail.split_first_mut() {
            *slash = b'/';
            rest.copy_from_slice(name);
        }
        if CStr::from_bytes_with_nul(place).is_ok_and(sys::is_executable) {
            return CStr::from_bytes_with_nul(&buffer[..len]).map_or(ExecTarget::Unknown, ExecTarget::At);
        }
    }
    ExecTarget::Nothing
}

/// The same of a descriptor, and of a path below it. A path through /proc leads there; where it leads nowhere, nothing is
/// known.
unsafe fn find_opened(fd: c_int, path: Text, buffer: &mut [u8; PATH_BYTES]) -> ExecTarget<'_> {
    if !start::follows_children() || tracehound_lifecycle::is_confined() {
        return ExecTarget::Unknown;
    }
    let path = if path.is_null() {
        c""
    } else {
        if !seccomp::is_readable(path.addr(), 1) {
            return ExecTarget::Unknown;
        }
        // SAFETY: it can be read, and the program passes a terminated string.
        unsafe { CStr::from_ptr(path) }
    };
    if path.to_bytes().starts_with(b"/") || fd == libc::AT_FDCWD {
        return at(path, buffer);
    }
    let _internal = Internal::enter();
    let Ok(opened) = CString::new(format!("/proc/self/fd/{fd}")) else { return ExecTarget::Unknown };
    let joined = |name: &[u8]| {
        let below = path.to_bytes();
        let slash: &[u8] = if below.is_empty() { b"" } else { b"/" };
        CString::new([name, slash, below].concat()).ok()
    };
    // The name of the file itself says more.
    let named = sys::read_link(&opened).ok().and_then(|name| joined(&name)).filter(|name| sys::is_executable(name));
    named.or_else(|| joined(opened.to_bytes())).map_or(ExecTarget::Unknown, |name| at(&name, buffer))
}

/// Whether a list can be looked at.
fn is_list(list: List) -> bool {
    list.is_null() || seccomp::is_readable(list.addr(), size_of::<List>())
}

/// A copy of the path.
fn at<'a>(path: &CStr, buffer: &'a mut [u8; PATH_BYTES]) -> ExecTarget<'a> {
    let bytes = path.to_bytes_with_nul();
    let Some(place) = buffer.get_mut(..bytes.len()) else { return ExecTarget::Unknown };
    place.copy_from_slice(bytes);
    CStr::from_bytes_with_nul(place).map_or(ExecTarget::Unknown, ExecTarget::At)
}

/// `execve(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execve(path: Text, arguments: List, environment: List) -> c_int {
    // SAFETY: the program's arguments.
    unsafe {
        around(ExecName::File(path, false), environment, |environment| {
            next::execve().map_or(-1, |function| function(path, arguments, environment))
        })
    }
}

/// `execv(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execv(path: Text, arguments: List) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { execve(path, arguments, environ) }
}

/// `execvp(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvp(file: Text, arguments: List) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { execvpe(file, arguments, environ) }
}

/// `execvpe(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvpe(file: Text, arguments: List, environment: List) -> c_int {
    // SAFETY: the program's arguments.
    unsafe {
        around(ExecName::File(file, true), environment, |environment| {
            next::execvpe().map_or(-1, |function| function(file, arguments, environment))
        })
    }
}

/// `fexecve(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fexecve(fd: c_int, arguments: List, environment: List) -> c_int {
    // SAFETY: the program's arguments.
    unsafe {
        around(ExecName::Opened(fd, core::ptr::null()), environment, |environment| {
            next::fexecve().map_or(-1, |function| function(fd, arguments, environment))
        })
    }
}

/// `execveat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execveat(
    dir: c_int,
    path: Text,
    arguments: List,
    environment: List,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's arguments.
    unsafe {
        around(ExecName::Opened(dir, path), environment, |environment| {
            next::execveat().map_or(-1, |function| function(dir, path, arguments, environment, flags))
        })
    }
}

/// The hooks as addresses.
pub mod entries {
    use super::{List, Text, c_int, execve, execveat, fexecve};

    type Entry = unsafe extern "C" fn();
    type Exec<First, Second, Third> = unsafe extern "C-unwind" fn(First, Second, Third) -> c_int;
    type ExecAt = unsafe extern "C-unwind" fn(c_int, Text, List, List, c_int) -> c_int;

    /// [`execve`].
    // SAFETY: a function's address, not called by this type.
    pub const EXECVE: Entry = unsafe { core::mem::transmute::<Exec<Text, List, List>, Entry>(execve) };
    /// [`fexecve`].
    // SAFETY: as above.
    pub const FEXECVE: Entry = unsafe { core::mem::transmute::<Exec<c_int, List, List>, Entry>(fexecve) };
    /// [`execveat`].
    // SAFETY: as above.
    pub const EXECVEAT: Entry = unsafe { core::mem::transmute::<ExecAt, Entry>(execveat) };
}

/// `posix_spawn(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: Text,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: List,
    environment: List,
) -> c_int {
    // SAFETY: the program's arguments.
    unsafe {
        spawn(ExecName::File(path, false), environment, |environment| {
            let function = next::posix_spawn();
            function.map_or(libc::ENOSYS, |function| function(pid, path, actions, attributes, arguments, environment))
        })
    }
}

/// `posix_spawnp(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: Text,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: List,
    environment: List,
) -> c_int {
    // SAFETY: the program's arguments.
    unsafe {
        spawn(ExecName::File(file, true), environment, |environment| {
            let function = next::posix_spawnp();
            function.map_or(libc::ENOSYS, |function| function(pid, file, actions, attributes, arguments, environment))
        })
    }
}

/// Makes a process with the environment that it is to have. When the call returns the process has its own memory.
unsafe fn spawn(named: ExecName, environment: List, call: impl FnOnce(List) -> c_int) -> c_int {
    start::ensure();
    if !start::follows_children() || !is_list(environment) {
        return call(environment);
    }
    let mut successor = Successor::UNKNOWN;
    if start::recorded_pid() != 0 {
        let mut buffer = [0; PATH_BYTES];
        // SAFETY: the program's arguments.
        if let ExecTarget::At(path) = unsafe { find(named, &mut buffer) } {
            successor = Successor::at(path);
        }
    }
    let internal = Internal::enter();
    // SAFETY: the program's list.
    let own = unsafe { environment_for(successor.can_load, environment) };
    drop(internal);
    let result = call(own.as_ref().map_or(environment, environment::Environment::list));
    let errno = start::errno();
    if result == 0 {
        successor.say();
    }
    let _internal = Internal::enter();
    drop((own, successor));
    start::set_errno(errno);
    result
}

/// `system(3)`: starts a shell with the program's environment as it is.
#[cfg(not(linked))]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn system(command: Text) -> c_int {
    crate::unfollowed::about_to_start_shell();
    // SAFETY: the program's argument.
    unsafe { next::system().map_or(-1, |function| function(command)) }
}

/// `popen(3)`: the same.
#[cfg(not(linked))]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn popen(command: Text, mode: Text) -> *mut c_void {
    crate::unfollowed::about_to_start_shell();
    // SAFETY: the program's arguments.
    unsafe { next::popen().map_or(core::ptr::null_mut(), |function| function(command, mode)) }
}

// The list forms take their arguments on the stack: C variadics cannot be defined in stable Rust, so each hook turns
// its registers into the head of the array that the rest already is in memory.
#[cfg(target_arch = "x86_64")]
macro_rules! hook_list {
    ($name:ident, $body:path) => {
        #[doc = concat!("The hook of `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                // The return address moves below the five register arguments, which so join those on the stack.
                "pop rax",
                ".cfi_adjust_cfa_offset -8",
                "push r9",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "mov rsi, rsp",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                // On entry rsp was 8 modulo 16, now it is 0 modulo 16 after 5 more words.
                "call {body}",
                "pop rcx",
                ".cfi_adjust_cfa_offset -8",
                "add rsp, 40",
                ".cfi_adjust_cfa_offset -40",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                body = sym $body
            )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! hook_list {
    ($name:ident, $body:path) => {
        #[doc = concat!("The hook of `", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "hint #34",
                // The seven register arguments join those on the stack.
                "sub sp, sp, #64",
                ".cfi_def_cfa_offset 64",
                "str x1, [sp, #8]",
                "stp x2, x3, [sp, #16]",
                "stp x4, x5, [sp, #32]",
                "stp x6, x7, [sp, #48]",
                "add x1, sp, #8",
                "stp x29, x30, [sp, #-16]!",
                ".cfi_def_cfa_offset 80",
                ".cfi_offset x29, -80",
                ".cfi_offset x30, -72",
                "mov x29, sp",
                "bl {body}",
                "ldp x29, x30, [sp], #16",
                ".cfi_def_cfa_offset 64",
                "add sp, sp, #64",
                ".cfi_def_cfa_offset 0",
                "ret",
                ".cfi_endproc",
                body = sym $body
            )
        }
    };
}

hook_list!(execl, execl_body);
hook_list!(execlp, execlp_body);
hook_list!(execle, execle_body);

unsafe extern "C-unwind" fn execl_body(path: Text, list: List) -> c_int {
    // SAFETY: the list ends with a null pointer, as execl demands.
    unsafe { execve(path, list, environ) }
}

unsafe extern "C-unwind" fn execlp_body(file: Text, list: List) -> c_int {
    // SAFETY: the list ends with a null pointer, as execlp demands.
    unsafe { execvpe(file, list, environ) }
}

unsafe extern "C-unwind" fn execle_body(path: Text, list: List) -> c_int {
    // SAFETY: the list ends with a null pointer; the environment follows it.
    unsafe {
        let mut at = list;
        while !(*at).is_null() {
            at = at.add(1);
        }
        execve(path, list, *at.add(1).cast::<List>())
    }
}
