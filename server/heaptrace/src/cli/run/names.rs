//! `heaptrace run --names`: makes runtimes write the names of the code that they generate, and keeps these names in the
//! recording, so that they are there when the runtime's own file is gone, and on another machine.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use tracehound_api::info::End;
use tracehound_symbols::{CodeLogs, bundle};

use crate::cli::{Interrupted, interrupt, open};

/// What runtimes take from the environment, the JVM's with the folder of its log. Each reads its own variable alone, also in
/// programs that a script starts.
const SWITCHES: [(&str, &str); 2] = [
    // Frames of interpreted functions, a perf map, and a log with times.
    ("NODE_OPTIONS", "--interpreted-frames-native-stack --perf-basic-prof --perf-prof"),
    // Frame pointers in compiled code, a perf map at the end (from JDK 17 on; older ones pass over it), a log with times.
    (
        "JAVA_TOOL_OPTIONS",
        "-XX:+IgnoreUnrecognizedVMOptions -XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions \
         -XX:+DumpPerfMapAtExit -XX:+LogCompilation -XX:LogFile=",
    ),
];

/// Whether node can write its logs into the current folder. Where it cannot, V8 prints them on standard output.
pub fn node_can_write() -> bool {
    tempfile::tempfile_in(".").is_ok()
}

/// The variables to be set; what the user has in them stays in front. The JVM's log is in `folder`.
pub fn switches(folder: &Path, get: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, OsString)> {
    let with = |(name, switches): (&'static str, &str)| {
        let mut value = get(name).unwrap_or_default();
        if !value.is_empty() {
            value.push(" ");
        }
        value.push(switches);
        if switches.ends_with('=') {
            value.push(folder.join("%p.log"));
        }
        (name, value)
    };
    SWITCHES.into_iter().map(with).collect()
}

/// Appends the names of generated code to a recording that has ended; how many there were. `folder` has the JVM's logs.
pub fn keep(recording: &Path, folder: &Path) -> Result<u64> {
    let opened = open::open(recording)?;
    if opened.trace.end() == End::Running {
        return Err(anyhow!("{}: the program still runs, its names are not in the recording", recording.display()));
    }
    let node_options = std::env::var("NODE_OPTIONS").unwrap_or_default();
    let logs = CodeLogs::of(&opened.trace, folder, &node_options);
    let replaced = logs.replaced(&opened.trace);
    opened.symbols.know_generated_code(&logs);
    let bundle = opened.symbols.bundle_of_generated_code(&opened.trace, interrupt::flag()).map_err(|_| Interrupted)?;
    let (named, _) = bundle.counts();
    drop(opened);
    if named > 0 {
        let failed = || format!("cannot write names to {}", recording.display());
        let mut file = File::options().read(true).append(true).open(recording).with_context(failed)?;
        let len = bundle::length_without_names(&file).with_context(failed)?;
        file.set_len(len).with_context(failed)?;
        let more = bundle::append_pieces(&replaced, &mut file).with_context(failed)?;
        bundle.append(len + more, &mut file).with_context(failed)?;
    }
    // They were made for this; the recording has what it needs of them.
    for path in &logs.files {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(named as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_has_set_stays() {
        let set =
            switches(Path::new("/tmp/a"), |name| (name == "NODE_OPTIONS").then(|| "--max-old-space-size=64".into()));
        assert_eq!(set[0].1, "--max-old-space-size=64 --interpreted-frames-native-stack --perf-basic-prof --perf-prof");
        let java = set[1].1.to_string_lossy();
        assert!(java.starts_with("-XX:+Ignore") && java.ends_with(" -XX:LogFile=/tmp/a/%p.log"), "{java}");
    }
}
