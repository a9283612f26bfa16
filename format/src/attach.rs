//! Memory that `heaptrace attach` and the library share in a process that runs already: a block of the library's
//! memory, read and written from outside while the process runs, and the request that a borrowed thread hands over.
//!
//! ```text
//! DORMANT ── prepare ──▶ PREPARED ── START ──▶ RECORDING ── STOP ──▶ ENDED ── RELEASE ──▶ DORMANT
//! ```
//! The borrowed thread alone makes the first step; the recorder's own thread makes the others, when it finds a command.
//! The words of the functions' first bytes are changed from outside, between `PREPARED` and `START`, and back again
//! between `ENDED` and `RELEASE`. A dormant recorder that was loaded at the start of the program has its hooks already:
//! no code is changed.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Name of the block, a symbol of the library.
pub const BLOCK: &str = "tracehound_attach";
/// Name of the function that looks up what is to be hooked.
pub const LOOK: &str = "tracehound_attach_look";
/// Name of the function that carries out a request.
pub const PREPARE: &str = "tracehound_attach_prepare";

/// Name of the function that wakes a recorder that sleeps.
pub const WAKE: &str = "tracehound_attach_wake";

/// What the loader's list calls the library once it is there: a name that nobody can open.
pub const NAME_IN_PROCESS: &str = "/(tracehound)";

/// Why a child is refused that has a copy of the recorder's memory which nothing has prepared for the fork.
pub const FORKED_MEANWHILE: &str = "the process was forked while the recorder was being loaded into its parent, or past the \
    handlers of forks (_Fork, clone): what it has of the recorder cannot be used";

/// First word of the block.
pub const MAGIC: u64 = u64::from_le_bytes(*b"thattach");
/// Layout of the block and of the request.
pub const VERSION: u32 = 6;

/// Nothing is recorded, and no memory is taken.
pub const DORMANT: u32 = 0;
/// A recording is set up, switched off.
pub const PREPARED: u32 = 1;
/// It records.
pub const RECORDING: u32 = 2;
/// The recording has its end block. The recorder's memory is still mapped.
pub const ENDED: u32 = 3;

/// Values of [`AttachBlock::command`].
pub mod command {
    /// None.
    pub const NONE: u32 = 0;
    /// Record from now on.
    pub const START: u32 = 1;
    /// Record no more, and end the file.
    pub const STOP: u32 = 2;
    /// No thread of the program uses the recording any more: unmap its memory.
    pub const RELEASE: u32 = 3;
}

/// Functions that are hooked, in the order of the block.
pub const HOOKED: [&str; 31] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "mmap",
    "munmap",
    "mremap",
    "brk",
    "sbrk",
    "_exit",
    "setuid",
    "setgid",
    "seteuid",
    "setegid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setgroups",
    "initgroups",
    "execve",
    "execveat",
    "fexecve",
    "prctl",
    "syscall",
];
/// Functions that may be hooked.
pub const HOOKS: usize = 32;
/// Places that may be changed: functions, and calls inside the C library.
pub const PATCHES: usize = 1024;

/// A function that is redirected to the library.
#[repr(C)]
pub struct AttachHook {
    /// Its name, padded with zeros.
    pub name: [AtomicU64; 3],
    /// The hook.
    pub hook: AtomicU64,
    /// Address that the program's calls go to; 0: there is no such function.
    pub target: AtomicU64,
    /// Direct calls inside the function's own library are not the program's: they still go to the function.
    pub spares_own_calls: AtomicU64,
}

/// Bytes that are changed in the process.
#[repr(C)]
pub struct AttachPatch {
    /// First address.
    pub at: AtomicU64,
    /// The bytes there before, in the low bytes.
    pub before: AtomicU64,
    /// The bytes there afterwards.
    pub after: AtomicU64,
    /// How many bytes.
    pub len: AtomicU64,
}

/// See the module's description.
#[repr(C)]
pub struct AttachBlock {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// State of the attach.
    pub state: AtomicU32,
    /// The [`command`] to carry out.
    pub command: AtomicU32,
    /// The process that the block controls: a forked child has a copy of its parent's block.
    pub pid: AtomicU32,
    /// The recorder's thread; 0: none.
    pub writer: AtomicU32,
    /// How many of [`hooks`](Self::hooks) there are.
    pub hook_count: AtomicU32,
    /// 1: the library came into the process when that was running already.
    pub late: AtomicU32,
    /// 1: it came with the program, and is dormant until a recording is requested.
    pub dormant: AtomicU32,
    /// Distance from a thread's pointer to its slot.
    pub slot_offset: AtomicU64,
    /// In the slot: a word that is 0 when the thread is in no section of the recorder's own.
    pub slot_internal: u32,
    /// In the slot: the stack of the recorder's.
    pub slot_stack: u32,
    /// In a thread's context, whose address is the slot's first word: the mode of an event that interrupted another.
    pub context_inner: u32,
    /// Bits of the context's first word that are 0 when the thread is in no event.
    pub mode_mask: u32,
    /// Nanoseconds that the borrowed thread took.
    pub prepare_ns: AtomicU64,
    /// Code made for this process: first address and bytes.
    pub code: [AtomicU64; 2],
    /// The function that serves the program's calls of malloc.
    pub malloc: AtomicU64,
    /// How many of [`patches`](Self::patches) there are; they are in place from [`PREPARED`] on.
    pub patch_count: AtomicU64,
    /// Why the last request failed: a text that ends with a zero.
    pub failure: [AtomicU64; 32],
    /// Functions to be hooked.
    pub hooks: [AttachHook; HOOKS],
    /// Bytes to be changed.
    pub patches: [AttachPatch; PATCHES],
}

/// Longest path of a recording, and of all options.
pub const TEXT_BYTES: usize = 4096;

/// What a borrowed thread is to set up.
#[repr(C)]
pub struct AttachRequest {
    /// Descriptors: the recording, the side file, the folder of both, the [list of blocks](BLOCK_LIST_MAGIC); -1: none.
    pub descriptors: [i32; 4],
    /// 1: a seccomp filter kills for a system call that the recorder can do without.
    pub filtered: u32,
    /// 0.
    pub unused: u32,
    /// For each hook, the address by which the original function is called; 0: it is not hooked.
    pub functions: [u64; HOOKS],
    /// Path of the recording as it is to be named.
    pub path: [u8; TEXT_BYTES],
    /// Options, `NAME=value`, each ended by a zero; two zeros end them.
    pub options: [u8; TEXT_BYTES],
}

/// First word of the list of blocks that the program's heap held when recording began. It is filled in while all threads
/// stand still, before [`command::START`]:
///
/// ```text
/// magic, bytes of the text, text with zeros up to 8 bytes, then address and size of each block
/// ```
/// All are 64-bit words. The text is a sentence about the list, for the recording.
pub const BLOCK_LIST_MAGIC: u64 = u64::from_le_bytes(*b"thblocks");
/// Longest text of a list of blocks.
pub const BLOCK_LIST_TEXT: u64 = 2048;
