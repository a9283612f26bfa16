//! The credentials of one thread. To the kernel users, groups, capabilities and secure bits are a thread's own; a C library
//! changes users and groups in all threads of a process, and ends the process if a thread's answer differs.

use core::ffi::CStr;

use rustix::thread::{CapabilitiesSecureBits, CapabilitySets};

use super::Result;
use super::raw;

/// What decides whether the kernel lets a thread change its users and groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadCredentials {
    /// Real, effective and saved user.
    users: [u32; 3],
    /// Real, effective and saved group.
    groups: [u32; 3],
    capabilities: CapabilitySets,
    secure_bits: CapabilitiesSecureBits,
}

/// Those of the calling thread.
pub fn thread_credentials() -> Result<ThreadCredentials> {
    Ok(ThreadCredentials {
        users: raw::users()?,
        groups: raw::groups()?,
        capabilities: rustix::thread::capabilities(None)?,
        secure_bits: rustix::thread::capabilities_secure_bits()?,
    })
}

/// Gives the calling thread these credentials, as far as the kernel lets it: it may give up what it has, and take nothing.
pub fn take_credentials(wanted: &ThreadCredentials) -> Result<()> {
    const KEEP: CapabilitiesSecureBits = CapabilitiesSecureBits::KEEP_CAPS;
    let own = thread_credentials()?;
    if own == *wanted {
        return Ok(());
    }
    let mut outcome = Ok(());
    // One step that is refused does not prevent the next.
    let mut step = |result: Result<()>| {
        if outcome.is_ok() {
            outcome = result;
        }
    };
    if own.secure_bits.difference(KEEP) != wanted.secure_bits.difference(KEEP) {
        step(rustix::thread::set_capabilities_secure_bits(wanted.secure_bits).map_err(Into::into));
    }
    if own.groups != wanted.groups {
        step(raw::set_groups(wanted.groups));
    }
    if own.users != wanted.users {
        // Otherwise the kernel takes all capabilities with the user 0.
        step(rustix::thread::set_keep_capabilities(true).map_err(Into::into));
        step(raw::set_users(wanted.users));
    }
    step(rustix::thread::set_capabilities(None, wanted.capabilities).map_err(Into::into));
    step(rustix::thread::set_keep_capabilities(wanted.secure_bits.contains(KEEP)).map_err(Into::into));
    outcome
}

/// Whether the calling thread may lock as much memory as it likes.
pub fn may_lock_memory() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::IPC_LOCK))
}

/// Whether a program gains rights when the calling process runs it: the loader preloads nothing into such a one.
/// `file` is the program itself, not a script.
pub fn gains_rights(file: &CStr) -> bool {
    const SET_USER: u32 = 0o4000;
    /// Without the group's execute bit, the other one marks files for mandatory locks.
    const SET_GROUP: u32 = 0o2010;
    let (Ok(stat), Ok([user, ..]), Ok([group, ..])) = (rustix::fs::stat(file), raw::users(), raw::groups()) else {
        return false;
    };
    let is_another_user = stat.st_mode & SET_USER != 0 && stat.st_uid != user;
    let is_another_group = stat.st_mode & SET_GROUP == SET_GROUP && stat.st_gid != group;
    let has_capabilities = || {
        let mut capability = [0_u8; 64];
        rustix::fs::getxattr(file, c"security.capability", &mut capability[..]).is_ok_and(|len| len > 0)
    };
    if !is_another_user && !is_another_group && (user == 0 || !has_capabilities()) {
        return false;
    }
    let is_ignored_there =
        rustix::fs::statvfs(file).is_ok_and(|system| system.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID));
    !is_ignored_there && !rustix::thread::no_new_privs().unwrap_or(false)
}
