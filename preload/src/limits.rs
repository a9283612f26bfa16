//! The hooks of limits on memory: `setrlimit` and its like, and `mlockall`.
//!
//! A program that limits its address space or its data means its own: the kernel gets the limit and what the recorder has, and
//! the program reads back what it has set. A program that it starts gets the program's soft limit. Limits from before the
//! start are raised in the same way, as far as the kernel allows: only root raises hard ones.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU64, Ordering};

use libc::{RLIM_INFINITY, rlimit};
use tracehound_shared::gate::Internal;
use tracehound_shared::maps_text;
use tracehound_shared::own;
use tracehound_shared::session::{self, Session};
use tracehound_shared::sys;

use crate::entry::hook;
use crate::next;
use crate::start;

/// A limit of this process that the kernel has with something added.
struct AdjustedLimit {
    /// What the program has set: soft, then hard.
    wanted: [AtomicU64; 2],
    /// What the kernel has got for it.
    given: [AtomicU64; 2],
}

/// Of the address space.
static ADDRESSES: AdjustedLimit = AdjustedLimit::new();
/// Of memory that is the process's alone and can be written.
static DATA: AdjustedLimit = AdjustedLimit::new();
/// What the recorder may take besides what it has.
const GROWTH: u64 = 64 << 20;

impl AdjustedLimit {
    const fn new() -> Self {
        Self {
            wanted: [const { AtomicU64::new(RLIM_INFINITY) }; 2],
            given: [const { AtomicU64::new(RLIM_INFINITY) }; 2],
        }
    }

    fn of(resource: c_int) -> Option<&'static Self> {
        match resource {
            RLIMIT_AS => Some(&ADDRESSES),
            RLIMIT_DATA => Some(&DATA),
            _ => None,
        }
    }

    fn set(&self, wanted: rlimit, given: rlimit) {
        for (place, value) in self.wanted.iter().zip([wanted.rlim_cur, wanted.rlim_max]) {
            place.store(value, Ordering::Relaxed);
        }
        for (place, value) in self.given.iter().zip([given.rlim_cur, given.rlim_max]) {
            place.store(value, Ordering::Relaxed);
        }
    }

    /// What the program has set, where the kernel has this limit.
    fn seen(&self, limit: rlimit) -> rlimit {
        let [soft, hard] = [limit.rlim_cur, limit.rlim_max];
        let one = |value: u64| {
            let set = self.given.iter().zip(&self.wanted).find(|(given, _)| given.load(Ordering::Relaxed) == value);
            set.map_or(value, |(_, wanted)| wanted.load(Ordering::Relaxed))
        };
        rlimit { rlim_cur: one(soft), rlim_max: one(hard) }
    }

    fn soft(of: &[AtomicU64; 2]) -> u64 {
        let [soft, _] = of;
        soft.load(Ordering::Relaxed)
    }

    /// A copy of it as it is now.
    fn state(&self) -> Self {
        let copy =
            |values: &[AtomicU64; 2]| values.each_ref().map(|value| AtomicU64::new(value.load(Ordering::Relaxed)));
        Self { wanted: copy(&self.wanted), given: copy(&self.given) }
    }

    fn is_adjusted(&self) -> bool {
        self.given
            .iter()
            .zip(&self.wanted)
            .any(|(given, wanted)| given.load(Ordering::Relaxed) != wanted.load(Ordering::Relaxed))
    }
}

const RLIMIT_AS: c_int = libc::RLIMIT_AS as c_int;
const RLIMIT_DATA: c_int = libc::RLIMIT_DATA as c_int;

/// The recording of this process, while what it wants of the kernel is not forbidden.
fn recording() -> Option<&'static Session> {
    let session = session::current().filter(|session| session.pid == sys::process_id())?;
    let is_free = !session.confined.load(Ordering::SeqCst) && !session.filtered.load(Ordering::SeqCst);
    is_free.then_some(session)
}

/// Bytes that the recorder adds to a limit: a dormant one those of its library. One whose recording has ended adds nothing: a
/// filter of system calls may have ended it.
fn added(resource: c_int) -> Option<u64> {
    if start::is_asleep() {
        return Some(library_bytes()).filter(|&bytes| bytes > 0);
    }
    let session = recording()?;
    let all = library_bytes() + own::bytes() + GROWTH;
    Some(if resource == RLIMIT_DATA && session.side.is_shared() {
        all.saturating_sub(session.side.bytes() as u64)
    } else {
        all
    })
}

/// Bytes of address space that the library itself takes.
#[cfg(not(linked))]
fn library_bytes() -> u64 {
    unsafe extern "C" {
        static __ehdr_start: u8;
    }
    let start = (&raw const __ehdr_start) as u64;
    // SAFETY: the library's own first page.
    unsafe { tracehound_shared::code::image_end(start) }.map_or(0, |end| end.saturating_sub(start))
}

/// A recorder that is linked in is a part of the program.
#[cfg(linked)]
const fn library_bytes() -> u64 {
    0
}

hook!(setrlimit, 2, setrlimit_body);
hook!(setrlimit64, 2, setrlimit_body);
hook!(getrlimit, 2, getrlimit_body);
hook!(getrlimit64, 2, getrlimit_body);
hook!(prlimit, 4, prlimit_body);
hook!(prlimit64, 4, prlimit_body);
hook!(mlockall, 1, mlockall_body);

unsafe extern "C-unwind" fn setrlimit_body(resource: c_int, new: *const rlimit, _: u64, _: u64) -> c_int {
    let real = |new| {
        // SAFETY: the program's arguments, or a limit of ours.
        unsafe { next::setrlimit().map_or(-1, |function| function(resource, new)) }
    };
    // SAFETY: the program's pointer.
    unsafe { adjusted(resource, new, real) }
}

unsafe extern "C-unwind" fn getrlimit_body(resource: c_int, limit: *mut rlimit, _: u64, _: u64) -> c_int {
    start::ensure();
    // SAFETY: the program's arguments.
    let result = unsafe { next::getrlimit().map_or(-1, |function| function(resource, limit)) };
    if result == 0 {
        // SAFETY: the kernel has just written there.
        unsafe { show(resource, limit) };
    }
    result
}

unsafe extern "C-unwind" fn prlimit_body(
    process: libc::pid_t,
    resource: c_int,
    new: *const rlimit,
    old: *mut rlimit,
    _: u64,
    _: u64,
) -> c_int {
    let real = |new| {
        // SAFETY: the program's arguments, or a limit of ours.
        unsafe { next::prlimit().map_or(-1, |function| function(process, resource, new, old)) }
    };
    if process != 0 && process.cast_unsigned() != sys::process_id() {
        return real(new);
    }
    let before = AdjustedLimit::of(resource).map(AdjustedLimit::state);
    // SAFETY: the program's pointer.
    let result = unsafe { adjusted(resource, new, real) };
    if result == 0
        && !old.is_null()
        && let Some(before) = before
    {
        // SAFETY: the kernel has just written there.
        unsafe { *old = before.seen(*old) };
    }
    result
}

/// Sets a limit of this process, with what the recorder has.
///
/// # Safety
/// `new` must be the program's argument.
unsafe fn adjusted(resource: c_int, new: *const rlimit, real: impl Fn(*const rlimit) -> c_int) -> c_int {
    start::ensure();
    let slot = AdjustedLimit::of(resource).filter(|_| !new.is_null() && sys::is_readable(new as u64 & !7));
    let Some((slot, more)) = slot.zip(added(resource)) else { return real(new) };
    // SAFETY: the program's argument, which can be read.
    let wanted = unsafe { new.read_unaligned() };
    let add = |value: u64| if value == RLIM_INFINITY { value } else { value.saturating_add(more) };
    let given = rlimit { rlim_cur: add(wanted.rlim_cur), rlim_max: add(wanted.rlim_max) };
    let errno = start::errno();
    let mut result = real(&raw const given);
    if result == 0 {
        slot.set(wanted, given);
        return result;
    }
    // The hard limit of before may have no room for what is added.
    let within = |now: &rlimit| wanted.rlim_max <= slot.seen(*now).rlim_max && wanted.rlim_cur <= wanted.rlim_max;
    if let Some(now) = limit_now(resource).filter(within) {
        let most = now.rlim_max;
        let given = rlimit { rlim_cur: given.rlim_cur.min(most), rlim_max: given.rlim_max.min(most) };
        start::set_errno(errno);
        result = real(&raw const given);
        if result == 0 {
            slot.set(wanted, given);
        }
    }
    result
}

/// Gives the program the limit that it has set.
///
/// # Safety
/// `limit` must be what the kernel has written.
unsafe fn show(resource: c_int, limit: *mut rlimit) {
    if let Some(slot) = AdjustedLimit::of(resource) {
        // SAFETY: the contract of `show`.
        unsafe { *limit = slot.seen(*limit) };
    }
}

/// Before a recording begins: limits from before leave room for what the recorder is about to take.
pub fn make_room() {
    /// More than it takes.
    const START: u64 = 16 << 30;
    for resource in [RLIMIT_AS, RLIMIT_DATA] {
        let Some((slot, now)) = AdjustedLimit::of(resource).zip(limit_now(resource)) else { continue };
        if now.rlim_cur == RLIM_INFINITY {
            continue;
        }
        let wanted = slot.seen(now);
        let soft = now.rlim_cur.saturating_add(START);
        let raised = |hard: u64| rlimit { rlim_cur: soft.min(hard), rlim_max: hard };
        // Root may raise the hard limit.
        let mut ways = [now.rlim_max.max(soft), now.rlim_max].into_iter().map(raised);
        if let Some(given) = ways.find(|given| given.rlim_cur > now.rlim_cur && set_limit(resource, given)) {
            slot.set(wanted, given);
        }
    }
}

/// After it: limits are as much larger as the recorder needs, and as they were without a recording.
pub fn settle() {
    for resource in [RLIMIT_AS, RLIMIT_DATA] {
        let Some(slot) = AdjustedLimit::of(resource).filter(|slot| slot.is_adjusted()) else { continue };
        let Some(now) = limit_now(resource).filter(|now| now.rlim_cur == AdjustedLimit::soft(&slot.given)) else {
            continue;
        };
        let wanted = slot.seen(now);
        let soft = wanted.rlim_cur.saturating_add(added(resource).unwrap_or(0)).min(now.rlim_max);
        let given = rlimit { rlim_cur: soft, rlim_max: wanted.rlim_max.max(soft) };
        if set_limit(resource, &given) {
            slot.set(wanted, given);
        }
    }
}

fn limit_now(resource: c_int) -> Option<rlimit> {
    let mut limit = rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a limit of ours.
    let result = unsafe { next::getrlimit().map_or(-1, |function| function(resource, &raw mut limit)) };
    (result == 0).then_some(limit)
}

fn set_limit(resource: c_int, limit: &rlimit) -> bool {
    // SAFETY: a limit of ours.
    unsafe { next::setrlimit().is_some_and(|function| function(resource, limit) == 0) }
}

/// Right before exec: the new program gets the soft limits that this one has set.
pub fn before_exec() {
    change_soft(|slot| (AdjustedLimit::soft(&slot.given), AdjustedLimit::soft(&slot.wanted)));
}

/// The exec has failed.
pub fn after_failed_exec() {
    change_soft(|slot| (AdjustedLimit::soft(&slot.wanted), AdjustedLimit::soft(&slot.given)));
}

/// Changes soft limits from one value to another. A limit that somebody else has set since stays.
fn change_soft(values: impl Fn(&AdjustedLimit) -> (u64, u64)) {
    for resource in [RLIMIT_AS, RLIMIT_DATA] {
        let Some(slot) = AdjustedLimit::of(resource).filter(|slot| slot.is_adjusted()) else { continue };
        let (from, to) = values(slot);
        if let Some(mut limit) = limit_now(resource).filter(|limit| limit.rlim_cur == from) {
            limit.rlim_cur = to;
            set_limit(resource, &limit);
        }
    }
}

/// `mlockall(2)`: locks what the program has, and not what the recorder has reserved, which the kernel would have to fill.
unsafe extern "C-unwind" fn mlockall_body(flags: c_int, _: u64, _: u64) -> c_int {
    const KNOWN: c_int = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    start::ensure();
    let real = |flags| {
        // SAFETY: the program's argument.
        unsafe { next::mlockall().map_or(-1, |function| function(flags)) }
    };
    if flags & libc::MCL_CURRENT == 0 || flags & !KNOWN != 0 || recording().is_none() && !start::is_asleep() {
        return real(flags);
    }
    match lock_program(flags & libc::MCL_ONFAULT != 0) {
        Some(Ok(())) if flags & libc::MCL_FUTURE != 0 => real(flags & !libc::MCL_CURRENT),
        Some(Ok(())) => 0,
        Some(Err(error)) => {
            start::set_errno(error);
            -1
        }
        None => real(flags),
    }
}

/// Locks all mappings that are not the recorder's; an error number where the kernel would have refused to. `None`: what is
/// mapped is not known.
fn lock_program(on_fault: bool) -> Option<Result<(), i32>> {
    const MAPS: &CStr = c"/proc/self/maps";
    let errno = start::errno();
    let _internal = Internal::enter();
    let text = sys::read_file(libc::AT_FDCWD, MAPS).ok()?;
    let mut ours = own::list();
    #[cfg(not(linked))]
    ours.extend(maps_text::library(maps_text::lines(&text), library_bytes as *const () as usize));
    ours.sort_unstable_by_key(|range| range.start);
    let mut program = Vec::new();
    for line in maps_text::lines(&text).filter(|line| !line.path.starts_with(b"[v")) {
        own::without(line.range, &ours, |range| program.push(range));
    }
    let limit = sys::resource_limit(sys::Resource::Memlock);
    if !sys::may_lock_memory() {
        if limit == 0 {
            return Some(Err(libc::EPERM));
        }
        if program.iter().map(|range| range.len() as u64).sum::<u64>() > limit {
            return Some(Err(libc::ENOMEM));
        }
    }
    for range in program {
        // As for mlockall, what cannot be filled is no error.
        sys::lock_memory(range, on_fault);
    }
    start::set_errno(errno);
    Some(Ok(()))
}
