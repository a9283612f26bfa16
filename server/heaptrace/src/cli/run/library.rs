//! Finds the library that is preloaded into the program.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cli::carried;

/// File name of the library.
pub const NAME: &str = "libtracehound.so";
/// Variable that names it, when it is somewhere else.
pub const VARIABLE: &str = "TRACEHOUND_LIBRARY";

/// The library: what [`VARIABLE`] names, else beside this program, else in the places of an installation, else the one that this
/// program carries.
///
/// # Errors
/// If there is none, or `LD_PRELOAD` cannot hold its path.
pub fn find() -> Result<PathBuf> {
    let path = match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(named) => {
            let path = std::path::absolute(&named).with_context(|| format!("{VARIABLE}={named:?} is no path"))?;
            if !path.is_file() {
                bail!("{VARIABLE} names {}, which is no file", path.display());
            }
            path
        }
        None => {
            // Where no /proc is mounted, only what is carried is left.
            let exe = std::env::current_exe().context("cannot find out where heaptrace itself is");
            let exe = if carried::FILES.is_empty() { Some(exe?) } else { exe.ok() };
            let places = exe.map(|exe| places(&exe)).unwrap_or_default();
            match places.iter().find(|path| path.is_file()) {
                Some(path) => path.clone(),
                None => match carried::kept_library()? {
                    Some(path) => path,
                    None => {
                        let list: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
                        bail!(
                            "{NAME} is in none of {}; build it with `make build`, or set {VARIABLE}",
                            list.join(", ")
                        );
                    }
                },
            }
        }
    };
    if unloadable(&path) {
        bail!(
            "{} has a space or a colon in its path, which LD_PRELOAD cannot hold; copy it elsewhere and set {VARIABLE}",
            path.display()
        );
    }
    Ok(path)
}

/// Whether `LD_PRELOAD` cannot hold a path: the loader splits at spaces and colons, and has no way to quote them.
pub fn unloadable(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().iter().any(|&byte| byte == b':' || byte.is_ascii_whitespace())
}

/// How a program is linked with the recorder inside, with the files that lie beside `library`, if they do.
pub fn link_recipe(library: &Path) -> String {
    let [options, archive] = ["tracehound-wrap.opts", "libtracehound.a"].map(|name| {
        let path = library.with_file_name(name);
        if path.is_file() { path } else { PathBuf::from(name) }
    });
    format!(
        "gcc -static … @{} {} (a Rust program: the crate `tracehound`; docs/guide/static.md)",
        options.display(),
        archive.display()
    )
}

fn places(exe: &Path) -> Vec<PathBuf> {
    let exe = exe.canonicalize().unwrap_or_else(|_| exe.to_owned());
    let Some(dir) = exe.parent() else { return vec![PathBuf::from(NAME)] };
    let mut places = vec![dir.join(NAME)];
    if let Some(prefix) = dir.parent() {
        places.extend(["lib", "lib64", "lib/tracehound"].map(|lib| prefix.join(lib).join(NAME)));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_names_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libtracehound.a"), "").unwrap();
        let said = link_recipe(&folder.path().join(NAME));
        assert!(said.starts_with("gcc -static … @tracehound-wrap.opts "), "{said}");
        assert!(said.contains(&format!(" {}/libtracehound.a ", folder.path().display())), "{said}");
    }

    #[test]
    fn an_installation_is_searched_beside_and_in_lib() {
        let places = places(Path::new("/nowhere/bin/heaptrace"));
        assert_eq!(places[0], Path::new("/nowhere/bin/libtracehound.so"));
        assert_eq!(places[1], Path::new("/nowhere/lib/libtracehound.so"));
    }
}
