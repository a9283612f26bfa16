//! `heaptrace bundle`: the names that a recording needs, for a machine that has none of the programs.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use tracehound_api::info::End;
use tracehound_format::header::FileHeader;
use tracehound_ingest::side_file::path_of;

use super::output::{self, OutputArgs};
use super::{Interrupted, Misuse, fleet, interrupt, open, units};
use tracehound_symbols::bundle;

/// Pack a recording with the names that it needs, so that it can be read on another machine.
///
/// OUT is the recording and, in the same file, functions, files, lines and inlined callers of every backtrace. Without
/// -o the recording stays as it is, and the names go to FILE.symbols beside it. Source texts are in neither.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  heaptrace bundle memory-app-1.dat -o for-you.dat && scp for-you.dat desk:
  heaptrace bundle memory-app-1.dat && scp memory-app-1.dat memory-app-1.dat.symbols desk:
  heaptrace --debug-dir /mnt/debug bundle memory-app-1.dat -o named.dat")]
pub struct BundleArgs {
    /// A recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the recording and its names there, as one file; of recordings only an older bundle of it is replaced
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

/// Writes the bundle.
pub fn run(args: &BundleArgs) -> Result<()> {
    if args.output.is_none() && fleet::is_url(&args.file) {
        return Err(Misuse("a recording of a store is bundled into a file: name it with -o".into()).into());
    }
    let args = &BundleArgs { file: open::file_of(&args.file)?, output: args.output.clone() };
    let opened = open::open_telling(&args.file)?;
    if opened.trace.end() == End::Running && args.output.is_some() {
        return Err(Misuse("the program runs: a copy of its recording would be cut off".into()).into());
    }
    if let Some(path) = &args.output {
        check_target(args, path)?;
        if !is_older_bundle(path, args, opened.trace.recording_id()) {
            output::spare_recording(path)?;
        }
    }
    let bundle = opened.symbols.bundle(&opened.trace, interrupt::flag()).map_err(|_| Interrupted)?;
    let written = match &args.output {
        None => {
            let path = bundle::path_beside(&args.file);
            bundle.write_beside(&args.file).with_context(|| format!("cannot write {}", path.display()))?;
            path
        }
        Some(path) => {
            let file = File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
            let len = bundle::length_without_names(&file)?;
            let mut out = OutputArgs::create_recording(path)?;
            let done = bundle::copy(&file, len, &mut out).and_then(|()| bundle.append(len, &mut out));
            done.with_context(|| format!("cannot write {}", path.display()))?;
            out.finish()?;
            copy_side_file(args, path)?;
            path.clone()
        }
    };
    tell_of_parents(&opened, &written);
    let (named, all) = bundle.counts();
    let (named, all) = (units::count(named as u64), units::count(all as u64));
    crate::tell!("heaptrace: {}: names for {named} of {all} places in the code", written.display());
    Ok(())
}

/// Whether a path has a bundle of the same recording, with no more of it than there is here.
fn is_older_bundle(path: &Path, args: &BundleArgs, recording: [u8; 16]) -> bool {
    let look = || {
        let (ours, theirs) = (File::open(&args.file)?, File::open(path)?);
        let mut start = [0; FileHeader::LEN];
        (&theirs).read_exact(&mut start)?;
        let of_ours = bundle::length_without_names(&ours)?;
        let of_theirs = bundle::length_without_names(&theirs)?;
        let is_same = FileHeader::decode(&start).is_ok_and(|header| header.recording_id == recording);
        Ok::<_, io::Error>(is_same && of_theirs <= of_ours && of_theirs < theirs.metadata()?.len())
    };
    // A pipe would keep us waiting.
    fs::metadata(path).is_ok_and(|meta| meta.is_file()) && look().unwrap_or(false)
}

/// Refuses what cannot hold both parts of a killed program's recording, and the recording itself.
fn check_target(args: &BundleArgs, path: &Path) -> Result<()> {
    let same = |a: &Path, b: &Path| fs::canonicalize(a).is_ok_and(|a| fs::canonicalize(b).is_ok_and(|b| a == b));
    if same(&args.file, path) {
        return Err(Misuse(format!("{} is the recording itself; name another file", path.display())).into());
    }
    let side = path_of(&args.file);
    let is_file = path != Path::new("-") && fs::metadata(path).map_or(true, |meta| meta.is_file());
    if side.is_file() && !is_file {
        let why = format!("the program was killed, and a part of its recording is {}", side.display());
        return Err(Misuse(format!("{why}: write the bundle to a file, so that both are in one folder")).into());
    }
    Ok(())
}

/// What a forked process has inherited lies in its parent's recording.
fn tell_of_parents(opened: &open::OpenRecording, written: &Path) {
    use std::os::unix::ffi::OsStrExt;
    let inherited = opened.trace.facts().inherited.as_ref();
    if let Some(from) = inherited.and_then(|inherited| inherited.from.as_ref()) {
        let parent = Path::new(std::ffi::OsStr::from_bytes(&from.path)).display();
        let written = written.display();
        crate::tell!(
            "heaptrace: the process was forked: take its parent's recording {parent} along, too, into the folder of \
             {written}; the blocks that it inherited are only there"
        );
    }
}

/// Copies the side file of a killed program's recording, which is part of the recording.
fn copy_side_file(args: &BundleArgs, recording: &Path) -> Result<()> {
    let (from, to) = (path_of(&args.file), path_of(recording));
    if !from.is_file() {
        return Ok(());
    }
    copy_with_holes(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
    crate::tell!("heaptrace: the program was killed: take {} along, too", to.display());
    Ok(())
}

/// Copies a file that is mostly holes, and leaves them holes. It is for its owner alone, as recordings are.
fn copy_with_holes(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = File::open(from)?;
    let mut to = File::options().write(true).create(true).truncate(true).mode(0o600).open(to)?;
    let len = from.metadata()?.len();
    let mut at = 0;
    while at < len {
        // Where a file system does not tell, the rest is data.
        let (start, end) = match seek(&from, SeekFrom::Data(at)) {
            Ok(start) => (start, seek(&from, SeekFrom::Hole(start)).unwrap_or(len)),
            Err(Errno::NXIO) => break,
            Err(_) => (at, len),
        };
        from.seek(io::SeekFrom::Start(start))?;
        to.seek(io::SeekFrom::Start(start))?;
        io::copy(&mut (&from).take(end.saturating_sub(start)), &mut to)?;
        at = end;
    }
    to.set_len(len)
}
