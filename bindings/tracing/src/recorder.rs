//! The recorder's functions (`tracehound.h`), if it is in the process.

use std::ffi::{CStr, CString, c_char, c_void};

type Set = unsafe extern "C" fn(u64);
type Get = unsafe extern "C" fn() -> u64;
type Name = unsafe extern "C" fn(u64, *const c_char);

/// See the module's text.
#[derive(Clone, Copy)]
pub struct RecorderFunctions {
    set: Set,
    get: Get,
    name: Name,
}

impl RecorderFunctions {
    /// The recorder; `None` where the program runs without it.
    pub fn find() -> Option<Self> {
        let (set, get, name) =
            (find(c"tracehound_context_set")?, find(c"tracehound_context_get")?, find(c"tracehound_context_name")?);
        // SAFETY: the functions of tracehound.h have these types.
        unsafe {
            Some(Self {
                set: std::mem::transmute::<*mut c_void, Set>(set),
                get: std::mem::transmute::<*mut c_void, Get>(get),
                name: std::mem::transmute::<*mut c_void, Name>(name),
            })
        }
    }

    /// Sets the context of the calling thread's later events; 0: none.
    pub fn set(self, id: u64) {
        // SAFETY: may be called at any time, on any thread.
        unsafe { (self.set)(id) }
    }

    /// The calling thread's context.
    pub fn context(self) -> u64 {
        // SAFETY: may be called at any time, on any thread.
        unsafe { (self.get)() }
    }

    /// Gives a context a name; what is behind a zero in it is left out.
    pub fn name(self, id: u64, name: &str) {
        let text = name.split('\0').next().unwrap_or_default();
        if let Ok(text) = CString::new(text) {
            // SAFETY: a terminated text, which is copied.
            unsafe { (self.name)(id, text.as_ptr()) }
        }
    }
}

fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a terminated name; the default handle needs no object.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
