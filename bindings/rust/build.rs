//! Says where libtracehound.a lies: in TRACEHOUND_LIB_DIR, else in the places of an installation.

use std::path::PathBuf;

/// Variable that names the folder.
const VARIABLE: &str = "TRACEHOUND_LIB_DIR";
/// Where `make install` and packages put it.
const PLACES: [&str; 2] = ["/usr/local/lib", "/usr/lib"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    let folders = match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(folder) => vec![PathBuf::from(folder)],
        None => PLACES.map(PathBuf::from).to_vec(),
    };
    // Whether it is there matters to the link of a program alone.
    for folder in folders {
        println!("cargo:rustc-link-search=native={}", folder.display());
    }
    println!("cargo:rustc-link-lib=static:-bundle=tracehound");
}
