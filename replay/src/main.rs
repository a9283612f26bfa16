//! Plays the calls of a recording back against the allocator that this process was started with (`LD_PRELOAD`), and says how
//! much memory that took. `heaptrace replay` starts it; the file that it reads is made for one run.
//!
//! ```text
//! events  ─ chunks of so many, in their order ─▶ within a chunk every thread runs its own, as far as their blocks are there
//! clock   what allocators ask for the time gets the recorded time, so that what they do after a while is done; or, as
//!         the recorder and other programs made it longer, that of a program which works faster
//! memory  nothing here allocates from the allocator under test: tables are mappings of files
//! ```

#![no_main]

mod clock;
mod event;
mod memory;
mod threads;

use std::ffi::CStr;

use event::PlayedCalls;
use memory::MemoryMeter;
use threads::{ReplayCrew, put};

/// Bytes that an allocator may take in one chunk beside what the calls make it take.
const UNFORESEEN: u64 = 1 << 20;

/// Not the one of Rust's runtime, which allocates from the allocator under test before it begins.
///
/// # Safety
/// As the C library calls it: `count` terminated texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: libc::c_int, texts: *const *const libc::c_char) -> libc::c_int {
    // SAFETY: as the caller promises.
    let texts = unsafe { core::slice::from_raw_parts(texts, usize::try_from(count).unwrap_or(0)) };
    // SAFETY: as the caller promises.
    let mut arguments = texts.iter().skip(1).map(|&text| unsafe { CStr::from_ptr(text) });
    let path = arguments.next();
    let mut number = || arguments.next()?.to_str().ok()?.parse::<usize>().ok();
    // After which event memory is reported as `marked`; events of a chunk; how many times as fast as recorded; 1: print also
    // what the allocator has taken at each change of other memory, a line each.
    let mark = number().unwrap_or(0);
    let chunk = number().unwrap_or(1024).clamp(16, threads::MOST_EVENTS);
    let pace = number().unwrap_or(1) as u64;
    let has_curve = number() == Some(1);
    let Some(events) = path.and_then(PlayedCalls::open) else {
        put(b"{\"error\":\"no events\"}\n");
        std::process::exit(2);
    };
    let Some(mut crew) = ReplayCrew::new(&events, pace) else {
        put(b"{\"error\":\"no memory for tables\"}\n");
        std::process::exit(2);
    };
    let meter = MemoryMeter::new();
    let base = meter.anonymous();
    let (mut peak, mut end, mut marked) = (base, base, base);
    // What the recorded program had beside its allocator's memory; counted with all but the player's own.
    let mut other = 0;
    let mut at = 0;
    while at < events.list.len() {
        let most = if at < mark { chunk.min(mark - at) } else { chunk };
        // Between two looks memory may rise and fall again. Only where it might come above the peak is the kernel asked for more.
        let part = crew.prepare(at, most);
        let is_high = end + 2 * part.touched_bytes() + UNFORESEEN >= peak;
        if is_high {
            meter.watch();
        }
        at = crew.play(&part, || peak = peak.max(meter.anonymous() + other));
        peak = peak.max(meter.anonymous() + other);
        if is_high {
            peak = peak.max(meter.most() + other);
        }
        let own = meter.anonymous();
        if let Some(bytes) = part.other_bytes(events.list) {
            other = bytes;
            if has_curve {
                let mut line = [0_u8; 32];
                put(threads::format(&mut line, format_args!("{}\n", own.saturating_sub(base))));
            }
        }
        end = own + other;
        peak = peak.max(end);
        if at <= mark {
            marked = end;
        }
    }
    let cpu = cpu_ns().saturating_sub(meter.spent_ns());
    let mut name = [0_u8; 64];
    let name = allocator(&mut name);
    let mut line = [0_u8; 512];
    let text = threads::format(
        &mut line,
        format_args!(
            "{{\"allocator\":\"{name}\",\"base\":{base},\"peak\":{peak},\"end\":{end},\"marked\":{marked},\"cpu_ns\":{cpu},\
             \"failed\":{},\"has_asked_time\":{}}}\n",
            crew.failed(),
            clock::was_asked()
        ),
    );
    put(text);
    // SAFETY: ends the process; threads that wait are not waited for.
    unsafe { libc::_exit(0) }
}

fn cpu_ns() -> u64 {
    // SAFETY: the kernel fills the structure.
    let usage = unsafe {
        let mut usage = core::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_usec.unsigned_abs() * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// What the allocator calls itself.
fn allocator(buffer: &mut [u8; 64]) -> &str {
    let find = |name: &CStr| {
        // SAFETY: a terminated name.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let text = |at: *const libc::c_char| {
        // SAFETY: libraries give terminated texts that stay, or none.
        if at.is_null() { "" } else { unsafe { CStr::from_ptr(at) }.to_str().unwrap_or("") }
    };
    if let Some(function) = find(c"mallctl") {
        type Mallctl =
            extern "C" fn(*const libc::c_char, *mut libc::c_void, *mut usize, *mut libc::c_void, usize) -> i32;
        // SAFETY: jemalloc's function of this name.
        let mallctl: Mallctl = unsafe { core::mem::transmute(function) };
        let (mut version, mut len) = (core::ptr::null::<libc::c_char>(), size_of::<usize>());
        if mallctl(c"version".as_ptr(), (&raw mut version).cast(), &raw mut len, core::ptr::null_mut(), 0) == 0 {
            let version = text(version).split('-').next().unwrap_or("");
            return threads::words(buffer, format_args!("jemalloc {version}"));
        }
    }
    if let Some(function) = find(c"mi_version") {
        // SAFETY: mimalloc's function of this name.
        let version: extern "C" fn() -> i32 = unsafe { core::mem::transmute(function) };
        let number = version();
        return threads::words(buffer, format_args!("mimalloc {}.{}.{}", number / 100, number / 10 % 10, number % 10));
    }
    if let Some(function) = find(c"tc_version") {
        type TcVersion = extern "C" fn(*mut i32, *mut i32, *mut *const libc::c_char) -> *const libc::c_char;
        // SAFETY: gperftools' function of this name.
        let version: TcVersion = unsafe { core::mem::transmute(function) };
        let (mut major, mut minor, mut patch) = (0, 0, core::ptr::null());
        version(&raw mut major, &raw mut minor, &raw mut patch);
        return threads::words(buffer, format_args!("tcmalloc {major}.{minor}"));
    }
    // SAFETY: nothing here changes variables.
    let preload = unsafe { libc::getenv(c"LD_PRELOAD".as_ptr()) };
    if !text(preload).is_empty() {
        return "another allocator";
    }
    match find(c"gnu_get_libc_version") {
        Some(function) => {
            // SAFETY: glibc's function of this name.
            let version: extern "C" fn() -> *const libc::c_char = unsafe { core::mem::transmute(function) };
            threads::words(buffer, format_args!("glibc {}", text(version())))
        }
        None => "system",
    }
}
