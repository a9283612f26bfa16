//! Has the shell compiled as what is linked into a program.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cfg=linked");
}
