//! The binary `heaptrace`: the command line and the HTTP server, over the crates beside it.

mod cli;
mod http;
mod query_params;

fn main() -> std::process::ExitCode {
    tracehound_symbols::install_panic_hook();
    cli::main(std::env::args_os())
}
