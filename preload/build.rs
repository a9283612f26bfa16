//! Has calls between the library's own functions stay inside it, as they do when it is preloaded: in a process that runs
//! already, the names of other libraries come before its own.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
