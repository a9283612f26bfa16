//! `heaptrace libraries`: writes what programs load, or are linked with, into a folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::run::library;
use super::{carried, manual};

/// Arguments of `heaptrace libraries`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  heaptrace libraries /opt/tracehound                     for images, in which LD_PRELOAD names a file
  LD_PRELOAD=/opt/tracehound/libtracehound.so ./app
  gcc -static app.c @/opt/tracehound/tracehound-wrap.opts /opt/tracehound/libtracehound.a")]
pub struct LibrariesArgs {
    /// The folder; it is created if it does not exist
    #[arg(value_hint = clap::ValueHint::DirPath)]
    folder: PathBuf,
}

/// Writes the files that this program carries, else those that lie beside its library.
pub fn run(args: &LibrariesArgs) -> Result<()> {
    std::fs::create_dir_all(&args.folder).with_context(|| format!("cannot make {}", args.folder.display()))?;
    let written = if carried::FILES.is_empty() { copy_installed(&args.folder)? } else { carried::write(&args.folder)? };
    let lines: Vec<String> = written.iter().map(|path| format!("{}\n", path.display())).collect();
    manual::print(lines.concat().as_bytes())
}

fn copy_installed(folder: &Path) -> Result<Vec<PathBuf>> {
    let library = library::find()?;
    let header = library.parent().and_then(Path::parent).map(|prefix| prefix.join("include").join(carried::HEADER));
    let beside = [library::NAME, "libtracehound.a", "tracehound-wrap.opts", carried::HEADER];
    let found = beside.map(|name| library.with_file_name(name)).into_iter().chain(header).filter(|path| path.is_file());
    let mut written = Vec::new();
    for from in found {
        let to = folder.join(from.file_name().expect("a file has a name"));
        if to.exists() && same_file(&from, &to) {
            bail!("{} is where the libraries are already", folder.display());
        }
        let bytes = std::fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        carried::replace(&to, &bytes)?;
        written.push(to);
    }
    Ok(written)
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
