//! Tells cargo that the page in `web/dist` is part of the binary: the derive that embeds it sees only the files that are
//! there, so a page that is built after the binary would not get into it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Where it is missing, cargo asks again at every build.
    println!("cargo::rerun-if-changed=../../web/dist");
}
