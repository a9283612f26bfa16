//! `heaptrace collect`, `heaptrace fleet` and `heaptrace push`, which `heaptrace-fleet` beside us does; and recordings of
//! stores, which it brings here.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use tracehound_api::command_line::CommandDescription;

/// What is handed on as it is.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct FleetArgs {
    /// Options and arguments; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Becomes `heaptrace-fleet NAME …`.
pub fn become_fleet(name: &str, args: &FleetArgs) -> Result<ExitCode> {
    let program = program()?;
    // Only comes back when it cannot.
    let error = Command::new(&program).arg(name).args(&args.arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// What `heaptrace-fleet` says of its commands; none where it cannot be asked.
pub fn describe() -> Option<CommandDescription> {
    let output = Command::new(program().ok()?).arg("describe").stdin(Stdio::null()).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

fn program() -> Result<PathBuf> {
    let here = std::env::current_exe().context("cannot tell where heaptrace is")?;
    let beside = here.with_file_name("heaptrace-fleet");
    if beside.is_file() {
        return Ok(beside);
    }
    bail!("heaptrace-fleet is not beside {}: it is in the packages, and `make build` makes it", here.display())
}

/// Whether a recording is named by a URL.
pub fn is_url(path: &Path) -> bool {
    path.to_str()
        .is_some_and(|text| ["s3://", "gs://", "az://", "file://"].iter().any(|scheme| text.starts_with(scheme)))
}

/// The recordings that a URL names, as files of this machine: one of `…/raw/ID.dat`, all whole ones of a store.
pub fn local(url: &Path) -> Result<Vec<PathBuf>> {
    let program = program()?;
    let mut command = Command::new(&program);
    command.arg("fetch").arg(url).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("{} cannot be opened", url.display());
    }
    let text = String::from_utf8(output.stdout).context("heaptrace-fleet printed no paths")?;
    Ok(text.lines().map(PathBuf::from).collect())
}

/// Sends recordings to a collector, and waits until it has them. They stay here.
pub fn send(collector: &OsString, files: &[PathBuf]) -> Result<()> {
    let program = program()?;
    let mut command = Command::new(&program);
    let status = command.arg("send").arg("--to").arg(collector).args(files).stdin(Stdio::null()).status();
    if !status.with_context(|| format!("cannot start {}", program.display()))?.success() {
        bail!("not all recordings were sent to the collector; they are where they were made");
    }
    Ok(())
}
