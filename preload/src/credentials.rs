//! The hooks of the calls by which a program changes its users and groups: glibc and musl make them in all threads, and end
//! the process if one gets another answer. The recorder's thread is prepared for that first, see
//! [`tracehound_lifecycle::before_change_of_user`].

use core::ffi::{c_char, c_int};

use crate::entry::hook;
use crate::next;
use crate::start;

type Id = u32;

macro_rules! change {
    ($($name:ident, $body:ident, $count:tt ($($argument:ident: $kind:ty),*);)*) => {$(
        hook!($name, $count, $body);

        unsafe extern "C-unwind" fn $body($($argument: $kind,)* _: u64, _: u64) -> c_int {
            prepare();
            // SAFETY: the program's arguments.
            unsafe { next::$name().map_or(-1, |function| function($($argument),*)) }
        }
    )*};
}

change! {
    setuid, setuid_body, 1 (user: Id);
    setgid, setgid_body, 1 (group: Id);
    seteuid, seteuid_body, 1 (user: Id);
    setegid, setegid_body, 1 (group: Id);
    setreuid, setreuid_body, 2 (real: Id, effective: Id);
    setregid, setregid_body, 2 (real: Id, effective: Id);
    setresuid, setresuid_body, 3 (real: Id, effective: Id, saved: Id);
    setresgid, setresgid_body, 3 (real: Id, effective: Id, saved: Id);
    setgroups, setgroups_body, 2 (count: usize, groups: *const Id);
    initgroups, initgroups_body, 2 (user: *const c_char, group: Id);
}

fn prepare() {
    start::ensure();
    let errno = start::errno();
    tracehound_lifecycle::before_change_of_user();
    start::set_errno(errno);
}
