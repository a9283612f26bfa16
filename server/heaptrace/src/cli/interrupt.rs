//! Ctrl-C while a command works: the work is asked to stop, so that what was indexed is kept; a second one ends us.

use std::sync::OnceLock;

use tracehound_index::Cancel;

static FLAG: OnceLock<Cancel> = OnceLock::new();

extern "C" fn on_interrupt(signal: i32) {
    if let Some(flag) = FLAG.get() {
        flag.cancel();
    }
    // SAFETY: signal(2) is safe in a handler; the default action ends us at the next one.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// The flag, set by SIGTERM and SIGHUP, too: for work that must not be left half done.
pub fn flag_of_all_ends() -> &'static Cancel {
    let flag = flag();
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: as in `flag`, which has set the flag up.
        unsafe { libc::signal(signal, on_interrupt as extern "C" fn(i32) as libc::sighandler_t) };
    }
    flag
}

/// The flag that Ctrl-C sets.
pub fn flag() -> &'static Cancel {
    FLAG.get_or_init(|| {
        // SAFETY: the handler stores to an atomic and calls signal(2), both of which a handler may do. `FLAG` is being
        // set up: until it is, the handler finds it empty.
        unsafe { libc::signal(libc::SIGINT, on_interrupt as extern "C" fn(i32) as libc::sighandler_t) };
        Cancel::new()
    })
}
