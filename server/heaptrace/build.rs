//! Puts libraries into the program: the files of the folder that `TRACEHOUND_CARRIED` names, as `packaging/build.sh` does. Without
//! it the program carries none.

use std::fmt::Write as _;
use std::path::PathBuf;

const FOLDER: &str = "TRACEHOUND_CARRIED";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={FOLDER}");
    let mut list = String::new();
    if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
        println!("cargo:rerun-if-changed={}", folder.display());
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{FOLDER}={}: {error}", folder.display()));
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
        files.sort();
        for file in files {
            println!("cargo:rerun-if-changed={}", file.display());
            let name = file.file_name().expect("a file in a folder has a name");
            writeln!(list, "({name:?}, include_bytes!({file:?}) as &[u8]),").expect("a string takes everything");
        }
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo names a folder"));
    std::fs::write(out.join("carried.rs"), format!("&[{list}]\n")).expect("Cargo's folder can be written");
}
