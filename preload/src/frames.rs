//! The hooks of `__register_frame` and related functions, by which programs register unwind information of code that no
//! object describes: JIT compilers, and the start files of programs without `.eh_frame_hdr`.
//!
//! Each calls the next definition in link order, and passes the information to the recorder's unwinder.

use core::ffi::c_void;

use tracehound_unwind::{self, Registration};

use crate::next;
use crate::start;

type Ptr = *mut c_void;

/// Tells the unwinder of what was registered.
///
/// # Safety
/// The arguments must be the program's.
unsafe fn registered(begin: Ptr, is_table: bool, text_base: Ptr, data_base: Ptr) {
    let errno = start::errno();
    let (text_base, data_base) = (text_base as u64, data_base as u64);
    // SAFETY: the arguments are the program's: the contract of this function and of `frames_registered`.
    unsafe {
        tracehound_unwind::frames_registered(Registration { begin: begin.cast(), is_table, text_base, data_base })
    };
    start::set_errno(errno);
}

macro_rules! registers {
    ($name:ident, $next:ident, $is_table:literal) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(begin: Ptr) {
            start::ensure();
            // SAFETY: the program's argument.
            unsafe {
                if let Some(function) = next::$next() {
                    function(begin);
                }
                registered(begin, $is_table, core::ptr::null_mut(), core::ptr::null_mut());
            }
        }
    };
    ($name:ident, $next:ident, $is_table:literal, object) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(begin: Ptr, object: Ptr) {
            start::ensure();
            // SAFETY: the program's arguments.
            unsafe {
                if let Some(function) = next::$next() {
                    function(begin, object);
                }
                registered(begin, $is_table, core::ptr::null_mut(), core::ptr::null_mut());
            }
        }
    };
    ($name:ident, $next:ident, $is_table:literal, bases) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(begin: Ptr, object: Ptr, text_base: Ptr, data_base: Ptr) {
            start::ensure();
            // SAFETY: the program's arguments.
            unsafe {
                if let Some(function) = next::$next() {
                    function(begin, object, text_base, data_base);
                }
                registered(begin, $is_table, text_base, data_base);
            }
        }
    };
}

registers!(__register_frame, register_frame, false);
registers!(__register_frame_table, register_frame_table, true);
registers!(__register_frame_info, register_frame_info, false, object);
registers!(__register_frame_info_table, register_frame_info_table, true, object);
registers!(__register_frame_info_bases, register_frame_info_bases, false, bases);
registers!(__register_frame_info_table_bases, register_frame_info_table_bases, true, bases);

/// Tells the unwinder before the memory may be used for something else.
fn deregistered(begin: Ptr) {
    start::ensure();
    let errno = start::errno();
    tracehound_unwind::frames_deregistered(begin.cast());
    start::set_errno(errno);
}

/// `__deregister_frame`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __deregister_frame(begin: Ptr) {
    deregistered(begin);
    if let Some(function) = next::deregister_frame() {
        // SAFETY: the program's argument.
        unsafe { function(begin) }
    }
}

/// `__deregister_frame_info`: gives the object that was registered with it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __deregister_frame_info(begin: Ptr) -> Ptr {
    deregistered(begin);
    // SAFETY: the program's argument.
    next::deregister_frame_info().map_or(core::ptr::null_mut(), |function| unsafe { function(begin) })
}

/// `__deregister_frame_info_bases`: gives the object that was registered with it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __deregister_frame_info_bases(begin: Ptr) -> Ptr {
    deregistered(begin);
    // SAFETY: the program's argument.
    next::deregister_frame_info_bases().map_or(core::ptr::null_mut(), |function| unsafe { function(begin) })
}
