//! The binary `heaptrace`: the command line and the HTTP server, over the crates beside it.

/// Writes a line to standard error, as `eprintln!` does. A standard error that nobody reads, or that is full, changes nothing
/// of what is done, least of all the status that `heaptrace run` passes on.
macro_rules! tell {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($text)*)));
    }};
}
pub(crate) use tell;

mod cli;
mod http;
mod query_params;

/// Where all of heaptrace is one static program: musl's own allocator has one lock, behind which threads queue.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    tracehound_symbols::install_panic_hook();
    cli::main(std::env::args_os())
}
