//! Has references between the library's own functions stay inside it, as they do when it is preloaded: in a process that
//! runs already, the names of other libraries come before its own. And says whether the unwinder of Rust's panics is linked
//! in, as it is in what `packaging/build.sh` builds.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TRACEHOUND_UNWINDER_INSIDE");
    if std::env::var_os("TRACEHOUND_UNWINDER_INSIDE").is_some() {
        println!("cargo:rustc-cfg=unwinder_inside");
        // zig's linker does not know the other one. `packaging/loadable.py` takes away what it means to the loader.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    } else {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    }
}
